"""What every reader of imported files gives: values with their places, problems instead of guesses, and results made of them.

    values of all files  ->  (run, job, pair) -> test -> measurement -> its metrics

Without a column `job`, all values of a pair in a run are one job. Without a column `repetition`, a value with another time
is another measurement, and so is a second value of the same metric at the same time.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import Better, Kernel, unknown_name

#: A run of an import without a column `job`: a pair's values in it are one job, so they must belong together.
JOB_HOURS_MAX = 36
#: A job so far from the middle of its run was dated by a wrong clock, if most jobs of the run are within a day of the middle.
CLOCK_DAYS_MAX = 7
#: The units that values may have, in base units; the table `unit` of the database has them all.
UNITS = ("bps", "pps", "eps", "flops", "bytes", "ns", "us", "ms", "s", "ratio", "count", "number")
#: How others write them.
_SPELLINGS = {
    "": "number",
    "1": "number",
    "bit/s": "bps",
    "bits/s": "bps",
    "b/s": "bps",
    "B": "bytes",
    "byte": "bytes",
    "packets/s": "pps",
}
#: Names of runs and jobs: `hpcq report RUN` makes a file of the run's name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+=@-]{0,119}")
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
#: Problems of one file that are shown; the file is refused anyway.
_SHOWN = 10
_FIRST_YEAR = 1970


class ImportedTest(NamedTuple):
    """A kernel with its parameters, as canonical JSON."""

    kernel: str
    parameters: str


class MetricName(NamedTuple):
    """What a value is: its name, which ends in its unit, and which direction is good."""

    name: str
    unit: str
    better: str


class Value(NamedTuple):
    """One value of one metric; of a test that failed, the row that says so (metric and value are None).

    line: where it stands in its file. job: empty where the file has none. repetition_no: None likewise.
    """

    line: int
    time_utc: str
    run: str
    job: str
    test: ImportedTest
    client: str
    server: str
    repetition_no: int | None
    outcome: str
    reason: str | None
    metric: MetricName | None
    value: float | None


@dataclass(frozen=True, slots=True)
class Source:
    """One file, and the values in it. They can be read once."""

    path: str
    sha256: bytes
    values: Iterable[Value]


@dataclass(slots=True)
class Problems:
    """What is wrong with the rows of files. Everything is read before the import is refused, so that all can be mended."""

    #: the first place of each problem, and in how many rows it is
    _places: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def add(self, path: str, line: int | None, what: str) -> None:
        """Note one problem: `what` says column, what was found and what is allowed. The same in many rows is one problem."""
        place, count = self._places.get((path, what), (f"{path}{'' if line is None else f':{line}'}", 0))
        self._places[path, what] = place, count + 1

    def refuse(self, hint: str) -> None:
        """Raise UserError with the first problems; do nothing if there are none."""
        if not self._places:
            return
        lines = []
        for (_, what), (place, count) in list(self._places.items())[:_SHOWN]:
            also = f" (and {count - 1} more row{'s' if count > 2 else ''} with the same)" if count > 1 else ""
            lines.append(f"{place}: {what}{also}")
        rest = sum(count for _, count in self._places.values()) - sum(
            count for _, count in list(self._places.values())[:_SHOWN]
        )
        more = f"\nand {rest} more rows" if rest else ""
        raise UserError("\n".join(lines) + more, f"nothing was imported; {hint}")


def read_bytes(path: Path) -> tuple[bytes, bytes]:
    """A file's content and its SHA-256. Raises UserError if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return content, hashlib.sha256(content).digest()


def utc_of(text: str) -> str:
    """A time of a file as the database has it. Without a zone it is UTC. Raises ValueError `FOUND: ALLOWED`."""
    try:
        moment = dt.datetime.fromisoformat(text if text[4:5] == "-" else "")  # and not 20261120T02, nor a week
    except ValueError:
        raise ValueError(f"{text!r}: must be a time in UTC, ISO 8601, like 2026-11-20T02:00:00Z") from None
    if moment.year < _FIRST_YEAR:
        raise ValueError(f"{text!r}: must be a time from {_FIRST_YEAR} on")
    return units.utc_text(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))


def name_of(text: str) -> str:
    """The name of a run, a job or a test. Raises ValueError `FOUND: ALLOWED`."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r}: must be letters, digits and _.:+=@-, no blank, 120 at most")
    return text


def test_of(kernel: Kernel | None, name: str, parameters: Mapping[str, Any]) -> ImportedTest:
    """A test by its name here; one whose name is a kernel's has that kernel's size option.

    kernel: the one of this name, None: hpcq knows none. parameters: `message_bytes` and others. Raises ValueError.
    """
    told = dict(parameters)
    size = told.pop("message_bytes", None)
    if size is not None:
        option = "message_bytes" if kernel is None else kernel.size_option
        if option is None:
            raise ValueError(f"{size}: {name} has no size: must be an empty cell")
        told[option] = size
    return ImportedTest(name, json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def metric_of(kernel: Kernel | None, name: str, unit: str, better: str) -> MetricName:
    """A metric by what a file says of it. Raises ValueError `COLUMN: FOUND: ALLOWED`.

    Its name ends in its unit; where the file's does not, the unit is added: throughput in bps is throughput_bps. Of a
    kernel that hpcq knows it must be one of that kernel's metrics, with the direction that it has there.
    """
    if _METRIC.fullmatch(name) is None:
        raise ValueError(f"metric: {name!r}: must be letters, digits and _, a letter first, 80 at most")
    unit = _SPELLINGS.get(unit, unit)
    if unit not in UNITS:
        raise ValueError(f"unit: {unit!r}: must be one of {', '.join(UNITS)}: values in base units")
    if better not in set(Better):
        raise ValueError(f"better: {better!r}: must be higher, lower or none (shown, never judged)")
    told = units.unit_of(name)
    if told is None and unit != "number":
        name, told = f"{name}_{unit}", unit
    if (told or "number") != unit:
        raise ValueError(f"unit: {unit!r}: {name} says {told} itself: must be {told}")
    if kernel is not None:
        known = kernel.metric(name)
        if known is None:
            message, hint = unknown_name(f"metric of {kernel.name}", name, [one.name for one in kernel.metrics])
            raise ValueError(f"metric: {message}: {hint}; or another test, which may have any")
        if known.better != better:
            raise ValueError(f"better: {better!r}: {name} of {kernel.name} is better {known.better.value}: must be that")
    return MetricName(name, unit, better)


def remembered(read: Callable[..., Any]) -> Callable[..., Any]:
    """`read` with its answers kept: a file of a million rows has few names. Its ValueErrors are kept too."""
    answers: dict[tuple[Any, ...], Any] = {}

    def asked(*words: Any) -> Any:
        found = answers.get(words)
        if found is None:
            try:
                found = read(*words)
            except ValueError as error:
                found = error
            answers[words] = found
        if isinstance(found, ValueError):
            raise found
        return found

    return asked


@dataclass(slots=True)
class Imported:
    """One measurement with its metrics. `order`: place among those of its job, test and outcome at the same time.

    source_no, line: the number of its file, and its first row there.
    """

    test: ImportedTest
    time_utc: str
    repetition_no: int | None
    order: int
    outcome: str
    reason: str | None
    source_no: int
    line: int
    metrics: list[tuple[MetricName, float]] = field(default_factory=list)


@dataclass(slots=True)
class ImportedJob:
    """The measurements of one job: of a pair, a node alone, or a set."""

    name: str
    client: str
    server: str
    is_named: bool
    first_utc: str
    last_utc: str
    found: list[Imported] = field(default_factory=list)


@dataclass(slots=True)
class ImportedRun:
    """The jobs of one run, by name. source_no, line: the number of its file, and its first row there."""

    name: str
    source_no: int
    line: int
    jobs: dict[str, ImportedJob] = field(default_factory=dict)


def runs_of(sources: Iterable[Source], problems: Problems) -> tuple[list[ImportedRun], list[tuple[str, bytes]]]:
    """The runs in these files, and path and SHA-256 of each. Values that contradict each other go to `problems`."""
    runs: dict[str, ImportedRun] = {}
    files: list[tuple[str, bytes]] = []
    for number, source in enumerate(sources):
        files.append((source.path, source.sha256))
        _gather(runs, number, source, problems)
    for run in runs.values():
        for job in run.jobs.values():
            _check_length(run, job, files[run.source_no][0], problems)
        _check_clocks(run, files, problems)
    return list(runs.values()), files


def _gather(runs: dict[str, ImportedRun], source_no: int, source: Source, problems: Problems) -> None:
    names: dict[tuple[str, str, str], str] = {}
    #: Measurements by job, test and repetition; without one, by job, test, outcome and time, where there may be several.
    known: dict[tuple[Any, ...], list[Imported]] = {}
    for one in source.values:
        pair = (one.job, one.client, one.server)
        name = names.get(pair)
        if name is None:
            name = names[pair] = _job_name(one)
        run = runs.get(one.run)
        if run is None:
            run = runs[one.run] = ImportedRun(one.run, source_no, one.line)
        job = run.jobs.get(name)
        if job is None:
            job = ImportedJob(name, one.client, one.server, bool(one.job), one.time_utc, one.time_utc)
            run.jobs[name] = job
        numbered = one.repetition_no is not None
        key = (id(job), one.test, one.repetition_no) if numbered else (id(job), one.test, one.outcome, one.time_utc)
        same = known.setdefault(key, [])
        found = next((other for other in same if numbered or not _has(other, one.metric)), None)
        if found is None:
            where = (len(same), one.outcome, one.reason, source_no, one.line)
            found = Imported(one.test, one.time_utc, one.repetition_no, *where)
            same.append(found)
            job.found.append(found)
            job.first_utc, job.last_utc = min(job.first_utc, one.time_utc), max(job.last_utc, one.time_utc)
        elif problem := _contradiction(found, one):
            problems.add(source.path, one.line, problem)
        if one.metric is not None and one.value is not None:
            found.metrics.append((one.metric, one.value))


def _has(found: Imported, metric: MetricName | None) -> bool:
    """Whether another value of this metric, or another failure, is another measurement."""
    return metric is None or any(name == metric for name, _ in found.metrics)


def _job_name(one: Value) -> str:
    pair = one.client if one.client == one.server else f"{one.client}>{one.server}"
    return f"{one.job}/{pair}" if one.job else pair


def _contradiction(found: Imported, one: Value) -> str:
    if one.time_utc != found.time_utc:
        return (
            f"column repetition: {one.repetition_no}: line {found.line} has the same run, job, test, pair and repetition at"
            " another time: a column `job` tells jobs apart"
        )
    if one.outcome != found.outcome:
        return f"column outcome: {one.outcome!r}: line {found.line} says {found.outcome!r} of the same measurement"
    if one.metric is not None and _has(found, one.metric):
        return f"column metric: {one.metric.name}: line {found.line} has it of the same measurement: must be one value"
    return ""


def _check_length(run: ImportedRun, job: ImportedJob, path: str, problems: Problems) -> None:
    """A pair's values of half a year are no one job: its median would hide every change."""
    if job.is_named or job.last_utc[:10] == job.first_utc[:10]:
        return
    if units.parse_utc(job.last_utc) - units.parse_utc(job.first_utc) > dt.timedelta(hours=JOB_HOURS_MAX):
        problems.add(
            path,
            run.line,
            f"column run: {run.name!r}: its values of {job.name} are {job.first_utc[:16]} to {job.last_utc[:16]}: without a"
            f" column `job` they are one job, so they may span {JOB_HOURS_MAX} hours: one run per night, or a column `job`",
        )


def _check_clocks(run: ImportedRun, files: list[tuple[str, bytes]], problems: Problems) -> None:
    """A run begins with its first job: one job that is dated 1970, or 2099, would move the whole night."""
    began = sorted(units.parse_utc(job.first_utc) for job in run.jobs.values())
    middle, far = began[len(began) // 2], dt.timedelta(days=CLOCK_DAYS_MAX)
    if began[-1] - middle <= far and middle - began[0] <= far:
        return
    near_count = sum(abs(one - middle) <= dt.timedelta(days=1) for one in began)
    if near_count * 2 <= len(began):
        return
    for job in run.jobs.values():
        if abs(units.parse_utc(job.first_utc) - middle) > far:
            first = min(job.found, key=lambda one: one.time_utc)
            problems.add(
                files[first.source_no][0],
                first.line,
                f"column time: {first.time_utc[:19]}Z: {near_count} of {len(began)} jobs of run {run.name} are of"
                f" {middle:%Y-%m-%d}, give or take a day: must be within {CLOCK_DAYS_MAX} days of them; a clock was wrong?",
            )

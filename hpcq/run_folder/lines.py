"""Judge the files of one measurement: do they hold a number to believe, and if not, why not.

Hides everything that can be wrong with a file: absent, empty, torn, two lines, not JSON, NaN, of another kernel,
with parameters other than planned. Pure apart from reading the three files.

    t1-r1.json  t1-r1.status  t1-r1.err  --read_line-->  Line(outcome, reason, metrics, the whole JSON object)
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hpcq.kernels import kernels
from hpcq.run_folder.crashes import crash_words
from hpcq.run_folder.described_lines import translated
from hpcq.run_folder.paths import parse_json
from hpcq.run_folder.printed import NothingPrintedError, measured_sizes, of_size, printed

#: The largest integer that SQLite can hold.
INTEGER_MAX = 2**63 - 1
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_ERROR_TEXT_MAX = 300


class Outcome(StrEnum):
    """The words of result.outcome."""

    MEASURED = "measured"
    INVALID = "invalid"
    FAILED = "failed"
    NOT_MEASURED = "not_measured"


@dataclass(slots=True)
class Line:
    """What one measurement left. `content` is the kernel's object, empty if there is none to believe."""

    outcome: Outcome
    reason: str | None
    exit_code: int | None
    started_utc: str | None
    duration_ns: int | None
    metrics: dict[str, float] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawLine:
    """The bytes of one measurement, as they are in the attempt's folder."""

    content: bytes | None
    status: bytes | None
    sha256: bytes
    #: Why there is no result line, if the record gives a reason.
    said: str = ""
    #: What the launcher and the program wrote for people, if the record has it; otherwise a file beside it may.
    words: str = ""


def read_raw(path: Path) -> RawLine | None:
    """Return the bytes of `t<n>-r<n>.json` and its .status; None when neither exists.

    If the script was killed with its kernel, what a sweep had measured by then is in the file that it was about to name so.
    """
    content, status = _bytes(path), _bytes(path.with_suffix(".status"))
    if content is None and status is None:
        under_way = _bytes(path.with_name(path.name + ".part")) or b""
        content = under_way if measured_sizes(under_way) else None
    if content is None and status is None:
        return None
    digest = hashlib.sha256(content or b"")
    digest.update(b"\0" + (status or b""))
    return RawLine(content, status, digest.digest())


def sizes_measured_before(attempts: Path, step_name: str) -> tuple[int, ...]:
    """Return the sizes of a sweep that some attempt of a job measured. attempts: the folder of the job's attempts."""
    names = (f"{step_name}.json", f"{step_name}.json.part")
    found = [path for name in names for depth in ("*", "*/*") for path in attempts.glob(f"{depth}/{name}")]
    raws = (read_raw(path.with_name(names[0])) for path in found)
    return tuple(sorted({size for raw in raws if raw is not None for size in measured_sizes(raw.content or b"")}))


def read_line(raw: RawLine, path: Path, kernel: str, parameters: Mapping[str, Any]) -> Line:
    """Judge the bytes of one measurement against what was planned."""
    status = _object(raw.status)
    return_code = whole(status.get("rc"))
    started_utc = utc_or_none(status.get("started_utc"))
    if not (raw.content or b"").strip() and raw.said:
        return Line(Outcome.FAILED, raw.said, return_code, started_utc, None)
    try:
        content, return_code = of_size(printed(raw.content or b""), parameters, return_code)
    except NothingPrintedError as error:
        return _without_content(str(error), return_code, started_utc, raw.words or _words(path), silent=True)
    except ValueError as error:
        return _without_content(str(error), return_code, started_utc, raw.words or _words(path))
    return_code = whole(return_code)
    described = kernels().get(kernel)
    if described is not None and described.described is not None:
        content = translated(content, described, parameters)
    line = Line(
        Outcome.MEASURED,
        None,
        return_code if return_code is not None else whole(content.get("exit_code")),
        utc_or_none(content.get("started_utc")) or started_utc,
        whole(content.get("duration_ns")),
        content=content,
    )
    _fill(line)
    _judge(line, return_code, kernel, parameters)
    return line


def echo_complaint(planned: Mapping[str, Any], echoed: object) -> str | None:
    """Say how the parameters that a kernel used differ from the planned ones; None when they do not."""
    if not isinstance(echoed, dict):
        return "echo: the line has no options"
    for name, value in planned.items():
        if name not in echoed:
            return f"echo: {name}: planned {_shown(value)}, the kernel does not mention it"
        if not _same(value, echoed[name]):
            return f"echo: {name}: planned {_shown(value)}, the kernel used {_shown(echoed[name])}"
    unplanned = sorted(echoed.keys() - planned.keys())
    if unplanned:
        return f"echo: {unplanned[0]}: not in the plan, the kernel used {_shown(echoed[unplanned[0]])}"
    return None


def elsewhere(content: Mapping[str, Any], pair: Sequence[str]) -> str | None:
    """Say that an end of a result measured on a node other than the planned one; None when it did not.

    pair: the planned client and server, of a set of nodes each of them. The scheduler's name of the node counts: a host
    may call itself otherwise.
    """
    ends = mapping(content.get("evidence"))
    for number, planned in enumerate(pair):
        end = ("client", "server", f"rank{number}")[min(2, number)]
        node = mapping(ends.get(end)).get("scheduler_node")
        if isinstance(node, str) and node not in {"", planned}:
            return f"elsewhere: its {end} ran on {_shown(node)}, planned was {_shown(planned)}"
    return None


def whole(value: object) -> int | None:
    """Return an integer that the database can hold, or None."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INTEGER_MAX:
        return None
    return value


def finite(value: object) -> float | None:
    """Return a finite number as float, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def utc_or_none(value: object) -> str | None:
    """Return a moment in our form, or None."""
    return value if isinstance(value, str) and _UTC.fullmatch(value) else None


def mapping(value: object) -> dict[str, Any]:
    """Return an object of a line, or an empty one if the value is something else."""
    return value if isinstance(value, dict) else {}


def _judge(line: Line, return_code: int | None, kernel: str, parameters: Mapping[str, Any]) -> None:
    content = line.content
    said = whole(content.get("exit_code"))
    if content.get("format") != 1:
        line.outcome, line.reason = Outcome.INVALID, f"format {_shown(content.get('format'))}: allowed is 1"
        line.metrics.clear()
        return
    error = mapping(content.get("error"))
    worst = return_code if return_code not in {0, 1, None} else said
    if worst not in {0, 1, None}:
        words = ": ".join(str(error[key]) for key in ("state", "message") if error.get(key))
        line.outcome, line.reason = Outcome.FAILED, words or f"exit code {worst}"
        return
    complaints = [
        complaint
        for complaint in (_kernel_complaint(content, kernel), echo_complaint(parameters, content.get("options")))
        if complaint
    ]
    if content.get("valid") is not True:
        complaints.append(str(content.get("invalid_reason") or "the kernel calls it invalid and does not say why"))
    elif said is not None and return_code is not None and said != return_code:
        complaints.append(f"exit code {return_code}, but the line says {said}")
    complaints += [message for name, message in line.warnings if name == "metric_unusable"]
    if not complaints and not line.metrics:
        complaints.append("no metrics in the line")
    if complaints:
        line.outcome, line.reason = Outcome.INVALID, "; ".join(complaints)


def _kernel_complaint(content: Mapping[str, Any], kernel: str) -> str | None:
    found = content.get("kernel")
    return None if found == kernel else f"kernel {_shown(found)}: planned {kernel}"


def _fill(line: Line) -> None:
    for name, value in mapping(line.content.get("metrics")).items():
        if value is None:
            continue
        number = finite(value)
        if number is None:
            line.warnings.append(("metric_unusable", f"metric {name}: {_shown(value)} is not a finite number"))
        else:
            line.metrics[name] = number
    warnings = line.content.get("warnings")
    for one in warnings if isinstance(warnings, list) else []:
        if isinstance(one, dict):
            line.warnings.append((str(one.get("name", "unnamed")), str(one.get("message", ""))))


def _without_content(found: str, return_code: int | None, started_utc: str | None, said: str, *, silent: bool = False) -> Line:
    """Return a line without content.

    The kernel failed if it said so or printed nothing. A line that cannot be read is invalid.
    """
    failed = silent or return_code not in {0, 1, None}
    exit_text = f"exit code {return_code}" if return_code is not None else "exit code unknown"
    words = [found, exit_text, crash_words(said, return_code), _last_words(said)]
    reason = "; ".join(one for one in words if one)
    return Line(Outcome.FAILED if failed else Outcome.INVALID, reason, return_code, started_utc, None)


def _words(path: Path) -> str:
    """Return what the kernel wrote for people, from the file beside its line."""
    return (_bytes(path.with_suffix(".err")) or b"").decode("utf-8", "replace")


def _last_words(said: str) -> str:
    """Return the last line that the kernel wrote for people."""
    return said.strip().rpartition("\n")[2].strip()[:_ERROR_TEXT_MAX]


def _object(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {}
    try:
        return parse_json(content)
    except ValueError:
        return {}


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _same(planned: object, echoed: object) -> bool:
    if isinstance(planned, bool) or isinstance(echoed, bool):
        return planned is echoed
    if isinstance(planned, (int, float)) and isinstance(echoed, (int, float)):
        return planned == echoed or math.isclose(planned, echoed, rel_tol=1e-12)
    return planned == echoed


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value) if value is not None else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."

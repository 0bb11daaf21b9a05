"""Load one cluster's part of a run into the database, within the caller's transaction.

plan     run, campaign, run_cluster, nodes, build, jobs and attempts: plan_rows.py
results  every file of every new attempt
rest     a row with a reason for everything planned but missing; which row of several attempts counts
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcq.clock import DriverTimes, utc_or_none
from hpcq.definition.find import kernels_of_run
from hpcq.definition.model import Test
from hpcq.errors import CHANGED_HINT, StoreError
from hpcq.evidence.case import EvidenceVerdict, Judge, JudgedResult, no_judge
from hpcq.kernels import SIZE_OPTION, Kernels
from hpcq.planning.links import link_in, split
from hpcq.planning.plan import Plan, contradiction, job_name_of, pair_index_of
from hpcq.run_folder.journal import Attempt, EventName, JournalState, StepKey, fold, read_journal
from hpcq.run_folder.lines import (
    Line,
    Outcome,
    RawLine,
    elsewhere,
    finite,
    mapping,
    printed,
    read_line,
    read_raw,
    skipped_sizes,
    whole,
)
from hpcq.run_folder.paths import RESULT_NAME, RunFolder, job_text, parse_json, read_job_file, read_json, read_json_or_none
from hpcq.run_folder.spools import SPOOL, Spool
from hpcq.store.blocks import BlockWriter, Content, Name
from hpcq.store.database import transaction, writing
from hpcq.store.load.row_keys import Builds, JobKeys, PlanRows, RowKeys, TestKeys, canonical, scalar
from hpcq.units import utc_now

# ----------------------------------------------------------------------------------------------------------------------
# Rows with a reason for measurements that were planned but are missing, and which of several attempts counts.
#
# A placeholder is a row of `result` without an attempt. If its measurement arrives later, the real row takes its key.


#: Reasons that begin like this mean: the measurement may still come.
REASON_PENDING = "pending: "
#: Ends of an attempt that somebody ordered: what a signal interrupted then says nothing of the nodes.
_ORDERED_ENDS = frozenset({"cancelled", "withdrawn", "preempted"})
_INTERRUPTED = "interrupted by signal"
_RANK = {Outcome.MEASURED: 0, Outcome.INVALID: 1, Outcome.FAILED: 2, Outcome.NOT_MEASURED: 3}
_PARTS_OF_RESULT = (
    "metric",
    "warning",
    "sample",
    "evidence_end",
    "evidence",
    "result_finding",
    "retraction",
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A result row without an attempt."""

    result_id: int
    reason: str


#: By job_id, test_no, repetition_no.
Placeholders = dict[tuple[int, int, int], Placeholder]


def placeholders_of(database: sqlite3.Connection, run_cluster_id: int) -> Placeholders:
    """Placeholders of earlier loads."""
    rows = database.execute(
        "SELECT x.job_id, x.test_no, x.repetition_no, x.result_id, x.reason FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.attempt_id IS NULL",
        (run_cluster_id,),
    )
    return {(job_id, test_no, rep): Placeholder(result_id, reason) for job_id, test_no, rep, result_id, reason in rows}


def brought_steps(database: sqlite3.Connection, run_cluster_id: int) -> dict[int, set[tuple[int, int]]]:
    """By job_id, the measurements for which an attempt left a result, whatever its outcome."""
    brought: dict[int, set[tuple[int, int]]] = {}
    for job_id, test_no, repetition_no in database.execute(
        "SELECT x.job_id, x.test_no, x.repetition_no FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.attempt_id IS NOT NULL",
        (run_cluster_id,),
    ):
        brought.setdefault(job_id, set()).add((test_no, repetition_no))
    return brought


#: Why a repetition was not measured where a campaign says `decided_after`.
DECIDED = "decided: the test failed twice the same way in this job"
_DECIDED_JOB = "decided: each test of this job failed, and none measured anything"
#: What a job wrote may be anybody's: no other number is looked at, and no more of the names.
_TEST_NO = re.compile(r"[0-9]{1,6}")
_OTHERS_MAX = 200


def missing_reason(tries: Sequence[Attempt], not_run: str | None, *, closed: bool) -> str:
    """Why a measurement of a job is missing: how each attempt ended, or why there was none."""
    if tries and tries[-1].live:
        return REASON_PENDING + tries[-1].describe()
    ends = "; ".join(attempt.describe() for attempt in tries)
    if tries and tries[-1].outcome == "completed":
        ends += ", but left no result"
    if not_run is not None:
        return f"{ends}; not tried again: {not_run}" if ends else f"not run: {not_run}"
    if ends:
        return ends
    return "not run: the journal gives no reason" if closed else REASON_PENDING + "not submitted yet"


def insert(database: sqlite3.Connection, row: Sequence[Any]) -> None:
    """Insert a placeholder: job_id, test_no, repetition_no, series_id, parameter_set_id, reason."""
    database.execute(
        "INSERT INTO result (job_id, test_no, repetition_no, final, series_id, parameter_set_id, outcome, reason, disturbed,"
        " crossed_interface) VALUES (?, ?, ?, 0, ?, ?, 'not_measured', ?, 0, 'unknown')",
        row,
    )


def reword(database: sqlite3.Connection, result_id: int, text: str) -> None:
    """Give a placeholder its present reason."""
    database.execute("UPDATE result SET reason = ? WHERE result_id = ?", (text, result_id))


def remove(database: sqlite3.Connection, result_id: int) -> None:
    """Delete a placeholder or a formerly unreadable row, so that a better row can take its key."""
    for table in _PARTS_OF_RESULT:
        database.execute(f"DELETE FROM {table} WHERE result_id = ?", (result_id,))  # noqa: S608 - our own names
    database.execute("DELETE FROM result WHERE result_id = ?", (result_id,))


def choose_final(database: sqlite3.Connection, run_cluster_id: int) -> None:
    """Of the rows of each planned measurement, let the first measured one count, else the last attempt."""
    best: dict[tuple[int, int, int], tuple[tuple[int, int], int]] = {}
    now: dict[tuple[int, int, int], int] = {}
    for result_id, job_id, test_no, repetition_no, outcome, attempt_no, final in database.execute(
        "SELECT x.result_id, x.job_id, x.test_no, x.repetition_no, x.outcome, coalesce(a.attempt_no, 0), x.final"
        " FROM result x JOIN job j ON j.job_id = x.job_id LEFT JOIN attempt a ON a.attempt_id = x.attempt_id"
        " WHERE j.run_cluster_id = ?",
        (run_cluster_id,),
    ):
        step = (job_id, test_no, repetition_no)
        rank = _RANK[Outcome(outcome)]
        order = (0 if rank == 0 else 1, attempt_no if rank == 0 else -attempt_no)
        if final:
            now[step] = result_id
        if step not in best or order < best[step][0]:
            best[step] = (order, result_id)
    changed = [(step, result_id) for step, (_, result_id) in best.items() if now.get(step) != result_id]
    database.executemany(
        "UPDATE result SET final = 0 WHERE result_id = ?", [(now[step],) for step, _ in changed if step in now]
    )
    database.executemany("UPDATE result SET final = 1 WHERE result_id = ?", [(result_id,) for _, result_id in changed])


# ----------------------------------------------------------------------------------------------------------------------


#: One planned measurement of a job.
Step = StepKey
#: The facts of both nodes of a job, by node.
Facts = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A result file that an earlier load read."""

    ingest_file_id: int
    sha256: bytes
    result_id: int | None
    outcome: str | None


@dataclass(frozen=True, slots=True)
class ResultSource:
    """One result file: its path and what it belongs to."""

    path: Path
    job: JobKeys
    attempt: Attempt
    attempt_id: int
    step: Step
    raw: RawLine | None = None


# ----------------------------------------------------------------------------------------------------------------------
# Turn one measurement into rows: result, metrics, warnings, granted values, samples, histogram, evidence of both ends.
#
#     ResultWriter.add(Line, who and where) -> rows in memory -> flush() -> executemany into each table
#
# Nothing in a line is trusted: whatever lacks the promised form becomes a warning of the result, never an exception.


_FLUSH_ROWS = 50_000
#: kernels/c/base/histogram.h: HISTOGRAM_BUCKET_COUNT. No kernel prints more buckets.
_BUCKETS_MAX = 4352
#: Far more than any node has: 1,000 CPUs with 60 interrupts each.
_COUNTERS_MAX = 60_000
_INTERVAL_COLUMNS_MAX = 32
#: A day in intervals of 100 ms.
_INTERVALS_MAX = 864_000
_GRANTED_MAX = 200
#: What may be the name of an interface, or of a domain of libfabric: one word.
_INTERFACE = re.compile(r"[!-~]{1,64}")
_UNAVAILABLE_MAX = 5000
_ENDS = ("client", "server")
_INSERTS = {
    "result": "INSERT INTO result (result_id, job_id, test_no, repetition_no, attempt_id, final, series_id, parameter_set_id,"
    " outcome, reason, started_utc, duration_ns, exit_code, disturbed, crossed_interface, rules_version, build_id,"
    " ingest_file_id) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "metric": "INSERT INTO metric (result_id, metric_name_id, value) VALUES (?, ?, ?)",
    "warning": "INSERT INTO warning (result_id, warning_no, name, message) VALUES (?, ?, ?, ?)",
    "sample": "INSERT INTO sample (result_id, path, format, sample_count) VALUES (?, ?, ?, ?)",
    "evidence_end": "INSERT INTO evidence_end (result_id, end_index, endpoint_id, node_boot_id, taken, unavailable_set_id)"
    " VALUES (?, ?, ?, ?, ?, ?)",
    "result_finding": "INSERT OR REPLACE INTO result_finding (result_id, rule_id, end_index, message, figures)"
    " VALUES (?, ?, ?, ?, ?)",
}


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """What a result belongs to; all but `result_id`, `test_no` and `repetition_no` are keys of other tables."""

    result_id: int
    job_id: int
    test_no: int
    repetition_no: int
    attempt_id: int | None
    kernel_id: int
    series_id: int
    parameter_set_id: int
    build_id: int | None
    ingest_file_id: int | None
    #: Of the client and the server; of MPI, of each rank.
    node_ids: tuple[int, ...]
    #: What the driver's clock says about when it was measured.
    driver_times: DriverTimes


class ResultWriter:
    """Collects the rows of many results. Nothing reaches the database before `flush`."""

    def __init__(self, database: sqlite3.Connection, names: RowKeys) -> None:
        self._database = database
        self._names = names
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._row_count = 0
        self._blocks = BlockWriter(database, names.evidence_name)
        self._boots: dict[int, tuple[str, str]] = {}

    def add(self, line: Line, place: ResultPlace, judgement: EvidenceVerdict) -> None:
        """Add all rows of one result."""
        result_id, content = place.result_id, Content()
        self._evidence(line, place, content)
        self._samples(line, place, content)
        self._intervals(line, content)
        granted = self._some(line, "granted", mapping(line.content.get("granted")), _GRANTED_MAX)
        told = ((name, scalar(value)) for name, value in granted.items())
        content.granted = {("granted", "granted", name): value for name, value in told if value is not None}
        if content.ends or content.granted or content.rows or content.buckets:
            self._blocks.add(result_id, content)
            self._row_count += len(content.names)
        for finding in judgement.findings:
            rule = finding.rule
            rule_id = self._names.rule(rule.name, rule.meaning, rule.advice, rule.source)
            end_index = _ENDS.index(finding.end) if finding.end else -1
            self._put("result_finding", (result_id, rule_id, end_index, finding.message, canonical(finding.figures)))
        self._put(
            "result",
            (
                result_id,
                place.job_id,
                place.test_no,
                place.repetition_no,
                place.attempt_id,
                place.series_id,
                place.parameter_set_id,
                line.outcome.value,
                line.reason,
                line.started_utc,
                line.duration_ns,
                line.exit_code,
                int(judgement.disturbed),
                judgement.crossed_interface.value,
                judgement.rules_version,
                place.build_id,
                place.ingest_file_id,
            ),
        )
        for name, value in line.metrics.items():
            self._put("metric", (result_id, self._names.metric_name(place.kernel_id, name), value))
        for warning_no, (name, message) in enumerate(line.warnings, start=1):
            self._put("warning", (result_id, warning_no, name, message))
        if self._row_count > _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        for table, rows in self._rows.items():
            if rows:
                # in the order of their keys, so that SQLite fills its pages
                self._database.executemany(_INSERTS[table], sorted(rows) if table == "metric" else rows)
                rows.clear()
        self._blocks.flush()
        self._row_count = 0
        for node_boot_id, (first_utc, last_utc) in self._boots.items():
            self._database.execute(
                "UPDATE node_boot SET first_seen_utc = min(first_seen_utc, ?2), last_seen_utc = max(last_seen_utc, ?3)"
                " WHERE node_boot_id = ?1",
                (node_boot_id, first_utc, last_utc),
            )
        self._boots.clear()

    @staticmethod
    def _some(line: Line, what: str, found: Mapping[str, Any], most: int) -> Mapping[str, Any]:
        """At most so many entries; a line that has more was not written by a program of ours, and gets a warning."""
        if len(found) <= most:
            return found
        line.warnings.append(
            (f"{what}_left_out", f"{len(found) - most} of {len(found)} entries of {what}: at most {most} are kept")
        )
        return dict(itertools.islice(found.items(), most))

    def _put(self, table: str, row: tuple[Any, ...]) -> None:
        self._rows[table].append(row)
        self._row_count += 1

    def _samples(self, line: Line, place: ResultPlace, content: Content) -> None:
        samples = mapping(line.content.get("samples"))
        count = whole(samples.get("count"))
        if count is not None:
            self._put("sample", (place.result_id, str(samples.get("file", "")), str(samples.get("format", "")), count))
        histogram = mapping(line.content.get("histogram"))
        buckets = histogram.get("buckets")
        unit = histogram.get("unit", "ns")
        if isinstance(buckets, list) and len(buckets) > _BUCKETS_MAX:
            line.warnings.append(("histogram_unusable", f"{len(buckets)} buckets: must be at most {_BUCKETS_MAX}"))
            return
        for bucket in buckets if isinstance(buckets, list) else ():
            lower, sample_count = _pair(bucket)
            if str(unit) not in {"ns", "us", "ms", "s", "bytes", "bps"} or whole(lower) is None or whole(sample_count) is None:
                line.warnings.append(("histogram_unusable", f"bucket {str(bucket)[:60]} in {str(unit)[:20]}"))
                break
            content.histogram_unit = unit
            content.buckets.setdefault(lower, sample_count)

    def _intervals(self, line: Line, content: Content) -> None:
        series = self._some(line, "series", mapping(line.content.get("series")), _INTERVAL_COLUMNS_MAX)
        interval_ms, begins = whole(series.get("interval_ms")), series.get("begin_ms")
        for name, values in series.items():
            if name in {"interval_ms", "begin_ms"}:
                continue
            begin_ms = _begins(begins, interval_ms, values)
            if begin_ms is None or len(begin_ms) > _INTERVALS_MAX:
                line.warnings.append(("series_unusable", f"{name[:40]} {str(values)[:40]} each {str(interval_ms)[:20]} ms"))
                break
            content.intervals.append(("intervals", "interval", name))
            for begin, value in zip(begin_ms, values, strict=True):
                row = content.rows.setdefault(begin, [])
                row += [None] * (len(content.intervals) - 1 - len(row))
                row.append(value if finite(value) is not None else None)  # null: the sender got no turn
        for row in content.rows.values():
            row.extend([None] * (len(content.intervals) - len(row)))

    def _evidence(self, line: Line, place: ResultPlace, content: Content) -> None:
        ends = mapping(line.content.get("evidence"))
        for end_index, (end, node_id) in enumerate(zip(end_names(len(place.node_ids)), place.node_ids, strict=True)):
            evidence = mapping(ends.get(end))
            if evidence:
                keys, content.ends[end_index] = self._end(evidence, node_id, line, place)
                self._put("evidence_end", (place.result_id, end_index, *keys))
                counters, gauges = (
                    self._some(line, what, mapping(evidence.get(what)), _COUNTERS_MAX) for what in ("counters", "gauges")
                )
                readings = content.readings[end_index] = {}
                unusable = [*_counters(counters, readings), *_gauges(gauges, readings)]
                if unusable:
                    message = f"{end}: {len(unusable)} values are only in the file, first {unusable[0][:100]}"
                    line.warnings.append(("evidence_unusable", message))
        ends_expected = _ENDS[:1] if line.content.get("one_node") is True else _ENDS
        if line.outcome is Outcome.MEASURED and not all(mapping(ends.get(end)) for end in ends_expected):
            line.warnings.append(("evidence_missing", "the line lacks the evidence of an end"))

    def _end(
        self, evidence: Mapping[str, Any], node_id: int, line: Line, place: ResultPlace
    ) -> tuple[tuple[int | None, ...], tuple[Any, ...]]:
        """The keys of an end's row, and what stands first in its part of the block."""
        endpoint_id = self._names.row(
            "endpoint",
            node_id=node_id,
            host_name=str(evidence.get("node") or ""),
            interface=str(evidence.get("interface") or ""),
            address=str(evidence.get("address") or ""),
        )
        before_utc, after_utc = utc_or_none(evidence.get("before_utc")), utc_or_none(evidence.get("after_utc"))
        before_cost_ns, after_cost_ns = _pair(evidence.get("snapshot_cost_ns"))
        unavailable = {name: str(reason) for name, reason in mapping(evidence.get("unavailable")).items()}
        unavailable = dict(self._some(line, "unavailable", unavailable, _UNAVAILABLE_MAX))
        keys = (
            endpoint_id,
            self._boot(evidence, node_id, place.driver_times.believed(before_utc) if before_utc else line.started_utc),
            int(after_utc is not None),
            self._names.content_set("unavailable", unavailable, ("source", "reason")) if unavailable else None,
        )
        first = (whole(evidence.get("pid")), whole(evidence.get("cpu_index")), before_utc, after_utc)
        return keys, (*first, whole(evidence.get("interval_ns")), whole(before_cost_ns), whole(after_cost_ns))

    def _boot(self, evidence: Mapping[str, Any], node_id: int, seen_utc: str | None) -> int | None:
        boot_id = evidence.get("boot_id")
        if not isinstance(boot_id, str) or not boot_id or seen_utc is None:
            return None
        key = self._names.node_boot(node_id, boot_id, seen_utc)
        first_utc, last_utc = self._boots.get(key, (seen_utc, seen_utc))
        self._boots[key] = (min(first_utc, seen_utc), max(last_utc, seen_utc))
        return key


def _counters(counters: Mapping[str, Any], readings: dict[Name, Any]) -> Iterable[str]:
    """Add what moved to `readings`; yields what is no whole number."""
    for name, value in counters.items():
        delta = whole(value)
        if delta is None:
            yield f"{name} {str(value)[:40]}"
        elif delta != 0:
            readings["ends", "counter", name] = delta


def _gauges(gauges: Mapping[str, Any], readings: dict[Name, Any]) -> Iterable[str]:
    """Add readings to `readings`; yields what is neither number nor word."""
    for name, value in gauges.items():
        before, after = _pair(value) if isinstance(value, list) else (value, None)
        if not _storable(before) or (after is not None and not _storable(after)):
            yield f"{name} {str(value)[:40]}"
        else:
            readings["ends", "gauge", name] = before if after is None else [before, after]


def end_names(count: int) -> list[str]:
    """What a result line calls its ends, by their index: client, server, rank2, ..."""
    return [*_ENDS, *(f"rank{number}" for number in range(2, count))][:count]


def _pair(value: object) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (None, None)


def _storable(value: object) -> bool:
    return isinstance(value, str) or whole(value) is not None or (isinstance(value, float) and finite(value) is not None)


def _begins(begins: Any, interval_ms: int | None, values: Any) -> list[int] | None:
    """When each value's interval began: as the line says, or one after the other; None if it does not say so."""
    if not isinstance(values, list):
        return None
    if isinstance(begins, list):
        found = [whole(one) for one in begins]
        told = [one for one in found if one is not None and one >= 0]
        return told if len(told) == len(values) == len(set(told)) else None
    return [index * interval_ms for index in range(len(values))] if interval_ms and interval_ms > 0 else None


# ----------------------------------------------------------------------------------------------------------------------


def _cut_short(raw: RawLine, attempt: Attempt) -> bool:
    """Whether a signal interrupted it where its attempt ended, or may yet end, by an order: then the order is the reason."""
    if (not attempt.live and attempt.outcome not in _ORDERED_ENDS) or _INTERRUPTED.encode() not in (raw.content or b""):
        return False
    try:
        content = printed(raw.content or b"")[0]
    except ValueError:
        return False
    said = str(mapping(content.get("error")).get("message"))
    return said.startswith(_INTERRUPTED) and "sizes" not in content


class ClusterLoader(PlanRows):
    """Loads one cluster once; create a new loader for each load."""

    def __init__(  # noqa: PLR0917 - where it is, and how to read and judge it
        self,
        database: sqlite3.Connection,
        folder: RunFolder,
        cluster: str,
        run: Mapping[str, Any],
        kernels: Kernels,
        judge: Judge,
    ) -> None:
        super().__init__(database, folder, cluster, run, kernels)
        self._kernels = kernels
        self.pending_count = 0
        self.read_count = 0
        self.known_count = 0
        self._judge = judge
        self._writer = ResultWriter(database, self._names)
        self._spools: dict[Path, Spool] = {}
        self._shared_facts: dict[Path, tuple[Mapping[str, Any], int]] = {}

    def load(self) -> None:
        """Load everything that is new. The caller's transaction makes it one step."""
        changes = self._database.total_changes
        plan = read_json(self._folder.plan(self.cluster), Plan)
        if complaint := contradiction(plan):
            raise StoreError(f"{self._folder.plan(self.cluster)}: {complaint}", CHANGED_HINT)
        state = self._state(plan)
        try:
            self._heads(plan, state)
            jobs = self._jobs(plan)
            self._tests = {test["test_no"]: self._test(Test(**test)) for test in plan["tests"]}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StoreError(f"{self._folder.plan(self.cluster)}: not a plan: {error!r}", CHANGED_HINT) from error
        attempts = self._attempts(jobs)
        placeholders = placeholders_of(self._database, self.run_cluster_id)
        highest = self._database.execute("SELECT coalesce(max(result_id), 0) FROM result").fetchone()[0]
        self._next_result_id = int(highest) + 1
        for job in jobs.values():
            for attempt, attempt_id in attempts.get(job.name, ()):
                self._load_attempt(job, attempt, attempt_id, placeholders)
        self._writer.flush()
        self._fill_missing(jobs, state, placeholders)
        choose_final(self._database, self.run_cluster_id)
        if self._database.total_changes != changes:
            self._database.execute(
                "UPDATE run_cluster SET loaded_utc = ? WHERE run_cluster_id = ?", (utc_now(), self.run_cluster_id)
            )

    # -- results ----------------------------------------------------------------------------------------------------

    @cached_property
    def _loaded(self) -> dict[str, KnownFile]:
        results = {
            row[0]: (row[1], row[2])
            for row in self._database.execute(
                "SELECT x.ingest_file_id, x.result_id, x.outcome FROM job j JOIN result x ON x.job_id = j.job_id"
                " WHERE j.run_cluster_id = ?",
                (self.run_cluster_id,),
            )
        }
        files = self._database.execute(
            "SELECT path, ingest_file_id, sha256 FROM ingest_file WHERE run_cluster_id = ?", (self.run_cluster_id,)
        )
        return {path: KnownFile(key, sha256, *results.get(key, (None, None))) for path, key, sha256 in files}

    def _load_attempt(self, job: JobKeys, attempt: Attempt, attempt_id: int, placeholders: Placeholders) -> None:
        folder = self._attempt_folder(attempt)
        if not folder.is_dir():
            return
        facts = {node: self._facts(folder, node, attempt_id) for node in job.nodes}
        if attempt.place is not None:
            self._load_spooled(ResultSource(folder, job, attempt, attempt_id, (0, 0)), facts, placeholders)
            return
        names = {
            path.stem.removesuffix(".json") + ".json"
            for path in folder.iterdir()
            if path.suffix in {".json", ".status", ".part"}
        }
        for name in sorted(names):
            match = RESULT_NAME.fullmatch(name)
            if match is None:
                continue
            step = (int(match[1]), int(match[2]))
            if step not in job.steps:
                self.notes.append(f"{self._path_below(folder / name)}: is not in the plan")
                continue
            for source in self._measured_in(ResultSource(folder / name, job, attempt, attempt_id, step)):
                if self._load_result(source, facts, placeholders.get((job.job_id, *source.step))):
                    placeholders.pop((job.job_id, *source.step), None)

    def _load_spooled(self, source: ResultSource, facts: Facts, placeholders: Placeholders) -> None:
        """Load what a tournament measured of one pair; `source.path` is its folder."""
        spool, job = self._spool(source.path / SPOOL), source.job
        for step in spool.steps(job.name):
            path = source.path / f"{SPOOL}#{job.name}-t{step[0]}-r{step[1]}"
            if step not in job.steps:
                self.notes.append(f"{self._path_below(path)}: is not in the plan")
                continue
            one = replace(source, path=path, step=step)
            one = replace(one, raw=self._counting(one, facts, spool.read_all(job.name, step)))
            for size in self._measured_in(one):
                if self._load_result(size, facts, placeholders.get((job.job_id, *size.step))):
                    placeholders.pop((job.job_id, *size.step), None)

    def _measured_in(self, source: ResultSource) -> list[ResultSource]:
        """The results in one file: usually one, with a table of sizes one per size, each with a name of its own."""
        first, repetition_no = source.step
        more = [test_no for test_no, keys in self._tests.items() if keys.test.measured_by == first]
        if not more:
            return [source]
        raw = source.raw or read_raw(source.path)
        skipped = skipped_sizes(raw.content or b"") if raw is not None else []
        named = [(first, source.path), *((no, source.path.with_name(f"{source.path.name}#t{no}")) for no in more)]
        named = [one for one in named if self._tests[one[0]].test.parameters.get(SIZE_OPTION) not in skipped]
        return [replace(source, path=path, step=(no, repetition_no), raw=raw) for no, path in named]

    def _counting(self, source: ResultSource, facts: Facts, lines: list[RawLine]) -> RawLine:
        """Of several lines about one measurement, return the first measured one, else the last.

        Loading one by one gives the same.
        """
        if len(lines) == 1:
            return lines[0]
        self.notes.append(f"{self._path_below(source.path)}: {len(lines)} lines about one measurement; one of them counts")
        test = self._tests[source.step[0]]
        for raw in lines[:-1]:
            times = source.attempt.driver_times
            line = read_line(raw, source.path, self._kernels, test.test.kernel, test.test.parameters, times)
            self._judged(line, test.test, facts, source.job, times)
            if line.outcome is Outcome.MEASURED:
                return raw
        return lines[-1]

    def _spool(self, path: Path) -> Spool:
        if path not in self._spools:
            spool = self._spools[path] = Spool(path)
            if spool.damaged_count:
                where = f"{self._path_below(path)}: {spool.damaged_count} lines that cannot be read"
                self.notes.append(f"{where}, the first at byte {spool.first_damaged_byte}")
        return self._spools[path]

    def _load_result(self, source: ResultSource, facts: Facts, there: Placeholder | None) -> bool:
        """Load one file unless it is known or may still be growing. `there` is the placeholder row for it."""
        path_below = self._path_below(source.path)
        raw, known = source.raw or read_raw(source.path), self._loaded.get(path_below)
        if raw is None or (raw.status is None and source.attempt.live) or (known is None and _cut_short(raw, source.attempt)):
            return False
        if known is not None and (known.sha256 == raw.sha256 or known.outcome == Outcome.MEASURED):
            self.known_count += 1
            if known.sha256 != raw.sha256:
                self.notes.append(f"{path_below}: changed after it was loaded; the first content stays")
            return False
        result_id = known.result_id if known is not None else there.result_id if there is not None else None
        if result_id is None:
            result_id = self._next_result_id
            self._next_result_id += 1
        else:
            remove(self._database, result_id)
        self._write(source, facts, result_id, self._ingest(source.path, raw.sha256, known), raw)
        return True

    def _write(self, source: ResultSource, facts: Facts, result_id: int, ingest_file_id: int, raw: RawLine) -> None:
        keys, job = self._tests[source.step[0]], source.job
        times = source.attempt.driver_times
        line = read_line(raw, source.path, self._kernels, keys.test.kernel, keys.test.parameters, times)
        judgement = self._judged(line, keys.test, facts, job, times)
        place = ResultPlace(
            result_id=result_id,
            job_id=job.job_id,
            test_no=source.step[0],
            repetition_no=source.step[1],
            attempt_id=source.attempt_id,
            kernel_id=keys.kernel_id,
            series_id=self._series(keys, job, self._network_of(line, job)),
            parameter_set_id=keys.parameter_set_id,
            build_id=self._builds_of(job).of_line(line, keys.test.toolchain),
            ingest_file_id=ingest_file_id,
            node_ids=self._ends_of(job),
            driver_times=times,
        )
        self._writer.add(line, place, judgement)
        self.read_count += 1

    def _judged(self, line: Line, test: Test, facts: Facts, job: JobKeys, times: DriverTimes) -> EvidenceVerdict:
        if line.outcome is not Outcome.MEASURED:
            return EvidenceVerdict()
        line.reason = elsewhere(line.content, self._nodes_of(job))
        if line.reason is not None:
            line.outcome = Outcome.INVALID
            return EvidenceVerdict()
        named = self._nodes_of(job)
        ends = (named[0], named[:2][-1])
        both = facts[job.nodes[0]], facts[job.nodes[:2][-1]]
        judgement = self._judge(JudgedResult(line.content, test.parameters, *both, ends, times))
        if judgement.invalid_reason is not None:
            line.outcome, line.reason = Outcome.INVALID, judgement.invalid_reason
        return judgement

    def _nodes_of(self, job: JobKeys) -> tuple[str, ...]:
        """Client and server, of a set of nodes each of them, with the names that their schedulers give them."""
        return job.nodes

    def _ends_of(self, job: JobKeys) -> tuple[int, ...]:
        """The nodes of a result's ends: client and server, of a set of nodes each of them."""
        if len(job.nodes) <= 2:
            return (job.client_node_id, job.server_node_id)[: len(job.nodes)]
        return tuple(map(self._node_id, job.nodes))

    def _network_of(self, line: Line, job: JobKeys) -> str:
        evidence = line.content.get("evidence")
        client = evidence.get("client") if isinstance(evidence, dict) else None
        interface = client.get("interface") if isinstance(client, dict) else None
        if not isinstance(interface, str) or not _INTERFACE.fullmatch(interface):
            return job.network or self._network  # words of a node that name no interface begin no series
        self._network = self._network or interface  # lines of this run that ended before this point would have used it too
        return interface

    def _series(self, keys: TestKeys, job: JobKeys, network: str) -> int:
        return self._names.series(
            keys.kernel_id,
            keys.test.telling,
            client_node_id=job.client_node_id,
            server_node_id=job.server_node_id,
            network=network,
            toolchain=keys.test.toolchain or self._builds_of(job).toolchain,
        )

    def _facts(self, folder: Path, node: str, attempt_id: int) -> Mapping[str, Any] | None:
        path = self._facts_path(folder, node)
        if path in self._shared_facts:  # another pair of the same tournament has loaded it
            facts, fact_set_id = self._shared_facts[path]
            row = (attempt_id, self._node_id(node), fact_set_id)
            self._database.execute("INSERT OR IGNORE INTO node_facts (attempt_id, node_id, fact_set_id) VALUES (?, ?, ?)", row)
            return facts
        try:
            content = read_job_file(path)
            facts = parse_json(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.notes.append(f"{self._path_below(path)}: {error}")
            return None
        digest = hashlib.sha256(content).digest()
        known = self._loaded.get(self._path_below(path))
        if known is None or known.sha256 != digest:
            self._ingest(path, digest, known)
            row = (attempt_id, self._node_id(node), self._names.fact_set(facts))
            self._database.execute("INSERT OR REPLACE INTO node_facts (attempt_id, node_id, fact_set_id) VALUES (?, ?, ?)", row)
        if (folder / SPOOL).is_file():
            self._shared_facts[path] = (facts, self._names.fact_set(facts))
        return facts

    def _ingest(self, path: Path, digest: bytes, known: KnownFile | None) -> int:
        if known is not None:
            self._database.execute(
                "UPDATE ingest_file SET sha256 = ? WHERE ingest_file_id = ?",
                (digest, known.ingest_file_id),
            )
            return known.ingest_file_id
        columns = {"run_cluster_id": self.run_cluster_id, "path": self._path_below(path)}
        return self._names.insert("ingest_file", {**columns, "sha256": digest})

    def _path_below(self, path: Path) -> str:
        return str(path.relative_to(self._folder.path))

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _fill_missing(self, jobs: Mapping[str, JobKeys], state: JournalState, placeholders: Placeholders) -> None:
        brought = brought_steps(self._database, self.run_cluster_id)
        attempts: dict[str, list[Attempt]] = {}
        for attempt in self._tries:
            attempts.setdefault(attempt.job, []).append(attempt)
        for job in jobs.values():
            absent = sorted(job.steps - brought.get(job.job_id, set()))
            if not absent:
                continue
            tries = attempts.get(job.name, [])
            reason = missing_reason(tries, state.not_run.get(pair_index_of(job.name)), closed=state.closed_utc is not None)
            self.pending_count += len(absent) if reason.startswith(REASON_PENDING) else 0
            decided = self._decided(job, tries)
            for step in absent:
                words = decided.get(step[0]) or decided.get(0) or reason
                self._put_missing(job, step, words, placeholders.pop((job.job_id, *step), None))
        for placeholder in placeholders.values():
            remove(self._database, placeholder.result_id)

    def _decided(self, job: JobKeys, tries: Sequence[Attempt]) -> dict[int, str]:
        """By test, or 0 for all: why the last attempt measured no further. Of a tournament: kernels/c/tournament/decide.h."""
        text = job_text(self._attempt_folder(tries[-1]) / "decided") if tries else ""
        if tries and tries[-1].place is None:
            tests = [int(word) for word in text.split() if _TEST_NO.fullmatch(word)]
            return {test_no: DECIDED if test_no else _DECIDED_JOB for test_no in tests}
        found: dict[int, str] = {}
        for what, name, *others in (line.split() for line in text.splitlines() if len(line.split()) > 2):
            if what == "node" and name in job.nodes:
                found[0] = f"decided: {name} failed with {', '.join(others)[:_OTHERS_MAX]}, which are fine with others"
            elif what == "test" and name == job.name and _TEST_NO.fullmatch(others[0]):
                found[int(others[0])] = DECIDED
        return found

    def _put_missing(self, job: JobKeys, step: Step, reason: str, there: Placeholder | None) -> None:
        if there is not None:
            if there.reason != reason:
                reword(self._database, there.result_id, reason)
            return
        keys = self._tests[step[0]]
        series_id = self._series(keys, job, job.network or self._network)
        insert(self._database, (job.job_id, *step, series_id, keys.parameter_set_id, reason))


# ----------------------------------------------------------------------------------------------------------------------
# Load a link's part of a run. It works as for a cluster, but an attempt has two jobs, with nodes of two clusters.
#
#     journal: attempts of both sides --one per attempt_no--> attempt        and each side by itself --> link_end
#     <link>/jobs/<job>/<attempt>/{from,to}/                                 results lie on the client's side
#
# The plan says which side should be the client. The journal says which side was, if only the other direction was open.


_SIDES = ("from", "to")
#: An attempt of a job: job_id, attempt_no.
_Key = tuple[str, int]


class LinkLoader(ClusterLoader):
    """Loads one link once; create a new loader for each load."""

    # -- journal ----------------------------------------------------------------------------------------------------

    def _state(self, plan: dict[str, Any]) -> JournalState:
        """Combine both sides into one attempt each. Swap the plan's pairs where the other side was the client."""
        self._link: Mapping[str, Any] = link_in(plan, str(self._folder.plan(self.cluster)))
        events = read_journal(self._folder.journal(self.cluster))
        state = fold(events)
        self._ends: dict[_Key, dict[str, Attempt]] = {}
        for attempt in state.attempts.values():
            self._ends.setdefault((attempt.job, attempt.attempt_no), {})[attempt.side] = attempt
        self._told: dict[str, dict[_Key, Mapping[str, Any]]] = {}
        for event in events:
            if event["event"] in {EventName.ESTIMATE, EventName.MET, EventName.WAYS}:
                self._told.setdefault(event["event"], {})[event["job"], event["attempt_no"]] = event
        self._turn(plan)
        self._tries = [self._whole(ends) for ends in self._ends.values()]
        return state

    def _turn(self, plan: dict[str, Any]) -> None:
        self._clients: dict[str, str] = {}
        for (job_id, _), event in self._told.get(EventName.WAYS, {}).items():
            if event["client"] is not None:
                self._clients[job_id] = event["client"]
        pairs = []
        for index, (client, server) in enumerate(plan["pairs"]):
            planned = self._side_of(client)
            turned = self._clients.setdefault(job_name_of(index), planned) != planned
            pairs.append([server, client] if turned else [client, server])
        plan["pairs"] = pairs

    def _whole(self, ends: Mapping[str, Attempt]) -> Attempt:
        """Combine the two sides of one attempt. It ends as the side did that caused the end."""
        sides = sorted(ends.values(), key=lambda one: (one.follows, one.outcome == "completed"))
        cause = sides[0]
        over = not any(one.live for one in sides)
        started = [one.started_utc for one in sides if one.started_utc]
        where = self._link[f"{cause.side}_cluster"]
        return Attempt(
            tag=cause.tag.removesuffix(f"-{cause.side}"),
            job=cause.job,
            attempt_no=cause.attempt_no,
            pairs=cause.pairs,
            nodes=tuple(node for side in _SIDES if side in ends for node in ends[side].nodes),
            committed_utc=min(one.committed_utc for one in sides),
            scheduler_job_id=" ".join(f"{one.side}:{one.scheduler_job_id}" for one in ends.values() if one.scheduler_job_id),
            submitted_utc=cause.submitted_utc,
            state=cause.state,
            outcome=cause.outcome if over else "",
            reason=f"{where}/{cause.nodes[0]}: {cause.reason}" if cause.reason and cause.outcome != "completed" else "",
            exit_code=cause.exit_code,
            started_utc=min(started) if started else None,
            end_seen_utc=max((one.end_seen_utc or "" for one in sides), default="") or None if over else None,
            ended_utc=max((one.ended_utc or "" for one in sides), default="") or None if over else None,
        )

    # -- rows -------------------------------------------------------------------------------------------------------

    def _heads(self, plan: Mapping[str, Any], state: JournalState) -> None:
        super()._heads(plan, state)
        ends = {f"{side}_cluster_id": self._cluster_ids[self._link[f"{side}_cluster"]] for side in _SIDES}
        self._database.execute(
            "INSERT OR IGNORE INTO link (cluster_id, from_cluster_id, to_cluster_id) VALUES (?, ?, ?)",
            (self._cluster_id, *ends.values()),
        )

    def _jobs(self, plan: Mapping[str, Any]) -> dict[str, JobKeys]:
        """As for a cluster. Corrects a job that was loaded before its client was known."""
        jobs = super()._jobs(plan)
        for job in jobs.values():
            changed = self._database.execute(
                "UPDATE job SET client_node_id = ?1, server_node_id = ?2 WHERE job_id = ?3 AND client_node_id <> ?1",
                (job.client_node_id, job.server_node_id, job.job_id),
            )
            if changed.rowcount:
                for (job_id, _, _), row in placeholders_of(self._database, self.run_cluster_id).items():
                    if job_id == job.job_id:
                        remove(self._database, row.result_id)
        return jobs

    def _attempts(self, jobs: Mapping[str, JobKeys]) -> dict[str, list[tuple[Attempt, int]]]:
        found = super()._attempts(jobs)
        for attempts in found.values():
            for attempt, attempt_id in attempts:
                self._put_ends((attempt.job, attempt.attempt_no), attempt_id)
        return found

    def _put_ends(self, key: _Key, attempt_id: int) -> None:
        told = {name: events.get(key, {}) for name, events in self._told.items()}
        waits = told.get(EventName.ESTIMATE, {}).get("wait_s", {})
        addresses = told.get(EventName.MET, {}).get("addresses", {})
        ways = told.get(EventName.WAYS, {})
        for side, end in self._ends[key].items():
            address, _, port = addresses.get(side, "").partition(" ")
            wait_s = waits.get(side)
            role = None if ways.get("client") is None else "client" if ways["client"] == side else "server"
            row = {
                "node_id": self._node_id(f"{self._link[f'{side}_cluster']}/{end.nodes[0]}"),
                "tag": end.tag,
                "scheduler_job_id": end.scheduler_job_id or None,
                "outcome": end.outcome or None,
                "reason": end.reason or None,
                "exit_code": whole(end.exit_code),
                "role": role,
                "address": address if port not in {"", "0"} else None,
                "port": int(port) if port.isdecimal() and len(port) < 6 and port != "0" else None,
                "reaches": ways.get("ways", {}).get(side),
                "expected_wait_s": float(wait_s) if isinstance(wait_s, (int, float)) else None,
                "submitted_utc": end.submitted_utc,
                "started_utc": end.started_utc,
                "ended_utc": end.ended_utc,
            }
            self._replace_end(attempt_id, side, row)

    def _replace_end(self, attempt_id: int, side: str, row: Mapping[str, Any]) -> None:
        """Write only what differs, so loading again changes nothing."""
        query = f"SELECT {', '.join(row)} FROM link_end WHERE attempt_id = ? AND side = ?"  # noqa: S608 - our own names
        found = self._database.execute(query, (attempt_id, side)).fetchone()
        if found is None or tuple(found) != tuple(row.values()):
            names = ", ".join(("attempt_id", "side", *row))
            marks = ", ".join("?" * (len(row) + 2))
            statement = f"INSERT OR REPLACE INTO link_end ({names}) VALUES ({marks})"  # noqa: S608 - our own names
            self._database.execute(statement, (attempt_id, side, *row.values()))

    # -- what a cluster has otherwise -------------------------------------------------------------------------------

    def _node_id(self, name: str) -> int:
        cluster, node = split(name)
        return self._names.node(self._cluster_ids[cluster], node)

    def _nodes_of(self, job: JobKeys) -> tuple[str, ...]:
        return split(job.pair[0])[1], split(job.pair[1])[1]

    def _builds_of(self, job: JobKeys) -> Builds:
        return self._builds_by_cluster[split(job.pair[0])[0]]

    def _attempt_folder(self, attempt: Attempt) -> Path:
        """The folder of the client's side, which holds the results."""
        return super()._attempt_folder(attempt) / self._clients[attempt.job]

    def _facts_path(self, folder: Path, node: str) -> Path:
        return folder.parent / self._side_of(node) / f"facts-{split(node)[1]}.json"

    def _side_of(self, name: str) -> str:
        return "from" if split(name)[0] == self._link["from_cluster"] else "to"

    @cached_property
    def _cluster_ids(self) -> dict[str, int]:
        names = [self._link[f"{side}_cluster"] for side in _SIDES]
        return {name: self._names.row("cluster", name=name) for name in names}

    @cached_property
    def _builds_by_cluster(self) -> dict[str, Builds]:
        return {
            name: Builds(self._database, self._names, cluster_id, read_json_or_none(self._folder.build(name)) or {})
            for name, cluster_id in self._cluster_ids.items()
        }


# ----------------------------------------------------------------------------------------------------------------------
# Load a run folder into results.db. You can do this at any time, and again.
#
#     run.json, plan.json, build.json, journal.jsonl   -> run, run_cluster, build, job, attempt
#     jobs/<job>/<attempt>/t*-r*.json, facts-*.json    -> result and all that depends on it, node_facts
#     planned, but no file                             -> a result row not_measured with the reason
#     interrupted by a signal, as an order ended it    -> the same, with the order as the reason
#
# One transaction per cluster: if the load is killed, locked out or out of disk, the database stays as it was, and so do
# the files. The sha256 of each loaded file is stored, so loading twice changes nothing. After every load, each planned
# repetition has exactly one final row, so measured + invalid + failed + not_measured = planned, even while the campaign
# still runs.


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """A cluster's part of a run as it now is in the database; the counts of outcomes add up to planned_count."""

    cluster: str
    planned_count: int
    measured_count: int
    invalid_count: int
    failed_count: int
    not_measured_count: int
    pending_count: int
    """The part of not_measured_count that may still come, because the job has not ended."""
    read_count: int
    """Result files that this load read."""
    known_count: int
    """Result files that earlier loads had read."""
    notes: tuple[str, ...]
    """Irregularities that the load skipped."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading a run folder did."""

    run: str
    clusters: tuple[ClusterLoad, ...]

    @property
    def complete(self) -> bool:
        """Whether every planned result is measured."""
        return all(one.measured_count == one.planned_count for one in self.clusters)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def load_run(database: Path, run_folder: Path, *, clusters: Iterable[str] | None = None, judge: Judge = no_judge) -> LoadReport:
    """Load a run, or some of its clusters, into the database at `database`. Creates the database if it does not exist.

    Raises StoreError if the database is locked, unwritable or not ours, or if the run folder lacks run.json, a plan or
    a readable journal. Clusters that were loaded before the error stay loaded, and you can load again.
    """
    folder = RunFolder(run_folder)
    run = folder.described_run()
    wanted = folder.parts() if clusters is None else list(clusters)
    links = folder.link_names()
    kernels = kernels_of_run(folder.described)
    loaded = []
    with writing(database) as connection:
        for cluster in wanted:
            with transaction(connection):
                loader = (LinkLoader if cluster in links else ClusterLoader)(connection, folder, cluster, run, kernels, judge)
                loader.load()
            loaded.append(_account(connection, loader))
    return LoadReport(str(run.get("run") or folder.run), tuple(loaded))


def _account(connection: sqlite3.Connection, loader: ClusterLoader) -> ClusterLoad:
    rows = connection.execute(
        "SELECT x.outcome, count(*) FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.final = 1 GROUP BY x.outcome",
        (loader.run_cluster_id,),
    )
    counts = dict(iter(rows))
    return ClusterLoad(
        cluster=loader.cluster,
        planned_count=loader.planned_count,
        measured_count=counts.get(Outcome.MEASURED, 0),
        invalid_count=counts.get(Outcome.INVALID, 0),
        failed_count=counts.get(Outcome.FAILED, 0),
        not_measured_count=counts.get(Outcome.NOT_MEASURED, 0),
        pending_count=loader.pending_count,
        read_count=loader.read_count,
        known_count=loader.known_count,
        notes=tuple(loader.notes),
    )

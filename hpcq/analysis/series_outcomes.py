"""Outcomes of every test of every pair in some runs: planned, measured, invalid, failed, never run, and why.

    outcomes_in(database, run_ids, wanted)   one SeriesOutcome per series that these runs planned
    series_of_run(database, run_id, cluster) the series of one run, with outcomes only of those that may lack something
    planned_in(database, window)             series that a run planned in a stretch, whatever became of them
    lost_in(database, window)                by series, what failed in a stretch or in runs after the last measured result

A verdict that reads only values passes a node whose every test fails. So each judging verb starts here and sees values
beside what was planned and is missing. Values of a pruned run come from its roll-ups.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from hpcq.nodelist import names_several
from hpcq.store.database import Connection
from hpcq.store.selection import AT_UTC, RESULTS, Selection, Window, among, counted_within, of_results
from hpcq.units import count_of

#: Result reasons that only say that the measurement may still come.
_PENDING = "pending: "
#: Of what was not measured: the job ran on its nodes and brought nothing.
_JOB_FAILED = re.compile(r"attempt \d+ (failed|timed_out)\b")


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job (one pair in one run) of a series. value: median of its repetitions in the metric's unit, or None.

    Counts are of repetitions. clean_value: the median of the undisturbed repetitions, or None.
    """

    run: str
    job: str
    started_utc: str
    value: float | None
    clean_value: float | None
    value_count: int
    planned_count: int
    invalid_count: int = 0
    failed_count: int = 0
    not_measured_count: int = 0
    disturbed_count: int = 0
    job_failed_count: int = 0
    """Of those not measured: their job started on these nodes, and failed or ran out of time as a whole."""

    @property
    def lost_count(self) -> int:
        """Repetitions that ran without a valid result."""
        return self.invalid_count + self.failed_count


@dataclass(frozen=True, slots=True)
class SeriesOutcome:
    """One series (a test of a pair) in these runs. parameters: JSON without first defaults, the same for every hpcq version.

    metric: the requested one, empty for a kernel without it. better: higher, lower or none. reasons: why repetitions
    failed, the commonest first.
    """

    series_id: int
    cluster: str
    client: str
    server: str
    kernel: str
    parameters: str
    metric: str
    better: str
    jobs: tuple[JobOutcome, ...]
    reasons: tuple[tuple[str, int], ...] = ()
    network: str = ""
    toolchain: str = ""

    @property
    def test(self) -> tuple[str, str, str, str]:
        """What was measured: kernel, parameters, network and toolchain."""
        return self.kernel, self.parameters, self.network, self.toolchain

    @property
    def planned_count(self) -> int:
        """Repetitions that the runs planned."""
        return sum(one.planned_count for one in self.jobs)

    @property
    def measured_count(self) -> int:
        """Repetitions with a valid result."""
        return sum(one.value_count for one in self.jobs)

    @property
    def lost_count(self) -> int:
        """Repetitions that ran and failed, or whose result is invalid."""
        return sum(one.lost_count for one in self.jobs)

    @property
    def gone(self) -> bool:
        """Whether its tests ran and none gave a valid result: worse than any value."""
        return self.measured_count == 0 and self.lost_count > 0

    @property
    def values(self) -> tuple[float, ...]:
        """One value per job that has one, in time order."""
        return tuple(one.value for one in self.jobs if one.value is not None)

    @property
    def why(self) -> str:
        """The commonest reason and how many others there are; empty if everything was measured."""
        if not self.reasons:
            return ""
        reason, _, other_count = commonest(dict(self.reasons))
        return f"{reason} (and {count_of(other_count, 'other reason')})" if other_count else reason


@dataclass(slots=True)
class _Job:
    """A job's repetitions, collected while reading rows."""

    run: str
    job: str
    started_utc: str
    values: list[float] = field(default_factory=list)
    clean: list[float] = field(default_factory=list)
    weight_count: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    disturbed_count: int = 0
    job_failed_count: int = 0

    @property
    def may_be_pruned(self) -> bool:
        """Whether results were measured that have no value: `hpcq db prune` keeps their median elsewhere."""
        return not self.values and "measured" in self.outcomes

    def finished(self) -> JobOutcome:
        value = median(self.values) if self.values else None
        clean = value if len(self.clean) == len(self.values) else median(self.clean) if self.clean else None
        return JobOutcome(
            self.run,
            self.job,
            self.started_utc,
            value,
            clean,
            value_count=self.weight_count or len(self.values),
            planned_count=sum(self.outcomes.values()),
            invalid_count=self.outcomes.get("invalid", 0),
            failed_count=self.outcomes.get("failed", 0),
            not_measured_count=self.outcomes.get("not_measured", 0),
            disturbed_count=self.disturbed_count,
            job_failed_count=self.job_failed_count,
        )


@dataclass(slots=True)
class _Series:
    """A series, collected while reading rows."""

    names: tuple[str, str, str, str, str, str, str]
    network: str
    toolchain: str
    jobs: dict[int, _Job] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)


def outcomes_in(
    database: Connection, run_ids: Sequence[int], wanted: Selection, series_ids: Iterable[int] | None = None
) -> list[SeriesOutcome]:
    """Every series that these runs planned, with its jobs in time order, as far as `wanted` selects it.

    With a metric, kernels without it have no values. A kernel whose metrics all lack a direction still shows what failed.
    series_ids: only these; None: all.
    """
    found: dict[int, _Series] = {}
    marks = ", ".join(str(int(one)) for one in run_ids)
    metric = wanted.metric
    bound: dict[str, Any] = {"cluster": wanted.cluster, "metric": metric}
    fitting = ""
    if wanted != Selection(cluster=wanted.cluster, metric=metric):  # the join alone knows the cluster, and is faster
        condition, values = of_results(database, wanted)
        fitting = f"AND x.result_id IN (SELECT result_id FROM v_results WHERE {condition})"
        bound |= values
    if series_ids is not None:
        fitting += " AND x.series_id IN (SELECT value FROM json_each(:only))"
        bound["only"] = json.dumps(sorted(series_ids))
    cursor = database.cursor()
    cursor.row_factory = None  # tuples: a survey has a hundred thousand rows
    for row in cursor.execute(_ROWS.format(runs=marks, fitting=fitting), bound):
        series_id, job_id, run, name, started_utc, outcome, reason, disturbed, value, place, client, server, kernel = row[:13]
        series = found.get(series_id)
        if series is None:
            series = found[series_id] = _Series((place, client, server, kernel, *row[13:16]), row[16], row[17])
        job = series.jobs.get(job_id)
        if job is None:
            job = series.jobs[job_id] = _Job(run, name, started_utc)
        job.outcomes[outcome] = job.outcomes.get(outcome, 0) + 1
        job.disturbed_count += disturbed
        job.job_failed_count += outcome == "not_measured" and _JOB_FAILED.match(reason or "") is not None
        if value is not None:
            job.values.append(value)
            if not disturbed:
                job.clean.append(value)
        elif outcome != "measured" and not (reason or "").startswith(_PENDING):
            series.reasons[reason or outcome] = series.reasons.get(reason or outcome, 0) + 1
    pruned = [series_id for series_id, one in found.items() if any(job.may_be_pruned for job in one.jobs.values())]
    for row in database.execute(_ROLLED_UP, {"metric": metric, "series": json.dumps(pruned)}) if pruned else ():
        job = found[row["series_id"]].jobs.get(row["job_id"])
        if job is None or not job.may_be_pruned:
            continue
        job.values, job.weight_count = [row["median"]], job.outcomes["measured"]
        job.clean = [] if row["disturbed"] else job.values
    return [_finished(series_id, one) for series_id, one in found.items()]


_ROWS = """
    SELECT x.series_id, x.job_id, p.run, p.job, coalesce(x.started_utc, p.run_created_utc), x.outcome, x.reason, x.disturbed,
           m.value, p.cluster, p.client, p.server, k.name, se.parameters, coalesce(n.name, ''), coalesce(n.better, 'none'),
           se.network, se.toolchain
    FROM v_pairs p
    JOIN result x ON x.job_id = p.job_id AND x.final = 1
    JOIN series se ON se.series_id = x.series_id
    JOIN kernel k ON k.kernel_id = se.kernel_id
    LEFT JOIN metric_name n ON n.kernel_id = k.kernel_id
        AND CASE WHEN :metric IS NULL THEN n.metric_name_id = k.main_metric_name_id ELSE n.name = :metric END
    LEFT JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = n.metric_name_id AND x.outcome = 'measured'
    LEFT JOIN retraction t ON t.result_id = x.result_id
    WHERE p.run_id IN ({runs}) AND t.result_id IS NULL AND (:cluster IS NULL OR p.cluster = :cluster) {fitting}
    ORDER BY coalesce(x.started_utc, p.run_created_utc), x.result_id
"""

# CROSS JOIN keeps this order: with another one, SQLite read all series for each job of a run of 100,000 results.
_ROLLED_UP = """
    SELECT u.series_id, u.job_id, u.median, b.disturbed
    FROM json_each(:series) s
    CROSS JOIN series se ON se.series_id = s.value
    CROSS JOIN kernel k ON k.kernel_id = se.kernel_id
    CROSS JOIN rollup u ON u.series_id = se.series_id
    CROSS JOIN result b ON b.result_id = u.result_id
    CROSS JOIN metric_name n ON n.metric_name_id = u.metric_name_id
        AND CASE WHEN :metric IS NULL THEN n.metric_name_id = k.main_metric_name_id ELSE n.name = :metric END
"""


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The series that a run planned, as its verdict needs them: a list of runs asks for those of twenty.

    pairs: cluster, client and server, by series_id. last_utc: when the last job of a series began; empty without one.
    doubtful: the outcomes of those without a value that was measured undisturbed.
    """

    pairs: Mapping[int, tuple[str, str, str]]
    last_utc: str
    doubtful: tuple[SeriesOutcome, ...]


def series_of_run(database: Connection, run_id: int, cluster: str | None) -> RunSeries:
    """What `outcomes_in` has of one run, counted by SQLite. cluster: only what it has of the run."""
    cursor = database.cursor()
    cursor.row_factory = None
    bound = {"run_id": run_id, "cluster": cluster}
    places = {job_id: (place, client, server) for job_id, place, client, server in cursor.execute(_JOBS, bound)}
    pairs, lacking, last_utc = dict[int, tuple[str, str, str]](), list[int](), ""
    for series_id, job_id, begun_utc, has_value in cursor.execute(_MEASURED, bound):
        pairs[series_id] = places[job_id]
        last_utc = max(last_utc, begun_utc)
        if not has_value:
            lacking.append(series_id)
    found = outcomes_in(database, [run_id], Selection(cluster=cluster), lacking) if lacking else []
    return RunSeries(pairs, last_utc, tuple(found))


_JOBS = """
    SELECT job_id, cluster, client, server FROM v_pairs
    WHERE run_id = :run_id AND (:cluster IS NULL OR cluster = :cluster)
"""
# By job first: a job began with the first of its repetitions.
_MEASURED = """
    SELECT series_id, job_id, max(begun_utc), max(has_value)
    FROM (
        SELECT x.series_id, x.job_id, min(coalesce(x.started_utc, r.created_utc)) AS begun_utc,
               max(x.disturbed = 0 AND m.value IS NOT NULL) AS has_value
        FROM run_cluster rc
        JOIN run r ON r.run_id = rc.run_id
        JOIN cluster c ON c.cluster_id = rc.cluster_id
        JOIN job j ON j.run_cluster_id = rc.run_cluster_id
        JOIN result x ON x.job_id = j.job_id AND x.final = 1
        JOIN series se ON se.series_id = x.series_id
        JOIN kernel k ON k.kernel_id = se.kernel_id
        LEFT JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = k.main_metric_name_id AND x.outcome = 'measured'
        LEFT JOIN retraction t ON t.result_id = x.result_id
        WHERE rc.run_id = :run_id AND t.result_id IS NULL AND (:cluster IS NULL OR c.name = :cluster)
        GROUP BY x.series_id, x.job_id
    )
    GROUP BY series_id
"""


def _finished(series_id: int, one: _Series) -> SeriesOutcome:
    jobs = tuple(job.finished() for job in one.jobs.values())
    reasons = tuple(sorted(one.reasons.items(), key=lambda item: -item[1]))
    return SeriesOutcome(series_id, *one.names, jobs, reasons, one.network, one.toolchain)


def of_pairs(series: Iterable[SeriesOutcome]) -> list[SeriesOutcome]:
    """The series of two nodes. What a set of nodes ran together names none of them; their pairs do."""
    return [one for one in series if not names_several(one.server)]


def commonest(reasons: Mapping[str, int]) -> tuple[str, int, int]:
    """The commonest reason, how many had it, and how many other reasons there are. Those that differ in numbers are one."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0])):
        kind = re.sub(r"\d+", "0", reason)
        counts[kind] = counts.get(kind, 0) + count
        examples.setdefault(kind, reason)
    first = min(counts, key=lambda kind: (-counts[kind], kind))
    return examples[first], counts[first], len(counts) - 1


@dataclass(slots=True)
class Lost:
    """What failed of one series in a stretch. since_utc: the first failure after the last measured result."""

    measured_count: int = 0
    last_measured_utc: str = ""
    since_utc: str = ""
    result_ids: list[int] = field(default_factory=list)
    job_ids: set[int] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def words(self) -> str:
        """`12 results of 2 jobs failed: fewer than two datagrams arrived`."""
        reason, count, other_count = commonest(self.reasons)
        more = f" ({count} times, and {count_of(other_count, 'other reason')})" if other_count else ""
        return f"all {count_of(len(self.result_ids), 'result')} of {count_of(len(self.job_ids), 'job')} failed: {reason}{more}"


def planned_in(database: Connection, window: Window, only: Collection[int] | None = None) -> set[int]:
    """The series_id of every series with a planned result in this stretch: measured, failed or never run.

    only: the series that are asked for. Where they are many, others are in the answer, too.
    """
    condition, bound = counted_within(window)
    condition += among(only)
    return {int(row[0]) for row in database.execute(f"SELECT DISTINCT x.series_id {RESULTS} WHERE {condition}", bound)}


def lost_in(database: Connection, window: Window, only: Collection[int] | None = None) -> dict[int, Lost]:
    """By series_id, what failed or was invalid in this stretch after the series' last job there that brought a value.

    only: the series that are asked for. Where they are many, others are in the answer, too.
    """
    condition, bound = counted_within(window)
    condition += among(only)
    rows = database.execute(
        f"SELECT x.series_id, x.result_id, x.job_id, x.outcome, x.reason, {AT_UTC} AS at_utc {RESULTS}"
        f" WHERE {condition} AND x.outcome <> 'not_measured' AND x.series_id IN (SELECT f.series_id FROM result f"
        " WHERE f.final = 1 AND f.outcome IN ('invalid', 'failed')) ORDER BY at_utc, x.result_id",
        bound,
    ).fetchall()
    valued = {(row["series_id"], row["job_id"]) for row in rows if row["outcome"] == "measured"}
    found: dict[int, Lost] = {}
    for row in rows:
        one = found.setdefault(int(row["series_id"]), Lost())
        if row["outcome"] == "measured":
            one.measured_count += 1
            found[int(row["series_id"])] = Lost(one.measured_count, row["at_utc"])
            continue
        if (row["series_id"], row["job_id"]) in valued:
            continue
        one.since_utc = one.since_utc or row["at_utc"]
        one.result_ids.append(int(row["result_id"]))
        one.job_ids.add(int(row["job_id"]))
        one.reasons[row["reason"] or row["outcome"]] += 1
    return {series_id: one for series_id, one in found.items() if one.result_ids}

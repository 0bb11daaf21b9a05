"""Turn results of acceptance runs into points: each test of each pair in each run, as a change from what is expected.

Two values judge each test: its main metric, and the share of packets that arrived. A good congestion control hides 5 %
packet loss from the throughput of a short network, and a median round trip never shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hpcq.analysis import pair_values
from hpcq.analysis.gates import judge_run
from hpcq.analysis.series_outcomes import JobOutcome, SeriesOutcome, of_pairs, outcomes_in
from hpcq.kernels import Better
from hpcq.runner.accept.expected import (
    LOSS_SCATTER_ASSUMED,
    LOSS_SCATTER_LEAST,
    NEAR_TOP_LOSS,
    Expected,
    PairValues,
    Reference,
    oriented,
    scatter_between_jobs,
    spread_above,
)
from hpcq.store.read.evidence_queries import Flaw, flaws_in
from hpcq.store.time_windows import run_id_of
from hpcq.verdict.acceptance.points import NO_REFERENCE, PACKETS, PairPoint, Scale
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection

_NO_DIRECTION = Scale.speed(0.005)


@dataclass(frozen=True, slots=True)
class Measured:
    """What acceptance runs measured. first_utc: start of each node's first measurement. flaws: by node, in words.

    sleep: by test, in how many of its results a CPU slept deeply, in words.
    """

    points: tuple[PairPoint, ...] = ()
    first_utc: Mapping[str, str] = field(default_factory=dict)
    flaws: Mapping[str, str] = field(default_factory=dict)
    booted: Mapping[str, str] = field(default_factory=dict)
    sleep: Mapping[str, str] = field(default_factory=dict)


def measured(
    database: Connection, cluster: str, runs: Sequence[str], *, reference: Sequence[int], leaf_of: Mapping[str, str],
    baseline: str | None,
) -> Measured:  # fmt: skip
    """Return each test of each pair in these runs, in their order, against the reference runs.

    baseline: its name, if the reference is one.
    """
    run_ids = [run_id_of(database, run) for run in runs]
    if not run_ids:
        return Measured()
    now = of_pairs(outcomes_in(database, run_ids, cluster=cluster))
    before = of_pairs(outcomes_in(database, reference, cluster=cluster)) if reference else []
    names = pair_values.names_of_tests(database, [*run_ids, *reference])
    numbers = {run: number for number, run in enumerate(runs, 1)}
    about = PointMaker(numbers, baseline, leaf_of, *_gates(database, runs))
    points: list[PairPoint] = []
    for test, mine in _by_test(now, names).items():
        earlier = [one for one in before if names[one.kernel, one.parameters] == test]
        points += about.speed_points(test, mine, earlier)
    losses = pair_values.losses_in(database, [*run_ids, *reference], cluster)
    for test, mine in _by_test(now, names).items():
        earlier = [one for one in before if names[one.kernel, one.parameters] == test]
        points += about.loss_points(test, mine, earlier, losses)
    boots = pair_values.boots_in(database, run_ids, cluster)
    booted = {
        node: f"seen with {len(seen)} boots, the last one from {seen[-1][1]} on"
        for node, seen in boots.items()
        if len(seen) > 1
    }
    flaws = _flaws(database, cluster, run_ids, reference if baseline else (), {node for one in now for node in _ends(one)})
    sleep = pair_values.sleep_in(database, run_ids, cluster)
    return Measured(tuple(points), _first_utc(now), flaws, booted, sleep)


@dataclass(frozen=True, slots=True)
class PointMaker:
    """What all tests of some runs have in common. Pure.

    numbers: of each run, from 1. baseline: its name; None: the reference is the cluster's other pairs. broken,
    open_gates:
    by (run, series_id), the gate that a series broke, and why hpcq could not judge one.
    """

    numbers: Mapping[str, int]
    baseline: str | None
    leaf_of: Mapping[str, str]
    broken: Mapping[tuple[str, int], str] = field(default_factory=dict)
    open_gates: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def speed_points(self, test: str, now: Sequence[SeriesOutcome], before: Sequence[SeriesOutcome]) -> list[PairPoint]:
        """Return the points of one test by its main metric. A failure is a point, too."""
        usual = disturbed_as_usual((*before, *now))
        expected = Expected(
            [_values(one, test, clean=not usual) for one in before],
            [_values(one, test, clean=not usual) for one in now],
            self.leaf_of, trusted=self.baseline is not None,
        )  # fmt: skip
        references = {one.series_id: expected.of(_values(one, test)) for one in now}
        changes, counts, ends = [], [], []
        for one in now:
            found = references[one.series_id]
            for job in one.jobs:
                value = job.value if usual else job.clean_value
                if found is not None and value is not None:
                    changes.append(oriented(value, Better(one.better)) - found.value)
                    counts.append(found.count)
                    ends.append(_ends(one))
        histories = [_values(one, test, clean=not usual).values for one in before]
        scatter = scatter_between_jobs(histories, changes, counts, ends)
        return [
            self._point(test, one, _as_usual(job) if usual else job, references[one.series_id], scatter)
            for one in now
            for job in one.jobs
        ]

    def _point(self, test: str, one: SeriesOutcome, job: JobOutcome, found: Reference | None, scatter: float) -> PairPoint:
        key = (job.run, one.series_id)
        ran = job.value_count + job.lost_count
        value = job.clean_value if job.clean_value is not None else job.value
        disturbed = job.value is not None and job.clean_value is None
        reason = one.why if job.value_count < job.planned_count else ""
        scale = Scale.speed(max(scatter, found.spread) if found is not None else scatter)
        change: float | None = None
        if value is not None and one.better == Better.NONE.value:
            change, scale = 0.0, _NO_DIRECTION
        elif value is not None and found is not None:
            change = oriented(value, Better(one.better)) - found.value
        elif value is not None:
            reason = self._no_reference(test, one)
        return PairPoint(
            one.client, one.server, test, self.numbers[job.run], change, scale, found.count if found is not None else 1,
            job.lost_count / ran if ran else 0.0, reason, self.broken.get(key), self.open_gates.get(key, ""), disturbed,
        )  # fmt: skip

    def _no_reference(self, test: str, one: SeriesOutcome) -> str:
        if self.baseline is not None:
            return (
                f"{NO_REFERENCE}: baseline {self.baseline} has nothing of {test} with {one.client} > {one.server} or its like:"
                " runs with `pairs: {directions: both}` make one that has"
            )
        return f"{NO_REFERENCE}: fewer than three other pairs ran {test}; --against BASELINE gives one"

    def loss_points(
        self,
        test: str,
        now: Sequence[SeriesOutcome],
        before: Sequence[SeriesOutcome],
        losses: Mapping[int, Mapping[tuple[str, str], float]],
    ) -> list[PairPoint]:
        """Return the points of one test by the share of packets that arrived, if it and a reference have that share."""
        usual = disturbed_as_usual((*before, *now))
        earlier, own_values = (
            [
                PairValues(
                    one.client, one.server, test, tuple(value for job, value in _arrived(one, losses) if usual or _clean(job))
                )
                for one in several
            ]
            for several in (before, now)
        )
        expected = Expected(earlier, own_values, self.leaf_of, trusted=self.baseline is not None, near=NEAR_TOP_LOSS)
        found = []
        changes, counts, ends = [], [], []
        for one, own in zip(now, own_values, strict=True):
            reference = expected.of(own)
            for job, value in _arrived(one, losses):
                if reference is not None:
                    found.append((one, job, value - reference.value, reference))
                    if usual or _clean(job):
                        changes.append(value - reference.value)
                        counts.append(reference.count)
                        ends.append(_ends(one))
        spread = spread_above(changes, counts, ends, NEAR_TOP_LOSS)
        history = [abs(b - a) for one in earlier for a, b in zip(one.values, one.values[1:], strict=False)]
        known = [one for one in (spread, max(history, default=None)) if one is not None]
        scatter = max(LOSS_SCATTER_LEAST, *known) if known else LOSS_SCATTER_ASSUMED
        return [
            PairPoint(
                one.client,
                one.server,
                f"{test}{PACKETS}",
                self.numbers[job.run],
                change,
                Scale.loss(max(scatter, reference.spread)),
                reference.count,
                disturbed=not usual and not _clean(job),
            )
            for one, job, change, reference in found
        ]


def _clean(job: JobOutcome) -> bool:
    """Whether some value of a job was measured while nothing else ran."""
    return job.value is None or job.clean_value is not None


def _arrived(one: SeriesOutcome, losses: Mapping[int, Mapping[tuple[str, str], float]]) -> list[tuple[JobOutcome, float]]:
    """For each job of a series that has it, return the share of packets that arrived."""
    known = losses.get(one.series_id, {})
    return [(job, 1 - known[job.run, job.job]) for job in one.jobs if (job.run, job.job) in known]


def _gates(database: Connection, runs: Sequence[str]) -> tuple[dict[tuple[str, int], str], dict[tuple[str, int], str]]:
    """Return by run and series the gate of the campaign that it broke, and why hpcq could not judge a gate."""
    broken, unclear = {}, {}
    for run in runs:
        for one in judge_run(database, run):
            key = (run, one.series.series_id)
            if one.verdict is Verdict.FAILED:
                broken[key] = f"{one.words}: must be {one.bound}"
            elif one.verdict is Verdict.INCONCLUSIVE and one.value is not None:
                unclear[key] = one.reason or one.words
    return broken, unclear


def _by_test(series: Iterable[SeriesOutcome], names: Mapping[tuple[str, str], str]) -> dict[str, list[SeriesOutcome]]:
    found: dict[str, list[SeriesOutcome]] = {}
    for one in series:
        found.setdefault(names[one.kernel, one.parameters], []).append(one)
    return found


def _values(one: SeriesOutcome, test: str, *, clean: bool = False) -> PairValues:
    """Return one oriented value per job.

    clean: without jobs that others disturbed, because such jobs make no reference.
    """
    if one.better == Better.NONE.value:
        return PairValues(one.client, one.server, test, ())
    values = [job.clean_value if clean else job.value for job in one.jobs]
    return PairValues(
        one.client, one.server, test, tuple(oriented(value, Better(one.better)) for value in values if value is not None)
    )


def disturbed_as_usual(series: Iterable[SeriesOutcome]) -> bool:
    """Whether most jobs of a test ran beside other work.

    Then that is normal for this site, and the other jobs do not stand for a quieter one.
    """
    measured_jobs = [job for one in series for job in one.jobs if job.value is not None]
    return sum(job.clean_value is None for job in measured_jobs) * 2 > len(measured_jobs)


def _as_usual(job: JobOutcome) -> JobOutcome:
    return replace(job, clean_value=job.value)


def _ends(one: SeriesOutcome) -> tuple[str, str]:
    return one.client, one.server


def _first_utc(now: Iterable[SeriesOutcome]) -> dict[str, str]:
    """Return by node when its first measurement of these runs began."""
    found: dict[str, str] = {}
    for one in now:
        for job in one.jobs:
            if job.value_count or job.lost_count:
                for node in _ends(one):
                    found[node] = min(found.get(node, job.started_utc), job.started_utc)
    return found


def _flaws(
    database: Connection, cluster: str, run_ids: Sequence[int], baseline: Sequence[int], nodes: set[str]
) -> dict[str, str]:
    """Return by node what its evidence reports as wrong with it.

    It leaves out what the evidence said in the baseline, and what it says of most nodes.
    """
    known = {(one.node, one.rule) for one in flaws_in(database, baseline, cluster)} if baseline else set()
    found: dict[str, list[Flaw]] = {}
    for one in flaws_in(database, run_ids, cluster):
        found.setdefault(one.rule, []).append(one)
    said: dict[str, list[str]] = {}
    for flaws in found.values():
        for one in flaws:
            if (one.node, one.rule) not in known and (baseline or len(flaws) * 2 <= len(nodes)):
                said.setdefault(one.node, []).append(f"{one.message} (in {one.result_count} results)")
    return {node: "; ".join(parts) for node, parts in said.items()}

"""Turn loaded runs into verdicts: points, facts about nodes, what changed, and since when the cluster is slower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from statistics import median, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcq.analysis import change_context, pair_values
from hpcq.analysis.gates import judge_run
from hpcq.analysis.series_outcomes import JobOutcome, SeriesOutcome, of_pairs, outcomes_in
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.localisation.levels import Floats, top_level
from hpcq.scheduler.administration import Upkeep
from hpcq.statistics import pooled_scatter
from hpcq.store import time_windows
from hpcq.store.database import Connection, reading
from hpcq.store.read.evidence_queries import Flaw, flaws_in
from hpcq.store.time_windows import run_id_of
from hpcq.verdict.acceptance.found import Known
from hpcq.verdict.acceptance.judge import Acceptance, judge
from hpcq.verdict.acceptance.points import NO_REFERENCE, PACKETS, PairPoint, Scale, reference_variance
from hpcq.verdict.acceptance.standing import Sides
from hpcq.verdict.causes import rank, say
from hpcq.verdict.record import VerdictRecord
from hpcq.verdict.words import Verdict

if TYPE_CHECKING:
    from hpcq.store.database import Connection


# ----------------------------------------------------------------------------------------------------------------------
# Estimate what to expect of each test of each pair, and how far jobs scatter. Pure.
#
#     with a baseline      the pair's own jobs there; if it has none, those of its class in the baseline
#     without one          other pairs of its class, earlier and present ones of this cluster, near the top level
#
# A class is a test, either inside leaves or across them, since crossing may cost something by design. Without a baseline,
# no person has named the earlier results good, and a pair that was always broken must not be its own reference. So only
# pairs near the top count, and never the pair itself. Without known values there is no reference, and without a reference
# nothing passes.


#: How many other pairs of a class must be known before it can be a pair's reference.
PEERS_MIN = 3
#: The least scatter between jobs that hpcq assumes, and the scatter if it knows nothing better.
SCATTER_LEAST, SCATTER_ASSUMED = 0.005, 0.05
#: The same for the share of packets that arrive.
LOSS_SCATTER_LEAST, LOSS_SCATTER_ASSUMED = 0.0005, 0.002
#: How far below the top level a pair may lie and still count as healthy: a logarithm of speed, a share of packets.
NEAR_TOP, NEAR_TOP_LOSS = 0.05, 0.005
#: A group of pairs at the top is the healthy one if this share of pairs and of nodes is in it, and a gap parts it.
TOP_PAIRS_SHARE, TOP_NODES_SHARE = 0.2, 0.5
#: How many changes are enough to estimate the present scatter between jobs.
CHANGES_MIN = 8
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class PairValues:
    """One test of one pair: one value per job, in time order. Values are oriented logarithms: higher is better."""

    client: str
    server: str
    test: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a pair is compared with.

    count: how many of its own jobs it rests on. spread: between the pairs of its class, or 0.
    """

    value: float
    count: int
    spread: float = 0.0


def oriented(value: float, better: Better) -> float:
    """Return the logarithm of a value, so that higher is better.

    A share of packets that arrived stays as it is: see Scale.
    """
    sign = -1.0 if better is Better.LOWER else 1.0
    return sign * log(max(value, _TINY))


class Expected:
    """What is known about pairs and their classes."""

    def __init__(
        self,
        reference: Iterable[PairValues],
        now: Iterable[PairValues],
        leaf_of: Mapping[str, str],
        *,
        trusted: bool,
        near: float = NEAR_TOP,
    ) -> None:
        """reference: earlier jobs, or those of a baseline. now: jobs to judge.

        trusted: a person named the reference. near: how far below the top level healthy pairs may lie.
        """
        self.near = near
        self.leaf_of = leaf_of
        self.own = {(one.client, one.server, one.test): one for one in reference if one.values} if trusted else {}
        self.trusted = trusted
        self.classes: dict[tuple[str, str], list[PairValues]] = {}
        for one in [*reference] if trusted else [*reference, *now]:
            if one.values:
                self.classes.setdefault(self._class_of(one), []).append(one)

    def of(self, one: PairValues) -> Reference | None:
        """Return what this test of this pair is compared with; None if nothing is known."""
        own = self.own.get((one.client, one.server, one.test))
        if own is not None:
            return Reference(median(own.values), len(own.values))
        ends = {one.client, one.server}
        others = [other for other in self.classes.get(self._class_of(one), []) if {other.client, other.server} != ends]
        if len({frozenset((other.client, other.server)) for other in others}) < PEERS_MIN:
            return None
        medians = np.array([median(other.values) for other in others])
        near = medians if self.trusted else self._healthy(medians, [(other.client, other.server) for other in others])
        return Reference(float(np.median(near)), len(near), pstdev(near.tolist()) if len(near) > 1 else 0.0)

    def _healthy(self, medians: Floats, ends: Sequence[tuple[str, str]]) -> Floats:
        """Return the values that are near the top."""
        apart = set_apart(medians, ends, self.near)
        level, _ = (apart, 0.0) if apart is not None else top_level(medians)
        near = medians[medians >= level - self.near]
        return near if len(near) else medians

    def _class_of(self, one: PairValues) -> tuple[str, str]:
        """Return the test, and whether the pair stays inside a leaf."""
        ends = self.leaf_of.get(one.client), self.leaf_of.get(one.server)
        return one.test, "" if None in ends else "inside" if ends[0] == ends[1] else "across"


def set_apart(values: Floats, ends: Sequence[tuple[str, str]], gap: float) -> float | None:
    """Return the lowest value of the topmost group of pairs that a gap sets apart, if it is that of the healthy ones.

    ends: the two nodes of each value. gap: the least that parts groups; it must also exceed the width of the group.
    More than half of the nodes must be in the group, and three pairs. Whoever is bad is measured more often, with
    everybody: then most pairs are bad though most nodes are not, and the most crowded level is a bad one.
    """
    order = np.argsort(values)[::-1]
    everybody = len({node for pair in ends for node in pair})
    members: set[str] = set()
    pairs: set[frozenset[str]] = set()
    for count, (one, below) in enumerate(pairwise(order), 1):
        members.update(ends[one])
        pairs.add(frozenset(ends[one]))
        apart = values[one] - values[below]
        if apart < gap or apart <= values[order[0]] - values[one]:
            continue
        many = count >= TOP_PAIRS_SHARE * len(values) and len(members) > TOP_NODES_SHARE * everybody
        if many and len(pairs) >= PEERS_MIN:
            return float(values[one])
    return None


def scatter_between_jobs(
    histories: Iterable[Sequence[float]], changes: Sequence[float], counts: Sequence[int], ends: Sequence[tuple[str, str]] = ()
) -> float:
    """Return how far the jobs of one test scatter (standard deviation of the logarithm).

    histories: per series one oriented value per job in time order. changes: of the jobs to judge from what is expected.
    counts: jobs that each expectation rests on. ends: the two nodes of each change.
    The larger of two estimates: from history, and from how far present jobs lie above their top level, since a fault
    only
    makes a pair slower. A fixed value if there are too few of both.
    """
    learned = pooled_scatter([np.exp(np.clip(one, -600, 600)) for one in histories])
    now = spread_above(changes, counts, ends)
    known = [one for one in (learned.ratio if learned.degrees else None, now) if one is not None]
    return max(SCATTER_LEAST, *known) if known else SCATTER_ASSUMED


def spread_above(
    changes: Sequence[float], counts: Sequence[int], ends: Sequence[tuple[str, str]] = (), gap: float = NEAR_TOP
) -> float | None:
    """Return the spread of one job, from those above the top level; None if there are too few.

    ends, gap: see set_apart. Of a group that is set apart, the top level is the median.
    """
    if len(changes) < CHANGES_MIN:
        return None
    values = np.array(changes)
    apart = set_apart(values, ends, gap) if ends else None
    level = top_level(values)[0] if apart is None else float(np.median(values[values >= apart]))
    factors = [sqrt(1 + reference_variance(count)) for count in counts]
    above = [(one - level) / factor for one, factor in zip(changes, factors, strict=True) if one >= level]
    if len(above) < CHANGES_MIN // 2:
        return None
    return max(median(above) / 0.6745, float(np.quantile(above, 0.9)) / 1.645)


# ----------------------------------------------------------------------------------------------------------------------
# Turn results of acceptance runs into points: each test of each pair in each run, as a change from what is expected.
#
# Two values judge each test: its main metric, and the share of packets that arrived. A good congestion control hides 5 %
# packet loss from the throughput of a short network, and a median round trip never shows it.


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


# ----------------------------------------------------------------------------------------------------------------------


#: How many runs to search for the moment when a cluster got slower.
SINCE_RUNS = 60
#: How many results per side to compare for facts that differ.
FACTS_OF_RESULTS = 40


class Judging:
    """One cluster's results so far, against its reference."""

    def __init__(self, database: Path, cluster: str, reference: Sequence[int], baseline: str | None) -> None:
        self.database = database
        self.cluster = cluster
        self.reference = reference
        self.baseline = baseline
        self.leaf_of: Mapping[str, str] = {}
        self.standing: Sequence[Sides] = ()

    def check_baseline(self) -> None:
        """Raise UserError for a baseline without any value on this cluster: nothing would have a reference."""
        if self.baseline is None:
            return
        with reading(self.database) as database:
            if not any(one.values for one in outcomes_in(database, self.reference, cluster=self.cluster)):
                raise UserError(
                    f"--against: baseline {self.baseline!r} has no value on {self.cluster}: nothing can be compared with it",
                    f"hpcq baseline set {self.baseline} RUN, with a run that measured {self.cluster}",
                )

    def points(self, runs: Sequence[str]) -> Measured:
        """Return what these runs measured, as points."""
        with reading(self.database) as database:
            return measured(
                database, self.cluster, runs, reference=self.reference, leaf_of=self.leaf_of, baseline=self.baseline
            )

    def verdicts(
        self, targets: Sequence[str], found: Measured, missing: Mapping[str, str], now: Upkeep | None = None
    ) -> Acceptance:
        """Judge the targets.

        now: the scheduler's report after the measurement, which shows nodes that booted meanwhile.
        """
        booted = dict(found.booted)
        for node, state in now.nodes.items() if now is not None else ():
            first_utc = found.first_utc.get(node)
            if first_utc is not None and state.started_utc is not None and state.started_utc > first_utc:
                booted.setdefault(node, f"its daemon started {state.started_utc}")
        known = Known(missing, self.leaf_of, found.flaws, booted, self.standing, found.sleep)
        verdicts = judge(targets, found.points, known, self.cluster)
        dated = tuple(replace(one, measured_utc=found.first_utc.get(one.name)) for one in verdicts.nodes)
        return replace(verdicts, nodes=dated)

    def changed(self, verdicts: Acceptance, run_ids: Sequence[int]) -> dict[str, str]:
        """Return what differs between the reference and now, on nodes at fault and on the whole cluster."""
        found = {}
        with reading(self.database) as database:
            for one in (*verdicts.clusters, *verdicts.nodes):
                if one.verdict in {Verdict.FAILED, Verdict.DEGRADED}:
                    found[one.name] = (
                        self._differs(database, one, run_ids) or "nothing that hpcq knows of differs from the reference"
                    )
        return found

    def with_since(self, verdicts: Acceptance) -> Acceptance:
        """Add to the cluster's verdict the run since which the cluster is slower."""
        if not verdicts.clusters or self.baseline is None:
            return verdicts
        with reading(self.database) as database:
            since = self._since(database)
        return replace(
            verdicts,
            clusters=tuple(replace(one, reason=f"{one.reason}; {since}") for one in verdicts.clusters)
            if since
            else verdicts.clusters,
        )

    def _differs(self, database: Connection, one: VerdictRecord, run_ids: Sequence[int]) -> str:
        nodes = one.nodes or self._nodes(database, run_ids)
        most = max(2, FACTS_OF_RESULTS // max(1, 2 * len(nodes)))
        facts: list[list[Mapping[tuple[str, str], Any]]] = [[], []]
        for node in nodes:
            before, after = (
                pair_values.results_of_node(database, self.cluster, node, runs, most) for runs in (self.reference, run_ids)
            )
            # Together: what is the same in all of one side is left out only if it is the same in the other one, too.
            points = change_context.facts_of(database, [*before, *after])
            called = [_of_node(point, node, "" if one.nodes else "nodes") for point in points]
            facts[0] += called[: len(before)]
            facts[1] += called[len(before) :]
        return say(rank(*facts), 5)

    def _nodes(self, database: Connection, run_ids: Sequence[int]) -> tuple[str, ...]:
        pairs = pair_values.pairs_of(database, self.cluster, run_ids)
        return tuple(sorted({node for pair in pairs for node in pair}))

    def _since(self, database: Connection) -> str:
        """Return since which run the cluster's level is below its baseline.

        Form: `slower since run X (UTC), as expected last in Y`.
        """
        expected = {
            one.series_id: median(oriented(value, Better(one.better)) for value in one.values)
            for one in outcomes_in(database, self.reference, cluster=self.cluster)
            if one.values and one.better != Better.NONE.value
        }
        levels: list[tuple[str, str, float]] = []
        for run in time_windows.newest_runs(database, self.cluster, SINCE_RUNS):
            series = [
                one for one in outcomes_in(database, [run], cluster=self.cluster) if one.values and one.series_id in expected
            ]
            if series:
                changes = [oriented(one.values[0], Better(one.better)) - expected[one.series_id] for one in series]
                levels.append((series[0].jobs[0].run, series[0].jobs[0].started_utc, median(changes)))
        return since_words(levels)


def since_words(levels: Iterable[tuple[str, str, float]]) -> str:
    """Return these words; empty if the newest run is as expected.

    levels: (run, UTC, change from the baseline) of runs, the newest first.
    """
    bound = -Scale.speed(0.0).effect / 2
    first: tuple[str, str, float] | None = None
    for one in levels:
        if one[2] > bound:
            if first is None:
                return ""
            return f"slower since run {first[0]} ({first[1][:16]}Z), as expected last in run {one[0]} ({one[1][:16]}Z)"
        first = one
    return f"slower since run {first[0]} ({first[1][:16]}Z) at least" if first else ""


def _of_node(facts: Mapping[tuple[str, str], Any], node: str, called: str = "") -> dict[tuple[str, str], Any]:
    """Return the facts of one node, whichever end it was, and those of the build. called: another name for the node."""
    kept = {}
    for (where, name), value in facts.items():
        if where in {f"client {node}", f"server {node}"}:
            kept[called or node, name] = value
        elif where == "build":
            kept[where, name] = value
    return kept

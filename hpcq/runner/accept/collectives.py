"""Tests of several nodes together in an acceptance: which set may run them now, and what their results say.

A set runs where earlier runs (those of the baseline, if one is named) have measured just this set, all of its nodes are
available, and one of them at least is under test. So no node is taken that nobody asked about, and there is something to
compare with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hpcq.analysis import pair_values
from hpcq.analysis.series_outcomes import SeriesOutcome, outcomes_in
from hpcq.kernels import Better
from hpcq.nodelist import names_several, nodes_of
from hpcq.runner.accept.expected import oriented
from hpcq.runner.accept.values import Measured, disturbed_as_usual
from hpcq.store.database import reading
from hpcq.store.time_windows import run_id_of
from hpcq.verdict.acceptance.collectives import CollectiveVerdict, SetJob, judge_collective
from hpcq.verdict.acceptance.judge import Acceptance
from hpcq.verdict.node_sets import PairsOfSet
from hpcq.verdict.words import Verdict

NO_SET = (
    "left out: no earlier run measured it on a set of nodes that are all available now with one under test among them;"
    " `hpcq run` of the campaign measures one"
)
_BAD = (Verdict.DEGRADED, Verdict.FAILED)


def set_to_run(known: Iterable[tuple[str, str]], testable: Collection[str], room: Collection[str]) -> tuple[str, ...]:
    """The nodes of the largest set that may run now; empty if there is none. known: pairs and sets of earlier runs."""
    usable = {*testable, *room}
    sets = [nodes_of(*one) for one in known if names_several(one[1])]
    fitting = [one for one in sets if usable.issuperset(one) and not set(testable).isdisjoint(one)]
    return max(fitting, key=len, default=())


def not_covered(kernels: Iterable[str]) -> tuple[CollectiveVerdict, ...]:
    """The verdicts on collectives of a campaign that no set of nodes can run now."""
    pairs = PairsOfSet.of((), set(), set(), set())
    return tuple(CollectiveVerdict(kernel, (), Verdict.NOT_COVERED, NO_SET, None, pairs) for kernel in kernels)


def judged_collectives(  # noqa: PLR0917 - what was run, what it is compared with, and what its pairs said
    database: Path, cluster: str, runs: Sequence[str], reference: Sequence[int], verdicts: Acceptance, found: Measured
) -> tuple[CollectiveVerdict, ...]:
    """The verdict on every test of a set in these runs, against the reference runs. found, verdicts: what the pairs said."""
    if not runs:
        return ()
    with reading(database) as connection:
        run_ids = [run_id_of(connection, run) for run in runs]
        earlier = [one for one in reference if one not in run_ids]
        now = outcomes_in(connection, run_ids, cluster=cluster)
        before = {one.series_id: one for one in outcomes_in(connection, earlier, cluster=cluster)} if earlier else {}
        names = pair_values.names_of_tests(connection, [*run_ids, *earlier])
    slow = _bad_pairs(verdicts)
    judged = {one.pair for one in found.points} | slow
    return tuple(
        replace(
            judge_collective(
                names[one.kernel, one.parameters],
                PairsOfSet.of(nodes_of(one.client, one.server), judged, slow, slow),
                [] if one.series_id not in before else _values(before[one.series_id]),
                _jobs(one, usual=disturbed_as_usual([one, *filter(None, [before.get(one.series_id)])])),
                one.why,
            ),
            measured_utc=min((job.started_utc for job in one.jobs if job.value is not None or job.lost_count), default=None),
        )
        for one in now
        if names_several(one.server)
    )


def _bad_pairs(verdicts: Acceptance) -> set[tuple[str, str]]:
    """The pairs that are bad, whether something explains them or not."""
    bad = {(pair[0], pair[1]) for pairs in verdicts.explained for pair in pairs} | set(verdicts.open)
    bad |= {(one.nodes[0], one.nodes[1]) for one in verdicts.links if one.verdict in _BAD and len(one.nodes) == 2}
    return bad


def _values(one: SeriesOutcome) -> list[float]:
    return [_level(value, Better(one.better)) for value in one.values]


def _level(value: float, better: Better) -> float:
    """A value as a logarithm, higher is better. A metric without a direction has no slow values: all are alike."""
    return 0.0 if better is Better.NONE else oriented(value, better)


def _jobs(one: SeriesOutcome, *, usual: bool) -> list[SetJob]:
    """The jobs of a set. usual: most jobs of this test ran beside other work, so that says nothing against one."""
    better = Better(one.better)
    found = []
    for job in one.jobs:
        value = job.value if usual or job.clean_value is None else job.clean_value
        disturbed = job.value is not None and job.clean_value is None and not usual
        found.append(SetJob(None if value is None else _level(value, better), job.lost_count, disturbed))
    return found

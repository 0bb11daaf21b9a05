"""Waves: which pairs start next on which idle nodes, within the budget."""

from __future__ import annotations

import itertools
import time

import pytest

from hpcq.definition.model import Budget
from hpcq.planning.pairs import make_pairs
from hpcq.planning.plan import PlannedPair
from hpcq.planning.waves import ActiveJob, choose_wave
from tests.definition.test_plan import ALL, names, planned, wave

pytestmark = pytest.mark.fast


def test_disjoint_pairs_first_then_more_on_the_same_nodes() -> None:
    pending = planned("a-b", "a-c", "c-d", "b-d", "a-d", "b-c")
    assert wave(pending, "a b c d", []) == ["a-b", "c-d", "a-c", "b-d", "a-d", "b-c"]
    assert wave(pending, "a b c d", [], max_jobs=3) == ["a-b", "c-d", "a-c"]


def test_only_idle_nodes_and_our_own_are_used() -> None:
    pending = planned("a-b", "a-c", "c-d", "e-f")
    assert wave(pending, "a b c", []) == ["a-b", "a-c"]
    assert wave(pending, "a", []) == []
    running = [ActiveJob(("c", "d"), running=True)]
    assert wave(pending, "a b", running) == ["a-b", "a-c", "c-d"]
    queued = [ActiveJob(("c", "d"), running=False)]
    assert wave(pending, "a b", queued) == ["a-b"]


def test_nodes_without_a_job_of_ours_come_first() -> None:
    pending = planned("a-b", "c-d", "a-c")
    assert wave(pending, "c d", [ActiveJob(("a", "b"), running=True)]) == ["c-d", "a-b", "a-c"]


def test_jobs_at_most_counts_what_is_queued_and_running() -> None:
    pending = planned("a-b", "c-d", "a-c")
    active = [ActiveJob(("a", "b"), running=True), ActiveJob(("c", "d"), running=False)]
    assert wave(pending, "c d", active, max_jobs=3) == ["a-b"]
    assert wave(pending, "c d", active, max_jobs=2) == []
    assert wave(pending, "c d", active, max_jobs=1) == []


def test_nodes_at_most_and_share_of_the_idle_nodes() -> None:
    pending = planned("a-b", "c-d", "e-f", "a-c", "b-d")
    assert wave(pending, "a b c d e f", [], max_nodes=4) == ["a-b", "c-d", "a-c", "b-d"]
    assert wave(pending, "a b c d e f", [], max_node_ratio=0.5) == ["a-b", "a-c"]
    assert wave(pending, "a b c d e f", [], max_node_ratio=0.1) == []
    taken = [ActiveJob(("c", "d"), running=False)]  # queued, and its nodes were taken by a user since
    assert wave(pending, "a b e f", taken, max_nodes=4) == ["a-b"]
    assert wave(pending, "a b e f", taken, max_nodes=3) == []
    assert wave(pending, "a b e f", taken, max_node_ratio=0.5) == []
    assert wave(pending, "a b e f g h", taken, max_node_ratio=0.5) == ["a-b"]


def test_a_wave_never_breaks_its_budget() -> None:
    pairs = make_pairs(ALL, names(9), 4)
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(pairs)]
    for jobs, limit, share, busy in itertools.product((1, 3, 7, 100), (2, 3, 5, None), (0.3, 0.6, 1.0), (0, 1, 4)):
        active = [ActiveJob(pair, running=no % 2 == 0) for no, pair in enumerate(pairs[:busy])]
        ours = {name for job in active for name in job.nodes}
        idle = set(names(9)) - {name for job in active if job.running for name in job.nodes}
        budget = Budget(jobs, limit, share)
        chosen = choose_wave(pending[busy:], idle, active, budget)
        used = ours | {name for pair in chosen for name in (pair.client, pair.server)}
        assert len(chosen) + len(active) <= max(jobs, len(active))
        assert not chosen or len(used) <= max(budget.node_limit(9), len(ours))
        assert len(set(chosen)) == len(chosen)


def test_waves_bring_the_whole_plan_to_its_end() -> None:
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(make_pairs(ALL, names(7), 4))]
    waves = 0
    while pending:
        chosen = choose_wave(pending, names(7), [], Budget(max_jobs=3))
        assert len({name for pair in chosen for name in (pair.client, pair.server)}) == 2 * len(chosen)
        pending = [pair for pair in pending if pair not in chosen]
        waves += 1
    assert waves == 7


@pytest.mark.heavy
def test_waves_at_scale() -> None:
    pending = [PlannedPair(str(no), *pair) for no, pair in enumerate(make_pairs(ALL, names(1000), 1))]
    started = time.process_time()
    assert len(choose_wave(pending, names(1000), [], Budget(max_jobs=32))) == 32
    assert len(choose_wave(pending, names(1000), [], Budget(max_jobs=2000))) == 2000
    assert time.process_time() - started < 30

"""Evidence, boots, gates, leaves and what is expected, in the verdicts of acceptance."""

from __future__ import annotations

import random
from itertools import permutations
from math import log

import pytest

from hpcq.runner.accept.choice import again, partners
from hpcq.runner.accept.judging import Expected, PairValues, scatter_between_jobs
from hpcq.verdict.acceptance.found import Known
from hpcq.verdict.acceptance.judge import judge, run_counts
from hpcq.verdict.acceptance.points import PACKETS, PairPoint, Scale
from hpcq.verdict.acceptance.standing import sides_of
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict
from tests.acceptance.test_acceptance_verdicts import BEHIND, EIGHT, LEAF_OF, NODES, PASSED, Slow, points, reason_of, words

pytestmark = pytest.mark.fast


@pytest.mark.promise("A flaw that the evidence shows is no PASS.")
def test_evidence_weighs_in() -> None:
    flawed = Known(flaws={"n2": "n2: its link runs at 25 of 100 Gbit/s (in 8 results)"})
    found = judge(NODES, points({}), flawed)
    assert words(found) == PASSED | {"n2": "degraded"}
    assert "n2: its link runs at 25 of 100 Gbit/s" in reason_of(found, "n2")
    assert found.drainable == frozenset(), "evidence alone drains nobody"
    both = [("n1", "n2"), ("n2", "n1")]
    two = points({}, pairs=both, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0})
    two += points({}, pairs=both, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0}, run_no=2)
    assert words(judge(("n1", "n2"), two)) == dict.fromkeys(("n1", "n2"), "inconclusive")
    told = judge(("n1", "n2"), two, Known(flaws={"n2": "n2: MTU 1300, its peers 1500"}))
    assert words(told)["n2"] == "failed"
    assert reason_of(told, "n2").startswith("n2: MTU 1300, its peers 1500; "), "what explains comes first"


@pytest.mark.promise("A node that booted after its measurement is not judged by it.")
def test_who_booted_after_the_measurement_is_not_judged_by_it() -> None:
    found = judge(NODES, points({}), Known(booted={"n3": "its daemon started 2026-11-22T05:00:00Z"}))
    assert words(found) == PASSED | {"n3": "inconclusive"}
    assert "booted after it was measured" in reason_of(found, "n3")


def test_a_gate_fails_whatever_the_history_says_and_an_open_one_is_no_pass() -> None:
    broken = [
        PairPoint(*one.pair, one.test, 1, one.change, one.scale, 3, gate="must be >= 1e9") if "n4" in one.pair else one
        for one in points({})
    ]
    found = judge(NODES, broken)
    assert words(found) == PASSED | {"n4": "failed"}
    assert "must be >= 1e9" in reason_of(found, "n4")
    unknown = [PairPoint(*one.pair, one.test, 1, one.change, one.scale, 3, gate_open="2 peers") for one in points({})]
    assert set(words(judge(NODES, unknown)).values()) == {"inconclusive"}


def test_lost_packets_fail_a_link_that_is_as_fast_as_ever() -> None:
    lossy = [
        PairPoint(
            *one.pair, f"{one.test}{PACKETS}", run_no, -0.03 if set(one.pair) == {"n1", "n4"} else 0.0, Scale.loss(0.0005), 3
        )
        for run_no in (1, 2)
        for one in points({}, run_no=run_no)
    ]
    found = judge(NODES, points({}) + lossy)
    assert words(found) == PASSED | {"n1 - n4": "failed"}
    assert "3.0 % of the packets lost" in found.links[0].reason


# -- leaves ----------------------------------------------------------------------------------------------------------------


def across(leaf: str, level: float) -> Slow:
    """Everything that enters or leaves a leaf at this level."""
    return {pair: level for pair in permutations(EIGHT, 2) if (LEAF_OF[pair[0]] == leaf) != (LEAF_OF[pair[1]] == leaf)}


def test_a_slow_uplink_is_its_leaf_and_none_of_its_nodes() -> None:
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    for slow in (across("leaf2", 0.5), {pair: 0.5 for pair in across("leaf2", 0.5) if LEAF_OF[pair[0]] == "leaf2"}):
        found = judge(EIGHT, points(slow, pairs=pairs), BEHIND)
        assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n3": "inconclusive", "n4": "inconclusive", "leaf2": "failed"}
        assert found.groups[0].nodes == ("n3", "n4")
        assert {"n3", "n4"}.isdisjoint(found.good), "who is behind it is no good partner"
        assert found.drainable == frozenset()


def test_a_small_fault_of_an_uplink_is_its_leaf() -> None:
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    seen = [one for run_no in (1, 2, 3) for one in points(across("leaf2", 0.91), pairs=pairs, run_no=run_no, scatter=0.03)]
    found = words(judge(EIGHT, seen, BEHIND))
    assert found["leaf2"] in {"degraded", "failed"}
    assert not {"degraded", "failed"}.intersection(found[node] for node in EIGHT)


def test_between_two_leaves_it_cannot_be_told_whose_uplink_it_is() -> None:
    leaf_of = {node: f"leaf{1 + place // 4}" for place, node in enumerate(EIGHT)}
    slow = {pair: 0.5 for pair in permutations(EIGHT, 2) if leaf_of[pair[0]] != leaf_of[pair[1]]}
    found = judge(EIGHT, points(slow, pairs=partners(EIGHT, EIGHT, leaf_of=leaf_of)), Known(leaf_of=leaf_of))
    assert words(found) == dict.fromkeys(EIGHT, "inconclusive") | {"leaf1 - leaf2": "failed"}


def test_one_bad_node_of_a_leaf_is_not_its_leaf_and_both_may_stand() -> None:
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    slow = {("n3", "*"): 0.5, ("*", "n3"): 0.5}
    assert words(judge(EIGHT, points(slow, pairs=pairs), BEHIND)) == dict.fromkeys(EIGHT, "pass") | {"n3": "failed"}
    found = words(judge(EIGHT, points(slow | across("leaf3", 0.6), pairs=pairs), BEHIND))
    assert (found["n3"], found["leaf3"], found["n5"], found["n6"]) == ("failed", "failed", "inconclusive", "inconclusive")


def test_a_leaf_of_which_one_node_was_asked_for_takes_its_other_nodes_along() -> None:
    slow = across("leaf2", 0.5)
    seen = points(slow, pairs=partners(["n3"], EIGHT, leaf_of=LEAF_OF))
    assert words(judge(["n3"], seen, BEHIND)) == {"n3": "inconclusive"}
    for run_no in (2, 3):
        pairs = again(judge(["n3"], seen, BEHIND), EIGHT, counts=run_counts(seen), leaf_of=LEAF_OF)
        seen += points(slow, run_no=run_no, pairs=pairs)
    assert words(judge(["n3"], seen, BEHIND)) == {"n3": "inconclusive", "leaf2": "failed"}


def test_links_and_groups_that_were_at_fault_pass_again() -> None:
    def at_fault(kind: Thing, name: str, *nodes: str) -> VerdictRecord:
        return VerdictRecord(kind, name, Verdict.FAILED, "why", nodes)

    standing = [
        sides_of(at_fault(Thing.LINK, "n1 - n5", "n1", "n5"), EIGHT, LEAF_OF),
        sides_of(at_fault(Thing.LINK, "leaf1 - leaf3", "n1", "n2", "n5", "n6"), EIGHT, LEAF_OF),
        sides_of(at_fault(Thing.GROUP, "leaf2", "n3", "n4"), EIGHT, LEAF_OF),
    ]
    known = Known(leaf_of=LEAF_OF, standing=standing)
    every = list(permutations(EIGHT, 2))
    found = judge(EIGHT, points({}, pairs=every), known)
    assert [(one.kind, one.name, one.verdict.value) for one in (*found.links, *found.groups)] == [
        ("link", "n1 - n5", "pass"), ("link", "leaf1 - leaf3", "pass"), ("group", "leaf2", "pass"),
    ]  # fmt: skip
    one_way = judge(EIGHT, points({}, pairs=[("n1", "n5"), ("n3", "n7")]), known)
    assert one_way.links == one_way.groups == (), "too little ran to say so"
    slow = judge(EIGHT, points(across("leaf2", 0.5), pairs=every), known)
    assert [one.verdict.value for one in slow.groups] == ["failed"]


# -- what is expected --------------------------------------------------------------------------------------------------------


def of(client: str, server: str, level: float, jobs: int = 1) -> PairValues:
    return PairValues(client, server, "t", tuple(log(level) + 0.001 * step for step in range(jobs)))


@pytest.mark.promise("Acceptance never compares a pair with itself: without another pair there is no reference.")
def test_without_a_baseline_a_pair_is_compared_with_others_only() -> None:
    now = [of(one, other, 40.0 if "n1" in {one, other} else 100.0) for one, other in permutations(NODES, 2)]
    expected = Expected([of("n1", "n2", 40.0)], now, {}, trusted=False)
    reference = expected.of(of("n1", "n2", 40.0))
    assert reference is not None
    assert reference.value == pytest.approx(log(100), abs=0.01), "what was always slow is not its own measure"
    alone = Expected([], [of("n1", "n2", 40.0), of("n2", "n1", 40.0)], {}, trusted=False)
    assert alone.of(of("n1", "n2", 40.0)) is None, "no other pair, no reference"
    three = Expected([], [of(one, other, 40.0) for one, other in permutations(NODES[:3], 2)], {}, trusted=False)
    assert three.of(of("n1", "n2", 40.0)) is None, "two other pairs and itself are no three others"
    named = Expected([of("n1", "n2", 40.0)], now, {}, trusted=True).of(of("n1", "n2", 20.0))
    assert named is not None
    assert named.value == pytest.approx(log(40)), "a baseline's word stands"
    assert Expected([of("n1", "n2", 40.0)], now, {}, trusted=True).of(of("n3", "n4", 20.0)) is None, (
        "it has nothing of its like"
    )


def test_scatter_between_jobs_is_learned_from_history_and_from_now_and_else_assumed() -> None:
    noise = random.Random(3)
    assert scatter_between_jobs([], [], []) == 0.05
    histories = [[noise.gauss(0, 0.03) for _ in range(4)] for _ in range(20)]
    assert scatter_between_jobs(histories, [], []) == pytest.approx(0.03, rel=0.35)
    changes = [noise.gauss(0, 0.02) * 2**0.5 for _ in range(40)]
    assert scatter_between_jobs([], changes, [1] * 40) == pytest.approx(0.02, rel=0.4)
    with_faults = changes + [-0.7] * 10
    assert scatter_between_jobs([], with_faults, [1] * 50) < 0.035, "a fault is no scatter"

"""What acceptance says of pairs with a known truth: who is at fault, who passes, and what is left open."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from math import log

import pytest

from hpcq.runner.accept.choice import again
from hpcq.verdict.acceptance.found import Known
from hpcq.verdict.acceptance.judge import Acceptance, judge, run_counts
from hpcq.verdict.acceptance.points import PairPoint, PairVerdict, Scale, findings

pytestmark = pytest.mark.fast

NODES = ("n1", "n2", "n3", "n4", "n5")
EIGHT = tuple(f"n{number}" for number in range(1, 9))
LEAF_OF = {node: f"leaf{1 + place // 2}" for place, node in enumerate(EIGHT)}
BEHIND = Known(leaf_of=LEAF_OF)

Slow = dict[tuple[str, str], float]


def points(
    slow: Slow,
    *,
    run_no: int = 1,
    pairs: Sequence[tuple[str, str]] | None = None,
    scatter: float = 0.01,
    lost: Slow | None = None,
) -> list[PairPoint]:
    """Every ordered pair as expected, but for slow ones; `("n2", "*")` is everything that n2 sends. lost: share that failed."""
    noise = random.Random(run_no)
    found = []
    for client, server in pairs or list(permutations(NODES, 2)):
        keys = ((client, server), (client, "*"), ("*", server))
        share = max((lost or {}).get(key, 0.0) for key in keys)
        change = log(min(slow.get(key, 1.0) for key in keys)) + noise.gauss(0, 0.3 * scatter)
        value, reason = (None, "no data for 30 s") if share == 1 else (change, "no data for 30 s" if share else "")
        found.append(PairPoint(client, server, "tcp_stream 64 KiB", run_no, value, Scale.speed(scatter), 3, share, reason))
    return found


def words(found: Acceptance) -> dict[str, str]:
    return {one.name: one.verdict.value for one in (*found.clusters, *found.nodes, *found.links, *found.groups)}


def reason_of(found: Acceptance, name: str) -> str:
    return next(one.reason for one in (*found.clusters, *found.nodes, *found.links, *found.groups) if one.name == name)


PASSED = dict.fromkeys(NODES, "pass")


def test_all_is_well() -> None:
    found = judge(NODES, points({}))
    assert words(found) == PASSED
    assert (found.suspects, found.unsettled, found.drainable) == ((), (), frozenset())
    assert reason_of(found, "n1") == "as expected with n2, n3, n4, n5 in 8 jobs"


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "failed"), (0.93, "degraded")])
def test_a_node_that_is_slow_in_both_directions_or_one(level: float, verdict: str) -> None:
    for slow in ({("n2", "*"): level, ("*", "n2"): level}, {("n2", "*"): level}, {("*", "n2"): level}):
        found = judge(NODES, points(slow))
        assert words(found) == PASSED | {"n2": verdict}
        assert found.drainable == {"n2"}


def test_two_bad_nodes_do_not_hide_each_other() -> None:
    slow = {(one, "*"): 0.5 for one in ("n2", "n3")} | {("*", one): 0.5 for one in ("n2", "n3")}
    assert words(judge(NODES, points(slow))) == PASSED | {"n2": "failed", "n3": "failed"}


@pytest.mark.promise("A link is accused on three jobs in two runs at least.")
def test_a_link_is_never_blamed_on_one_run() -> None:
    slow = {("n2", "n3"): 0.5}
    once = judge(NODES, points(slow))
    assert words(once)["n2"] == "inconclusive"
    assert once.suspects == ("n2", "n3")
    seen = points(slow)
    for run_no in (2, 3):
        assert again(judge(NODES, seen), NODES, counts=run_counts(seen), leaf_of={}), "it is run again until it is sure"
        seen += points(slow, run_no=run_no, pairs=[("n2", "n3")])
    found = judge(NODES, seen)
    assert words(found) == PASSED | {"n2 - n3": "failed"}
    assert "n2 > n3" in found.links[0].reason
    both = {("n2", "n3"): 0.5, ("n3", "n2"): 0.5}
    again_both = points(both) + points(both, run_no=2, pairs=[("n2", "n3"), ("n3", "n2")])
    assert [one.name for one in judge(NODES, again_both).links] == ["n2 - n3"], "one link, not one per direction"


@pytest.mark.promise("Half speed in one run and fine in the next is no PASS.")
def test_half_speed_in_one_run_and_fine_in_the_next_is_watched() -> None:
    found = judge(NODES, points({("n2", "n3"): 0.5}) + points({}, run_no=2, pairs=[("n2", "n3")]))
    assert words(found) == PASSED | {"n2": "inconclusive", "n3": "inconclusive"}
    assert "bad in one run and fine in another" in reason_of(found, "n2")
    assert found.drainable == frozenset()
    assert ("n2", "n3") in found.unsettled, "and it is run once more"


def test_one_fine_pair_of_eight_does_not_clear_a_node() -> None:
    every = list(permutations(EIGHT, 2))
    slow = {pair: 0.5 for pair in every if "n2" in pair and "n1" not in pair}
    found = judge(EIGHT, points(slow, pairs=every))
    assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n2": "failed"}
    assert "(fine with n1)" in reason_of(found, "n2")


@pytest.mark.promise("A half-dead node beside leaf switches is that node, and no six links.")
def test_a_half_dead_node_beside_its_leaf_is_no_six_links() -> None:
    """Fine with the other node of its leaf, which is fine with everybody: it is neither the leaf nor its links."""
    every = list(permutations(EIGHT, 2))
    slow = {pair: 0.5 for pair in every if "n2" in pair and "n1" not in pair}
    found = judge(EIGHT, points(slow, pairs=every), BEHIND)
    assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n2": "failed"}
    assert found.drainable == {"n2"}


@pytest.mark.promise("Two bad links that share an end accuse that end and drain no node.")
def test_two_bad_links_that_share_an_end_accuse_that_end_and_drain_nobody() -> None:
    every = list(permutations(EIGHT, 2))
    bad = [pair for pair in every if set(pair) in ({"n2", "n5"}, {"n2", "n7"})]
    slow = dict.fromkeys(bad, 0.5)
    found = judge(EIGHT, points(slow, pairs=every) + points(slow, run_no=2, pairs=bad))
    assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n2": "failed"}
    assert found.drainable == frozenset(), "its other pairs are fine"


def test_two_who_explain_the_same_pairs_stay_open() -> None:
    ring = {(one, other) for one in ("n1", "n2") for other in ("n3", "n4")}
    slow = dict.fromkeys(ring | {pair[::-1] for pair in ring}, 0.5)
    found = judge(NODES, points(slow))
    said = words(found)
    assert [said[node] for node in NODES] == [*["inconclusive"] * 4, "pass"]


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("A test that ran without a valid result counts as bad.")
@pytest.mark.parametrize(
    "lost",
    [
        {("n2", "*"): 1.0, ("*", "n2"): 1.0},
        {("n2", "*"): 1.0},
        {(one, other): 1.0 for one, other in permutations(NODES, 2) if "n2" in {one, other} and "n1" not in {one, other}},
    ],
    ids=["every test", "never a client", "reaches one of four"],
)
def test_tests_that_bring_nothing_fail_a_node_with_their_reason(lost: Slow) -> None:
    found = judge(NODES, points({}, lost=lost))
    assert words(found) == PASSED | {"n2": "failed"}
    assert "brings nothing" in reason_of(found, "n2")
    assert "no data for 30 s" in reason_of(found, "n2")


def test_a_dead_node_is_told_though_its_partners_scatter_too_much_to_be_called_fine() -> None:
    seen = points({(one, "*"): 0.9 for one in NODES}, scatter=0.05, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0})
    assert words(judge(NODES, seen))["n2"] == "failed"


def test_one_failing_test_is_not_cleared_by_another() -> None:
    fine = [PairPoint(*one.pair, "tcp_pingpong 64 B", 1, one.change, one.scale, 3) for one in points({})]
    found = judge(NODES, [*points({}, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0}), *fine])
    assert words(found) == PASSED | {"n2": "failed"}


def test_some_failed_repetitions_are_no_pass() -> None:
    found = judge(NODES, points({}, lost={("n2", "n3"): 0.2}))
    assert words(found) == PASSED | {"n2": "inconclusive", "n3": "inconclusive"}


def beyond_its_leaf(share: float, *, slow: float) -> list[PairPoint]:
    """Two runs in which what n2 sends beyond its leaf loses some repetitions, and the others have this level."""
    every = list(permutations(EIGHT, 2))
    theirs = [pair for pair in every if pair[0] == "n2" and pair[1] != "n1"]
    lost = dict.fromkeys(theirs, share)
    return [one for no in (1, 2) for one in points(dict.fromkeys(theirs, slow), pairs=every, lost=lost, run_no=no)]


@pytest.mark.promise("A half-dead node whose tests fail in part in every run is named.")
def test_a_node_that_loses_some_repetitions_beyond_its_leaf_is_named() -> None:
    found = judge(EIGHT, beyond_its_leaf(0.2, slow=0.3), BEHIND)
    assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n2": "failed"}, "slow in what is left of them"
    found = judge(EIGHT, beyond_its_leaf(0.2, slow=1.0), BEHIND)
    assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n2": "degraded"}, "in both runs"
    assert "fails in part in 12 jobs" in reason_of(found, "n2")


def test_what_was_not_measured_or_cannot_be_compared_is_no_pass() -> None:
    missing = [
        PairPoint(*one.pair, one.test, 1, None, one.scale, reason="no reference: baseline good has nothing of it")
        if "n4" in one.pair else one
        for one in points({})
    ]  # fmt: skip
    found = judge((*NODES, "n9"), missing, Known(missing={"n9": "down: power supply"}))
    assert words(found) == PASSED | {"n4": "inconclusive", "n9": "not_covered"}
    assert reason_of(found, "n4").startswith("no reference")
    assert reason_of(found, "n9") == "down: power supply"
    one_partner = [one for one in points({}) if "n2" not in one.pair or "n1" in one.pair]
    never = [one for one in points({}) if "n2" in one.pair and "n1" not in one.pair]
    gaps = [PairPoint(*one.pair, one.test, 1, None, one.scale, reason="not run: n3 drained") for one in never]
    found = judge(NODES, one_partner + gaps)
    assert words(found)["n2"] == "inconclusive"
    assert "1 of 4 partners can tell: not run: n3 drained" in reason_of(found, "n2")


@pytest.mark.promise("PASS needs a node that was tested as client and as server.")
def test_a_pass_needs_both_roles() -> None:
    found = judge(NODES, [one for one in points({}) if one.client != "n2"])
    assert words(found)["n2"] == "inconclusive"
    assert reason_of(found, "n2") == "it was never tested as the client"


@pytest.mark.promise("PASS rules out what matters with the jobs that there are.")
def test_too_much_scatter_for_so_few_jobs_is_no_pass_and_says_how_many_more() -> None:
    pairs = [pair for one in ("n1", "n3", "n4") for pair in (("n2", one), (one, "n2"))]
    found = judge(("n2",), points({}, pairs=pairs, scatter=0.08))
    assert words(found) == {"n2": "inconclusive"}
    assert "more jobs would settle it" in reason_of(found, "n2")
    assert set(found.unsettled) == set(pairs)


def test_jobs_beside_others_work_accuse_nobody() -> None:
    disturbed = [
        PairPoint(*one.pair, one.test, 1, one.change, one.scale, 3, disturbed="n2" in one.pair)
        for one in points({("n2", "*"): 0.5, ("*", "n2"): 0.5})
    ]
    assert words(judge(NODES, disturbed))["n2"] == "inconclusive"


# -- small faults, modes, the whole cluster ------------------------------------------------------------------------------


def test_a_small_fault_shows_in_the_mean_of_many_jobs() -> None:
    slow = {("n2", "*"): 0.92, ("*", "n2"): 0.92}
    seen = [one for run_no in (1, 2, 3) for one in points(slow, run_no=run_no, scatter=0.03)]
    assert PairVerdict.BAD not in {one.word for one in findings(seen[:20]).values()}, "no single job tells"
    assert words(judge(NODES, seen))["n2"] == "degraded"


@pytest.mark.promise("A latency with several modes accuses no node.")
def test_a_latency_with_modes_accuses_nobody() -> None:
    flips = random.Random(7)
    seen = []
    for run_no in (1, 2, 3):
        for one in points({}, run_no=run_no, pairs=list(permutations(EIGHT, 2))):
            change = (one.change or 0.0) - (log(3) if flips.random() < 0.3 else 0.0)
            seen.append(PairPoint(*one.pair, one.test, run_no, change, one.scale, 3))
    found = judge(EIGHT, seen)
    assert not {"failed", "degraded"}.intersection(words(found).values())


@pytest.mark.promise("A cluster that is slower as a whole is reported once, after two runs.")
def test_everything_slower_is_said_once_for_the_cluster() -> None:
    every = {(one, "*"): 0.5 for one in NODES}
    once = judge(NODES, points(every), cluster="alpha")
    assert words(once) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "inconclusive"}
    assert len(once.unsettled) == 20, "a second run must agree"
    found = judge(NODES, points(every) + points(every, run_no=2), cluster="alpha")
    assert words(found) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "failed"}
    assert "tcp_stream 64 KiB: 50 % below the baseline on 20 of 20 pairs" in reason_of(found, "alpha")
    worse = every | {("n2", "*"): 0.2, ("*", "n2"): 0.2}
    found = judge(NODES, points(worse) + points(worse, run_no=2), cluster="alpha")
    assert (words(found)["alpha"], words(found)["n2"]) == ("failed", "failed")
    dead = points({}, lost={(one, "*"): 1.0 for one in NODES})
    assert words(judge(NODES, dead, cluster="alpha"))["alpha"] == "inconclusive"


@pytest.mark.promise("A node that all pairs share is no slow cluster.")
def test_one_slow_node_that_all_pairs_share_is_no_slow_cluster() -> None:
    pairs = [pair for one in ("n1", "n3", "n4", "n5") for pair in (("n2", one), (one, "n2"))]
    found = judge(("n2",), points({("n2", "*"): 0.5, ("*", "n2"): 0.5}, pairs=pairs), cluster="alpha")
    assert (found.clusters, words(found)) == ((), {"n2": "inconclusive"}), "nobody else ran with each other"


# -- evidence, boots, gates ------------------------------------------------------------------------------------------------

"""What acceptance says of pairs with a known truth: who is at fault, who passes, and what is left open."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import permutations
from math import log

import pytest

from hpcq.analysis.series_outcomes import JobOutcome, SeriesOutcome
from hpcq.judge.acceptance import PACKETS
from hpcq.runner.accept.choice import again, partners, to_measure_alone
from hpcq.runner.accept.judging import _Columns
from hpcq.verdict.acceptance import sides_of
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.acceptance.judged import (
    BEHIND,
    EIGHT,
    LEAF_OF,
    NODES,
    PASSED,
    Job,
    Known,
    Slow,
    counts_of,
    jobs_of,
    judge,
    reason_of,
    words,
)

pytestmark = pytest.mark.fast

ALL_PASS = dict.fromkeys(EIGHT, "pass")
EVERY = list(permutations(EIGHT, 2))


def test_all_is_well() -> None:
    found = judge(NODES, jobs_of({}))
    assert words(found) == PASSED
    assert (found.suspects, found.unsettled, found.drainable) == ((), (), frozenset())
    assert reason_of(found, "n1") == "as expected with n2, n3, n4, n5 in 8 jobs"


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "failed"), (0.93, "degraded")])
def test_a_node_that_is_slow_in_both_directions_or_one(level: float, verdict: str) -> None:
    for slow in ({("n2", "*"): level, ("*", "n2"): level}, {("n2", "*"): level}, {("*", "n2"): level}):
        found = judge(NODES, jobs_of(slow) + jobs_of(slow, run_no=2))
        assert words(found) == PASSED | {"n2": verdict}
        assert found.drainable == ({"n2"} if verdict == "failed" else set())


def takes_turns(slow: dict[tuple[str, str], float], alone: dict[tuple[str, str], float]) -> list[Job]:
    """Three runs in which these pairs of two leaves are slow, and two that measured them one at a time."""
    jobs = [job for run_no in (1, 2, 3) for job in jobs_of(slow, pairs=EVERY, run_no=run_no)]
    return jobs + [job for run_no in (4, 5) for job in jobs_of(alone, pairs=list(slow), run_no=run_no)]


@pytest.mark.promise("An acceptance fails no link because pairs of its own run shared an uplink with it.")
def test_a_link_that_is_slow_beside_other_pairs_alone_is_no_fault() -> None:
    one, other = "n1", next(node for node in EIGHT if LEAF_OF[node] != LEAF_OF["n1"])
    slow = {(one, other): 0.6, (other, one): 0.6}
    name = f"{one} - {other}"
    suspected = judge(EIGHT, takes_turns(slow, {})[: 3 * len(EVERY)])
    assert words(suspected) == ALL_PASS | {name: "failed"}
    assert to_measure_alone(suspected, LEAF_OF) == [(one, other), (other, one)]
    assert to_measure_alone(suspected, {}) == [], "nobody knows that they share an uplink"
    assert to_measure_alone(suspected, dict.fromkeys(EIGHT, "leaf1")) == []
    assert words(judge(EIGHT, takes_turns(slow, {}))) == ALL_PASS
    assert words(judge(EIGHT, takes_turns(slow, slow))) == ALL_PASS | {name: "failed"}


def test_two_bad_nodes_do_not_hide_each_other() -> None:
    slow = {(one, "*"): 0.5 for one in ("n2", "n3")} | {("*", one): 0.5 for one in ("n2", "n3")}
    seen = jobs_of(slow, pairs=EVERY)
    assert words(judge(EIGHT, seen)) == ALL_PASS | {"n2": "failed", "n3": "failed"}


@pytest.mark.promise("A link is accused on three jobs in two runs at least.")
def test_a_link_is_never_blamed_on_one_run() -> None:
    slow = {("n2", "n3"): 0.5}
    once = judge(NODES, jobs_of(slow), final=False)
    assert words(once)["n2"] == "inconclusive"
    assert once.suspects == ("n2", "n3")
    seen = jobs_of(slow)
    for run_no in (2, 3):
        verdict = judge(NODES, seen, final=False)
        assert ("n2", "n3") in again(verdict, NODES, counts=counts_of(seen), leaf_of={}), "run again until it is sure"
        seen += jobs_of(slow, run_no=run_no, pairs=[("n2", "n3")])
    found = judge(NODES, seen)
    assert words(found) == PASSED | {"n2 - n3": "failed"}
    assert "n2 > n3" in found.links[0].reason
    both = {("n2", "n3"): 0.5, ("n3", "n2"): 0.5}
    again_both = jobs_of(both) + jobs_of(both, run_no=2, pairs=[("n2", "n3"), ("n3", "n2")])
    assert [one.name for one in judge(NODES, again_both).links] == ["n2 - n3"], "one link, not one per direction"


@pytest.mark.promise("Half speed in one run and fine in the next is no PASS.")
def test_half_speed_in_one_run_and_fine_in_the_next_is_watched() -> None:
    found = judge(NODES, jobs_of({("n2", "n3"): 0.5}) + jobs_of({}, run_no=2, pairs=[("n2", "n3")]))
    assert words(found) == PASSED | {"n2": "inconclusive", "n3": "inconclusive"}
    assert "bad in one run and fine in another" in reason_of(found, "n2")
    assert found.drainable == frozenset()
    assert ("n2", "n3") in found.open, "and it is run once more"


@pytest.mark.promise("Half speed in one run and fine in the next is no PASS.")
def test_a_node_that_was_slow_with_everybody_in_one_run_alone_is_said_so() -> None:
    slow = jobs_of({("n2", "*"): 0.3})
    found = judge(NODES, slow + [one for run_no in (2, 3) for one in jobs_of({}, run_no=run_no)])
    assert words(found) == PASSED | {"n2": "inconclusive"}
    assert reason_of(found, "n2").endswith("bad in one run and fine in another")
    assert reason_of(judge(NODES, slow, final=False), "n2").endswith("seen with one run only")


@pytest.mark.promise("A half-dead node beside leaf switches is that node, and no six links.")
@pytest.mark.parametrize("known", [Known(), BEHIND], ids=["no leaves", "beside its leaf"])
def test_a_half_dead_node_is_no_six_links_and_one_fine_pair_does_not_clear_it(known: Known) -> None:
    slow = {pair: 0.5 for pair in EVERY if "n2" in pair and "n1" not in pair}
    found = judge(EIGHT, jobs_of(slow, pairs=EVERY), known)
    assert words(found) == ALL_PASS | {"n2": "failed"}
    assert "(fine with n1)" in reason_of(found, "n2")
    assert found.drainable == {"n2"}


@pytest.mark.promise("Two bad links that share an end accuse that end and drain no node.")
def test_two_bad_links_that_share_an_end_accuse_that_end_and_drain_nobody() -> None:
    bad = [pair for pair in EVERY if set(pair) in ({"n2", "n5"}, {"n2", "n7"})]
    slow = dict.fromkeys(bad, 0.5)
    found = judge(EIGHT, jobs_of(slow, pairs=EVERY) + jobs_of(slow, run_no=2, pairs=bad))
    assert words(found) == ALL_PASS | {"n2": "failed"}
    assert found.drainable == frozenset(), "its other pairs are fine"


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
    found = judge(NODES, jobs_of({}, lost=lost))
    assert words(found) == PASSED | {"n2": "failed"}
    assert "brings nothing" in reason_of(found, "n2")
    assert "no data for 30 s" in reason_of(found, "n2")


def test_one_failing_test_is_not_cleared_by_another() -> None:
    fine = [replace(one, test="tcp_pingpong 64 B") for one in jobs_of({})]
    found = judge(NODES, [*jobs_of({}, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0}), *fine])
    assert words(found) == PASSED | {"n2": "failed"}


@pytest.mark.promise("A node that accept fails in one test is the reason of what is bad with it in another: no link beside it.")
@pytest.mark.parametrize("run_count", [1, 3])
@pytest.mark.parametrize("left_out", [True, False], ids=["after three partners", "with all"])
def test_a_node_that_fails_one_test_explains_its_pairs_in_the_others(run_count: int, left_out: bool) -> None:
    """An MTU black hole: large packets fail with everybody, a stream only where the node sends, and one partner receives."""
    jobs = []
    for run_no in range(1, run_count + 1):
        for one in jobs_of({}, run_no=run_no, lost={("n2", "*"): 1.0, ("*", "n2"): 1.0}):
            away = left_out and "n2" in one.pair and one.pair not in {("n1", "n2"), ("n2", "n4"), ("n2", "n5")}
            jobs.append(replace(one, lost=False, change=None, reason="not run: n2 is decided") if away else one)
        stream = jobs_of({}, run_no=run_no, lost={("n2", "n4"): 1.0})
        met = {("n1", "n2"), ("n2", "n4")} if left_out else {("n1", "n2"), ("n3", "n2"), ("n2", "n4"), ("n5", "n2")}
        jobs += [replace(one, test="tcp_stream 128 KiB") for one in stream if "n2" not in one.pair or one.pair in met]
    found = judge(NODES, jobs)
    assert words(found) == PASSED | {"n2": "failed"}
    assert found.links == ()
    assert "see link" not in reason_of(found, "n4")


def test_what_was_not_measured_is_no_pass() -> None:
    never = [
        replace(one, change=None, reason="not run: n3 drained") if "n2" in one.pair and "n1" not in one.pair else one
        for one in jobs_of({})
    ]
    found = judge((*NODES, "n9"), never, Known(missing={"n9": "down: power supply"}))
    assert words(found)["n2"] == "inconclusive"
    assert words(found)["n9"] == "not_covered"
    assert reason_of(found, "n9") == "down: power supply"
    nothing = [replace(one, change=None, reason="not run: n4 down") if "n4" in one.pair else one for one in jobs_of({})]
    found = judge(NODES, nothing)
    assert words(found) == PASSED | {"n4": "not_covered"}
    assert reason_of(found, "n4") == "not run: n4 down"


@pytest.mark.promise("PASS needs a node that was tested as client and as server.")
def test_a_pass_needs_both_roles() -> None:
    found = judge(NODES, [one for one in jobs_of({}) if one.client != "n2"])
    assert words(found)["n2"] == "inconclusive"
    assert reason_of(found, "n2") == "tcp_stream 64 KiB was not measured with it as the client"


@pytest.mark.promise("PASS rules out what matters with the jobs that there are.")
def test_too_much_scatter_for_so_few_jobs_is_measured_again_and_then_told() -> None:
    seen = jobs_of({}, pairs=EVERY, scatter=0.06)
    first = judge(EIGHT, seen, scatter=0.06, final=False)
    unsure = [one.name for one in first.nodes if one.verdict is Verdict.INCONCLUSIVE]
    assert len(unsure) > 2
    assert set(unsure) <= set(first.suspects)
    assert "5 % slower is not ruled out" in reason_of(first, unsure[0]) or "9.8 % slower" in reason_of(first, unsure[0])
    last = judge(EIGHT, seen, scatter=0.06)
    assert last.told[0].slower > 0.08, "what is told is what the jobs can tell"


@pytest.mark.promise("Values beside other work accuse no node.")
def test_jobs_beside_others_work_accuse_nobody() -> None:
    slow = jobs_of({("n2", "*"): 0.5, ("*", "n2"): 0.5})
    found = judge(NODES, [replace(one, disturbed="n2" in one.pair) for one in slow])
    assert words(found) == PASSED | {"n2": "inconclusive"}


def test_a_small_fault_shows_in_many_jobs_of_which_none_tells() -> None:
    slow = {("n2", "*"): 0.92, ("*", "n2"): 0.92}
    seen = [one for run_no in (1, 2, 3) for one in jobs_of(slow, pairs=EVERY, run_no=run_no, scatter=0.03)]
    found = words(judge(EIGHT, seen, scatter=0.03))
    assert found == ALL_PASS | {"n2": found["n2"]}
    assert found["n2"] in {"degraded", "failed"}


@pytest.mark.promise("A latency with several modes accuses no node.")
def test_a_latency_with_modes_accuses_nobody() -> None:
    flips = random.Random(7)
    seen = [
        replace(one, change=(one.change or 0.0) - (log(3) if flips.random() < 0.3 else 0.0))
        for run_no in (1, 2, 3)
        for one in jobs_of({}, run_no=run_no, pairs=EVERY)
    ]
    assert words(judge(EIGHT, seen)) == ALL_PASS


@pytest.mark.promise("A cluster that is slower as a whole is reported once, after two runs.")
def test_everything_slower_is_said_once_for_the_cluster() -> None:
    every = {(one, "*"): 0.5 for one in NODES}
    once = judge(NODES, jobs_of(every), cluster="alpha", final=False)
    assert words(once) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "inconclusive"}
    assert once.unsettled, "a second run must agree"
    found = judge(NODES, jobs_of(every) + jobs_of(every, run_no=2), cluster="alpha")
    assert words(found) == dict.fromkeys(NODES, "inconclusive") | {"alpha": "failed"}
    assert "tcp_stream 64 KiB: 50 % below the baseline on 20 pairs" in reason_of(found, "alpha")
    worse = every | {("n2", "*"): 0.2, ("*", "n2"): 0.2}
    found = judge(NODES, jobs_of(worse) + jobs_of(worse, run_no=2), cluster="alpha")
    assert (words(found)["alpha"], words(found)["n2"]) == ("failed", "failed")


@pytest.mark.promise("A node that all pairs share is no slow cluster.")
def test_one_slow_node_that_all_pairs_share_is_no_slow_cluster() -> None:
    pairs = [pair for one in ("n1", "n3", "n4", "n5") for pair in (("n2", one), (one, "n2"))]
    found = judge(("n2",), jobs_of({("n2", "*"): 0.5, ("*", "n2"): 0.5}, pairs=pairs), cluster="alpha")
    assert found.clusters == ()


# -- evidence, boots, gates, leaves --------------------------------------------------------------------------------------


@pytest.mark.promise("A flaw that the evidence shows is no PASS.")
@pytest.mark.promise("A node that booted after its measurement is not judged by it.")
def test_evidence_and_boots_weigh_in() -> None:
    flawed = Known(flaws={"n2": "n2: its link runs at 25 of 100 Gbit/s (in 8 results)"}, booted={"n3": "its daemon started"})
    found = judge(NODES, jobs_of({}), flawed)
    assert words(found) == PASSED | {"n2": "degraded", "n3": "inconclusive"}
    assert "n2: its link runs at 25 of 100 Gbit/s" in reason_of(found, "n2")
    assert "booted after it was measured" in reason_of(found, "n3")
    assert found.drainable == frozenset(), "evidence alone drains nobody"
    slow = judge(NODES, jobs_of({("n2", "*"): 0.5, ("*", "n2"): 0.5}), Known(flaws={"n2": "n2: MTU 1300, its peers 1500"}))
    assert reason_of(slow, "n2").startswith("n2: MTU 1300, its peers 1500; "), "what explains comes first"


def test_a_gate_fails_whatever_the_history_says() -> None:
    broken = [replace(one, gate="must be >= 1e9") if "n4" in one.pair else one for one in jobs_of({})]
    found = judge(NODES, broken)
    assert words(found) == PASSED | {"n4": "failed"}
    assert "must be >= 1e9" in reason_of(found, "n4")


def test_lost_packets_fail_a_link_that_is_as_fast_as_ever() -> None:
    lossy = [
        Job(*one.pair, f"{one.test}{PACKETS}", run_no, -0.03 if set(one.pair) == {"n1", "n4"} else 0.0)
        for run_no in (1, 2)
        for one in jobs_of({}, run_no=run_no)
    ]
    found = judge(NODES, jobs_of({}) + jobs_of({}, run_no=2) + lossy, scatter=1e-5)
    assert words(found) == PASSED | {"n1 - n4": "failed"}
    assert "3.00 % of the packets lost" in found.links[0].reason


def across(leaf: str, level: float) -> Slow:
    """Everything that enters or leaves a leaf at this level."""
    return {pair: level for pair in EVERY if (LEAF_OF[pair[0]] == leaf) != (LEAF_OF[pair[1]] == leaf)}


def test_a_slow_uplink_is_its_leaf_and_none_of_its_nodes() -> None:
    for slow in (across("leaf2", 0.5), {pair: 0.5 for pair in across("leaf2", 0.5) if LEAF_OF[pair[0]] == "leaf2"}):
        found = judge(EIGHT, jobs_of(slow, pairs=EVERY), BEHIND)
        assert words(found) == ALL_PASS | {"n3": "inconclusive", "n4": "inconclusive", "leaf2": "failed"}
        assert found.groups[0].nodes == ("n3", "n4")
        assert {"n3", "n4"}.isdisjoint(found.good), "who is behind it is no good partner"
        assert found.drainable == frozenset()


def test_of_a_slow_uplink_that_also_loses_packets_it_is_said_that_it_is_slow() -> None:
    slow = jobs_of(across("leaf2", 0.5), pairs=EVERY)
    lossy = [Job(*one.pair, f"{one.test}{PACKETS}", 1, -0.3 if one.pair in across("leaf2", 0.5) else 0.0) for one in slow]
    found = judge(EIGHT, slow + lossy, BEHIND, scatter=1e-5)
    assert [one.name for one in found.groups] == ["leaf2"]
    assert re.search(r": 5\d % slower in tcp_stream", found.groups[0].reason), found.groups[0].reason


def test_between_two_leaves_it_cannot_be_told_whose_uplink_it_is() -> None:
    leaf_of = {node: f"leaf{1 + place // 4}" for place, node in enumerate(EIGHT)}
    slow = {pair: 0.5 for pair in EVERY if leaf_of[pair[0]] != leaf_of[pair[1]]}
    found = judge(EIGHT, jobs_of(slow, pairs=EVERY), Known(leaf_of=leaf_of))
    assert words(found) == dict.fromkeys(EIGHT, "inconclusive") | {"leaf1 - leaf2": "failed"}


def test_one_bad_node_of_a_leaf_is_not_its_leaf() -> None:
    slow = {("n3", "*"): 0.5, ("*", "n3"): 0.5}
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    seen = jobs_of(slow, pairs=pairs) + jobs_of(slow, pairs=pairs, run_no=2)
    assert words(judge(EIGHT, seen, BEHIND)) == ALL_PASS | {"n3": "failed"}


def test_links_and_groups_that_were_at_fault_pass_again() -> None:
    def at_fault(kind: Thing, name: str, *nodes: str) -> VerdictRecord:
        return VerdictRecord(kind, name, Verdict.FAILED, "why", nodes)

    standing = [
        sides_of(at_fault(Thing.LINK, "n1 - n5", "n1", "n5"), EIGHT, LEAF_OF),
        sides_of(at_fault(Thing.LINK, "leaf1 - leaf3", "n1", "n2", "n5", "n6"), EIGHT, LEAF_OF),
        sides_of(at_fault(Thing.GROUP, "leaf2", "n3", "n4"), EIGHT, LEAF_OF),
    ]
    known = Known(leaf_of=LEAF_OF, standing=standing)
    found = judge(EIGHT, jobs_of({}, pairs=EVERY), known)
    assert [(one.kind, one.name, one.verdict.value) for one in (*found.links, *found.groups)] == [
        ("link", "n1 - n5", "pass"), ("link", "leaf1 - leaf3", "pass"), ("group", "leaf2", "pass"),
    ]  # fmt: skip
    one_way = judge(EIGHT, jobs_of({}, pairs=[("n1", "n5"), ("n3", "n7")]), known)
    assert one_way.links == one_way.groups == (), "too little ran to say so"
    slow = judge(EIGHT, jobs_of(across("leaf2", 0.5), pairs=EVERY), known)
    assert [one.verdict.value for one in slow.groups] == ["failed"]


@pytest.mark.promise("Acceptance never compares a pair with itself: without another pair there is no reference.")
def test_without_a_baseline_pairs_are_compared_with_each_other() -> None:
    slow = {("n2", "*"): 0.5, ("*", "n2"): 0.5}
    assert words(judge(NODES, jobs_of(slow), baseline=False)) == PASSED | {"n2": "failed"}
    alone = judge(("n1", "n2"), jobs_of({}, pairs=[("n1", "n2"), ("n2", "n1")]), baseline=False)
    assert set(words(alone).values()) == {"inconclusive"}
    assert reason_of(alone, "n1").startswith("no reference"), "no other pair, no reference"


@pytest.mark.promise("An acceptance says the same sentence of the same fault, whichever job and whichever test ran first.")
def test_the_order_of_jobs_and_tests_changes_no_word() -> None:
    names = ("b lost", "a refused")
    jobs = [
        replace(one, reason=names[number % 2] if one.lost else "", test=test)
        for test in ("x", "y")
        for number, one in enumerate(jobs_of({("n3", "*"): 0.5}, lost={("n2", "*"): 1.0}))
    ]
    jobs += [Job("n7", other, "x", 1, None, reason=names[number % 2]) for number, other in enumerate(NODES[:4])]
    said = [judge([*NODES, "n7"], several, baseline=False) for several in (jobs, jobs[::-1])]
    assert said[0] == said[1]
    assert "a refused" in reason_of(said[0], "n2")
    assert reason_of(said[0], "n7") == "a refused"


@pytest.mark.parametrize("turned", [False, True])
def test_tests_stand_in_the_order_of_their_names(turned: bool) -> None:
    job = JobOutcome("r1", "j1", "2026-11-27T00:00:00Z", 1.0, 1.0, 1, 1)
    series = [SeriesOutcome(number, "c", "n1", "n2", kernel, "{}", "m", "higher", (job,)) for number, kernel in enumerate("ba")]
    columns = _Columns(
        series[::-1] if turned else series,
        {("a", "{}", "", ""): "a 10 B", ("b", "{}", "", ""): "a 9 B"},
        {0: {("r1", "j1"): 0.0}, 1: {("r1", "j1"): 0.0}},
        {}, {}, {"a 10 B": False, "a 9 B": False},
    )  # fmt: skip
    assert [one.name for one in columns.values().tests] == ["a 9 B", f"a 9 B{PACKETS}", "a 10 B", f"a 10 B{PACKETS}"]

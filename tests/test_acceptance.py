"""What acceptance says of pairs with a known truth, whom it chooses, and how it reads what Slurm says of upkeep."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from hpcq.definition.campaign import read_campaign
from hpcq.definition.derive import with_pairs
from hpcq.errors import StoreError
from hpcq.kernels import Better
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.accept import accepting
from hpcq.runner.accept.choice import NodeSelection, NodesToTest, choose
from hpcq.runner.accept.commands import commands_for
from hpcq.runner.accept.expected import Expected
from hpcq.runner.accept.partners import again, partners
from hpcq.runner.accept.values import _slow
from hpcq.scheduler.administration import NodeUpkeep, Reservation, Upkeep
from hpcq.scheduler.slurm.administration import SlurmAdministration, read_nodes, read_reservations
from hpcq.statistics import ComparisonVerdict, compare
from hpcq.store.ledger import NodeState
from hpcq.transport import Here
from hpcq.verdict.acceptance import Acceptance, PairResult, judge
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.shared import pairs_across, sides_of
from hpcq.verdict.words import Verdict

pytestmark = pytest.mark.fast

NODES = ("n1", "n2", "n3", "n4", "n5")


def results(
    slow: dict[tuple[str, str], float], *, run_no: int = 1, pairs: list[tuple[str, str]] | None = None
) -> list[PairResult]:
    """Every ordered pair at about 1, but for slow ones; `("n2", "*")` is everything that n2 sends."""
    noise = random.Random(run_no)
    found = []
    for client, server in pairs or list(permutations(NODES, 2)):
        level = min(slow.get(key, 1.0) for key in ((client, server), (client, "*"), ("*", server)))
        ratios = tuple(level * (1 + noise.gauss(0, 0.01)) for _ in range(5))
        found.append(PairResult(client, server, "tcp_stream {} throughput_bps", run_no, ratios, level < 0.95, True))
    return found


def words(found: Acceptance) -> dict[str, str]:
    return {one.name: one.verdict.value for one in (*found.nodes, *found.links, *found.groups)}


def test_all_is_well() -> None:
    found = judge(NODES, results({}), {}, {})
    assert set(words(found).values()) == {"pass"}
    assert found.suspects == ()


@pytest.mark.parametrize(("level", "verdict"), [(0.3, "failed"), (0.93, "degraded")])
def test_a_node_that_is_slow_in_both_directions_or_one(level: float, verdict: str) -> None:
    for slow in ({("n2", "*"): level, ("*", "n2"): level}, {("n2", "*"): level}, {("*", "n2"): level}):
        found = words(judge(NODES, results(slow), {}, {}))
        assert found == dict.fromkeys(NODES, "pass") | {"n2": verdict}


def test_two_bad_nodes_do_not_hide_each_other() -> None:
    slow = {(one, "*"): 0.5 for one in ("n2", "n3")} | {("*", one): 0.5 for one in ("n2", "n3")}
    assert words(judge(NODES, results(slow), {}, {})) == dict.fromkeys(NODES, "pass") | {"n2": "failed", "n3": "failed"}


def test_a_link_is_never_blamed_on_one_run() -> None:
    slow = {("n2", "n3"): 0.5}
    once = judge(NODES, results(slow), {}, {})
    assert words(once)["n2"] == "inconclusive"
    assert once.suspects == ("n2", "n3")
    twice = judge(NODES, results(slow) + results(slow, run_no=2, pairs=[("n2", "n3")]), {}, {})
    assert words(twice) == dict.fromkeys(NODES, "pass") | {"n2 - n3": "failed"}
    assert "n2 > n3" in twice.links[0].reason
    both = {("n2", "n3"): 0.5, ("n3", "n2"): 0.5}
    again_both = results(both) + results(both, run_no=2, pairs=[("n2", "n3"), ("n3", "n2")])
    assert [one.name for one in judge(NODES, again_both, {}, {}).links] == ["n2 - n3"], "one link, not one a direction"
    fine = judge(NODES, results(slow) + results({}, run_no=2, pairs=[("n2", "n3")]), {}, {})
    assert words(fine) == dict.fromkeys(NODES, "pass"), "slow once, fine again: noise"


def test_one_wild_value_of_a_second_run_clears_nobody() -> None:
    def told(run_no: int, *, sure: bool, level: float) -> list[PairResult]:
        slow = {("n2", "*"): level}
        several = results(slow, run_no=run_no)
        return [
            PairResult(one.client, one.server, one.test, run_no, one.ratios, one.slow and sure, sure, leans=one.slow)
            if (one.client, one.server) == ("n2", "n1") else one
            for one in several
        ]  # fmt: skip

    found = judge(NODES, told(1, sure=True, level=0.3) + told(2, sure=False, level=0.3), {}, {})
    assert words(found) == dict.fromkeys(NODES, "pass") | {"n2": "failed"}, "not the links to everybody else"
    found = judge(NODES, told(1, sure=False, level=0.3), {}, {})
    assert words(found)["n2"] == "failed", "a pair that does not tell does not speak for the node"


def test_a_wild_value_leans_and_does_not_tell() -> None:
    usual = [48.0, 48.1, 47.9, 48.2, 48.0, 47.8]
    assert _slow(usual, [14.3, 13.6, 91.6, 14.3, 14.3], Better.HIGHER, 0.05) == (False, False, True)
    assert _slow(usual, [14.3, 13.6, 14.4, 14.3, 14.3], Better.HIGHER, 0.05) == (True, True, False)
    assert _slow(usual, [48.3, 13.6, 48.1, 47.9, 48.0], Better.HIGHER, 0.05) == (False, True, False)


def test_two_nodes_alone_make_no_link() -> None:
    slow, both = {("n1", "*"): 0.3}, [("n1", "n2"), ("n2", "n1")]
    found = judge(("n1", "n2"), results(slow, pairs=both) + results(slow, run_no=2, pairs=both), {}, {})
    assert words(found) == {"n1": "inconclusive", "n2": "inconclusive"}, "n1 may send badly to everybody"


EIGHT = tuple(f"n{number}" for number in range(1, 9))
LEAF_OF = {node: f"leaf{1 + place // 2}" for place, node in enumerate(EIGHT)}


def across(leaf: str, level: float) -> dict[tuple[str, str], float]:
    """Everything that enters or leaves a leaf at this level."""
    return {pair: level for pair in permutations(EIGHT, 2) if (LEAF_OF[pair[0]] == leaf) != (LEAF_OF[pair[1]] == leaf)}


def test_a_slow_uplink_is_its_leaf_and_none_of_its_nodes() -> None:
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    for slow in (across("leaf2", 0.5), {pair: 0.5 for pair in across("leaf2", 0.5) if LEAF_OF[pair[0]] == "leaf2"}):
        found = judge(EIGHT, results(slow, pairs=pairs), {}, LEAF_OF)
        assert words(found) == dict.fromkeys(EIGHT, "pass") | {"n3": "inconclusive", "n4": "inconclusive", "leaf2": "failed"}
        assert found.groups[0].nodes == ("n3", "n4")
        assert {"n3", "n4"}.isdisjoint(found.good), "who is behind it is no good partner"


def test_between_two_leaves_it_cannot_be_told_whose_uplink_it_is() -> None:
    leaf_of = {node: f"leaf{1 + place // 4}" for place, node in enumerate(EIGHT)}
    slow = {pair: 0.5 for pair in permutations(EIGHT, 2) if leaf_of[pair[0]] != leaf_of[pair[1]]}
    found = judge(EIGHT, results(slow, pairs=partners(EIGHT, EIGHT, leaf_of=leaf_of)), {}, leaf_of)
    assert words(found) == dict.fromkeys(EIGHT, "inconclusive") | {"leaf1 - leaf2": "failed"}


def test_one_bad_node_of_a_leaf_is_not_its_leaf_and_both_may_stand() -> None:
    pairs = partners(EIGHT, EIGHT, leaf_of=LEAF_OF)
    slow = {("n3", "*"): 0.5, ("*", "n3"): 0.5}
    assert words(judge(EIGHT, results(slow, pairs=pairs), {}, LEAF_OF)) == dict.fromkeys(EIGHT, "pass") | {"n3": "failed"}
    found = words(judge(EIGHT, results(slow | across("leaf3", 0.6), pairs=pairs), {}, LEAF_OF))
    assert found == dict.fromkeys(EIGHT, "pass") | {
        "n3": "failed", "leaf3": "failed", "n5": "inconclusive", "n6": "inconclusive",
    }  # fmt: skip


def test_a_leaf_of_which_one_node_was_asked_for_takes_its_other_nodes_along() -> None:
    slow = across("leaf2", 0.5)
    first = partners(["n3"], EIGHT, leaf_of=LEAF_OF)
    seen = results(slow, pairs=first)
    assert words(judge(["n3"], seen, {}, LEAF_OF)) == {"n3": "inconclusive"}
    for run_no in (2, 3):
        found = judge(["n3"], seen, {}, LEAF_OF)
        ran = [(one.client, one.server) for one in seen]
        twice = {pair for pair in ran if ran.count(pair) > 1}
        seen += results(slow, run_no=run_no, pairs=again(found, EIGHT, ran_twice=twice, leaf_of=LEAF_OF, met=set(ran)))
    assert words(judge(["n3"], seen, {}, LEAF_OF)) == {"n3": "inconclusive", "leaf2": "failed"}


def test_lost_packets_fail_a_link_that_is_as_fast_as_ever() -> None:
    lossy = [
        PairResult(
            one.client, one.server, "tcp_stream {} arrived_ratio", run_no, (ratio,) * 5, ratio < 1, True, None, 0.99, True
        )
        for run_no in (1, 2)
        for one in results({}, run_no=run_no)
        for ratio in [0.97 if {one.client, one.server} == {"n1", "n4"} else 1.0]
    ]
    found = judge(NODES, results({}) + lossy, {}, {})
    assert words(found) == dict.fromkeys(NODES, "pass") | {"n1 - n4": "failed"}
    assert "3.0 % of the packets lost" in found.links[0].reason


def test_what_is_expected_without_a_baseline_is_what_the_best_peers_do() -> None:
    def of(value: float) -> tuple[str, list[float]]:
        return "higher", [value * (1 + 0.002 * step) for step in range(5)]

    earlier = {("n1", "n2", "t"): of(40.0)}
    now = {(one, other, "t"): of(40.0 if "n1" in {one, other} else 100.0) for one, other in permutations(NODES, 2)}
    expected = Expected.of(earlier, [now], {}, trusted=False)
    assert min(expected.known(("n1", "n2", "t"))) == 100.0, "what was always slow is not its own measure"
    pool = expected.known(("n1", "n2", "t"))
    found = compare(pool, [90.0, 90.1, 90.2, 90.3, 90.4])
    assert found.verdict is ComparisonVerdict.DEGRADED, "pairs are no series that wanders"
    assert max(Expected.of(earlier, [now], {}, trusted=True).known(("n1", "n2", "t"))) < 41, "a baseline's word stands"


def test_a_gate_fails_whatever_the_history_says() -> None:
    broken = [
        PairResult(one.client, one.server, one.test, 1, one.ratios, False, True, "throughput_bps must be >= 1e9")
        if "n4" in {one.client, one.server} else one
        for one in results({})
    ]  # fmt: skip
    found = judge(NODES, broken, {}, {})
    assert words(found)["n4"] == "failed"
    assert "must be >= 1e9" in next(one.reason for one in found.nodes if one.name == "n4")


def test_nothing_measured_is_not_covered_and_too_few_is_no_pass() -> None:
    few = [PairResult("n1", "n2", "t", 1, (1.0,), False, False)]
    found = judge(("n1", "n9"), few, {"n9": "down: power supply"}, {})
    assert [(one.name, one.verdict.value, one.reason) for one in found.nodes][1] == ("n9", "not_covered", "down: power supply")
    assert words(found)["n1"] == "inconclusive"


# -- who needs it ------------------------------------------------------------------------------------------------------


def known(
    node: str,
    verdict: Verdict | None = Verdict.PASS,
    *,
    booted: bool = False,
    since: tuple[str, ...] = (),
    waits: bool = False,
    measured_utc: str | None = None,
) -> NodeState:
    if verdict is None:
        return NodeState(node)
    decided_utc = "2026-11-01T00:00:00Z"
    last = VerdictRecord(
        Thing.NODE, node, verdict, "why", (node,), decided_utc=decided_utc, measured_utc=measured_utc, waits=waits
    )
    return NodeState(node, last, booted, since)


def up(node: str, started: str = "2026-10-01T00:00:00Z", **changed: object) -> NodeUpkeep:
    fields = {"drained": False, "down": False, "reason": "", "partitions": ("main",)} | changed
    return NodeUpkeep(node, started, **fields)  # type: ignore[arg-type]


def test_who_needs_a_verdict() -> None:
    nodes = {
        "n1": known("n1"),
        "n2": known("n2", booted=True),
        "n3": known("n3", since=("maintenance",)),
        "n4": known("n4", None),
        "n5": known("n5", Verdict.FAILED),
        "n6": known("n6"),
        "n7": known("n7", Verdict.NOT_COVERED),
        "n8": known("n8"),
        "n9": known("n9", Verdict.INCONCLUSIVE),
        "n10": known("n10", Verdict.INCONCLUSIVE, waits=True),
    }
    seen = Upkeep(
        "me", {node: up(node) for node in nodes} | {"n6": up("n6", "2026-11-02T00:00:00Z")} | {"n8": up("n8", down=True)}
    )
    found = choose(NodeSelection(), nodes, seen, set(nodes))
    assert found.targets == {
        "n2": "booted", "n3": "maintenance", "n4": "never accepted", "n6": "came up", "n7": "not covered last time",
        "n8": "down", "n9": "inconclusive last time",
    }  # fmt: skip
    assert list(choose(NodeSelection(boot=True), nodes, seen, set(nodes)).targets) == ["n2", "n6"]
    assert list(choose(NodeSelection(nodes=("n5",)), nodes, seen, set(nodes)).targets) == ["n5"]
    assert len(choose(NodeSelection(everything=True), nodes, seen, set(nodes)).targets) == 10


def test_who_cannot_be_had_and_why() -> None:
    nodes = {f"n{i}": known(f"n{i}", since=("maintenance",)) for i in range(1, 6)}
    states = {
        "n1": up("n1", down=True, reason="power"),
        "n2": up("n2", drained=True),
        "n3": up("n3"),
        "n4": up("n4"),
        "n5": up("n5"),
    }
    resv = Reservation("swap", "2026-11-21T00:00:00Z", "2026-11-21T04:00:00Z", ("n3", "n4"), True, True, False)
    found = choose(NodeSelection(), nodes, Upkeep("me", states, (resv,)), {"n5"})
    assert found.testable == ("n5",)
    assert found.blocked["n1"] == "down: power"
    assert found.blocked["n2"] == "drained"
    assert found.blocked["n3"] == "in reservation swap until 2026-11-21 04:00 UTC"
    mine = replace(resv, mine=True)
    inside = choose(NodeSelection(), nodes, Upkeep("me", states, (mine,)), {"n5"})
    assert (inside.reservation, inside.testable, inside.room) == ("swap", ("n3", "n4"), frozenset(("n3", "n4")))
    assert inside.blocked["n5"] == "idle, but a reservation was tested first: the next acceptance takes it"
    flexible = choose(NodeSelection(), nodes, Upkeep("me", states, (replace(mine, flex=True),)), {"n5", "n6"})
    assert (flexible.testable, flexible.room) == (("n3", "n4", "n5"), frozenset(("n3", "n4", "n5", "n6")))
    alone = Upkeep("me", states, (replace(mine, nodes=("n3",)),))
    found = choose(NodeSelection(nodes=("n3",)), nodes, alone, {"n3", "n5"})
    assert (found.testable, found.reservation) == ((), None), "the scheduler may call it idle still: it is not to be had"
    assert "alone there: it has no partner" in found.blocked["n3"]
    with_partners = Upkeep("me", states, (replace(mine, nodes=("n3",), flex=True),))
    assert choose(NodeSelection(nodes=("n3",)), nodes, with_partners, {"n5"}).testable == ("n3",)


def test_what_to_type() -> None:
    nodes = {
        "n1": up("n1"), "n2": up("n2", drained=True, reason="fan"), "n3": up("n3"), "n4": up("n4", down=True), "n5": up("n5"),
    }  # fmt: skip
    own = Reservation("hpcq-accept", "2026-11-21T00:00:00Z", "2026-11-21T02:00:00Z", ("n1", "n3"), True, True, True, True)
    swap = replace(own, name="swap", flex=False)

    def typed(verdicts: dict[str, Verdict], *standing: Reservation, inside: str | None = None) -> list[tuple[str, bool]]:
        judged = tuple(VerdictRecord(Thing.NODE, node, verdict, "why", (node,)) for node, verdict in verdicts.items())
        found = commands_for(Acceptance(judged), Upkeep("me", nodes, standing), SlurmAdministration(Here()), inside)
        return [(one.command.removeprefix("scontrol "), one.by_apply) for one in found]

    failed, passed, missing = Verdict.FAILED, Verdict.PASS, Verdict.NOT_COVERED
    assert typed({"n1": failed, "n3": passed}) == [("update nodename=n1 state=drain reason='hpcq accept: why'", True)]
    made = "create reservation reservationname=hpcq-accept starttime=now duration=120 users=me flags=maint,ignore_jobs,flex"
    released = f"{made} nodes=n2,n4 && scontrol update nodename=n2,n4 state=resume"
    assert typed({"n2": missing, "n4": missing}) == [(released, False)], "to the test and not to users"
    more = "update reservationname=hpcq-accept nodes+=n2 && scontrol update nodename=n2 state=resume"
    assert typed({"n2": missing}, own) == [(more, False)]
    assert typed({"n2": missing}, replace(own, nodes=("n2",))) == [("update nodename=n2 state=resume", False)]
    assert typed({"n1": passed, "n3": passed}, own, inside="hpcq-accept") == [("delete reservationname=hpcq-accept", True)], (
        "what was released to the test is given back"
    )
    part = [
        ("update nodename=n3 state=drain reason='hpcq accept: why'", True),
        ("update reservationname=hpcq-accept nodes-=n1", True),
    ]
    assert typed({"n1": passed, "n3": failed}, own, inside="hpcq-accept") == part
    assert typed({"n1": passed, "n3": passed}, swap, inside="swap") == [("delete reservationname=swap", False)], "a person's"
    flex = ("update reservationname=swap flags+=flex", False)
    assert typed({"n1": Verdict.INCONCLUSIVE, "n3": Verdict.INCONCLUSIVE}, swap, inside="swap") == [flex]
    assert typed({"n1": missing}, replace(swap, nodes=("n1",))) == [flex], "alone it has no partner"
    assert typed({"n1": missing}, replace(swap, mine=False)) == [("update reservationname=swap users+=me", False)]


def test_partners_come_from_the_baseline_then_from_the_good() -> None:
    room = [f"n{i}" for i in range(1, 9)]
    pairs = partners(["n1"], room, baseline=[("n5", "n1"), ("n7", "n8")], good=["n2", "n3", "n4"])
    assert pairs[:2] == [("n5", "n1"), ("n1", "n5")]
    assert len({frozenset(pair) for pair in pairs}) == 3
    assert {node for pair in pairs for node in pair} <= {"n1", "n2", "n3", "n4", "n5"}
    everyone = partners(room, room)
    assert {sum(node in pair for pair in everyone) for node in room} == {6}, "as many of everybody"
    assert len(partners(room, room, every_link=True)) == 8 * 7
    near = partners(["n3"], EIGHT, leaf_of=LEAF_OF)
    assert ("n3", "n4") in near, "one of its own leaf"
    assert len({LEAF_OF[node] for pair in near for node in pair}) == 3, "and others of two more"


# -- the scheduler's words ---------------------------------------------------------------------------------------------

NODE = (
    "NodeName=a-n01 Arch=x86_64 ActiveFeatures=leaf1 OS=Linux 6.1 #1 SMP State=IDLE+DRAIN ThreadsPerCore=1"
    " Partitions=main,debug  BootTime=2026-11-21T01:42:05 SlurmdStartTime=2026-11-21T03:37:15"
    " Reason=fan = loud, n01 [root@2026-11-21T03:00:00]\n"
    "NodeName=a-n02 State=DOWN*+NOT_RESPONDING Partitions=main BootTime=None SlurmdStartTime=None\n"
)
RESERVATION = (
    "ReservationName=swap StartTime=2026-11-21T03:44:00 EndTime=2026-11-21T04:44:00 Duration=01:00:00 Nodes=a-n[01-02]"
    " NodeCnt=2 Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=4 Users=root,me Accounts=(null) State=ACTIVE\n"
)


def test_reading_slurm() -> None:
    nodes = read_nodes(NODE)
    assert nodes["a-n01"].started_utc == "2026-11-21T03:37:15Z"
    assert (nodes["a-n01"].drained, nodes["a-n01"].reason) == (True, "fan = loud, n01")
    assert (nodes["a-n02"].down, nodes["a-n02"].started_utc) == (True, None)
    [found] = read_reservations(RESERVATION, "me")
    assert (found.name, found.nodes, found.active, found.maintenance, found.mine) == (
        "swap",
        ("a-n01", "a-n02"),
        True,
        True,
        True,
    )
    assert not read_reservations(RESERVATION, "you")[0].mine
    assert (found.flex, read_reservations(RESERVATION.replace("MAINT", "FLEX,MAINT"), "me")[0].flex) == (False, True)
    assert read_reservations("No reservations in the system\n\n", "me") == ()
    drain = SlurmAdministration(Here()).drain(["n 1"], "a'b; rm -rf /")
    assert drain == "scontrol update nodename='n 1' state=drain reason='a'\"'\"'b; rm -rf /'"


def failed(kind: Thing, name: str, *nodes: str) -> VerdictRecord:
    return VerdictRecord(kind, name, Verdict.FAILED, "why", nodes)


def test_a_boot_between_measuring_and_deciding_is_not_judged() -> None:
    nodes = {"n1": known("n1", measured_utc="2026-10-31T23:50:00Z"), "n2": known("n2", measured_utc="2026-10-31T23:58:00Z")}
    seen = Upkeep("me", {node: up(node, "2026-10-31T23:55:00Z") for node in nodes})
    assert choose(NodeSelection(), nodes, seen, set(nodes)).targets == {"n1": "came up"}


def test_links_and_groups_at_fault_are_run_again_and_pass() -> None:
    link = sides_of(failed(Thing.LINK, "n1 - n5", "n1", "n5"), EIGHT, LEAF_OF)
    path = sides_of(failed(Thing.LINK, "leaf1 - leaf3", "n1", "n2", "n5", "n6"), EIGHT, LEAF_OF)
    leaf = sides_of(failed(Thing.GROUP, "leaf2", "n3", "n4"), EIGHT, LEAF_OF)
    assert pairs_across(link, ["n5"], EIGHT, []) == [("n1", "n5")]
    assert pairs_across(path, ["n6"], EIGHT, ["n2"]) == [("n2", "n6"), ("n1", "n5")]
    assert pairs_across(leaf, ["n4"], EIGHT, ["n7"]) == [("n4", "n7"), ("n3", "n1")]
    assert pairs_across(leaf, ["n7"], EIGHT, []) == [], "whoever is not behind it has nothing to do with it"
    assert pairs_across(link, ["n5"], ["n5", "n6"], []) == [], "its other end is not to be had"
    every = list(permutations(EIGHT, 2))
    found = judge(EIGHT, results({}, pairs=every), {}, LEAF_OF, [link, path, leaf])
    assert [(one.kind, one.name, one.verdict.value) for one in (*found.links, *found.groups)] == [
        ("link", "n1 - n5", "pass"), ("link", "leaf1 - leaf3", "pass"), ("group", "leaf2", "pass"),
    ]  # fmt: skip
    one_way = judge(EIGHT, results({}, pairs=[("n1", "n5"), ("n3", "n7")]), {}, LEAF_OF, [link, path, leaf])
    assert one_way.links == one_way.groups == (), "too little ran to say so"
    slow = judge(EIGHT, results(across("leaf2", 0.5), pairs=every), {}, LEAF_OF, [leaf])
    assert [one.verdict.value for one in slow.groups] == ["failed"]


def test_both_ends_of_a_failed_link_are_tried_from_time_to_time() -> None:
    nodes = {f"n{i}": known(f"n{i}") for i in range(1, 6)}
    seen = Upkeep("me", {node: up(node) for node in nodes})
    link = failed(Thing.LINK, "n1 - n5", "n1", "n5")
    assert choose(NodeSelection(), nodes, seen, set(nodes), [link]).targets == dict.fromkeys(
        ("n1", "n5"), "link n1 - n5 failed last time"
    )
    assert choose(NodeSelection(), nodes, seen, set(nodes), [replace(link, waits=True)]).targets == {}
    assert choose(NodeSelection(), nodes, seen, {"n1", "n2"}, [link]).targets == {}, "one end was drained: nobody gets both"
    assert choose(NodeSelection(nodes=("n2",)), nodes, seen, set(nodes), [link]).testable == ("n2",)


def test_a_campaign_for_other_pairs(tmp_path: Path) -> None:
    source = tmp_path / "a.yaml"
    source.write_text(
        "name: a\nclusters: [x, y]\npairs: all\nnodes: {include: [n1], partition: fast}\nrepetitions: 2\n"
        "tests: [{kernel: tcp_stream, parameters: {message_bytes: 64KiB}}]\n"
    )
    with_pairs(source.read_text(), tmp_path / "b" / "a.yaml", "x", [("n3", "n1")], 5)
    made = read_campaign(tmp_path / "b" / "a.yaml")
    assert (made.clusters, made.pairs.pairs, made.repetition_count) == (("x",), (("n3", "n1"),), 5)
    assert made.nodes.partition == "fast"
    assert made.tests[0].parameters["message_bytes"] == 65536


def test_results_that_cannot_be_loaded_are_an_error_and_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("results.db: database or disk is full")

    for name in ("build", "plan", "drive"):
        monkeypatch.setattr(stages, name, lambda *_: None)
    monkeypatch.setattr(stages, "load", full)
    monkeypatch.setattr(accepting, "open_run", lambda *_: RunFolder(tmp_path / "runs" / "after-1"))
    (tmp_path / "after.yaml").write_text("name: after\nclusters: [tiny]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    (tmp_path / "tiny.yaml").write_text("name: tiny\nscheduler: local\nnodes: [n1, n2]\n")
    order = accepting.AcceptRequest(
        tmp_path / "after.yaml",
        (tmp_path,),
        tmp_path / "results.db",
        tmp_path / "runs",
        NodeSelection(),
        against=None,
        apply=False,
    )
    acceptor = accepting._Acceptor(order, "tiny", tmp_path / "tiny.yaml", None, lambda _: None)
    choice = NodesToTest({"n1": "asked for"}, ("n1",), frozenset({"n1", "n2"}))
    with pytest.raises(StoreError, match="disk is full"):
        acceptor._measure([("n1", "n2")], choice)

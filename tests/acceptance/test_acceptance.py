"""What acceptance says of pairs with a known truth, whom it chooses, and how it reads what Slurm says of upkeep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcq.definition.derive import plays_tournaments, with_pairs
from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import StoreError
from hpcq.kernels import own_kernels
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.accept import accepting
from hpcq.runner.accept.accepting import commands_for
from hpcq.runner.accept.choice import NodeSelection, NodesToTest, choose, partners
from hpcq.scheduler.administration import NodeUpkeep, Reservation, Upkeep
from hpcq.scheduler.slurm.scheduler import SlurmAdministration, Who, read_nodes, read_reservations
from hpcq.store.ledger import LedgerNode
from hpcq.transport import Here
from hpcq.verdict.acceptance import Acceptance, pairs_across, sides_of
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

pytestmark = pytest.mark.fast

EIGHT = tuple(f"n{number}" for number in range(1, 9))
LEAF_OF = {node: f"leaf{1 + place // 2}" for place, node in enumerate(EIGHT)}


# -- who needs it ------------------------------------------------------------------------------------------------------


def known(
    node: str,
    verdict: Verdict | None = Verdict.PASS,
    *,
    booted: bool = False,
    since: tuple[str, ...] = (),
    waits: bool = False,
    measured_utc: str | None = None,
) -> LedgerNode:
    if verdict is None:
        return LedgerNode(node)
    decided_utc = "2026-11-01T00:00:00Z"
    last = VerdictRecord(
        Thing.NODE, node, verdict, "why", (node,), decided_utc=decided_utc, measured_utc=measured_utc, waits=waits
    )
    return LedgerNode(node, last, booted, since)


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
    own = Upkeep("me", states, (replace(mine, name="hpcq-accept", nodes=("n2", "n3", "n4", "n5")),))
    found = choose(NodeSelection(nodes=("n3",)), nodes, own, set())
    assert (found.testable, found.room) == (("n3",), frozenset(("n3", "n4", "n5"))), "hpcq put its partners there"
    lonely = Upkeep("me", states, (replace(mine, name="hpcq-accept", nodes=("n2", "n3")),))
    assert choose(NodeSelection(nodes=("n3",)), nodes, lonely, set()).testable == ()


@pytest.mark.promise("Acceptance drains no node whose other pairs are fine.")
def test_what_to_type() -> None:
    nodes = {
        "n1": up("n1"), "n2": up("n2", drained=True, reason="fan"), "n3": up("n3"), "n4": up("n4", down=True), "n5": up("n5"),
    }  # fmt: skip
    own = Reservation("hpcq-accept", "2026-11-21T00:00:00Z", "2026-11-21T02:00:00Z", ("n1", "n3"), True, True, True, True)
    swap = replace(own, name="swap", flex=False)

    def typed(
        verdicts: dict[str, Verdict], *standing: Reservation, inside: str | None = None, fine_pairs: bool = False
    ) -> list[tuple[str, bool]]:
        judged = tuple(VerdictRecord(Thing.NODE, node, verdict, "why", (node,)) for node, verdict in verdicts.items())
        found = commands_for(
            Acceptance(judged, drainable=frozenset() if fine_pairs else frozenset(verdicts)),
            Upkeep("me", nodes, standing),
            SlurmAdministration(Here()),
            inside,
        )
        return [(one.command.removeprefix("scontrol "), one.by_apply) for one in found]

    failed, passed, missing = Verdict.FAILED, Verdict.PASS, Verdict.NOT_COVERED
    assert typed({"n1": failed, "n3": passed}) == [("update nodename=n1 state=drain reason='hpcq accept: why'", True)]
    assert typed({"n1": failed}, fine_pairs=True) == [], "no advice drains a node whose other pairs are fine"
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
    assert pairs[0] == ("n5", "n1")
    assert pairs[3:] == [pair[::-1] for pair in pairs[:3]], "three partners before anybody runs twice"
    assert len({frozenset(pair) for pair in pairs}) == 3
    assert {node for pair in pairs for node in pair} <= {"n1", "n2", "n3", "n4", "n5"}
    everyone = partners(room, room)
    assert {sum(node in pair for pair in everyone) for node in room} == {6}, "as many of everybody"
    assert len(partners(room, room, every_link=True)) == 8 * 7
    near = partners(["n3"], EIGHT, leaf_of=LEAF_OF)
    assert ("n3", "n4") in near, "one of its own leaf"
    assert len({LEAF_OF[node] for pair in near for node in pair}) == 3, "and others of two more"


@pytest.mark.promise("An acceptance pairs a node with nodes that may be in one job with it.")
def test_partners_are_of_the_same_fabric() -> None:
    apart = {node: "a" if node in EIGHT[:4] else "b" for node in EIGHT}
    pairs = partners(["n3", "n6"], EIGHT, leaf_of=LEAF_OF, meetings=3, apart=apart)
    assert {node for pair in pairs for node in pair} == set(EIGHT)
    assert all(apart[one] == apart[other] for one, other in pairs)


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


@pytest.mark.promise("A drain's reason is shown whole, also with brackets and with words that look like keys.")
@pytest.mark.parametrize(
    "reason",
    [
        "IB link down: port=1 rate=25G, see Rack=7 ... [ticket=4711]",
        "[ops] Reason=none given Comment=later",
        "swapped [by anna@site] twice",
        "x",
    ],
)
@pytest.mark.parametrize("behind", ["", " Comment=a [b] c=d", " ResumeAfterTime=None ReservationName=swap"])
def test_the_reason_of_a_drain_is_whole(reason: str, behind: str) -> None:
    line = NODE.splitlines()[0].replace("fan = loud, n01", reason) + behind
    found = read_nodes(line)["a-n01"]
    assert (found.reason, found.drained, found.partitions) == (reason, True, ("main", "debug"))


def test_a_node_that_is_not_heard_is_said_to_be_that() -> None:
    """As of a PBS, see tests/pbs/test_pbs_upkeep.py."""
    line = "NodeName=a-n01 State=DOWN*+NOT_RESPONDING Reason=Not responding [slurm@2026-11-21T03:00:00]\n"
    assert read_nodes(line)["a-n01"].reason == "does not answer"


def test_reading_slurm() -> None:
    me = Who("me")
    nodes = read_nodes(NODE)
    assert nodes["a-n01"].started_utc == "2026-11-21T03:37:15Z"
    assert (nodes["a-n01"].drained, nodes["a-n01"].reason) == (True, "fan = loud, n01")
    assert (nodes["a-n02"].down, nodes["a-n02"].started_utc) == (True, None)
    [found] = read_reservations(RESERVATION, me)
    assert (found.name, found.nodes, found.active, found.maintenance, found.mine) == (
        "swap",
        ("a-n01", "a-n02"),
        True,
        True,
        True,
    )
    assert not read_reservations(RESERVATION, Who("you"))[0].mine
    assert (found.flex, read_reservations(RESERVATION.replace("MAINT", "FLEX,MAINT"), me)[0].flex) == (False, True)
    assert read_reservations("No reservations in the system\n\n", me) == ()
    drain = SlurmAdministration(Here()).drain(["n 1"], "a'b; rm -rf /")
    assert drain == "scontrol update nodename='n 1' state=drain reason='a'\"'\"'b; rm -rf /'"


def failed(kind: Thing, name: str, *nodes: str) -> VerdictRecord:
    return VerdictRecord(kind, name, Verdict.FAILED, "why", nodes)


def test_a_boot_between_measuring_and_deciding_is_not_judged() -> None:
    nodes = {"n1": known("n1", measured_utc="2026-10-31T23:50:00Z"), "n2": known("n2", measured_utc="2026-10-31T23:58:00Z")}
    seen = Upkeep("me", {node: up(node, "2026-10-31T23:55:00Z") for node in nodes})
    assert choose(NodeSelection(), nodes, seen, set(nodes)).targets == {"n1": "came up"}


def test_links_and_groups_at_fault_are_run_again() -> None:
    link = sides_of(failed(Thing.LINK, "n1 - n5", "n1", "n5"), EIGHT, LEAF_OF)
    path = sides_of(failed(Thing.LINK, "leaf1 - leaf3", "n1", "n2", "n5", "n6"), EIGHT, LEAF_OF)
    leaf = sides_of(failed(Thing.GROUP, "leaf2", "n3", "n4"), EIGHT, LEAF_OF)
    assert pairs_across(link, ["n5"], EIGHT, []) == [("n1", "n5")]
    assert pairs_across(path, ["n6"], EIGHT, ["n2"]) == [("n2", "n6"), ("n1", "n5")]
    assert pairs_across(leaf, ["n4"], EIGHT, ["n7"]) == [("n4", "n7"), ("n3", "n1")]
    assert pairs_across(leaf, ["n7"], EIGHT, []) == [], "whoever is not behind it has nothing to do with it"
    assert pairs_across(link, ["n5"], ["n5", "n6"], []) == [], "its other end is not to be had"


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
    with_pairs(source.read_text(), own_kernels(), tmp_path / "b" / "a.yaml", "x", [("n3", "n1")], 5)
    made = read_campaign(tmp_path / "b" / "a.yaml")
    assert (made.clusters, made.pairs.pairs, made.repetition_count) == (("x",), (("n3", "n1"),), 5)
    assert made.nodes.partition == "fast"
    assert made.tests[0].parameters["message_bytes"] == 65536
    with_pairs(source.read_text(), own_kernels(), tmp_path / "c" / "a.yaml", "x", [("n3", "n1")], 5, alone=True)
    budget = read_campaign(tmp_path / "c" / "a.yaml").budget
    assert budget is not None
    assert budget.max_jobs == 1
    assert [plays_tournaments(f"allocation: {word}") for word in ("pair", "whole", "group of 8")] == [False, True, True]
    assert not plays_tournaments(source.read_text())


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
    acceptor = accepting._Acceptor(order, read_campaign(order.campaign), "tiny", tmp_path / "tiny.yaml", None, lambda _: None)
    choice = NodesToTest({"n1": "asked for"}, ("n1",), frozenset({"n1", "n2"}))
    with pytest.raises(StoreError, match="disk is full"):
        acceptor._measure([("n1", "n2")], choice)


@pytest.mark.parametrize(("words", "runs"), [("pairs: all", 2), ("pairs: all\nallocation: whole", 0)])
def test_slow_links_between_leaves_are_measured_alone_but_in_tournaments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, runs: int
) -> None:
    link = VerdictRecord(Thing.LINK, "n1 - n5", Verdict.FAILED, "why", ("n1", "n5"))
    (tmp_path / "a.yaml").write_text(f"name: a\nclusters: [x]\n{words}\ntests: [{{kernel: tcp_stream}}]\n")
    acceptor, measured = object.__new__(accepting._Acceptor), list[Any]()
    for name, value in {
        "name": "x",
        "runs": [],
        "say": lambda _: None,
        "order": SimpleNamespace(campaign=tmp_path / "a.yaml"),
        "judging": SimpleNamespace(leaf_of={"n1": "a", "n5": "b"}, measured=lambda _: None),
        "_judged": lambda *_, **__: Acceptance((), links=(link,)),
        "_measure": lambda pairs, _, *, alone: measured.append((pairs, alone)),
    }.items():
        monkeypatch.setattr(acceptor, name, value, raising=False)
    acceptor._alone(NodesToTest({}, (), frozenset()))
    assert measured == [([("n1", "n5"), ("n5", "n1")], True)] * runs

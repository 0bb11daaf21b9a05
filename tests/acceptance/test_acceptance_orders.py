"""Orders of an acceptance are given on the states of their own moment: what somebody did meanwhile stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.accept.accepting import Applied, Command, _upkeep, apply, commands_for
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.administration import OWN_RESERVATION, Administration
from hpcq.scheduler.base import Scheduler
from hpcq.verdict.acceptance import Acceptance
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.simulated_slurm.site import SimulatedSlurm, simulated_slurm

pytestmark = pytest.mark.fast


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SimulatedSlurm]:
    with simulated_slurm(tmp_path / "slurm", node_count=4, leaf_size=2) as running:
        yield running


@pytest.fixture
def scheduler(slurm: SimulatedSlurm) -> Scheduler:
    cluster = read_cluster(slurm.cluster() / "sim.yaml")
    return scheduler_of(cluster, reach(cluster))


def administration(scheduler: Scheduler) -> Administration:
    found = scheduler.administration()
    assert found is not None
    return found


def judged(**verdicts: Verdict) -> Acceptance:
    judged = tuple(VerdictRecord(Thing.NODE, node, verdict, "slow", (node,)) for node, verdict in verdicts.items())
    return Acceptance(judged, drainable=frozenset(verdicts))


def printed(scheduler: Scheduler, verdicts: Acceptance, inside: str | None = None) -> list[Command]:
    orders = administration(scheduler)
    return commands_for(verdicts, orders.look(), orders, inside)


def applied(scheduler: Scheduler, commands: list[Command]) -> Applied:
    return apply(scheduler.transport, administration(scheduler), commands)


def nodes_of(scheduler: Scheduler) -> tuple[str, ...]:
    return next((one.nodes for one in administration(scheduler).look().reservations if one.own), ())


@pytest.mark.heavy
def test_what_failed_is_drained_and_says_why(scheduler: Scheduler) -> None:
    done = applied(scheduler, printed(scheduler, judged(n0001=Verdict.FAILED)))
    assert [run for _, run in done.done] == ["scontrol update nodename=n0001 state=drain reason='hpcq accept: slow'"]
    node = administration(scheduler).look().nodes["n0001"]
    assert (node.drained, node.reason, node.own_drain) == (True, "hpcq accept: slow", True)


@pytest.mark.heavy
@pytest.mark.promise("States are read again right before an order: a drain that is not hpcq's own is never touched.")
def test_a_drain_of_somebody_else_is_never_touched(scheduler: Scheduler) -> None:
    commands = printed(scheduler, judged(n0001=Verdict.FAILED, n0002=Verdict.FAILED))
    scheduler.transport.sh("scontrol update nodename=n0001 state=drain reason='disk, ticket 7'")  # while it was measured
    done = applied(scheduler, commands)
    assert [words for _, words in done.left_alone] == ["n0001 is drained already: disk, ticket 7"]
    assert len(done.done) == 1
    node = administration(scheduler).look().nodes["n0001"]
    assert (node.reason, node.own_drain) == ("disk, ticket 7", False)


@pytest.mark.heavy
@pytest.mark.promise("A node leaves a reservation by subtraction: one that was added meanwhile stays in it.")
def test_a_node_that_somebody_added_to_the_reservation_stays_in_it(slurm: SimulatedSlurm, scheduler: Scheduler) -> None:
    slurm.control(set={"reservations": {OWN_RESERVATION: ["n0001", "n0002"]}})
    commands = printed(scheduler, judged(n0001=Verdict.PASS, n0002=Verdict.INCONCLUSIVE), OWN_RESERVATION)
    scheduler.transport.sh(f"scontrol update reservationname={OWN_RESERVATION} nodes+=n0003")
    assert applied(scheduler, commands).refused == ()
    assert nodes_of(scheduler) == ("n0002", "n0003"), "n0003 would have gone to users untested"


@pytest.mark.heavy
@pytest.mark.promise("A reservation that has other nodes by now is not removed with the last of hpcq's.")
def test_a_reservation_with_other_nodes_by_now_is_not_removed(slurm: SimulatedSlurm, scheduler: Scheduler) -> None:
    slurm.control(set={"reservations": {OWN_RESERVATION: ["n0001"]}})
    [command] = printed(scheduler, judged(n0001=Verdict.PASS), OWN_RESERVATION)
    assert command.command == f"scontrol delete reservationname={OWN_RESERVATION}"
    scheduler.transport.sh(f"scontrol update reservationname={OWN_RESERVATION} nodes+=n0003")
    done = applied(scheduler, [command])
    assert [run for _, run in done.done] == [f"scontrol update reservationname={OWN_RESERVATION} nodes-=n0001"]
    assert nodes_of(scheduler) == ("n0003",)


@pytest.mark.heavy
def test_an_order_that_has_become_pointless_is_not_given(slurm: SimulatedSlurm, scheduler: Scheduler) -> None:
    slurm.control(set={"reservations": {OWN_RESERVATION: ["n0001", "n0002"]}})
    commands = printed(scheduler, judged(n0001=Verdict.PASS, n0002=Verdict.INCONCLUSIVE), OWN_RESERVATION)
    scheduler.transport.sh(f"scontrol update reservationname={OWN_RESERVATION} nodes-=n0001")
    assert applied(scheduler, commands).left_alone[0][1] == f"n0001 left reservation {OWN_RESERVATION} meanwhile"
    scheduler.transport.sh(f"scontrol delete reservationname={OWN_RESERVATION}")
    assert applied(scheduler, commands).left_alone[0][1] == f"reservation {OWN_RESERVATION} is gone"


@pytest.mark.heavy
def test_a_look_starts_as_many_processes_however_many_leaves_there_are(slurm: SimulatedSlurm, scheduler: Scheduler) -> None:
    slurm.control(set={"reservations": {f"r{number}": ["n0001"] for number in range(20)}})
    before = slurm.control()["calls"].get("scontrol", 0)
    seen = administration(scheduler).look()
    assert slurm.control()["calls"]["scontrol"] - before == 5
    assert (len(seen.reservations), seen.leaves["n0003"]) == (20, "leaf2")


def test_a_scheduler_without_orders_has_none_printed(scheduler: Scheduler) -> None:
    seen = administration(scheduler).look()
    assert commands_for(judged(n0001=Verdict.FAILED), seen, None) == []


@pytest.mark.promise("An acceptance whose scheduler does not answer at once asks again, and says when it can print no order.")
def test_orders_need_an_answer_and_say_when_there_is_none(slurm: SimulatedSlurm, scheduler: Scheduler) -> None:
    said: list[str] = []
    slurm.control(set={"broken": {"scontrol": 1}})
    assert sorted(_upkeep(administration(scheduler), "sim", said.append, (0.0,)).nodes)[:1] == ["n0001"]
    assert said == []
    slurm.control(set={"broken": {"scontrol": 99}})
    assert not _upkeep(administration(scheduler), "sim", said.append, (0.0, 0.0)).nodes
    assert said == ["sim: the scheduler does not say which nodes are drained or reserved: no order is printed"]

"""Answers of PBS beyond the recordings: broken off, glued together, of releases and sites that nobody recorded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hpcq.definition.model import WithoutReservation
from hpcq.errors import SchedulerError
from hpcq.runner.queue.reservations import OwnReservation, ReservationState
from hpcq.scheduler.pbs.administration import read_reservations, seen_from_inside, taken_soon
from hpcq.scheduler.pbs.nodes import SEPARATOR, Listed, hosts_of, read_dsv, read_plain, read_vnode
from hpcq.scheduler.pbs.queues import Asker, read_job_limits, seconds, submit_limit
from hpcq.scheduler.pbs.scheduler import Pbs, read_job
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, SchedulerSettings, Wait
from hpcq.transport import Completed, Here
from tests.driver.fake_clock import FakeClock
from tests.pbs.pbs_recorded import recordings
from tests.schedulers.scheduler_contract import pbs_site
from tests.simulated_pbs.site import simulated_pbs

pytestmark = pytest.mark.fast

NOW = "Mon Nov 23 12:00:00 2026"
#: What cuts, glues and damages answers: separators, line breaks, heads, bytes that were no UTF-8, numbers that are none.
DAMAGE = (
    SEPARATOR,
    "\n",
    "\n\t",
    "\r",
    "=",
    "Job Id: ",
    "Name=n1",
    "\ufffd",
    "\0",
    "²",
    "9" * 5000,
    "1e999",
    "null",
    "(",
    "+",
    "state=",
)


def vnode(name: str, **attributes: str) -> str:
    """One line of `pbsnodes -av`."""
    words = {"state": "free", "resources_available.host": name.partition("[")[0], **attributes}
    return SEPARATOR.join([f"Name={name}", *(f"{key.replace('__', '.')}={value}" for key, value in words.items())])


def reservation(state: str, substate: str, nodes: str = "(n1:ncpus=4)") -> str:
    """One of `pbs_rstat -f`, which began an hour ago where it runs and begins in five minutes where it does not."""
    start = "Mon Nov 23 11:00:00 2026" if substate == "5" else "Mon Nov 23 12:05:00 2026"
    return (
        f"Resv ID: R7.head\nReserve_Name = swap\nreserve_state = {state}\nreserve_substate = {substate}\n"
        f"reserve_start = {start}\nreserve_end = Mon Nov 23 14:00:00 2026\nqueue = R7\nresv_nodes = {nodes}\n"
        "Authorized_Users = anna@head\n"
    )


def served(default: str, *queues: str) -> str:
    """The server with its default queue, and queues, as `qstat -Bf` and `-Qf` show them."""
    return "\n".join([f"Server: head{SEPARATOR}default_queue={default}", *queues])


def nodes_of(answer: str, **settings: str) -> dict[str, NodeState]:
    """The nodes that a scheduler with these keys of its cluster file reads."""
    return {state.node: state for state in Pbs(Here(), SchedulerSettings(**settings)).read_nodes(answer)}  # type: ignore[arg-type]


def damaged(text: str, dice: random.Random) -> str:
    for _ in range(dice.randint(1, 5)):
        at = dice.randrange(len(text) + 1)
        text = dice.choice(
            (text[:at], text[:at] + dice.choice(DAMAGE) + text[at:], text[:at] + text[at + dice.randrange(40) :])
        )
    return text


@pytest.mark.promise("A damaged answer of PBS is read without a crash.")
def test_a_damaged_answer_is_read_without_a_crash() -> None:
    """Each recorded answer, damaged in ways that are the same in every run."""
    dice = random.Random(11)
    for one in recordings():
        text = damaged(one.stdout[:20_000].replace("|", SEPARATOR), dice)
        records = [*read_dsv(text), *read_plain(text)]
        reports = [read_job(record, "anna") for record in records]
        vnodes = [read_vnode(record) for record in records]
        states = hosts_of(vnodes)
        found = read_reservations(text)
        taken_soon(states, vnodes, found, NOW)
        for each in found:
            seen_from_inside(states, vnodes, each, each.name)
        read_job_limits(records, "workq", Asker("anna", ["staff"]), (4, 4))
        submit_limit(records, "workq", Asker("anna"))
        assert all(report.reason for report in reports if report.state is JobState.UNKNOWN), one


def test_a_listing_that_broke_off_completes_no_job() -> None:
    """Wherever the record of a job that ended with 0 is cut, it is completed only if its exit status came through."""
    whole = SEPARATOR.join(
        ["Job Id: 7.head", "Job_Name=x", "job_state=F", "substate=92", "comment=and finished", "Exit_status=0"]
    )
    for length in range(len(whole)):
        for record in read_dsv(whole[:length]):
            assert read_job(record).state is not JobState.COMPLETED, whole[:length]
    assert read_job(read_dsv(whole)[0]).state is JobState.COMPLETED


def test_an_answer_that_lost_its_exit_code_is_no_news() -> None:
    scheduler = Pbs(Here(), SchedulerSettings())
    listed = f"Job Id: 7.head{SEPARATOR}job_state=R\n"
    for code in (255, 162, 137, 77):
        with pytest.raises(SchedulerError):
            scheduler.read_poll(Completed(code, listed.encode(), ""))


def test_a_record_whose_attributes_broke_off_takes_no_line_of_another() -> None:
    found = read_dsv(
        f"Job Id: 7.head\nthe connection was closed\nJob Id: 8.head{SEPARATOR}job_state=Q{SEPARATOR}comment=a\nb{SEPARATOR}x=1"
    )
    assert [(one.name, dict(one.attributes)) for one in found] == [
        ("7.head", {}),
        ("8.head", {"job_state": "Q", "comment": "a b", "x": "1"}),
    ]
    assert (read_job(found[0]).state, read_job(found[0]).reason) == (JobState.UNKNOWN, "job_state missing")


@pytest.mark.parametrize("text", ["9" * 5000, "²", "٣", "1e3", "0x10", "7.0", "null", "True", ""])
def test_what_is_no_number_of_pbs_is_none(text: str) -> None:
    assert Listed("Job Id", "7.head", {"Exit_status": text}).number("Exit_status") is None
    assert seconds(text) is None
    queue = Listed("Queue", "workq", {"enabled": "True", "started": "True", "resources_max.nodect": text})
    assert read_job_limits([queue], "workq", Asker("anna")).max_nodes is None
    assert submit_limit([Listed("Queue", "workq", {"max_queued": f"[u:PBS_GENERIC={text}]"})], "workq", Asker("anna")) is None


@pytest.mark.promise("A PBS reservation one of whose nodes is down or offline keeps its nodes until it begins.")
@pytest.mark.promise("A PBS reservation that is being prolonged goes on to run.")
@pytest.mark.parametrize(
    ("state", "substate", "standing", "active"),
    [
        ("RESV_UNCONFIRMED", "1", False, False),
        ("RESV_CONFIRMED", "2", True, False),
        ("RESV_RUNNING", "5", True, True),
        ("RESV_RUNNING", "10", True, True),  # one of its nodes is down
        ("RESV_DEGRADED", "10", True, False),
        ("RESV_DEGRADED", "12", True, False),  # a maintenance took one of its nodes
        ("RESV_BEING_ALTERED", "2", True, False),
        ("RESV_BEING_ALTERED", "5", True, True),  # pbs_ralter of one that runs
        ("RESV_BEING_ALTERED", "10", True, False),  # of one whose node is down: PBS does not say whether it runs
        ("RESV_BEING_DELETED", "9", False, False),
        ("RESV_FINISHED", "6", False, False),
    ],
)
def test_the_states_of_a_reservation(state: str, substate: str, standing: bool, active: bool) -> None:
    [one] = read_reservations(reservation(state, substate))
    assert (one.standing, one.active) == (standing, active)
    answer = f"{vnode('n1')}\n{vnode('n2')}\n@reservations {NOW}\n{reservation(state, substate)}"
    outside = nodes_of(answer)
    assert outside["n2"].condition is NodeCondition.IDLE
    assert outside["n1"].condition is (NodeCondition.RESERVED if active else NodeCondition.IDLE)
    words = "reservation R7 of swap begins at Mon Nov 23 12:05:00 2026, before a job of 300 s would end"
    assert outside["n1"].kept_from(300) == (words if standing and not active else None)
    assert outside["n1"].kept_from(180) is None
    inside = nodes_of(answer, reservation="swap")
    assert inside["n1"].condition is (NodeCondition.IDLE if active else NodeCondition.RESERVED)


@pytest.mark.promise("`queue: R7` in a cluster file means the nodes of the PBS reservation R7.")
def test_a_reservations_queue_is_the_reservation() -> None:
    """`queue: R7` in a cluster file: its jobs can only run on the nodes of R7."""
    busy = vnode("n1", state="resv-exclusive", resv="R7.head")
    answer = f"{busy}\n{vnode('n2')}\n@reservations {NOW}\n{reservation('RESV_RUNNING', '5')}"
    inside = nodes_of(answer, partition="R7")
    assert [inside[name].condition for name in ("n1", "n2")] == [NodeCondition.IDLE, NodeCondition.RESERVED]
    assert inside["n2"].reason == "not in reservation R7"
    outside = nodes_of(answer, partition="workq")
    assert [outside[name].condition for name in ("n1", "n2")] == [NodeCondition.RESERVED, NodeCondition.IDLE]


@pytest.mark.promise("Without `queue`, the nodes of PBS's default queue are used.")
def test_nodes_of_the_default_queue_when_none_is_named() -> None:
    listed = f"{vnode('n1', queue='workq')}\n{vnode('n2', queue='gpu')}\n{vnode('n3')}"
    assert list(nodes_of(f"{served('workq')}\n{listed}")) == ["n1"]
    assert list(nodes_of(f"{served('other')}\n{listed}")) == ["n3"]
    assert list(nodes_of(listed, partition="gpu")) == ["n2"]


@pytest.mark.promise("A PBS job that waits for a vnode, or for a host of another queue, is not given up.")
def test_a_job_that_waits_for_a_vnode_or_a_host_of_another_queue_is_not_given_up() -> None:
    """A hook of the site may name vnodes, and the nodes of the default queue are no others than those of a named one."""
    listed = f"{vnode('n1', queue='workq')}\n{vnode('n4[0]', state='offline')}\n{vnode('n4[1]')}"
    for select, wait in (("1:host=n1", Wait.ORDINARY), ("1:vnode=n4[0]", Wait.NODE), ("1:host=n9", Wait.NEVER)):
        comment = "Not Running: Insufficient amount of resource: host "
        words = ["Job Id: 7.head", "job_state=Q", f"Resource_List.select={select}", f"comment={comment}"]
        answer = f"@user anna\n{SEPARATOR.join(words)}\n@nodes\n{listed}\n"
        [report] = Pbs(Here(), SchedulerSettings()).read_poll(Completed(0, answer.encode(), ""))
        assert report.wait is wait, report


@pytest.mark.heavy
@pytest.mark.promise("A reservation of a run that PBS does not prolong is said to be, although PBS ends with 0.")
@pytest.mark.promise("A reservation that could not be prolonged is tried again each minute, and said once.")
def test_a_reservation_that_pbs_does_not_prolong_is_said_to_be_and_kept(tmp_path: Path) -> None:
    """One of its nodes is offline: PBS denies another end, with exit code 0, as 12-degraded-reservations.jsonl has it."""
    with simulated_pbs(tmp_path / "pbs") as pbs:
        site = pbs_site(pbs.cluster() / "sim.yaml")
        said: list[str] = []
        clock = FakeClock()
        own = OwnReservation(site.scheduler, "run-1", 60, WithoutReservation.STOP, say=said.append, clock=clock)
        assert own.hold(["pbn1", "pbn2"]) is ReservationState.YES
        pbs.control(nodes={"pbn2": {"offline": True}})
        for seconds_later in (600, 61, 61):
            clock.sleep(seconds_later)
            own.keep()
        assert own.held
        assert said[1:] == ["reservation run-1 could not be prolonged; hpcq tries again each minute"]
        assert not site.scheduler.prolong("run-1", 60)
        pbs.control(nodes={"pbn2": {"offline": False}})
        assert site.scheduler.prolong("run-1", 60)

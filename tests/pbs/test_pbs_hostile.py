"""What a PBS does to hpcq on a bad day: hostile neighbours, servers that go away, hooks, people with qdel, nodes that die."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import SchedulerError
from hpcq.run_folder.journal import Attempt
from hpcq.runner.queue.attempt_files import AttemptOutcome, Left, end_of
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.pbs.administration import PbsAdministration
from hpcq.scheduler.pbs.nodes import Listed
from hpcq.scheduler.pbs.scheduler import read_job
from hpcq.scheduler.types import Fate, JobKey, JobReport, JobState, NodeCondition, QueueQuery, Submission, Wait
from hpcq.transport import Here
from tests.schedulers.scheduler_contract import TERMINAL, Site, pbs_site
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs


@pytest.fixture
def pbs(tmp_path: Path) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path / "pbs") as running:
        running.control(set={"sleep_s": 0.0, "kill_delay_s": 0.5, "limits_every_s": 0.3})
        yield running


@pytest.fixture
def site(pbs: SimulatedPbs) -> Site:
    return pbs_site(pbs.cluster() / "sim.yaml")


def running(site: Site, name: str) -> JobKey:
    answer = site.submit(name, "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    return site.key(answer.scheduler_job_id)


def test_the_environment_of_a_neighbour_spoils_no_listing(pbs: SimulatedPbs, site: Site) -> None:
    """Bytes that are no UTF-8, separators and line breaks that would begin a record of their own."""
    nasty = ["A=\udcff\udcfe", "B=x\nJob Id: 1.simhead\x1fjob_state=F\x1fExit_status=0", "C=|Exit_status=0|"]
    theirs = pbs.control(other={"select": "1:host=pbn1+1:host=pbn2", "run_s": 60, "variables": nasty})["id"]
    assert theirs == "1.simhead"
    waits = pbs.control(other={"select": "1:host=pbn1", "run_s": 60, "variables": nasty})["id"]
    ours = site.submit("ours", "exit 0")
    assert ours.scheduler_job_id
    snapshot = site.scheduler.look(QueueQuery([site.key(ours.scheduler_job_id)], nodes=True, others=True, mine=True))
    assert snapshot.reports[ours.scheduler_job_id].state is JobState.QUEUED
    assert snapshot.mine == 1
    assert snapshot.others is not None
    assert [(one.scheduler_job_id, one.sure, one.nodes) for one in snapshot.others] == [(waits, False, ("pbn1",))]
    assert {state.node for state in snapshot.nodes or ()} == {"pbn1", "pbn2", "pbn3", "pbn4"}


@pytest.mark.promise("A job of another user is never ended, whatever it is called.")
def test_a_job_of_somebody_else_is_neither_read_nor_ended(pbs: SimulatedPbs, site: Site) -> None:
    theirs = pbs.control(other={"select": "1:host=pbn4", "run_s": 60})["id"]
    key = JobKey(theirs, "theirs")
    report = site.scheduler.poll([key])[theirs]
    assert (report.state, "somebody else's" in report.reason) == (JobState.UNKNOWN, True)
    assert site.scheduler.cancel([key]) is None
    assert pbs.control()["states"] == {"other R": 1}


def test_numbers_in_json_clothes_stay_the_words_that_they_are(pbs: SimulatedPbs, site: Site) -> None:
    pbs.control(nodes={"pbn1": {"offline": True, "comment": "007"}})
    states = {state.node: state for state in site.scheduler.nodes()}
    assert (states["pbn1"].condition, states["pbn1"].reason) == (NodeCondition.DRAINED, "007")
    assert '"comment":\t7' in pbs.run("pbsnodes", "-av", "-F", "json").stdout  # what hpcq does not ask for


def test_several_ids_are_all_answered_where_json_would_show_the_first(pbs: SimulatedPbs, site: Site) -> None:
    first, second = running(site, "first"), site.submit("second", "exit 0")
    assert second.scheduler_job_id
    keys = [first, site.key(second.scheduler_job_id), JobKey("4711.simhead", "vanished")]
    reports = site.scheduler.poll(keys)
    assert [reports[key.scheduler_job_id].state for key in keys] == [JobState.RUNNING, JobState.QUEUED, JobState.UNKNOWN]
    shown = pbs.run("qstat", "-f", "-F", "json", first.scheduler_job_id, second.scheduler_job_id).stdout
    assert second.scheduler_job_id not in shown


@pytest.mark.promise("A PBS server that does not answer changes nothing, and is no broken ssh.")
def test_a_server_that_is_down_in_a_poll_changes_nothing_and_is_no_broken_ssh(pbs: SimulatedPbs, site: Site) -> None:
    key = running(site, "steady")
    pbs.control(set={"down": -1})
    with pytest.raises(SchedulerError, match="cannot connect to server"):
        site.scheduler.poll([key])
    with pytest.raises(SchedulerError):
        site.scheduler.find([key.tag])
    assert "cannot connect" in (site.scheduler.cancel([key]) or "")
    answer = site.scheduler.transport.sh(f"({site.scheduler.poll_command([key])}\n)")
    assert answer.returncode == 162
    refused = site.scheduler.submit([Submission("late", site.script("late", "exit 0"), (), 60)])[0]
    assert (refused.fate, refused.scheduler_job_id) == (Fate.UNSURE, None)
    pbs.control(set={"down": 0})
    assert site.scheduler.poll([key])[key.scheduler_job_id].state is JobState.RUNNING


@pytest.mark.promise("The limit on a user's PBS jobs stops the wave and is no refusal.")
def test_a_queue_that_refuses_says_why_and_a_limit_stops_the_wave(pbs: SimulatedPbs, site: Site) -> None:
    for line in ("create queue small", "set queue small enabled = True", "set queue small max_queued = [u:PBS_GENERIC=1]"):
        pbs_root(pbs, line)
    head = "#PBS -q {queue}\n#PBS -l select=1 -l walltime=1:00"
    scripts = []
    for number, queue in enumerate(["small", "small", "small"]):
        small = Site(site.scheduler, site.folder, head.replace("{queue}", queue))
        scripts.append(Submission(f"s{number}", small.script(f"s{number}", "exit 0"), (), 60))
    answers = site.scheduler.submit(scripts)
    assert [one.fate for one in answers] == [Fate.TAKEN, Fate.LIMITED, Fate.LIMITED]
    assert "would exceed queue generic's per-user limit" in answers[1].message
    assert not answers[2].tried
    pbs_root(pbs, "set queue small enabled = False")
    [refused] = site.scheduler.submit([scripts[0]])
    assert (refused.fate, refused.message) == (Fate.REFUSED, "qsub: Queue is not enabled")
    pbs_root(pbs, "set queue workq resources_max.walltime = 00:00:30")
    [too_long] = site.scheduler.submit([Submission("long", site.script("long", "exit 0", ("pbn1",)), (), 60)])
    assert (too_long.fate, "resource limits" in too_long.message) == (Fate.REFUSED, True)
    assert site.scheduler.job_limits().words() == ["at most 30 s (resources_max.walltime of queue workq)"]


def test_a_hook_that_refuses_or_moves_a_job_is_seen(pbs: SimulatedPbs, site: Site) -> None:
    pbs.control(set={"hook_refuses": "no jobs on Sundays"})
    assert site.submit("refused", "exit 0").fate is Fate.REFUSED
    pbs.control(set={"hook_refuses": "", "rewrite_select": ["host=pbn1", "host=pbn3"]})
    answer = site.submit("moved", "sleep 300")
    assert answer.scheduler_job_id
    assert site.wait(answer.scheduler_job_id, JobState.RUNNING).nodes == ("pbn3", "pbn2")
    site.scheduler.cancel([site.key(answer.scheduler_job_id)])


def test_qdel_from_outside_is_cancelled_and_a_walltime_overrun_is_timed_out(pbs: SimulatedPbs, site: Site) -> None:
    pbs.control(set={"heard_after_s": 0.0})
    key = running(site, "outside")
    assert pbs.run("qdel", key.scheduler_job_id).returncode == 0
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


def test_a_start_that_the_scheduler_estimates_is_quoted(pbs: SimulatedPbs, site: Site) -> None:
    pbs.control(set={"strict_ordering": True})
    busy = running(site, "busy")
    shown = pbs.run("qstat", "-f", busy.scheduler_job_id).stdout
    begun = time.mktime(time.strptime(shown.partition("stime = ")[2].partition("\n")[0]))
    waits = site.submit("waits", "exit 0")
    assert waits.scheduler_job_id
    reason = site.scheduler.poll([site.key(waits.scheduler_job_id)])[waits.scheduler_job_id].reason
    words, _, moment = reason.partition("; PBS expects it to start ")
    assert "Not Running: " in words
    assert time.mktime(time.strptime(moment)) - begun == pytest.approx(60, abs=1), "after the walltime of what has the nodes"
    site.scheduler.cancel([busy])


def test_what_root_deletes_by_force_is_cancelled_although_no_node_answers(pbs: SimulatedPbs, site: Site) -> None:
    key = running(site, "forced")
    pbs.control(nodes={"pbn1": {"down": True}})
    assert pbs.run("qdel", key.scheduler_job_id).returncode == 222
    assert pbs.run("qdel", "-W", "force", key.scheduler_job_id).returncode == 0
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


@pytest.mark.promise("An order to end a PBS job waits for its nodes to confirm its start: earlier, PBS records no deletion.")
def test_a_job_whose_nodes_have_not_confirmed_its_start_is_recorded_as_deleted(pbs: SimulatedPbs, site: Site) -> None:
    """A live server that had just come back forgot the order: the job ended as killed, or as if all were well."""
    pbs.control(set={"heard_after_s": 2.0})
    key = running(site, "early")
    assert pbs.run("qdel", key.scheduler_job_id).returncode == 0
    report = site.wait(key.scheduler_job_id, *TERMINAL)
    assert (report.state, report.exit_code) == (JobState.FAILED, 271), "what PBS makes of an order that comes too early"
    key = running(site, "patient")
    assert site.scheduler.cancel([key]) is None
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


@pytest.mark.promise("A PBS job that waits for a host that is offline says so.")
def test_waiting_for_a_host_says_whether_it_is_in_use_offline_or_not_there(pbs: SimulatedPbs, site: Site) -> None:
    busy = running(site, "busy")
    waits = site.submit("waits", "exit 0")
    assert waits.scheduler_job_id
    assert site.scheduler.poll([site.key(waits.scheduler_job_id)])[waits.scheduler_job_id].wait is Wait.ORDINARY
    pbs.control(nodes={"pbn2": {"offline": True, "comment": "fan"}})
    report = site.scheduler.poll([site.key(waits.scheduler_job_id)])[waits.scheduler_job_id]
    assert (report.wait, "pbn2 is offline" in report.reason) == (Wait.NODE, True)
    site.scheduler.cancel([busy])


@pytest.mark.promise("A job whose node's daemon is dead can be ended.")
def test_the_daemon_of_a_node_dies_under_a_job(pbs: SimulatedPbs, site: Site) -> None:
    """PBS shows it running for minutes; an order to end it goes through all the same."""
    key = running(site, "orphan")
    pbs.control(nodes={"pbn1": {"down": True, "comment": "node down: communication closed"}})
    assert site.scheduler.poll([key])[key.scheduler_job_id].state is JobState.RUNNING
    assert {state.condition for state in site.scheduler.nodes() if state.node == "pbn1"} == {NodeCondition.DOWN}
    assert pbs.run("qdel", key.scheduler_job_id).returncode == 222
    assert site.scheduler.cancel([key]) is None
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


def test_a_deleted_job_whose_second_node_had_died_is_cancelled() -> None:
    """Recorded on a live server: substate 93 and no 91, but the comment says who ended it."""
    comment = "Job run at Sun Nov 22 at 08:40 on (pbn1:ncpus=1)+(pbn2:ncpus=1) and terminated by me@simhead.sim.test"
    attributes = {"job_state": "F", "substate": "93", "Exit_status": "271", "comment": comment, "Job_Owner": "me@simhead"}
    report = read_job(Listed("Job Id", "1.simhead", attributes), "me")
    assert (report.state, report.own_request) == (JobState.CANCELLED, True)
    assert read_job(Listed("Job Id", "1.simhead", attributes), "you").own_request is False


@pytest.mark.promise("A PBS reservation that was denied is a refusal, although the command ends with 0.")
def test_a_denied_reservation_ends_with_zero_and_is_a_refusal(pbs: SimulatedPbs, site: Site) -> None:
    cluster = read_cluster(pbs.cluster() / "sim.yaml")
    site = replace(site, scheduler=scheduler_of(cluster, reach(cluster), own_reservation="run-1"))
    site.scheduler.nodes()
    key = running(site, "holder")
    words = site.scheduler.reserve("run-1", ["pbn1", "pbn2"], 5)
    assert words is not None
    assert any(sign in words for sign in site.scheduler.busy_words())
    site.scheduler.cancel([key])
    site.ends(key.scheduler_job_id, JobState.CANCELLED)
    site.scheduler.nodes()
    assert site.scheduler.reserve("run-1", ["pbn1", "pbn2"], 5) is None
    assert site.scheduler.has_reservation("run-1")
    inside = site.submit("inside", "sleep 300")
    assert inside.scheduler_job_id
    site.wait(inside.scheduler_job_id, JobState.RUNNING)
    assert site.scheduler.prolong("run-1", 9)
    assert not site.scheduler.release("run-1"), "PBS would end the jobs in it"
    site.scheduler.cancel([site.key(inside.scheduler_job_id)])
    site.ends(inside.scheduler_job_id, JobState.CANCELLED)
    assert site.scheduler.release("run-1")
    assert not site.scheduler.has_reservation("run-1")


@pytest.mark.promise("One repaired PBS node is tested in a reservation with partners, which ends when it passed or is out.")
@pytest.mark.promise("A PBS node that somebody else took out of service keeps that and the reason.")
def test_orders_of_an_acceptance_keep_what_others_drained(pbs: SimulatedPbs, site: Site) -> None:
    pbs_root(pbs, f"set server managers = {getpass.getuser()}@*")
    pbs.control(nodes={"pbn1": {"offline": True, "comment": "fan"}})
    administration = site.scheduler.administration()
    assert administration is not None
    seen = administration.look()
    assert (seen.nodes["pbn1"].drained, seen.nodes["pbn1"].reason, seen.nodes["pbn1"].own_drain) == (True, "fan", False)
    order = administration.drain(["pbn1", "pbn2"], "hpcq accept: slow")
    assert order is not None
    assert site.scheduler.transport.sh(order).returncode == 0
    seen = administration.look()
    assert {name: node.reason for name, node in seen.nodes.items() if node.drained} == {
        "pbn1": "fan",
        "pbn2": "hpcq accept: slow",
    }
    order = administration.reserve(["pbn2"], seen.user, None)
    resume = administration.resume(["pbn2"])
    assert order is not None
    assert resume is not None
    assert site.scheduler.transport.sh(f"{order} && {resume}").returncode == 0
    seen = administration.look()
    [held] = seen.reservations
    partners = ("pbn3", "pbn4")
    assert "hpcq-accept.pbn2\n" in pbs.run("pbs_rstat", "-f").stdout
    assert (held.own, held.nodes, held.maintenance, held.mine) == (True, ("pbn2", *partners), True, True)
    assert administration.open_outward(held.name) is None
    assert administration.give_back(held, ["pbn2"]) == f"pbs_rdel {pbs.run('pbs_rstat', '-f').stdout.split()[2].split('.')[0]}"
    order = administration.give_back(held, partners)
    assert order is not None
    done = site.scheduler.transport.sh(order)
    assert (done.returncode, done.stderr) == (1, "pbn2 is in it, and is not offline\n")
    assert len(administration.look().reservations) == 1
    failed = administration.drain(["pbn2"], "hpcq accept: slow")
    passed = administration.give_back(held, partners)
    assert failed is not None
    assert passed is not None
    assert site.scheduler.transport.sh(f"{failed} && {passed}").returncode == 0
    seen = administration.look()
    assert (seen.reservations, seen.nodes["pbn2"].own_drain, seen.nodes["pbn3"].drained) == ((), True, False)


@pytest.mark.promise("Orders to a PBS host with several vnodes name the host: PBS knows no vnode there.")
def test_orders_to_a_host_with_several_vnodes_name_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a live server: pbsnodes marks all vnodes of a host, and knows no host with a vnode's name."""
    listed = "".join(f"Name=n4{part}\x1fstate=free\x1fresources_available.host=n4\n" for part in ("", "[0]", "[1]"))
    (tmp_path / "listed").write_text(listed)
    script = f'#!/bin/sh\n[ "$1" = -av ] && exec cat {tmp_path}/listed\necho "$@" >>{tmp_path}/orders\n'
    for name, text in (("pbsnodes", script), ("pbs_rstat", "#!/bin/sh\n"), ("qstat", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    administration = PbsAdministration(Here())
    assert list(administration.look().nodes) == ["n4"]
    for order in (administration.drain(["n4"], "slow"), administration.resume(["n4"])):
        assert order is not None
        assert Here().sh(order).returncode == 0, order
    orders = (tmp_path / "orders").read_text().splitlines()
    assert orders == ["-v n4 n4[0] n4[1]", "-o -C slow n4", "-r -C  n4"]


@pytest.mark.promise("`hpcq cluster check` needs no output that PBS delivers late or never.")
def test_a_probe_needs_no_output_that_pbs_delivers(pbs: SimulatedPbs, site: Site) -> None:
    pbs.control(set={"delivers": False})
    done = site.scheduler.probe("echo there; exit 3")
    assert (done.returncode, done.text) == (3, "there\n"), done


@pytest.mark.promise("A user added to a PBS reservation appears in it, and earlier users keep their access.")
def test_who_is_let_into_a_reservation_sees_it_and_the_others_stay(pbs: SimulatedPbs, site: Site) -> None:
    """qmgr's list of the queue lets jobs in, but pbs_rstat goes on to show the old users."""
    pbs_root(pbs, f"set server managers = {getpass.getuser()}@*")
    administration = site.scheduler.administration()
    assert administration is not None
    me = administration.look().user
    order = administration.reserve(["pbn3"], "somebody", None)
    assert order is not None
    made = site.scheduler.transport.sh(order)
    assert made.returncode == 0
    pbs.run("pbs_ralter", "-U", "somebody@*", made.text.split()[0])  # its owner is on the list, too, and that is us
    [held] = administration.look().reservations
    assert held.mine is False
    order = administration.admit(held.name, me)
    assert order is not None
    assert site.scheduler.transport.sh(order).returncode == 0
    [held] = administration.look().reservations
    assert held.mine is True
    assert "somebody@*" in pbs.run("pbs_rstat", "-f").stdout


@pytest.mark.promise("A job that vanishes after hpcq ordered its end counts as withdrawn or cancelled, not as lost.")
@pytest.mark.parametrize("order", ["withdrawal", "stopped"])
def test_a_job_that_vanished_as_it_was_told_is_no_loss(order: str) -> None:
    """Without history, PBS forgets a job that was deleted while it waited."""
    gone = JobReport("7.simhead", JobState.UNKNOWN, reason="not known to the scheduler")
    attempt = an_attempt()
    setattr(attempt, order, "users wait")
    nothing = Left(None, started=False)
    assert end_of(attempt, gone, nothing, waited_s=1, grace_s=10) is None
    ended = end_of(attempt, gone, nothing, waited_s=11, grace_s=10)
    assert ended is not None
    assert ended.outcome == ("withdrawn" if order == "withdrawal" else "cancelled")
    unasked = an_attempt()
    assert end_of(unasked, gone, nothing, waited_s=11, grace_s=10) == AttemptOutcome("lost", "not known to the scheduler")
    told = Left({"reason": "term"}, started=True)
    assert end_of(unasked, gone, told, waited_s=11, grace_s=10) == AttemptOutcome("failed", "term")
    ended = end_of(attempt, gone, told, waited_s=0, grace_s=10)
    assert ended is not None
    assert ended.outcome == ("withdrawn" if order == "withdrawal" else "cancelled")


@pytest.mark.parametrize(("ran_s", "outcome"), [(None, "failed"), (59.0, "failed"), (60.0, "timed_out"), (87.0, "timed_out")])
def test_a_job_that_its_scheduler_forgot_met_its_time_limit_if_it_ran_that_long(
    tmp_path: Path, ran_s: float | None, outcome: str
) -> None:
    """Its script was told to end. A driver that comes back after Slurm's MinJobAge finds only its files."""
    utc = "2026-11-20T02:{:02.0f}:{:02.0f}Z"
    started = {"started_utc": utc.format(10, 0)}
    ended = {"reason": "term", "ended_utc": utc.format(*divmod(600 + ran_s, 60)) if ran_s is not None else "1970"}
    for name, said in (("started.json", started), ("exit.json", ended)):
        (tmp_path / name).write_text(json.dumps(said))
    attempt = an_attempt()
    attempt.walltime_s = 60
    report = JobReport("7.simhead", JobState.UNKNOWN, reason="not known to the scheduler")
    end = end_of(attempt, report, Left.of(tmp_path), waited_s=11, grace_s=10)
    assert end is not None
    assert end.outcome == outcome
    assert outcome == "failed" or "time limit of 60 s" in end.reason


def test_a_script_that_ended_itself_at_its_limit_is_timed_out() -> None:
    attempt = an_attempt()
    left = Left({"reason": "time_limit"}, started=True)
    for state in (JobState.FAILED, JobState.UNKNOWN):
        ended = end_of(attempt, JobReport("7.simhead", state), left, waited_s=0, grace_s=10)
        assert ended == AttemptOutcome("timed_out", "time_limit")


def an_attempt() -> Attempt:
    return Attempt(tag="tag", job="j00001", attempt_no=1, nodes=("a", "b"), pairs=(0,), scheduler_job_id="7.simhead")


def pbs_root(pbs: SimulatedPbs, line: str) -> None:
    """An order of qmgr as root would give it."""
    client = (pbs.folder / "bin" / "qmgr").read_text()
    as_root = pbs.folder / "qmgr-of-root"
    as_root.write_text(client.replace(f'"{getpass.getuser()}"', '"root"').replace("${0##*/}", "qmgr"))
    as_root.chmod(0o700)
    done = subprocess.run([str(as_root), "-c", line], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    time.sleep(0.05)

"""A real PBS on a bad day: neighbours, hooks, refusing queues, and questions that are asked in the middle of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcq.errors import SchedulerError
from hpcq.scheduler.types import Fate, JobKey, JobState, NodeCondition, QueueQuery, Submission, Wait
from tests.lab.campaigns_in_lab import ENDLESS
from tests.pbs_live.live import Live
from tests.pbs_live.test_campaigns import outcomes
from tests.pbs_live.test_sequences import ONE_TEST, server_away
from tests.schedulers.scheduler_contract import Site

HOOK = """import pbs
event = pbs.event()
{body}
"""


def running(site: Site, name: str) -> JobKey:
    answer = site.submit(name, "sleep 300")
    assert answer.scheduler_job_id, answer
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    return site.key(answer.scheduler_job_id)


def test_the_environment_of_a_neighbour_spoils_no_listing(live: Live, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, the separator of the listing, a line that looks like a record."""
    site = live.site(tmp_path)
    nasty = "A=$(printf '\\377\\376'),B=x$(printf '\\nJob Id: 1.beta-head\\037job_state=F\\037Exit_status=0')"
    select = "-l select=1:host=beta-n01+1:host=beta-n02 -l place=scatter:exclhost -l walltime=5:00"
    submit = f'PATH=/opt/pbs/bin:$PATH; cd /tmp; echo "sleep 300" | qsub -N 007 {select} -v "{nasty}"'
    theirs = [live.lab.exec("beta", "sh", "-c", submit, user="otheruser").strip() for _ in range(2)]
    site.scheduler.nodes()
    ours = site.submit("ours", "exit 0")
    assert ours.scheduler_job_id
    snapshot = site.scheduler.look(QueueQuery([site.key(ours.scheduler_job_id)], nodes=True, others=True, mine=True))
    assert snapshot.reports[ours.scheduler_job_id].state is JobState.QUEUED
    assert snapshot.mine == 1
    assert snapshot.others is not None
    # Root sees its own and the others' alike; a neighbour's job waits for the hosts that it names.
    assert [(one.scheduler_job_id, one.nodes) for one in snapshot.others] == [(theirs[1], ("beta-n01", "beta-n02"))]
    assert {state.node for state in snapshot.nodes or ()} == set(live.nodes)
    stranger = JobKey(theirs[0], "007")
    report = site.scheduler.poll([stranger])[theirs[0]]
    assert (report.state, "somebody else's" in report.reason) == (JobState.UNKNOWN, True)
    site.scheduler.cancel([stranger])
    assert live.root(f"qselect -s R | grep -c {theirs[0]}").strip() == "1"


def test_words_that_look_like_numbers_stay_words(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    live.root("pbsnodes -o -C 007 beta-n04")
    states = {state.node: state for state in site.scheduler.nodes()}
    assert (states["beta-n04"].condition, states["beta-n04"].reason) == (NodeCondition.DRAINED, "007")
    assert re.search(r'"comment":\s*7\b', live.root("pbsnodes -v beta-n04 -F json"))  # what hpcq does not ask for
    key = running(site, "1e999")
    assert site.scheduler.poll([key])[key.scheduler_job_id].name == "1e999"
    site.scheduler.cancel([key])


def test_an_id_that_vanished_spoils_no_answer(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    first, second = running(site, "first"), site.submit("second", "exit 0")
    assert second.scheduler_job_id
    server = first.scheduler_job_id.partition(".")[2]
    keys = [first, JobKey(f"99999.{server}", "vanished"), site.key(second.scheduler_job_id)]
    reports = site.scheduler.poll(keys)
    assert [reports[key.scheduler_job_id].state for key in keys] == [JobState.RUNNING, JobState.UNKNOWN, JobState.QUEUED]
    live.root(f"qdel -W force -x {second.scheduler_job_id}")  # out of the history, too
    report = site.scheduler.poll(keys)[second.scheduler_job_id]
    assert report.state is JobState.UNKNOWN, report
    site.scheduler.cancel([first])


def test_a_server_that_is_away_in_a_poll_changes_nothing(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    key = running(site, "steady")
    with server_away(live):
        with pytest.raises(SchedulerError, match=r"[Cc]annot connect|refused"):
            site.scheduler.poll([key])
        with pytest.raises(SchedulerError):
            site.scheduler.find([key.tag])
        with pytest.raises(SchedulerError):
            site.scheduler.nodes()
        assert site.scheduler.cancel([key])
        answer = site.scheduler.transport.sh(f"({site.scheduler.poll_command([key])}\n)")
        assert answer.returncode == 162, "and no broken ssh"
        [late] = site.scheduler.submit([Submission("late", site.script("late", "exit 0"), (), 60)])
        assert (late.fate, late.scheduler_job_id) == (Fate.UNSURE, None), late
    site.wait(key.scheduler_job_id, JobState.RUNNING)
    site.scheduler.cancel([key])
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


def test_queues_that_refuse_say_why(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    chunks = "select=1:host=beta-n01+1:host=beta-n02"

    def into(queue: str, name: str, walltime: str = "1:00", more: str = "") -> Submission:
        head = f"#PBS -q {queue}\n#PBS -l {chunks}{more} -l walltime={walltime}"
        return Submission(name, Site(site.scheduler, site.folder, head).script(name, "sleep 60"), (), 60)

    [closed] = site.scheduler.submit([into("closed", "closed")])
    assert (closed.fate, "not enabled" in closed.message) == (Fate.REFUSED, True), closed
    [none] = site.scheduler.submit([into("nowhere", "nowhere")])
    assert (none.fate, "Unknown queue" in none.message) == (Fate.REFUSED, True), none
    [long] = site.scheduler.submit([into("short", "long", walltime="1:00:00")])
    assert (long.fate, "resource limits" in long.message) == (Fate.REFUSED, True), long
    answers = site.scheduler.submit([into("small", f"small{number}") for number in range(4)])
    assert [one.fate for one in answers] == [Fate.TAKEN] * 2 + [Fate.LIMITED] * 2, answers


@contextmanager
def hook(live: Live, body: str) -> Iterator[None]:
    """A queuejob hook of the site."""
    live.lab.exec("beta", "sh", "-c", "cat >/tmp/hook.py", text=HOOK.format(body=body))
    live.qmgr("create hook site event=queuejob")
    try:
        live.qmgr("import hook site application/x-python default /tmp/hook.py")
        yield
    finally:
        live.qmgr("delete hook site")


def test_a_hook_that_refuses_is_a_refusal_with_its_words(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    with hook(live, 'event.reject("no jobs on Sundays")'):
        answer = site.submit("refused", "exit 0")
    assert (answer.fate, "no jobs on Sundays" in answer.message) == (Fate.REFUSED, True), answer


def test_a_hook_that_moves_a_job_makes_no_result_of_other_nodes(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{list: [[beta-n01, beta-n02]]}}\nrepetitions: 1\nretries: 0\n{ONE_TEST}")
    moved = 'wish = str(event.job.Resource_List["select"]).replace("beta-n01", "beta-n03")\n'
    with hook(users, f'{moved}event.job.Resource_List["select"] = pbs.select(wish)'):
        desk.hpcq("run", "campaign.yaml", expect=4, timeout_s=300)
    assert outcomes(desk) == {"cluster not_measured": 1}
    [row] = desk.rows("SELECT reason FROM v_results")
    assert "beta-n03" in row["reason"], row


def test_qdel_by_somebody_else_is_cancelled(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    key = running(site, "outside")
    live.root(f"qdel {key.scheduler_job_id}")
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


def test_waiting_for_a_host_says_whether_it_is_in_use_or_offline(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    busy = running(site, "busy")
    waits = site.submit("waits", "exit 0")
    assert waits.scheduler_job_id
    key = site.key(waits.scheduler_job_id)
    live.until(lambda: site.scheduler.poll([key])[key.scheduler_job_id].reason, "a reason")
    assert site.scheduler.poll([key])[key.scheduler_job_id].wait is Wait.ORDINARY
    live.root("pbsnodes -o -C fan beta-n02")
    report = live.until(
        lambda: (found := site.scheduler.poll([key])[key.scheduler_job_id]).wait is Wait.NODE and found,
        "a node that is offline",
    )
    assert "beta-n02 is " in report.reason
    site.scheduler.cancel([busy, key])


def test_a_job_whose_walltime_is_over_is_told_as_such(users: Live, tmp_path: Path) -> None:
    """PBS ends it before its script does: somebody shortened its walltime."""
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{list: [[beta-n01, beta-n02]]}}\nretries: 0\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml") as driver:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events), "beta")
        users.root("qalter -l walltime=00:00:05 $(qselect)")
        assert driver.wait(timeout=240) == 4, desk.log()
    [end] = [event for event in desk.events("beta") if event["event"] == "ended"]
    assert end["outcome"] == ("timed_out" if users.history else "failed"), end
    assert end["reason"], end

"""Jobs that an operator of a real PBS suspends; tests/pbs/test_pbs_suspended.py plays what was seen here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcq.scheduler.types import JobState, NodeCondition
from tests.pbs.test_pbs_suspended import STILL, report, suspensions
from tests.pbs_live.live import Live
from tests.pbs_live.test_hostile import running
from tests.pbs_live.test_nodes import SECONDS
from tests.schedulers.scheduler_contract import TERMINAL, Site


@contextmanager
def at_the_end(site: Site) -> Iterator[None]:
    """The jobs of a test are gone: a suspended one takes PBS some time."""
    try:
        yield
    finally:
        site.scheduler.cancel([site.key(scheduler_job_id) for scheduler_job_id in site.tags])


def test_a_suspended_job_stands_still_waits_for_its_nodes_and_goes_on(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    with at_the_end(site):
        key = running(site, "still")
        live.root(f"qsig -s suspend {key.scheduler_job_id}")
        told = report(site, key)
        assert (told.state, told.native_state, told.reason, told.stands_still) == (JobState.RUNNING, "S", STILL, True)
        assert {state.condition for state in site.scheduler.nodes()} == {NodeCondition.IDLE}, "its nodes are free"
        other = running(site, "other")
        live.root(f"qsig -s resume {key.scheduler_job_id}")
        words = f"{STILL}; told to go on, it waits: Not Running: "
        live.until(lambda: report(site, key).reason.startswith(words), words)
        site.scheduler.cancel([other])
        site.ends(other.scheduler_job_id, JobState.CANCELLED)
        live.until(lambda: not report(site, key).stands_still, "a job that goes on")
        site.scheduler.cancel([key])
        site.ends(key.scheduler_job_id, JobState.CANCELLED)


def test_a_suspended_job_that_is_deleted_is_cancelled(live: Live, tmp_path: Path) -> None:
    site = live.site(tmp_path)
    key = running(site, "still")
    live.root(f"qsig -s suspend {key.scheduler_job_id}")
    site.scheduler.cancel([key], queued_only=True)
    site.scheduler.cancel([key])
    assert report(site, key).state not in TERMINAL
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


@pytest.mark.parametrize("word", ["suspend", "admin-suspend"])
def test_a_run_says_which_job_is_suspended_until_it_goes_on(users: Live, tmp_path: Path, word: str) -> None:
    """admin-suspend takes the nodes out of service, too."""
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 1}}\nrepetitions: 3\nretries: 0\n{SECONDS}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events), "beta")
        scheduler_job_id = users.root("qselect -s R").split()[0]
        users.root(f"qsig -s {word} {scheduler_job_id}")
        users.until(lambda: suspensions(desk.events("beta")), "the wait")
        shown = str(desk.json("status"))
        users.root(f"qsig -s {word.replace('suspend', 'resume')} {scheduler_job_id}")
        code = child.wait(timeout=240)
    [words, *later] = suspensions(desk.events("beta"))
    assert (f"({scheduler_job_id}) {STILL}" in words, later) == (True, [])
    assert words in shown
    lost = [row["reason"] for row in desk.rows("SELECT reason FROM v_results WHERE outcome <> 'measured'")]
    assert len(lost) <= 1
    assert all(" stood still during the measurement" in reason for reason in lost)
    assert (code == 0) == (lost == []), desk.log()

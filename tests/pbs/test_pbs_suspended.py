"""Jobs that an operator suspends, as a real server shows them: qsig -s suspend, resume, and qdel meanwhile.

tests/pbs_live/test_suspended.py does the same on a real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.scheduler.types import JobKey, JobReport, JobState, NodeCondition, Wait
from tests.kernels.kernel_programs import wait_for
from tests.pbs.test_pbs_campaign import desk_at, measured
from tests.schedulers.scheduler_contract import TERMINAL, Site, pbs_site
from tests.simulated_pbs.site import SimulatedPbs, simulated_pbs

STILL = "suspended: it does nothing, and PBS may give its nodes to others"
SECONDS = "{kernel: tcp_pingpong, parameters: {duration_s: 2s, warmup_s: 0}}"


@pytest.fixture(params=[False, True], ids=["no-history", "history"])
def pbs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SimulatedPbs]:
    with simulated_pbs(tmp_path / "pbs") as running:
        running.control(set={"sleep_s": 0.0, "history": request.param, "kill_delay_s": 1.0})
        yield running


@pytest.fixture
def site(pbs: SimulatedPbs) -> Site:
    return pbs_site(pbs.cluster() / "sim.yaml")


def order(pbs: SimulatedPbs, word: str, scheduler_job_id: str) -> None:
    done = pbs.as_user("root", "qsig", "-s", word, scheduler_job_id)
    assert (done.returncode, done.stderr) == (0, "")


def report(site: Site, key: JobKey) -> JobReport:
    return site.scheduler.poll([key])[key.scheduler_job_id]


def running(site: Site, body: str) -> JobKey:
    answer = site.submit("still", body)
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    return site.key(answer.scheduler_job_id)


def test_a_suspended_job_stands_still_and_goes_on(pbs: SimulatedPbs, site: Site) -> None:
    file = Path(site.folder) / "ticks"
    key = running(site, f"while [ ! -e {site.folder}/end ]; do echo tick >>{file}; sleep 0.1; done")
    refused = pbs.as_user("somebody", "qsig", "-s", "suspend", key.scheduler_job_id)
    assert (refused.returncode, refused.stderr.split()) == (159, ["qsig:", "Unauthorized", "Request", key.scheduler_job_id])
    order(pbs, "suspend", key.scheduler_job_id)
    told = report(site, key)
    assert (told.state, told.native_state, told.reason, told.stands_still) == (JobState.RUNNING, "S", STILL, True)
    assert {state.condition for state in site.scheduler.nodes()} == {NodeCondition.IDLE}, "its nodes are free"
    twice = pbs.as_user("root", "qsig", "-s", "suspend", key.scheduler_job_id)
    assert (twice.returncode, "Request invalid for state of job" in twice.stderr) == (168, True)
    before = file.read_bytes()
    assert [report(site, key).stands_still for _ in range(5)] == [True] * 5
    assert file.read_bytes() == before, "it does nothing"
    order(pbs, "resume", key.scheduler_job_id)
    assert not site.wait(key.scheduler_job_id, JobState.RUNNING).stands_still
    wait_for(lambda: len(file.read_bytes()) > len(before))
    (Path(site.folder) / "end").touch()
    site.ends(key.scheduler_job_id, JobState.COMPLETED)


@pytest.mark.promise("A suspended PBS job that was told to go on says that it waits for its nodes.")
def test_a_job_that_was_told_to_go_on_says_that_it_waits_for_its_nodes(pbs: SimulatedPbs, site: Site) -> None:
    key = running(site, "sleep 300")
    order(pbs, "suspend", key.scheduler_job_id)
    other = running(site, "sleep 300")
    order(pbs, "resume", key.scheduler_job_id)
    told = report(site, key)
    words = f"{STILL}; told to go on, it waits: Not Running: Insufficient amount of resource: vnode"
    assert (told.state, told.reason, told.stands_still) == (JobState.RUNNING, words, True)
    site.scheduler.cancel([other])
    site.ends(other.scheduler_job_id, JobState.CANCELLED)
    assert not report(site, key).stands_still
    site.scheduler.cancel([key])
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


@pytest.mark.promise("For a job that waits for a node in maintenance, hpcq says so.")
def test_nodes_of_a_job_that_was_suspended_for_their_sake_are_out_of_service_until_it_goes_on_or_ends(
    pbs: SimulatedPbs, site: Site
) -> None:
    """qsig -s admin-suspend, as recordings/11-suspended-nodes.jsonl has it."""
    key = running(site, "sleep 300")
    for word, code in (("admin-resume", 73), ("resume", 168)):
        assert pbs.as_user("root", "qsig", "-s", word, key.scheduler_job_id).returncode == code
    assert pbs.as_user("somebody", "qsig", "-s", "admin-suspend", key.scheduler_job_id).returncode == 159
    order(pbs, "admin-suspend", key.scheduler_job_id)
    told = report(site, key)
    assert (told.state, told.native_state, told.reason, told.stands_still) == (JobState.RUNNING, "S", STILL, True)
    assert conditions(site) == {"maintenance": 2, "free": 2}
    other = site.submit("other", "sleep 300")
    assert other.scheduler_job_id
    waits = report(site, site.key(other.scheduler_job_id))
    assert (waits.wait, "pbn1 is maintenance" in waits.reason) == (Wait.NODE, True)
    for word, code in (("resume", 73), ("admin-suspend", 168)):
        assert pbs.as_user("root", "qsig", "-s", word, key.scheduler_job_id).returncode == code
    order(pbs, "admin-resume", key.scheduler_job_id)
    assert not report(site, key).stands_still
    assert conditions(site) == {"job-exclusive": 2, "free": 2}
    order(pbs, "admin-suspend", key.scheduler_job_id)
    site.scheduler.cancel([key])
    assert conditions(site) == {"maintenance": 2, "free": 2}, "until it has ended"
    site.ends(key.scheduler_job_id, JobState.CANCELLED)
    site.wait(other.scheduler_job_id, JobState.RUNNING)
    site.scheduler.cancel([site.key(other.scheduler_job_id)])


def conditions(site: Site) -> dict[str, int]:
    """How many nodes are in each state; one in maintenance is not for jobs."""
    states = site.scheduler.nodes()
    out = [state.condition for state in states if state.native_state == "maintenance"]
    assert set(out) <= {NodeCondition.MAINTENANCE}
    return dict(Counter(state.native_state for state in states))


@pytest.mark.promise("A suspended PBS job is ended by an order, too.")
def test_a_suspended_job_that_is_deleted_is_cancelled(pbs: SimulatedPbs, site: Site) -> None:
    """It takes no TERM, so PBS kills it after some seconds; until then it is there."""
    key = running(site, "sleep 300")
    order(pbs, "suspend", key.scheduler_job_id)
    site.scheduler.cancel([key], queued_only=True)
    site.scheduler.cancel([key])
    assert report(site, key).state not in TERMINAL
    site.ends(key.scheduler_job_id, JobState.CANCELLED)


@pytest.mark.long
@pytest.mark.promise("A run on PBS says which job is suspended until it goes on.")
@pytest.mark.parametrize("word", ["suspend", "admin-suspend"])
def test_a_run_says_which_job_is_suspended_until_it_goes_on(pbs: SimulatedPbs, tmp_path: Path, word: str) -> None:
    desk = desk_at(tmp_path)
    desk.campaign(SECONDS, more="retries: 0\nbudget: {max_jobs: 1}")
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as child:
        desk.wait_for(lambda: any(event.get("state") == "running" for event in desk.events("tiny")), 120)
        scheduler_job_id = next(event["scheduler_job_id"] for event in desk.events("tiny") if event["event"] == "submitted")
        order(pbs, word, scheduler_job_id)
        desk.wait_for(lambda: bool(suspensions(desk.events("tiny"))), 60)
        shown = desk.json("status")
        order(pbs, word.replace("suspend", "resume"), scheduler_job_id)
        assert child.wait(timeout=240) == 3, "what was measured while it stood still is no value"
    [words, *later] = suspensions(desk.events("tiny"))
    assert (words, later) == (f"j00001 ({scheduler_job_id}) {STILL}", [])
    assert words in str(shown)
    assert [event["reason"] for event in desk.events("tiny") if event["event"] == "waiting"][-1] == ""
    lost = desk.rows("SELECT reason FROM v_results WHERE outcome = 'invalid'")
    assert [row["reason"].partition(" stood still")[0] for row in lost] == ["the client"]
    assert measured(desk) == 5


def suspensions(events: list[dict[str, str]]) -> list[str]:
    return [event["reason"] for event in events if event["event"] == "waiting" and "suspended" in event["reason"]]

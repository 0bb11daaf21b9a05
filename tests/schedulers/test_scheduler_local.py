"""The embedded scheduler keeps the contract that Slurm keeps (tests/schedulers/test_scheduler_slurm.py)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcq.scheduler.local import Local
from hpcq.scheduler.types import JobState, NodeCondition, SchedulerSettings, Submission
from hpcq.transport import Here
from tests.kernels.kernel_programs import wait_for
from tests.schedulers.scheduler_contract import PROMISES, TERMINAL, Site, the_time_limit_ends_a_job

pytestmark = pytest.mark.fast


@pytest.fixture
def site(tmp_path: Path) -> Site:
    settings = SchedulerSettings(nodes=("node-a", "node-b"), queue_folder=str(tmp_path / "queue with blanks"))
    return Site(Local(Here(), settings), str(tmp_path / "work"), "# {name}")


@pytest.mark.heavy
@pytest.mark.parametrize("promise", [*PROMISES, the_time_limit_ends_a_job], ids=lambda promise: promise.__name__)
def test_promise(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


def test_a_cancelled_script_gets_term_and_can_say_so(site: Site) -> None:
    there = Path(site.folder) / "trapped"
    body = f"trap 'echo ended >{there}/said; exit 143' TERM\ntouch {there}/set\nsleep 300 & wait"
    answer = site.submit("trapped", body)
    assert answer.scheduler_job_id
    wait_for((there / "set").exists)
    site.scheduler.cancel([site.key(answer.scheduler_job_id)])
    assert site.wait(answer.scheduler_job_id, *TERMINAL).state is JobState.CANCELLED
    assert (there / "said").read_text() == "ended\n"


@pytest.mark.heavy
def test_a_job_that_is_cancelled_in_the_moment_of_its_start_ends(site: Site, tmp_path: Path) -> None:
    for number in range(8):
        answer = site.submit(f"young{number}", "sleep 300")
        assert answer.scheduler_job_id
        state = tmp_path / "queue with blanks" / "jobs" / answer.scheduler_job_id / "state"
        deadline = time.monotonic() + 60
        while state.read_text() != "RUNNING\n":
            assert time.monotonic() < deadline
        keeper = (state.parent / "pid").read_text().strip()
        site.scheduler.cancel([site.key(answer.scheduler_job_id)])
        assert site.wait(answer.scheduler_job_id, *TERMINAL).state is JobState.CANCELLED
        living = f"ps -o stat= -s {keeper} | grep -v Z || true"
        wait_for(lambda words=living: not Here().sh(words).stdout)  # type: ignore[misc]


@pytest.mark.heavy
def test_a_keeper_that_dies_is_no_success(site: Site, tmp_path: Path) -> None:
    answer = site.submit("orphan", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    keeper = int((tmp_path / "queue with blanks" / "jobs" / answer.scheduler_job_id / "pid").read_text())
    Here().sh(f"pkill -KILL --session {keeper}")
    report = site.wait(answer.scheduler_job_id, JobState.UNKNOWN)
    assert report.reason == "its keeper died"


@pytest.mark.heavy
@pytest.mark.promise("On the local queue, what a job leaves behind ends with it, also where nobody keeps the job any more.")
def test_what_a_job_without_its_keeper_leaves_behind_ends(site: Site, tmp_path: Path) -> None:
    """A server whose timeout(1) was killed, below a keeper that was killed before."""
    go = tmp_path / "go"
    answer = site.submit("orphan", f"(trap '' TERM; sleep 299) &\nuntil [ -e '{go}' ]; do sleep 0.1; done")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    keeper = int((tmp_path / "queue with blanks" / "jobs" / answer.scheduler_job_id / "pid").read_text())
    living = f"ps -o stat= -s {keeper} | grep -cv Z || true"
    wait_for(lambda: int(Here().sh(living).stdout) >= 5)
    try:
        os.kill(keeper, signal.SIGKILL)
        site.wait(answer.scheduler_job_id, JobState.UNKNOWN)
        assert int(Here().sh(living).stdout) >= 3, "its script still runs: what it started may still measure"
        go.touch()
        wait_for(lambda: int(Here().sh(living).stdout) <= 1)
        site.wait(answer.scheduler_job_id, JobState.UNKNOWN)
        wait_for(lambda: int(Here().sh(living).stdout) == 0)
    finally:
        Here().sh(f"pkill -KILL --session {keeper}")


@pytest.mark.heavy
@pytest.mark.promise("On the local queue, cancel ends a job whose keeper died, and whatever of it does not listen.")
def test_a_job_without_its_keeper_can_be_ended(site: Site, tmp_path: Path) -> None:
    answer = site.submit("orphan", "(trap '' TERM; sleep 300) &\nsleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    keeper = int((tmp_path / "queue with blanks" / "jobs" / answer.scheduler_job_id / "pid").read_text())
    living = f"ps -o stat= -s {keeper} | grep -cv Z || true"
    wait_for(lambda: int(Here().sh(living).stdout) >= 5)  # keeper, timeout, script, and both that sleep
    try:
        os.kill(keeper, signal.SIGKILL)
        site.wait(answer.scheduler_job_id, JobState.UNKNOWN)
        site.scheduler.cancel([site.key(answer.scheduler_job_id)])
        assert int(Here().sh(living).stdout) == 0
    finally:
        Here().sh(f"pkill -KILL --session {keeper}")
    assert site.wait(answer.scheduler_job_id, *TERMINAL).state is JobState.CANCELLED


@pytest.mark.heavy
def test_jobs_share_nodes_one_after_another(site: Site) -> None:
    log = f"{site.folder}/log"
    body = f"echo start >>{log}; sleep 0.2; echo end >>{log}"
    answers = [site.submit(f"one{number}", body) for number in range(4)]
    for answer in answers:
        assert answer.scheduler_job_id
        site.wait(answer.scheduler_job_id, JobState.COMPLETED)
    assert Path(log).read_text().split() == ["start", "end"] * 4


@pytest.mark.promise("What a job of the local queue leaves behind ends with it, as on a cluster.")
@pytest.mark.heavy
def test_a_job_of_many_nodes_holds_them_all_and_what_it_leaves_behind_ends(tmp_path: Path) -> None:
    nodes = tuple(f"node-{number:02}" for number in range(14))
    queue = SchedulerSettings(nodes=nodes, queue_folder=str(tmp_path / "queue"))
    site = Site(Local(Here(), queue), str(tmp_path / "work"), "# {name}")
    go, left = tmp_path / "go", tmp_path / "left"
    body = f"sleep 300 >/dev/null 2>&1 &\necho $! >{left}\nuntil [ -e {go} ]; do sleep 0.1; done"
    [answer] = site.scheduler.submit([Submission("wide", site.script("wide", body), nodes, 300)])
    assert answer.scheduler_job_id
    site.tags[answer.scheduler_job_id] = "wide"
    try:
        site.wait(answer.scheduler_job_id, JobState.RUNNING)
        assert {state.condition for state in site.scheduler.nodes()} == {NodeCondition.BUSY}
        go.touch()
        site.wait(answer.scheduler_job_id, JobState.COMPLETED)
        deadline = time.monotonic() + 60
        while {state.condition for state in site.scheduler.nodes()} != {NodeCondition.IDLE}:
            assert time.monotonic() < deadline, "a process that the job left behind holds a node"
            time.sleep(0.2)
        assert not Here().sh(f"ps -o stat= -p {left.read_text().strip()} | grep -v Z || true").stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_jobs_leave_the_cores_to_who_looks_after_them(site: Site) -> None:
    said = Path(site.folder) / "meek" / "autogroup"
    answer = site.submit("meek", f"cat /proc/self/autogroup >{said}")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.COMPLETED)
    of_job = said.read_text()
    assert of_job != Path("/proc/self/autogroup").read_text(), "a job is a session of its own"
    assert of_job.endswith(" nice 10\n")

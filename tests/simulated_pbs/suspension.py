"""Jobs that stand still: what qsig -s suspend and resume do to a job, its processes and its nodes.

    R 42 -- suspend --> S 43 -- resume --> S 45 -- the scheduler finds its nodes free --> R 42
    R 42 -- admin-suspend --> S 43, its nodes in maintenance until it ends -- admin-resume --> R 42 at once

A suspended job keeps its processes, its hosts and its comment; its nodes are free and list no job. It takes no TERM: told
to end, it is killed after some seconds. Only operators may suspend.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from tests.simulated_pbs.records import Job
from tests.simulated_pbs.requests import Refused, Request

SUSPENDED, WANTS_TO_GO_ON = 43, 45
NODES_IN_USE = "Not Running: Insufficient amount of resource: vnode "


def order(request: Request, job: Job, word: str) -> None:
    """Carry out `qsig -s suspend`, `resume`, `admin-suspend` or `admin-resume`; each resume goes with its suspend."""
    if request.user != "root":
        raise Refused(159, f"qsig: Unauthorized Request  {job.scheduler_job_id}")
    if _is_the_other_resume(job, word):
        raise Refused(73, f"qsig: Job can not be resumed with the requested resume signal {job.scheduler_job_id}")
    if job.process is None or job.state != ("R" if word.endswith("suspend") else "S"):
        raise Refused(168, f"qsig: Request invalid for state of job {job.scheduler_job_id}")
    if word.endswith("resume"):
        job.substate, job.takes_nodes_out = WANTS_TO_GO_ON, False
        return
    job.state, job.substate, job.suspended = "S", SUSPENDED, time.time()
    job.takes_nodes_out = word == "admin-suspend"
    _signal_all(job, "STOP")


def _is_the_other_resume(job: Job, word: str) -> bool:
    if job.process is None:
        return False
    return (word == "admin-resume" and not job.takes_nodes_out) or (word == "resume" and job.takes_nodes_out)


def go_on(job: Job, taken: Callable[[str], list[Job]], comment: str) -> None:
    """What the scheduler does with a job that was told to resume: it runs again on its own hosts, or waits for them."""
    if any(taken(host) for host in job.hosts):
        job.comment = NODES_IN_USE
        return
    job.state, job.substate, job.comment = "R", 42, comment
    job.stood_s += time.time() - job.suspended
    _signal_all(job, "CONT")


def kill(job: Job) -> None:
    """End a job that takes no TERM."""
    _signal_all(job, "KILL")


def _signal_all(job: Job, name: str) -> None:
    """To all sessions of a job, as MOM does: some of their processes lead groups of their own."""
    leaders = [one.pid for one in (job.process, *job.tasks) if one is not None and one.poll() is None]
    for leader in leaders:
        subprocess.run(["pkill", f"-{name}", "--session", str(leader)], check=False)

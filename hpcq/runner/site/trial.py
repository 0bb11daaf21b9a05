"""A trial job of `hpcq cluster check`: the head of a real job with all its directives, and a look at a node as its body.

no job             the scheduler refused it, or did not start it: the file system has no part in that
started, no text   its script could not write into the work directory
started, text      what the look printed there
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcq.definition.model import Cluster
from hpcq.errors import HpcqError
from hpcq.render import render
from hpcq.runner.site.place import launches, site_context
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import JobKey, JobState, Submission, Wait
from hpcq.transport import quote

_WALLTIME_S = 60
#: How long a trial job may wait on an idle node, and how late its files may be.
_STARTS_WITHIN_S, _FILES_WITHIN_S = 20.0, 10.0
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    """How a trial job went on one node. words: what the scheduler says of it, where it did not start.

    form_is_wrong: the scheduler would take no job of this form. text: what its look printed; None: nothing was seen.
    """

    node: str
    started: bool
    words: str = ""
    form_is_wrong: bool = False
    text: str | None = None


def try_job(cluster: Cluster, scheduler: Scheduler, root: str, nodes: Sequence[str], look: str) -> Trial:
    """Run a shell script on a node as a job like any other. It ends within a minute, or hpcq cancels it.

    root: a folder of this user on the cluster. Of two nodes, the look is lines of the job's script, which may start MPI
    programs by on_nodes_mpi and with_toolchain.
    Raises HpcqError where the cluster cannot be asked.
    """
    tag = f"hpcq-check-{secrets.token_hex(4)}"
    folder = f"{root}/{tag}"
    # One toolchain after the other: each may take its time to start.
    walltime_s = _WALLTIME_S * (1 + len(cluster.toolchains) // 2 if len(nodes) > 1 else 1)
    job = {"tag": tag, "nodes": list(nodes), "walltime_s": walltime_s}
    context = {**site_context(cluster, root), "job": job, "folder": folder, "body": "trial.sh.j2", "look": look}
    if len(nodes) > 1:
        context["toolchains"] = launches(cluster.toolchains)
    script = render(describe(cluster.scheduler).head_template, context)
    path = f"{folder}/job.sh"
    made = scheduler.transport.sh(
        f"mkdir -p {quote(folder)} && cat >{quote(path)} && chmod 700 {quote(path)}", stdin=script.encode()
    )
    if made.returncode != 0:
        raise HpcqError(f"{folder}: {made.stderr.strip()}")
    [answer] = scheduler.submit([Submission(tag, path, tuple(nodes), walltime_s)])
    if answer.scheduler_job_id is None:
        words = " ".join(answer.message.split())
        return Trial(nodes[0], started=False, words=f"refused: {words}", form_is_wrong=answer.refused or answer.unsure)
    key = JobKey(answer.scheduler_job_id, tag)
    try:
        return _watched(scheduler, key, folder, nodes[0], walltime_s)
    finally:
        scheduler.cancel([key])


def _watched(scheduler: Scheduler, key: JobKey, folder: str, node: str, walltime_s: int) -> Trial:
    """Wait for the look of a submitted job, within its bounds: it may take as long as the job."""
    begun_s = time.monotonic()
    started_s = ended_s = None
    while True:
        text = _printed(scheduler, folder)
        now_s = time.monotonic()
        report = scheduler.poll([key])[key.scheduler_job_id]
        if text is not None:
            return Trial(node, started=True, text=text)
        if started_s is None and (report.state.terminal or report.state in {JobState.RUNNING, JobState.ENDING}):
            started_s = now_s
        if ended_s is None and report.state.terminal:
            ended_s = now_s
        if started_s is None and now_s - begun_s > _STARTS_WITHIN_S:
            odd = report.wait in {Wait.NEVER, Wait.UNKNOWN, Wait.LIMIT}
            words = f"not started within {_STARTS_WITHIN_S:g} s: the scheduler says {report.reason or 'nothing'}"
            return Trial(node, started=False, words=words, form_is_wrong=odd)
        if ended_s is not None and now_s - ended_s > _FILES_WITHIN_S:
            ended = report.native_state.lower() or report.state.value
            return Trial(node, started=True, words=f"it ended as {ended} without a file of its own")
        if started_s is not None and now_s - started_s > walltime_s:
            return Trial(node, started=True, words=f"its look did not end within {walltime_s} s")
        time.sleep(_LOOK_S)


def _printed(scheduler: Scheduler, folder: str) -> str | None:
    """Return what the look has printed, once it has ended."""
    done = scheduler.transport.sh(f"cd {quote(folder)} && ls >/dev/null && [ -e look.rc ] && cat look.out")
    return done.text if done.returncode == 0 else None


def form_that_is_taken(
    cluster: Cluster, scheduler: Scheduler, root: str, node: str, look: str
) -> tuple[Mapping[str, str], Trial] | None:
    """Try other forms of the job, each with fewer standing options. Returns the first one that starts, as keys of the file."""
    for form in describe(cluster.scheduler).other_forms:
        if any(cluster.extra.get(key) == value for key, value in form.items()):
            continue
        trial = try_job(replace(cluster, extra={**cluster.extra, **form}), scheduler, root, [node], look)
        if trial.started:
            return form, trial
    return None

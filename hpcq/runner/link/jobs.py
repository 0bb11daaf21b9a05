"""One side of a link's job: final parameters, a rendered script, and how its folder is written.

LinkPlan + pair + side + missing measurements -> LinkJob ->
<run>/<from>+<to>/jobs/<job_id>/<attempt_no>/<side>/{job.json, job.sh}
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.linked import Link, Listen
from hpcq.definition.model import Cluster
from hpcq.render import render
from hpcq.run_folder.journal_state import attempt_folder
from hpcq.runner.link.state import LinkState
from hpcq.runner.queue.jobs import PROGRAMS, Step, make_job, modules_of, site_context, write_folder, write_programs
from hpcq.scheduler.kinds import describe

#: How long one attempt to connect to the other side may take: three SYNs.
PROBE_TIMEOUT_S = 8
#: How long a server waits for a client beyond the time that the other side has to arrive.
_IDLE_MARGIN_S = 60
#: How long beyond patience_s a side waits in vain when no driver ends it.
_DRIVER_GONE_S = 30


@dataclass(frozen=True, slots=True)
class LinkJob:
    """One allocation of one node on one side of a link, for one attempt. The client's side runs `steps`."""

    job_id: str
    attempt_no: int
    tag: str
    run_id: str
    campaign: str
    link: str
    side: str
    cluster: str
    nodes: tuple[str, ...]
    walltime_s: int
    steps: tuple[Step, ...]

    @property
    def folder(self) -> str:
        return attempt_folder(self.job_id, self.attempt_no, self.side)


def make_side(state: LinkState, index: int, side: str, attempt_no: int, folder: Path | None = None) -> LinkJob:
    """Return the job of one side that measures what a pair still lacks. folder: as for make_job."""
    plan, link = state.plan, state.link
    whole = make_job(plan, index, attempt_no, state.missing(index), folder)
    cluster = link.from_cluster if side == "from" else link.to_cluster
    return LinkJob(
        job_id=whole.job_id,
        attempt_no=attempt_no,
        tag=f"hpcq-{plan.run_id}-{link.name}-{whole.job_id}-{attempt_no}-{side}",
        run_id=plan.run_id,
        campaign=plan.campaign,
        link=link.name,
        side=side,
        cluster=cluster,
        nodes=(state.node(index, side),),
        walltime_s=plan.walltime_s,
        steps=whole.steps,
    )


def write_side(job: LinkJob, link: Link, cluster: Cluster, *, roots: tuple[str, str], folder: Path, first: str) -> None:
    """Write job.json and job.sh into `folder`.

    roots: the run's folder on the cluster, and the link's below it. first: the side that measures where it can connect.
    """
    context: dict[str, Any] = {
        "job": job,
        **site_context(cluster, roots[0]),
        "folder": f"{roots[1]}/{job.folder}",
        "body": "link.sh.j2",
        "programs": write_programs(folder, [(one.test_no, one.kernel, one.parameters) for one in job.steps]) and PROGRAMS,
        "modules": modules_of(cluster, {one.kernel for one in job.steps}),
        "listens": listens(link.listen, job.side),
        "goes_first": job.side == first,
        # The driver ends a side that waits in vain. This bound is for a side without a driver.
        "patience_s": math.ceil(link.patience_s) + _DRIVER_GONE_S,
        "idle_timeout_s": math.ceil(link.patience_s) + _IDLE_MARGIN_S,
        "probe_timeout_s": PROBE_TIMEOUT_S,
    }
    script = render(describe(cluster.scheduler).head_template, context)
    write_folder(folder, {"format": 1, **asdict(job)}, script)


def listens(listen: Listen, side: str) -> bool:
    """Whether a side of a link accepts connections."""
    return listen is Listen.EITHER or listen.value == side

"""One cluster as one end of a link: its queue, and the few small files through which the two sides meet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster, Link, Listen
from hpcq.kernels import Kernels
from hpcq.planning.links import LinkPlan, split
from hpcq.planning.plan import pair_index_of
from hpcq.planning.waves import nodes_left
from hpcq.render import render
from hpcq.run_folder.journal import Attempt, attempt_folder
from hpcq.run_folder.lines import whole
from hpcq.run_folder.paths import job_text, read_json_or_none
from hpcq.runner.queue.account import Account
from hpcq.runner.queue.attempt_files import Left
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.run_state import (
    PROGRAMS,
    Record,
    RunState,
    Step,
    make_job,
    modules_of,
    played,
    write_folder,
    write_programs,
)
from hpcq.runner.queue.yield_policy import RetryLater
from hpcq.runner.site.place import ClusterSite, site_context
from hpcq.scheduler.kinds import describe
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot
from hpcq.transport import quote

# ----------------------------------------------------------------------------------------------------------------------
# Fold the journal of a link into its tries, each with one attempt per side, and into what hpcq may try again.
#
#     estimate -> attempt(side) -> submitted -> state … -> met -> ways -> ended(side)          for both sides
#                                  withdraw(side): it leaves the queue, or ends after the current test; not counted
#                                    stop(side): the driver ends it, with the reason
#
# A try is over when none of its attempts lives. The side that caused the end decides whether there is another try.


#: The two ends of a link, in the order of its name.
SIDES = ("from", "to")


def other(side: str) -> str:
    """Return the opposite end."""
    return SIDES[1 - SIDES.index(side)]


@dataclass(slots=True)
class Try:
    """One measurement of a pair over the link, with its attempts by side."""

    index: int
    attempt_no: int
    #: The side that the driver told to measure if it can connect.
    first: str
    sides: dict[str, Attempt] = field(default_factory=dict)
    met: bool = False
    ways_known: bool = False

    @property
    def live(self) -> bool:
        return any(attempt.live for attempt in self.sides.values())


class LinkState(RunState):
    """The state of one link's part of a run."""

    def __init__(self, link_plan: LinkPlan) -> None:
        super().__init__(link_plan.plan)
        self.link = link_plan.link
        #: Node-seconds of ended attempts, by side.
        self.node_seconds = dict.fromkeys(SIDES, 0.0)
        #: The last try of each pair.
        self.tries: dict[int, Try] = {}
        #: The side that measured as the client, by pair, once known.
        self.clients: dict[int, str] = {}

    @classmethod
    def replay(cls, link_plan: LinkPlan, events: Iterable[Mapping[str, Any]]) -> LinkState:
        """Return the state after all these events."""
        return cls(link_plan).replayed(events)

    def next_attempt_no(self, index: int) -> int:
        """Return the number of the next try."""
        return self.tries[index].attempt_no + 1 if index in self.tries else 1

    def client_side(self, index: int) -> str:
        """Return the side that is the client first: the one that was before, else the plan's."""
        if index in self.clients:
            return self.clients[index]
        return "from" if split(self.plan.pairs[index][0])[0] == self.link.from_cluster else "to"

    def node(self, index: int, side: str) -> str:
        """Return the node of a pair on one side, by its name in its own cluster."""
        wanted = self.cluster_of(side)
        return next(node for cluster, node in map(split, self.plan.pairs[index]) if cluster == wanted)

    def cluster_of(self, side: str) -> str:
        """Return the cluster on one side."""
        return self.link.from_cluster if side == "from" else self.link.to_cluster

    @property
    def open_tries(self) -> list[Try]:
        """Return the tries that have a live attempt."""
        return [one for one in self.tries.values() if one.live]

    def live_on(self, side: str) -> list[Attempt]:
        """Return the live attempts of one side."""
        return [attempt for attempt in self.active.values() if attempt.side == side]

    def apply(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "attempt":
            index, attempt_no = pair_index_of(event["job"]), event["attempt_no"]
            if index not in self.tries or self.tries[index].attempt_no != attempt_no:
                self.tries[index] = Try(index, attempt_no, event["first"])
        super().apply(event)

    def _commit(self, attempt: Attempt) -> None:
        super()._commit(attempt)
        self.tries[attempt.pairs[0]].sides[attempt.side] = attempt

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "met":
                self.tries[pair_index_of(event["job"])].met = True
            case "ways":
                index = pair_index_of(event["job"])
                self.tries[index].ways_known = True
                if event["client"] is not None:
                    self.clients[index] = event["client"]
            case _:
                pass

    def _took(self, attempt: Attempt, node_seconds: float) -> None:
        self.node_seconds[attempt.side] += node_seconds

    def _end_pair(self, index: int, attempt: Attempt) -> None:  # noqa: ARG002 - both sides of the try count
        ended = self.tries[index]
        if not ended.live:
            causes = [one for one in ended.sides.values() if not one.follows] or list(ended.sides.values())
            self._try_again(index, [one.outcome for one in causes], final=any(one.final for one in causes))


# ----------------------------------------------------------------------------------------------------------------------
# One side of a link's job: final parameters, a rendered script, and how its folder is written.
#
# LinkPlan + pair + side + missing measurements -> LinkJob ->
# <run>/<from>+<to>/jobs/<job>/<attempt_no>/<side>/{job.json, job.sh}


#: How long one attempt to connect to the other side may take: three SYNs.
PROBE_TIMEOUT_S = 8
#: How long a server waits for a client beyond the time that the other side has to arrive.
_IDLE_MARGIN_S = 60
#: How long beyond max_wait_s a side waits in vain when no driver ends it.
_DRIVER_GONE_S = 30


@dataclass(frozen=True, slots=True)
class LinkJob:
    """One allocation of one node on one side of a link, for one attempt. The client's side runs `steps`."""

    job: str
    attempt_no: int
    tag: str
    run: str
    campaign: str
    link: str
    side: str
    cluster: str
    nodes: tuple[str, ...]
    walltime_s: int
    steps: tuple[Step, ...]

    @property
    def folder(self) -> str:
        return attempt_folder(self.job, self.attempt_no, self.side)


def make_side(state: LinkState, index: int, side: str, attempt_no: int, folder: Path | None = None) -> LinkJob:
    """Return the job of one side that measures what a pair still lacks. folder: as for make_job."""
    plan, link = state.plan, state.link
    whole = make_job(plan, index, attempt_no, state.missing(index), folder)
    cluster = link.from_cluster if side == "from" else link.to_cluster
    return LinkJob(
        job=whole.job,
        attempt_no=attempt_no,
        tag=f"hpcq-{plan.run}-{link.name}-{whole.job}-{attempt_no}-{side}",
        run=plan.run,
        campaign=plan.campaign,
        link=link.name,
        side=side,
        cluster=cluster,
        nodes=(state.node(index, side),),
        walltime_s=plan.walltime_s,
        steps=whole.steps,
    )


def write_side(
    job: LinkJob, kernels: Kernels, link: Link, cluster: Cluster, *, roots: tuple[str, str], folder: Path, first: str
) -> None:
    """Write job.json and job.sh into `folder`.

    roots: the run's folder on the cluster, and the link's below it. first: the side that measures where it can connect.
    """
    context: dict[str, Any] = {
        "job": job,
        **site_context(cluster, roots[0]),
        "folder": f"{roots[1]}/{job.folder}",
        "body": "link.sh.j2",
        "programs": write_programs(folder, kernels, job.steps) and PROGRAMS,
        "modules": modules_of(cluster, kernels, job.steps),
        "commands": {step.name: played(kernels, step) for step in job.steps},
        "listens": listens(link.listen, job.side),
        "goes_first": job.side == first,
        # The driver ends a side that waits in vain. This bound is for a side without a driver.
        "max_wait_s": math.ceil(link.peer_wait_s) + _DRIVER_GONE_S,
        "idle_timeout_s": math.ceil(link.peer_wait_s) + _IDLE_MARGIN_S,
        "probe_timeout_s": PROBE_TIMEOUT_S,
    }
    script = render(describe(cluster.scheduler).head_template, context)
    write_folder(folder, {"format": 1, **asdict(job)}, script)


def listens(listen: Listen, side: str) -> bool:
    """Whether a side of a link accepts connections."""
    return listen is Listen.EITHER or listen.value == side


# ----------------------------------------------------------------------------------------------------------------------


#: What a live side reports about itself: small files, fetched with every poll.
_SMALL_FILES = ("started.json", "ready.json", "probe.status", "probe.err", "exit.json")


@dataclass(frozen=True, slots=True)
class Ready:
    """A running side; port 0: it does not listen."""

    address: str
    port: int


class LinkSide(ClusterQueue):
    """What a link's driver knows about one of its ends. It shares the account with the cluster's own pairs."""

    def __init__(
        self, name: str, here: ClusterSite, account: Account, record: Record[LinkState], retry_later: RetryLater
    ) -> None:
        folder, root = here.run.path / record.name, f"{here.root}/links/{record.name}"
        super().__init__(here, account, record, folder=folder, root=root, side=name, retry_later=retry_later)
        self.name = name
        self.run_root = here.root
        self._looked_at_s = -math.inf

    # -- the scheduler ----------------------------------------------------------------------------------------------

    def look_if_due(self, *, refill: bool) -> QueueSnapshot | None:
        """Query everything; None if the query can wait, because running sides report through files."""
        live = self.known()
        closed = self.shut() is not None
        quiet = all(one.state is JobState.RUNNING and not one.stopped and not one.withdrawal for one in live)
        quiet = quiet and not (refill and not closed and not self.account.full())
        quiet = quiet and closed == (self.paused is not None) and not (live and self.account.budget.gives_way)
        if quiet and self.clock.now_s() - self._looked_at_s < self.pace.poll_max_s:
            return None
        snapshot = self.look(refill=refill)
        self._looked_at_s = self.clock.now_s()
        return snapshot

    def free(self, states: Sequence[NodeState], room: int | None, walltime_s: float) -> tuple[set[str], int]:
        """Return the idle nodes that may get a job with this time limit, and how many of them.

        room: what the site's limits leave.
        """
        jobs, budget = self.account.active_jobs(), self.account.budget_now()
        idle = {one.node for one in states if one.condition is NodeCondition.IDLE and not one.kept_from(walltime_s)}
        asked = {node for job in jobs for node in job.nodes}
        available = idle.union(*(job.nodes for job in jobs if job.running))
        counts = [nodes_left(available, asked, budget)]
        counts += [] if budget.max_jobs is None else [budget.max_jobs - len(jobs)]
        counts += [] if room is None else [room]
        left_s = self.account.node_seconds_left()
        counts += [] if math.isinf(left_s) else [int(left_s // walltime_s)]
        return idle - asked, max(0, min(counts))

    def push(self, job: LinkJob) -> None:
        """Copy a job's folder to the cluster."""
        self.transport.push(self.folder, self.root, [job.folder])

    def expected_wait_s(self, job: LinkJob) -> float | None:
        """Return in how many seconds a job would start; None if the scheduler does not say."""
        self.pace.ask()
        return self.scheduler.expected_wait_s(self.submission(job))

    # -- files ------------------------------------------------------------------------------------------------------

    def take_small_files(self) -> None:
        """Fetch what live attempts report about themselves: that they run, and that they have ended."""
        live = self.known()
        names = [f"{attempt.folder}/{name}" for attempt in live for name in _SMALL_FILES]
        if names:
            self.transport.pull(self.root, names, self.folder)
        left = {attempt.tag: Left.of(self.folder / attempt.folder) for attempt in live}
        for attempt in live:
            if attempt.state is JobState.QUEUED and left[attempt.tag].started:
                self.record.note("state", tag=attempt.tag, state=JobState.RUNNING.value, reason="")
        self.judge([(attempt, None) for attempt in live if left[attempt.tag].exit_file is not None])

    def tell(self, attempt: Attempt, name: str, text: str) -> None:
        """Put a file of one line into an attempt's folder, complete or not at all."""
        path = quote(f"{self.root}/{attempt.folder}/{name}")
        self.transport.sh(f"printf '%s\\n' {quote(text)} >{path}.part && mv {path}.part {path}")

    def ready(self, attempt: Attempt) -> Ready | None:
        """Return where an attempt listens; None if its file has not arrived yet."""
        said = read_json_or_none(self.folder / attempt.folder / "ready.json")
        port = whole(said.get("port")) or 0 if said else 0
        return Ready(str(said.get("address") or "-"), port if 0 < port < 2**16 else 0) if said else None

    def reached(self, attempt: Attempt) -> bool | None:
        """Whether an attempt could connect to the other side; None if it has not reported that yet."""
        said = read_json_or_none(self.folder / attempt.folder / "probe.status")
        return said.get("rc") == 0 if said else None

    def probe_words(self, attempt: Attempt) -> str:
        """Return what the kernel said when it could not connect."""
        text = job_text(self.folder / attempt.folder / "probe.err")
        return " ".join(text.split()).removeprefix("error: ")[:200]

"""One cluster as one end of a link: its queue, and the few small files through which the two sides meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcq.planning.waves import nodes_left
from hpcq.run_folder.journal_state import Attempt
from hpcq.run_folder.paths import read_json_or_none
from hpcq.runner.link.jobs import LinkJob
from hpcq.runner.link.state import LinkState
from hpcq.runner.queue.account import Account
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.outcome import Left
from hpcq.runner.queue.record import Record
from hpcq.runner.queue.yield_policy import RetryLater
from hpcq.runner.site.place import Place
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot
from hpcq.transport import quote

#: What a live side reports about itself: small files, fetched with every poll.
_SMALL_FILES = ("started.json", "ready.json", "probe.status", "probe.err", "exit.json")


@dataclass(frozen=True, slots=True)
class Ready:
    """A running side; port 0: it does not listen."""

    address: str
    port: int


class LinkSide(ClusterQueue):
    """What a link's driver knows about one of its ends. It shares the account with the cluster's own pairs."""

    def __init__(self, name: str, here: Place, account: Account, record: Record[LinkState], retry_later: RetryLater) -> None:
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
        idle = {state.node for state in states if state.condition is NodeCondition.IDLE}
        asked = {node for job in jobs for node in job.nodes}
        available = idle.union(*(job.nodes for job in jobs if job.running))
        counts = [nodes_left(available, asked, budget)]
        counts += [] if budget.jobs_at_most is None else [budget.jobs_at_most - len(jobs)]
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
        return Ready(str(said.get("address") or "-"), int(said.get("port") or 0)) if said else None

    def reached(self, attempt: Attempt) -> bool | None:
        """Whether an attempt could connect to the other side; None if it has not reported that yet."""
        said = read_json_or_none(self.folder / attempt.folder / "probe.status")
        return said.get("rc") == 0 if said else None

    def probe_words(self, attempt: Attempt) -> str:
        """Return what the kernel said when it could not connect."""
        try:
            text = (self.folder / attempt.folder / "probe.err").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return " ".join(text.split()).removeprefix("error: ")[:200]

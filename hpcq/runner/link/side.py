"""One cluster as one end of a link: looks, submissions, and the few small files of the rendezvous.

Hides which scheduler and transport are there, when a question is worth asking, and that a connection may break at any of
these words.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from hpcq.planning.waves import nodes_left
from hpcq.runner.drive import yield_policy
from hpcq.runner.drive.account import Account
from hpcq.runner.drive.attempt_files import AttemptFiles
from hpcq.runner.drive.outcome import read_object
from hpcq.runner.drive.reservations import Held
from hpcq.runner.drive.yield_policy import YieldPolicy
from hpcq.runner.link.jobs import LinkJob
from hpcq.runner.link.state import SideAttempt
from hpcq.runner.site.place import Place
from hpcq.scheduler.base import JobState, NodeCondition, NodeState, QueueQuery, QueueSnapshot, Submission, Submitted
from hpcq.sorting import natural
from hpcq.transport import quote

#: What a side says of itself while it lives; small, fetched at every look.
_SMALL_FILES = ("started.json", "ready.json", "probe.status", "probe.err", "exit.json")


@dataclass(frozen=True, slots=True)
class Ready:
    """A side that runs; port 0: it does not listen."""

    address: str
    port: int


class LinkSide:
    """What a link's driver knows of one of its ends; the account is shared with the cluster's own pairs."""

    def __init__(self, name: str, here: Place, account: Account, link_name: str) -> None:
        self.name = name
        self.cluster = here.cluster
        self.transport = here.transport
        self.scheduler = here.scheduler
        self.account = account
        self.pace = account.pace
        self.folder = here.run.path / link_name
        self.run_root = here.root
        self.root = f"{here.root}/links/{link_name}"
        self.at = AttemptFiles(self.transport, self.scheduler, self.folder, self.root, self.pace.ask)
        self.citizen = YieldPolicy(account.budget, here.cluster.patience_s)
        #: Why nothing may start there now.
        self.paused: str | None = None
        self._looked_at = -1e9

    # -- the scheduler ----------------------------------------------------------------------------------------------

    def look(self, live: Sequence[SideAttempt], *, refill: bool) -> QueueSnapshot | None:
        """One command for all that is to be known now; None where it can wait: running sides tell by files how they do."""
        now = time.monotonic()
        closed = self.citizen.closed(yield_policy.local_time()) is not None
        room = refill and not closed and not self.account.full()
        question = QueueQuery(
            native_ids=[attempt.native_id for attempt in live],
            nodes=room or self.citizen.wants_nodes(live, now),
            others=self.account.budget.gives_way,
            mine=room and self.account.limit.jobs() is not None,
        )
        quiet = all(one.state is JobState.RUNNING and not one.stopped and not one.withdrawal for one in live)
        quiet = quiet and not room and closed == (self.paused is not None) and not (live and question.others)
        if quiet and now - self._looked_at < self.pace.poll_max_s:
            return None
        self.pace.ask()
        self._looked_at = time.monotonic()
        return self.scheduler.look(question)

    def free(self, states: Sequence[NodeState], room: int | None, walltime_s: float) -> tuple[set[str], int]:
        """The idle nodes that may have a job with this time limit, and how many; room: what the site's limits leave."""
        jobs, budget = self.account.active_jobs(), self.account.budget
        idle = {state.node for state in states if state.condition is NodeCondition.IDLE}
        asked = {node for job in jobs for node in job.nodes}
        available = idle.union(*(job.nodes for job in jobs if job.running))
        if self.account.own_reservation is not None and self.account.own_reservation.held:
            budget = replace(budget, node_share_ratio=1.0)  # it is no larger than the share of the nodes idle when it was made
        counts = [nodes_left(available, asked, budget)]
        counts += [] if budget.jobs_at_most is None else [budget.jobs_at_most - len(jobs)]
        counts += [] if room is None else [room]
        left_s = self.account.node_seconds_left()
        counts += [] if math.isinf(left_s) else [int(left_s // walltime_s)]
        return idle - asked, max(0, min(counts))

    def reserve(self, wanted: Set[str], states: Sequence[NodeState]) -> str | None:
        """Make the run's own reservation of those wanted nodes that are idle, where one must be made before a job is handed in.

        Returns the refusal where the campaign is not to go on without.
        """
        own_reservation = self.account.own_reservation
        if own_reservation is None or not own_reservation.wanted:
            return None
        idle = {state.node for state in states if state.condition is NodeCondition.IDLE}
        nodes = sorted(idle & wanted, key=natural)[: self.account.budget.node_limit(len(idle))]
        refused = own_reservation.hold(nodes) is Held.REFUSED and not own_reservation.given_up
        return own_reservation.refusal if refused else None

    def push(self, job: LinkJob) -> None:
        """Bring a job's folder to the cluster."""
        self.transport.push(self.folder, self.root, [job.folder])

    def expected_wait_s(self, job: LinkJob) -> float | None:
        """In how many seconds the job would start; None where the scheduler does not say."""
        self.pace.ask()
        return self.scheduler.expected_wait_s(self._submission(job.tag, job.folder, job.nodes, job.walltime_s))

    def submit(self, job: LinkJob) -> Submitted:
        """Hand a job in."""
        return self.scheduler.submit([self._submission(job.tag, job.folder, job.nodes, job.walltime_s)])[0]

    def cancel(self, attempts: Sequence[SideAttempt], *, queued_only: bool = False) -> None:
        """End attempts, queued or running; queued_only: one that has started meanwhile goes on."""
        native_ids = [attempt.native_id for attempt in attempts if attempt.native_id]
        if native_ids:
            self.scheduler.cancel(native_ids, queued_only=queued_only)

    # -- files ------------------------------------------------------------------------------------------------------

    def fetch_small(self, attempts: Sequence[SideAttempt]) -> None:
        """Bring what live attempts say of themselves."""
        names = [f"{attempt.folder}/{name}" for attempt in attempts for name in _SMALL_FILES]
        if names:
            self.transport.pull(self.root, names, self.folder)

    def tell(self, attempt: SideAttempt, name: str, text: str) -> None:
        """Put a file of one line into an attempt's folder, whole or not at all."""
        path = quote(f"{self.root}/{attempt.folder}/{name}")
        self.transport.sh(f"printf '%s\\n' {quote(text)} >{path}.part && mv {path}.part {path}")

    def ready(self, attempt: SideAttempt) -> Ready | None:
        """Where an attempt listens, as far as its files have come; None while it has not said so."""
        said = read_object(self.folder / attempt.folder / "ready.json")
        return Ready(str(said.get("address") or "-"), int(said.get("port") or 0)) if said else None

    def reached(self, attempt: SideAttempt) -> bool | None:
        """Whether an attempt could connect to the other side; None while it has not said so."""
        said = read_object(self.folder / attempt.folder / "probe.status")
        return said.get("rc") == 0 if said else None

    def probe_words(self, attempt: SideAttempt) -> str:
        """What the kernel said when it could not."""
        try:
            text = (self.folder / attempt.folder / "probe.err").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return " ".join(text.split()).removeprefix("error: ")[:200]

    def _submission(self, tag: str, folder: str, nodes: tuple[str, ...], walltime_s: int) -> Submission:
        return Submission(tag, f"{self.root}/{folder}/job.sh", nodes, walltime_s)

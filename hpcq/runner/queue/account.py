"""What one run uses of one cluster, for the cluster's own pairs and its links together, and what it may still use.

alpha's own pairs -----+
alpha's side of a link +--> Account: node-seconds, live jobs, queries --> budget, limits of the site, pace
...                    +
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hpcq.clock import Clock
from hpcq.definition.budget import Budget
from hpcq.definition.model import Cluster
from hpcq.errors import TransportError
from hpcq.planning.waves import ActiveJob
from hpcq.run_folder.journal_state import Attempt
from hpcq.runner.queue.pace import Pace
from hpcq.runner.queue.reservations import OwnReservation
from hpcq.runner.queue.shared_account import Held, SharedAccount
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobState, QueueQuery, QueueSnapshot
from hpcq.units import count_of, plain

#: A limit that hpcq met but did not read may change later.
_LEARNED_FOR_S = 600.0


class Limit:
    """How many jobs the site allows this user: read from the accounting, or learned from a refusal."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._read_limit: int | None = None
        self._asked = False
        self._learned: tuple[int, float] | None = None

    def jobs(self) -> int | None:
        """Return how many jobs this user may have; None without a limit. Asks the accounting once."""
        if not self._asked:
            self._asked = True
            self._read_limit = self._scheduler.submit_limit()
        if self._learned is not None and self._clock.now_s() - self._learned[1] > _LEARNED_FOR_S:
            self._learned = None
        limits = [limit for limit in (self._read_limit, self._learned[0] if self._learned else None) if limit is not None]
        return min(limits, default=None)

    def room(self, snapshot: QueueSnapshot) -> int | None:
        """Return how many more jobs this user may have; None without a limit. Other jobs of the same user count."""
        limit = self.jobs()
        return None if limit is None or snapshot.mine is None else max(0, limit - snapshot.mine)

    def met(self, ours: int, taken: int) -> int:
        """Learn the limit from a refusal beside `ours` live jobs, `taken` of them just now. Returns the limit.

        0: the user has no job at all, so the limit is not on their number.
        """
        mine = self._scheduler.look(QueueQuery(mine=True)).mine
        live = ours if mine is None else max(mine, taken)
        if live:
            self._learned = (live, self._clock.now_s())
        return live


@dataclass(frozen=True, slots=True)
class Share:
    """What one part of a run uses of the cluster."""

    node_seconds: Callable[[], float]
    live: Callable[[], Sequence[Attempt]]


@dataclass(slots=True)
class Account:
    """The account of one cluster, shared by every driver that asks the cluster for nodes."""

    budget: Budget
    pace: Pace
    limit: Limit
    #: The reservation that the run makes for itself; None if the campaign wants none.
    own_reservation: OwnReservation | None = None
    shares: list[Share] = field(default_factory=list)
    #: What all runs of this user take there together; None: this run is the only one that counts.
    shared: SharedAccount | None = None

    @property
    def clock(self) -> Clock:
        """Return the clock that all drivers of the cluster share."""
        return self.pace.clock

    def budget_now(self, *, alone: bool = False) -> Budget:
        """Return the budget. alone: as if no other run of this user took anything.

        Inside a reservation its share of the nodes does not count: it was applied when the reservation was made.
        """
        budget = self.budget
        if self.shared is not None and not alone:
            others, limits = self.shared.others, self.shared.limits
            jobs, nodes = limits.jobs_at_most, limits.nodes_at_most
            budget = budget.tightest(
                Budget(
                    jobs_at_most=None if jobs is None else max(0, jobs - others.job_count),
                    nodes_at_most=None if nodes is None else max(0, nodes - len(others.nodes)),
                    elsewhere_count=len(others.nodes),
                )
            )
        if self.own_reservation is None or not self.own_reservation.held:
            return budget
        return replace(budget, node_share_ratio=1.0)

    # -- what all runs of this user take ------------------------------------------------------------------------------

    def refresh(self) -> list[str]:
        """Look for the stop file and for other runs. Returns what a person should hear."""
        if self.shared is None:
            return []
        self.shared.refresh(self._held_now(), self._used())
        return self.shared.news()

    def stopped(self) -> str | None:
        """Return the words of the stop file of this user's work directory; None while there is none."""
        return None if self.shared is None else self.shared.stopped

    def open(self) -> bool:
        """Whether this driver may choose jobs now: what other runs take is known, and none of them books meanwhile."""
        return self.shared is None or self.shared.open()

    def book(self, jobs: Sequence[tuple[str, ...]], walltime_s: float) -> bool:
        """Book the next jobs for all runs to see; none: give the lock back. False: another driver took the lock."""
        if self.shared is None:
            return True
        if not jobs:
            self.shared.release()
            return True
        return self.shared.book(self._held_now().and_more(jobs, walltime_s), self._used())

    def close(self) -> None:
        """Write what this run still takes, which is nothing when all its parts have ended."""
        if self.shared is not None:
            with contextlib.suppress(TransportError):  # then its last entry counts until the limits of its jobs are over
                self.shared.refresh(self._held_now(), self._used(), at_once=True)

    def taken_elsewhere(self, job_node_seconds: float) -> str:
        """Say why limits over all runs leave no room for a job that may take so much.

        Call it where this run alone would have room.
        """
        if self.shared is None:
            return ""
        others, most_s = self.shared.others, self.shared.limits.node_seconds_at_most
        if most_s is not None and self.node_seconds_for_all() < job_node_seconds:
            took_s = others.node_seconds + self._used()
            return f"all runs of this user took or hold {took_s:.0f} node-seconds in 24 hours, {plain(most_s)} are allowed"
        runs = ", ".join(others.runs[:3]) + (", ..." if len(others.runs) > 3 else "")
        taken = f"{count_of(others.job_count, 'job')} on {count_of(len(others.nodes), 'node')}"
        return f"other runs of this user ({runs}) take what the cluster file allows: {taken}" if others.runs else ""

    def node_seconds_for_all(self) -> float:
        """Return what the limit of the cluster file over all runs of the last 24 hours leaves for further jobs."""
        if self.shared is None or self.shared.limits.node_seconds_at_most is None:
            return math.inf
        live = sum(one.node_seconds_at_most for one in self.live())
        return self.shared.limits.node_seconds_at_most - self.shared.others.node_seconds - self._used() - live

    def _held_now(self) -> Held:
        live = self.live()
        seconds = sum(one.node_seconds_at_most for one in live)
        return Held(tuple(one.nodes for one in live), seconds, max((one.walltime_s for one in live), default=0.0))

    # -- what this run takes ------------------------------------------------------------------------------------------

    def live(self) -> list[Attempt]:
        """Return all jobs of this run, of any part, that are queued or running there."""
        return [attempt for share in self.shares for attempt in share.live()]

    def active_jobs(self) -> list[ActiveJob]:
        """Return the same jobs in the planner's form."""
        return [ActiveJob(attempt.nodes, attempt.state is not JobState.QUEUED) for attempt in self.live()]

    def held(self) -> set[str]:
        """Return the nodes that jobs of this run have or ask for, and those of its own reservation."""
        nodes = {node for attempt in self.live() for node in attempt.nodes}
        return nodes | set(self.own_reservation.nodes) if self.own_reservation is not None else nodes

    def site(self, cluster: Cluster) -> Cluster:
        """Return the cluster as scripts must see it now: with the run's own reservation and the hours, if any."""
        left_s = [hours.seconds_left(self.clock.local_time()) for hours in self.budget.hours]
        cluster = replace(cluster, start_within_s=min(left_s, default=None))
        if self.own_reservation is None or not self.own_reservation.held:
            return cluster
        return replace(cluster, reservation=self.own_reservation.name)

    def mind_reservation(self, paused: str | None) -> None:
        """Prolong the run's own reservation, or drop it while users need its nodes."""
        if self.own_reservation is not None:
            if paused is None:
                self.own_reservation.keep()
            elif not self.live():
                self.own_reservation.drop()

    def spent(self) -> str | None:
        """Say that the budget of node-seconds is used up; None if it is not."""
        used_s, allowed_s = self._used(), self.budget.node_seconds_at_most
        if allowed_s is None or used_s < allowed_s:
            return None
        return self._used_words()

    def node_seconds_left(self) -> float:
        """Return what further jobs may use.

        The budget then holds even if every live job needs its whole time limit.
        """
        if self.budget.node_seconds_at_most is None:
            return math.inf
        return self.budget.node_seconds_at_most - self._used() - sum(one.node_seconds_at_most for one in self.live())

    def too_little(self, wanted: str) -> str:
        """Say that the rest of the budget is too small for a job. `wanted`: what that job would use."""
        return f"{self._used_words()}: {wanted}"

    def _used(self) -> float:
        return sum(share.node_seconds() for share in self.shares)

    def _used_words(self) -> str:
        return f"budget: {self._used():.0f} node-seconds were used, {self.budget.node_seconds_at_most or 0:.0f} are allowed"

    def full(self) -> bool:
        """Whether hpcq may not ask for more jobs now.

        If only other runs fill a limit, a run without jobs still looks, so that it can say what it waits for.
        """
        most, count = self.budget.jobs_at_most, len(self.live())
        most_now = self.budget_now().jobs_at_most
        return (most is not None and count >= most) or (most_now is not None and 0 < count >= most_now)

"""What one run takes of one cluster, its own pairs and its links together, and what it may still take.

alpha's own pairs -----+
alpha's side of a link +--> Account: node-seconds, live jobs, questions --> budget, limits of the site, pace
...                    +
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hpcq.clock import Clock
from hpcq.definition.budget import Budget
from hpcq.definition.model import Cluster
from hpcq.planning.waves import ActiveJob
from hpcq.run_folder.journal_state import Attempt
from hpcq.runner.queue.pace import Pace
from hpcq.runner.queue.reservations import OwnReservation
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobState, QueueQuery, QueueSnapshot

#: A limit that was met, not read, may be another one tomorrow.
_LEARNED_FOR_S = 600.0


class Limit:
    """How many jobs the site lets this user have: read from the accounting, or met."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._read_limit: int | None = None
        self._asked = False
        self._learned: tuple[int, float] | None = None

    def jobs(self) -> int | None:
        """How many jobs this user may have; None is no limit. The accounting is asked once."""
        if not self._asked:
            self._asked = True
            self._read_limit = self._scheduler.submit_limit()
        if self._learned is not None and self._clock.now_s() - self._learned[1] > _LEARNED_FOR_S:
            self._learned = None
        limits = [limit for limit in (self._read_limit, self._learned[0] if self._learned else None) if limit is not None]
        return min(limits, default=None)

    def room(self, snapshot: QueueSnapshot) -> int | None:
        """How many more jobs the scheduler lets this user have; None is no limit. Other jobs of the same user count."""
        limit = self.jobs()
        return None if limit is None or snapshot.mine is None else max(0, limit - snapshot.mine)

    def met(self, ours: int, taken: int) -> int:
        """A job was refused for a limit beside `ours` live ones, `taken` of them just now: returns what the limit is.

        0: the user has no job at all, so it is no limit on their number.
        """
        mine = self._scheduler.look(QueueQuery(mine=True)).mine
        live = ours if mine is None else max(mine, taken)
        if live:
            self._learned = (live, self._clock.now_s())
        return live


@dataclass(frozen=True, slots=True)
class Share:
    """What one part of a run takes of the cluster."""

    node_seconds: Callable[[], float]
    live: Callable[[], Sequence[Attempt]]


@dataclass(slots=True)
class Account:
    """One cluster's; every driver that asks it for nodes has the same one."""

    budget: Budget
    pace: Pace
    limit: Limit
    #: The reservation that the run makes for itself; None where the campaign wants none.
    own_reservation: OwnReservation | None = None
    shares: list[Share] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        """The clock that all drivers of the cluster go by."""
        return self.pace.clock

    def budget_now(self) -> Budget:
        """The budget; its share of the nodes was observed when a reservation was made, and does not count within it."""
        if self.own_reservation is None or not self.own_reservation.held:
            return self.budget
        return replace(self.budget, node_share_ratio=1.0)

    def live(self) -> list[Attempt]:
        """All jobs of this run that are queued or running there, of whatever part."""
        return [attempt for share in self.shares for attempt in share.live()]

    def active_jobs(self) -> list[ActiveJob]:
        """The same, as the planner sees them."""
        return [ActiveJob(attempt.nodes, attempt.state is not JobState.QUEUED) for attempt in self.live()]

    def held(self) -> set[str]:
        """The nodes that jobs of this run have or ask for, and those of its own reservation."""
        nodes = {node for attempt in self.live() for node in attempt.nodes}
        return nodes | set(self.own_reservation.nodes) if self.own_reservation is not None else nodes

    def site(self, cluster: Cluster) -> Cluster:
        """The cluster as scripts must see it now: within the run's own reservation, and the hours, where there are such."""
        left_s = [hours.seconds_left(self.clock.local_time()) for hours in self.budget.hours]
        cluster = replace(cluster, start_within_s=min(left_s, default=None))
        if self.own_reservation is None or not self.own_reservation.held:
            return cluster
        return replace(cluster, reservation=self.own_reservation.name)

    def mind_reservation(self, paused: str | None) -> None:
        """The reservation of the run's own: prolonged, or given back while users need its nodes."""
        if self.own_reservation is not None:
            if paused is None:
                self.own_reservation.keep()
            elif not self.live():
                self.own_reservation.drop()

    def spent(self) -> str | None:
        """In words that the budget of node-seconds is used up; None where it is not."""
        used_s, allowed_s = self._used(), self.budget.node_seconds_at_most
        if allowed_s is None or used_s < allowed_s:
            return None
        return self._used_words()

    def node_seconds_left(self) -> float:
        """What further jobs may take at most, so that the budget holds even if every live one needs its whole time limit."""
        if self.budget.node_seconds_at_most is None:
            return math.inf
        return self.budget.node_seconds_at_most - self._used() - sum(one.node_seconds_at_most for one in self.live())

    def too_little(self, wanted: str) -> str:
        """In words that what is left of the budget is not enough for a job; `wanted`: what that would take."""
        return f"{self._used_words()}: {wanted}"

    def _used(self) -> float:
        return sum(share.node_seconds() for share in self.shares)

    def _used_words(self) -> str:
        return f"budget: {self._used():.0f} node-seconds were used, {self.budget.node_seconds_at_most:g} are allowed"

    def full(self) -> bool:
        """Whether no more jobs may be asked for now."""
        most = self.budget.jobs_at_most
        return most is not None and len(self.live()) >= most

"""Decide how often to query a scheduler. Hides counting and jitter.

    something happens            1 s between two queries, while queries are left
    nothing happens              the interval grows by 50 % each time, up to `poll_interval_s` (5 s)
    always                       30 queries at most, plus one per `poll_interval_s` that has passed
    answers take long            nine times as long passes before the next query, a minute at most
    five failures in a row       hpcq says so, and doubles the interval, up to a minute

So a short campaign feels quick, and in the steady state hpcq queries a cluster at most once per 5 s.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hpcq.clock import Clock
from hpcq.definition.model import Cluster
from hpcq.scheduler.kinds import describe

#: After this many failed queries in a row, the driver slows down and says so.
FAILURES_SAID = 5
_GROWTH = 1.5
_SLOWEST_S = 60.0
#: A controller that takes this long to answer is busy; then hpcq asks for at most a tenth of the time.
_SLOW_ANSWER_S, _PAUSE_PER_ANSWER = 2.0, 9.0
_BURST_COUNT = 30.0
#: A driver that sleeps for long looks this often whether somebody wants it to end.
ATTENTIVE_S = 5.0


@dataclass(slots=True)
class Pace:
    """The rhythm of one driver with one cluster. grace_s: how long files on shared file systems may be late."""

    query_s: float
    poll_max_s: float
    grace_s: float
    refill_s: float
    clock: Clock = field(default_factory=Clock)
    failures: int = 0
    interval_s: float = field(init=False)
    _left: float = field(default=_BURST_COUNT, init=False)
    _counted_at: float = field(init=False)
    _slow_s: float = field(default=0.0, init=False)
    _answered_at: float = field(default=float("-inf"), init=False)
    _asked_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.interval_s = self.query_s
        self._counted_at = self.clock.now_s()

    @classmethod
    def of(cls, cluster: Cluster, clock: Clock) -> Pace:
        """Return the pace for a cluster.

        At most one query per second for a batch system, more for this machine's own queue.
        """
        if describe(cluster.scheduler).here_only:
            return cls(query_s=0.1, poll_max_s=0.5, grace_s=cluster.files_appear_within_s, refill_s=0.1, clock=clock)
        poll_s = cluster.poll_interval_s
        return cls(query_s=1.0, poll_max_s=poll_s, grace_s=cluster.files_appear_within_s, refill_s=poll_s, clock=clock)

    def ask(self) -> None:
        """Wait until a query is allowed, and count it."""
        self._count()
        missing_s = max(0.0, 1.0 - self._left) * self.refill_s
        wait_s = max(missing_s, self._asked_at + self.query_s - self.clock.now_s())
        if wait_s > 0:
            self.clock.sleep(wait_s)
            self._count()
        self._left -= 1.0
        self._asked_at = self.clock.now_s()

    def sleep(self, *, eager: bool, least_s: float = 0.0, wakes: Callable[[], bool] = lambda: False) -> None:
        """Wait between two turns. eager: there may soon be something to do. least_s: nothing can happen before.

        wakes: whether a person wants something, asked every few seconds.
        """
        if eager and self.failures == 0:
            self.interval_s = self.query_s
        left_s = max(self.interval_s, least_s, self._slow_s) * random.uniform(0.9, 1.1)  # noqa: S311 - jitter, so that drivers do not march in step
        while left_s > 0 and not wakes():
            self.clock.sleep(min(left_s, ATTENTIVE_S))
            left_s -= ATTENTIVE_S
        self.interval_s = min(max(self.poll_max_s, self.interval_s), self.interval_s * _GROWTH)

    def answered(self, took_s: float) -> None:
        """Note how long an answer took: a busy controller is asked less often."""
        self._slow_s = min(_SLOWEST_S, _PAUSE_PER_ANSWER * took_s) if took_s >= _SLOW_ANSWER_S else 0.0
        self._answered_at = self.clock.now_s()

    @property
    def slow(self) -> bool:
        """Whether the last answer took long."""
        return self._slow_s > 0

    @property
    def rests(self) -> bool:
        """Whether the last answer took so long that the next query must wait, for a driver that does not sleep here."""
        return self.clock.now_s() < self._answered_at + self._slow_s

    def failed(self) -> bool:
        """Count a failed query; returns whether hpcq should tell a person."""
        self.failures += 1
        if self.failures >= FAILURES_SAID:
            self.interval_s = min(_SLOWEST_S, self.interval_s * 2)
        return self.failures in {1, FAILURES_SAID}

    def succeeded(self) -> bool:
        """Forget earlier failures; returns whether hpcq had told a person about them."""
        many = self.failures >= FAILURES_SAID
        self.failures = 0
        return many

    def _count(self) -> None:
        now = self.clock.now_s()
        self._left = min(_BURST_COUNT, self._left + (now - self._counted_at) / self.refill_s)
        self._counted_at = now

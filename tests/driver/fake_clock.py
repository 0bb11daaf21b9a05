"""A clock that only waiting moves, and things that happen at their time."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Callable

from hpcq.clock import Clock

START = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


class FakeClock(Clock):
    """Local time is UTC. What is due within a wait happens at its own moment of it."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, passed_s: float, happens: Callable[[], object]) -> None:
        """Let something happen at this moment."""
        heapq.heappush(self._due, (passed_s, next(self._numbers), happens))

    def now_s(self) -> float:
        return 1000.0 + self.passed_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        until_s = self.passed_s + seconds
        while self._due and self._due[0][0] <= until_s:
            moment_s, _, happens = heapq.heappop(self._due)
            self.passed_s = max(self.passed_s, moment_s)
            happens()
        self.passed_s = max(self.passed_s, until_s)

    def utc(self) -> dt.datetime:
        return self.utc_at(self.passed_s)

    def utc_at(self, passed_s: float) -> dt.datetime:
        """What the wall clock says so long after the start."""
        return START + dt.timedelta(seconds=passed_s)

    def local_time(self) -> dt.time:
        return self.utc().time()

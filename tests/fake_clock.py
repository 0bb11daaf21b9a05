"""A clock that only waiting moves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from hpcq.clock import Clock

START = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


class FakeClock(Clock):
    """`before_sleep` is told of each wait; local time is UTC."""

    def __init__(self, before_sleep: Callable[[float], None] | None = None) -> None:
        self.passed_s = 0.0
        self._before_sleep = before_sleep

    def now_s(self) -> float:
        return 1000.0 + self.passed_s

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        if self._before_sleep is not None:
            self._before_sleep(seconds)
        self.passed_s += seconds

    def utc(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.passed_s)

    def local_time(self) -> dt.time:
        return self.utc().time()

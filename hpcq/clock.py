"""The only place where drivers read the time and wait. Tests give them another clock."""

from __future__ import annotations

import datetime as dt
import time


class Clock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait this long."""
        time.sleep(seconds)

    def utc(self) -> dt.datetime:
        """The time of the wall clock, in UTC."""
        return dt.datetime.now(dt.UTC)

    def time_in(self, seconds: float) -> str:
        """The time of day this many seconds from now, for people: 14:05:30."""
        return (self.utc() + dt.timedelta(seconds=seconds)).astimezone().strftime("%H:%M:%S")

    def local_time(self) -> dt.time:
        """The time of day where the driver runs. A campaign's `hours` refer to this clock."""
        return self.utc().astimezone().time()

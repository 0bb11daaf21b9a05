"""The one place where drivers ask what time it is and wait; a test gives them a clock of its own."""

from __future__ import annotations

import datetime as dt
import time


class Clock:
    """This machine's time."""

    def now_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def utc(self) -> dt.datetime:
        """What the wall clock says."""
        return dt.datetime.now(dt.UTC)

    def time_in(self, seconds: float) -> str:
        """The time of day so many seconds from now, for a person: 14:05:30."""
        return (self.utc() + dt.timedelta(seconds=seconds)).astimezone().strftime("%H:%M:%S")

    def local_time(self) -> dt.time:
        """The time of day where the driver runs; a campaign's `hours` mean this clock."""
        return self.utc().astimezone().time()

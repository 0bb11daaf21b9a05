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

    def local_time(self) -> dt.time:
        """The time of day where the driver runs; a campaign's `hours` mean this clock."""
        return self.utc().astimezone().time()

"""The only place where drivers read the time and wait; what bounds a block; a node's time of day beside the driver's."""

from __future__ import annotations

import datetime as dt
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


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


@contextmanager
def time_limit(limit_s: float, error: BaseException, *, of_cpu: bool = False) -> Iterator[None]:
    """Raise this error within the block after so much time, or so much CPU time of this process.

    Threads other than the first take no signals: there the block runs as long as it takes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_long(number: int, frame: object) -> None:  # noqa: ARG001 - as signal handlers are called
        raise error

    timer, number = (signal.ITIMER_VIRTUAL, signal.SIGVTALRM) if of_cpu else (signal.ITIMER_REAL, signal.SIGALRM)
    before = signal.signal(number, too_long)
    others = signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
        signal.setitimer(timer, *others)


# ----------------------------------------------------------------------------------------------------------------------
# Whether a node's time of day can be true.
#
# A node whose clock battery died writes 1970 or 2099 into its results. The driver knows when it submitted the job and when
# it saw its end: what a node says must lie between the two.


#: How far clocks may differ and still be believed. Nodes with a time daemon agree within a second; no order of nights
#: depends on two minutes.
CLOCK_TOLERANCE_S = 120.0
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)


def utc_or_none(value: object) -> str | None:
    """Return a moment in our form that exists in the calendar, or None."""
    return value if isinstance(value, str) and _UTC.fullmatch(value) and _moment(value) is not None else None


@dataclass(frozen=True, slots=True)
class DriverTimes:
    """Between which moments something happened, by the driver's clock: before it submitted it, and when it saw its end.

    If that clock was set back meanwhile, the second moment is the earlier one; all that happened still lies between the two.
    """

    earliest_utc: str
    latest_utc: str

    def off_s(self, claimed_utc: str) -> float:
        """By how many seconds at least a node's clock is ahead (below 0: behind); 0.0 if its time can be true.

        claimed_utc: in our form. The difference counts from CLOCK_TOLERANCE_S on.
        """
        claimed, earliest, latest = _moment(claimed_utc), _moment(self.earliest_utc), _moment(self.latest_utc)
        if claimed is None or earliest is None or latest is None:
            return 0.0
        earliest, latest = min(earliest, latest), max(earliest, latest)
        off_s = (claimed - min(max(claimed, earliest), latest)).total_seconds()
        return off_s if abs(off_s) > CLOCK_TOLERANCE_S else 0.0

    def believed(self, claimed_utc: str) -> str:
        """A node's time of day if it can be true, else the moment when the driver saw the end."""
        return self.latest_utc if self.off_s(claimed_utc) else claimed_utc


def off_words(off_s: float) -> str:
    """`20454 days behind`, `95 min ahead`: how far a clock is from another."""
    units = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, length_s = next(one for one in units if abs(off_s) >= 2 * one[1] or one[1] == 1.0)
    return f"{abs(off_s) / length_s:.0f} {unit} {'ahead' if off_s > 0 else 'behind'}"


def age_s(then_utc: str, now: dt.datetime) -> float:
    """How long ago a moment is that this machine's clock told; 0 if it has been set back behind that moment since.

    Raises ValueError if it is no moment.
    """
    then = _moment(then_utc)
    if then is None:
        raise ValueError(f"{then_utc!r}: must be a time")
    return max(0.0, (now - then).total_seconds())


def seconds_between(earlier_utc: str, later_utc: str) -> float | None:
    """Seconds from one moment to another, below 0 if the first is the later one; None if one is no moment."""
    earlier, later = _moment(earlier_utc), _moment(later_utc)
    return None if earlier is None or later is None else (later - earlier).total_seconds()


def _moment(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None

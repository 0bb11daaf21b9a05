"""Bound the CPU time of a block: a regular expression of a description may take longer than anybody waits.

Python looks for signals while it matches, so a timer of this process's CPU time ends the match. Other threads than the
first cannot take signals; there the block runs as long as it takes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_limit(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError within the block once it has used this much CPU time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _too_long(number: int, frame: object) -> None:  # noqa: ARG001 - as signal handlers are called
    raise TimeoutError("the CPU time of this block is used up")

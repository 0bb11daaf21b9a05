"""Waiting for nodes when nothing runs and nothing can be submitted: for how long, and that it is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcq.clock import Clock
from hpcq.runner.queue.record import Record


@dataclass(slots=True)
class WaitForNodes:
    """The patience of one driver."""

    record: Record[Any]
    clock: Clock
    _since_s: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether it waits now."""
        return self._since_s is not None

    def end(self) -> None:
        """Something was submitted, or users wait: the next wait begins anew."""
        self._since_s = None

    def over(self, why: str, patience_s: float) -> bool:
        """Go on waiting, which is said when it begins; whether it has lasted for `patience_s`."""
        now = self.clock.now_s()
        if self._since_s is None:
            self._since_s = now
            self.record.say(f"{why}; waiting {patience_s:g} s")
        return now - self._since_s >= patience_s

"""What the driver of a link holds: its journal and its two ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcq.clock import Clock
from hpcq.definition.linked import Link
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import LinkState
from hpcq.runner.queue.record import Record
from hpcq.runner.queue.yield_policy import RetryLater


@dataclass(frozen=True, slots=True)
class LinkRun:
    """One link of a run. `retry_later`: pairs with a node that was unavailable a moment ago."""

    sides: Mapping[str, LinkSide]
    record: Record[LinkState]
    retry_later: RetryLater

    @property
    def state(self) -> LinkState:
        return self.record.state

    @property
    def link(self) -> Link:
        return self.record.state.link

    @property
    def clock(self) -> Clock:
        return self.sides["from"].clock

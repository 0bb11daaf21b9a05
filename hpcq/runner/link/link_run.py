"""A link in a run, as its driver holds it: its journal and its two ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcq.clock import Clock
from hpcq.definition.model import Link
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import LinkState
from hpcq.runner.queue.record import Record
from hpcq.runner.queue.yield_policy import RetryLater


@dataclass(frozen=True, slots=True)
class LinkRun:
    """`retry_later`: pairs of which a node could not be had a moment ago."""

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

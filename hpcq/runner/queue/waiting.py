"""Wait for nodes while nothing runs and nothing can be submitted. Says so, and for how long.

busy    a user or a reservation has the node: `patience_s` of the cluster file
down    the node is down, drained, powered down or not responding: `nodes: {reboot_within_s: ...}` of the campaign;
        without that key hpcq does not wait
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcq.clock import Clock
from hpcq.definition.model import Cluster
from hpcq.runner.queue.record import Record
from hpcq.scheduler.types import NodeCondition, NodeState

#: A node counts as down only after this time: it may fail to respond for a moment.
_DOWN_FOR_SURE_S = 30.0
_DOWN = frozenset({NodeCondition.DOWN, NodeCondition.DRAINED, NodeCondition.POWERED_DOWN, NodeCondition.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pair cannot run: its nodes with the scheduler's words, and how long to wait for them."""

    nodes: tuple[str, ...]
    patience_s: float
    down: bool


def shortage_of(nodes: Iterable[str], states: Mapping[str, NodeState], cluster: Cluster) -> Shortage:
    """Return what a pair waits for. A node that is no longer in the list counts as down."""
    seen = [(node, states.get(node)) for node in nodes]
    down = any(state is None or state.condition in _DOWN for _, state in seen)
    words = tuple(f"{node} {state.native_state if state is not None else 'gone'}" for node, state in seen)
    least_s = min(_DOWN_FOR_SURE_S, cluster.patience_s)
    return Shortage(words, max(cluster.reboot_within_s, least_s) if down else cluster.patience_s, down)


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
        """End the wait, because a job was submitted or users wait. The next wait starts at zero."""
        if self._since_s is not None:
            self._since_s = None
            self.record.waits("")

    def waited_s(self, why: str, patience_s: float) -> float:
        """Continue to wait, for at most `patience_s`; says so when the wait begins. Returns how long it has lasted."""
        now = self.clock.now_s()
        if self._since_s is None:
            self._since_s = now
            since, until = self.clock.time_in(0), self.clock.time_in(patience_s)
            self.record.waits(f"{why}; waits since {since}, until {until} at most")
        return now - self._since_s

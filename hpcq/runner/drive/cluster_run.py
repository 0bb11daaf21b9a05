"""What the driver of one cluster's own pairs holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcq.planning.plan import Plan, PlannedPair
from hpcq.runner.drive.state import ClusterState
from hpcq.runner.queue.account import Account
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """The state of a driver: the journal, the queue, and what the run may take of the cluster."""

    record: Record[ClusterState]
    queue: ClusterQueue

    @property
    def state(self) -> ClusterState:
        return self.record.state

    @property
    def plan(self) -> Plan:
        return self.record.state.plan

    @property
    def account(self) -> Account:
        return self.queue.account

    @property
    def folder(self) -> Path:
        """Return the cluster's part of the run folder."""
        return self.queue.folder

    @property
    def root(self) -> str:
        """Return the counterpart of that folder on the cluster."""
        return self.queue.root


@dataclass(frozen=True, slots=True)
class Pending:
    """The pairs that wait for a job, in plan order.

    It makes them one by one on demand, since there may be half a million.
    """

    state: ClusterState
    held: Mapping[int, float]
    #: Consider only these; None: all.
    due: frozenset[int] | None = None

    def __iter__(self) -> Iterator[PlannedPair]:
        for index in self.state.pending:
            if index not in self.held and (self.due is None or index in self.due):
                yield self.state.plan.pair_at(index)

    def __len__(self) -> int:
        """Return how many pairs wait, including those on hold."""
        return len(self.state.pending) if self.due is None else len(self.state.pending.keys() & self.due)

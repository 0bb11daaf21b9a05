"""One cluster's part of a run, as its driver holds it: what it is, how to reach it, and the one way to write something down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.budget import Budget
from hpcq.definition.model import Cluster
from hpcq.planning.plan import Plan, PlannedPair
from hpcq.run_folder.journal import Journal
from hpcq.runner.drive.account import Account
from hpcq.runner.drive.state import ClusterState
from hpcq.scheduler.base import Scheduler
from hpcq.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """`folder` is the cluster's part of the run folder, `root` its counterpart on the cluster."""

    folder: Path
    root: str
    plan: Plan
    cluster: Cluster
    account: Account
    transport: Transport
    scheduler: Scheduler
    journal: Journal
    ledger: ClusterState
    tell: Callable[[str], None]

    @property
    def budget(self) -> Budget:
        """What the run may take of the cluster."""
        return self.account.budget

    @property
    def site(self) -> Cluster:
        """The cluster as scripts must see it now."""
        return self.account.site(self.cluster)

    def say(self, text: str) -> None:
        """A word for the person who looks on, and for the log."""
        self.tell(f"{self.cluster.name}: {text}")

    def note(self, event: str, **fields: Any) -> None:
        """Write one event down."""
        self.note_all([{"event": event, **fields}])

    def note_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Write events down with one wait for the disk; then they count."""
        if not events:
            return
        for event in self.journal.append_all(events):
            self.ledger.apply(event)

    def not_run(self, indices: Sequence[int], reason: str) -> None:
        """These pairs are not tried again, and why."""
        self.note_all(
            [
                {"event": "not_run", "job_id": pair.job_id, "pair": [pair.client, pair.server], "reason": reason}
                for pair in map(self.plan.pair_at, indices)
            ]
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """The pairs that wait for a job, in plan order; made one by one as somebody asks, for there may be half a million."""

    plan: Plan
    ledger: ClusterState
    held: Mapping[int, float]
    #: Only these are meant now; None: all.
    due: frozenset[int] | None = None

    def __iter__(self) -> Iterator[PlannedPair]:
        for index in self.ledger.pending:
            if index not in self.held and (self.due is None or index in self.due):
                yield self.plan.pair_at(index)

    def __len__(self) -> int:
        """How many are meant, held ones too."""
        return len(self.ledger.pending) if self.due is None else len(self.ledger.pending.keys() & self.due)

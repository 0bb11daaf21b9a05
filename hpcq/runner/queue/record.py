"""What one part of a run records: its journal, the state that follows from it, and messages for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpcq.run_folder.journal import Journal
from hpcq.runner.queue.run_state import RunState

_State = TypeVar("_State", bound=RunState)


@dataclass(frozen=True, slots=True)
class Record(Generic[_State]):
    """The journal of one part, and its state. An event counts only when it is on the disk."""

    #: The name of the part: a cluster, or a link.
    name: str
    journal: Journal
    state: _State
    tell: Callable[[str], None]

    def say(self, text: str) -> None:
        """Print one line for the person who watches, and for the log."""
        self.tell(f"{self.name}: {text}")

    def waits(self, words: str) -> None:
        """Set what this part waits for, for the terminal, the log and `hpcq status`; empty: it waits no longer."""
        if words != self.state.waiting:
            if words:
                self.say(words)
            self.note("waiting", reason=words)

    def note(self, event: str, **fields: Any) -> None:
        """Record one event."""
        self.note_all([{"event": event, **fields}])

    def note_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events with one wait for the disk; then they count."""
        if not events:
            return
        for event in self.journal.append_all(events):
            self.state.apply(event)

    def not_run(self, indices: Iterable[int], reason: str) -> None:
        """Record that hpcq does not try these pairs again, and why."""
        pairs = list(map(self.state.plan.pair_at, indices))
        self.note_all(
            [
                {"event": "not_run", "job_id": pair.job_id, "pair": [pair.client, pair.server], "reason": reason}
                for pair in pairs
            ]
        )

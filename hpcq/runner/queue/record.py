"""What one part of a run writes down: its journal, the state that follows from it, and words for the person who looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpcq.run_folder.journal import Journal
from hpcq.runner.queue.run_state import RunState

_State = TypeVar("_State", bound=RunState)


@dataclass(frozen=True, slots=True)
class Record(Generic[_State]):
    """The journal of one part, and what it means. An event is on the disk before it counts."""

    #: How the part is called: a cluster, or a link.
    name: str
    journal: Journal
    state: _State
    tell: Callable[[str], None]

    def say(self, text: str) -> None:
        """One line for the person who looks on, and for the log."""
        self.tell(f"{self.name}: {text}")

    def waits(self, words: str) -> None:
        """What this part waits for now, for the terminal, the log and `hpcq status`; empty: for nothing any more."""
        if words != self.state.waiting:
            if words:
                self.say(words)
            self.note("waiting", reason=words)

    def note(self, event: str, **fields: Any) -> None:
        """Write one event down."""
        self.note_all([{"event": event, **fields}])

    def note_all(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Write events down with one wait for the disk; then they count."""
        if not events:
            return
        for event in self.journal.append_all(events):
            self.state.apply(event)

    def not_run(self, indices: Iterable[int], reason: str) -> None:
        """These pairs are not tried again, and why."""
        pairs = list(map(self.state.plan.pair_at, indices))
        self.note_all(
            [
                {"event": "not_run", "job_id": pair.job_id, "pair": [pair.client, pair.server], "reason": reason}
                for pair in pairs
            ]
        )

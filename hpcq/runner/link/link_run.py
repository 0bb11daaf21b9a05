"""A link's part of a run, as its driver holds it: its two ends, and the one way to write something down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcq.definition.model import Link
from hpcq.errors import SchedulerError, TransportError
from hpcq.run_folder.journal import Journal
from hpcq.runner.drive.outcome import Outcome, read_object
from hpcq.runner.drive.yield_policy import RetryLater
from hpcq.runner.link.rendezvous import PATIENCE_OVER
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import LinkState, SideAttempt
from hpcq.scheduler.base import JobReport


@dataclass(frozen=True, slots=True)
class LinkRun:
    """`bounced` are pairs of which a node could not be had a moment ago."""

    sides: Mapping[str, LinkSide]
    journal: Journal
    ledger: LinkState
    tell: Callable[[str], None]
    retry_later: RetryLater = field(default_factory=RetryLater)

    @property
    def link(self) -> Link:
        return self.ledger.link

    def note(self, event: str, **fields: Any) -> None:
        """Write an event down, then believe it."""
        self.ledger.apply(self.journal.append(event, **fields))

    def say(self, text: str) -> None:
        """One line for a person."""
        self.tell(f"{self.link.name}: {text}")

    def not_run(self, indices: Sequence[int], reason: str) -> None:
        """These pairs are not tried again, and why."""
        for pair in map(self.ledger.plan.pair_at, indices):
            self.note("not_run", job_id=pair.job_id, pair=[pair.client, pair.server], reason=reason)

    def end(self, side: LinkSide, attempt: SideAttempt, outcome: Outcome, report: JobReport | None) -> None:
        """Write down how an attempt ended."""
        exit_file = read_object(side.folder / attempt.folder / "exit.json") or {}
        self.note(**side.at.ended(attempt, outcome, report), final=exit_file.get("reason") == PATIENCE_OVER)
        if outcome.outcome != "completed":
            where = f"{attempt.job_id} attempt {attempt.attempt_no} on {side.cluster.name}"
            self.say(f"{where}: {outcome.outcome}: {outcome.reason}")

    @contextlib.contextmanager
    def out_of_reach(self, side: LinkSide) -> Iterator[None]:
        """A failed question changes nothing that is known; it is asked again later, and a person hears of it."""
        try:
            yield
        except (TransportError, SchedulerError) as error:
            if side.pace.failed():
                self.say(f"{error.message} (asking again; {side.pace.failures} times in a row)")
            if isinstance(error, TransportError) and not error.transient:
                raise
        else:
            side.pace.succeeded()

"""Interpret the scheduler's answers to a wave of submissions.

taken          an id
limited        this user may not have more jobs now: the rest of the wave goes back, later waves respect the limit
refused        known words that mean no: the attempts have ended; after 3 such waves in a row, the rest does not run
undetermined   hpcq does not know: look it up, then claim it (claims.py)
unsure         words that hpcq does not know (a standby controller, a rate limit): as undetermined, with a growing pause
never there    nothing of an undetermined wave arrived: the next one follows after a growing pause, too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from hpcq.runner.queue.account import Account
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.runner.queue.outcome import AttemptOutcome
from hpcq.runner.queue.record import Record
from hpcq.scheduler.types import Fate, Submitted

#: After this many refused waves in a row, hpcq gives up.
_REFUSED_WAVES_MAX = 3
#: The pause after a wave that was not taken doubles from the first to the second value.
#: After this many such waves hpcq gives up.
_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 600.0
_UNSURE_WAVES_MAX = 12


class Refusals:
    """The answers to the last waves of one queue."""

    def __init__(self, files: AttemptFiles, record: Record[Any], account: Account) -> None:
        self._files, self._record, self._account = files, record, account
        self._refused_waves = 0
        self._untaken_waves = 0
        self._resume_s = 0.0
        #: The tags of the last wave while nobody knows whether anything of it arrived, and what was said of it.
        self._open: set[str] = set()
        self._words = ""

    @property
    def pausing(self) -> bool:
        """Whether nothing may be submitted yet, because the scheduler did not take the last wave."""
        return self._account.clock.now_s() < self._resume_s

    def begin(self, tags: Collection[str]) -> None:
        """Note that a wave is about to be submitted: its answers may never come."""
        self._open, self._words = set(tags), "no answer"

    def look_up(self, found: Collection[str], never_there: Collection[str], say_here: str) -> None:
        """Note what became of undetermined submissions. If nothing of the last wave arrived, the next one waits."""
        if not self._open.isdisjoint(found):
            self._is_taken()
        elif not self._open.isdisjoint(never_there):
            self._open = set()
            self._pause(f"nothing of the last wave arrived: {self._words}", say_here, meant=False)

    def take(self, answers: Sequence[Submitted], say_here: str) -> bool:
        """Record what happened to a wave. Returns whether more may be submitted now.

        say_here: which cluster, in a link.
        """
        answers = self._without_shared_ids(answers)
        limited = next((answer for answer in answers if answer.limited), None)
        allowed = self._learn_limit(answers) if limited is not None else 0
        if limited is not None and allowed:
            self._record.say(f"{say_here}no more than {allowed} jobs now: {limited.message}")
        events = [self._event(answer, wait=bool(allowed)) for answer in answers]
        self._record.note_all([event for event in events if event is not None])
        if any(answer.native_id for answer in answers):
            self._record.waits("")
            self._is_taken()
            return limited is None
        refused = [one for one in answers if one.refused or (one.limited and one.tried and not allowed)]
        unsure = [one for one in answers if one.unsure]
        open_ones = [one for one in answers if one.undetermined]
        self._open, self._words = {one.tag for one in open_ones}, open_ones[-1].message if open_ones else ""
        if refused or unsure:
            self._open = set()
            words = [*refused, *unsure][-1].message
            self._pause(f"the scheduler refuses: {words}", say_here, meant=bool(refused))
        return False

    def _without_shared_ids(self, answers: Sequence[Submitted]) -> list[Submitted]:
        """Return the answers. An id that two jobs would share is none: both are looked up by their names."""
        ids = Counter([answer.native_id for answer in answers])
        state = self._record.state
        sides = {state.attempts[one.tag].side for one in answers}  # each cluster of a link counts for itself
        ids.update(one.native_id for one in state.active.values() if one.native_id and one.side in sides)
        words = "it is the id of another job, too"
        return [
            Submitted(one.tag, None, f"{one.native_id}: {words}", Fate.UNDETERMINED)
            if one.native_id and ids[one.native_id] > 1
            else one
            for one in answers
        ]

    def _is_taken(self) -> None:
        self._open = set()
        self._refused_waves = self._untaken_waves = 0

    def _pause(self, words: str, say_here: str, *, meant: bool) -> None:
        """Pause after a wave that was not taken, or give up."""
        self._refused_waves += meant
        self._untaken_waves += 1
        if self._refused_waves >= _REFUSED_WAVES_MAX or self._untaken_waves >= _UNSURE_WAVES_MAX:
            self._record.not_run(list(self._record.state.pending), words)
            return
        pause_s = min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** (self._untaken_waves - 1))
        self._resume_s = self._account.clock.now_s() + pause_s
        until = self._account.clock.time_in(pause_s)
        self._record.waits(f"{say_here}{words}; submitting again in {pause_s:g} s, at {until}")

    def _learn_limit(self, answers: Sequence[Submitted]) -> int:
        """Return how many jobs the user has now that a limit refused one. Without any job it cannot be such a limit."""
        taken = sum(bool(answer.native_id) for answer in answers)
        return self._account.limit.met(len(self._account.live()) - len(answers) + taken, taken)

    def _event(self, answer: Submitted, *, wait: bool) -> dict[str, Any] | None:
        """Return the event for a submission; None if its fate is unknown.

        wait: a refusal for a limit does not count as an attempt.
        """
        if answer.native_id:
            return {"event": "submitted", "tag": answer.tag, "native_id": answer.native_id}
        if answer.limited and (wait or not answer.tried):
            attempt = self._record.state.attempts[answer.tag]
            return self._files.ended(attempt, AttemptOutcome("withdrawn", answer.message), None)
        if answer.undetermined or answer.unsure:
            return None
        return {"event": "refused", "tag": answer.tag, "message": answer.message}

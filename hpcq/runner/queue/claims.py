"""Resolve attempts of unknown fate: look them up, claim them, and cancel by name those that arrive later.

    no id            the file beside the script, the scheduler by name -> an id, or after a while a claim
    claimed          the driver made the folder `claim`: a script that starts later ends at once
                     -> withdrawn, watched for a while
    not claimed      the job has started -> its id; or a quota or read-only disk prevents an answer
                     -> it stays undetermined
    told to end      and the scheduler has forgotten it -> claim it: it is withdrawn at once
    lost             the scheduler has forgotten it -> claim it or ask it to end, cancel it by name
                     -> only then is it lost

A job is gone only with a claim: one that merely does not answer may still run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcq.clock import Clock
from hpcq.run_folder.journal_state import Attempt
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.runner.queue.outcome import AttemptOutcome, Left
from hpcq.runner.queue.record import Record
from hpcq.scheduler.types import JobKey, JobReport, JobState
from hpcq.units import parse_utc, utc_now

#: How long a submission that was under way when a driver died may still take to reach the scheduler.
_UNDETERMINED_S = 10.0
#: For how long, and how often, hpcq looks for a withdrawn submission: submit commands retry for minutes.
_LATE_S = 900.0
_LATE_LOOK_S = 60.0
#: A driver does not end before its submit commands have ended or are this old: they try a busy controller for minutes.
_ARRIVES_WITHIN_S = 300.0
#: The reason of an attempt that was withdrawn so.
_UNDER_WAY = "withdrawn while its submit command had not ended"
#: How long after a job's time limit something of it may still run.
_OVERTIME_S = 300.0


class Claims:
    """The attempts of unknown fate of one queue."""

    def __init__(self, files: AttemptFiles, record: Record[Any], clock: Clock) -> None:
        self._files, self._record, self._clock = files, record, clock
        self._since: dict[str, float] = {}
        self._said: set[str] = set()
        #: When hpcq asked a lost job that had started to end.
        self._asked_to_end: dict[str, float] = {}
        #: Since when nothing proves the end of a forgotten job: it can be neither claimed nor told to end.
        self._unproven_since: dict[str, float] = {}
        #: Withdrawn or lost attempts by tag, and until when they may still arrive in the queue.
        self._late: dict[str, float] = {}
        self._looked_s = clock.now_s()
        #: Until when a submission whose answer is missing may still reach the scheduler.
        self.arrive_until_s = clock.now_s()
        for attempt in record.state.attempts.values():
            self._watch_earlier(attempt)

    def settle(self, undetermined: Sequence[Attempt]) -> list[tuple[Attempt, AttemptOutcome]]:
        """Find out what happened to these submissions. Returns those that have ended by this."""
        known = self._files.find(undetermined) if undetermined else {}
        ends: list[tuple[Attempt, AttemptOutcome]] = []
        for attempt in undetermined:
            waited_s = self._clock.now_s() - self._since.setdefault(attempt.tag, self._clock.now_s())
            native_id = known.get(attempt.tag, "")
            if not native_id and waited_s > _UNDETERMINED_S:
                claim = self._files.claim(attempt)
                native_id = claim.native_id
                if claim.taken:
                    self._watch(attempt.tag, waited_s, under_way=claim.under_way)
                    words = _UNDER_WAY if claim.under_way else "the scheduler never had it"
                    ends.append((attempt, AttemptOutcome("withdrawn", words)))
                elif not native_id and waited_s > attempt.walltime_s + _OVERTIME_S:
                    ends.append((attempt, AttemptOutcome("lost", f"hpcq cannot know what happened to it: {claim.words}")))
                elif not native_id and attempt.tag not in self._said:
                    self._said.add(attempt.tag)
                    words = f"{attempt.job_id}: unknown whether it was submitted, and it cannot be claimed: {claim.words}"
                    self._record.say(f"{words}; asking again until its time limit is over")
            if native_id:
                self._record.note("submitted", tag=attempt.tag, native_id=native_id)
        return ends

    def withdrawn(self, reports: Sequence[tuple[Attempt, JobReport | None]], folder: Path) -> set[str]:
        """Claim what hpcq told to end before it started, and what its scheduler has forgotten. Returns the tags.

        With the claim, nothing is to be waited for. folder: what was fetched of them.
        """
        forgotten = [one for one, report in reports if report and report.state is JobState.UNKNOWN and one.ordered]
        return self._files.claim_all([one for one in forgotten if not Left.of(folder / one.folder).started])

    def surely_lost(self, forgotten: Sequence[Attempt], grace_s: float) -> set[str]:
        """Return the tags of those that the scheduler has forgotten and that can no longer measure anything.

        One command each claims them, cancels them and asks them to end, however many there are.
        grace_s: how long a started job may take to end and to write its exit file.
        """
        now = self._clock.now_s()
        fresh = [one for one in forgotten if one.tag not in self._asked_to_end]
        taken = self._files.claim_all(fresh)
        if fresh:
            self._files.scheduler.cancel([one.key for one in fresh])
        self._late.update((one.tag, now + _LATE_S) for one in fresh)
        for one in fresh:
            self._unproven_since.setdefault(one.tag, now)
        overdue = self._ask_to_end([one for one in fresh if one.tag not in taken], now)
        asked = {tag for tag, asked_s in self._asked_to_end.items() if now - asked_s >= grace_s}
        return taken | overdue | (asked & {one.tag for one in forgotten})

    def has_ended(self, attempt: Attempt) -> bool:
        """Whether hpcq itself ordered the end of an attempt because its scheduler had forgotten it."""
        return attempt.tag in self._unproven_since

    def _ask_to_end(self, started: Sequence[Attempt], now: float) -> set[str]:
        """Ask forgotten jobs that had started to end. Returns those that cannot be asked and whose time is over."""
        if not started:
            return set()
        if words := self._files.finish(started):  # their scripts see this without their scheduler
            self._cannot_end(started, words)
            return {one.tag for one in started if now - self._unproven_since[one.tag] > one.walltime_s + _OVERTIME_S}
        for one in started:
            self._asked_to_end[one.tag] = now
            self._record.say(f"{one.job_id}: the scheduler has forgotten it, but it had started: asked to end")
        return set()

    def _cannot_end(self, attempts: Sequence[Attempt], words: str) -> None:
        """Say that nothing proves the end of forgotten jobs: they are not lost before their time limits are over."""
        for attempt in attempts:
            if f"end of {attempt.tag}" not in self._said:
                self._said.add(f"end of {attempt.tag}")
                said = f"the scheduler has forgotten it, and it can neither be claimed nor told to end: {words}"
                self._record.say(f"{attempt.job_id}: {said}; trying again until its time limit is over")

    def cancel_late(self, *, at_once: bool = False) -> None:
        """Cancel jobs that arrived in the queue although they had been withdrawn or lost."""
        now = self._clock.now_s()
        self._late = {tag: until for tag, until in self._late.items() if until > now}
        if not self._late or (now - self._looked_s < _LATE_LOOK_S and not at_once):
            return
        self._looked_s = now
        self._files.ask()
        found = self._files.scheduler.find(sorted(self._late))
        if found:
            self._files.scheduler.cancel([JobKey(native_id, tag) for tag, native_id in found.items()])
        for tag in found.keys() - self._said:
            self._said.add(tag)
            self._record.say(f"{self._record.state.attempts[tag].job_id} arrived late, as job {found[tag]}: cancelled")

    def _watch(self, tag: str, age_s: float, *, under_way: bool) -> None:
        """Look for a submission that is withdrawn. under_way: its command had not ended, so the driver does not end either."""
        now = self._clock.now_s()
        self._late[tag] = now + _LATE_S
        if under_way:
            self.arrive_until_s = max(self.arrive_until_s, now + _ARRIVES_WITHIN_S - age_s)

    def _watch_earlier(self, attempt: Attempt) -> None:
        """Look for what an earlier driver withdrew while its submit command had not ended."""
        if attempt.reason == _UNDER_WAY and attempt.ended_utc:
            age_s = (parse_utc(utc_now()) - parse_utc(attempt.ended_utc)).total_seconds()
            if age_s < _ARRIVES_WITHIN_S:
                self._watch(attempt.tag, age_s, under_way=True)

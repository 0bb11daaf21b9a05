"""Our jobs in the batch system of one cluster: what the drivers of clusters and of links have in common.

    find_undetermined   look up submissions without a known end, or claim them so that they never run (claims.py)
    look, take          one query for all jobs; fetch, judge and record those that have ended
    pause, withdraw     users wait, the hours are over, a node is gone: withdraw queued jobs, end running ones early
    submit              a wave; refusals.py interprets the answers
    cancel              orders, repeated until they take effect

A driver decides what to submit and when. A link's driver also connects two of these queues.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from hpcq.clock import Clock, age_s
from hpcq.nodelist import natural
from hpcq.run_folder.journal import Attempt
from hpcq.run_folder.paths import read_json_or_none
from hpcq.runner.queue.account import Account
from hpcq.runner.queue.attempt_files import AttemptFiles, AttemptOutcome, Left, end_of
from hpcq.runner.queue.reservations import ReservationState
from hpcq.runner.queue.run_state import Record
from hpcq.runner.queue.yield_policy import (
    EndedScripts,
    LastFiles,
    OddWaits,
    PoweredDown,
    RetryLater,
    Silence,
    StandingStill,
    YieldPolicy,
)
from hpcq.runner.site.place import ClusterSite
from hpcq.scheduler.types import Fate, JobKey, JobReport, JobState, QueueQuery, QueueSnapshot, Submission, Submitted
from hpcq.units import parse_utc, utc_now

# ----------------------------------------------------------------------------------------------------------------------
# Resolve attempts of unknown fate: look them up, claim them, and cancel by name those that arrive later.
#
#     no id            the file beside the script, the scheduler by name -> an id, or after a while a claim
#     claimed          the driver made the folder `claim`: a script that starts later ends at once
#                      -> withdrawn, watched for a while
#     not claimed      the job has started -> its id; or a quota or read-only disk prevents an answer
#                      -> it stays undetermined
#     told to end      and the scheduler has forgotten it -> claim it: it is withdrawn at once
#     lost             the scheduler has forgotten it -> claim it or ask it to end, cancel it by name
#                      -> only then is it lost
#
# A job is gone only with a claim: one that merely does not answer may still run.


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
            scheduler_job_id = known.get(attempt.tag, "")
            if not scheduler_job_id and waited_s > _UNDETERMINED_S:
                claim = self._files.claim(attempt)
                scheduler_job_id = claim.scheduler_job_id
                if claim.taken:
                    self._watch(attempt.tag, waited_s, under_way=claim.under_way)
                    words = _UNDER_WAY if claim.under_way else "the scheduler never had it"
                    ends.append((attempt, AttemptOutcome("withdrawn", words)))
                elif not scheduler_job_id and waited_s > attempt.walltime_s + _OVERTIME_S:
                    ends.append((attempt, AttemptOutcome("lost", f"hpcq cannot know what happened to it: {claim.words}")))
                elif not scheduler_job_id and attempt.tag not in self._said:
                    self._said.add(attempt.tag)
                    words = f"{attempt.job}: unknown whether it was submitted, and it cannot be claimed: {claim.words}"
                    self._record.say(f"{words}; asking again until its time limit is over")
            if scheduler_job_id:
                self._record.note("submitted", tag=attempt.tag, scheduler_job_id=scheduler_job_id)
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
            self._record.say(f"{one.job}: the scheduler has forgotten it, but it had started: asked to end")
        return set()

    def _cannot_end(self, attempts: Sequence[Attempt], words: str) -> None:
        """Say that nothing proves the end of forgotten jobs: they are not lost before their time limits are over."""
        for attempt in attempts:
            if f"end of {attempt.tag}" not in self._said:
                self._said.add(f"end of {attempt.tag}")
                said = f"the scheduler has forgotten it, and it can neither be claimed nor told to end: {words}"
                self._record.say(f"{attempt.job}: {said}; trying again until its time limit is over")

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
            self._files.scheduler.cancel([JobKey(scheduler_job_id, tag) for tag, scheduler_job_id in found.items()])
        for tag in found.keys() - self._said:
            self._said.add(tag)
            self._record.say(f"{self._record.state.attempts[tag].job} arrived late, as job {found[tag]}: cancelled")

    def _watch(self, tag: str, age_s: float, *, under_way: bool) -> None:
        """Look for a submission that is withdrawn. under_way: its command had not ended, so the driver does not end either."""
        now = self._clock.now_s()
        self._late[tag] = now + _LATE_S
        if under_way:
            self.arrive_until_s = max(self.arrive_until_s, now + _ARRIVES_WITHIN_S - age_s)

    def _watch_earlier(self, attempt: Attempt) -> None:
        """Look for what an earlier driver withdrew while its submit command had not ended."""
        if attempt.reason == _UNDER_WAY and attempt.end_seen_utc:
            ended_s = age_s(attempt.end_seen_utc, parse_utc(utc_now()))
            if ended_s < _ARRIVES_WITHIN_S:
                self._watch(attempt.tag, ended_s, under_way=True)


# ----------------------------------------------------------------------------------------------------------------------
# Interpret the scheduler's answers to a wave of submissions.
#
# taken          an id
# limited        this user may not have more jobs now: the rest of the wave goes back, later waves respect the limit
# refused        known words that mean no: the attempts have ended; after 3 such waves in a row, the rest does not run
# final          words that mean no to every job of this form: the rest does not run
# undetermined   hpcq does not know: look it up, then claim it (claims.py)
# unsure         words that hpcq does not know (a standby controller, a rate limit): as undetermined, with a growing pause
# never there    nothing of an undetermined wave arrived: the next one follows after a growing pause, too


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
        if any(answer.scheduler_job_id for answer in answers):
            self._record.waits("")
            self._is_taken()
            return limited is None
        refused = [one for one in answers if one.refused or (one.limited and one.tried and not allowed)]
        unsure = [one for one in answers if one.unsure]
        open_ones = [one for one in answers if one.undetermined]
        self._open, self._words = {one.tag for one in open_ones}, open_ones[-1].message if open_ones else ""
        if refused or unsure:
            self._open = set()
            final = [one for one in refused if one.fate is Fate.FINAL]
            words = [*refused, *unsure, *final][-1].message
            if final:
                self._give_up(f"the scheduler refuses: {words}", say_here)
                return False
            self._pause(f"the scheduler refuses: {words}", say_here, meant=bool(refused))
        return False

    def _without_shared_ids(self, answers: Sequence[Submitted]) -> list[Submitted]:
        """Return the answers. An id that two jobs would share is none: both are looked up by their names."""
        ids = Counter([answer.scheduler_job_id for answer in answers])
        state = self._record.state
        sides = {state.attempts[one.tag].side for one in answers}  # each cluster of a link counts for itself
        ids.update(one.scheduler_job_id for one in state.active.values() if one.scheduler_job_id and one.side in sides)
        words = "it is the id of another job, too"
        return [
            Submitted(one.tag, None, f"{one.scheduler_job_id}: {words}", Fate.UNDETERMINED)
            if one.scheduler_job_id and ids[one.scheduler_job_id] > 1
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

    def _give_up(self, words: str, say_here: str) -> None:
        """Run nothing that is left: the scheduler would refuse every other job in the same words."""
        self._record.waits("")
        self._record.say(f"{say_here}{words}; the rest is not run")
        self._record.not_run(list(self._record.state.pending), words)

    def _learn_limit(self, answers: Sequence[Submitted]) -> int:
        """Return how many jobs the user has now that a limit refused one. Without any job it cannot be such a limit."""
        taken = sum(bool(answer.scheduler_job_id) for answer in answers)
        return self._account.limit.met(len(self._account.live()) - len(answers) + taken, taken)

    def _event(self, answer: Submitted, *, wait: bool) -> dict[str, Any] | None:
        """Return the event for a submission; None if its fate is unknown.

        wait: a refusal for a limit does not count as an attempt.
        """
        if answer.scheduler_job_id:
            return {"event": "submitted", "tag": answer.tag, "scheduler_job_id": answer.scheduler_job_id}
        if answer.limited and (wait or not answer.tried):
            attempt = self._record.state.attempts[answer.tag]
            return self._files.ended(attempt, AttemptOutcome("withdrawn", answer.message), None)
        if answer.undetermined or answer.unsure:
            return None
        return {"event": "refused", "tag": answer.tag, "message": answer.message}


# ----------------------------------------------------------------------------------------------------------------------


#: hpcq repeats the order to end a job after this time, until the queue no longer shows the job.
CANCEL_AGAIN_S = 10.0
#: How often a driver whose work is done looks for submissions that may still arrive.
_LATE_AT_END_S = 15.0
#: Folders to fetch in one copy: bounds memory.
_FETCH_CHUNK = 200


class Submittable(Protocol):
    """One job that is ready for submission: its folder is on the cluster, its attempt in the journal."""

    @property
    def tag(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def walltime_s(self) -> int: ...


class ClusterQueue:
    """The jobs of one part of a run on one cluster; `side` is "from" or "to" where that part is a link."""

    def __init__(
        self, here: ClusterSite, account: Account, record: Record[Any], *, folder: Path, root: str, side: str = "",
        retry_later: RetryLater | None = None,
    ) -> None:  # fmt: skip
        """folder: the part's folder here. root: its counterpart on the cluster."""
        self.cluster, self.transport, self.scheduler = here.cluster, here.transport, here.scheduler
        self.kernels = here.campaign.kernels
        self.account, self.record = account, record
        self.pace, self.clock = account.pace, account.clock
        self.folder, self.root, self.side = folder, root, side
        #: Begins what is said of a link's side.
        self._where = f"{self.cluster.name}: " if side else ""
        self.files = AttemptFiles(self.transport, self.scheduler, folder, root, self.pace.ask)
        self.yield_policy = YieldPolicy(account.budget, here.cluster.max_wait_s)
        self.retry_later = retry_later or RetryLater()
        #: What a driver knows about an end, beyond what the scheduler and the files say.
        self.explain: Callable[[Attempt, AttemptOutcome], AttemptOutcome] = lambda _, outcome: outcome
        #: Why no job may start there now.
        self.paused: str | None = None
        self._claims = Claims(self.files, record, self.clock)
        self._refusals = Refusals(self.files, record, account)
        self._cancelled_s = -math.inf
        self._silence = Silence(record, self.pace, self.clock, self._where)
        self._standing = StandingStill(record)
        self._odd_waits = OddWaits(record, self.clock)
        self._last_files = LastFiles(record, self.clock)
        self._ended_scripts = EndedScripts(self.files, record, self.pace, self.clock)
        #: What was said of lists of other users' jobs: each once.
        self._others_refused: set[str] = set()
        self._powered_down = PoweredDown(record, self.clock, self.cluster.name)
        self._remembered_since: dict[str, float] = {}
        self._ended_since: dict[str, float] = {}
        #: Running jobs that hpcq asked to end after the current test.
        self._asked_to_end: set[str] = set()
        self._not_asked: str | None = None
        #: The host of the script of each tournament that has lost a node.
        self._hosts: dict[str, str] = {}
        self._left = set[str]()

    def say(self, text: str) -> None:
        """Print one line for a person. A link's line names the cluster."""
        self.record.say(f"{self._where}{text}")

    def live(self) -> list[Attempt]:
        """Return our attempts there that have not ended."""
        return [attempt for attempt in self.record.state.active.values() if attempt.side == self.side]

    def known(self) -> list[Attempt]:
        """Return those of them that the scheduler has."""
        return [attempt for attempt in self.live() if attempt.scheduler_job_id]

    def out_of_reach(self) -> contextlib.AbstractContextManager[None]:
        """Run queries that may fail. A failure changes no state; hpcq asks again later and tells a person."""
        return self._silence.bounded()

    def find_undetermined(self) -> None:
        """Find out what happened to submissions that an earlier driver or a broken connection left open."""
        open_ones = [attempt for attempt in self.live() if not attempt.scheduler_job_id]
        ends = self._claims.settle(open_ones)
        self._end_all([(attempt, outcome, None) for attempt, outcome in ends])
        found = [one.tag for one in open_ones if one.scheduler_job_id]
        self._refusals.look_up(found, [one.tag for one, _ in ends], self._where)
        self._claims.cancel_late()

    def wait_for_late(self) -> None:
        """Stay until no submit command that has not ended can reach the scheduler any more; cancel what arrives."""
        until_s = self._claims.arrive_until_s
        if (left_s := until_s - self.clock.now_s()) <= 0:
            return
        until = self.clock.time_in(left_s)
        self.record.waits(f"{self._where}submit commands have not ended; looks for their jobs until {until}")
        while (left_s := until_s - self.clock.now_s()) > 0:
            self.clock.sleep(min(_LATE_AT_END_S, left_s))
            with self.out_of_reach():
                self._claims.cancel_late(at_once=True)
        self.record.waits("")

    # -- look and take ------------------------------------------------------------------------------------------------

    def look(self, *, refill: bool) -> QueueSnapshot:
        """Query everything in one command. refill: jobs wait for submission."""
        self.obey_stop()
        live = self.known()
        room = refill and not self.pausing and self.paused is None and self.shut() is None and not self.account.full()
        question = QueueQuery(
            jobs=[attempt.key for attempt in live],
            nodes=room or self.yield_policy.wants_nodes(live, self.clock.now_s()),
            others=self.account.budget.gives_way,
            mine=room and self.account.limit.jobs() is not None,
        )
        self.pace.ask()
        begun_s = self.clock.now_s()
        snapshot = self.scheduler.look(question)
        self.pace.answered(self.clock.now_s() - begun_s)
        if snapshot.nodes is not None:
            self._powered_down.look(snapshot.nodes)
        refused = self.scheduler.others_refused
        if refused and refused not in self._others_refused:
            self._others_refused.add(refused)
            self.say(f"other users' jobs are not listed, so hpcq cannot yield to them: {refused}")
        return snapshot

    def shut(self) -> str | None:
        """Return the stop file or the hours that allow no job now, or None."""
        return self.account.shared.stopped or self.yield_policy.closed(self.clock.local_time())

    def take(self, reports: Mapping[str, JobReport]) -> None:
        """Record what changed; fetch and judge what may have ended."""
        states: list[dict[str, Any]] = []
        suspects: list[tuple[Attempt, JobReport | None]] = []
        for attempt in self.known():
            report = reports.get(attempt.scheduler_job_id)
            if report is None:
                continue
            report = self._bounded(attempt, report)
            if report.state not in {attempt.state, JobState.UNKNOWN}:
                states.append({"event": "state", "tag": attempt.tag, "state": report.state.value, "reason": report.reason})
            attempt.reason = report.reason  # the reason of a wait may change while the state does not
            if report.state.terminal or report.state in {JobState.ENDING, JobState.UNKNOWN}:
                suspects.append((attempt, report))
            elif attempt.shared and report.state is JobState.RUNNING and report.nodes:
                self._end_without_script(attempt, report)
        self.record.note_all(states)
        self._standing.look([(one, reports.get(one.scheduler_job_id)) for one in self.known()])
        self.judge(suspects)
        gone = [(one, said) for one, said in suspects if one.live and said and said.state is not JobState.ENDING]
        self._last_files.look([(one, *self._waits(one, said)) for one, said in gone])
        if overdue := self._ended_scripts.due([one for one in self.known() if one.state is JobState.RUNNING]):
            self.cancel(overdue)

    def _bounded(self, attempt: Attempt, report: JobReport) -> JobReport:
        """Return the report. If the accounting calls a forgotten job running, hpcq believes it up to the time limit."""
        if not report.remembered or report.state.terminal:
            return report
        since_s = self._remembered_since.setdefault(attempt.tag, self.clock.now_s())
        if self.clock.now_s() - since_s < attempt.walltime_s + self.pace.grace_s:
            return report
        words = f"the queue has forgotten it, and its time limit of {attempt.walltime_s:g} s is over"
        return replace(report, state=JobState.UNKNOWN, reason=words)

    def judge(self, suspects: Sequence[tuple[Attempt, JobReport | None]]) -> None:
        """Fetch these attempts and record the ends that they have. No report: hpcq did not ask the scheduler."""
        for start in range(0, len(suspects), _FETCH_CHUNK):
            chunk = suspects[start : start + _FETCH_CHUNK]
            for words in self.files.fetch([attempt for attempt, _ in chunk]):
                if words not in self._left:
                    self._left.add(words)
                    self.say(f"a file of a job stays on the cluster: {words}")
            claimed = self._claims.withdrawn(chunk, self.folder)
            ends = [(attempt, self._end_of(attempt, report, attempt.tag in claimed), report) for attempt, report in chunk]
            silent = {one.tag: one for one, end, said in ends if end and one.tag not in claimed and self._is_silent(one, said)}
            sure = self._claims.surely_lost(list(silent.values()), self.pace.grace_s)
            self._end_all([(one, end, said) for one, end, said in ends if end and (one.tag not in silent or one.tag in sure)])

    def _is_silent(self, attempt: Attempt, report: JobReport | None) -> bool:
        """Whether neither the scheduler nor an exit file tells of a job's end."""
        return report is not None and report.state is JobState.UNKNOWN and not Left.of(self.folder / attempt.folder).exit_file

    def _end_of(self, attempt: Attempt, report: JobReport | None, claimed: bool) -> AttemptOutcome | None:
        left = Left.of(self.folder / attempt.folder)
        waited_s, grace_s = (0.0, 0.0) if report is None else self._waits(attempt, report)
        if self._claims.has_ended(attempt):
            left = replace(left, ran_s=None)  # hpcq told its script to end, not its time limit
        if report is not None and report.state is JobState.CANCELLED and attempt.tag in self._ended_scripts.told:
            report = replace(report, state=JobState.FAILED)  # only to free its nodes: its exit file says how it ended
        outcome = end_of(attempt, report, left, waited_s=waited_s, grace_s=grace_s, claimed=claimed)
        if outcome is not None and outcome.outcome == "cancelled" and not attempt.ordered and self._claims.has_ended(attempt):
            return AttemptOutcome("lost", "its scheduler had forgotten it, so hpcq ended it")  # no operator's cancel
        return outcome

    def _waits(self, attempt: Attempt, report: JobReport) -> tuple[float, float]:
        """Return for how long the files of a job have been waited for, and for how long they may be late."""
        now = self.clock.now_s()
        waited_s = now - self._ended_since.setdefault(attempt.tag, now)
        # One that the queue has never shown, or has forgotten without being told to end, is lost after three times that.
        return waited_s, self.pace.grace_s * (3 if report.state is JobState.UNKNOWN and not attempt.ordered else 1)

    def _end_all(self, ends: Sequence[tuple[Attempt, AttemptOutcome, JobReport | None]]) -> None:
        """Record how attempts ended."""
        explained = [(attempt, self.explain(attempt, outcome), report) for attempt, outcome, report in ends]
        self.record.note_all([self.files.ended(attempt, outcome, report) for attempt, outcome, report in explained])
        for attempt, outcome, _ in explained:
            self._ended_since.pop(attempt.tag, None)
            if outcome.outcome != "completed":
                words = f"{outcome.outcome}: {outcome.reason}"
                where = f" on {self.cluster.name}" if self.side else ""
                self.record.say(f"{attempt.job} attempt {attempt.attempt_no}{where}: {words}")

    def _end_without_script(self, attempt: Attempt, report: JobReport) -> None:
        """End a tournament that has lost the node of its script: its job would hold the other nodes to the end.

        A tournament survives the loss of any other node.
        """
        gone = set(attempt.nodes) - set(report.nodes)
        if gone and attempt.tag not in self._hosts:
            self.files.fetch([attempt])
            started = read_json_or_none(self.folder / attempt.folder / "started.json") or {}
            # The name in the node list, which may differ from the host's own.
            self._hosts[attempt.tag] = str(started.get("node", ""))
        host = self._hosts.get(attempt.tag, "")
        if host in gone:
            words = f"{host} was lost, and with it the script of the job"
            if attempt.withdrawal != words:
                self.record.note("withdraw", tag=attempt.tag, reason=words, final=False, outcome="node_failed")
            self.cancel([attempt])

    # -- pause and withdraw -------------------------------------------------------------------------------------------

    def pause(self, snapshot: QueueSnapshot) -> str | None:
        """Return why no job may start now, or None. Tells a person when a pause begins and ends."""
        paused = self.account.shared.stopped or self.yield_policy.paused(snapshot, self.clock.local_time(), self.account.held())
        if paused != self.paused:
            self.record.waits(f"{self._where}{paused}" if paused else "")
            if not paused:
                self.say("goes on")
            self.paused = paused
        return paused

    def obey_stop(self) -> None:
        """Look at what all runs of this user take; while a stop file lies there, end running jobs early."""
        for words in self.account.refresh():
            self.say(words)
        if (stopped := self.account.shared.stopped) is not None and not self.side:
            self.end_early(self.live(), stopped)

    def end_early(self, attempts: Iterable[Attempt], why: str) -> None:
        """End running jobs after the current test. Their measurements count; hpcq plans the rest again."""
        open_ones = [one for one in attempts if one.live and one.scheduler_job_id and one.tag not in self._asked_to_end]
        running = [one for one in open_ones if one.state is JobState.RUNNING]
        if running:
            fresh = [one for one in running if not one.withdrawal]
            self.record.note_all([{"event": "withdraw", "tag": one.tag, "reason": why, "final": one.final} for one in fresh])
            before, self._not_asked = self._not_asked, self.files.finish(running)
            if self._not_asked is None:
                self._asked_to_end.update(one.tag for one in running)
            elif before != self._not_asked:
                self.say(f"running jobs cannot be told to end early: {self._not_asked}; trying again")

    def withdraw(self, snapshot: QueueSnapshot, *, for_limits: bool = True) -> None:
        """Withdraw queued jobs that must not wait any longer; for_limits: also those that a limit has held too long."""
        now = self.clock.now_s()
        self.account.mind_reservation(self.paused)
        live = self.known()
        going = self.yield_policy.to_withdraw(live, snapshot, self.paused, now)
        going = [one for one in going if for_limits or not one.waited]
        pairs = {one.tag: self.record.state.attempts[one.tag].pairs for one in going}
        last = {one.tag: one.ends(self.retry_later, pairs[one.tag], now) for one in going}
        events = [{"event": "withdraw", "tag": one.tag, "reason": one.reason, "final": last[one.tag]} for one in going]
        self.record.note_all(events)
        something_runs = any(one.state is not JobState.QUEUED for one in live)
        max_wait_s = self.yield_policy.max_wait_s
        queued = {index for one in live if one.state is JobState.QUEUED for index in one.pairs}
        withdrawn = self.retry_later.told(queued | self.record.state.pending.keys())
        told = self.yield_policy.told(live, snapshot, now)
        self._odd_waits.look(told, [] if something_runs else withdrawn, max_wait_s, something_runs=something_runs)
        # Repeat the order for those of an earlier turn: it may have been lost.
        self.cancel([one for one in live if one.withdrawal and one.state is JobState.QUEUED], queued_only=True)

    def cancel(self, attempts: Sequence[Attempt], *, queued_only: bool = False) -> str | None:
        """Order the end of attempts, queued or running. queued_only: those that have started meanwhile continue.

        Returns the scheduler's words if it did not accept the order. Only a poll shows whether an order took effect.
        """
        jobs = [attempt.key for attempt in attempts if attempt.scheduler_job_id]
        return self.scheduler.cancel(jobs, queued_only=queued_only) if jobs else None

    def cancel_all(self) -> None:
        """Order the end of everything again and again until the queue shows no job. Says which jobs remain."""
        now = self.clock.now_s()
        live = self.known()
        if not live or now - self._cancelled_s < CANCEL_AGAIN_S:
            return
        again, self._cancelled_s = self._cancelled_s > -math.inf, now
        stop = {"event": "stop", "reason": self.record.state.cancelled, "follows": False, "final": True}
        self.record.note_all([{**stop, "tag": one.tag} for one in live if not one.stopped])
        words = self.cancel(live)
        left = [one for one in live if not one.state.terminal]
        if left and (again or words):
            there = ", ".join(f"{one.job} ({one.scheduler_job_id} {one.state.value})" for one in left[:5])
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            self.say(f"cancelling: still there: {there}{more}{': ' + words if words else ''}; ordering it again")

    def reserve(self, nodes: Set[str]) -> str | None:
        """Make the run's own reservation of these nodes.

        Returns the refusal if the campaign must not continue without it.
        """
        own_reservation = self.account.own_reservation
        if own_reservation is None or not own_reservation.wanted:
            return None
        refused = own_reservation.hold(sorted(nodes, key=natural)) is ReservationState.REFUSED and not own_reservation.given_up
        return own_reservation.refusal if refused else None

    # -- submit -------------------------------------------------------------------------------------------------------

    def submission(self, job: Submittable) -> Submission:
        """Return a job in the form that the scheduler takes."""
        return Submission(job.tag, f"{self.root}/{job.folder}/job.sh", job.nodes, job.walltime_s)

    def submit(self, jobs: Sequence[Submittable]) -> bool:
        """Submit jobs that are in the journal. Returns whether more may be submitted now."""
        self._refusals.begin([job.tag for job in jobs])
        answers = self.scheduler.submit([self.submission(job) for job in jobs])
        return self._refusals.take(answers, self._where)

    @property
    def pausing(self) -> bool:
        """Whether nothing may be submitted yet, because the scheduler did not take the last wave."""
        return self._refusals.pausing

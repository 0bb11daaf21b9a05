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
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from hpcq.run_folder.journal_state import Attempt
from hpcq.run_folder.paths import read_json_or_none
from hpcq.runner.queue.account import Account
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.runner.queue.claims import Claims
from hpcq.runner.queue.outcome import AttemptOutcome, Left, end_of
from hpcq.runner.queue.record import Record
from hpcq.runner.queue.refusals import Refusals
from hpcq.runner.queue.reservations import Held
from hpcq.runner.queue.waiting import EndedScripts, LastFiles, PoweredDown, Silence, StandingStill
from hpcq.runner.queue.yield_policy import RetryLater, YieldPolicy
from hpcq.runner.site.place import Place
from hpcq.scheduler.types import JobReport, JobState, QueueQuery, QueueSnapshot, Submission
from hpcq.sorting import natural

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
        self, here: Place, account: Account, record: Record[Any], *, folder: Path, root: str, side: str = "",
        retry_later: RetryLater | None = None,
    ) -> None:  # fmt: skip
        """folder: the part's folder here. root: its counterpart on the cluster."""
        self.cluster, self.transport, self.scheduler = here.cluster, here.transport, here.scheduler
        self.account, self.record = account, record
        self.pace, self.clock = account.pace, account.clock
        self.folder, self.root, self.side = folder, root, side
        #: Begins what is said of a link's side.
        self._where = f"{self.cluster.name}: " if side else ""
        self.files = AttemptFiles(self.transport, self.scheduler, folder, root, self.pace.ask)
        self.yield_policy = YieldPolicy(account.budget, here.cluster.patience_s)
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
        self._last_files = LastFiles(record, self.clock)
        self._ended_scripts = EndedScripts(self.files, record, self.pace, self.clock)
        self._powered_down = PoweredDown(record, self.clock, self.cluster.name)
        self._remembered_since: dict[str, float] = {}
        self._ended_since: dict[str, float] = {}
        #: Running jobs that hpcq asked to end after the current test.
        self._asked_to_end: set[str] = set()
        self._not_asked: str | None = None
        #: The host of the script of each tournament that has lost a node.
        self._hosts: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Print one line for a person. A link's line names the cluster."""
        self.record.say(f"{self._where}{text}")

    def live(self) -> list[Attempt]:
        """Return our attempts there that have not ended."""
        return [attempt for attempt in self.record.state.active.values() if attempt.side == self.side]

    def known(self) -> list[Attempt]:
        """Return those of them that the scheduler has."""
        return [attempt for attempt in self.live() if attempt.native_id]

    def out_of_reach(self) -> contextlib.AbstractContextManager[None]:
        """Run queries that may fail. A failure changes no state; hpcq asks again later and tells a person."""
        return self._silence.bounded()

    def find_undetermined(self) -> None:
        """Find out what happened to submissions that an earlier driver or a broken connection left open."""
        open_ones = [attempt for attempt in self.live() if not attempt.native_id]
        ends = self._claims.settle(open_ones)
        self._end_all([(attempt, outcome, None) for attempt, outcome in ends])
        found = [one.tag for one in open_ones if one.native_id]
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
        room = refill and not self.pausing and self.shut() is None and not self.account.full()
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
        return snapshot

    def shut(self) -> str | None:
        """Return the stop file or the hours that allow no job now, or None."""
        return self.account.stopped() or self.yield_policy.closed(self.clock.local_time())

    def take(self, reports: Mapping[str, JobReport]) -> None:
        """Record what changed; fetch and judge what may have ended."""
        states: list[dict[str, Any]] = []
        suspects: list[tuple[Attempt, JobReport | None]] = []
        for attempt in self.known():
            report = reports.get(attempt.native_id)
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
        self._standing.look([(one, reports.get(one.native_id)) for one in self.known()])
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
            self.files.fetch([attempt for attempt, _ in chunk])
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
                self.record.say(f"{attempt.job_id} attempt {attempt.attempt_no}{where}: {words}")

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
        paused = self.account.stopped() or self.yield_policy.paused(snapshot, self.clock.local_time(), self.account.held())
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
        if (stopped := self.account.stopped()) is not None and not self.side:
            self.end_early(self.live(), stopped)

    def end_early(self, attempts: Iterable[Attempt], why: str) -> None:
        """End running jobs after the current test. Their measurements count; hpcq plans the rest again."""
        open_ones = [one for one in attempts if one.live and one.native_id and one.tag not in self._asked_to_end]
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
        # Repeat the order for those of an earlier turn: it may have been lost.
        self.cancel([one for one in live if one.withdrawal and one.state is JobState.QUEUED], queued_only=True)

    def cancel(self, attempts: Sequence[Attempt], *, queued_only: bool = False) -> str | None:
        """Order the end of attempts, queued or running. queued_only: those that have started meanwhile continue.

        Returns the scheduler's words if it did not accept the order. Only a poll shows whether an order took effect.
        """
        jobs = [attempt.key for attempt in attempts if attempt.native_id]
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
            there = ", ".join(f"{one.job_id} ({one.native_id} {one.state.value})" for one in left[:5])
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            self.say(f"cancelling: still there: {there}{more}{': ' + words if words else ''}; ordering it again")

    def reserve(self, nodes: Set[str]) -> str | None:
        """Make the run's own reservation of these nodes.

        Returns the refusal if the campaign must not continue without it.
        """
        own_reservation = self.account.own_reservation
        if own_reservation is None or not own_reservation.wanted:
            return None
        refused = own_reservation.hold(sorted(nodes, key=natural)) is Held.REFUSED and not own_reservation.given_up
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

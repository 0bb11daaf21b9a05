"""One driver of one cluster: waves of jobs from the nodes idle now, one look for all, every end fetched and written down.

    adopt    what an earlier driver left: submissions of which nobody knows are looked up, or claimed so they never run
    look     one command: all live attempts, the nodes if there is something to hand in, who else waits if we give way
    take     ended attempts are fetched in few copies and judged, then written down with one wait for the disk
    let go   queued jobs that users need to be out of the way, or that can never start
    refill   nodes idle now + what is pending -> a wave
    sleep    growing; pace.py

Everything it knows is in the journal before it acts on it, so it can be killed anywhere. docs/driver.md says what it promises.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hpcq import nodelist
from hpcq.errors import HpcqError, SchedulerError, TransportError
from hpcq.planning.allocations import choose_allocations
from hpcq.planning.waves import choose_wave, nodes_within
from hpcq.run_folder.paths import write_json
from hpcq.runner.drive import yield_policy
from hpcq.runner.drive.attempt_files import SETTLE_S, AttemptFiles, driven_json
from hpcq.runner.drive.cluster_run import ClusterRun, Pending
from hpcq.runner.drive.jobs import pair_index_of
from hpcq.runner.drive.outcome import Outcome, decide, read_object
from hpcq.runner.drive.reservations import Held, OwnReservation
from hpcq.runner.drive.spooling import Spools
from hpcq.runner.drive.state import Attempt
from hpcq.runner.drive.submitting import Submitter
from hpcq.runner.drive.tournaments import spooled_steps
from hpcq.runner.drive.yield_policy import RetryLater, YieldPolicy
from hpcq.scheduler.base import JobReport, JobState, NodeCondition, NodeState, QueueQuery, QueueSnapshot
from hpcq.sorting import natural

#: Folders fetched in one copy: bounds memory.
_FETCH_CHUNK = 200


class Driver:
    """Drives one cluster's part of a run."""

    def __init__(self, part: ClusterRun) -> None:
        self.part = part
        self.ledger = part.ledger
        self._started = time.monotonic()
        self.account = part.account
        self.pace = part.account.pace
        self.at = AttemptFiles(part.transport, part.scheduler, part.folder, part.root, self.pace.ask)
        self._submitter = Submitter(part)
        self._spools = Spools(part)
        self._yield_policy = YieldPolicy(part.budget, part.cluster.patience_s)
        self._retry_later = RetryLater()
        self._waiting_since: float | None = None
        self._paused: str | None = None
        self._ended_since: dict[str, float] = {}
        #: Where the scripts of tournaments run that have lost a node.
        self._hosts: dict[str, str] = {}
        #: Running jobs that were asked to end after the test in hand.
        self._told: set[str] = set()
        #: The pairs that are meant now; None: all.
        self._due: frozenset[int] | None = None

    # -- the loop ---------------------------------------------------------------------------------------------------

    def drive(self, due: Collection[int] | None = None, *, only_submit: bool = False) -> None:
        """Run until nothing is pending or live; with only_submit, until the first wave is handed in.

        due: play these pairs only, as places in the plan, and leave the others pending.
        """
        self._due = None if due is None else frozenset(due)
        self._waiting_since = None
        self.adopt()
        while self._pending() or self.ledger.active:
            eager = True
            try:
                eager = self._turn()
                if only_submit:
                    return
                if self.pace.succeeded():
                    self.part.say("answers again")
            except (TransportError, SchedulerError) as error:
                self._stumble(error)
            if self.ledger.active or self._pending():
                self.pace.sleep(eager=eager)

    def finish(self) -> dict[str, Any]:
        """Close the part: all is done or given up. Returns what driven.json says."""
        if self.account.own_reservation is not None:
            self.account.own_reservation.drop(patiently=True)
        self.part.journal.append("closed")
        driven = driven_json(time.monotonic() - self._started, self.part.scheduler.query_count, self.ledger)
        write_json(self.part.folder / "driven.json", driven)
        return driven

    def _pending(self) -> Pending:
        """What waits for a job."""
        return Pending(self.part.plan, self.ledger, self._retry_later.held_until, self._due)

    def _turn(self) -> bool:
        """Look once and do what follows; returns whether more may be done soon."""
        self._obey_cancel()
        before = len(self.part.journal)
        snapshot = self._look()
        self._take(snapshot.reports)
        self._spools.read()
        self._withdraw_waiting(snapshot)
        if snapshot.nodes is not None:
            self._refill(snapshot, snapshot.nodes)
        changed = len(self.part.journal) > before
        last_ones_run = self.ledger.count(JobState.QUEUED) == 0 and bool(self.ledger.active)
        return last_ones_run or (changed and bool(self._pending()))

    def cancel(self, reason: str) -> None:
        """End every live attempt and plan nothing more; what was measured so far is fetched by the loop that follows."""
        if not self.ledger.cancelled:
            self.part.note("cancel", reason=reason)
        self.part.not_run(list(self.ledger.pending), reason)
        self.part.scheduler.cancel([attempt.native_id for attempt in self.ledger.active.values() if attempt.native_id])

    def adopt(self) -> None:
        """Find out what became of submissions that an earlier driver, or a broken connection, left open."""
        deadline = time.monotonic() + SETTLE_S
        while self.ledger.undetermined:
            self._look_up(self.ledger.undetermined)
            if time.monotonic() > deadline:
                self._withdraw(self.ledger.undetermined)
            elif self.ledger.undetermined:
                time.sleep(1.0)

    # -- look and take ----------------------------------------------------------------------------------------------

    def _look(self) -> QueueSnapshot:
        now = time.monotonic()
        live = [attempt for attempt in self.ledger.active.values() if attempt.native_id]
        self._retry_later.forget(now)
        room = (
            self._yield_policy.closed(yield_policy.local_time()) is None and bool(self._pending()) and not self.account.full()
        )
        question = QueueQuery(
            native_ids=[attempt.native_id for attempt in live],
            nodes=room or self._yield_policy.wants_nodes(live, now),
            others=self.part.budget.gives_way,
            mine=room and self.account.limit.jobs() is not None,
        )
        self.pace.ask()
        return self.part.scheduler.look(question)

    def _take(self, reports: dict[str, JobReport]) -> None:
        """Write down what changed; fetch and judge what may have ended."""
        states: list[dict[str, Any]] = []
        suspects: list[tuple[Attempt, JobReport]] = []
        for attempt in self.ledger.active.values():
            report = reports.get(attempt.native_id)
            if report is None:
                continue
            if report.state is not attempt.state and report.state is not JobState.UNKNOWN:
                states.append({"event": "state", "tag": attempt.tag, "state": report.state.value, "reason": report.reason})
            if report.state.terminal or report.state in {JobState.ENDING, JobState.UNKNOWN}:
                suspects.append((attempt, report))
            elif attempt.shared and report.state is JobState.RUNNING and report.nodes:
                self._end_without_script(attempt, report)
        self.part.note_all(states)
        for start in range(0, len(suspects), _FETCH_CHUNK):
            chunk = suspects[start : start + _FETCH_CHUNK]
            self.at.fetch([attempt for attempt, _ in chunk])
            judged = [self._judge(attempt, report) for attempt, report in chunk]
            self._end([event for event in judged if event is not None])

    def _end_without_script(self, attempt: Attempt, report: JobReport) -> None:
        """A tournament outlives its nodes, but not the one with its script: Slurm lets such a job hold the others for ever."""
        held = {name for text in report.nodes for name in nodelist.expand(text)}
        gone = set(attempt.nodes) - held
        if gone and attempt.tag not in self._hosts:
            self.at.fetch([attempt])
            started = read_object(self.part.folder / attempt.folder / "started.json") or {}
            self._hosts[attempt.tag] = str(started.get("host", "")).partition(".")[0]
        host = self._hosts.get(attempt.tag, "")
        if host in gone:
            words = f"{host} was lost, and with it the script of the job"
            if attempt.withdrawal != words:
                self.part.note("withdraw", tag=attempt.tag, reason=words, final=False)
            self.part.scheduler.cancel([attempt.native_id])

    def _end_early(self, why: str) -> None:
        """Running jobs end after the test in hand; what they measured counts, the rest is planned again.

        Those that were to leave the queue and started meanwhile are told too.
        """
        running = [one for one in self.ledger.active.values() if one.state is JobState.RUNNING and one.tag not in self._told]
        if running:
            self.part.note_all(
                [
                    {"event": "withdraw", "tag": one.tag, "reason": why, "final": one.final}
                    for one in running
                    if not one.withdrawal
                ]
            )
            self.at.finish(running)
            self._told.update(one.tag for one in running)

    def _judge(self, attempt: Attempt, report: JobReport) -> dict[str, Any] | None:
        exit_file = read_object(self.part.folder / attempt.folder / "exit.json")
        since = self._ended_since.setdefault(attempt.tag, time.monotonic())
        # A job that the queue has never shown yet, or has forgotten, gets three graces before it counts as lost.
        grace_s = self.pace.grace_s * (3 if report.state is JobState.UNKNOWN else 1)
        outcome = self._withdrawn_outcome(attempt, report, exit_file) or decide(
            report, exit_file, waited_s=time.monotonic() - since, grace_s=grace_s
        )
        return None if outcome is None else self._ended(attempt, outcome, report)

    def _withdrawn_outcome(self, attempt: Attempt, report: JobReport, exit_file: dict[str, Any] | None) -> Outcome | None:
        """The end of a job that the driver itself took out of the queue, or that had lost its script."""
        started = (self.part.folder / attempt.folder / "started.json").exists()
        if attempt.withdrawal and (exit_file or {}).get("reason") == "ended_early":
            return Outcome("withdrawn", attempt.withdrawal)
        if not attempt.withdrawal or report.state is not JobState.CANCELLED:
            return None
        if started:
            return Outcome("node_failed", attempt.withdrawal) if attempt.shared else None
        return Outcome("cancelled" if attempt.final else "withdrawn", attempt.withdrawal)

    def _ended(self, attempt: Attempt, outcome: Outcome, report: JobReport | None) -> dict[str, Any]:
        event = self.at.ended(attempt, outcome, report)
        if attempt.shared:
            event["measured_of"] = spooled_steps(self.part.folder / attempt.folder)
        return event

    def _end(self, events: Sequence[dict[str, Any]]) -> None:
        self.part.note_all(events)
        for event in events:
            self._ended_since.pop(event["tag"], None)
            if event["outcome"] != "completed":
                attempt = self.ledger.attempts[event["tag"]]
                words = f"{event['outcome']}: {event['reason']}"
                self.part.say(f"{attempt.job_id} attempt {attempt.attempt_no}: {words}")

    # -- let go -----------------------------------------------------------------------------------------------------

    def _withdraw_waiting(self, snapshot: QueueSnapshot) -> None:
        now = time.monotonic()
        paused = self._yield_policy.paused(snapshot, yield_policy.local_time(), self.account.held())
        if paused != self._paused:
            self.part.say(paused or "goes on")
            self._paused = paused
        if paused is not None:
            self._end_early(paused)
        self.account.mind_reservation(paused)
        going = self._yield_policy.to_withdraw(self.ledger.active.values(), snapshot, paused, now)
        final = {one.tag: one.ends(self._retry_later, self.ledger.attempts[one.tag].pairs, now) for one in going}
        self.part.note_all(
            [{"event": "withdraw", "tag": one.tag, "reason": one.reason, "final": final[one.tag]} for one in going]
        )
        leaving = [one for one in self.ledger.active.values() if one.withdrawal and one.state is JobState.QUEUED]
        if leaving:  # those of an earlier turn are asked again: that request may have been lost
            self.part.scheduler.cancel([attempt.native_id for attempt in leaving], queued_only=True)

    # -- refill -----------------------------------------------------------------------------------------------------

    def _refill(self, snapshot: QueueSnapshot, states: Sequence[NodeState]) -> None:
        if not self._pending() or self._paused is not None:
            self._waiting_since = None
            return
        spent = self.account.spent()
        if spent is not None:
            self.part.not_run(list(self.ledger.pending), spent)
            return
        room = self.account.limit.room(snapshot)
        wave = self._choose(states, room)
        own_reservation = self.account.own_reservation
        if wave and own_reservation is not None and own_reservation.wanted:
            if self._reserve(own_reservation, states):
                within = self._look()  # the nodes as they are seen from inside
                self._refill(within, within.nodes or ())
        elif wave:
            self._waiting_since = None
            idle = [state.node for state in states if state.condition is NodeCondition.IDLE]
            self._submitter.submit(wave, idle)
            self.adopt()
        elif not self.ledger.active and any(self._pending()):
            if own_reservation is not None and self._waiting_since is not None:
                own_reservation.drop()  # others of the wanted nodes may be idle by now
            self._wait(states, full=room == 0)

    def _reserve(self, own_reservation: OwnReservation, states: Sequence[NodeState]) -> bool:
        """Make the reservation for the next jobs; whether it is there, or the campaign goes on without."""
        pending = self._pending()
        wanted = {node for pair in pending for node in (pair.client, pair.server)}
        idle = {state.node for state in states if state.condition is NodeCondition.IDLE}
        nodes = nodes_within(pending, idle & wanted, set(), self.part.budget.node_limit(len(idle)))
        if own_reservation.hold(sorted(nodes, key=natural)) is Held.REFUSED and not own_reservation.given_up:
            self.part.not_run(list(self.ledger.pending), own_reservation.refusal)
        return not own_reservation.wanted

    def _choose(self, states: Sequence[NodeState], room: int | None) -> list[list[int]]:
        idle = [state.node for state in states if state.condition is NodeCondition.IDLE]
        jobs = self.account.active_jobs()
        budget = self.part.budget
        if self.account.own_reservation is not None and self.account.own_reservation.held:
            budget = replace(budget, node_share_ratio=1.0)  # it is no larger than the share of the nodes idle when it was made
        if room is not None:
            within = len(jobs) + room
            most = budget.jobs_at_most
            budget = replace(budget, jobs_at_most=within if most is None else min(most, within))
        pending = self._pending()
        if self.part.plan.allocation != "pair":
            allocations = choose_allocations(pending, idle, jobs, budget, self.part.plan)
            return [[pair_index_of(pair.job_id) for pair in pairs] for pairs in allocations]
        # Who gives way queues nothing behind its own jobs: a user's job need not wait for more than the one that runs.
        layers = 1 if budget.gives_way else None
        return [[pair_index_of(pair.job_id)] for pair in choose_wave(pending, idle, jobs, budget, layers_at_most=layers)]

    def _wait(self, states: Sequence[NodeState], *, full: bool) -> None:
        now, patience_s = time.monotonic(), self.part.cluster.patience_s
        why = "other jobs of this user fill its limit" if full else "no two of the wanted nodes are idle"
        if self._waiting_since is None:
            self._waiting_since = now
            self.part.say(f"{why}; waiting {patience_s:g} s")
        if now - self._waiting_since < patience_s:
            return
        words = {state.node: state.native_state for state in states}
        for index in [pair_index_of(pair.job_id) for pair in self._pending()]:
            seen = ", ".join(f"{node} {words.get(node, 'gone')}" for node in self.part.plan.pairs[index])
            self.part.not_run([index], f"{why} for {patience_s:g} s" if full else f"not idle for {patience_s:g} s: {seen}")

    # -- what nobody knows ------------------------------------------------------------------------------------------

    def _look_up(self, attempts: Iterable[Attempt]) -> None:
        """Ask the files beside the scripts and the scheduler for these tags."""
        known = self.at.find(list(attempts))
        self.part.note_all([{"event": "submitted", "tag": tag, "native_id": native_id} for tag, native_id in known.items()])

    def _withdraw(self, attempts: Iterable[Attempt]) -> None:
        """Claim attempts that no scheduler knows; should one of them arrive there after all, it finds the claim and ends."""
        for attempt in attempts:
            native_id = self.at.claim(attempt)
            if native_id is None:
                self._end([self._ended(attempt, Outcome("withdrawn", "the scheduler never had it"), None)])
            else:
                self.part.note("submitted", tag=attempt.tag, native_id=native_id)

    # -- small things -----------------------------------------------------------------------------------------------

    def _obey_cancel(self) -> None:
        request = self.part.folder.parent / "cancel"
        if request.exists() and not self.ledger.cancelled:
            self.cancel("cancelled by hpcq cancel")

    def _stumble(self, error: HpcqError) -> None:
        """A failed question changes nothing that is known; it is asked again later, and a person hears of it."""
        if self.pace.failed():
            self.part.say(f"{error.message} (asking again; {self.pace.failures} times in a row)")
        if isinstance(error, TransportError) and not error.transient:
            raise error
        if self.ledger.undetermined:
            time.sleep(self.pace.query_s)
            try:
                self.adopt()
            except (TransportError, SchedulerError):
                return  # still out of reach: the next turn of the loop asks again

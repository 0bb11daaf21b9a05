"""One driver of a link: it hands in one job on each side, brings them together, and writes down how each of them ended.

    adopt    submissions that an earlier driver left open are looked up on their side, or claimed so they never run
    look     small files of the rendezvous; one question a cluster where files cannot tell; what ended is judged
    let go   users wait, the hours are over, a node was taken: waiting jobs leave, running ones end after the test in hand
    meet     addresses are carried, roles given, the server told to end; a side that waits too long is ended
    refill   both nodes of a pair idle, both budgets allow -> link_submitting.py hands in both sides
    sleep    short while something is about to happen, growing while it measures

Everything it knows is in the journal or in files, so it can be killed anywhere. A side that is out of reach stops nothing
on the other one.
"""

from __future__ import annotations

import random
import time
from typing import Any

from hpcq.run_folder.paths import write_json
from hpcq.runner.drive import yield_policy
from hpcq.runner.drive.attempt_files import SETTLE_S, driven_json
from hpcq.runner.drive.jobs import pair_index_of
from hpcq.runner.drive.outcome import Outcome, decide, read_object
from hpcq.runner.drive.pace import FAILURES_SAID
from hpcq.runner.link.link_run import LinkRun
from hpcq.runner.link.rendezvous import Rendezvous
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import SideAttempt, Try, other
from hpcq.runner.link.submitting import LinkSubmitter
from hpcq.scheduler.base import JobReport, JobState, QueueSnapshot

_GROWTH = 1.5
#: What a script says that was asked to end after the test in hand.
_ENDED_EARLY = "ended_early"


class LinkDriver:
    """Drives one link's part of a run to its end."""

    def __init__(self, part: LinkRun) -> None:
        self.part = part
        self.link, self.ledger, self.sides = part.link, part.ledger, part.sides
        self._started = time.monotonic()
        self._meeting = Rendezvous(self.link, self.sides, self.ledger, part.note)
        self._submitter = LinkSubmitter(part)
        self._request = self.sides["from"].folder.parent / "cancel"
        self._pace_s = max(side.pace.query_s for side in self.sides.values())
        self._pace_max_s = max(self._pace_s, min(side.pace.poll_max_s for side in self.sides.values()))
        self._interval_s = self._pace_s
        #: The pairs that are tried now; when the first of these tries is over, no other one begins.
        self._batch: set[int] = set()
        self._settling: dict[str, float] = {}
        self._ended_since: dict[str, float] = {}
        self._stopped_at: dict[str, float] = {}
        self._told_to_finish: set[str] = set()

    def drive(self) -> None:
        """Run until nothing is pending or live."""
        while self.batch():
            pass

    def batch(self) -> list[int]:
        """Try as many pairs as may be measured at once, to the end of these tries; which ones. Empty: nothing is left."""
        self._batch = {one.index for one in self.ledger.open_tries}
        self._submitter.waits_anew()
        while self.ledger.active or (self.ledger.pending and not self._one_is_over()):
            self._turn()
        return sorted(self._batch)

    def finish(self) -> dict[str, Any]:
        """Close the part: all is done or given up. Returns what driven.json says."""
        self.part.journal.append("closed")
        counts = {side.cluster.name: side.scheduler.query_count for side in self.sides.values()}
        driven = driven_json(time.monotonic() - self._started, counts, self.ledger)
        write_json(self.sides["from"].folder / "driven.json", driven)
        return driven

    def _turn(self) -> None:
        before = len(self.part.journal)
        self._obey_cancel()
        snapshots: dict[str, QueueSnapshot] = {}
        for side in self.sides.values():
            with self.part.out_of_reach(side):
                self._settle(side)
                snapshot = self._look(side)
                if snapshot is not None:
                    snapshots[side.name] = snapshot
                    self._withdraw_waiting(side, snapshot)
        self._meeting.forget_patience()
        for one in self.ledger.open_tries:
            self._advance(one)
        if self._may_refill():
            self._batch |= self._submitter.refill(snapshots)
        self._sleep(moved=len(self.part.journal) > before)

    def _one_is_over(self) -> bool:
        return any(not self.ledger.tries[index].live for index in self._batch)

    def _may_refill(self) -> bool:
        room = len(self.ledger.open_tries) < self.link.at_once
        return bool(self.ledger.pending) and room and not self._one_is_over()

    # -- look -------------------------------------------------------------------------------------------------------

    def _look(self, side: LinkSide) -> QueueSnapshot | None:
        live = self._known_on(side)
        side.fetch_small(live)
        for attempt in live:
            if attempt.state is JobState.QUEUED and (side.folder / attempt.folder / "started.json").exists():
                self.part.note("state", tag=attempt.tag, state=JobState.RUNNING.value, reason="")
            self._judge(side, attempt, None)
        live = self._known_on(side)
        snapshot = side.look(live, refill=self._may_refill())
        for attempt in live if snapshot is not None else ():
            report = snapshot.reports[attempt.native_id] if snapshot else None
            if report is not None:
                self._take(side, attempt, report)
        return snapshot

    def _known_on(self, side: LinkSide) -> list[SideAttempt]:
        return [attempt for attempt in self.ledger.live_on(side.name) if attempt.native_id]

    def _take(self, side: LinkSide, attempt: SideAttempt, report: JobReport) -> None:
        if report.state is not attempt.state and report.state is not JobState.UNKNOWN:
            self.part.note("state", tag=attempt.tag, state=report.state.value, reason=report.reason)
        attempt.reason = report.reason  # why it still waits may change while its state does not
        if report.state.terminal or report.state in {JobState.ENDING, JobState.UNKNOWN}:
            self._judge(side, attempt, report)

    def _judge(self, side: LinkSide, attempt: SideAttempt, report: JobReport | None) -> None:
        """The end of an attempt, if this is it; without a report, by what its script said last."""
        exit_file = read_object(side.folder / attempt.folder / "exit.json")
        said = str((exit_file or {}).get("reason", ""))
        if said == _ENDED_EARLY:
            outcome: Outcome | None = Outcome("withdrawn", attempt.withdrawal or said)
        elif said == "done":
            outcome = Outcome("completed", "")
        elif report is None:
            return
        else:
            never_ran = report.state is JobState.CANCELLED and not (side.folder / attempt.folder / "started.json").exists()
            since = self._ended_since.setdefault(attempt.tag, time.monotonic())
            # A job that the queue has never shown yet, or has forgotten, gets three graces before it counts as lost.
            grace_s = side.pace.grace_s * (3 if report.state is JobState.UNKNOWN else 1)
            grace_s = 0 if never_ran and (attempt.stopped or attempt.withdrawal) else grace_s
            outcome = decide(report, exit_file, waited_s=time.monotonic() - since, grace_s=grace_s)
        if outcome is not None:
            side.at.fetch([attempt])
            opposite = self.ledger.tries[pair_index_of(attempt.job_id)].sides.get(other(side.name))
            self.part.end(side, attempt, self._meeting.explain(attempt, opposite, outcome), report)

    # -- let go -----------------------------------------------------------------------------------------------------

    def _withdraw_waiting(self, side: LinkSide, snapshot: QueueSnapshot) -> None:
        """Give way on this side; the other one follows, since a try needs both."""
        now = time.monotonic()
        paused = side.citizen.paused(snapshot, yield_policy.local_time(), side.account.held())
        if paused != side.paused:
            self.part.say(f"{side.cluster.name}: {paused or 'goes on'}")
            side.paused = paused
        if paused is not None:
            self._end_early(f"{side.cluster.name}: {paused}")
        side.account.mind_reservation(paused)
        live = self._known_on(side)
        going = side.citizen.to_withdraw(live, snapshot, paused, now)
        for one in [one for one in going if not one.waited]:  # how long a side may wait is the meeting's question
            attempt = self.ledger.attempts[one.tag]
            self.part.note(
                "withdraw", tag=one.tag, reason=one.reason, final=one.ends(self.part.retry_later, attempt.pairs, now)
            )
        # Those of an earlier turn are asked again: that request may have been lost.
        side.cancel([one for one in live if one.withdrawal and one.state is JobState.QUEUED], queued_only=True)

    def _end_early(self, why: str) -> None:
        """Sides that measure end after the test in hand, those that wait for the other one at once; neither is a try."""
        for one in self.ledger.open_tries:
            for attempt in one.sides.values():
                serves = one.met and one.ways_known and attempt.side != self.ledger.clients.get(one.index)
                running = attempt.live and attempt.native_id and attempt.state is JobState.RUNNING
                side = self.sides[attempt.side]
                if running and not serves and attempt.tag not in self._told_to_finish:
                    with self.part.out_of_reach(side):
                        side.at.finish([attempt])
                        self._told_to_finish.add(attempt.tag)
                        self.part.note("withdraw", tag=attempt.tag, reason=why, final=False)

    # -- meet -------------------------------------------------------------------------------------------------------

    def _advance(self, one: Try) -> None:
        """Everything that may be due for one try: its second job, the rendezvous, its end."""
        self._submitter.second(one)
        for side in self.sides.values():
            attempt = one.sides.get(side.name)
            if attempt is not None and attempt.live:
                with self.part.out_of_reach(side):
                    stop = self._meeting.reason_to_stop(one, attempt)
                    if stop is not None:
                        self.part.note("stop", tag=attempt.tag, reason=stop.reason, follows=stop.follows, final=stop.final)
                    self._cancel(side, attempt)
        for side in self.sides.values():
            with self.part.out_of_reach(side):
                self._meeting.carry(one, side)

    def _cancel(self, side: LinkSide, attempt: SideAttempt) -> None:
        """Ask for the end of what was stopped, again every ten seconds."""
        if attempt.stopped and time.monotonic() - self._stopped_at.get(attempt.tag, -1e9) > SETTLE_S:
            side.cancel([attempt])
            self._stopped_at[attempt.tag] = time.monotonic()

    # -- what nobody knows ------------------------------------------------------------------------------------------

    def _settle(self, side: LinkSide) -> None:
        """Find out what became of submissions that an earlier driver, or a broken connection, left open."""
        open_ones = [attempt for attempt in self.ledger.undetermined if attempt.side == side.name]
        if not open_ones:
            return
        known = side.at.find(open_ones)
        for attempt in open_ones:
            since = self._settling.setdefault(attempt.tag, time.monotonic())
            native_id = known.get(attempt.tag)
            if native_id is None and time.monotonic() - since > SETTLE_S:
                native_id = side.at.claim(attempt)
                if native_id is None:
                    self.part.end(side, attempt, Outcome("withdrawn", "the scheduler never had it"), None)
            if native_id is not None:
                self.part.note("submitted", tag=attempt.tag, native_id=native_id)

    # -- small things -----------------------------------------------------------------------------------------------

    def _obey_cancel(self) -> None:
        if not self._request.exists() or self.ledger.cancelled:
            return
        reason = "cancelled by hpcq cancel"
        self.part.note("cancel", reason=reason)
        self.part.not_run(list(self.ledger.pending), reason)
        for attempt in list(self.ledger.active.values()):
            self.part.note("stop", tag=attempt.tag, reason=reason, follows=False, final=True)

    def _sleep(self, *, moved: bool) -> None:
        """Look often while sides are about to meet or to end, seldom while they wait or measure."""
        if not (self.ledger.pending or self.ledger.active):
            return
        self._interval_s = self._pace_s if moved else min(self._pace_max_s, self._interval_s * _GROWTH)
        failing_s = [side.pace.interval_s for side in self.sides.values() if side.pace.failures >= FAILURES_SAID]
        self._interval_s = max([self._interval_s, *failing_s])
        due_s = min(self._meeting.patience_ends, self._submitter.due_s()) - time.monotonic()
        jitter = random.uniform(0.9, 1.1)  # noqa: S311 - so that drivers do not march in step
        time.sleep(min(self._interval_s * jitter, max(self._pace_s, due_s)))

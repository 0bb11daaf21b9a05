"""The driver of a link: it submits one job on each side, connects the two, and records how each of them ended.

    find     look up on their side the submissions that an earlier driver left open, or claim them so they never run
    look     small files of the rendezvous; one query per cluster if files do not suffice; judge what ended
    withdraw users wait, the hours are over, a node is gone: withdraw queued jobs, end running ones after their test
    meet     carry addresses, assign roles, tell the server to end; end a side that waits too long
    refill   if both nodes of a pair are idle and both budgets allow, submitting.py submits both sides
    sleep    short while something is about to happen, growing while it measures

All its state is in the journal or in files, so you can kill it at any point. An unreachable side does not stop the
other one. queue/cluster_queue.py has what it shares with the driver of a cluster.
"""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Any

from hpcq.errors import TransportError
from hpcq.run_folder.journal_state import Attempt
from hpcq.run_folder.paths import write_json
from hpcq.runner.link.link_run import LinkRun
from hpcq.runner.link.rendezvous import Rendezvous
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import Try, other
from hpcq.runner.link.submitting import LinkSubmitter
from hpcq.runner.queue.attempt_files import driven_json
from hpcq.runner.queue.outcome import AttemptOutcome
from hpcq.runner.queue.pace import ATTENTIVE_S, FAILURES_SAID
from hpcq.scheduler.types import QueueSnapshot

_GROWTH = 1.5
#: hpcq repeats the order to end a job after this time.
_CANCEL_AGAIN_S = 10.0


class LinkDriver:
    """Drives one link's part of a run to its end."""

    def __init__(self, link_run: LinkRun) -> None:
        self.link_run = link_run
        self.link, self.state, self.sides = link_run.link, link_run.state, link_run.sides
        self.record, self.clock = link_run.record, link_run.clock
        self._started_s = self.clock.now_s()
        self._meeting = Rendezvous(link_run)
        self._submitter = LinkSubmitter(link_run)
        self._request = self.sides["from"].folder.parent / "cancel"
        self._pace_s = max(side.pace.query_s for side in self.sides.values())
        self._pace_max_s = max(self._pace_s, min(side.pace.poll_max_s for side in self.sides.values()))
        self._interval_s = self._pace_s
        #: The pairs of the present batch. When the first of them is over, no other one begins.
        self._batch: set[int] = set()
        self._stopped_at: dict[str, float] = {}
        for side in self.sides.values():
            side.explain = partial(self._explain, side)

    def drive(self) -> None:
        """Run until nothing is pending or live."""
        while self.batch():
            pass

    def batch(self) -> list[int]:
        """Attempt as many pairs as may be measured at once, until they are over.

        Returns these pairs; empty: nothing is left.
        """
        self._batch = {one.index for one in self.state.open_tries}
        self._submitter.wait.end()  # other pairs ran meanwhile
        while self.state.active or (self.state.pending and not self._one_is_over()):
            self._turn()
        return sorted(self._batch)

    def finish(self) -> dict[str, Any]:
        """Close the part: every pair is done or given up. Returns the content of driven.json."""
        for side in self.sides.values():
            side.wait_for_late()
        self.record.note("closed")
        for side in self.sides.values():
            side.account.close()
        counts = {side.cluster.name: side.scheduler.query_count for side in self.sides.values()}
        driven = driven_json(self.clock.now_s() - self._started_s, counts, self.state)
        write_json(self.sides["from"].folder / "driven.json", driven)
        return driven

    def _turn(self) -> None:
        before = len(self.record.journal)
        self._obey_cancel()
        self._obey_stop()
        snapshots: dict[str, QueueSnapshot] = {}
        # Slow clusters are asked together: a refill needs both answers, and each of them makes its cluster rest.
        resting = any(side.pace.rests for side in self.sides.values())
        for side in self.sides.values():
            with side.out_of_reach():
                side.find_undetermined()
                side.take_small_files()
                rests = resting and side.pace.slow
                snapshot = None if rests else side.look_if_due(refill=self._may_refill() and not resting)
                if snapshot is not None:
                    side.take(snapshot.reports)
                    snapshots[side.name] = snapshot
                    self._yield(side, snapshot)
        self._meeting.forget_patience()
        for one in self.state.open_tries:
            self._advance(one)
        if self._may_refill():
            self._batch |= self._submitter.refill(snapshots)
        self._sleep(moved=len(self.record.journal) > before)

    def _one_is_over(self) -> bool:
        return any(not self.state.tries[index].live for index in self._batch)

    def _may_refill(self) -> bool:
        room = len(self.state.open_tries) < self.link.at_once
        return bool(self.state.pending) and room and not self._one_is_over()

    def _explain(self, side: LinkSide, attempt: Attempt, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return an outcome with what the driver knows about both sides."""
        opposite = self.state.tries[attempt.pairs[0]].sides.get(other(side.name))
        return self._meeting.explain(attempt, opposite, outcome)

    # -- withdraw -----------------------------------------------------------------------------------------------------

    def _yield(self, side: LinkSide, snapshot: QueueSnapshot) -> None:
        """Yield on this side. The other one follows, since an attempt needs both."""
        paused = side.pause(snapshot)
        if paused is not None:
            self._end_early(f"{side.cluster.name}: {paused}")
        side.withdraw(snapshot, for_limits=False)  # the rendezvous decides how long a side may wait

    def _end_early(self, why: str) -> None:
        """End sides that measure after the current test, and sides that wait for the other one at once.

        Neither counts as an attempt.
        """
        for one in self.state.open_tries:
            client = self.state.clients.get(one.index) if one.met and one.ways_known else None
            serves = other(client) if client is not None else None
            for attempt in one.sides.values():
                if attempt.side != serves:
                    with self.sides[attempt.side].out_of_reach():
                        self.sides[attempt.side].end_early([attempt], why)

    # -- meet -------------------------------------------------------------------------------------------------------

    def _advance(self, one: Try) -> None:
        """Do all that is due for one try: its second job, the rendezvous, its end."""
        self._submitter.second(one)
        for side in self.sides.values():
            attempt = one.sides.get(side.name)
            if attempt is not None and attempt.live:
                with side.out_of_reach():
                    stop = self._meeting.reason_to_stop(one, attempt)
                    if stop is not None:
                        self.record.note("stop", tag=attempt.tag, reason=stop.reason, follows=stop.follows, final=stop.final)
                    self._cancel_again(side, attempt)
        for side in self.sides.values():
            with side.out_of_reach():
                self._meeting.carry(one, side)

    def _cancel_again(self, side: LinkSide, attempt: Attempt) -> None:
        """Repeat the order to end a stopped attempt. After `hpcq cancel`, say what is still there."""
        now = self.clock.now_s()
        if attempt.stopped and now - self._stopped_at.get(attempt.tag, -1e9) > _CANCEL_AGAIN_S:
            again, words = attempt.tag in self._stopped_at, side.cancel([attempt])
            self._stopped_at[attempt.tag] = now
            there_still = bool(attempt.native_id) and not attempt.state.terminal
            if self.state.cancelled and there_still and (again or words):
                there = f"{attempt.job_id} ({attempt.native_id} {attempt.state.value}){': ' + words if words else ''}"
                side.say(f"cancelling: still there: {there}; ordering it again")

    # -- small things -----------------------------------------------------------------------------------------------

    def _obey_cancel(self) -> None:
        if not self._request.exists() or self.state.cancelled:
            return
        reason = "cancelled by hpcq cancel"
        self.record.note("cancel", reason=reason)
        self.record.not_run(list(self.state.pending), reason)
        for attempt in list(self.state.active.values()):
            self.record.note("stop", tag=attempt.tag, reason=reason, follows=False, final=True)

    def _sleep(self, *, moved: bool) -> None:
        """Poll often while sides are about to meet or to end, rarely while they wait or measure."""
        if not (self.state.pending or self.state.active):
            return
        self._interval_s = self._pace_s if moved else min(self._pace_max_s, self._interval_s * _GROWTH)
        failing_s = [side.pace.interval_s for side in self.sides.values() if side.pace.failures >= FAILURES_SAID]
        self._interval_s = max([self._interval_s, *failing_s])
        due_s = min(self._meeting.patience_ends, self._submitter.due_s()) - self.clock.now_s()
        jitter = random.uniform(0.9, 1.1)  # noqa: S311 - so that drivers do not run in step
        left_s = min(self._interval_s * jitter, max(self._pace_s, due_s))
        while left_s > 0 and not self._obey_stop():
            self.clock.sleep(min(left_s, ATTENTIVE_S))
            left_s -= ATTENTIVE_S

    def _obey_stop(self) -> bool:
        """Look for a stop file of either cluster, whether or not its scheduler answers. Returns whether one is new or gone."""
        before = [side.account.stopped() for side in self.sides.values()]
        for side in self.sides.values():
            with contextlib.suppress(TransportError):  # the turn meets it too, and says it
                side.obey_stop()
            if (stopped := side.account.stopped()) is not None:
                self._end_early(f"{side.cluster.name}: {stopped}")
        return before != [side.account.stopped() for side in self.sides.values()]

"""One driver of a link: it hands in one job on each side, brings them together, and writes down how each of them ended.

    adopt    submissions that an earlier driver left open are looked up on their side, or claimed so they never run
    look     both sides: small files of the rendezvous, one poll; what ended is fetched and judged
    meet     addresses are carried, roles given, the server told to end; a side that waits too long is ended
    refill   both nodes of a pair idle -> both jobs rendered; the one that would start later is handed in first
    sleep    short while something is about to happen, growing while it measures

Everything it knows is in the journal or in files, so it can be killed anywhere. A side that is out of reach stops nothing
on the other one.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hpcq.errors import HpcqError, SchedulerError, TransportError
from hpcq.runner.jobs import pair_index_of
from hpcq.runner.link_jobs import LinkJob, make_side, write_side
from hpcq.runner.link_ledger import SIDES, LinkLedger, SideAttempt, Try, other
from hpcq.runner.link_meeting import PATIENCE_OVER, Meeting
from hpcq.runner.link_side import LinkSide
from hpcq.runner.outcome import Outcome, decide, measured_steps, read_object
from hpcq.scheduler.base import JobReport, JobState, NodeState
from hpcq.store.journal import Journal

#: Starts that are this close together count as equal: both sides are handed in at once.
_SAME_START_S = 5.0
#: How long a submission that was under way when a driver died may still take to reach the scheduler.
_SETTLE_S = 10.0
_FAILURES_SAID = (1, 5)
_GROWTH = 1.5


class LinkDriver:
    """Drives one link's part of a run to its end."""

    def __init__(self, sides: Mapping[str, LinkSide], journal: Journal, ledger: LinkLedger, say: Callable[[str], None]) -> None:
        self.link = ledger.link
        self.sides = sides
        self.journal = journal
        self.ledger = ledger
        self._say = say
        self.meeting = Meeting(self.link, sides, ledger, self.note)
        self._request = sides["from"].folder.parent / "cancel"
        self._pace_s = max(side.query_s for side in sides.values())
        self._pace_max_s = min(side.poll_max_s for side in sides.values())
        self._interval_s = self._pace_s
        self._waiting_since: float | None = None
        self._why_paused: str | None = None
        self._settling: dict[str, float] = {}
        self._ended_since: dict[str, float] = {}
        self._stopped_at: dict[str, float] = {}
        #: When the second job of a try may be handed in whatever the first one does; none: when the first one runs.
        self._due: dict[int, float] = {}

    def drive(self) -> None:
        """Run until nothing is pending or live."""
        while self.ledger.pending or self.ledger.active:
            before = len(self.journal)
            self._obey_cancel()
            for side in self.sides.values():
                with self._out_of_reach(side):
                    self._settle(side)
                    self._look(side)
            self.meeting.forget_patience()
            for one in self.ledger.open_tries:
                self._advance(one)
            self._refill()
            self._sleep(moved=len(self.journal) > before)

    def note(self, event: str, **fields: Any) -> None:
        """Write an event down, then believe it."""
        self.ledger.apply(self.journal.append(event, **fields))

    def say(self, text: str) -> None:
        """One line for a person."""
        self._say(f"{self.link.name}: {text}")

    # -- look -------------------------------------------------------------------------------------------------------

    def _look(self, side: LinkSide) -> None:
        live = [attempt for attempt in self.ledger.live_on(side.name) if attempt.native_id]
        side.fetch_small(live)
        for attempt, report in side.poll(live):
            if report.state is not attempt.state and report.state is not JobState.UNKNOWN:
                self.note("state", tag=attempt.tag, state=report.state.value, reason=report.reason)
            attempt.reason = report.reason  # why it still waits may change while its state does not
            self._judge(side, attempt, report)

    def _judge(self, side: LinkSide, attempt: SideAttempt, report: JobReport) -> None:
        exit_file = read_object(side.folder / attempt.folder / "exit.json")
        over = report.state.terminal or report.state in {JobState.ENDING, JobState.UNKNOWN}
        if not over and not (exit_file and exit_file.get("reason") == "done"):
            return
        never_ran = attempt.state is JobState.CANCELLED and not (side.folder / attempt.folder / "started.json").exists()
        since = self._ended_since.setdefault(attempt.tag, time.monotonic())
        # A job that the queue has never shown yet, or has forgotten, gets three graces before it counts as lost.
        grace_s = 0 if never_ran and attempt.stopped else side.grace_s * (3 if report.state is JobState.UNKNOWN else 1)
        outcome = decide(report, exit_file, waited_s=time.monotonic() - since, grace_s=grace_s)
        if outcome is not None:
            side.fetch_all(attempt)
            opposite = self.ledger.tries[pair_index_of(attempt.job_id)].sides.get(other(side.name))
            self._end(side, attempt, self.meeting.explain(attempt, opposite, outcome), report)

    def _end(self, side: LinkSide, attempt: SideAttempt, outcome: Outcome, report: JobReport | None) -> None:
        folder = side.folder / attempt.folder
        started, exit_file = read_object(folder / "started.json") or {}, read_object(folder / "exit.json") or {}
        self.note(
            "ended",
            tag=attempt.tag,
            outcome=outcome.outcome,
            reason=outcome.reason,
            native_state=report.native_state if report else None,
            nodes=[attempt.node],
            rc=exit_file.get("rc"),
            started_utc=started.get("started_utc"),
            ended_utc=exit_file.get("ended_utc"),
            measured=sorted(measured_steps(folder)),
            final=exit_file.get("reason") == PATIENCE_OVER,
        )
        if outcome.outcome != "completed":
            where = f"{attempt.job_id} attempt {attempt.attempt_no} on {side.cluster.name}"
            self.say(f"{where}: {outcome.outcome}: {outcome.reason}")

    # -- meet -------------------------------------------------------------------------------------------------------

    def _advance(self, one: Try) -> None:
        """Everything that may be due for one try: its second job, the rendezvous, its end."""
        self._second(one)
        for side in self.sides.values():
            attempt = one.sides.get(side.name)
            if attempt is not None and attempt.live:
                with self._out_of_reach(side):
                    stop = self.meeting.reason_to_stop(one, attempt)
                    if stop is not None:
                        self.note("stop", tag=attempt.tag, reason=stop.reason, follows=stop.follows, final=stop.final)
                    self._cancel(side, attempt)
        for side in self.sides.values():
            with self._out_of_reach(side):
                self.meeting.carry(one, side)

    def _second(self, one: Try) -> None:
        if len(one.sides) == len(SIDES):
            return
        [first] = one.sides.values()
        due = first.state is JobState.RUNNING or time.monotonic() >= self._due.get(one.index, 1e18)
        if not due or not first.live or not first.native_id or first.stopped:
            return
        side = self.sides[other(first.side)]
        with self._out_of_reach(side):
            job = make_side(self.ledger, one.index, side.name, one.attempt_no)
            side.push(job)
            self._hand_in(side, job, one.first)

    def _cancel(self, side: LinkSide, attempt: SideAttempt) -> None:
        """Ask for the end of what was stopped, again every ten seconds."""
        if attempt.stopped and time.monotonic() - self._stopped_at.get(attempt.tag, -1e9) > _SETTLE_S:
            side.cancel(attempt)
            self._stopped_at[attempt.tag] = time.monotonic()

    # -- refill -----------------------------------------------------------------------------------------------------

    def _refill(self) -> None:
        if not self.ledger.pending or len(self.ledger.open_tries) >= self.link.at_once:
            return
        states: dict[str, dict[str, NodeState]] = {}
        for side in self.sides.values():
            with self._out_of_reach(side):
                states[side.name] = side.nodes({attempt.node for attempt in self.ledger.live_on(side.name)})
        if len(states) < len(SIDES) or self._paused():
            return
        idle = {name: self._free(self.sides[name], found) for name, found in states.items()}
        chosen: list[int] = []
        for index in self.ledger.pending:
            nodes = {name: self.ledger.node(index, name) for name in SIDES}
            if (
                all(nodes[name] in idle[name] for name in SIDES)
                and len(self.ledger.open_tries) + len(chosen) < self.link.at_once
            ):
                chosen.append(index)
                for name in SIDES:
                    idle[name].discard(nodes[name])
        for index in chosen:
            self._waiting_since = None
            self._submit(index)
        if not chosen and not self.ledger.active:
            self._wait_for_nodes(states)

    def _paused(self) -> bool:
        """Whether a side gives way, or its hours are over: no new try then, and no patience is used up."""
        why = next((f"{side.cluster.name} {side.paused}" for side in self.sides.values() if side.paused), None)
        if why != self._why_paused:
            self.say(why or "goes on")
            self._why_paused = why
        if why is not None:
            self._waiting_since = None
        return why is not None

    def _free(self, side: LinkSide, states: Mapping[str, NodeState]) -> set[str]:
        """The idle nodes of a side that may have a job of ours; none where its budget is used up."""
        live = self.ledger.live_on(side.name)
        idle = side.idle(states)
        ours = {attempt.node for attempt in live}
        most = side.budget.jobs_at_most
        if (most is not None and len(live) >= most) or len(ours) >= side.budget.node_limit(len(idle | ours)):
            return set()
        return idle - ours

    def _submit(self, index: int) -> None:
        """Bring both scripts to their clusters, ask when they would start, hand in the later one first."""
        attempt_no, first = self.ledger.next_attempt_no(index), self.ledger.client_side(index)
        jobs = {name: make_side(self.ledger, index, name, attempt_no) for name in SIDES}
        waits: dict[str, float | None] = {}
        for side in self.sides.values():
            with self._out_of_reach(side):
                job = jobs[side.name]
                folder = side.folder / job.folder
                write_side(job, self.link, side.cluster, roots=(side.run_root, side.root), folder=folder, first=first)
                side.push(job)
                waits[side.name] = side.expected_wait_s(job)
        if len(waits) < len(SIDES):
            return  # one of them is out of reach: nothing was handed in, the pair stays pending
        known = {name: 1e9 if wait is None else wait for name, wait in waits.items()}
        slow, fast = sorted(SIDES, key=lambda name: -known[name])
        gap_s = known[slow] - known[fast]
        self.note("estimate", job_id=jobs[slow].job_id, attempt_no=attempt_no, wait_s=waits, goes_first=slow)
        self._due.pop(index, None)
        if known[slow] < 1e9 or waits[fast] is None:
            self._due[index] = time.monotonic() + (0.0 if gap_s <= _SAME_START_S else gap_s)
        with self._out_of_reach(self.sides[slow]):
            self._hand_in(self.sides[slow], jobs[slow], first)
        if index in self.ledger.tries:
            self._second(self.ledger.tries[index])

    def _hand_in(self, side: LinkSide, job: LinkJob, first: str) -> None:
        """The attempt is on the disk before the scheduler hears of it."""
        ids = {"job_id": job.job_id, "attempt_no": job.attempt_no}
        place = {"nodes": list(job.nodes), "side": side.name, "cluster": side.cluster.name}
        self.note("attempt", tag=job.tag, **ids, **place, first=first)
        answer = side.submit(job)
        if answer.native_id:
            self.note("submitted", tag=job.tag, native_id=answer.native_id)
        else:
            self.note("refused", tag=job.tag, message=answer.message)
            self.say(f"{side.cluster.name} refuses: {answer.message}")

    def _wait_for_nodes(self, states: Mapping[str, Mapping[str, NodeState]]) -> None:
        now = time.monotonic()
        patience_s = max(side.cluster.patience_s for side in self.sides.values())
        if self._waiting_since is None:
            self._waiting_since = now
            self.say(f"no pair has both its nodes idle; waiting {patience_s:g} s for one")
        if now - self._waiting_since < patience_s:
            return
        for index in list(self.ledger.pending):
            nodes = {name: self.ledger.node(index, name) for name in SIDES}
            words = {name: states[name][node].native_state if node in states[name] else "gone" for name, node in nodes.items()}
            seen = ", ".join(f"{self.sides[name].cluster.name}/{nodes[name]} {words[name]}" for name in SIDES)
            self._not_run([index], f"not idle for {patience_s:g} s: {seen}")

    # -- what nobody knows ------------------------------------------------------------------------------------------

    def _settle(self, side: LinkSide) -> None:
        """Find out what became of submissions that an earlier driver, or a broken connection, left open."""
        open_ones = self.ledger.undetermined(side.name)
        if not open_ones:
            return
        known = side.find(open_ones)
        for attempt in open_ones:
            since = self._settling.setdefault(attempt.tag, time.monotonic())
            if attempt.tag in known:
                self.note("submitted", tag=attempt.tag, native_id=known[attempt.tag])
            elif time.monotonic() - since > _SETTLE_S:
                self._withdraw(side, attempt)

    def _withdraw(self, side: LinkSide, attempt: SideAttempt) -> None:
        if side.claim(attempt):
            self._end(side, attempt, Outcome("withdrawn", "the scheduler never had it"), None)
            return
        side.fetch_all(attempt)
        started = read_object(side.folder / attempt.folder / "started.json") or {}
        self.note("submitted", tag=attempt.tag, native_id=str(started.get("native_id") or "unknown"))

    # -- small things -----------------------------------------------------------------------------------------------

    def _obey_cancel(self) -> None:
        if not self._request.exists() or self.ledger.cancelled:
            return
        reason = "cancelled by hpcq cancel"
        self.note("cancel", reason=reason)
        self._not_run(list(self.ledger.pending), reason)
        for attempt in list(self.ledger.active.values()):
            self.note("stop", tag=attempt.tag, reason=reason, follows=False, final=True)

    def _not_run(self, indices: Sequence[int], reason: str) -> None:
        for index in indices:
            pair = self.ledger.plan.planned_pairs()[index]
            self.note("not_run", job_id=pair.job_id, pair=[pair.client, pair.server], reason=reason)

    @contextlib.contextmanager
    def _out_of_reach(self, side: LinkSide) -> Iterator[None]:
        """A failed question changes nothing that is known; it is asked again later, and a person hears of it."""
        try:
            yield
        except (TransportError, SchedulerError) as error:
            side.failures += 1
            if side.failures in _FAILURES_SAID:
                self.say(f"{error.message} (asking again; {side.failures} times in a row)")
            if side.failures >= _FAILURES_SAID[-1]:
                self._interval_s = min(60.0, self._interval_s * 2)
            if isinstance(error, TransportError) and not error.transient:
                raise
        except HpcqError:
            raise
        else:
            side.failures = 0

    def _sleep(self, *, moved: bool) -> None:
        """Look often while sides are about to meet or to end, seldom while they wait or measure."""
        if not (self.ledger.pending or self.ledger.active):
            return
        self._interval_s = self._pace_s if moved else min(max(self._pace_max_s, self._pace_s), self._interval_s * _GROWTH)
        due = [
            self.meeting.patience_ends,
            *(self._due.get(one.index, 1e18) for one in self.ledger.open_tries if len(one.sides) < 2),
        ]
        nearest_s = max(self._pace_s, min(due) - time.monotonic())
        jitter = random.uniform(0.9, 1.1)  # noqa: S311 - so that drivers do not march in step
        time.sleep(min(self._interval_s * jitter, nearest_s))

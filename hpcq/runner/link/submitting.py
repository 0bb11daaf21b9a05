"""From a pair of a link to a job on each side: chosen where both nodes are idle and both budgets allow, the later one first.

idle nodes of both sides, budgets, limits -> pairs -> both scripts rendered and copied -> when would each start?
the side that would start later is handed in; the other one when that runs, or so much later
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hpcq.runner.drive.outcome import Outcome
from hpcq.runner.link.jobs import LinkJob, make_side, write_side
from hpcq.runner.link.link_run import LinkRun
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import SIDES, Try, other
from hpcq.scheduler.base import JobState, NodeState, QueueSnapshot

#: Starts that are this close together count as equal: both sides are handed in at once.
_SAME_START_S = 5.0
_NEVER = 1e18


class LinkSubmitter:
    """Hands in jobs for one link's driver."""

    def __init__(self, part: LinkRun) -> None:
        self._part = part
        self._ledger, self._sides = part.ledger, part.sides
        self._waiting_since: float | None = None
        #: When the second job of a try may be handed in whatever the first one does; none: when the first one runs.
        self._due: dict[int, float] = {}

    def waits_anew(self) -> None:
        """What was waited for nodes so far counts no more: something else ran meanwhile."""
        self._waiting_since = None

    def due_s(self) -> float:
        """When, by the monotonic clock, the next second job is due."""
        waiting = [self._due.get(one.index, _NEVER) for one in self._ledger.open_tries if len(one.sides) < len(SIDES)]
        return min(waiting, default=_NEVER)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def refill(self, snapshots: Mapping[str, QueueSnapshot]) -> set[int]:
        """Hand in pairs of which both nodes are idle; returns those that were begun."""
        if self._may_not():
            self._waiting_since = None
            return set()
        states = {name: snapshot.nodes for name, snapshot in snapshots.items() if snapshot.nodes is not None}
        if len(states) < len(SIDES) or not self._ledger.pending:
            return set()
        rooms = {name: self._sides[name].account.limit.room(snapshots[name]) for name in SIDES}
        walltime_s = self._ledger.plan.walltime_s
        chosen = self._choose({name: self._sides[name].free(states[name], rooms[name], walltime_s) for name in SIDES})
        if chosen and not self._reserved(states):
            return set()  # at the next turn the nodes are seen from inside
        begun = {index for index in chosen if self._submit(index)}
        if chosen:
            self._waiting_since = None
        elif not self._ledger.active and self._planned_anew():
            self._wait(states, full=0 in rooms.values())
        return begun

    def _may_not(self) -> bool:
        """Whether users wait on one side, or its budget has not enough for one more job; then the rest is not run."""
        walltime_s = self._ledger.plan.walltime_s
        for side in self._sides.values():
            spent = side.account.spent()
            if spent is None and not self._ledger.active and side.account.node_seconds_left() < walltime_s:
                spent = side.account.too_little(f"a job may take {walltime_s}")
            if spent is not None:
                self._part.not_run(list(self._ledger.pending), f"{side.cluster.name}: {spent}")
        return any(side.paused is not None for side in self._sides.values())

    def _reserved(self, states: Mapping[str, Sequence[NodeState]]) -> bool:
        """Whether jobs may be handed in; else the run's own reservations are made first, of the nodes of all pending pairs."""
        missing = [
            name
            for name in SIDES
            if (own_reservation := self._sides[name].account.own_reservation) is not None and own_reservation.wanted
        ]
        for name in missing:
            wanted = {self._ledger.node(index, name) for index in self._ledger.pending}
            refusal = self._sides[name].reserve(wanted, states[name])
            if refusal is not None:
                self._part.not_run(list(self._ledger.pending), f"{self._ledger.cluster_of(name)}: {refusal}")
                break
        return not missing

    def _planned_anew(self) -> list[int]:
        """Pending pairs, but those whose node could not be had a moment ago."""
        self._part.retry_later.forget(time.monotonic())
        return [index for index in self._ledger.pending if index not in self._part.retry_later.held_until]

    def _choose(self, free: Mapping[str, tuple[set[str], int]]) -> list[int]:
        room = min(count for _, count in free.values())
        room = min(room, self._part.link.at_once - len(self._ledger.open_tries))
        idle = {name: set(nodes) for name, (nodes, _) in free.items()}
        chosen: list[int] = []
        for index in self._planned_anew():
            if len(chosen) >= room:
                break
            nodes = {name: self._ledger.node(index, name) for name in SIDES}
            if all(nodes[name] in idle[name] for name in SIDES):
                chosen.append(index)
                for name in SIDES:
                    idle[name].discard(nodes[name])
        return chosen

    def _wait(self, states: Mapping[str, list[NodeState]], *, full: bool) -> None:
        now = time.monotonic()
        for side in self._sides.values():
            if side.account.own_reservation is not None and self._waiting_since is not None:
                side.account.own_reservation.drop()  # others of the wanted nodes may be idle by now
        patience_s = max(side.cluster.patience_s for side in self._sides.values())
        why = "other jobs of this user fill its limit" if full else "no pair has both its nodes idle"
        if self._waiting_since is None:
            self._waiting_since = now
            self._part.say(f"{why}; waiting {patience_s:g} s")
        if now - self._waiting_since < patience_s:
            return
        native = {name: {state.node: state.native_state for state in found} for name, found in states.items()}
        for index in self._planned_anew():
            nodes = {name: self._ledger.node(index, name) for name in SIDES}
            places = (
                f"{self._ledger.cluster_of(name)}/{nodes[name]} {native[name].get(nodes[name], 'gone')}" for name in SIDES
            )
            words = f"{why} for {patience_s:g} s" if full else f"not idle for {patience_s:g} s: {', '.join(places)}"
            self._part.not_run([index], words)

    # -- handing in -------------------------------------------------------------------------------------------------

    def _submit(self, index: int) -> bool:
        """Bring both scripts to their clusters, ask when they would start, hand in the later one first; was that done?"""
        attempt_no, first = self._ledger.next_attempt_no(index), self._ledger.client_side(index)
        jobs = {name: make_side(self._ledger, index, name, attempt_no) for name in SIDES}
        waits: dict[str, float | None] = {}
        for side in self._sides.values():
            with self._part.out_of_reach(side):
                job = jobs[side.name]
                folder = side.folder / job.folder
                roots = (side.run_root, side.root)
                write_side(job, self._part.link, side.account.site(side.cluster), roots=roots, folder=folder, first=first)
                side.push(job)
                waits[side.name] = side.expected_wait_s(job)
        if len(waits) < len(SIDES):
            return False  # one of them is out of reach: nothing was handed in, the pair stays pending
        known = {name: 1e9 if wait is None else wait for name, wait in waits.items()}
        slow, fast = sorted(SIDES, key=lambda name: -known[name])
        gap_s = known[slow] - known[fast]
        self._part.note("estimate", job_id=jobs[slow].job_id, attempt_no=attempt_no, wait_s=waits, goes_first=slow)
        self._due.pop(index, None)
        if known[slow] < 1e9 or waits[fast] is None:
            self._due[index] = time.monotonic() + (0.0 if gap_s <= _SAME_START_S else gap_s)
        with self._part.out_of_reach(self._sides[slow]):
            self._hand_in(self._sides[slow], jobs[slow], first)
        one = self._ledger.tries.get(index)
        if one is None or one.attempt_no != attempt_no:
            return False
        self.second(one)
        return True

    def second(self, one: Try) -> None:
        """Hand in the other side of a try, once that is due."""
        if len(one.sides) == len(SIDES):
            return
        [first] = one.sides.values()
        due = first.state is JobState.RUNNING or time.monotonic() >= self._due.get(one.index, _NEVER)
        if not due or not first.live or not first.native_id or first.stopped or first.withdrawal:
            return
        side = self._sides[other(first.side)]
        if side.paused is None:
            with self._part.out_of_reach(side):
                job = make_side(self._ledger, one.index, side.name, one.attempt_no)
                side.push(job)
                self._hand_in(side, job, one.first)

    def _hand_in(self, side: LinkSide, job: LinkJob, first: str) -> None:
        """The attempt is on the disk before the scheduler hears of it."""
        note = self._part.note
        ids = {"job_id": job.job_id, "attempt_no": job.attempt_no}
        place = {"nodes": list(job.nodes), "side": side.name, "cluster": side.cluster.name}
        note("attempt", tag=job.tag, **ids, **place, first=first)
        answer = side.submit(job)
        if answer.native_id:
            note("submitted", tag=job.tag, native_id=answer.native_id)
        elif answer.lost:
            return  # nobody knows: it is looked up at the next turn
        elif answer.limited and side.account.limit.met(len(side.account.live()) - 1, 0):
            self._part.end(side, self._ledger.attempts[job.tag], Outcome("withdrawn", answer.message), None)
        else:
            note("refused", tag=job.tag, message=answer.message)
            self._part.say(f"{side.cluster.name} refuses: {answer.message}")

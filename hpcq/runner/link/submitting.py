"""Turn a pair of a link into one job per side, if both nodes are idle and both budgets allow. The later one goes first.

idle nodes of both sides, budgets, limits -> pairs -> both scripts rendered and copied -> when would each start?
submit the side that would start later; submit the other one when that runs, or after the difference
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpcq.runner.link.jobs import LinkJob, make_side, write_side
from hpcq.runner.link.link_run import LinkRun
from hpcq.runner.link.side import LinkSide
from hpcq.runner.link.state import SIDES, Try, other
from hpcq.runner.queue.waiting import Shortage, WaitForNodes, shortage_of
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot
from hpcq.sorting import natural

#: Starts this close together count as equal: submit both sides at once.
_SAME_START_S = 5.0
_NEVER = 1e18


class LinkSubmitter:
    """Submits jobs for one link's driver."""

    def __init__(self, link_run: LinkRun) -> None:
        self._run = link_run
        self._state, self._sides = link_run.state, link_run.sides
        self.wait = WaitForNodes(link_run.record, link_run.clock)
        #: When to submit the second job of a try even if the first one does not run; without an entry: when it runs.
        self._due: dict[int, float] = {}

    def due_s(self) -> float:
        """Return when, by the monotonic clock, the next second job is due."""
        waiting = [self._due.get(one.index, _NEVER) for one in self._state.open_tries if len(one.sides) < len(SIDES)]
        return min(waiting, default=_NEVER)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def refill(self, snapshots: Mapping[str, QueueSnapshot]) -> set[int]:
        """Submit pairs whose nodes are both idle. Returns the pairs that it began."""
        if self._may_not():
            self.wait.end()
            return set()
        states = {name: snapshot.nodes for name, snapshot in snapshots.items() if snapshot.nodes is not None}
        if len(states) < len(SIDES) or not self._state.pending:
            return set()
        rooms = {name: self._sides[name].account.limit.room(snapshots[name]) for name in SIDES}
        walltime_s = self._state.plan.walltime_s
        chosen = self._choose({name: self._sides[name].free(states[name], rooms[name], walltime_s) for name in SIDES})
        if chosen and not self._reserved(states):
            return set()  # at the next turn hpcq sees the nodes from inside
        chosen = self._booked(chosen, walltime_s)
        begun = {index for index in chosen if self._submit(index)}
        if chosen:
            self.wait.end()
        elif not self._state.active and self._to_plan():
            self._wait(states, full=0 in rooms.values())
        return begun

    def _booked(self, chosen: list[int], walltime_s: int) -> list[int]:
        """Return the pairs for which both clusters have room beside all other runs of this user, which now see them."""
        for name in SIDES:
            account = self._sides[name].account
            if not chosen or not account.open():
                return []
            most_s = account.node_seconds_for_all()
            room = [max(0, int(most_s // walltime_s))] if most_s < math.inf else []
            most = account.budget_now().jobs_at_most
            room += [] if most is None else [max(0, most - len(account.live()))]
            chosen = chosen[: min(room, default=len(chosen))]
            if not account.book([(self._state.node(index, name),) for index in chosen], walltime_s):
                return []
        return chosen

    def _may_not(self) -> bool:
        """Whether users wait on one side.

        If a side's budget is too small for one more job, record that hpcq does not run the rest.
        """
        walltime_s = self._state.plan.walltime_s
        for side in self._sides.values():
            spent = side.account.spent()
            if spent is None and not self._state.active and side.account.node_seconds_left() < walltime_s:
                spent = side.account.too_little(f"a job may take {walltime_s}")
            if spent is not None:
                self._run.record.not_run(list(self._state.pending), f"{side.cluster.name}: {spent}")
        return any(side.paused is not None for side in self._sides.values())

    def _reserved(self, states: Mapping[str, Sequence[NodeState]]) -> bool:
        """Whether jobs may be submitted.

        Otherwise first make the run's own reservations, of the nodes of all pending pairs.
        """
        missing = [
            name
            for name in SIDES
            if (own_reservation := self._sides[name].account.own_reservation) is not None and own_reservation.wanted
        ]
        for name in missing:
            idle = {state.node for state in states[name] if state.condition is NodeCondition.IDLE}
            wanted = idle & {self._state.node(index, name) for index in self._state.pending}
            most = self._sides[name].account.budget.node_limit(len(idle))
            refusal = self._sides[name].reserve(set(sorted(wanted, key=natural)[:most]))
            if refusal is not None:
                self._run.record.not_run(list(self._state.pending), f"{self._state.cluster_of(name)}: {refusal}")
                break
        return not missing

    def _to_plan(self) -> list[int]:
        """Return the pending pairs, except those with a node that was unavailable a moment ago."""
        self._run.retry_later.forget(self._run.clock.now_s())
        return [index for index in self._state.pending if index not in self._run.retry_later.held_until]

    def _choose(self, free: Mapping[str, tuple[set[str], int]]) -> list[int]:
        room = min(count for _, count in free.values())
        room = min(room, self._run.link.at_once - len(self._state.open_tries))
        idle = {name: set(nodes) for name, (nodes, _) in free.items()}
        chosen: list[int] = []
        for index in self._to_plan():
            if len(chosen) >= room:
                break
            nodes = {name: self._state.node(index, name) for name in SIDES}
            if all(nodes[name] in idle[name] for name in SIDES):
                chosen.append(index)
                for name in SIDES:
                    idle[name].discard(nodes[name])
        return chosen

    def _wait(self, states: Mapping[str, list[NodeState]], *, full: bool) -> None:
        for side in self._sides.values():
            if side.account.own_reservation is not None and self.wait.waiting:
                side.account.own_reservation.drop()  # other wanted nodes may be idle by now
        by_name = {name: {state.node: state for state in found} for name, found in states.items()}
        lacking = {index: self._shortages(index, by_name) for index in self._to_plan()}
        full_s = max(side.cluster.patience_s for side in self._sides.values())
        why = "other jobs of this user fill its limit" if full else "no pair has both its nodes idle"
        self.wait.look([one for both in lacking.values() for one in both])
        left_s = {index: full_s - self.wait.waited_s() if full else self._left_s(both) for index, both in lacking.items()}
        self.wait.say(why, max(left_s.values(), default=0.0))
        for index, both in lacking.items():
            if left_s[index] <= 0:
                places = ", ".join(node for one in both for node in one.nodes)
                waited = f"{self.wait.waited_s():.0f} s"
                words = f"{why} for {waited}" if full else f"not idle for {waited}: {places}"
                self._run.record.not_run([index], words)

    def _left_s(self, both: Sequence[Shortage]) -> float:
        """Return how much longer to wait for a pair: as a node that is down allows, else the longer patience."""
        down = [one.patience_s - self.wait.waited_s(one) for one in both if one.down]
        return min(down) if down else max(one.patience_s for one in both) - self.wait.waited_s()

    def _shortages(self, index: int, by_name: Mapping[str, Mapping[str, NodeState]]) -> list[Shortage]:
        """Return what a pair lacks on either side."""
        found = []
        for name, side in self._sides.items():
            one = shortage_of([self._state.node(index, name)], by_name[name], side.cluster)
            found.append(replace(one, nodes=tuple(f"{side.cluster.name}/{node}" for node in one.nodes)))
        return found

    # -- submitting -------------------------------------------------------------------------------------------------

    def _submit(self, index: int) -> bool:
        """Copy both scripts to their clusters, ask when they would start, submit the later one first.

        Returns whether it did.
        """
        attempt_no, first = self._state.next_attempt_no(index), self._state.client_side(index)
        jobs = {name: make_side(self._state, index, name, attempt_no, self._sides[name].folder) for name in SIDES}
        waits: dict[str, float | None] = {}
        for side in self._sides.values():
            with side.out_of_reach():
                job = jobs[side.name]
                folder = side.folder / job.folder
                roots = (side.run_root, side.root)
                write_side(job, self._run.link, side.account.site(side.cluster), roots=roots, folder=folder, first=first)
                side.push(job)
                waits[side.name] = side.expected_wait_s(job)
        if len(waits) < len(SIDES):
            return False  # one of them is unreachable: nothing was submitted, the pair stays pending
        known = {name: 1e9 if wait is None else wait for name, wait in waits.items()}
        slow, fast = sorted(SIDES, key=lambda name: -known[name])
        gap_s = known[slow] - known[fast]
        self._run.record.note("estimate", job_id=jobs[slow].job_id, attempt_no=attempt_no, wait_s=waits, goes_first=slow)
        self._due.pop(index, None)
        if known[slow] < 1e9 or waits[fast] is None:
            self._due[index] = self._run.clock.now_s() + (0.0 if gap_s <= _SAME_START_S else gap_s)
        with self._sides[slow].out_of_reach():
            self._submit_side(self._sides[slow], jobs[slow], first)
        one = self._state.tries.get(index)
        if one is None or one.attempt_no != attempt_no:
            return False
        self.second(one)
        return True

    def second(self, one: Try) -> None:
        """Submit the other side of a try when that is due."""
        if len(one.sides) == len(SIDES):
            return
        [first] = one.sides.values()
        due = first.state is JobState.RUNNING or self._run.clock.now_s() >= self._due.get(one.index, _NEVER)
        if not due or not first.live or not first.native_id or first.stopped or first.withdrawal:
            return
        side = self._sides[other(first.side)]
        if side.paused is None:
            with side.out_of_reach():
                job = make_side(self._state, one.index, side.name, one.attempt_no, side.folder)
                side.push(job)
                self._submit_side(side, job, one.first)

    def _submit_side(self, side: LinkSide, job: LinkJob, first: str) -> None:
        """Submit one side. The attempt is on the disk before the scheduler gets the job."""
        ids = {"job_id": job.job_id, "attempt_no": job.attempt_no, "walltime_s": job.walltime_s}
        place = {"nodes": list(job.nodes), "side": side.name, "cluster": side.cluster.name}
        self._run.record.note("attempt", tag=job.tag, **ids, **place, first=first)
        side.submit([job])

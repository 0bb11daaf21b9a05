"""One driver of one cluster: waves of jobs from the nodes idle now.

    find     what an earlier driver left: submissions of which nobody knows are looked up, or claimed so they never run
    look     one command: all live attempts, the nodes if there is something to submit, who else waits if we yield
    take     ended attempts are fetched in few copies and judged, then written down with one wait for the disk
    withdraw queued jobs that users need to be out of the way, or that can never start
    refill   nodes idle now + what is pending -> a wave
    sleep    growing; pace.py

Everything it knows is in the journal before it acts on it, so it can be killed anywhere. docs/driver.md says what it promises.
What it shares with the driver of a link is in queue/cluster_queue.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hpcq.planning.allocations import choose_allocations
from hpcq.planning.job_ids import pair_index_of
from hpcq.planning.waves import choose_wave, nodes_within
from hpcq.run_folder.paths import write_json
from hpcq.runner.drive.cluster_run import ClusterRun, Pending
from hpcq.runner.drive.spooling import Spools
from hpcq.runner.drive.submitting import Submitter
from hpcq.runner.queue.attempt_files import driven_json
from hpcq.runner.queue.reservations import OwnReservation
from hpcq.runner.queue.waiting import WaitForNodes, shortage_of
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot
from hpcq.sorting import natural


class Driver:
    """Drives one cluster's part of a run."""

    def __init__(self, cluster_run: ClusterRun) -> None:
        self.cluster_run = cluster_run
        self.record, self.state = cluster_run.record, cluster_run.state
        self.queue, self.account = cluster_run.queue, cluster_run.account
        self.pace, self.clock = self.queue.pace, self.queue.clock
        self._started_s = self.clock.now_s()
        self._submitter = Submitter(cluster_run)
        self._spools = Spools(self.queue)
        self._wait = WaitForNodes(self.record, self.clock)
        #: The pairs to play now; None: all.
        self._due: frozenset[int] | None = None

    # -- the loop ---------------------------------------------------------------------------------------------------

    def drive(self, due: Collection[int] | None = None, *, only_submit: bool = False) -> None:
        """Run until nothing is pending or live; with only_submit, until the first wave is submitted.

        due: play these pairs only, as places in the plan, and leave the others pending.
        """
        self._due = None if due is None else frozenset(due)
        self._wait.end()
        while self._pending() or self.state.active:
            eager, answered = True, False
            with self.queue.out_of_reach():
                eager = self._turn()
                answered = True
            if only_submit and answered and not self.state.undetermined:
                return
            if self.state.active or self._pending():
                self.pace.sleep(eager=eager)

    def finish(self) -> dict[str, Any]:
        """Close the part: all is done or given up. Returns what driven.json says."""
        if self.account.own_reservation is not None:
            self.account.own_reservation.drop(patiently=True)
        self.record.note("closed")
        wall_s = self.clock.now_s() - self._started_s
        driven = driven_json(wall_s, self.queue.scheduler.query_count, self.state)
        write_json(self.queue.folder / "driven.json", driven)
        return driven

    def _pending(self) -> Pending:
        """What waits for a job."""
        return Pending(self.state, self.queue.retry_later.held_until, self._due)

    def _turn(self) -> bool:
        """Look once and do what follows; returns whether more may be done soon."""
        before = len(self.record.journal)
        self._obey_cancel()
        self.queue.find_undetermined()
        self.queue.retry_later.forget(self.clock.now_s())
        snapshot = self.queue.look(refill=bool(self._pending()))
        self.queue.take(snapshot.reports)
        self._spools.read()
        paused = self.queue.pause(snapshot)
        if paused is not None:
            self.queue.end_early(self.queue.live(), paused)
        self.queue.withdraw(snapshot)
        if snapshot.nodes is not None:
            self._refill(snapshot, snapshot.nodes)
        changed = len(self.record.journal) > before
        last_ones_run = self.state.count(JobState.QUEUED) == 0 and bool(self.state.active)
        return last_ones_run or (changed and bool(self._pending()))

    def cancel(self, reason: str) -> None:
        """Plan nothing more; the loop orders the end of every attempt until it is seen, and fetches what was measured."""
        if not self.state.cancelled:
            self.record.note("cancel", reason=reason)
        self.record.not_run(list(self.state.pending), reason)

    def _obey_cancel(self) -> None:
        request = self.queue.folder.parent / "cancel"
        if request.exists() and not self.state.cancelled:
            self.cancel("cancelled by hpcq cancel")
        if self.state.cancelled:
            self.queue.cancel_all()

    # -- refill -----------------------------------------------------------------------------------------------------

    def _refill(self, snapshot: QueueSnapshot, states: Sequence[NodeState]) -> None:
        if not self._pending() or self.queue.paused is not None:
            self._wait.end()
            return
        spent = self.account.spent()
        if spent is not None:
            self.record.not_run(list(self.state.pending), spent)
            return
        room = self.account.limit.room(snapshot)
        wave = self._choose(states, room)
        own_reservation = self.account.own_reservation
        if wave and own_reservation is not None and own_reservation.wanted:
            if self._reserve(own_reservation, states):
                within = self.queue.look(refill=True)  # the nodes as they are seen from inside
                self._refill(within, within.nodes or ())
        elif wave:
            self._wait.end()
            idle = [state.node for state in states if state.condition is NodeCondition.IDLE]
            self._submitter.submit(wave, idle)
            self.queue.find_undetermined()
        elif not self.state.active and any(self._pending()):
            if own_reservation is not None and self._wait.waiting:
                own_reservation.drop()  # others of the wanted nodes may be idle by now
            self._wait_for_nodes(states, full=room == 0)

    def _reserve(self, own_reservation: OwnReservation, states: Sequence[NodeState]) -> bool:
        """Make the reservation for the next jobs; whether it is there, or the campaign goes on without."""
        pending = self._pending()
        wanted = {node for pair in pending for node in (pair.client, pair.server)}
        idle = {state.node for state in states if state.condition is NodeCondition.IDLE}
        nodes = nodes_within(pending, idle & wanted, set(), self.account.budget.node_limit(len(idle)))
        refusal = self.queue.reserve(nodes)
        if refusal is not None:
            self.record.not_run(list(self.state.pending), refusal)
        return not own_reservation.wanted

    def _choose(self, states: Sequence[NodeState], room: int | None) -> list[list[int]]:
        idle = [state.node for state in states if state.condition is NodeCondition.IDLE]
        jobs = self.account.active_jobs()
        budget = self.account.budget_now()
        if room is not None:
            within = len(jobs) + room
            most = budget.jobs_at_most
            budget = replace(budget, jobs_at_most=within if most is None else min(most, within))
        pending = self._pending()
        if self.state.plan.allocation != "pair":
            allocations = choose_allocations(pending, idle, jobs, budget, self.state.plan)
            return [[pair_index_of(pair.job_id) for pair in pairs] for pairs in allocations]
        # Who yields queues nothing behind its own jobs: a user's job need not wait for more than the one that runs.
        layers = 1 if budget.gives_way else None
        return [[pair_index_of(pair.job_id)] for pair in choose_wave(pending, idle, jobs, budget, layers_at_most=layers)]

    def _wait_for_nodes(self, states: Sequence[NodeState], *, full: bool) -> None:
        """Wait for users to leave and, where the campaign says so, for nodes to come back; give up what has waited too long."""
        by_name = {state.node: state for state in states}
        plan, cluster = self.state.plan, self.queue.cluster
        pending = [pair_index_of(pair.job_id) for pair in self._pending()]
        lacking = {index: shortage_of(plan.pairs[index], by_name, cluster) for index in pending}
        longest_s = cluster.patience_s if full else max(one.patience_s for one in lacking.values())
        why = "other jobs of this user fill its limit" if full else "no two of the wanted nodes are idle"
        down = sorted({node for one in lacking.values() if one.down for node in one.nodes}, key=natural)
        if down and not full:
            why += f" ({', '.join(down[:4])}{', ...' if len(down) > 4 else ''})"
        waited_s = self._wait.waited_s(why, longest_s)
        for index, one in lacking.items():
            if waited_s >= (longest_s if full else one.patience_s):
                reason = f"{why} for {waited_s:.0f} s" if full else f"not idle for {waited_s:.0f} s: {', '.join(one.nodes)}"
                self.record.not_run([index], reason)

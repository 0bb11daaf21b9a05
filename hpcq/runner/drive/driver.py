"""The driver of one cluster: it submits waves of jobs for the nodes that are idle now.

    find     look up submissions whose fate an earlier driver left open, or claim them so that they never run
    look     one command: all live attempts, the nodes if pairs are pending, waiting jobs of others if we yield
    take     fetch ended attempts in few copies, judge them, and record them with one wait for the disk
    withdraw queued jobs that stand in users' way, or that can never start
    refill   nodes idle now + what is pending -> a wave
    sleep    growing; pace.py

It records everything in the journal before it acts, so you can kill it at any point. docs/driver.md lists its
promises. queue/cluster_queue.py has what it shares with the driver of a link.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcq import nodelist
from hpcq.errors import HpcqError, TransportError
from hpcq.nodelist import natural
from hpcq.planning.allocations import choose_allocations, estimate_s, pairs_by_fabric, rounds_of
from hpcq.planning.plan import PlannedPair, pair_index_of
from hpcq.planning.waves import choose_wave, nodes_within
from hpcq.run_folder.failed_starts import StartWords, cause_of, first_error, words_of
from hpcq.run_folder.journal import Attempt
from hpcq.run_folder.paths import write_json
from hpcq.runner.drive.tournaments import Spools, Tournament, make_tournament, write_any
from hpcq.runner.queue.attempt_files import driven_json
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.reservations import OwnReservation
from hpcq.runner.queue.run_state import ClusterState, Job, Record, make_job
from hpcq.runner.queue.yield_policy import WaitForNodes, shortage_of
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot
from hpcq.transport import quote


@dataclass(frozen=True, slots=True)
class Pending:
    """The pairs that wait for a job, in plan order.

    It makes them one by one on demand, since there may be half a million.
    """

    state: ClusterState
    held: Mapping[int, float]
    #: Consider only these; None: all.
    due: frozenset[int] | None = None
    #: Whether pairs that failed the other way round are among them, behind the others.
    again: bool = True

    def __iter__(self) -> Iterator[PlannedPair]:
        free = (index for index in self.state.pending if index not in self.held and (self.due is None or index in self.due))
        plan, failed = self.state.plan, self.state.failed_pairs()
        if not failed:
            yield from map(plan.pair_at, free)
            return
        indices = list(free)  # other partners say more of a node than the pair that failed, the other way round
        for again in (False, True) if self.again else (False,):
            yield from (
                plan.pair_at(one)
                for one in indices
                if ((plan.interface_of(one), frozenset(plan.nodes_at(one))) in failed) is again
            )

    def __len__(self) -> int:
        """Return how many pairs wait, including those on hold."""
        return len(self.state.pending) if self.due is None else len(self.state.pending.keys() & self.due)


# ----------------------------------------------------------------------------------------------------------------------
# Look before the leap: while nothing is measured, a failure that every job will share ends the run.
#
#     words of ended jobs     with a known cause, on so many nodes that no single node explains them; where a campaign
#                             measures several networks, over each of them: else only the pairs of that network end
#     a job that never began  -> what an idle node says of the run's folder
#
# One bad node, or trouble that may pass, ends nothing: other jobs, and the next attempt, show what it was.


class FirstJobs:
    """What the first jobs of a run say about all others."""

    def __init__(self, state: ClusterState, queue: ClusterQueue) -> None:
        self._state, self._queue = state, queue
        self._seen_count = 0
        self._asked = False
        #: Interfaces over which no job can start its programs, and why.
        self._dead: dict[str, str] = {}
        #: Why no job of the run can start its programs, and the remedy.
        self._found: tuple[str, str] | None = None

    def failure(self) -> tuple[str, str] | None:
        """Return why no job of this run can start its programs, and the remedy; None while nothing shows that."""
        state = self._state
        if state.cancelled or state.measured_now_count:
            return None
        if (found := self._of_all()) is not None:
            return found
        folder = self._queue.folder
        failed = [one for one in state.attempts.values() if one.outcome == "failed" or one.state is JobState.FAILED]
        if not self._asked and any(not (folder / one.folder / "started.json").exists() for one in failed):
            self._asked = True
            return self._of_node()
        return None

    def unmeasurable(self) -> list[tuple[list[int], str]]:
        """Return the pairs of each network over which no job can start its programs, and why, if some other one can."""
        plan = self._state.plan
        if self._of_all() is not None:
            return []
        return [([index for index, one in enumerate(plan.over) if one == over], words) for over, words in self._dead.items()]

    def _of_all(self) -> tuple[str, str] | None:
        """Return what ends the run: a failure that jobs over each network share. One of a single network is kept."""
        plan, found = self._state.plan, self._found
        ended = [one for one in self._state.attempts.values() if one.outcome in _PROVING]
        if len(ended) == self._seen_count:
            return found
        self._seen_count = len(ended)
        networks = dict.fromkeys(plan.over) or {"": None}
        for over in networks:
            here = [one for one in ended if not over or plan.interface_of(one.pairs[0]) == over]
            measured = any(not self._state.lacks_all(index) for one in here for index in one.pairs)
            found = None if measured else self._shared(here)
            if found is not None and over:
                self._dead[over] = found[0]
        self._found = found if len(self._dead) == len(networks) or not plan.over else None
        return self._found

    def _shared(self, ended: Sequence[Attempt]) -> tuple[str, str] | None:
        plan = self._state.plan
        by_remedy: dict[str, list[tuple[Attempt, StartWords]]] = {}
        for one in ended:
            words = StartWords(one.reason) if one.outcome == "refused" else words_of(self._queue.folder / one.folder)
            cause = cause_of(words.text)
            if cause is None or cause.may_pass:
                continue
            if cause.everywhere or words.on_each_node:
                return words.text, cause.remedy
            by_remedy.setdefault(cause.remedy, []).append((one, words))
        begun = {node for one in self._state.attempts.values() if one in ended or one.state in _BEGUN for node in one.nodes}
        for remedy, found in by_remedy.items():
            # Any of these nodes may be the bad one. If no pair is without them, or each failed without the others, all fail.
            # On a large cluster several nodes may be bad: most of those where a job has begun must say so.
            nodes = [{*one.nodes} for one, _ in found]
            suspects = set.intersection(*nodes)
            alone = any(suspects.isdisjoint(plan.nodes_at(index)) for index in range(len(plan.pairs)))
            several = not suspects and 2 * len(set.union(*nodes)) > len(begun)
            if several or (not alone and (len(found) > 1 or not found[0][0].shared)):
                return found[0][1].text, remedy
        return None

    def _of_node(self) -> tuple[str, str] | None:
        """Return what an idle node says of the run's folder, if that explains a job that failed before its script began."""
        with contextlib.suppress(HpcqError):
            done = self._queue.scheduler.probe(f"cd {quote(self._queue.root)} && : >.seen && rm .seen")
            words = first_error(done.stderr or done.text)
            cause = cause_of(words) if done.returncode != 0 else None
            if cause is not None and "work_directory" in cause.remedy and not cause.may_pass:
                return words, cause.remedy
        return None


#: Outcomes of jobs that say something about the next ones.
_PROVING = frozenset({"failed", "refused", "completed", "lost"})
_BEGUN = frozenset({JobState.RUNNING, JobState.ENDING})


# ----------------------------------------------------------------------------------------------------------------------
# Turn pairs into queued jobs: commit them to the journal, render, copy and submit them.
#
# too dear    the job's whole time limit would exceed the budget: it waits for others to end, or gets a shorter limit
#
# queue/refusals.py interprets refusals.


#: How many jobs to commit, copy and submit at a time: bounds memory, and how many jobs go back after a refusal.
_CHUNK = 200


class Submitter:
    """Submits jobs for one driver."""

    def __init__(self, record: Record[ClusterState], queue: ClusterQueue) -> None:
        self._record, self._state, self._plan = record, record.state, record.state.plan
        self._queue, self._account = queue, queue.account

    def submit(self, wave: Sequence[Sequence[int]], idle: Sequence[str]) -> None:
        """Submit one job for each of these lists of pairs. Stops early when the site allows no more."""
        queue = self._queue
        for start in range(0, len(wave), _CHUNK):
            jobs = self._affordable([self._job(indices, place) for place, indices in enumerate(wave[start : start + _CHUNK])])
            if not jobs:
                return
            self._commit(jobs, idle)
            queue.transport.push(queue.folder, queue.root, [job.folder for job in jobs])
            if not queue.submit(jobs):
                return

    def _job(self, indices: Sequence[int], place: int) -> Job | Tournament:
        """Return the job of one pair, or the tournament of several.

        `place` counts those that are not in the journal yet.
        """
        plan, state, folder = self._plan, self._state, self._queue.folder
        if plan.allocation == "pair":
            [index] = indices
            return make_job(plan, index, state.next_attempt_no(index), state.missing(index), folder)
        missing = {index: state.missing(index) for index in indices}
        return make_tournament(plan, indices, state.tournament_count + 1 + place, missing, folder)

    def _affordable(self, jobs: Sequence[Job | Tournament]) -> list[Job | Tournament]:
        """Return the first of these jobs that fit the node-seconds budget, even if each uses its whole time limit.

        Jobs that end leave more, so the others wait. The last job may get a shorter limit, down to its estimate.
        If not even that fits, hpcq does not run the rest.
        """
        account = self._account
        left, kept = account.node_seconds_left(), list[Job | Tournament]()
        left_for_all = account.node_seconds_for_all()
        for job in jobs:
            left_for_all -= len(job.nodes) * job.walltime_s
            if left_for_all < 0:
                break
            if len(job.nodes) * job.walltime_s > left:
                if kept or self._state.active:
                    break
                job = replace(job, walltime_s=int(left / len(job.nodes)))  # noqa: PLW2901 - the same job, with less time
                needed_s = self._estimated_s(job)
                if job.walltime_s < needed_s:
                    words = f"a job of {len(job.nodes)} nodes needs about {len(job.nodes) * needed_s:.0f}"
                    self._record.not_run(list(self._state.pending), account.too_little(words))
                    break
            kept.append(job)
            left -= len(job.nodes) * job.walltime_s
        return kept

    def _estimated_s(self, job: Job | Tournament) -> float:
        plan = self._plan
        if isinstance(job, Job):
            return plan.cost.estimated_job_s
        return estimate_s(plan.tests, plan.repetition_count, len(rounds_of(job.pairs)), len(job.pairs))

    def _commit(self, jobs: Sequence[Job | Tournament], idle: Sequence[str]) -> None:
        queue = self._queue
        for job in jobs:
            first = job.job if isinstance(job, Job) else job.pairs[0].job
            site = replace(self._account.site(queue.cluster), interface=self._plan.interface_of(pair_index_of(first)))
            write_any(job, queue.kernels, site, queue.root, queue.folder / job.folder)
        wave: dict[str, Any] = {"event": "wave", "idle": nodelist.fold(idle), "jobs": [job.job for job in jobs]}
        attempts: list[dict[str, Any]] = [
            {
                "event": "attempt",
                "tag": job.tag,
                "job": job.job,
                "attempt_no": job.attempt_no,
                "nodes": list(job.nodes),
                "walltime_s": job.walltime_s,
                **({"pairs": [pair.job for pair in job.pairs]} if isinstance(job, Tournament) else {}),
            }
            for job in jobs
        ]
        self._record.note_all([wave, *attempts])


# ----------------------------------------------------------------------------------------------------------------------


#: How many jobs wait for a node at most, its running one included, where further ones may turn out to be decided.
_LAYERS_TO_DECIDE = 2
#: How long a run waits for other runs of the same user, which take what the cluster file allows.
_RUNS_WAIT_S = 86400.0
#: How often it looks meanwhile.
_RUNS_LOOK_S = 30.0


class Driver:
    """Drives one cluster's part of a run."""

    def __init__(self, record: Record[ClusterState], queue: ClusterQueue) -> None:
        self.record, self.state = record, record.state
        self.queue, self.account = queue, queue.account
        self.pace, self.clock = queue.pace, queue.clock
        self._started_s = self.clock.now_s()
        self._submitter = Submitter(record, queue)
        self._spools = Spools(self.queue)
        self._first_jobs = FirstJobs(self.state, queue)
        self._wait = WaitForNodes(self.record, self.clock)
        #: The pairs to run now; None: all.
        self._due: frozenset[int] | None = None
        #: How long jobs may wait for nodes; None: as long as the cluster file says.
        self._patience_s: float | None = None
        #: Whether only other runs of this user keep it from submitting.
        self._beside_runs = False

    # -- the loop ---------------------------------------------------------------------------------------------------

    def drive(self, due: Collection[int] | None = None, *, only_submit: bool = False, patience_s: float | None = None) -> None:
        """Run until nothing is pending or live; with only_submit, until the first wave is submitted.

        due: run only these pairs, as indices in the plan, and leave the others pending. patience_s: give up what has not
        started by then.
        """
        self._due = None if due is None else frozenset(due)
        self._patience_s = patience_s
        self._wait.end()
        while self._pending() or self.state.active:
            eager, answered = True, False
            with self.queue.out_of_reach():
                eager = self._turn()
                answered = True
            if only_submit and answered and not self.state.undetermined:
                return
            if self.state.active or self._pending():
                least_s = _RUNS_LOOK_S if self._beside_runs else 0.0
                quiet = self.queue.paused is not None and not self.state.active
                self.pace.sleep(eager=eager, quiet=quiet, least_s=least_s, wakes=self._wanted)

    def finish(self) -> dict[str, Any]:
        """Close the part: every pair is done or given up. Returns the content of driven.json."""
        if self.account.own_reservation is not None:
            self.account.own_reservation.drop(patiently=True)
        self.queue.wait_for_late()
        self.record.note("closed")
        self.account.close()
        wall_s = self.clock.now_s() - self._started_s
        driven = driven_json(wall_s, self.queue.scheduler.query_count, self.state)
        write_json(self.queue.folder / "driven.json", driven)
        return driven

    def _pending(self) -> Pending:
        """Return the pairs that wait for a job."""
        return Pending(self.state, self.queue.retry_later.held_until, self._due)

    def _turn(self) -> bool:
        """Poll once and act on the answer. Returns whether there may soon be more to do."""
        before = len(self.record.journal)
        self._beside_runs = False
        self._obey_cancel()
        self.queue.find_undetermined()
        self.queue.retry_later.forget(self.clock.now_s())
        snapshot = self.queue.look(refill=bool(self._pending()))
        self.queue.take(snapshot.reports)
        self._spools.read()
        self._drop_decided()
        if self._due is None and self.state.plan.over:
            for indices, words in self._first_jobs.unmeasurable():
                self._drop(indices, words)
        if self._patience_s is not None and self.clock.now_s() - self._started_s >= self._patience_s:
            self._drop(list(self._due or ()), f"no nodes came free for it within {self._patience_s:g} s")
        paused = self.queue.pause(snapshot)
        if paused is not None:
            self.queue.end_early(self.queue.live(), paused)
        self.queue.withdraw(snapshot)
        if snapshot.nodes is not None:
            self._refill(snapshot, snapshot.nodes)
        changed = len(self.record.journal) > before
        last_ones_run = self.state.count(JobState.QUEUED) == 0 and bool(self.state.active)
        return last_ones_run or (changed and bool(self._pending()))

    def _drop_decided(self) -> None:
        """Give up what pairs are left of a node that has failed with enough partners: they would tell nothing new."""
        plan = self.state.plan
        for (over, node), others in (self.state.decided() if plan.decided_after else {}).items():
            words = f"over {over} " if plan.over else ""
            reason = f"decided: {node} failed {words}with {', '.join(others)}, which are fine with others"
            dropped = {
                index for index in range(len(plan.pairs)) if node in plan.nodes_at(index) and plan.interface_of(index) == over
            }
            self._drop(dropped, reason)
            running = [one for one in self.queue.live() if dropped & {*one.pairs} and one.state is JobState.RUNNING]
            self.queue.end_early([one for one in running if not one.withdrawal], reason)

    def _drop(self, indices: Collection[int], reason: str) -> None:
        """Give up these pairs where they have not started."""
        wanted = set(indices)
        self.record.not_run([index for index in self.state.pending if index in wanted], reason)
        queued = [one for one in self.queue.live() if one.state is JobState.QUEUED and not one.withdrawal]
        dropped = [one for one in queued if wanted.issuperset(one.pairs)]
        self.record.note_all([{"event": "withdraw", "tag": one.tag, "reason": reason, "final": True} for one in dropped])

    def cancel(self, reason: str) -> None:
        """Plan nothing more.

        The loop orders the end of all attempts until they have ended, and fetches their measurements.
        """
        if not self.state.cancelled:
            self.record.note("cancel", reason=reason)
        self.record.not_run(list(self.state.pending), reason)

    def _wanted(self) -> bool:
        """Return whether a person wants something else by now. A stop file ends jobs, whether or not the scheduler answers."""
        before = self.account.shared.stopped
        with contextlib.suppress(TransportError):  # the turn meets it too, and says it
            self.queue.obey_stop()
        return self._cancel_is_new() or self.account.shared.stopped != before

    def _cancel_is_new(self) -> bool:
        return not self.state.cancelled and (self.queue.folder.parent / "cancel").exists()

    def _obey_cancel(self) -> None:
        if self._cancel_is_new():
            self.cancel("cancelled by hpcq cancel")
        if self.state.cancelled:
            self.queue.cancel_all()

    # -- refill -----------------------------------------------------------------------------------------------------

    def _refill(self, snapshot: QueueSnapshot, states: Sequence[NodeState]) -> None:
        # An acceptance chooses its pairs as it goes, and a node on which nothing starts is what it looks for.
        if self._due is None and (found := self._first_jobs.failure()) is not None:
            words, remedy = found
            self.record.note("cancel", reason=words, remedy=remedy)
            self.cancel(words)
            self._obey_cancel()
            return
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
                within = self.queue.look(refill=True)  # the nodes as a job in the reservation sees them
                self._refill(within, within.nodes or ())
        elif wave and (booked := self._booked(states, room)):
            self._wait.end()
            self._submitter.submit(booked, self._free(states))
            self.queue.find_undetermined()
        elif not self.state.active and any(self._pending()):
            if own_reservation is not None and self._wait.waiting:
                own_reservation.drop()  # other wanted nodes may be idle by now
            self._wait_for_nodes(states, room)

    def _booked(self, states: Sequence[NodeState], room: int | None) -> list[list[int]]:
        """Return the next jobs, which all runs of this user now see; empty if limits over all runs leave no room."""
        if self.account.node_seconds_for_all() < self._least_node_seconds() or not self.account.shared.open():
            return []
        plan, wave = self.state.plan, self._choose(states, room)
        jobs = [tuple({node for index in indices for node in plan.nodes_at(index)}) for indices in wave]
        if jobs and self.account.node_seconds_for_all() < len(jobs[0]) * plan.walltime_s:
            jobs = []
        return wave if self.account.book(jobs, plan.walltime_s) and jobs else []

    def _reserve(self, own_reservation: OwnReservation, states: Sequence[NodeState]) -> bool:
        """Make the reservation for the next jobs. Returns whether it exists, or the campaign continues without it."""
        pending = next(iter(pairs_by_fabric(self._pending(), self.state.plan)), [])
        wanted = {node for pair in pending for node in pair.nodes}
        idle = set(self._free(states))
        nodes = nodes_within(pending, idle & wanted, set(), self.account.budget.node_limit(len(idle)))
        refusal = self.queue.reserve(nodes)
        if refusal is not None:
            self.record.not_run(list(self.state.pending), refusal)
        return not own_reservation.wanted

    def _free(self, states: Sequence[NodeState]) -> list[str]:
        """Return the nodes that jobs may ask for now. Where the run reserves nodes, only idle ones: no job is planned there."""
        reserves = self.account.own_reservation is not None and self.account.own_reservation.wanted
        there = [one for one in states if one.condition is NodeCondition.IDLE or (one.free and not reserves)]
        return [one.node for one in there if one.kept_from(self.state.plan.walltime_s) is None]

    def _choose(self, states: Sequence[NodeState], room: int | None, *, alone: bool = False) -> list[list[int]]:
        """Return the pairs of the next jobs. alone: as if no other run of this user took anything."""
        idle = self._free(states)
        jobs = self.account.active_jobs()
        budget = self.account.budget_now(alone=alone)
        if room is not None:
            within = len(jobs) + room
            most = budget.max_jobs
            budget = replace(budget, max_jobs=within if most is None else min(most, within))
        # While anything of ours runs, a pair that failed waits for other partners of its nodes: they decide whose fault it is.
        pending = replace(self._pending(), again=not self.state.active)
        if self.state.plan.allocation != "pair":
            allocations = choose_allocations(pending, idle, jobs, budget, self.state.plan)
            return [[pair_index_of(pair.job) for pair in pairs] for pairs in allocations]
        # If the campaign yields, hpcq queues nothing behind its own jobs: users wait for at most the running one.
        layers = 1 if budget.gives_way else _LAYERS_TO_DECIDE if self.state.plan.decided_after else None
        return [[pair_index_of(pair.job)] for pair in choose_wave(pending, idle, jobs, budget, layers_at_most=layers)]

    def _full(self, states: Sequence[NodeState], room: int | None) -> tuple[str, float]:
        """Return the limit that leaves no room for a job, in words, and how long to wait for it; empty: none does."""
        if room == 0:
            return "other jobs of this user fill its limit", self.queue.cluster.max_wait_s
        if not self._choose(states, room, alone=True):
            return "", 0.0
        words = self.account.taken_elsewhere(self._least_node_seconds())
        self._beside_runs = bool(words)
        return words, _RUNS_WAIT_S

    def _least_node_seconds(self) -> float:
        """Return what the smallest job may take: two nodes for the plan's time limit."""
        return 2.0 * self.state.plan.walltime_s

    def _wait_for_nodes(self, states: Sequence[NodeState], room: int | None) -> None:
        """Wait for busy nodes, and for nodes to come back if the campaign says so.

        Give up pairs that waited too long.
        """
        by_name = {state.node: state for state in states}
        plan, cluster = self.state.plan, self.queue.cluster
        pending = [pair_index_of(pair.job) for pair in self._pending()]
        lacking = {index: shortage_of(plan.nodes_at(index), by_name, cluster, plan.walltime_s) for index in pending}
        full, full_s = self._full(states, room)
        why = full or "no two of the wanted nodes are idle"
        down = sorted({node for one in lacking.values() if one.down for node in one.nodes}, key=natural)
        down = down or sorted({words for one in lacking.values() for words in one.kept}, key=natural)
        if down and not full:
            why += f" ({', '.join(down[:4])}{', ...' if len(down) > 4 else ''})"
        self._wait.look(lacking.values())
        waited_s = {index: self._wait.waited_s(None if full else one) for index, one in lacking.items()}
        left_s = {index: (full_s if full else one.max_wait_s) - waited_s[index] for index, one in lacking.items()}
        self._wait.say(why, max(left_s.values()))
        for index, one in lacking.items():
            if left_s[index] <= 0:
                words = f"{self._wait.waited_s():.0f} s"
                reason = f"{why} for {words}" if full else f"not idle for {words}: {', '.join(one.nodes)}"
                self.record.not_run([index], reason)

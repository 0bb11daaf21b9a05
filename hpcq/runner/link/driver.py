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
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hpcq.clock import Clock
from hpcq.errors import TransportError
from hpcq.nodelist import natural
from hpcq.planning.links import qualified
from hpcq.run_folder.journal import Attempt
from hpcq.run_folder.paths import write_json
from hpcq.runner.link.side import SIDES, LinkJob, LinkSide, LinkState, Ready, Try, make_side, other, write_side
from hpcq.runner.queue.account import ATTENTIVE_S, FAILURES_SAID
from hpcq.runner.queue.attempt_files import PATIENCE_OVER, AttemptOutcome, driven_json
from hpcq.runner.queue.run_state import Record
from hpcq.runner.queue.yield_policy import RetryLater, Shortage, WaitForNodes, shortage_of
from hpcq.scheduler.types import JobState, NodeCondition, NodeState, QueueSnapshot

# ----------------------------------------------------------------------------------------------------------------------
# The rendezvous of a link's two jobs: what the driver carries between them, and when it ends one of them.
#
#     both ready        -> `peer` on each side: where the other one listens          event met
#     probes are back   -> `role` where the planned client cannot connect            event ways
#     the client ended  -> `role` end on the server's side
#     one side waits longer than max_wait_s, or the other one has ended -> a reason to stop it
#
# All of this follows from the journal and the fetched files, so carrying twice does no harm,
# and a new driver can continue.


#: What a side's own script reports, in words for a person.
_WORDS = {
    "nobody_connected": "its server ended: nobody had connected",
    "never_told_to_end": "it was never told to end",
    "server_not_ready": "its server did not begin to listen",
}
_NEVER = 1e18
_NO_WAY = "no_way_open"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the driver ends an attempt.

    follows: only because the other side had ended. final: another attempt would not help.
    """

    reason: str
    follows: bool
    final: bool


class Rendezvous:
    """Connects the two sides of each try."""

    def __init__(self, sides: Mapping[str, LinkSide], record: Record[LinkState], clock: Clock) -> None:
        self.link, self.sides = record.state.link, sides
        self._note, self._clock = record.note, clock
        #: What hpcq wrote into attempts' folders: by tag and name of the file.
        self._written: dict[tuple[str, str], str] = {}
        self._alone_since: dict[str, float] = {}
        self._queued_since: dict[str, float] = {}
        #: When, by the monotonic clock, the patience of the next side ends.
        self.patience_ends = _NEVER

    # -- carrying ---------------------------------------------------------------------------------------------------

    def carry(self, one: Try, side: LinkSide) -> None:
        """Give one side of a try what it waits for, if that is known by now."""
        attempt, opposite = one.sides.get(side.name), one.sides.get(other(side.name))
        if attempt is None or opposite is None or not attempt.scheduler_job_id:
            return
        here, there = self._ready(attempt), self._ready(opposite)
        if here is None or there is None:
            return
        if attempt.live and not one.met:
            self._tell(side, attempt, "peer", f"{there.address} {there.port}")
        if not one.met and all(self._has_peer(part) for part in (attempt, opposite)):
            addresses = {part.side: self._address(part) for part in one.sides.values()}
            self._note("met", job=attempt.job, attempt_no=one.attempt_no, addresses=addresses)
        if one.met:
            self._learn_ways(one)
            role = self._role(one, attempt, opposite)
            if role is not None and attempt.live:
                self._tell(side, attempt, "role", role)

    def _tell(self, side: LinkSide, attempt: Attempt, name: str, text: str) -> None:
        if self._written.get((attempt.tag, name)) != text:
            side.tell(attempt, name, text)
            self._written[attempt.tag, name] = text

    def _has_peer(self, part: Attempt) -> bool:
        """Whether a side knows where the other one listens. An earlier driver may have told it."""
        return (part.tag, "peer") in self._written or self._reached(part) is not None or part.outcome == "completed"

    def _learn_ways(self, one: Try) -> None:
        """Record which directions are open and who is the client, once both probes are back or the try is over."""
        if one.ways_known:
            return
        reached = {name: self._reached(attempt) for name, attempt in one.sides.items()}
        probing = [name for name in reached if self._probes(one, name)]
        first = one.first
        if any(reached[name] is None and one.sides[name].live for name in probing):
            return
        clients = [name for name in (first, other(first)) if reached[name]]
        ways = {name: _way(reached[name], asked=name in probing) for name in reached}
        job = one.sides[first].job
        self._note(
            "ways", job=job, attempt_no=one.attempt_no, ways=ways, client=clients[0] if clients else None,
            words={name: self.sides[name].probe_words(one.sides[name]) for name in probing if reached[name] is False},
        )  # fmt: skip

    def _role(self, one: Try, attempt: Attempt, opposite: Attempt) -> str | None:
        """Return what to tell an attempt now: to measure, or to end."""
        if not opposite.live:
            return "end"
        if not one.ways_known:
            return None
        client = self._client(one)
        if client is None:
            return f"end {_NO_WAY}"
        return "client" if client == attempt.side != one.first else None

    def _client(self, one: Try) -> str | None:
        """Return who measures in this try: the planned client if it can connect, else the other side."""
        return next((name for name in (one.first, other(one.first)) if self._reached(one.sides[name])), None)

    def _probes(self, one: Try, name: str) -> bool:
        opposite = self._ready(one.sides[other(name)])
        return opposite is not None and opposite.port != 0

    # -- ending -----------------------------------------------------------------------------------------------------

    def forget_patience(self) -> None:
        """Begin a turn. `reason_to_stop` then sets `patience_ends` again."""
        self.patience_ends = _NEVER

    def reason_to_stop(self, one: Try, attempt: Attempt) -> Stop | None:
        """Return why the driver must end an attempt now; None if it may continue, or is already leaving."""
        if attempt.stopped or (attempt.withdrawal and attempt.state is JobState.QUEUED):
            return None
        opposite = one.sides.get(other(attempt.side))
        if opposite is not None and opposite.stopped and not opposite.follows:
            return Stop(f"ended because {self._where(opposite)} was: {opposite.stopped}", follows=True, final=False)
        if opposite is not None and not opposite.live:
            return self._after(one, attempt, opposite)
        if self._ready(attempt) is None and attempt.state is JobState.QUEUED:
            return self._queued_too_long(attempt, opposite)
        return None

    def _after(self, one: Try, attempt: Attempt, ended: Attempt) -> Stop | None:
        """The other side has ended. A server that met its client gets the order to end; stop anything else."""
        if one.met and (ended.outcome == "completed" or attempt.side != self._client(one)):
            return None
        return Stop(f"ended because {self._where(ended)} was {ended.outcome}: {ended.reason}", follows=True, final=False)

    def _queued_too_long(self, attempt: Attempt, opposite: Attempt | None) -> Stop | None:
        """Apply the bounds of waiting.

        max_wait_s while the other side runs, the cluster's own patience while nothing runs yet.
        """
        now = self._clock.now_s()
        queued_s = now - self._queued_since.setdefault(attempt.tag, now)
        state = _state(attempt)
        if opposite is not None and opposite.live and opposite.state is not JobState.QUEUED:
            alone_s = now - self._alone_since.setdefault(attempt.tag, now)
            self.patience_ends = min(self.patience_ends, now - alone_s + self.link.peer_wait_s)
            if alone_s >= self.link.peer_wait_s:
                words = f"did not start within {self.link.peer_wait_s:g} s while {self._where(opposite)} waited: {state}"
                return Stop(words, follows=False, final=True)
            return None
        # Late enough that a better reason to withdraw the job comes first.
        max_wait_s = self.sides[attempt.side].cluster.max_wait_s
        queued_s -= 2 * self.sides[attempt.side].pace.query_s
        self.patience_ends = min(self.patience_ends, now - queued_s + max_wait_s)
        if queued_s >= max_wait_s:
            return Stop(f"did not start within {max_wait_s:g} s: {state}", follows=False, final=True)
        return None

    def explain(self, attempt: Attempt, opposite: Attempt | None, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return an outcome with what the driver knows about it."""
        if outcome.outcome == "withdrawn":
            return outcome
        if attempt.withdrawal and outcome.outcome == "cancelled" and self._ready(attempt) is None:
            return AttemptOutcome("cancelled" if attempt.final else "withdrawn", attempt.withdrawal)
        if attempt.stopped:
            return outcome if outcome.outcome == "completed" else AttemptOutcome("cancelled", attempt.stopped)
        if outcome.reason == PATIENCE_OVER:
            there = f"{self._where(opposite)}: {_state(opposite)}" if opposite else "the other side was not submitted"
            return AttemptOutcome("failed", f"waited more than {self.link.peer_wait_s:g} s, {there}")
        if outcome.reason == _NO_WAY:
            words = self.sides[attempt.side].probe_words(attempt)
            return AttemptOutcome("failed", "neither side could connect to the other" + (f": {words}" if words else ""))
        word, colon, of_the_node = outcome.reason.partition(": ")
        return AttemptOutcome(outcome.outcome, f"{_WORDS.get(word, word)}{colon}{of_the_node}")

    # -- small things -----------------------------------------------------------------------------------------------

    def _ready(self, attempt: Attempt) -> Ready | None:
        return self.sides[attempt.side].ready(attempt)

    def _reached(self, attempt: Attempt) -> bool | None:
        return self.sides[attempt.side].reached(attempt)

    def _address(self, attempt: Attempt) -> str:
        ready = self._ready(attempt)
        return f"{ready.address} {ready.port}" if ready else ""

    def _where(self, attempt: Attempt) -> str:
        return f"{self.sides[attempt.side].cluster.name}/{attempt.nodes[0]}"


def _state(attempt: Attempt) -> str:
    word = attempt.outcome or attempt.state.value
    return f"{word}, {attempt.reason}" if attempt.reason else word


def _way(reached: bool | None, *, asked: bool) -> str:
    if not asked:
        return "not probed"
    return "unknown" if reached is None else "open" if reached else "closed"


# ----------------------------------------------------------------------------------------------------------------------
# Turn a pair of a link into one job per side, if both nodes are idle and both budgets allow. The later one goes first.
#
# idle nodes of both sides, budgets, limits -> pairs -> both scripts rendered and copied -> when would each start?
# submit the side that would start later; submit the other one when that runs, or after the difference


#: Starts this close together count as equal: submit both sides at once.
_SAME_START_S = 5.0
_SIDES_NEVER_START = 1e18


class LinkSubmitter:
    """Submits jobs for one link's driver."""

    def __init__(self, sides: Mapping[str, LinkSide], record: Record[LinkState], retry_later: RetryLater, clock: Clock) -> None:
        self._sides, self._retry_later, self._clock = sides, retry_later, clock
        self._record, self._state = record, record.state
        self.wait = WaitForNodes(record, clock)
        #: When to submit the second job of a try even if the first one does not run; without an entry: when it runs.
        self._due: dict[int, float] = {}

    def due_s(self) -> float:
        """Return when, by the monotonic clock, the next second job is due."""
        waiting = [
            self._due.get(one.index, _SIDES_NEVER_START) for one in self._state.open_tries if len(one.sides) < len(SIDES)
        ]
        return min(waiting, default=_SIDES_NEVER_START)

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
            if not chosen or not account.shared.open():
                return []
            most_s = account.node_seconds_for_all()
            room = [max(0, int(most_s // walltime_s))] if most_s < math.inf else []
            most = account.budget_now().max_jobs
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
                self._record.not_run(list(self._state.pending), f"{side.cluster.name}: {spent}")
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
            walltime_s = self._state.plan.walltime_s
            idle = {one.node for one in states[name] if one.condition is NodeCondition.IDLE and not one.kept_from(walltime_s)}
            wanted = idle & {self._state.node(index, name) for index in self._state.pending}
            most = self._sides[name].account.budget.node_limit(len(idle))
            refusal = self._sides[name].reserve(set(sorted(wanted, key=natural)[:most]))
            if refusal is not None:
                self._record.not_run(list(self._state.pending), f"{self._state.cluster_of(name)}: {refusal}")
                break
        return not missing

    def _to_plan(self) -> list[int]:
        """Return the pending pairs, except those with a node that was unavailable a moment ago."""
        self._retry_later.forget(self._clock.now_s())
        return [index for index in self._state.pending if index not in self._retry_later.held_until]

    def _choose(self, free: Mapping[str, tuple[set[str], int]]) -> list[int]:
        room = min(count for _, count in free.values())
        room = min(room, self._state.link.at_once - len(self._state.open_tries))
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
        full_s = max(side.cluster.max_wait_s for side in self._sides.values())
        why = "other jobs of this user fill its limit" if full else "no pair has both its nodes idle"
        kept = sorted({words for both in lacking.values() for one in both for words in one.kept}, key=natural)
        why += f" ({', '.join(kept[:4])}{', ...' if len(kept) > 4 else ''})" if kept and not full else ""
        self.wait.look([one for both in lacking.values() for one in both])
        left_s = {index: full_s - self.wait.waited_s() if full else self._left_s(both) for index, both in lacking.items()}
        self.wait.say(why, max(left_s.values(), default=0.0))
        for index, both in lacking.items():
            if left_s[index] <= 0:
                places = ", ".join(node for one in both for node in one.nodes)
                waited = f"{self.wait.waited_s():.0f} s"
                words = f"{why} for {waited}" if full else f"not idle for {waited}: {places}"
                self._record.not_run([index], words)

    def _left_s(self, both: Sequence[Shortage]) -> float:
        """Return how much longer to wait for a pair: as a node that is down allows, else the longer patience."""
        down = [one.max_wait_s - self.wait.waited_s(one) for one in both if one.down]
        return min(down) if down else max(one.max_wait_s for one in both) - self.wait.waited_s()

    def _shortages(self, index: int, by_name: Mapping[str, Mapping[str, NodeState]]) -> list[Shortage]:
        """Return what a pair lacks on either side."""
        found = []
        for name, side in self._sides.items():
            nodes = [self._state.node(index, name)]
            one = shortage_of(nodes, by_name[name], side.cluster, self._state.plan.walltime_s)
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
                over = self._state.plan.interface_at((qualified(side.cluster.name, job.nodes[0]),))
                site = replace(side.account.site(side.cluster), interface=over)
                write_side(job, side.kernels, self._state.link, site, roots=roots, folder=folder, first=first)
                side.push(job)
                waits[side.name] = side.expected_wait_s(job)
        if len(waits) < len(SIDES):
            return False  # one of them is unreachable: nothing was submitted, the pair stays pending
        known = {name: 1e9 if wait is None else wait for name, wait in waits.items()}
        slow, fast = sorted(SIDES, key=lambda name: -known[name])
        gap_s = known[slow] - known[fast]
        self._record.note("estimate", job=jobs[slow].job, attempt_no=attempt_no, wait_s=waits, goes_first=slow)
        self._due.pop(index, None)
        if known[slow] < 1e9 or waits[fast] is None:
            self._due[index] = self._clock.now_s() + (0.0 if gap_s <= _SAME_START_S else gap_s)
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
        due = first.state is JobState.RUNNING or self._clock.now_s() >= self._due.get(one.index, _SIDES_NEVER_START)
        if not due or not first.live or not first.scheduler_job_id or first.stopped or first.withdrawal:
            return
        side = self._sides[other(first.side)]
        if side.paused is None:
            with side.out_of_reach():
                job = make_side(self._state, one.index, side.name, one.attempt_no, side.folder)
                side.push(job)
                self._submit_side(side, job, one.first)

    def _submit_side(self, side: LinkSide, job: LinkJob, first: str) -> None:
        """Submit one side. The attempt is on the disk before the scheduler gets the job."""
        ids = {"job": job.job, "attempt_no": job.attempt_no, "walltime_s": job.walltime_s}
        place = {"nodes": list(job.nodes), "side": side.name, "cluster": side.cluster.name}
        self._record.note("attempt", tag=job.tag, **ids, **place, first=first)
        side.submit([job])


# ----------------------------------------------------------------------------------------------------------------------


_GROWTH = 1.5
#: hpcq repeats the order to end a job after this time.
_CANCEL_AGAIN_S = 10.0


class LinkDriver:
    """Drives one link's part of a run to its end."""

    def __init__(self, sides: Mapping[str, LinkSide], record: Record[LinkState], retry_later: RetryLater) -> None:
        """retry_later: pairs with a node that was unavailable a moment ago."""
        self.record, self.state, self.link = record, record.state, record.state.link
        self.sides, self.clock = sides, sides["from"].clock
        self._started_s = self.clock.now_s()
        self._meeting = Rendezvous(sides, record, self.clock)
        self._submitter = LinkSubmitter(sides, record, retry_later, self.clock)
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
            there_still = bool(attempt.scheduler_job_id) and not attempt.state.terminal
            if self.state.cancelled and there_still and (again or words):
                there = f"{attempt.job} ({attempt.scheduler_job_id} {attempt.state.value}){': ' + words if words else ''}"
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
        before = [side.account.shared.stopped for side in self.sides.values()]
        for side in self.sides.values():
            with contextlib.suppress(TransportError):  # the turn meets it too, and says it
                side.obey_stop()
            if (stopped := side.account.shared.stopped) is not None:
                self._end_early(f"{side.cluster.name}: {stopped}")
        return before != [side.account.shared.stopped for side in self.sides.values()]

"""Decide when hpcq yields, from the answer to one poll. Pure. docs/driver.md explains the rules.

paused      no job may start now: users wait (yield), or it is outside the hours
to_withdraw   queued jobs that should not wait any longer: hpcq withdraws them and plans them again, or gives up
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hpcq import nodelist
from hpcq.clock import Clock
from hpcq.definition.model import Budget, Cluster
from hpcq.errors import HpcqError, SchedulerError, TransportError
from hpcq.nodelist import natural
from hpcq.run_folder.journal import Attempt
from hpcq.runner.queue.account import FAILURES_SAID, Pace
from hpcq.runner.queue.attempt_files import AttemptFiles
from hpcq.runner.queue.run_state import Record, powered_down_words
from hpcq.scheduler.types import JobReport, JobState, NodeCondition, NodeState, OtherJob, QueueSnapshot, Wait
from hpcq.units import count_of

#: A wait must appear in this many polls in a row: schedulers report odd states for a moment.
_LOOKS = 2


#: If a pair's node is unavailable, hpcq plans the pair again after this time, at most this many times.
_BOUNCED_FOR_S = 30.0
_BOUNCES_MAX = 10
#: Waits that hpcq tells at once and bounds by `max_wait_s`.
_TOLD = frozenset({Wait.LIMIT, Wait.UNKNOWN})
#: For so long after a job of ours its nodes may still be shown as in use: by it, not by somebody else.
_OURS_STILL_S = 30.0


@dataclass(slots=True)
class RetryLater:
    """Pairs with an unavailable node. They wait a while; after many times hpcq gives them up.

    A pair that finds somebody else on its node again and again is given up only when it has also tried for an hour.
    """

    _TAKEN_FOR_S = 3600.0

    held_until: dict[int, float] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    #: How often somebody else had a node of a pair, and since when.
    _taken: dict[int, tuple[int, float]] = field(default_factory=dict)
    #: Why a pair was withdrawn last, for people.
    _why: dict[int, str] = field(default_factory=dict)

    def forget(self, now_s: float) -> None:
        """Release the pairs that have waited long enough, so that hpcq can plan them again."""
        self.held_until = {index: until for index, until in self.held_until.items() if until > now_s}

    def hold(self, indices: Iterable[int], now_s: float, why: str, *, taken: bool = False) -> None:
        """Record that a node of these pairs is unavailable; taken: that somebody else's job has it."""
        bound = f", and for {self._TAKEN_FOR_S / 60:g} min" if taken else ""
        for index in indices:
            self.held_until[index] = now_s + _BOUNCED_FOR_S
            self._why[index] = f"{why}; withdrawn, tries again every {_BOUNCED_FOR_S:g} s, {_BOUNCES_MAX} times at most{bound}"
            if taken:
                count, since_s = self._taken.get(index, (0, now_s))
                self._taken[index] = (count + 1, since_s)
            else:
                self._counts[index] = self._counts.get(index, 0) + 1

    def told(self, waiting: Collection[int]) -> list[str]:
        """Return why pairs were withdrawn that still wait for a job or in the queue: each reason once."""
        self._why = {index: words for index, words in self._why.items() if index in waiting}
        return list(dict.fromkeys(self._why.values()))

    def too_often(self, indices: Iterable[int], now_s: float) -> bool:
        """Whether hpcq must give up one of these pairs."""
        for index in indices:
            count, since_s = self._taken.get(index, (0, now_s))
            if self._counts.get(index, 0) >= _BOUNCES_MAX or (count >= _BOUNCES_MAX and now_s - since_s >= self._TAKEN_FOR_S):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A queued job to withdraw.

    final: hpcq does not try its pair again. retry_later: one of its nodes is unavailable; taken: somebody else's job has it.
    waited: a limit, or words that hpcq does not know, held it too long.
    """

    tag: str
    scheduler_job_id: str
    reason: str
    final: bool = False
    retry_later: bool = False
    taken: bool = False
    waited: bool = False

    def ends(self, retry_later: RetryLater, indices: Collection[int], now_s: float) -> bool:
        """Whether hpcq stops trying its pairs, given as indices in the plan. Counts a bounce."""
        if self.retry_later:
            retry_later.hold(indices, now_s, self.reason, taken=self.taken)
        return self.final or retry_later.too_often(indices, now_s)


class _Whose(Enum):
    """Whose job keeps a waiting job from its node."""

    OTHERS = "others"
    OURS = "ours"
    #: It is down, drained, reserved or planned: no job has it.
    NOBODYS = "nobodys"


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """Why a node cannot be had now, in the scheduler's words."""

    words: str
    whose: _Whose
    #: A reservation begins there before the job would end.
    reserved: bool = False


def _obstacles(snapshot: QueueSnapshot, held_by_us: Set[str], asked: Mapping[str, int]) -> dict[str, _Obstacle]:
    """Return the nodes that no job of this run can get now. held_by_us: those that one of them has. asked: how many ask."""
    found = {}
    for state in snapshot.nodes or ():
        # planned for a job: where several of ours ask for the node, for one of these
        is_ours = state.node in held_by_us or (state.condition is NodeCondition.PLANNED and asked[state.node] > 1)
        if state.condition is NodeCondition.IDLE or is_ours:
            continue
        whose = _Whose.NOBODYS
        if state.condition is NodeCondition.BUSY:
            whose = _Whose.OURS if state.node in (snapshot.own_nodes or ()) else _Whose.OTHERS
        found[state.node] = _Obstacle(state.native_state, whose)
    return found


def _reserved_soon(snapshot: QueueSnapshot, attempt: Attempt) -> dict[str, _Obstacle]:
    """Return those of a job's nodes that nobody has, and where it does not start: a reservation begins before its end."""
    states = [one for one in snapshot.nodes or () if one.node in attempt.nodes]
    found = {one.node: one.kept_from(attempt.walltime_s) for one in states}
    return {node: _Obstacle(f"idle: {words}", _Whose.NOBODYS, reserved=True) for node, words in found.items() if words}


@dataclass(slots=True)
class YieldPolicy:
    """What hpcq must remember between two polls."""

    budget: Budget
    max_wait_s: float
    _queued_since: dict[str, float] = field(default_factory=dict)
    _words: dict[str, tuple[Wait, int, float]] = field(default_factory=dict)
    #: Since when no job of this run has run: a limit that its own jobs fill passes with each that ends.
    _nothing_runs_s: float | None = None
    #: When a job of this run was last seen to have a node.
    _ours_s: dict[str, float] = field(default_factory=dict)
    #: Jobs of other users that still waited when we had returned all nodes.
    _not_for_us: set[str] = field(default_factory=set)

    def closed(self, moment: dt.time) -> str | None:
        """Return the hours that exclude this local time, or None."""
        shut = next((hours for hours in self.budget.hours if not hours.open_at(moment)), None)
        return None if shut is None else f"outside of the hours {shut}"

    def paused(self, snapshot: QueueSnapshot, moment: dt.time, held: Set[str]) -> str | None:
        """Return why no job may start now, or None. held: the nodes that we keep from others, or would keep."""
        closed = self.closed(moment)
        if closed is not None:
            return closed
        waiting = self._waiting_for_us(snapshot.others or (), held) if self.budget.gives_way else 0
        return f"yields: other users wait for nodes with {count_of(waiting, 'job')}" if waiting else None

    def _waiting_for_us(self, others: Sequence[OtherJob], held: Set[str]) -> int:
        """Return how many jobs may wait for our nodes.

        A job that still waits for unnamed nodes when we hold none waits for nodes of others.
        """
        unsure = [one for one in others if not one.sure]
        if not held:
            self._not_for_us = {one.scheduler_job_id for one in unsure if not one.nodes}
        sure_count = sum(one.sure for one in others)
        return sure_count + sum(
            not held.isdisjoint(one.nodes) if one.nodes else bool(held) and one.scheduler_job_id not in self._not_for_us
            for one in unsure
        )

    def wants_nodes(self, attempts: Iterable[Attempt], now_s: float) -> bool:
        """Whether the next poll needs the nodes' states: a job waits although none of ours has its nodes, or oddly or long."""
        live = list(attempts)
        held_by_us = {node for one in live if one.state is not JobState.QUEUED for node in one.nodes}
        for attempt in live:
            since, word = self._queued_since.get(attempt.tag), self._words.get(attempt.tag)
            if attempt.state is not JobState.QUEUED or since is None or word is None:
                continue
            behind_none_of_ours = held_by_us.isdisjoint(attempt.nodes) and word[0] is not Wait.LIMIT
            if behind_none_of_ours or now_s - since >= self.max_wait_s or word[0] in {Wait.NEVER, Wait.NODE}:
                return True
        return False

    def to_withdraw(
        self, attempts: Iterable[Attempt], snapshot: QueueSnapshot, paused: str | None, now_s: float
    ) -> list[Withdrawal]:
        """Return the queued jobs to withdraw now."""
        live = list(attempts)
        held_by_us = self._held_by_us(live, 0.0 if snapshot.own_nodes is not None else _OURS_STILL_S, now_s)
        obstacles = _obstacles(snapshot, held_by_us, Counter(node for attempt in live for node in attempt.nodes))
        if any(attempt.state is not JobState.QUEUED for attempt in live):
            self._nothing_runs_s = None
        elif self._nothing_runs_s is None:
            self._nothing_runs_s = now_s
        waits = {one.tag: _wait_of(one, snapshot) for one in live}
        claims = Counter(node for one in live if waits[one.tag] is not Wait.NODE for node in one.nodes)
        found = []
        for attempt in live:
            report = snapshot.reports.get(attempt.scheduler_job_id)
            if report is None or report.state is not JobState.QUEUED or attempt.withdrawal:
                self._queued_since.pop(attempt.tag, None)
                self._words.pop(attempt.tag, None)
                continue
            own_count = int(waits[attempt.tag] is not Wait.NODE)
            ours = held_by_us | (snapshot.own_nodes or set())
            shared = any(claims[node] > own_count or node in ours for node in attempt.nodes)
            in_the_way = {node: obstacles[node] for node in attempt.nodes if node in obstacles}
            in_the_way |= _reserved_soon(snapshot, attempt)
            decision = self._decide(attempt, report, in_the_way, now_s, shared=shared)
            if decision is None and paused is not None:
                decision = Withdrawal(attempt.tag, attempt.scheduler_job_id, paused)
            if decision is not None:
                found.append(decision)
        return found

    def _held_by_us(self, live: Iterable[Attempt], still_s: float, now_s: float) -> set[str]:
        """Return the nodes of this run's jobs that run, or that ended a moment ago: those are still shown as in use.

        still_s: for how long after a job; where the scheduler lists all our jobs, it shows those that end.
        """
        for attempt in live:
            if attempt.state is not JobState.QUEUED:
                self._ours_s.update(dict.fromkeys(attempt.nodes, now_s))
        self._ours_s = {node: seen_s for node, seen_s in self._ours_s.items() if now_s - seen_s <= still_s}
        return set(self._ours_s)

    def told(self, attempts: Iterable[Attempt], snapshot: QueueSnapshot, now_s: float) -> dict[str, tuple[list[str], float]]:
        """Return what queued jobs wait for that is neither their turn nor a node: words -> jobs, and for how long already."""
        found: dict[str, tuple[list[str], float]] = {}
        for attempt in attempts:
            report, word = snapshot.reports.get(attempt.scheduler_job_id), self._words.get(attempt.tag)
            if report is not None and word is not None and word[0] in _TOLD and not attempt.withdrawal:
                jobs, longest_s = found.get(report.reason, ([], 0.0))
                found[report.reason] = ([*jobs, attempt.job], max(longest_s, now_s - word[2]))
        return found

    def _decide(
        self,
        attempt: Attempt,
        report: JobReport,
        in_the_way: Mapping[str, _Obstacle],
        now_s: float,
        *,
        shared: bool,
    ) -> Withdrawal | None:
        tag, scheduler_job_id = attempt.tag, attempt.scheduler_job_id
        queued_s = now_s - self._queued_since.setdefault(tag, now_s)
        gone = [f"{node} is {one.words}" for node, one in in_the_way.items()]
        in_front = [f"{node} is {one.words}" for node, one in in_the_way.items() if one.whose is _Whose.OTHERS]
        wait = Wait.NODE if report.wait is Wait.NEVER and gone else report.wait
        kept = [f"{node} is {one.words}" for node, one in in_the_way.items() if one.reserved]
        if (in_front or kept) and wait in {Wait.ORDINARY, Wait.UNKNOWN}:
            wait = Wait.NODE
        elif wait is Wait.NODE and shared and all(one.whose is _Whose.OURS for one in in_the_way.values()):
            wait = Wait.ORDINARY  # a node that another job of ours has or is about to get is called unavailable too
        looks, word_s = self._seen(tag, wait, now_s)
        said = f"queued with {report.reason or 'no reason'}"
        if wait is Wait.NEVER and looks >= _LOOKS:
            return Withdrawal(tag, scheduler_job_id, f"{said}: the scheduler would never start it", final=True)
        if wait is Wait.NODE and looks >= _LOOKS:
            words = f"{said}, behind somebody else's job: {', '.join(in_front)}" if in_front else said
            words += f": {', '.join(kept)}" if kept and not in_front else ""
            return Withdrawal(tag, scheduler_job_id, words, retry_later=True, taken=bool(in_front))
        idle_s = 0.0 if self._nothing_runs_s is None else now_s - self._nothing_runs_s
        if wait in _TOLD and min(word_s, idle_s) >= self.max_wait_s:
            return Withdrawal(tag, scheduler_job_id, f"{said} for {word_s:.0f} s", final=True, waited=True)
        if queued_s >= self.max_wait_s and gone:
            words = f"queued for {queued_s:.0f} s, its nodes were taken: {', '.join(gone)}"
            return Withdrawal(tag, scheduler_job_id, words, retry_later=True)
        return None

    def _seen(self, tag: str, wait: Wait, now_s: float) -> tuple[int, float]:
        """Return in how many polls in a row a wait appeared, and for how long."""
        before = self._words.get(tag)
        looks, since = (before[1] + 1, before[2]) if before is not None and before[0] is wait else (1, now_s)
        self._words[tag] = (wait, looks, since)
        return looks, now_s - since


def _wait_of(attempt: Attempt, snapshot: QueueSnapshot) -> Wait:
    """What a job waits for. One that runs, or that the scheduler does not know yet, waits for nothing odd."""
    report = snapshot.reports.get(attempt.scheduler_job_id)
    return report.wait if report is not None and report.state is JobState.QUEUED else Wait.ORDINARY


# ----------------------------------------------------------------------------------------------------------------------
# What a part of a run waits for, and how that is said: nodes, a cluster that does not answer, a job that stands still,
# last files of jobs, and jobs that their queue goes on showing although their script has ended.
#
# Wait for nodes while nothing runs and nothing can be submitted:
#
# busy    a user or a reservation has the node: `max_wait_s` of the cluster file
# down    the node is down, drained, powered down or not responding: `nodes: {reboot_within_s: ...}` of the campaign,
#         counted from when the node went down; without that key hpcq waits only until it is sure


#: A node counts as down only after this time: it may fail to respond for a moment.
_DOWN_FOR_SURE_S = 30.0
#: How often at most the journal says which nodes are switched off, because a site may switch all the time.
_POWER_NOTED_S = 60.0
_DOWN = frozenset({NodeCondition.DOWN, NodeCondition.DRAINED, NodeCondition.POWERED_DOWN, NodeCondition.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pair cannot run: its nodes with the scheduler's words, and how long to wait for them.

    down: those of its nodes that are down, as CLUSTER/NODE. kept: why a free one starts no job of its length, with its name.
    """

    nodes: tuple[str, ...]
    max_wait_s: float
    down: tuple[str, ...]
    kept: tuple[str, ...] = ()


def shortage_of(nodes: Iterable[str], states: Mapping[str, NodeState], cluster: Cluster, walltime_s: float) -> Shortage:
    """Return what a pair waits for. A node that is no longer in the list counts as down."""
    seen = [(node, states.get(node)) for node in nodes]
    kept = tuple(f"{node} {why}" for node, state in seen if state is not None and (why := _kept(state, walltime_s)))
    down = tuple(f"{cluster.name}/{node}" for node, state in seen if state is None or state.condition in _DOWN)
    words = tuple(f"{node} {_said(state, walltime_s)}" for node, state in seen)
    least_s = min(_DOWN_FOR_SURE_S, cluster.max_wait_s)
    return Shortage(words, max(cluster.reboot_within_s, least_s) if down else cluster.max_wait_s, down, kept)


def _kept(state: NodeState, walltime_s: float) -> str:
    words = state.kept_from(walltime_s)
    return f"{state.native_state}: {words}" if words else ""


def _said(state: NodeState | None, walltime_s: float) -> str:
    """A node's state in the scheduler's words; few people know that `idle~` is switched off."""
    if state is None:
        return "gone"
    if state.condition is NodeCondition.POWERED_DOWN:
        return f"powered down ({state.native_state})"
    return _kept(state, walltime_s) or state.native_state


@dataclass(slots=True)
class WaitForNodes:
    """The patience of one driver."""

    record: Record[Any]
    clock: Clock
    _since_s: float | None = None
    _said: str = ""
    #: Since when the nodes that are down now have been so, as far as this wait has seen.
    _down_since_s: dict[str, float] = field(default_factory=dict)

    @property
    def waiting(self) -> bool:
        """Whether it waits now."""
        return self._since_s is not None

    def end(self) -> None:
        """End the wait, because a job was submitted or users wait. The next wait starts at zero."""
        if self._since_s is not None:
            self._since_s, self._said, self._down_since_s = None, "", {}
            self.record.waits("")

    def look(self, lacking: Iterable[Shortage]) -> None:
        """Begin or continue to wait. lacking: what keeps pairs from running now."""
        now = self.clock.now_s()
        self._since_s = now if self._since_s is None else self._since_s
        down = {node for one in lacking for node in one.down}
        self._down_since_s = {node: self._down_since_s.get(node, now) for node in down}

    def waited_s(self, lacks: Shortage | None = None) -> float:
        """Return how long the wait has lasted; for a pair with nodes that are down: how long the first of them is down."""
        now = self.clock.now_s()
        if lacks is not None and lacks.down:
            return now - min(self._down_since_s.get(node, now) for node in lacks.down)
        return now - (now if self._since_s is None else self._since_s)

    def say(self, why: str, left_s: float) -> None:
        """Say what it waits for, since when, and for how much longer at most; again when that has changed."""
        if why != self._said:
            self._said = why
            since, until = self.clock.time_in(-self.waited_s()), self.clock.time_in(max(0.0, left_s))
            self.record.waits(f"{why}; waits since {since}, until {until} at most")


class Silence:
    """Queries of one cluster that may fail. A wait for its answers is said like every other wait."""

    def __init__(self, record: Record[Any], pace: Pace, clock: Clock, where: str) -> None:
        """where: which cluster, in a link."""
        self._record, self._pace, self._clock, self._where = record, pace, clock, where
        #: What this part waited for when the cluster fell silent; None: the cluster answers.
        self._before: str | None = None

    @contextlib.contextmanager
    def bounded(self) -> Iterator[None]:
        """Run queries. A failure changes no state. Raises TransportError if asking again would not help."""
        try:
            yield
        except (TransportError, SchedulerError) as error:
            if self._pace.failed():
                self._record.say(f"{error.message} (asking again; {self._pace.failures} times in a row)")
            self._wait(error)
            if isinstance(error, TransportError) and not error.transient:
                raise
        else:
            if self._pace.succeeded():
                self._record.say(f"{self._where}answers again")
            if self._before is not None:
                before, self._before = self._before, None
                self._record.waits(before)

    def _wait(self, error: HpcqError) -> None:
        """Record that this part waits for an answer; what it waited for before comes back after it."""
        if self._before is None and self._pace.failures >= FAILURES_SAID:
            self._before = self._record.state.waiting
            since = self._clock.time_in(0)
            words = f"{self._where}no answer: {error.message}; waits since {since}, until it answers or hpcq cancel"
            self._record.waits(words)


class PoweredDown:
    """Nodes of one cluster that its power saving has switched off: hpcq uses none and wakes none, and says so."""

    def __init__(self, record: Record[Any], clock: Clock, cluster: str) -> None:
        self._record, self._clock, self._cluster = record, clock, cluster
        self._noted_s = -math.inf

    def look(self, states: Iterable[NodeState]) -> None:
        """Record which nodes are off, when that has changed; at most once per minute."""
        off = nodelist.fold(sorted({one.node for one in states if one.condition is NodeCondition.POWERED_DOWN}, key=natural))
        before, _ = self._record.state.powered_down.get(self._cluster, ([], ""))
        now = self._clock.now_s()
        if off == before or now - self._noted_s < _POWER_NOTED_S:
            return
        self._noted_s = now
        self._record.note("powered_down", cluster=self._cluster, nodes=off)
        if off and not before:
            self._record.say(powered_down_words(self._cluster, off))


class StandingStill:
    """Jobs that hold their nodes and do nothing: suspended by their scheduler, for a user or an operator."""

    def __init__(self, record: Record[Any]) -> None:
        self._record = record
        self._said = ""

    def look(self, reports: Iterable[tuple[Attempt, JobReport | None]]) -> None:
        """Say which jobs stand still, and when they go on. A wait for something else stays as it is."""
        found = [
            f"{attempt.job} ({attempt.scheduler_job_id}) {report.reason}"
            for attempt, report in reports
            if report is not None and report.stands_still
        ]
        words = "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        if words != self._said and self._record.state.waiting in {"", self._said}:
            self._said = words
            self._record.waits(words)


class OddWaits:
    """Queued jobs that wait not for their turn: for a limit, for words that hpcq does not know, or again and again."""

    def __init__(self, record: Record[Any], clock: Clock) -> None:
        self._record, self._clock = record, clock
        self._reasons: list[str] = []
        self._said = ""

    def look(
        self,
        found: Mapping[str, tuple[Sequence[str], float]],
        withdrawn: Sequence[str],
        max_wait_s: float,
        *,
        something_runs: bool,
    ) -> None:
        """Say what the scheduler says of them, since when, and until when hpcq waits; again when the words have changed.

        found: the scheduler's words -> jobs, and for how long they wait already. withdrawn: why others left the queue. A
        wait for something else stays as it is.
        """
        waiting, reasons = self._record.state.waiting, [*sorted(found), *withdrawn]
        if waiting not in {"", self._said} or (reasons == self._reasons and waiting == self._said):
            return
        self._reasons = reasons
        shown = [self._words(one, *found[one], max_wait_s, something_runs) for one in sorted(found)]
        self._said = "; ".join([*shown, *withdrawn][:3])
        self._record.waits(self._said)

    def _words(self, reason: str, jobs: Sequence[str], waited_s: float, max_wait_s: float, something_runs: bool) -> str:
        named = ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
        since, until = self._clock.time_in(-waited_s), self._clock.time_in(max(0.0, max_wait_s - waited_s))
        bound = f"once no job of this run runs, {max_wait_s:g} s at most" if something_runs else f"until {until} at most"
        return f"{named}: the scheduler says {reason}; waits since {since}, {bound}"


class LastFiles:
    """Jobs that have left the queue, and whose last files are not there yet."""

    #: Files that arrive within this time are not worth a word.
    _SAID_AFTER_S = 5.0

    def __init__(self, record: Record[Any], clock: Clock) -> None:
        self._record, self._clock = record, clock
        self._said = ""

    def look(self, waiting: Iterable[tuple[Attempt, float, float]]) -> None:
        """Say which jobs are waited for, and until when at most. waiting: attempt, waited_s, grace_s."""
        late = [one for one in waiting if one[1] >= self._SAID_AFTER_S]
        if not late:
            self._say("")
        elif not self._said:
            names = ", ".join(attempt.job for attempt, _, _ in late[:4]) + (", ..." if len(late) > 4 else "")
            until = self._clock.time_in(max(grace_s - waited_s for _, waited_s, grace_s in late))
            self._say(f"{names}: no longer in the queue; waits for the last files until {until} (filesystem_delay_s)")

    def _say(self, words: str) -> None:
        if self._said != words and self._record.state.waiting in {"", self._said}:
            self._said = words
            self._record.waits(words)


class EndedScripts:
    """Running jobs whose script has ended: their scheduler never learned of it, and they would hold their nodes on."""

    _LOOK_LEAST_S = 5.0

    def __init__(self, files: AttemptFiles, record: Record[Any], pace: Pace, clock: Clock) -> None:
        self._files, self._record, self._pace, self._clock = files, record, pace, clock
        self._looked_s = clock.now_s()
        self._since: dict[str, float] = {}
        #: The tags of those that were told to end.
        self.told: set[str] = set()

    def due(self, running: Sequence[Attempt]) -> list[Attempt]:
        """Return those to order the end of now. Each look is one command; there is one per grace period."""
        now = self._clock.now_s()
        if not running or now - self._looked_s < max(self._LOOK_LEAST_S, self._pace.grace_s):
            return []
        self._looked_s = now
        ended = self._files.written_exits(running)
        self._since = {tag: self._since.get(tag, now) for tag in ended}
        due = [one for one in running if now - self._since.get(one.tag, now) >= self._pace.grace_s > 0]
        for one in due:
            if one.tag not in self.told:
                self.told.add(one.tag)
                waited_s = now - self._since[one.tag]
                words = f"its script ended at least {waited_s:.0f} s ago, and its queue still shows it as running"
                self._record.say(f"{one.job} ({one.scheduler_job_id}): {words}; hpcq orders its end")
        return due

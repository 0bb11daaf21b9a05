"""Decide when hpcq yields, from the answer to one poll. Pure. docs/driver.md explains the rules.

paused      no job may start now: users wait (yield), or it is outside the hours
to_withdraw   queued jobs that should not wait any longer: hpcq withdraws them and plans them again, or gives up
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hpcq.definition.budget import Budget
from hpcq.run_folder.journal_state import Attempt
from hpcq.scheduler.types import JobReport, JobState, NodeCondition, OtherJob, QueueSnapshot, Wait
from hpcq.units import count_of

#: A wait must appear in this many polls in a row: schedulers report odd states for a moment.
_LOOKS = 2


#: If a pair's node is unavailable, hpcq plans the pair again after this time, at most this many times.
_BOUNCED_FOR_S = 30.0
_BOUNCES_MAX = 10


@dataclass(slots=True)
class RetryLater:
    """Pairs with an unavailable node. They wait a while; after many times hpcq gives them up."""

    held_until: dict[int, float] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)

    def forget(self, now_s: float) -> None:
        """Release the pairs that have waited long enough, so that hpcq can plan them again."""
        self.held_until = {index: until for index, until in self.held_until.items() if until > now_s}

    def hold(self, indices: Iterable[int], now_s: float) -> None:
        """Record that a node of these pairs is unavailable."""
        for index in indices:
            self.held_until[index] = now_s + _BOUNCED_FOR_S
            self._counts[index] = self._counts.get(index, 0) + 1

    def too_often(self, indices: Iterable[int]) -> bool:
        """Whether hpcq must give up one of these pairs."""
        return any(self._counts.get(index, 0) >= _BOUNCES_MAX for index in indices)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A queued job to withdraw.

    final: hpcq does not try its pair again. bounced: one of its nodes is unavailable. waited: a limit held it too long.
    """

    tag: str
    native_id: str
    reason: str
    final: bool = False
    retry_later: bool = False
    waited: bool = False

    def ends(self, retry_later: RetryLater, indices: Collection[int], now_s: float) -> bool:
        """Whether hpcq stops trying its pairs, given as indices in the plan. Counts a bounce."""
        if self.retry_later:
            retry_later.hold(indices, now_s)
        return self.final or retry_later.too_often(indices)


@dataclass(slots=True)
class YieldPolicy:
    """What hpcq must remember between two polls."""

    budget: Budget
    patience_s: float
    _queued_since: dict[str, float] = field(default_factory=dict)
    _words: dict[str, tuple[Wait, int, float]] = field(default_factory=dict)
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
            self._not_for_us = {one.native_id for one in unsure if not one.nodes}
        sure_count = sum(one.sure for one in others)
        return sure_count + sum(
            not held.isdisjoint(one.nodes) if one.nodes else bool(held) and one.native_id not in self._not_for_us
            for one in unsure
        )

    def wants_nodes(self, attempts: Iterable[Attempt], now_s: float) -> bool:
        """Whether the next poll needs the nodes' states, because jobs wait long, for an odd reason or for a node."""
        for attempt in attempts:
            if attempt.state is JobState.QUEUED:
                since = self._queued_since.get(attempt.tag, now_s)
                word = self._words.get(attempt.tag)
                if now_s - since >= self.patience_s or (word is not None and word[0] in {Wait.NEVER, Wait.NODE}):
                    return True
        return False

    def to_withdraw(
        self, attempts: Iterable[Attempt], snapshot: QueueSnapshot, paused: str | None, now_s: float
    ) -> list[Withdrawal]:
        """Return the queued jobs to withdraw now."""
        live = list(attempts)
        held_by_us = {node for attempt in live if attempt.state is not JobState.QUEUED for node in attempt.nodes}
        asked = Counter(node for attempt in live for node in attempt.nodes)
        taken = {
            state.node: state.native_state
            for state in snapshot.nodes or ()
            if state.condition is not NodeCondition.IDLE
            and state.node not in held_by_us
            # planned for a job: where several of ours ask for the node, for one of these
            and not (state.condition is NodeCondition.PLANNED and asked[state.node] > 1)
        }
        something_runs = bool(held_by_us)
        waits = {one.tag: _wait_of(one, snapshot) for one in live}
        claims = Counter(node for one in live if waits[one.tag] is not Wait.NODE for node in one.nodes)
        found = []
        for attempt in live:
            report = snapshot.reports.get(attempt.native_id)
            if report is None or report.state is not JobState.QUEUED or attempt.withdrawal:
                self._forget(attempt.tag)
                continue
            own_count = int(waits[attempt.tag] is not Wait.NODE)
            shared = any(claims[node] > own_count for node in attempt.nodes)
            decision = self._decide(attempt, report, taken, now_s, something_runs=something_runs, shared=shared)
            if decision is None and paused is not None:
                decision = Withdrawal(attempt.tag, attempt.native_id, paused)
            if decision is not None:
                found.append(decision)
        return found

    def _decide(
        self,
        attempt: Attempt,
        report: JobReport,
        taken: Mapping[str, str],
        now_s: float,
        *,
        something_runs: bool,
        shared: bool,
    ) -> Withdrawal | None:
        tag, native_id = attempt.tag, attempt.native_id
        queued_s = now_s - self._queued_since.setdefault(tag, now_s)
        gone = [f"{node} is {taken[node]}" for node in attempt.nodes if node in taken]
        wait = Wait.NODE if report.wait is Wait.NEVER and gone else report.wait
        if wait is Wait.NODE and shared and not gone:
            wait = Wait.ORDINARY  # a node that another job of this run has or is about to get is called unavailable too
        looks, word_s = self._seen(tag, wait, now_s)
        said = f"queued with {report.reason}"
        if wait is Wait.NEVER and looks >= _LOOKS:
            return Withdrawal(tag, native_id, f"{said}: the scheduler would never start it", final=True)
        if wait is Wait.NODE and looks >= _LOOKS:
            return Withdrawal(tag, native_id, said, retry_later=True)
        if wait is Wait.LIMIT and word_s >= self.patience_s and not something_runs:
            return Withdrawal(tag, native_id, f"{said} for {word_s:.0f} s", final=True, waited=True)
        if queued_s >= self.patience_s and gone:
            return Withdrawal(
                tag, native_id, f"queued for {queued_s:.0f} s, its nodes were taken: {', '.join(gone)}", retry_later=True
            )
        return None

    def _seen(self, tag: str, wait: Wait, now_s: float) -> tuple[int, float]:
        """Return in how many polls in a row a wait appeared, and for how long."""
        before = self._words.get(tag)
        looks, since = (before[1] + 1, before[2]) if before is not None and before[0] is wait else (1, now_s)
        self._words[tag] = (wait, looks, since)
        return looks, now_s - since

    def _forget(self, tag: str) -> None:
        self._queued_since.pop(tag, None)
        self._words.pop(tag, None)


def _wait_of(attempt: Attempt, snapshot: QueueSnapshot) -> Wait:
    """What a job waits for. One that runs, or that the scheduler does not know yet, waits for nothing odd."""
    report = snapshot.reports.get(attempt.native_id)
    return report.wait if report is not None and report.state is JobState.QUEUED else Wait.ORDINARY

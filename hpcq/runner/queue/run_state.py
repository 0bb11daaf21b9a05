"""Fold a journal of a cluster or a link: what each pair still lacks, what hpcq may try again, what attempts have used.

Only the journal's events determine the state. The driver builds it while it writes them, and `hpcq status` while it
reads them. So both agree, and a driver that dies loses nothing. A subclass decides when the attempt of a pair is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hpcq import nodelist
from hpcq.planning.coverage import coverage_of
from hpcq.planning.job_ids import pair_index_of
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal_state import Attempt, JournalState, StepKey
from hpcq.runner.queue.jobs import all_steps
from hpcq.scheduler.types import JobState
from hpcq.units import count_of, parse_utc

#: Outcomes that say nothing about the test itself: another attempt may succeed.
_RETRIED_OUTCOMES = frozenset({"node_failed", "preempted", "boot_failed", "lost", "revoked", "refused", "completed", "failed"})
#: The outcome that does not count as an attempt, because it says nothing about the nodes: users waited, or a limit.
_UNCOUNTED_OUTCOME = "withdrawn"
#: How many lists of nodes a line shows.
_SHOWN_MAX = 8


class RunState(JournalState, ABC):
    """The state of one part of a run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        #: What the plan wants of every pair, and of each set of nodes.
        self._of_pairs = all_steps(plan, 0) if plan.sets_begin else frozenset[StepKey]()
        self._of_sets = {index: all_steps(plan, index) for index in range(plan.sets_begin, len(plan.pairs))}
        #: Pairs, by index, that have neither a live attempt nor an end, in plan order.
        self.pending: dict[int, None] = dict.fromkeys(range(len(plan.pairs)))
        self.measured_count = 0
        self._missing: dict[int, frozenset[StepKey]] = {}
        self._tries: dict[int, int] = {}

    # -- what a part of a run says of itself --------------------------------------------------------------------------

    @abstractmethod
    def _end_pair(self, index: int, attempt: Attempt) -> None:
        """React to the end of an attempt of this pair, whose measurements count.

        Call `_try_again` when no attempt of the pair is left.
        """

    @abstractmethod
    def _took(self, attempt: Attempt, node_seconds: float) -> None:
        """Add what an ended attempt used of the nodes, as far as it is known."""

    # -- what its users ask ------------------------------------------------------------------------------------------

    def missing(self, pair_index: int) -> frozenset[StepKey]:
        """Return the measurements of this pair that no attempt has provided yet."""
        return self._missing.get(pair_index, self._of_sets.get(pair_index, self._of_pairs))

    def measured_pairs(self) -> list[int]:
        """Return the pairs that lack no measurement any more."""
        return [index for index, missing in self._missing.items() if not missing]

    @property
    def planned_count(self) -> int:
        """Return how many measurements must run."""
        return self.plan.sets_begin * len(self._of_pairs) + sum(map(len, self._of_sets.values()))

    @property
    def measured_now_count(self) -> int:
        """Return how many measurements exist so far."""
        return self.measured_count

    def count(self, *states: JobState) -> int:
        """Return how many live attempts are in one of these states."""
        return sum(attempt.state in states for attempt in self.active.values())

    # -- private ----------------------------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt) -> None:
        attempt.walltime_s = attempt.walltime_s or self.plan.walltime_s
        super()._commit(attempt)
        for index in attempt.pairs:
            self.pending.pop(index, None)

    def _give_up(self, index: int, reason: str) -> None:
        super()._give_up(index, reason)
        self.pending.pop(index, None)

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        super()._end(attempt, event)
        self._took(attempt, _node_seconds(event, attempt))
        measured = _measured(event, attempt)
        for index in attempt.pairs:
            before, brought = self.missing(index), measured.get(index, frozenset())
            self._missing[index] = before - brought
            self.measured_count += len(before & brought)
            self._end_pair(index, attempt)

    def _try_again(self, index: int, outcomes: Collection[str], *, final: bool = False) -> None:
        """The attempts of a pair are over: make it pending again, or finish it.

        outcomes: of those attempts that caused the end.
        """
        counted = _UNCOUNTED_OUTCOME not in outcomes
        self._tries[index] = self._tries.get(index, 0) + counted
        if not self._missing[index] or self.cancelled or final:
            return
        helpful = any(outcome in _RETRIED_OUTCOMES for outcome in outcomes)
        if not counted or (helpful and self._tries[index] < self.plan.attempt_count_max):
            self.pending[index] = None


def _measured(event: Mapping[str, Any], attempt: Attempt) -> dict[int, frozenset[StepKey]]:
    """Return what an ended attempt measured, by pair."""
    of_pairs = {pair_index_of(job_id): steps for job_id, steps in event.get("measured_of", {}).items()}
    if event.get("measured"):
        of_pairs[attempt.pairs[0]] = event["measured"]
    return {index: frozenset((test_no, rep) for test_no, rep in steps) for index, steps in of_pairs.items()}


def _node_seconds(event: Mapping[str, Any], attempt: Attempt) -> float:
    """Return the node-seconds of an ended attempt.

    Without an end time, it ran until hpcq noticed the end, at most for its time limit.
    """
    started, ended = event.get("started_utc"), event.get("ended_utc")
    if not started:
        return 0.0
    took_s = max(0.0, (parse_utc(ended or event.get("utc") or started) - parse_utc(started)).total_seconds())
    return len(event["nodes"]) * (took_s if ended else min(took_s, attempt.walltime_s))


def powered_down_words(cluster: str, nodes: Sequence[str]) -> str:
    """Say which nodes, as folded lists, their site has switched off, and what follows."""
    count = sum(len(nodelist.expand(one)) for one in nodes)
    shown = ",".join(nodes[:_SHOWN_MAX]) + (",..." if len(nodes) > _SHOWN_MAX else "")
    return f"{count_of(count, 'node')} of {cluster} powered down ({shown}); hpcq uses none of them and wakes none"


def summary(state: RunState) -> dict[str, Any]:
    """Return the counts of one part, for markers and `hpcq status`. A link's attempts count on both sides."""
    measured = state.measured_pairs()
    live = [index for attempt in state.active.values() for index in attempt.pairs]
    return {
        "pair_count": len(state.plan.pairs),
        # What must run: the sizes that one run measures count once, as they do where hpcq counts what ran.
        "planned_result_count": state.planned_count,
        "measured_result_count": state.measured_now_count,
        "measured_pair_count": len(measured),
        "failed_pair_count": len(state.plan.pairs) - len(state.pending) - len({*measured, *live, *state.not_run}),
        "measuring_since_utc": state.measuring_since_utc,
        "planned_node_pair_count_min": state.plan.goals.node_pair_count_min,
        "attempt_count": len(state.attempts),
        "attempts": dict(Counter(one.outcome or one.state.value for one in state.attempts.values())),
        "live_attempt_count": len(state.active),
        "pending_pair_count": len(state.pending),
        "not_run_pair_count": len(state.not_run),
        "cancelled": bool(state.cancelled),
        "waiting": state.waiting,
        "powered_down": [
            {"cluster": cluster, "nodes": nodes, "since_utc": since_utc}
            for cluster, (nodes, since_utc) in state.powered_down.items()
            if nodes
        ],
        "coverage": coverage_of(state.plan, measured, state.not_run).to_json(),
    }

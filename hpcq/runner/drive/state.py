"""Fold the journal of a cluster into its attempts, each of one pair or, in a tournament, of many.

attempt -> submitted | refused -> state … -> ended {measured: steps that have a result}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hpcq.planning.job_ids import pair_index_of
from hpcq.planning.plan import Plan
from hpcq.run_folder.journal_state import Attempt, StepKey
from hpcq.runner.queue.run_state import RunState


class ClusterState(RunState):
    """The state of one cluster's part of a run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.node_seconds = 0.0
        #: Number of allocations so far that several pairs shared.
        self.tournament_count = 0
        self._numbers: dict[int, int] = {}
        #: What running tournaments have measured, by tag and pair. hpcq shows it, and counts it finally when they end.
        self._spooled: dict[str, dict[int, set[StepKey]]] = {}

    @classmethod
    def replay(cls, plan: Plan, events: Iterable[Mapping[str, Any]]) -> ClusterState:
        """Return the state after all these events."""
        return cls(plan).replayed(events)

    def next_attempt_no(self, pair_index: int) -> int:
        """Return the number of the next attempt."""
        return self._numbers.get(pair_index, 0) + 1

    def measured_pairs(self) -> list[int]:
        """Return the pairs that lack no measurement any more, as far as hpcq knows."""
        playing = [index for steps in self._spooled.values() for index in steps if not self._missing_now(index)]
        return super().measured_pairs() + [index for index in playing if self.missing(index)]

    @property
    def measured_now_count(self) -> int:
        """Return how many measurements exist so far, including those of running tournaments."""
        spooled = ((index, steps) for of_pairs in self._spooled.values() for index, steps in of_pairs.items())
        return self.measured_count + sum(len(steps & self.missing(index)) for index, steps in spooled)

    def _missing_now(self, index: int) -> frozenset[StepKey]:
        return self.missing(index).difference(*(of_pairs.get(index, ()) for of_pairs in self._spooled.values()))

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "spooled" and event["tag"] in self.active:
            of_pairs = self._spooled.setdefault(event["tag"], {})
            for job_id, steps in event["measured_of"].items():
                of_pairs.setdefault(pair_index_of(job_id), set()).update((test_no, rep) for test_no, rep in steps)

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        self._spooled.pop(attempt.tag, None)
        super()._end(attempt, event)

    def _commit(self, attempt: Attempt) -> None:
        super()._commit(attempt)
        self.tournament_count += attempt.shared
        for index in attempt.pairs:
            self._numbers[index] = self.next_attempt_no(index) if attempt.shared else attempt.attempt_no

    def _end_pair(self, index: int, attempt: Attempt) -> None:
        self._try_again(index, (attempt.outcome,))

    def _took(self, attempt: Attempt, node_seconds: float) -> None:  # noqa: ARG002 - all nodes are of one cluster
        self.node_seconds += node_seconds

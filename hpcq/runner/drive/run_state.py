"""What every journal means, a cluster's as a link's: what each pair still misses, what may be tried again, what was taken.

Built from the journal's events alone, by the driver as it writes them and by `hpcq status` as it reads them, so both say
the same and a driver that died loses nothing. A subclass says what an attempt is and when the try of a pair is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from hpcq.planning.coverage import coverage_of
from hpcq.planning.plan import Plan
from hpcq.runner.drive.jobs import StepKey, all_steps, pair_index_of
from hpcq.scheduler.base import JobState
from hpcq.units import parse_utc

#: Outcomes that say nothing about the test itself: the same job may do better on another try.
_RETRIED_OUTCOMES = frozenset({"node_failed", "preempted", "boot_failed", "lost", "revoked", "refused", "completed", "failed"})
#: The outcome that does not count as a try, because it says nothing of the nodes: users waited, a limit was met.
_UNCOUNTED_OUTCOME = "withdrawn"


@dataclass(slots=True, kw_only=True)
class BaseAttempt:
    """One submission of a job; `native_id` is empty until the scheduler gave one, `outcome` until it ended."""

    tag: str
    job_id: str
    attempt_no: int
    nodes: tuple[str, ...]
    #: What it measures, as places in the plan: one, or several that share the allocation.
    pairs: tuple[int, ...]
    #: What its time limit is, and so what it holds its nodes for at most.
    walltime_s: float
    native_id: str = ""
    state: JobState = JobState.QUEUED
    outcome: str = ""
    reason: str = ""
    #: Why the driver takes it out of the queue or ends it early; final: its pair is not tried again then.
    withdrawal: str = ""
    final: bool = False

    @property
    def node_seconds_at_most(self) -> float:
        """What it may take of its nodes."""
        return len(self.nodes) * self.walltime_s

    @property
    def folder(self) -> str:
        """Where its files lie, as Job.folder."""
        return f"jobs/{self.job_id}/{self.attempt_no}"


_Attempt = TypeVar("_Attempt", bound=BaseAttempt)


class RunState(ABC, Generic[_Attempt]):
    """The state of one part of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._all = all_steps(plan)
        self.attempts: dict[str, _Attempt] = {}
        #: Tags without an outcome, in order of submission.
        self.active: dict[str, _Attempt] = {}
        #: Pair indices that have neither a live attempt nor an end, in plan order.
        self.pending: dict[int, None] = dict.fromkeys(range(len(plan.pairs)))
        self.not_run: dict[int, str] = {}
        self.measured_count = 0
        self.cancelled = False
        #: When the first job was seen running.
        self.measuring_since_utc: str | None = None
        self._missing: dict[int, frozenset[StepKey]] = {}
        self._tries: dict[int, int] = {}

    # -- events -----------------------------------------------------------------------------------------------------

    def replayed(self, events: Iterable[Mapping[str, Any]]) -> Self:
        """This ledger after all these events."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event of the journal into account; events that change nothing here are passed over."""
        match event["event"]:
            case "attempt":
                attempt = self._make(event)
                self.attempts[attempt.tag] = self.active[attempt.tag] = attempt
                for index in attempt.pairs:
                    self.pending.pop(index, None)
            case "submitted":
                self.attempts[event["tag"]].native_id = event["native_id"]
            case "state":
                attempt = self.attempts[event["tag"]]
                attempt.state, attempt.reason = JobState(event["state"]), event["reason"]
                if attempt.state is JobState.RUNNING and self.measuring_since_utc is None:
                    self.measuring_since_utc = event.get("utc")
            case "refused":
                self._end(self.attempts[event["tag"]], "refused", event["message"], {})
            case "withdraw":
                attempt = self.attempts[event["tag"]]
                attempt.withdrawal, attempt.final = event["reason"], bool(event.get("final"))
            case "ended":
                attempt = self.attempts[event["tag"]]
                self._took(attempt, _node_seconds(event, attempt))
                attempt.final |= bool(event.get("final"))
                self._end(attempt, event["outcome"], event["reason"], _measured(event, attempt))
            case "not_run":
                index = pair_index_of(event["job_id"])
                self.pending.pop(index, None)
                self.not_run[index] = event["reason"]
            case "cancel":
                self.cancelled = True
            case _:
                self._apply_other(event)

    @abstractmethod
    def _make(self, event: Mapping[str, Any]) -> _Attempt:
        """The attempt that an event commits to."""

    @abstractmethod
    def _end_pair(self, index: int, attempt: _Attempt) -> None:
        """An attempt of this pair has ended, and what it brought is taken: say by `_try_again` when the try is over."""

    @abstractmethod
    def _took(self, attempt: _Attempt, node_seconds: float) -> None:
        """What an ended attempt took of nodes, as far as it said."""

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        """An event that not every ledger knows."""

    # -- what is asked of it ----------------------------------------------------------------------------------------

    def missing(self, pair_index: int) -> frozenset[StepKey]:
        """The measurements of this pair that no attempt has brought yet."""
        return self._missing.get(pair_index, self._all)

    def measured_pairs(self) -> list[int]:
        """The pairs of which nothing is missing any more."""
        return [index for index, missing in self._missing.items() if not missing]

    @property
    def measured_now_count(self) -> int:
        """Measurements so far."""
        return self.measured_count

    @property
    def undetermined(self) -> list[_Attempt]:
        """Attempts of which nobody knows yet whether the scheduler has them."""
        return [attempt for attempt in self.active.values() if not attempt.native_id]

    def count(self, *states: JobState) -> int:
        """How many live attempts are in one of these states."""
        return sum(attempt.state in states for attempt in self.active.values())

    # -- private ----------------------------------------------------------------------------------------------------

    def _end(self, attempt: _Attempt, outcome: str, reason: str, measured: Mapping[int, frozenset[StepKey]]) -> None:
        attempt.outcome, attempt.reason = outcome, reason
        self.active.pop(attempt.tag, None)
        for index in attempt.pairs:
            before, brought = self.missing(index), measured.get(index, frozenset())
            self._missing[index] = before - brought
            self.measured_count += len(before & brought)
            self._end_pair(index, attempt)

    def _try_again(self, index: int, outcomes: Collection[str], *, final: bool = False) -> None:
        """A try of this pair is over with these outcomes of those who caused the end: it is pending again, or done with."""
        counted = _UNCOUNTED_OUTCOME not in outcomes
        self._tries[index] = self._tries.get(index, 0) + counted
        if not self._missing[index] or self.cancelled or final:
            return
        helpful = any(outcome in _RETRIED_OUTCOMES for outcome in outcomes)
        if not counted or (helpful and self._tries[index] < self.plan.attempt_count_max):
            self.pending[index] = None


def _measured(event: Mapping[str, Any], attempt: BaseAttempt) -> dict[int, frozenset[StepKey]]:
    """What an ended attempt brought, by pair."""
    of_pairs = {pair_index_of(job_id): steps for job_id, steps in event.get("measured_of", {}).items()}
    if event.get("measured"):
        of_pairs[attempt.pairs[0]] = event["measured"]
    return {index: frozenset((test_no, rep) for test_no, rep in steps) for index, steps in of_pairs.items()}


def _node_seconds(event: Mapping[str, Any], attempt: BaseAttempt) -> float:
    """What an ended attempt took; one that could not say when it ended ran until that was noticed, or its time limit."""
    started, ended = event.get("started_utc"), event.get("ended_utc")
    if not started:
        return 0.0
    took_s = max(0.0, (parse_utc(ended or event.get("utc") or started) - parse_utc(started)).total_seconds())
    return len(event["nodes"]) * (took_s if ended else min(took_s, attempt.walltime_s))


def summary(ledger: RunState[Any]) -> dict[str, Any]:
    """Counts of one part, for markers and `hpcq status`; a link's attempts are counted on both sides."""
    measured = ledger.measured_pairs()
    live = [index for attempt in ledger.active.values() for index in attempt.pairs]
    return {
        "pair_count": len(ledger.plan.pairs),
        "planned_result_count": ledger.plan.goals.result_count,
        "measured_result_count": ledger.measured_now_count,
        "measured_pair_count": len(measured),
        "failed_pair_count": len(ledger.plan.pairs) - len(ledger.pending) - len({*measured, *live, *ledger.not_run}),
        "measuring_since_utc": ledger.measuring_since_utc,
        "planned_node_pair_count_min": ledger.plan.goals.node_pair_count_min,
        "attempt_count": len(ledger.attempts),
        "attempts": dict(Counter(one.outcome or one.state.value for one in ledger.attempts.values())),
        "live_attempt_count": len(ledger.active),
        "pending_pair_count": len(ledger.pending),
        "not_run_pair_count": len(ledger.not_run),
        "cancelled": ledger.cancelled,
        "coverage": coverage_of(ledger.plan, measured, ledger.not_run).to_json(),
    }

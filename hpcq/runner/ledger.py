"""What a journal means: which attempts there are, what each pair still misses, what may be tried again.

Built from the journal's events alone, by the driver as it writes them and by `hpcq status` as it reads them, so both say
the same and a driver that died loses nothing.

    attempt -> submitted | refused -> state … -> ended {measured: steps that have a result}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcq.coverage import coverage_of
from hpcq.plan import Plan
from hpcq.runner.jobs import StepKey, all_steps, pair_index_of
from hpcq.scheduler.base import JobState
from hpcq.units import parse_utc

#: Outcomes that say nothing about the test itself: the same job may do better on another try.
RETRIED_OUTCOMES = frozenset({"node_failed", "preempted", "boot_failed", "lost", "revoked", "refused", "completed", "failed"})
#: Outcomes that do not count as a try, because nothing ran.
UNCOUNTED_OUTCOMES = frozenset({"withdrawn"})


@dataclass(slots=True)
class Attempt:
    """One submission of a job; `native_id` is empty until the scheduler gave one, `outcome` until it ended."""

    tag: str
    job_id: str
    attempt_no: int
    nodes: tuple[str, ...]
    #: What it measures, as places in the plan: one, or several that share the allocation.
    pairs: tuple[int, ...]
    native_id: str = ""
    state: JobState = JobState.QUEUED
    outcome: str = ""
    reason: str = ""
    #: Why the driver takes it out of the queue; final: its pair is not tried again then.
    letting_go: str = ""
    final: bool = False

    @property
    def shared(self) -> bool:
        """Whether it is a tournament: g00001 and so on."""
        return self.job_id.startswith("g")

    @property
    def folder(self) -> str:
        """Where its files lie, as Job.folder."""
        return f"jobs/{self.job_id}/{self.attempt_no}"


class Ledger:
    """The state of one cluster's part of a run."""

    def __init__(self, plan: Plan) -> None:
        self._all = all_steps(plan)
        self._tries_max = plan.attempt_count_max
        self.plan = plan
        self.attempts: dict[str, Attempt] = {}
        #: Tags without an outcome, in order of submission.
        self.active: dict[str, Attempt] = {}
        #: Pair indices that have neither a live attempt nor an end, in plan order.
        self.pending: dict[int, None] = dict.fromkeys(range(len(plan.pairs)))
        self.not_run: dict[int, str] = {}
        self.measured_count = 0
        self.cancelled = False
        #: What ended attempts took of nodes, as far as they said.
        self.node_seconds = 0.0
        self._missing: dict[int, frozenset[StepKey]] = {}
        self._tries: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        #: Allocations so far that several pairs shared.
        self.tournament_count = 0
        #: When the first job was seen running.
        self.measuring_since_utc: str | None = None
        #: What tournaments that still run have measured, by tag and pair: shown, and counted for good when they end.
        self._spooled: dict[str, dict[int, set[StepKey]]] = {}

    @classmethod
    def replay(cls, plan: Plan, events: Iterable[Mapping[str, Any]]) -> Ledger:
        """The ledger after all these events."""
        ledger = cls(plan)
        for event in events:
            ledger.apply(event)
        return ledger

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event of the journal into account; events that change nothing here are passed over."""
        match event["event"]:
            case "attempt":
                self._attempt(event)
            case "submitted":
                self.attempts[event["tag"]].native_id = event["native_id"]
            case "state":
                self.attempts[event["tag"]].state = JobState(event["state"])
                if event["state"] == JobState.RUNNING and self.measuring_since_utc is None:
                    self.measuring_since_utc = event.get("utc")
            case "spooled":
                self._spool(event)
            case "refused":
                self._end(event["tag"], "refused", event["message"], {})
            case "let_go":
                attempt = self.attempts[event["tag"]]
                attempt.letting_go, attempt.final = event["reason"], bool(event.get("final"))
            case "ended":
                self.node_seconds += _node_seconds(event)
                self._end(event["tag"], event["outcome"], event["reason"], _measured(event, self.attempts[event["tag"]]))
            case "not_run":
                index = pair_index_of(event["job_id"])
                self.pending.pop(index, None)
                self.not_run[index] = event["reason"]
            case "cancel":
                self.cancelled = True
            case _:
                pass

    def missing(self, pair_index: int) -> frozenset[StepKey]:
        """The measurements of this pair that no attempt has brought yet."""
        return self._missing.get(pair_index, self._all)

    def next_attempt_no(self, pair_index: int) -> int:
        """The number of the attempt that would be made now."""
        return self._numbers.get(pair_index, 0) + 1

    def measured_pairs(self) -> list[int]:
        """The pairs of which nothing is missing any more, as far as one knows."""
        ended = [index for index, missing in self._missing.items() if not missing]
        playing = [index for steps in self._spooled.values() for index in steps if not self._missing_now(index)]
        return ended + [index for index in playing if self.missing(index)]

    @property
    def measured_now_count(self) -> int:
        """Measurements so far, those of tournaments that still run among them."""
        spooled = ((index, steps) for of_pairs in self._spooled.values() for index, steps in of_pairs.items())
        return self.measured_count + sum(len(steps & self.missing(index)) for index, steps in spooled)

    def _missing_now(self, index: int) -> frozenset[StepKey]:
        return self.missing(index).difference(*(of_pairs.get(index, ()) for of_pairs in self._spooled.values()))

    def _spool(self, event: Mapping[str, Any]) -> None:
        if event["tag"] in self.active:
            of_pairs = self._spooled.setdefault(event["tag"], {})
            for job_id, steps in event["measured_of"].items():
                of_pairs.setdefault(pair_index_of(job_id), set()).update((test_no, rep) for test_no, rep in steps)

    @property
    def undetermined(self) -> list[Attempt]:
        """Attempts of which nobody knows yet whether the scheduler has them."""
        return [attempt for attempt in self.active.values() if not attempt.native_id]

    def count(self, *states: JobState) -> int:
        """How many live attempts are in one of these states."""
        return sum(attempt.state in states for attempt in self.active.values())

    def _attempt(self, event: Mapping[str, Any]) -> None:
        shared = "pairs" in event
        pairs = tuple(map(pair_index_of, event["pairs"] if shared else [event["job_id"]]))
        attempt = Attempt(
            tag=event["tag"],
            job_id=event["job_id"],
            attempt_no=event["attempt_no"],
            nodes=tuple(event["nodes"]),
            pairs=pairs,
        )
        self.attempts[attempt.tag] = attempt
        self.active[attempt.tag] = attempt
        self.tournament_count += shared
        for index in pairs:
            self.pending.pop(index, None)
            self._numbers[index] = self.next_attempt_no(index) if shared else attempt.attempt_no

    def _end(self, tag: str, outcome: str, reason: str, measured: Mapping[int, frozenset[StepKey]]) -> None:
        attempt = self.attempts[tag]
        attempt.outcome, attempt.reason = outcome, reason
        self.active.pop(tag, None)
        self._spooled.pop(tag, None)
        for index in attempt.pairs:
            self._end_pair(index, outcome, measured.get(index, frozenset()))

    def _end_pair(self, index: int, outcome: str, measured: frozenset[StepKey]) -> None:
        before = self.missing(index)
        self._missing[index] = before - measured
        self.measured_count += len(before & measured)
        if outcome not in UNCOUNTED_OUTCOMES:
            self._tries[index] = self._tries.get(index, 0) + 1
        if not self._missing[index] or self.cancelled:
            return
        again = outcome in UNCOUNTED_OUTCOMES or (outcome in RETRIED_OUTCOMES and self._tries[index] < self._tries_max)
        if again:
            self.pending[index] = None


def _measured(event: Mapping[str, Any], attempt: Attempt) -> dict[int, frozenset[StepKey]]:
    """What an ended attempt brought, by pair."""
    of_pairs = {pair_index_of(job_id): steps for job_id, steps in event.get("measured_of", {}).items()}
    if event.get("measured"):
        of_pairs[attempt.pairs[0]] = event["measured"]
    return {index: frozenset((test_no, rep) for test_no, rep in steps) for index, steps in of_pairs.items()}


def _node_seconds(event: Mapping[str, Any]) -> float:
    started, ended = event.get("started_utc"), event.get("ended_utc")
    if not started or not ended:
        return 0.0
    return len(event["nodes"]) * max(0.0, (parse_utc(ended) - parse_utc(started)).total_seconds())


def summary(ledger: Ledger) -> dict[str, Any]:
    """Counts of one cluster's part, for markers and `hpcq status`."""
    outcomes: dict[str, int] = {}
    for attempt in ledger.attempts.values():
        word = attempt.outcome or attempt.state.value
        outcomes[word] = outcomes.get(word, 0) + 1
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
        "attempts": outcomes,
        "live_attempt_count": len(ledger.active),
        "pending_pair_count": len(ledger.pending),
        "not_run_pair_count": len(ledger.not_run),
        "cancelled": ledger.cancelled,
        "coverage": coverage_of(ledger.plan, measured, ledger.not_run).to_json(),
    }

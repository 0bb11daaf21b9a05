"""What the journal of a link means: its tries, each with an attempt on either side, and what may be tried again.

    estimate -> attempt(side) -> submitted -> state … -> met -> ways -> ended(side)          for both sides
                                                  stop(side): the driver ends it, with the reason

A try is over when no attempt of it lives; the side that caused the end decides whether there is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcq.links import LinkPlan, split
from hpcq.runner.jobs import StepKey, all_steps, pair_index_of
from hpcq.runner.ledger import RETRIED_OUTCOMES, UNCOUNTED_OUTCOMES
from hpcq.scheduler.base import JobState

#: The two ends of a link, in the order of its name.
SIDES = ("from", "to")


def other(side: str) -> str:
    """The opposite end."""
    return SIDES[1 - SIDES.index(side)]


@dataclass(slots=True)
class SideAttempt:
    """One submission on one side; `native_id` is empty until the scheduler gave one, `outcome` until it ended."""

    tag: str
    job_id: str
    attempt_no: int
    side: str
    node: str
    native_id: str = ""
    state: JobState = JobState.QUEUED
    reason: str = ""
    outcome: str = ""
    #: Why the driver ended it; empty where it did not.
    stopped: str = ""
    #: It was ended only because the other side had been.
    follows: bool = False
    #: Trying again would not help.
    final: bool = False

    @property
    def folder(self) -> str:
        """Where its files lie, below the link's folder here and on the cluster."""
        return side_folder(self.job_id, self.attempt_no, self.side)

    @property
    def live(self) -> bool:
        return not self.outcome


@dataclass(slots=True)
class Try:
    """One attempt to measure a pair, with its attempts by side."""

    index: int
    attempt_no: int
    #: The side that was told to measure where it can connect.
    first: str
    sides: dict[str, SideAttempt] = field(default_factory=dict)
    met: bool = False
    ways_known: bool = False

    @property
    def live(self) -> bool:
        return any(attempt.live for attempt in self.sides.values())


class LinkLedger:
    """The state of one link's part of a run; has what `summary` of a cluster's ledger reads."""

    def __init__(self, link_plan: LinkPlan) -> None:
        self.link = link_plan.link
        self.plan = link_plan.plan
        self._all = all_steps(self.plan)
        self.attempts: dict[str, SideAttempt] = {}
        self.active: dict[str, SideAttempt] = {}
        #: The last try of each pair.
        self.tries: dict[int, Try] = {}
        self.pending: dict[int, None] = dict.fromkeys(range(len(self.plan.pairs)))
        self.not_run: dict[int, str] = {}
        self.measured_count = 0
        self.cancelled = False
        #: The side that measured as the client, by pair, once known.
        self.clients: dict[int, str] = {}
        self._missing: dict[int, frozenset[StepKey]] = {}
        self._counted: dict[int, int] = {}

    @classmethod
    def replay(cls, link_plan: LinkPlan, events: Iterable[Mapping[str, Any]]) -> LinkLedger:
        """The ledger after all these events."""
        ledger = cls(link_plan)
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
                attempt = self.attempts[event["tag"]]
                attempt.state, attempt.reason = JobState(event["state"]), event["reason"]
            case "stop":
                attempt = self.attempts[event["tag"]]
                attempt.stopped = event["reason"]
                attempt.follows, attempt.final = event["follows"], event["final"]
            case "refused":
                self._end(event["tag"], "refused", event["message"], frozenset())
            case "ended":
                measured = frozenset((test_no, repetition_no) for test_no, repetition_no in event["measured"])
                self.attempts[event["tag"]].final |= bool(event.get("final"))
                self._end(event["tag"], event["outcome"], event["reason"], measured)
            case "not_run":
                index = pair_index_of(event["job_id"])
                self.pending.pop(index, None)
                self.not_run[index] = event["reason"]
            case "cancel":
                self.cancelled = True
            case "met":
                self.tries[pair_index_of(event["job_id"])].met = True
            case "ways":
                self._ways(event)
            case _:
                pass

    def missing(self, index: int) -> frozenset[StepKey]:
        """The measurements of this pair that no try has brought yet."""
        return self._missing.get(index, self._all)

    def next_attempt_no(self, index: int) -> int:
        """The number of the try that would be made now."""
        return self.tries[index].attempt_no + 1 if index in self.tries else 1

    def client_side(self, index: int) -> str:
        """The side that goes first as the client: the one that did before, else the plan's."""
        if index in self.clients:
            return self.clients[index]
        return "from" if split(self.plan.pairs[index][0])[0] == self.link.from_cluster else "to"

    def node(self, index: int, side: str) -> str:
        """The node of a pair on one side, as its own cluster calls it."""
        wanted = self.link.from_cluster if side == "from" else self.link.to_cluster
        return next(node for cluster, node in map(split, self.plan.pairs[index]) if cluster == wanted)

    @property
    def open_tries(self) -> list[Try]:
        """Tries of which an attempt lives."""
        return [one for one in self.tries.values() if one.live]

    def undetermined(self, side: str) -> list[SideAttempt]:
        """Attempts of a side of which nobody knows yet whether its scheduler has them."""
        return [attempt for attempt in self.live_on(side) if not attempt.native_id]

    def live_on(self, side: str) -> list[SideAttempt]:
        """The live attempts of one side."""
        return [attempt for attempt in self.active.values() if attempt.side == side]

    def _attempt(self, event: Mapping[str, Any]) -> None:
        index, attempt_no = pair_index_of(event["job_id"]), event["attempt_no"]
        attempt = SideAttempt(event["tag"], event["job_id"], attempt_no, event["side"], event["nodes"][0])
        if index not in self.tries or self.tries[index].attempt_no != attempt_no:
            self.tries[index] = Try(index, attempt_no, event["first"])
        self.tries[index].sides[attempt.side] = attempt
        self.attempts[attempt.tag] = attempt
        self.active[attempt.tag] = attempt
        self.pending.pop(index, None)

    def _ways(self, event: Mapping[str, Any]) -> None:
        index = pair_index_of(event["job_id"])
        self.tries[index].ways_known = True
        if event["client"] is not None:
            self.clients[index] = event["client"]

    def _end(self, tag: str, outcome: str, reason: str, measured: frozenset[StepKey]) -> None:
        attempt = self.attempts[tag]
        attempt.outcome, attempt.reason = outcome, reason
        self.active.pop(tag, None)
        index = pair_index_of(attempt.job_id)
        before = self.missing(index)
        self._missing[index] = before - measured
        self.measured_count += len(before & measured)
        ended = self.tries[index]
        if ended.live:
            return
        causes = [one for one in ended.sides.values() if not one.follows] or list(ended.sides.values())
        if any(one.outcome not in UNCOUNTED_OUTCOMES for one in causes):
            self._counted[index] = self._counted.get(index, 0) + 1
        if not self._missing[index] or self.cancelled or any(one.final for one in causes):
            return
        helpful = any(one.outcome in RETRIED_OUTCOMES | UNCOUNTED_OUTCOMES for one in causes)
        if helpful and self._counted.get(index, 0) < self.plan.attempt_count_max:
            self.pending[index] = None


def side_folder(job_id: str, attempt_no: int, side: str) -> str:
    """Where the files of one side of a try lie."""
    return f"jobs/{job_id}/{attempt_no}/{side}"


def summary(ledger: LinkLedger) -> dict[str, Any]:
    """Counts of one link's part, with the keys of a cluster's; attempts are counted on both sides."""
    return {
        "pair_count": len(ledger.plan.pairs),
        "planned_result_count": ledger.plan.goals.result_count,
        "measured_result_count": ledger.measured_count,
        "attempt_count": len(ledger.attempts),
        "attempts": dict(Counter(one.outcome or one.state.value for one in ledger.attempts.values())),
        "live_attempt_count": len(ledger.active),
        "pending_pair_count": len(ledger.pending),
        "not_run_pair_count": len(ledger.not_run),
        "cancelled": ledger.cancelled,
    }

"""Fold a journal into its attempts and their present states. The driver, `hpcq status` and the loader all use this.

attempt -> submitted | refused -> state … -> withdraw, stop -> ended

`JournalState` needs only the events. `RunState` (runner/queue/run_state.py) adds what needs the plan:
which pairs still lack measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from hpcq.planning.job_ids import is_shared, pair_index_of
from hpcq.scheduler.types import JobKey, JobState

#: test_no, repetition_no: together they name one planned measurement of a pair.
StepKey = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One submission of a job.

    `native_id` is empty until the scheduler assigns one, `outcome` is empty until the attempt ends.
    """

    tag: str
    job_id: str
    attempt_no: int
    nodes: tuple[str, ...]
    #: The pairs that it measures, as indices in the plan. Several pairs share one allocation.
    pairs: tuple[int, ...]
    #: Its time limit, which bounds how long it holds its nodes. 0: the journal does not say.
    walltime_s: float = 0.0
    #: Which end of a link it is, "from" or "to"; empty for a job within a cluster.
    side: str = ""
    #: The cluster of a link's side; empty for a job within a cluster.
    cluster: str = ""
    committed_utc: str = ""
    submitted_utc: str | None = None
    native_id: str = ""
    state: JobState = JobState.QUEUED
    outcome: str = ""
    reason: str = ""
    exit_code: int | None = None
    started_utc: str | None = None
    ended_utc: str | None = None
    #: Why the driver withdraws it or ends it early. final: then hpcq does not try its pair again.
    withdrawal: str = ""
    withdrawal_outcome: str = "withdrawn"
    final: bool = False
    #: Why a link's driver ended it. follows: only because the other side had ended.
    stopped: str = ""
    follows: bool = False
    #: For one pair of a tournament: job_id and attempt_no of the tournament, whose folder has the files.
    place: tuple[str, int] | None = None

    @property
    def key(self) -> JobKey:
        """Return the key under which the scheduler is asked about it."""
        return JobKey(self.native_id, self.tag)

    @property
    def live(self) -> bool:
        """Whether it has not ended yet."""
        return not self.outcome

    @property
    def ordered(self) -> bool:
        """Whether hpcq has decided to end it, so that its scheduler was or will be told."""
        return bool(self.withdrawal or self.stopped)

    @property
    def shared(self) -> bool:
        """Whether several pairs share its allocation."""
        return is_shared(self.job_id)

    @property
    def node_seconds_at_most(self) -> float:
        """Return the most node-seconds that it can use."""
        return len(self.nodes) * self.walltime_s

    @property
    def folder(self) -> str:
        """Return its folder, relative to its part of the run folder, here and on the cluster."""
        return attempt_folder(self.job_id, self.attempt_no, self.side)

    def describe(self) -> str:
        """Return its end, or its present state, in a few words: `attempt 2 timed_out: DUE TO TIME LIMIT`."""
        word = self.outcome or (self.state.value if self.native_id else "not submitted yet")
        return f"attempt {self.attempt_no} {word}" + (f": {self.reason}" if self.reason else "")


class JournalState:
    """The sum of a journal's events. It ignores events of an unknown kind and events about an unknown tag."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        #: Tags without an outcome, in order of submission.
        self.active: dict[str, Attempt] = {}
        #: Why a pair is not tried (again), by its index in the plan.
        self.not_run: dict[int, str] = {}
        #: Why the run was cancelled; empty if it was not.
        self.cancelled = ""
        #: What the run waits for, since when and until when; empty if it does not wait.
        self.waiting = ""
        #: Nodes that were switched off when a driver last looked, folded, and since when it has seen them so; by cluster.
        self.powered_down: dict[str, tuple[list[str], str]] = {}
        self.opened_utc: str | None = None
        self.closed_utc: str | None = None
        #: When a poll first showed a running job.
        self.measuring_since_utc: str | None = None

    def replayed(self, events: Iterable[Mapping[str, Any]]) -> Self:
        """Return this state after all these events."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event into account."""
        match event["event"]:
            case "opened":
                self.opened_utc = self.opened_utc or event.get("utc")
                self.closed_utc = None
            case "closed":
                self.closed_utc, self.waiting = event.get("utc"), ""
            case "attempt":
                self._commit(attempt_of(event))
            case "not_run":
                self._give_up(pair_index_of(event["job_id"]), event["reason"])
            case "cancel":
                self.cancelled = event["reason"]
            case "waiting":
                self.waiting = event["reason"]
            case "powered_down":
                self.powered_down[event["cluster"]] = event["nodes"], event.get("utc", "")
            case _:
                attempt = self.attempts.get(event.get("tag", ""))
                if attempt is not None:
                    self._advance(attempt, event)
                else:
                    self._apply_other(event)

    @property
    def undetermined(self) -> list[Attempt]:
        """Return the attempts of which hpcq does not know yet whether the scheduler has them."""
        return [attempt for attempt in self.active.values() if not attempt.native_id]

    # -- what a state with a plan adds --------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt) -> None:
        self.attempts[attempt.tag] = self.active[attempt.tag] = attempt
        for index in attempt.pairs:
            self.not_run.pop(index, None)

    def _give_up(self, index: int, reason: str) -> None:
        self.not_run[index] = reason

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - only a plan knows what it measured
        self.active.pop(attempt.tag, None)

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        """Apply an event that is not about an attempt."""

    # -- private ------------------------------------------------------------------------------------------------------

    def _advance(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "submitted":
                attempt.native_id, attempt.submitted_utc = event["native_id"], event.get("utc")
            case "state":
                attempt.state, attempt.reason = JobState(event["state"]), event.get("reason") or ""
                if attempt.state is JobState.RUNNING and self.measuring_since_utc is None:
                    self.measuring_since_utc = event.get("utc")
            case "withdraw":
                attempt.withdrawal, attempt.final = event["reason"], bool(event.get("final"))
                attempt.withdrawal_outcome = event.get("outcome", "withdrawn")
            case "stop":
                attempt.stopped = event["reason"]
                attempt.follows, attempt.final = bool(event.get("follows")), bool(event.get("final"))
            case "refused":
                attempt.outcome, attempt.reason, attempt.ended_utc = "refused", event["message"], event.get("utc")
                self._end(attempt, event)
            case "ended":
                attempt.outcome, attempt.reason = event["outcome"], event.get("reason") or ""
                attempt.nodes = tuple(event.get("nodes") or ()) or attempt.nodes
                attempt.exit_code = event.get("rc")
                attempt.started_utc = event.get("started_utc")
                attempt.ended_utc = event.get("ended_utc") or event.get("utc")
                attempt.final |= bool(event.get("final"))
                self._end(attempt, event)
            case _:
                self._apply_other(event)


def fold(events: Iterable[Mapping[str, Any]]) -> JournalState:
    """Return the present state of every attempt."""
    return JournalState().replayed(events)


def attempt_of(event: Mapping[str, Any]) -> Attempt:
    """Return the attempt that an event commits."""
    return Attempt(
        tag=event["tag"],
        job_id=event["job_id"],
        attempt_no=event["attempt_no"],
        nodes=tuple(event["nodes"]),
        pairs=tuple(map(pair_index_of, event.get("pairs") or [event["job_id"]])),
        walltime_s=event.get("walltime_s", 0.0),
        side=event.get("side", ""),
        cluster=event.get("cluster", ""),
        committed_utc=event.get("utc", ""),
    )


def attempt_folder(job_id: str, attempt_no: int, side: str = "") -> str:
    """Return the folder of an attempt. A link's attempt has one per side."""
    return f"jobs/{job_id}/{attempt_no}" + (f"/{side}" if side else "")

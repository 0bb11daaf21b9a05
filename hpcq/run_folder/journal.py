"""The driver's journal of one cluster. The driver records each action here before it acts.

Hides how an append-only file survives a crash and two writers:

    Journal(path)  --flock path.lock, link path.writer-->  cut a torn last line  -->  append(event) = write + fsync  -->  close
    read_journal(path)  any time, by any process, without a lock: a torn last line is not an event yet
    journal_state.fold(events)   the same events as attempts with their present state

When `append` returns, the event is on the disk. When it raises, the event is not in the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from hpcq.clock import DriverTimes, utc_or_none
from hpcq.errors import HeldError, StoreError
from hpcq.planning.plan import is_shared, pair_index_of
from hpcq.run_folder.paths import NoFileError, open_regular
from hpcq.scheduler.types import JobKey, JobState
from hpcq.units import utc_now
from hpcq.visible import one_line
from hpcq.writer_lock import STALE_S, WriterLock


class EventName(StrEnum):
    """What can happen to the run of one cluster."""

    OPENED = "opened"
    WAVE = "wave"
    ATTEMPT = "attempt"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    STATE = "state"
    SPOOLED = "spooled"
    ENDED = "ended"
    NOT_RUN = "not_run"
    WITHDRAW = "withdraw"
    CANCEL = "cancel"
    WAITING = "waiting"
    POWERED_DOWN = "powered_down"
    ESTIMATE = "estimate"
    MET = "met"
    WAYS = "ways"
    STOP = "stop"
    SUSPECTED = "suspected"
    CLOSED = "closed"


#: The fields that each event must have, besides `utc` and `event`. An event may have more.
_FIELDS: dict[EventName, frozenset[str]] = {
    EventName.OPENED: frozenset(),
    EventName.WAVE: frozenset({"idle", "jobs"}),
    EventName.ATTEMPT: frozenset({"job", "attempt_no", "tag", "nodes"}),
    EventName.SUBMITTED: frozenset({"tag", "scheduler_job_id"}),
    EventName.REFUSED: frozenset({"tag", "message"}),
    EventName.STATE: frozenset({"tag", "state", "reason"}),
    EventName.SPOOLED: frozenset({"tag", "measured_of"}),
    EventName.ENDED: frozenset({"tag", "outcome", "reason", "nodes", "rc"}),
    EventName.NOT_RUN: frozenset({"job", "pair", "reason"}),
    EventName.WITHDRAW: frozenset({"tag", "reason"}),
    EventName.CANCEL: frozenset({"reason"}),
    EventName.WAITING: frozenset({"reason"}),
    EventName.POWERED_DOWN: frozenset({"cluster", "nodes"}),
    # Of links only: expected starts, addresses, open directions, what the driver ended and why.
    EventName.ESTIMATE: frozenset({"job", "attempt_no", "wait_s"}),
    EventName.MET: frozenset({"job", "attempt_no", "addresses"}),
    EventName.WAYS: frozenset({"job", "attempt_no", "ways", "client"}),
    EventName.STOP: frozenset({"tag", "reason"}),
    EventName.SUSPECTED: frozenset({"pair_count"}),
    EventName.CLOSED: frozenset(),
}


#: How an attempt can end, in the words of attempt.outcome in the database. Some ends come from the scheduler, others
#: happen before the scheduler has the job.
ATTEMPT_OUTCOMES = {state.value for state in JobState if state.terminal} | {"refused", "withdrawn", "lost"}


Event = dict[str, Any]
_ONE_DRIVER = "one driver per run and cluster: wait, or end that one"


class Journal:
    """The only writer of a journal. Use it as a context manager; it holds the lock until it is closed."""

    def __init__(self, path: Path) -> None:
        """Open for writing, create the file and its folder, and cut off a torn last line.

        Raises HeldError when another process holds the lock (and names it), StoreError when the file cannot be written or a
        line before the last one is damaged.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path.parent}: cannot be created: {error.strerror}") from error
        self._lock_descriptor = _lock(path.with_name(path.name + ".lock"))
        try:
            self._writer_lock = _writer_lock(path)
        except BaseException:
            os.close(self._lock_descriptor)
            raise
        try:
            self.events, size_bytes = _read(path)
            self._descriptor = _open_at(path, size_bytes)
        except BaseException:
            self._writer_lock.release()
            os.close(self._lock_descriptor)
            raise
        self._size_bytes = size_bytes
        self._count = len(self.events)

    def __len__(self) -> int:
        """Return the number of events. `events` holds those that the file had when it was opened."""
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock. Closing twice does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._writer_lock.release()
            os.close(self._lock_descriptor)
            self._descriptor = self._lock_descriptor = -1

    def append(self, event: str, **fields: Any) -> Event:
        """Write one event, wait until it is on the disk, and return it with its `utc`."""
        return self.append_all([{"event": event, **fields}])[0]

    def append_all(self, events: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Write several events and wait for the disk once. When it returns, all of them are on the disk.

        Raises StoreError when they cannot be written (then the file has none of them), ValueError when a field is
        missing.
        """
        entries = [_complete(event) for event in events]
        if not self._writer_lock.held():
            raise StoreError(
                f"{self.path}: another driver took this run over, because this one seemed dead: nothing more is written here",
                "`hpcq status` says how the run goes",
            )
        lines = "".join(json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n" for entry in entries).encode()
        try:
            written = 0
            while written < len(lines):
                written += os.write(self._descriptor, lines[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            self._take_back()
            raise StoreError(f"{self.path}: cannot be written: {error.strerror}", "make room, then `hpcq resume`") from error
        self._size_bytes += len(lines)
        self._count += len(entries)
        return entries

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._size_bytes)
        except OSError:
            return  # a torn last line remains; the next opening cuts it off


def read_journal(path: Path) -> list[Event]:
    """Return all events in order; none if the file does not exist yet.

    Raises StoreError for a damaged line before the last one.
    """
    return _read(path)[0]


def read_journal_from(path: Path, offset_bytes: int) -> tuple[list[Event], int]:
    """Return the events after an earlier reading, and the offset for the next reading. For callers that poll."""
    events, size_bytes = _read(path, offset_bytes)
    return events, offset_bytes + size_bytes


def _complete(event: Mapping[str, Any]) -> Event:
    name = EventName(event["event"])
    lacking = _FIELDS[name] - event.keys()
    if lacking:
        raise ValueError(f"journal event {name}: lacks {', '.join(sorted(lacking))}")
    if name is EventName.ENDED and event["outcome"] not in ATTEMPT_OUTCOMES:
        raise ValueError(f"journal event {name}: {event['outcome']!r} is no outcome of an attempt")
    return {"utc": utc_now(), **event}


def _read(path: Path, offset_bytes: int = 0) -> tuple[list[Event], int]:
    """Return the events from an offset on, and how many bytes they fill. What follows them is a torn line."""
    try:
        with open_regular(path) as file:
            file.seek(offset_bytes)
            content = file.read()
    except OSError as error:
        # No second look at the folder: a driver may make the file between two looks.
        if isinstance(error, FileNotFoundError) and not isinstance(error, NoFileError):
            return [], 0
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    events: list[Event] = []
    size_bytes = 0
    lines = content.splitlines(keepends=True)
    for line_no, line in enumerate(lines, start=1):
        event = _event(line)
        if event is None:
            if line_no == len(lines):
                break
            shown = line[:60].decode(errors="backslashreplace").strip()
            raise StoreError(f"{path}:{line_no}: not a journal event: {shown!r}", _CHANGED)
        if complaint := next(_complaints(event), None):
            raise StoreError(f"{path}:{line_no}: {complaint}", _CHANGED)
        events.append(event)
        size_bytes += len(line)
    return events, size_bytes


_CHANGED = "the file was changed by something else; restore this line or move the run folder away"
#: What the fields that several events share must be, where an event has them.
_TEXTS = ("event", "tag", "job", "scheduler_job_id", "outcome", "state", "message", "side", "cluster")
_JOB = re.compile(r"[a-z]\d{1,9}", re.ASCII)


def _complaints(event: Event) -> Iterator[str]:
    """Say which fields of an event cannot be what hpcq wrote: FIELD: FOUND: what it must be."""
    for name in _TEXTS:
        if name in event and not isinstance(event[name], str):
            yield f"{name}: {str(event[name])[:60]}: must be a text"
    if utc_or_none(event["utc"]) is None:
        yield f"utc: {str(event['utc'])[:60]}: must be a time like 2026-11-21T02:00:00Z"
    if event["event"] == EventName.ATTEMPT:
        jobs, number, nodes = [event.get("job", ""), *(event.get("pairs") or ())], event.get("attempt_no"), event.get("nodes")
        if not all(isinstance(one, str) and _JOB.fullmatch(one) for one in jobs):
            yield f"job: {str(jobs)[:60]}: must be a job like j00001"
        if type(number) is not int or not 0 < number < 10**9:
            yield f"attempt_no: {str(number)[:60]}: must be a whole number from 1"
    else:
        nodes = event["nodes"] if event["event"] == EventName.ENDED and event.get("nodes") else []
    if not isinstance(nodes, list) or not all(isinstance(one, str) for one in nodes):
        yield f"nodes: {str(nodes)[:60]}: must be names"
    if event["event"] == EventName.ENDED and event.get("outcome") not in ATTEMPT_OUTCOMES:
        yield f"outcome: {str(event.get('outcome'))[:60]}: must be one of {', '.join(sorted(ATTEMPT_OUTCOMES))}"


def _event(line: bytes) -> Event | None:
    if not line.endswith(b"\n"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event and "utc" in event else None


def _open_at(path: Path, size_bytes: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        if os.fstat(descriptor).st_size != size_bytes:
            os.ftruncate(descriptor, size_bytes)
        os.fsync(descriptor)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return descriptor


def _writer_lock(path: Path) -> WriterLock:
    """Return the lock that also works where flock has no effect.

    A dead driver on another machine loses it after STALE_S.
    """
    try:
        return WriterLock(path, STALE_S + 5.0, refuse_the_living=True)
    except StoreError as error:
        raise type(error)(error.message, _ONE_DRIVER) from None


def _lock(path: Path) -> int:
    """Lock `path` exclusively, if the file system has locks.

    The file names its holder. hpcq never removes it: that would let two processes in.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            holder = os.read(descriptor, 500).decode(errors="replace").strip() or "a process that did not say who it is"
            os.close(descriptor)
            raise HeldError(f"{path}: held by {holder}", _ONE_DRIVER) from error
        return descriptor  # a file system without locks: only the link beside the journal protects it
    holder = f"pid {os.getpid()} on {socket.gethostname()} since {utc_now()}"
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, holder.encode())
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return descriptor


# ----------------------------------------------------------------------------------------------------------------------
# Fold a journal into its attempts and their present states. The driver, `hpcq status` and the loader all use this.
#
# attempt -> submitted | refused -> state … -> withdraw, stop -> ended
#
# `JournalState` needs only the events. `RunState` (runner/queue/run_state.py) adds what needs the plan:
# which pairs still lack measurements.


#: test_no, repetition_no: together they name one planned measurement of a pair.
StepKey = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One submission of a job.

    `scheduler_job_id` is empty until the scheduler assigns one, `outcome` is empty until the attempt ends.
    """

    tag: str
    job: str
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
    scheduler_job_id: str = ""
    state: JobState = JobState.QUEUED
    outcome: str = ""
    reason: str = ""
    exit_code: int | None = None
    started_utc: str | None = None
    ended_utc: str | None = None
    #: When the driver saw its end, by its own clock. started_utc and ended_utc are what its node said.
    end_seen_utc: str | None = None
    #: Why the driver withdraws it or ends it early. final: then hpcq does not try its pair again.
    withdrawal: str = ""
    withdrawal_outcome: str = "withdrawn"
    final: bool = False
    #: Why a link's driver ended it. follows: only because the other side had ended.
    stopped: str = ""
    follows: bool = False
    #: For one pair of a tournament: job and attempt_no of the tournament, whose folder has the files.
    place: tuple[str, int] | None = None

    @property
    def key(self) -> JobKey:
        """Return the key under which the scheduler is asked about it."""
        return JobKey(self.scheduler_job_id, self.tag)

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
        return is_shared(self.job)

    @property
    def max_node_seconds(self) -> float:
        """Return the most node-seconds that it can use."""
        return len(self.nodes) * self.walltime_s

    @property
    def folder(self) -> str:
        """Return its folder, relative to its part of the run folder, here and on the cluster."""
        return attempt_folder(self.job, self.attempt_no, self.side)

    @property
    def driver_times(self) -> DriverTimes:
        """Between which moments all that it measured happened, by the driver's clock."""
        return DriverTimes(self.committed_utc, self.end_seen_utc or utc_now())

    def describe(self) -> str:
        """Return its end, or its present state, in a few words: `attempt 2 timed_out: DUE TO TIME LIMIT`."""
        word = self.outcome or (self.state.value if self.scheduler_job_id else "not submitted yet")
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
        #: If no job of it could start: what to do about it.
        self.remedy = ""
        #: What the run waits for, since when and until when; empty if it does not wait.
        self.waiting = ""
        #: Nodes that were switched off when a driver last looked, folded, and since when it has seen them so; by cluster.
        self.powered_down: dict[str, tuple[list[str], str]] = {}
        self.opened_utc: str | None = None
        self.closed_utc: str | None = None
        #: When all was settled before a driver that has changed nothing so far.
        self._settled_utc: str | None = None
        #: When the suspects of the run were looked for, to measure them again.
        self.suspected_utc: str | None = None
        #: When a poll first showed a running job.
        self.measuring_since_utc: str | None = None

    def replayed(self, events: Iterable[Mapping[str, Any]]) -> Self:
        """Return this state after all these events."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event into account."""
        if event["event"] not in {"opened", "closed"}:
            self._settled_utc = None
        match event["event"]:
            case "opened":
                self.opened_utc = self.opened_utc or event.get("utc")
                self._settled_utc, self.closed_utc = self.closed_utc or self._settled_utc, None
            case "closed":  # a driver that found nothing to do settles nothing anew
                self.closed_utc, self.waiting = self._settled_utc or event.get("utc"), ""
            case "suspected":
                self.suspected_utc = self.suspected_utc or event.get("utc")
            case "attempt":
                self._commit(attempt_of(event))
            case "not_run":
                self._give_up(pair_index_of(event["job"]), event["reason"])
            case "cancel":
                self.cancelled, self.remedy = event["reason"], event.get("remedy", "")
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
        return [attempt for attempt in self.active.values() if not attempt.scheduler_job_id]

    # -- what a state with a plan adds --------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt) -> None:
        self.attempts[attempt.tag] = self.active[attempt.tag] = attempt
        for index in attempt.pairs:
            self.not_run.pop(index, None)

    def _give_up(self, index: int, reason: str) -> None:
        self.not_run[index] = one_line(str(reason))

    def _end(self, attempt: Attempt, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - only a plan knows what it measured
        self.active.pop(attempt.tag, None)

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        """Apply an event that is not about an attempt."""

    # -- private ------------------------------------------------------------------------------------------------------

    def _advance(self, attempt: Attempt, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "submitted":
                attempt.scheduler_job_id, attempt.submitted_utc = event["scheduler_job_id"], event.get("utc")
            case "state":
                attempt.state, attempt.reason = JobState(event["state"]), one_line(str(event.get("reason") or ""))
                if attempt.state is JobState.RUNNING and self.measuring_since_utc is None:
                    self.measuring_since_utc = event.get("utc")
            case "withdraw":
                attempt.withdrawal, attempt.final = event["reason"], bool(event.get("final"))
                attempt.withdrawal_outcome = event.get("outcome", "withdrawn")
            case "stop":
                attempt.stopped = event["reason"]
                attempt.follows, attempt.final = bool(event.get("follows")), bool(event.get("final"))
            case "refused":
                attempt.outcome, attempt.reason = "refused", one_line(str(event["message"]))
                attempt.ended_utc = attempt.end_seen_utc = event.get("utc")
                self._end(attempt, event)
            case "ended":
                attempt.outcome, attempt.reason = event["outcome"], one_line(str(event.get("reason") or ""))
                attempt.nodes = tuple(event.get("nodes") or ()) or attempt.nodes
                attempt.exit_code = event.get("rc")
                attempt.end_seen_utc = event.get("utc")
                attempt.started_utc = _said_by_node(attempt, event.get("started_utc"))
                attempt.ended_utc = _said_by_node(attempt, event.get("ended_utc")) or event.get("utc")
                attempt.final |= bool(event.get("final"))
                self._end(attempt, event)
            case _:
                self._apply_other(event)


def _said_by_node(attempt: Attempt, claimed_utc: object) -> str | None:
    """A node's time of day as far as the driver's own times allow it; None if the node said none."""
    known = utc_or_none(claimed_utc)
    return None if known is None else attempt.driver_times.believed(known)


def fold(events: Iterable[Mapping[str, Any]]) -> JournalState:
    """Return the present state of every attempt."""
    return JournalState().replayed(events)


def attempt_of(event: Mapping[str, Any]) -> Attempt:
    """Return the attempt that an event commits."""
    return Attempt(
        tag=event["tag"],
        job=event["job"],
        attempt_no=event["attempt_no"],
        nodes=tuple(event["nodes"]),
        pairs=tuple(map(pair_index_of, event.get("pairs") or [event["job"]])),
        walltime_s=event.get("walltime_s", 0.0),
        side=event.get("side", ""),
        cluster=event.get("cluster", ""),
        committed_utc=event.get("utc", ""),
    )


def attempt_folder(job: str, attempt_no: int, side: str = "") -> str:
    """Return the folder of an attempt. A link's attempt has one per side."""
    return f"jobs/{job}/{attempt_no}" + (f"/{side}" if side else "")

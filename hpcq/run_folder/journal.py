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
import socket
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from hpcq.errors import HeldError, StoreError
from hpcq.scheduler.types import JobState
from hpcq.units import utc_now
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
    CLOSED = "closed"


#: The fields that each event must have, besides `utc` and `event`. An event may have more.
_FIELDS: dict[EventName, frozenset[str]] = {
    EventName.OPENED: frozenset(),
    EventName.WAVE: frozenset({"idle", "jobs"}),
    EventName.ATTEMPT: frozenset({"job_id", "attempt_no", "tag", "nodes"}),
    EventName.SUBMITTED: frozenset({"tag", "native_id"}),
    EventName.REFUSED: frozenset({"tag", "message"}),
    EventName.STATE: frozenset({"tag", "state", "reason"}),
    EventName.SPOOLED: frozenset({"tag", "measured_of"}),
    EventName.ENDED: frozenset({"tag", "outcome", "reason", "nodes", "rc"}),
    EventName.NOT_RUN: frozenset({"job_id", "pair", "reason"}),
    EventName.WITHDRAW: frozenset({"tag", "reason"}),
    EventName.CANCEL: frozenset({"reason"}),
    EventName.WAITING: frozenset({"reason"}),
    EventName.POWERED_DOWN: frozenset({"cluster", "nodes"}),
    # Of links only: expected starts, addresses, open directions, what the driver ended and why.
    EventName.ESTIMATE: frozenset({"job_id", "attempt_no", "wait_s"}),
    EventName.MET: frozenset({"job_id", "attempt_no", "addresses"}),
    EventName.WAYS: frozenset({"job_id", "attempt_no", "ways", "client"}),
    EventName.STOP: frozenset({"tag", "reason"}),
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
        with path.open("rb") as file:
            file.seek(offset_bytes)
            content = file.read()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    events: list[Event] = []
    size_bytes = 0
    lines = content.splitlines(keepends=True)
    for line_no, line in enumerate(lines, start=1):
        event = _event(line)
        if event is None:
            if line_no == len(lines):
                break
            raise StoreError(
                f"{path}:{line_no}: not a journal event: {line[:60].decode(errors='backslashreplace').strip()!r}",
                "the file was changed by something else; restore this line or move the run folder away",
            )
        events.append(event)
        size_bytes += len(line)
    return events, size_bytes


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

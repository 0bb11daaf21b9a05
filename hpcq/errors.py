"""The few kinds of failure, each with its message, its hint and its exit code.

    HpcqError                 exit 1: something outside failed (a cluster, a disk, a database)
      +- UserError            exit 2: hpcq cannot use what a person typed or wrote
      +- TransportError       exit 1: a machine could not be reached; `transient` says whether to try again
      +- SchedulerError       exit 1: a batch system refused or gave an unreadable answer
      +- StoreError           exit 1: results.db or a run folder could not be read or written
           +- HeldError       exit 1: another living process holds what only one may use; nothing failed

Only the CLI prints them. A message reads `where: what was found: what is allowed`.
"""

from __future__ import annotations

import errno
from enum import IntEnum

#: How every SQLite file begins.
DATABASE_HEAD = b"SQLite format 3\0"
#: What to try with a file of hpcq that hpcq did not write.
CHANGED_HINT = "the file was changed by something else: restore it, or move the run folder away"


class Exit(IntEnum):
    """Exit codes of every command. If both apply, degraded comes before incomplete."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DEGRADED = 3
    INCOMPLETE = 4


class HpcqError(Exception):
    """A failure that a person can act on: `message` says what failed, `hint` what to try."""

    exit_code: Exit = Exit.ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(HpcqError):
    """Bad input: `file:line: key: found: allowed`. Several problems may take several lines."""

    exit_code = Exit.USAGE


class TransportError(HpcqError):
    """A cluster could not be reached, or a command there could not be started."""

    def __init__(self, message: str, hint: str | None = None, *, transient: bool = False) -> None:
        super().__init__(message, hint)
        self.transient = transient


class SchedulerError(HpcqError):
    """The batch system refused a request or gave an answer that cannot be read."""


class StoreError(HpcqError):
    """results.db, the journal or a run folder could not be read or written."""


class HeldError(StoreError):
    """Another living process holds what only one may use. It says nothing about the work, which that process does."""


#: Errors of the machine itself: whatever the program does, it cannot continue.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE}


def of_the_machine(error: BaseException, where: object) -> StoreError | None:
    """Describe a full, read-only or broken disk in words; None if the failure is of another kind.

    where: the name to report if the error names no file.
    """
    if not isinstance(error, OSError) or error.errno not in _OF_THE_MACHINE:
        return None
    room = error.errno in {errno.ENOSPC, errno.EDQUOT}
    hint = f"{'make room there' if room else 'check that disk'}; then type it again, or `hpcq resume` for a run that has begun"
    return StoreError(f"{error.filename or where}: cannot be written: {error.strerror}", hint)

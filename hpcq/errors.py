"""The few kinds of failure, each with its message, its hint and its exit code.

    HpcqError                 exit 1: something outside failed (a cluster, a disk, a database)
      +- UserError            exit 2: what a person typed or wrote cannot be used
      +- TransportError       exit 1: a machine could not be reached; `transient` says whether to try again
      +- SchedulerError       exit 1: a batch system refused or answered nonsense
      +- StoreError           exit 1: results.db or a run folder could not be read or written

Only the CLI prints them. A message reads `where: what was found: what is allowed`.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command; degraded goes before incomplete when both hold."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DEGRADED = 3
    INCOMPLETE = 4


class HpcqError(Exception):
    """A failure that a person can act on: `message` says what, `hint` what to try."""

    exit_code: Exit = Exit.ERROR

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(HpcqError):
    """Bad input: `file:line: key: found: allowed`. Several complaints may stand on several lines."""

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

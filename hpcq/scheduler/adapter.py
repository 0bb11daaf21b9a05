"""What a scheduler package implements: which commands to type, and how to read their answers. This module runs nothing.

Each question is a pair: `*_command` returns shell text for the cluster, `read_*` reads its answer. The commands of one
poll run together, as one script. The adapter quotes every word that comes from people (names, reasons).
An answer is a `Completed`: exit code and both outputs.
The adapter decides which of them to trust: some schedulers print "denied" and end with 0.

A package must implement the methods without a default. A default means "this scheduler cannot answer that".
docs/schedulers.md explains one package step by step.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import Administration
from hpcq.scheduler.limits import NO_LIMITS, JobLimits
from hpcq.scheduler.types import (
    CheckedItem,
    JobKey,
    JobReport,
    NodeState,
    OtherJob,
    SchedulerSettings,
    Submission,
    Submitted,
)
from hpcq.transport import Completed, Transport


class Adapter(ABC):
    """One kind of scheduler, in its own words."""

    #: Matches a complete native id. Anything else in a submission's answer is not an id.
    id_pattern: re.Pattern[str]

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        self.transport = transport
        self.settings = settings

    # -- nodes ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def nodes_command(self) -> str:
        """List the nodes. Exit code 0 means that the answer is complete."""

    @abstractmethod
    def read_nodes(self, answer: str) -> list[NodeState]:
        """Read that list."""

    def switches_command(self) -> str | None:
        """List the leaf switch of each node; None if the scheduler does not know it."""
        return None

    def read_switches(self, answer: str) -> dict[str, str]:  # noqa: ARG002 - not every scheduler can
        """Read that list: node -> switch."""
        return {}

    # -- submitting -------------------------------------------------------------------------------------------------

    @abstractmethod
    def submit_command(self, submission: Submission) -> str:
        """Submit one script; prints its id.

        It must be one simple command: `exec` runs it in the script's folder.
        """

    @abstractmethod
    def read_submission(self, tag: str, done: Completed) -> Submitted:
        """Return the fate of a submission. done: exit code and both outputs of the submit command, each on one line.

        TAKEN only with an id that matches `id_pattern`. REFUSED only for known words with the exit code for refusals.
        LIMITED for the words of `limit_words`. UNDETERMINED for exit codes from 128 on, and for 0 without an id.
        UNSURE for all other words.
        """

    @abstractmethod
    def read_native_id(self, answer: str) -> str:
        """Return the id in the output of the submit command; "" if it has none, or other text beside it."""

    def limit_words(self) -> Sequence[str]:
        """Return words of the submit command that mean "no more jobs now".

        After them hpcq does not try the rest of the wave.
        """
        return ()

    def estimate_command(self, submission: Submission) -> str | None:  # noqa: ARG002
        """Ask when a script would start, without submitting it; None if the scheduler cannot say."""
        return None

    def read_estimate(self, done: Completed) -> float | None:  # noqa: ARG002
        """Read that answer: seconds from now; None if it contains no time."""
        return None

    # -- jobs -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        """Ask about all of these jobs at once. An id that the scheduler does not know must not spoil the answer."""

    @abstractmethod
    def read_poll(self, done: Completed) -> list[JobReport]:
        """Read the answer, with each job's name and whether it is ours. A job is unknown if the answer lacks it.

        Raises SchedulerError if the text is not an answer: hpcq then concludes nothing.
        """

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:  # noqa: ARG002 - not every scheduler keeps one
        """Ask the accounting about jobs that the queue has forgotten; None without an accounting."""
        return None

    def read_history(self, done: Completed) -> list[JobReport]:  # noqa: ARG002
        """Read that answer like `read_poll`. Without an answer the result is empty."""
        return []

    @abstractmethod
    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End those of these jobs that have this id, this name and this user; queued_only: and have not started.

        Ends with 0 if none of them was left, or if the scheduler accepted the order for all of them.
        """

    @abstractmethod
    def find_command(self, tags: Sequence[str]) -> str:
        """List this user's jobs with these names: queued, running, or ended as far back as the scheduler remembers."""

    @abstractmethod
    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        """Read (tag, native id) rows."""

    def others_command(self) -> str | None:
        """List what other users' jobs wait for; None if the scheduler cannot answer that."""
        return None

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:  # noqa: ARG002
        """Return those of their jobs that wait for nodes."""
        return ()

    def mine_command(self) -> str | None:
        """List all live jobs of this user, one word each; None if the scheduler cannot answer that."""
        return None

    def read_mine(self, answer: str) -> int:
        """Return how many there are."""
        return len(answer.split())

    # -- limits -----------------------------------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        """Ask for the limits of one job; None if there are none."""
        return None

    def read_job_limits(self, answer: str) -> JobLimits:  # noqa: ARG002
        """Read that answer."""
        return NO_LIMITS

    def limit_command(self) -> str | None:
        """Ask how many jobs this user may have; None if the scheduler has no such limit."""
        return None

    def read_limit(self, answer: str) -> int | None:  # noqa: ARG002
        """Read that answer."""
        return None

    # -- reservations of a run --------------------------------------------------------------------------------------

    def may_reserve_command(self) -> str | None:
        """Ask for this user's rights; None if the scheduler has no reservations that hpcq can make."""
        return None

    def read_may_reserve(self, done: Completed) -> str | None:  # noqa: ARG002
        """Read that answer: why this user may not make reservations, or None."""
        return None

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:  # noqa: ARG002
        """Show, make, prolong or remove a reservation."""
        raise SchedulerError(f"{self.transport.where}: no reservations can be made there")

    def reservation_refusal(self, verb: str, done: Completed) -> str | None:  # noqa: ARG002
        """Return None if that was done, else the scheduler's words against it (for show: that there is none)."""
        words = " ".join(f"{done.stderr} {done.text}".split())
        return None if done.returncode == 0 else words or f"exit code {done.returncode}"

    def busy_words(self) -> Sequence[str]:
        """Return words of a refused reservation that mean: not these nodes now."""
        return ()

    def away_words(self) -> Sequence[str]:
        """Return words of an answer that comes from no scheduler: it proves nothing about what there is."""
        return ()

    # -- the site ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def versions_command(self) -> str:
        """Print the scheduler's version on the first line."""

    @abstractmethod
    def probe_command(self, script: str) -> str:
        """Run a shell script on one idle node of the partition now, and wait for it."""

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:  # noqa: ARG002
        """Return what `hpcq cluster check` finds about this scheduler beyond the common items, with the consequences.

        mpi_launch: the words that start MPI programs; None without MPI. Runs its own commands, each once.
        """
        return []

    def memory_lock_advice(self) -> str:
        """Return where this scheduler sets how much memory a job may lock."""
        return "MPI over RDMA wants unlimited: raise the limit of the daemon that starts jobs on the nodes"

    def administration(self) -> Administration | None:
        """Return the orders of an acceptance; None if hpcq has none for this scheduler."""
        return None

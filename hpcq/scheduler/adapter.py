"""What a scheduler package fills in: which commands to type, and how to read what they answer. No command is run here.

Each question is a pair: `*_command` returns shell text for the cluster, `read_*` reads its answer. The commands of one look are
run together, as one script. The adapter quotes every word that comes from people (names, reasons). An answer is a `Completed`:
exit code and both outputs. The adapter decides which of them tells the truth: some schedulers say "denied" and end with 0.

Methods without a default must be there; a default means "this scheduler cannot be asked that". docs/schedulers.md walks
through a package.
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

    #: What the whole of a native id looks like. Anything else in a submission's answer is no id.
    id_pattern: re.Pattern[str]

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        self.transport = transport
        self.settings = settings

    # -- nodes ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def nodes_command(self) -> str:
        """List the nodes. Exit code 0 means that the answer is whole."""

    @abstractmethod
    def read_nodes(self, answer: str) -> list[NodeState]:
        """Read that list."""

    def switches_command(self) -> str | None:
        """Say which node hangs on which leaf switch; None where the scheduler does not know."""
        return None

    def read_switches(self, answer: str) -> dict[str, str]:  # noqa: ARG002 - not every scheduler can
        """Read that: node -> switch."""
        return {}

    # -- submitting -------------------------------------------------------------------------------------------------

    @abstractmethod
    def submit_command(self, submission: Submission) -> str:
        """Submit one script; prints its id. It must be one simple command: it is run by `exec` in the script's folder."""

    @abstractmethod
    def read_submission(self, tag: str, done: Completed) -> Submitted:
        """What became of a submission. done: exit code and both outputs of the submit command, each on one line.

        TAKEN only with an id that matches `id_pattern`; REFUSED only for known words with the exit code that the scheduler
        refuses with; LIMITED for the words of `limit_words`; exit codes of 128 and more, and 0 without an id, are UNDETERMINED;
        all other words are UNSURE.
        """

    @abstractmethod
    def read_native_id(self, answer: str) -> str:
        """The id in what the submit command printed; "" where there is none, or something else beside it."""

    def limit_words(self) -> Sequence[str]:
        """Words of the submit command that mean "not more jobs now": what is left of the wave is not tried then."""
        return ()

    def estimate_command(self, submission: Submission) -> str | None:  # noqa: ARG002
        """Ask when a script would start, submitting nothing; None where there is no such question."""
        return None

    def read_estimate(self, done: Completed) -> float | None:  # noqa: ARG002
        """Read that answer: seconds from now; None where it says nothing."""
        return None

    # -- jobs -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        """Ask about all of these jobs at once. One id that the scheduler does not know must not spoil the answer."""

    @abstractmethod
    def read_poll(self, done: Completed) -> list[JobReport]:
        """Read the answer, with each job's name and whether it is ours; jobs that are not in it were not known.

        Raises SchedulerError when it is no answer: nothing is concluded from that.
        """

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:  # noqa: ARG002 - not every scheduler keeps one
        """Ask the accounting about jobs that the queue has forgotten; None where there is no such thing."""
        return None

    def read_history(self, done: Completed) -> list[JobReport]:  # noqa: ARG002
        """Read that answer, as read_poll; an accounting that does not answer knows nothing."""
        return []

    @abstractmethod
    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End those of these jobs that have this id, this name and this user; queued_only: and that have not started.

        Ends with 0 where none of them was left, or all were told to end.
        """

    @abstractmethod
    def find_command(self, tags: Sequence[str]) -> str:
        """List this user's jobs with these names, queued, running or ended as far back as the scheduler remembers."""

    @abstractmethod
    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        """Read (tag, native id) rows."""

    def others_command(self) -> str | None:
        """List what other people wait for; None where that cannot be asked."""
        return None

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:  # noqa: ARG002
        """Those of their jobs that wait for nodes."""
        return ()

    def mine_command(self) -> str | None:
        """List all live jobs of this user, one word each; None where that cannot be asked."""
        return None

    def read_mine(self, answer: str) -> int:
        """How many there are."""
        return len(answer.split())

    # -- limits -----------------------------------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        """Ask for the limits of one job; None where there are none."""
        return None

    def read_job_limits(self, answer: str) -> JobLimits:  # noqa: ARG002
        """Read that."""
        return NO_LIMITS

    def limit_command(self) -> str | None:
        """Say how many jobs this user may have; None where there is no such thing."""
        return None

    def read_limit(self, answer: str) -> int | None:  # noqa: ARG002
        """Read that."""
        return None

    # -- reservations of a run --------------------------------------------------------------------------------------

    def may_reserve_command(self) -> str | None:
        """Ask what this user is to the scheduler; None where there are no reservations to make."""
        return None

    def read_may_reserve(self, done: Completed) -> str | None:  # noqa: ARG002
        """Read that: why not, or None."""
        return None

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:  # noqa: ARG002
        """show, make, prolong or remove a reservation."""
        raise SchedulerError(f"{self.transport.where}: no reservations can be made there")

    def reservation_refusal(self, verb: str, done: Completed) -> str | None:  # noqa: ARG002
        """Whether that was done: None, or the scheduler's words against it (for show: that there is none)."""
        words = " ".join(f"{done.stderr} {done.text}".split())
        return None if done.returncode == 0 else words or f"exit code {done.returncode}"

    def busy_words(self) -> Sequence[str]:
        """Words of a refused reservation that mean: not these nodes now."""
        return ()

    # -- the site ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def versions_command(self) -> str:
        """Print the scheduler's version, in the first line."""

    @abstractmethod
    def probe_command(self, script: str) -> str:
        """Run a shell script on one idle node of the partition, now, and wait for it."""

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:  # noqa: ARG002
        """What `hpcq cluster check` finds of this scheduler beyond what all of them have, and what follows from it.

        mpi_launch: the words that start MPI programs; None without MPI. Runs its own commands, once each.
        """
        return []

    def memory_lock_advice(self) -> str:
        """Where this scheduler sets how much memory a job may lock."""
        return "MPI over RDMA wants unlimited: raise the limit of the daemon that starts jobs on the nodes"

    def administration(self) -> Administration | None:
        """The orders of an acceptance; None where this scheduler has none that hpcq could give."""
        return None

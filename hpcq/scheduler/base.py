"""What a batch system is to hpcq: a few questions, asked of all jobs at once.

The life of a job, as a driver sees it:

    attempt committed to the journal -> submit -> native_id -> poll … poll -> a terminal state -> exit file fetched
                  |                        |
                  |                        +- refused: the scheduler said no; the attempt ends as `refused`
                  +- driver died here: find(tag) tells whether the submission happened

The subclass only says what to type and how to read the answer (`*_command`, `read_*`); running commands, chunking,
and the rules below live here, once:

    - one look asks everything in one command: nodes, all our jobs, who else waits; a job the scheduler does not know is
      UNKNOWN here and becomes LOST in the driver after a grace, never successful;
    - a poll that fails changes nothing: it raises, and the driver keeps what it knew;
    - an unknown state word is reported as UNKNOWN with the word in `reason`, not guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from hpcq.errors import SchedulerError
from hpcq.scheduler.limits import NO_LIMITS, JobLimits
from hpcq.scheduler.parts import HAND_IN, chunks, parts_of, parts_script
from hpcq.transport import Completed, Transport, quote


class NodeCondition(StrEnum):
    """What hpcq understands of a node's state; only IDLE nodes are ever used."""

    IDLE = "idle"
    BUSY = "busy"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    PLANNED = "planned"
    DRAINED = "drained"
    DOWN = "down"
    POWERED_DOWN = "powered_down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the scheduler describes it now; `native_state` is the scheduler's own words."""

    node: str
    condition: NodeCondition
    native_state: str
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    reason: str | None = None
    #: The leaf switch it hangs on, where somebody asked for it and the scheduler knows.
    switch: str | None = None


class Wait(StrEnum):
    """What a queued job's reason means for it."""

    ORDINARY = "ordinary"
    #: One of its nodes cannot be had: down, drained, reserved.
    NODE = "node"
    #: A limit is reached, or somebody holds it; it may pass.
    LIMIT = "limit"
    #: As it is, it will never be started.
    NEVER = "never"


class JobState(StrEnum):
    """Where a job is. The terminal ones double as attempt outcomes."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDING = "ending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    BOOT_FAILED = "boot_failed"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
    REVOKED = "revoked"
    UNKNOWN = "unknown"

    @property
    def terminal(self) -> bool:
        """Whether the scheduler will not change this state any more."""
        return self not in {JobState.QUEUED, JobState.RUNNING, JobState.ENDING, JobState.UNKNOWN}


@dataclass(frozen=True, slots=True)
class JobReport:
    """The scheduler's answer about one job."""

    native_id: str
    state: JobState
    native_state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    wait: Wait = Wait.ORDINARY


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """What one look is to bring; what is left out is not asked for."""

    native_ids: Sequence[str] = ()
    nodes: bool = False
    #: How many jobs of other people wait for nodes of the partition.
    others: bool = False
    #: How many jobs this user has, ours and all others.
    mine: bool = False


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job of somebody else that waits for nodes; sure is False where they may also be broken or reserved by others.

    nodes: those that it insists on.
    """

    native_id: str
    sure: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The answer to a question: `reports` has one entry an id; what was not asked is None."""

    reports: dict[str, JobReport]
    nodes: list[NodeState] | None = None
    others: tuple[OtherJob, ...] | None = None
    mine: int | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """One script to hand in: `script` is its absolute path on the cluster, `tag` becomes the job's name."""

    tag: str
    script: str
    nodes: tuple[str, ...]
    walltime_s: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one submission: a native id, or the scheduler's refusal in its own words.

    limited: refused, or not even handed in, because the user may not have more jobs now.
    lost: nobody can know whether the scheduler took it; `find` will tell.
    """

    tag: str
    native_id: str | None
    message: str = ""
    limited: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a scheduler must know of its cluster file; nothing else of it reaches this floor."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    #: The reservation is the run's own: made when it is needed, so it may not be there, and then nothing is within it.
    own_reservation: bool = False
    #: Local scheduler only: its nodes, and where it keeps its queue.
    nodes: tuple[str, ...] = ()
    queue_folder: str = ""


class Scheduler(ABC):
    """Commands are run, chunked and retried here; the subclass types and reads."""

    #: Ids in one command: far below any limit of a command line.
    _CHUNK = 500

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        self.transport = transport
        self.settings = settings
        #: Questions asked of the scheduler; handing in and cancelling are no questions.
        self.query_count = 0

    # -- what the driver asks ---------------------------------------------------------------------------------------

    def look(self, question: QueueQuery) -> QueueSnapshot:
        """Ask several things in one command. Raises SchedulerError when the scheduler does not answer one of them."""
        parts: dict[str, str] = {}
        if question.nodes:
            parts["nodes"] = self.nodes_command()
        if question.native_ids:
            parts["jobs"] = self.poll_command(question.native_ids)
        others, mine = self.others_command(), self.mine_command()
        if question.others and others is not None:
            parts["others"] = others
        if question.mine and mine is not None:
            parts["mine"] = mine
        if not parts:
            return QueueSnapshot({})
        self.query_count += 1
        said = parts_of(self.transport.sh(parts_script(parts)), parts)
        return QueueSnapshot(
            reports=self._reports(question.native_ids, said.get("jobs")),
            nodes=self.read_nodes(self._answered(said["nodes"], "node list").text) if "nodes" in said else None,
            others=self.read_others(self._answered(said["others"], "job list").text) if "others" in said else None,
            mine=self.read_mine(self._answered(said["mine"], "job list").text) if "mine" in said else None,
        )

    def nodes(self) -> list[NodeState]:
        """Every node of the partition as it is now. Raises SchedulerError when the scheduler does not answer."""
        return self.look(QueueQuery(nodes=True)).nodes or []

    def switches(self) -> dict[str, str]:
        """The leaf switch of each node; empty where the scheduler knows none."""
        command = self.switches_command()
        if command is None:
            return {}
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_switches(done.text) if done.returncode == 0 else {}

    def submit_limit(self) -> int | None:
        """How many jobs the accounting lets this user have; None where it sets no limit or cannot be asked."""
        command = self.limit_command()
        if command is None:
            return None
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_limit(done.text) if done.returncode == 0 else None

    def job_limits(self) -> JobLimits:
        """What one job of this user may be in the partition; no limits where the scheduler keeps or tells none."""
        command = self.job_limits_command()
        if command is None:
            return NO_LIMITS
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_job_limits(done.text) if done.returncode == 0 else NO_LIMITS

    def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Hand in scripts, all in one command on the cluster; one answer a submission, in order.

        Each id is also written to `submitted` beside its script, so that a driver that dies here can find it.
        Raises TransportError when the connection broke: then `find` says what happened.
        """
        answers: list[Submitted] = []
        for chunk in chunks(submissions, self._CHUNK):
            script = self._hand_in_function() + "\n".join(
                f"hand_in {quote(str(PurePosixPath(one.script).parent))} {quote(one.tag)} {self.submit_command(one)}"
                for one in chunk
            )
            done = self.transport.sh(script, timeout_s=60 + 10 * len(chunk))
            answers += [self._read_submitted(one, done) for one in chunk]
        return answers

    def expected_wait_s(self, submission: Submission) -> float | None:
        """In how many seconds a script would start if it were handed in now; None where the scheduler does not say."""
        command = self.estimate_command(submission)
        if command is None:
            return None
        folder = quote(str(PurePosixPath(submission.script).parent))
        self.query_count += 1
        return self.read_estimate(self.transport.sh(f"cd {folder} || exit 1\n{command}"))

    def poll(self, native_ids: Sequence[str]) -> dict[str, JobReport]:
        """An answer for every id; a job that the scheduler does not know is UNKNOWN with the reason `not known`."""
        return self.look(QueueQuery(native_ids)).reports

    def cancel(self, native_ids: Sequence[str], *, queued_only: bool = False) -> None:
        """End jobs; those that have ended already are no error. queued_only: one that has started meanwhile goes on."""
        for chunk in chunks(native_ids, self._CHUNK):
            self.transport.sh(self.cancel_command(chunk, queued_only=queued_only))

    def may_not_reserve(self) -> str | None:
        """Why this user may not make reservations, as far as the scheduler says; None where he may."""
        command = self.may_reserve_command()
        if command is None:
            return "this scheduler has no reservations that hpcq could make"
        self.query_count += 1
        return self.read_may_reserve(self.transport.sh(command))

    def has_reservation(self, name: str) -> bool:
        """Whether there is a reservation of this name."""
        self.query_count += 1
        return self.transport.sh(self.reservation_command("show", name)).returncode == 0

    def reserve(self, name: str, nodes: Sequence[str], minutes: int) -> str | None:
        """Make a reservation for this user from now on; None, or the words of the refusal."""
        done = self.transport.sh(self.reservation_command("make", name, nodes, minutes))
        return None if done.returncode == 0 else " ".join(f"{done.stderr} {done.text}".split())

    def prolong(self, name: str, minutes: int) -> bool:
        """Let a reservation end so many minutes from now; False where there is none any more."""
        return self.transport.sh(self.reservation_command("prolong", name, (), minutes)).returncode == 0

    def release(self, name: str) -> bool:
        """Remove a reservation; False while jobs are still in it. One that is gone already is no failure."""
        done = self.transport.sh(self.reservation_command("remove", name))
        return done.returncode == 0 or not self.has_reservation(name)

    def find(self, tags: Sequence[str]) -> dict[str, str]:
        """The native ids of those tags that the scheduler knows, queued, running or ended."""
        found: dict[str, str] = {}
        for chunk in chunks(tags, self._CHUNK):
            wanted = set(chunk)
            answer = self._ask(self.find_command(chunk), "job list")
            found.update({tag: native_id for tag, native_id in self.read_find(answer.text) if tag in wanted})
        return found

    def probe(self, script: str) -> Completed:
        """Run a short shell script on some idle node; waits a quarter of a minute for one at most."""
        self.query_count += 1
        return self.transport.sh(self.probe_command(script), timeout_s=60)

    def versions(self) -> str:
        """What the scheduler says of itself, as text for a person."""
        return self.transport.sh(self.versions_command()).text

    # -- what a batch system is -------------------------------------------------------------------------------------

    @abstractmethod
    def nodes_command(self) -> str:
        """List the nodes."""

    @abstractmethod
    def read_nodes(self, answer: str) -> list[NodeState]:
        """Read that list."""

    @abstractmethod
    def submit_command(self, submission: Submission) -> str:
        """Hand in one script; prints its id."""

    @abstractmethod
    def read_native_id(self, answer: str) -> str:
        """The id in what the submit command printed."""

    @abstractmethod
    def poll_command(self, native_ids: Sequence[str]) -> str:
        """Ask about all of these jobs at once."""

    @abstractmethod
    def read_poll(self, done: Completed) -> list[JobReport]:
        """Read the answer; jobs that are not in it were not known. Raises SchedulerError when it is no answer."""

    def estimate_command(self, submission: Submission) -> str | None:  # noqa: ARG002 - not every scheduler can
        """Ask when a script would start, handing nothing in; None where there is no such question."""
        return None

    def read_estimate(self, done: Completed) -> float | None:  # noqa: ARG002
        """Read that answer: seconds from now."""
        return None

    def history_command(self, native_ids: Sequence[str]) -> str | None:  # noqa: ARG002 - not every scheduler keeps one
        """Ask the accounting about jobs that the queue has forgotten; None where there is no such thing."""
        return None

    def read_history(self, done: Completed) -> list[JobReport]:  # noqa: ARG002
        """Read that answer."""
        return []

    @abstractmethod
    def cancel_command(self, native_ids: Sequence[str], *, queued_only: bool = False) -> str:
        """End these jobs, or those of them that have not started."""

    def others_command(self) -> str | None:
        """List what other people wait for; None where that cannot be asked."""
        return None

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:  # noqa: ARG002 - not every scheduler has such a list
        """Those of their jobs that wait for nodes."""
        return ()

    def mine_command(self) -> str | None:
        """List all live jobs of this user; None where that cannot be asked."""
        return None

    def read_mine(self, answer: str) -> int:
        """How many there are."""
        return len(answer.split())

    def switches_command(self) -> str | None:
        """Say which node hangs on which leaf switch; None where the scheduler does not know."""
        return None

    def read_switches(self, answer: str) -> dict[str, str]:  # noqa: ARG002
        """Read that."""
        return {}

    def job_limits_command(self) -> str | None:
        """Ask for the limits of one job; None where there are none."""
        return None

    def read_job_limits(self, answer: str) -> JobLimits:  # noqa: ARG002 - not every scheduler has them
        """Read that."""
        return NO_LIMITS

    def limit_command(self) -> str | None:
        """Say how many jobs this user may have; None where there is no such thing."""
        return None

    def read_limit(self, answer: str) -> int | None:  # noqa: ARG002
        """Read that."""
        return None

    def refusal_words(self) -> tuple[Sequence[str], Sequence[str]]:
        """Words of a refusal that mean "not more jobs now", and words that mean "nobody knows whether it was taken"."""
        return (), ()

    def may_reserve_command(self) -> str | None:
        """Ask what this user is to the scheduler; None where there are no reservations to make."""
        return None

    def read_may_reserve(self, done: Completed) -> str | None:  # noqa: ARG002
        """Read that: why not, or None."""
        return None

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:  # noqa: ARG002
        """show, make, prolong or remove a reservation."""
        raise SchedulerError(f"{self.transport.where}: no reservations can be made there")

    def busy_words(self) -> Sequence[str]:
        """Words of a refused reservation that mean: not these nodes now."""
        return ()

    @abstractmethod
    def find_command(self, tags: Sequence[str]) -> str:
        """List the jobs with these names."""

    @abstractmethod
    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        """Read (tag, native id) rows."""

    @abstractmethod
    def versions_command(self) -> str:
        """Print the scheduler's version and launch plugins."""

    @abstractmethod
    def probe_command(self, script: str) -> str:
        """Run a shell script on one idle node of the partition, now, and wait for it."""

    # -- private ----------------------------------------------------------------------------------------------------

    def _ask(self, command: str, what: str) -> Completed:
        self.query_count += 1
        return self._answered(self.transport.sh(command), what)

    def _answered(self, done: Completed, what: str) -> Completed:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: {what}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return done

    def _reports(self, native_ids: Sequence[str], polled: Completed | None) -> dict[str, JobReport]:
        reports = {report.native_id: report for report in self.read_poll(polled)} if polled is not None else {}
        missing = [native_id for native_id in native_ids if native_id not in reports]
        for chunk in chunks(missing, self._CHUNK):
            command = self.history_command(chunk)
            if command is not None:
                self.query_count += 1
                for report in self.read_history(self.transport.sh(command)):
                    reports[report.native_id] = report
        for native_id in missing:
            reports.setdefault(native_id, JobReport(native_id, JobState.UNKNOWN, reason="not known to the scheduler"))
        return {native_id: reports[native_id] for native_id in native_ids}

    def _hand_in_function(self) -> str:
        limited, _ = self.refusal_words()
        return HAND_IN.replace("LIMITED", "|".join(f"*{quote(words)}*" for words in limited) or "''")

    def _read_submitted(self, one: Submission, done: Completed) -> Submitted:
        _, lost = self.refusal_words()
        for line in done.text.splitlines():
            fields = line.split("\t", 2)
            if len(fields) == 3 and fields[0] == one.tag:
                if fields[1] == "0":
                    native_id = self.read_native_id(fields[2])
                    return Submitted(one.tag, native_id or None, "" if native_id else "no id in the scheduler's answer")
                message = fields[2].strip()
                known = not any(words in message for words in lost)
                return Submitted(one.tag, None, message, limited=fields[1] == "limited", lost=not known)
        return Submitted(one.tag, None, done.stderr.strip() or "no answer from the scheduler")

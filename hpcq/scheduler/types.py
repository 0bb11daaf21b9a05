"""What hpcq knows of nodes and jobs, whichever batch system they belong to: plain data, no commands.

A scheduler package turns its own words into these; nothing above it ever sees the words, but in `native_state` and `reason`,
which people read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


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
class JobKey:
    """How a job is named in questions and orders: the scheduler's id and our tag, which is the job's name there.

    An id alone is never believed: a controller that lost its state gives ids out again.
    """

    native_id: str
    tag: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """The scheduler's answer about one job. nodes: plain names, expanded. name: the job's name there; "" where it was not told.

    mine: the job belongs to this user; None where the scheduler did not say. own_request: a CANCELLED job was ended by this
    user, so by us, and not by an operator; None where nobody knows.
    """

    native_id: str
    state: JobState
    native_state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    wait: Wait = Wait.ORDINARY
    name: str = ""
    mine: bool | None = None
    own_request: bool | None = None
    #: Only the accounting knows it: the queue has forgotten the job.
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """What one look is to bring; what is left out is not asked for."""

    jobs: Sequence[JobKey] = ()
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
    """The answer to a question: `reports` has one entry per id; what was not asked is None."""

    reports: dict[str, JobReport]
    nodes: list[NodeState] | None = None
    others: tuple[OtherJob, ...] | None = None
    mine: int | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """One script to submit: `script` is its absolute path on the cluster, `tag` becomes the job's name."""

    tag: str
    script: str
    nodes: tuple[str, ...]
    walltime_s: int


class Fate(StrEnum):
    """What became of a submission, as far as its exit code and words prove it."""

    #: The scheduler gave an id of its own pattern.
    TAKEN = "taken"
    #: Known words with the scheduler's refusing exit code: it was not taken, and the next try would be told the same.
    REFUSED = "refused"
    #: Not taken, or not even submitted, because this user may not have more jobs now.
    LIMITED = "limited"
    #: Nobody can know whether it was taken: no answer, no id in it, a killed command, a broken connection to the controller.
    UNDETERMINED = "undetermined"
    #: The refusing exit code with words that hpcq does not know: probably not taken. Look it up, then try again after a pause.
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one submission. message: the scheduler's words, or what was missing in its answer."""

    tag: str
    native_id: str | None
    message: str = ""
    fate: Fate = Fate.TAKEN
    #: False: the submit command was never run for it, because an earlier one of the wave had met a limit.
    tried: bool = True

    @property
    def refused(self) -> bool:
        """The scheduler said no, in words that mean no: trying again as it is will not help."""
        return self.fate is Fate.REFUSED

    @property
    def limited(self) -> bool:
        """This user may not have more jobs now."""
        return self.fate is Fate.LIMITED

    @property
    def undetermined(self) -> bool:
        """Nobody knows whether the scheduler has it: `find` and the attempt's claim will tell."""
        return self.fate is Fate.UNDETERMINED

    @property
    def unsure(self) -> bool:
        """Not taken in words that hpcq does not know: worth another try after a pause, and a look first."""
        return self.fate is Fate.UNSURE


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a scheduler must know of its cluster file; nothing else of it reaches this floor.

    The words partition, account, qos and reservation are hpcq's; a scheduler's description says which key of the cluster file
    fills which of them (a queue is a partition).
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    #: The reservation is the run's own: made when it is needed, so it may not be there, and then nothing is within it.
    own_reservation: bool = False
    #: The jobs of others are asked for so often at most; a look between two of these answers brings the last one.
    others_period_s: float = 0.0
    #: Further keys of the cluster file that only this scheduler has, by their names there.
    extra: Mapping[str, str] = field(default_factory=dict)
    #: Schedulers that play nodes only: their names, and where the queue is kept.
    nodes: tuple[str, ...] = ()
    queue_folder: str = ""


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One thing of a site that was looked at: what was found, and what to do if it will not do.

    ok: campaigns can run. advice with ok: it works, but this follows from it.
    """

    item: str
    ok: bool
    found: str
    advice: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

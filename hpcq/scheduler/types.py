"""What hpcq knows about nodes and jobs, for every batch system: plain data, no commands.

A scheduler package translates its own words into these types. The rest of hpcq sees those words only in `native_state`
and `reason`, which people read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class NodeCondition(StrEnum):
    """hpcq's view of a node's state. hpcq asks only for IDLE and PLANNED nodes."""

    IDLE = "idle"
    BUSY = "busy"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    PLANNED = "planned"
    DRAINED = "drained"
    DOWN = "down"
    POWERED_DOWN = "powered_down"
    UNKNOWN = "unknown"


#: Schedulers count time limits in minutes, and a job starts a moment after it was submitted.
_MINUTE_S, _STARTS_WITHIN_S = 60, 30.0


@dataclass(frozen=True, slots=True)
class FreeUntil:
    """Until when jobs may have a node. words: what happens then: "reservation m1 begins at 2026-11-28 10:00:00"."""

    words: str
    in_s: float

    def ends(self, walltime_s: float) -> bool:
        """Whether that comes before a job with this time limit would have ended, if it were submitted now."""
        return self.in_s < _MINUTE_S * math.ceil(walltime_s / _MINUTE_S) + _STARTS_WITHIN_S

    def against(self, walltime_s: float) -> str:
        """Say why such a job does not start."""
        return f"{self.words}, before a job of {walltime_s:g} s would end"


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as the scheduler describes it now. `native_state` holds the scheduler's own words."""

    node: str
    condition: NodeCondition
    native_state: str
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    reason: str | None = None
    #: Its leaf switch, and the fabric that it is in where a cluster has several, if the scheduler knows them.
    switch: str | None = None
    fabric: str | None = None
    #: What ends the time that it is free, if the scheduler says so: a reservation.
    bounded: FreeUntil | None = None

    @property
    def free(self) -> bool:
        """Whether no job has it and hpcq may ask for it.

        A planned node is free until a larger job begins: the scheduler starts a job there if its time limit ends before.
        """
        return self.condition in {NodeCondition.IDLE, NodeCondition.PLANNED}

    def kept_from(self, walltime_s: float) -> str | None:
        """Return why a job with this time limit would not start there although no job has the node; None if it would."""
        bounded = self.bounded if self.free else None
        return bounded.against(walltime_s) if bounded is not None and bounded.ends(walltime_s) else None


class Wait(StrEnum):
    """What a queued job's reason means for it."""

    ORDINARY = "ordinary"
    #: One of its nodes is unavailable: down, drained or reserved.
    NODE = "node"
    #: It has reached a limit, or a person holds it; this may pass.
    LIMIT = "limit"
    #: The scheduler will never start it in this form.
    NEVER = "never"
    #: hpcq does not know these words. They are told at once, and end like a limit.
    UNKNOWN = "unknown"


class JobState(StrEnum):
    """The state of a job. The terminal states are also attempt outcomes."""

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
        """Whether this state is final."""
        return self not in {JobState.QUEUED, JobState.RUNNING, JobState.ENDING, JobState.UNKNOWN}


@dataclass(frozen=True, slots=True)
class JobKey:
    """Identifies a job in queries and orders: the scheduler's id and our tag, which is the job's name there.

    An id alone is not enough: a controller that lost its state assigns ids again.
    """

    scheduler_job_id: str
    tag: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """The scheduler's answer about one job. nodes: plain names, expanded. name: the job's name there; "" if unknown.

    mine: the job belongs to this user; None if the scheduler did not say.
    own_request: this user, so hpcq and not an operator, ended a CANCELLED job; None if unknown.
    """

    scheduler_job_id: str
    state: JobState
    native_state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    wait: Wait = Wait.ORDINARY
    name: str = ""
    mine: bool | None = None
    own_request: bool | None = None
    #: Only the accounting still knows the job; the queue has forgotten it.
    remembered: bool = False
    #: It counts as running and holds its nodes, but its processes are stopped; `reason` says so.
    stands_still: bool = False

    @property
    def in_queue(self) -> bool:
        """Whether the queue shows the job as not ended, be it in a word that hpcq does not know."""
        known = self.state is not JobState.UNKNOWN or self.native_state != ""
        return known and not self.state.terminal and not self.remembered


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """What one poll asks for."""

    jobs: Sequence[JobKey] = ()
    nodes: bool = False
    #: Jobs of other users that wait for nodes of the partition.
    others: bool = False
    #: How many jobs this user has, from hpcq or not.
    mine: bool = False


@dataclass(frozen=True, slots=True)
class OtherJob:
    """Another user's job that waits for nodes.

    sure: False if those nodes may instead be broken or reserved by others. nodes: those that it names.
    """

    scheduler_job_id: str
    sure: bool
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The answer to a query. `reports` has one entry per id; a field is None if the query did not ask for it."""

    reports: dict[str, JobReport]
    nodes: list[NodeState] | None = None
    others: tuple[OtherJob, ...] | None = None
    mine: int | None = None
    #: Nodes of all running and ending jobs of this user, of whatever run; None where the scheduler was not asked for all.
    own_nodes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """One script to submit. `script` is its absolute path on the cluster; `tag` becomes the job's name."""

    tag: str
    script: str
    nodes: tuple[str, ...]
    walltime_s: int


class Fate(StrEnum):
    """What happened to a submission, as far as its exit code and words prove it."""

    #: The scheduler returned an id of its own form.
    TAKEN = "taken"
    #: Known words with the scheduler's exit code for refusals: not taken, and it would refuse another attempt, too.
    REFUSED = "refused"
    #: As REFUSED, in words that hold for every job of this form: access, an option, a filter of the site.
    FINAL = "final"
    #: Not taken, or not even submitted, because this user may not have more jobs at present.
    LIMITED = "limited"
    #: hpcq cannot know whether the scheduler took it: no answer, no id in the answer, a killed command,
    #: a broken connection to the controller.
    UNDETERMINED = "undetermined"
    #: The exit code for refusals with unknown words: probably not taken. hpcq looks it up, then submits again later.
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Submitted:
    """The fate of one submission. message: the scheduler's words, or what its answer lacks."""

    tag: str
    scheduler_job_id: str | None
    message: str = ""
    fate: Fate = Fate.TAKEN
    #: False: hpcq never ran its submit command, because an earlier submission of the wave had reached a limit.
    tried: bool = True

    @property
    def refused(self) -> bool:
        """The scheduler refused it in known words: the same submission would be refused again."""
        return self.fate in {Fate.REFUSED, Fate.FINAL}

    @property
    def limited(self) -> bool:
        """This user may not have more jobs at present."""
        return self.fate is Fate.LIMITED

    @property
    def undetermined(self) -> bool:
        """hpcq does not know whether the scheduler has it: `find` and the attempt's claim will show."""
        return self.fate is Fate.UNDETERMINED

    @property
    def unsure(self) -> bool:
        """Not taken, in words that hpcq does not know: look it up, then submit again after a pause."""
        return self.fate is Fate.UNSURE


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a scheduler must know of its cluster file. No other part of the file gets here.

    The words partition, account, qos and reservation are hpcq's; a scheduler's description says which key of the cluster file
    fills which of them (a queue is a partition).
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    #: The run itself makes the reservation when it needs it. Until then no node is in it.
    own_reservation: bool = False
    #: hpcq asks for other users' jobs at most once in this time. A poll in between returns the last answer.
    others_period_s: float = 0.0
    #: Further keys of the cluster file that only this scheduler has, by their names in the file.
    extra: Mapping[str, str] = field(default_factory=dict)
    #: Only for schedulers that simulate nodes: the names of the nodes, and the folder of the queue.
    nodes: tuple[str, ...] = ()
    queue_folder: str = ""


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One checked item of a site: what hpcq found, and what to do if that is not good enough.

    ok: campaigns can run. advice with ok: it works, with this consequence.
    """

    item: str
    ok: bool
    found: str
    advice: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

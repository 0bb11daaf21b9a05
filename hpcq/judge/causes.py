"""What the judge says: one cause per thing at fault, and how much of each thing it could judge.

    thing      names                        what is at fault
    night      ()                           everything of the cluster
    class      (class,)                     all nodes of one kind of hardware, whoever the other end is
    within     (class,)                     what runs among nodes of one kind of hardware
    group      (group,)                     what leaves a group: its uplink; `whole`: what stays inside it, too
    between    (group, group)               the way between two groups
    node       (node,)                      with a role: it is slow only as that end of its jobs
    role       (node,)                      inside the judge alone; said as its node, with its role
    link       (node, node) in name order   the way between two nodes that are fine with others
    pair       (client, server)             one direction of a link

A cause that explains leaves its parts unaccused: nodes behind a group that is told stand in no cause of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Thing(StrEnum):
    """The levels, from the top down."""

    NIGHT = "night"
    CLASS = "class"
    WITHIN = "within"
    GROUP = "group"
    BETWEEN = "between"
    NODE = "node"
    ROLE = "role"
    LINK = "link"
    PAIR = "pair"


class Role(StrEnum):
    """Which end of a job."""

    CLIENT = "client"
    SERVER = "server"


class State(StrEnum):
    """Where a thing stands on the newest night that is judged."""

    FINE = "fine"
    #: Worth a second measurement, not yet a person's time.
    SUSPECTED = "suspected"
    #: A person was told, and newer values do not yet speak for the old level.
    TOLD = "told"
    #: It was told, and newer values speak for the old level.
    ENDED = "ended"


class Judged(StrEnum):
    """How much of a thing could be judged. Silence is never fine."""

    JUDGED = "judged"
    TOO_FEW_JOBS = "too few jobs"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Effect:
    """How far a thing left its level: 0.9 is 10 % worse, for throughput and latency alike; 0.0: nothing comes through.

    low_ratio to high_ratio is the 95 % interval.
    """

    ratio: float
    low_ratio: float
    high_ratio: float


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing at fault.

    tests: those of Values in which it shows. since: index of the first night at the new level. told: index of the
    night on which its state first became told, None while it is suspected. ended: index of the night on which it
    ended, None until then. job_count: jobs since `since` that touch the thing and were judged.
    reason: words for a person: what was seen, and against what. role: of a node that is slow only as that end of its jobs.
    nearly_told: it is suspected, and little is missing. whole: of a group, its nodes are as slow with each other.
    """

    thing: Thing
    names: tuple[str, ...]
    tests: tuple[str, ...]
    state: State
    since: int
    told: int | None
    ended: int | None
    effect: Effect
    job_count: int
    reason: str
    role: Role | None = None
    nearly_told: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of one thing could be judged. missing: words, what would be needed; empty where it was judged."""

    thing: Thing
    names: tuple[str, ...]
    judged: Judged
    job_count: int
    missing: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said as if `night` (an index) were the newest. causes: told and suspected first, then ended."""

    night: int
    causes: tuple[Cause, ...]
    coverage: tuple[Coverage, ...]

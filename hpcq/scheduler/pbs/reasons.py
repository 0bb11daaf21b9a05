"""Why PBS says that a job still waits, and what that means for a job of ours: pure words.

Source: the comments of the scheduler of OpenPBS 23.06 (src/scheduler/job_info.cpp, fctt); those of PBS Professional
begin alike.
"""

from __future__ import annotations

from hpcq.scheduler.types import Wait

_NEVER = (
    "Can Never Run",
    "job held, too many failed attempts to run",
)
#: After "Not Running: ". It passes when other jobs end, a person acts, or a time comes.
_LIMIT = (
    "Queue not started",
    "Scheduling is",
    "Dedicated time",
    "Job would cross dedicated time",
    "Job will run in primetime only",
    "Job will run in nonprimetime only",
    "Job will cross into",
    "Job is under job_sort_formula threshold",
    "Job has zero shares",
    "Number of concurrent running subjobs",
    "would exceed",
    "PBS Error",
    "Cannot provision",
    "Insufficient amount of queue resource",
    "Insufficient amount of server resource",
)
_LIMIT_PARTS = ("limit reached", "running limit", "run limit")
#: One of the nodes that were named is in use, offline, down or not there: which of them, only the list of nodes tells.
_NAMED_NODES = ("Insufficient amount of resource: host", "Insufficient amount of resource: vnode")
#: A user who waits for nodes, as far as the words tell, waits for one of these.
_FOR_NODES = (
    "Not enough free nodes",
    "Insufficient amount of resource: ",
    "Job would interfere with a top job",
    "Job would conflict with reservation or top job",
    "Job would break strict sorted order",
    "Too few free resources",
    "No available resources on nodes",
)
_PREFIX = "Not Running: "


def read_wait(state: str, holds: str, comment: str) -> Wait:
    """What job_state, Hold_Types and comment of a queued job mean. Words that are not known are an ordinary wait."""
    words = comment.removeprefix(_PREFIX)
    if comment.startswith(_NEVER):
        return Wait.NEVER
    if state in {"H", "W"} or holds.strip("n"):
        return Wait.LIMIT
    if words.startswith(_LIMIT) or any(part in words for part in _LIMIT_PARTS):
        return Wait.LIMIT
    return Wait.ORDINARY


def names_nodes(comment: str) -> bool:
    """Whether the words say that one of the named nodes cannot be had now, whatever the reason."""
    return comment.removeprefix(_PREFIX).startswith(_NAMED_NODES)


def is_waiting_for_nodes(comment: str) -> bool:
    """Whether a job of somebody else waits for nodes that others use."""
    return comment.startswith(_PREFIX) and comment.removeprefix(_PREFIX).startswith(_FOR_NODES)

"""What PBS gives as the reason that a job still waits, and what that means for our jobs. Pure.

Source: the comments of the scheduler of OpenPBS 23.06 (src/scheduler/job_info.cpp, fctt); those of PBS Professional
begin alike.
"""

from __future__ import annotations

from hpcq.scheduler.types import Wait

_NEVER = (
    "Can Never Run",
    "job held, too many failed attempts to run",
)
#: After "Not Running: ". The wait ends when other jobs end, a person acts, or a certain time comes.
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
    "Could not run job - nodes are not licensed",  # PBS Professional, and OpenPBS up to 20
    "PBS Error",
    "Cannot provision",
    "Insufficient amount of queue resource",
    "Insufficient amount of server resource",
)
_LIMIT_PARTS = ("limit reached", "running limit", "run limit")
#: A named node is in use, offline, down or absent. Only the list of nodes shows which of these is true.
_NAMED_NODES = ("Insufficient amount of resource: host", "Insufficient amount of resource: vnode")
#: The comments of jobs that wait for nodes, as far as the comment shows that.
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
    """Classify job_state, Hold_Types and comment of a queued job. Unknown comments count as an ordinary wait."""
    words = comment.removeprefix(_PREFIX)
    if comment.startswith(_NEVER):
        return Wait.NEVER
    if state in {"H", "W"} or holds.strip("n"):
        return Wait.LIMIT
    if words.startswith(_LIMIT) or any(part in words for part in _LIMIT_PARTS):
        return Wait.LIMIT
    return Wait.ORDINARY


def names_nodes(comment: str) -> bool:
    """Whether the comment says that one of the named nodes is unavailable now, whatever the reason."""
    return comment.removeprefix(_PREFIX).startswith(_NAMED_NODES)


def is_waiting_for_nodes(comment: str) -> bool:
    """Whether another user's job waits for nodes that are in use."""
    return comment.startswith(_PREFIX) and comment.removeprefix(_PREFIX).startswith(_FOR_NODES)

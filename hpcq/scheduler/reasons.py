"""Why Slurm says that a job still waits, and what that means for a job of ours: pure words.

Sources: man squeue (22.05, 24.11), JOB REASON CODES; https://slurm.schedmd.com/job_reason_codes.html and resource_limits.html;
the full list of words is the one in Slurm's library itself (22.05.8 and 24.11 were compared).
"""

from __future__ import annotations

import re

from hpcq.scheduler.base import Wait

#: The job as it is asked for will never be started: no waiting helps, and the next try would be told the same.
_NEVER = frozenset(
    {
        "AccountNotAllowed",
        "AssociationTimeLimit",
        "BadConstraints",
        "DeadLine",
        "DependencyNeverSatisfied",
        "InactiveLimit",
        "InvalidAccount",
        "InvalidQOS",
        "JobHoldMaxRequeue",
        "PartitionNodeLimit",  # also said where a named node is down or drained: Wait.NODE goes first then, see read_wait
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "QOSTimeLimit",
        "QOSUsageThreshold",
        "RequiresReservation",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
#: Limits of one job, of one node's share of it, and minutes that are used up: AssocMaxWallDurationPerJobLimit, QOSMinGRES, …
_NEVER_FORMS = re.compile(r"(Assoc|QOS)Max\w*Per(Job(Limit)?|Node)|QOSMin\w+|(Assoc|QOS)Grp\w*(?<!Run)Minutes(Limit)?")
#: It passes when other jobs end, a person acts or a service comes back: worth some patience.
_LIMIT = frozenset(
    {
        "AssociationJobLimit",
        "AssociationResourceLimit",
        "FrontEndDown",
        "JobArrayTaskLimit",
        "JobHeldAdmin",
        "JobHeldUser",
        "Licenses",
        "PartitionDown",
        "PartitionInactive",
        "QOSJobLimit",
        "QOSResourceLimit",
        "Reservation",
    }
)
_LIMIT_FORMS = re.compile(r"(Assoc|QOS)(Grp|Max)\w+|Max\w+PerAccount|BurstBuffer\w*")
#: Words after ReqNodeNotAvail that name more than a node in use: down or drained ones, maintenance, somebody's reservation.
_NODE_GONE = ("UnavailableNodes:", "Reserved for maintenance", "May be reserved")

#: What sbatch says when the user has as many jobs as allowed; its long form names no limit, so the short ones stand too.
LIMIT_REFUSALS = (
    "QOSMaxSubmitJobPerUserLimit",
    "QOSGrpSubmitJobsLimit",
    "AssocMaxSubmitJobLimit",
    "AssocGrpSubmitJobsLimit",
    "MaxSubmitJobsPerAccount",
    "Job violates accounting/QOS policy",
    "Resource temporarily unavailable",  # MaxJobCount of the whole cluster
    "Slurm temporarily unable to accept job",
)
#: What sbatch says when nobody can know whether the job was taken.
LOST_ANSWERS = (
    "Socket timed out",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Connection reset by peer",
    "Unexpected message received",
)


def read_wait(reason: str) -> Wait:
    """What a pending reason means. A word that is not known is an ordinary wait: it is shown, never acted upon."""
    word = re.split(r"[,\s(]", reason.strip(), maxsplit=1)[0]
    if word == "ReqNodeNotAvail":
        return Wait.NODE if any(sign in reason for sign in _NODE_GONE) else Wait.ORDINARY
    if word == "NodeDown" or reason.startswith("Nodes required for job are DOWN"):
        return Wait.NODE
    if word in _NEVER or _NEVER_FORMS.fullmatch(word) or reason.startswith("launch failed requeued held"):
        return Wait.NEVER
    if word in _LIMIT or _LIMIT_FORMS.fullmatch(word):
        return Wait.LIMIT
    return Wait.ORDINARY

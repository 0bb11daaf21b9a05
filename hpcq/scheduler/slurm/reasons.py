"""Why Slurm says that a job still waits, and what that means for a job of ours: pure words.

Sources: man squeue (22.05, 24.11), JOB REASON CODES; https://slurm.schedmd.com/job_reason_codes.html and resource_limits.html;
the full list of words is the one in Slurm's library itself (22.05.8 and 24.11 were compared).
"""

from __future__ import annotations

import re

from hpcq.scheduler.types import Fate, Submitted, Wait
from hpcq.transport import Completed

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
LIMIT_WORDS = (
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
_LOST_WORDS = (
    "Socket timed out",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Connection reset by peer",
    "Unexpected message received",
)
#: What sbatch says of a job that it will refuse tomorrow, too.
_REFUSALS = (
    "Invalid partition name specified",
    "invalid partition specified",
    "Invalid account or account/partition combination specified",
    "Invalid qos specification",
    "Invalid feature specification",
    "Invalid node name specified",
    "Invalid constraint",
    "Invalid generic resource (gres) specification",
    "Invalid license specification",
    "Invalid job array specification",
    "Invalid wckey specification",
    "Requested node configuration is not available",
    "Requested time limit is invalid",
    "Requested time limit exceeds partition limit",
    "More processors requested than permitted",
    "Node count specification invalid",
    "Memory specification can not be satisfied",
    "Requested reservation is invalid",
    "Access denied to requested reservation",
    "User's group not permitted to use this partition",
    "Unable to open file",
    "unrecognized option",
    "invalid option",
    "Invalid directive found in batch script",
    "Batch script contains DOS line breaks",
)
#: sbatch ends with it when it refuses; a signal, a shell that was killed and a wrapper end otherwise.
_REFUSING_CODE = 1


def read_submission(tag: str, done: Completed, native_id: str) -> Submitted:
    """What became of a submission; native_id: what was found in sbatch's answer."""
    words = done.stderr.strip()
    if done.returncode == 0 and native_id:
        return Submitted(tag, native_id)
    if done.returncode == 0:
        words = f"no id in the answer: {done.text.strip() or 'nothing'}"
    return Submitted(tag, None, words or f"exit code {done.returncode} without a word", _fate(done.returncode, words))


def _fate(code: int, words: str) -> Fate:
    if code == 0 or code >= 128 or any(known in words for known in _LOST_WORDS):
        return Fate.UNDETERMINED
    if code == _REFUSING_CODE and any(known in words for known in LIMIT_WORDS):
        return Fate.LIMITED
    return Fate.REFUSED if code == _REFUSING_CODE and any(known in words for known in _REFUSALS) else Fate.UNSURE


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

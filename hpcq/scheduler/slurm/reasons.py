"""What Slurm gives as the reason that a job still waits, and what that means for our jobs. Pure.

Sources: man squeue (22.05, 24.11), JOB REASON CODES; https://slurm.schedmd.com/job_reason_codes.html and
resource_limits.html. The full list of reasons is in Slurm's library (compared: 22.05.8 and 24.11).
"""

from __future__ import annotations

import re

from hpcq.scheduler.types import Fate, Submitted, Wait
from hpcq.transport import Completed

#: Slurm will never start this job. Waiting does not help, and it would say the same of another attempt.
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
        "PartitionNodeLimit",  # Slurm also says it if a named node is down or drained; then Wait.NODE wins, see read_wait
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "QOSTimeLimit",
        "QOSUsageThreshold",
        "RequiresReservation",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
#: Limits of one job, limits of one node's share, and used-up minutes:
#: AssocMaxWallDurationPerJobLimit, QOSMinGRES, …
_NEVER_FORMS = re.compile(r"(Assoc|QOS)Max\w*Per(Job(Limit)?|Node)|QOSMin\w+|(Assoc|QOS)Grp\w*(?<!Run)Minutes(Limit)?")
#: The wait ends when other jobs end, a person acts or a service comes back: worth some patience.
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
#: Words after ReqNodeNotAvail that mean more than a node in use: down or drained, maintenance, a reservation.
_NODE_GONE = ("UnavailableNodes:", "Reserved for maintenance", "May be reserved")

#: What sbatch says when the user has as many jobs as allowed.
#: Its long form names no limit, so the list also has the short forms.
LIMIT_WORDS = (
    "QOSMaxSubmitJobPerUserLimit",
    "QOSGrpSubmitJobsLimit",
    "AssocMaxSubmitJobLimit",
    "AssocGrpSubmitJobsLimit",
    "MaxSubmitJobsPerAccount",
    "Job violates accounting/QOS policy",
    "Resource temporarily unavailable",  # MaxJobCount, for the whole cluster
    "Slurm temporarily unable to accept job",
)
#: What sbatch says when hpcq cannot know whether Slurm took the job.
AWAY_WORDS = (
    "Socket timed out",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Connection reset by peer",
    "Unexpected message received",
)
#: What sbatch says of a job that it will always refuse.
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
#: sbatch ends with this code when it refuses. A signal, a killed shell and a wrapper end with others.
_REFUSING_CODE = 1


def read_submission(tag: str, done: Completed, native_id: str) -> Submitted:
    """Return the fate of a submission. native_id: the id in sbatch's answer."""
    words = done.stderr.strip()
    if done.returncode == 0 and native_id:
        return Submitted(tag, native_id)
    if done.returncode == 0:
        words = f"no id in the answer: {done.text.strip() or 'nothing'}"
    return Submitted(tag, None, words or f"exit code {done.returncode} without a word", _fate(done.returncode, words))


def _fate(code: int, words: str) -> Fate:
    if code == 0 or code >= 128 or any(known in words for known in AWAY_WORDS):
        return Fate.UNDETERMINED
    if code == _REFUSING_CODE and any(known in words for known in LIMIT_WORDS):
        return Fate.LIMITED
    return Fate.REFUSED if code == _REFUSING_CODE and any(known in words for known in _REFUSALS) else Fate.UNSURE


def read_wait(reason: str) -> Wait:
    """Classify a pending reason. An unknown reason is an ordinary wait: hpcq shows it and never acts on it."""
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

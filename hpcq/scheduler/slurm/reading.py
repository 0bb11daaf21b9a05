"""Slurm's words for nodes and jobs and their meaning (man sinfo, man squeue), and the rows of its listings. Pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace

from hpcq import nodelist
from hpcq.scheduler.types import Fate, FreeUntil, JobReport, JobState, NodeCondition, NodeState, Submitted, Wait
from hpcq.transport import Completed

# ----------------------------------------------------------------------------------------------------------------------
# What Slurm gives as the reason that a job still waits, and what that means for our jobs. Pure.
#
# Sources: man squeue (22.05, 24.11), JOB REASON CODES; https://slurm.schedmd.com/job_reason_codes.html and
# resource_limits.html. The full list of reasons is in Slurm's library (compared: 22.05.8 and 24.11).


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
        "MaxMemPerLimit",  # MaxMemPerNode or MaxMemPerCPU of the partition
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
#: Whole sentences instead of a reason's word, which also mean that it never starts.
_NEVER_SENTENCES = re.compile(
    r"Job's (account|QOS) (not permitted to use this partition|not known, so it can't use this partition).*"
    r"|uid \d+ not in group permitted to use this partition.*|Reservation \S+ (was deleted|is invalid)"
    r"|(launch|user env retrieval) failed requeued held.*"
)
#: Sentences of limits: of minutes that are used up now, of a person, of a topology that does not fit the named nodes.
_LIMIT_SENTENCES = re.compile(
    r"Job is at or exceeds .*|job requeued in held state|Required nodes do not fit topology|Reservation .* has ended"
)
#: The wait ends when other jobs end, a person acts or a service comes back: worth some patience.
_LIMIT = frozenset(
    {
        "AccountingPolicy",  # some limit of the accounting that Slurm does not name
        "AssociationJobLimit",
        "AssociationResourceLimit",
        "Constraints",  # 25.05: not at this time; BadConstraints is final
        "FrontEndDown",
        "JobArrayTaskLimit",
        "JobHeldAdmin",
        "JobHeldUser",
        "Licenses",
        "MaxPoweredUpNodes",
        "NvidiaImexChannels",
        "PartitionConfig",  # some limit of the partition that Slurm does not name
        "PartitionDown",
        "PartitionInactive",
        "PowerNotAvail",  # 20.11: power caps
        "PowerReserved",
        "QOSJobLimit",
        "QOSResourceLimit",
        "Reservation",
    }
)
_LIMIT_FORMS = re.compile(r"(Assoc|QOS)(Grp|Max)\w+|Max\w+Per(Account|User)|BurstBuffer\w*")
#: It waits for its turn, for nodes, or for Slurm itself.
_ORDINARY = frozenset(
    {
        "",
        "(null)",
        "BeginTime",
        "Cleaning",
        "Dependency",
        "FedJobLock",
        "JobLaunchFailure",
        "MpiPortsBusy",
        "NonZeroExitCode",
        "None",
        "OutOfMemory",
        "Prolog",
        "RaisedSignal",
        "SchedDefer",
        "SystemFailure",
        "TimeLimit",
        "WaitingForScheduling",
    }
)
#: The reasons of jobs that wait for nodes. From 26.05 on a topology says in a sentence what it lacks, in place of Resources.
WAITS_FOR_NODES = frozenset(
    {
        "Resources",
        "Priority",
        "Required nodes lack available resources",
        "No suitable topology unit found",
        "No suitable topology unit found for segment",
        "Insufficient resources in topology unit",
        "Weight-based selection could not satisfy request within topology unit",
        "Exceeded maximum node limit during topology allocation",
        "No available nodes in topology",
    }
)
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
#: What sbatch says when it found no controller to ask, so nothing was submitted.
_NOT_ASKED = ("configuration source", "Unable to process configuration file", "Invalid authentication credential")
#: What sbatch says of every job of this form: one refusal is enough.
_FINAL = (
    "Access/permission denied",  # AllocNodes, RootOnly
    "Unspecified error",  # any job_submit plugin
    "Required partition not available",
    "Requested nodes not in this partition",
    "No partition specified",
    "fatal:",
    "Burst Buffer permission denied",
    "Burst Buffer request invalid",
    "Duplicate generic resource (gres) specification",
    "Invalid --nice value",
    "Invalid GRES specification",
    "Invalid Trackable RESource (TRES) specification",
    "Invalid mcs_label specified",
    "Invalid preferred feature specification",
    "Invalid time-min specification",
    "Job --batch option is invalid",
    "Multiple partition job request not supported",
    "Requested GRES option unsupported",
    "Requested operation not supported on this system",
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
    "CPU count per node can not be satisfied",
    "CPU count specification invalid",
    "Job size specification needs to be provided",
    "Memory required by task is not available",
    "Pathname of a file, directory or other parameter too long",
    "Requested more tasks than available processors",
    "Requested topology configuration is not available",
    "Task count specification invalid",
    "Task distribution specification invalid",
)
#: A limit that the job itself exceeds (QOS with DenyOnLimit), above the same long form as for too many jobs.
_OWN_SIZE = re.compile(r"error: (Assoc|QOS)(?!\w*Submit)\w+\s*$", re.MULTILINE)
#: sbatch ends with this code when it refuses. A signal, a killed shell and a wrapper end with others.
_REFUSING_CODE = 1


def read_submission(tag: str, done: Completed, scheduler_job_id: str) -> Submitted:
    """Return the fate of a submission. scheduler_job_id: the id in sbatch's answer."""
    words = done.stderr.strip()
    if done.returncode == 0 and scheduler_job_id:
        return Submitted(tag, scheduler_job_id)
    if done.returncode == 0:
        words = f"no id in the answer: {done.text.strip() or 'nothing'}"
    return Submitted(tag, None, words or f"exit code {done.returncode} without a word", _fate(done.returncode, words))


def _fate(code: int, words: str) -> Fate:
    if code == 0 or code >= 128 or any(known in words for known in AWAY_WORDS):
        return Fate.UNDETERMINED
    if code == _REFUSING_CODE and _OWN_SIZE.search(words):
        return Fate.REFUSED
    if code == _REFUSING_CODE and any(known in words for known in LIMIT_WORDS):
        return Fate.LIMITED
    if code != _REFUSING_CODE or any(known in words for known in _NOT_ASKED):
        return Fate.UNSURE
    if any(known in words for known in _FINAL):
        return Fate.FINAL
    return Fate.REFUSED if any(known in words for known in _REFUSALS) else Fate.UNSURE


def read_wait(reason: str) -> Wait:
    """Classify a pending reason."""
    said = reason.strip()
    word = re.split(r"[,\s(]", said, maxsplit=1)[0]
    if said in WAITS_FOR_NODES:
        return Wait.ORDINARY
    if word == "ReqNodeNotAvail":
        return Wait.NODE if any(sign in reason for sign in _NODE_GONE) else Wait.ORDINARY
    if word == "NodeDown" or reason.startswith("Nodes required for job are DOWN"):
        return Wait.NODE
    if word in _NEVER or _NEVER_FORMS.fullmatch(word) or _NEVER_SENTENCES.fullmatch(said):
        return Wait.NEVER
    if word in _LIMIT or _LIMIT_FORMS.fullmatch(word) or _LIMIT_SENTENCES.fullmatch(said):
        return Wait.LIMIT
    return Wait.ORDINARY if word in _ORDINARY else Wait.UNKNOWN


# ----------------------------------------------------------------------------------------------------------------------


#: A job id. hpcq submits no arrays or heterogeneous jobs, but sites may.
ID = re.compile(r"[1-9][0-9]{0,9}")

#: Slurm's job state words (man squeue, JOB STATE CODES). hpcq reports an unknown word and does not guess.
_JOB_STATES = {
    "PENDING": JobState.QUEUED,
    "CONFIGURING": JobState.QUEUED,
    "REQUEUED": JobState.QUEUED,
    "REQUEUE_HOLD": JobState.QUEUED,
    "REQUEUE_FED": JobState.QUEUED,
    "SPECIAL_EXIT": JobState.QUEUED,
    "RESV_DEL_HOLD": JobState.QUEUED,
    "EXPEDITING": JobState.QUEUED,
    "POWER_UP_NODE": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "COMPLETING": JobState.ENDING,
    "STAGE_OUT": JobState.ENDING,
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
    "NODE_FAIL": JobState.NODE_FAILED,
    "PREEMPTED": JobState.PREEMPTED,
    "BOOT_FAIL": JobState.BOOT_FAILED,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "DEADLINE": JobState.DEADLINE,
    "REVOKED": JobState.REVOKED,
}

#: The scheduler counts it as running, but its processes are stopped.
_STANDING_STILL = frozenset({"SUSPENDED", "STOPPED"})

#: Slurm's node state words (man sinfo, NODE STATE CODES).
_NODE_STATES = {
    "idle": NodeCondition.IDLE,
    "allocated": NodeCondition.BUSY,
    "mixed": NodeCondition.BUSY,
    "completing": NodeCondition.BUSY,
    "blocked": NodeCondition.BUSY,
    "reserved": NodeCondition.RESERVED,
    "maint": NodeCondition.MAINTENANCE,
    "planned": NodeCondition.PLANNED,
    "drained": NodeCondition.DRAINED,
    "draining": NodeCondition.DRAINED,
    "drain": NodeCondition.DRAINED,
    "down": NodeCondition.DOWN,
    "fail": NodeCondition.DOWN,
    "failing": NodeCondition.DOWN,
    "error": NodeCondition.DOWN,
    "future": NodeCondition.DOWN,
    "inval": NodeCondition.DOWN,
    "unknown": NodeCondition.DOWN,
    "perfctrs": NodeCondition.BUSY,
    "npc": NodeCondition.BUSY,
    "powered_down": NodeCondition.POWERED_DOWN,
    "powering_down": NodeCondition.POWERED_DOWN,
    "powering_up": NodeCondition.POWERED_DOWN,
    "power_down": NodeCondition.POWERED_DOWN,
    "reboot": NodeCondition.DOWN,
    "reboot_issued": NodeCondition.DOWN,
    "rebooting": NodeCondition.DOWN,
}

#: What sinfo prints where nobody gave a reason.
NO_REASON = frozenset({"none", "(null)", ""})
#: A sign after the word changes its meaning: an idle node with any of these is not idle.
_NODE_SIGNS = {
    "*": NodeCondition.DOWN,  # not responding
    "~": NodeCondition.POWERED_DOWN,
    "#": NodeCondition.POWERED_DOWN,  # powering up or configuring
    "!": NodeCondition.POWERED_DOWN,  # power down pending
    "%": NodeCondition.POWERED_DOWN,  # powering down
    "$": NodeCondition.MAINTENANCE,
    "@": NodeCondition.DOWN,  # reboot pending
    "^": NodeCondition.DOWN,  # reboot issued
    "-": NodeCondition.PLANNED,  # the backfill scheduler wants it for a larger job
}


#: Words that scontrol alone adds to a state: IDLE+CLOUD+POWERED_DOWN; 20.11 says POWER for it.
_FLAGS = {
    "not_responding": NodeCondition.DOWN,
    "maintenance": NodeCondition.MAINTENANCE,
    "power": NodeCondition.POWERED_DOWN,
    "power_up": NodeCondition.POWERED_DOWN,
    "reboot_requested": NodeCondition.DOWN,
    "invalid_reg": NodeCondition.DOWN,
}
#: What says nothing about whether a job may run there.
_SAYS_NOTHING = frozenset({"cloud", "dynamic_norm", "dynamic_future"})
#: Of several words the last one in this order counts.
_GRAVITY = tuple(NodeCondition[name] for name in (
    "IDLE", "PLANNED", "BUSY", "RESERVED", "MAINTENANCE", "UNKNOWN", "POWERED_DOWN", "DRAINED", "DOWN",
))  # fmt: skip


def state_words(text: str) -> set[str]:
    """Return the words of a state as scontrol shows it, in small letters, and its signs: IDLE*+DRAIN -> idle * drain."""
    found = set()
    for part in text.lower().split("+"):
        word, signs = _without_signs(part)
        found |= {word, *signs} - {""}
    return found


def node_condition(word: str) -> NodeCondition:
    """Return the condition for a word such as `idle~`, `mixed-` or `drained*`, or for several: `idle+cloud+powered_down`."""
    parts = [part for part in word.lower().split("+") if part and part not in _SAYS_NOTHING]
    return max(map(_condition, parts), key=_GRAVITY.index, default=NodeCondition.UNKNOWN)


def _condition(part: str) -> NodeCondition:
    """The sign decides if the word alone would mean idle, planned or busy."""
    base, signs = _without_signs(part)
    known = _NODE_STATES.get(base) or _FLAGS.get(base)
    condition = known or (NodeCondition.UNKNOWN if base else NodeCondition.IDLE)
    if condition in {NodeCondition.IDLE, NodeCondition.BUSY, NodeCondition.PLANNED}:
        for sign in signs:
            if condition is NodeCondition.IDLE or _NODE_SIGNS[sign] is not NodeCondition.PLANNED:
                condition = _NODE_SIGNS[sign]
    return condition


def _without_signs(part: str) -> tuple[str, str]:
    base = part.rstrip("".join(_NODE_SIGNS))
    return base, part[len(base) :][::-1]


def node_rows(answer: str) -> list[list[str]]:
    """Return the rows `node|state|partition|features|reason` of sinfo. A reason may have several lines, and bars."""
    rows: list[list[str]] = []
    for line in answer.splitlines():
        row = line.split("|", 4)
        if len(row) == 5 and nodelist.is_node_name(row[0]) and _is_state(row[1]):
            rows.append(row)
        elif rows and line.strip() and rows[-1][4] not in NO_REASON:
            rows[-1][4] = f"{rows[-1][4]} {line.strip()}"
    return rows


def _is_state(word: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]+[^A-Za-z0-9\s]*", word) is not None


def job_report(
    scheduler_job_id: str,
    word: str,
    nodes: str,
    reason: str,
    *,
    name: str,
    mine: bool,
    exit_code: str = "",
    own_request: bool | None = None,
) -> JobReport:
    """Read one row of a job listing. If the node list cannot be read, the report has no nodes but is still valid."""
    state = _JOB_STATES.get(word.strip(), JobState.UNKNOWN)
    stands_still = word.strip() in _STANDING_STILL
    if stands_still:
        reason = f"{word.strip().lower()}: it holds its nodes and does nothing"
    code, _, _ = exit_code.partition(":")
    return JobReport(
        scheduler_job_id=scheduler_job_id.strip(),
        state=state,
        native_state=word.strip(),
        reason="" if reason.strip() == "None" else reason.strip(),
        nodes=expanded(nodes),
        exit_code=int(code) if code.isdecimal() else None,
        wait=read_wait(reason) if state is JobState.QUEUED else Wait.ORDINARY,
        name=name.strip(),
        mine=mine,
        own_request=own_request,
        stands_still=stands_still,
    )


def expanded(nodes: str) -> tuple[str, ...]:
    """Expand a host list to plain names; empty for `None assigned`, `(null)` and text that is not a host list."""
    try:
        return tuple(nodelist.expand(nodes.strip())) if nodes.strip() not in {"", "(null)", "None", "None assigned"} else ()
    except ValueError:
        return ()


def own_rows(done_text: str, column_count: int) -> tuple[str, list[list[str]]]:
    """Return the user's number from the first line, and the rows below it."""
    own, _, listing = done_text.partition("\n")
    return own.strip(), [row.split("|", column_count - 1) for row in listing.splitlines() if row.count("|") >= column_count - 1]


def within_reservation(states: Sequence[NodeState], reservation: str, name: str) -> list[NodeState]:
    """Return the nodes as a job in a reservation sees them: its own are idle if only the reservation holds them.

    Other nodes are out of reach, unless the reservation is flexible: its jobs may also use nodes outside.
    """
    fields = keys_of(reservation)
    mine = set(expanded(fields.get("Nodes", "")))
    active = fields.get("State", "") == "ACTIVE"
    flex = active and "FLEX" in fields.get("Flags", "").split(",")
    found = []
    for state in states:
        condition, reason = state.condition, state.reason
        if state.node not in mine and flex:
            pass
        elif state.node not in mine or not active:
            condition = NodeCondition.RESERVED if condition is NodeCondition.IDLE else condition
            reason = f"reservation {name} is not active" if state.node in mine else f"not in reservation {name}"
        elif state.native_state.lower() in {"reserved", "maint"}:
            condition = NodeCondition.IDLE
        found.append(replace(state, condition=condition, reason=reason))
    return found


def coming_reservations(listing: str, *, apart_from: str | None) -> dict[str, FreeUntil]:
    """Return, for each node, the reservation that takes it next. listing: the time in UTC, then `show reservation`."""
    now, _, lines = listing.partition("\n")
    found: dict[str, FreeUntil] = {}
    for line in lines.splitlines():
        keys = keys_of(line)
        begins_s, ends_s = (seconds_until(keys.get(key, ""), now) for key in ("StartTime", "EndTime"))
        if not line.startswith("ReservationName=") or begins_s is None or ends_s is None or ends_s <= 0:
            continue
        if keys["ReservationName"] == apart_from:
            continue
        bounded = FreeUntil(f"reservation {keys['ReservationName']} begins at {_shown(keys['StartTime'])}", begins_s)
        for node in expanded(keys.get("Nodes", "")):
            found[node] = min(found.get(node, bounded), bounded, key=lambda one: one.in_s)
    return found


def _shown(moment: str) -> str:
    return f"{moment.replace('T', ' ')} UTC"


def seconds_until(moment: str, now: str) -> float | None:
    """Return how long it is until a moment, both as 2026-11-28T10:00:00 in the same zone; None if one is none."""
    try:
        return (dt.datetime.fromisoformat(moment.strip()) - dt.datetime.fromisoformat(now.strip())).total_seconds()
    except (ValueError, TypeError):
        return None


_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9/:]*)=")


def keys_of(line: str) -> dict[str, str]:
    """Return the KEY=value pairs of a line of scontrol. A value ends at the next key, since reasons contain blanks.

    Of several with one key the first counts: free text comes last.
    """
    starts = list(_KEY.finditer(line))
    ends = [*(one.start() for one in starts[1:]), len(line)][: len(starts)]
    found: dict[str, str] = {}
    for one, end in zip(starts, ends, strict=True):
        value = line[one.end() : end].strip()
        found.setdefault(one.group(1), "" if value in {"(null)", "None"} else value)
    return found

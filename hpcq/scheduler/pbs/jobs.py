"""Read a job's record of `qstat -f`, while the job waits, while it runs and after its end.

A job of hpcq has two names: the short one that PBS shows (old PBS allows 15 characters), and the whole
tag in its environment as HPCQ_TAG. A report gives the tag if the short name belongs to it, else the short name.

`Exit_status` and `substate` show how a job ended. hpcq's own exit file takes precedence. With history off, it is the
only source.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from hpcq.scheduler.pbs.limits import seconds
from hpcq.scheduler.pbs.reasons import read_wait
from hpcq.scheduler.pbs.records import Record, exec_hosts
from hpcq.scheduler.types import JobReport, JobState, Wait

#: The environment variable of a job that holds its whole tag.
TAG_VARIABLE = "HPCQ_TAG"
#: Job ids as PBS writes them: 12.server, 12[].server, 12[3].server.
ID_PATTERN = re.compile(r"\d+(?:\[\d*\])?\.[A-Za-z0-9][A-Za-z0-9.-]*")

#: Source: man pbs_job_attributes, job_state. hpcq reports an unknown state and does not guess.
_STATES = {
    "Q": JobState.QUEUED,
    "H": JobState.QUEUED,
    "W": JobState.QUEUED,
    "T": JobState.QUEUED,
    "R": JobState.RUNNING,
    "B": JobState.RUNNING,
    "S": JobState.RUNNING,
    "U": JobState.RUNNING,
    "E": JobState.ENDING,
}
_ENDED = {"F", "X"}
#: Suspended by the server or an operator, or because somebody uses the machine. PBS takes the nodes of the first kind
#: back and may give them to other jobs meanwhile.
_STANDING_STILL = {
    "S": "suspended: it does nothing, and PBS may give its nodes to others",
    "U": "suspended for a user of the machine: it does nothing",
}
#: The substate of a job that was deleted. Source: src/include/job.h, JOB_SUBSTATE_TERMINATED.
_TERMINATED = 91
#: The substate of a job that failed. Source: the same file, JOB_SUBSTATE_FAILED.
_FAILED = 93
#: Exit codes that PBS itself assigns. Source: src/include/job.h, JOB_EXEC_*.
_OWN_CODES = {
    -1: (JobState.FAILED, "PBS could not start it"),
    -2: (JobState.FAILED, "PBS could not start it"),
    -3: (JobState.FAILED, "PBS could not start it now"),
    -4: (JobState.NODE_FAILED, "its node's daemon was started again"),
    -5: (JobState.NODE_FAILED, "its node's daemon was started again"),
    -6: (JobState.NODE_FAILED, "its node's daemon was started again"),
    -10: (JobState.FAILED, "no such user or group on its node"),
    -11: (JobState.NODE_FAILED, "PBS ran it again"),
    -14: (JobState.NODE_FAILED, "one of its nodes was lost"),
    -17: (JobState.FAILED, "a hook of the site ended it"),
    -19: (JobState.FAILED, "a hook of the site ended it"),
    -20: (JobState.NODE_FAILED, "its first node was lost"),
    -24: (JobState.FAILED, "it used more processors than it asked for"),
    -25: (JobState.FAILED, "it used more processors than it asked for"),
    -26: (JobState.OUT_OF_MEMORY, "it used more virtual memory than it asked for"),
    -27: (JobState.OUT_OF_MEMORY, "it used more memory than it asked for"),
    -28: (JobState.FAILED, "it used more processor time than it asked for"),
    -29: (JobState.TIMED_OUT, "walltime exceeded"),
    -30: (JobState.NODE_FAILED, "one of its nodes did not join"),
}
_SIGNALLED = 256
#: What releases before OpenPBS 22 and PBS Professional 2021 say of a job at its time limit: TERM or KILL, and no more.
#: Source: kill_job() at "walltime exceeded" in src/resmom/mom_main.c of 19.1; commit 92b159dd3 of 2020-12 added -29.
_ENDS_AT_LIMIT = frozenset({15, 9})
_TERMINATED_BY = re.compile(r" and terminated by ([^@\s]+)@")


def short_name(tag: str) -> str:
    """Return the job's name for PBS: 15 characters, always the same for the same tag."""
    return f"hpcq-{blake2b(tag.encode(), digest_size=5).hexdigest()}"


def read_job(record: Record, user: str | None = None) -> JobReport:
    """Read one job. user: whose jobs count as ours; None if that does not matter."""
    word = record.get("job_state")
    state, reason, exit_code = _end(record) if word in _ENDED else (_STATES.get(word, JobState.UNKNOWN), "", None)
    if state is JobState.UNKNOWN and not reason:
        reason = f"job_state {word or 'missing'}"
    waits = state is JobState.QUEUED
    comment = record.get("comment")
    still = _STANDING_STILL.get(word, "")
    if still:
        # Told to go on, it waits until its nodes are free again. Before that, its comment is that of its start.
        reason = f"{still}; told to go on, it waits: {comment.strip()}" if comment.startswith("Not Running") else still
    return JobReport(
        native_id=record.name,
        state=state,
        native_state=word,
        reason=_waiting_words(record) if waits else reason or comment,
        nodes=exec_hosts(record.get("exec_host")),
        exit_code=exit_code,
        wait=read_wait(word, record.get("Hold_Types"), comment) if waits else Wait.ORDINARY,
        name=tag_of(record),
        mine=None if user is None else owner(record) == user,
        own_request=_ended_by(comment, user) if state is JobState.CANCELLED else None,
        stands_still=bool(still),
    )


def _ended_by(comment: str, user: str | None) -> bool | None:
    """Whether this user deleted the job. If the job had not started, PBS does not say who deleted it."""
    match = _TERMINATED_BY.search(comment)
    return None if match is None or user is None else match[1] == user


def owner(record: Record) -> str:
    """Return the job's user: Job_Owner without the host."""
    return record.get("Job_Owner").partition("@")[0]


def tag_of(record: Record) -> str:
    """Return the whole tag if the job's name proves it; else that name."""
    name, tag = record.get("Job_Name"), record.variable(TAG_VARIABLE)
    return tag if tag and short_name(tag) == name else name


def _waiting_words(record: Record) -> str:
    held = record.get("Hold_Types").replace("n", "")
    words = record.get("comment")
    if record.get("job_state") == "H" and held:
        words = f"held ({held}): {words}" if words else f"held ({held})"
    elif record.get("job_state") == "W":
        words = words or "waits for its time, or for files"
    expected = record.get("estimated.start_time")
    if expected in {"", "UNKNOWN"}:  # PBS estimates for the first jobs of the queue only
        return words
    return f"{words}; PBS expects it to start {expected}".removeprefix("; ")


def _killed(record: Record, code: int) -> tuple[JobState, str, int]:
    """Return how a job ended that a signal killed. Old releases do not say that its time was over; what it used does."""
    used, asked = seconds(record.get("resources_used.walltime")), seconds(record.get("Resource_List.walltime"))
    if code - _SIGNALLED in _ENDS_AT_LIMIT and used is not None and asked is not None and used >= asked:
        return JobState.TIMED_OUT, "walltime exceeded", code
    return JobState.FAILED, f"killed by signal {code - _SIGNALLED}", code


def _end(record: Record) -> tuple[JobState, str, int | None]:
    """Return how a job ended: state, reason, exit code. A job without an exit code never counts as successful."""
    code, substate = record.number("Exit_status"), record.number("substate")
    comment = record.get("comment")
    # If the daemon of another of its nodes had died, a deleted job ends as failed. Its comment still says who deleted
    # it.
    if substate == _TERMINATED or _TERMINATED_BY.search(comment):
        return JobState.CANCELLED, comment, None if code is None or code < 0 else code
    if code is None:
        return JobState.FAILED, f"ended without having run: {comment}" if comment else "ended without having run", None
    if code in _OWN_CODES:
        state, why = _OWN_CODES[code]
        return state, why, None
    if code < 0:
        return JobState.FAILED, f"PBS ended it with code {code}", None
    if code >= _SIGNALLED:
        return _killed(record, code)
    # An array may end with 0 although some of its jobs failed: its substate shows that.
    return (JobState.COMPLETED if code == 0 and substate != _FAILED else JobState.FAILED), comment, code

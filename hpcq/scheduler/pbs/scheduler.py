"""PBS: which commands to type and how to read the answers. For OpenPBS from 18.1 and PBS Professional from 18.2."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from hpcq.errors import SchedulerError, UserError
from hpcq.scheduler.administration import Administration
from hpcq.scheduler.base import JobLimits, Partition, Scheduler, SiteSurvey, node_classes
from hpcq.scheduler.description import Description, Key, KeyForm, SharedKey, directive_check
from hpcq.scheduler.pbs import shell
from hpcq.scheduler.pbs.administration import ID_PATTERN as RESERVATION_PATTERN
from hpcq.scheduler.pbs.administration import (
    PbsAdministration,
    called,
    probe_command,
    read_made,
    read_reservations,
    seen_from_inside,
    site_items,
    taken_soon,
)
from hpcq.scheduler.pbs.nodes import (
    DSV,
    Listed,
    Vnode,
    by_name,
    cpus_of,
    exec_hosts,
    hosts_of,
    leaves,
    named_hosts,
    read_dsv,
    read_foreign,
    read_plain,
    read_vnode,
    reserved_cpus,
    sets_apart,
)
from hpcq.scheduler.pbs.queues import NO_PROJECT, Asker, Queues, read_job_limits, seconds, submit_limit
from hpcq.scheduler.types import (
    CheckedItem,
    Fate,
    JobKey,
    JobReport,
    JobState,
    NodeCondition,
    NodeState,
    OtherJob,
    SchedulerSettings,
    Submission,
    Submitted,
    Wait,
)
from hpcq.topology import Topology
from hpcq.transport import Completed, Transport, quote

# ----------------------------------------------------------------------------------------------------------------------
# As plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables.

#: Options that hpcq writes into every job. A second one would win or lose silently.
_OWN_OPTIONS = ("-N", "-o", "-e", "-j", "-r", "-k", "-J", "-v", "-V", "-a", "-C", "-S", "-u")
_KEY_OPTIONS = {"-q": "queue", "-A": "account", "-P": "project"}
_HELD = "a held job never starts: hpcq would wait for it in vain"
_REFUSED = {
    "-h": _HELD,
    "-I": "an interactive job has no script",
    "-X": "an interactive job has no script",
    "-f": "hpcq sets how qsub ends",
    "-z": "hpcq reads the id that qsub prints",
    "-W block": "qsub would wait for the job, and hpcq for qsub",
    "-W umask": "hpcq keeps what its jobs write to their user",
    "-W tolerate_node_failures": "the key tolerate_node_failures of this file says it",
    "-l select": "the key select of this file says it",
    "-l place": "the key place of this file says it",
    "-l nodes": "hpcq names the hosts of every job: use the key select of this file",
    "-l walltime": "hpcq sets the walltime of every job",
    "-l": "the key resources of this file says it, like resources: filesystems=home:eagle",
}
#: What `-l` sets otherwise in jobs of hpcq, and what PBS takes in a chunk of select only.
_NOT_JOB_WIDE = {
    "select": "is the key select of this file",
    "place": "is the key place of this file",
    "walltime": "is set by hpcq for every job",
    "nodes": "cannot go with select, by which hpcq names the hosts of every job",
    **dict.fromkeys(("ncpus", "mem", "vmem", "mpiprocs", "ompthreads"), "belongs to each chunk: the key select of this file"),
}


def _check_resource(word: str) -> str | None:
    name, sign, _ = word.partition("=")
    if not sign or not name:
        return "must be a resource and its value, like filesystems=home:eagle"
    return f"{name} {_NOT_JOB_WIDE[name]}" if name in _NOT_JOB_WIDE else None


def no_server(server_variable: str) -> Callable[[str], str | None]:
    """Return a check of a queue's name: the server of `queue@server` is chosen by a variable, for every command."""

    def check(queue: str) -> str | None:
        name, sign, server = queue.partition("@")
        if not sign:
            return None
        return (
            f"must be a queue of one server: queue: {name or 'NAME'}, and instance: {{{server_variable}: {server or 'HOST'}}}"
        )

    return check


#: qstat alone may be another program's: Grid Engine has one, too.
_FOUND_BY = (
    "{ command -v qstat && qstat --version 2>&1 | grep -q pbs_version; } >/dev/null"
    ' || [ -x "$(sed -n \'s/^PBS_EXEC=//p\' "${PBS_CONF_FILE:-/etc/pbs.conf}" 2>/dev/null)/bin/qstat" ]'
)

DESCRIPTION = Description(
    kind="pbs",
    title="PBS",
    keys=(
        Key("queue", "partition", "Queue of the jobs. Default: the server's.", check=no_server("PBS_SERVER")),
        Key("account", "account", "Account that is charged (qsub -A)."),
        Key("project", None, "Project that is charged (qsub -P)."),
        Key("reservation", "reservation", "Reservation to run in: its id, like R12, or its name."),
        Key("select", None, "What each chunk of select gets beside its host, like ncpus=64:mpiprocs=1."),
        Key(
            "resources",
            None,
            "Resources of the job as a whole, each a qsub -l: filesystems=home:eagle, storage=scratch/ab1.",
            KeyForm.WORDS,
            check=_check_resource,
        ),
        Key("place", None, "How a job is placed. Default: scatter:exclhost, whole hosts of its own."),
        Key(
            "tolerate_node_failures",
            None,
            "Whether a tournament outlives a node that is lost: all, or none. Default: all; none where PBS is older than 18.",
        ),
        Key(
            "task_starter",
            None,
            "What starts processes on a job's other nodes: pbs_tmrsh, or pbsdsh. Default: pbs_tmrsh.",
            allowed=("pbs_tmrsh", "pbsdsh"),
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by=_FOUND_BY,
    head_template="pbs.directives.j2",
    # seq: rank 0 on the first line of the file. Mapping by node puts it on the node of mpirun itself.
    default_mpi_launch=("mpirun", "-np", "{count}", "--hostfile", "{hostfile}", "--map-by", "seq"),
    scrubbed_prefixes=("PBS_", "QSUB_"),
    kept_variables=frozenset({"PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC"}),
    instance_variables=("PBS_CONF_FILE", "PBS_SERVER"),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED),
)


# ----------------------------------------------------------------------------------------------------------------------
# What the exit code of a PBS command means: the server's error number modulo 256, or the command's own complaint.
#
# Source: src/include/pbs_error.h of OpenPBS 23.06, for licences that of 20.0; docs/pbs.md lists those that a live
# server showed.


class Outcome(StrEnum):
    """What the exit code of a command means for hpcq."""

    DONE = "done"
    #: The server does not know the id, queue, reservation or node.
    UNKNOWN_JOB = "unknown job"
    FINISHED_JOB = "finished job"
    NO_HISTORY = "no history"
    UNKNOWN_QUEUE = "unknown queue"
    UNKNOWN_RESERVATION = "unknown reservation"
    #: This user may not have more at present.
    USER_LIMIT = "user limit"
    #: The job asks for more than its queue or server allows.
    JOB_LIMIT = "job limit"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"
    #: The state of the job or the node does not allow it.
    WRONG_STATE = "wrong state"
    #: The server did not answer: nothing has happened.
    SERVER_DOWN = "server down"
    NODE_UNREACHABLE = "node unreachable"
    USAGE = "usage"
    #: The command was killed: hpcq cannot know what it did before.
    KILLED = "killed"
    UNKNOWN = "unknown"


_OUTCOMES: Final = {
    0: Outcome.DONE,
    1: Outcome.USAGE,
    2: Outcome.USAGE,
    **dict.fromkeys((4, 5, 6, 7, 8, 9, 12), Outcome.REFUSED),  # resources that do not go together
    13: Outcome.SERVER_DOWN,  # the server's connection table is full
    17: Outcome.SERVER_DOWN,  # PBS Professional: its licence server is down
    32: Outcome.REFUSED,  # a hook's
    35: Outcome.FINISHED_JOB,
    36: Outcome.NO_HISTORY,
    38: Outcome.USER_LIMIT,  # number of jobs
    39: Outcome.USER_LIMIT,  # sum of a resource
    40: Outcome.REFUSED,
    54: Outcome.FINISHED_JOB,
    **dict.fromkeys((64, 65, 69, 71), Outcome.REFUSED),
    73: Outcome.WRONG_STATE,  # the other word for resuming is needed
    104: Outcome.SERVER_DOWN,  # try again later
    123: Outcome.WRONG_STATE,  # node is busy
    153: Outcome.UNKNOWN_JOB,
    **dict.fromkeys((154, 155, 156, 157), Outcome.REFUSED),
    159: Outcome.FORBIDDEN,
    160: Outcome.SERVER_DOWN,  # unknown server host
    162: Outcome.SERVER_DOWN,  # connection refused
    163: Outcome.UNKNOWN,  # internal error of the server
    166: Outcome.REFUSED,
    167: Outcome.WRONG_STATE,
    168: Outcome.WRONG_STATE,
    170: Outcome.UNKNOWN_QUEUE,
    171: Outcome.FORBIDDEN,
    172: Outcome.FORBIDDEN,
    173: Outcome.REFUSED,  # queue disabled
    174: Outcome.FORBIDDEN,
    175: Outcome.FORBIDDEN,
    184: Outcome.REFUSED,
    185: Outcome.SERVER_DOWN,  # no free connections
    186: Outcome.SERVER_DOWN,  # no server
    187: Outcome.REFUSED,  # unknown resource
    188: Outcome.JOB_LIMIT,
    189: Outcome.REFUSED,  # no default queue
    190: Outcome.WRONG_STATE,
    191: Outcome.REFUSED,
    194: Outcome.REFUSED,
    196: Outcome.WRONG_STATE,
    197: Outcome.REFUSED,
    198: Outcome.USER_LIMIT,  # number of jobs in a queue
    201: Outcome.REFUSED,  # account
    202: Outcome.WRONG_STATE,
    206: Outcome.REFUSED,
    212: Outcome.SERVER_DOWN,  # shutting down
    214: Outcome.REFUSED,  # unknown node
    222: Outcome.NODE_UNREACHABLE,
    **dict.fromkeys((229, 233), Outcome.WRONG_STATE),
    235: Outcome.USAGE,
    236: Outcome.UNKNOWN_RESERVATION,
    238: Outcome.REFUSED,  # bad time
    242: Outcome.SERVER_DOWN,  # PBS Professional: more processors than licences now
    **dict.fromkeys((244, 245, 246), Outcome.FORBIDDEN),
    250: Outcome.SERVER_DOWN,  # PBS Professional: no licence is free
    251: Outcome.SERVER_DOWN,  # no scheduler
    255: Outcome.SERVER_DOWN,  # qstat, of a server that does not answer
}
#: 128 plus a signal: a shell reports a killed command this way. The server's numbers begin above.
_SIGNALS = range(129, 152)


def outcome(code: int) -> Outcome:
    """Return what an exit code means. For an unknown code it says so."""
    if code in _SIGNALS or code < 0:
        return Outcome.KILLED
    return _OUTCOMES.get(code, Outcome.UNKNOWN)


# ----------------------------------------------------------------------------------------------------------------------
# What `hpcq cluster new` offers to choose from.


def read_survey(answer: str) -> SiteSurvey:
    """Read the answer of `survey_command`: each queue, with its nodes and this user's limits."""
    listed, _, nodes = answer.partition(f"{shell.NODES_MARK}\n")
    user, groups = _who(listed)
    records = read_dsv(listed)
    queues = Queues.of(records)
    vnode_records = [record for record in read_dsv(nodes) if record.kind == "Name"]
    hardware = {read_vnode(one).host: _hardware(one) for one in vnode_records}
    vnodes = [read_vnode(one) for one in vnode_records]
    partitions = []
    for name in queues.by_name:
        states = hosts_of(vnodes, queues.may_run(name, vnodes))
        partitions.append(
            Partition(
                limits=read_job_limits(records, name, Asker(user, groups)),
                is_default=name == queues.named(None),
                node_count=len(states),
                idle_count=sum(one.condition is NodeCondition.IDLE for one in states),
                hardware=node_classes((hardware.get(one.node, "unknown size"), 1) for one in states),
            )
        )
    return SiteSurvey(queues.server.name.partition(".")[0], tuple(partitions))


def _hardware(vnode: Listed) -> str:
    """Return the size of a node in words: a vnode with its resources, of a host that is one vnode."""
    has = vnode.below("resources_available")
    memory = re.fullmatch(r"(\d+)kb", has.get("mem", ""))
    words = [f"{has.get('ncpus', '?')} CPUs"]
    words += [f"{int(memory[1]) / 2**20:.0f} GiB"] if memory else []
    return ", ".join([*words, *(f"{name}:{has[name]}" for name in ("ngpus", "nmics") if has.get(name, "0") != "0")])


# ----------------------------------------------------------------------------------------------------------------------
# What PBS gives as the reason that a job still waits, and what that means for our jobs. Pure.
#
# Source: the comments of the scheduler of OpenPBS 23.06 (src/scheduler/job_info.cpp, fctt); those of PBS Professional
# begin alike.


_PREFIX = "Not Running: "
#: Of pbs_sched of Torque, before an error.
_OTHER_PREFIX = "Not Running - "
#: After any prefix.
_NEVER = (
    "Can Never Run",
    "job held, too many failed attempts to run",
    f"{_PREFIX}Not enough total nodes available",
    f"{_PREFIX}can't fit in the largest placement set",
    f"{_PREFIX}Node can't satisfy a multi-node job",
    f"{_PREFIX}Invalid Job/Resv",
    f"{_PREFIX}Specified ",
)
_NODE = (
    "Node is in an ineligible state",
    "Node is of an ineligible type",
    "Node not eligible for advance reservation",
    "Job would interfere with a confirmed reservation",
)
#: The nodes that fit are in use, or kept for a job that comes first.
_NODES_IN_USE = (
    "Not enough free nodes",
    "Not enough of the right type of nodes",
    "Job would interfere with a top job",
    "Job would conflict with reservation or top job",
    "Job would break strict sorted order",
    "Too few free resources",
    "No available resources on nodes",
    "Can't preempt enough work",
    "Provisioning for job would interfere with backfill job",
    "Provision conflict with existing job/reservation",
    # of pbs_sched of Torque
    "Not enough cpus available",
    "Not enough memory available",
    "Not enough nodes available",
    "Draining system to allow ",
)
#: They pass when a person acts, a job ends or a time comes.
_LIMIT = re.compile(
    r"limit|would exceed|[Dd]edicated|primetime|Job will cross into|Queue not|Scheduling is|Internal Scheduling Error"
    r"|threshold|zero shares|mission|licen[sc]e|PBS Error|[Cc]annot provision|small cpusets|pack placement"
    r"|Job not in queued state|Insufficient amount of (queue|server) resource"
)
_EXCLUSIVE = " is requesting an exclusive node and node is in use"
#: "Placement set switch=s1 has …", or another kind of set: nodes are in use, or the named ones are of several sets.
_SET_TOO_SMALL = "has too few free resources"
#: A resource of a node. Where it is a word that no node has now, the comment says so: `Qlist (debug != workq)`.
_RESOURCE, _OTHER_WORD = "Insufficient amount of resource: ", "!="
#: A named node is in use, offline, down or absent. Only the list of nodes shows which of these is true.
_NAMED_NODES = re.compile(rf"{_PREFIX}{_RESOURCE}(host|vnode)\b")


def read_wait(state: str, holds: str, comment: str) -> Wait:
    """Classify job_state, Hold_Types and comment of a queued job. Only comments of the scheduler say what it waits for."""
    if comment.startswith(_NEVER):
        return Wait.NEVER
    if state in {"H", "W"} or holds.strip("n"):
        return Wait.LIMIT
    words = comment.removeprefix(_PREFIX).removeprefix(_OTHER_PREFIX)
    if words == comment or names_nodes(comment):
        return Wait.ORDINARY
    if words.startswith(_NODE):
        return Wait.NODE
    if _SET_TOO_SMALL not in words and _in_use(words):
        return Wait.LIMIT if _OTHER_WORD in words else Wait.ORDINARY
    return Wait.LIMIT if _LIMIT.search(words) else Wait.UNKNOWN


def names_nodes(comment: str) -> bool:
    """Whether the comment says that one of the named nodes is unavailable now, whatever the reason."""
    return _NAMED_NODES.match(comment) is not None


def is_waiting_for_nodes(comment: str) -> bool:
    """Whether another user's job waits for nodes that are in use."""
    return comment.startswith(_PREFIX) and _in_use(comment.removeprefix(_PREFIX))


def is_sure_of_nodes(comment: str) -> bool:
    """Whether nodes that are in use are what it waits for: they may also be down, or lack what it asks for."""
    return is_waiting_for_nodes(comment) and not names_nodes(comment) and _OTHER_WORD not in comment


def _in_use(words: str) -> bool:
    return words.startswith((*_NODES_IN_USE, _RESOURCE)) or _EXCLUSIVE in words or _SET_TOO_SMALL in words


# ----------------------------------------------------------------------------------------------------------------------
# Read a job's record of `qstat -f`, while the job waits, while it runs and after its end.
#
# A job of hpcq has two names: the short one that PBS shows (old PBS allows 15 characters), and the whole
# tag in its environment as HPCQ_TAG. A report gives the tag if the short name belongs to it, else the short name.
#
# `Exit_status` and `substate` show how a job ended. hpcq's own exit file takes precedence. With history off, it is the
# only source.


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


def read_job(record: Listed, user: str | None = None) -> JobReport:
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
        scheduler_job_id=record.name,
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


def owner(record: Listed) -> str:
    """Return the job's user: Job_Owner without the host."""
    return record.get("Job_Owner").partition("@")[0]


def tag_of(record: Listed) -> str:
    """Return the whole tag if the job's name proves it; else that name."""
    name, tag = record.get("Job_Name"), record.variable(TAG_VARIABLE)
    return tag if tag and short_name(tag) == name else name


def _waiting_words(record: Listed) -> str:
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


def _killed(record: Listed, code: int) -> tuple[JobState, str, int]:
    """Return how a job ended that a signal killed. Old releases do not say that its time was over; what it used does."""
    used, asked = seconds(record.get("resources_used.walltime")), seconds(record.get("Resource_List.walltime"))
    if code - _SIGNALLED in _ENDS_AT_LIMIT and used is not None and asked is not None and used >= asked:
        return JobState.TIMED_OUT, "walltime exceeded", code
    return JobState.FAILED, f"killed by signal {code - _SIGNALLED}", code


def _end(record: Listed) -> tuple[JobState, str, int | None]:
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


# ----------------------------------------------------------------------------------------------------------------------
# Read the outcome of a `qsub`: from its exit code, or from its words if the code leaves it open.


#: Words of the limits on a user's number of jobs. Source: src/lib/Liblog/pbs_messages.c, msg_et_*.
LIMIT_WORDS = ("would exceed ", "Maximum number of jobs")
_FATES = {
    Outcome.USER_LIMIT: Fate.LIMITED,
    Outcome.JOB_LIMIT: Fate.REFUSED,
    Outcome.FORBIDDEN: Fate.REFUSED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.UNKNOWN_QUEUE: Fate.REFUSED,
    Outcome.WRONG_STATE: Fate.REFUSED,
    Outcome.USAGE: Fate.REFUSED,
    Outcome.SERVER_DOWN: Fate.UNSURE,
    Outcome.KILLED: Fate.UNDETERMINED,
    Outcome.UNKNOWN: Fate.UNDETERMINED,
}
#: With any exit code, these words mean that qsub never reached the server, so it took no job.
_AWAY = ("cannot connect to server", "Connection refused")
_NOT_REACHED = (*_AWAY, "No Permission")
#: Exit codes 1 and 2 come from qsub itself; these words say that it sent nothing.
_OWN_COMPLAINTS = (
    "usage:",
    "illegal",
    "script file",
    "script not a file",
    "name is too long",
    "cannot send environment",
    "conflicting options",
)


def read_submission(tag: str, done: Completed, scheduler_job_id: str) -> Submitted:
    """Return the fate of a submission; TAKEN only with an id. done: exit code and both outputs of qsub."""
    words = " ".join(f"{done.stderr} {done.text if done.returncode else ''}".split())
    if done.returncode == 0:
        if scheduler_job_id:
            return Submitted(tag, scheduler_job_id)
        return Submitted(tag, None, words or f"no id in the answer {done.text.strip()!r}", Fate.UNDETERMINED)
    end = outcome(done.returncode)
    fate = _FATES.get(end, Fate.UNSURE)
    if any(sign in words for sign in _NOT_REACHED):
        fate = Fate.UNSURE
    elif any(sign in words for sign in LIMIT_WORDS):
        fate = Fate.LIMITED
    elif end is Outcome.USAGE and not any(sign in words for sign in _OWN_COMPLAINTS):
        fate = Fate.UNSURE
    return Submitted(tag, None, words or f"qsub ended with {done.returncode}", fate)


# ----------------------------------------------------------------------------------------------------------------------


#: Whole hosts: `excl` alone would leave a host's other vnodes to other jobs.
PLACE = "scatter:exclhost"
#: PBS did not give the nodes that `make` asked for: another job or reservation has one of them.
_DENIED = ("DENIED", "UNCONFIRMED")
_NCPUS = re.compile(r"\bncpus=([0-9]{1,9})\b")
#: How long a listing of the queues is good.
_QUEUES_FOR_S = 600.0
#: How long hpcq waits for PBS to confirm another end of a reservation: it takes less than 1 s, and no driver may hang.
_ANSWER_WITHIN_S = 5


class SubmitsByQsub(Scheduler):
    """What PBS and Torque have in common: what their qsub answers."""

    id_pattern = ID_PATTERN

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        return read_submission(tag, done, self.read_scheduler_job_id(done.text))

    def read_scheduler_job_id(self, answer: str) -> str:
        scheduler_job_id = answer.strip()
        return scheduler_job_id if ID_PATTERN.fullmatch(scheduler_job_id) else ""

    def limit_words(self) -> Sequence[str]:
        return LIMIT_WORDS


class Pbs(SubmitsByQsub):
    """qsub, qstat, qselect, qdel, pbsnodes, pbs_rsub."""

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: The reservation's queue, once known: the server names it.
        self._reservation_queue: str | None = None
        #: How many processors a job gets on each host.
        self._cpus: dict[str, int] = {}
        self._queues = Queues()
        #: When the queues were listed last: they change seldom.
        self._queues_s = -math.inf
        self._vnodes: list[Vnode] = []

    def _answered(self, done: Completed, what: str) -> Completed:
        """Raise UserError where another batch system answers: asking again would not help."""
        _, marked, said = done.stderr.partition(f"{shell.FOREIGN_MARK}\n")
        foreign = read_foreign(said) if marked and done.returncode != 0 else None
        if foreign is not None:
            if foreign.startswith("Torque"):
                raise UserError(f"{self.transport.where}: this is {foreign}: not PBS", "scheduler: torque in the cluster file")
            hint = "docs/extending.md says what its package needs"
            raise UserError(f"{self.transport.where}: this is {foreign}: hpcq does not speak it yet", hint)
        return super()._answered(done, what)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def nodes_command(self) -> str:
        named = self.settings.reservation is not None or self._is_reservation(self.settings.partition)
        return shell.nodes(reservations=named, queues=time.monotonic() - self._queues_s > _QUEUES_FOR_S)

    def read_nodes(self, answer: str) -> list[NodeState]:
        listed, _, reserved = answer.partition(f"{shell.RESERVATIONS_MARK} ")
        records = read_dsv(listed)
        queues = Queues.of(records)
        if queues.server.name or queues.by_name:
            self._queues, self._queues_s = queues, time.monotonic()
        vnodes = self._vnodes = [read_vnode(record) for record in records if record.kind == "Name"]
        states = hosts_of(vnodes, self._may_run(self._queues.named(self.settings.partition)))
        now, _, text = reserved.partition("\n")
        reservations = read_reservations(text)
        # A reservation's queue is the reservation, whatever key of the cluster file names it.
        by_queue = next((one.queue for one in reservations if one.queue == self.settings.partition), None)
        name = self.settings.reservation or by_queue
        ours = called(reservations, name) or called(reservations, short_name(name)) if name else None
        self._reservation_queue = ours.queue if ours is not None and not ours.ending else None
        self._cpus = cpus_of(vnodes) | (reserved_cpus(ours.resv_nodes, vnodes) if ours is not None else {})
        if name and (ours is not None or not self.settings.own_reservation):
            return seen_from_inside(states, vnodes, ours, name)
        return taken_soon(states, vnodes, reservations, now)

    def topology_command(self) -> str | None:
        return shell.topology()

    def read_topology(self, answer: str) -> Topology:
        listed, _, said = answer.partition(f"{shell.SCHEDULERS_MARK}\n")
        records, queue = read_dsv(listed), self.settings.partition
        vnodes = [read_vnode(record) for record in records if record.kind == "Name"]
        queues = Queues.of(records)
        keys, explicit = queues.unspanned(queue, self.settings.extra.get("place", ""), read_plain(said))
        # In a reservation that somebody made, PBS asks nothing of sets.
        inside = self._is_reservation(queue) or (self.settings.reservation is not None and not self.settings.own_reservation)
        return Topology(leaves(vnodes, queues.group_keys(queue)), {} if inside else sets_apart(vnodes, keys, explicit=explicit))

    def _may_run(self, queue: str) -> Callable[[Vnode], bool]:
        """Return a test of a vnode: whether jobs of a queue may run there, or of one that it passes them on to."""
        if self._is_reservation(queue) or (self.settings.reservation is not None and not self.settings.own_reservation):
            return lambda _: True  # its hosts may be of any queue
        return self._queues.may_run(queue, self._vnodes, self.settings.extra.get("select", ""))

    @staticmethod
    def _is_reservation(queue: str | None) -> bool:
        return RESERVATION_PATTERN.fullmatch(queue or "") is not None

    # -- submitting -------------------------------------------------------------------------------------------------

    def submit_command(self, submission: Submission) -> str:
        queue = f" -q {quote(self._reservation_queue)}" if self._reservation_queue else ""
        named = f"-N {short_name(submission.tag)} -v {quote(f'{TAG_VARIABLE}={submission.tag}')}"
        command = f"{shell.PRELUDE}exec qsub{queue}{self._select(submission)} {named} {quote(submission.script)}"
        return f"/bin/sh -c {quote(command)}"

    def _select(self, submission: Submission) -> str:
        """Return the option that gives a job all processors of its hosts; it goes before the script's own select.

        PBS gives a chunk one processor otherwise, whose number is also OMP_NUM_THREADS. "" if the cluster file says how
        many, or nobody knows.
        """
        added = self.settings.extra.get("select", "")
        cpus = [self._cpus.get(node) for node in submission.nodes]
        if not cpus or None in cpus or _NCPUS.search(added):
            return ""
        chunks = [
            f"1:host={node}:ncpus={count}{f':{added}' if added else ''}"
            for node, count in zip(submission.nodes, cpus, strict=True)
        ]
        return f" -l select={quote('+'.join(chunks))}"

    def estimate_command(self, submission: Submission) -> str | None:
        """Return None: PBS estimates starts only for jobs that it has. hpcq can only ask for free nodes."""
        return f"printf '%s\\n' {quote(' '.join(submission.nodes))}; {self.nodes_command()}"

    def read_estimate(self, done: Completed) -> float | None:
        wanted, _, listed = done.text.partition("\n")
        states = {state.node: state.condition for state in self.read_nodes(listed)} if done.returncode == 0 else {}
        free = [states.get(node) is NodeCondition.IDLE for node in wanted.split()]
        return 0.0 if free and all(free) else None

    # -- jobs -------------------------------------------------------------------------------------------------------

    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        return shell.listing([job.scheduler_job_id for job in jobs])

    def read_poll(self, done: Completed) -> list[JobReport]:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        odd = [line for line in lines if not _is_of_a_job(line)]
        reports = self._reports_of(done.text)
        # A wrapper may warn with each answer: what counts is whether every id that was asked for has an answer.
        if outcome(done.returncode) not in _ANSWERS or (odd and not _all_answered(done.text, reports, lines)):
            raise SchedulerError(f"{self.transport.where}: qstat: {'; '.join(odd) or f'exit code {done.returncode}'}")
        return reports

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:
        return shell.listing([job.scheduler_job_id for job in jobs], ended=True)

    def read_history(self, done: Completed) -> list[JobReport]:
        if outcome(done.returncode) not in _ANSWERS:
            raise SchedulerError(f"{self.transport.where}: qstat -x: {done.stderr.strip() or done.returncode}")
        return self._reports_of(done.text)  # without history there are none, and the exit file is the only source

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        return shell.cancel([(job.scheduler_job_id, short_name(job.tag)) for job in jobs], queued_only=queued_only)

    def find_command(self, tags: Sequence[str]) -> str:
        return shell.find([short_name(tag) for tag in tags])

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        return [(tag_of(record), record.name) for record in read_dsv(answer) if record.kind == "Job Id"]

    def away_words(self) -> Sequence[str]:
        return _AWAY

    def others_command(self) -> str | None:
        return shell.others()

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:
        found = []
        for record in read_dsv(answer):
            comment = record.get("comment")
            if self._shares_nodes(record.get("queue")) and is_waiting_for_nodes(comment):
                named = named_hosts(record.get("Resource_List.select"))
                found.append(OtherJob(record.name, sure=is_sure_of_nodes(comment), nodes=named))
        return tuple(found)

    def mine_command(self) -> str | None:
        return shell.subshell('qselect -u "$(id -un)"')

    # -- limits -----------------------------------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        return shell.limits()

    def read_job_limits(self, answer: str) -> JobLimits:
        return read_job_limits(read_dsv(answer), self._queue, self._asker(answer), self._cpus_of_jobs())

    def limit_command(self) -> str | None:
        return shell.limits()

    def read_limit(self, answer: str) -> int | None:
        return submit_limit(read_dsv(answer), self._queue, self._asker(answer))

    def _asker(self, answer: str) -> Asker:
        user, groups = _who(answer)
        return Asker(user, groups, self.settings.extra.get("project", NO_PROJECT))

    def _cpus_of_jobs(self) -> tuple[int, int] | None:
        """Return how many processors a job gets on a host, at least and at most; None before the nodes were listed."""
        chosen = _NCPUS.search(self.settings.extra.get("select", ""))
        if chosen is not None:
            return (int(chosen[1]), int(chosen[1])) if int(chosen[1]) else None
        may_run = self._may_run(self._queues.named(self._queue))
        hosts = {one.node for one in hosts_of(self._vnodes, may_run)}
        counts = [self._cpus[host] for host in hosts if host in self._cpus]
        return (min(counts), max(counts)) if counts else None

    # -- reservations of a run --------------------------------------------------------------------------------------

    def may_reserve_command(self) -> str | None:
        return shell.limits()

    def read_may_reserve(self, done: Completed) -> str | None:
        server = next((record for record in read_dsv(done.text) if record.kind == "Server"), None)
        if server is None:
            return f"the server does not say: {' '.join(done.stderr.split())}"
        return None if server.get("resv_enable") == "True" else "reservations are switched off there (resv_enable)"

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:
        short = short_name(name)
        if verb == "make":
            chunks = [f"1:host={node}:ncpus={self._cpus.get(node, 1)}" for node in nodes]
            return shell.reserve(short, chunks, self.settings.extra.get("place", PLACE), minutes)
        orders = {
            "show": 'echo "$id $queue"',
            "prolong": f'pbs_ralter -I {_ANSWER_WITHIN_S} -E {shell.later(minutes)} "$id"',
            # Removing a reservation ends its jobs in PBS, so hpcq keeps one that has jobs.
            "remove": '[ -z "$(qselect -q "$queue")" ] || { echo "jobs are in it" >&2; exit 1; }\npbs_rdel "$id"',
        }
        return shell.of_reservation(name, short, orders[verb])

    def reservation_refusal(self, verb: str, done: Completed) -> str | None:
        words = " ".join(f"{done.stderr} {done.text}".split())
        if done.returncode != 0:
            return words or f"exit code {done.returncode}"
        if verb == "make":
            made = read_made(done.text)
            if made is None or not made[1]:  # PBS also ends with 0 when it denies one
                return words or "no answer"
            self._reservation_queue = made[0].partition(".")[0]
        elif verb == "prolong" and _DENIED[0] in words:  # as with one of its nodes offline; and ends with 0
            return words
        elif verb == "remove":
            self._reservation_queue = None
        return None

    def busy_words(self) -> Sequence[str]:
        return _DENIED

    # -- the site ---------------------------------------------------------------------------------------------------

    def survey_command(self) -> str | None:
        return f"{shell.limits()} || exit 1\nprintf '{shell.NODES_MARK}\\n'\n{shell.subshell(f'pbsnodes -av {DSV}')}"

    def read_survey(self, answer: str, account: str | None) -> SiteSurvey:  # noqa: ARG002 - no list of accounts is kept
        return read_survey(answer)

    def versions_command(self) -> str:
        return shell.subshell("qstat --version")

    def probe_command(self, script: str) -> str:
        return probe_command(script, self.settings, self._reservation_queue)

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
        return site_items(
            self.transport, self.settings, mpi_launch, queues=self._queues, vnodes=self._vnodes, cpus=self._cpus_of_jobs()
        )

    def memory_lock_advice(self) -> str:
        return "MPI over RDMA wants unlimited: raise it where pbs_mom is started (PBS_EXEC/lib/init.d/limits.pbs_mom)"

    def administration(self) -> Administration | None:
        return PbsAdministration(self.transport, self.settings.partition)

    # -- private ----------------------------------------------------------------------------------------------------

    @property
    def _queue(self) -> str | None:
        return self._reservation_queue or self.settings.partition

    def _shares_nodes(self, queue: str) -> bool:
        """Whether jobs of a queue may wait for our nodes."""
        ours = self._may_run(self._queues.named(self.settings.partition))
        theirs = self._may_run(queue)
        return not self._vnodes or any(ours(vnode) and theirs(vnode) for vnode in self._vnodes)

    def _reports_of(self, answer: str) -> list[JobReport]:
        listed, _, nodes = answer.partition(f"{shell.NODES_MARK}\n")
        user, _ = _who(listed)
        hosts = by_name([read_vnode(one) for one in read_dsv(nodes) if one.kind == "Name"])
        found = []
        for record in read_dsv(listed):
            report = read_job(record, user or None)
            queue = record.get("queue")
            if report.state is JobState.QUEUED and self._queues.routes(queue):
                behind = ", ".join(self._queues.behind(queue)) or "none that is known"
                words = f"in queue {queue}, which passes jobs on to {behind}: no queue takes it now"
                report = replace(report, wait=Wait.LIMIT, reason=f"{words}; {report.reason}".removesuffix("; "))
            if hosts and report.state is JobState.QUEUED and names_nodes(record.get("comment")):
                report = _with_nodes(report, named_hosts(record.get("Resource_List.select")), hosts)
            found.append(report)
        return found


_ANSWERS = {Outcome.DONE, Outcome.UNKNOWN_JOB, Outcome.FINISHED_JOB, Outcome.NO_HISTORY}
_GONE = {
    NodeCondition.DOWN,
    NodeCondition.DRAINED,
    NodeCondition.MAINTENANCE,
    NodeCondition.POWERED_DOWN,
    NodeCondition.RESERVED,
}


def _all_answered(answer: str, reports: Sequence[JobReport], complaints: Sequence[str]) -> bool:
    """Whether each id that was asked for has a report, or a complaint of its own. Servers shorten their name in ids."""
    asked = next((line.split()[1:] for line in answer.splitlines() if line.startswith(f"{shell.ASKED_MARK} ")), None)
    told = {one.scheduler_job_id.partition(".")[0] for one in reports}
    told |= {word.partition(".")[0] for line in complaints if _is_of_a_job(line) for word in line.split() if "." in word}
    return asked is not None and told.issuperset(one.partition(".")[0] for one in asked)


def _is_of_a_job(line: str) -> bool:
    """Whether a complaint is about one id only, so that the others were answered."""
    return "Unknown Job Id" in line or "Job has finished" in line or "not configured to maintain job history" in line


def _with_nodes(report: JobReport, named: Sequence[str], hosts: dict[str, NodeState]) -> JobReport:
    """Resolve the comment "Insufficient amount of resource: host".

    PBS says it of a host in use, of an offline one and of an absent one.
    """
    missing = [host for host in named if host not in hosts]
    if missing:
        return replace(report, wait=Wait.NEVER, reason=f"{report.reason.strip()}: there is no host {missing[0]}")
    gone = [f"{host} is {hosts[host].native_state}" for host in named if hosts[host].condition in _GONE]
    return replace(report, wait=Wait.NODE, reason=f"{report.reason.strip()}: {', '.join(gone)}") if gone else report


def _who(answer: str) -> tuple[str, list[str]]:
    """Return the user and the groups for which an answer was made."""
    user, groups = "", []
    for line in answer.split("\n"):
        if line.startswith(f"{shell.USER_MARK} "):
            user = line.removeprefix(f"{shell.USER_MARK} ").strip()
        elif line.startswith("@groups "):
            groups = line.split()[1:]
    return user, groups

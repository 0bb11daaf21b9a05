"""Torque: which commands to type and how to read the answers. For 4.2 to 6.1.

It shares its id, its short job names, its exit codes and the forms of its owners and hosts with PBS, whose package reads
them. Its own are the XML of `qstat -x` and `pbsnodes -x`, `-l nodes=a:ppn=4+b:ppn=4`, a state C for jobs that have ended,
and the codes of jobs that it ends itself. Source: the manual of Torque 6.1, man qsub, qstat, pbsnodes, pbs_job_attributes;
src/include/pbs_job.h (JOB_EXEC_*).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from xml.etree import ElementTree

from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import Administration, NodeUpkeep, Reservation, Upkeep
from hpcq.scheduler.base import JobLimits
from hpcq.scheduler.description import Description, Key, SharedKey, directive_check
from hpcq.scheduler.pbs.nodes import Listed, condition, read_plain
from hpcq.scheduler.pbs.queues import Asker, Queues, read_job_limits
from hpcq.scheduler.pbs.scheduler import (
    TAG_VARIABLE,
    Outcome,
    SubmitsByQsub,
    no_server,
    outcome,
    read_job,
    short_name,
    tag_of,
)
from hpcq.scheduler.types import (
    JobKey,
    JobReport,
    JobState,
    NodeCondition,
    NodeState,
    OtherJob,
    SchedulerSettings,
    Submission,
)
from hpcq.transport import Completed, Transport, quote

# ----------------------------------------------------------------------------------------------------------------------
# As plain data: its keys in a cluster file, the options that hpcq reserves, its environment variables.

_OWN_OPTIONS = ("-N", "-o", "-e", "-j", "-r", "-k", "-t", "-v", "-V", "-a", "-C", "-S", "-u")
_KEY_OPTIONS = {"-q": "queue", "-A": "account", "-W x": "access"}
_REFUSED = {
    "-h": "a held job never starts: hpcq would wait for it in vain",
    "-I": "an interactive job has no script",
    "-X": "an interactive job has no script",
    "-x": "an interactive job has no script",
    "-f": "a job is never started again: hpcq plans its pair anew",
    "-z": "hpcq reads the id that qsub prints",
    "-l nodes": "hpcq names the nodes of every job",
    "-l walltime": "hpcq sets the walltime of every job",
}

DESCRIPTION = Description(
    kind="torque",
    title="Torque",
    keys=(
        Key("queue", "partition", "Queue of the jobs. Default: the server's.", check=no_server("PBS_DEFAULT")),
        Key("account", "account", "Account that is charged (qsub -A)."),
        Key("ppn", None, "Processors of each node that a job gets. Default: all that the node has (np)."),
        Key(
            "access",
            None,
            "What the scheduler is told with qsub -W x=, or none. Default: NACCESSPOLICY:SINGLEJOB, which keeps others away.",
        ),
    ),
    takes=frozenset({SharedKey.LAUNCHER, SharedKey.EXTRA_DIRECTIVES, SharedKey.INSTANCE}),
    found_by="command -v qstat >/dev/null && qstat --version 2>&1 | grep -qi '^ *version:'",
    head_template="torque.directives.j2",
    default_mpi_launch=("mpirun", "-np", "{count}", "--hostfile", "{hostfile}", "--map-by", "seq"),
    scrubbed_prefixes=("PBS_", "QSUB_"),
    kept_variables=frozenset({"PBS_DEFAULT"}),
    instance_variables=("PBS_DEFAULT",),
    check_directive=directive_check(own=_OWN_OPTIONS, keys=_KEY_OPTIONS, refused=_REFUSED),
)


# ----------------------------------------------------------------------------------------------------------------------
# Its commands, and how to read the answers.

_USER = "@user "
_GROUPS = "@groups "
#: How the server ends a job itself. A job that was deleted ends with TERM.
_OWN_ENDS = {
    "-10": (JobState.OUT_OF_MEMORY, "it used more memory than it asked for"),
    "-11": (JobState.TIMED_OUT, "walltime exceeded"),
    "-12": (JobState.FAILED, "it used more processor time than it asked for"),
    "271": (JobState.CANCELLED, "deleted"),
}
#: Words of its nodes that PBS does not have. Source: ND_* of src/include/pbs_ifl.h.
_OWN_WORDS = {"MOM-list-not-sent": NodeCondition.DOWN, "reserve": NodeCondition.RESERVED}
_SERVER_AWAY = {Outcome.SERVER_DOWN, Outcome.USAGE, Outcome.KILLED, Outcome.UNKNOWN, Outcome.FORBIDDEN}
#: A start time that never comes, for a job that hpcq is about to delete.
_NEVER = "203712312359"
#: How many waiting jobs of other users one poll reads at most: the oldest ones matter.
_OTHERS_MAX = 200
#: Whether $id has this user's name, and $1, a job's.
_OURS = (
    'ours() { qstat -f "$id" 2>/dev/null | awk -v user="$(id -un)" -v name="$1" -v states="$2" \''
    '$1 == "Job_Name" {named = $3 == name} $1 == "Job_Owner" {split($3, who, "@"); mine = who[1] == user}'
    ' $1 == "job_state" {right = index(states, $3)} END {exit !(named && mine && right)}\'; }\n'
)
_TRIED_FOR_S = 15


def read_xml(text: str) -> list[Listed]:
    """Return the jobs and nodes of an answer, with the names that PBS gives their attributes. Raises ValueError."""
    start = text.find("<Data>")
    if start < 0:
        return []
    try:
        root = ElementTree.fromstring(text[start:].strip())  # noqa: S314 - the site's own scheduler wrote it
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    found = []
    for one in root:
        flat: dict[str, str] = {}
        for part in one:
            flat |= {f"{part.tag}.{below.tag}": below.text or "" for below in part} or {part.tag: part.text or ""}
        name = flat.pop("Job_Id", "") or flat.pop("name", "")
        if name:
            flat["Exit_status"] = flat.pop("exit_status", "")
            found.append(Listed("Job Id" if one.tag == "Job" else "Name", name, {k: v for k, v in flat.items() if v}))
    return found


def read_report(record: Listed, user: str | None) -> JobReport:
    """Read one job. user: whose jobs count as ours."""
    ended = record.get("job_state") == "C"
    attributes = {**record.attributes, **({"job_state": "F"} if ended else {})}
    # `n1/0-7+n2/0-7` since 6.0, `n1/0+n1/1` before
    attributes["exec_host"] = re.sub(r"/(\d+)[-,\d]*", r"/\1", record.get("exec_host"))
    report = replace(read_job(Listed(record.kind, record.name, attributes), user), native_state=record.get("job_state"))
    own = _OWN_ENDS.get(record.get("Exit_status")) if ended else None
    if ended and not any(record.get(key) for key in ("Exit_status", "exec_host", "start_time")):
        own = JobState.CANCELLED, "deleted before it ran"
    return replace(report, state=own[0], reason=own[1], exit_code=None) if own else report


def read_node(record: Listed) -> NodeState:
    """Read one node. One that is `free` may have jobs on some of its processors."""
    words = record.get("state")
    found = condition(words, _OWN_WORDS)
    if found is NodeCondition.IDLE and record.get("power_state") not in {"", "Running"}:
        found, words = NodeCondition.POWERED_DOWN, f"{words}, {record.get('power_state')}"
    jobs = bool(record.get("jobs").strip())
    return NodeState(
        node=record.name,
        condition=NodeCondition.BUSY if found is NodeCondition.IDLE and jobs else found,
        native_state=f"{words}, with jobs" if found is NodeCondition.IDLE and jobs else words,
        features=tuple(sorted(word.strip() for word in record.get("properties").split(",") if word.strip())),
        reason=record.get("note") or None,
    )


class TorqueAdministration(Administration):
    """pbsnodes, as an operator of the server types it. Reservations are those of Maui and Moab, which hpcq does not make."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def look(self) -> Upkeep:
        user, _, listed = self._transport.sh(f"printf '{_USER}%s\\n' \"$(id -un)\"; pbsnodes -x").text.partition("\n")
        try:
            records = [record for record in read_xml(listed) if record.kind == "Name"]
        except ValueError:
            return Upkeep()
        return Upkeep(user.removeprefix(_USER).strip(), {record.name: read_upkeep(record) for record in records})

    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        return " && ".join(
            f"{{ pbsnodes -x {quote(node)} | grep -q '<state>[^<]*offline' || pbsnodes -o -N {quote(reason)} {quote(node)}; }}"
            for node in nodes
        )

    def resume(self, nodes: Sequence[str]) -> str | None:
        return f"pbsnodes -c -N '' {' '.join(quote(node) for node in nodes)}"

    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:  # noqa: ARG002
        return None

    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:  # noqa: ARG002
        return None

    def admit(self, reservation: str, user: str) -> str | None:  # noqa: ARG002
        return None

    def open_outward(self, reservation: str) -> str | None:  # noqa: ARG002
        return None


def read_upkeep(record: Listed) -> NodeUpkeep:
    """Read one node. Torque does not say when it came up."""
    words = {word.strip() for word in record.get("state").split(",")}
    down = condition(record.get("state"), _OWN_WORDS) is NodeCondition.DOWN
    return NodeUpkeep(record.name, None, "offline" in words, down, record.get("note"), ())


class Torque(SubmitsByQsub):
    """qsub, qstat, qselect, qdel, pbsnodes."""

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: How many processors each node has.
        self._processors: dict[str, str] = {}

    # -- nodes ------------------------------------------------------------------------------------------------------

    def nodes_command(self) -> str:
        return "pbsnodes -x"

    def read_nodes(self, answer: str) -> list[NodeState]:
        records = [record for record in self._records(answer, "pbsnodes") if record.kind == "Name"]
        self._processors = {record.name: record.get("np") for record in records if record.number("np")}
        return [read_node(record) for record in records]

    def _records(self, answer: str, command: str) -> list[Listed]:
        try:
            return read_xml(answer)
        except ValueError as error:
            raise SchedulerError(f"{self.transport.where}: {command}: its XML breaks off: {error}") from None

    # -- submitting -------------------------------------------------------------------------------------------------

    def submit_command(self, submission: Submission) -> str:
        # On the command line: it goes before what the script says, which has no numbers of processors.
        given = self.settings.extra.get("ppn")
        counts = [given or self._processors.get(node, "1") for node in submission.nodes]
        nodes = "+".join(f"{node}:ppn={count}" for node, count in zip(submission.nodes, counts, strict=True))
        variables = quote(f"{TAG_VARIABLE}={submission.tag}")
        return f"qsub -l nodes={quote(nodes)} -N {short_name(submission.tag)} -v {variables} {quote(submission.script)}"

    # -- jobs -------------------------------------------------------------------------------------------------------

    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        return self._listing(" ".join(quote(job.scheduler_job_id) for job in jobs))

    @staticmethod
    def _listing(ids: str) -> str:
        return f"printf '{_USER}%s\\n' \"$(id -un)\"; qstat -x {ids}"

    def read_poll(self, done: Completed) -> list[JobReport]:
        user, _, listed = done.text.partition("\n")
        if done.returncode and outcome(done.returncode) in _SERVER_AWAY:
            raise SchedulerError(f"{self.transport.where}: qstat: {done.stderr.strip() or f'exit code {done.returncode}'}")
        records = [record for record in self._records(listed, "qstat") if record.kind == "Job Id"]
        return [read_report(record, user.removeprefix(_USER).strip() or None) for record in records]

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End those of these jobs that have this name and are ours; of queued ones, the start is put off before."""
        wanted = " ".join(quote(f"{job.scheduler_job_id}|{short_name(job.tag)}") for job in jobs)
        states = "QHW" if queued_only else "QHWTRSE"
        put_off = f'qalter -a {_NEVER} "$id" >/dev/null 2>&1; ours "$name" QHW || continue; ' if queued_only else ""
        return (
            f"{_OURS}failed=0\nfor one in {wanted}; do\n"
            f' id=${{one%|*}}; name=${{one#*|}}; ours "$name" {states} || continue; {put_off}\n'
            ' words=$(qdel "$id" 2>&1); rc=$?\n'
            # unknown by now, or at its end
            ' case $rc in 0|153|168) ;; *) printf \'%s\\n\' "$words" >&2; failed=$rc ;; esac\ndone\n(exit "$failed")'
        )

    def find_command(self, tags: Sequence[str]) -> str:
        names = " ".join(quote(short_name(tag)) for tag in tags)
        return (
            f'u=$(id -un); ids=\nfor n in {names}; do ids="$ids $(qselect -u "$u" -N "$n")" || exit 1; done\n'
            f'[ -z "$(echo $ids)" ] || {{ {self._listing("$ids")}; case $? in 0|153) ;; *) exit 1 ;; esac; }}'
        )

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        return [(tag_of(record), record.name) for record in self._records(answer, "qstat") if record.kind == "Job Id"]

    def others_command(self) -> str | None:
        return (
            'u=$(id -un)\nall=$(qselect -s Q) || exit 1\nmine=$(qselect -s Q -u "$u") || exit 1\n'
            f'ids=$(printf \'%s\\n\' "$all" | grep -Fvx -- "$mine" | head -n {_OTHERS_MAX})\n'
            f'[ -z "$ids" ] || {{ {self._listing("$ids")}; case $? in 0|153) ;; *) exit 1 ;; esac; }}'
        )

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:
        """Return all jobs of others that are not held: nobody says what they wait for."""
        waiting = [record for record in self._records(answer, "qstat") if record.get("job_state") == "Q"]
        named = [[one.partition(":")[0] for one in record.get("Resource_List.nodes").split("+")] for record in waiting]
        known = self._processors
        return tuple(
            OtherJob(record.name, sure=False, nodes=tuple(node for node in nodes if node in known))
            for record, nodes in zip(waiting, named, strict=True)
        )

    def mine_command(self) -> str | None:
        return 'qselect -u "$(id -un)" -s QRHEWTS'

    # -- limits, and the upkeep of nodes ----------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        return f'printf \'{_USER}%s\\n{_GROUPS}%s\\n\' "$(id -un)" "$(id -Gn)"; qstat -B -f && qstat -Q -f'

    def read_job_limits(self, answer: str) -> JobLimits:
        user, groups, *_ = [*answer.split("\n"), "", ""]
        asker = Asker(user.removeprefix(_USER).strip(), groups.removeprefix(_GROUPS).split())
        return read_job_limits(read_plain(answer), self.settings.partition, asker)

    def limit_command(self) -> str | None:
        return self.job_limits_command()

    def read_limit(self, answer: str) -> int | None:
        """Return how many jobs the queue takes of a user, or of all users."""
        queues = Queues.of(read_plain(answer))
        found = queues.by_name.get(queues.named(self.settings.partition), queues.server)
        limits = [found.number(name) for name in ("max_user_queuable", "max_queuable")]
        return min((one for one in limits if one is not None), default=None)

    def administration(self) -> Administration | None:
        return TorqueAdministration(self.transport)

    # -- the site ---------------------------------------------------------------------------------------------------

    def versions_command(self) -> str:
        return "qstat --version 2>&1 | sed -n 's/^ *[Vv]ersion: */Torque /p' | grep ."

    def probe_command(self, script: str) -> str:
        options = "".join(
            f" {option} {quote(value)}"
            for option, value in (("-q", self.settings.partition), ("-A", self.settings.account))
            if value
        )
        body = f'exec >"$HPCQ_PROBE/seen" 2>&1\n/bin/sh -c {quote(script)}; echo "@rc $?"'
        return (
            '(d=$(mktemp -d "$HOME/.hpcq-probe-XXXXXX") && cd "$d" || exit 1\n'
            'trap \'[ -z "$id" ] || qdel "$id" >/dev/null 2>&1; rm -rf "$d"\' EXIT\n'
            f"printf '%s\\n' {quote(body)} >job.sh\n"
            f"id=$(qsub -l nodes=1,walltime=60 -r n -j oe -N hpcq-probe{options}"
            ' -v HPCQ_PROBE="$d" -o "$d/out" job.sh) || exit 1\n'
            f"i=0; while [ $i -lt {10 * _TRIED_FOR_S} ] && ! grep -qs '^@rc' seen; do sleep 0.3; i=$((i + 3)); done\n"
            f"grep -qs '^@rc' seen || {{ echo 'no node within {_TRIED_FOR_S} s' >&2; exit 1; }}\n"
            "grep -v '^@rc' seen; id=; exit \"$(sed -n 's/^@rc //p' seen)\")"
        )

    def memory_lock_advice(self) -> str:
        return "MPI over RDMA wants unlimited: raise it where pbs_mom is started"

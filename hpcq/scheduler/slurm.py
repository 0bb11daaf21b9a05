"""Slurm: what to type and how to read the answer. Formats are those that 22.05 and 24.11 share."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcq import nodelist
from hpcq.errors import SchedulerError
from hpcq.scheduler.base import (
    JobReport,
    JobState,
    NodeCondition,
    NodeState,
    OtherJob,
    Scheduler,
    SchedulerSettings,
    Submission,
    Wait,
)
from hpcq.scheduler.limits import JobLimits, job_limits_command, read_job_limits
from hpcq.scheduler.reasons import LIMIT_REFUSALS, LOST_ANSWERS, read_wait
from hpcq.topology import read_topology
from hpcq.transport import Completed, Transport, quote

#: Slurm's job state words (man squeue, JOB STATE CODES). A word that is not here is reported, not guessed.
_JOB_STATES = {
    "PENDING": JobState.QUEUED,
    "CONFIGURING": JobState.QUEUED,
    "REQUEUED": JobState.QUEUED,
    "REQUEUE_HOLD": JobState.QUEUED,
    "REQUEUE_FED": JobState.QUEUED,
    "SPECIAL_EXIT": JobState.QUEUED,
    "RESV_DEL_HOLD": JobState.QUEUED,
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

#: One sign behind the word changes what it means: an idle node with any of these is not idle.
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


#: More ids than this are not typed one by one: the list of all jobs of this user is shorter than the question.
_IDS_TYPED_MAX = 1000
#: A user who waits for nodes waits with one of these reasons.
_WAITS_FOR_NODES = frozenset({"Resources", "Priority"})
#: These are also said of nodes that nobody can have; but of nodes in use too, where others of the machine are down or reserved.
_WAITS_FOR_SUCH_NODES = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
_RESERVATION = "@reservation "
#: Levels of the accounting whose users may make reservations, besides root and SlurmUser.
_MAY_RESERVE = frozenset({"Operator", "Administrator"})
#: What scontrol says when somebody took one of the nodes meanwhile.
_NODES_TAKEN = ("nodes are busy", "overlaps with another reservation", "node configuration is not available")


class Slurm(Scheduler):
    """sbatch, squeue, sinfo, scancel; sacct where the site has it."""

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: The partitions that have nodes of ours, by comma; asked for once.
        self._sharing: str | None = None

    def nodes_command(self) -> str:
        partition = f"--partition={quote(self.settings.partition)}" if self.settings.partition else ""
        listing = f"sinfo --noheader --Node {partition} --format='%N|%T|%P|%f|%E'"
        if not self.settings.reservation:
            return listing
        shown = f"scontrol --oneliner show reservation {quote(self.settings.reservation)}"
        if self.settings.own_reservation:
            shown = f"{{ {shown} 2>/dev/null || true; }}"
        return f"{listing} && printf '{_RESERVATION}' && {shown}"

    def read_nodes(self, answer: str) -> list[NodeState]:
        answer, _, reservation = answer.partition(_RESERVATION)
        states = self._read_sinfo(answer)
        if not self.settings.reservation or (self.settings.own_reservation and "ReservationName=" not in reservation):
            return states
        return _within(states, reservation, self.settings.reservation)

    def _read_sinfo(self, answer: str) -> list[NodeState]:
        rows = [line.split("|", 4) for line in answer.splitlines() if line.count("|") >= 4]
        if not self.settings.partition:  # a job without a partition lands in the default one, which carries a star
            rows = [row for row in rows if row[2].endswith("*")]
        found: dict[str, NodeState] = {}
        for name, word, partition, features, reason in rows:
            known = found.get(name)
            partitions = (*(known.partitions if known else ()), partition.rstrip("*"))
            found[name] = NodeState(
                node=name,
                condition=node_condition(word),
                native_state=word,
                partitions=partitions,
                features=tuple(part for part in features.split(",") if part and part != "(null)"),
                reason=None if reason in {"none", "(null)", ""} else reason,
            )
        return list(found.values())

    def submit_command(self, submission: Submission) -> str:
        return f"sbatch --parsable {quote(submission.script)}"

    def estimate_command(self, submission: Submission) -> str | None:
        # The head's own clock beside the answer, both in UTC: neither zone nor skew of that machine matters.
        return f"TZ=UTC sbatch --test-only {quote(submission.script)} 2>&1; TZ=UTC date +%Y-%m-%dT%H:%M:%S"

    def read_estimate(self, done: Completed) -> float | None:
        start = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", done.text)
        now = done.text.strip().rpartition("\n")[2]
        try:
            moments = [dt.datetime.fromisoformat(text) for text in (start[1] if start else "", now)]
        except ValueError:
            return None
        return max(0.0, (moments[0] - moments[1]).total_seconds())

    def read_native_id(self, answer: str) -> str:
        return answer.strip().split(";")[0]

    def poll_command(self, native_ids: Sequence[str]) -> str:
        which = f"--jobs={','.join(native_ids)}" if len(native_ids) <= _IDS_TYPED_MAX else "--me"
        return f"squeue --noheader --states=all {which} --format='%i|%T|%N|%r'"

    def read_poll(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise SchedulerError(f"{self.transport.where}: squeue: {done.stderr.strip() or 'failed'}")
        return [_job_report(*line.split("|", 3)) for line in done.text.splitlines() if line.count("|") >= 3]

    def history_command(self, native_ids: Sequence[str]) -> str | None:
        columns = "JobIDRaw,State,NodeList,ExitCode"
        return f"sacct --noheader --parsable2 --allocations --jobs={','.join(native_ids)} --format={columns}"

    def read_history(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            return []  # a site without accounting: the exit file is all the truth there is
        rows = [line.split("|") for line in done.text.splitlines() if line.count("|") == 3]
        # "CANCELLED by 1000": the first word is the state
        return [_job_report(job, word.split()[0], nodes, "from sacct", code) for job, word, nodes, code in rows if word]

    def cancel_command(self, native_ids: Sequence[str], *, queued_only: bool = False) -> str:
        return f"scancel {'--state=PENDING ' if queued_only else ''}{' '.join(native_ids)}"

    def others_command(self) -> str | None:
        """Pending jobs of all partitions that have nodes of ours: who waits in any of them may wait for us."""
        listing = "squeue --noheader --all --states=PENDING ${s:+--partition=\"$s\"} --format='%i|%U|%n|%r'"
        if self._sharing is not None:
            return f's={quote(self._sharing)}; echo "$s"; id -u && {listing}'
        if self.settings.partition:
            where = f"p={quote(self.settings.partition)}"
        else:
            where = "p=$(sinfo --noheader --format=%P | sed -n 's/[*]$//p' | head -n 1)"
        return (
            where + '; n=$(sinfo --noheader ${p:+--partition="$p"} --format=%N | paste -sd, -) && '
            "s=$(sinfo --noheader --all --nodes=\"$n\" --format='%R|%D' | sed -n '/|0$/!s/|.*//p' | sort -u | paste -sd, -) && "
            's=${s:-$p}; echo "$s"; id -u && ' + listing
        )

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:
        sharing, own, *rows = answer.split("\n")
        self._sharing = sharing.strip() or None
        found = []
        for native_id, user, wanted, reason in (row.split("|", 3) for row in rows if row.count("|") >= 3):
            sure = reason in _WAITS_FOR_NODES
            if user != own.strip() and (sure or reason.startswith(_WAITS_FOR_SUCH_NODES)):
                found.append(OtherJob(native_id, sure, tuple(nodelist.expand(wanted)) if wanted else ()))
        return tuple(found)

    def mine_command(self) -> str | None:
        return "squeue --noheader --me --format=%i"

    def switches_command(self) -> str | None:
        return "scontrol show topology"

    def read_switches(self, answer: str) -> dict[str, str]:
        return read_topology(answer)

    def job_limits_command(self) -> str | None:
        return job_limits_command(self.settings.account)

    def read_job_limits(self, answer: str) -> JobLimits:
        mine = self.settings
        return read_job_limits(
            answer, partition=mine.partition, account=mine.account, qos=mine.qos, reservation=mine.reservation
        )

    def limit_command(self) -> str | None:
        account = f" account={quote(self.settings.account)}" if self.settings.account else ""
        qos = quote(self.settings.qos or "")
        return (
            "s='sacctmgr --noheader --parsable2 --readonly'; "
            f'$s show assoc where user="$(id -un)"{account} format=MaxSubmitJobs,DefaultQOS || exit 1; '
            f'q={qos}; [ -z "$q" ] || $s show qos where name="$q" format=MaxSubmitJobsPerUser'
        )

    def read_limit(self, answer: str) -> int | None:
        numbers = [line.partition("|")[0].strip() for line in answer.splitlines()]
        return min((int(number) for number in numbers if number.isdigit()), default=None)

    def refusal_words(self) -> tuple[Sequence[str], Sequence[str]]:
        return LIMIT_REFUSALS, LOST_ANSWERS

    def may_reserve_command(self) -> str | None:
        return (
            "id -un; id -u; scontrol show config | sed -n 's/^SlurmUser *= *//p'; "
            'sacctmgr --noheader --parsable2 --readonly show user "$(id -un)" format=AdminLevel 2>/dev/null; true'
        )

    def read_may_reserve(self, done: Completed) -> str | None:
        name, number, slurm_user, level = [*done.text.split("\n"), "", "", "", ""][:4]
        if number == "0" or (name and slurm_user.startswith(f"{name}(")) or level.strip() in _MAY_RESERVE:
            return None
        return f"{name or 'this user'} may not make reservations (not root, SlurmUser or operator)"

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:
        named = f"reservationname={quote(name)}"
        if verb == "make":
            wanted = f"nodes={quote(','.join(nodelist.fold(nodes)))} starttime=now duration={minutes}"
            return f'scontrol create reservation {named} users="$(id -un)" {wanted}'
        if verb == "prolong":
            return f"scontrol update {named} endtime=now+{minutes}minutes"
        return f"scontrol delete {named}" if verb == "remove" else f"scontrol show reservation {quote(name)}"

    def busy_words(self) -> Sequence[str]:
        return _NODES_TAKEN

    def find_command(self, tags: Sequence[str]) -> str:
        names = ",".join(tags)
        return (
            f"squeue --noheader --me --states=all --name={names} --format='%i|%j' || exit 1; "
            "sacct --noheader --parsable2 --allocations --starttime=now-7days"
            f" --name={names} --format=JobIDRaw,JobName 2>/dev/null; true"
        )

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        for line in answer.splitlines():
            native_id, _, tag = line.partition("|")
            if tag:
                yield tag.strip(), native_id.strip()

    def probe_command(self, script: str) -> str:
        wanted = {
            "partition": self.settings.partition,
            "account": self.settings.account,
            "qos": self.settings.qos,
            "reservation": self.settings.reservation,
        }
        options = " ".join(f"--{name}={quote(value)}" for name, value in wanted.items() if value)
        return (
            f"srun --immediate=15 --time=1 --nodes=1 --ntasks=1 --quiet --input=none --job-name=hpcq-probe {options}"
            f" /bin/sh -c {quote(script)}"
        )

    def versions_command(self) -> str:
        return "sbatch --version; srun --mpi=list 2>&1"


def node_condition(word: str) -> NodeCondition:
    """What `idle~`, `mixed-` or `drained*` mean: the sign decides where the word alone would say idle or busy."""
    base = word.lower()
    signs = ""
    while base and base[-1] in _NODE_SIGNS:
        signs += base[-1]
        base = base[:-1]
    condition = _NODE_STATES.get(base, NodeCondition.UNKNOWN)
    if condition in {NodeCondition.IDLE, NodeCondition.BUSY}:
        for sign in signs:
            if condition is NodeCondition.IDLE or _NODE_SIGNS[sign] is not NodeCondition.PLANNED:
                condition = _NODE_SIGNS[sign]
    return condition


def _job_report(native_id: str, word: str, nodes: str, reason: str, exit_code: str = "") -> JobReport:
    state = _JOB_STATES.get(word.strip(), JobState.UNKNOWN)
    code, _, _ = exit_code.partition(":")
    return JobReport(
        native_id=native_id.strip(),
        state=state,
        native_state=word.strip(),
        reason="" if reason.strip() == "None" else reason.strip(),
        nodes=(nodes.strip(),) if nodes.strip() else (),
        exit_code=int(code) if code.isdigit() else None,
        wait=read_wait(reason) if state is JobState.QUEUED else Wait.ORDINARY,
    )


def _within(states: Sequence[NodeState], reservation: str, name: str) -> list[NodeState]:
    """Nodes as seen from inside a reservation: its own are idle when only the reservation keeps them.

    Others are not ours, unless it is a flexible one, whose jobs may have nodes outside, too.
    """
    fields = dict(word.split("=", 1) for word in reservation.split() if "=" in word)
    mine = set(nodelist.expand(fields["Nodes"])) if fields.get("Nodes", "(null)") != "(null)" else set()
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

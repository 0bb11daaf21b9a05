"""Slurm: which commands to type and how to read the answers. 22.05 and 24.11 share these formats."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence

from hpcq import nodelist
from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import Administration
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.limits import JobLimits
from hpcq.scheduler.slurm.administration import SlurmAdministration
from hpcq.scheduler.slurm.limits import SACCTMGR, association, job_limits_command, read_job_limits
from hpcq.scheduler.slurm.probes import site_items
from hpcq.scheduler.slurm.reading import ID, job_report, node_condition, own_rows, within_reservation
from hpcq.scheduler.slurm.reasons import AWAY_WORDS, LIMIT_WORDS, read_submission
from hpcq.scheduler.types import (
    CheckedItem,
    JobKey,
    JobReport,
    NodeState,
    OtherJob,
    SchedulerSettings,
    Submission,
    Submitted,
)
from hpcq.topology import read_topology
from hpcq.transport import Completed, Transport, quote

#: The reasons of jobs that wait for nodes.
_WAITS_FOR_NODES = frozenset({"Resources", "Priority"})
#: Slurm says these of nodes that no job can have, but also of nodes in use if other nodes are down or reserved.
_WAITS_FOR_SUCH_NODES = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
_RESERVATION = "@reservation "
#: Accounting levels whose users may make reservations, besides root and SlurmUser.
_MAY_RESERVE = frozenset({"Operator", "Administrator"})
#: What scontrol says when one of the nodes was taken meanwhile.
_NODES_TAKEN = ("nodes are busy", "overlaps with another reservation", "node configuration is not available")


class Slurm(Scheduler):
    """sbatch, squeue, sinfo, scancel; also sacct if the site has it."""

    id_pattern = ID

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: The partitions that share nodes with ours, joined with commas; hpcq asks once.
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
        return within_reservation(states, reservation, self.settings.reservation)

    def _read_sinfo(self, answer: str) -> list[NodeState]:
        rows = [line.split("|", 4) for line in answer.splitlines() if line.count("|") >= 4]
        if not self.settings.partition:  # a job without a partition goes to the default one, marked with a star
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
        # The head's own clock follows the answer, both in UTC: neither its time zone nor its skew matters.
        return f"TZ=UTC sbatch --test-only {quote(submission.script)} 2>&1; TZ=UTC date +%Y-%m-%dT%H:%M:%S"

    def read_estimate(self, done: Completed) -> float | None:
        start = re.search(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", done.text)
        now = done.text.strip().rpartition("\n")[2]
        try:
            moments = [dt.datetime.fromisoformat(text) for text in (start[1] if start else "", now)]
        except ValueError:
            return None
        return max(0.0, (moments[0] - moments[1]).total_seconds())

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        return read_submission(tag, done, self.read_native_id(done.text))

    def read_native_id(self, answer: str) -> str:
        native_id = answer.strip().split(";")[0]  # `17;cluster` with several clusters
        return native_id if ID.fullmatch(native_id) else ""

    def limit_words(self) -> Sequence[str]:
        return LIMIT_WORDS

    def poll_command(self, jobs: Sequence[JobKey]) -> str:  # noqa: ARG002 - several ids would load the table of all jobs
        """List all our jobs. The controller filters by user, so an unknown id cannot spoil the answer."""
        return "id -u && squeue --noheader --all --me --states=all --format='%i|%T|%U|%j|%N|%r'"

    def read_poll(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: squeue: {done.stderr.strip() or 'failed'}")
        own, rows = own_rows(done.text, 6)
        return [
            job_report(job, word, nodes, reason, name=name, mine=user.strip() == own)
            for job, word, user, name, nodes, reason in rows
        ]

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:
        ids = quote(",".join(job.native_id for job in jobs))
        columns = "JobIDRaw,State,NodeList,ExitCode,UID,JobName"
        return f"id -u && sacct --noheader --parsable2 --allocations --jobs={ids} --format={columns}"

    def read_history(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            return []  # a site without accounting: the exit file is the only source
        own, rows = own_rows(done.text, 6)
        # "CANCELLED by 1000": the first word is the state, the last one the user who cancelled
        return [
            job_report(
                job,
                word.split()[0],
                nodes,
                "from sacct",
                name=name,
                mine=user.strip() == own,
                exit_code=code,
                own_request=word.split()[-1] == own if word.startswith("CANCELLED by ") else None,
            )
            for job, word, nodes, code, user, name in rows
            if word
        ]

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End only jobs that have this name and are ours right now.

        scancel accepts only one name, so the command asks the queue first.
        """
        wanted = quote("\n".join(f"{job.native_id}|{job.tag}" for job in jobs))
        which = "--state=PENDING " if queued_only else ""
        return (
            "own=$(squeue --noheader --all --me --format='%i|%j') || exit 1\n"
            f"ids=$(printf '%s\\n' \"$own\" | grep -Fx -- {wanted} | cut -d'|' -f1)\n"
            f'[ -z "$ids" ] || scancel {which}--user="$(id -un)" $ids'
        )

    def others_command(self) -> str | None:
        """List pending jobs of all partitions that share nodes with ours: those jobs may wait for our nodes."""
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
        return "squeue --noheader --all --me --format=%i"

    def read_mine(self, answer: str) -> int:
        return sum(line.strip()[:1].isdecimal() for line in answer.splitlines())  # a wrapper may print more

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
        qos = quote(self.settings.qos or "")
        return (
            f"{SACCTMGR}; "
            f"$s show assoc where {association(self.settings.account)} format=MaxSubmitJobs,DefaultQOS || exit 1; "
            f'q={qos}; [ -z "$q" ] || $s show qos where name="$q" format=MaxSubmitJobsPerUser'
        )

    def read_limit(self, answer: str) -> int | None:
        numbers = [line.partition("|")[0].strip() for line in answer.splitlines()]
        return min((int(number) for number in numbers if number.isdecimal()), default=None)

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

    def away_words(self) -> Sequence[str]:
        return AWAY_WORDS

    def find_command(self, tags: Sequence[str]) -> str:
        names = quote(",".join(tags))
        return (
            f"squeue --noheader --all --me --states=all --name={names} --format='%i|%j' || exit 1; "
            'sacct --noheader --parsable2 --allocations --starttime=now-7days --user="$(id -un)"'
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
        return "sbatch --version"

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
        return site_items(self.transport, mpi_launch)

    def memory_lock_advice(self) -> str:
        return "MPI over RDMA wants unlimited: LimitMEMLOCK of slurmd, or PropagateResourceLimitsExcept=MEMLOCK"

    def administration(self) -> Administration | None:
        return SlurmAdministration(self.transport)

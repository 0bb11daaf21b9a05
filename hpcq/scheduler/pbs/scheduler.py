"""PBS: which commands to type and how to read the answers. For OpenPBS from 18.1 and PBS Professional from 18.2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import Administration
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.limits import JobLimits
from hpcq.scheduler.pbs import shell
from hpcq.scheduler.pbs.administration import PbsAdministration
from hpcq.scheduler.pbs.exits import Outcome, outcome
from hpcq.scheduler.pbs.jobs import ID_PATTERN, TAG_VARIABLE, read_job, short_name, tag_of
from hpcq.scheduler.pbs.limits import read_job_limits, submit_limit
from hpcq.scheduler.pbs.nodes import Vnode, by_name, hosts_of, read_vnode
from hpcq.scheduler.pbs.probes import probe_command, site_items
from hpcq.scheduler.pbs.reasons import is_waiting_for_nodes, names_nodes
from hpcq.scheduler.pbs.records import Record, named_hosts, read_dsv
from hpcq.scheduler.pbs.reservations import ID_PATTERN as RESERVATION_PATTERN
from hpcq.scheduler.pbs.reservations import called, read_made, read_reservations, seen_from_inside, taken_soon
from hpcq.scheduler.pbs.submissions import LIMIT_WORDS, read_submission
from hpcq.scheduler.types import (
    CheckedItem,
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
from hpcq.transport import Completed, Transport, quote

#: Whole hosts: `excl` alone would leave a host's other vnodes to other jobs.
PLACE = "scatter:exclhost"
#: PBS did not give the nodes that `make` asked for: another job or reservation has one of them.
_DENIED = ("DENIED", "UNCONFIRMED")
#: How long hpcq waits for PBS to confirm another end of a reservation: it takes less than 1 s, and no driver may hang.
_ANSWER_WITHIN_S = 5


class Pbs(Scheduler):
    """qsub, qstat, qselect, qdel, pbsnodes, pbs_rsub."""

    id_pattern = ID_PATTERN

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: The reservation's queue, once known: the server names it.
        self._reservation_queue: str | None = None
        self._cpus: dict[str, str] = {}
        #: Queues with their own nodes.
        self._bound: set[str] = set()

    # -- nodes ------------------------------------------------------------------------------------------------------

    def nodes_command(self) -> str:
        named = (
            self.settings.reservation is not None or RESERVATION_PATTERN.fullmatch(self.settings.partition or "") is not None
        )
        return shell.nodes(reservations=named, default_queue=self.settings.partition is None)

    def read_nodes(self, answer: str) -> list[NodeState]:
        listed, _, reserved = answer.partition(f"{shell.RESERVATIONS_MARK} ")
        records = [record for record in read_dsv(listed) if record.kind == "Name"]
        vnodes = [read_vnode(record) for record in records]
        self._cpus = _cpus(records, vnodes)
        self._bound = {vnode.queue for vnode in vnodes if vnode.queue}
        states = hosts_of(vnodes, self.settings.partition or _default_queue(listed))
        now, _, text = reserved.partition("\n")
        reservations = read_reservations(text)
        # A reservation's queue is the reservation, whatever key of the cluster file names it.
        by_queue = next((one.queue for one in reservations if one.queue == self.settings.partition), None)
        name = self.settings.reservation or by_queue
        ours = called(reservations, name) or called(reservations, short_name(name)) if name else None
        self._reservation_queue = ours.queue if ours is not None and not ours.ending else None
        if name and (ours is not None or not self.settings.own_reservation):
            return seen_from_inside(states, vnodes, ours, name)
        return taken_soon(states, vnodes, reservations, now)

    # -- submitting -------------------------------------------------------------------------------------------------

    def submit_command(self, submission: Submission) -> str:
        queue = f" -q {quote(self._reservation_queue)}" if self._reservation_queue else ""
        named = f"-N {short_name(submission.tag)} -v {quote(f'{TAG_VARIABLE}={submission.tag}')}"
        command = f"{shell.PRELUDE}exec qsub{queue} {named} {quote(submission.script)}"
        return f"/bin/sh -c {quote(command)}"

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        return read_submission(tag, done, self.read_native_id(done.text))

    def read_native_id(self, answer: str) -> str:
        native_id = answer.strip()
        return native_id if ID_PATTERN.fullmatch(native_id) else ""

    def limit_words(self) -> Sequence[str]:
        return LIMIT_WORDS

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
        return shell.listing([job.native_id for job in jobs])

    def read_poll(self, done: Completed) -> list[JobReport]:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        if outcome(done.returncode) not in _ANSWERS or any(not _is_of_a_job(line) for line in lines):
            words = "; ".join(line for line in lines if not _is_of_a_job(line)) or f"exit code {done.returncode}"
            raise SchedulerError(f"{self.transport.where}: qstat: {words}")
        return self._reports_of(done.text)

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:
        return shell.listing([job.native_id for job in jobs], ended=True)

    def read_history(self, done: Completed) -> list[JobReport]:
        if outcome(done.returncode) not in _ANSWERS:
            raise SchedulerError(f"{self.transport.where}: qstat -x: {done.stderr.strip() or done.returncode}")
        return self._reports_of(done.text)  # without history there are none, and the exit file is the only source

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        return shell.cancel([(job.native_id, short_name(job.tag)) for job in jobs], queued_only=queued_only)

    def find_command(self, tags: Sequence[str]) -> str:
        return shell.find([short_name(tag) for tag in tags])

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        return [(tag_of(record), record.name) for record in read_dsv(answer) if record.kind == "Job Id"]

    def others_command(self) -> str | None:
        return shell.others()

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:
        found = []
        for record in read_dsv(answer):
            comment = record.get("comment")
            if self._shares_nodes(record.get("queue")) and is_waiting_for_nodes(comment):
                named = named_hosts(record.get("Resource_List.select"))
                found.append(OtherJob(record.name, sure=not names_nodes(comment), nodes=named))
        return tuple(found)

    def mine_command(self) -> str | None:
        return shell.subshell('qselect -u "$(id -un)"')

    # -- limits -----------------------------------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        return shell.limits(self._queue)

    def read_job_limits(self, answer: str) -> JobLimits:
        user, groups = _who(answer)
        return read_job_limits(read_dsv(answer), self._queue, user=user, groups=groups)

    def limit_command(self) -> str | None:
        return shell.limits(self._queue)

    def read_limit(self, answer: str) -> int | None:
        return submit_limit(read_dsv(answer), self._queue, _who(answer)[0])

    # -- reservations of a run --------------------------------------------------------------------------------------

    def may_reserve_command(self) -> str | None:
        return shell.limits(None)

    def read_may_reserve(self, done: Completed) -> str | None:
        server = next((record for record in read_dsv(done.text) if record.kind == "Server"), None)
        if server is None:
            return f"the server does not say: {' '.join(done.stderr.split())}"
        return None if server.get("resv_enable") == "True" else "reservations are switched off there (resv_enable)"

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:
        short = short_name(name)
        if verb == "make":
            chunks = [f"1:host={node}:ncpus={self._cpus.get(node, '1')}" for node in nodes]
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

    def versions_command(self) -> str:
        return shell.subshell("qstat --version")

    def probe_command(self, script: str) -> str:
        return probe_command(script, self.settings, self._reservation_queue)

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:
        return site_items(self.transport, self.settings, mpi_launch)

    def memory_lock_advice(self) -> str:
        return "MPI over RDMA wants unlimited: raise it where pbs_mom is started (PBS_EXEC/lib/init.d/limits.pbs_mom)"

    def administration(self) -> Administration | None:
        return PbsAdministration(self.transport)

    # -- private ----------------------------------------------------------------------------------------------------

    @property
    def _queue(self) -> str | None:
        return self._reservation_queue or self.settings.partition

    def _shares_nodes(self, queue: str) -> bool:
        """Whether jobs of a queue may wait for our nodes."""
        own = self.settings.partition or ""
        return queue == own or not ({queue, own} & self._bound)

    def _reports_of(self, answer: str) -> list[JobReport]:
        listed, _, nodes = answer.partition(f"{shell.NODES_MARK}\n")
        user, _ = _who(listed)
        hosts = by_name([read_vnode(one) for one in read_dsv(nodes) if one.kind == "Name"])
        found = []
        for record in read_dsv(listed):
            report = read_job(record, user or None)
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


def _default_queue(answer: str) -> str | None:
    """Return the server's default queue, where a list of nodes begins with it."""
    first = answer.partition("\n")[0]
    return (
        first.removeprefix(f"{shell.DEFAULT_QUEUE_MARK} ").strip() if first.startswith(f"{shell.DEFAULT_QUEUE_MARK} ") else None
    )


def _who(answer: str) -> tuple[str, list[str]]:
    """Return the user and the groups for which an answer was made."""
    user, groups = "", []
    for line in answer.split("\n"):
        if line.startswith(f"{shell.USER_MARK} "):
            user = line.removeprefix(f"{shell.USER_MARK} ").strip()
        elif line.startswith("@groups "):
            groups = line.split()[1:]
    return user, groups


def _cpus(records: Sequence[Record], vnodes: Sequence[Vnode]) -> dict[str, str]:
    """Return how many processors each host has, over all its vnodes."""
    found: dict[str, int] = {}
    for record, vnode in zip(records, vnodes, strict=True):
        found[vnode.host] = found.get(vnode.host, 0) + (record.number("resources_available.ncpus") or 0)
    return {host: str(count) for host, count in found.items() if count}

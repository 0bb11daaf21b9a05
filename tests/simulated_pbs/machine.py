"""Nodes, jobs and reservations of a simulated PBS. `tick` does what was due until now; the server calls it all the time.

A job starts when its chunks find hosts, is really run on the first of them, ends with its script, and is E for a
moment before it
is gone or, with history, F. Tasks that pbs_tmrsh or pbsdsh started end with their job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.simulated_pbs import suspension
from tests.simulated_pbs.place import Place
from tests.simulated_pbs.records import DOMAIN, SERVER, WALLTIME_NONE_S, Chunk, Job, Node, Queue, Reservation, Settings


class Machine:
    """All of it."""

    def __init__(self, folder: Path, nodes: Sequence[Node], place: Place) -> None:
        self.folder = folder
        self.place = place
        self.nodes = {node.name: node for node in nodes}
        self.queues = {"workq": Queue("workq")}
        self.jobs: dict[int, Job] = {}
        self.reservations: dict[str, Reservation] = {}
        self.settings = Settings()
        self.server: dict[str, str] = {"default_queue": "workq", "resv_enable": "True", "query_other_jobs": "True"}
        self.scheduler: dict[str, str] = {"scheduling": "True"}
        self.calls: dict[str, int] = {}
        self.next_number = 1
        self._limits_looked = 0.0

    # -- what happens ------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """The next number, of jobs and reservations alike; what is refused burns one, too."""
        self.next_number += 1
        return self.next_number - 1

    def tick(self) -> None:
        """Let all happen that was due until now."""
        now = time.time()
        self._reservations_pass(now)
        for job in list(self.jobs.values()):
            if job.process is not None:
                self._look_at(job, now)
            elif job.state == "E" and now - job.ended > self.settings.exiting_s:
                self._forget(job)
        if now - self._limits_looked > self.settings.limits_every_s:
            self._limits_looked = now
            for job in self.jobs.values():
                over = job.walltime_s is not None and job.started and now - job.started - job.stood_s > job.walltime_s
                if job.state == "R" and over and not job.exceeded:
                    job.exceeded = True
                    self._terminate(job, now)
        for job in [job for job in self.jobs.values() if job.substate == suspension.WANTS_TO_GO_ON]:
            suspension.go_on(job, self.busy, _ran(job, now))
        for job in [job for job in self.jobs.values() if job.state in {"Q", "W"}]:
            self._try(job, now)

    def delete(self, job: Job, by: str) -> None:
        """What qdel does: a queued job ends at once, a running one is told to end."""
        if job.process is None:
            job.state, job.substate, job.ended = "F", 91, time.time()
            job.comment = f"{job.comment} and terminated" if job.comment else ""
            self._forget(job)
            return
        job.deleted_by = f"{by}@{SERVER}.{DOMAIN}"
        job.comment = f"{_ran(job)} and terminated by {job.deleted_by}"
        self._terminate(job, time.time())

    def in_maintenance(self, name: str) -> bool:
        """Whether an operator suspended a job there for the node's sake."""
        return any(job.takes_nodes_out and not job.over and name in job.hosts for job in self.jobs.values())

    def degraded(self, one: Reservation) -> bool:
        """Whether one of its nodes is out."""
        return any(self.nodes[name].offline or self.nodes[name].down for name in one.nodes)

    def busy(self, name: str) -> list[Job]:
        """Jobs that have a part of a node now; a suspended one has none."""
        return [job for job in self.jobs.values() if job.state in {"R", "E"} and name in job.hosts]

    def power_cut(self, name: str) -> None:
        """A node that is not the first of a job goes away: its tasks end, its daemon is silent, and the job stays R."""
        self.nodes[name].down, self.nodes[name].comment = True, "node down: communication closed"
        for job in self.jobs.values():
            for task, node in zip(job.tasks, job.task_nodes, strict=True):
                if node == name:  # each task leads a session
                    subprocess.run(["pkill", "-KILL", "--session", str(task.pid)], check=False)

    def live(self, user: str, queue: str | None = None) -> int:
        """How many jobs of a user are queued or running."""
        mine = [job for job in self.jobs.values() if not job.over and job.user == user]
        return sum(queue is None or job.queue == queue for job in mine)

    def run(self, node: str, job: Job, words: Sequence[str], output: str) -> subprocess.Popen[bytes]:
        """A task of a job on a node, as MOM starts it: bare environment, home as its folder, no input, output to the job's."""
        environment = {"PATH": "/bin:/usr/bin", "HOME": self.place.home, **self._variables(job)}
        with Path(output).open("ab") as sink:
            return subprocess.Popen(
                [*self.nodes[node].prefix, "env", *(f"{key}={value}" for key, value in environment.items()), *words],
                cwd=Path.home(), env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
            )  # fmt: skip

    def spool(self, job: Job) -> str:
        """Where MOM collects the output until it delivers it."""
        return str(self.folder / "spool" / f"{job.scheduler_job_id}.OU")

    # -- how ----------------------------------------------------------------------------------------------------------

    def _variables(self, job: Job) -> dict[str, str]:
        given = dict(one.partition("=")[::2] for one in job.variables)
        return {
            **given, "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": job.scheduler_job_id, "PBS_JOBNAME": job.name,
            "PBS_QUEUE": job.queue, "PBS_NODEFILE": self._nodefile(job), "USER": job.user, "LOGNAME": job.user,
        }  # fmt: skip

    def lines(self, job: Job, hosts: Sequence[str]) -> list[str]:
        """The lines of a job's node file: one per chunk, and in Torque one per processor."""
        counts = [chunk.ncpus if self.settings.torque else 1 for chunk in job.chunks]
        return [self.nodes[host].full_name for host, count in zip(hosts, counts, strict=True) for _ in range(count)]

    def _nodefile(self, job: Job) -> str:
        return self.place.inside(self.folder / "aux" / job.scheduler_job_id)

    def _try(self, job: Job, now: float) -> None:
        if job.state == "W" and now < job.start_after:
            return
        job.state = "W" if now < job.start_after else "Q"
        if job.queue in self.queues and self.queues[job.queue].settings.get("queue_type") == "Route":
            self.route(job)
            if self.queues[job.queue].settings.get("queue_type") == "Route":
                return
        reservation = self.reservations.get(job.queue)
        queue = self.queues.get(job.queue)
        if reservation is not None:
            if reservation.state != "RUNNING":
                job.comment = "Not Running: Queue not started."
                return
        elif queue is not None and not queue.started:
            job.comment = "Not Running: Queue not started."
            return
        found = self._hosts_for(job, reservation, now)
        if isinstance(found, str):
            job.comment = found
            job.estimated = self._expected(job) if self.settings.strict_ordering else 0.0
            return
        self._start(job, found)

    def _expected(self, job: Job) -> float:
        """When the hosts that a job names are free at the latest; 0 where that cannot be known."""
        there = [one for chunk in job.chunks for one in self.busy(chunk.host)]
        return max((one.started + (one.walltime_s or WALLTIME_NONE_S) for one in there), default=0.0)

    def default_words(self, queue: str) -> dict[str, str]:
        """What default_chunk of the server and the queue makes each chunk ask of its host."""
        given = [self.server, self.queues[queue].settings if queue in self.queues else {}]
        return {
            name.removeprefix("default_chunk."): value
            for settings in given
            for name, value in settings.items()
            if name.startswith("default_chunk.") and not value.isdigit()
        }

    def route(self, job: Job) -> None:
        """Pass a job on to the first destination that takes it; without one it stays where it is, and says nothing."""
        settings = self.queues[job.queue].settings
        for name in settings.get("route_destinations", "").split(","):
            queue = self.queues.get(name.strip())
            if queue is None or not queue.enabled:
                continue
            most, least = queue.settings.get("resources_max.nodect"), queue.settings.get("resources_min.nodect")
            if int(least or 1) <= len(job.chunks) <= int(most or len(job.chunks)):
                job.queue = queue.name
                return

    def _hosts_for(  # noqa: PLR0911 - one per sentence of the scheduler
        self, job: Job, reservation: Reservation | None, now: float
    ) -> tuple[str, ...] | str:
        """The hosts of its chunks in order, or why there are none, in the scheduler's words."""
        if len(job.chunks) > len(self.nodes) and "scatter" in job.place:
            return "Can Never Run: Not enough total nodes available"
        if reservation is None and self._spans_sets(job):
            return "Can Never Run: can't fit in the largest placement set, and can't span psets"
        taken: list[str] = []
        for chunk in job.chunks:
            if chunk.host and chunk.host not in self.nodes:
                all_hosts = ",".join(self.nodes)
                return f"Can Never Run: Insufficient amount of resource: host ({chunk.host} != {all_hosts})"
            if chunk.ncpus > max(node.ncpus for node in self.nodes.values()):
                total = sum(node.ncpus for node in self.nodes.values())
                most = max(node.ncpus for node in self.nodes.values())
                return f"Not Running: Insufficient amount of resource: ncpus (R: {chunk.ncpus} A: {most} T: {total})"
            names = [chunk.host] if chunk.host else list(self.nodes)
            asked = {**self.default_words(job.queue), **dict(chunk.words)}
            lacks = {
                name: next(
                    (word for word, value in asked.items() if value not in self.nodes[name].resources.get(word, "").split(",")),
                    "",
                )
                for name in names
            }
            if all(lacks.values()):
                word = next(iter(lacks.values()))
                there = self.nodes[names[0]].resources.get(word, "")
                return f"Not Running: Insufficient amount of resource: {word} ({asked[word]} != {there})"
            names = [name for name in names if not lacks[name]]
            fits = [
                name
                for name in names
                if (name not in taken or "scatter" not in job.place) and self._free(name, job, chunk, reservation)
            ]
            if not fits:
                if chunk.host:
                    return "Not Running: Insufficient amount of resource: host "
                return "Not Running: Not enough free nodes available"
            kept = next((name for name in fits if not self._collides(name, job, reservation, now)), None)
            if kept is None:
                return "Not Running: No available resources on nodes"
            taken.append(kept)
        return tuple(taken)

    def _spans_sets(self, job: Job) -> bool:
        """Whether the hosts that it names are of no common placement set, and the scheduler keeps jobs within one."""
        key = self.queues[job.queue].settings.get("node_group_key") or self.server.get("node_group_key", "")
        if self.scheduler.get("do_not_span_psets") != "True" or self.server.get("node_group_enable") != "True":
            return False
        named = [self.nodes[one.host].resources.get(key, "") for one in job.chunks if one.host in self.nodes]
        return bool(named) and not set.intersection(*(set(words.split(",")) for words in named))

    def _free(self, name: str, job: Job, chunk: Chunk, reservation: Reservation | None) -> bool:
        node = self.nodes[name]
        if node.sharing == "ignore_excl":
            there = self.busy(name)
            used = sum(c.ncpus for one in there for host, c in zip(one.hosts, one.chunks, strict=True) if host == name)
            return not (node.offline or node.down) and used + chunk.ncpus <= node.ncpus
        if (
            node.offline
            or node.down
            or self.in_maintenance(name)
            or (reservation is not None and name not in reservation.nodes)
        ):
            return False
        there = self.busy(name)
        if any(one.exclusive for one in there) or (job.exclusive and there):
            return False
        used = sum(c.ncpus for one in there for host, c in zip(one.hosts, one.chunks, strict=True) if host == name)
        return used + chunk.ncpus <= node.ncpus

    def _collides(self, name: str, job: Job, reservation: Reservation | None, now: float) -> bool:
        ends = now + (job.walltime_s if job.walltime_s is not None else WALLTIME_NONE_S)
        return any(
            one is not reservation and name in one.nodes and one.start < ends and now < one.end
            for one in self.reservations.values()
        )

    def _start(self, job: Job, hosts: tuple[str, ...]) -> None:
        now = time.time()
        job.hosts, job.state, job.substate, job.started = hosts, "R", 41, now
        job.comment = _ran(job)
        nodefile = self.place.outside(self._nodefile(job))
        nodefile.parent.mkdir(exist_ok=True)
        nodefile.write_text("".join(f"{line}\n" for line in self.lines(job, hosts)))
        script = self.folder / "jobs" / f"{job.scheduler_job_id}.SC"
        script.parent.mkdir(exist_ok=True)
        script.write_bytes(job.script)
        script.chmod(0o755)
        Path(self.spool(job)).parent.mkdir(exist_ok=True)
        environment = {
            "PATH": f"{self.place.inside(self.folder / 'bin')}:/usr/local/bin:/usr/bin:/bin", "HOME": self.place.home,
            "SHELL": "/bin/bash",
            "PBS_O_WORKDIR": job.workdir, **self._variables(job),
        }  # fmt: skip
        # The login shell runs the script as a command, so that its first line counts.
        start = f"{'exec' if job.script.startswith(b'#!') else '.'} {self.place.inside(script)}"
        words = ["bash", "-c", f'cd "$HOME"; {start}']
        with Path(self.spool(job)).open("ab") as sink:
            job.process = subprocess.Popen(
                [*self.nodes[hosts[0]].prefix, "env", *(f"{key}={value}" for key, value in environment.items()), *words],
                env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
            )  # fmt: skip

    def _look_at(self, job: Job, now: float) -> None:
        assert job.process is not None
        if job.substate == 41 and now - job.started > self.settings.heard_after_s:
            job.substate, job.deleted_by = 42, ""  # as the live server: what deleted it before is not recorded
        code = job.process.poll()
        if code is None:
            if job.term_sent and now - job.term_sent > self.settings.kill_delay_s:
                suspension.kill(job)
            return
        for task in [job.process, *job.tasks]:  # all of its session: timeout(1) leads a process group of its own
            subprocess.run(["pkill", "-KILL", "--session", str(task.pid)], check=False)
        job.process = None
        if self.settings.deaf and not job.term_sent:
            return  # nobody tells the server: the job stays R
        if job.substate == 41:
            job.deleted_by = ""
        job.state, job.substate, job.ended = "E", 51, now
        for host in job.hosts:
            self.nodes[host].used_at = self.nodes[host].changed_at = now
        self._judge(job, code)
        self._deliver(job)

    def _judge(self, job: Job, code: int) -> None:
        """Exit_status, and what the comment will end with."""
        on = _ran(job)
        job.exit_status = 256 - code if code < 0 else code
        if job.exceeded:
            job.exit_status, job.comment = -29, f"{on} and exceeded resource walltime"
        elif job.deleted_by:
            killed = 256 + signal.SIGKILL if job.suspended and code == -signal.SIGKILL else 256 + signal.SIGTERM
            job.exit_status, job.comment = (
                killed if code < 0 or code > 128 else code,
                f"{on} and terminated by {job.deleted_by}",
            )
        else:
            job.comment = f"{on} and {'finished' if code == 0 else 'failed'}"

    def _forget(self, job: Job) -> None:
        """F with history; without, the server does not know it any more."""
        ran = job.started > 0
        job.state = "F"
        job.substate = 91 if job.deleted_by or not ran else 92 if job.exit_status == 0 else 93
        if not self.settings.history:
            del self.jobs[job.number]

    def _deliver(self, job: Job) -> None:
        if job.output and job.output != "/dev/null" and self.settings.delivers:
            try:
                output = self.place.outside(job.output)
                output.write_bytes(Path(self.spool(job)).read_bytes())
                output.chmod(0o600)
            except OSError:
                job.delivered = False

    def _terminate(self, job: Job, now: float) -> None:
        job.term_sent = job.term_sent or now
        if job.process is not None:
            _signal(job.process, signal.SIGTERM)
        for task in job.tasks:
            _signal(task, signal.SIGTERM)

    def _reservations_pass(self, now: float) -> None:
        for one in list(self.reservations.values()):
            if one.state == "CONFIRMED" and now >= one.start:
                one.state = "RUNNING"
            if now >= one.end:
                self.end_reservation(one, "root")

    def end_reservation(self, one: Reservation, by: str) -> None:
        """Its jobs end: queued ones at once, running ones by TERM; then it is gone."""
        one.state = "BEING_DELETED"
        inside = [job for job in self.jobs.values() if job.queue == one.queue and not job.over]
        for job in inside:
            if not job.deleted_by:
                self.delete(job, by)
        if not [job for job in inside if not job.over]:
            self.reservations.pop(one.queue, None)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _ran(job: Job, at: float = 0.0) -> str:
    return f"Job run at {_when(at or job.started)} on {job.exec_vnode}"


def _when(moment: float) -> str:
    return time.strftime("%a %b %d at %H:%M", time.localtime(moment))

"""Nodes and jobs of a simulated cluster. Time passes when somebody asks: `advance` does what was due until now.

A job waits until all nodes that it names are free, then runs for `run_s`, or, if it is a script of somebody else's, until
that script ends.
"""

from __future__ import annotations

import heapq
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulated_slurm import stand_in

#: How long Slurm lists a job that has ended (MinJobAge).
FORGOTTEN_AFTER_S = 300.0
#: How long a job is COMPLETING between its end and its last word; real clusters need an epilog's time.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "DEADLINE"})


@dataclass(slots=True)
class Node:
    """One node; `word` is what the administrator made of it, empty where it is in service."""

    name: str
    switch: str
    word: str = ""
    reason: str = "none"
    job: int = 0
    waiting: deque[int] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """One job, queued, running or ended."""

    number: int
    name: str
    user: str
    nodes: tuple[str, ...]
    limit_s: float
    script: str
    folder: str
    run_s: float = 0.0
    state: str = "PENDING"
    reason: str = "None"
    exit_code: int = 0
    ended_at: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    #: It must start before, on the clock of time.monotonic().
    start_before: float = float("inf")


@dataclass(slots=True)
class Settings:
    """What a test may change while it runs."""

    run_s: float = 0.0
    #: How many jobs one user may have queued and running; 0 is no limit.
    submit_limit: int = 0
    #: Pending reason by job name; such a job never starts.
    stuck: dict[str, str] = field(default_factory=dict)
    #: Commands that fail, and how often still: {"squeue": 5}.
    broken: dict[str, int] = field(default_factory=dict)
    #: Nodes of reservations by name.
    reservations: dict[str, list[str]] = field(default_factory=dict)
    #: Submissions that are taken although their answer gets lost.
    lost_answers: int = 0
    #: Submissions that are taken although a signal ends sbatch before it answers.
    killed_answers: int = 0
    #: What a site's wrapper prints before sbatch's own answer.
    banner: str = ""
    #: Words, one per submission, with which sbatch takes nothing.
    odd_words: list[str] = field(default_factory=list)
    #: What `scontrol show config` and `show partition` print.
    shown: dict[str, str] = field(default_factory=dict)


class Machine:
    """All of it."""

    def __init__(self, node_count: int, leaf_size: int = 40) -> None:
        names = [f"n{number:04d}" for number in range(1, node_count + 1)]
        self.nodes = {name: Node(name, f"leaf{index // leaf_size + 1}") for index, name in enumerate(names)}
        self.jobs: dict[int, Job] = {}
        self.settings = Settings()
        self.calls: dict[str, int] = {}
        #: Records that the controller sent, by command.
        self.rows: dict[str, int] = {}
        self._next = 1
        self._ends: list[tuple[float, int]] = []
        self._running: set[int] = set()
        self._live: dict[str, int] = {}

    # -- what happens ------------------------------------------------------------------------------------------------

    def submit(
        self, name: str, user: str, nodes: tuple[str, ...], *, limit_s: float, script: str = "", folder: str = "/"
    ) -> Job:
        """Queue a job; it starts at once where its nodes are free."""
        job = Job(self._next, name, user, nodes, limit_s, script, folder, run_s=self.settings.run_s)
        self._next += 1
        self.jobs[job.number] = job
        self._live[user] = self._live.get(user, 0) + 1
        for node in nodes:
            self.nodes[node].waiting.append(job.number)
        self._try(job)
        return job

    def count_users(self) -> None:
        """Count live jobs anew, after one was given to another user."""
        self._live = {}
        for job in self.jobs.values():
            self._live[job.user] = self._live.get(job.user, 0) + (job.state not in ENDED)

    def live_count(self, user: str) -> int:
        """How many jobs of a user are queued or running."""
        return self._live.get(user, 0)

    def cancel(self, job: Job) -> None:
        """End a job, wherever it stands."""
        if job.state not in ENDED:
            if job.process is not None:
                os.killpg(job.process.pid, signal.SIGTERM)
            self._end(job, "CANCELLED", 0)

    def set_node(self, name: str, word: str, reason: str = "none") -> None:
        """What `scontrol update nodename` does; a job on a node that goes down is lost."""
        node = self.nodes[name]
        node.word, node.reason = word, reason
        if word == "down" and node.job:
            self._end(self.jobs[node.job], "NODE_FAIL", 0)
        if not word:
            self._fill([name])

    def advance(self) -> None:
        """Let all happen that was due until now."""
        now = time.monotonic()
        while self._ends and self._ends[0][0] <= now:
            _, number = heapq.heappop(self._ends)
            job = self.jobs[number]
            if job.state == "RUNNING" and job.process is None:
                if job.script:
                    stand_in.leave_results(Path(job.folder), job.number)
                self._end(job, "COMPLETED", 0)
        for job in [job for job in self.jobs.values() if job.state == "PENDING" and now > job.start_before]:
            self._end(job, "DEADLINE", 0)
        for number in [number for number in self._running if self.jobs[number].process is not None]:
            self._look_at(self.jobs[number], now)

    def end_all(self) -> None:
        """End every running job that has no script of its own to end it."""
        self._ends = sorted((0.0, number) for _, number in self._ends)
        self.advance()

    def kill_all(self) -> None:
        """End the processes of all jobs: nothing of a test outlives it."""
        for job in self.jobs.values():
            if job.process is not None and job.process.poll() is None:
                os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()

    def retry(self) -> None:
        """Start what waited for a change of settings."""
        self._fill(self.nodes)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _look_at(self, job: Job, now: float) -> None:
        assert job.process is not None
        code = job.process.poll()
        if code is not None:
            self._end(job, "COMPLETED" if code == 0 else "FAILED", code)
        elif now > job.ended_at:
            os.killpg(job.process.pid, signal.SIGTERM)
            self._end(job, "TIMEOUT", 0)

    def _try(self, job: Job) -> bool:
        if job.state != "PENDING":
            return False
        stuck = next((reason for part, reason in self.settings.stuck.items() if part in job.name), None)
        unfit = [name for name in job.nodes if self.nodes[name].word]
        if stuck is not None or unfit:
            job.reason = stuck or f"ReqNodeNotAvail, UnavailableNodes:{','.join(unfit)}"
            return False
        if any(self.nodes[name].job or self.nodes[name].waiting[0] != job.number for name in job.nodes):
            first = all(self.nodes[name].waiting[0] == job.number for name in job.nodes)
            job.reason = "Resources" if first else "Priority"
            return False
        self._start(job)
        return True

    def _start(self, job: Job) -> None:
        job.state, job.reason = "RUNNING", "None"
        for name in job.nodes:
            self.nodes[name].job = job.number
        self._running.add(job.number)
        now = time.monotonic()
        if job.script and not stand_in.is_job_of_hpcq(Path(job.folder)):
            job.ended_at = now + job.limit_s
            environment = {**os.environ, "SLURM_JOB_ID": str(job.number)}
            job.process = subprocess.Popen(
                ["/bin/bash", job.script], cwd=job.folder, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            return
        if job.script:
            stand_in.leave_start(Path(job.folder), job.number)
        heapq.heappush(self._ends, (now + job.run_s, job.number))

    def _end(self, job: Job, state: str, code: int) -> None:
        job.state, job.exit_code, job.ended_at = state, code, time.monotonic()
        self._running.discard(job.number)
        self._live[job.user] -= 1
        for name in job.nodes:
            node = self.nodes[name]
            if node.job == job.number:
                node.job = 0
            if job.number in node.waiting:
                node.waiting.remove(job.number)
        self._fill(job.nodes)

    def _fill(self, names: Iterable[str]) -> None:
        for name in names:
            node = self.nodes[name]
            if node.waiting and not node.job:
                self._try(self.jobs[node.waiting[0]])

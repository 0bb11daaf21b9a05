"""The fake site in a storm: a controller that forgets and is away, processes that it knows nothing of, a full quota.

FakeScheduler is the controller's table and the world in one. Here they may differ: a job that the controller has forgotten
still runs on its nodes, one that has ended still stands in the table. Answers of sbatch are read by Slurm's own code.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

from hpcq.errors import SchedulerError, TransportError
from hpcq.scheduler.slurm.scheduler import Slurm
from hpcq.scheduler.types import JobKey, JobState, QueueQuery, QueueSnapshot, SchedulerSettings, Submission, Submitted
from hpcq.transport import Completed, Here
from tests.driver.fake_clock import FakeClock
from tests.driver.fake_site import NEVER, FakeJob, FakeScheduler

DOWN = "Unable to contact slurm controller (connect failure)"
FULL = "Disk quota exceeded"
#: A slurmd reports its jobs to a controller that came back; what that one does not know of is killed then, or never.
_REGISTERED_S = 10.0
_GHOST_SEEN_S = 30.0
#: A script looks for the file `finish` between two tests.
_TEST_S = 15.0


class QuotaHere(Here):
    """This machine, where at times nothing can be written."""

    full = False

    def sh(self, script: str, *, timeout_s: float = 120.0, stdin: bytes = b"") -> Completed:
        if self.full and ("mkdir " in script or "touch " in script):
            return Completed(1, f"mkdir: cannot create directory: {FULL}\n".encode(), f"mkdir: {FULL}")
        return super().sh(script, timeout_s=timeout_s, stdin=stdin)


@dataclass
class Orders:
    """How one submission goes wrong."""

    #: What sbatch prints and its exit code; None: the whole shell was killed and printed nothing.
    answer: Completed | None = None
    #: How long sbatch takes until the controller has the job.
    delay_s: float = 0.0
    #: What happens on another head while sbatch is about to start.
    meanwhile: Callable[[], None] | None = None


@dataclass
class Measuring:
    """When the processes of an attempt measured."""

    tag: str
    from_s: float
    until_s: float = NEVER


@dataclass
class World:
    """What really happened, whatever a controller knows of it."""

    measuring: list[Measuring] = field(default_factory=list)
    #: Jobs of other people that we ended.
    strangers_ended: list[str] = field(default_factory=list)


class StormScheduler(FakeScheduler):
    """A controller and its nodes when things go wrong."""

    def __init__(self, clock: FakeClock, nodes: Sequence[str]) -> None:
        super().__init__(clock, nodes)
        self.transport = self.quota = QuotaHere()
        self.dice = random.Random(0)
        self.world = World()
        self.down = False
        #: How the next submissions go wrong, one wave each.
        self.troubles: list[Orders] = []
        #: Processes on nodes of which the controller knows nothing, and when they are killed.
        self.orphans: list[tuple[FakeJob, float]] = []
        #: Entries of the table whose processes have ended, and when the controller sees it.
        self.ghosts: list[tuple[FakeJob, float]] = []
        #: When a script first saw that it is asked to end.
        self._asked: dict[str, float] = {}
        #: What jobs could not write is lost for good.
        self._unwritten: set[str] = set()
        self._slurm = Slurm(self.transport, SchedulerSettings())

    # -- what the driver asks -----------------------------------------------------------------------------------------

    def look(self, question: QueueQuery) -> QueueSnapshot:
        self._reached()
        return super().look(question)

    def find(self, tags: Sequence[str]) -> dict[str, str]:
        self._reached()
        return super().find(tags)

    def read_scheduler_job_id(self, answer: str) -> str:
        return self._slurm.read_scheduler_job_id(answer)

    def cancel(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str | None:
        if self.down:
            return f"scancel: error: {DOWN}"
        return super().cancel(jobs, queued_only=queued_only)

    def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Each goes its way; a wave that takes longer than its time-out breaks off, and the far shell goes on."""
        trouble = self.troubles.pop(0) if self.troubles else Orders()
        if trouble.meanwhile is not None:
            trouble.meanwhile()
        if trouble.delay_s:
            return self._slowly(submissions, trouble.delay_s)
        answers = [self._submit_one(one, trouble) for one in submissions]
        self.advance()
        return answers

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def forget(self, since_s: float) -> None:
        """The controller is back on a state of then: what came later is unknown, what has ended is not known to have."""
        self.advance()
        now = self.clock.passed_s
        for scheduler_job_id, job in list(self.jobs.items()):
            if job.submitted_s > since_s:
                del self.jobs[scheduler_job_id]
                self._orphan(job, now)
            elif job.started_s > since_s or job.ended_s > since_s:
                self.jobs[scheduler_job_id] = self._as_it_was(job, since_s, now)
        for _ in range(self.dice.randint(0, 2)):  # the next ids go to other people
            scheduler_job_id = str(101 + len(self.jobs))
            folder = Path("/nowhere")
            self.jobs[scheduler_job_id] = FakeJob(
                scheduler_job_id, f"theirs-{scheduler_job_id}", folder, (), 1e6, now, mine=False
            )
            self.jobs[scheduler_job_id].state = JobState.RUNNING

    # -- the world ----------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        now = self.clock.passed_s
        for job, seen_s in list(self.ghosts):
            if seen_s <= now:
                self.ghosts.remove((job, seen_s))
                if job.live:
                    super().end(job, JobState.NODE_FAILED)
        for job in [*self.jobs.values(), *(orphan for orphan, _ in self.orphans)]:
            runs = job.mine and job.state is JobState.RUNNING and job.started_s < NEVER
            if runs and (job.folder / "finish").exists() and now - self._asked.setdefault(job.tag, now) >= _TEST_S:
                self.end(job, JobState.COMPLETED)
        super().advance()
        for job, killed_s in list(self.orphans):
            ends_s = job.started_s + self.run_s
            if job.live and min(ends_s, killed_s) <= now:
                self.end(job, JobState.COMPLETED, measured=ends_s <= killed_s, at_s=min(ends_s, killed_s))
            if not job.live and job.ended_s + self.exit_file_delay_s <= now:
                self._write_end(job)
                self.orphans.remove((job, killed_s))

    def end(self, job: FakeJob, state: JobState, *, measured: bool = False, at_s: float | None = None) -> None:
        if not job.mine and state is JobState.CANCELLED:
            self.world.strangers_ended.append(job.tag)
        super().end(job, state, measured=measured, at_s=at_s)
        for one in self.world.measuring:
            if one.tag == job.tag and one.until_s == NEVER and job.started_s < NEVER:
                one.until_s = job.ended_s

    def _start(self, job: FakeJob) -> None:
        if self.quota.full:  # it cannot claim its attempt and ends at once
            self.end(job, JobState.COMPLETED)
            return
        assert self.run_s < job.walltime_s, "no scheduler lets a job run beyond its time limit"
        super()._start(job)
        if job.state is JobState.RUNNING:
            self.world.measuring.append(Measuring(job.tag, job.started_s))

    def _write_end(self, job: FakeJob) -> None:
        if self.quota.full:
            self._unwritten.add(job.tag)
        if job.tag in self._unwritten or not job.folder.is_dir():
            return
        super()._write_end(job)
        if job.tag in self._asked and not job.measured:
            path = job.folder / "exit.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "reason": "ended_early"}))

    # -- private ------------------------------------------------------------------------------------------------------

    def _reached(self) -> None:
        if self.down:
            raise SchedulerError(f"here: squeue: {DOWN}")

    def _submit_one(self, one: Submission, trouble: Orders) -> Submitted:
        whole = Completed(137, b"", "Killed")
        if (Path(one.script).parent / "claim").exists():
            row: Completed | None = Completed(255, b"", "withdrawn before it was submitted")
        elif self.down:
            row = Completed(1, b"", f"sbatch: error: Batch job submission failed: {DOWN}")
        else:
            scheduler_job_id = self.take(one).scheduler_job_id
            self.submissions.append((self.clock.passed_s, one.tag))
            row = Completed(0, f"{scheduler_job_id}\n".encode(), "")
            if trouble.answer is not None:
                row = trouble.answer if trouble.answer.returncode >= 0 else None
            if row is not None and row.returncode == 0 and not self.quota.full:
                (Path(one.script).parent / "submitted").write_text(row.text)
        return self._submitted(one, row, whole)

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        return self._slurm.read_submission(tag, done)

    def _slowly(self, submissions: Sequence[Submission], delay_s: float) -> list[Submitted]:
        """sbatch tries on by itself while the driver's time-out passes; it has long looked for a claim."""
        begun_s, time_out_s = self.clock.passed_s, 60.0 + 10.0 * len(submissions)
        answers: list[Submitted] = []
        for one in submissions:
            (Path(one.script).parent / "submit.err").touch()

        def arrive() -> None:
            for one in submissions:
                (Path(one.script).parent / "submit.rc").write_text("0\n")
            answers.extend(self._submit_one(one, Orders()) if not self._claimed(one) else self.take(one) for one in submissions)

        self.clock.at(begun_s + delay_s, arrive)
        self.clock.sleep(min(delay_s, time_out_s))
        if delay_s <= time_out_s:
            return answers
        raise TransportError("ssh sim: no end after its time-out: killed", transient=True)

    def _claimed(self, one: Submission) -> bool:
        return (Path(one.script).parent / "claim").exists()

    def _orphan(self, job: FakeJob, now: float) -> None:
        if job.started_s < NEVER and (job.live or not (job.folder / "exit.json").exists()):
            self.orphans.append((job, now + _REGISTERED_S if self.dice.random() < 0.5 else NEVER))

    def _as_it_was(self, job: FakeJob, since_s: float, now: float) -> FakeJob:
        entry = copy(job)
        entry.measured, entry.ended_s = False, NEVER
        if job.started_s <= since_s:  # it ran then
            if job.live:
                return job
            entry.state, entry.started_s = JobState.RUNNING, NEVER
            self.ghosts.append((entry, now + _GHOST_SEEN_S))
        else:
            entry.state, entry.started_s = JobState.QUEUED, NEVER
        self._orphan(job, now)
        return entry


StormScheduler.__abstractmethods__ = frozenset()

"""A cluster in this process: a scheduler at the seam, jobs that leave their files, and a clock that only waiting moves.

    site = FakeSite(tmp_path); site.driver().drive()       months pass in a second

What goes wrong is set on the site: how a submission is answered, what a look shows, which order is obeyed, when files appear.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget, Test
from hpcq.kernels import own_kernels
from hpcq.planning.plan import Cost, Goals, Plan
from hpcq.run_folder.journal import Event, Journal, read_journal
from hpcq.run_folder.paths import RunFolder, write_json
from hpcq.runner.drive.driver import Driver
from hpcq.runner.queue.account import Account, HeldByJobs, Limit, Pace, Share, SharedAccount
from hpcq.runner.queue.cluster_queue import ClusterQueue
from hpcq.runner.queue.run_state import ClusterState, Record
from hpcq.runner.site.place import ClusterSite
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import (
    Fate,
    FreeUntil,
    JobKey,
    JobReport,
    JobState,
    NodeCondition,
    NodeState,
    OtherJob,
    QueueQuery,
    QueueSnapshot,
    SchedulerSettings,
    Submission,
    Submitted,
)
from hpcq.transport import Completed, Here, quote
from tests.driver.fake_clock import FakeClock

NEVER = math.inf


@dataclass
class FakeJob:
    """One job in the scheduler's table."""

    scheduler_job_id: str
    tag: str
    folder: Path
    nodes: tuple[str, ...]
    walltime_s: float
    submitted_s: float
    mine: bool = True
    state: JobState = JobState.QUEUED
    reason: str = ""
    started_s: float = NEVER
    ended_s: float = NEVER
    measured: bool = False

    @property
    def live(self) -> bool:
        return not self.state.terminal


class FakeScheduler(Scheduler):
    """Starts jobs on idle nodes, first come, first served; each takes `run_s` unless it is told otherwise."""

    id_pattern = re.compile(r"\d+")

    def __init__(self, clock: FakeClock, nodes: Sequence[str]) -> None:
        super().__init__(Here(), SchedulerSettings())
        self.poll_lists_all = True
        self.clock = clock
        self.jobs: dict[str, FakeJob] = {}
        self.run_s = 60.0
        #: States of nodes that cannot be used, by name.
        self.node_states: dict[str, tuple[NodeCondition, str]] = {}
        #: What takes nodes from jobs soon, by name.
        self.bounded: dict[str, FreeUntil] = {}
        self.nodes_known = tuple(nodes)
        self.others: tuple[OtherJob, ...] = ()
        #: How long after a job's end its exit file appears.
        self.exit_file_delay_s = 0.0
        #: Nodes with which every test fails, though the job runs to its end.
        self.failing: set[str] = set()
        #: Answers instead of the scheduler's; None: it takes the job.
        self.answer: Callable[[Submission], Submitted | None] = lambda _: None
        #: A wrong report instead of the true one.
        self.shown: Callable[[FakeJob, JobReport], JobReport | None] = lambda _, report: report
        #: Whether an order to end this job is obeyed.
        self.obeys: Callable[[FakeJob], bool] = lambda _: True
        #: Raises what a controller that is away would say.
        self.look_hook: Callable[[], None] = lambda: None
        self.find_knows: Callable[[FakeJob], bool] = lambda _: True
        self.orders: list[tuple[float, str, bool]] = []
        self.submissions: list[tuple[float, str]] = []
        self.look_times: list[float] = []

    # -- what the driver asks -----------------------------------------------------------------------------------------

    def look(self, question: QueueQuery) -> QueueSnapshot:
        self.look_hook()
        self.advance()
        self.query_count += 1
        self.look_times.append(self.clock.passed_s)
        reports = {key.scheduler_job_id: self._believed(key, self._report(key.scheduler_job_id)) for key in question.jobs}
        return QueueSnapshot(
            reports,
            nodes=[self._node(name) for name in self.nodes_known] if question.nodes else None,
            others=self.others if question.others else None,
            mine=sum(job.live and job.mine for job in self.jobs.values()) if question.mine else None,
            own_nodes=self._own_nodes() if self.poll_lists_all else None,
        )

    def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        answers = []
        for one in submissions:
            self.submissions.append((self.clock.passed_s, one.tag))
            answers.append(self.answer(one) or self.take(one))
        self.advance()
        return answers

    def cancel(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str | None:
        self.advance()
        for key in jobs:
            self.orders.append((self.clock.passed_s, key.tag, queued_only))
            job = self.jobs.get(key.scheduler_job_id)
            if job is None or job.tag != key.tag or not job.mine or not job.live:
                continue
            if self.obeys(job) and not (queued_only and job.state is not JobState.QUEUED):
                self.end(job, JobState.CANCELLED)
        return None

    def find(self, tags: Sequence[str]) -> dict[str, str]:
        self.advance()
        return {job.tag: job.scheduler_job_id for job in self.jobs.values() if job.tag in tags and self.find_knows(job)}

    def submit_limit(self) -> int | None:
        return None

    def probe(self, script: str) -> Completed:  # noqa: ARG002 - its nodes see what the head sees
        return Completed(0, b"", "")

    # -- the world --------------------------------------------------------------------------------------------------------

    def take(self, one: Submission) -> Submitted:
        """The scheduler has the job."""
        scheduler_job_id = str(101 + len(self.jobs))
        folder = Path(one.script).parent
        self.jobs[scheduler_job_id] = FakeJob(scheduler_job_id, one.tag, folder, one.nodes, one.walltime_s, self.clock.passed_s)
        return Submitted(one.tag, scheduler_job_id)

    def advance(self) -> None:
        """Let happen what has happened by now."""
        now = self.clock.passed_s
        for job in sorted(self.jobs.values(), key=lambda one: one.submitted_s):
            if job.state is JobState.QUEUED and all(self._node(name).condition is NodeCondition.IDLE for name in job.nodes):
                self._start(job)
            if job.state is JobState.RUNNING and now - job.started_s >= self.run_s:
                self.end(job, JobState.COMPLETED, measured=True, at_s=job.started_s + self.run_s)
        for job in self.jobs.values():
            if job.ended_s + self.exit_file_delay_s <= now and job.started_s < NEVER:
                self._write_end(job)

    def end(self, job: FakeJob, state: JobState, *, measured: bool = False, at_s: float | None = None) -> None:
        """A job ends."""
        job.state, job.measured, job.ended_s = state, measured, self.clock.passed_s if at_s is None else at_s

    def of_tag(self, part: str) -> FakeJob:
        """The first job whose tag holds this text."""
        return next(job for job in self.jobs.values() if part in job.tag)

    def live(self) -> list[FakeJob]:
        """What the queue shows of us."""
        return [job for job in self.jobs.values() if job.live and job.mine]

    # -- private ------------------------------------------------------------------------------------------------------

    def _start(self, job: FakeJob) -> None:
        job.started_s = self.clock.passed_s
        job.state = JobState.RUNNING
        try:
            (job.folder / "claim").mkdir()
        except FileExistsError:  # withdrawn, or started before: it measures nothing
            job.started_s = NEVER
            self.end(job, JobState.COMPLETED)
            return
        started = {
            "format": 1,
            "tag": job.tag,
            "scheduler_job_id": job.scheduler_job_id,
            "started_utc": self._utc(job.started_s),
            "host": "n1",
        }
        (job.folder / "started.json").write_text(json.dumps(started))

    def _write_end(self, job: FakeJob) -> None:
        if (job.folder / "exit.json").exists():
            return
        reason = "done" if job.measured else "term"
        if job.measured:
            for step in [] if self.failing & {*job.nodes} else json.loads((job.folder / "job.json").read_text())["steps"]:
                times = {"started_utc": self._utc(job.started_s), "ended_utc": self._utc(job.ended_s)}
                (job.folder / f"{step['name']}.json").write_text('{"error": null}\n')
                (job.folder / f"{step['name']}.status").write_text(json.dumps({"rc": 0, **times}))
        said = {"format": 1, "tag": job.tag, "reason": reason, "rc": 0, "ended_utc": self._utc(job.ended_s)}
        (job.folder / "exit.json").write_text(json.dumps(said))

    def _report(self, scheduler_job_id: str) -> JobReport | None:
        job = self.jobs.get(scheduler_job_id)
        if job is None:
            return None
        word = job.state.value.upper()
        report = JobReport(scheduler_job_id, job.state, word, job.reason, job.nodes, name=job.tag, mine=job.mine)
        return self.shown(job, report)

    def _node(self, name: str) -> NodeState:
        if name in self.node_states:
            condition, word = self.node_states[name]
            return NodeState(name, condition, word)
        busy = any(job.state is JobState.RUNNING and name in job.nodes for job in self.jobs.values())
        condition, word = (NodeCondition.BUSY, "allocated") if busy else (NodeCondition.IDLE, "idle")
        return NodeState(name, condition, word, bounded=self.bounded.get(name))

    def _own_nodes(self) -> frozenset[str]:
        return frozenset(node for job in self.jobs.values() if job.mine and job.state is JobState.RUNNING for node in job.nodes)

    def _utc(self, passed_s: float) -> str:
        return (self.clock.utc_at(passed_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


FakeScheduler.__abstractmethods__ = frozenset()  # no command is typed here: what would type them is never asked


class OnlyRun(SharedAccount):
    """The account of a run that is the only one: it looks for no other, and for no stop file."""

    def refresh(self, held: HeldByJobs, used: float, *, at_once: bool = False) -> None:
        """Ask nobody."""


def described(run: str) -> dict[str, Any]:
    """What stands in run.json."""
    fields = {"run": run, "campaign": "night", "clusters": ["sim"], "links": [], "seed": 1}
    return {**fields, "created_utc": "2026-11-01T00:00:00Z", "database": "results.db"}


@dataclass
class FakeSite:
    """One cluster and one run on it."""

    folder: Path
    node_count: int = 4
    pairs: Sequence[tuple[str, str]] = (("n1", "n2"), ("n3", "n4"))
    #: The interface of each pair, where the campaign measures several networks.
    over: Sequence[str] = ()
    attempts: int = 2
    budget: Budget = field(default_factory=Budget)
    #: More keys of the cluster file.
    keys: str = ""
    run_name: str = "night-1"
    #: Whether it keeps the account of all runs, as stages do. Another site of the same folder then is another run.
    shares_account: bool = False
    scheduler_class: type[FakeScheduler] = FakeScheduler  # type: ignore[type-abstract]
    said: list[str] = field(default_factory=list)
    said_at: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        names = [f"n{number}" for number in range(1, self.node_count + 1)]
        self.scheduler = self.scheduler_class(self.clock, names)
        self.folder.mkdir(exist_ok=True, parents=True)
        path = self.folder / "sim.yaml"
        path.write_text(f"name: sim\nscheduler: slurm\nwork_directory: {self.folder / 'work'}\ninterface: eth0\n{self.keys}\n")
        self.cluster = read_cluster(path)
        self.run = RunFolder(self.folder / "runs" / self.run_name)
        self.root = self.folder / "work" / self.run_name
        self.plan = self._plan()
        self.run.plan("sim").parent.mkdir(parents=True, exist_ok=True)
        self.allow(self.plan.walltime_s)
        write_json(self.run.run_json, described(self.run_name))

    def allow(self, walltime_s: int) -> None:
        """Jobs have this time limit."""
        self.plan = replace(self.plan, walltime_s=walltime_s)
        self.run.plan("sim").write_text(self.plan.to_json())

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """A driver with its journal open; a later one takes up what an earlier one left."""
        with Journal(self.run.journal("sim")) as journal:
            state = ClusterState.replay(self.plan, journal.events)
            journal.append("opened", host="here", pid=1)
            transport, place = self.scheduler.transport, str(self.folder / "work" / "hpcq" / "account" / "sim")
            if self.shares_account:
                shared = SharedAccount(transport, place, self.run_name, self.cluster.budget, self.clock)
            else:
                shared = OnlyRun(transport, place, self.run_name, Budget(), self.clock)
            account = Account(self.budget, Pace.of(self.cluster, self.clock), Limit(self.scheduler, self.clock), shared)
            account.shares.append(Share(lambda: state.node_seconds, lambda: list(state.active.values())))
            record = Record("sim", journal, state, self._say)
            queue = ClusterQueue(self.place, account, record, folder=self.run.path / "sim", root=str(self.root))
            yield Driver(record, queue)

    @property
    def place(self) -> ClusterSite:
        """As stages make it; of the campaign, drivers ask for its kernels only."""
        campaign: Any = SimpleNamespace(kernels=own_kernels())
        transport = self.scheduler.transport
        return ClusterSite(self.run, campaign, self.cluster, transport, self.scheduler, self.run.path / "sim", str(self.root))

    def drive(self) -> list[Event]:
        """To the end; returns the events."""
        with self.driver() as driver:
            driver.drive()
            driver.finish()
        return self.events()

    def events(self) -> list[Event]:
        """The journal."""
        return read_journal(self.run.journal("sim"))

    def ends(self) -> list[tuple[str, str]]:
        """How attempts ended: job and outcome, in order."""
        jobs = {event["tag"]: event["job"] for event in self.events() if event["event"] == "attempt"}
        named = {"ended": "outcome", "refused": "event"}
        return [(jobs[one["tag"]], one[named[one["event"]]]) for one in self.events() if one["event"] in named]

    def reasons(self) -> dict[str, str]:
        """Why pairs were not run."""
        return {event["job"]: event["reason"] for event in self.events() if event["event"] == "not_run"}

    def at(self, passed_s: float, happens: Callable[[], object]) -> None:
        """Something happens at this moment."""
        self.clock.at(passed_s, happens)

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.said_at.append((self.clock.passed_s, text))

    def _plan(self) -> Plan:
        tests = (Test(1, "tcp_pingpong", "hpcq-net", {"message_bytes": 1}, 30),)
        count = len(self.pairs)
        return Plan(
            run=self.run_name,
            campaign="night",
            cluster="sim",
            interface="eth0",
            seed=7,
            candidates=(),
            excluded=(),
            tests=tests,
            repetition_count=1,
            walltime_s=120,
            attempt_count_max=self.attempts,
            pairs=tuple(self.pairs),
            over=tuple(self.over),
            not_planned=(),
            goals=Goals(pair_count=count, result_count=count, node_pair_count_min=1),
            cost=Cost(job_count=count, estimated_job_s=60.0, node_seconds=120.0 * count),
        )


def undetermined(tag: str) -> Submitted:
    """An answer from which nobody can know whether the scheduler has the job."""
    return Submitted(tag, None, "no answer from the scheduler", Fate.UNDETERMINED)


def steps_of(events: Sequence[Mapping[str, Any]]) -> int:
    """How many measurements the journal has."""
    return sum(len(event.get("measured", ())) for event in events if event["event"] == "ended")


__all__ = ["NEVER", "FakeJob", "FakeScheduler", "FakeSite", "quote", "replace", "steps_of", "undetermined"]

"""The contract that every scheduler keeps, as one function a promise; test modules run it on each real one.

A `Site` is a scheduler with a folder on its cluster and the names of its nodes.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from hpcq.definition.files.cluster import read_cluster
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobKey, JobReport, JobState, NodeCondition, Submission, Submitted
from hpcq.transport import quote
from tests.lab.lab_fixture import RunningLab


@dataclass(frozen=True, slots=True)
class Site:
    """One scheduler to try."""

    scheduler: Scheduler
    folder: str
    head: str
    """Directive lines that a script needs there; {name}, {nodes} and {chunks} are filled in."""
    tags: dict[str, str] = field(default_factory=dict)
    """native id -> tag of what was submitted."""
    remembers: bool = True
    """Whether the scheduler knows jobs that have ended; where it does not, UNKNOWN is all that it may say of them."""

    def script(self, name: str, body: str, nodes: tuple[str, ...] = ()) -> str:
        """Put a script there; returns its path."""
        path = f"{self.folder}/{name}/job.sh"
        text = f"#!/bin/bash\n{self._head(name, nodes)}\n{body}\n"
        done = self.scheduler.transport.sh(
            f"mkdir -p {quote(f'{self.folder}/{name}')} && printf %s {quote(text)} >{quote(path)}"
        )
        assert done.returncode == 0, done.stderr
        return path

    def _head(self, name: str, nodes: tuple[str, ...]) -> str:
        return self.head.format(name=name, nodes=",".join(nodes), chunks="+".join(f"1:host={node}" for node in nodes))

    def submit(self, name: str, body: str, *, walltime_s: int = 60) -> Submitted:
        """Submit a script for the first two nodes."""
        nodes = tuple(sorted(state.node for state in self.scheduler.nodes())[:2])
        [answer] = self.scheduler.submit([Submission(name, self.script(name, body, nodes), nodes, walltime_s)])
        if answer.scheduler_job_id:
            self.tags[answer.scheduler_job_id] = name
        return answer

    def key(self, scheduler_job_id: str) -> JobKey:
        """How the scheduler is asked about what was submitted here."""
        return JobKey(scheduler_job_id, self.tags[scheduler_job_id])

    def wait(self, scheduler_job_id: str, *states: JobState, within_s: float = 120) -> JobReport:
        """Poll until the job is in one of these states."""
        deadline = time.monotonic() + within_s
        while True:
            report = self.scheduler.poll([self.key(scheduler_job_id)])[scheduler_job_id]
            if report.state in states:
                return report
            assert time.monotonic() < deadline, f"{scheduler_job_id} is {report}, not {states}"
            time.sleep(0.3)

    def ends(self, scheduler_job_id: str, state: JobState, within_s: float = 120) -> None:
        """Wait for its end: in this state, or forgotten where the scheduler forgets. Never in another one."""
        wanted = TERMINAL if self.remembers else (JobState.UNKNOWN, *TERMINAL)
        report = self.wait(scheduler_job_id, *wanted, within_s=within_s)
        assert report.state is (state if self.remembers else JobState.UNKNOWN), report


TERMINAL = tuple(state for state in JobState if state.terminal)


def slurm_site(lab: RunningLab, name: str) -> Site:
    """One of a lab's two Slurm clusters."""
    cluster = read_cluster(lab.cluster_file(name))
    scheduler = scheduler_of(cluster, reach(cluster))
    head = "\n".join(
        [
            "#SBATCH --job-name={name}",
            "#SBATCH --nodes=2 --exclusive --no-requeue --time=1:00",
            f"#SBATCH --partition={cluster.partition}",
            "#SBATCH --nodelist={nodes}",
            *([f"#SBATCH --account={cluster.account}"] if cluster.account else []),
        ]
    )
    return Site(scheduler, f"{cluster.work_directory}/contract-{secrets.token_hex(4)}", head)


def pbs_site(cluster_file: Path, *, walltime: str = "0:01:00") -> Site:
    """A PBS by its cluster file; whether its server remembers ended jobs, it says itself."""
    cluster = read_cluster(cluster_file)
    scheduler = scheduler_of(cluster, reach(cluster))
    head = f"#PBS -l select={{chunks}} -l place=scatter:exclhost -l walltime={walltime} -r n -j oe"
    said = scheduler.transport.sh("PATH=$PATH:/opt/pbs/bin; qstat -Bf").text
    folder = f"{cluster.work_directory or cluster_file.parent}/contract-{secrets.token_hex(4)}"
    return Site(scheduler, folder, head, remembers="job_history_enable = True" in said)


def nodes_are_listed_and_idle(site: Site) -> None:
    deadline = time.monotonic() + 60
    while True:
        states = site.scheduler.nodes()
        assert len({state.node for state in states}) == len(states)
        if sum(state.condition is NodeCondition.IDLE for state in states) >= 2:
            return
        assert time.monotonic() < deadline, states  # those of an earlier promise's job are free in a moment
        time.sleep(0.3)


def success_and_failure_are_told_apart(site: Site) -> None:
    good, bad = site.submit("good", "exit 0"), site.submit("bad", "exit 3")
    assert good.scheduler_job_id
    assert bad.scheduler_job_id
    site.ends(good.scheduler_job_id, JobState.COMPLETED)
    site.ends(bad.scheduler_job_id, JobState.FAILED)


def a_running_job_is_running_and_its_nodes_are_busy(site: Site) -> None:
    answer = site.submit("running", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    nodes = sorted(site.scheduler.nodes(), key=lambda state: state.node)
    assert [state.condition for state in nodes[:2]] == [NodeCondition.BUSY] * 2
    site.scheduler.cancel([site.key(answer.scheduler_job_id)])
    site.ends(answer.scheduler_job_id, JobState.CANCELLED)


def a_queued_job_can_be_cancelled_and_twice(site: Site) -> None:
    first = site.submit("first", "sleep 300")
    assert first.scheduler_job_id
    site.wait(first.scheduler_job_id, JobState.RUNNING)
    second = site.submit("second", "sleep 300")
    assert second.scheduler_job_id
    assert site.wait(second.scheduler_job_id, JobState.QUEUED).state is JobState.QUEUED
    site.scheduler.cancel([site.key(second.scheduler_job_id), site.key(first.scheduler_job_id)])
    site.ends(first.scheduler_job_id, JobState.CANCELLED)
    site.ends(second.scheduler_job_id, JobState.CANCELLED)
    site.scheduler.cancel([site.key(second.scheduler_job_id), site.key(first.scheduler_job_id)])


def a_poll_answers_for_every_id(site: Site) -> None:
    answer = site.submit("known", "exit 0")
    assert answer.scheduler_job_id
    site.ends(answer.scheduler_job_id, JobState.COMPLETED)
    reports = site.scheduler.poll([JobKey("99999999", "nobody"), site.key(answer.scheduler_job_id)])
    assert list(reports) == ["99999999", answer.scheduler_job_id]
    assert reports["99999999"].state is JobState.UNKNOWN
    assert reports[answer.scheduler_job_id].state is (JobState.COMPLETED if site.remembers else JobState.UNKNOWN)
    alone = site.scheduler.poll([JobKey("99999999", "nobody")])
    assert alone["99999999"].state is JobState.UNKNOWN


def a_tag_finds_its_job_also_when_it_has_ended(site: Site) -> None:
    tag = f"tagged-{secrets.token_hex(4)}"
    answer = site.submit(tag, "sleep 3")
    assert answer.scheduler_job_id
    assert site.scheduler.find([tag, "nobody"]) == {tag: answer.scheduler_job_id}
    site.ends(answer.scheduler_job_id, JobState.COMPLETED)
    assert site.scheduler.find([tag, "nobody"]) == ({tag: answer.scheduler_job_id} if site.remembers else {})


def the_id_lands_beside_the_script(site: Site) -> None:
    answer = site.submit("beside", "exit 0")
    read = site.scheduler.transport.sh(f"cat {quote(f'{site.folder}/beside/submitted')}").text
    assert site.scheduler.read_scheduler_job_id(read) == answer.scheduler_job_id


def the_time_limit_ends_a_job(site: Site) -> None:
    answer = site.submit("endless", "sleep 300", walltime_s=2)
    assert answer.scheduler_job_id
    site.ends(answer.scheduler_job_id, JobState.TIMED_OUT, within_s=150)


def an_id_without_its_name_is_not_believed(site: Site) -> None:
    """A controller that lost its state gives ids out again: what carries another name is not ours to read or to end."""
    answer = site.submit("ours", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    stranger = JobKey(answer.scheduler_job_id, "another")
    report = site.scheduler.poll([stranger])[answer.scheduler_job_id]
    assert report.state is JobState.UNKNOWN
    assert "'ours'" in report.reason
    site.scheduler.cancel([stranger])
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    site.scheduler.cancel([site.key(answer.scheduler_job_id)])
    site.ends(answer.scheduler_job_id, JobState.CANCELLED)


def what_is_no_id_spoils_nothing(site: Site) -> None:
    answer = site.submit("sound", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    nonsense = [JobKey(text, "sound") for text in ("unknown", "", "Welcome to the cluster", "1; touch pwned", "-1", "1 2")]
    reports = site.scheduler.poll([*nonsense, site.key(answer.scheduler_job_id)])
    assert reports[answer.scheduler_job_id].state is JobState.RUNNING
    assert {reports[key.scheduler_job_id].state for key in nonsense} == {JobState.UNKNOWN}
    assert site.scheduler.cancel([*nonsense, site.key(answer.scheduler_job_id)]) is None
    site.ends(answer.scheduler_job_id, JobState.CANCELLED)


def a_running_job_survives_the_cancelling_of_queued_ones(site: Site) -> None:
    answer = site.submit("started", "sleep 300")
    assert answer.scheduler_job_id
    site.wait(answer.scheduler_job_id, JobState.RUNNING)
    site.scheduler.cancel([site.key(answer.scheduler_job_id)], queued_only=True)
    time.sleep(1.0)
    assert site.wait(answer.scheduler_job_id, JobState.RUNNING, *TERMINAL).state is JobState.RUNNING
    site.scheduler.cancel([site.key(answer.scheduler_job_id)])
    site.ends(answer.scheduler_job_id, JobState.CANCELLED)


PROMISES = [
    an_id_without_its_name_is_not_believed,
    what_is_no_id_spoils_nothing,
    a_running_job_survives_the_cancelling_of_queued_ones,
    nodes_are_listed_and_idle,
    success_and_failure_are_told_apart,
    a_running_job_is_running_and_its_nodes_are_busy,
    a_queued_job_can_be_cancelled_and_twice,
    a_poll_answers_for_every_id,
    a_tag_finds_its_job_also_when_it_has_ended,
    the_id_lands_beside_the_script,
]

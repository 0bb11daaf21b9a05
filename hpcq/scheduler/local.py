"""The embedded scheduler: a queue for this one machine, so that you can try hpcq without a cluster.

Its nodes are names for this machine. A running job holds file locks on its two nodes (localq.sh does the work).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcq.errors import SchedulerError
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.description import Description, SharedKey
from hpcq.scheduler.types import Fate, JobKey, JobReport, JobState, NodeCondition, NodeState, Submission, Submitted
from hpcq.transport import Completed, quote

DESCRIPTION = Description(
    kind="local",
    title="the local queue",
    keys=(),
    takes=frozenset({SharedKey.NODES}),
    found_by="",
    head_template="local.directives.j2",
    default_mpi_launch=("mpirun", "-np", "2"),
    default_interface="lo",
    default_nodes=("local-1", "local-2"),
    poll_interval_s=0.5,
    poll_interval_min_s=0.0,
    filesystem_delay_s=1.0,
    here_only=True,
)

_PROGRAM = Path(__file__).with_name("localq.sh")

_STATES = {
    "PENDING": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMED_OUT,
}


class Local(Scheduler):
    """localq.sh behind the interface of a batch system."""

    id_pattern = re.compile(r"[1-9][0-9]{0,9}")

    def _localq(self, *words: str) -> str:
        return " ".join(["/bin/sh", quote(str(_PROGRAM)), quote(self.settings.queue_folder), *map(quote, words)])

    def nodes_command(self) -> str:
        return self._localq("nodes", *self.settings.nodes)

    def read_nodes(self, answer: str) -> list[NodeState]:
        rows = [line.rpartition("|") for line in answer.splitlines()]
        return [
            NodeState(node=name, condition=NodeCondition.IDLE if word == "idle" else NodeCondition.BUSY, native_state=word)
            for name, _, word in rows
        ]

    def submit_command(self, submission: Submission) -> str:
        return self._localq("submit", submission.script, submission.tag, str(submission.walltime_s), *submission.nodes)

    def estimate_command(self, submission: Submission) -> str | None:
        return self._localq("nodes", *submission.nodes)

    def read_estimate(self, done: Completed) -> float | None:
        words = [line.rpartition("|")[2] for line in done.text.splitlines()]
        return 0.0 if words and all(word == "idle" for word in words) else None

    def read_submission(self, tag: str, done: Completed) -> Submitted:
        if done.returncode == 0:
            return Submitted(tag, self.read_scheduler_job_id(done.text))
        fate = Fate.UNDETERMINED if done.returncode >= 128 else Fate.UNSURE
        return Submitted(tag, None, done.stderr.strip() or f"exit code {done.returncode}", fate)

    def read_scheduler_job_id(self, answer: str) -> str:
        scheduler_job_id = answer.strip()
        return scheduler_job_id if self.is_id(scheduler_job_id) else ""

    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        return self._localq("poll", *(job.scheduler_job_id for job in jobs))

    def read_poll(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: localq: {done.stderr.strip()}")
        reports = []
        for line in done.text.splitlines():
            scheduler_job_id, word, nodes, name, reason = line.split("|", 4)
            state = _STATES.get(word, JobState.UNKNOWN)
            names = tuple(node for node in nodes.split(",") if node)
            reports.append(JobReport(scheduler_job_id, state, word, reason, names, name=name, mine=True, own_request=True))
        return reports

    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        verb = "cancel-queued" if queued_only else "cancel"
        return self._localq(verb, *(word for job in jobs for word in (job.scheduler_job_id, job.tag)))

    def find_command(self, tags: Sequence[str]) -> str:  # noqa: ARG002 - the queue is small, it lists everything
        return self._localq("find")

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        for line in answer.splitlines():
            scheduler_job_id, _, tag = line.partition("|")
            yield tag, scheduler_job_id

    def probe_command(self, script: str) -> str:
        return f"/bin/sh -c {quote(script)}"

    def versions_command(self) -> str:
        return "echo 'hpcq local queue'; command -v mpirun >/dev/null && mpirun --version | head -n 1; true"

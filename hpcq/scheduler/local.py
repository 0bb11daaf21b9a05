"""The embedded scheduler: a queue for this one machine, so that hpcq can be tried without a cluster.

Its nodes are names for this machine; a job holds its two nodes by file locks while it runs (localq.sh does the work).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcq.errors import SchedulerError
from hpcq.scheduler.base import JobReport, JobState, NodeCondition, NodeState, Scheduler, Submission
from hpcq.transport import Completed, quote

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
    """localq.sh in the shape of a batch system."""

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

    def read_native_id(self, answer: str) -> str:
        return answer.strip()

    def poll_command(self, native_ids: Sequence[str]) -> str:
        return self._localq("poll", *native_ids)

    def read_poll(self, done: Completed) -> list[JobReport]:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: localq: {done.stderr.strip()}")
        reports = []
        for line in done.text.splitlines():
            native_id, word, nodes, reason = line.split("|", 3)
            state = _STATES.get(word, JobState.UNKNOWN)
            names = tuple(name for name in nodes.split(",") if name)
            reports.append(JobReport(native_id, state, word, reason, names))
        return reports

    def cancel_command(self, native_ids: Sequence[str], *, queued_only: bool = False) -> str:  # noqa: ARG002 - it ends both
        return self._localq("cancel", *native_ids)

    def find_command(self, tags: Sequence[str]) -> str:  # noqa: ARG002 - the queue is small, it lists everything
        return self._localq("find")

    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        for line in answer.splitlines():
            native_id, _, tag = line.partition("|")
            yield tag, native_id

    def probe_command(self, script: str) -> str:
        return f"/bin/sh -c {quote(script)}"

    def versions_command(self) -> str:
        return "echo 'hpcq local queue'; command -v mpirun >/dev/null && mpirun --version | head -n 1; true"

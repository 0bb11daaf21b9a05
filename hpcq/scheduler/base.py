"""What hpcq asks of a batch system: a few questions, each about all jobs at once. This module holds the common rules.

The life of a job, as a driver sees it:

    attempt committed to the journal -> submit -> native_id -> poll … poll -> a terminal state -> exit file fetched
                  |                        |
                  |                        +- refused: the scheduler said no; the attempt ends as `refused`
                  +- driver died here: find(tag) shows whether the submission happened

A package below hpcq/scheduler/ says what to type and how to read the answer (adapter.py). This module runs and
chunks the commands, and has the rules:

    - one poll asks everything in one command: nodes, all our jobs, who else waits. A job that the scheduler does not
      know is UNKNOWN here. The driver makes it LOST after a grace period, never successful;
    - hpcq asks for waiting jobs of other users less often than for its own: that list may be as long as the queue;
    - a failed poll changes nothing: it raises, and the driver keeps its last state;
    - an unknown state word gives UNKNOWN with the word in `reason`; hpcq does not guess;
    - an id counts only with its name and its user: a report of a job with another name or another user is UNKNOWN
      with that reason. Text that does not have the form of an id never gets into a command.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from hpcq.errors import SchedulerError
from hpcq.scheduler.adapter import Adapter
from hpcq.scheduler.limits import NO_LIMITS, JobLimits
from hpcq.scheduler.parts import SUBMIT, chunks, parts_of, parts_script, submitted_rows
from hpcq.scheduler.types import (
    Fate,
    JobKey,
    JobReport,
    JobState,
    NodeState,
    OtherJob,
    QueueQuery,
    QueueSnapshot,
    SchedulerSettings,
    Submission,
    Submitted,
)
from hpcq.transport import Completed, Transport, quote


class Scheduler(Adapter):
    """Runs and chunks commands. The subclass writes them and reads their answers."""

    #: Ids per command: far below any limit of a command line.
    _CHUNK = 500

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: Waiting jobs of other users as of the last query, and the time of that query.
        self._others: tuple[OtherJob, ...] = ()
        self._others_s = -math.inf
        #: Queries of the scheduler; submitting and cancelling do not count.
        self.query_count = 0

    # -- what the driver asks ---------------------------------------------------------------------------------------

    def look(self, question: QueueQuery) -> QueueSnapshot:
        """Ask several things in one command. Raises SchedulerError when one of the answers is missing."""
        parts: dict[str, str] = {}
        if question.nodes:
            parts["nodes"] = self.nodes_command()
        jobs = self._plausible(question.jobs)
        if jobs:
            parts["jobs"] = self.poll_command(jobs)
        others, mine = self.others_command(), self.mine_command()
        now_s = time.monotonic()
        if question.others and others is not None and now_s - self._others_s >= self.settings.others_period_s:
            parts["others"] = others
        if question.mine and mine is not None:
            parts["mine"] = mine
        kept = self._others if question.others and others is not None else None
        if not parts:
            return QueueSnapshot(self._reports(question.jobs, None), others=kept)
        self.query_count += 1
        said = parts_of(self.transport.sh(parts_script(parts)), parts)
        if "others" in said:
            kept = self._others = self.read_others(self._answered(said["others"], "job list").text)
            self._others_s = now_s
        return QueueSnapshot(
            reports=self._reports(question.jobs, said.get("jobs")),
            nodes=self.read_nodes(self._answered(said["nodes"], "node list").text) if "nodes" in said else None,
            others=kept,
            mine=self.read_mine(self._answered(said["mine"], "job list").text) if "mine" in said else None,
        )

    def nodes(self) -> list[NodeState]:
        """Return every node of the partition and its present state. Raises SchedulerError without an answer."""
        return self.look(QueueQuery(nodes=True)).nodes or []

    def switches(self) -> dict[str, str]:
        """Return the leaf switch of each node; empty if the scheduler knows none."""
        command = self.switches_command()
        if command is None:
            return {}
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_switches(done.text) if done.returncode == 0 else {}

    def submit_limit(self) -> int | None:
        """Return how many jobs the accounting allows this user; None without a limit or without an answer."""
        command = self.limit_command()
        if command is None:
            return None
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_limit(done.text) if done.returncode == 0 else None

    def job_limits(self) -> JobLimits:
        """Return the limits of one job of this user in the partition; no limits if the scheduler reports none."""
        command = self.job_limits_command()
        if command is None:
            return NO_LIMITS
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_job_limits(done.text) if done.returncode == 0 else NO_LIMITS

    def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Submit all scripts with one command on the cluster. Returns one answer per submission, in order.

        Each id is also written to `submitted` beside its script, so that the next driver finds it if this one dies.
        A submission without an answer is undetermined, never refused.
        Raises TransportError when the connection broke: then `find` shows what happened.
        """
        answers: list[Submitted] = []
        for chunk in chunks(submissions, self._CHUNK):
            script = self._submit_function() + "\n".join(
                f"submit {quote(str(PurePosixPath(one.script).parent))} {quote(one.tag)} {self.submit_command(one)}"
                for one in chunk
            )
            done = self.transport.sh(script, timeout_s=60 + 10 * len(chunk))
            rows = submitted_rows(done.text)
            answers += [self._submitted(one, rows.get(one.tag), done) for one in chunk]
        return answers

    def expected_wait_s(self, submission: Submission) -> float | None:
        """Return in how many seconds a script would start if submitted now; None if the scheduler does not say."""
        command = self.estimate_command(submission)
        if command is None:
            return None
        folder = quote(str(PurePosixPath(submission.script).parent))
        self.query_count += 1
        return self.read_estimate(self.transport.sh(f"cd {folder} || exit 1\n{command}"))

    def poll(self, jobs: Sequence[JobKey]) -> dict[str, JobReport]:
        """Return a report for every id. A job unknown to the scheduler is UNKNOWN with the reason `not known`."""
        return self.look(QueueQuery(jobs)).reports

    def cancel(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str | None:
        """End jobs that still have these names and belong to us.

        queued_only: jobs that have started meanwhile continue.
        Returns None when the scheduler accepted the order, else its words. A job that has already ended is no error.
        An accepted order may not have taken effect yet: only a poll shows that.
        """
        words: list[str] = []
        for chunk in chunks(self._plausible(jobs), self._CHUNK):
            done = self.transport.sh(self.cancel_command(chunk, queued_only=queued_only))
            if done.returncode != 0:
                words.append(" ".join(done.stderr.split()) or f"exit code {done.returncode}")
        return "; ".join(words) or None

    def may_not_reserve(self) -> str | None:
        """Return why this user may not make reservations; None if the scheduler allows it or does not say."""
        command = self.may_reserve_command()
        if command is None:
            return "this scheduler has no reservations that hpcq could make"
        self.query_count += 1
        return self.read_may_reserve(self.transport.sh(command))

    def has_reservation(self, name: str) -> bool:
        """Whether a reservation with this name exists. Raises SchedulerError where the scheduler did not answer."""
        self.query_count += 1
        words = self._reservation("show", name)
        if words is not None and any(one in words for one in self.away_words()):
            raise SchedulerError(f"{self.transport.where}: reservation {name}: {words}")
        return words is None

    def reserve(self, name: str, nodes: Sequence[str], minutes: int) -> str | None:
        """Make a reservation for this user that begins now. Returns None, or the words of the refusal."""
        return self._reservation("make", name, nodes, minutes)

    def prolong(self, name: str, minutes: int) -> bool:
        """Set the end of a reservation to this many minutes from now; False if it no longer exists."""
        return self._reservation("prolong", name, (), minutes) is None

    def release(self, name: str) -> bool:
        """Remove a reservation; False while it has jobs. True if it is already gone. Raises as has_reservation does."""
        return self._reservation("remove", name) is None or not self.has_reservation(name)

    def find(self, tags: Sequence[str]) -> dict[str, str]:
        """Return the native ids of the tags that the scheduler knows: queued, running or ended jobs."""
        found: dict[str, str] = {}
        for chunk in chunks(tags, self._CHUNK):
            wanted = set(chunk)
            answer = self._ask(self.find_command(chunk), "job list")
            rows = [(tag, native_id) for tag, native_id in self.read_find(answer.text) if tag in wanted]
            found.update({tag: native_id for tag, native_id in rows if self.is_id(native_id)})
        return found

    def is_id(self, text: str) -> bool:
        """Whether a text has the form of a native id of this scheduler."""
        return self.id_pattern.fullmatch(text) is not None

    def probe(self, script: str) -> Completed:
        """Run a short shell script on an idle node; waits at most 15 s for one."""
        self.query_count += 1
        return self.transport.sh(self.probe_command(script), timeout_s=60)

    def versions(self) -> str:
        """Return the scheduler's version, as text for a person."""
        return self.transport.sh(self.versions_command()).text

    # -- private ----------------------------------------------------------------------------------------------------

    def _ask(self, command: str, what: str) -> Completed:
        self.query_count += 1
        return self._answered(self.transport.sh(command), what)

    def _answered(self, done: Completed, what: str) -> Completed:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: {what}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return done

    def _plausible(self, jobs: Sequence[JobKey]) -> list[JobKey]:
        """Return the jobs whose id has this scheduler's form: one malformed id would spoil the answer for all."""
        return [job for job in jobs if self.is_id(job.native_id)]

    def _reports(self, jobs: Sequence[JobKey], polled: Completed | None) -> dict[str, JobReport]:
        known = {report.native_id: report for report in self.read_poll(polled)} if polled is not None else {}
        missing = [job for job in self._plausible(jobs) if job.native_id not in known]
        for chunk in chunks(missing, self._CHUNK):
            command = self.history_command(chunk)
            if command is not None:
                self.query_count += 1
                for report in self.read_history(self.transport.sh(command)):
                    known[report.native_id] = replace(report, remembered=True)
        return {job.native_id: self._believed(job, known.get(job.native_id)) for job in jobs}

    def _believed(self, job: JobKey, report: JobReport | None) -> JobReport:
        """Return the report if it is about our job: this id, with this name, of this user."""
        if not self.is_id(job.native_id):
            return JobReport(job.native_id, JobState.UNKNOWN, reason=f"{job.native_id!r} is no id of this scheduler")
        if report is None:
            return JobReport(job.native_id, JobState.UNKNOWN, reason="not known to the scheduler")
        if report.mine is False:
            return JobReport(job.native_id, JobState.UNKNOWN, reason=f"job {job.native_id} is somebody else's: {report.name!r}")
        if report.name != job.tag:
            return JobReport(job.native_id, JobState.UNKNOWN, reason=f"job {job.native_id} is another one: {report.name!r}")
        return replace(report, native_id=job.native_id)

    def _reservation(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str | None:
        return self.reservation_refusal(verb, self.transport.sh(self.reservation_command(verb, name, nodes, minutes)))

    def _submit_function(self) -> str:
        return SUBMIT.replace("LIMITED", "|".join(f"*{quote(words)}*" for words in self.limit_words()) or "''")

    def _submitted(self, one: Submission, row: Completed | None, whole: Completed) -> Submitted:
        if row is None:
            words = whole.stderr.strip() or f"no answer from the scheduler; the shell ended with {whole.returncode}"
            return Submitted(one.tag, None, words, Fate.UNDETERMINED)
        if row.returncode < 0:
            return Submitted(one.tag, None, row.stderr, Fate.LIMITED, tried=False)
        answer = self.read_submission(one.tag, row)
        if answer.fate is Fate.TAKEN and not self.is_id(answer.native_id or ""):
            return Submitted(one.tag, None, f"no id in the answer {row.text.strip()!r}", Fate.UNDETERMINED)
        return answer

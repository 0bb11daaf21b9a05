"""What hpcq asks of a batch system: a few questions, each about all jobs at once. This module holds the common rules.

The life of a job, as a driver sees it:

    attempt committed to the journal -> submit -> scheduler_job_id -> poll … poll -> a terminal state -> exit file fetched
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
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TypeVar

from hpcq.errors import SchedulerError
from hpcq.scheduler.administration import Administration
from hpcq.scheduler.types import (
    CheckedItem,
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
from hpcq.topology import Topology
from hpcq.transport import Completed, Transport, quote

# ----------------------------------------------------------------------------------------------------------------------
# What a site allows one job of this user: its size, its time, and whether the site accepts it at all. Plain data.


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit and who sets it, in the site's own words."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of one job in its partition or queue; None means no limit."""

    partition: str = ""
    #: UP, DOWN, DRAIN or INACTIVE: the present state, which may change.
    state: str = "UP"
    max_nodes: Bound | None = None
    nodes_at_least: Bound | None = None
    max_walltime_s: Bound | None = None
    min_walltime_s: Bound | None = None
    #: Why the site would refuse jobs of this user, each reason with the site's words.
    refusals: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the limits as text for a person."""
        shown = [
            (self.nodes_at_least, "at least {} nodes per job"),
            (self.max_nodes, "at most {} nodes per job"),
            (self.min_walltime_s, "at least {} s"),
            (self.max_walltime_s, "at most {} s"),
        ]
        return [f"{text.format(bound.value)} ({bound.source})" for bound, text in shown if bound is not None]


NO_LIMITS = JobLimits()


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition or queue as this user sees it: what one job may be, and its nodes."""

    limits: JobLimits
    is_default: bool = False
    node_count: int = 0
    idle_count: int = 0
    #: Each class of nodes in the site's words: "4 nodes of 64 CPUs, 256 GB".
    hardware: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.limits.partition

    @property
    def takes_pairs(self) -> bool:
        """Whether a job of two nodes of this user may run there now."""
        most = self.limits.max_nodes
        return not self.limits.refusals and self.limits.state == "UP" and self.node_count > 1 and (not most or most.value > 1)

    def words(self) -> str:
        """Return it as text for a person."""
        limits = "; ".join([*self.limits.refusals, *self.limits.words()])
        state = [] if self.limits.state == "UP" else [self.limits.state]
        nodes = ", ".join(self.hardware) or f"{self.node_count} nodes"
        return "; ".join([*state, f"{nodes}, {self.idle_count} idle", *([limits] if limits else [])])


@dataclass(frozen=True, slots=True)
class SiteSurvey:
    """What a scheduler says of its site to a user who has no cluster file yet.

    name: of the cluster; "" where the scheduler has none. accounts: that this user may charge, the default one first.
    mpi_launches: how programs of an MPI library are started there, by the name in its compiler's version, as Open MPI.
    """

    name: str = ""
    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] = ()
    mpi_launches: Mapping[str, str] = field(default_factory=dict)


def node_classes(nodes: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Return (words of one node, how many nodes) as text, the most frequent class first."""
    counts = Counter[str]()
    for words, count in nodes:
        counts[words] += count
    return tuple(f"{count} node{'s' if count != 1 else ''} of {words}" for words, count in counts.most_common())


# ----------------------------------------------------------------------------------------------------------------------
# What a scheduler package implements: which commands to type, and how to read their answers. This module runs nothing.
#
# Each question is a pair: `*_command` returns shell text for the cluster, `read_*` reads its answer. The commands of one
# poll run together, as one script. The adapter quotes every word that comes from people (names, reasons).
# An answer is a `Completed`: exit code and both outputs.
# The adapter decides which of them to trust: some schedulers print "denied" and end with 0.
#
# A package must implement the methods without a default. A default means "this scheduler cannot answer that".
# docs/extending.md explains one package step by step.


class Adapter(ABC):
    """One kind of scheduler, in its own words."""

    #: Matches a complete native id. Anything else in a submission's answer is not an id.
    id_pattern: re.Pattern[str]
    #: Whether `poll_command` lists all jobs of this user, not only those that it is asked for.
    poll_lists_all = False

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        self.transport = transport
        self.settings = settings

    # -- nodes ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def nodes_command(self) -> str:
        """List the nodes. Exit code 0 means that the answer is complete."""

    @abstractmethod
    def read_nodes(self, answer: str) -> list[NodeState]:
        """Read that list."""

    def topology_command(self) -> str | None:
        """List which node is on which switch; None if the scheduler does not know it."""
        return None

    def read_topology(self, answer: str) -> Topology:  # noqa: ARG002 - not every scheduler can
        """Read that list."""
        return Topology()

    # -- submitting -------------------------------------------------------------------------------------------------

    @abstractmethod
    def submit_command(self, submission: Submission) -> str:
        """Submit one script; prints its id.

        It must be one simple command: `exec` runs it in the script's folder.
        """

    @abstractmethod
    def read_submission(self, tag: str, done: Completed) -> Submitted:
        """Return the fate of a submission. done: exit code and both outputs of the submit command, each on one line.

        TAKEN only with an id that matches `id_pattern`. REFUSED only for known words with the exit code for refusals; FINAL
        if these words hold for every job of the run.
        LIMITED for the words of `limit_words`. UNDETERMINED for exit codes from 128 on, and for 0 without an id.
        UNSURE for all other words.
        """

    @abstractmethod
    def read_scheduler_job_id(self, answer: str) -> str:
        """Return the id in the output of the submit command; "" if it has none, or other text beside it."""

    def limit_words(self) -> Sequence[str]:
        """Return words of the submit command that mean "no more jobs now".

        After them hpcq does not try the rest of the wave.
        """
        return ()

    def estimate_command(self, submission: Submission) -> str | None:  # noqa: ARG002
        """Ask when a script would start, without submitting it; None if the scheduler cannot say."""
        return None

    def read_estimate(self, done: Completed) -> float | None:  # noqa: ARG002
        """Read that answer: seconds from now; None if it contains no time."""
        return None

    # -- jobs -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def poll_command(self, jobs: Sequence[JobKey]) -> str:
        """Ask about all of these jobs at once. An id that the scheduler does not know must not spoil the answer."""

    @abstractmethod
    def read_poll(self, done: Completed) -> list[JobReport]:
        """Read the answer, with each job's name and whether it is ours. A job is unknown if the answer lacks it.

        Raises SchedulerError if the text is not an answer: hpcq then concludes nothing.
        """

    def history_command(self, jobs: Sequence[JobKey]) -> str | None:  # noqa: ARG002 - not every scheduler keeps one
        """Ask the accounting about jobs that the queue has forgotten; None without an accounting."""
        return None

    def read_history(self, done: Completed) -> list[JobReport]:  # noqa: ARG002
        """Read that answer like `read_poll`. Without an answer the result is empty."""
        return []

    @abstractmethod
    def cancel_command(self, jobs: Sequence[JobKey], *, queued_only: bool = False) -> str:
        """End those of these jobs that have this id, this name and this user; queued_only: and have not started.

        Ends with 0 if none of them was left, or if the scheduler accepted the order for all of them.
        """

    @abstractmethod
    def find_command(self, tags: Sequence[str]) -> str:
        """List this user's jobs with these names: queued, running, or ended as far back as the scheduler remembers."""

    @abstractmethod
    def read_find(self, answer: str) -> Iterable[tuple[str, str]]:
        """Read (tag, native id) rows."""

    def others_command(self) -> str | None:
        """List what other users' jobs wait for; None if the scheduler cannot answer that."""
        return None

    def read_others(self, answer: str) -> tuple[OtherJob, ...]:  # noqa: ARG002
        """Return those of their jobs that wait for nodes."""
        return ()

    def mine_command(self) -> str | None:
        """List all live jobs of this user, one word each; None if the scheduler cannot answer that."""
        return None

    def read_mine(self, answer: str) -> int:
        """Return how many there are."""
        return len(answer.split())

    # -- limits -----------------------------------------------------------------------------------------------------

    def job_limits_command(self) -> str | None:
        """Ask for the limits of one job; None if there are none."""
        return None

    def read_job_limits(self, answer: str) -> JobLimits:  # noqa: ARG002
        """Read that answer."""
        return NO_LIMITS

    def limit_command(self) -> str | None:
        """Ask how many jobs this user may have; None if the scheduler has no such limit."""
        return None

    def read_limit(self, answer: str) -> int | None:  # noqa: ARG002
        """Read that answer."""
        return None

    # -- reservations of a run --------------------------------------------------------------------------------------

    def may_reserve_command(self) -> str | None:
        """Ask for this user's rights; None if the scheduler has no reservations that hpcq can make."""
        return None

    def read_may_reserve(self, done: Completed) -> str | None:  # noqa: ARG002
        """Read that answer: why this user may not make reservations, or None."""
        return None

    def reservation_command(self, verb: str, name: str, nodes: Sequence[str] = (), minutes: int = 0) -> str:  # noqa: ARG002
        """Show, make, prolong or remove a reservation."""
        raise SchedulerError(f"{self.transport.where}: no reservations can be made there")

    def reservation_refusal(self, verb: str, done: Completed) -> str | None:  # noqa: ARG002
        """Return None if that was done, else the scheduler's words against it (for show: that there is none)."""
        words = " ".join(f"{done.stderr} {done.text}".split())
        return None if done.returncode == 0 else words or f"exit code {done.returncode}"

    def busy_words(self) -> Sequence[str]:
        """Return words of a refused reservation that mean: not these nodes now."""
        return ()

    def away_words(self) -> Sequence[str]:
        """Return words of an answer that comes from no scheduler: it proves nothing about what there is."""
        return ()

    # -- the site ---------------------------------------------------------------------------------------------------

    def survey_command(self) -> str | None:
        """Ask for what `hpcq cluster new` offers to choose from; None if there is nothing to choose."""
        return None

    def read_survey(self, answer: str, account: str | None) -> SiteSurvey:  # noqa: ARG002
        """Read that answer, with the limits of jobs that this account pays."""
        return SiteSurvey()

    @abstractmethod
    def versions_command(self) -> str:
        """Print the scheduler's version on the first line."""

    @abstractmethod
    def probe_command(self, script: str) -> str:
        """Run a shell script on one idle node of the partition now, and wait for it."""

    def site_items(self, mpi_launch: Sequence[str] | None) -> list[CheckedItem]:  # noqa: ARG002
        """Return what `hpcq cluster check` finds about this scheduler beyond the common items, with the consequences.

        mpi_launch: the words that start MPI programs; None without MPI. Runs its own commands, each once.
        """
        return []

    def memory_lock_advice(self) -> str:
        """Return where this scheduler sets how much memory a job may lock."""
        return "MPI over RDMA wants unlimited: raise the limit of the daemon that starts jobs on the nodes"

    def administration(self) -> Administration | None:
        """Return the orders of an acceptance; None if hpcq has none for this scheduler."""
        return None


# ----------------------------------------------------------------------------------------------------------------------
# Run several commands as one script. Marks separate their outputs. Shell text, and how to read its answer.


_Item = TypeVar("_Item")

#: submit FOLDER TAG COMMAND…: prints "@submitted<TAB>tag<TAB>rc<TAB>standard output<TAB>standard error".
#: It also writes the output to FOLDER/submitted. submit.err without submit.rc there: the command has not ended.
#: After the first refusal because of a limit it does not try the rest (rc -1), because the scheduler would refuse those
#: as well.
SUBMIT = r"""
full=
one_line() { tr '\n\t\r' '   ' | sed 's/ *$//'; }
submit() {
    folder=$1; tag=$2; shift 2
    [ -z "$full" ] || { printf '@submitted\t%s\t-1\t\tnot tried: %s\n' "$tag" "$full"; return; }
    [ ! -e "$folder/claim" ] || { printf '@submitted\t%s\t255\t\twithdrawn before it was submitted\n' "$tag"; return; }
    answer=$(cd "$folder" && exec "$@" 2>"$folder/submit.err"); rc=$?
    echo "$rc" >"$folder/submit.rc"
    words=$(one_line <"$folder/submit.err")
    if [ "$rc" -eq 0 ]; then
        printf '%s\n' "$answer" >"$folder/submitted"
    else
        case $answer$words in LIMITED) full=$words ;; esac
    fi
    printf '@submitted\t%s\t%s\t%s\t%s\n' "$tag" "$rc" "$(printf '%s' "$answer" | one_line)" "$words"
}
"""
_PART = "@hpcq-part"


def parts_script(parts: Mapping[str, str]) -> str:
    """Join several commands. Each marks where its part begins on both outputs, and prints its exit code at the end."""
    lines = []
    for name, command in parts.items():
        lines.append(f"printf '\\n{_PART} {name}\\n'; printf '\\n{_PART} {name}\\n' >&2")
        lines.append(f"{{ {command}\n}}; printf '\\n{_PART} rc %s\\n' \"$?\"")
    return "\n".join(lines)


def parts_of(done: Completed, wanted: Iterable[str]) -> dict[str, Completed]:
    """Return what each part printed. Raises SchedulerError when one is missing: the answer was cut off."""
    texts, codes, last = {}, {}, ""
    for part in done.text.split(f"\n{_PART} ")[1:]:
        head, _, text = part.partition("\n")
        if head.startswith("rc "):
            codes[last] = int(head[3:])
        else:
            last = head
            texts[head] = text
    errors = {head: text for head, _, text in (part.partition("\n") for part in done.stderr.split(f"\n{_PART} ")[1:])}
    broken = [name for name in wanted if name not in codes]
    if broken:
        raise SchedulerError(f"{broken[0]}: the answer broke off: {done.stderr.strip()[-200:] or 'nothing was said'}")
    return {name: Completed(codes[name], texts[name].encode(), errors.get(name, "")) for name in wanted}


def chunks(items: Sequence[_Item], size: int) -> Iterable[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def submitted_rows(text: str) -> dict[str, Completed]:
    """Read what SUBMIT printed: tag -> how its submit command ended. An exit code of -1: the script did not try it."""
    rows = {}
    for line in text.split("\n"):
        fields = line.split("\t", 4)
        if len(fields) == 5 and fields[0] == "@submitted" and fields[2].lstrip("-").isdecimal():
            _, tag, code, out, err = fields
            rows[tag] = Completed(int(code), out.encode(), err)
    return rows


# ----------------------------------------------------------------------------------------------------------------------


def _nodes_of(reports: Iterable[JobReport]) -> frozenset[str]:
    holding = (one for one in reports if one.mine and one.state in {JobState.RUNNING, JobState.ENDING})
    return frozenset(node for one in holding for node in one.nodes)


#: A list of other users' jobs that fails so often in a row, while all else is answered, is one that the site refuses.
OTHERS_REFUSALS = 2
#: hpcq asks for a list that was refused, or took too long, again after this time.
OTHERS_AGAIN_S = 600.0
#: That list may take so long: a site may have a hundred thousand jobs. Until then, all else waits for it.
OTHERS_WITHIN_S = 20
#: A list that takes long is asked for less often: this many times as long lies between two of them.
_OTHERS_PAUSE_PER_ANSWER = 9.0
_TOOK = "@hpcq-took"
#: The exit code of timeout(1) where the time was over.
_TIME_IS_OVER = 124


def _bounded(command: str, within_s: int) -> str:
    """The same command, ended after this time. It says on standard error when it began and ended: seconds since the boot."""
    # Whole seconds of `date` would make a second of an answer within a moment, and somebody may set that clock.
    return (
        f"read -r begun _ </proc/uptime; timeout -k 5 {within_s} sh -c {quote(command)}; code=$?; "
        f'read -r ended _ </proc/uptime; echo "{_TOOK} $begun $ended" >&2; (exit "$code")'
    )


def _took_s(said: str) -> float:
    try:
        begun_s, ended_s = map(float, said.split())
    except ValueError:
        return 0.0
    return max(0.0, ended_s - begun_s)


class Scheduler(Adapter):
    """Runs and chunks commands. The subclass writes them and reads their answers."""

    #: Ids per command: far below any limit of a command line.
    _CHUNK = 500

    def __init__(self, transport: Transport, settings: SchedulerSettings) -> None:
        super().__init__(transport, settings)
        #: Waiting jobs of other users as of the last query, and the time of that query.
        self._others: tuple[OtherJob, ...] = ()
        self._others_s = -math.inf
        self._others_failed_count = 0
        #: What the scheduler said in place of that list; empty while it answers.
        self.others_refused = ""
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
            parts["others"] = _bounded(others, OTHERS_WITHIN_S)
            if self._others_failed_count and len(parts) == 1:
                parts["nodes"] = self.nodes_command()  # shows whether it is the list that is refused, or nothing answers
        if question.mine and mine is not None:
            parts["mine"] = mine
        kept = self._others if question.others and others is not None else None
        if not parts:
            return QueueSnapshot(self._reports(question.jobs, []), others=kept)
        self.query_count += 1
        said = parts_of(self.transport.sh(parts_script(parts)), parts)
        polled = self.read_poll(said["jobs"]) if "jobs" in said else []
        nodes = self.read_nodes(self._answered(said["nodes"], "node list").text) if "nodes" in said else None
        mine_count = self.read_mine(self._answered(said["mine"], "job list").text) if "mine" in said else None
        if "others" in said:
            kept = self._others = self._other_jobs(said["others"], now_s, answers_else=len(said) > 1)
        return QueueSnapshot(
            reports=self._reports(question.jobs, polled),
            nodes=nodes,
            others=kept,
            mine=mine_count,
            own_nodes=_nodes_of(polled) if self.poll_lists_all and "jobs" in said else None,
        )

    def nodes(self) -> list[NodeState]:
        """Return every node of the partition and its present state. Raises SchedulerError without an answer."""
        return self.look(QueueQuery(nodes=True)).nodes or []

    def topology(self) -> Topology:
        """Return which node is on which switch; empty if the scheduler knows none."""
        command = self.topology_command()
        if command is None:
            return Topology()
        self.query_count += 1
        done = self.transport.sh(command)
        return self.read_topology(done.text) if done.returncode == 0 else Topology()

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
            rows = [(tag, scheduler_job_id) for tag, scheduler_job_id in self.read_find(answer.text) if tag in wanted]
            found.update({tag: scheduler_job_id for tag, scheduler_job_id in rows if self.is_id(scheduler_job_id)})
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

    def _other_jobs(self, done: Completed, now_s: float, *, answers_else: bool) -> tuple[OtherJob, ...]:
        """Read the list of other users' jobs. A site may forbid it: then there is none, and hpcq asks again much later.

        answers_else: the scheduler answered other questions of the same moment, so it is there.
        """
        words, _, took = done.stderr.rpartition(_TOOK)
        done = replace(done, stderr=words)
        self._others_s = now_s + _OTHERS_PAUSE_PER_ANSWER * _took_s(took)
        away = any(one in words for one in self.away_words())
        late = done.returncode == _TIME_IS_OVER
        self._others_failed_count = self._others_failed_count + 1 if done.returncode != 0 and not away else 0
        if not answers_else or away or (self._others_failed_count < OTHERS_REFUSALS and not late):
            self.others_refused = ""
            return self.read_others(self._answered(done, "job list").text)
        self._others_s = now_s + OTHERS_AGAIN_S
        said = words.strip().splitlines()
        self.others_refused = said[-1] if said else f"exit code {done.returncode}"
        if late:
            self.others_refused = f"no list within {OTHERS_WITHIN_S} s"
        return ()

    def _answered(self, done: Completed, what: str) -> Completed:
        if done.returncode != 0:
            raise SchedulerError(f"{self.transport.where}: {what}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return done

    def _plausible(self, jobs: Sequence[JobKey]) -> list[JobKey]:
        """Return the jobs whose id has this scheduler's form: one malformed id would spoil the answer for all."""
        return [job for job in jobs if self.is_id(job.scheduler_job_id)]

    def _reports(self, jobs: Sequence[JobKey], polled: Sequence[JobReport]) -> dict[str, JobReport]:
        known = {report.scheduler_job_id: report for report in polled}
        missing = [job for job in self._plausible(jobs) if job.scheduler_job_id not in known]
        for chunk in chunks(missing, self._CHUNK):
            command = self.history_command(chunk)
            if command is not None:
                self.query_count += 1
                for report in self.read_history(self.transport.sh(command)):
                    known[report.scheduler_job_id] = replace(report, remembered=True)
        return {job.scheduler_job_id: self._believed(job, known.get(job.scheduler_job_id)) for job in jobs}

    def _believed(self, job: JobKey, report: JobReport | None) -> JobReport:
        """Return the report if it is about our job: this id, with this name, of this user."""
        if not self.is_id(job.scheduler_job_id):
            return JobReport(
                job.scheduler_job_id, JobState.UNKNOWN, reason=f"{job.scheduler_job_id!r} is no id of this scheduler"
            )
        if report is None:
            return JobReport(job.scheduler_job_id, JobState.UNKNOWN, reason="not known to the scheduler")
        if report.mine is False:
            return JobReport(
                job.scheduler_job_id, JobState.UNKNOWN, reason=f"job {job.scheduler_job_id} is somebody else's: {report.name!r}"
            )
        if report.name != job.tag:
            return JobReport(
                job.scheduler_job_id, JobState.UNKNOWN, reason=f"job {job.scheduler_job_id} is another one: {report.name!r}"
            )
        return replace(report, scheduler_job_id=job.scheduler_job_id)

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
        if answer.fate is Fate.TAKEN and not self.is_id(answer.scheduler_job_id or ""):
            return Submitted(one.tag, None, f"no id in the answer {row.text.strip()!r}", Fate.UNDETERMINED)
        return answer

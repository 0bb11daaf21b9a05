"""Look up submissions without a known end, and describe how an attempt ended. For drivers of clusters and of links.

submission unseen -> the id beside its script, the scheduler by name -> native id
                  -> nowhere: the driver claims the attempt, so that it measures nothing if it starts later
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq.clock import seconds_between, utc_or_none
from hpcq.run_folder.failed_starts import WORDS_MAX
from hpcq.run_folder.journal import Attempt, StepKey
from hpcq.run_folder.lines import printed, whole
from hpcq.run_folder.paths import read_job_file, read_json_or_none
from hpcq.run_folder.spools import MEASURED_CODES, spooled_steps
from hpcq.runner.queue.run_state import RunState, summary
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobReport, JobState
from hpcq.transport import Transport, quote
from hpcq.units import utc_now

# ----------------------------------------------------------------------------------------------------------------------
# Decide how an attempt ended, from the scheduler's report and the files that the job left. Pure.
#
# The job itself writes the exit file last. If the file says `done`, that decides. If it is missing or says that the job
# was told to end, the scheduler's report gives the reason. If both are silent, the attempt is LOST, never successful.


#: What a script says that hpcq asked to end after the current test.
ENDED_EARLY = "ended_early"
#: What a script says that received a signal to end, or that ended itself at its time limit.
TOLD_TO_END = "term"
TIME_LIMIT = "time_limit"
#: What one side of a link says if it waited for the other side longer than its driver should have allowed.
PATIENCE_OVER = "peer_never_came"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """One of the attempt outcomes, with a reason for a person."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """What a job left in its folder, as far as its files have arrived."""

    exit_file: Mapping[str, Any] | None
    started: bool
    #: Between its start and its end by the clock of its own node; None if it has not said both.
    ran_s: float | None = None

    @classmethod
    def of(cls, folder: Path) -> Left:
        """Return what an attempt's folder holds."""
        ended, started = (read_json_or_none(folder / name) for name in ("exit.json", "started.json"))
        start_utc, end_utc = utc_or_none((started or {}).get("started_utc")), utc_or_none((ended or {}).get("ended_utc"))
        ran_s = seconds_between(start_utc, end_utc) if start_utc and end_utc else None
        return cls(ended, (folder / "started.json").exists(), ran_s)

    @property
    def said(self) -> str:
        """Return why its script ended, in the script's own words; empty if it has not said so."""
        return str(self.exit_file.get("reason", ""))[:WORDS_MAX] if self.exit_file else ""


def end_of(
    attempt: Attempt, report: JobReport | None, left: Left, *, waited_s: float, grace_s: float, claimed: bool = False
) -> AttemptOutcome | None:
    """Return the end of an attempt, also of one that the driver ended; None if it has not ended or hpcq must know more.

    report: None if hpcq did not ask the scheduler. waited_s, grace_s: as for `decide`. claimed: the driver has claimed
    it, so it measures nothing any more.
    """
    if left.said == ENDED_EARLY:
        return AttemptOutcome("withdrawn", attempt.withdrawal or left.said)
    if left.said == "done":
        return AttemptOutcome("completed", "")
    if report is None:
        return None
    report = _as_ordered(attempt, report, left, forgotten=claimed or waited_s >= grace_s)
    files_may_come = left.started and left.exit_file is None and waited_s < grace_s
    ours = attempt.withdrawal and not files_may_come  # our own order, also if the job had just started
    if report.state is JobState.CANCELLED and ours:
        return AttemptOutcome("cancelled" if attempt.final else attempt.withdrawal_outcome, attempt.withdrawal)
    if report.state is JobState.CANCELLED and not left.started and attempt.stopped:
        return AttemptOutcome("cancelled", attempt.stopped)
    return decide(report, left, waited_s=waited_s, grace_s=grace_s)


def _as_ordered(attempt: Attempt, report: JobReport, left: Left, *, forgotten: bool) -> JobReport:
    """Return the report of a job whose scheduler forgets ended jobs: it did as hpcq ordered, or met its time limit.

    Some forget a job five minutes after its end, where nothing accounts. Nobody else told its script to end then.
    """
    if report.state is JobState.UNKNOWN and left.said == TOLD_TO_END and not attempt.ordered:
        if 0 < attempt.walltime_s <= (left.ran_s or 0.0):
            words = f"no more; it was told to end after its time limit of {attempt.walltime_s:g} s"
            return replace(report, state=JobState.TIMED_OUT, native_state=words, reason="")
        return report
    ended = left.said == TOLD_TO_END or (left.exit_file is None and forgotten)
    if report.state is JobState.UNKNOWN and attempt.ordered and ended:
        return replace(report, state=JobState.CANCELLED, native_state="no more, after it was told to end")
    return report


def decide(report: JobReport, left: Left, *, waited_s: float, grace_s: float) -> AttemptOutcome | None:
    """Return the end of an attempt without an order to end; None if it has not ended or hpcq must know more.

    waited_s: for how long the scheduler has reported the job as ended or unknown. grace_s: how long a shared file
    system
    may take to show what the job wrote last.
    """
    if left.said == "done":
        return AttemptOutcome("completed", "")
    unknown = report.state is JobState.UNKNOWN
    if report.state is JobState.DEADLINE and not left.started:
        return AttemptOutcome("withdrawn", "the hours ended before it could start")
    if not (report.state.terminal or unknown) or (left.exit_file is None and waited_s < grace_s):
        return None
    if unknown and not left.said:
        return AttemptOutcome("lost", report.reason or f"state {report.native_state}")
    if unknown or report.state in {JobState.COMPLETED, JobState.FAILED}:
        words = left.said or f"no exit file; the scheduler says {report.native_state}"
        return AttemptOutcome("timed_out" if left.said == TIME_LIMIT else "failed", words)
    said = f"the scheduler says {report.native_state}"
    return AttemptOutcome(report.state.value, said + (f" ({report.reason})" if report.reason else ""))


_STEP_NAME = re.compile(r"t([0-9]{1,9})-r([0-9]{1,9})")
#: The exit code of a step whose toolchain did not build, as templates/functions.sh.j2 gives it.
_NOT_BUILT_CODE = 78


def measured_steps(folder: Path) -> frozenset[StepKey]:
    """Return the steps of an attempt's folder that need no other attempt: their kernel measured, or was never built.

    The exit code alone is not enough: launchers also end with 1 if they could not start the kernel at all. Of a script that
    was killed before it wrote the code down, the kernel's own line says it: what is loaded is not measured again.
    """
    found = set()
    for name in {path.stem for end in ("status", "json") for path in folder.glob(f"t*-r*.{end}")}:
        numbers = _STEP_NAME.fullmatch(name)
        if numbers is None:
            continue
        step, written = (int(numbers[1]), int(numbers[2])), folder / f"{name}.status"
        status = read_json_or_none(written)
        code = whole(status.get("rc")) if status else None
        if code == _NOT_BUILT_CODE:
            found.add(step)
        elif code in MEASURED_CODES or not written.exists():
            with contextlib.suppress(OSError, ValueError):  # libraries write to the same output
                content = printed(read_job_file(folder / f"{name}.json"))[0]
                if content.get("error") is None and (
                    code in MEASURED_CODES or whole(content.get("exit_code")) in MEASURED_CODES
                ):
                    found.add(step)
    return frozenset(found)


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether the driver has an attempt's claim.

    Otherwise the id that the job wrote when it started, or why hpcq cannot know.
    under_way: its submit command began and has not ended, as far as its files say.
    """

    taken: bool
    scheduler_job_id: str = ""
    words: str = ""
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """The folders of the attempts of one part of a run: `folder` here, `root` on the cluster.

    `ask` waits until a query is allowed.
    """

    transport: Transport
    scheduler: Scheduler
    folder: Path
    root: str
    ask: Callable[[], None]

    def find(self, attempts: Sequence[Attempt]) -> dict[str, str]:
        """Return the native ids, by tag, of attempts whose submission has no known end."""
        script = "\n".join(
            f"printf '%s\\t' {quote(one.tag)}; cat {quote(f'{self.root}/{one.folder}/submitted')} 2>/dev/null || echo"
            for one in attempts
        )
        known: dict[str, str] = {}
        for line in self.transport.sh(script).text.splitlines():
            tag, _, answer = line.partition("\t")
            scheduler_job_id = self.scheduler.read_scheduler_job_id(answer)
            if scheduler_job_id:
                known[tag] = scheduler_job_id
        unknown = [one.tag for one in attempts if one.tag not in known]
        if unknown:
            self.ask()
            known.update(self.scheduler.find(unknown))
        return known

    def claim(self, attempt: Attempt) -> Claim:
        """Claim an attempt that the scheduler does not know, so that it measures nothing if it starts later."""
        folder = quote(f"{self.root}/{attempt.folder}")
        script = (
            f"taken() {{ echo taken; [ ! -e {folder}/submit.err ] || [ -e {folder}/submit.rc ] || echo under way; exit 0; }}; "
            f"[ -d {folder} ] || taken; "  # its script never arrived there
            f"words=$(mkdir {folder}/claim 2>&1) && {{ true >{folder}/claim/driver; taken; }}; "  # `:` would end the shell
            f'[ -e {folder}/claim/driver ] && taken; printf "%s\n" "$words"'
        )
        words = " ".join(self.transport.sh(script).text.split())
        if words in {"taken", "taken under way"}:
            return Claim(taken=True, under_way=words != "taken")
        self.fetch([attempt])
        started = read_json_or_none(self.folder / attempt.folder / "started.json") or {}
        scheduler_job_id = str(started.get("scheduler_job_id") or "")
        return Claim(
            taken=False, scheduler_job_id=scheduler_job_id if self.scheduler.is_id(scheduler_job_id) else "", words=words
        )

    def claim_all(self, attempts: Sequence[Attempt]) -> set[str]:
        """Claim attempts that the scheduler has forgotten, in one command. Returns the tags of those that are claimed.

        The others had started, or nobody can know.
        """
        if not attempts:
            return set()
        mark = '{ true >"$2/claim/driver"; true; }'
        one = f'{{ [ ! -d "$2" ] || {{ mkdir "$2/claim" 2>/dev/null && {mark}; }} || [ -e "$2/claim/driver" ]; }}'
        calls = [f"claim {quote(attempt.tag)} {quote(f'{self.root}/{attempt.folder}')}" for attempt in attempts]
        script = "\n".join([f"claim() {{ {one} && printf '%s\\n' \"$1\"; }}", *calls, "true"])
        return set(self.transport.sh(script).text.split("\n")) & {attempt.tag for attempt in attempts}

    def written_exits(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the tags of those attempts whose script has written its exit file."""
        lines = [
            f"[ ! -e {quote(f'{self.root}/{one.folder}/exit.json')} ] || printf '%s\\n' {quote(one.tag)}" for one in attempts
        ]
        return set(self.transport.sh("\n".join(lines)).text.split("\n")) & {one.tag for one in attempts}

    def fetch(self, attempts: Sequence[Attempt]) -> list[str]:
        """Fetch the complete folders of attempts. Returns which files stay on the cluster, and why."""
        return self.transport.pull(self.root, [attempt.folder for attempt in attempts], self.folder)

    def finish(self, attempts: Sequence[Attempt]) -> str | None:
        """Ask running scripts to end after the current step. Returns None, or why not all of them will see it."""
        paths = " ".join(quote(f"{self.root}/{attempt.folder}/finish") for attempt in attempts)
        done = self.transport.sh(f"touch -- {paths}")
        return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"

    def ended(self, attempt: Attempt, outcome: AttemptOutcome, report: JobReport | None) -> dict[str, Any]:
        """Return the event that records how an attempt ended, with what its folder holds by now."""
        folder = self.folder / attempt.folder
        started, exit_file = read_json_or_none(folder / "started.json") or {}, read_json_or_none(folder / "exit.json") or {}
        event: dict[str, Any] = {
            "event": "ended",
            "tag": attempt.tag,
            "outcome": outcome.outcome,
            "reason": outcome.reason,
            "native_state": report.native_state if report else None,
            "nodes": list(attempt.nodes),
            "rc": whole(exit_file.get("rc")),
            "started_utc": utc_or_none(started.get("started_utc")),
            "ended_utc": utc_or_none(exit_file.get("ended_utc")),
            "measured": sorted(measured_steps(folder)),
        }
        if attempt.shared:
            event["measured_of"] = spooled_steps(folder)
        if exit_file.get("reason") == PATIENCE_OVER:
            event["final"] = True
        return event


def driven_json(wall_s: float, query_count: int | dict[str, int], state: RunState) -> dict[str, Any]:
    """Return the content of driven.json for a part that is done."""
    return {
        "format": 1,
        "ended_utc": utc_now(),
        "wall_s": round(wall_s, 3),
        "scheduler_query_count": query_count,
        **summary(state),
    }

"""Decide how an attempt ended, from the scheduler's report and the files that the job left. Pure.

The job itself writes the exit file last. If the file says `done`, that decides. If it is missing or says that the job
was told to end, the scheduler's report gives the reason. If both are silent, the attempt is LOST, never successful.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq.run_folder.journal_state import Attempt, StepKey
from hpcq.run_folder.paths import read_json_or_none
from hpcq.run_folder.spools import MEASURED_CODES
from hpcq.scheduler.types import JobReport, JobState

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

    @classmethod
    def of(cls, folder: Path) -> Left:
        """Return what an attempt's folder holds."""
        return cls(read_json_or_none(folder / "exit.json"), (folder / "started.json").exists())

    @property
    def said(self) -> str:
        """Return why its script ended, in the script's own words; empty if it has not said so."""
        return str(self.exit_file.get("reason", "")) if self.exit_file else ""


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
    """Return the report of a job that hpcq ordered to end.

    If its scheduler forgets ended jobs, the job is not lost: it did as ordered.
    """
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


def measured_steps(folder: Path) -> frozenset[StepKey]:
    """Return the steps of an attempt's folder whose kernel ended with a measurement.

    The exit code alone is not enough: launchers also end with 1 if they could not start the kernel at all.
    """
    found = set()
    for path in folder.glob("t*-r*.status"):
        status = read_json_or_none(path)
        test_text, _, repetition_text = path.stem[1:].partition("-r")
        if status and status.get("rc") in MEASURED_CODES and test_text.isdecimal() and repetition_text.isdecimal():
            line = read_json_or_none(path.with_suffix(".json"))
            if line is not None and line.get("error") is None:
                found.add((int(test_text), int(repetition_text)))
    return frozenset(found)

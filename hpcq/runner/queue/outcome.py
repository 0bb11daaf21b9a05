"""How an attempt ended: the scheduler's word and the files the job left, put together. Pure; no machine is asked here.

The exit file, written last by the job itself, is the truth where it says `done`. Where it is missing or says that the job was
told to end, the scheduler's word gives the reason. Silence of both is LOST, never success.
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

#: What a script says that was asked to end after the test in hand.
ENDED_EARLY = "ended_early"
#: What a script says that was told to end, and one that ended itself at its time limit.
TOLD_TO_END = "term"
TIME_LIMIT = "time_limit"
#: What one side of a link says that waited for the other one longer than its driver should have let it.
PATIENCE_OVER = "peer_never_came"


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """One of the attempt outcomes, with the reason for a person."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """What a job left in its folder, as far as its files have come."""

    exit_file: Mapping[str, Any] | None
    started: bool

    @classmethod
    def of(cls, folder: Path) -> Left:
        """What an attempt's folder holds."""
        return cls(read_json_or_none(folder / "exit.json"), (folder / "started.json").exists())

    @property
    def said(self) -> str:
        """Why its script ended, in the script's own words; empty where it has not said so."""
        return str(self.exit_file.get("reason", "")) if self.exit_file else ""


def end_of(attempt: Attempt, report: JobReport | None, left: Left, *, waited_s: float, grace_s: float) -> AttemptOutcome | None:
    """The end of an attempt, also of one that the driver ended; None while it has not ended or more has to be known.

    report: None where the scheduler was not asked. waited_s, grace_s: as for `decide`.
    """
    if left.said == ENDED_EARLY:
        return AttemptOutcome("withdrawn", attempt.withdrawal or left.said)
    if left.said == "done":
        return AttemptOutcome("completed", "")
    if report is None:
        return None
    report = _as_ordered(attempt, report, left, forgotten=waited_s >= grace_s)
    files_may_come = left.started and left.exit_file is None and waited_s < grace_s
    ours = attempt.withdrawal and not files_may_come  # our own order, also where the job had just started
    if report.state is JobState.CANCELLED and ours:
        return AttemptOutcome("cancelled" if attempt.final else attempt.withdrawal_outcome, attempt.withdrawal)
    if report.state is JobState.CANCELLED and not left.started and attempt.stopped:
        return AttemptOutcome("cancelled", attempt.stopped)
    return decide(report, left, waited_s=waited_s, grace_s=grace_s)


def _as_ordered(attempt: Attempt, report: JobReport, left: Left, *, forgotten: bool) -> JobReport:
    """A job that we told to end, of a scheduler that forgets ended jobs: it is not lost, it did as it was told."""
    ordered = bool(attempt.withdrawal or attempt.stopped)
    ended = left.said == TOLD_TO_END if left.started else forgotten
    if report.state is JobState.UNKNOWN and ordered and ended:
        return replace(report, state=JobState.CANCELLED, native_state="no more, after it was told to end")
    return report


def decide(report: JobReport, left: Left, *, waited_s: float, grace_s: float) -> AttemptOutcome | None:
    """The end of an attempt that nobody asked to end, or None while it has not ended or more has to be known.

    waited_s: for how long the scheduler has called the job ended or unknown. grace_s: how long a shared file system may take
    to show what the job wrote last.
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
    """The steps of an attempt's folder whose kernel ended with a measurement.

    The exit code alone says nothing: launchers end with 1 too, when they could not start the kernel at all.
    """
    found = set()
    for path in folder.glob("t*-r*.status"):
        status = read_json_or_none(path)
        test_text, _, repetition_text = path.stem[1:].partition("-r")
        if status and status.get("rc") in MEASURED_CODES and test_text.isdigit() and repetition_text.isdigit():
            line = read_json_or_none(path.with_suffix(".json"))
            if line is not None and line.get("error") is None:
                found.add((int(test_text), int(repetition_text)))
    return frozenset(found)

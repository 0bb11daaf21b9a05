"""How an attempt ended: the scheduler's word and the files the job left, put together. Pure; no machine is asked here.

The exit file, written last by the job itself, is the truth where it says `done`. Where it is missing or says that the job was
told to end, the scheduler's word gives the reason. Silence of both is LOST, never success.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.runner.drive.jobs import StepKey
from hpcq.scheduler.base import JobReport, JobState

#: Exit codes of a kernel that mean: there is a measurement, valid (0) or not (1).
MEASURED_CODES = frozenset({0, 1})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the attempt outcomes, with the reason for a person."""

    outcome: str
    reason: str


def read_object(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None where there is no file or no object in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def decide(report: JobReport, exit_file: dict[str, Any] | None, *, waited_s: float, grace_s: float) -> Outcome | None:
    """The end of an attempt, or None while it has not ended or more has to be known.

    waited_s: for how long the scheduler has called the job ended or unknown. grace_s: how long a shared file system may take
    to show what the job wrote last.
    """
    said = str(exit_file.get("reason", "")) if exit_file else ""
    if said == "done":
        return Outcome("completed", "")
    unknown = report.state is JobState.UNKNOWN
    if not (report.state.terminal or unknown) or (exit_file is None and waited_s < grace_s):
        return None
    if unknown and not said:
        return Outcome("lost", report.reason or f"state {report.native_state}")
    if unknown or report.state in {JobState.COMPLETED, JobState.FAILED}:
        return Outcome("failed", said or f"no exit file; the scheduler says {report.native_state}")
    return Outcome(
        report.state.value, f"the scheduler says {report.native_state}" + (f" ({report.reason})" if report.reason else "")
    )


def measured_steps(folder: Path) -> frozenset[StepKey]:
    """The steps of an attempt's folder whose kernel ended with a measurement.

    The exit code alone says nothing: launchers end with 1 too, when they could not start the kernel at all.
    """
    found = set()
    for path in folder.glob("t*-r*.status"):
        status = read_object(path)
        test_text, _, repetition_text = path.stem[1:].partition("-r")
        if status and status.get("rc") in MEASURED_CODES and test_text.isdigit() and repetition_text.isdigit():
            line = read_object(path.with_suffix(".json"))
            if line is not None and line.get("error") is None:
                found.add((int(test_text), int(repetition_text)))
    return frozenset(found)

"""Rows with a reason for measurements that were planned but are missing, and which of several attempts counts.

A placeholder is a row of `result` without an attempt. If its measurement arrives later, the real row takes its key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.run_folder.journal_state import Attempt
from hpcq.run_folder.lines import Outcome

#: Reasons that begin like this mean: the measurement may still come.
PENDING = "pending: "

_RANK = {Outcome.MEASURED: 0, Outcome.INVALID: 1, Outcome.FAILED: 2, Outcome.NOT_MEASURED: 3}
_PARTS_OF_RESULT = (
    "metric",
    "warning",
    "sample",
    "histogram",
    "interval_value",
    "evidence_end",
    "evidence",
    "gauge",
    "result_finding",
    "retraction",
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A result row without an attempt."""

    result_id: int
    reason: str


#: By job_id, test_no, repetition_no.
Placeholders = dict[tuple[int, int, int], Placeholder]


def placeholders(database: sqlite3.Connection, run_cluster_id: int) -> Placeholders:
    """Placeholders of earlier loads."""
    rows = database.execute(
        "SELECT x.job_id, x.test_no, x.repetition_no, x.result_id, x.reason FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.attempt_id IS NULL",
        (run_cluster_id,),
    )
    return {(job_id, test_no, rep): Placeholder(result_id, reason) for job_id, test_no, rep, result_id, reason in rows}


def brought_steps(database: sqlite3.Connection, run_cluster_id: int) -> dict[int, set[tuple[int, int]]]:
    """By job_id, the measurements for which an attempt left a result, whatever its outcome."""
    brought: dict[int, set[tuple[int, int]]] = {}
    for job_id, test_no, repetition_no in database.execute(
        "SELECT x.job_id, x.test_no, x.repetition_no FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.attempt_id IS NOT NULL",
        (run_cluster_id,),
    ):
        brought.setdefault(job_id, set()).add((test_no, repetition_no))
    return brought


def reason(tries: Sequence[Attempt], not_run: str | None, *, closed: bool) -> str:
    """Why a measurement of a job is missing: how each attempt ended, or why there was none."""
    if tries and tries[-1].live:
        return PENDING + tries[-1].describe()
    ends = "; ".join(attempt.describe() for attempt in tries)
    if tries and tries[-1].outcome == "completed":
        ends += ", but left no result"
    if not_run is not None:
        return f"{ends}; not tried again: {not_run}" if ends else f"not run: {not_run}"
    if ends:
        return ends
    return "not run: the journal gives no reason" if closed else PENDING + "not submitted yet"


def insert(database: sqlite3.Connection, row: Sequence[Any]) -> None:
    """Insert a placeholder: job_id, test_no, repetition_no, series_id, parameter_set_id, reason."""
    database.execute(
        "INSERT INTO result (job_id, test_no, repetition_no, final, series_id, parameter_set_id, outcome, reason, disturbed,"
        " crossed_interface) VALUES (?, ?, ?, 0, ?, ?, 'not_measured', ?, 0, 'unknown')",
        row,
    )


def reword(database: sqlite3.Connection, result_id: int, text: str) -> None:
    """Give a placeholder its present reason."""
    database.execute("UPDATE result SET reason = ? WHERE result_id = ?", (text, result_id))


def remove(database: sqlite3.Connection, result_id: int) -> None:
    """Delete a placeholder or a formerly unreadable row, so that a better row can take its key."""
    for table in _PARTS_OF_RESULT:
        database.execute(f"DELETE FROM {table} WHERE result_id = ?", (result_id,))  # noqa: S608 - our own names
    database.execute("DELETE FROM result WHERE result_id = ?", (result_id,))


def choose_final(database: sqlite3.Connection, run_cluster_id: int) -> None:
    """Of the rows of each planned measurement, let the first measured one count, else the last attempt."""
    best: dict[tuple[int, int, int], tuple[tuple[int, int], int]] = {}
    now: dict[tuple[int, int, int], int] = {}
    for result_id, job_id, test_no, repetition_no, outcome, attempt_no, final in database.execute(
        "SELECT x.result_id, x.job_id, x.test_no, x.repetition_no, x.outcome, coalesce(a.attempt_no, 0), x.final"
        " FROM result x JOIN job j ON j.job_id = x.job_id LEFT JOIN attempt a ON a.attempt_id = x.attempt_id"
        " WHERE j.run_cluster_id = ?",
        (run_cluster_id,),
    ):
        step = (job_id, test_no, repetition_no)
        rank = _RANK[Outcome(outcome)]
        order = (0 if rank == 0 else 1, attempt_no if rank == 0 else -attempt_no)
        if final:
            now[step] = result_id
        if step not in best or order < best[step][0]:
            best[step] = (order, result_id)
    changed = [(step, result_id) for step, (_, result_id) in best.items() if now.get(step) != result_id]
    database.executemany(
        "UPDATE result SET final = 0 WHERE result_id = ?", [(now[step],) for step, _ in changed if step in now]
    )
    database.executemany("UPDATE result SET final = 1 WHERE result_id = ?", [(result_id,) for _, result_id in changed])

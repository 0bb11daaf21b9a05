"""One result with everything that the database knows about it."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from hpcq.errors import UserError
from hpcq.store.query import AttemptRow, ResultRow, attempts, columns


@dataclass(frozen=True, slots=True)
class ResultDetail:
    """One result with everything that the database knows about it, as lists of rows from the views."""

    result: ResultRow
    retracted: str | None
    final: bool
    duration_ns: int | None
    parameters: dict[str, Any]
    metrics: list[dict[str, Any]]
    granted: dict[str, Any]
    warnings: list[dict[str, Any]]
    ends: list[dict[str, Any]]
    counters: list[dict[str, Any]]
    gauges: list[dict[str, Any]]
    unavailable: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    histogram: list[dict[str, Any]]
    #: By quantity: values by the beginning of their interval in ms.
    intervals: dict[str, dict[int, float]]
    samples: dict[str, Any] | None
    build: dict[str, Any] | None
    attempt: AttemptRow | None


def detail(database: sqlite3.Connection, result_id: int) -> ResultDetail:
    """One result with both ends' evidence. Raises UserError if no result has that number."""
    query = f"SELECT {columns(ResultRow)} FROM v_all_results WHERE result_id = ?"
    row = database.execute(query, (result_id,)).fetchone()
    if row is None:
        raise UserError(f"{result_id} is not a result in this database", "`hpcq results --json` shows their result_id")
    result = ResultRow(*row)
    more = database.execute(
        "SELECT retracted, final, duration_ns, build_id FROM v_all_results WHERE result_id = ?", (result_id,)
    ).fetchone()
    tries = [one for one in attempts(database, result.run) if (one.job, one.attempt_no) == (result.job, result.attempt_no)]

    def rows(query: str, value: int | None = result_id) -> list[dict[str, Any]]:
        return [dict(row) for row in database.execute(query, (value,))]

    return ResultDetail(
        result=result,
        retracted=more["retracted"],
        final=bool(more["final"]),
        duration_ns=more["duration_ns"],
        parameters=json.loads(result.parameters),
        metrics=rows(
            "SELECT n.name AS metric, m.value, n.unit, n.better, n.help FROM metric m JOIN metric_name n"
            " ON n.metric_name_id = m.metric_name_id WHERE m.result_id = ? ORDER BY n.position_no"
        ),
        granted={one["granted"]: one["value"] for one in rows("SELECT * FROM v_granted WHERE result_id = ?")},
        warnings=rows("SELECT name, message FROM warning WHERE result_id = ? ORDER BY warning_no"),
        ends=rows('SELECT * FROM v_ends WHERE result_id = ? ORDER BY "end"'),
        counters=rows("SELECT counter, client_delta, server_delta, unit FROM v_evidence WHERE result_id = ? ORDER BY counter"),
        gauges=rows('SELECT gauge, "end", before, after, unit FROM v_gauges WHERE result_id = ? ORDER BY gauge, "end"'),
        unavailable=rows('SELECT "end", source, reason FROM v_unavailable WHERE result_id = ? ORDER BY "end", source'),
        findings=rows(
            'SELECT rule, "end", message, meaning, advice, figures FROM v_findings WHERE result_id = ? ORDER BY rule'
        ),
        histogram=rows("SELECT lower, unit, sample_count FROM histogram WHERE result_id = ? ORDER BY lower"),
        intervals=_intervals(database, result_id),
        samples=next(iter(rows("SELECT path, format, sample_count FROM sample WHERE result_id = ?")), None),
        build=next(iter(rows("SELECT * FROM v_builds WHERE build_id = ?", more["build_id"])), None),
        attempt=tries[0] if tries else None,
    )


def _intervals(database: sqlite3.Connection, result_id: int) -> dict[str, dict[int, float]]:
    query = "SELECT quantity, begin_ms, value FROM v_intervals WHERE result_id = ? ORDER BY quantity, begin_ms"
    found: dict[str, dict[int, float]] = {}
    for quantity, begin_ms, value in database.execute(query, (result_id,)):
        found.setdefault(quantity, {})[begin_ms] = value
    return found

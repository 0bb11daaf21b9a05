"""The points of one series, oldest first: timeline().

A point is the median of a test's repetitions in one job. They ran back to back and share the job's luck, so they are
not that many independent values. Repetitions beside other work do not count; where a job has no others, the point is
their median, and it is disturbed. Pruning keeps the point of each job, and it stays the same.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcq.store.database import Connection
from hpcq.store.history import COUNTS, Metric, within
from hpcq.store.query import median
from hpcq.store.time_windows import Window


@dataclass(frozen=True, slots=True)
class Point:
    """The part of a series that one job measured."""

    started_utc: str
    run: str
    median: float
    lowest: float
    highest: float
    n: int
    disturbed: int
    result_id: int


def timeline(
    database: Connection, series_id: int, metric: Metric, window: Window, facts: Sequence[tuple[str, str]] = ()
) -> list[Point]:
    """The points of one series, oldest first."""
    condition, bound = within(window, facts)
    rows = database.execute(
        "SELECT x.started_utc, r.name AS run, x.job_id, x.result_id, x.disturbed, m.value FROM result x"
        " JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = :metric JOIN job j ON j.job_id = x.job_id"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id"
        f" WHERE x.series_id = :series AND {COUNTS} AND {condition} ORDER BY x.started_utc, x.result_id",
        {"metric": metric.metric_name_id, "series": series_id, **bound},
    )
    jobs: dict[int, list[Any]] = {}
    for row in rows:
        jobs.setdefault(row["job_id"], []).append(row)
    rolled = database.execute(
        "SELECT x.started_utc, r.name AS run, x.median, x.lowest, x.highest, x.value_count, b.disturbed, x.result_id, x.job_id"
        " FROM rollup x JOIN result b ON b.result_id = x.result_id JOIN job j ON j.job_id = x.job_id"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id"
        f" WHERE x.series_id = :series AND x.metric_name_id = :metric AND {within(window, facts, 'b')[0]}",
        {"metric": metric.metric_name_id, "series": series_id, **bound},
    )
    found = [_joined(Point(*row[:-1]), jobs.pop(row["job_id"], [])) for row in rolled]
    found += [_point(group) for group in jobs.values()]
    return sorted(found, key=lambda point: (point.started_utc, point.result_id))


def counted(group: Sequence[Any]) -> list[Any]:
    """The rows of a job that make its point: those without other work beside them; all, if there are no such rows."""
    return [row for row in group if not row["disturbed"]] or list(group)


def _point(group: Sequence[Any]) -> Point:
    rows = counted(group)
    values = [row["value"] for row in rows]
    first = rows[0]
    spread = (median(values), min(values), max(values), len(values))
    return Point(first["started_utc"], first["run"], *spread, int(first["disturbed"]), first["result_id"])


def _joined(rolled: Point, late: Sequence[Any]) -> Point:
    """The point of a job that was rolled up, combined with the values that arrived afterwards."""
    same = [row for row in late if row["disturbed"] == rolled.disturbed]
    if len(same) < len(late) and rolled.disturbed:
        return _point(late)
    if not same:
        return rolled
    values = [row["value"] for row in same]
    spread = (median([rolled.median, *values]), min(rolled.lowest, *values), max(rolled.highest, *values))
    return replace(rolled, median=spread[0], lowest=spread[1], highest=spread[2], n=rolled.n + len(values))

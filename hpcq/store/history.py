"""The values of series: of a run, for its gates, and of one series over time.

series_values(database, runs)      of runs, one row per test, pair and metric
timeline(database, series_id)      the points of one series; hpcq/analysis/changed.py reads those of many
hpcq/store/series.py finds series
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from dataclasses import dataclass, replace
from typing import Any

from hpcq.store.database import Connection
from hpcq.store.query import median
from hpcq.store.selection import COUNTS, MetricRow, Window, within

# ----------------------------------------------------------------------------------------------------------------------
# Measured values of runs, one row per test, pair and metric, as gates need them.


#: cluster, client, server, kernel, parameters, metric, values, series_id, result_id, why a test that ran gave no value,
#: values left out because of other work, whether all were beside other work, network, toolchain (of a kernel with several)
SeriesValues = tuple[str, str, str, str, dict[str, Any], str, tuple[float, ...], int, int, str, int, bool, str, str]

#: SQLite has no number of 20 digits, and int() takes no text of thousands.
_ROW_DIGITS_MAX = 18
_QUERY = """
    SELECT v.cluster, v.client, v.server, v.kernel, v.parameters, v.network, v.toolchain, g.value, v.series_id, v.result_id,
           CASE WHEN v.outcome IN ('invalid', 'failed') THEN coalesce(v.reason, v.outcome) END, v.disturbed
    FROM v_results v
    LEFT JOIN metric g ON g.result_id = v.result_id AND v.outcome = 'measured'
              AND g.metric_name_id IN (SELECT metric_name_id FROM metric_name WHERE name = :metric)
    WHERE v.run = :run
    ORDER BY v.cluster, v.client, v.server, v.kernel, v.parameters, v.network, v.toolchain, v.repetition_no
"""


def series_values(connection: Connection, runs: Sequence[str], metrics: Iterable[str]) -> list[SeriesValues]:
    """The valid values of each metric for every planned test and pair of these runs; empty if nothing was measured.

    After the numbers of series and newest measured result (0 if there is none) comes the commonest reason of a test that
    ran and never gave a valid result; empty for one with values, and for one that never ran. Values beside other work
    are left out and counted; where there are no others, all are kept, and that field is True.
    """
    found: list[SeriesValues] = []
    parameters_of: dict[str, dict[str, Any]] = {}  # a few tests, each with many pairs
    for metric in sorted(metrics):
        groups: dict[
            tuple[str, str, str, str, str, str, str], tuple[tuple[list[float], list[float]], list[int], list[str]]
        ] = {}
        for run in runs:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric})
            for *names, value, series_id, result_id, why, is_disturbed in rows:
                key = (names[0], names[1], names[2], names[3], names[4], names[5], names[6])
                of_test, ids, reasons = groups.setdefault(key, (([], []), [series_id, 0], []))
                reasons += [] if why is None else [str(why)]
                if value is not None:
                    of_test[bool(is_disturbed)].append(value)
                    ids[1] = max(ids[1], result_id)
        several = Counter(kernel for kernel, _ in {(key[3], key[6]) for key in groups})
        for (cluster, client, server, kernel, parameters, network, toolchain), (
            (clean, disturbed),
            ids,
            reasons,
        ) in groups.items():
            if parameters not in parameters_of:
                parameters_of[parameters] = json.loads(parameters)
            names_of = (cluster, client, server, kernel, parameters_of[parameters], metric)
            values = tuple(clean or disturbed)
            why = max(reasons, key=reasons.count) if reasons and not values else ""
            left_out = len(disturbed) if clean else 0
            found.append(
                (
                    *names_of,
                    values,
                    ids[0],
                    ids[1],
                    why,
                    left_out,
                    bool(disturbed and not clean),
                    network,
                    toolchain if several[kernel] > 1 else "",
                )
            )
    return found


def row_id(text: str) -> int | None:
    """The number of a row that a person wrote; None for what is the number of none, 30 digits for instance."""
    return int(text) if text.isdecimal() and len(text) <= _ROW_DIGITS_MAX else None


# ----------------------------------------------------------------------------------------------------------------------
# The points of one series, oldest first: timeline().
#
# A point is the median of a test's repetitions in one job. They ran back to back and share the job's luck, so they are
# not that many independent values. Repetitions beside other work do not count; where a job has no others, the point is
# their median, and it is disturbed. Pruning keeps the point of each job, and it stays the same.


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
    database: Connection, series_id: int, metric: MetricRow, window: Window, facts: Sequence[tuple[str, str]] = ()
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

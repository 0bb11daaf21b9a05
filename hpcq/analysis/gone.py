"""Series that were measured and now only fail, which is worse than any value.

gone_since(database, ...)      series that were measured before and have only failed since, as Changed

The unit is the job: one that brought a value has not failed, though some of its repetitions did. Nothing but a job with
a value ends it, so each look finds it again without a memory of the last one, and with the same beginning.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcq.analysis.change import Changed
from hpcq.analysis.change_context import POINTS_MAX
from hpcq.analysis.series_outcomes import Lost, lost_in
from hpcq.statistics import ComparisonVerdict
from hpcq.store.database import Connection
from hpcq.store.history import COUNTS, MetricRow, SeriesRow
from hpcq.store.query import median
from hpcq.store.selection import AT_UTC, RESULTS, Window
from hpcq.verdict.levels import GONE, Level


def gone_since(
    database: Connection, rows: Sequence[SeriesRow], metrics: Mapping[str, MetricRow], since: Window, before: Window
) -> list[Changed]:
    """Series that were measured in `before` or `since` and have failed in every job after that.

    One failed job is enough: the series is reported as `gone`, with the reason. It is gone since its first failure, though
    that lies before `since`.
    """
    lost = lost_in(database, since)
    found = []
    for row in rows:
        one = lost.get(row.series_id)
        if one is None:
            continue
        measured = _measured_before(database, row.series_id, metrics[row.kernel], one.since_utc, before)
        if measured:
            one.since_utc = _first_failure(database, row.series_id, one.since_utc)
            found.append(_as_change(row, metrics[row.kernel], one, measured))
    return found


def _first_failure(database: Connection, series_id: int, failed_utc: str) -> str:
    """When the failures began that still went on at `failed_utc`: the first one after the last job with a value."""
    jobs = database.execute(
        f"SELECT min({AT_UTC}) AS at_utc, max(x.outcome = 'measured') AS valued {RESULTS} WHERE x.final = 1"
        f" AND t.result_id IS NULL AND x.outcome <> 'not_measured' AND x.series_id = :series AND {AT_UTC} <= :until"
        " GROUP BY x.job_id ORDER BY at_utc DESC",
        {"series": series_id, "until": failed_utc},
    )
    first_utc = failed_utc
    for job in jobs:
        if job["valued"]:
            break
        first_utc = str(job["at_utc"])
    return first_utc


def gone_level(values: Sequence[float], lost: Lost) -> Level:
    """The verdict on a series that had these values and has failed since."""
    return Level(
        ComparisonVerdict.DEGRADED, GONE, "failures", 0, 0, 0, median(values) if values else float("nan"), float("nan"),
        None, None, None, None, len(values), len(lost.job_ids), lost.words,
    )  # fmt: skip


def _measured_before(
    database: Connection, series_id: int, metric: MetricRow, until_utc: str, before: Window
) -> list[tuple[int, str, float | None]]:
    """The last measured results before the failures, oldest first: number, time, value."""
    runs = ""
    if before.run_ids is not None:
        runs = (
            " AND x.job_id IN (SELECT j.job_id FROM job j JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
            f" WHERE rc.run_id IN ({', '.join(str(int(one)) for one in before.run_ids)}))"
        )
    rows = database.execute(
        "SELECT x.result_id, x.started_utc, coalesce(m.value, u.median) AS value FROM result x"
        " LEFT JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = :metric"
        " LEFT JOIN rollup u ON u.series_id = x.series_id AND u.job_id = x.job_id AND u.metric_name_id = :metric"
        f" WHERE x.series_id = :series AND {COUNTS} AND x.started_utc < :until AND x.started_utc >= :from{runs}"
        f" ORDER BY x.started_utc DESC LIMIT {POINTS_MAX}",
        {
            "metric": metric.metric_name_id,
            "series": series_id,
            "until": until_utc,
            "from": before.from_utc or "",
        },
    )
    return [(int(row[0]), str(row[1]), row[2]) for row in rows][::-1]


def _as_change(row: SeriesRow, metric: MetricRow, lost: Lost, measured: list[tuple[int, str, float | None]]) -> Changed:
    level = gone_level([value for _, _, value in measured if value is not None], lost)
    before = tuple(result_id for result_id, _, _ in measured)
    return Changed(row, metric, level, lost.since_utc, measured[-1][1], before, tuple(lost.result_ids[:POINTS_MAX]))

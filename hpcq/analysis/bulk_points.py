"""The points of many series at once, as numpy arrays: the input for judging ten thousand series.

    results of the window in time order  ->  grouped by series and job  ->  medians  ->  cut by series

One pass over an index of time: a month of all series costs as much as its results, however long the history is.
Repetitions beside other work do not count. A job that has no others gives no point; disturbed_in() finds its series.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpcq.statistics import JobScatter, job_scatters, pooled_scatter
from hpcq.store.database import Connection
from hpcq.store.history import COUNTS, MetricRow, SeriesRow
from hpcq.store.selection import Window, within

Floats = NDArray[np.float64]
_ROW = np.dtype([("series", "i8"), ("job", "i8"), ("result", "i8"), ("value", "f8"), ("mark", "i1")])
#: Query at most this many series one by one; for more, read all results of the window once.
_ONE_BY_ONE = 100


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """The points of one series in time order. value: medians of jobs. result: one result of each point. after: 1 from
    the boundary on.
    """

    series_id: int
    value: Floats
    result: NDArray[np.int64]
    after: NDArray[np.bool_]


class OfKernel(Protocol):
    """A series, and the kernel that says which metric is meant."""

    @property
    def series_id(self) -> int: ...
    @property
    def kernel(self) -> str: ...


def tracks(
    database: Connection,
    rows: Sequence[OfKernel],
    metrics: Mapping[str, MetricRow],
    window: Window,
    *,
    boundary: str = "~",
    facts: Sequence[tuple[str, str]] = (),
) -> list[SeriesPoints]:
    """The points of these series in the window; series without points are left out. boundary: a moment."""
    wanted = {row.series_id for row in rows if row.kernel in metrics}
    if not wanted:
        return []
    ids = ", ".join(str(one.metric_name_id) for one in metrics.values())
    condition, bound = within(window, facts)
    fetched = _fetch(database, wanted, ids, condition, mark="x.started_utc >= :boundary", bound=bound | {"boundary": boundary})
    return list(_grouped(fetched))


def tracks_by_window(
    database: Connection, rows: Sequence[OfKernel], metrics: Mapping[str, MetricRow], windows: Sequence[Window]
) -> list[list[SeriesPoints]]:
    """The points of these series in each of up to seven windows, which may overlap: one pass over the database for all."""
    wanted = {row.series_id for row in rows if row.kernel in metrics}
    if not wanted:
        return [[] for _ in windows]
    ids = ", ".join(str(one.metric_name_id) for one in metrics.values())
    conditions, bound = [], dict[str, Any]()
    for number, window in enumerate(windows):
        condition, values = within(window)
        for name, value in values.items():
            condition = condition.replace(f":{name}", f":w{number}_{name}")
            bound[f"w{number}_{name}"] = value
        conditions.append(f"({condition})")
    mark = " + ".join(f"{1 << number} * {condition}" for number, condition in enumerate(conditions))
    fetched = _fetch(database, wanted, ids, f"({' OR '.join(conditions)})", mark=mark, bound=bound)
    return [list(_grouped(fetched[fetched["mark"] & (1 << number) != 0])) for number in range(len(windows))]


def disturbed_in(database: Connection, window: Window, facts: Sequence[tuple[str, str]] = ()) -> dict[int, int]:
    """By series_id: how many of its last jobs in the window were measured only beside other work.

    They are counted back to its last job there with an undisturbed repetition; series that end with one are left out.
    """
    condition, bound = within(window, facts)
    later = within(window)[0].replace("x.", "y.")
    query = (
        f"SELECT x.series_id, count(DISTINCT x.job_id) FROM result x WHERE x.disturbed = 1 AND {COUNTS} AND {condition}"
        " AND NOT EXISTS (SELECT 1 FROM result y WHERE y.series_id = x.series_id AND y.final = 1 AND y.outcome = 'measured'"
        f" AND y.disturbed = 0 AND (y.started_utc > x.started_utc OR y.job_id = x.job_id) AND {later})"
        " GROUP BY x.series_id"
    )
    return {int(series_id): int(count) for series_id, count in database.execute(query, bound)}


def _fetch(
    database: Connection, wanted: set[int], ids: str, condition: str, *, mark: str, bound: Mapping[str, Any]
) -> NDArray[np.void]:
    """Rows of these series in the form of _ROW: pruned ones first, then in time order.

    condition, mark: SQL on a result x, of which `mark` gives the last column. Read straight from the cursor: a month can be
    a million rows.
    """
    clean = f"{COUNTS} AND x.disturbed = 0"
    columns = f"x.series_id, x.job_id, x.result_id, m.value, {mark}"
    joined = f"result x JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id IN ({ids})"
    rolled = (
        f"SELECT x.series_id, x.job_id, x.result_id, x.median, {mark} FROM rollup x"
        f" JOIN result b ON b.result_id = x.result_id WHERE x.metric_name_id IN ({ids}) AND"
        f" {condition.replace('x.attempt_id', 'b.attempt_id')} AND b.disturbed = 0 ORDER BY x.started_utc, x.result_id"
    )
    cursor = database.cursor()
    cursor.row_factory = None
    found = [np.fromiter(cursor.execute(rolled, bound), dtype=_ROW)]
    if len(wanted) <= _ONE_BY_ONE:
        query = f"SELECT {columns} FROM {joined} WHERE x.series_id = :series AND {clean} AND {condition} ORDER BY x.started_utc"
        for series in sorted(wanted):
            found.append(np.fromiter(cursor.execute(query, {**bound, "series": series}), dtype=_ROW))
    else:
        query = f"SELECT {columns} FROM {joined} WHERE {clean} AND {condition} ORDER BY x.started_utc"
        found.append(np.fromiter(cursor.execute(query, bound), dtype=_ROW))
    rows = np.concatenate(found)
    return rows[np.isin(rows["series"], np.fromiter(wanted, dtype=np.int64))]


def _grouped(fetched: NDArray[np.void]) -> Iterator[SeriesPoints]:
    """Cut rows in time order by series, and within a series by job."""
    if not len(fetched):
        return
    order = np.argsort(fetched["series"], kind="stable")
    series, jobs, results, values, marks = (np.ascontiguousarray(fetched[name][order]) for name in _ROW.names or ())
    keys = series * (int(jobs.max()) + 1) + jobs
    _, first_row, job_of = np.unique(keys, return_index=True, return_inverse=True)
    by_job = np.lexsort((values, job_of))
    counts = np.bincount(job_of)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ordered = values[by_job]
    medians = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2.0
    in_time = np.argsort(first_row, kind="stable")
    first_row, medians = first_row[in_time], medians[in_time]
    ids, lows = np.unique(series, return_index=True)
    points = np.searchsorted(first_row, np.append(lows, len(values)))
    for i in range(len(ids)):
        at = slice(points[i], points[i + 1])
        yield SeriesPoints(int(ids[i]), medians[at], results[first_row[at]], marks[first_row[at]] != 0)


# ----------------------------------------------------------------------------------------------------------------------
# How far the jobs of each series scatter while nothing changes, learned from the history in the database.
#
# all points of the series before the stretch in question  ->  pooled by test (kernel, parameters, cluster)  ->  JobScatter

_Test = tuple[str, str, str]


def scatter_of(histories: Mapping[int, Floats], rows: Sequence[SeriesRow], wanted: Collection[int]) -> dict[int, JobScatter]:
    """The scatter of the wanted series of `rows`, by series_id, learned from all of `rows`.

    histories: by series_id, one value per job in time order. Leave out the stretch to judge, or a change of the whole
    cluster would count as scatter.
    """
    by_test: dict[_Test, list[Floats]] = {}
    for row in rows:
        if len(histories.get(row.series_id, ())) > 1:  # one job has no neighbour to differ from
            by_test.setdefault(_test(row), []).append(histories[row.series_id])
    pooled = {test: pooled_scatter(values) for test, values in by_test.items()}
    named = [row for row in rows if row.series_id in wanted]
    own = [histories.get(row.series_id, ()) for row in named]
    learned = job_scatters(own, [pooled.get(_test(row)) for row in named])
    return {row.series_id: one for row, one in zip(named, learned, strict=True)}


def two_and_history(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, MetricRow],
    windows: tuple[Window, Window],
    facts: Sequence[tuple[str, str]] = (),
) -> tuple[list[SeriesPoints], list[SeriesPoints], dict[int, Floats]]:
    """The points of these series in two windows, and all values outside the second, from which their scatter can be learned.

    facts: conditions on the points of the windows. The scatter is learned from all points.
    """
    if not facts:
        before, after, everything = tracks_by_window(database, rows, metrics, (*windows, Window("all")))
        return before, after, outside(everything, after)
    before, after = (tracks(database, rows, metrics, one, facts=facts) for one in windows)
    everything, inside = tracks_by_window(database, rows, metrics, (Window("all"), windows[1]))
    return before, after, outside(everything, inside)


def outside(everything: Sequence[SeriesPoints], inside: Sequence[SeriesPoints]) -> dict[int, Floats]:
    """By series_id: the values of all points but those inside."""
    if not everything or not inside:
        return {one.series_id: one.value for one in everything}
    judged = np.isin(np.concatenate([one.result for one in everything]), np.concatenate([one.result for one in inside]))
    ends = np.cumsum([len(one.result) for one in everything])
    parts = np.split(~judged, ends[:-1])
    return {one.series_id: one.value[kept] for one, kept in zip(everything, parts, strict=True)}


def _test(row: SeriesRow) -> _Test:
    return row.kernel, row.cluster, row.parameters_json

"""Which series changed, and what differs between the two sides: verdicts and causes on the points of the database.

changed(database, rows, metrics, since, against)     method boundary: since against another stretch
searched(database, rows, metrics, since)             method search: change points since then, wherever they are
explained(database, row, ...)                        a change with its facts and events
gone_since(database, ...)                            series that were measured and only fail since
record_changes, known_states                         changes that are kept, each once, and what people said of them

The points of many series come at once, as numpy arrays:

    results of the window in time order  ->  grouped by series and job  ->  medians  ->  cut by series

One pass over an index of time: a month of all series costs as much as its results, however long the history is.
Repetitions beside other work do not count. A job that has no others gives no point; disturbed_in() finds its series.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcq.analysis import change
from hpcq.analysis.change import POINTS_MAX, RECORDED, Changed, Explained, Judged, rank, symptoms
from hpcq.analysis.series_outcomes import Lost, lost_in, planned_in
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, JobScatter, job_scatters, pooled_scatter
from hpcq.statistics.comparison import smallest_move
from hpcq.store.database import Connection, transaction, writing
from hpcq.store.keep.annotations import Author, add_state
from hpcq.store.query import median
from hpcq.store.selection import AT_UTC, COUNTS, RESULTS, MetricRow, Window, among, metric_in, within
from hpcq.store.series import SeriesRow, SeriesRows
from hpcq.units import utc_now
from hpcq.verdict.levels import GONE, JUDGED_POINTS_MIN, LASTING_COUNT, Level, Sides, judge_boundary, judge_search

Floats = NDArray[np.float64]
_ROW = np.dtype([("series", "i8"), ("job", "i8"), ("result", "i8"), ("value", "f8"), ("mark", "i1")])
#: Series are queried one by one where they are at most this many, or at most one for every 50 results of the database: a query
#: costs as much as reading 50 rows. For more series, all results of the window are read once.
_ONE_BY_ONE, _RESULTS_A_SERIES = 100, 50


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """The points of one series in time order. value: medians of jobs. result: one result of each point. after: 1 from
    the boundary on.
    """

    series_id: int
    value: Floats
    result: NDArray[np.int64]
    after: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tracks:
    """The points of many series, one after the other; begins: shape (series + 1,). A site has half a million of them, most
    of one point: taken one by one only where they are needed.
    """

    series_id: NDArray[np.int64]
    begins: NDArray[np.int64]
    value: Floats
    result: NDArray[np.int64]
    after: NDArray[np.bool_]

    def of(self, places: Iterable[int]) -> list[SeriesPoints]:
        """Those at these places."""
        bounds = self.begins.tolist()
        return [
            SeriesPoints(int(self.series_id[one]), self.value[at], self.result[at], self.after[at])
            for one in places
            for at in (slice(bounds[one], bounds[one + 1]),)
        ]

    def all(self) -> list[SeriesPoints]:
        """Every one."""
        return self.of(range(len(self.series_id)))

    def values(self) -> Iterator[tuple[int, list[float]]]:
        """Each series_id with its values: a tenth of what all() costs."""
        bounds, values = self.begins.tolist(), self.value.tolist()
        for series_id, begin, end in zip(self.series_id.tolist(), bounds, bounds[1:], strict=False):
            yield series_id, values[begin:end]

    def only(self, series: NDArray[np.bool_]) -> Tracks:
        """Some of the series: shape (series,)."""
        kept = np.repeat(series, self.counts)
        begins = np.concatenate([[0], np.cumsum(self.counts[series])])
        return Tracks(self.series_id[series], begins, self.value[kept], self.result[kept], self.after[kept])

    def without(self, results: NDArray[np.int64]) -> Tracks:
        """The points without these results."""
        kept = ~np.isin(self.result, results)
        begins = np.concatenate([[0], np.cumsum(kept)])[self.begins]
        return Tracks(self.series_id, begins, self.value[kept], self.result[kept], self.after[kept])

    def histories(self) -> dict[int, Floats]:
        """By series_id, the values of those that have several: one job has no neighbour to differ from."""
        return {one.series_id: one.value for one in self.of(np.flatnonzero(self.counts > 1).tolist())}

    @property
    def counts(self) -> NDArray[np.int64]:
        """Points of each."""
        return np.diff(self.begins)

    @property
    def is_recent(self) -> NDArray[np.bool_]:
        """Which have a point from the boundary on: shape (series,)."""
        seen = np.concatenate([[0], np.cumsum(self.after)])
        return seen[self.begins[1:]] > seen[self.begins[:-1]]


def tracks(
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    window: Window,
    *,
    boundary: str = "~",
    facts: Sequence[tuple[str, str]] = (),
) -> list[SeriesPoints]:
    """The points of these series in the window; series without points are left out. boundary: a moment."""
    return tracks_of(database, rows.of_kernels(metrics).series_id, metrics, window, boundary=boundary, facts=facts).all()


def tracks_of(
    database: Connection,
    wanted: NDArray[np.int64],
    metrics: Mapping[str, MetricRow],
    window: Window,
    *,
    boundary: str = "~",
    facts: Sequence[tuple[str, str]] = (),
) -> Tracks:
    """The same of series by their number, as columns."""
    condition, bound = within(window, facts)
    mark = "x.started_utc >= :boundary"
    return _grouped(_fetch(database, wanted, metrics, condition, mark=mark, bound=bound | {"boundary": boundary}))


def tracks_by_window(
    database: Connection, rows: SeriesRows, metrics: Mapping[str, MetricRow], windows: Sequence[Window]
) -> list[Tracks]:
    """The points of these series in each of up to seven windows, which may overlap: one pass over the database for all."""
    wanted = rows.of_kernels(metrics).series_id
    if not len(wanted):
        return [_grouped(np.zeros(0, _ROW)) for _ in windows]
    conditions, bound = [], dict[str, Any]()
    for number, window in enumerate(windows):
        condition, values = within(window)
        for name, value in values.items():
            condition = condition.replace(f":{name}", f":w{number}_{name}")
            bound[f"w{number}_{name}"] = value
        conditions.append(f"({condition})")
    mark = " + ".join(f"{1 << number} * {condition}" for number, condition in enumerate(conditions))
    fetched = _fetch(database, wanted, metrics, f"({' OR '.join(conditions)})", mark=mark, bound=bound)
    return [_grouped(fetched[fetched["mark"] & (1 << number) != 0]) for number in range(len(windows))]


def disturbed_in(
    database: Connection, window: Window, facts: Sequence[tuple[str, str]] = (), only: Collection[int] | None = None
) -> dict[int, int]:
    """By series_id: how many of its last jobs in the window were measured only beside other work.

    They are counted back to its last job there with an undisturbed repetition; series that end with one are left out.

    only: the series that are asked for. Where they are many, others are in the answer, too.
    """
    condition, bound = within(window, facts)
    condition += among(only)
    later = within(window)[0].replace("x.", "y.")
    query = (
        f"SELECT x.series_id, count(DISTINCT x.job_id) FROM result x WHERE x.disturbed = 1 AND {COUNTS} AND {condition}"
        " AND NOT EXISTS (SELECT 1 FROM result y WHERE y.series_id = x.series_id AND y.final = 1 AND y.outcome = 'measured'"
        f" AND y.disturbed = 0 AND (y.started_utc > x.started_utc OR y.job_id = x.job_id) AND {later})"
        " GROUP BY x.series_id"
    )
    return {int(series_id): int(count) for series_id, count in database.execute(query, bound)}


def _fetch(
    database: Connection,
    wanted: NDArray[np.int64],
    metrics: Mapping[str, MetricRow],
    condition: str,
    *,
    mark: str,
    bound: Mapping[str, Any],
) -> NDArray[np.void]:
    """Rows of these series in the form of _ROW: pruned ones first, then in time order.

    condition, mark: SQL on a result x, of which `mark` gives the last column. Read straight from the cursor: a month can be
    a million rows.
    """
    clean = f"{COUNTS} AND x.disturbed = 0"
    columns = f"x.series_id, x.job_id, x.result_id, m.value, {mark}"
    ids = ", ".join(str(one.metric_name_id) for one in metrics.values())
    joined = (
        "result x JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        f" JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = {metric_in(database, metrics.values())}"
    )
    rolled = (
        f"SELECT x.series_id, x.job_id, x.result_id, x.median, {mark} FROM rollup x"
        f" JOIN result b ON b.result_id = x.result_id WHERE x.metric_name_id IN ({ids}) AND"
        f" {condition.replace('x.attempt_id', 'b.attempt_id')} AND b.disturbed = 0 ORDER BY x.started_utc, x.result_id"
    )
    cursor = database.cursor()
    cursor.row_factory = None
    found = [np.fromiter(cursor.execute(rolled, bound), dtype=_ROW)]
    result_count = database.execute("SELECT coalesce(max(result_id), 0) FROM result").fetchone()[0]
    if len(wanted) <= max(_ONE_BY_ONE, result_count // _RESULTS_A_SERIES):
        query = f"SELECT {columns} FROM {joined} WHERE x.series_id = :series AND {clean} AND {condition} ORDER BY x.started_utc"
        for series in np.sort(wanted).tolist():
            found.append(np.fromiter(cursor.execute(query, {**bound, "series": series}), dtype=_ROW))
    else:
        query = f"SELECT {columns} FROM {joined} WHERE {clean} AND {condition} ORDER BY x.started_utc"
        found.append(np.fromiter(cursor.execute(query, bound), dtype=_ROW))
    rows = np.concatenate(found)
    return rows[np.isin(rows["series"], wanted)]


def _grouped(fetched: NDArray[np.void]) -> Tracks:
    """Cut rows in time order by series, and within a series by job."""
    if not len(fetched):
        nobody = np.zeros(0, np.int64)
        return Tracks(nobody, np.zeros(1, np.int64), np.zeros(0), nobody, np.zeros(0, np.bool_))
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
    return Tracks(ids, points, medians, results[first_row], marks[first_row] != 0)


# ----------------------------------------------------------------------------------------------------------------------
# How far the jobs of each series scatter while nothing changes, learned from the history in the database.
#
# all points of the series before the stretch in question  ->  pooled by test (kernel, parameters, cluster)  ->  JobScatter

_Test = tuple[str, str, str]


def scatter_of(histories: Mapping[int, Floats], rows: SeriesRows, wanted: Collection[int]) -> dict[int, JobScatter]:
    """The scatter of the wanted series of `rows`, by series_id, learned from all of `rows`.

    histories: by series_id, one value per job in time order. Leave out the stretch to judge, or a change of the whole
    cluster would count as scatter.
    """
    by_test: dict[_Test, list[Floats]] = {}
    for row in rows.of(series_id for series_id, values in histories.items() if len(values) > 1):  # one has no neighbour
        by_test.setdefault(_test(row), []).append(histories[row.series_id])
    pooled = {test: pooled_scatter(values) for test, values in by_test.items()}
    named = list(rows.of(wanted))
    own = [histories.get(row.series_id, ()) for row in named]
    learned = job_scatters(own, [pooled.get(_test(row)) for row in named])
    return {row.series_id: one for row, one in zip(named, learned, strict=True)}


def two_and_history(
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    windows: tuple[Window, Window],
    facts: Sequence[tuple[str, str]] = (),
) -> tuple[Tracks, Tracks, dict[int, Floats]]:
    """The points of these series in two windows, and all values outside the second, from which their scatter can be learned.

    facts: conditions on the points of the windows. The scatter is learned from all points.
    """
    if not facts:
        before, after, everything = tracks_by_window(database, rows, metrics, (*windows, Window("all")))
        return before, after, everything.without(after.result).histories()
    wanted = rows.of_kernels(metrics).series_id
    before, after = (tracks_of(database, wanted, metrics, one, facts=facts) for one in windows)
    everything, inside = tracks_by_window(database, rows, metrics, (Window("all"), windows[1]))
    return before, after, everything.without(inside.result).histories()


def _test(row: SeriesRow) -> _Test:
    return row.kernel, row.cluster, row.parameters_json


# ----------------------------------------------------------------------------------------------------------------------
# Which series changed, and what differs between the two sides.

Facts = Sequence[tuple[str, str]]


def changed(
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    since: Window,
    against: Window,
    *,
    facts: Facts = (),
) -> Judged:
    """Judge every series with points in either stretch: before (`against`) and after (`since`)."""
    before, after, history = two_and_history(database, rows, metrics, (against, since), facts)
    old, new = ({one.series_id: one for one in side.all()} for side in (before, after))
    named = {row.series_id: row for row in rows.of(old.keys() | new.keys())}
    joined = [_joined(old.get(one), new.get(one)) for one in named]
    known = scatter_of(history, rows, {one.series_id for one in joined})
    judged = judge_boundary([_sides(one, metrics[named[one.series_id].kernel], known[one.series_id]) for one in joined])
    found = [_changed(database, named[one.series_id], metrics, one, level) for one, level in zip(joined, judged, strict=True)]
    gone = [] if facts else gone_since(database, rows, metrics, since, against)
    lost = {one.row.series_id for one in gone}
    kept = [one for one in found if one.row.series_id not in lost]
    told = {one.row.series_id for one in kept if one.level.sure} | lost
    beside_work = _lately(disturbed_in(database, since, facts), set(new)) | (
        disturbed_in(database, against, facts).keys() - set(old)
    )
    judged_ids = frozenset(lost) | {one for one in named if one in old and one in new} - (beside_work - told)
    disturbed, empty = _split(rows.where(~rows.are(judged_ids)), beside_work)
    return Judged(kept + gone, judged_ids, rows.of(()), *_without_points(database, empty, since, set(new), facts), disturbed)


def searched(
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    since_utc: str,
    history: Window,
    *,
    facts: Facts = (),
    points: Tracks | None = None,
) -> Judged:
    """Changes of level since then, in series as far back as `history`, and recorded changes whose level holds.

    points: those of these series there, with the boundary `since_utc`, where they were read already.
    """
    found: list[Changed] = []
    if points is None:
        measured = rows.of_kernels(metrics).series_id
        points = tracks_of(database, measured, metrics, history, boundary=since_utc, facts=facts)
    # One point alone is compared with nothing, and no scatter is learned from it.
    there = points.of(np.flatnonzero(points.counts > 1).tolist())
    worth = [one for one in there if len(one.value) >= JUDGED_POINTS_MIN]
    named = {row.series_id: row for row in rows.of(one.series_id for one in worth)}
    known = scatter_of({one.series_id: one.value[~one.after] for one in there}, rows, named.keys())
    judged = judge_search([_sides(one, metrics[named[one.series_id].kernel], known[one.series_id]) for one in worth])
    for one, levels in zip(worth, judged, strict=True):
        found += [_changed(database, named[one.series_id], metrics, one, level) for level in levels]
    stretch = replace(history, from_utc=since_utc)
    ever = replace(history, from_utc=None)
    gone = [] if facts else gone_since(database, rows, metrics, stretch, ever)
    lost = {one.row.series_id for one in gone}
    found = [one for one in found if one.row.series_id not in lost]
    if not facts:
        recorded = np.array([row[0] for row in database.execute("SELECT DISTINCT series_id FROM change")], np.int64)
        kept = points.of(np.flatnonzero(np.isin(points.series_id, recorded)).tolist())
        of_kept = {row.series_id: row for row in rows.of(one.series_id for one in kept)}
        found += remembered(database, found, kept, of_kept, metrics, since_utc)
    seen = set(points.series_id[points.is_recent].tolist()) - lost
    enough = seen & {one.series_id for one in worth}
    told = {one.row.series_id for one in found if one.level.sure}
    beside_work = _lately(disturbed_in(database, stretch, facts, rows.ids), seen) - told
    enough, seen = enough - beside_work, seen - beside_work
    too_few, somehow = seen - enough, seen | lost
    disturbed, empty = _split(rows.where(~rows.are(somehow)), beside_work)
    missing, idle = _without_points(database, empty, stretch, set(), facts)
    return Judged(found + gone, frozenset(enough | lost), rows.of(too_few), missing, idle, disturbed)


def _lately(disturbed: Mapping[int, int], seen: set[int]) -> set[int]:
    """Series about which nothing is known of late: no undisturbed point, or enough jobs since it to make a change."""
    return {one for one, job_count in disturbed.items() if one not in seen or job_count >= LASTING_COUNT}


def _split(rows: SeriesRows, disturbed: Iterable[int]) -> tuple[SeriesRows, SeriesRows]:
    """The series without a point that counts: those measured beside other work, and all others."""
    beside_work = rows.are(disturbed)
    return rows.where(beside_work), rows.where(~beside_work)


def _without_points(
    database: Connection, rows: SeriesRows, stretch: Window, seen: set[int], facts: Facts
) -> tuple[SeriesRows, SeriesRows]:
    """Split series that cannot be judged: planned in this stretch and not measured there, and all others.

    facts: a result that was never measured has none, so with a condition on them nothing is called planned.
    """
    planned = planned_in(database, stretch, rows.ids) - seen if rows and not facts else set()
    missing = rows.are(planned)
    return rows.where(missing), rows.where(~missing)


def explained(database: Connection, one: Changed) -> Explained:
    """Find what differs between the sides of a change."""
    before, after = one.before_results, one.after_results
    facts = change.facts_of(database, [*before, *after])
    causes = rank(facts[: len(before)], facts[len(before) :])
    events = change.events_between(database, one.row, one.last_before_utc, one.at_utc) if one.at_utc else []
    seen = change.findings_of(database, [*before, *after])
    sides = [[point for point in side if point is not None] for side in (seen[: len(before)], seen[len(before) :])]
    return Explained(one, tuple(causes), tuple(events), tuple(symptoms(*sides)))


def _changed(
    database: Connection, row: SeriesRow, metrics: Mapping[str, MetricRow], track: SeriesPoints, level: Level
) -> Changed:
    before, after = track.result[level.first : level.index], track.result[level.index : level.last]
    near = (
        tuple(before[-change.POINTS_MAX :].tolist()),
        tuple(after[: change.POINTS_MAX].tolist()),
    )
    told = level.direction != "same"
    at_utc = change.started_of(database, [near[1][0]])[0] if told and near[1] else ""
    last_before = change.started_of(database, [near[0][-1]])[0] if told and near[0] else ""
    return Changed(row, metrics[row.kernel], level, at_utc, last_before, *near)


def _sides(track: SeriesPoints, metric: MetricRow, scatter: JobScatter) -> Sides:
    boundary = int(np.sum(~track.after))
    return Sides(Better(metric.better), track.value, boundary, scatter, smallest_move(metric.unit))


def _joined(old: SeriesPoints | None, new: SeriesPoints | None) -> SeriesPoints:
    """Join the points of the two stretches; everything from the second counts as after."""
    if old is None or new is None:
        only, is_after = (new, True) if new is not None else (old, False)
        assert only is not None  # noqa: S101 - one of them is there
        return replace(only, after=np.full(len(only.value), is_after))
    after = np.arange(len(old.value) + len(new.value)) >= len(old.value)
    joined = [np.concatenate([getattr(old, name), getattr(new, name)]) for name in ("value", "result")]
    return SeriesPoints(old.series_id, joined[0], joined[1], after)


# ----------------------------------------------------------------------------------------------------------------------
# Series that were measured and now only fail, which is worse than any value.
#
# gone_since(database, ...)      series that were measured before and have only failed since, as Changed
#
# The unit is the job: one that brought a value has not failed, though some of its repetitions did. Nothing but a job with
# a value ends it, so each look finds it again without a memory of the last one, and with the same beginning.


def gone_since(
    database: Connection, rows: SeriesRows, metrics: Mapping[str, MetricRow], since: Window, before: Window
) -> list[Changed]:
    """Series that were measured in `before` or `since` and have failed in every job after that.

    One failed job is enough: the series is reported as `gone`, with the reason. It is gone since its first failure, though
    that lies before `since`.
    """
    lost = lost_in(database, since, rows.ids)
    found = []
    for row in rows.of(lost):
        one = lost[row.series_id]
        measured = _measured_before(database, row.series_id, metrics[row.kernel], one.since_utc, before)
        if measured:
            one.since_utc, earlier = _first_failure(database, row.series_id, one.since_utc)
            change = _as_change(row, metrics[row.kernel], one, measured)
            found.append(replace(change, level=replace(change.level, after_count=change.level.after_count + earlier)))
    return found


def _first_failure(database: Connection, series_id: int, failed_utc: str) -> tuple[str, int]:
    """When the failures began that went on at `failed_utc`, after the last job with a value; and how many jobs before that."""
    jobs = database.execute(
        f"SELECT min({AT_UTC}) AS at_utc, max(x.outcome = 'measured') AS valued {RESULTS} WHERE x.final = 1"
        f" AND t.result_id IS NULL AND x.outcome <> 'not_measured' AND x.series_id = :series AND {AT_UTC} <= :until"
        " GROUP BY x.job_id ORDER BY at_utc DESC",
        {"series": series_id, "until": failed_utc},
    )
    first_utc, failed = failed_utc, 0
    for job in jobs:
        if job["valued"]:
            break
        first_utc, failed = str(job["at_utc"]), failed + 1
    return first_utc, max(0, failed - 1)


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


# ----------------------------------------------------------------------------------------------------------------------
# Store the changes that an analysis found, each once, so that people can decide about them.
#
#     record_changes     store what was found and is not stored yet
#     known_states       what people decided about changes that were found
#     remembered         recorded changes that this analysis did not find again, but whose level still holds
#
# One change is one record, matched by series, metric, direction and nearness. As nights are added, a search moves a step
# by a few points, and a person may set the boundary elsewhere; neither makes it a second change.

#: Two places of one change may lie at most this many jobs of the series apart.
NEAR_JOBS = 6
#: This many newest points decide whether a level still holds.
_NEWEST_POINTS = 10
#: hpcq does not report a change again that a person closed.
_CLOSED = ("expected", "false", "fixed")


def record_changes(path: Path, found: Sequence[Explained]) -> int:
    """Record changes that are not recorded yet.

    Returns how many were new. Each starts as open, recorded by hpcq itself.
    """
    new = 0
    with writing(path) as database, transaction(database):
        for one in found:
            if one.changed.at_utc and known_change(database, one.changed) is None:
                _insert(database, one)
                new += 1
    return new


def known_change(database: Connection, changed: Changed) -> int | None:
    """The record of this change: same series, metric and direction, at most NEAR_JOBS jobs away."""
    rows = database.execute(
        "SELECT change_id, at_utc FROM change WHERE series_id = ? AND metric_name_id = ? AND direction = ?"
        " ORDER BY abs(julianday(at_utc) - julianday(?)), change_id",
        (changed.row.series_id, changed.metric.metric_name_id, changed.level.direction, changed.at_utc),
    ).fetchall()
    for row in rows:
        first, last = sorted((str(row["at_utc"]), changed.at_utc))
        between = database.execute(
            "SELECT count(DISTINCT job_id) FROM result WHERE series_id = ? AND final = 1 AND started_utc > ?"
            " AND started_utc <= ?",
            (changed.row.series_id, first, last),
        ).fetchone()[0]
        if int(between) <= NEAR_JOBS:
            return int(row["change_id"])
    return None


def known_states(database: Connection, found: Iterable[Changed]) -> list[str | None]:
    """The present state of each change's record; None if it was never recorded."""
    return [_state(database, known_change(database, one)) if one.at_utc else None for one in found]


def remembered(  # noqa: PLR0917 - what a look at the history has at hand
    database: Connection,
    found: Sequence[Changed],
    tracks: Sequence[SeriesPoints],
    by_series: Mapping[int, SeriesRow],
    metrics: Mapping[str, MetricRow],
    since_utc: str,
) -> list[Changed]:
    """Recorded changes for the worse that were not found again, while the newest level is nearer to the changed one.

    Not those that are gone: no probability decides on them, and every look finds them again (analysis/changed.py).

    hpcq does not take a report back because one more night moved a probability. A change ends when its level ends, or
    when a person closes it.
    """
    again = {known_change(database, one) for one in found if one.level.sure and one.at_utc}
    points = {one.series_id: one for one in tracks}
    kept = []
    for record in database.execute(
        "SELECT h.*, (SELECT s.state FROM change_state s WHERE s.change_id = h.change_id ORDER BY s.state_no DESC LIMIT 1)"
        " AS state FROM change h WHERE h.at_utc >= ? AND h.direction IN ('worse', 'changed') ORDER BY h.at_utc",
        (since_utc,),
    ):
        row = by_series.get(record["series_id"])
        track = points.get(record["series_id"])
        if record["change_id"] in again or record["state"] in _CLOSED or row is None or track is None:
            continue
        if metrics[row.kernel].metric_name_id == record["metric_name_id"]:
            level = _still(database, record, track)
            if level is not None:
                at = level.index
                near = (
                    tuple(int(i) for i in track.result[max(0, at - 30) : at]),
                    tuple(int(i) for i in track.result[at : at + 30]),
                )
                kept.append(Changed(row, metrics[row.kernel], level, record["at_utc"], record["at_utc"], *near))
    return kept


def _still(database: Connection, record: Mapping[str, object], track: SeriesPoints) -> Level | None:
    """The level of a record, if the points since then are nearer to it than to the level before."""
    marks = ", ".join("?" * len(track.result))
    times = dict(
        database.execute(
            f"SELECT result_id, started_utc FROM result WHERE result_id IN ({marks})",
            [int(one) for one in track.result],
        ).fetchall()
    )
    since = [str(times[int(one)]) >= str(record["at_utc"]) for one in track.result]
    if not any(since) or record["after"] is None:
        return None
    index = since.index(True)
    before, after = float(str(record["before"])), float(str(record["after"]))
    now = float(np.median(track.value[index:][-_NEWEST_POINTS:]))
    if abs(now - after) > abs(now - before):
        return None
    reason = f"reported on {str(record['found_utc'])[:10]}, and the level still holds"
    return Level(
        ComparisonVerdict.DEGRADED, str(record["direction"]), RECORDED, index, 0, len(track.value), before, now,
        now / before if before > 0 < now else None, None, None, None, index, len(track.value) - index, reason,
    )  # fmt: skip


def _insert(database: Connection, one: Explained) -> None:
    level, changed = one.changed.level, one.changed
    key = (changed.row.series_id, changed.metric.metric_name_id, level.method, changed.at_utc)
    numbers = tuple(None if value != value else value for value in (level.before, level.after))  # noqa: PLR0124 - NaN
    spread = (level.ratio, level.low, level.high, level.before_count, level.after_count)
    cursor = database.execute(
        "INSERT INTO change (series_id, metric_name_id, method, at_utc, direction, before, after, ratio, low, high,"
        " before_count, after_count, own_build, cause, found_utc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, level.direction, *numbers, *spread, int(one.own_build), one.words, utc_now()),
    )
    add_state(database, int(cursor.lastrowid or 0), "open", Author("hpcq", level.reason))


def _state(database: Connection, change_id: int | None) -> str | None:
    if change_id is None:
        return None
    row = database.execute("SELECT state FROM v_changes WHERE change_id = ?", (change_id,)).fetchone()
    return None if row is None else str(row["state"])

"""Which series changed, and what differs between the two sides: verdicts and causes on the points of the database.

changed(database, rows, metrics, since, against)     method boundary: since against another stretch
searched(database, rows, metrics, since)             method search: change points since then, wherever they are
explained(database, row, ...)                        a change with its facts and events
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hpcq.analysis import change
from hpcq.analysis.bulk_points import SeriesPoints, disturbed_in, scatter_of, tracks, two_and_history

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from hpcq.analysis.change import POINTS_MAX, Changed, Explained, Judged
from hpcq.analysis.recorded import remembered
from hpcq.analysis.series_outcomes import Lost, lost_in, planned_in
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, JobScatter
from hpcq.statistics.comparison import smallest_move
from hpcq.store.database import Connection
from hpcq.store.history import COUNTS, MetricRow, SeriesRow
from hpcq.store.query import median
from hpcq.store.selection import AT_UTC, RESULTS, Window
from hpcq.verdict.causes import rank, symptoms
from hpcq.verdict.levels import GONE, JUDGED_POINTS_MIN, LASTING_COUNT, Level, Sides, judge_boundary, judge_search

Facts = Sequence[tuple[str, str]]


def changed(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, MetricRow],
    since: Window,
    against: Window,
    *,
    facts: Facts = (),
) -> Judged:
    """Judge every series with points in either stretch: before (`against`) and after (`since`)."""
    before, after, history = two_and_history(database, rows, metrics, (against, since), facts)
    old, new = ({one.series_id: one for one in side} for side in (before, after))
    named = {row.series_id: row for row in rows}
    joined = [_joined(old.get(one), new.get(one)) for one in named if one in old or one in new]
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
    disturbed, empty = _split([row for row in rows if row.series_id not in judged_ids], beside_work)
    return Judged(kept + gone, judged_ids, (), *_without_points(database, empty, since, set(new), facts), disturbed)


def searched(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, MetricRow],
    since_utc: str,
    history: Window,
    *,
    facts: Facts = (),
) -> Judged:
    """Changes of level since then, in series as far back as `history`, and recorded changes whose level holds."""
    named = {row.series_id: row for row in rows}
    found: list[Changed] = []
    there = tracks(database, rows, metrics, history, boundary=since_utc, facts=facts)
    worth = [one for one in there if len(one.value) >= JUDGED_POINTS_MIN]
    known = scatter_of({one.series_id: one.value[~one.after] for one in there}, rows, {one.series_id for one in worth})
    judged = judge_search([_sides(one, metrics[named[one.series_id].kernel], known[one.series_id]) for one in worth])
    for one, levels in zip(worth, judged, strict=True):
        found += [_changed(database, named[one.series_id], metrics, one, level) for level in levels]
    stretch = replace(history, from_utc=since_utc)
    ever = replace(history, from_utc=None)
    gone = [] if facts else gone_since(database, rows, metrics, stretch, ever)
    lost = {one.row.series_id for one in gone}
    found = [one for one in found if one.row.series_id not in lost]
    found += remembered(database, found, there, named, metrics, since_utc) if not facts else []
    recent = [one for one in there if one.after.any() and one.series_id not in lost]
    enough = {one.series_id for one in recent if len(one.value) >= JUDGED_POINTS_MIN}
    seen = {one.series_id for one in recent}
    told = {one.row.series_id for one in found if one.level.sure}
    beside_work = _lately(disturbed_in(database, stretch, facts), seen) - told
    enough, seen = enough - beside_work, seen - beside_work
    too_few, somehow = seen - enough, seen | lost
    disturbed, empty = _split([row for row in rows if row.series_id not in somehow], beside_work)
    missing, idle = _without_points(database, empty, stretch, set(), facts)
    few = tuple(named[one] for one in named if one in too_few)
    return Judged(found + gone, frozenset(enough | lost), few, missing, idle, disturbed)


def _lately(disturbed: Mapping[int, int], seen: set[int]) -> set[int]:
    """Series about which nothing is known of late: no undisturbed point, or enough jobs since it to make a change."""
    return {one for one, job_count in disturbed.items() if one not in seen or job_count >= LASTING_COUNT}


def _split(rows: Sequence[SeriesRow], disturbed: Collection[int]) -> tuple[tuple[SeriesRow, ...], tuple[SeriesRow, ...]]:
    """The series without a point that counts: those measured beside other work, and all others."""
    beside_work = tuple(row for row in rows if row.series_id in disturbed)
    return beside_work, tuple(row for row in rows if row.series_id not in disturbed)


def _without_points(
    database: Connection, rows: Sequence[SeriesRow], stretch: Window, seen: set[int], facts: Facts
) -> tuple[tuple[SeriesRow, ...], tuple[SeriesRow, ...]]:
    """Split series that cannot be judged: planned in this stretch and not measured there, and all others.

    facts: a result that was never measured has none, so with a condition on them nothing is called planned.
    """
    planned = planned_in(database, stretch) - seen if rows and not facts else set()
    missing = tuple(row for row in rows if row.series_id in planned)
    return missing, tuple(row for row in rows if row.series_id not in planned)


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

"""Which series changed, and what differs between the two sides: verdicts and causes on the points of the database.

changed(database, rows, metrics, since, against)     method boundary: since against another stretch
searched(database, rows, metrics, since)             method search: change points since then, wherever they are
explained(database, row, ...)                        a change with its facts and events
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hpcq.analysis import change_context
from hpcq.analysis.bulk_points import SeriesPoints, disturbed_in, tracks
from hpcq.analysis.change import Changed, Explained, Judged
from hpcq.analysis.gone import gone_since
from hpcq.analysis.recorded import remembered
from hpcq.analysis.scatter import scatter_of, two_and_history
from hpcq.analysis.series_outcomes import planned_in
from hpcq.kernels import Better
from hpcq.statistics import JobScatter
from hpcq.statistics.comparison import smallest_move
from hpcq.store.database import Connection
from hpcq.store.history import MetricRow, SeriesRow
from hpcq.store.selection import Window
from hpcq.verdict.causes import rank, symptoms
from hpcq.verdict.levels import JUDGED_POINTS_MIN, LASTING_COUNT, Level, Sides, judge_boundary, judge_search

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
    facts = change_context.facts_of(database, [*before, *after])
    causes = rank(facts[: len(before)], facts[len(before) :])
    events = change_context.events_between(database, one.row, one.last_before_utc, one.at_utc) if one.at_utc else []
    seen = change_context.findings_of(database, [*before, *after])
    sides = [[point for point in side if point is not None] for side in (seen[: len(before)], seen[len(before) :])]
    return Explained(one, tuple(causes), tuple(events), tuple(symptoms(*sides)))


def _changed(
    database: Connection, row: SeriesRow, metrics: Mapping[str, MetricRow], track: SeriesPoints, level: Level
) -> Changed:
    before, after = track.result[level.first : level.index], track.result[level.index : level.last]
    near = (
        tuple(before[-change_context.POINTS_MAX :].tolist()),
        tuple(after[: change_context.POINTS_MAX].tolist()),
    )
    told = level.direction != "same"
    at_utc = change_context.started_of(database, [near[1][0]])[0] if told and near[1] else ""
    last_before = change_context.started_of(database, [near[0][-1]])[0] if told and near[0] else ""
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

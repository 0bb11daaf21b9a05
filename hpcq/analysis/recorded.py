"""Store the changes that an analysis found, each once, so that people can decide about them.

    record_changes     store what was found and is not stored yet
    known_states       what people decided about changes that were found
    remembered         recorded changes that this analysis did not find again, but whose level still holds

One change is one record, matched by series, metric, direction and nearness. As nights are added, a search moves a step
by a few points, and a person may set the boundary elsewhere; neither makes it a second change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hpcq.analysis.bulk_points import SeriesPoints
from hpcq.analysis.change import RECORDED, Changed, Explained
from hpcq.statistics import ComparisonVerdict
from hpcq.store.database import Connection, transaction, writing
from hpcq.store.history import MetricRow, SeriesRow
from hpcq.store.keep.annotations import Author, add_state
from hpcq.units import utc_now
from hpcq.verdict.levels import Level

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
            f"SELECT result_id, started_utc FROM result WHERE result_id IN ({marks})",  # noqa: S608 - question marks
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

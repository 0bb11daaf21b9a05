"""Changes that an analysis found are kept in the database, each once, so that people can decide about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcq.analysis.changed import Explained
from hpcq.store.annotations import Said, add_state
from hpcq.store.database import transaction, writing
from hpcq.units import utc_now


def record_changes(path: Path, found: Sequence[Explained]) -> int:
    """Keep changes that are not kept yet; returns how many were new. Each begins as open, by hpcq itself."""
    new = 0
    with writing(path) as database, transaction(database):
        for one in found:
            level, changed = one.changed.level, one.changed
            key = (changed.row.series_id, changed.metric.metric_name_id, level.method, changed.at_utc)
            known = database.execute(
                "SELECT 1 FROM change WHERE series_id = ? AND metric_name_id = ? AND method = ? AND at_utc = ?", key
            ).fetchone()
            if known is not None or not changed.at_utc:
                continue
            numbers = (level.before, level.after, level.ratio, level.low, level.high, level.before_count, level.after_count)
            cursor = database.execute(
                "INSERT INTO change (series_id, metric_name_id, method, at_utc, direction, before, after, ratio, low, high,"
                " before_count, after_count, own_build, cause, found_utc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*key, level.direction, *numbers, int(one.own_build), one.words, utc_now()),
            )
            add_state(database, int(cursor.lastrowid or 0), "open", Said("hpcq", level.reason))
            new += 1
    return new

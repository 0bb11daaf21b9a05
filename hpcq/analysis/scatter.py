"""How far the jobs of each series scatter while nothing changes, learned from the history in the database.

all points of the series before the stretch in question  ->  pooled by test (kernel, parameters, cluster)  ->  JobScatter
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from hpcq.analysis.bulk_points import Floats, SeriesPoints, tracks, tracks_by_window
from hpcq.statistics import JobScatter, job_scatters, pooled_scatter
from hpcq.store.database import Connection
from hpcq.store.history import MetricRow, SeriesRow
from hpcq.store.selection import Window

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

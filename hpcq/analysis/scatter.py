"""How far the jobs of each series scatter while nothing changes, learned from the history in the database.

all points of the series before the stretch in question  ->  pooled by test (kernel, parameters, cluster)  ->  JobScatter
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from hpcq.analysis.bulk_points import Floats, SeriesPoints, tracks
from hpcq.statistics import JobScatter, job_scatter, pooled_scatter
from hpcq.store.database import Connection
from hpcq.store.history import Metric, SeriesRow
from hpcq.store.time_windows import Window

_Test = tuple[str, str, str]


def scatter_of(histories: Mapping[int, Floats], rows: Sequence[SeriesRow]) -> dict[int, JobScatter]:
    """The scatter of every series of `rows`, by series_id.

    histories: by series_id, one value per job in time order. Leave out the stretch to judge, or a change of the whole
    cluster would count as scatter.
    """
    by_test: dict[_Test, list[Floats]] = {}
    for row in rows:
        if row.series_id in histories:
            by_test.setdefault(_test(row), []).append(histories[row.series_id])
    pooled = {test: pooled_scatter(values) for test, values in by_test.items()}
    return {row.series_id: job_scatter(histories.get(row.series_id, ()), pooled.get(_test(row))) for row in rows}


def histories(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, Metric],
    without: Window,
    inside: Sequence[SeriesPoints] | None = None,
) -> dict[int, Floats]:
    """The points of these series outside of a stretch or of runs, from which their scatter can be learned.

    inside: the points in that stretch, where the caller has read them already.
    """
    read = tracks(database, rows, metrics, without) if inside is None else inside
    judged = {one.series_id: set(one.result.tolist()) for one in read}
    found = {}
    for one in tracks(database, rows, metrics, Window("all")):
        kept = [i for i, result in enumerate(one.result.tolist()) if result not in judged.get(one.series_id, ())]
        found[one.series_id] = one.value[kept]
    return found


def _test(row: SeriesRow) -> _Test:
    return row.kernel, row.cluster, json.dumps(row.parameters, sort_keys=True)

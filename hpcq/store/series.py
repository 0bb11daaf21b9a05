"""Measured values of runs, one row per test, pair and metric, as gates need them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hpcq.store.database import Connection

#: cluster, client, server, kernel, parameters, metric, values, series_id, result_id
SeriesValues = tuple[str, str, str, str, dict[str, Any], str, tuple[float, ...], int, int]

_QUERY = """
    SELECT v.cluster, v.client, v.server, v.kernel, v.parameters, g.value, v.series_id, v.result_id
    FROM v_results v
    LEFT JOIN (SELECT m.result_id, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id
               WHERE n.name = :metric) g ON g.result_id = v.result_id AND v.outcome = 'measured'
    WHERE v.run = :run
    ORDER BY v.cluster, v.client, v.server, v.kernel, v.parameters, v.repetition_no
"""


def series_values(connection: Connection, runs: Sequence[str], metrics: Iterable[str]) -> list[SeriesValues]:
    """The valid values of each metric for every planned test and pair of these runs; empty if nothing was measured.

    The last number is the newest measured result, 0 if there is none.
    """
    found: list[SeriesValues] = []
    for metric in sorted(metrics):
        groups: dict[tuple[str, str, str, str, str], tuple[list[float], list[int]]] = {}
        for run in runs:
            for *names, value, series_id, result_id in connection.execute(_QUERY, {"run": run, "metric": metric}):
                values, ids = groups.setdefault((names[0], names[1], names[2], names[3], names[4]), ([], [series_id, 0]))
                if value is not None:
                    values.append(value)
                    ids[1] = max(ids[1], result_id)
        for (cluster, client, server, kernel, parameters), (values, ids) in groups.items():
            one = (cluster, client, server, kernel, json.loads(parameters), metric, tuple(values), ids[0], ids[1])
            found.append(one)
    return found

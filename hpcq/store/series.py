"""The measured values of a run, one row a test of a pair and metric: what gates are held against."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hpcq.store.database import Connection

#: cluster, client, server, kernel, parameters, metric, values
SeriesValues = tuple[str, str, str, str, dict[str, Any], str, tuple[float, ...]]

_QUERY = """
    SELECT v.cluster, v.client, v.server, v.kernel, v.parameters, g.value
    FROM v_results v
    LEFT JOIN (SELECT m.result_id, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id
               WHERE n.name = :metric) g ON g.result_id = v.result_id AND v.outcome = 'measured'
    WHERE v.run = :run
    ORDER BY v.cluster, v.client, v.server, v.kernel, v.parameters, v.repetition_no
"""


def series_values(connection: Connection, run: str, metrics: Iterable[str]) -> list[SeriesValues]:
    """The valid values of each metric for every planned test and pair of a run; none where nothing was measured."""
    found: list[SeriesValues] = []
    for metric in sorted(metrics):
        groups: dict[tuple[str, str, str, str, str], list[float]] = {}
        for cluster, client, server, kernel, parameters, value in connection.execute(_QUERY, {"run": run, "metric": metric}):
            values = groups.setdefault((cluster, client, server, kernel, parameters), [])
            if value is not None:
                values.append(value)
        for (*names, parameters), values in groups.items():
            cluster, client, server, kernel = names
            found.append((cluster, client, server, kernel, json.loads(parameters), metric, tuple(values)))
    return found

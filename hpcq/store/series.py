"""Measured values of runs, one row per test, pair and metric, as gates need them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hpcq.store.database import Connection

#: cluster, client, server, kernel, parameters, metric, values, series_id, result_id, why a test that ran gave no value,
#: values left out because of other work, whether all were beside other work
SeriesValues = tuple[str, str, str, str, dict[str, Any], str, tuple[float, ...], int, int, str, int, bool]

#: SQLite has no number of 20 digits, and int() takes no text of thousands.
_ROW_DIGITS_MAX = 18
_QUERY = """
    SELECT v.cluster, v.client, v.server, v.kernel, v.parameters, g.value, v.series_id, v.result_id,
           CASE WHEN v.outcome IN ('invalid', 'failed') THEN coalesce(v.reason, v.outcome) END, v.disturbed
    FROM v_results v
    LEFT JOIN (SELECT m.result_id, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id
               WHERE n.name = :metric) g ON g.result_id = v.result_id AND v.outcome = 'measured'
    WHERE v.run = :run
    ORDER BY v.cluster, v.client, v.server, v.kernel, v.parameters, v.repetition_no
"""


def series_values(connection: Connection, runs: Sequence[str], metrics: Iterable[str]) -> list[SeriesValues]:
    """The valid values of each metric for every planned test and pair of these runs; empty if nothing was measured.

    After the numbers of series and newest measured result (0 if there is none) comes the commonest reason of a test that
    ran and never gave a valid result; empty for one with values, and for one that never ran. Values beside other work
    are left out and counted; where there are no others, all are kept, and the last field is True.
    """
    found: list[SeriesValues] = []
    for metric in sorted(metrics):
        groups: dict[tuple[str, str, str, str, str], tuple[tuple[list[float], list[float]], list[int], list[str]]] = {}
        for run in runs:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric})
            for *names, value, series_id, result_id, why, is_disturbed in rows:
                key = (names[0], names[1], names[2], names[3], names[4])
                of_test, ids, reasons = groups.setdefault(key, (([], []), [series_id, 0], []))
                reasons += [] if why is None else [str(why)]
                if value is not None:
                    of_test[bool(is_disturbed)].append(value)
                    ids[1] = max(ids[1], result_id)
        for (cluster, client, server, kernel, parameters), ((clean, disturbed), ids, reasons) in groups.items():
            names_of = (cluster, client, server, kernel, json.loads(parameters), metric)
            values = tuple(clean or disturbed)
            why = max(reasons, key=reasons.count) if reasons and not values else ""
            left_out = len(disturbed) if clean else 0
            found.append((*names_of, values, ids[0], ids[1], why, left_out, bool(disturbed and not clean)))
    return found


#: Numbers in one statement; SQLite reads at most a million characters.
_IDS_MAX = 10_000


def named_series(database: Connection, only: Iterable[int] | None, **names: str | None) -> Iterator[Any]:
    """Series with the names of their kernel and nodes. only: none but these. names: kernel, client, server; node: it took part.

    The database picks them: a site that draws its pairs by lot has half a million series.
    """
    query = (
        "SELECT series_id, kernel, client_cluster, client, server, network, network_name, toolchain, parameters FROM v_series"
    )
    conditions = [_CONDITIONS[name] for name, value in names.items() if value is not None]
    ids = None if only is None else sorted(only)
    chunks = [None] if ids is None else [ids[first : first + _IDS_MAX] for first in range(0, len(ids), _IDS_MAX)]
    for chunk in chunks:
        here = [] if chunk is None else [f"series_id IN ({', '.join(str(int(one)) for one in chunk)})"]
        told = " AND ".join(["1", *conditions, *here])
        yield from database.execute(f"{query} WHERE {told}", names)


_CONDITIONS = {
    "kernel": "kernel = :kernel",
    "client": "series_id IN (SELECT series_id FROM series"
    " WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :client))",
    "server": "series_id IN (SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :server))",
    "node": "series_id IN (SELECT series_id FROM series WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :node)"
    " UNION ALL SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :node OR names_node(name, :node)))",
}


def row_id(text: str) -> int | None:
    """The number of a row that a person wrote; None for what is the number of none, 30 digits for instance."""
    return int(text) if text.isdecimal() and len(text) <= _ROW_DIGITS_MAX else None


def beside(database: Connection, series_id: int) -> list[int]:
    """The series of the same two nodes, this one among them: those that its label must differ from."""
    rows = database.execute(
        "SELECT o.series_id FROM series s JOIN series o ON o.client_node_id = s.client_node_id"
        " AND o.server_node_id = s.server_node_id WHERE s.series_id = ?",
        (series_id,),
    )
    return [int(row[0]) for row in rows]

"""Database queries of relative gates: a baseline's values by series, runs in a stretch of time, facts of both ends.

Nothing here judges: the kinds in hpcq.gate_kinds do.
"""

# ruff: noqa: S608 - queries are put together from numbers of our own; values are always bound

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from hpcq import units
from hpcq.gate_kinds.base import End
from hpcq.gate_kinds.registry import needed_facts
from hpcq.store.database import Connection
from hpcq.store.history import COUNTS
from hpcq.store.time_windows import Window


def campaign_text(database: Connection, run: str) -> str | None:
    """The campaign's file as the run used it, or None if it was not kept."""
    row = database.execute(
        "SELECT d.text FROM run r JOIN document d ON d.document_id = r.document_id WHERE r.name = ?", (run,)
    ).fetchone()
    return None if row is None else str(row[0])


def descriptions(database: Connection) -> dict[str, str]:
    """The description files of kernels that are foreign programs, by name."""
    rows = database.execute("SELECT k.name, d.text FROM kernel k JOIN document d ON d.document_id = k.document_id")
    return {str(name): str(text) for name, text in rows}


def holding_baseline(database: Connection, name: str) -> tuple[int, ...] | None:
    """The runs of the baseline that holds under this name; None if there is none."""
    rows = database.execute("SELECT DISTINCT run_id FROM v_baselines WHERE baseline = ? AND holds = 1", (name,)).fetchall()
    return tuple(int(row[0]) for row in rows) or None


def values_in_runs(
    database: Connection, run_ids: Sequence[int], metric: str, series_ids: Iterable[int]
) -> dict[int, list[tuple[float, int]]]:
    """By series: (value, how many it represents) of a metric in these runs.

    A pruned job's value represents all that it had. Values beside other work are no reference.
    """
    found: dict[int, list[tuple[float, int]]] = {}
    runs = ", ".join(str(int(one)) for one in run_ids)
    inside = (
        "IN (SELECT j.job_id FROM job j JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
        f" WHERE rc.run_id IN ({runs}))"
    )
    single = (
        "SELECT m.value, 1 FROM result x JOIN metric m ON m.result_id = x.result_id"
        " JOIN metric_name n ON n.metric_name_id = m.metric_name_id AND n.name = :metric"
        f" WHERE x.series_id = :series AND {COUNTS} AND x.disturbed = 0 AND x.job_id {inside}"
    )
    rolled = (
        "SELECT u.median, u.value_count FROM rollup u JOIN metric_name n ON n.metric_name_id = u.metric_name_id"
        " AND n.name = :metric JOIN result x ON x.result_id = u.result_id AND x.disturbed = 0"
        f" WHERE u.series_id = :series AND u.job_id {inside}"
    )
    for series in set(series_ids):
        bound = {"metric": metric, "series": series}
        rows = [*database.execute(single, bound), *database.execute(rolled, bound)]
        found[series] = [(float(value), int(count)) for value, count in rows]
    return found


def runs_before(database: Connection, run: str, history_s: float) -> list[str]:
    """Names of this run and of those that began at most this long before it."""
    (created,) = database.execute("SELECT created_utc FROM run WHERE name = ?", (run,)).fetchone()
    first = units.utc_text(units.parse_utc(created) - dt.timedelta(seconds=history_s))
    rows = database.execute(
        "SELECT name FROM run WHERE name = ?1 OR (created_utc >= ?2 AND created_utc <= ?3) ORDER BY created_utc",
        (run, first, created),
    )
    return [str(row[0]) for row in rows]


def runs_of(database: Connection, window: Window) -> list[str]:
    """Names of the runs in the window, oldest first: its own runs, or those that began in it."""
    conditions, bound = ["1"], []
    for condition, value in (("created_utc >= ?", window.from_utc), ("created_utc < ?", window.until_utc)):
        if value is not None:
            conditions.append(condition)
            bound.append(value)
    if window.run_ids is not None:
        conditions.append(f"run_id IN ({', '.join(str(int(one)) for one in window.run_ids)})")
    query = f"SELECT name FROM run WHERE {' AND '.join(conditions)} ORDER BY created_utc"
    return [str(row[0]) for row in database.execute(query, bound)]


def ends_of(database: Connection, result_ids: Iterable[int]) -> dict[int, tuple[End, End]]:
    """By result: both ends, with the facts that any gate kind needs."""
    known: dict[tuple[int, str], dict[str, Any]] = {}
    found = {}
    for result_id in set(result_ids) - {0}:
        row = database.execute(_ENDS, (result_id,)).fetchone()
        ends = []
        for end in ("client", "server"):
            interface = str(row[f"{end}_interface"] or row["network"])
            key = (row[f"{end}_set"] or 0, interface)
            if key not in known:
                known[key] = _facts(database, *key)
            ends.append(End(str(row[end]), interface, known[key]))
        found[result_id] = (ends[0], ends[1])
    return found


_ENDS = """
    SELECT nc.name AS client, ns.name AS server, se.network, fc.fact_set_id AS client_set, fs.fact_set_id AS server_set,
           (SELECT d.interface FROM evidence_end e JOIN endpoint d ON d.endpoint_id = e.endpoint_id
            WHERE e.result_id = x.result_id AND e.end_index = 0) AS client_interface,
           (SELECT d.interface FROM evidence_end e JOIN endpoint d ON d.endpoint_id = e.endpoint_id
            WHERE e.result_id = x.result_id AND e.end_index = 1) AS server_interface
    FROM result x
    JOIN job j ON j.job_id = x.job_id
    JOIN series se ON se.series_id = x.series_id
    JOIN node nc ON nc.node_id = j.client_node_id
    JOIN node ns ON ns.node_id = j.server_node_id
    LEFT JOIN node_facts fc ON fc.attempt_id = x.attempt_id AND fc.node_id = j.client_node_id
    LEFT JOIN node_facts fs ON fs.attempt_id = x.attempt_id AND fs.node_id = j.server_node_id
    WHERE x.result_id = ?
"""


def _facts(database: Connection, fact_set_id: int, interface: str) -> dict[str, Any]:
    names = [name.replace("{interface}", interface) for name in needed_facts()]
    marks = ", ".join("?" * len(names))
    rows = database.execute(
        "SELECT f.name, f.value FROM fact_set_part sp JOIN fact f ON f.fact_part_id = sp.fact_part_id"
        f" WHERE sp.fact_set_id = ? AND f.name IN ({marks})",
        (fact_set_id, *names),
    )
    return {row[0]: row[1] for row in rows}

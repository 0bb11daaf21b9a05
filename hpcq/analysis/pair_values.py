"""Values of each pair and test in some runs, for acceptance and blame.

values_of(database, ...)      the main metric
arrived_of(database, ...)     the share of packets that arrived
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hpcq.errors import UserError
from hpcq.store.database import Connection

#: What stands for the metric in a test's key when the share of arrived packets is meant.
ARRIVED = "arrived_ratio"
#: Of a TCP connection that did not say: Ethernet's, with time stamps.
_MSS_BYTES = 1448
_ARRIVED_PARTS = [
    *(
        "(SELECT m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
        f" WHERE m.result_id = v.result_id AND n.name = '{name}') AS {name}"
        for name in ("lost_ratio", "retransmit_count", "sent_bytes", "operation_count")
    ),
    "(SELECT g.value FROM v_granted g WHERE g.result_id = v.result_id AND g.granted = 'client_mss_bytes') AS mss_bytes",
]

#: client, server, test (kernel, parameters and metric as text)
Key = tuple[str, str, str]


def pairs_of(database: Connection, cluster: str, run_ids: Sequence[int] | None) -> list[tuple[str, str]]:
    """The pairs that were measured on a cluster in these runs (None: in any), the latest first."""
    marks = "" if run_ids is None else f" AND p.run_id IN ({', '.join(str(int(one)) for one in run_ids)})"
    rows = database.execute(
        f"SELECT p.client, p.server FROM v_pairs p WHERE p.cluster = ?{marks} GROUP BY p.client, p.server"
        " ORDER BY max(p.run_created_utc) DESC, p.client, p.server",
        (cluster,),
    )
    return [(str(row[0]), str(row[1])) for row in rows]


def values_of(database: Connection, cluster: str, run_ids: Sequence[int] | None) -> dict[Key, tuple[str, list[float]]]:
    """(better, values in time order) of each pair and test's main metric in these runs; None: in any, the newest 200."""
    marks = "" if run_ids is None else f" AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)}))"
    found: dict[Key, tuple[str, list[float]]] = {}
    for row in database.execute(
        "SELECT v.client, v.server, v.kernel, v.parameters, v.metric, v.value, mn.better FROM v_results v"
        " JOIN kernel k ON k.name = v.kernel JOIN metric_name mn ON mn.metric_name_id = k.main_metric_name_id"
        f" WHERE v.cluster = ? AND v.outcome = 'measured' AND v.value IS NOT NULL AND mn.better <> 'none'{marks}"
        " ORDER BY v.started_utc, v.result_id",
        (cluster,),
    ):
        key = (row["client"], row["server"], f"{row['kernel']} {row['parameters']} {row['metric']}")
        found.setdefault(key, (row["better"], []))[1].append(row["value"])
    return {key: (better, values[-200:]) for key, (better, values) in found.items()}


def arrived_of(database: Connection, cluster: str, run_ids: Sequence[int]) -> dict[Key, tuple[str, list[float]]]:
    """As values_of, the share of packets that arrived in tests that can tell: 1 less what was lost, or had to be sent again."""
    found: dict[Key, tuple[str, list[float]]] = {}
    for row in database.execute(
        f"SELECT v.client, v.server, v.kernel, v.parameters, {', '.join(_ARRIVED_PARTS)} FROM v_results v"
        f" WHERE v.cluster = ? AND v.outcome = 'measured' AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)}))"
        " ORDER BY v.started_utc, v.result_id",
        (cluster,),
    ):
        lost = _lost_ratio(row)
        if lost is not None:
            key = (row["client"], row["server"], f"{row['kernel']} {row['parameters']} {ARRIVED}")
            found.setdefault(key, ("higher", []))[1].append(1 - min(1.0, lost))
    return found


def results_of_node(database: Connection, cluster: str, node: str, run_ids: Sequence[int], most: int = 10) -> list[int]:
    """Newest measured results of a node in these runs, so many as client and as many as server, for asking what differs.

    Both, because facts are held against those of the same end, and a baseline may have the node at one end only.
    """
    found: list[int] = []
    for end in ("client", "server"):
        rows = database.execute(
            f"SELECT v.result_id FROM v_results v WHERE v.cluster = ?1 AND v.{end} = ?2 AND v.outcome = 'measured'"
            f" AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)})) ORDER BY v.started_utc DESC LIMIT ?3",
            (cluster, node, most),
        )
        found += [int(row[0]) for row in rows]
    return found


def cluster_of(database: Connection, runs: Sequence[str], wanted: str | None) -> str:
    """The cluster that these runs measured; `wanted` where there are several. Raises UserError that names them."""
    marks = ", ".join("?" * len(runs))
    found = [str(row[0]) for row in database.execute(
        f"SELECT DISTINCT cluster FROM v_runs WHERE run IN ({marks}) ORDER BY cluster", list(runs)
    )]  # fmt: skip
    if wanted in found or (wanted is None and len(found) == 1):
        return wanted or found[0]
    said = "several clusters" if wanted is None else repr(wanted)
    raise UserError(f"--cluster: {said}: {', '.join(found)} were measured", f"--cluster {found[0]}" if found else None)


def run_id_of(database: Connection, name: str) -> int:
    """The number of a run."""
    return int(database.execute("SELECT run_id FROM run WHERE name = ?", (name,)).fetchone()[0])


def words_of_test(test: str) -> str:
    """`tcp_stream 64 KiB throughput_bps`: a test's key for people."""
    from hpcq.kernels import message_bytes
    from hpcq.store.query import size_text

    kernel, _, rest = test.partition(" ")
    text, _, metric = rest.rpartition(" ")
    parameters: dict[str, Any] = json.loads(text)
    size = size_text(message_bytes(kernel, parameters))
    return " ".join(one for one in (kernel, size, metric) if one)


def _lost_ratio(row: Any) -> float | None:
    """Of datagrams as counted; of a TCP stream segments sent again, of its ping-pong two packets an operation."""
    if row["lost_ratio"] is not None:
        return float(row["lost_ratio"])
    if row["retransmit_count"] is None:
        return None
    if row["sent_bytes"]:
        return float(row["retransmit_count"] * float(row["mss_bytes"] or _MSS_BYTES) / row["sent_bytes"])
    if row["operation_count"]:
        return float(row["retransmit_count"] / (2 * row["operation_count"]))
    return None


def _ids(run_ids: Sequence[int]) -> str:
    return ", ".join(str(int(one)) for one in run_ids)

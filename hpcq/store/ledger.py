"""The ledger of nodes: who was accepted at which boot, what happened since, and the values that an acceptance rests on.

observed(database, cluster, upkeep)      drains, reservations and leaf switches written down, each once
ledger(database, cluster)                every node with its last verdict, boot and events since
values_of(database, ...)                 values of each pair and test, oriented so that more is better
decide(database, ...)                    verdicts into the ledger
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.errors import UserError
from hpcq.store.annotations import Said, insert_event, set_groups
from hpcq.store.database import Connection
from hpcq.units import parse_utc, utc_now

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

#: A node that came out inconclusive is tried again after this time, then after twice as long, a day at most.
TRY_AGAIN_S = 600
TRY_AGAIN_MAX_S = 86400

#: client, server, test (kernel, parameters and metric as text)
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class NodeLedger:
    """One node. booted: it was seen with another boot than the accepted one. since: events after the last verdict.

    waits: it came out inconclusive so lately that another try would only cost time.
    """

    node: str
    verdict: str | None
    decided_utc: str | None
    booted: bool
    since: tuple[str, ...]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A maintenance reservation of one node, for the event table; note: its name."""

    node: str
    started_utc: str
    note: str


def ensure_nodes(database: Connection, cluster: str, nodes: Iterable[str]) -> None:
    """Make rows for a cluster and its nodes that were never measured."""
    database.execute("INSERT OR IGNORE INTO cluster (name) VALUES (?)", (cluster,))
    cluster_id = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (cluster,)).fetchone()[0]
    database.executemany("INSERT OR IGNORE INTO node (cluster_id, name) VALUES (?, ?)", [(cluster_id, node) for node in nodes])


def observed(
    database: Connection, cluster: str, standing: Sequence[Occurrence], drained: Iterable[str], leaves: Mapping[str, str]
) -> None:
    """Write down what the scheduler says; what stands there already is not written twice.

    standing: maintenance that stands now; what stood before and is not there any more has ended. drained: nodes drained now.
    """
    ids = {str(row[0]): (row[1], row[2]) for row in database.execute(
        "SELECT n.name, n.cluster_id, n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?",
        (cluster,),
    )}  # fmt: skip
    who = f"scheduler:{cluster}"
    for one in standing:
        if one.node in ids:
            place = {"cluster_id": ids[one.node][0], "node_id": ids[one.node][1]}
            insert_event(database, "maintenance", (one.started_utc, None), Said(who, one.note), **place)
    _end_maintenance(database, who, {one.note for one in standing})
    open_drains = _open_drains(database, who)
    now, still = utc_now(), set(drained)
    for node, (cluster_id, node_id) in ids.items():
        place = {"cluster_id": cluster_id, "node_id": node_id}
        if node in still and node_id not in open_drains:
            insert_event(database, "drain", (now, None), Said(who, "seen drained"), **place)
        elif node not in still and node_id in open_drains:
            database.execute("UPDATE event SET ended_utc = ? WHERE event_id = ?", (now, open_drains[node_id]))
            insert_event(database, "resume", (now, None), Said(who, "no longer drained"), **place)
    set_groups(database, cluster, "leaf", leaves.items(), now)


def ledger(database: Connection, cluster: str) -> dict[str, NodeLedger]:
    """Every node of a cluster that this database knows."""
    found = {}
    for row in database.execute("SELECT * FROM v_nodes WHERE cluster = ?", (cluster,)):
        since = database.execute(
            "SELECT kind FROM v_events WHERE cluster = ?1 AND node = ?2 AND kind <> 'note' AND kind <> 'drain'"
            " AND coalesce(ended_utc, started_utc) > ?3 AND coalesce(ended_utc, started_utc) <= ?4 AND kind <> 'reboot'",
            (cluster, row["node"], row["decided_utc"] or "", utc_now()),
        ).fetchall()
        booted = row["accepted_boot_id"] not in {None, row["boot_id"]}  # what was not measured was accepted at no boot
        kinds = tuple(dict.fromkeys(str(one[0]) for one in since))
        waits = row["verdict"] == "inconclusive" and _waits(database, row["node_id"], row["decided_utc"])
        found[row["node"]] = NodeLedger(row["node"], row["verdict"], row["decided_utc"], booted, kinds, waits)
    return found


def last_verdict(database: Connection, cluster: str, node: str) -> tuple[str | None, str | None]:
    """What was decided last about a node, and why; None twice for a node that nobody has judged."""
    row = database.execute("SELECT verdict, reason FROM v_nodes WHERE cluster = ? AND node = ?", (cluster, node)).fetchone()
    return (row["verdict"], row["reason"]) if row is not None else (None, None)


def _waits(database: Connection, node_id: int, decided_utc: str) -> bool:
    """Whether a node that stays inconclusive is to be left alone: after each try twice as long as before."""
    tries = database.execute(
        "SELECT count(*) FROM acceptance WHERE node_id = ?1 AND verdict = 'inconclusive' AND decided_utc >"
        " coalesce((SELECT max(decided_utc) FROM acceptance WHERE node_id = ?1 AND verdict <> 'inconclusive'), '')",
        (node_id,),
    ).fetchone()[0]
    return too_soon(tries, decided_utc)


def too_soon(tries: int, decided_utc: str) -> bool:
    """Whether another try after so many, the last one then, would come too soon."""
    pause_s = min(TRY_AGAIN_S * 2 ** (tries - 1), TRY_AGAIN_MAX_S)
    return bool((parse_utc(utc_now()) - parse_utc(decided_utc)).total_seconds() < pause_s)


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


def decide(
    database: Connection,
    cluster: str,
    verdicts: Iterable[tuple[str, str, str]],
    *,
    run_id: int | None,
    baseline: str | None,
) -> None:
    """Write (node, verdict, reason) into the ledger, with the boot at which each node was measured in that run."""
    baseline_id = baseline_id_of(database, baseline)
    for node, verdict, reason in verdicts:
        node_id = database.execute(
            "SELECT n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ? AND n.name = ?",
            (cluster, node),
        ).fetchone()[0]
        boot = None if verdict == "not_covered" else _boot(database, node_id)
        database.execute(
            "INSERT INTO acceptance (node_id, node_boot_id, run_id, baseline_id, verdict, reason, decided_utc)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (node_id, boot, run_id, baseline_id, verdict, reason, utc_now()),
        )


def baseline_id_of(database: Connection, name: str | None) -> int | None:
    """The baseline of this name that holds now."""
    row = database.execute("SELECT baseline_id FROM baseline WHERE name = ? ORDER BY set_utc DESC LIMIT 1", (name,)).fetchone()
    return int(row[0]) if row else None


def leaves_of(database: Connection, cluster: str) -> dict[str, str]:
    """node -> leaf switch, as the scheduler last told it; empty where it never did."""
    rows = database.execute("SELECT node, \"group\" FROM v_groups WHERE cluster = ? AND kind = 'leaf'", (cluster,))
    return {str(row[0]): str(row[1]) for row in rows}


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
    from hpcq.store.query import SIZE_OPTIONS, size_text

    kernel, _, rest = test.partition(" ")
    text, _, metric = rest.rpartition(" ")
    parameters: dict[str, Any] = json.loads(text)
    size = next((size_text(parameters[name]) for name in SIZE_OPTIONS if isinstance(parameters.get(name), int)), "")
    return " ".join(one for one in (kernel, size, metric) if one)


def _boot(database: Connection, node_id: int) -> int | None:
    row = database.execute(
        "SELECT node_boot_id FROM node_boot WHERE node_id = ? ORDER BY last_seen_utc DESC LIMIT 1", (node_id,)
    ).fetchone()
    return int(row[0]) if row else None


def _end_maintenance(database: Connection, who: str, standing: set[str]) -> None:
    for row in database.execute(
        "SELECT event_id, note FROM event WHERE kind = 'maintenance' AND ended_utc IS NULL AND who = ?", (who,)
    ).fetchall():
        if row["note"] not in standing:
            database.execute("UPDATE event SET ended_utc = ? WHERE event_id = ?", (utc_now(), row["event_id"]))


def _open_drains(database: Connection, who: str) -> dict[int, int]:
    rows = database.execute(
        "SELECT node_id, event_id FROM event WHERE kind = 'drain' AND ended_utc IS NULL AND who = ?", (who,)
    )
    return {int(row[0]): int(row[1]) for row in rows}


def _ids(run_ids: Sequence[int]) -> str:
    return ", ".join(str(int(one)) for one in run_ids)

"""Record once what the scheduler says of nodes: maintenance, drains, leaf switches. Includes nodes never measured.

observed(database, cluster, ...)     events and groups
leaves_of(database, cluster)         the leaf switch of each node, as the scheduler last reported it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcq.store.database import Connection
from hpcq.store.keep.annotations import Said, insert_event, set_groups
from hpcq.units import utc_now


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A maintenance reservation of one node, for the event table; note: its name."""

    node: str
    started_utc: str
    note: str


def ensure_nodes(database: Connection, cluster: str, nodes: Iterable[str]) -> None:
    """Create rows for a cluster and its nodes that were never measured."""
    database.execute("INSERT OR IGNORE INTO cluster (name) VALUES (?)", (cluster,))
    cluster_id = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (cluster,)).fetchone()[0]
    database.executemany("INSERT OR IGNORE INTO node (cluster_id, name) VALUES (?, ?)", [(cluster_id, node) for node in nodes])


def observed(
    database: Connection, cluster: str, standing: Sequence[Occurrence], drained: Iterable[str], leaves: Mapping[str, str]
) -> None:
    """Record what the scheduler says. What is already recorded is not written again.

    standing: present maintenance; recorded maintenance that is missing from it has ended. drained: nodes drained now.
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


def leaves_of(database: Connection, cluster: str) -> dict[str, str]:
    """node -> leaf switch, as the scheduler last reported it; empty if it never did."""
    rows = database.execute("SELECT node, \"group\" FROM v_groups WHERE cluster = ? AND kind = 'leaf'", (cluster,))
    return {str(row[0]): str(row[1]) for row in rows}


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

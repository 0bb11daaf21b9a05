"""The ledger of acceptances: verdicts on nodes, links, groups, clusters and collectives, and what happened to nodes since.

decide(database, cluster, records)       write verdicts into the ledger
last_verdicts(database, cluster)         the last verdict on each subject, or every verdict
at_fault(database, cluster)              all but nodes whose last verdict is not a pass
says_as_much(database, cluster, record)  whether a verdict adds nothing to the ledger
nodes_of(database, cluster)              each node with its last verdict, its boot and the events since
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcq.sorting import natural
from hpcq.store.database import Connection
from hpcq.store.read.known import check_known
from hpcq.units import parse_utc, utc_now
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict

#: Something inconclusive or at fault is tried again after this time, then after twice as long, up to one day.
TRY_AGAIN_S = 600
TRY_AGAIN_MAX_S = 86400


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node. last: its last verdict. booted: its boot is not the judged one. since: events after the verdict.

    reservations: the recorded maintenance reservations of the node, each with its end; None while it lasts.
    """

    node: str
    last: VerdictRecord | None = None
    booted: bool = False
    since: tuple[str, ...] = ()
    reservations: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """Its last verdict as a word; None for a node without a verdict."""
        return self.last.verdict if self.last is not None else None


def decide(
    database: Connection, cluster: str, records: Iterable[VerdictRecord], *, run_id: int | None, baseline: str | None
) -> None:
    """Write verdicts into the ledger, with the boot in which each node was measured."""
    cluster_id = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (cluster,)).fetchone()[0]
    baseline_id = _baseline_id(database, baseline)
    for one in records:
        cursor = database.execute(
            "INSERT INTO acceptance (cluster_id, kind, name, run_id, baseline_id, verdict, reason, measured_utc, decided_utc)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (cluster_id, one.kind, one.name, run_id, baseline_id, one.verdict, one.reason, one.measured_utc, utc_now()),
        )
        boot = "NULL" if one.verdict is Verdict.NOT_COVERED else _LAST_BOOT
        database.executemany(
            f"INSERT INTO acceptance_node SELECT ?, n.node_id, {boot} FROM node n WHERE n.cluster_id = ? AND n.name = ?",
            [(cursor.lastrowid, cluster_id, node) for node in one.nodes],
        )


_LAST_BOOT = "(SELECT node_boot_id FROM node_boot b WHERE b.node_id = n.node_id ORDER BY last_seen_utc DESC LIMIT 1)"


def last_verdicts(
    database: Connection, cluster: str | None = None, node: str | None = None, *, each: bool = False
) -> list[VerdictRecord]:
    """The last verdict on each subject; with `each`, every verdict, oldest first. node: the node and what it shares.

    Raises UserError for a cluster or node that the database does not know.
    """
    check_known(database, cluster=cluster, node=node)
    rows = database.execute(
        f"SELECT * FROM {'v_acceptances' if each else 'v_ledger'} WHERE (?1 IS NULL OR cluster = ?1)"
        " AND (?2 IS NULL OR instr(' ' || nodes || ' ', ' ' || ?2 || ' ') > 0)"
        f" ORDER BY {'decided_utc, ' if each else ''}cluster,"
        " CASE kind WHEN 'cluster' THEN 0 WHEN 'node' THEN 1 WHEN 'link' THEN 2 WHEN 'group' THEN 3 ELSE 4 END, name",
        (cluster, node),
    )
    return [_record(row) for row in rows]


def at_fault(database: Connection, cluster: str) -> list[VerdictRecord]:
    """Links, groups, clusters and collectives whose last verdict is not a pass."""
    rows = database.execute(
        "SELECT * FROM v_ledger WHERE cluster = ? AND kind <> 'node' AND verdict <> 'pass' ORDER BY kind, name", (cluster,)
    ).fetchall()
    return [_record(row, waits=_waits(database, row, "verdict <> 'pass'")) for row in rows]


def nodes_of(database: Connection, cluster: str) -> dict[str, NodeState]:
    """Every node of a cluster that this database knows."""
    happened: dict[str, list[tuple[str, str]]] = {}
    reserved: dict[str, dict[str, str | None]] = {}
    for row in database.execute(
        "SELECT n.name AS node, e.kind, e.note, e.ended_utc, coalesce(e.ended_utc, e.started_utc) AS at_utc FROM event e"
        " JOIN node n ON n.node_id = e.node_id JOIN cluster c ON c.cluster_id = n.cluster_id"
        " WHERE c.name = ? AND e.kind NOT IN ('note', 'drain', 'reboot') AND at_utc <= ? ORDER BY e.event_id",
        (cluster, utc_now()),
    ):
        happened.setdefault(row["node"], []).append((row["at_utc"], row["kind"]))
        if row["kind"] == "maintenance":
            reserved.setdefault(row["node"], {})[row["note"]] = row["ended_utc"]
    found = {}
    for row in database.execute("SELECT *, node AS nodes FROM v_nodes WHERE cluster = ?", (cluster,)).fetchall():
        node, decided_utc = str(row["node"]), row["decided_utc"] or ""
        since = tuple(dict.fromkeys(kind for at_utc, kind in happened.get(node, []) if at_utc > decided_utc))
        booted = row["accepted_boot_id"] not in {None, row["boot_id"]}  # no accepted boot: was not measured
        last = None
        if decided_utc:
            known = {**dict(row), "kind": Thing.NODE, "name": node}
            waits = row["verdict"] == Verdict.INCONCLUSIVE and _waits(database, known, "verdict = 'inconclusive'")
            last = _record(known, waits=waits)
        found[node] = NodeState(node, last, booted, since, reserved.get(node, {}))
    return found


def says_as_much(database: Connection, cluster: str, one: VerdictRecord) -> bool:
    """Whether the ledger already says as much as a NOT COVERED does: it failed, or was not covered for the same reason.

    A node that failed and was drained is not covered until its repair, and has not got better.
    """
    if one.verdict is not Verdict.NOT_COVERED:
        return False
    row = database.execute(
        "SELECT verdict, reason FROM v_ledger WHERE cluster = ? AND kind = ? AND name = ?", (cluster, one.kind, one.name)
    ).fetchone()
    return row is not None and (row["verdict"] in {Verdict.FAILED, Verdict.DEGRADED} or tuple(row) == (one.verdict, one.reason))


def _record(row: Any, *, waits: bool = False) -> VerdictRecord:
    return VerdictRecord(
        Thing(row["kind"]),
        row["name"],
        Verdict(row["verdict"]),
        row["reason"],
        tuple(sorted(row["nodes"].split(), key=natural)),
        measured_utc=row["measured_utc"],
        cluster=row["cluster"],
        decided_utc=row["decided_utc"],
        run=row["run"],
        waits=waits,
    )


def _waits(database: Connection, row: Any, same: str) -> bool:
    """Whether to leave an unchanged subject alone. The pause doubles with each such verdict."""
    tries = database.execute(
        f"SELECT count(*) FROM v_acceptances WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND {same} AND decided_utc >"
        " coalesce((SELECT max(decided_utc) FROM v_acceptances"
        f" WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND NOT {same}), '')",
        (row["cluster"], row["kind"], row["name"]),
    ).fetchone()[0]
    pause = dt.timedelta(seconds=min(TRY_AGAIN_S * 2 ** (tries - 1), TRY_AGAIN_MAX_S))
    return parse_utc(utc_now()) - parse_utc(row["decided_utc"]) < pause


def _baseline_id(database: Connection, name: str | None) -> int | None:
    """The baseline of this name that holds now."""
    row = database.execute("SELECT baseline_id FROM baseline WHERE name = ? ORDER BY set_utc DESC LIMIT 1", (name,)).fetchone()
    return int(row[0]) if row else None

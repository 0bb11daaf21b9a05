"""The ledger of what nodes share: links and groups that were at fault, until they pass.

standing(database, cluster)      those whose last verdict is not a pass
decide_shared(database, ...)     verdicts on links and groups into the ledger
last_verdicts(database, ...)     the whole ledger for people: nodes, links and groups
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.errors import UserError
from hpcq.kernels import unknown_name
from hpcq.sorting import natural
from hpcq.store.database import Connection
from hpcq.store.ledger import baseline_id_of, too_soon
from hpcq.units import utc_now


@dataclass(frozen=True, slots=True)
class Shared:
    """A link or group at fault. nodes: who shares it. waits: judged so lately that another try would only cost time."""

    kind: str
    name: str
    verdict: str
    nodes: tuple[str, ...]
    waits: bool


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The last verdict on a node, link or group; nodes: who shares it."""

    cluster: str
    kind: str
    name: str
    verdict: str
    decided_utc: str
    reason: str
    run: str | None
    nodes: tuple[str, ...]


def standing(database: Connection, cluster: str) -> list[Shared]:
    """Links and groups of a cluster whose last verdict is not a pass."""
    found = []
    for row in database.execute(
        "SELECT * FROM v_ledger WHERE cluster = ? AND kind <> 'node' AND verdict <> 'pass' ORDER BY kind, name", (cluster,)
    ).fetchall():
        tries = database.execute(
            "SELECT count(*) FROM v_shared_acceptances WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND decided_utc >"
            " coalesce((SELECT max(decided_utc) FROM v_shared_acceptances"
            " WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND verdict = 'pass'), '')",
            (cluster, row["kind"], row["name"]),
        ).fetchone()[0]
        waits = too_soon(tries, row["decided_utc"])
        found.append(Shared(row["kind"], row["name"], row["verdict"], tuple(row["nodes"].split()), waits))
    return found


def decide_shared(
    database: Connection,
    cluster: str,
    verdicts: Iterable[tuple[str, str, str, str, Sequence[str]]],
    *,
    run_id: int | None,
    baseline: str | None,
) -> None:
    """Write (kind, name, verdict, reason, nodes) of links and groups into the ledger."""
    for kind, name, verdict, reason, nodes in verdicts:
        cursor = database.execute(
            "INSERT INTO shared_acceptance (cluster_id, kind, name, run_id, baseline_id, verdict, reason, decided_utc)"
            " VALUES ((SELECT cluster_id FROM cluster WHERE name = ?), ?, ?, ?, ?, ?, ?, ?)",
            (cluster, kind, name, run_id, baseline_id_of(database, baseline), verdict, reason, utc_now()),
        )
        database.executemany(
            "INSERT INTO shared_acceptance_node (shared_acceptance_id, node_id) SELECT ?, n.node_id FROM node n"
            " JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ? AND n.name = ?",
            [(cursor.lastrowid, cluster, node) for node in nodes],
        )


def last_verdicts(database: Connection, cluster: str | None, node: str | None, *, each: bool) -> list[LedgerRow]:
    """The last verdict on everything that was ever judged, or `each` verdict, oldest first; only of this cluster or node."""
    _check_name(database, "cluster", cluster, "SELECT name FROM cluster")
    _check_name(database, "node", node, "SELECT DISTINCT name FROM node")
    view = _EACH if each else "SELECT * FROM v_ledger"
    rows = database.execute(
        f"SELECT cluster, kind, name, verdict, decided_utc, reason, run, nodes FROM ({view})"  # noqa: S608 - our own words
        " WHERE (?1 IS NULL OR cluster = ?1) AND (?2 IS NULL OR instr(' ' || nodes || ' ', ' ' || ?2 || ' ') > 0)"
        f" ORDER BY {'decided_utc, ' if each else ''}cluster, CASE kind WHEN 'node' THEN 0 WHEN 'link' THEN 1 ELSE 2 END, name",
        (cluster, node),
    )
    return [_row(row) for row in rows]


_EACH = (
    "SELECT cluster, 'node' AS kind, node AS name, verdict, decided_utc, reason, run, node AS nodes FROM v_acceptances"
    " UNION ALL"
    " SELECT cluster, kind, name, verdict, decided_utc, reason, run, nodes FROM v_shared_acceptances"
)


def _check_name(database: Connection, what: str, name: str | None, query: str) -> None:
    known = sorted((str(row[0]) for row in database.execute(query)), key=natural)
    if name is not None and name not in known:
        message, hint = unknown_name(f"{what} in this database", name, known[:40])
        raise UserError(f"--{what}: {message}", hint)


def _row(row: Any) -> LedgerRow:
    return LedgerRow(**{**dict(row), "nodes": tuple(row["nodes"].split())})

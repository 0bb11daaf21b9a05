"""What a page over a stretch of time shows besides values: runs, findings and events."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcq.store.query import TOOK_PART, columns

if TYPE_CHECKING:
    from hpcq.store.database import Connection


@dataclass(frozen=True, slots=True)
class StretchRun:
    """One run on one cluster."""

    run: str
    campaign: str
    cluster: str
    created_utc: str
    planned_count: int
    measured_count: int


@dataclass(frozen=True, slots=True)
class FoldedFinding:
    """A rule over all clusters and nodes of the stretch. nodes: those with most results first."""

    rule: str
    result_count: int
    clusters: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    meaning: str
    advice: str
    example: str


@dataclass(frozen=True, slots=True)
class StretchEvent:
    """What happened to machines: a maintenance, drain, reboot, note."""

    started_utc: str
    kind: str
    cluster: str | None
    node: str | None
    note: str | None
    who: str | None


def runs_in(database: Connection, from_utc: str, until_utc: str | None, cluster: str | None) -> list[StretchRun]:
    """Runs that began in the stretch, newest first."""
    query = f"SELECT {columns(StretchRun)} FROM v_runs WHERE {_WITHIN.format('created_utc')} ORDER BY created_utc DESC, cluster"
    return [StretchRun(*row) for row in database.execute(query, _bound(from_utc, until_utc, cluster))]


def events_in(
    database: Connection, from_utc: str, until_utc: str | None, cluster: str | None, node: str | None
) -> list[StretchEvent]:
    """Events of the stretch, newest first."""
    query = (
        f"SELECT {columns(StretchEvent)} FROM v_events WHERE {_WITHIN.format('started_utc')}"
        " AND (:node IS NULL OR node = :node) ORDER BY started_utc DESC"
    )
    return [StretchEvent(*row) for row in database.execute(query, _bound(from_utc, until_utc, cluster, node))]


def findings_in(
    database: Connection, from_utc: str, until_utc: str | None, cluster: str | None, node: str | None
) -> list[FoldedFinding]:
    """Findings of the stretch, one row per rule, most results first."""
    query = (
        "SELECT rule, result_id, cluster, coalesce(node, '') AS node, meaning, advice, message FROM v_findings"
        f" WHERE {_WITHIN.format('started_utc')} AND (:node IS NULL OR {TOOK_PART})"
    )
    groups: dict[str, list[Any]] = {}
    for row in database.execute(query, _bound(from_utc, until_utc, cluster, node)):
        groups.setdefault(str(row["rule"]), []).append(row)
    found = []
    for rule, rows in groups.items():
        nodes = Counter(f"{row['cluster']}/{row['node']}" for row in rows if row["node"])
        clusters = tuple(sorted({str(row["cluster"]) for row in rows}))
        results = len({row["result_id"] for row in rows})
        first = rows[0]
        found.append(
            FoldedFinding(
                rule, results, clusters, tuple(nodes.most_common()), first["meaning"], first["advice"] or "", first["message"]
            )
        )
    return sorted(found, key=lambda one: (-one.result_count, one.rule))


_WITHIN = "{0} >= :from_utc AND (:until_utc IS NULL OR {0} < :until_utc) AND (:cluster IS NULL OR cluster = :cluster)"


def _bound(from_utc: str, until_utc: str | None, cluster: str | None, node: str | None = None) -> dict[str, str | None]:
    return {"from_utc": from_utc, "until_utc": until_utc, "cluster": cluster, "node": node}

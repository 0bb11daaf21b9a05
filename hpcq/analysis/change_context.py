"""Context of a series' points: facts of both nodes, groups, build and granted values, and the events between points.

facts_of(database, result_ids)                    one mapping per point, only of what differs between them
events_between(database, row, after, until)       maintenance, reboots, drains and notes between two points
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.store.database import Connection
from hpcq.store.history import SeriesRow
from hpcq.store.read.evidence_queries import PASSING_GROUPS

#: Compare this many points on either side of a change.
POINTS_MAX = 30

Facts = dict[tuple[str, str], str | int | float | None]


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened, with its time and place."""

    event_id: int | None
    kind: str
    started_utc: str
    ended_utc: str | None
    cluster: str | None
    node: str | None
    run: str | None
    series_id: int | None
    result_id: int | None
    note: str
    who: str

    @property
    def words(self) -> str:
        """`maintenance 2026-11-21 02:00 alpha n2: new cables`."""
        place = " ".join(one for one in (self.cluster, self.node) if one)
        return f"{self.kind} {self.started_utc[:16].replace('T', ' ')} {place}".rstrip() + (
            f": {self.note}" if self.note else ""
        )


EVENT_COLUMNS = ", ".join(EventRow.__dataclass_fields__)


def facts_of(database: Connection, result_ids: Sequence[int]) -> list[Facts]:
    """The facts of each of these results, by (where, name); `where` is `client n1`, `server n2`, `build` or `granted`.

    Facts that are the same for all are left out, and so are facts that differ at every boot or moment.
    """
    heads = _heads(database, result_ids)
    nodes = {head[f"{end}_node_id"] for head in heads for end in ("client", "server")}
    known = {node: _groups(database, node) for node in nodes}
    found: list[Facts] = [{} for _ in heads]
    for end in ("client", "server"):
        sets = {head[f"{end}_set"] for head in heads} - {None}
        telling = _differing({one: _fact_set(database, one) for one in sets})
        for facts, head in zip(found, heads, strict=True):
            where = f"{end} {head[end]}"
            for name, value in telling.get(head[f"{end}_set"], {}).items():
                facts[where, name] = value
            for kind, group in _groups_at(known[head[f"{end}_node_id"]], head["started_utc"] or ""):
                facts[where, f"group.{kind}"] = group
    builds = {head["build_id"]: _build(database, head["build_id"]) for head in heads if head["build_id"] is not None}
    granted = _differing({one: _granted(database, one) for one in {head["granted_set_id"] for head in heads} - {None}})
    for facts, head in zip(found, heads, strict=True):
        facts |= {("build", name): value for name, value in builds.get(head["build_id"], {}).items()}
        facts |= {("granted", name): value for name, value in granted.get(head["granted_set_id"], {}).items()}
    return found


def findings_of(database: Connection, result_ids: Sequence[int]) -> list[frozenset[tuple[str, str]] | None]:
    """Findings in each of these results: (where, rule); `where` is `client n1`, `server n2` or `both ends`.

    None for results that were judged by rules other than the newest: a newer rule is no change of the machine.
    """
    query = (
        "SELECT ru.name AS rule, f.end_index, nc.name AS client, ns.name AS server FROM result_finding f"
        " JOIN rule ru ON ru.rule_id = f.rule_id JOIN result x ON x.result_id = f.result_id JOIN job j ON j.job_id = x.job_id"
        " JOIN node nc ON nc.node_id = j.client_node_id JOIN node ns ON ns.node_id = j.server_node_id WHERE f.result_id = ?"
    )
    versions = [_rules_version(database, one) for one in result_ids]
    found: list[frozenset[tuple[str, str]] | None] = []
    for result_id, version in zip(result_ids, versions, strict=True):
        if version != max(versions):
            found.append(None)
            continue
        rows = database.execute(query, (int(result_id),)).fetchall()
        places = {-1: "both ends"} | ({0: f"client {rows[0]['client']}", 1: f"server {rows[0]['server']}"} if rows else {})
        found.append(frozenset((places[row["end_index"]], row["rule"]) for row in rows))
    return found


def _rules_version(database: Connection, result_id: int) -> int:
    return int(database.execute("SELECT rules_version FROM result WHERE result_id = ?", (int(result_id),)).fetchone()[0])


def started_of(database: Connection, result_ids: Sequence[int]) -> list[str]:
    """When each of these results was measured."""
    query = "SELECT coalesce(started_utc, '') FROM result WHERE result_id = ?"
    return [str(database.execute(query, (int(one),)).fetchone()[0]) for one in result_ids]


def events_between(database: Connection, row: SeriesRow, after_utc: str, until_utc: str) -> list[EventRow]:
    """Events between two points that concern the nodes of a series, its cluster, or the series itself."""
    query = (
        f"SELECT {EVENT_COLUMNS} FROM v_events WHERE started_utc <= :until AND coalesce(ended_utc, started_utc) >= :after"
        " AND (series_id = :series OR (series_id IS NULL AND result_id IS NULL AND run IS NULL"
        " AND (cluster IS NULL OR cluster = :cluster) AND (node IS NULL OR node IN (:client, :server))))"
        " ORDER BY started_utc LIMIT 20"
    )
    bound = {"until": until_utc, "after": after_utc, "series": row.series_id}
    bound |= {"cluster": row.cluster, "client": row.client, "server": row.server}
    return [EventRow(*one) for one in database.execute(query, bound)]


def _heads(database: Connection, result_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Nodes and conditions of each of these results, in the given order."""
    ids = ", ".join(str(int(one)) for one in result_ids)
    rows = database.execute(
        "SELECT x.result_id, x.started_utc, x.build_id, x.granted_set_id, nc.name AS client, ns.name AS server,"
        " j.client_node_id, j.server_node_id, fc.fact_set_id AS client_set, fs.fact_set_id AS server_set"
        " FROM result x JOIN job j ON j.job_id = x.job_id JOIN node nc ON nc.node_id = j.client_node_id"
        " JOIN node ns ON ns.node_id = j.server_node_id"
        " LEFT JOIN node_facts fc ON fc.attempt_id = x.attempt_id AND fc.node_id = j.client_node_id"
        " LEFT JOIN node_facts fs ON fs.attempt_id = x.attempt_id AND fs.node_id = j.server_node_id"
        f" WHERE x.result_id IN ({ids})"
    )
    found = {int(row["result_id"]): dict(row) for row in rows}
    return [found[int(one)] for one in result_ids]


def _fact_set(database: Connection, fact_set_id: int) -> dict[str, Any]:
    rows = database.execute(
        "SELECT f.name, f.value FROM fact_set_part sp JOIN fact f ON f.fact_part_id = sp.fact_part_id WHERE sp.fact_set_id = ?",
        (fact_set_id,),
    )
    return {row[0]: row[1] for row in rows if not row[0].startswith(PASSING_GROUPS)}


def _differing(sets: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Of each set, only the names whose values are not the same in all sets."""
    names = {name for one in sets.values() for name in one}
    telling = {name for name in names if len({str(one.get(name)) for one in sets.values()}) > 1}
    return {key: {name: one.get(name) for name in telling} for key, one in sets.items()}


def _groups(database: Connection, node_id: int) -> list[tuple[str, str, str]]:
    """Kind, name and start of all groups that a node ever belonged to, oldest first."""
    query = "SELECT kind, name, since_utc FROM node_group WHERE node_id = ? ORDER BY since_utc"
    return [(str(kind), str(name), str(since)) for kind, name, since in database.execute(query, (node_id,))]


def _groups_at(known: Sequence[tuple[str, str, str]], at_utc: str) -> list[tuple[str, str]]:
    """The groups of a node at a time. A group that was first seen later counts from the beginning."""
    found: dict[str, str] = {}
    for kind, name, since in known:
        if since <= at_utc or kind not in found:
            found[kind] = name
    return list(found.items())


def _build(database: Connection, build_id: int) -> dict[str, Any]:
    row = database.execute(
        "SELECT source_build_id, version, binary_sha256, compiler, flags, modules, mpi FROM build WHERE build_id = ?",
        (build_id,),
    ).fetchone()
    return dict(row)


def _granted(database: Connection, granted_set_id: int) -> dict[str, Any]:
    rows = database.execute("SELECT name, value FROM granted WHERE granted_set_id = ?", (granted_set_id,))
    return {row[0]: row[1] for row in rows}

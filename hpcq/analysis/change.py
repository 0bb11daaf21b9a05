"""What an analysis of the history found: changed series, explained changes, and how many series were judged at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from hpcq.store.database import Connection
from hpcq.store.history import MetricRow, SeriesRow
from hpcq.store.read.evidence_queries import PASSING_GROUPS
from hpcq.verdict.causes import Cause, Symptom, own_build_changed, say
from hpcq.verdict.levels import Level
from hpcq.verdict.words import Tally, Verdict

# ----------------------------------------------------------------------------------------------------------------------
# Context of a series' points: facts of both nodes, groups, build and granted values, and the events between points.
#
# facts_of(database, result_ids)                    one mapping per point, only of what differs between them
# events_between(database, row, after, until)       maintenance, reboots, drains and notes between two points

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


# ----------------------------------------------------------------------------------------------------------------------

#: What people say of a change so that it is no alarm.
CLOSED = {"expected", "false"}
#: The method of a level that was recorded as a change and still holds.
RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Changed:
    """A series and what was found about its level. at_utc: the first point of the new level."""

    row: SeriesRow
    metric: MetricRow
    level: Level
    at_utc: str
    last_before_utc: str
    before_results: tuple[int, ...]
    after_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A change: what differs between its sides (best first), the events between them, and findings of the evidence."""

    changed: Changed
    causes: tuple[Cause, ...]
    events: tuple[EventRow, ...]
    symptoms: tuple[Symptom, ...]

    @property
    def own_build(self) -> bool:
        """Whether hpcq's own build changed at the same time."""
        return own_build_changed(self.causes)

    @property
    def words(self) -> str:
        """The cause in one line: facts, and events if there are any."""
        happened = "; ".join(event.words for event in self.events[:2])
        return "; ".join(one for one in (say(self.causes), happened) if one)

    def to_json(self) -> dict[str, Any]:
        """For --json: base units, names as in the database."""
        row, level = self.changed.row, self.changed.level
        named = {name: getattr(row, name) for name in ("series_id", "kernel", "cluster", "client", "server", "message_bytes")}
        numbers = ("ratio", "low", "high", "p_value", "before_count", "after_count", "reason", "came_back", "method")
        return {
            **named,
            "parameters": row.parameters,
            "metric": self.changed.metric.name,
            "unit": self.changed.metric.unit,
            "verdict": level.verdict.value,
            "direction": level.direction,
            "at_utc": self.changed.at_utc,
            "last_before_utc": self.changed.last_before_utc,
            **{name: _number(getattr(level, name)) for name in ("before", "after")},
            **{name: getattr(level, name) for name in numbers},
            "own_build": self.own_build,
            "causes": list(self.causes),
            "events": list(self.events),
            "symptoms": list(self.symptoms),
        }


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found about many series, and which of them could be judged.

    changes: levels that moved, or might have, and series that are gone. judged_ids: series with enough points.
    too_few: series with points, but fewer than can show a change. missing: planned in the stretch, and no point there.
    disturbed: measured lately only beside other work. idle: nothing was planned in the stretch, or it has nothing to be
    compared with.
    """

    changes: list[Changed]
    judged_ids: frozenset[int]
    too_few: tuple[SeriesRow, ...] = ()
    missing: tuple[SeriesRow, ...] = ()
    idle: tuple[SeriesRow, ...] = ()
    disturbed: tuple[SeriesRow, ...] = ()

    @property
    def judged_count(self) -> int:
        """Series with enough points."""
        return len(self.judged_ids)

    @property
    def too_few_count(self) -> int:
        """Series with too few points."""
        return len(self.too_few)

    @property
    def empty_count(self) -> int:
        """Series without a point in the stretch."""
        return len(self.missing) + len(self.idle)

    @property
    def one_sided_count(self) -> int:
        """Those of them that have points in the other stretch: they are compared with nothing, and INCONCLUSIVE."""
        return len({row.series_id for row in (*self.missing, *self.idle)} & {one.row.series_id for one in self.changes})

    @property
    def disturbed_count(self) -> int:
        """Series that were measured lately only beside other work."""
        return len(self.disturbed)

    @property
    def series_count(self) -> int:
        """All selected series."""
        return self.judged_count + self.too_few_count + self.disturbed_count + self.empty_count


def alarms(one: Explained, state: str | None) -> bool:
    """Whether this is a change for the worse that holds and that nobody declared expected, repaired or false."""
    level = one.changed.level
    return level.sure and level.direction != "better" and not level.came_back and state not in CLOSED


def is_unclear(level: Level) -> bool:
    """Whether this might be a change for the worse and cannot be told."""
    return level.verdict.value == "inconclusive" and level.direction != "better"


def tally_of(
    judged: Judged,
    worse: Sequence[Changed],
    unclear: Collection[int],
    fine: Collection[int] = frozenset(),
    failed: Collection[int] = frozenset(),
) -> Tally:
    """One verdict per series: gone is FAIL, worse is DEGRADED. A series for which nothing was planned gets none.

    fine: series (by series_id) that pass with their nodes, also where they have few values of their own. failed: those that
    fail a gate.
    """
    directions: dict[int, set[str]] = {one: {"gone"} for one in failed}
    for one in worse:
        directions.setdefault(one.row.series_id, set()).add(one.level.direction)
    verdicts = [Verdict.FAILED if "gone" in found else Verdict.DEGRADED for found in directions.values()]
    too_few = {row.series_id for row in judged.too_few}
    open_ones = (too_few | set(unclear)) - directions.keys() - set(fine)
    beside_work = {row.series_id for row in judged.disturbed} - open_ones
    verdicts += [Verdict.INCONCLUSIVE] * (len(open_ones) + len(beside_work))
    verdicts += [Verdict.NOT_COVERED] * len({row.series_id for row in judged.missing} - open_ones)
    return Tally.of(verdicts + [Verdict.PASS] * len((judged.judged_ids | too_few) - directions.keys() - open_ones))


def _number(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - NaN

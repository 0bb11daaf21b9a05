"""What people wrote and decided, as a file: it is in no run folder, so no load brings it back.

    export_notes(database) -> {"format": 1, "event": [...], "retraction": [...], ...} -> import_notes(another, that)

Rows name what they are about (run, job, node, series) instead of a key, so any database takes them that holds the same
runs. Reading needs only the tables of notes and names, so it works on databases that this hpcq no longer reads otherwise.
"""

# ruff: noqa: S608 - queries are put together from our own table and column names; values are always bound

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.errors import UserError
from hpcq.store.database import Connection, reading_any, transaction, writing

FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of notes: its own columns, what its keys refer to, which of both identify a row, and rows that belong to it."""

    name: str
    own: tuple[str, ...]
    refers: Mapping[str, str]
    identity: tuple[str, ...]
    parts: tuple[_Table, ...] = ()


_NODE = {"node_id": "node"}
_SERIES_AND_METRIC = {"series_id": "series", "metric_name_id": "metric"}
_TABLES = (
    _Table(
        "event",
        ("kind", "started_utc", "ended_utc", "note", "who", "recorded_utc"),
        {"cluster_id": "cluster", **_NODE, "run_id": "run", "series_id": "series", "result_id": "result"},
        ("kind", "started_utc", "note", "who", "cluster_id", "node_id", "run_id", "series_id", "result_id"),
    ),
    _Table("retraction", ("retracted_utc", "who", "reason"), {"result_id": "result"}, ("result_id",)),
    _Table(
        "retraction_withdrawn",
        ("withdrawn_utc", "retracted_utc", "retracted_by", "reason", "who", "why"),
        {"result_id": "result"},
        ("result_id", "withdrawn_utc"),
    ),
    _Table(
        "baseline",
        ("name", "set_utc", "who", "why"),
        {},
        ("name", "set_utc"),
        (_Table("baseline_run", (), {"run_id": "run"}, ("run_id",)),),
    ),
    _Table(
        "change",
        (
            *("method", "direction", "at_utc", "before", "after", "ratio", "low", "high", "before_count", "after_count"),
            *("own_build", "cause", "found_utc"),
        ),
        _SERIES_AND_METRIC,
        ("series_id", "metric_name_id", "direction", "at_utc"),
        (_Table("change_state", ("state_no", "state", "set_utc", "who", "why"), {}, ("state_no",)),),
    ),
    _Table("node_group", ("kind", "since_utc", "name"), _NODE, ("node_id", "kind", "since_utc")),
    _Table(
        "acceptance",
        ("kind", "name", "verdict", "reason", "measured_utc", "decided_utc"),
        {"cluster_id": "cluster", "run_id": "run", "baseline_id": "baseline"},
        ("cluster_id", "kind", "name", "decided_utc"),
        (_Table("acceptance_node", (), {**_NODE, "node_boot_id": "boot"}, ("node_id",)),),
    ),
)

_IN_CLUSTER = "JOIN cluster c ON c.cluster_id = n.cluster_id"
_OF_RESULT = (
    "result x JOIN job j ON j.job_id = x.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
    " JOIN run r ON r.run_id = rc.run_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
    " LEFT JOIN attempt a ON a.attempt_id = x.attempt_id"
)
_OF_SERIES = (
    "series s JOIN kernel k ON k.kernel_id = s.kernel_id JOIN node n ON n.node_id = s.client_node_id"
    f" {_IN_CLUSTER} JOIN node sn ON sn.node_id = s.server_node_id JOIN cluster sc ON sc.cluster_id = sn.cluster_id"
)
#: By kind: its key, where it is, and the columns that name it.
_NAMES: dict[str, tuple[str, str, dict[str, str]]] = {
    "cluster": ("c.cluster_id", "cluster c", {"cluster": "c.name"}),
    "node": ("n.node_id", f"node n {_IN_CLUSTER}", {"cluster": "c.name", "node": "n.name"}),
    "run": ("r.run_id", "run r", {"run": "r.name"}),
    "baseline": ("b.baseline_id", "baseline b", {"baseline": "b.name", "set_utc": "b.set_utc"}),
    "metric": (
        "m.metric_name_id",
        "metric_name m JOIN kernel k ON k.kernel_id = m.kernel_id",
        {"kernel": "k.name", "metric": "m.name"},
    ),
    "boot": (
        "b.node_boot_id",
        f"node_boot b JOIN node n ON n.node_id = b.node_id {_IN_CLUSTER}",
        {"cluster": "c.name", "node": "n.name", "boot_id": "b.boot_id"},
    ),
    "series": (
        "s.series_id",
        _OF_SERIES,
        {"kernel": "k.name", "client_cluster": "c.name", "client": "n.name", "server_cluster": "sc.name"}
        | {"server": "sn.name", "network": "s.network", "toolchain": "s.toolchain", "parameters": "s.parameters"},
    ),
    "result": (
        "x.result_id",
        _OF_RESULT,
        {"run": "r.name", "cluster": "c.name", "job": "j.name", "test_no": "x.test_no"}
        | {"repetition_no": "x.repetition_no", "attempt_no": "a.attempt_no"},
    ),
}


@dataclass(frozen=True, slots=True)
class NotesBrought:
    """What importing did. left_out: rows about something that the database lacks, in words."""

    new_count: int
    known_count: int
    left_out: tuple[str, ...]


def export_notes(path: Path) -> dict[str, Any]:
    """Return all notes of a database of any version of hpcq, as plain values. Raises StoreError if it cannot be read."""
    with reading_any(path) as database:
        return {"format": FORMAT, **{table.name: list(_rows(database, table, "", ())) for table in _TABLES}}


def import_notes(path: Path, content: Mapping[str, Any]) -> NotesBrought:
    """Add exported notes to a database. What is there already stays, so importing again changes nothing.

    Raises UserError if the content is not what `export_notes` returned.
    """
    if content.get("format") != FORMAT:
        raise UserError(f"format {content.get('format')}: must be {FORMAT}", "`hpcq db export-notes` writes such a file")
    new = known = 0
    left_out: list[str] = []
    with writing(path) as database, transaction(database):
        for table in _TABLES:
            for row in content.get(table.name, ()):
                try:
                    added = _add(database, table, row, {})
                except (KeyError, TypeError) as error:
                    raise UserError(f"{table.name}: {row!r:.200}: lacks {error}", "the file was changed") from error
                except _LacksError as error:
                    left_out.append(f"{table.name}: {error}")
                    continue
                new, known = new + added, known + (not added)
    return NotesBrought(new, known, tuple(left_out))


class _LacksError(Exception):
    """The database has nothing by these names."""


def _rows(database: Connection, table: _Table, where: str, values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    there = {row[1] for row in database.execute(f"PRAGMA table_info({table.name})")}
    keys = [f"{table.name}_id"] if table.parts else []
    columns = [one for one in (*keys, *table.own, *table.refers) if one in there]
    if not columns:
        return
    for row in database.execute(f"SELECT {', '.join(columns)} FROM {table.name} {where} ORDER BY 1", values).fetchall():
        found = {name: row[name] for name in columns if name in table.own}
        for column, kind in table.refers.items():
            found[kind] = _names(database, kind, row[column]) if column in columns and row[column] is not None else None
        for part in table.parts:
            found[part.name] = list(_rows(database, part, f"WHERE {table.name}_id = ?", (row[keys[0]],)))
        yield found


def _names(database: Connection, kind: str, key: int) -> dict[str, Any] | None:
    column, place, names = _NAMES[kind]
    chosen = ", ".join(f"{source} AS {name}" for name, source in names.items())
    row = database.execute(f"SELECT {chosen} FROM {place} WHERE {column} = ?", (key,)).fetchone()
    return dict(row) if row is not None else None


def _key(database: Connection, kind: str, named: Mapping[str, Any] | None) -> int | None:
    if named is None:
        return None
    column, place, names = _NAMES[kind]
    where = " AND ".join(f"{source} IS ?" for source in names.values())
    row = database.execute(f"SELECT {column} FROM {place} WHERE {where}", tuple(named[name] for name in names)).fetchone()
    if row is None:
        raise _LacksError(f"no {kind} " + " ".join(f"{name}={value}" for name, value in named.items() if value is not None))
    return int(row[0])


def _add(database: Connection, table: _Table, row: Mapping[str, Any], parent: Mapping[str, int]) -> bool:
    values = {name: row[name] for name in table.own}
    values |= {column: _key(database, kind, row[kind]) for column, kind in table.refers.items()}
    values |= parent
    identity = {name: values[name] for name in (*table.identity, *parent)}
    where = " AND ".join(f"{name} IS ?" for name in identity)
    there = database.execute(f"SELECT * FROM {table.name} WHERE {where}", tuple(identity.values())).fetchone()
    key = there[f"{table.name}_id"] if there is not None and table.parts else None
    if there is None:
        marks = ", ".join("?" * len(values))
        statement = f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({marks})"
        key = database.execute(statement, tuple(values.values())).lastrowid
    for part in table.parts:
        for one in row[part.name]:
            _add(database, part, one, {f"{table.name}_id": key or 0})
    return there is None

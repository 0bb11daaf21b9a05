"""Merge the databases of several sites: copy the rows of another database, with the keys of this one.

    tables in the order of their foreign keys; for each:
        rows of the other, keys replaced  ->  same natural key already here? take that  ->  else insert under a new key

What both sides know (kernels, nodes, parameters, facts) is stored once afterwards. If both have a run's part on a
cluster, the one here stays as it is. The other database is only read.
"""

# ruff: noqa: S608 - table and column names come from our own schema

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hpcq.errors import UserError
from hpcq.store.database import Connection, reading, transaction, writing


@dataclass(frozen=True, slots=True)
class Merged:
    """What the merge copied: new run parts, run parts that were already here, and rows by table."""

    new_count: int
    known_count: int
    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    #: column -> table that it refers to
    foreign: dict[str, str]
    #: The table's own key, where it has one.
    key: str | None
    #: Columns that, beside the key, tell rows apart.
    natural: tuple[str, ...]


def merge(path: Path, other: Path, renamed: Mapping[str, str]) -> Merged:
    """Merge everything of `other` into `path`. renamed: clusters with another name here (old name -> new name).

    All or nothing. Raises UserError if both are the same file, or if a cluster does not exist.
    """
    if not other.exists():
        raise UserError(f"{other}: there is no database", "name the file that the other site gave you")
    if path.exists() and path.samefile(other):
        raise UserError(f"{other}: is the same file as {path}", "name another site's database")
    with reading(other) as database:
        clusters = {str(row[0]) for row in database.execute("SELECT name FROM cluster")}
        unknown = sorted(set(renamed) - clusters)
        if unknown:
            raise UserError(f"{unknown[0]!r} is not a cluster of {other}", f"there are {', '.join(sorted(clusters))}")
    with writing(path) as database:
        database.execute("ATTACH ? AS other", (f"file:{quote(str(other.absolute()))}?mode=ro",))
        with transaction(database):
            return _merge(database, renamed)


def _merge(database: Connection, renamed: Mapping[str, str]) -> Merged:
    rows: dict[str, int] = {}
    for table in _in_order(database):
        rows[table.name] = _bring_keyed(database, table, renamed) if table.key else _bring_plain(database, table)
    database.execute(
        "UPDATE kernel SET main_metric_name_id = (SELECT m.new FROM other.kernel o"
        " JOIN temp.map_kernel k ON k.old = o.kernel_id JOIN temp.map_metric_name m ON m.old = o.main_metric_name_id"
        " WHERE k.new = kernel.kernel_id) WHERE main_metric_name_id IS NULL"
    )
    total = int(database.execute("SELECT count(*) FROM other.run_cluster").fetchone()[0])
    return Merged(rows["run_cluster"], total - rows["run_cluster"], {name: count for name, count in rows.items() if count})


def _bring_keyed(database: Connection, table: _Table, renamed: Mapping[str, str]) -> int:
    name, key = table.name, table.key
    database.execute(f"CREATE TEMP TABLE map_{name} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL)")
    database.execute(f"CREATE TEMP TABLE come AS SELECT o.{key} AS old, {_mapped(table)}")
    if name == "cluster":
        database.executemany("UPDATE temp.come SET name = ? WHERE name = ?", [(new, old) for old, new in renamed.items()])
    same = " AND ".join(f"m.{column} IS c.{column}" for column in table.natural)
    database.execute(f"CREATE TEMP TABLE known AS SELECT c.old, m.{key} AS new FROM temp.come c JOIN main.{name} m ON {same}")
    if name == "run_cluster":  # the same submissions are the same run, whatever name its cluster has here
        database.execute(
            "INSERT INTO temp.known SELECT DISTINCT oj.run_cluster_id, mj.run_cluster_id FROM other.attempt oa"
            " JOIN other.job oj ON oj.job_id = oa.job_id JOIN main.attempt ma ON ma.tag = oa.tag"
            " JOIN main.job mj ON mj.job_id = ma.job_id"
        )
    if name != "run_cluster":  # rows of a run part that exists here are not copied either
        database.execute(f"INSERT OR IGNORE INTO temp.map_{name} SELECT old, new FROM temp.known")
    base = int(database.execute(f"SELECT coalesce(max({key}), 0) FROM main.{name}").fetchone()[0])
    columns = ", ".join(table.columns)
    fresh = "FROM temp.come c WHERE c.old NOT IN (SELECT old FROM temp.known)"
    cursor = database.execute(f"INSERT INTO main.{name} ({key}, {columns}) SELECT {base} + c.rowid, {columns} {fresh}")
    database.execute(f"INSERT INTO temp.map_{name} SELECT c.old, {base} + c.rowid {fresh}")
    database.execute("DROP TABLE temp.come")
    database.execute("DROP TABLE temp.known")
    return cursor.rowcount


def _bring_plain(database: Connection, table: _Table) -> int:
    before = database.total_changes
    database.execute(f"INSERT OR IGNORE INTO main.{table.name} ({', '.join(table.columns)}) SELECT {_mapped(table)}")
    return database.total_changes - before


def _mapped(table: _Table) -> str:
    """Columns with the keys of this database, and their sources. Rows whose keys have no counterpart are not copied."""
    columns, joins, conditions = [], [], ["1"]
    for number, column in enumerate(table.columns):
        if (table.name, column) == ("kernel", "main_metric_name_id"):
            columns.append(f"NULL AS {column}")  # kernel and metric_name refer to each other: filled in at the end
        elif column in table.foreign:
            columns.append(f"k{number}.new AS {column}")
            joins.append(f"LEFT JOIN temp.map_{table.foreign[column]} k{number} ON k{number}.old = o.{column}")
            conditions.append(f"(o.{column} IS NULL OR k{number}.new IS NOT NULL)")
        else:
            columns.append(f"o.{column}")
    return f"{', '.join(columns)} FROM other.{table.name} o {' '.join(joins)} WHERE {' AND '.join(conditions)}"


def _in_order(database: Connection) -> list[_Table]:
    """All tables, each after those that it refers to."""
    names = [str(row[0]) for row in database.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    tables = {name: _table(database, name) for name in names if not name.startswith("sqlite_")}
    ordered: dict[str, _Table] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        for column, target in tables[name].foreign.items():
            if target != name and (name, column) != ("kernel", "main_metric_name_id"):
                visit(target)
        ordered[name] = tables[name]

    for name in tables:
        visit(name)
    return list(ordered.values())


def _table(database: Connection, name: str) -> _Table:
    described = database.execute(f"PRAGMA main.table_info({name})").fetchall()
    columns = [str(row["name"]) for row in described]
    foreign = {
        str(row["from"]): str(row["table"])
        for row in database.execute(f"PRAGMA main.foreign_key_list({name})")
        if row["table"] != "unit"  # a unit's key is its name
    }
    key = (
        f"{name}_id"
        if any(row["name"] == f"{name}_id" and row["pk"] for row in described) and f"{name}_id" not in foreign
        else None
    )
    if key is not None and sum(bool(row["pk"]) for row in described) > 1:
        key = None
    others = tuple(column for column in columns if column != key)
    return _Table(name, others, foreign, key, _natural(database, name) or others)


def _natural(database: Connection, name: str) -> tuple[str, ...] | None:
    for index in database.execute(f"PRAGMA main.index_list({name})").fetchall():
        if index["unique"] and not index["partial"] and index["origin"] != "pk":
            return tuple(str(row["name"]) for row in database.execute(f"PRAGMA main.index_info({index['name']})"))
    return None

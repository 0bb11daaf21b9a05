"""Run SQL that people type themselves. The connection is read only, whatever the statement says."""

# ruff: noqa: S608 - the only text put into a query is a list of placeholders

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from hpcq.errors import UserError
from hpcq.kernels import unknown_name
from hpcq.store.database import INTERRUPTED, Connection
from hpcq.store.selection import ALL_TIME, Selection, of_tables


@dataclass(frozen=True, slots=True)
class Answer:
    """Column names and rows. The rows come one after the other, while the database is open."""

    columns: tuple[str, ...]
    rows: Iterator[dict[str, Any]]


def answer(database: Connection, query: str) -> Answer:
    """Run one SELECT. Raises UserError with SQLite's message; the connection refuses a statement that would write."""
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # ATTACH would make a new file, read only or not
    with _explained(database, query):
        cursor = database.execute(query)
    if cursor.description is None:
        raise UserError("SQL: the statement returns no rows: a SELECT", "docs/database.md lists the views")
    columns = _apart([str(one[0]) for one in cursor.description])
    return Answer(columns, _rows(database, query, cursor, columns))


def _rows(database: Connection, query: str, cursor: sqlite3.Cursor, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    while True:
        with _explained(database, query):
            row = cursor.fetchone()
        if row is None:
            return
        yield {name: _shown(value) for name, value in zip(columns, tuple(row), strict=True)}


def _shown(value: Any) -> Any:
    """A value as people and JSON can have it: bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else value


@contextmanager
def _explained(database: Connection, query: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        if str(error) == INTERRUPTED:
            raise
        raise _in_words(database, query, str(error)) from error


def _apart(names: Sequence[str]) -> tuple[str, ...]:
    """Column names that differ: `client` and a second `client` would be one column, with the values of the last."""
    found: list[str] = []
    for name in names:
        again = (f"{name}:{number}" for number in itertools.count(1))
        found.append(name if name not in found else next(one for one in again if one not in found))
    return tuple(found)


def _in_words(database: Connection, query: str, said: str) -> UserError:
    """What SQLite said, with what may be meant: the nearest view, or the statement in a file."""
    found = re.fullmatch(r"no such table: (.*)", said)
    if found:
        views = [str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")]
        message, hint = unknown_name("view or table", found.group(1), views)
        return UserError(f"SQL: {message}", hint)
    if "attached databases" in said:
        said = "one statement that reads: the database is opened for reading only"
    if "decode to UTF-8" in said:
        return UserError(f"SQL: {said}", "hex(COLUMN) shows its bytes")
    if query.strip().endswith(".sql"):
        return UserError(f"SQL: {said}", f'a query in a file: hpcq sql "$(cat {query.strip()})"')
    return UserError(f"SQL: {said}", "docs/database.md lists the views; one SELECT, read only")


def runs(database: Connection, campaign: str | None, selection: Selection, limit: int) -> list[dict[str, Any]]:
    """The newest runs that began in the stretch and have such results, one row per run and cluster.

    They are chosen first: v_runs counts the results of each row it makes.
    """
    window = selection.window
    chosen = "" if window.run_ids is None else f" AND r.run_id IN ({', '.join(str(int(one)) for one in window.run_ids)})"
    condition, values = of_tables(database, replace(selection, cluster=None, window=ALL_TIME))
    if condition != "1":
        chosen += (
            " AND rc.run_cluster_id IN (SELECT j.run_cluster_id FROM result x JOIN job j ON j.job_id = x.job_id"
            f" WHERE {condition})"
        )
    rows = database.execute(
        "SELECT run, kind, campaign, cluster, created_utc, planned_count, measured_count,"
        " planned_count - measured_count AS missing_count, closed_utc IS NOT NULL AS ended"
        " FROM v_runs WHERE run_cluster_id IN (SELECT rc.run_cluster_id FROM run_cluster rc JOIN run r ON r.run_id = rc.run_id"
        "  JOIN campaign ca ON ca.campaign_id = r.campaign_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        "  WHERE (:campaign IS NULL OR ca.name = :campaign) AND (:cluster IS NULL OR c.name = :cluster)"
        "  AND (:from_utc IS NULL OR r.created_utc >= :from_utc) AND (:until_utc IS NULL OR r.created_utc < :until_utc)"
        f"{chosen}  ORDER BY r.created_utc DESC, c.name LIMIT :limit)"
        " ORDER BY created_utc DESC, cluster",
        values
        | {"campaign": campaign, "limit": limit, "cluster": selection.cluster}
        | {"from_utc": window.from_utc, "until_utc": window.until_utc},
    )
    return [dict(row) | {"ended": bool(row["ended"])} for row in rows]

"""Whether a database has the tables and views of results.db.schema.

Before the first release, the schema changed without a new version. Rows that such a database cannot hold would fail with
SQLite's own words; so whoever opens one is told before. Comments and blanks do not count, nor do tables of others.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache

_CREATE = re.compile(r"CREATE (?P<kind>TABLE|VIEW) (?P<name>\w+).*", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*")
_UNITS = re.compile(r"^INSERT INTO unit .*?;$", re.DOTALL | re.MULTILINE)
_UNIT = re.compile(r"\('(\w+)', '([^']*)'\)")
_STATEMENT = re.compile(r"^CREATE (?:TABLE|VIEW) .*?;$", re.DOTALL | re.MULTILINE)


def differing(database: sqlite3.Connection, schema: str) -> tuple[str, str] | None:
    """The first table (before views) that is missing or differs from that in `schema`: ("table", its name); None: none is."""
    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')")
    there = {row[0]: _bare(row[1]) for row in rows}
    return next(((kind, name) for kind, name, text in _created(schema) if there.get(name) != text), None)


def new_units(database: sqlite3.Connection, schema: str) -> list[tuple[str, str]]:
    """Units of `schema` that the database has not, each with its help: a hpcq without them made it."""
    there = {row[0] for row in database.execute("SELECT name FROM unit")}
    return [(name, words) for text in _UNITS.findall(schema) for name, words in _UNIT.findall(text) if name not in there]


@cache
def _created(schema: str) -> tuple[tuple[str, str, str], ...]:
    bare = (_CREATE.match(_bare(text)) for text in _STATEMENT.findall(schema))
    found = [(one["kind"].lower(), one["name"], one[0]) for one in bare if one is not None]
    return tuple(sorted(found, key=lambda one: one[0]))


def _bare(sql: str) -> str:
    return " ".join(_COMMENT.sub(" ", sql).split()).rstrip("; ")

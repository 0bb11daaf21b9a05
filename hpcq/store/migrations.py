"""Migrations of results.db from released versions. Nothing was released yet, so the list is empty.

Each entry is (version it leads to, SQL that changes tables and rows). Order matters, and released entries never change.
An entry leaves views alone: after the last step, results.db.schema creates them again. No entry may use what SQLite
3.26 lacks. Write each table exactly as in the schema, so that a migrated database equals a new one.
"""

from __future__ import annotations

#: The version of the first release.
FIRST_VERSION = 1
MIGRATIONS: tuple[tuple[int, str], ...] = ()

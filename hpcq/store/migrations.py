"""How a results.db of an older released version becomes a present one. No version was released yet, so the list is empty.

Each entry is (version it leads to, SQL that changes tables and rows). Order matters, and released entries never change. An
entry leaves views alone: they are made again from results.db.schema after the last step. No entry may use what SQLite 3.26
lacks. Write each table exactly as the schema has it, so that a migrated database equals a new one.
"""

from __future__ import annotations

#: The version of the first release.
FIRST_VERSION = 1
MIGRATIONS: tuple[tuple[int, str], ...] = ()

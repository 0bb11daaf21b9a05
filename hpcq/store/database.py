"""results.db: opening it for the one who writes and for those who read.

Hides what SQLite needs to be safe on shared file systems and after a crash:

    writing(path)   create or migrate, then one connection: rollback journal (no WAL), busy time-out, foreign keys
    reading(path)   cannot change a row, but may roll back what a killed loader left (a read-only file handle could not)

A file that is no database, not ours, or of a newer hpcq is left alone with a StoreError.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from hpcq import assets
from hpcq.errors import StoreError
from hpcq.store.migrations import MIGRATIONS

#: 'hpcq' in ASCII; also in results.db.schema.
APPLICATION_ID = 0x68706371
#: The version of results.db.schema.
SCHEMA_VERSION = MIGRATIONS[-1][0]
#: How long to wait for another writer: a load of 10,000 results takes some ten seconds.
BUSY_TIMEOUT_S = 60.0
#: What `writing` and `reading` give; floors above name it without importing sqlite3.
Connection = sqlite3.Connection
_NOTHING_LOST = "nothing was changed; the run folder keeps everything, load it again later"


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that may write; creates the database or brings it to this version first.

    Transactions are explicit (`with transaction(database)`). Raises StoreError with what to do.
    """
    with _explained(path, _NOTHING_LOST), closing(_connect(path, "rwc")) as database:
        _prepare(database, path)
        yield database


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot change a row. Raises StoreError when there is no database at `path`."""
    if not path.exists():
        raise StoreError(f"{path}: there is no database", "`hpcq run` makes one; --db names another")
    with _explained(path, None), closing(_connect_reader(path)) as database:
        version = _version(database, path)
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{path}: has version {version}, this hpcq reads {SCHEMA_VERSION}",
                "the next `hpcq run` into it brings it forward",
            )
        database.execute("PRAGMA query_only = ON")
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. Takes the write lock at once, so that two writers wait instead of failing half-way."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # SQLite itself rolls back on a full disk
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def migrate(database: sqlite3.Connection, migrations: Sequence[tuple[int, str]], views: str) -> None:
    """Bring a database forward through `migrations` (version it leads to, SQL), in one transaction.

    `views`: the whole current schema; its views replace those that are there, so a migration only changes tables.
    """
    database.execute("PRAGMA foreign_keys = OFF")
    with transaction(database):
        version = database.execute("PRAGMA user_version").fetchone()[0]
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
            database.execute(f'DROP VIEW "{name}"')
        for leads_to, sql in migrations:
            if leads_to > version:
                for statement in statements(sql):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {leads_to:d}")
        for statement in statements(views):
            if "CREATE VIEW" in statement:
                database.execute(statement)
        broken = database.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise StoreError(f"migration leaves a row of {broken[0]} without its {broken[2]}: nothing was changed")
    database.execute("PRAGMA foreign_keys = ON")


def statements(sql: str) -> Iterator[str]:
    """The single statements of a script, comments kept."""
    lines: list[str] = []
    for line in sql.splitlines(keepends=True):
        lines.append(line)
        if ";" in line and sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines = []


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    database.row_factory = sqlite3.Row
    return database


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Read and write where the file allows it: only so can a reader roll back a killed writer's transaction."""
    database = _connect(path, "rw")
    try:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        database.close()
        database = _connect(path, "ro")
    return database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    version = _version(database, path)
    if version == 0:
        with transaction(database):
            if _version(database, path) == 0:  # another process may have made it meanwhile
                for statement in statements(assets.database_schema().read_text("utf-8")):
                    database.execute(statement)
    elif version < SCHEMA_VERSION:
        migrate(database, MIGRATIONS, assets.database_schema().read_text("utf-8"))
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA cache_size = -65536")  # KiB: a large load keeps its pages instead of spilling them


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Our schema's version; 0 for an empty file. Raises StoreError for what is not ours or is newer."""
    application_id: int = database.execute("PRAGMA application_id").fetchone()[0]
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if application_id == APPLICATION_ID and version > 0:
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{path}: was written by a newer hpcq (version {version}, this one knows {SCHEMA_VERSION})",
                "use the newer hpcq, or another --db",
            )
        return version
    if application_id == 0 and database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return 0
    raise StoreError(f"{path}: is a database, but not one of hpcq's", "name another file with --db")


@contextmanager
def _explained(path: Path, consolation: str | None) -> Iterator[None]:
    """sqlite3's errors in words that help."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "not a database" in text:
            raise StoreError(f"{path}: is not a database", "name another file with --db") from error
        if "locked" in text:
            raise StoreError(f"{path}: locked by another process for {BUSY_TIMEOUT_S:.0f} s", consolation) from error
        if "readonly" in text or "unable to open" in text:
            raise StoreError(
                f"{path}: cannot be written: {text}",
                f"file and folder must be writable{'; ' + consolation if consolation else ''}",
            ) from error
        raise StoreError(f"{path}: {text}", consolation) from error

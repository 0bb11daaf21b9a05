"""Open results.db: for one writer, and for any number of readers.

Hides what SQLite needs to be safe on shared file systems and after a crash:

    writing(path)   the one writer; create or migrate, then one connection: rollback journal, busy time-out, foreign keys
    reading(path)   cannot change a row; first rolls back what a killed loader left, as a writer would
    answered(...)   what a question that takes long was answered, until the database changes

A file that is no database, belongs to another program or comes from a newer hpcq stays untouched and raises StoreError.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpcq import __version__, assets
from hpcq.assets import user_name
from hpcq.errors import StoreError, UserError
from hpcq.nodelist import members_of
from hpcq.plugins import GATE_KINDS
from hpcq.store.blocks import unpacked
from hpcq.strangers import open_to_all, others_write
from hpcq.writer_lock import sole_writer

# ----------------------------------------------------------------------------------------------------------------------
# Migrations of results.db from released versions. Nothing was released yet, so the list is empty.
#
# Each entry is (version it leads to, SQL that changes tables and rows). Order matters, and released entries never change.
# An entry leaves views alone: after the last step, results.db.schema creates them again. No entry may use what SQLite
# 3.26 lacks. Write each table exactly as in the schema, so that a migrated database equals a new one.


#: The version of the first release.
FIRST_VERSION = 1
MIGRATIONS: tuple[tuple[int, str], ...] = ()


# ----------------------------------------------------------------------------------------------------------------------
# Whether a database has the tables and views of results.db.schema.
#
# Before the first release, the schema changed without a new version. Rows that such a database cannot hold would fail with
# SQLite's own words; so whoever opens one is told before. Comments and blanks do not count, nor do tables of others.


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


# ----------------------------------------------------------------------------------------------------------------------


#: 'hpcq' in ASCII; also in results.db.schema.
APPLICATION_ID = 0x68706371
#: The version of results.db.schema.
SCHEMA_VERSION = MIGRATIONS[-1][0] if MIGRATIONS else FIRST_VERSION
#: Time to wait for another writer. A load of 10,000 results takes about ten seconds.
BUSY_TIMEOUT_S = 60.0
#: Of a new database. The evidence of a result takes a kilobyte: on smaller pages the ends of pages stay empty.
_PAGE_BYTES = 8192
#: Steps of SQLite between two looks for the keyboard's interrupt: some milliseconds.
_STEPS = 1_000_000
#: What SQLite says of a statement that an interrupt ended.
INTERRUPTED = "interrupted"
#: What `writing` and `reading` yield. Floors above name this type without importing sqlite3.
Connection = sqlite3.Connection
_DAMAGED = "take the last good copy of the file; or load every run folder into a new one: hpcq db load RUN --db NEW"
_NOTHING_LOST = "nothing was changed: type it again later; of a run that has ended, `hpcq db load RUN`"


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that may write; creates the database or brings it to this version first.

    Transactions are explicit (`with transaction(database)`). Raises StoreError with what to do.
    """
    with (
        _explained(path, _NOTHING_LOST),
        _as_written(path),
        _where_it_stays(path),
        sole_writer(path, BUSY_TIMEOUT_S) as still_mine,
        _made(path),
        _journal_kept(path) as kept,
        closing(_connect(path, "rwc")) as database,
    ):
        database.still_mine = still_mine
        if kept:
            database.execute("PRAGMA journal_mode = PERSIST")
        _prepare(database, path)
        yield database


#: What SQLite believes when it lies beside a database: pages to put back, and pages that count instead.
_BESIDE = ("-journal", "-wal", "-shm")


def _refuse_pages_of_others(path: Path) -> None:
    """Raise StoreError for a journal of a user without the right to write the database: its pages would be put there.

    Also for a pipe or a device in place of the database or of what lies beside it: SQLite would wait for it without end.
    """
    whole = path.resolve()
    for ending in ("", *_BESIDE):
        beside = whole.with_name(f"{whole.name}{ending}")
        with suppress(FileNotFoundError):
            found, ours = beside.lstat(), whole.stat()
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise StoreError(
                    f"{beside}: is a pipe or a device: must be a file", "remove it, or name another file with --db"
                )
            of_the_group = ours.st_mode & 0o020 and found.st_gid == ours.st_gid and not whole.parent.stat().st_mode & 0o002
            if ending and found.st_uid not in {0, os.geteuid(), ours.st_uid} and not of_the_group:
                owner, owners = user_name(found.st_uid), user_name(ours.st_uid)
                raise StoreError(
                    f"{beside}: belongs to {owner}, and the database to {owners}: SQLite would write what it says into the"
                    " database: must be of a user with the right to write that",
                    f"remove it (in a folder with the sticky bit only {owner} or root can), and move the database to a folder"
                    " where nobody else writes",
                )


@contextmanager
def _where_it_stays(path: Path) -> Iterator[None]:
    """Raise StoreError where anybody could put another database in place of this one, as in a folder of mode 777."""
    if found := open_to_all(path):
        raise StoreError(
            found.words,
            f"`chmod +t {shlex.quote(str(found.at))}` keeps there what is yours, as in /tmp; or name a file in a folder of"
            " yours with --db",
        )
    yield


@contextmanager
def _journal_kept(path: Path) -> Iterator[bool]:
    """Where others may make files beside the database, its journal stays there, empty: they can make none of that name.

    Yields whether it is so. Raises StoreError where one of them was faster.
    """
    whole = path.resolve()
    everybody = bool(whole.parent.stat().st_mode & 0o002) if whole.parent.is_dir() else False
    kept = whole.is_file() and (everybody or (not _is_shared(path) and others_write(whole.parent)))
    if kept:
        with suppress(OSError):  # it is there; or cannot be made, which SQLite says better
            mode = stat.S_IMODE(whole.stat().st_mode)
            descriptor = os.open(
                whole.with_name(f"{whole.name}-journal"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            os.fchmod(descriptor, mode)
            os.close(descriptor)
    _refuse_pages_of_others(path)
    yield kept


@contextmanager
def _made(path: Path) -> Iterator[None]:
    """Make the file, if it is missing, for its user alone: it names nodes, people and the words of their cluster files.

    In a folder that a group may write and whose files get that group (setgid), it is the group's: SQLite gives its journal
    the same mode.
    """
    shared = _is_shared(path)
    _refuse_links(path)
    with suppress(OSError):  # it is there; or it cannot be made, which SQLite says better
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if shared:
            os.fchmod(descriptor, 0o660)
        os.close(descriptor)
    yield


def _is_shared(path: Path) -> bool:
    folder = path.resolve().parent
    return folder.is_dir() and folder.stat().st_mode & 0o2020 == 0o2020


def _refuse_links(path: Path) -> None:
    """Raise StoreError for a link of somebody else to a file that is not there: SQLite would make one where he wants it."""
    if path.is_symlink() and not path.exists() and path.lstat().st_uid not in {0, os.geteuid()}:
        raise StoreError(
            f"{path}: is a link that {user_name(path.lstat().st_uid)} made, to a file that is not there: must be yours",
            "name a file in a folder of yours with --db",
        )


def _refuse_gifts(path: Path) -> None:
    """Raise StoreError for an empty file of somebody else: what is loaded would be his to read and to change.

    In a folder that a group shares it would be anyway.
    """
    if path.exists() and not _is_shared(path) and (owner := path.stat().st_uid) not in {0, os.geteuid()}:
        raise StoreError(
            f"{path}: is empty and belongs to {user_name(owner)}: a new database must be yours",
            "name a file in a folder of yours with --db",
        )


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot change a row. Raises StoreError if there is no database at `path`."""
    if not path.exists():
        raise StoreError(f"{path}: there is no database", "`hpcq run` makes one; --db names another")
    empty = StoreError(
        f"{path}: is empty, this hpcq reads version {SCHEMA_VERSION}", "the next `hpcq run` into it makes one of it"
    )
    if path.is_file() and path.stat().st_size == 0:  # SQLite would remove the journal of a process creating it
        raise empty
    with _explained(path, None), _as_written(path), closing(_connect_reader(path)) as database:
        version = _version(database, path)
        if version == 0:  # whoever made it was killed meanwhile, and what it had begun is rolled back
            raise empty
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{path}: has version {version}, this hpcq reads {SCHEMA_VERSION}",
                f"`hpcq db upgrade --db {shlex.quote(str(path))}` converts it",
            )
        kind, name = differing(database, assets.database_schema().read_text("utf-8")) or ("", "")
        if kind == "table":
            raise _of_an_earlier_state(path, name)
        if kind:
            raise StoreError(
                f"{path}: its view {name} is not the one that this hpcq reads",
                f"`hpcq db upgrade --db {shlex.quote(str(path))}` rebuilds it",
            )
        database.execute("PRAGMA query_only = ON")
        yield database


@contextmanager
def reading_any(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot change a row, to a database of any state of hpcq, also one that `reading` refuses."""
    if not path.is_file() or path.stat().st_size == 0:
        raise StoreError(f"{path}: there is no database", "--db names another")
    with _explained(path, None), _as_written(path), closing(_connect_reader(path)) as database:
        if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"{path}: is a database, but not one of hpcq's", "name another file with --db")
        database.execute("PRAGMA query_only = ON")
        yield database


def upgraded(path: Path) -> tuple[int, int]:
    """Bring a database to this version of the schema. Returns the version before and now."""
    with reading_any(path) as database:
        before = _version(database, path)
    with writing(path) as database:
        return before, _version(database, path)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one transaction.

    It takes the write lock at once, so two writers wait instead of failing half-way.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # SQLite itself rolls back on a full disk
            database.execute("ROLLBACK")
        raise
    if isinstance(database, _Connection) and not database.still_mine():
        path = database.execute("PRAGMA database_list").fetchone()["file"]
        database.execute("ROLLBACK")
        raise StoreError(f"{path}: another process took this database for abandoned and writes it now", _NOTHING_LOST)
    database.execute("COMMIT")


def migrate(database: sqlite3.Connection, migrations: Sequence[tuple[int, str]], views: str) -> None:
    """Bring a database forward through `migrations` (version it leads to, SQL), in one transaction.

    `views`: the whole current schema. Its views replace the existing ones, so a migration only changes tables.
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
    """The single statements of a script, comments included."""
    lines: list[str] = []
    for line in sql.splitlines(keepends=True):
        lines.append(line)
        if ";" in line and sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines = []


class _Connection(sqlite3.Connection):
    """A connection that knows whether its process is the one writer; for a reader that is always false."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.still_mine: Callable[[], bool] = lambda: True


def _connect(path: Path, mode: str) -> _Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, factory=_Connection)
    database.row_factory = sqlite3.Row
    database.create_function("names_node", 2, lambda text, node: node in members_of(text), deterministic=True)
    database.create_function("sqlar_uncompress", 2, unpacked, deterministic=True)
    return database


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection. If a killed writer left a journal, first become the one writer and roll it back.

    A reader must not roll back by itself. Where file locks do not work, the journal of an active writer looks like that
    of a killed one, and rolling it back would corrupt the database. Such a reader waits until the journal is gone.
    """
    begun = time.monotonic()
    while True:
        _refuse_pages_of_others(path)
        database = _connect(path, "ro")
        try:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            database.set_progress_handler(lambda: 0, _STEPS)  # Python looks for an interrupt there, and only there
            return database
        except sqlite3.OperationalError as error:
            database.close()
            if "readonly" not in str(error) and "unable to open" not in str(error):
                raise
            if time.monotonic() - begun > BUSY_TIMEOUT_S or not os.access(path, os.W_OK):
                raise
        with sole_writer(path, BUSY_TIMEOUT_S), _journal_kept(path) as kept, closing(_connect(path, "rw")) as recovering:
            if kept:
                recovering.execute("PRAGMA journal_mode = PERSIST")
            recovering.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    version = _version(database, path)
    schema = assets.database_schema().read_text("utf-8")
    if version == 0:
        _refuse_gifts(path)
        database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # within a transaction it would change nothing
        with transaction(database):
            if _version(database, path) == 0:  # another process may have created it meanwhile
                for statement in statements(schema):
                    database.execute(statement)
    elif version < SCHEMA_VERSION:
        migrate(database, MIGRATIONS, schema)
    kind, name = differing(database, schema) or ("", "")
    if kind == "table":
        raise _of_an_earlier_state(path, name)
    if kind:  # views hold no rows
        migrate(database, (), schema)
    for unit in new_units(database, schema):
        database.execute("INSERT OR IGNORE INTO unit (name, help) VALUES (?, ?)", unit)
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA cache_size = -65536")  # KiB: a large load keeps its pages instead of spilling them


def _of_an_earlier_state(path: Path, table: str) -> StoreError:
    return StoreError(
        f"{path}: its table {table} is not the one that this hpcq writes: a state of hpcq before its first release made it",
        f"load the run folders into a new one: hpcq db load RUN --db NEW; {path} stays as it is. What people wrote comes"
        f" along with `hpcq db export-notes notes.json --db {shlex.quote(str(path))}` and"
        " `hpcq db import-notes notes.json --db NEW`",
    )


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Our schema's version; 0 for an empty file. Raises StoreError for a file that is not ours or is newer."""
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
    """Translate sqlite3's errors into messages that say what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if text == INTERRUPTED:
            raise KeyboardInterrupt from error
        if path.is_dir():
            hint = f"--db names it{'; ' + consolation if consolation else ''}"
            raise StoreError(f"{path}: is a folder: must be the file of a database", hint) from error
        if "not a database" in text:
            raise StoreError(f"{path}: is not a database", "name another file with --db") from error
        if "locked" in text:
            told = "`hpcq doctor` says whether this file system has locks at all"
            hint = f"{consolation}; {told}" if consolation else told
            raise StoreError(f"{path}: locked by another process for {BUSY_TIMEOUT_S:.0f} s", hint) from error
        if "unable to open" in text and not path.absolute().parent.is_dir():
            raise UserError(
                f"{path}: cannot be written: there is no folder {path.parent}",
                f"make that folder, or name another file with --db{'; ' + consolation if consolation else ''}",
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise StoreError(
                f"{path}: cannot be written: {text}",
                f"file and folder must be writable{'; ' + consolation if consolation else ''}",
            ) from error
        if "malformed" in text:
            raise StoreError(f"{path}: is damaged: {text}", _DAMAGED) from error
        raise StoreError(f"{path}: {text}", consolation or "`hpcq db check` says whether the file is sound") from error


@contextmanager
def _as_written(path: Path) -> Iterator[None]:
    """Say of a file that texts which hpcq wrote into it as JSON are none any more."""
    try:
        yield
    except json.JSONDecodeError as error:
        words = f"{path}: is damaged: {error.doc[:60]!r} stands where JSON must stand"
        raise StoreError(words, _DAMAGED) from error


# ----------------------------------------------------------------------------------------------------------------------
# Answers that take long, kept until the database changes: who asks again does not wait again.
#
#     answered(database, question, answer)     the answer that is kept, else answer(), kept if it took long
#
# An answer is kept for one state of one database and for this very hpcq: the next write, a copy in its place or another
# version of the code, and it is found anew. So a kept answer is what a new one would be. It lies below the user's own cache
# folder, never beside the database: that may be read-only, or somebody else's. Whoever removes it loses only time.


#: CPU seconds from which on an answer is kept.
KEPT_FROM_S = 0.1
#: A file that was written so lately may be written again within the same tick of its clock.
SETTLED_AFTER_S = 2.0
#: For how long answers are kept that nobody adds to.
_KEPT_DAYS = 30
#: Folders whose code decides what an answer says.
_DECIDING = ("analysis", "judge", "statistics", "store", "verdict")
#: What loading and people write shows here, whatever clock the file system has.
_MARKS = (
    "SELECT (SELECT max(result_id) FROM result), (SELECT max(loaded_utc) FROM run_cluster), (SELECT count(*) FROM retraction),"
    " (SELECT count(*) FROM retraction_withdrawn), (SELECT count(*) FROM change_state), (SELECT max(event_id) FROM event)"
)


def answered(database: Connection, question: Mapping[str, Any], answer: Callable[[], Any]) -> Any:
    """What answer() returns, as JSON reads it again.

    question: everything that the answer depends on beside the content of the database, as JSON.
    """
    state = _file_state(database)
    path = None if state is None else _answers_folder() / _digest(state["path"]) / _digest(state) / f"{_digest(question)}.json"
    if path is not None:
        with suppress(OSError, ValueError):
            return json.loads(_kept(path))
    begun = time.process_time()
    text = json.dumps(answer())
    if path is not None and time.process_time() - begun >= KEPT_FROM_S and _file_state(database) == state:
        with suppress(OSError):
            _keep(path, text)
    return json.loads(text)


def _file_state(database: Connection) -> dict[str, Any] | None:
    """What tells this state of this database from any other; None where nothing does.

    The file itself is not opened: closing it again would end the locks that SQLite has on it in this process. It is looked up
    after a query, whose lock makes a network file system ask its server. What this connection wrote and has not committed is
    not in it.
    """
    if database.in_transaction and database.total_changes:
        return None
    name = os.fsdecode(database.execute("SELECT CAST(file AS BLOB) FROM pragma_database_list").fetchone()[0])
    if not name or str(database.execute("PRAGMA journal_mode").fetchone()[0]) == "wal":
        return None
    marks = list(database.execute(_MARKS).fetchone())
    with suppress(OSError):
        path = Path(name).resolve()
        found = path.stat()
        if time.time() - max(found.st_mtime, found.st_ctime) >= SETTLED_AFTER_S:
            file = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
            code = {"hpcq": __version__, "code": _deciding_code(), "gate kinds of others": _kinds_of_others()}
            return {"path": str(path), "file": file, "marks": marks, **code}
    return None


def _kinds_of_others() -> list[str]:
    """Gate kinds that others bring, and their packages: not loaded, for most verbs that ask here need none of them."""
    from importlib.metadata import entry_points

    found = [(one.name, one.value, one.dist) for one in entry_points(group=GATE_KINDS)]
    return sorted(f"{name} = {value} of {dist.name} {dist.version}" if dist else name for name, value, dist in found)


@cache
def _deciding_code() -> str:
    """A sum of the code that answers: a change of it in a checkout is no new version."""
    total = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted(path for folder in _DECIDING for path in (package / folder).rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def _digest(words: Any) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:32]


def _answers_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or assets.home() / ".cache") / "hpcq" / "answers"


def _kept(path: Path) -> bytes:
    """A kept answer. Raises OSError where there is none, or where anybody else could write it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_ours(found) or not _is_ours(path.parent.lstat()):
            raise PermissionError(path)
        return file.read()


def _keep(path: Path, text: str) -> None:
    """Keep an answer; remove those of older states of its database, and of databases that nobody asked for a month."""
    folder = _answers_folder()
    folder.parents[1].mkdir(parents=True, exist_ok=True)
    for one in (folder.parent, folder, path.parents[1], path.parent):
        one.mkdir(0o700, exist_ok=True)
        if not _is_ours(one.lstat()):
            return
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    os.utime(path.parents[1])
    old = [one for one in path.parents[1].iterdir() if one != path.parent]
    old += [one for one in folder.iterdir() if time.time() - one.lstat().st_mtime > _KEPT_DAYS * 86400]
    for one in old:
        shutil.rmtree(one, ignore_errors=True)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.getuid() and not found.st_mode & 0o022

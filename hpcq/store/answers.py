"""Answers that take long, kept until the database changes: who asks again does not wait again.

    answered(database, question, answer)     the answer that is kept, else answer(), kept if it took long

An answer is kept for one state of one database and for this very hpcq: the next write, a copy in its place or another
version of the code, and it is found anew. So a kept answer is what a new one would be. It lies below the user's own cache
folder, never beside the database: that may be read-only, or somebody else's. Whoever removes it loses only time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from hpcq import __version__, assets
from hpcq.store.database import Connection

#: CPU seconds from which on an answer is kept.
KEPT_FROM_S = 0.5
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
    state = _state(database)
    path = None if state is None else _folder() / _sum(state["path"]) / _sum(state) / f"{_sum(question)}.json"
    if path is not None:
        with suppress(OSError, ValueError):
            return json.loads(_read(path))
    begun = time.process_time()
    text = json.dumps(answer())
    if path is not None and time.process_time() - begun >= KEPT_FROM_S and _state(database) == state:
        with suppress(OSError):
            _write(path, text)
    return json.loads(text)


def _state(database: Connection) -> dict[str, Any] | None:
    """What tells this state of this database from any other; None where nothing does.

    The file itself is not opened: closing it again would end the locks that SQLite has on it in this process.
    """
    name = str(database.execute("PRAGMA database_list").fetchone()[2])
    if not name or str(database.execute("PRAGMA journal_mode").fetchone()[0]) == "wal":
        return None
    with suppress(OSError):
        path = Path(name).resolve()
        found = path.stat()
        if time.time() - max(found.st_mtime, found.st_ctime) >= SETTLED_AFTER_S:
            file = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
            marks = list(database.execute(_MARKS).fetchone())
            return {"path": str(path), "file": file, "marks": marks, "hpcq": __version__, "code": _code()}
    return None


@cache
def _code() -> str:
    """A sum of the code that answers: a change of it in a checkout is no new version."""
    total = hashlib.sha256()
    package = Path(__file__).resolve().parents[1]
    for path in sorted(path for folder in _DECIDING for path in (package / folder).rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def _sum(words: Any) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:32]


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or assets.home() / ".cache") / "hpcq" / "answers"


def _read(path: Path) -> bytes:
    """A kept answer. Raises OSError where there is none, or where anybody else could write it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _is_ours(found) or not _is_ours(path.parent.lstat()):
            raise PermissionError(path)
        return file.read()


def _write(path: Path, text: str) -> None:
    """Keep an answer; remove those of older states of its database, and of databases that nobody asked for a month."""
    folder = _folder()
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

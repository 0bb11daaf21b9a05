"""Files that verbs write: aside, then renamed, so that a concurrent reader sees the whole old file.

What is no regular file (/dev/null, a pipe) is written as it is: a rename would put a file in its place.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterable
from pathlib import Path

from hpcq.errors import DATABASE_HEAD, HpcqError, UserError, of_the_machine

#: How the names of files end that SQLite keeps beside a database.
BESIDE_DATABASES = ("-wal", "-shm", "-journal")


def write_out(pieces: Iterable[str | bytes], target: Path | None, what: str = "--to") -> None:
    """Write to a file, or to standard output. Raises UserError for a place that cannot be written.

    what: the option or argument that named the file, for the error.
    """
    if target is None:
        for piece in pieces:
            sys.stdout.write(piece) if isinstance(piece, str) else sys.stdout.buffer.write(piece)
        return
    _spare_database(target, what)
    special = target.exists() and not target.is_file()
    aside = target if special else target.with_name(f".{target.name}.part")
    try:
        with aside.open("wb") as file:
            for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
        if special:
            return
        aside.replace(target)
    except OSError as error:
        if not special:
            _forget(aside)
        if of_the_machine(error, target) is not None:  # a full disk is no wrong call
            words = f"{what}: {target}: cannot be written: {error.strerror}"
            room = "make room there, or " if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
            raise HpcqError(words, f"{room}name a file elsewhere") from None
        raise UserError(f"{what}: {target}: cannot be written: {error.strerror}", "name a file in a folder of yours") from None
    except BaseException:
        if not special:
            _forget(aside)
        raise


def check_target(target: Path | None, what: str = "--to") -> None:
    """Raise UserError if a file that a person named has no folder, since a misspelt one is not made, or is a database."""
    if target is None:
        return
    _spare_database(target, what)
    if not target.absolute().parent.is_dir():
        raise UserError(
            f"{what}: {target}: cannot be written: there is no folder {target.parent}",
            "make it, or name another one",
        )


def _spare_database(target: Path, what: str) -> None:
    """Raise UserError if the file is a database, or part of one: years of results are not lost to a slip of --to and --db."""
    if _is_database(target, what):
        raise UserError(
            f"{what}: {target}: is a database: it is not written over", "name another file; --db names the database"
        )
    for end in BESIDE_DATABASES:
        name = target.name.removesuffix(end)
        if name not in {"", target.name} and _is_database(target.with_name(name), what):
            raise UserError(
                f"{what}: {target}: belongs to the database {name} beside it: it is not written", "name another file"
            )


def _is_database(path: Path, what: str) -> bool:
    """Whether a file is a database of SQLite. Raises UserError if it cannot be read: to rename it needs no such right."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(DATABASE_HEAD)) == DATABASE_HEAD
    except OSError as error:
        words = f"{what}: {path}: cannot be read: {error.strerror}: what may be a database is not written over"
        raise UserError(words, "name another file") from None


def _forget(aside: Path) -> None:
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)

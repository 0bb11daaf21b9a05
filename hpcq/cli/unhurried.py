"""Standard output for readers that may be slow, such as a pager, while a database is open.

A reader of results.db keeps its writers from committing. So hpcq waits for nobody while it reads: what standard output
does not take at once goes into a file without a name, and is written from there after the database is closed.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator

from hpcq.errors import HpcqError

#: A pipe that poll calls writable takes this much without waiting (POSIX).
_AT_ONCE_BYTES = select.PIPE_BUF


@contextlib.contextmanager
def unhurried() -> Iterator[Callable[[str], object]]:
    """A function that writes text to standard output and never waits. The rest is written when the block has ended.

    After an error nothing more is written.
    """
    try:
        number = sys.stdout.fileno()
    except (io.UnsupportedOperation, AttributeError):  # not a stream of the operating system
        yield sys.stdout.write
        return
    sys.stdout.flush()
    with _Aside(number) as aside:
        yield aside.write
        aside.end()


class _Aside:
    """A file descriptor, and the file for what it does not take at once."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._waiting = False

    def __enter__(self) -> _Aside:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take
            self._file.close()

    def write(self, text: str) -> None:
        """Write what can be written now, and keep the rest."""
        piece = text.encode(errors="surrogateescape")
        while piece and not self._waiting:
            if self._takes():
                piece = piece[os.write(self._number, piece[:_AT_ONCE_BYTES]) :]
            else:
                self._waiting = True
        try:
            self._file.write(piece)
        except OSError as error:
            raise _no_room(error) from error

    def end(self) -> None:
        """Write the rest, however long that takes."""
        try:
            self._file.seek(0)
        except OSError as error:  # what the buffer still held
            raise _no_room(error) from error
        with open(self._number, "wb", closefd=False) as out:
            shutil.copyfileobj(self._file, out)

    def _takes(self) -> bool:
        poll = select.poll()
        poll.register(self._number, select.POLLOUT)
        return bool(poll.poll(0))


def _no_room(error: OSError) -> HpcqError:
    words = f"{tempfile.gettempdir()}: cannot be written: {error.strerror}"
    return HpcqError(words, "TMPDIR names a folder with more room; --limit asks for fewer rows")

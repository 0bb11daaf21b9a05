"""Files that verbs write: aside, then renamed, so that a concurrent reader sees the whole old file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path

from hpcq.errors import UserError


def write_out(pieces: Iterable[str | bytes], target: Path | None, what: str = "--to") -> None:
    """Write to a file, or to standard output. Raises UserError for a place that cannot be written.

    what: the option or argument that named the file, for the error.
    """
    if target is None:
        for piece in pieces:
            sys.stdout.write(piece) if isinstance(piece, str) else sys.stdout.buffer.write(piece)
        return
    aside = target.with_name(f".{target.name}.part")
    try:
        with aside.open("wb") as file:
            for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
        aside.replace(target)
    except OSError as error:
        _forget(aside)
        raise UserError(f"{what}: {target}: cannot be written: {error.strerror}", "name a file in a folder of yours") from None
    except BaseException:
        _forget(aside)
        raise


def _forget(aside: Path) -> None:
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)

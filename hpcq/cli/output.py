"""Rows for people and for programs: one description of the columns, three ways to print them.

    print_rows(rows, [Column("client"), Column("median", unit="bps"), ...])
        a terminal    a table; a column with one unit has it in its head
        a pipe        the same without alignment, separated by tabs: for cut and sort
        --json        one JSON array of objects, values in base units, names as in the database

hpcq obeys NO_COLOR, and colour never carries a meaning alone.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import json
import os
import select
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import wraps
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

from hpcq import units
from hpcq.errors import DATABASE_HEAD, HpcqError, UserError, of_the_machine
from hpcq.run_folder.paths import new_file
from hpcq.visible import beneath, one_line, visible, visible_pieces

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text


# ----------------------------------------------------------------------------------------------------------------------
# What a column of a table is, and how each of its values reads.


_UTC_SHOWN = len("2026-11-21T02:03:04")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    name: the row's field. head: the title above it (default: the name). unit: of all its values; or `unit_field`: the
    field with each row's unit; with neither, the suffix of the name is the unit. style: a Rich style by value.
    """

    name: str
    head: str | None = None
    unit: str | None = None
    unit_field: str | None = None
    style: Callable[[Any], str | None] | None = None
    wrap: bool = False


def head(column: Column) -> str:
    """The head of a column: its own, or its name in words. A column of times says that they are UTC."""
    title = column.head if column.head is not None else column.name.replace("_", " ")
    return visible(f"{title} (UTC)" if _unit(column, {}) == "utc" and "utc" not in title.lower() else title)


def cell(column: Column, fields: Mapping[str, Any]) -> str:
    """One value as a person reads it, in one line; empty for None.

    It is made visible here, as Rich takes escape sequences for its own.
    """
    value = fields[column.name]
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = _unit(column, fields)
    if unit == "utc" and isinstance(value, str):
        return visible(value[:_UTC_SHOWN].replace("T", " "))
    if isinstance(value, (int, float)):
        return str(value) if unit in {None, "no", "count", "index"} and isinstance(value, int) else units.human(value, unit)
    return visible(one_line(str(value), " "))


def _unit(column: Column, fields: Mapping[str, Any]) -> str | None:
    return fields.get(column.unit_field) if column.unit_field else column.unit or units.unit_of(column.name)


def cells(column: Column, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All values of a column; where they share a unit, their decimals stand below each other."""
    values = [row[column.name] for row in rows]
    shared = {_unit(column, row) for row in rows}
    if len(shared) != 1 or any(isinstance(one, bool) for one in values) or not any(isinstance(one, float) for one in values):
        return [cell(column, row) for row in rows]
    numbers = [one for one in values if isinstance(one, (int, float))]
    texts = iter(units.human_column(numbers, shared.pop()))
    return [next(texts) if isinstance(row[column.name], (int, float)) else cell(column, row) for row in rows]


def as_mapping(row: object) -> Mapping[str, Any]:
    """The fields of a dataclass or mapping."""
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {name: getattr(row, name) for name in row.__dataclass_fields__}  # asdict would copy each value
    raise TypeError(f"{type(row).__name__} is neither a dataclass nor a mapping")


# ----------------------------------------------------------------------------------------------------------------------
# Tables for terminals of any width: never a value cut off, no line longer than the terminal.
#
# If the terminal is too narrow, in this order: empty columns go, values that are the same in all rows move above them, of
# columns with the same numbers one remains, columns move together, long words fold within their column, rows that share
# values stand below these, and at last each row becomes a block of lines.


#: Characters between two columns.
_GAP = 3
#: Characters left and right of a table.
_EDGES = 2
#: If a table is too wide, columns of text fold to this width.
_FOLDED = 12


def print_fitted(rows: Sequence[object], columns: Sequence[Column], title: str | None, out: TextIO) -> None:
    """Print rows as a table to a terminal."""
    from rich.console import Console

    console = Console(file=beneath(out), highlight=False)
    for part in fitted(rows, columns, title, width=console.width):
        console.print(part, crop=False)


def fitted(rows: Sequence[object], columns: Sequence[Column], title: str | None, *, width: int) -> Iterator[RenderableType]:
    """What Rich has to print, from top to bottom. width: of the terminal, in characters."""
    from rich.text import Text

    fields = [as_mapping(row) for row in rows]
    if _width(fields, columns, _GAP) > width:
        columns = [one for one in columns if any(cell(one, row) for row in fields)] or columns
    if _width(fields, columns, _GAP) > width and len(rows) > 1:
        same = [one for one in columns if len({cell(one, row) for row in fields}) == 1]
        columns = [one for one in columns if one not in same] or columns
        words = [f"{head(one)} {cell(one, fields[0])}" for one in same if cell(one, fields[0])]
        columns, twins = _without_twins(columns, fields)
        words += [" = ".join([*others, one]) for one, others in twins.items()]
        yield Text(", ".join(words))
    gap = _GAP if _width(fields, columns, _GAP) <= width else 1
    fold = _width(fields, columns, gap) > width
    narrow = fold and _width(fields, columns, gap, _FOLDED) > width
    if fold and (shared := _shared(fields, columns, width, runs_max=len(fields) if narrow else len(fields) // 2)):
        yield from _sections(fields, columns, shared, title)
        return
    if narrow:
        yield from _blocks(fields, columns, title)
        return
    table = _table(fields, columns, title, fold=fold)
    if gap == 1:
        table.padding = (0, 0, 0, 0)
    yield table


def _without_twins(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> tuple[list[Column], dict[str, list[str]]]:
    """Of columns of numbers that agree in every row, as the lowest, median and highest of one value do, the first.

    And the heads of those left out, by the head of the one that stands for them.
    """
    first: dict[tuple[str, ...], Column] = {}
    twins: dict[str, list[str]] = {}
    kept = []
    for one in columns:
        stands = first.setdefault(tuple(cells(one, rows)), one) if _numeric(one, rows) else one
        if stands is one:
            kept.append(one)
        else:
            twins.setdefault(head(stands), []).append(head(one))
    return kept, twins


def _runs(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[list[Mapping[str, Any]]]:
    """Rows that follow each other and have the same values in these columns."""
    return [list(found) for _, found in groupby(rows, key=lambda row: [cell(one, row) for one in columns])]


def _shared(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], width: int, *, runs_max: int) -> list[Column] | None:
    """Return the columns whose values move above the rows that share them, so that the others fit; None if none do.

    It takes those first that make the fewest sections. runs_max: how many sections there may be.
    """
    above: list[Column] = []
    text = [one for one in columns if not _numeric(one, rows)]
    while left := [one for one in text if one not in above]:
        if len(above) + 1 >= len(columns):
            break
        above.append(min(left, key=lambda one: (len(_runs(rows, [*above, one])), columns.index(one))))
        runs = _runs(rows, above)
        if len(runs) > runs_max:
            break
        if sum(_widths(runs, [one for one in columns if one not in above])) + 2 * len(columns) - 2 * len(above) <= width:
            return above
    return None


def _widths(runs: Sequence[Sequence[Mapping[str, Any]]], columns: Sequence[Column]) -> list[int]:
    """The width of each column over all sections."""
    from rich.cells import cell_len

    return [max(cell_len(text) for run in runs for text in (head(one), *cells(one, run))) for one in columns]


def _sections(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], above: Sequence[Column], title: str | None
) -> Iterator[Text]:
    """A line of shared values, and below it the rows that have them, in columns that go through all sections."""
    from rich.cells import cell_len
    from rich.text import Text

    if title:
        yield Text(visible(title))
    runs = _runs(rows, above)
    rest = [one for one in columns if one not in above]
    widths, numeric = _widths(runs, rest), [_numeric(one, rows) for one in rest]

    def line(texts: Sequence[str], styles: Sequence[str | None]) -> Text:
        found = Text(overflow="fold")
        for text, wide, right, style in zip(texts, widths, numeric, styles, strict=True):
            blanks = " " * (wide - cell_len(text))
            found.append("  ").append(f"{blanks}{text}" if right else f"{text}{blanks}", style or "")
        found.rstrip()
        return found

    yield line([head(one) for one in rest], [None] * len(rest))
    for run in runs:
        words = [f"{head(one)} {cell(one, run[0])}" for one in columns if one in above and cell(one, run[0])]
        yield Text(", ".join(words), style="" if "NO_COLOR" in os.environ else "bold")
        shown = [cells(one, run) for one in rest]
        for number, row in enumerate(run):
            yield line([texts[number] for texts in shown], [one.style(row[one.name]) if one.style else None for one in rest])


def _blocks(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str | None) -> Iterator[Text]:
    """One line per value, with an empty line between rows."""
    from rich.text import Text

    if title:
        yield Text(visible(title))
    widest = max(len(head(one)) for one in columns)
    for number, row in enumerate(rows):
        if number:
            yield Text("")
        for one in columns:
            if cell(one, row):
                style = one.style(row[one.name]) if one.style else None
                yield Text.assemble(f"{head(one):<{widest}} ", (cell(one, row), style or ""), overflow="fold")


def _width(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], gap: int, folded: int | None = None) -> int:
    """The fewest characters that a table needs; wrapping columns need a few words. folded: as narrow as text can be."""
    from rich.cells import cell_len

    total = _EDGES + gap * len(columns)
    for one in columns:
        widest = max(cell_len(text) for text in (head(one), *cells(one, rows)))
        narrow = 24 if folded is None else folded
        total += min(widest, narrow) if one.wrap or (folded is not None and not _numeric(one, rows)) else widest
    return total


def _numeric(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(isinstance(row[column.name], (int, float)) for row in rows)


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str | None, *, fold: bool) -> Table:
    """The rows as a table. fold: text may continue in the next line of its cell."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    plain = "NO_COLOR" in os.environ
    words = Text(visible(title)) if title else None
    table = Table(
        title=words,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="" if plain else None,
    )
    for column in columns:
        numeric = _numeric(column, rows)
        justify = "right" if numeric else "left"
        whole = not column.wrap and (numeric or not fold)
        table.add_column(head(column), justify=justify, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    shown = [cells(column, rows) for column in columns]
    for number, one in enumerate(rows):
        row = []
        for column, texts in zip(columns, shown, strict=True):
            style = column.style(one[column.name]) if column.style else None
            row.append(Text(texts[number], style=style or ""))  # Text: Rich must not read a value as markup
        table.add_row(*row)
    return table


# ----------------------------------------------------------------------------------------------------------------------


__all__ = [
    "Column",
    "as_mapping",
    "cell",
    "cells",
    "head",
    "json_text",
    "outcome_style",
    "plain_lines",
    "print_json",
    "print_rows",
    "print_words",
    "verdict_style",
    "wrapped",
]


def print_rows(
    rows: Sequence[object],
    columns: Sequence[Column],
    *,
    as_json: bool = False,
    title: str | None = None,
    empty: str = "nothing there",
    file: TextIO | None = None,
) -> None:
    """Print dataclasses or mappings. Only people see the title. Without a row, `empty` stands beside a head of columns.

    A pipe gets it on standard error: a head alone looks like a program that was cut off.
    """
    out = file if file is not None else sys.stdout
    if as_json:
        print_json([as_mapping(row) for row in rows], file=out)
    elif not out.isatty():
        out.writelines(plain_lines(rows, columns))
        if not rows and file is None and sys.stderr is not None:
            sys.stderr.write(f"{empty}\n")
    elif not rows:
        out.write(f"{empty}\n")
    else:
        print_fitted(rows, columns, title, out)


def print_words(text: str = "", *, err: bool = False) -> None:
    """Print sentences, one per line. On a terminal they break at words, below the column in which they began."""
    out = sys.stderr if err else sys.stdout
    if out is not None:
        out.write(wrapped(text, out) + "\n")


def wrapped(text: str, out: TextIO | None) -> str:
    """Lines broken at words to the width of a terminal; elsewhere as they are, for whoever searches them."""
    if out is None or not out.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(_broken(line, width) if len(line) > width else line for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    import re
    import textwrap

    column = re.match(r" *(?:\S.{0,24}?\s{2,})?", line)
    indent = column.end() if column is not None else 0
    if indent in {0, len(line) - len(line.lstrip())} or indent > width // 2:
        indent = len(line) - len(line.lstrip()) + 2
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * indent)


def print_json(value: object, *, file: TextIO | None = None) -> None:
    """One JSON document and a line break."""
    out = file if file is not None else sys.stdout
    out.write(json_text(value) + "\n")


def json_text(value: object) -> str:
    """A value as hpcq prints JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=_jsonable)


def plain_lines(rows: Iterable[object], columns: Sequence[Column]) -> Iterable[str]:
    """A head and one line per row, separated by tabs, not aligned; line breaks and tabs within a value become blanks."""
    yield "\t".join(head(column) for column in columns) + "\n"
    for row in rows:
        fields = as_mapping(row)
        yield "\t".join(" ".join(cell(column, fields).split()) for column in columns) + "\n"


def outcome_style(outcome: Any) -> str | None:
    """Colour of the outcome of a result or an attempt; it only repeats the word."""
    if outcome in {"measured", "completed"}:
        return "green"
    return "yellow" if outcome in {"invalid", "not_measured", None} else "red"


def verdict_style(verdict: Any) -> str | None:
    """Colour of a verdict, a direction or a state of a change; it only repeats the word."""
    if verdict in _GOOD:
        return "green"
    return "red" if verdict in _BAD else "yellow" if verdict in _OPEN else None


_GOOD = {"pass", "better", "fixed"}
_BAD = {"failed", "degraded", "worse", "gone"}
_OPEN = {"inconclusive", "not_covered", "open", "changed", "unclear"}


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# ----------------------------------------------------------------------------------------------------------------------
# Files that verbs write: aside, then renamed, so that a concurrent reader sees the whole old file.
#
# What is no regular file (/dev/null, a pipe) is written as it is: a rename would put a file in its place.


#: How the names of files end that SQLite keeps beside a database.
BESIDE_DATABASES = ("-wal", "-shm", "-journal")


def write_out(pieces: Iterable[str | bytes], target: Path | None, what: str = "--to") -> None:
    """Write to a file, or to standard output. Raises UserError for a place that cannot be written.

    what: the option or argument that named the file, for the error.
    """
    if target is None:
        for piece in visible_pieces(pieces):
            sys.stdout.write(piece) if isinstance(piece, str) else sys.stdout.buffer.write(piece)
        return
    _spare_database(target, what)
    special = target.exists() and not target.is_file()
    aside = target if special else target.with_name(f".{target.name}.part")
    try:
        with aside.open("wb") if special else new_file(aside, "xb") as file:
            for piece in visible_pieces(pieces):
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


# ----------------------------------------------------------------------------------------------------------------------
# A history in one line of characters.


_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


def sparkline(values: Sequence[float], unit: str | None) -> str:
    """The values from left to right, the lowest as the lowest bar, and what the two ends mean.

    values: in the order of time, not empty. More values than the line is wide: each bar is the median of its share.
    """
    shares = [values[len(values) * k // _WIDTH : len(values) * (k + 1) // _WIDTH] for k in range(_WIDTH)]
    shown = list(values) if len(values) <= _WIDTH else [sorted(share)[len(share) // 2] for share in shares]
    lowest, highest = min(shown), max(shown)
    span = highest - lowest
    bars = "".join(_BARS[round((one - lowest) / span * (len(_BARS) - 1)) if span else 0] for one in shown)
    return f"{bars}  {units.human(lowest, unit)} to {units.human(highest, unit)}"


# ----------------------------------------------------------------------------------------------------------------------
# Standard output for readers that may be slow, such as a pager, while a database is open.
#
# A reader of results.db keeps its writers from committing. So hpcq waits for nobody while it reads: what standard output
# does not take at once goes into a file without a name, and is written from there after the database is closed.


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
        piece = visible(text).encode()
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


# ----------------------------------------------------------------------------------------------------------------------
# Verbs that may have to read a million results.


_Words = ParamSpec("_Words")
_Answer = TypeVar("_Answer")
#: When a person at a terminal is told that a verb still works, from its start.
TOLD_AFTER_S = (2.0, 10.0, 30.0, 60.0, 120.0, 300.0)


def says_that_it_works(verb: Callable[_Words, _Answer]) -> Callable[_Words, _Answer]:
    """A verb that says on a terminal's standard error that it is still at work, where that takes more than 2 s."""

    @wraps(verb)
    def patient(*words: _Words.args, **named: _Words.kwargs) -> _Answer:
        if not sys.stderr.isatty():
            return without_search(*words, **named)
        done, begun = threading.Event(), time.monotonic()

        def tell() -> None:
            for after_s in TOLD_AFTER_S:
                if done.wait(max(0.0, after_s - (time.monotonic() - begun))):
                    return
                print(f"still at work, since {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)  # noqa: T201

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            return without_search(*words, **named)
        finally:
            done.set()
            teller.join()

    def without_search(*words: _Words.args, **named: _Words.kwargs) -> _Answer:
        """Half a million rows make no circles of objects: Python's search for them costs a seventh of the time."""
        searched = gc.isenabled()
        gc.disable()
        try:
            return verb(*words, **named)
        finally:
            if searched:
                gc.enable()

    return patient

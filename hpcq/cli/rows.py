"""Rows for people and for programs: one description of the columns, three ways to print them.

    print_rows(rows, [Column("client"), Column("median", unit="bps"), ...])
        a terminal    a table; a column with one unit has it in its head
        a pipe        the same without alignment, separated by tabs: for cut and sort
        --json        one JSON array of objects, values in base units, names as in the database

hpcq obeys NO_COLOR, and colour never carries a meaning alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, TextIO

from hpcq import units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Characters between two columns.
_GAP = 3
#: Characters left and right of a table.
_EDGES = 2
#: If a table is too wide, columns of text fold to this width.
_FOLDED = 12
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


def print_rows(
    rows: Sequence[object],
    columns: Sequence[Column],
    *,
    as_json: bool = False,
    title: str | None = None,
    empty: str = "nothing there",
    file: TextIO | None = None,
) -> None:
    """Print dataclasses or mappings. Only people see the title, and `empty` if there is no row."""
    out = file if file is not None else sys.stdout
    if as_json:
        print_json([as_mapping(row) for row in rows], file=out)
    elif not out.isatty():
        out.writelines(plain_lines(rows, columns))
    elif not rows:
        out.write(f"{empty}\n")
    else:
        _print_table(rows, columns, title, out)


def print_json(value: object, *, file: TextIO | None = None) -> None:
    """One JSON document and a line break."""
    out = file if file is not None else sys.stdout
    out.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=_jsonable) + "\n")


def plain_lines(rows: Iterable[object], columns: Sequence[Column]) -> Iterable[str]:
    """A head and one line per row, separated by tabs, not aligned; line breaks and tabs within a value become blanks."""
    yield "\t".join(head(column) for column in columns) + "\n"
    for row in rows:
        fields = as_mapping(row)
        yield "\t".join(" ".join(cell(column, fields).split()) for column in columns) + "\n"


def head(column: Column) -> str:
    """The head of a column: its own, or its name in words. A column of times says that they are UTC."""
    title = column.head if column.head is not None else column.name.replace("_", " ")
    return f"{title} (UTC)" if _unit(column, {}) == "utc" and "utc" not in title.lower() else title


def cell(column: Column, fields: Mapping[str, Any]) -> str:
    """One value as a person reads it; empty for None."""
    value = fields[column.name]
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = _unit(column, fields)
    if unit == "utc" and isinstance(value, str):
        return value[:_UTC_SHOWN].replace("T", " ")
    if isinstance(value, (int, float)):
        return str(value) if unit in {None, "no", "count", "index"} and isinstance(value, int) else units.human(value, unit)
    return str(value)


def _unit(column: Column, fields: Mapping[str, Any]) -> str | None:
    return fields.get(column.unit_field) if column.unit_field else column.unit or units.unit_of(column.name)


def _cells(column: Column, rows: Sequence[Mapping[str, Any]]) -> list[str]:
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
        return asdict(row)
    raise TypeError(f"{type(row).__name__} is neither a dataclass nor a mapping")


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
_OPEN = {"inconclusive", "not_covered", "open", "changed"}


def _print_table(rows: Sequence[object], columns: Sequence[Column], title: str | None, out: TextIO) -> None:
    """Print a table without ever cutting a value off.

    If the terminal is too narrow, in this order: values that are the same in all rows move above them, columns move
    together, long words fold within their column, and at last each row becomes a block of lines.
    """
    from rich.console import Console

    console = Console(file=out, highlight=False)
    fields = [as_mapping(row) for row in rows]
    if _width(fields, columns, _GAP) > console.width and len(rows) > 1:
        same = [one for one in columns if len({cell(one, row) for row in fields}) == 1]
        columns = [one for one in columns if one not in same] or columns
        words = [f"{head(one)} {cell(one, fields[0])}" for one in same if cell(one, fields[0])]
        console.print(", ".join(words), markup=False)
    gap = _GAP if _width(fields, columns, _GAP) <= console.width else 1
    fold = _width(fields, columns, gap) > console.width
    if fold and _width(fields, columns, gap, _FOLDED) > console.width:
        _print_blocks(fields, columns, title, console)
        return
    table = table_of(rows, columns, title, fold=fold)
    if gap == 1:
        table.padding = (0, 0, 0, 0)
    console.print(table, crop=False)


def _print_blocks(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str | None, console: Console) -> None:
    """Print one line per value, with an empty line between rows."""
    from rich.text import Text

    if title:
        console.print(Text(title))
    widest = max(len(head(one)) for one in columns)
    for number, row in enumerate(rows):
        console.print("" if number else None, end="\n" if number else "")
        for one in columns:
            if cell(one, row):
                console.print(Text(f"{head(one):<{widest}} {cell(one, row)}"), overflow="fold")


def _width(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], gap: int, folded: int | None = None) -> int:
    """The fewest characters that a table needs; wrapping columns need a few words. folded: as narrow as text can be."""
    from rich.cells import cell_len

    total = _EDGES + gap * len(columns)
    for one in columns:
        widest = max(cell_len(text) for text in (head(one), *_cells(one, rows)))
        narrow = 24 if folded is None else folded
        total += min(widest, narrow) if one.wrap or (folded is not None and not _numeric(one, rows)) else widest
    return total


def _numeric(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(isinstance(row[column.name], (int, float)) for row in rows)


def table_of(rows: Sequence[object], columns: Sequence[Column], title: str | None = None, *, fold: bool = False) -> Table:
    """The rows as a table for a terminal. fold: text may continue in the next line of its cell."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    fields = [as_mapping(row) for row in rows]
    plain = "NO_COLOR" in os.environ
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="" if plain else None)
    for column in columns:
        numeric = _numeric(column, fields)
        justify = "right" if numeric else "left"
        whole = not column.wrap and (numeric or not fold)
        table.add_column(head(column), justify=justify, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    shown = [_cells(column, fields) for column in columns]
    for number, one in enumerate(fields):
        cells = []
        for column, texts in zip(columns, shown, strict=True):
            style = column.style(one[column.name]) if column.style else None
            cells.append(Text(texts[number], style=style or ""))  # Text: Rich must not read a value as markup
        table.add_row(*cells)
    return table


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")

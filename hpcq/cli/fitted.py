"""Tables for terminals of any width: never a value cut off, no line longer than the terminal.

If the terminal is too narrow, in this order: values that are the same in all rows move above them, columns move
together, long words fold within their column, and at last each row becomes a block of lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.text import Text

from hpcq.cli.columns import Column, as_mapping, cell, cells, head

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Characters between two columns.
_GAP = 3
#: Characters left and right of a table.
_EDGES = 2
#: If a table is too wide, columns of text fold to this width.
_FOLDED = 12


def print_fitted(rows: Sequence[object], columns: Sequence[Column], title: str | None, out: TextIO) -> None:
    """Print rows as a table to a terminal."""
    from rich.console import Console

    console = Console(file=out, highlight=False)
    for part in fitted(rows, columns, title, width=console.width):
        console.print(part, crop=False)


def fitted(rows: Sequence[object], columns: Sequence[Column], title: str | None, *, width: int) -> Iterator[RenderableType]:
    """What Rich has to print, from top to bottom. width: of the terminal, in characters."""
    fields = [as_mapping(row) for row in rows]
    if _width(fields, columns, _GAP) > width and len(rows) > 1:
        same = [one for one in columns if len({cell(one, row) for row in fields}) == 1]
        columns = [one for one in columns if one not in same] or columns
        words = [f"{head(one)} {cell(one, fields[0])}" for one in same if cell(one, fields[0])]
        yield Text(", ".join(words))
    gap = _GAP if _width(fields, columns, _GAP) <= width else 1
    fold = _width(fields, columns, gap) > width
    if fold and _width(fields, columns, gap, _FOLDED) > width:
        yield from _blocks(fields, columns, title)
        return
    table = _table(fields, columns, title, fold=fold)
    if gap == 1:
        table.padding = (0, 0, 0, 0)
    yield table


def _blocks(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str | None) -> Iterator[Text]:
    """One line per value, with an empty line between rows."""
    if title:
        yield Text(title)
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

    plain = "NO_COLOR" in os.environ
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, header_style="" if plain else None)
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

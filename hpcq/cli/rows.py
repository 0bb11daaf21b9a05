"""Rows for people and for programs: one description of the columns, three ways to print them.

    print_rows(rows, [Column("client"), Column("median", unit="bps"), ...])
        a terminal    a table; a column with one unit has it in its head
        a pipe        the same without alignment, separated by tabs: for cut and sort
        --json        one JSON array of objects, values in base units, names as in the database

hpcq obeys NO_COLOR, and colour never carries a meaning alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, TextIO

from hpcq import units

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
        from hpcq.cli.fitted import print_fitted

        print_fitted(rows, columns, title, out)


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
_OPEN = {"inconclusive", "not_covered", "open", "changed", "unclear"}


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")

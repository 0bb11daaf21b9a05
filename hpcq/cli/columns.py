"""What a column of a table is, and how each of its values reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

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
        return {name: getattr(row, name) for name in row.__dataclass_fields__}  # asdict would copy each value
    raise TypeError(f"{type(row).__name__} is neither a dataclass nor a mapping")

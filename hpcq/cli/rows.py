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
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO

from hpcq.cli.columns import Column, as_mapping, cell, cells, head

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
    "verdict_style",
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
        from hpcq.cli.fitted import print_fitted

        print_fitted(rows, columns, title, out)


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

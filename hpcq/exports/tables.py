"""CSV and JSON lines: one row per result and metric."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpcq.exports.collect import COLUMNS

#: Spreadsheets run a cell that begins with one of these. Names or messages from elsewhere must not run.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A head, then one line per row, as in RFC 4180. Text that a spreadsheet would run gets a leading quote."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in COLUMNS])
        if buffer.tell() > 1 << 16:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def json_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON object per row; `parameters` is an object, not a text."""
    for row in rows:
        whole = {**row, "parameters": json.loads(row["parameters"])}
        yield json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value

"""JUBE: the result tables that `jube result` writes, in each of its styles: csv, pretty, aligned.

A column with a unit in its head (bw[MB/s]) is a metric, and so is one that --better names. Columns named as roles (client,
server, message_bytes, ...), or that --column gives a role, say where and when; the others are parameters of the test. The
time is jube_benchmark_start unless --column says otherwise; other jube_ columns count for nothing.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpcq.errors import UserError
from hpcq.imports.others import ROLES, Maker, files_in, made, typed
from hpcq.imports.values import Problems, Source, Value, read_bytes

SUFFIXES = (".dat", ".csv")
_UNIT = re.compile(r"(.+?)\s*\[([^\[\]]*)\]")
_START = "jube_benchmark_start"


def read(paths: Sequence[Path], maker: Maker, problems: Problems) -> Iterator[Source]:
    """The values in these tables, and in those below folders. Raises UserError for a file that is no such table."""
    for path in files_in(paths, SUFFIXES):
        content, digest = read_bytes(path)
        yield Source(str(path), digest, _values(path, content.decode("utf-8", "replace"), maker, problems))


def _values(path: Path, text: str, maker: Maker, problems: Problems) -> Iterator[Value]:
    rows = list(_rows(text))
    if not rows:
        raise UserError(f"{path}: is empty: must be a table of JUBE")
    first, names = rows[0]
    said = maker.roles(path)
    columns = {role: maker.meaning.columns.get(role, role) for role in ROLES}
    if "time" not in maker.meaning.columns and "time" not in names:
        columns["time"] = _START
    _check(path, first, names, columns, said)
    title = text.split("\n", 1)[0].rstrip(": \r") if text.split("\n", 1)[0].rstrip().endswith(":") else ""
    test = said.get("test") or title or path.stem
    for line, cells in rows[1:]:
        if len(cells) != len(names):
            problems.add(str(path), line, f"{len(cells)} cells: must be {len(names)}, as in the head")
            continue
        row = dict(zip(names, cells, strict=True))
        told = {role: row[column] for role, column in columns.items() if row.get(column)} | said
        named = {*columns.values(), maker.meaning.columns.get("nodes")}
        rest = {name: cell for name, cell in row.items() if name not in named and not name.startswith("jube_")}
        try:
            yield from _of_row(line, {"test": test, **told}, rest, maker)
        except ValueError as error:
            problems.add(str(path), line, str(error))


def _of_row(line: int, told: Mapping[str, str], rest: Mapping[str, str], maker: Maker) -> Iterator[Value]:
    metrics: dict[str, tuple[str, str]] = {}
    parameters: dict[str, int | str] = {}
    for column, cell in rest.items():
        found = _UNIT.fullmatch(column)
        name, unit = (found[1], found[2]) if found else (column, "")
        if found or name in maker.meaning.better:
            metrics[name] = (cell, unit)
        elif re.fullmatch(r"-?\d*\.\d+(?:[eE][-+]?\d+)?", cell):
            raise ValueError(f"column {column}: {cell}: has no unit in its head: --better '{column}=higher' makes it a metric")
        else:
            parameters[name] = typed(cell)
    if told.get("message_bytes"):
        parameters["message_bytes"] = typed(told["message_bytes"])
    for role in ("time", "client"):
        if not told.get(role):
            raise ValueError(f"{role}: '': must be what every row must say")
    client, server = maker.nodes([told["client"], *([told["server"]] if told.get("server") else [])])
    time_utc = maker.utc(told["time"])
    where = {
        "time_utc": time_utc,
        "run": maker.run(told, time_utc),
        "job": told.get("job", ""),
        "test": maker.test(told["test"], parameters),
        "client": client,
        "server": server,
        "repetition_no": int(told["repetition"]) if told.get("repetition", "").isdecimal() else None,
    }
    for name, (cell, unit) in metrics.items():
        if not cell:
            yield made(line, where, None, None, f"{name}: the table has no value")
            continue
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"column {name}: {cell!r}: must be a number")
        metric, factor = maker.metric(name, unit)
        yield made(line, where, metric, value * factor, None)


def _check(path: Path, line: int, names: Sequence[str], columns: Mapping[str, str], said: Mapping[str, str]) -> None:
    for role in ("time", "client"):
        if columns[role] not in names and role not in said:
            hint = f"--column {role}=NAME names the column that has it, --names the part of the path"
            raise UserError(f"{path}:{line}: {role}: no column {columns[role]}: there are {', '.join(names)}", hint)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with its line: between bars, or between commas; lines of dashes and a title are no rows."""
    lines = text.splitlines()
    is_pretty = any(line.startswith("|") for line in lines)
    for number, line in enumerate(lines, start=1):
        if is_pretty:
            if line.startswith("|") and not re.fullmatch(r"[|:\s-]+", line):
                yield number, [cell.strip() for cell in line.strip().strip("|").split("|")]
        elif line.strip():
            yield number, [cell.strip() for cell in next(csv.reader([line]))]

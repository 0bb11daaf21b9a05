"""The CSV of values: time,run,test,client,server,metric,value,unit,better, and optional columns; and that of facts.

Each cell is checked. A row with a problem is told by file, line and column, and then nothing of the file counts.
"""

from __future__ import annotations

import bisect
import csv
import io
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq import nodelist
from hpcq.definition.find import kernels_named
from hpcq.errors import UserError
from hpcq.imports.values import (
    ImportedTest,
    MetricName,
    Problems,
    Source,
    Value,
    metric_of,
    name_of,
    read_bytes,
    remembered,
    test_of,
    utc_of,
)
from hpcq.kernels import unknown_name

REQUIRED = ("time", "run", "test", "client", "server", "metric", "value", "unit", "better")
OPTIONAL = ("job", "repetition", "outcome", "reason", "message_bytes")
#: What a row may say of its measurement.
OUTCOMES = ("measured", "failed", "invalid")
#: What SQLite holds in an integer, and more than any size or count.
_WHOLE_MAX = 2**53
#: The usual form of times, 2026-11-20T02:00:00Z, and the seconds that they may have.
_WHOLE_SECONDS = len("2026-11-20T02:00:00Z")
_SECONDS = frozenset(f"{second:02d}" for second in range(60))
_NO_REASON = "the imported file gives no reason"
FACT_COLUMNS = ("node", "time", "fact", "value")
#: Facts stand in parts, by the first word of their names: nic.eth0.speed_bps is of the part nic.
Parts = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All facts of one node since each moment at which one changed; the moments go up."""

    since_utc: tuple[str, ...]
    parts: tuple[Parts, ...]

    def index_at(self, time_utc: str) -> int:
        """Which of `parts` held then; -1 before the first."""
        return bisect.bisect_right(self.since_utc, time_utc) - 1


def read_table(path: Path, problems: Problems) -> Source:
    """The values of a CSV file. Raises UserError if it is no such file; problems of its rows go to `problems`."""
    content, digest = read_bytes(path)
    return Source(str(path), digest, _values(str(path), content, problems))


def csv_lines(path: str, content: bytes, required: tuple[str, ...], optional: tuple[str, ...]) -> Iterator[list[str]]:
    """The head of a CSV, then its rows; a blank line is an empty row, so that the place in the file is known.

    Raises UserError if the head is not one of these columns, or for bytes that are not text.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x} is not UTF-8: must be CSV text"
        raise UserError(f"{path}:{line}: {found}", f"its columns are {','.join(required)}") from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names = [cell.strip() for cell in next(rows, [])]
        _check_head(path, names, required, optional)
        yield names
        yield from rows
    except csv.Error as error:
        raise UserError(f"{path}:{rows.line_num}: not CSV: {error}", "a cell with quotes or commas stands in quotes") from None


def _check_head(path: str, names: list[str], required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    allowed = [*required, *optional]
    shown = f"its first line is {','.join(required)}" + (f"; it may have {', '.join(optional)} too" if optional else "")
    for name in names:
        if name not in allowed:
            message, hint = unknown_name("column", name, allowed)
            raise UserError(f"{path}:1: {message}", hint)
        if names.count(name) > 1:
            raise UserError(f"{path}:1: column {name}: stands twice: must stand there once", shown)
    missing = [name for name in required if name not in names]
    if missing:
        raise UserError(f"{path}:1: column {missing[0]}: missing: it is required", shown)


def _values(path: str, content: bytes, problems: Problems) -> Iterator[Value]:
    rows = csv_lines(path, content, REQUIRED, OPTIONAL)
    names = next(rows)
    width = len(names)
    at = [names.index(name) if name in names else width for name in (*REQUIRED, *OPTIONAL)]
    cells = _Cells()
    is_empty = True
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        is_empty = False
        if len(row) != width:
            problems.add(path, line, f"{len(row)} cells: must be {width}, as in the first line")
            continue
        row.append("")
        try:
            yield cells.value(line, [row[place].strip() for place in at])
        except ValueError as error:
            problems.add(path, line, f"column {error}")
    if is_empty:
        raise UserError(f"{path}: no row: must be one row per value", f"its columns are {','.join(REQUIRED)}")


class _Cells:
    """Reads the cells of rows. What is in many rows is checked once: names, nodes, and what was measured."""

    def __init__(self) -> None:
        self._moment = remembered(lambda text: _in("time", utc_of, text))
        self._run = remembered(lambda text: _in("run", name_of, text))
        self._job = remembered(lambda text: _in("job", name_of, text) if text else "")
        self._nodes = remembered(_nodes)
        self._what = remembered(_what)

    def value(self, line: int, row: list[str]) -> Value:
        """One row, its cells without blanks around them. Raises ValueError `COLUMN: FOUND: ALLOWED`."""
        time, run, test, client, server, metric, value, unit, better, job, repetition, outcome, reason, size = row
        time_utc = self._time(time)
        client, server = self._nodes(client, server)
        of_test, told, outcome = self._what(test, size, metric, unit, better, outcome)
        return Value(
            line,
            time_utc,
            self._run(run),
            self._job(job),
            of_test,
            client,
            server,
            _whole("repetition", repetition, 1) if repetition else None,
            outcome,
            None if outcome == "measured" else reason or _NO_REASON,
            told,
            None if told is None else _number(value),
        )

    def _time(self, text: str) -> str:
        """A time by its minute, which many rows share, and its seconds; other forms are read whole."""
        if len(text) == _WHOLE_SECONDS and text[-1] == "Z" and text[16] == ":" and text[17:19] in _SECONDS:
            with suppress(ValueError):  # which is said of the whole text below
                return f"{self._moment(text[:16] + 'Z')[:17]}{text[17:19]}.000000Z"
        return str(self._moment(text))


def _what(*cells: str) -> tuple[ImportedTest, MetricName | None, str]:
    """What a row measured, and how that ended. Of what was not measured, the metric is checked where there is one."""
    test, size, metric, unit, better, outcome = cells
    of_test = _test(test, size)
    outcome = outcome or "measured"
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome: {outcome!r}: must be one of {', '.join(OUTCOMES)}")
    measured = outcome == "measured"
    told = metric_of(kernels_named({test}).get(test), metric, unit, better) if measured or metric else None
    return of_test, told if measured else None, outcome


def _in(column: str, read: object, text: str) -> str:
    try:
        return read(text)  # type: ignore[operator,no-any-return]
    except ValueError as error:
        raise ValueError(f"{column}: {error}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"value: {text!r}: must be a finite number, in the unit of its row")
    return value


def _whole(column: str, text: str, least: int) -> int:
    if text.isascii() and text.isdecimal() and least <= int(text) <= _WHOLE_MAX:
        return int(text)
    raise ValueError(f"{column}: {text!r}: must be a whole number from {least}")


def _nodes(client: str, server: str) -> tuple[str, str]:
    """Both ends; a node alone is its own server, as everywhere in hpcq."""
    if not nodelist.is_node_name(client):
        raise ValueError(f"client: {client!r}: must be one node's name, letters, digits and ._-")
    if server and not nodelist.is_node_name(server):
        try:
            nodelist.expand(server)
        except ValueError as error:
            raise ValueError(f"server: {error}; or nothing, for a node alone") from None
    return client, server or client


def _test(name: str, size: str) -> ImportedTest:
    _in("test", name_of, name)
    parameters = {"message_bytes": _whole("message_bytes", size, 0)} if size else {}
    try:
        return test_of(kernels_named({name}).get(name), name, parameters)
    except ValueError as error:
        raise ValueError(f"message_bytes: {error}") from None


def read_facts(path: Path, problems: Problems) -> Mapping[str, NodeFacts]:
    """The facts of each node in a file. Raises UserError if it is no such file; problems of rows go to `problems`."""
    content, _ = read_bytes(path)
    rows = csv_lines(str(path), content, FACT_COLUMNS, ())
    names = next(rows)
    at = [names.index(name) for name in FACT_COLUMNS]
    utc = remembered(utc_of)
    found: dict[str, dict[tuple[str, str], tuple[str, int]]] = {}
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(FACT_COLUMNS):
            problems.add(str(path), line, f"{len(row)} cells: must be {len(FACT_COLUMNS)}: {','.join(FACT_COLUMNS)}")
            continue
        node, time, fact, value = (row[place].strip() for place in at)
        try:
            time_utc = utc(time)
        except ValueError as error:
            problems.add(str(path), line, f"column time: {error}")
            continue
        part, _, rest = fact.partition(".")
        if not nodelist.is_node_name(node):
            problems.add(str(path), line, f"column node: {node!r}: must be one node's name")
        elif not (part and rest):
            problems.add(str(path), line, f"column fact: {fact!r}: must be a name with a point, like nic.eth0.speed_bps")
        else:
            known = found.setdefault(node, {}).setdefault((time_utc, fact), (value, line))
            if known[0] != value:
                problems.add(str(path), line, f"column value: {value!r}: line {known[1]} says {known[0]!r} at the same time")
    return {node: _history(rows_of) for node, rows_of in found.items()}


def _history(rows: Mapping[tuple[str, str], tuple[str, int]]) -> NodeFacts:
    since: list[str] = []
    states: list[Parts] = []
    now: Parts = {}
    for (time_utc, fact), (value, _) in sorted(rows.items(), key=lambda one: one[0]):
        part, _, rest = fact.partition(".")
        now = {**now, part: {**now.get(part, {}), rest: _value(value)}}
        if since and since[-1] == time_utc:
            states[-1] = now
        else:
            since.append(time_utc)
            states.append(now)
    return NodeFacts(tuple(since), tuple(states))


def _value(text: str) -> int | float | str:
    """A number as one, so that a speed can be compared; 1e400 and 007 stay text."""
    if text.isascii() and text.isdecimal() and str(int(text)) == text:
        return int(text) if int(text) < 2**63 else text
    try:
        number = float(text)
    except ValueError:
        return text
    return number if abs(number) < float("inf") and text[:1].isdigit() else text

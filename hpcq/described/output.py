"""Read the output of a foreign program into metrics, as its description says. Pure.

text --read_output--> one row (size None), or one row per size of its table

Anything unexpected is an UnreadableError, which becomes the reason of a row: a number comes only from output that is
exactly as described. Lines between the rows of a table that are no rows are warnings of the program.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcq.described.cpu_limit import cpu_limit
from hpcq.described.numbers import UnreadableError, read_number, shown
from hpcq.described_kernel import Described, Reading, Table

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_WARNINGS_MAX = 5
#: CPU time for one output of at most 4 MiB: a thousand times what the delivered descriptions take.
_READ_S = 5.0
#: What would make a number that ends or begins here a part of a longer one: 12 of 12.5, 5 of 12.5, 3 of -3.
_GOES_ON = re.compile(r"\d|[.,]\d|[eE][-+]?\d", re.ASCII)
_WENT_BEFORE = re.compile(r"[\d.]\Z|\d,\Z|(?:\A|[\s=:(\[])[-+]\Z", re.ASCII)
#: The same where commas separate fields.
_GOES_ON_IN_FIELD = re.compile(r"\d|\.\d|[eE][-+]?\d", re.ASCII)
_WENT_BEFORE_IN_FIELD = re.compile(r"[\d.]\Z|(?:\A|[\s=:(\[,])[-+]\Z", re.ASCII)


@dataclass(slots=True)
class Read:
    """What was read: metrics by size (None: the program has no sizes), complaints by size, and what it said besides."""

    metrics: dict[int | None, dict[str, float]] = field(default_factory=dict)
    complaints: dict[int | None, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


def read_output(described: Described, text: str, sizes: Sequence[int] = ()) -> Read:
    """The metrics in `text`. sizes: what the table must hold, each once. Raises UnreadableError if nothing can be read."""
    try:
        with cpu_limit(_READ_S):
            return _read(described, text, sizes)
    except TimeoutError:
        raise UnreadableError(f"output: its regular expressions take more than {_READ_S:g} s: allowed is less") from None


def _read(described: Described, text: str, sizes: Sequence[int]) -> Read:
    if not text.strip():
        raise UnreadableError("output: nothing: allowed is what the description reads")
    if not (text.endswith("\n") or all(one.json for one in described.readings)):
        raise UnreadableError("output: ends within a line: allowed are whole lines")
    found = Read()
    rows: Mapping[int | None, Sequence[str]] = {None: ()}
    if described.table is not None:
        rows = _rows(described, described.table, text, sizes, found)
    parsed = _json(text, found) if any(one.json for one in described.readings) else None
    for size, cells in rows.items():
        try:
            found.metrics[size] = _metrics(described, text, parsed, cells)
        except UnreadableError as error:
            found.complaints[size] = str(error)
    return found


def _metrics(described: Described, text: str, parsed: Any, cells: Sequence[str]) -> dict[str, float]:
    metrics = {}
    for one in described.readings:
        number = _reading(described, one, text, parsed, cells)
        if number is None:
            continue
        value = number * one.times + 0.0  # -0 is 0
        low = one.minimum is not None and value < one.minimum
        if low or (one.maximum is not None and value > one.maximum):
            bound = f"{one.minimum:g} or more" if low else f"at most {one.maximum:g}"
            raise UnreadableError(f"{one.metric}: {value:g}: allowed is {bound}")
        if not math.isfinite(value):
            raise UnreadableError(f"{one.metric}: {value}: allowed is a finite number")
        metrics[one.metric] = value
    return metrics


def _reading(described: Described, one: Reading, text: str, parsed: Any, cells: Sequence[str]) -> float | None:
    if one.json is not None:
        return _json_value(one, parsed)
    if one.column is not None:
        assert described.table is not None  # noqa: S101 - the reader of descriptions has checked it
        return read_number(cells[described.table.columns.index(one.column)], one.metric)
    assert one.regex is not None  # noqa: S101 - likewise
    return _regex_value(one, text)


def _regex_value(one: Reading, text: str) -> float | None:
    matches = list(re.finditer(one.regex or "", text, re.MULTILINE))
    if not matches and not one.required:
        return None
    if len(matches) != 1:
        raise UnreadableError(f"{one.metric}: {one.regex} matches {len(matches)} times: allowed is once")
    number = _whole_number(one, text, matches[0])
    if not one.units:
        return number
    factors = dict(one.units)
    if matches[0][2] not in factors:
        raise UnreadableError(f"{one.metric}: unit {shown(matches[0][2])}: allowed are {', '.join(factors)}")
    return number * factors[matches[0][2]]


def _whole_number(one: Reading, text: str, match: re.Match[str]) -> float:
    """The number of the first group. `rate = (\\d+)` in `rate = 12.5` is not 12."""
    number = read_number(match[1] or "", one.metric)
    before, after = text[max(0, match.start(1) - 2) : match.start(1)], text[match.end(1) : match.end(1) + 3]
    goes_on, went_before = _GOES_ON, _WENT_BEFORE
    if one.comma_separates:
        goes_on, went_before = _GOES_ON_IN_FIELD, _WENT_BEFORE_IN_FIELD
    if goes_on.match(after) or went_before.search(before):
        around = f"{before}{match[1]}{after}".strip()
        raise UnreadableError(f"{one.metric}: {one.regex} reads {match[1]} of {shown(around)}: allowed is a whole number of it")
    return number


def _json(text: str, found: Read) -> Any:
    """The one JSON object of the output. Lines before it are what the program said besides."""
    start = text.find("{") if text.lstrip().startswith("{") else text.find("\n{") + 1
    if start <= 0 and not text.lstrip().startswith("{"):
        raise UnreadableError("output: no line begins with {: allowed is one JSON object")
    _say(found, text[:start].splitlines())
    try:
        return json.loads(text[start:], parse_constant=_refuse_constant, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"output: not JSON: {error.msg} at line {error.lineno}: allowed is one JSON object") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise UnreadableError(f"output: {what}: allowed is one JSON object of usual size") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once: of two values of one name nobody knows which one is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnreadableError(f"output: the key {shown(twice)} stands twice in one object: allowed is once")
    return found


def _refuse_constant(word: str) -> float:
    raise UnreadableError(f"output: {word}: allowed are finite numbers")


def is_path(text: str) -> bool:
    """Whether a text leads through JSON: end.streams[0].rtt."""
    return re.fullmatch(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*", text) is not None


def _json_value(one: Reading, parsed: Any) -> float | None:
    value = parsed
    for name, index in _STEP.findall(one.json or ""):
        inside = value.get(name) if name and isinstance(value, dict) else None
        if index and isinstance(value, list) and int(index) < len(value):
            inside = value[int(index)]
        value = inside
        if value is None:
            break
    if value is None and not one.required:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableError(f"{one.metric}: {one.json} is {shown(value)}: allowed is a number")
    try:
        return float(value)
    except OverflowError:
        raise UnreadableError(f"{one.metric}: {one.json} is {shown(value)}: allowed is a finite number") from None


def _rows(described: Described, table: Table, text: str, sizes: Sequence[int], found: Read) -> dict[int | None, Sequence[str]]:
    lines = text.replace("\r\n", "\n").split("\n")  # and not at other characters that Python takes for line ends
    heads = [-1] if table.head is None else [no for no, line in enumerate(lines) if re.search(table.head, line)]
    if len(heads) != 1:
        raise UnreadableError(f"table: {len(heads)} lines match {table.head}: allowed is one")
    rows: list[list[str]] = []
    for line in lines[heads[0] + 1 :]:
        if table.end is not None and re.search(table.end, line):
            break
        cells = line.split()
        if len(cells) == len(table.columns) and re.match(r"[-+.\d]", cells[0]):
            rows.append(cells)
        elif cells:
            _say(found, [line])
    return _by_size(described, table, rows, sizes)


def _by_size(
    described: Described, table: Table, rows: Sequence[Sequence[str]], sizes: Sequence[int]
) -> dict[int | None, Sequence[str]]:
    if described.sizes is None:
        if len(rows) != 1:
            raise UnreadableError(f"table: {len(rows)} rows: allowed is exactly 1")
        return {None: rows[0]}
    if len(rows) != len(sizes):
        raise UnreadableError(f"table: {len(rows)} rows: allowed are exactly {len(sizes)}")
    place = table.columns.index(described.sizes.option)
    by_size: dict[int | None, Sequence[str]] = {}
    for row, size in zip(rows, sizes, strict=True):
        if read_number(row[place], described.sizes.option) != size:
            raise UnreadableError(f"table: size {shown(row[place])}: allowed here is {size}")
        by_size[size] = row
    return by_size


def _say(found: Read, lines: Sequence[str]) -> None:
    for line in lines:
        if line.strip() and len(found.said) < _WARNINGS_MAX:
            found.said.append(line.strip()[:300])

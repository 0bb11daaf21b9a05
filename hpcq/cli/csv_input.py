"""Read CSV files from other tools: series in columns, results of pairs, groups of nodes. Errors name the place.

A message reads `file:line: column: found: allowed`. The separator is a comma, or a semicolon or tab if the first line
has those and no comma. An empty cell and the words of MISSING are missing values.
"""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import io
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcq.errors import DATABASE_HEAD, UserError
from hpcq.units import count_of

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "--", "?"})
PAIR_COLUMNS = ("round", "node_a", "node_b", "value")
GROUP_COLUMNS = ("node", "group")
_TIMES = frozenset({"time", "date", "timestamp", "utc"})
#: Columns of these names tell series apart, also where nodes have numbers for names.
_LABELS = frozenset({"cluster", "node", "host", "hostname", "client", "server", "partner", "rack", "leaf", "switch", "test"})


@dataclass(frozen=True, slots=True)
class Series:
    """One series, in time order; nan for a missing value. column: where its values stand. lines: the file's, per value.

    times: in UTC, per value; empty when the file has none.
    """

    name: str
    column: str
    values: list[float]
    lines: list[int]
    times: list[dt.datetime]


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """The series of a file, in the order of its columns, or in which its groups first appear."""

    file: str
    series: list[Series]


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    cells: list[str]


def read_series(file: str, time: str | None = None, values: Sequence[str] = (), by: Sequence[str] = ()) -> SeriesTable:
    """Read a CSV with one series per column and an optional header; `-` is standard input.

    time: the column of times; rows are then sorted by it. None: a column called time, date, timestamp or utc that begins
    with a moment, or the only column that holds nothing but moments in words, if there is one. values: the columns of
    values, if not all. by: the columns whose texts tell one series from another. These need a header.
    """
    name, rows = _read_rows(file, keep_blank_lines=True, decimal_commas=True)
    while rows and not any(rows[-1].cells):
        rows.pop()
    time = time or _times_by_name(rows)
    named = bool(time or values or by)
    header = ([*rows[0].cells] if named else _series_header(name, rows[0])) if rows else None
    data = rows[1:] if header else rows
    if not data:
        raise UserError(f"{name}:1: rows: none: at least one row of numbers", "one series per column, one value per line")
    if named:
        data = [row for row in data if any(row.cells)]
    width = len(rows[0].cells)
    for row in data:
        cells = row.cells or [""]
        if len(cells) != width:
            raise UserError(
                f"{name}:{row.line}: row: {count_of(len(cells), 'cell')}: {width} are needed, like line {rows[0].line}"
            )
    titles = header or [f"column_{i + 1}" for i in range(width)]
    if named:
        _refuse_twins(name, rows[0].line, titles)
    at = None if time is None else _place(name, rows[0].line, titles, time)
    keys = [_place(name, rows[0].line, titles, one) for one in by]
    chosen = [_place(name, rows[0].line, titles, one) for one in values]
    if not chosen:
        chosen = [i for i in range(width) if i != at and i not in keys]
        _refuse_labels(name, data, titles, chosen)
    if not chosen:
        raise UserError(f"{name}:{rows[0].line}: header: no column is left for values: {', '.join(titles)}")
    moments = {} if at is None else {row.line: _moment(name, row.line, titles[at], row.cells[at]) for row in data}
    if moments:
        data = sorted(data, key=lambda row: moments[row.line])
    if named:
        _refuse_mixed(name, data, titles, chosen=chosen, at=at, keys=keys, moments=moments)
    return SeriesTable(name, _series(name, data, titles, chosen=chosen, keys=keys, moments=moments, named=bool(values)))


def _times_by_name(rows: Sequence[_Row]) -> str | None:
    filled = [row.cells for row in rows if any(row.cells)]
    if len(filled) < 2 or len(filled[0]) != len(filled[1]):
        return None
    titles, first = filled[:2]
    named = [
        title
        for title, cell in zip(titles, first, strict=True)
        if title.casefold() in _TIMES and cell and _may_be_moment(title, cell, rows)
    ]
    if not named:
        dates = [i for i, title in enumerate(titles) if not _is_date(title)]
        named = [titles[i] for i in dates if all(len(cells) > i and _is_date(cells[i]) for cells in filled[1:])]
    return named[0] if len(named) == 1 else None


def _refuse_labels(name: str, data: Sequence[_Row], titles: Sequence[str], chosen: Sequence[int]) -> None:
    """Columns of words are no values: say which they are, and what to type."""
    words = [i for i in chosen if titles[i].casefold() in _LABELS or all(_is_word(row.cells[i]) for row in data)]
    if words and len(words) < len(chosen):
        first = words[0]
        message = f"{name}:{data[0].line}: {titles[first]}: {data[0].cells[first]!r}: a finite number, or a column for --by"
        times = " (--time, if it holds times)" if len(words) == 1 else ""
        raise UserError(message, f"{_by(titles, words)} makes a series of each{times}; --value names the columns of values")


def _refuse_mixed(
    name: str,
    data: Sequence[_Row],
    titles: Sequence[str],
    *,
    chosen: Sequence[int],
    at: int | None,
    keys: Sequence[int],
    moments: dict[int, dt.datetime],
) -> None:
    """Rows of several nodes in one series hide the slow one: refuse them where columns that nobody named tell them apart.

    Such a column has different words, or labels, in most rows of one moment.
    """
    together: dict[tuple[object, ...], list[_Row]] = {}
    for row in data if moments else ():
        together.setdefault((moments[row.line], *(row.cells[i] for i in keys)), []).append(row)
    several = [rows for rows in together.values() if len(rows) > 1]
    left = [i for i in range(len(titles)) if i != at and i not in keys and i not in chosen]
    left = [i for i in left if titles[i].casefold() in _LABELS or any(_is_word(row.cells[i]) for row in data)]
    apart = {i: [rows for rows in several if len({row.cells[i] for row in rows}) > 1] for i in left}
    mixed = [i for i in left if apart[i] and 2 * len(apart[i]) > len(several)]
    if mixed:
        i = mixed[0]
        one = apart[i][0][0]
        other = next(row for row in apart[i][0] if row.cells[i] != one.cells[i])
        raise UserError(
            f"{name}:{other.line}: {titles[i]}: {other.cells[i]!r}, and {one.cells[i]!r} at the same time in line {one.line}: "
            "one series, or a column for --by",
            f"{_by(titles, mixed)} makes a series of each",
        )


def _by(titles: Sequence[str], columns: Sequence[int]) -> str:
    return " ".join(f"--by {shlex.quote(titles[i])}" for i in columns)


def _is_word(cell: str) -> bool:
    """Whether a cell is a label: no number, none with a unit or with separators, and not missing."""
    number = cell.replace(",", "").partition(" ")[0]
    return cell.lower() not in MISSING and not _is_number(number)


def _is_date(cell: str) -> bool:
    return not _is_number(cell) and _as_moment(cell) is not None


def _may_be_moment(title: str, cell: str, rows: Sequence[_Row]) -> bool:
    """Words, or a number of seconds or milliseconds since 1970, from 2001 on.

    What is called time may be run times in ns, which are as large: these are in no order.
    """
    if not _is_number(cell):
        return True
    place = [one.strip() for one in next(row.cells for row in rows if any(row.cells))].index(title.strip())
    cells = [row.cells[place] for row in rows[1:] if len(row.cells) > place and row.cells[place]]
    numbers = [float(one) for one in cells if _is_number(one)]
    moments = len(numbers) == len(cells) and all(1e9 <= one < 1e13 for one in numbers)
    return moments and (title.strip().casefold() != "time" or sorted(numbers) in (numbers, numbers[::-1]))


def _series(
    name: str,
    data: list[_Row],
    titles: Sequence[str],
    *,
    chosen: list[int],
    keys: list[int],
    moments: dict[int, dt.datetime],
    named: bool,
) -> list[Series]:
    found: dict[tuple[str, ...], Series] = {}
    for row in data:
        cells = row.cells or [""]
        group = tuple(cells[i] for i in keys)
        for column in chosen:
            key = (*group, titles[column])
            if key not in found:
                label = " ".join(group if group and len(chosen) == 1 else key)
                found[key] = Series(label, titles[column], [], [], [])
            series = found[key]
            series.values.append(_number(name, row.line, titles[column], cells[column], named=named))
            series.lines.append(row.line)
            if moments:
                series.times.append(moments[row.line])
    return list(found.values())


def _refuse_twins(name: str, line: int, titles: Sequence[str]) -> None:
    for i, title in enumerate(titles):
        if title in titles[:i]:
            raise UserError(f"{name}:{line}: header: {title!r} twice: a name for each series")


def _place(name: str, line: int, titles: Sequence[str], wanted: str) -> int:
    """The position of a column; capitals do not matter."""
    if wanted in titles:
        return titles.index(wanted)
    near = [i for i, title in enumerate(titles) if title.casefold() == wanted.casefold()]
    if len(near) == 1:
        return near[0]
    raise UserError(f"{name}:{line}: header: no column {wanted!r}: {', '.join(titles)}")


_TIME_FORMS = tuple(
    f"{day}{time}" for day in ("%Y.%m.%d", "%Y/%m/%d", "%d.%m.%Y") for time in (" %H:%M:%S %z", " %H:%M:%S", " %H:%M", "")
)


def _as_moment(cell: str) -> dt.datetime | None:
    found: dt.datetime | None = None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        found = _since_1970(float(cell)) if _is_number(cell) else dt.datetime.fromisoformat(cell)
    for form in _TIME_FORMS:
        if found is None:
            with contextlib.suppress(ValueError):
                found = dt.datetime.strptime(cell, form)
    return found


def _moment(name: str, line: int, title: str, cell: str) -> dt.datetime:
    """A time as ISO 8601, as 2026.11.24 03:00:00 +0100, as 24.11.2026, or as (milli)seconds since 1970; without a zone: UTC."""
    found = _as_moment(cell)
    if found is None:
        hint = "of 01/02/2026 nobody knows which is the month" if cell.count("/") == 2 else None
        raise UserError(
            f"{name}:{line}: {title}: {cell!r}: a time such as 2026-11-24, 2026-11-24T03:00:00Z or 1795489200", hint
        )
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _since_1970(number: float) -> dt.datetime:
    """Seconds, or milliseconds: those of 1973 would be the seconds of the year 5138."""
    return dt.datetime.fromtimestamp(number / 1000 if abs(number) >= 1e11 else number, dt.UTC)


def read_pairs(file: str) -> list[tuple[str, str, str, float]]:
    """Read rows (round, node_a, node_b, value). A header may order the columns differently or add others."""
    name, rows = _read_rows(file)
    rows = [row for row in rows if any(row.cells)]
    if not rows:
        raise UserError(f"{name}:1: rows: none: {','.join(PAIR_COLUMNS)}")
    place, data = _columns(name, rows, PAIR_COLUMNS)
    found: list[tuple[str, str, str, float]] = []
    for row in data:
        _check_width(name, row, rows[0])
        round_name, a, b, cell = (row.cells[i] for i in place)
        for title, node in (("node_a", a), ("node_b", b)):
            if not node:
                raise UserError(f"{name}:{row.line}: {title}: nothing: the name of a node")
        if a == b:
            raise UserError(f"{name}:{row.line}: node_b: {b}: must be a node other than node_a")
        value = _number(name, row.line, "value", cell)
        if value < 0:
            raise UserError(f"{name}:{row.line}: value: {cell}: a number of at least 0")
        found.append((round_name, a, b, value))
    return found


def read_groups(file: str) -> dict[str, str]:
    """Read rows (node, group): the leaf switch, rack or other group of each node."""
    name, rows = _read_rows(file)
    rows = [row for row in rows if any(row.cells)]
    if not rows:
        raise UserError(f"{name}:1: rows: none: {','.join(GROUP_COLUMNS)}")
    titled = [cell.lower() for cell in rows[0].cells] == list(GROUP_COLUMNS)
    groups: dict[str, str] = {}
    for row in rows[1:] if titled else rows:
        if len(row.cells) != 2:
            raise UserError(f"{name}:{row.line}: row: {count_of(len(row.cells), 'cell')}: 2 are needed, node and group")
        node, group = row.cells
        if not node or not group:
            raise UserError(f"{name}:{row.line}: {'group' if node else 'node'}: nothing: a name")
        if groups.setdefault(node, group) != group:
            raise UserError(f"{name}:{row.line}: group: {node} in {group}: one group per node, and it is in {groups[node]}")
    return groups


def _read_rows(file: str, *, keep_blank_lines: bool = False, decimal_commas: bool = False) -> tuple[str, list[_Row]]:
    name = "standard input" if file == "-" else file
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{name}: {error.strerror or error}: a CSV file that can be read, or - for standard input") from error
    if raw.startswith(DATABASE_HEAD):
        raise UserError(f"{name}: a database: must be a CSV file", "hpcq export --format csv writes results as one")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{name}:{line}: text: byte 0x{raw[error.start]:02x}: UTF-8", "iconv -f latin1 -t utf-8 converts an older file"
        ) from error
    if "\0" in text:
        raise UserError(f"{name}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: text: a NUL byte: text")
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[_Row] = []
    try:
        for cells in reader:
            if cells or keep_blank_lines:
                rows.append(_Row(reader.line_num, [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise UserError(f"{name}:{reader.line_num}: {error}: must be valid CSV") from error
    if decimal_commas and separator == ";":
        _with_points(rows)
    return name, rows


def _with_points(rows: Sequence[_Row]) -> None:
    """Where semicolons part the cells, a comma in numbers is a decimal one, unless the file has decimal points as well."""
    numbers = [cell for row in rows for cell in row.cells if _is_number(cell.replace(",", "."))]
    if any(cell.count(",") == 1 for cell in numbers) and not any("." in cell for cell in numbers):
        for row in rows:
            row.cells[:] = [cell.replace(",", ".") if _is_number(cell.replace(",", ".")) else cell for cell in row.cells]


def _separator(text: str) -> str:
    first = text.lstrip("\r\n").split("\n", 1)[0]
    return next((mark for mark in ",;\t" if mark in first), ",")


def _series_header(name: str, row: _Row) -> list[str] | None:
    """Names of the columns if the first line has any. A line with both names and numbers is ambiguous and refused."""
    words = [cell for cell in row.cells if not _is_number(cell) and cell.lower() not in MISSING]
    if not words:
        return None
    numbers = [cell for cell in row.cells if _is_number(cell)]
    if numbers:
        message = f"{name}:{row.line}: header: {words[0]!r} beside {numbers[0]!r}: all names, or all numbers"
        raise UserError(message, "a series needs a name with a letter in it; columns of times and labels go to --time and --by")
    names = [cell or f"column_{i + 1}" for i, cell in enumerate(row.cells)]
    _refuse_twins(name, row.line, names)
    return names


def _columns(name: str, rows: list[_Row], wanted: tuple[str, ...]) -> tuple[list[int], list[_Row]]:
    """Positions of the wanted columns, and the rows below the header if there is one."""
    titles = [cell.lower() for cell in rows[0].cells]
    if any(title in titles for title in wanted):
        missing = [title for title in wanted if title not in titles]
        if missing:
            raise UserError(f"{name}:{rows[0].line}: header: no column {missing[0]}: {','.join(wanted)}")
        return [titles.index(title) for title in wanted], rows[1:]
    if len(titles) != len(wanted):
        raise UserError(
            f"{name}:{rows[0].line}: row: {count_of(len(titles), 'cell')}: {len(wanted)} are needed: {','.join(wanted)}"
        )
    return list(range(len(wanted))), rows


def _check_width(name: str, row: _Row, first: _Row) -> None:
    if len(row.cells) != len(first.cells):
        raise UserError(
            f"{name}:{row.line}: row: {count_of(len(row.cells), 'cell')}: {len(first.cells)} are needed, like line {first.line}"
        )


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _number(name: str, line: int, title: str, cell: str, *, named: bool = True) -> float:
    if cell.lower() in MISSING:
        return math.nan
    if not _is_number(cell):
        hint = None if named else "--value names the column of values, --time that of times, --by those of labels"
        if _is_number(cell.replace(",", ".", 1)):
            hint = "numbers have a decimal point; a decimal comma needs semicolons between the cells"
        elif _is_number(cell.replace(",", "")):
            hint = "numbers have no separators of thousands"
        elif _is_number(cell.partition(" ")[0]):
            hint = "a unit stands in the header, not beside each number"
        message = f"{name}:{line}: {title}: {cell!r}: a finite number, or nothing where a value is missing"
        raise UserError(message, hint)
    return float(cell)

"""Kernels that are somebody else's programs, described in files: their commands, and how their output is read.

The output of a program becomes metrics as its description says. Pure:

text --read_output--> one row (size None), or one row per size of its table

Anything unexpected is an UnreadableError, which becomes the reason of a row: a number comes only from output that is
exactly as described. Lines between the rows of a table that are no rows are warnings of the program.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcq import units
from hpcq.clock import time_limit
from hpcq.errors import UserError
from hpcq.kernels import (
    ARGUMENTS,
    SERVER_ARGUMENTS,
    SIZE_OPTION,
    Better,
    Described,
    Kernel,
    Metric,
    Option,
    OptionSaid,
    OptionType,
    ParameterValue,
    Peer,
    Reading,
    ReadySign,
    Server,
    Shape,
    Sizes,
    Steps,
    Table,
)
from hpcq.render import render_text

# ----------------------------------------------------------------------------------------------------------------------
# Read one number as a program writes it under LC_ALL=C.
#
# Refuses what only looks like one: 1,5  0x10  nan  1_000  and digits other than 0-9.


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


class UnreadableError(ValueError):
    """What a program wrote is not what its description says. The message reads `WHAT: FOUND: ALLOWED`."""


def read_number(text: str, what: str) -> float:
    """A finite number. Raises UnreadableError."""
    if not _NUMBER.fullmatch(text):
        raise UnreadableError(f"{what}: {shown(text)}: must be a number")
    number = float(text)
    if not math.isfinite(number):
        raise UnreadableError(f"{what}: {shown(text)}: must be a finite number")
    return number


def shown(value: object) -> str:
    """A value of a program's output as messages show it."""
    text = repr(value) if isinstance(value, str) else "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ----------------------------------------------------------------------------------------------------------------------


_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_WARNINGS_MAX = 5
#: Escape sequences of terminals that set colours or clear the rest of a line.
_COLOUR = re.compile(r"\x1b\[[\d;]*[mK]", re.ASCII)
#: CPU time for one output of at most 4 MiB: a thousand times what the delivered descriptions take.
_READ_S = 5.0
#: What would make a number that ends or begins here a part of a longer one: 12 of 12.5, 5 of 12.5, 3 of -3.
_GOES_ON = re.compile(r"\d|[.,]\d|[eE][-+]?\d|\n(?=.*\d)[-+.\deE]+[ \t]*(?:\n|\Z)", re.ASCII)
_WENT_BEFORE = re.compile(r"[\d.]\Z|\d,\Z|(?:\A|[\s=:(\[])[-+]\Z", re.ASCII)
#: The same where commas separate fields.
_GOES_ON_IN_FIELD = re.compile(r"\d|\.\d|[eE][-+]?\d|\n(?=.*\d)[-+.\deE]+[ \t]*(?:\n|\Z)", re.ASCII)
#: The same where an expression ends with the number: 12 of 12K, 1 of 1_0, 0 of 0x1F.
_WORD_GOES_ON = re.compile(r"[\w%*]")
_WENT_BEFORE_IN_FIELD = re.compile(r"[\d.]\Z|(?:\A|[\s=:(\[,])[-+]\Z", re.ASCII)


@dataclass(slots=True)
class Read:
    """What was read: metrics by size (None: the program has no sizes), complaints by size, and what it said besides."""

    metrics: dict[int | None, dict[str, float]] = field(default_factory=dict)
    complaints: dict[int | None, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    #: The first line that looks like a row of the table but has another number of fields, as a reason.
    misfit: str = ""


class _Twice(dict[str, Any]):
    """A JSON object in which keys stand twice: of two values of one name nobody knows which one is meant."""

    def __init__(self, found: Mapping[str, Any], twice: frozenset[str]) -> None:
        super().__init__(found)
        self.twice = twice


def read_output(described: Described, text: str, sizes: Sequence[int] = ()) -> Read:
    """The metrics in `text`. sizes: what the table must hold, each once. Raises UnreadableError if nothing can be read."""
    try:
        with time_limit(_READ_S, TimeoutError("the CPU time of this block is used up"), of_cpu=True):
            return _read(described, _plain(text), sizes)
    except UserError as error:  # numbers that a template of the description cannot compute with
        raise UnreadableError(error.message) from None
    except TimeoutError:
        raise UnreadableError(f"output: its regular expressions take more than {_READ_S:g} s: must be less") from None


def failure_said(described: Described, text: str) -> str | None:
    """The line of an output that has words of failure; None if no line has."""
    lines = (line.strip() for line in _plain(text).splitlines() if any(word in line for word in described.failure_words))
    return next(lines, None)


def _plain(text: str) -> str:
    """An output without what terminals and other systems add: colours, line ends of two characters, a byte order mark."""
    return _COLOUR.sub("", text).replace("\r\n", "\n").removeprefix("\ufeff")


def _read(described: Described, text: str, sizes: Sequence[int]) -> Read:
    if not text.strip():
        raise UnreadableError("output: nothing: must be what the description reads")
    whole_lines = text if all(one.json for one in described.readings) else text[: text.rfind("\n") + 1]
    has_finished = bool(described.finished) and re.search(described.finished, whole_lines, re.MULTILINE) is not None
    if whole_lines != text and not has_finished:
        raise UnreadableError("output: ends within a line: must be whole lines")
    text = whole_lines
    _check_title(described, text)
    if described.finished and not has_finished:
        raise UnreadableError(f"output: no line matches {described.finished}: must be there in a finished one")
    found = Read()
    rows: Mapping[int | None, Sequence[str]] = {None: ()}
    if described.table is not None:
        rows = _rows(described, described.table, text, sizes, found)
    parsed = _json(text, found) if any(one.json for one in described.readings) else None
    for size, cells in rows.items():
        try:
            _check_words(described.table, cells)
            found.metrics[size] = _metrics(described, text, parsed, cells)
        except UnreadableError as error:
            found.complaints[size] = str(error)
    for size, metrics in found.metrics.items():
        shown_size = size if size is not None else sizes[0] if sizes else None
        _check_relations(described, metrics if shown_size is None else {**metrics, SIZE_OPTION: shown_size})
    return found


def _check_relations(described: Described, values: Mapping[str, float]) -> None:
    """What must hold between the numbers of one row, those relations of which it has all numbers."""
    for words, template in described.must_hold:
        names = names_held(described, template)
        if names <= values.keys() and not holds(described, template, values):
            told = ", ".join(f"{name} {values[name]:g}" for name in sorted(names))
            raise UnreadableError(f"output: {told}: must be numbers of which holds: {words}")


def holds(described: Described, template: str, values: Mapping[str, float]) -> bool:
    """Whether a template of `must_hold` is True. Raises UserError for one that is neither True nor False."""
    said = render_text(template, values, described.path)
    if said not in {"True", "False"}:
        raise UserError(f"{described.path}: must_hold: renders to {said!r}: must be True or False")
    return said == "True"


def names_held(described: Described, template: str) -> set[str]:
    """The metrics, and the size, that a template of `must_hold` names."""
    return {SIZE_OPTION, *(one.metric for one in described.readings)} & set(re.findall(r"\w+", template))


def _check_title(described: Described, text: str) -> None:
    line, must_be = described.title or ("", "")
    for match in re.finditer(line, text, re.MULTILINE) if line else ():
        if re.fullmatch(must_be, match[1] or "") is None:
            raise UnreadableError(f"output: it is of {shown(match[1] or '')}: must be of {must_be}")


def has_title(described: Described, text: str) -> bool:
    """Whether an output has titles, and all are of this program: also where the rest cannot be read."""
    names = titles(described, text)
    return bool(names) and all(re.fullmatch(described.title[1], name) for name in names)


def titles(described: Described, text: str) -> list[str]:
    """What an output says it is of, of this program or another one of its suite."""
    line = described.title[0] if described.title else ""
    return [match[1] or "" for match in re.finditer(line, _plain(text), re.MULTILINE)] if line else []


def parts(described: Iterable[Described], text: str) -> list[str]:
    """The results that a saved file of these programs holds, each with what stands before the first of its run."""
    text, used = _plain(text), list(described)
    begins = {match.start(): True for one in used if one.preamble for match in re.finditer(one.preamble, text, re.MULTILINE)}
    begins |= {match.start(): False for one in used if one.part for match in re.finditer(one.part, text, re.MULTILINE)}
    found, preamble, before, is_first, marks = list[str](), 0, "", True, sorted(begins.items())
    for (place, is_preamble), (end, _) in itertools.pairwise([*marks, (len(text), True)]):
        if is_preamble:
            preamble, is_first = place, True
            continue
        if is_first:
            before, is_first = text[preamble:place], False
        found.append(before + text[place:end])
    return found if len(found) > 1 else [text]


def _check_words(table: Table | None, cells: Sequence[str]) -> None:
    """Columns that say whether the program's own check passed."""
    for name, pattern in table.must_be if table is not None else ():
        cell = cells[table.names.index(name)] if table is not None else ""
        if cell and not re.fullmatch(pattern, cell):
            raise UnreadableError(f"{name}: {shown(cell)}: must be {pattern}")


def _metrics(described: Described, text: str, parsed: Any, cells: Sequence[str]) -> dict[str, float]:
    metrics = {}
    for one in described.readings:
        number = _reading(described, one, text, parsed, cells)
        if number is None:
            continue
        value = number * one.times * _factor_of_version(one, text) + 0.0  # -0 is 0
        if one.above_zero and value == 0:
            raise UnreadableError(f"{one.metric}: 0: must be more: a rate or a time of 0 is no measurement")
        low = one.minimum is not None and value < one.minimum
        if low or (one.maximum is not None and value > one.maximum):
            bound = f"{one.minimum:g} or more" if low else f"at most {one.maximum:g}"
            raise UnreadableError(f"{one.metric}: {value:g}: must be {bound}")
        if not math.isfinite(value):
            raise UnreadableError(f"{one.metric}: {value}: must be a finite number")
        metrics[one.metric] = value
    return metrics


def _factor_of_version(one: Reading, text: str) -> float:
    found = [factor for pattern, factor in one.times_where if re.search(pattern, text, re.MULTILINE)]
    if one.times_where and len(found) != 1:
        patterns = ", ".join(pattern for pattern, _ in one.times_where)
        raise UnreadableError(f"{one.metric}: its unit is unknown: {len(found)} of {patterns} match: must be exactly one")
    return found[0] if found else 1.0


def _reading(described: Described, one: Reading, text: str, parsed: Any, cells: Sequence[str]) -> float | None:
    if one.json is not None:
        return _json_value(one, parsed)
    if one.column is not None:
        assert described.table is not None  # noqa: S101 - the reader of descriptions has checked it
        cell = cells[described.table.names.index(one.column)]
        absent = cell in one.not_measured or not (cell or one.required)
        return None if absent else read_number(cell, one.metric)
    assert one.regex is not None  # noqa: S101 - likewise
    return _regex_value(one, text)


def _regex_value(one: Reading, text: str) -> float | None:
    matches = list(re.finditer(one.regex or "", text, re.MULTILINE))
    if not matches and not one.required:
        return None
    if len(matches) != 1:
        raise UnreadableError(f"{one.metric}: {one.regex} matches {len(matches)} times: must match once")
    if matches[0][1] in one.not_measured:
        return None
    number = _whole_number(one, text, matches[0])
    if not one.units:
        return number
    factors = dict(one.units)
    if matches[0][2] not in factors:
        raise UnreadableError(f"{one.metric}: unit {shown(matches[0][2])}: must be one of {', '.join(factors)}")
    return number * factors[matches[0][2]]


def _whole_number(one: Reading, text: str, match: re.Match[str]) -> float:
    """The number of the first group. `rate = (\\d+)` in `rate = 12.5` is not 12."""
    number = read_number(match[1] or "", one.metric)
    before, end = text[max(0, match.start(1) - 2) : match.start(1)], match.end(1)
    goes_on, went_before = _GOES_ON, _WENT_BEFORE
    if one.comma_separates:
        goes_on, went_before = _GOES_ON_IN_FIELD, _WENT_BEFORE_IN_FIELD
    in_a_word = end == match.end() and _WORD_GOES_ON.match(text, end)
    if goes_on.match(text, end) or in_a_word or went_before.search(before):
        around = f"{before}{match[1]}{text[end : end + 3]}".strip()
        raise UnreadableError(f"{one.metric}: {one.regex} reads {match[1]} of {shown(around)}: must be a whole number of it")
    return number


def _json(text: str, found: Read) -> Any:
    """The one JSON object of the output. Lines before it are what the program said besides."""
    start = text.find("{") if text.lstrip().startswith("{") else text.find("\n{") + 1
    if start <= 0 and not text.lstrip().startswith("{"):
        raise UnreadableError("output: no line begins with {: must be one JSON object")
    _say(found, text[:start].splitlines())
    try:
        return json.loads(text[start:], parse_constant=_refuse_constant, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"output: not JSON: {error.msg} at line {error.lineno}: must be one JSON object") from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise UnreadableError(f"output: {what}: must be one JSON object of usual size") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that remembers which keys stand twice: iperf3 before 3.16 writes some so, which nobody reads."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(name for name, _ in pairs)
    return _Twice(found, frozenset(name for name, count in counts.items() if count > 1))


def _refuse_constant(word: str) -> float:
    raise UnreadableError(f"output: {word}: must be finite numbers")


def is_path(text: str) -> bool:
    """Whether a text leads through JSON: end.streams[0].rtt."""
    return re.fullmatch(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*", text) is not None


def _at(path: str | None, parsed: Any) -> Any:
    """What stands at a path of JSON; None where nothing does."""
    value = parsed
    for name, index in _STEP.findall(path or ""):
        if isinstance(value, _Twice) and name in value.twice:
            raise UnreadableError(f"output: the key {shown(name)} stands twice in one object: must stand there once")
        inside = value.get(name) if name and isinstance(value, dict) else None
        if index and isinstance(value, list) and int(index) < len(value):
            inside = value[int(index)]
        value = inside
        if value is None:
            break
    return value


def _json_value(one: Reading, parsed: Any) -> float | None:
    value = _at(one.json, parsed)
    if str(value) in one.not_measured or (value is None and not one.required):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableError(f"{one.metric}: {one.json} is {shown(value)}: must be a number")
    try:
        return float(value)
    except OverflowError:
        raise UnreadableError(f"{one.metric}: {one.json} is {shown(value)}: must be a finite number") from None


def sizes_in(described: Described, text: str) -> list[int]:
    """The sizes that the table in `text` has, in its order: of an output whose parameters nobody knows any more.

    Empty where its table has no sizes. Raises UnreadableError for a table without rows.
    """
    if described.table is None or SIZE_OPTION not in described.table.names:
        return []
    place, found, read = described.table.names.index(SIZE_OPTION), list[int](), Read()
    for cells in _table_rows(described, _plain(text), read):
        size = read_number(cells[place], SIZE_OPTION)
        if size != int(size):
            raise UnreadableError(f"table: size {shown(cells[place])}: must be a whole number")
        found.append(int(size))
    if not found:
        raise UnreadableError(read.misfit or "table: 0 rows: must be 1 or more")
    return found


def options_said(kernel: Kernel, text: str) -> dict[str, ParameterValue]:
    """The options that an output says it was made with, those that its description knows how to read.

    Raises UnreadableError for two values of one option, and for one that is none of its choices.
    """
    described = kernel.described
    assert described is not None  # noqa: S101 - the callers take described kernels only
    text, found = _plain(text), dict[str, ParameterValue]()
    parsed = _json(text, Read()) if any(one.json for one in described.said) else None
    for one in described.said:
        option = kernel.option(one.option)
        assert option is not None  # noqa: S101 - the reader of descriptions has made both of one entry
        told = {match[1] for match in re.finditer(one.regex, text, re.MULTILINE)} if one.regex else {_at(one.json, parsed)}
        words = {dict(one.words).get(str(word), str(word)).strip() for word in told if word is not None}
        if len(words) > 1:
            raise UnreadableError(f"{one.option}: {', '.join(sorted(words))}: must be one value in the whole output")
        for word in words:
            found[one.option] = _option_said(option, word)
    return found


def _option_said(option: Option, word: str) -> ParameterValue:
    """A value as a program writes it. 2k of a size is 2048; bounds are those of campaigns, and hold for no past."""
    if option.type is OptionType.CHOICE:
        chosen = {choice.lower(): choice for choice in option.choices}.get(word.lower())
        if chosen is None:
            raise UnreadableError(f"{option.name}: {shown(word)}: must be one of {', '.join(option.choices)}")
        return chosen
    if option.type in {OptionType.NAME, OptionType.WORDS}:
        return word
    if option.unit == "bytes":
        word = re.sub(r"(?<=\d)([kmg])$", r"\1iB", word.removesuffix("ytes"), flags=re.IGNORECASE)
    try:
        number = units.parse(word, option.unit or "")
    except ValueError as error:
        raise UnreadableError(f"{option.name}: {error}") from None
    return int(number) if number == int(number) else number


def _rows(described: Described, table: Table, text: str, sizes: Sequence[int], found: Read) -> dict[int | None, Sequence[str]]:
    return _by_size(described, table, _table_rows(described, text, found), sizes, found)


def _table_rows(described: Described, text: str, found: Read) -> list[list[str]]:
    """The cells of each row, those of `Table.names`; of a heading that is not there, and need not be, an empty one."""
    table = described.table
    assert table is not None  # noqa: S101 - the callers have looked
    lines = text.split("\n")  # and not at other characters that Python takes for line ends
    heads = [-1] if table.head is None else [no for no, line in enumerate(lines) if re.search(table.head, line)]
    if len(heads) != 1:
        raise UnreadableError(f"table: {len(heads)} lines match {table.head}: must be one")
    begin, count, places = heads[0] + 1, len(table.columns), list[int | None](range(len(table.columns)))
    if table.headings:
        optional = {one.column for one in described.readings if not one.required} | {name for name, _ in table.must_be}
        count, places = _headings(table, lines[heads[0]], optional)
    if table.units is not None:
        below = lines[begin] if begin < len(lines) else ""
        if not re.search(table.units, below):
            raise UnreadableError(f"table: units {shown(below.strip())}: must match {table.units}")
        begin += 1
    rows: list[list[str]] = []
    for line in lines[begin:]:
        if table.end is not None and re.search(table.end, line):
            break
        cells = line.split()
        is_row = bool(cells) and re.match(r"[-+.\d]", cells[0]) is not None
        if is_row and len(cells) == count:
            rows.append(["" if place is None else cells[place] for place in places])
        elif cells:
            _say(found, [line])
            if is_row and _NUMBER.fullmatch(cells[0]):
                misfit = f"table: {len(cells)} fields for {count} columns: {shown(line.strip())}: must be {count}"
                if rows and all(map(_NUMBER.fullmatch, cells)):  # the rest of a row that something broke
                    raise UnreadableError(misfit)
                found.misfit = found.misfit or misfit
    return rows


def _headings(table: Table, line: str, optional: set[str | None]) -> tuple[int, list[int | None]]:
    """How many columns the line of headings has, and the place of each that is read; None: it is not there.

    Headings may have a blank within. One that the description does not know ends at two of them, a tab, or a unit in brackets.
    """
    text = re.sub(r"^\s*#\s", " ", line)
    known = [re.compile(rf"(?:{pattern})(?=\s|$)") for _, pattern in table.headings]
    headings: list[str] = []
    at = 0
    while (begins := re.compile(r"\S").search(text, at)) is not None:
        at = begins.start()
        end = max((match.end() for one in known if (match := one.match(text, at))), default=at)
        while end == at or (not _heading_ends(text, end, known) and not any(one.fullmatch(text[at:end]) for one in known)):
            end = re.compile(r"\s*\S+").match(text, end).end()  # type: ignore[union-attr]
        headings.append(text[at:end])
        at = end
    places: list[int | None] = []
    first = 0
    for name, pattern in table.headings:
        place = next((no for no in range(first, len(headings)) if re.fullmatch(pattern, headings[no])), None)
        if place is None and name not in optional:
            raise UnreadableError(f"table: headings {', '.join(headings)}: must have {pattern} for {name}")
        first = first if place is None else place + 1
        places.append(place)
    return len(headings), places


def _heading_ends(text: str, end: int, known: Sequence[re.Pattern[str]]) -> bool:
    """Whether a heading that the description does not know ends here."""
    gap = re.compile(r"\s*").match(text, end)
    assert gap is not None  # noqa: S101 - it matches nothing, too
    wide = "\t" in gap[0] or len(gap[0]) > 1 or gap.end() == len(text)
    return wide or text[end - 1] in ")]" or any(one.match(text, gap.end()) for one in known)


def _by_size(
    described: Described, table: Table, rows: Sequence[Sequence[str]], sizes: Sequence[int], found: Read
) -> dict[int | None, Sequence[str]]:
    wanted = len(sizes) if described.sizes is not None else 1
    if len(rows) != wanted:
        raise UnreadableError(found.misfit or f"table: {len(rows)} rows: must be exactly {wanted}")
    by_size: dict[int | None, Sequence[str]] = {}
    expected: list[int | None] = [*sizes] or [None] * wanted
    for row, size in zip(rows, expected, strict=True):
        if size is not None:
            cell = row[table.names.index(SIZE_OPTION)]
            if read_number(cell, SIZE_OPTION) != size:
                raise UnreadableError(f"table: size {shown(cell)}: allowed here is {size}")
        if described.sizes is not None and sizes.count(size or 0) > 1:
            found.complaints[size] = f"table: size {shown(cell)} stands twice: must stand there once"
        else:
            by_size[size if described.sizes is not None else None] = row
    return by_size


def _say(found: Read, lines: Sequence[str]) -> None:
    for line in lines:
        if line.strip() and len(found.said) < _WARNINGS_MAX:
            found.said.append(line.strip()[:300])


# ----------------------------------------------------------------------------------------------------------------------
# The command lines of a foreign program: templates over its options, each word one argument, never a shell.
#
# `{address}`, `{client_address}`, `{port}` and `{second_port}` are known only when the job runs; hpcq-net fills them in.


#: A word of a template: pieces without blanks, where what stands in braces counts as one.
_WORD = re.compile(r"(?:\{\{.*?\}\}|\{%.*?%\}|[^\s])+")
#: What the job fills in: these names in braces.
IN_THE_JOB = ("address", "client_address", "port", "second_port")
_RUNTIME = {name: f"{{{name}}}" for name in IN_THE_JOB}
_FILLED = re.compile(rf"\\\{{(?:{'|'.join(IN_THE_JOB)})\\\}}")
#: What starting, readiness and the ends of both programs cost in addition to the limit.
OVERHEAD_S = 15.0
SIZES_MAX = 200
#: The longest run of a program: the limit of a phase in hpcq-net.
LIMIT_MAX_S = 3600.0
_SIZE_MAX = 1 << 60


def commands(described: Described, parameters: Mapping[str, ParameterValue]) -> dict[str, tuple[str, ...]]:
    """The words of each command by name: version, server (where there is one) and client, or rank.

    A word that renders to nothing is left out. Words that a campaign adds stand where the template names them, else at the
    end. Raises UserError for a template that fails, and for an added option that stands in the command already.
    """
    found = {"version": _words(described, described.version, parameters)}
    if described.server is not None:
        found["server"] = _words(described, described.server.command, parameters, described.server.program, SERVER_ARGUMENTS)
    found["client"] = _words(described, described.command, parameters, None, ARGUMENTS)
    return found


def _words(
    described: Described,
    template: str,
    parameters: Mapping[str, ParameterValue],
    program: str | None = None,
    added: str | None = None,
) -> tuple[str, ...]:
    values = {**parameters, **_RUNTIME, "program": program or described.program}
    found, place = list[str](), None
    for word in _WORD.findall(template):
        if added is not None and re.fullmatch(rf"\{{\{{ *{added} *\}}\}}", word):
            place = len(found)
        elif rendered := _one(described, word, values):
            found.append(rendered)
    given = str(parameters.get(added or "", "")).split() if added is not None else []
    for word in given:
        flag = word.partition("=")[0]
        if flag.startswith("-") and any(flag == one.partition("=")[0] for one in found):
            message = f"{described.path}: {added}: {flag}: stands in the command already: must be another option"
            raise UserError(message, "the options of the description set it, or a description of your own")
    place = len(found) if place is None else place
    return (*found[:place], *given, *found[place:])


def limit_s(described: Described, parameters: Mapping[str, ParameterValue]) -> float:
    """How long the program may run."""
    return _number(described, "limit_s", described.limit_s, parameters)


def sizes(described: Described, parameters: Mapping[str, ParameterValue]) -> tuple[int, ...]:
    """The sizes that one run measures, in order; empty when it has none. Raises UserError for more than 200.

    Of a table with one row, the size that its column must show.
    """
    if described.sizes is not None:
        return _sizes(described, described.sizes, parameters)
    shows_it = described.table is not None and SIZE_OPTION in described.table.names
    size = parameters.get(SIZE_OPTION) if shows_it else None
    return (size,) if isinstance(size, int) and not isinstance(size, bool) else ()


def sent_at_least(described: Described, parameters: Mapping[str, ParameterValue]) -> tuple[float, ...]:
    """Bytes that the client and the server send at least over the whole run; empty when nobody knows."""
    values = {**parameters, "size_sum": sum(sizes(described, parameters))}
    return tuple(_number(described, "sends_at_least_bytes", one, values) for one in described.sends_at_least)


def check_limit(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for a limit that hpcq-net would not take."""
    needed_s = limit_s(described, parameters)
    if not 0 < needed_s <= LIMIT_MAX_S:
        raise UserError(f"{described.path}: limit_s: {needed_s:g} s: must be above 0 to {LIMIT_MAX_S:g} s")


def check_sizes(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for sizes that make no sense: of what is planned. What was measured stays readable."""
    if described.sizes is not None:
        for key, template in (("first", described.sizes.first), ("last", described.sizes.last)):
            number = _number(described, f"sizes: {key}", template, parameters)
            if not number.is_integer() or not 0 <= number <= _SIZE_MAX:
                raise UserError(f"{described.path}: sizes: {key}: {number:g}: must be a whole number from 0 to 2^60")


def check_sent(described: Described, parameters: Mapping[str, ParameterValue]) -> None:
    """Raise UserError for bytes that make no sense, of what is planned."""
    low = min(sent_at_least(described, parameters), default=0.0)
    if low < 0:
        raise UserError(f"{described.path}: sends_at_least_bytes: {low:g}: must be 0 or more")


def same_command(expected: Sequence[str], used: object) -> bool:
    """Whether a program was started with these words; what is filled in at run time may be anything."""
    if not isinstance(used, list) or len(used) != len(expected):
        return False
    patterns = (_FILLED.sub(".+", re.escape(word)) for word in expected)
    return all(isinstance(word, str) and re.fullmatch(pattern, word) for pattern, word in zip(patterns, used, strict=True))


def programs_text(programs: Sequence[tuple[int, Kernel, Mapping[str, Any]]]) -> str:
    """The programs file of a job: test number, kernel and parameters of each. kernels/c/programs/programs.h defines it."""
    lines = ["programs 1"]
    for test_no, kernel, parameters in programs:
        described = kernel.described
        assert described is not None  # noqa: S101 - only described kernels have programs
        lines += [f"program {test_no}", f"name {kernel.name}", f"limit_s {limit_s(described, parameters):g}"]
        lines += [f"exit_code {code}" for code in described.exit_codes]
        lines += [f"failure_words {words}" for words in described.failure_words]
        lines += [f"{name} {word}" for name, words in commands(described, parameters).items() for word in words]
        values = {**parameters, "program": described.program}
        lines += [f"output_file {described.output_file}"] if described.output_file else []
        for name, text in described.files:
            lines.append(f"file {name}")
            lines += [f"line {_one(described, line, values)}" for line in text.splitlines()]
        server = described.server
        if server is None:
            continue
        lines += [f"ready {server.ready.value}", f"ready_s {server.ready_s:g}"]
        lines += [f"ready_words {server.ready_words}"] if server.ready is ReadySign.WORDS else []
        lines += [f"server_ends {'yes' if server.ends else 'no'}"]
    return "\n".join(lines) + "\n"


def _one(described: Described, word: str, values: Mapping[str, Any]) -> str:
    rendered = render_text(word, values, described.path)
    if any(ord(character) < 32 and character != "\t" for character in rendered):
        raise UserError(f"{described.path}: {word}: renders to {rendered!r}: must be one line")
    return rendered


def _number(described: Described, key: str, template: str, parameters: Mapping[str, ParameterValue]) -> float:
    rendered = render_text(template, {**parameters, "program": described.program}, described.path).strip()
    try:
        number = float(rendered)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{described.path}: {key}: renders to {rendered!r}: must be a number")
    return number


def _sizes(described: Described, sizes: Sizes, parameters: Mapping[str, ParameterValue]) -> tuple[int, ...]:
    first = int(_number(described, "sizes: first", sizes.first, parameters))
    last = int(_number(described, "sizes: last", sizes.last, parameters))
    found = [0] if first == 0 or sizes.zero else []
    size = max(1, first)
    while size <= last and len(found) <= SIZES_MAX:
        found.append(size)
        half = size + size // 2
        if sizes.steps is Steps.DOUBLES_AND_HALVES and size > 1 and half <= last:
            found.append(half)
        size *= 2
    if not found or len(found) > SIZES_MAX:
        raise UserError(f"{described.path}: sizes: {first} to {last} are {len(found)} sizes: must be 1 to {SIZES_MAX}")
    return tuple(found)


# ----------------------------------------------------------------------------------------------------------------------
# The descriptions that come with hpcq, read in advance: kernels/described/index.json.
#
# NAME.yaml --python -m hpcq.definition.kernel_file--> index.json --indexed--> Kernel
#
# Verbs that only list kernels need neither a reader of YAML nor the checks. The index holds the SHA-256 of each file; a
# file that has changed since is read itself.


INDEX = "index.json"


def index_text(found: Iterable[Kernel]) -> str:
    """The index of these kernels, each with the sum of the file that it was read from."""
    rows = {}
    for kernel in found:
        described = kernel.described
        assert described is not None  # noqa: S101 - only described kernels have files
        path = Path(described.path)
        kept = replace(kernel, described=replace(described, path=""))
        row = {name: value for name, value in asdict(kept).items() if name != "relations"}  # only kernels of hpcq have any
        rows[kernel.name] = {"sha256": _sum(path), "kernel": row}
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def indexed(path: Path) -> Kernel | None:
    """The kernel of this file by the index beside it; None if there is no index, or the file is another one now."""
    row = _index_rows(str(path.parent / INDEX)).get(path.stem)
    if row is None or row["sha256"] != _sum(path):
        return None
    return _kernel(row["kernel"], str(path))


@lru_cache(maxsize=4)
def _index_rows(index: str) -> Mapping[str, Any]:
    try:
        found = json.loads(Path(index).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _kernel(row: Mapping[str, Any], path: str) -> Kernel:
    return Kernel(
        **{
            **row,
            "options": tuple(_option(one) for one in row["options"]),
            "metrics": tuple(Metric(**{**one, "better": Better(one["better"])}) for one in row["metrics"]),
            "described": _described({**row["described"], "path": path}),
        }
    )


def _option(row: Mapping[str, Any]) -> Option:
    return Option(**{**row, "type": OptionType(row["type"]), "choices": tuple(row["choices"])})


def _described(row: Mapping[str, Any]) -> Described:
    server, table, sizes = row["server"], row["table"], row["sizes"]
    lists = {key: tuple(row[key]) for key in ("modules", "exit_codes", "failure_words", "sends_at_least", "title")}
    lists |= {key: tuple(map(tuple, row[key])) for key in ("files", "must_hold")}
    return Described(
        **{
            **row,
            **lists,
            "shape": Shape(row["shape"]),
            "server": server and Server(**{**server, "ready": ReadySign(server["ready"])}),
            "table": table and _table(table),
            "sizes": sizes and Sizes(**{**sizes, "steps": Steps(sizes["steps"])}),
            "readings": tuple(_reading_of_file(one) for one in row["readings"]),
            "said": tuple(OptionSaid(**{**one, "words": tuple(map(tuple, one["words"]))}) for one in row["said"]),
        }
    )


def _reading_of_file(row: Mapping[str, Any]) -> Reading:
    pairs = {key: tuple(map(tuple, row[key])) for key in ("units", "times_where")}
    words = tuple(row["not_measured"])
    return Reading(**{**row, **pairs, "not_measured": words, "peer": row["peer"] and Peer(**row["peer"])})


def _table(row: Mapping[str, Any]) -> Table:
    pairs = {key: tuple(map(tuple, row[key])) for key in ("headings", "must_be")}
    return Table(**{**row, "columns": tuple(row["columns"]), **pairs})

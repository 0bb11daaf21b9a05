"""What a result says at length, in one compressed block: counters and gauges, what was granted, intervals, a histogram.

    {"ends": [[pid, cpu_index, before_utc, after_utc, interval_ns, before_cost_ns, after_cost_ns, [value, ...]], ...],
     "granted": [value, ...],
     "intervals": [[begin_ms, value, ...], ...],
     "histogram": [unit, [[lower, sample_count], ...]]}

The text is JSON, packed as SQLite's own archives are: the function `sqlar_uncompress` of the program sqlite3 reads it too.
Names stand once, in a layout: `layout_place` says what each place of a list means. A counter that did not move is 0 and
anything else that is missing null; a list may end before its layout does. A gauge is [before, after], or one value.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The part of a block in which a name has its place, its kind, and the name.
Name = tuple[str, str, str]

#: So many layouts are tried, the newest first: those of other clusters and of former hardware lie behind.
_LAYOUTS_TRIED = 20
_PARTS = ("ends", "granted", "intervals")
#: Filtered, zlib repeats only what is long: texts that are mostly digits get a tenth shorter by it.
_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED)


#: No result says more. In a database of somebody else a block of some kilobytes may unpack to gigabytes.
_TEXT_BYTES_MAX = 1 << 28


@dataclass(slots=True)
class Content:
    """What is to be packed. ends: by index, the seven values before the readings; None: no end of this index."""

    ends: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    #: Of each end by index: values of counters and gauges.
    readings: dict[int, dict[Name, Any]] = field(default_factory=dict)
    granted: dict[Name, Any] = field(default_factory=dict)
    intervals: list[Name] = field(default_factory=list)
    #: By the beginning of the interval in ms, one value for each of `intervals`.
    rows: dict[int, list[int | float | None]] = field(default_factory=dict)
    histogram_unit: str = ""
    #: By lower bound.
    buckets: dict[int, int] = field(default_factory=dict)

    @property
    def names(self) -> dict[Name, None]:
        """All names, each once, in their order."""
        found = dict.fromkeys(name for readings in self.readings.values() for name in readings)
        return found | dict.fromkeys(self.granted) | dict.fromkeys(self.intervals)

    @property
    def counter_count(self) -> int:
        """How many counters moved, over all ends."""
        return sum(name[1] == "counter" for readings in self.readings.values() for name in readings)


class _Layout:
    """Names and their places."""

    def __init__(self, names: Iterable[Name]) -> None:
        self.names: dict[Name, int] = {}
        self.blank: dict[str, list[Any]] = {part: [] for part in _PARTS}
        for name in names:
            blank = self.blank[name[0]]
            self.names[name] = len(blank)
            blank.append(0 if name[1] == "counter" else None)

    def listed(self, part: str, values: Mapping[Name, Any]) -> list[Any]:
        """Values at their places, without what is blank at the end."""
        found = self.blank[part][: 1 + max((self.names[name] for name in values), default=-1)]
        for name, value in values.items():
            found[self.names[name]] = value
        return found


@dataclass(slots=True)
class _Group:
    """Results that get the same layout. least: names of the result that has fewest."""

    least: int
    names: dict[Name, None]
    results: list[tuple[int, Content]] = field(default_factory=list)


class BlockWriter:
    """Collects the contents of many results, so that those written together share a layout."""

    def __init__(self, database: sqlite3.Connection, name_id: Callable[[str, str], int]) -> None:
        self._database = database
        self._name_id = name_id
        self._groups: list[_Group] = []

    def add(self, result_id: int, content: Content) -> None:
        """Keep the content of a result for `flush`."""
        names = content.names
        for group in self._groups:
            new = sum(name not in group.names for name in names)
            if _fits(len(group.names) + new, min(group.least, len(names))):
                break
        else:
            group = _Group(len(names), {})
            self._groups.append(group)
        group.least = min(group.least, len(names))
        group.names |= names
        group.results.append((result_id, content))

    def flush(self) -> None:
        """Write one row for each result."""
        for group in self._groups:
            layout_id, layout = self._layout(group)
            rows = []
            for result_id, content in group.results:
                text = _text(content, layout)
                rows.append((result_id, layout_id, content.counter_count, len(text), packed(text)))
            self._database.executemany(
                "INSERT INTO evidence (result_id, layout_id, counter_count, json_bytes, block) VALUES (?, ?, ?, ?, ?)", rows
            )
        self._groups.clear()

    def _layout(self, group: _Group) -> tuple[int | None, _Layout]:
        """A stored layout with all names of the group, or a new one: the newest that is not too long, continued."""
        if not group.names:
            return None, _Layout(())
        longer: list[Name] = list(group.names)
        for layout_id, names in self._newest():
            joined = dict.fromkeys(names) | group.names
            if _fits(len(joined), group.least):
                if len(joined) == len(names):
                    return layout_id, _Layout(names)
                longer = list(joined)
                break
        digest = hashlib.sha256(json.dumps(longer).encode()).digest()
        layout = _Layout(longer)
        there = self._database.execute("SELECT layout_id FROM layout WHERE sha256 = ?", (digest,)).fetchone()
        if there is not None:
            return int(there[0]), layout
        key = self._database.execute("INSERT INTO layout (sha256) VALUES (?)", (digest,)).lastrowid
        self._database.executemany(
            "INSERT INTO layout_place (layout_id, part, place_index, evidence_name_id) VALUES (?, ?, ?, ?)",
            [(key, name[0], place, self._name_id(name[2], name[1])) for name, place in layout.names.items()],
        )
        return key, layout

    def _newest(self) -> list[tuple[int, list[Name]]]:
        found: dict[int, list[Name]] = {}
        for layout_id, *name in self._database.execute(
            "SELECT p.layout_id, p.part, n.kind, n.name FROM layout_place p"
            " JOIN evidence_name n ON n.evidence_name_id = p.evidence_name_id"
            " WHERE p.layout_id IN (SELECT layout_id FROM layout ORDER BY layout_id DESC LIMIT ?)"
            " ORDER BY p.layout_id DESC, p.part, p.place_index",
            (_LAYOUTS_TRIED,),
        ):
            found.setdefault(layout_id, []).append((name[0], name[1], name[2]))
        return list(found.items())


def _fits(length: int, least: int) -> bool:
    """Whether a layout is not so long that a result with so few names would be mostly blanks."""
    return length <= 4 * least + 256


def _text(content: Content, layout: _Layout) -> bytes:
    ends = [
        [*content.ends[index], layout.listed("ends", content.readings.get(index, {}))] if index in content.ends else None
        for index in range(1 + max(content.ends, default=-1))
    ]
    places = [layout.names[name] for name in content.intervals]
    blank = layout.blank["intervals"][: 1 + max(places, default=-1)]
    rows = []
    for begin_ms, values in sorted(content.rows.items()):
        row = list(blank)
        for place, value in zip(places, values, strict=True):
            row[place] = value
        rows.append([begin_ms, *row])
    found: dict[str, Any] = {"ends": ends, "granted": layout.listed("granted", content.granted), "intervals": rows}
    if content.buckets:
        found["histogram"] = [content.histogram_unit, sorted(content.buckets.items())]
    return _json({name: value for name, value in found.items() if value})


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def packed(text: bytes) -> bytes:
    """The block of a text: as short as zlib makes it, or the text itself where that is no longer."""
    return min(text, *(_deflated(text, strategy) for strategy in _STRATEGIES), key=len)


def _deflated(text: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(9, strategy=strategy)
    return packer.compress(text) + packer.flush()


def unpacked(block: bytes | None, json_bytes: int) -> bytes | None:
    """What `sqlar_uncompress` of the program sqlite3 returns: the text, or None for no block. Raises zlib.error."""
    if block is None or json_bytes <= 0 or json_bytes == len(block):
        return block
    if json_bytes > _TEXT_BYTES_MAX:
        raise zlib.error(f"a text of {json_bytes} bytes: must be at most {_TEXT_BYTES_MAX}")
    stream = zlib.decompressobj()
    text = stream.decompress(block, json_bytes + 1)
    if not stream.eof or len(text) > json_bytes:
        raise zlib.error(f"the text is not the {json_bytes} bytes that it is said to have")
    return text


def pruned(block: bytes, json_bytes: int) -> bytes | None:
    """The text of a block without counters, gauges, intervals and histogram; None: nothing is left.

    Raises ValueError for a block that is damaged.
    """
    try:
        content = json.loads(unpacked(block, json_bytes) or b"{}")
        ends = [end if end is None else [*end[:-1], []] for end in content.get("ends", ())]
    except (zlib.error, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a damaged block: {error}") from error
    kept = {"ends": ends, "granted": content.get("granted")}
    return _json({name: value for name, value in kept.items() if value}) if any(kept.values()) else None


def readable(block: bytes, json_bytes: int) -> bool:
    """Whether a block is whole, and what hpcq writes into one."""
    try:
        text = unpacked(block, json_bytes)
        if text is None or len(text) != json_bytes:
            return False
        # Packed, its checksum says that it is the text that was written. To parse a million of them costs as much again.
        if len(block) != json_bytes:
            return text.startswith(b"{") and text.endswith(b"}")
        return isinstance(json.loads(text), dict)
    except (zlib.error, ValueError, RecursionError):
        return False

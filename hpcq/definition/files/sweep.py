"""Expand one entry under `tests` to its points: fixed parameters, `matrix`, `zip` and `exclude`.

    parameters: {duration_ms: 200}              every point
    matrix: {message_bytes: [1, 64KiB], a: [1, 2]}    every combination, the first key slowest
    zip: {b: [1, 2], c: [10, 20]}               together: (1, 10), (2, 20); a list of such mappings is several axes
    exclude: [{message_bytes: 1, a: 2}]         points where all of these hold; a list of values means any of them

Every value is checked once, before anything is combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from hpcq import units
from hpcq.definition.model import ParameterValue
from hpcq.definition.networks import IN_CLUSTER_FILES
from hpcq.definition.yamlfile import Document, Place, shown
from hpcq.kernels import Kernel, Option, kernels, option_value, unknown_name

#: More points than this are probably a slip in a matrix.
POINT_COUNT_MAX = 10_000

_Point = dict[str, ParameterValue]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry's four mappings as written."""

    parameters: Mapping[str, Any]
    matrix: Mapping[str, Sequence[Any]]
    zips: Sequence[Mapping[str, Sequence[Any]]]
    exclude: Sequence[Mapping[str, Any]]
    zip_is_list: bool = False


def expand(kernel: Kernel, entry: Entry, document: Document, place: Place) -> list[_Point]:
    """All points of an entry in order, without the defaults.

    Complaints go to the document; after one, nothing is returned.
    """
    reader = _Reader(kernel, document, place)
    fixed = {name: reader.value((*place, "parameters", name), name, value) for name, value in entry.parameters.items()}
    axes = [
        [{name: value} for value in reader.values((*place, "matrix", name), name, values)]
        for name, values in entry.matrix.items()
    ]
    for zip_no, columns in enumerate(entry.zips):
        at = (*place, "zip", zip_no) if entry.zip_is_list else (*place, "zip")
        axes.append(reader.zipped(at, columns))
    swept = {*entry.matrix, *(name for columns in entry.zips for name in columns)}
    rules = [reader.rule((*place, "exclude", rule_no), rule, swept) for rule_no, rule in enumerate(entry.exclude)]
    if not document.clean(place):
        return []
    if prod(map(len, axes)) > POINT_COUNT_MAX:
        document.complain(place, f"sweeps to {prod(map(len, axes))} tests: {POINT_COUNT_MAX} at most")
        return []
    return _kept([fixed | point for point in _combined(axes)], rules, document, place)


def _combined(axes: Sequence[Sequence[_Point]]) -> Iterator[_Point]:
    for choice in product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


def _kept(
    points: list[_Point], rules: Sequence[Mapping[str, Sequence[ParameterValue]]], document: Document, place: Place
) -> list[_Point]:
    kept = points
    for rule_no, rule in enumerate(rules):
        if not any(_matches(point, rule) for point in points):
            document.complain((*place, "exclude", rule_no), "matches no combination of the sweep: correct it or leave it out")
        kept = [point for point in kept if not _matches(point, rule)]
    if not kept:
        document.complain((*place, "exclude"), "nothing is left of the sweep: at least one combination must remain")
    return kept


def _matches(point: _Point, rule: Mapping[str, Sequence[ParameterValue]]) -> bool:
    return all(point[name] in values for name, values in rule.items())


class _Reader:
    """Checks single values against the kernel's table and remembers where each name occurred."""

    def __init__(self, kernel: Kernel, document: Document, place: Place) -> None:
        self.kernel = kernel
        self.document = document
        self.place = place
        self.given: dict[str, Place] = {}

    def option(self, at: Place, name: str) -> Option | None:
        option = self.kernel.option(name)
        if option is None:
            what = f"parameter of {self.kernel.name}"
            unknown = unknown_name(what, name, [one.name for one in self.kernel.options])
            message, hint = IN_CLUSTER_FILES.get(name, unknown)
            self.document.complain(at, message.removeprefix(f"{name!r} is "), hint, at_key=True)
        return option

    def once(self, at: Place, name: str) -> None:
        if name in self.given:
            first = self.given[name]
            self.document.complain(
                at, f"given already under {first[2]} on line {self.document.key_line(first)}: once is allowed", at_key=True
            )
        self.given.setdefault(name, at)

    def value(self, at: Place, name: str, value: Any) -> ParameterValue:
        self.once(at, name)
        option = self.option(at, name)
        return 0 if option is None else self.checked(at, option, value)

    def values(self, at: Place, name: str, values: Sequence[Any]) -> list[ParameterValue]:
        self.once(at, name)
        option = self.option(at, name)
        if option is None:
            return []
        checked = [self.checked((*at, position), option, value) for position, value in enumerate(values)]
        for position, value in enumerate(checked):
            if value in checked[:position] and self.document.clean((*at, position)):
                self.document.complain((*at, position), f"{shown(values[position])} stands twice: each value may stand once")
        return checked

    def checked(self, at: Place, option: Option, value: Any) -> ParameterValue:
        try:
            return option_value(self.kernel, option, value)
        except ValueError as error:
            self.document.complain(at, str(error), _hint(self.kernel, option, value, swept="matrix" in at or "zip" in at))
            return 0

    def zipped(self, at: Place, columns: Mapping[str, Sequence[Any]]) -> list[_Point]:
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            self.document.complain(at, f"lists of different lengths ({found}): all lists of a zip are equally long")
        checked = {}
        for name, values in columns.items():
            self.once((*at, name), name)
            option = self.option((*at, name), name)
            if option is not None:
                checked[name] = [self.checked((*at, name, no), option, value) for no, value in enumerate(values)]
        return [dict(zip(checked, row, strict=True)) for row in zip(*checked.values(), strict=False)]

    def rule(self, at: Place, rule: Mapping[str, Any], swept: set[str]) -> dict[str, list[ParameterValue]]:
        checked = {}
        for name, value in rule.items():
            option = self.option((*at, name), name)
            if option is None:
                continue
            if name not in swept:
                message = f"not swept here: allowed are {', '.join(sorted(swept)) or 'no keys, nothing is swept'}"
                self.document.complain((*at, name), message, at_key=True)
                continue
            several = value if isinstance(value, list) else [value]
            checked[name] = [self.checked((*at, name), option, one) for one in several]
        return checked


def _above(option: Option, value: Any) -> bool:
    """Whether a value was refused because it is too large: another kernel may take it."""
    try:
        return option.maximum is not None and units.parse(value, option.unit or "") > option.maximum
    except (ValueError, TypeError):
        return False


def _hint(kernel: Kernel, option: Option, value: Any, *, swept: bool) -> str | None:
    """What to try after a value was refused."""
    if isinstance(value, list):
        return "several values belong under matrix, or under zip"
    if option.maximum is None or isinstance(value, (bool, dict)) or not _above(option, value):
        return None
    family = kernel.name.partition("_")[2]
    for other in kernels().values():
        theirs = other.option(option.name)
        if other.name != kernel.name and other.name.partition("_")[2] == family and theirs is not None:
            try:
                option_value(other, theirs, value)
            except ValueError:
                continue
            use = f"use {other.name} above {option.maximum:.12g}" + (f" {option.unit}" if option.unit else "")
            return f"split the sweep, or {use}" if swept else use
    return None

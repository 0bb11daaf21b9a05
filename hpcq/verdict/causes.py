"""Causes of a change: facts that differ between the points before and after it, ranked by how well they separate both.

    separation = half the sum over values of |share of the points before - share of the points after|
    1: no value from before occurs after      0: the same mixture on both sides

A fact that separates fully is a suspect, not a culprit: everything that changed in the same night separates as well.
The facts of hpcq's own program are kept apart from the machine's: a change of the tool is not a change of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Facts of hpcq's own program; `mpi` and the other facts belong to the site.
OWN_BUILD = ("source_build_id", "version", "binary_sha256", "compiler", "flags", "modules")
#: From this separation on, a difference coincides with the change.
SEPARATES = 0.5
#: Facts that name things people change. Other facts of the same separation come later.
_TELLING = ("kernel.", "nic.", "sysctl.", "driver", "firmware", "mtu", "speed", "group.", "software.", "build.mpi", "cpu.")

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Cause:
    """One fact that differs. where: client n1, server n2, or build. before, after: the commonest value on each side."""

    fact: str
    where: str
    before: Value
    after: Value
    separation: float
    own_build: bool

    @property
    def words(self) -> str:
        """`server n2: nic.eth0.mtu_bytes 9000 > 1500`."""
        return f"{self.where}: {self.fact} {_shown(self.before)} > {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Symptom:
    """A rule of the evidence that applies on one side of a change and not on the other: how it got slow, not why."""

    rule: str
    where: str
    before_count: int
    before_of: int
    after_count: int
    after_of: int

    @property
    def words(self) -> str:
        """`server n2: receive_buffer_pruned in 0 of 10 points before, 9 of 10 after`."""
        sides = f"{self.before_count} of {self.before_of} points before, {self.after_count} of {self.after_of} after"
        return f"{self.where}: {self.rule} in {sides}"


def symptoms(before: Sequence[Collection[tuple[str, str]]], after: Sequence[Collection[tuple[str, str]]]) -> list[Symptom]:
    """The findings that coincide with a change, largest difference first. before, after: (where, rule) per point."""
    if not before or not after:
        return []
    found = []
    for where, rule in {one for point in (*before, *after) for one in point}:
        old, new = (sum((where, rule) in point for point in side) for side in (before, after))
        apart = abs(new / len(after) - old / len(before))
        if apart >= SEPARATES:
            found.append((-apart, where, rule, Symptom(rule, where, old, len(before), new, len(after))))
    return [one[-1] for one in sorted(found, key=lambda one: one[:-1])]


def rank(before: Sequence[Mapping[tuple[str, str], Value]], after: Sequence[Mapping[tuple[str, str], Value]]) -> list[Cause]:
    """Facts by separation, best first. before, after: facts of each point by (where, name); a missing fact is None."""
    if not before or not after:
        return []
    found = []
    for key in sorted({key for point in (*before, *after) for key in point}):
        old, new = Counter(point.get(key) for point in before), Counter(point.get(key) for point in after)
        separation = _separation(old, new, len(before), len(after))
        common = old.most_common(1)[0][0], new.most_common(1)[0][0]
        where, name = key
        if where == "build" and None in common:
            continue  # a result that failed before a program began has no build: that is no other program
        if separation > 0 and common[0] != common[1]:
            own = where == "build" and name in OWN_BUILD
            found.append(Cause(name, where, *common, round(separation, 4), own))
    return sorted(found, key=lambda one: (-one.separation, not any(word in one.fact for word in _TELLING), one.where, one.fact))


def own_build_changed(causes: Iterable[Cause]) -> bool:
    """Whether hpcq's own program changed together with the series, so that the change may not be the machine's."""
    return any(one.own_build and one.separation >= SEPARATES for one in causes)


def say(causes: Sequence[Cause], most: int = 3) -> str:
    """The best causes in words. The own build comes first, because it may explain everything."""
    telling = [one for one in causes if one.separation >= SEPARATES]
    own = [one for one in telling if one.own_build]
    words = [f"hpcq's own build changed ({own[0].words})"] if own else []
    words += [one.words for one in telling if not one.own_build][:most]
    return "; ".join(words)


def _separation(old: Counter[Value], new: Counter[Value], old_count: int, new_count: int) -> float:
    return sum(abs(old[value] / old_count - new[value] / new_count) for value in {*old, *new}) / 2


def _shown(value: Value) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."

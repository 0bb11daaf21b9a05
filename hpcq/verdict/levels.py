"""Did series leave their level? Two questions, two methods, and thousands of series judged together.

    boundary   the moment is known (a maintenance): points after it against points before it      statistics.compare
    search     the moment is not known: change points anywhere, those of the stretch in question   statistics.find_changes
               and its blind end, the newest points, against the level that the series last had     statistics.compare

A point is one job, so a change has persisted when more than one point shows it; a single one is never told as a change.
Among many series a few look changed by luck: Benjamini-Hochberg over all of them decides whom to believe.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hpcq.kernels import Better
from hpcq.statistics import Comparison, Outcome, benjamini_hochberg, compare, find_changes
from hpcq.statistics.boundary import (
    ALPHA,
    FALSE_DISCOVERY_RATIO,
    LOOK_AGAIN,
    MINIMUM_EFFECT_RATIO,
    smallest_p,
    smallest_side,
)
from hpcq.statistics.scale import median

Floats = NDArray[np.float64]

#: A search leaves so many newest points alone: they are compared with the level before them.
BLIND_POINTS = 4
#: Fewer points before the blind end say too little of the level.
_LEVEL_POINTS_MIN = 8


@dataclass(frozen=True, slots=True)
class Sides:
    """One series for judging: points in time order, `boundary` the first of the stretch in question.

    repetitions and repetition_boundary: the single values, for where points are too few.
    """

    better: Better
    points: Floats
    boundary: int
    repetitions: Floats
    repetition_boundary: int


@dataclass(frozen=True, slots=True)
class Level:
    """What was found of one series. index: first point of the new level. direction: worse, better, changed, or the same.

    outcome is degraded only for worse (or, without a better direction, changed). first, last: points on either side that it
    rests on run from `first` to `last`. gone: the old level is back since.
    """

    outcome: Outcome
    direction: str
    method: str
    index: int
    first: int
    last: int
    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None
    p_value: float | None
    before_count: int
    after_count: int
    reason: str
    gone: bool = False

    @property
    def sure(self) -> bool:
        """Whether it is a change that may be told."""
        return self.direction != "same" and self.outcome is not Outcome.INCONCLUSIVE


def judge_boundary(series: Sequence[Sides], minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO) -> list[Level]:
    """Each series before against after its boundary, all judged together."""
    found = [_compared(one, one.boundary, len(one.points), minimum_effect_ratio) for one in series]
    return _believed(found)


def judge_search(series: Sequence[Sides], minimum_effect_ratio: float | None = None) -> list[list[Level]]:
    """The changes of each series at or behind its boundary; a change whose old level came back is marked gone."""
    extra = {} if minimum_effect_ratio is None else {"minimum_effect_ratio": minimum_effect_ratio}
    searched = find_changes([one.points for one in series], **extra)
    found: list[list[Level]] = []
    tails: list[tuple[int, Level]] = []
    for position, (one, changes) in enumerate(zip(series, searched, strict=True)):
        cuts = [0, *(change.index for change in changes), len(one.points)]
        levels = []
        for number, change in enumerate(changes):
            direction = _direction(change.before, change.after, one.better)
            level = Level(
                Outcome.PASS if direction == "better" else Outcome.DEGRADED, direction, "search",
                change.index, cuts[number], cuts[number + 2], change.before, change.after,
                change.effect_ratio, change.low, change.high, change.p_value,
                change.index - cuts[number], cuts[number + 2] - change.index, "a new level that lasts",
            )  # fmt: skip
            levels.append(replace(level, gone=_came_back(level, one.points)))
        found.append([level for level in levels if level.index >= one.boundary])
        tail = _tail(one, cuts[-2])
        if tail is not None:
            tails.append((position, tail))
    for (position, _), level in zip(tails, _believed([tail for _, tail in tails]), strict=True):
        if level.direction != "same":
            found[position].append(level)
    return found


def _tail(one: Sides, level_start: int) -> Level | None:
    """The newest points, where the search is blind, against the level before them; None where nothing moved.

    The last 2, 3 and 4 points are tried; the p-value of the clearest is multiplied by the number of tries. Most tails of most
    series are luck, which a rank sum tells at once; only what might be told is compared in full.
    """
    tries, p_value = _moved_tails(one, level_start)
    if not tries:
        return None
    if p_value >= LOOK_AGAIN:
        start = len(one.points) - tries[0]
        counts = (start - level_start, tries[0])
        same = _same(start, len(one.points), counts, Outcome.PASS, "no worse than before")
        return replace(same, p_value=min(1.0, len(tries) * p_value))
    levels = []
    points = one.points[level_start:]
    for count in tries:
        cut = Sides(one.better, points, len(points) - count, points, len(points) - count)
        level = _compared(cut, cut.boundary, len(points), MINIMUM_EFFECT_RATIO)
        levels.append(replace(level, index=len(one.points) - count, first=level_start, last=len(one.points)))
    best = min(levels, key=lambda level: level.p_value if level.p_value is not None else 1.0)
    p_value = min(1.0, len(levels) * (best.p_value if best.p_value is not None else 1.0))
    if best.outcome is Outcome.DEGRADED and p_value >= ALPHA:
        return replace(best, p_value=p_value, outcome=Outcome.INCONCLUSIVE, reason="looks worse of late: measure again")
    return replace(best, p_value=p_value)


def _moved_tails(one: Sides, level_start: int) -> tuple[list[int], float]:
    """How many newest points to try, and the smallest p of any of these tails in either direction, correlation left out."""
    tries: list[int] = []
    smallest = 1.0
    total = len(one.points)
    newest = one.points[max(level_start, total - BLIND_POINTS) :].tolist()
    ordered = sorted(one.points[level_start : total - len(newest)].tolist())
    for count in range(BLIND_POINTS, 1, -1):
        if count < len(newest):
            insort(ordered, newest[-count - 1])
        start = total - count
        if start < one.boundary or start - level_start < _LEVEL_POINTS_MIN:
            continue
        tail = newest[-count:]
        before, after = _middle(ordered), _middle(sorted(tail))
        if before == after or (before and abs(after / before - 1) < MINIMUM_EFFECT_RATIO):
            continue
        tries.insert(0, count)
        smallest = min(smallest, smallest_side(ordered, tail))
    return tries, smallest


def _middle(ordered: Sequence[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0


def _compared(one: Sides, boundary: int, count: int, minimum_effect_ratio: float) -> Level:
    """Before against after `boundary`; p_value is 1 where the medians did not move enough to ask."""
    before, after = one.points[:boundary], one.points[boundary:count]
    runs_after = len(after)
    two_sided = one.better is Better.NONE
    if smallest_p(len(before), len(after), two_sided=two_sided) >= ALPHA and runs_after >= 2:
        before, after = one.repetitions[: one.repetition_boundary], one.repetitions[one.repetition_boundary :]
    counts = (len(before), len(after))
    if not all(counts):
        side = "before" if not counts[0] else "after"
        return _same(boundary, count, counts, Outcome.INCONCLUSIVE, f"nothing was measured {side} the boundary")
    old, new = median(before), median(after)
    enough = smallest_p(*counts, two_sided=two_sided) < ALPHA
    if enough and old and abs(new / old - 1) < minimum_effect_ratio:
        level = _same(boundary, count, counts, Outcome.PASS, "no worse than before")
        return replace(level, before=old, after=new, ratio=new / old, p_value=1.0)
    compared = compare(before, after, better=one.better, minimum_effect_ratio=minimum_effect_ratio)
    return _level(compared, one.better, boundary, count, runs_after)


def _level(compared: Comparison, better: Better, boundary: int, count: int, runs_after: int) -> Level:
    shift = compared.shift
    assert shift is not None  # noqa: S101 - both sides have values
    moved = compared.outcome is Outcome.DEGRADED or compared.improved
    looks = compared.outcome is Outcome.INCONCLUSIVE and "looks worse" in compared.reason
    direction = _direction(shift.before, shift.after, better) if moved or looks else "same"
    outcome, reason = compared.outcome, compared.reason
    if moved and runs_after < 2:
        outcome, reason = Outcome.INCONCLUSIVE, f"{direction} in one run only, and a change must last: measure again"
    return Level(
        outcome, direction, "boundary", boundary, 0, count, shift.before, shift.after, shift.ratio, shift.low, shift.high,
        compared.p_value, compared.before_count, compared.after_count, reason,
    )  # fmt: skip


def _same(boundary: int, count: int, counts: tuple[int, int], outcome: Outcome, reason: str) -> Level:
    nothing = float("nan")
    return Level(
        outcome, "same", "boundary", boundary, 0, count, nothing, nothing, None, None, None, None, counts[0], counts[1], reason
    )


def _believed(found: list[Level]) -> list[Level]:
    """Hold back what luck explains among so many series."""
    tested = [i for i, level in enumerate(found) if level.p_value is not None]
    adjusted = benjamini_hochberg([found[i].p_value or 0.0 for i in tested])
    for i, q in zip(tested, adjusted, strict=True):
        if found[i].outcome is Outcome.DEGRADED and q > FALSE_DISCOVERY_RATIO:
            reason = f"looks {found[i].direction}, but among {len(tested)} series that much is expected by luck: measure again"
            found[i] = replace(found[i], outcome=Outcome.INCONCLUSIVE, reason=reason)
    return found


def _came_back(level: Level, points: Floats) -> bool:
    """Whether the newest level lies nearer to the old one than to the new one: somebody repaired it."""
    if level.last >= len(points):
        return False
    now = median(points[-min(len(points) - level.last, 10) :])
    return abs(now - level.before) < abs(now - level.after)


def _direction(before: float, after: float, better: Better) -> str:
    if before == after:
        return "same"
    if better is Better.NONE:
        return "changed"
    return "better" if (after > before) == (better is Better.HIGHER) else "worse"

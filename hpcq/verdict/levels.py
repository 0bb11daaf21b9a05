"""Did series leave their level? Two questions, two methods, and thousands of series judged together.

    boundary   the moment is known (a maintenance): points after it against points before it      statistics.compare
    search     the moment is unknown: change points anywhere; those in the stretch count           statistics.find_changes
               and its blind end: the newest points against the last level of the series          statistics.compare

One point is one job. A change has persisted when more than one point shows it, so a single point never counts as a
change. If there are too few points for ranks, the scatter between jobs decides, as learned from history
(comparison.py). Among many series a few look changed by luck: Benjamini-Hochberg over all of them decides which to
believe. A series that moved ten times its noise beyond everything seen before is believed in any case.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hpcq.kernels import Better
from hpcq.statistics import Comparison, ComparisonVerdict, JobScatter, benjamini_hochberg, compare, compare_jobs, find_changes
from hpcq.statistics.boundary import FALSE_DISCOVERY_RATIO, p_of_worse
from hpcq.statistics.comparison import (
    ALPHA,
    BEYOND_DOUBT_COUNTS,
    BEYOND_DOUBT_SIGMAS,
    LOOK_AGAIN,
    MINIMUM_EFFECT_RATIO,
    beyond_doubt,
    median,
    median_variance,
    smallest_p,
    smallest_side,
    t_quantile,
)

Floats = NDArray[np.float64]

#: This many newest points are compared with the level before them. A search needs five points to see a level, and more
#: if the step is hardly larger than the noise.
TAIL_POINTS = 12
#: A search cannot see tails up to this length; longer tails only close the gap to what it sees.
_BLIND_POINTS = 4
#: The cost of many tries: p of a short tail is multiplied by the first number, p of a longer one by the second. Then
#: 1.9 % of unchanged series have a p below 0.01, and 91 % of two-sigma steps are found by the fourth point
#: (bench/between_jobs.py).
_SHORT_TRIES, _LONG_TRIES = 1.5, 4.0
#: With fewer points before a tail, ranks say too little about the level; the scatter between jobs may still tell.
_LEVEL_POINTS_MIN = 8
#: A series with fewer points is not judged at all.
JUDGED_POINTS_MIN = 4
#: A level of fewer points is no change.
LASTING_COUNT = 2
ASSUMED = JobScatter(0.05, 0)
#: Of a loss that is told in nine of ten cases: so many standard errors above one that is told in half of them.
_NINE_OF_TEN = 1.2816
#: A larger loss than this is no number that anybody would act on.
_NOTHING_LEFT = 0.95
#: The direction of a series that once had values and now only fails: beyond worse.
GONE = "gone"


@dataclass(frozen=True, slots=True)
class Sides:
    """One series to judge: points (one per job) in time order; `boundary` is the first of the stretch in question.

    scatter: how far its jobs scatter. smallest_move: the smallest move that matters, in the unit of the points.
    """

    better: Better
    points: Floats
    boundary: int
    scatter: JobScatter = ASSUMED
    smallest_move: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """The result for one series. index: first point of the new level. direction: worse, better, changed, or the same.

    verdict is degraded only for worse and gone (or for changed, if neither direction is better). It rests on the points
    on both sides from `first` to `last`. came_back: the series has returned to the old level since.
    """

    verdict: ComparisonVerdict
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
    came_back: bool = False
    beyond_doubt: bool = False

    @property
    def sure(self) -> bool:
        """Whether this is certain enough to be reported as a change."""
        return self.direction != "same" and self.verdict is not ComparisonVerdict.INCONCLUSIVE


def judge_boundary(series: Sequence[Sides], *, lasting_count: int = LASTING_COUNT) -> list[Level]:
    """Compare each series before and after its boundary; all are judged together.

    lasting_count: with fewer points after the boundary, nothing is reported as a change. Give 1 to judge one run.
    """
    found = [_compared(one, one.boundary, len(one.points), MINIMUM_EFFECT_RATIO) for one in series]
    return _believed([_lasting(level, lasting_count) for level in found])


@lru_cache(maxsize=1 << 14)
def smallest_worse(scatter: JobScatter, before_count: int, after_count: int, better: Better, series_count: int) -> float | None:
    """The smallest loss (0.1: a tenth) that judge_boundary() tells in nine of ten cases; None: none, however large.

    series_count: how many are judged together; the more, the clearer a single one must be.
    """
    sides = 2 if better is Better.NONE else 1
    alpha = min(ALPHA, FALSE_DISCOVERY_RATIO / max(1, series_count))
    error = scatter.ratio * sqrt(sum(median_variance(count) / count for count in (before_count, after_count)))
    told = t_quantile(NormalDist().inv_cdf(1 - alpha / sides), scatter.degrees) * error
    if _by_ranks(better, before_count, after_count) and smallest_p(before_count, after_count, two_sided=sides == 2) >= alpha:
        told = (
            BEYOND_DOUBT_SIGMAS * error
            if before_count >= BEYOND_DOUBT_COUNTS[0] and after_count >= BEYOND_DOUBT_COUNTS[1]
            else inf
        )
    loss = 1 - exp(-max(told + _NINE_OF_TEN * error, -log(1 - MINIMUM_EFFECT_RATIO)))
    return loss if loss < _NOTHING_LEFT else None


def _lasting(level: Level, lasting_count: int) -> Level:
    if level.direction == "same" or level.after_count >= lasting_count:
        return level
    reason = f"{level.direction} in one job only, and a change must last: measure again"
    return replace(level, verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason)


def judge_search(series: Sequence[Sides], minimum_effect_ratio: float | None = None) -> list[list[Level]]:
    """The changes of each series at or after its boundary; marks a change whose old level came back."""
    extra = {} if minimum_effect_ratio is None else {"minimum_effect_ratio": minimum_effect_ratio}
    searched = find_changes([one.points for one in series], smallest_moves=[one.smallest_move for one in series], **extra)
    found: list[list[Level]] = []
    tails: list[tuple[int, Level]] = []
    for position, (one, changes) in enumerate(zip(series, searched, strict=True)):
        cuts = [0, *(change.index for change in changes), len(one.points)]
        levels = []
        for number, change in enumerate(changes):
            direction = _direction(change.before, change.after, one.better)
            level = Level(
                ComparisonVerdict.PASS if direction == "better" else ComparisonVerdict.DEGRADED, direction, "search",
                change.index, cuts[number], cuts[number + 2], change.before, change.after,
                change.effect_ratio, change.low, change.high, change.p_value,
                change.index - cuts[number], cuts[number + 2] - change.index, "a new level that lasts",
            )  # fmt: skip
            levels.append(replace(level, came_back=_came_back(level, one.points)))
        found.append([level for level in levels if level.index >= one.boundary])
        tail = _tail(one, cuts[-2])
        if tail is not None:
            tails.append((position, tail))
    for (position, _), level in zip(tails, _believed([tail for _, tail in tails]), strict=True):
        if level.direction != "same":
            found[position].append(level)
    return found


def _tail(one: Sides, level_start: int) -> Level | None:
    """Compare the newest points, where the search is blind, with the level before them; None if the points are too few.

    Tries the last 2 to TAIL_POINTS points; p-values grow by the cost of so many tries. Most tails of most series are
    luck, and a rank sum shows that at once. Only tails that might be reported are compared in full.
    """
    tries, p_value = _moved_tails(one, level_start)
    if not tries:
        return None
    if p_value >= LOOK_AGAIN:
        start = len(one.points) - tries[0]
        counts = (start - level_start, tries[0])
        same = _same(start, len(one.points), counts, ComparisonVerdict.PASS, "no worse than before")
        return replace(same, p_value=p_value)
    points = one.points[level_start:]
    cuts = [replace(one, points=points, boundary=len(points) - count) for count in tries]
    dearer = [_dearer(_p_value(cut), count) for cut, count in zip(cuts, tries, strict=True)]
    place = min(range(len(cuts)), key=dearer.__getitem__)
    level = _compared(cuts[place], cuts[place].boundary, len(points), MINIMUM_EFFECT_RATIO)
    p_value = dearer[place]
    best = replace(
        level,
        index=len(one.points) - tries[place],
        first=level_start,
        last=len(one.points),
        p_value=None if level.p_value is None else p_value,
    )
    if best.verdict is ComparisonVerdict.INCONCLUSIVE and best.direction == "same":
        return replace(best, verdict=ComparisonVerdict.PASS, reason="no change of level")
    if best.direction != "same" and best.verdict is not ComparisonVerdict.INCONCLUSIVE and p_value >= ALPHA:
        reason = f"looks {best.direction} of late: measure again"
        return replace(best, verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason)
    return best


def _p_value(cut: Sides) -> float | None:
    """The p_value that _compared() gives at this boundary; it costs a fraction of the rest."""
    before, after = cut.points[: cut.boundary], cut.points[cut.boundary :]
    if _by_ranks(cut.better, len(before), len(after)):
        return p_of_worse(before, after, cut.better)
    return compare_jobs(before, after, cut.scatter, better=cut.better, smallest_move=cut.smallest_move).p_value


def _by_ranks(better: Better, before_count: int, after_count: int) -> bool:
    """Whether so many points are enough for ranks; of fewer, the scatter between jobs tells."""
    return smallest_p(before_count, after_count, two_sided=better is Better.NONE) < ALPHA


def _dearer(p_value: float | None, count: int) -> float:
    return 1.0 if p_value is None else min(1.0, p_value * _tries(count))


def _tries(count: int) -> float:
    return _SHORT_TRIES if count <= _BLIND_POINTS else _LONG_TRIES


def _moved_tails(one: Sides, level_start: int) -> tuple[list[int], float]:
    """Numbers of newest points to try, and the smallest p of these tails in either direction, ignoring correlation."""
    tries: list[int] = []
    smallest = 1.0
    total = len(one.points)
    newest = one.points[max(level_start, total - TAIL_POINTS) :].tolist()
    ordered = sorted(one.points[level_start : total - len(newest)].tolist())
    for count in range(TAIL_POINTS, 1, -1):
        if count < len(newest):
            insort(ordered, newest[-count - 1])
        start = total - count
        before_count = start - level_start
        if start < one.boundary or before_count < (_LEVEL_POINTS_MIN if count > _BLIND_POINTS else 2):
            continue
        tail = newest[-count:]
        before, after = _middle(ordered), _middle(sorted(tail))
        small = abs(after - before) < one.smallest_move
        if before == after or small or (before and abs(after / before - 1) < MINIMUM_EFFECT_RATIO):
            continue
        tries.insert(0, count)
        by_ranks = smallest_p(before_count, count) < ALPHA
        smallest = min(smallest, _tries(count) * smallest_side(ordered, tail) if by_ranks else 0.0)
    return tries, smallest


def _middle(ordered: Sequence[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0


def _compared(one: Sides, boundary: int, count: int, minimum_effect_ratio: float) -> Level:
    """Compare before with after `boundary`: by ranks if there are enough points, else by the scatter between jobs."""
    before, after = one.points[:boundary], one.points[boundary:count]
    counts = (len(before), len(after))
    if not all(counts):
        side = "before" if not counts[0] else "after"
        return _same(boundary, count, counts, ComparisonVerdict.INCONCLUSIVE, f"nothing was measured {side} the boundary")
    effect, move = minimum_effect_ratio, one.smallest_move
    if _by_ranks(one.better, *counts):
        compared = compare(before, after, better=one.better, minimum_effect_ratio=effect, smallest_move=move)
    else:
        compared = compare_jobs(before, after, one.scatter, better=one.better, minimum_effect_ratio=effect, smallest_move=move)
    level = _level(compared, one.better, boundary, count)
    return replace(level, beyond_doubt=beyond_doubt(before, after)) if level.direction != "same" else level


def _level(compared: Comparison, better: Better, boundary: int, count: int) -> Level:
    shift = compared.shift
    assert shift is not None  # noqa: S101 - both sides have values
    moved = compared.verdict is ComparisonVerdict.DEGRADED or compared.improved
    looks = compared.verdict is ComparisonVerdict.INCONCLUSIVE and "looks worse" in compared.reason
    direction = _direction(shift.before, shift.after, better) if moved or looks else "same"
    return Level(
        compared.verdict, direction, "boundary", boundary, 0, count, shift.before, shift.after, shift.ratio, shift.low,
        shift.high, compared.p_value, compared.before_count, compared.after_count, compared.reason,
    )  # fmt: skip


def _same(boundary: int, count: int, counts: tuple[int, int], outcome: ComparisonVerdict, reason: str) -> Level:
    nothing = float("nan")
    return Level(
        outcome, "same", "boundary", boundary, 0, count, nothing, nothing, None, None, None, None, counts[0], counts[1], reason
    )


def _believed(found: list[Level]) -> list[Level]:
    """Hold back changes that luck explains among so many series."""
    tested = [i for i, level in enumerate(found) if level.p_value is not None]
    adjusted = benjamini_hochberg([found[i].p_value or 0.0 for i in tested])
    for i, q in zip(tested, adjusted, strict=True):
        if found[i].verdict is ComparisonVerdict.DEGRADED and q > FALSE_DISCOVERY_RATIO and not found[i].beyond_doubt:
            reason = f"looks {found[i].direction}, but among {len(tested)} series that much is expected by luck: measure again"
            found[i] = replace(found[i], verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason)
    return found


def _came_back(level: Level, points: Floats) -> bool:
    """Whether the newest level is nearer to the old one than to the new one, as after a repair."""
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

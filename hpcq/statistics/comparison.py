"""The outcomes of a comparison of before with after."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import ceil, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.statistics.ranks import median, noise_scale

# ----------------------------------------------------------------------------------------------------------------------
# How far the median moved, as a ratio with a bootstrap interval that costs microseconds.
#
# The median of a resample of n sorted values is the value at a random rank. The ranks depend on n alone: they are the
# middle order statistics of n uniform numbers, drawn once per n and then reused. So an interval is two look-ups and one
# quantile.
# Source: percentile bootstrap, Efron & Tibshirani 1993, ch. 13; uniform order statistics, David & Nagaraja 2003, ch. 2.

Floats = NDArray[np.float64]

RESAMPLES = 1999
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Shift:
    """Medians before and after, and after / before with its 95 % interval; None if a median is not above zero."""

    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def relative_change(self) -> float:
        """(after - before) / |before|; infinite if the level before was zero and moved."""
        if self.after == self.before:
            return 0.0
        if self.before == 0:
            return float("inf") if self.after > 0 else float("-inf")
        return (self.after - self.before) / abs(self.before)


def median_shift(before: Floats, after: Floats) -> Shift:
    """Estimate how far `after` moved from `before`, as a ratio of medians.

    before, after: finite values, one per repetition, same unit, length >= 1. The same input gives the same interval.
    A side with fewer than 6 values contributes the range from its smallest to its largest value. That covers less than
    95 % (0.75 for 3 values, 0.94 for 5).
    """
    before, after = np.sort(before), np.sort(after)
    middle_before, middle_after = _middle(before), _middle(after)
    if min(middle_before, middle_after) <= 0:
        return Shift(middle_before, middle_after, None, None, None)
    below = _resampled_medians(before, side=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(below > 0, _resampled_medians(after, side=1) / below, np.inf)
    tail = int((1 - CONFIDENCE) / 2 * RESAMPLES)
    ordered = np.partition(ratios, (tail, RESAMPLES - 1 - tail))
    ratio = middle_after / middle_before
    high = float(ordered[RESAMPLES - 1 - tail])
    return Shift(middle_before, middle_after, ratio, float(ordered[tail]), high if np.isfinite(high) else None)


def _middle(ordered: Floats) -> float:
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0


def _resampled_medians(ordered: Floats, side: int) -> Floats:
    lower, upper = _median_ranks(len(ordered), side)
    if lower is upper:
        return np.asarray(ordered[lower], dtype=np.float64)
    return np.asarray((ordered[lower] + ordered[upper]) / 2.0, dtype=np.float64)


@lru_cache(maxsize=1024)
def _median_ranks(count: int, side: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Ranks (from 0) of the two middle values of RESAMPLES resamples of `count` values; equal if count is odd."""
    random = np.random.default_rng([count, side])
    first = (count + 1) // 2
    lower = random.beta(first, count - first + 1, RESAMPLES)
    upper = lower if count % 2 else lower + (1 - lower) * random.beta(1, count - first, RESAMPLES)
    top = count - 1
    low = np.minimum((lower * count).astype(np.int32), top)
    return low, low if count % 2 else np.minimum((upper * count).astype(np.int32), top)


# ----------------------------------------------------------------------------------------------------------------------
# What is too small to matter: as a share of the level, and in the metric's own unit because the level may be zero.
#
# MINIMUM_EFFECT_RATIO    a smaller move of the median is never reported as a change
# PASS_EFFECT_RATIO       a pass says that a worsening of this share or more is ruled out
# smallest_move(unit)     a smaller move in the metric's own unit is never reported as a change, whatever its share
# beyond_doubt(...)       a move so far outside everything seen before that the number of series does not matter


MINIMUM_EFFECT_RATIO = 0.02
PASS_EFFECT_RATIO = 0.05
#: A median this many standard errors from the level before, and every value half as far beyond the whole range before.
#: Neither luck nor the number of series explains that, and a second mode would have been seen before.
BEYOND_DOUBT_SIGMAS = 10.0
_BEYOND_DOUBT_BEFORE_MIN = 5
_BEYOND_DOUBT_AFTER_MIN = 3
#: One lost packet of 10,000, three events, two ticks of a clock: smaller moves appear by chance and matter to nobody.
_SMALLEST_MOVES = {"ratio": 1e-4, "count": 3.0, "ns": 20.0}


def smallest_move(unit: str) -> float:
    """The smallest move that matters in a metric's own unit: `ratio` 1e-4, `count` 3, `ns` 20; 0 for all others."""
    return _SMALLEST_MOVES.get(unit, 0.0)


def beyond_doubt(before: Floats, after: Floats) -> bool:
    """Whether the median moved by ten standard errors, and all values after lie half as far beyond all values before.

    before, after: finite, time order, same unit. False with fewer than 5 values before or 3 after.
    """
    if len(before) < _BEYOND_DOUBT_BEFORE_MIN or len(after) < _BEYOND_DOUBT_AFTER_MIN:
        return False
    moved = abs(median(after) - median(before))
    outside = max(float(after.min() - before.max()), float(before.min() - after.max()))
    if outside < moved / 2:
        return False
    error = float(noise_scale(before)[0]) * sqrt(pi / 2 * (1 / len(before) + 1 / len(after)))
    return moved >= BEYOND_DOUBT_SIGMAS * error


# ----------------------------------------------------------------------------------------------------------------------
# Many series at once: which of them to believe when a few look odd by chance.
#
# Source: Benjamini & Hochberg 1995.


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values: if you keep all at or below q, at most the share q of those kept is expected to be luck.

    p_values: one per test, 0..1, in any order. Returns the same shape and order.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.size == 0:
        return p.copy()
    order = np.argsort(p)
    scaled = p[order] * p.size / np.arange(1, p.size + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


# ----------------------------------------------------------------------------------------------------------------------

#: ALPHA: chance of calling an unchanged series degraded. LOOK_AGAIN: with a p below this, a series looks worse, and you
#: should measure it again.
ALPHA = 0.01
LOOK_AGAIN = 0.05
#: To advise more runs than this would not help anybody.
_ADVICE_MAX = 200


class ComparisonVerdict(StrEnum):
    """The words of a before/after comparison. `pass` means that a worsening that matters is ruled out."""

    PASS = "pass"  # noqa: S105 -- a verdict, not a password
    DEGRADED = "degraded"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One series before against after. improved: it clearly moved in the good direction. reason: for people."""

    verdict: ComparisonVerdict
    reason: str
    improved: bool
    p_value: float | None
    shift: Shift | None
    before_count: int
    after_count: int


def runs_needed(noise_ratio: float, before_count: int, margin_ratio: float = PASS_EFFECT_RATIO) -> int | None:
    """Runs after the boundary that make the interval narrow enough; None if more runs before it are needed too.

    noise_ratio: scatter of single runs, as a share of the level. margin_ratio: distance of the observed move from the
    worsening to rule out; 1.96 standard errors of a difference of medians must fit into it.
    """
    if noise_ratio <= 0:
        return 1
    margin_ratio = max(abs(margin_ratio), PASS_EFFECT_RATIO / 4)
    allowed = (margin_ratio / 1.96 / noise_ratio) ** 2 / (pi / 2) - 1 / max(before_count, 1)
    return ceil(1 / allowed) if allowed > 0 and 1 / allowed <= _ADVICE_MAX else None


def more_needed(noise_ratio: float, margin_ratio: float, before_count: int, after_count: int) -> str:
    """`3 more runs would settle it`, for people; see runs_needed()."""
    needed = runs_needed(noise_ratio, before_count, margin_ratio)
    if needed is not None:
        count = max(1, needed - after_count)
        return f"{count} more run{'' if count == 1 else 's'} would settle it"
    at_least = runs_needed(noise_ratio, 10**9, margin_ratio)
    if at_least is None:
        return f"at a noise of {100 * noise_ratio:.2g} % more runs than anybody waits for would be needed"
    sides = max(1, 2 * at_least - before_count), max(1, 2 * at_least - after_count)
    return f"about {sides[0]} more runs before and {sides[1]} more after would settle it"

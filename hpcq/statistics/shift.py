"""How far the median moved, as a ratio with a bootstrap interval that costs microseconds.

The median of a resample of n sorted values is the value at a random rank. The ranks depend on n alone: they are the
middle order statistics of n uniform numbers, drawn once per n and then reused. So an interval is two look-ups and one
quantile.
Source: percentile bootstrap, Efron & Tibshirani 1993, ch. 13; uniform order statistics, David & Nagaraja 2003, ch. 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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

"""How the values of one measurement go over its time: a drift, or two levels instead of one. Pure, standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

#: Fewer values have no course.
VALUES_MIN = 10
#: A drift is looked for in so many means of neighbours, for which time and slopes stay small.
_SHARES = 40


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend: the values at the end over those at the beginning, less 1; `z` is that of Mann and Kendall's test."""

    change_ratio: float
    z: float


@dataclass(frozen=True, slots=True)
class Levels:
    """Two groups of values: their means, the share of the lower one, and how much of the variance lies between them.

    One normal distribution has 0.64 of it between its halves, a uniform one 0.75, two sharp levels 1.
    """

    low: float
    high: float
    low_ratio: float
    explained_ratio: float


def drift(values: Sequence[float]) -> Drift | None:
    """The trend of values that stand in order of time; None: too few, or they are about 0.

    Slope: the median of the slopes between all pairs (Theil 1950, Sen 1968). Test: Mann 1945, Kendall 1975, with ties;
    its variance grows with the correlation of neighbours, as they tell less than independent values would.
    """
    if len(values) < VALUES_MIN:
        return None
    shares = thinned(values, _SHARES)
    middle, count = median(shares), len(shares)
    if middle <= 0:
        return None
    slopes = [(after - before) / (j - i) for (i, before), (j, after) in combinations(enumerate(shares), 2)]
    score = sum((slope > 0) - (slope < 0) for slope in slopes)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in (shares.count(one) for one in set(shares)))
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    slope = median(slopes)
    variance *= _inflation([one - slope * at for at, one in enumerate(shares)])
    z = (score - math.copysign(1, score)) / math.sqrt(variance) if score and variance > 0 else 0.0
    return Drift(slope * (count - 1) / middle, z)


def _inflation(values: Sequence[float]) -> float:
    """How much more the mean of correlated values scatters than that of independent ones: (1 + r) / (1 - r)."""
    middle = fmean(values)
    spread = sum((one - middle) ** 2 for one in values)
    if spread <= 0:
        return 1.0
    together = sum((before - middle) * (after - middle) for before, after in pairwise(values))
    correlation = min(max(together / spread, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)


def levels(values: Sequence[float], weights: Sequence[float] | None = None) -> Levels | None:
    """The split into a lower and a higher group with the most variance between them (Otsu 1979); None: all are equal."""
    given = weights or [1.0] * len(values)
    ordered = sorted(zip(values, given, strict=True))
    total = sum(given)
    whole = sum(value * weight for value, weight in ordered)
    spread = sum(weight * (value - whole / total) ** 2 for value, weight in ordered) if total else 0.0
    if spread <= 0:
        return None
    best = (-1.0, 0.0, 0.0)
    below, below_sum = 0.0, 0.0
    for (value, weight), (following, _) in pairwise(ordered):
        below, below_sum = below + weight, below_sum + value * weight
        if following == value or below >= total:
            continue
        gap = (whole - below_sum) / (total - below) - below_sum / below
        best = max(best, (below * (total - below) / total * gap**2, below, below_sum))
    between, below, below_sum = best
    if below <= 0:
        return None
    return Levels(below_sum / below, (whole - below_sum) / (total - below), below / total, between / spread)


def switches(values: Sequence[float], boundary: float) -> int:
    """How often values in order of time cross a boundary."""
    return sum((before < boundary) is not (after < boundary) for before, after in pairwise(values))


def thinned(values: Sequence[float], count: int) -> list[float]:
    """At most so many means of neighbours."""
    step = -(-len(values) // count)
    return [fmean(values[at : at + step]) for at in range(0, len(values), step)]

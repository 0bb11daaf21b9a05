"""Known boundary: are the values after it worse than those before?

    degraded       Mann-Whitney p < ALPHA in the direction of worse, and the median moved by at least MINIMUM_EFFECT
    inconclusive   so few values that no outcome could reach ALPHA; or it looks worse (p < LOOK_AGAIN) but might be luck
    pass           neither

Ranks ask no shape of the noise; the minimum effect keeps what is real but of no consequence away from people. Repetitions
that ran back to back are not independent, and five of them say less than five should: where neighbours before the boundary are
clearly correlated, p is computed with a wider spread (docs/methods/change-points.md).
Source: Mann & Whitney 1947 (the test and its exact distribution), Lehmann 1975 (ties).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import comb, erfc, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better
from hpcq.statistics.discovery import benjamini_hochberg
from hpcq.statistics.ranks import CORRELATION_MAX, average_ranks
from hpcq.statistics.shift import Shift, median_shift

Floats = NDArray[np.float64]

ALPHA = 0.01
LOOK_AGAIN = 0.05
MINIMUM_EFFECT_RATIO = 0.02
FALSE_DISCOVERY_RATIO = 0.05
# Up to here the exact distribution is used (without ties); beyond, the normal one differs by less than 1e-3.
EXACT_SMALLER = 8
EXACT_LARGER = 500
# Thirty runs tell their own correlation poorly, so the spread widens by this power of the factor that it asks for. At 0 AR(1)
# noise of 0.6 gives 7 % false alarms, at 1 it hides a third of the 5 % drops; bench/changepoint.py measures what this gives.
CORRELATION_TRUST = 0.4


class Outcome(StrEnum):
    """What a before/after comparison can say; the words of a verdict."""

    PASS = "pass"  # noqa: S105 -- a verdict, not a password
    DEGRADED = "degraded"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One series before against after. `improved`: it moved clearly, in the good direction. `reason` is for people."""

    outcome: Outcome
    reason: str
    improved: bool
    p_value: float | None
    shift: Shift | None
    before_count: int
    after_count: int


def compare(
    before: ArrayLike,
    after: ArrayLike,
    *,
    better: Better = Better.HIGHER,
    alpha: float = ALPHA,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
) -> Comparison:
    """Judge whether `after` is worse than `before`.

    before, after: one value per repetition in time order, same unit; NaN and infinities are missing values and dropped.
    alpha: chance of calling an unchanged series degraded, before the minimum effect makes it smaller.
    minimum_effect_ratio: smallest move of the median, as a share of the median before, that matters.
    """
    old, new = _finite(before), _finite(after)
    attainable = smallest_p(len(old), len(new), two_sided=better is Better.NONE)
    if not (len(old) and len(new)):
        side = "before" if not len(old) else "after"
        reason = f"no values {side} the boundary"
        return Comparison(Outcome.INCONCLUSIVE, reason, False, None, None, len(old), len(new))
    shift = median_shift(old, new)
    factor = correlation_factor(old, len(new))
    worse, improved = (_temper(p, factor) for p in mann_whitney(old, new, better))
    change = -shift.relative_change if better is Better.HIGHER else shift.relative_change
    if better is Better.NONE:
        change = abs(change)
    gain = improved < alpha and -change >= minimum_effect_ratio and better is not Better.NONE
    if attainable >= alpha:
        outcome, reason = Outcome.INCONCLUSIVE, _too_few(len(old), len(new), alpha, better)
    elif worse < alpha and change >= minimum_effect_ratio:
        outcome, reason = Outcome.DEGRADED, "clearly worse than before"
    elif worse < LOOK_AGAIN and change >= minimum_effect_ratio:
        outcome, reason = Outcome.INCONCLUSIVE, "looks worse, but might be luck: measure again"
    else:
        outcome, reason = Outcome.PASS, "clearly better than before" if gain else "no worse than before"
    return Comparison(outcome, reason, gain, worse, shift, len(old), len(new))


def compare_many(
    pairs: Iterable[tuple[ArrayLike, ArrayLike]],
    *,
    better: Better = Better.HIGHER,
    alpha: float = ALPHA,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    false_discovery_ratio: float = FALSE_DISCOVERY_RATIO,
) -> list[Comparison]:
    """Judge many series together, so that luck in a few of many is not taken for damage.

    pairs: (before, after) of each series, as for compare(). A series that compare() would call degraded, but that chance
    explains among so many (Benjamini-Hochberg above false_discovery_ratio), comes back inconclusive.
    """
    found = [compare(old, new, better=better, alpha=alpha, minimum_effect_ratio=minimum_effect_ratio) for old, new in pairs]
    tested = [i for i, one in enumerate(found) if one.p_value is not None]
    adjusted = benjamini_hochberg([found[i].p_value or 0.0 for i in tested])
    for i, q in zip(tested, adjusted, strict=True):
        if found[i].outcome is Outcome.DEGRADED and q > false_discovery_ratio:
            reason = f"looks worse, but among {len(tested)} series that much is expected by luck: measure again"
            found[i] = replace(found[i], outcome=Outcome.INCONCLUSIVE, reason=reason)
    return found


def mann_whitney(before: Floats, after: Floats, better: Better = Better.HIGHER) -> tuple[float, float]:
    """p that `after` is worse, and p that it is better, by the rank sum test; both two-sided p for Better.NONE.

    before, after: finite, length >= 1. Exact where one side has at most 8 values and none are equal, otherwise normal with
    corrections for ties and continuity: what scipy.stats.mannwhitneyu chooses by itself.
    """
    m, n = len(before), len(after)
    pooled = np.concatenate([before, after])
    ranks = average_ranks(pooled[None, :])[0]
    above = float(ranks[m:].sum()) - n * (n + 1) / 2.0
    centred = ranks - (m + n + 1) / 2.0
    square = float(centred @ centred)
    untied = square > (m + n) * ((m + n) ** 2 - 1) / 12.0 - 0.25  # a tie lowers it by at least a half
    if untied and min(m, n) <= EXACT_SMALLER and max(m, n) <= EXACT_LARGER:
        tail = _exact_tail(min(m, n), max(m, n))
        lower, upper = float(tail[round(above)]), float(tail[round(m * n - above)])
    else:
        deviation = sqrt(m * n / ((m + n) * (m + n - 1.0)) * square)
        lower, upper = (_normal_tail(u - m * n / 2.0, deviation) for u in (above, m * n - above))
    if better is Better.NONE:
        both = min(1.0, 2 * min(lower, upper))
        return both, both
    return (lower, upper) if better is Better.HIGHER else (upper, lower)


def smallest_side(ordered: Sequence[float], after: Sequence[float]) -> float:
    """The smaller of both one-sided p of mann_whitney(), for a first look at very many short tails.

    ordered: the values before, ascending. 0 where only mann_whitney() itself can tell: equal values, or very many.
    """
    few, many = sorted((len(ordered), len(after)))
    if few > EXACT_SMALLER or many > EXACT_LARGER or len({*ordered, *after}) < few + many:
        return 0.0
    tail = _exact_tail(few, many)
    below = sum(bisect_left(ordered, value) for value in after)
    return float(min(tail[below], tail[few * many - below]))


def smallest_p(before_count: int, after_count: int, *, two_sided: bool = False) -> float:
    """The p of the most extreme outcome that these many values could give: 1 / (ways to deal the ranks)."""
    if not (before_count and after_count):
        return 1.0
    return min(1.0, (2 if two_sided else 1) / comb(before_count + after_count, after_count))


def after_count_needed(before_count: int, alpha: float = ALPHA, *, two_sided: bool = False) -> int | None:
    """Fewest values after the boundary with which p < alpha can be reached at all; None when too few stand before it."""
    for count in range(1, 101):
        if smallest_p(before_count, count, two_sided=two_sided) < alpha:
            return count
    return None


def correlation_factor(before: Floats, after_count: int) -> float:
    """By how much correlation of neighbouring runs widens the spread of a difference; 1 where none is seen.

    before: the runs before the boundary in time order. The lag-one correlation of their ranks counts when it is above what
    one independent series in twenty shows. Source: Bayley & Hammersley 1946.
    """
    count = len(before)
    ranks = average_ranks(before[None, :])[0] - (count + 1) / 2.0
    square = float(ranks @ ranks)
    seen = float(ranks[1:] @ ranks[:-1]) / square if square > 0 else 0.0
    if seen <= 1.645 / sqrt(count):
        return 1.0
    correlation = min(CORRELATION_MAX, seen + (1 + 3 * seen) / count)
    widened = sum(_inflation(correlation, n) / n for n in (count, after_count))
    return float((widened / (1 / count + 1 / after_count)) ** (CORRELATION_TRUST / 2))


def _inflation(correlation: float, count: int) -> float:
    """Variance of the mean of `count` AR(1) values over that of independent ones."""
    lags = np.arange(1, count)
    return 1.0 + 2.0 * float(np.sum((1 - lags / count) * correlation**lags))


def _temper(p_value: float, factor: float) -> float:
    """The p-value when the spread is `factor` times what the test assumed."""
    if factor == 1.0 or not 0.0 < p_value < 1.0:
        return p_value
    return 1.0 - NormalDist().cdf(-NormalDist().inv_cdf(p_value) / factor)


def _too_few(before_count: int, after_count: int, alpha: float, better: Better) -> str:
    needed = after_count_needed(before_count, alpha, two_sided=better is Better.NONE)
    have = f"{before_count} values before and {after_count} after are too few to tell damage from luck"
    if needed is None:
        return f"{have}: more are needed before the boundary"
    return f"{have}: with {before_count} before, at least {needed} after are needed, better 5 or more"


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]


def _normal_tail(above_mean: float, deviation: float) -> float:
    """P(U <= observed) with continuity correction; 1 when nothing varies."""
    if deviation == 0:
        return 1.0
    return min(1.0, 0.5 * erfc(-(above_mean + 0.5) / deviation / sqrt(2.0)))


@lru_cache(maxsize=256)
def _exact_tail(small: int, large: int) -> Floats:
    """P(U <= u) for u = 0..small * large, sides of `small` and `large` different values.

    Ways to deal: f(i, j; u) = f(i, j - 1; u) + f(i - 1, j; u - j), by which side the largest value is on.
    """
    ways = [np.ones(1)] + [np.ones(1) for _ in range(small)]
    for j in range(1, large + 1):
        row = [np.ones(1)]
        for i in range(1, small + 1):
            counts = np.zeros(i * j + 1)
            counts[: i * (j - 1) + 1] += ways[i]
            counts[j:] += row[i - 1]
            row.append(counts)
        ways = row
    return np.asarray(np.minimum(np.cumsum(ways[small]) / comb(small + large, small), 1.0), dtype=np.float64)

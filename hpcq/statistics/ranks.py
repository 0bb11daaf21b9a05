"""Ranks with ties, the rank scan that looks for one step anywhere in a series, and how noisy a series is.

    scan statistic at s = |sum of the first s centred ranks| / its standard deviation under exchange
    the largest over s, divided by sqrt((1 + r) / (1 - r)), r = lag-one correlation of the ranks on either side

Source: Wilcoxon 1945, Pettitt 1979 (the scan); Bayley & Hammersley 1946 (the effective number of correlated values).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from math import comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from hpcq.kernels import Better

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

CORRELATION_MAX = 0.9
# The lag-one correlation of n values around a fitted step is too low by about this number over n
# (simulated, AR(1) 0 to 0.6).
CORRELATION_BIAS_POINTS = 3.0


def average_ranks(values: Floats) -> Floats:
    """Ranks 1..n of each row; equal values share the mean of their ranks. values: shape (rows, n)."""
    rows, points = values.shape
    if rows == 1:
        return _ranks_of_one(values[0])[None, :]
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    starts = np.ones((rows, points), dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = np.cumsum(starts.ravel()) - 1
    first = np.flatnonzero(starts.ravel())
    size = np.diff(np.append(first, rows * points))
    mean_rank = first % points + (size + 1) / 2.0
    ranks = np.empty((rows, points))
    np.put_along_axis(ranks, order, mean_rank[group].reshape(rows, points), axis=1)
    return ranks


def _ranks_of_one(values: Floats) -> Floats:
    """As average_ranks(), for one row: a fifth of the time, and thousands of series are judged one by one."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    starts = np.empty(len(values), dtype=bool)
    starts[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    ranks = np.empty(len(values))
    if starts.all():
        ranks[order] = np.arange(1.0, len(values) + 1)
        return ranks
    first = np.flatnonzero(starts)
    size = np.diff(np.append(first, len(values)))
    ranks[order] = np.repeat(first + (size + 1) / 2.0, size)
    return ranks


def scan_step(values: Floats, minimum: int) -> tuple[Ints, Floats]:
    """Best place for one step in each row, and how far it stands out in standard deviations.

    values: shape (rows, n), finite, n >= 2 * minimum. minimum: points on either side of the step.
    Returns the first index after the step and its statistic, each of shape (rows,); 0.0 for constant rows.
    """
    rows, points = values.shape
    centred = average_ranks(values) - (points + 1) / 2.0
    sums = np.abs(np.cumsum(centred, axis=1)[:, minimum - 1 : points - minimum])
    before = np.arange(minimum, points - minimum + 1)
    square = np.sum(centred * centred, axis=1, keepdims=True)
    deviation = np.sqrt(before * (points - before) / (points * (points - 1.0)) * square)
    statistic = np.divide(sums, deviation, out=np.zeros_like(sums), where=deviation > 0)
    best = statistic.argmax(axis=1)
    return before[best], statistic[np.arange(rows), best]


def correlation_factor(values: Floats, step: Ints) -> Floats:
    """By how much the correlation of neighbours inflates the scan statistic of each row; 1 for independent values.

    values: shape (rows, n). step: shape (rows,), the first index after the step; each side is centred by itself.
    """
    points = values.shape[1]
    centred = average_ranks(values)
    after = np.arange(points)[None, :] >= step[:, None]
    for side in (after, ~after):
        mean = np.sum(centred * side, axis=1) / np.sum(side, axis=1)
        centred = centred - side * mean[:, None]
    square = np.sum(centred * centred, axis=1)
    lagged = np.sum(centred[:, 1:] * centred[:, :-1], axis=1)
    correlation = np.divide(lagged, square, out=np.zeros_like(square), where=square > 0)
    correlation = np.clip(correlation + CORRELATION_BIAS_POINTS / points, 0.0, CORRELATION_MAX)
    return np.asarray(np.sqrt((1 + correlation) / (1 - correlation)), dtype=np.float64)


# ----------------------------------------------------------------------------------------------------------------------
# The rank sum test: how probable is it that luck alone orders two sets of values like this?
#
#     mann_whitney     p of worse and of better; exact up to EXACT_TOTAL values, also with ties; beyond, the normal tail
#     smallest_p       the p of the most extreme order that this many values can have
#     smallest_side    a quick first check of very many short tails
#
# Source: Mann & Whitney 1947 (the test and its exact distribution), Lehmann 1975 (ties), Streitberg & Roehmel 1986 (exact
# distribution with ties: count the subsets of the pooled ranks by their sum).


#: Up to this many values on both sides together, the distribution is exact, also with ties. There the normal tail is
#: too far off: for 30 against 9 values it gives 3.7e-6 instead of 4.7e-9. Beyond, it errs on the careful side.
EXACT_TOTAL = 40
#: Up to this length of one side, the distribution is exact beside a much longer side too (without ties).
EXACT_SMALLER = 8
EXACT_LARGER = 500


def mann_whitney(before: Floats, after: Floats, better: Better = Better.HIGHER) -> tuple[float, float]:
    """p that `after` is worse, and p that it is better; for Better.NONE both are the two-sided p.

    before, after: finite, length >= 1. Normal tails have corrections for ties and continuity.
    """
    m, n = len(before), len(after)
    pooled = np.concatenate([before, after])
    ranks = average_ranks(pooled[None, :])[0]
    above = float(ranks[m:].sum()) - n * (n + 1) / 2.0
    centred = ranks - (m + n + 1) / 2.0
    square = float(centred @ centred)
    untied = square > (m + n) * ((m + n) ** 2 - 1) / 12.0 - 0.25  # a tie lowers it by at least a half
    short = min(m, n) <= EXACT_SMALLER and max(m, n) <= EXACT_LARGER
    if untied and (short or m + n <= EXACT_TOTAL):
        tail = _exact_tail(min(m, n), max(m, n))
        lower, upper = float(tail[round(above)]), float(tail[round(m * n - above)])
    elif m + n <= EXACT_TOTAL and square > 0:
        lower, upper = _tied_tails(ranks, n)
    else:
        deviation = sqrt(m * n / ((m + n) * (m + n - 1.0)) * square)
        lower, upper = (_normal_tail(u - m * n / 2.0, deviation) for u in (above, m * n - above))
    if better is Better.NONE:
        both = min(1.0, 2 * min(lower, upper))
        return both, both
    return (lower, upper) if better is Better.HIGHER else (upper, lower)


def smallest_side(ordered: Sequence[float], after: Sequence[float]) -> float:
    """The smaller of both one-sided p of mann_whitney(), as a quick first check of very many short tails.

    ordered: the values before, ascending. Returns 0 if only mann_whitney() can tell: equal values, or very many.
    """
    few, many = sorted((len(ordered), len(after)))
    if few > EXACT_SMALLER or many > EXACT_LARGER or len({*ordered, *after}) < few + many:
        return 0.0
    tail = _exact_tail(few, many)
    below = sum(bisect_left(ordered, value) for value in after)
    return float(min(tail[below], tail[few * many - below]))


def smallest_p(before_count: int, after_count: int, *, two_sided: bool = False) -> float:
    """The p of the most extreme outcome that this many values can give: 1 / (ways to deal the ranks)."""
    if not (before_count and after_count):
        return 1.0
    return min(1.0, (2 if two_sided else 1) / comb(before_count + after_count, after_count))


def after_count_needed(before_count: int, alpha: float, *, two_sided: bool = False) -> int | None:
    """Fewest values after the boundary that can reach p < alpha at all; None if there are too few before it."""
    for count in range(1, 101):
        if smallest_p(before_count, count, two_sided=two_sided) < alpha:
            return count
    return None


def _normal_tail(above_mean: float, deviation: float) -> float:
    """P(U <= observed) with continuity correction; 1 when nothing varies."""
    if deviation == 0:
        return 1.0
    return min(1.0, 0.5 * erfc(-(above_mean + 0.5) / deviation / sqrt(2.0)))


def _tied_tails(ranks: Floats, after_count: int) -> tuple[float, float]:
    """P(rank sum of `after_count` of these ranks <= observed), and >= observed, over all ways to deal them.

    ranks: of all values, those of the second side last. They may be halves, so the code works with doubled ranks.
    """
    doubled = np.rint(2 * ranks).astype(np.int64)
    observed = int(doubled[-after_count:].sum())
    highest = int(np.sort(doubled)[-after_count:].sum())
    ways = np.zeros((after_count + 1, highest + 1))
    ways[0, 0] = 1.0
    for rank in doubled:
        if rank <= highest:
            ways[1:, rank:] += ways[:-1, : highest + 1 - rank].copy()
    total = comb(len(ranks), after_count)
    counts = ways[after_count]
    return min(1.0, float(counts[: observed + 1].sum()) / total), min(1.0, float(counts[observed:].sum()) / total)


@lru_cache(maxsize=1024)
def _exact_tail(small: int, large: int) -> Floats:
    """P(U <= u) for u = 0..small * large, for sides of `small` and `large` values, all different.

    Ways to deal: f(i, j; u) = f(i, j - 1; u) + f(i - 1, j; u - j), by the side that has the largest value.
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


# ----------------------------------------------------------------------------------------------------------------------
# How noisy a series is, from its short-range scatter, so that steps, drift and outliers do not count as noise.
#
#     residual = value - rolling median of WINDOW values around it
#     sigma    = 1.4826 * median |residual|, corrected for the window, with a floor for constant series
#
# A rolling median follows a step within half a window, so a series that drops by 20 % has the same sigma as one that does
# not. The median of the residuals ignores up to half of the values.
# Source: Hampel 1974 (the median absolute deviation), Tukey 1977 (running medians).


WINDOW = 11
# The MAD of a normal variable is 0.6745 sigma. A residual from the median of 11 values that include it is smaller by
# 0.886 (measured on 1.1 million normal values), and this factor corrects for both.
MAD_TO_SIGMA = 1.4826 / 0.886
# Lower bound of the scatter, as a share of the level: a tenth of the smallest step that hpcq reports.
FLOOR_RATIO = 0.0025


def noise_scale(values: Floats) -> Floats:
    """Robust standard deviation of the short-range noise of each series.

    values: shape (series, points), finite, time order along the points, any unit.
    Returns shape (series,), in the unit of the values; 0 only where a series is zero throughout.
    """
    values = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if len(values) == 1:
        return np.array([_noise_of_one(values)])
    residuals = values - rolling_median(values)
    sigma = MAD_TO_SIGMA * np.median(np.abs(residuals), axis=1)
    level = np.median(np.abs(values), axis=1)
    level = np.where(level > 0, level, np.mean(np.abs(values), axis=1))
    return np.asarray(np.maximum(sigma, FLOOR_RATIO * level), dtype=np.float64)


def _noise_of_one(values: Floats) -> float:
    """As noise_scale(), for one series of shape (1, points): a third of the time, and thousands are judged one by one."""
    sizes = np.abs(values)
    sigma = MAD_TO_SIGMA * median(np.abs(values - rolling_median(values))[0])
    level = median(sizes[0]) or float(np.mean(sizes, axis=1)[0])
    return max(sigma, FLOOR_RATIO * level)


def rolling_median(values: Floats, window: int = WINDOW) -> Floats:
    """Median of the `window` values around each point; at the ends the outermost full window is used.

    values: shape (series, points). Returns the same shape. A series shorter than the window has one median for all.
    """
    points = values.shape[1]
    if points <= window:
        middle = np.median(values, axis=1, keepdims=True) if len(values) > 1 else median(values[0])
        return np.broadcast_to(middle, values.shape)
    half = window // 2
    views = np.lib.stride_tricks.sliding_window_view(values, window, axis=1)
    inner = np.partition(views, half, axis=2)[:, :, half]
    left = np.repeat(inner[:, :1], half, axis=1)
    right = np.repeat(inner[:, -1:], window - 1 - half, axis=1)
    return np.concatenate([left, inner, right], axis=1)


def median(values: Floats) -> float:
    """Median of a short array; several times faster than numpy's for some ten values. values: length >= 1."""
    ordered = np.sort(values)
    count = len(ordered)
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0

"""Before against after: is after worse, by how much, and how sure is that? Repetitions, or jobs as the unit.

ranks            ranks with ties, the rank scan for one step anywhere, the rank sum test
noise_scale      how noisy a series is
median_shift     how far the median moved, with an interval
Comparison       what is said of a series; compare in boundary.py
compare_jobs     the same for single jobs, given how far jobs scatter
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import ceil, comb, erfc, exp, log, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# ----------------------------------------------------------------------------------------------------------------------
# Ranks with ties, and the rank scan that looks for one step anywhere in a series.
#
#     scan statistic at s = |sum of the first s centred ranks| / its standard deviation under exchange
#     the largest over s, divided by sqrt((1 + r) / (1 - r)), r = lag-one correlation of the ranks on either side
#
# Source: Wilcoxon 1945, Pettitt 1979 (the scan); Bayley & Hammersley 1946 (the effective number of correlated values).

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


# ----------------------------------------------------------------------------------------------------------------------
# How far the median moved, as a ratio with a bootstrap interval that costs microseconds.
#
# The median of a resample of n sorted values is the value at a random rank. The ranks depend on n alone: they are the
# middle order statistics of n uniform numbers, drawn once per n and then reused. So an interval is two look-ups and one
# quantile.
# Source: percentile bootstrap, Efron & Tibshirani 1993, ch. 13; uniform order statistics, David & Nagaraja 2003, ch. 2.

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


def _middle(ordered: Floats | list[float]) -> float:
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
#: Values before, and after, without which nothing is beyond doubt.
BEYOND_DOUBT_COUNTS = (5, 3)
#: One lost packet of 10,000, three events, two ticks of a clock: smaller moves appear by chance and matter to nobody.
_SMALLEST_MOVES = {"ratio": 1e-4, "count": 3.0, "ns": 20.0}


def smallest_move(unit: str) -> float:
    """The smallest move that matters in a metric's own unit: `ratio` 1e-4, `count` 3, `ns` 20; 0 for all others."""
    return _SMALLEST_MOVES.get(unit, 0.0)


def beyond_doubt(before: Floats, after: Floats) -> bool:
    """Whether the median moved by ten standard errors, and all values after lie half as far beyond all values before.

    before, after: finite, time order, same unit. False with fewer than 5 values before or 3 after.
    """
    if len(before) < BEYOND_DOUBT_COUNTS[0] or len(after) < BEYOND_DOUBT_COUNTS[1]:
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


# ----------------------------------------------------------------------------------------------------------------------
# Jobs as the unit: how far the jobs of an unchanged series scatter, and whether two sets of jobs differ by more.
#
#     job_scatter      learned from the history of the series, else from its peers, else assumed
#     job_scatters     the same of many series at once
#     pooled_scatter   learned from all series of the same test together
#     compare_jobs     is `after` worse than `before`? For too few jobs to tell by ranks.
#
# Repetitions of one job ran back to back on the same nodes and share that job's luck. With 0.5 % scatter within a job and
# 5 % between jobs, ten repetitions look like ten independent values but count as one. So one job is one value, the median
# of its repetitions, and what matters is how far such values scatter. hpcq learns it from differences of neighbouring
# jobs, because a change of level affects only one of them. It is on a logarithmic scale, as a share of the level.
# Source: Kalibera & Jones 2013 (repeat at the level where the variance arises), von Neumann 1941 (successive
# differences), Wallace 1959 (Student's t as a normal deviate).

#: The scatter that is assumed when no history shows it.
ASSUMED_RATIO = 0.05
#: Lower bound of a learned scatter: a few jobs may agree by luck.
LEAST_RATIO = 0.005
#: With this many degrees of freedom, a history needs no peers.
_DEGREES_ENOUGH = 6
#: For a normal variable: the median of |x|, and the value that 90 % of |x| stay below, in standard deviations.
_MEDIAN_ABSOLUTE, _NINE_TENTHS = 0.6745, 1.6449
_CONFIDENCE_Z = 1.96
#: Variance of the median of n normal values over the variance of their mean; for larger n it is pi / 2.
_MEDIAN_VARIANCE = {1: 1.0, 2: 1.0, 3: 1.35, 4: 1.19, 5: 1.43, 6: 1.29, 7: 1.47, 8: 1.35}


@dataclass(frozen=True, slots=True)
class JobScatter:
    """ratio: standard deviation between jobs, as a share of the level. degrees: of freedom when learned; 0: assumed."""

    ratio: float
    degrees: int

    @property
    def words(self) -> str:
        """`3.1 % between jobs, learned`, for people."""
        source = "learned from history" if self.degrees else "assumed, there is too little history"
        return f"{100 * self.ratio:.2g} % between jobs ({source})"


def pooled_scatter(histories: Iterable[ArrayLike]) -> JobScatter:
    """Learn how far jobs scatter from all series of the same test together.

    histories: per series, one value per job in time order (the median of its repetitions). Drops missing values and <= 0.
    Returns at least ASSUMED_RATIO, with 0 degrees, when all series have fewer than 12 differences of neighbouring jobs.
    """
    parts = [_differences(one) for one in histories]
    differences = np.concatenate(parts) if parts else np.empty(0)
    degrees = len(differences) // 2
    if degrees < _DEGREES_ENOUGH:
        return JobScatter(max(ASSUMED_RATIO, _scale(differences) if len(differences) >= _DEGREES_ENOUGH else 0.0), 0)
    return JobScatter(max(LEAST_RATIO, _scale(differences)), degrees)


def job_scatter(history: ArrayLike, peers: JobScatter | None = None) -> JobScatter:
    """Learn how far the jobs of one series scatter while nothing changes.

    history: one value per job in time order (the median of its repetitions). Drops missing values and <= 0.
    peers: pooled_scatter() of the series of the same test (other nodes), for a history of fewer than 13 jobs.
    A short history never gives less scatter than its peers. With three or more jobs it can give more.
    """
    return job_scatters([history], [peers])[0]


def job_scatters(histories: Sequence[ArrayLike], peers: Sequence[JobScatter | None]) -> list[JobScatter]:
    """job_scatter() of each of many series, with the peers of each: one pass for all histories of one length."""
    own = [_differences(one) for one in histories]
    ratios = _scales(own)
    return [_learned(ratio, len(one), other) for ratio, one, other in zip(ratios, own, peers, strict=True)]


def _learned(ratio: float, difference_count: int, peers: JobScatter | None) -> JobScatter:
    degrees = difference_count // 2
    if degrees >= _DEGREES_ENOUGH:
        return JobScatter(max(LEAST_RATIO, ratio), degrees)
    known = peers if peers is not None else JobScatter(ASSUMED_RATIO, 0)
    return replace(known, ratio=ratio) if difference_count >= 2 and ratio > known.ratio else known


def compare_jobs(
    before: ArrayLike,
    after: ArrayLike,
    scatter: JobScatter,
    *,
    better: Better = Better.HIGHER,
    alpha: float = ALPHA,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    smallest_move: float = 0.0,
) -> Comparison:
    """Judge whether the jobs `after` are worse than the jobs `before`, given how far jobs scatter.

    before, after: one value per job, same unit; missing values are dropped. alpha: chance of calling an unchanged
    series degraded. minimum_effect_ratio: smallest move that matters, as a share. smallest_move: the same in the
    metric's unit. Inconclusive if a side has no value, or if a median is not positive.
    """
    old, new = (_finite(one) for one in (before, after))
    counts = (len(old), len(new))
    if not all(counts):
        reason = f"no jobs {'before' if not counts[0] else 'after'} the boundary"
        return Comparison(ComparisonVerdict.INCONCLUSIVE, reason, False, None, None, *counts)
    medians = _median_of(old), _median_of(new)
    if min(medians) <= 0:
        return _from_zero(medians, counts, better, smallest_move)
    error = scatter.ratio * sqrt(sum(median_variance(count) / count for count in counts))
    moved = log(medians[1] / medians[0])
    widest = t_quantile(_CONFIDENCE_Z, scatter.degrees) * error
    shift = Shift(*medians, *(float(np.exp(moved + side)) for side in (0.0, -widest, widest)))
    p_worse, p_better = _sides(moved / error, scatter.degrees, better)
    worse_by = abs(moved) if better is Better.NONE else -moved if better is Better.HIGHER else moved
    matters = abs(medians[1] / medians[0] - 1) >= minimum_effect_ratio and abs(medians[1] - medians[0]) >= smallest_move
    gain = matters and worse_by < 0 and p_better < alpha and better is not Better.NONE
    if p_worse < LOOK_AGAIN and worse_by > 0 and matters:
        sure = p_worse < alpha
        verdict = ComparisonVerdict.DEGRADED if sure else ComparisonVerdict.INCONCLUSIVE
        doubt = f"looks worse, but might be luck at {scatter.words}: measure again"
        reason = f"clearly worse than {scatter.words} explain" if sure else doubt
    elif gain or worse_by + widest < PASS_EFFECT_RATIO or (abs(worse_by) + widest) * medians[0] < smallest_move:
        verdict, reason = ComparisonVerdict.PASS, "clearly better than before" if gain else "no worse than before"
    else:
        needed = more_needed(scatter.ratio, PASS_EFFECT_RATIO - worse_by, *counts)
        reason = f"{100 * PASS_EFFECT_RATIO:.0f} % worse is not ruled out at {scatter.words}: {needed}"
        verdict = ComparisonVerdict.INCONCLUSIVE
    return Comparison(verdict, reason, gain, p_worse, shift, *counts)


def _from_zero(medians: tuple[float, float], counts: tuple[int, int], better: Better, smallest_move: float) -> Comparison:
    """A level of zero has neither share nor scatter, so only a move that is too small to matter passes."""
    shift = Shift(*medians, None, None, None)
    if medians[0] == medians[1] or abs(medians[1] - medians[0]) < smallest_move:
        return Comparison(ComparisonVerdict.PASS, "no move that matters", False, 1.0, shift, *counts)
    worse = better is Better.NONE or (medians[1] < medians[0]) == (better is Better.HIGHER)
    reason = "looks worse: more jobs are needed to tell luck from damage" if worse else "looks better: more jobs are needed"
    return Comparison(ComparisonVerdict.INCONCLUSIVE, reason, False, None, shift, *counts)


def t_quantile(z: float, degrees: float) -> float:
    """The value of Student's t that is as rare as the normal deviate `z`. degrees 0: the scatter is known, t is z."""
    if degrees == 0:
        return z
    factor = (8 * degrees + 3) / (8 * degrees + 1)
    return sqrt(degrees * (exp((z * factor) ** 2 / degrees) - 1))


def _sides(t: float, degrees: int, better: Better) -> tuple[float, float]:
    """The p of worse and the p of better, for a move of `t` standard errors."""
    z = t
    if degrees:
        factor = (8 * degrees + 1) / (8 * degrees + 3)
        z = ((t > 0) - (t < 0)) * factor * sqrt(degrees * log(1 + t * t / degrees))
    lower, upper = 0.5 * erfc(-z / sqrt(2)), 0.5 * erfc(z / sqrt(2))
    if better is Better.NONE:
        both = min(1.0, 2 * min(lower, upper))
        return both, both
    return (lower, upper) if better is Better.HIGHER else (upper, lower)


def _median_of(values: Floats) -> float:
    """Their median; of a few values, and there are thousands of series, numpy's own takes ten times as long."""
    return _middle(sorted(values.tolist()))


def median_variance(count: int) -> float:
    """Variance of the median of so many normal values, over that of their mean."""
    return _MEDIAN_VARIANCE.get(count, pi / 2)


def _differences(history: ArrayLike) -> Floats:
    """Differences of neighbouring jobs on a logarithmic scale, scaled to the standard deviation of a single job."""
    values = np.asarray(history, dtype=np.float64).ravel()
    values = values[np.isfinite(values) & (values > 0)]
    return np.diff(np.log(values)) / sqrt(2.0)


def _scale(differences: Floats) -> float:
    return _scales([differences])[0]


def _scales(differences: Sequence[Floats]) -> list[float]:
    """Standard deviation of differences from their median, or more if nine tenths of them say so (two modes, tails)."""
    found = [0.0] * len(differences)
    by_length: dict[int, list[int]] = {}
    for position, one in enumerate(differences):
        by_length.setdefault(len(one), []).append(position)
    for length, positions in by_length.items():
        if length:
            sizes = np.abs(np.stack([differences[position] for position in positions]))
            medians, tails = np.median(sizes, axis=1) / _MEDIAN_ABSOLUTE, np.quantile(sizes, 0.9, axis=1) / _NINE_TENTHS
            for position, scale in zip(positions, np.maximum(medians, tails).tolist(), strict=True):
                found[position] = scale
    return found


def _finite(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64).ravel()
    return array[np.isfinite(array)]

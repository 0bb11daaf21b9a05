"""One series: when did its level change, does it drift, and what do its newest values say?

A series is cut into pieces. Each piece is a level or a drift (a straight line). The cheapest way to cut it wins:

    cost  =  sum of bounded squared residuals / noise^2  +  4 ln n for each cut  +  3 ln n for each drift

    scale        logarithms if the scatter grows with the level, else the values themselves
    noise        scatter around a running median; later around the pieces, times (1 + r) / (1 - r) if neighbours resemble
                 each other by r. r is seen around pieces of a first, generous search, and without the newest values, so that
                 a step does not look like correlation
    bound        a residual counts up to 2 to 4 sigma, less the more often outliers come: as much as their chance makes likely
    pieces       of 3 values or more, drifts of 8 or more; exact dynamic programming, many series at once
    steps        of correlated series stand where the innovations are smallest
    small ones   cuts that move neither the level nor the line by the smallest effect are dropped, the smallest first

So three newest values far from the level of a year are a change. One or two are a doubt, which is said. Source: Killick,
Fearnhead & Eckley 2012 (the search); Fearnhead & Rigaill 2019 (bounded loss); Chen & Zhang 2015 and Chakar et al. 2017
(prices, and correlated noise); Tukey 1977 (spread against level); Bai 1994 (innovations). docs/methods/change-points.md
explains the method to people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import erfc, exp, inf, log, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better
from hpcq.statistics.boundary import FALSE_DISCOVERY_RATIO, correlation_factor
from hpcq.statistics.comparison import (
    ALPHA,
    FLOOR_RATIO,
    MAD_TO_SIGMA,
    ComparisonVerdict,
    benjamini_hochberg,
    mann_whitney,
    median,
    median_shift,
    rolling_median,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: A smaller move is never told, as a share of the level before.
MINIMUM_EFFECT_RATIO = 0.03
#: A cut costs a place and a level, a drift a slope, in units of ln n. On unchanged series of independent values, a price of
#: 3 for a cut gives 1 % false alarms and 4 gives 0.1 %. The first search is generous, and only learns the correlation.
CUT_PRICE, FIRST_CUT_PRICE, DRIFT_PRICE = 4.0, 3.0, 3.0
#: Correlated noise feigns a line as easily as a step.
WEIGHED_DRIFT_PRICE = 4.0
LEVEL_POINTS_MIN, DRIFT_POINTS_MIN = 3, 8
#: With fewer values a series is not judged.
JUDGED_POINTS_MIN = 10
#: Residuals beyond are outliers; one never counts for more than the bound.
_OUTLIER_SIGMAS, _BOUND_SIGMAS = 3.0, 4.0
#: 90 % of a normal variable stay below this many standard deviations, either way.
_NINE_TENTHS = 1.6449
_WINDOW_LOSS = 0.886
#: How much of the correlation of neighbours a series of independent values shows by luck in one of 20 cases: this / sqrt(n).
_LUCK_Z = 1.645
_CORRELATION_MAX = 0.9
#: Cuts of series that are less correlated are weighed by their innovations. Beyond, a series wanders and has no such noise.
_WANDERS = 0.75
#: Levels that differ by less say nothing of how the scatter depends on the level.
_LEVELS_DIFFER_RATIO = 1.25
#: A step moves by up to this many values to where the innovations are smallest; a single one costs no more than the bound.
_PLACE_WINDOW, _PLACE_LOSS_MAX = 12, 8.0
#: The newest values do not count for the noise and the correlation that they are judged by: this many, a quarter at most.
_NEWEST_POINTS = 8
#: Newest values this far off that make no level of their own are a doubt: so many, or a quarter of a short series.
_DOUBT_SIGMAS = 5.0
_DOUBT_POINTS_MAX = 2
#: Values per chunk: cumulative sums of some ten series of a hundred values stay in the second-level cache.
_CHUNK_VALUES = 1 << 14
_PRUNE_EVERY = 64


@dataclass(frozen=True, slots=True)
class Change:
    """One change. index: its first value; end: after its last (of the new level, or of the drift). Missing values count.

    before, after: the medians on either side of a step, or the ends of a drift's line, in the unit of the series.
    effect_ratio: after / before with its 95 % interval low..high; None if one of the two is not above zero.
    p_value: chance of seeing it in an unchanged series. ended: the index from which the old level was back; None: it lasts.
    """

    kind: Literal["step", "drift"]
    index: int
    end: int
    before: float
    after: float
    effect_ratio: float | None
    low: float | None
    high: float | None
    p_value: float
    ended: int | None = None

    def is_worse(self, better: Better) -> bool:
        """Whether it goes in the bad direction; any change does where no direction is good."""
        return better is Better.NONE or (self.after < self.before) == (better is Better.HIGHER)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest values lie far off: too few for a change, too far to keep silent about."""

    count: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Course:
    """How one series went. count: values judged. cuts: where its level or its line changes. changes: what to tell of it.

    first_third, last_third: their medians; thirds_p: chance that two thirds of an unchanged series differ as much.
    noise_ratio: scatter of single values as a share of the level; None if the level is zero.
    """

    count: int
    cuts: tuple[int, ...] = ()
    changes: tuple[Change, ...] = ()
    newest: Newest | None = None
    first_third: float = 0.0
    last_third: float = 0.0
    thirds_p: float = 1.0
    noise_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    first: int
    end: int
    drifts: bool


@dataclass(frozen=True, slots=True)
class _Fitted:
    """One series on its working scale: y (bounded: z), its pieces, its noise, and the noise of a mean of correlated values."""

    values: Floats
    y: Floats
    z: Floats
    logarithmic: bool
    pieces: list[_Piece]
    noise: float
    long_noise: float
    correlation: float

    def back(self, y: float) -> float:
        """From the working scale to the unit of the series."""
        return exp(y) if self.logarithmic else y


def judge_series(
    series: Sequence[ArrayLike],
    *,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    false_discovery_ratio: float = FALSE_DISCOVERY_RATIO,
    smallest_moves: Sequence[float] | None = None,
) -> list[Course]:
    """Find the steps and drifts of each series.

    series: values in time order, any unit, lengths may differ; NaN and infinities are missing values.
    minimum_effect_ratio: smallest move that is told, as a share of the level before.
    false_discovery_ratio: share of the series told that may be luck, where two or more are judged together.
    smallest_moves: per series, the smallest move that is told, in the unit of the series.
    """
    arrays = [np.asarray(one, dtype=np.float64).ravel() for one in series]
    kept = [np.flatnonzero(np.isfinite(one)) for one in arrays]
    dense = [one[rows] for one, rows in zip(arrays, kept, strict=True)]
    least = [0.0] * len(dense) if smallest_moves is None else list(smallest_moves)
    found = [Course(len(values)) for values in dense]
    by_length: dict[int, list[int]] = {}
    for position, values in enumerate(dense):
        by_length.setdefault(len(values), []).append(position)
    for points, members in by_length.items():
        if points < 2 * LEVEL_POINTS_MIN:
            continue
        chunk = max(1, _CHUNK_VALUES // points)
        for start in range(0, len(members), chunk):
            some = members[start : start + chunk]
            for position, fitted in zip(some, _fit(np.stack([dense[i] for i in some])), strict=True):
                found[position] = _course(fitted, kept[position], minimum_effect_ratio, least[position])
    smallest = [min((change.p_value for change in course.changes), default=1.0) for course in found]
    believed = benjamini_hochberg(smallest) <= false_discovery_ratio
    return [
        course if sure or len(found) < 2 else replace(course, changes=(), cuts=())
        for course, sure in zip(found, believed, strict=True)
    ]


def verdict_of(
    course: Course, better: Better, minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO
) -> tuple[ComparisonVerdict, str]:
    """Is the series worse now than it was? The verdict and its reason, for people.

    degraded: a change for the worse lasts. inconclusive: too few values; the newest ones are far off; or the last third is
    worse than the first, by the smallest effect and more than luck explains, and no change says why.
    """
    if any(change.ended is None and change.is_worse(better) for change in course.changes):
        return ComparisonVerdict.DEGRADED, "worse than it was"
    if course.count < JUDGED_POINTS_MIN:
        return ComparisonVerdict.INCONCLUSIVE, f"{course.count} values are too few: {JUDGED_POINTS_MIN} are needed"
    if course.newest is not None and _is_worse(course.newest.before, course.newest.after, better):
        count = course.newest.count
        words = "the newest value lies" if count == 1 else f"the newest {count} values lie"
        few = (
            f"{LEVEL_POINTS_MIN} make a level" if count < LEVEL_POINTS_MIN else "the others are too few, or too uneven, to tell"
        )
        return ComparisonVerdict.INCONCLUSIVE, f"{words} far off, but {few}: measure again"
    before, after = course.first_third, course.last_third
    if course.thirds_p < ALPHA and _is_worse(before, after, better) and _effect(before, after) >= minimum_effect_ratio:
        return ComparisonVerdict.INCONCLUSIVE, "the last third is worse than the first, but no step or drift stands out"
    return ComparisonVerdict.PASS, "no worse than it was"


def _is_worse(before: float, after: float, better: Better) -> bool:
    return after != before if better is Better.NONE else (after < before) == (better is Better.HIGHER)


def _effect(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return abs(after - before) / abs(before) if before else inf


# ---- scale, noise and pieces: all series of one length at once; arrays of shape (series, points)


def _fit(values: Floats) -> list[_Fitted]:
    points = values.shape[1]
    logarithmic = _scatter_follows_level(values)
    y = np.where(logarithmic[:, None], np.log(np.where(logarithmic[:, None], values, 1.0)), values)
    size = np.median(np.abs(values), axis=1)
    size = np.where(size > 0, size, np.mean(np.abs(values), axis=1))
    floor = FLOOR_RATIO * np.where(logarithmic, 1.0, size)
    floor = np.where(floor > 0, floor, 1.0)
    line = running = rolling_median(y)
    away = np.abs(y - running)
    core = np.maximum(MAD_TO_SIGMA * np.median(away, axis=1), floor)
    old = points - min(_NEWEST_POINTS, points // 4)
    widest = np.maximum(core, np.quantile(away[:, :old], 0.9, axis=1) / _NINE_TENTHS / _WINDOW_LOSS)
    #: Two modes: a running median follows them, and must not make levels of them.
    alternates = widest > 2 * core
    noise, correlation = widest, np.zeros(len(y))
    searches: list[list[list[_Piece]]] = []
    for price in (FIRST_CUT_PRICE, CUT_PRICE):
        bound = _bound(y - line, core)
        if not searches:
            bound = np.where(alternates[:, None], np.maximum(bound, 2 * widest[:, None]), bound)
        nearer = np.where((np.abs(y - running) < np.abs(y - line)) & ~alternates[:, None], running, line)
        z = nearer + np.clip(y - nearer, -bound, bound)
        long_noise = noise * np.sqrt((1 + correlation) / (1 - correlation))
        pieces = _cheapest(z / long_noise[:, None], price * log(points), DRIFT_PRICE * log(points))
        searches.append(pieces)
        line = _lines(z, pieces)
        residuals = y - line
        bound = _bound(residuals, core)
        bounded = np.clip(residuals, -bound, bound)
        parameters = np.array([sum(1 + one.drifts for one in row) for row in pieces])
        left = np.maximum(1, points - 2 * parameters)
        noise = np.maximum(np.minimum(widest, np.sqrt(np.mean(bounded[:, :old] ** 2, axis=1) * points / left)), floor)
        if len(searches) == 1:
            scaled = np.clip(residuals[:, :old] / noise[:, None], -_OUTLIER_SIGMAS, _OUTLIER_SIGMAS)
            correlation = _correlation(scaled, parameters)
    long_noise = noise * np.sqrt((1 + correlation) / (1 - correlation))
    z = line + bounded
    found = [
        _Fitted(
            values[i], y[i], z[i], bool(logarithmic[i]), pieces[i], float(noise[i]), float(long_noise[i]), float(correlation[i])
        )
        for i in range(len(y))
    ]
    return [
        replace(one, pieces=_weighed(one, generous)) if 0 < one.correlation < _WANDERS and len(generous) > 1 else one
        for one, generous in zip(found, searches[0], strict=True)
    ]


def _scatter_follows_level(values: Floats) -> NDArray[np.bool_]:
    """Whether logarithms scatter more evenly: the spread grows with the level by more than its square root.

    Compares the third of the points with the highest level to the third with the lowest (Tukey 1977).
    """
    positive: NDArray[np.bool_] = np.asarray((values > 0).all(axis=1))
    third = values.shape[1] // 3
    if third < 5:
        return positive
    levels = rolling_median(values)
    order = np.argsort(levels, axis=1, kind="stable")
    away = np.take_along_axis(np.abs(values - levels), order, axis=1)
    levels = np.take_along_axis(levels, order, axis=1)
    low, high = levels[:, :third].mean(axis=1), levels[:, -third:].mean(axis=1)
    narrow, wide = away[:, :third].mean(axis=1), away[:, -third:].mean(axis=1)
    told = positive & (high >= _LEVELS_DIFFER_RATIO * low) & (narrow > 0) & (wide > 0)
    safe = [np.where(told, one, 1.0) for one in (low, high, narrow, wide)]
    follows = np.log(safe[3] / safe[2]) > 0.5 * np.log(safe[1] / safe[0])
    return np.asarray(positive & (follows | ~told), dtype=bool)


def _bound(residuals: Floats, core: Floats) -> Floats:
    """How far a residual counts: a run of outliers that starts with chance p weighs -2 ln p a value. Shape (series, 1).

    With one run among n values, three such values weigh 6 ln(n / 2), more than a cut costs, and two weigh less.
    """
    points = residuals.shape[1]
    side = np.sign(residuals) * (np.abs(residuals) > _OUTLIER_SIGMAS * core[:, None])
    starts = (side[:, 1:] != 0) & (side[:, 1:] != side[:, :-1])
    share = (1 + np.sum(starts, axis=1) + (side[:, 0] != 0)) / (points + 2)
    return np.asarray((core * np.minimum(_BOUND_SIGMAS, np.sqrt(-2 * np.log(share))))[:, None], dtype=np.float64)


def _correlation(residuals: Floats, parameters: NDArray[np.int_]) -> Floats:
    """Correlation of neighbours, corrected for the fitted parameters; 0 where luck explains it.

    Elsewhere half a standard error is added: if it is taken for too small, correlated noise looks like steps.
    """
    points = residuals.shape[1]
    square = np.sum(residuals**2, axis=1)
    lagged = np.sum(residuals[:, 1:] * residuals[:, :-1], axis=1)
    seen = np.divide(lagged, square, out=np.zeros_like(square), where=square > 0)
    seen = np.clip(seen + (1 + 3 * seen) * parameters / points, 0.0, _CORRELATION_MAX)
    told = np.minimum(seen + 0.5 * np.sqrt((1 - seen**2) / points), _CORRELATION_MAX)
    return np.where(seen < _LUCK_Z / sqrt(points), 0.0, told)


def _lines(z: Floats, pieces: list[list[_Piece]]) -> Floats:
    """The fitted value at each point."""
    rows = np.repeat(np.arange(len(z)), [len(row) for row in pieces])
    flat = [one for row in pieces for one in row]
    first, end = np.array([one.first for one in flat]), np.array([one.end for one in flat])
    sums, products = _sums(z.T)
    length, middle = end - first, (first + end - 1) / 2
    total = sums[end, rows] - sums[first, rows]
    slope = products[end, rows] - products[first, rows] - middle * total
    drifts = np.array([one.drifts for one in flat])
    slope = np.where(drifts, slope * 12 / np.maximum(1, length * (length * length - 1.0)), 0.0)
    places = np.tile(np.arange(z.shape[1]), len(z))
    fitted = np.repeat(total / length, length) + np.repeat(slope, length) * (places - np.repeat(middle, length))
    return np.asarray(fitted.reshape(z.shape), dtype=np.float64)


def _sums(block: Floats) -> tuple[Floats, Floats]:
    """Cumulative sums of the values, and of place times value. block: (points, series). Shapes (points + 1, series)."""
    places = np.arange(block.shape[0], dtype=np.float64)[:, None]
    empty = np.zeros((1, block.shape[1]))
    return np.concatenate([empty, np.cumsum(block, axis=0)]), np.concatenate([empty, np.cumsum(places * block, axis=0)])


def _cheapest(scaled: Floats, cut_price: float, drift_price: float) -> list[list[_Piece]]:
    """The cheapest pieces of each series; scaled: (series, points), in units of the noise.

    best(t) = min over s of best(s) + cost(s, t) + cut_price, where cost is the sum of squares around the mean, or around the
    line plus drift_price if that is less. A start s is dropped once it is too dear to be the best for any later t.
    """
    count, points = scaled.shape
    block = np.ascontiguousarray((scaled - np.median(scaled, axis=1, keepdims=True)).T)
    sums, products = _sums(block)
    # The squares of all points add the same to every choice, so costs are counted without them.
    before = np.full((points + 1, count), np.inf)
    before[0] = 0.0
    last = np.zeros((points + 1, count), dtype=np.intp)
    drifts = np.zeros((points + 1, count), dtype=bool)
    columns = np.arange(count)
    lengths = np.arange(points, 0, -1, dtype=np.float64)[:, None]
    shrink = 1 / lengths
    slopes = 12 / np.maximum(lengths * (lengths * lengths - 1), 1.0)
    starts = np.arange(points, dtype=np.float64)[:, None]
    low = prunable = 0
    check = _PRUNE_EVERY
    for end in range(LEVEL_POINTS_MIN, points + 1):
        high = end - LEVEL_POINTS_MIN + 1
        straight = max(low, end - DRIFT_POINTS_MIN + 1)
        rows = slice(points - end + low, points - end + high)
        total = sums[end] - sums[low:high]
        lean = total[: straight - low] * ((starts[low:straight] + (end - 1)) / 2)
        total *= total
        total *= shrink[rows]
        np.subtract(before[low:high], total, out=total)
        if straight > low:
            np.subtract(products[end] - products[low:straight], lean, out=lean)
            lean *= lean
            lean *= slopes[points - end + low : points - end + straight]
            lean -= drift_price
            np.maximum(lean, 0.0, out=lean)
            total[: straight - low] -= lean
        chosen = total.argmin(axis=0)
        cheapest = total[chosen, columns]
        last[end] = chosen + low
        if straight > low:
            inside = np.minimum(chosen, straight - low - 1)
            drifts[end] = (chosen < straight - low) & (lean[inside, columns] > 0)
        before[end] = cheapest + cut_price
        if end >= check:
            low = max(low, prunable)
            useful = (total[max(0, low - (high - len(total))) :] < before[end] + drift_price).any(axis=1)
            prunable = low + (int(useful.argmax()) if useful.any() else len(useful))
            check = end + _PRUNE_EVERY
    found = []
    for column in range(count):
        row: list[_Piece] = []
        end = points
        while end > 0:
            first = int(last[end, column])
            row.append(_Piece(first, end, bool(drifts[end, column])))
            end = first
        found.append(row[::-1])
    return found


# ---- what to tell of one series


def _course(fitted: _Fitted, rows: Ints, minimum_effect_ratio: float, smallest_move: float) -> Course:
    values, points = fitted.values, len(fitted.values)
    fitted = replace(fitted, pieces=_kept(fitted, _placed(fitted), minimum_effect_ratio))
    told = [
        change
        for change in _told(fitted)
        if _effect(change.before, change.after) >= minimum_effect_ratio and abs(change.after - change.before) >= smallest_move
    ]
    ends = [*map(int, rows), int(rows[-1]) + 1]
    changes = tuple(
        replace(change, index=ends[change.index], end=ends[change.end], ended=None if back is None else ends[back])
        for change, back in ((change, _came_back(fitted, change)) for change in told)
    )
    third = max(1, points // 3)
    first, last = values[:third], values[-third:]
    worse, _ = mann_whitney(first, last, Better.NONE)
    level = abs(median(values))
    return Course(
        count=points,
        cuts=tuple(ends[one.first] for one in fitted.pieces[1:]),
        changes=changes,
        newest=_newest(fitted, minimum_effect_ratio, smallest_move),
        first_third=median(first),
        last_third=median(last),
        thirds_p=_with_correlation(worse, first, third),
        noise_ratio=fitted.noise if fitted.logarithmic else fitted.noise / level if level else None,
    )


def _with_correlation(p_value: float, before: Floats, count: int) -> float:
    """The p-value of two thirds, if their neighbours resemble each other."""
    factor = correlation_factor(before, count)
    if factor == 1.0 or not 0.0 < p_value < 1.0:
        return p_value
    from statistics import NormalDist

    return 2 * NormalDist().cdf(NormalDist().inv_cdf(p_value / 2) / factor)


def _weighed(fitted: _Fitted, generous: list[_Piece]) -> list[_Piece]:
    """The cuts of both searches, weighed by the innovations: what a value's predecessor and its line do not predict.

    A step shows in them twice, as a new level and as one large innovation, so it is not lost where noise is correlated. The
    cut that explains least is dropped again and again, until each is worth its price.
    """
    z, r, points = fitted.z, fitted.correlation, len(fitted.z)
    unit = fitted.noise**2 * (1 - r * r)
    cut_price, drift_price = CUT_PRICE * log(points), WEIGHED_DRIFT_PRICE * log(points)

    def best(first: int, end: int) -> tuple[_Piece, Floats, float]:
        tried = []
        for drifts in (False, True)[: 2 if end - first >= DRIFT_POINTS_MIN else 1]:
            left, price = z[first:end] - _line(z[first:end], drifts), drift_price if drifts else 0.0
            cost = float(np.sum((left[1:] - r * left[:-1]) ** 2)) / unit + price
            tried.append((cost, _Piece(first, end, drifts), left, price))
        return min(tried, key=lambda one: one[0])[1:]

    def cost(parts: list[tuple[_Piece, Floats, float]]) -> float:
        left = np.concatenate([one[1] for one in parts])
        return float(np.sum((left[1:] - r * left[:-1]) ** 2)) / unit + sum(one[2] for one in parts)

    cuts = [0]
    for place in sorted({piece.first for piece in (*generous, *fitted.pieces)} - {0}):
        if place - cuts[-1] >= LEVEL_POINTS_MIN:
            cuts.append(place)
    parts = [best(first, end) for first, end in pairwise([*cuts, points])]
    now = cost(parts)
    while len(parts) > 1:
        tried = [[*parts[:i], best(parts[i][0].first, parts[i + 1][0].end), *parts[i + 2 :]] for i in range(len(parts) - 1)]
        costs = [cost(one) for one in tried]
        least = int(np.argmin(costs))
        if costs[least] - now >= cut_price:
            break
        parts, now = tried[least], costs[least]
    return [one[0] for one in parts]


def _line(z: Floats, drifts: bool) -> Floats:
    """The fitted value at each point of one piece."""
    return np.asarray(_lines(z[None, :], [[_Piece(0, len(z), drifts)]])[0], dtype=np.float64)


def _placed(fitted: _Fitted) -> list[_Piece]:
    """Each step of a correlated series moved to where the innovations are smallest."""
    pieces = list(fitted.pieces)
    if fitted.correlation == 0 or len(pieces) < 2:
        return pieces
    y, r = fitted.y, fitted.correlation
    for number, (old, new) in enumerate(pairwise(fitted.pieces)):
        if old.drifts or new.drifts:
            continue
        low, cut, high = pieces[number].first, new.first, new.end
        before, after = median(y[low:cut]), median(y[cut:high])
        places = np.arange(max(low + 2, cut - _PLACE_WINDOW), min(high - 2, cut + _PLACE_WINDOW) + 1)
        if not len(places):
            continue
        points = np.arange(max(low + 1, int(places[0]) - 1), min(high, int(places[-1]) + 2))
        level = np.where(points[None, :] >= places[:, None], after, before)
        level_before = np.where(points[None, :] - 1 >= places[:, None], after, before)
        innovations = (y[points] - level) - r * (y[points - 1] - level_before)
        loss = np.minimum(0.5 * (innovations / fitted.noise) ** 2, _PLACE_LOSS_MAX).sum(axis=1)
        place = int(places[loss.argmin()])
        pieces[number] = replace(pieces[number], end=place)
        pieces[number + 1] = replace(pieces[number + 1], first=place)
    return pieces


def _kept(fitted: _Fitted, pieces: list[_Piece], minimum_effect_ratio: float) -> list[_Piece]:
    """The pieces without cuts that matter to nobody: the smallest is dropped again and again."""
    drift_price = DRIFT_PRICE * log(len(fitted.y))
    while len(pieces) > 1:
        effects = []
        for old, new in pairwise(pieces):
            jump = _effect(_ends(fitted, old)[1], _ends(fitted, new)[0])
            moved = _effect(median(fitted.values[old.first : old.end]), median(fitted.values[new.first : new.end]))
            effects.append(max(jump, moved) if _supported(fitted, old, new) else 0.0)
        smallest = int(np.argmin(effects))
        if effects[smallest] >= minimum_effect_ratio:
            break
        first, end = pieces[smallest].first, pieces[smallest + 1].end
        old, new = pieces[smallest], pieces[smallest + 1]
        drifts = (old.drifts or new.drifts) and _slope_gain(fitted, first, end) > drift_price
        pieces[smallest : smallest + 2] = [_Piece(first, end, drifts)]
    return pieces


def _supported(fitted: _Fitted, old: _Piece, new: _Piece) -> bool:
    """Whether a short piece has three values nearer to its own level than to its neighbour's."""
    shorter, longer = sorted((old, new), key=lambda piece: piece.end - piece.first)
    if shorter.drifts or longer.drifts or shorter.end - shorter.first >= 2 * LEVEL_POINTS_MIN:
        return True
    values = fitted.values[shorter.first : shorter.end]
    own, other = median(values), median(fitted.values[longer.first : longer.end])
    return int(np.sum(np.abs(values - own) < np.abs(values - other))) >= LEVEL_POINTS_MIN


def _ends(fitted: _Fitted, piece: _Piece) -> tuple[float, float]:
    """The level of a piece, twice, or the two ends of its line, in the unit of the series."""
    if not piece.drifts:
        level = median(fitted.values[piece.first : piece.end])
        return level, level
    line = _line(fitted.z[piece.first : piece.end], piece.drifts)
    return fitted.back(float(line[0])), fitted.back(float(line[-1]))


def _slope_gain(fitted: _Fitted, first: int, end: int) -> float:
    """How much a line explains more than a level, in squares of the noise."""
    z = fitted.z[first:end]
    places = np.arange(len(z)) - (len(z) - 1) / 2
    return float((places @ z) ** 2 / (places @ places)) / fitted.long_noise**2


def _told(fitted: _Fitted) -> list[Change]:
    """Steps and drifts in order. Neighbouring drifts the same way, without a jump back between them, are one drift."""
    points = len(fitted.y)
    ends = [_ends(fitted, piece) for piece in fitted.pieces]
    runs: list[list[int]] = []
    for number, piece in enumerate(fitted.pieces):
        if runs and piece.drifts and fitted.pieces[number - 1].drifts:
            way = ends[number][1] - ends[number][0]
            if way * (ends[number - 1][1] - ends[number - 1][0]) > 0 and _no_jump(ends[number - 1], ends[number]):
                runs[-1].append(number)
                continue
        runs.append([number])
    found: list[Change] = []
    for number, run in enumerate(runs):
        first, last = fitted.pieces[run[0]], fitted.pieces[run[-1]]
        if number:
            old = fitted.pieces[runs[number - 1][-1]]
            found.append(_step(fitted, old, first, ends[runs[number - 1][-1]][1], ends[run[0]][0]))
        if first.drifts:
            before, after = ends[run[0]][0], ends[run[-1]][1]
            gain = sum(_slope_gain(fitted, fitted.pieces[i].first, fitted.pieces[i].end) for i in run)
            error = fitted.long_noise * sqrt(12 / (last.end - first.first))
            found.append(
                Change(
                    "drift", first.first, last.end, before, after, *_interval(fitted, before, after, error), _luck(gain, points)
                )
            )
    return found


def _no_jump(old: tuple[float, float], new: tuple[float, float]) -> bool:
    """Whether the second line goes on where the first ends: the jump is less than a quarter of what both cover."""
    return abs(new[0] - old[1]) <= 0.25 * (abs(old[1] - old[0]) + abs(new[1] - new[0]))


def _step(fitted: _Fitted, old: _Piece, new: _Piece, before: float, after: float) -> Change:
    counts = old.end - old.first, new.end - new.first
    if old.drifts or new.drifts:
        error = fitted.long_noise * sqrt(
            sum((4 if one.drifts else 1) / count for one, count in zip((old, new), counts, strict=True))
        )
        ratio, low, high = _interval(fitted, before, after, error)
    else:
        shift = median_shift(fitted.values[old.first : old.end], fitted.values[new.first : new.end])
        ratio, low, high = shift.ratio, shift.low, shift.high
    sides = [fitted.z[one.first : one.end] for one in (old, new)]
    levels = [_line(z, one.drifts) for z, one in zip(sides, (old, new), strict=True)]
    jump = float(levels[1][0] - levels[0][-1]) / fitted.long_noise
    spread = sum((4 if one.drifts else 1) / count for one, count in zip((old, new), counts, strict=True))
    return Change("step", new.first, new.end, before, after, ratio, low, high, _luck(jump**2 / spread, len(fitted.y)))


def _luck(gain: float, points: int) -> float:
    """Chance that some place of an unchanged series gains as much."""
    return min(1.0, points * erfc(sqrt(gain / 2)))


def _interval(fitted: _Fitted, before: float, after: float, error: float) -> tuple[float | None, float | None, float | None]:
    """after / before with its 95 % interval, from the standard error of the difference on the working scale."""
    if min(before, after) <= 0:
        return None, None, None
    ratio, half = after / before, 1.96 * error
    if fitted.logarithmic:
        return ratio, ratio * exp(-half), ratio * exp(half)
    return ratio, ratio - half / before, ratio + half / before


def _came_back(fitted: _Fitted, change: Change) -> int | None:
    """The first place from which on the series is nearer to what it was before the change; None if it lasts."""
    back: int | None = None
    for piece in fitted.pieces:
        if piece.first < change.end:
            continue
        ends = _ends(fitted, piece)
        progress = [(one - change.before) / (change.after - change.before) for one in ends]
        if progress[1] > 0.5:
            back = None
        elif back is None:
            back = piece.first
    return back


def _newest(fitted: _Fitted, minimum_effect_ratio: float, smallest_move: float) -> Newest | None:
    """The newest values, if they lie far off the last piece and beyond everything seen around it before."""
    piece = fitted.pieces[-1]
    residuals = fitted.y[piece.first : piece.end] - median(fitted.y[piece.first : piece.end])
    if piece.drifts:
        residuals = fitted.y[piece.first : piece.end] - _line(fitted.z[piece.first : piece.end], True)
    way = float(np.sign(residuals[-1]))
    away = way * residuals
    count = 1
    most = max(_DOUBT_POINTS_MAX, len(fitted.y) // 4)
    while count < most and count < len(away) and away[-count - 1] > _DOUBT_SIGMAS * fitted.noise:
        count += 1
    if away[-1] <= _DOUBT_SIGMAS * fitted.noise or (len(away) > count and away[:-count].max() >= away[-count:].min()):
        return None
    after = median(fitted.values[-count:])
    before = fitted.back(float(np.median(fitted.y[-count:] - residuals[-count:])))
    matters = _effect(before, after) >= minimum_effect_ratio and abs(after - before) >= smallest_move
    return Newest(count, before, after) if matters else None

"""Unknown boundary: when did a series change its level, and by how much?

    1  kernel segmentation        gamma = 1 / (8 sigma^2), penalty 1.5 ln n, segments of >= 3 points
    2  drop steps below 3 %       the smallest first, with new medians each time
    3  rank scan in each segment  comparison.py: steps as small as the noise, which stage 1 is too careful to see
    4  correlated series          stages 1 to 3 again at 1.2 times the price, steps placed by their innovations
    5  false discovery control    over all series judged together

Stage 1 withstands outliers, two modes and heavy tails, but needs a step of two to three sigma. Stage 3 adds up weak
evidence over many points, but correlation between neighbours holds it back. Neither judges the newest four points: a
few bad runs at the end look like outliers until there are five. For those points, use compare().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better
from hpcq.statistics.boundary import FALSE_DISCOVERY_RATIO
from hpcq.statistics.comparison import (
    benjamini_hochberg,
    beyond_doubt,
    correlation_factor,
    mann_whitney,
    median,
    median_shift,
    noise_scale,
    scan_step,
)

# ----------------------------------------------------------------------------------------------------------------------
# Best segmentation of series under the rbf kernel: exact dynamic programming, many series at once, memory linear in n.
#
#     cost of [s, t)  =  (t - s) - G(s, t) / (t - s),      G(s, t) = sum of exp(-gamma (x_i - x_j)^2) over i, j in [s, t)
#     best(t)         =  min over s of  best(s) + cost(s, t) + penalty,      t - s >= minimum
#
# A segment costs little when its values resemble each other. The kernel saturates: a value far away is "different", not
# "ten times more different", so one outlier is no reason for a segment of its own. From t to t + 1, one row of the kernel
# matrix is added to G of all s; the matrix is never stored.
# Source: Harchaoui & Cappe 2007; Arlot, Celisse & Harchaoui 2019 (the cost); Killick, Fearnhead & Eckley 2012 (pruning).

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Series per chunk: (points x CHUNK) doubles fit into the second-level cache for series of some hundred points.
CHUNK_VALUES = 1 << 14
PRUNE_EVERY = 64


def change_indices(values: Floats, sigma: Floats, penalty: float, minimum: int) -> list[list[int]]:
    """First index of each new segment, for every series, with gamma = 1 / (8 sigma^2).

    values: shape (series, points), finite. sigma: shape (series,), > 0 where the series is not constant.
    penalty: price of a segment in units of the cost. minimum: points of the shortest segment, >= 1.
    Returns one ascending list per series; it is empty if one segment is best or if points < 2 * minimum.
    """
    series, points = values.shape
    if points < 2 * minimum:
        return [[] for _ in range(series)]
    width = np.where(sigma > 0, sigma, 1.0) * np.sqrt(8.0)
    scaled = (values - np.median(values, axis=1, keepdims=True)) / width[:, None]
    chunk = max(1, CHUNK_VALUES // points)
    found: list[list[int]] = []
    for start in range(0, series, chunk):
        block = np.ascontiguousarray(scaled[start : start + chunk].T)
        last = _last_starts(block, penalty, minimum)
        found.extend(_walk_back(last[:, column], points) for column in range(block.shape[1]))
    return found


def _last_starts(block: Floats, penalty: float, minimum: int) -> Ints:
    """Start of the last segment in the best segmentation of the first t points.

    block: shape (points, series), scaled so that the kernel is exp(-(difference)^2). Returns shape
    (points + 1, series).
    """
    points, series = block.shape
    best = np.full((points + 1, series), np.inf)
    best[0] = -penalty
    last = np.zeros((points + 1, series), dtype=np.intp)
    sums = np.zeros((points, series))
    lengths = np.arange(points, 0, -1, dtype=np.float64)[:, None]
    columns = np.arange(series)
    prune_every = max(PRUNE_EVERY, minimum)
    low = prunable = 0
    check = prune_every
    for end in range(1, points + 1):
        _add_point(block, sums, low, end)
        if end < minimum:
            continue
        high = end - minimum + 1
        length = lengths[points - end + low : points - end + high]
        total = best[low:high] + (length - sums[low:high] / length)
        chosen = total.argmin(axis=0)
        best[end] = total[chosen, columns] + penalty
        last[end] = chosen + low
        if end >= check:
            low = max(low, prunable)
            prunable = high - len(total) + _leading_useless(total, best[end])
            check = end + prune_every
    return last


def _add_point(block: Floats, sums: Floats, low: int, end: int) -> None:
    """Update G(s, end - 1) to G(s, end) for low <= s < end."""
    new = end - 1
    if new > low:
        row = block[low:new] - block[new]
        np.multiply(row, row, out=row)
        np.negative(row, out=row)
        np.exp(row, out=row)
        tail = row[::-1].cumsum(axis=0)[::-1]
        tail *= 2.0
        sums[low:new] += tail
        sums[low:new] += 1.0
    sums[new] = 1.0


def _leading_useless(total: Floats, best: Floats) -> int:
    """How many of the earliest starts cost more, in every series, than ending a segment here.

    They cost more for every later end too, because cutting a segment in two never raises its cost. They may only be
    dropped once "here" is itself an allowed start, which is one check later.
    """
    useful = (total < best).any(axis=1)
    return int(useful.argmax()) if useful.any() else total.shape[0]


def _walk_back(last: Ints, points: int) -> list[int]:
    found: list[int] = []
    end = int(last[points])
    while end > 0:
        found.append(end)
        end = int(last[end])
    return found[::-1]


# ----------------------------------------------------------------------------------------------------------------------


PENALTY = 1.5
MINIMUM_POINTS = 3
MINIMUM_EFFECT_RATIO = 0.03
SCAN_MINIMUM_POINTS = 8
# The scan of an unchanged series of 30 to 10,000 independent points exceeds this in about one case of a thousand.
SCAN_THRESHOLD = 4.0
CORRELATED_PENALTY = 1.2


@dataclass(frozen=True, slots=True)
class Change:
    """One change of level. index: the first value of the new level; missing values count.

    before, after: medians of the segments on either side. effect_ratio: after / before (1.0 = no change) with its 95 %
    interval low..high; None if a median is not above zero. p_value: of the two segments, corrected for the search.
    """

    index: int
    before: float
    after: float
    effect_ratio: float | None
    low: float | None
    high: float | None
    p_value: float


def find_changes(
    series: Sequence[ArrayLike],
    *,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    penalty: float = PENALTY,
    false_discovery_ratio: float = FALSE_DISCOVERY_RATIO,
    smallest_moves: Sequence[float] | None = None,
) -> list[list[Change]]:
    """Find the change points of each series, in order.

    series: values in time order, any unit, lengths may differ; NaN and infinities are missing values.
    minimum_effect_ratio: smallest step that is reported, as a share of the level before.
    penalty: price of a segment in units of ln n. A lower one finds changes sooner, with more false alarms.
    false_discovery_ratio: the share of reported series that may be luck (with 2 or more series). A series that moved
    far beyond everything seen before is reported whatever the number of series (smallest_effect.beyond_doubt).
    smallest_moves: per series, the smallest step that is reported, in the unit of the series.
    """
    arrays = [np.asarray(one, dtype=np.float64).ravel() for one in series]
    kept = [np.flatnonzero(np.isfinite(one)) for one in arrays]
    dense = [one[rows] for one, rows in zip(arrays, kept, strict=True)]
    sigma, splits = _split(dense, penalty, minimum_effect_ratio)
    _scan(dense, splits, minimum_effect_ratio)
    _reconsider_correlated(dense, splits, sigma, penalty, minimum_effect_ratio)
    found = [_describe(values, rows, split) for values, rows, split in zip(dense, kept, splits, strict=True)]
    smallest = [min((change.p_value for change in changes), default=1.0) for changes in found]
    believed = benjamini_hochberg(smallest) <= false_discovery_ratio
    kept_changes = [
        changes if len(found) < 2 or sure or _any_beyond_doubt(values, split) else []
        for changes, sure, values, split in zip(found, believed, dense, splits, strict=True)
    ]
    if smallest_moves is None:
        return kept_changes
    return [
        [one for one in changes if abs(one.after - one.before) >= least]
        for changes, least in zip(kept_changes, smallest_moves, strict=True)
    ]


def _any_beyond_doubt(values: Floats, indices: list[int]) -> bool:
    bounds = [0, *indices, len(values)]
    return any(
        beyond_doubt(values[low:index], values[index:high])
        for low, index, high in zip(bounds, bounds[1:], bounds[2:], strict=False)
    )


def _split(dense: list[Floats], penalty: float, minimum_effect_ratio: float) -> tuple[list[float], list[list[int]]]:
    """Stages 1 and 2: noise and kernel segmentation of all series; those of equal length are computed together."""
    noise = [0.0] * len(dense)
    splits: list[list[int]] = [[] for _ in dense]
    for points, members in _by_length([len(values) for values in dense]).items():
        if points < 2 * MINIMUM_POINTS:
            continue
        block = np.stack([dense[i] for i in members])
        sigma = noise_scale(block)
        found = change_indices(block, sigma, penalty * log(points), MINIMUM_POINTS)
        for i, scale, indices in zip(members, sigma, found, strict=True):
            noise[i] = float(scale)
            splits[i] = _drop_small(dense[i], indices, minimum_effect_ratio)
    return noise, splits


def _scan(dense: list[Floats], splits: list[list[int]], minimum_effect_ratio: float) -> None:
    """Stage 3: cut segments wherever ranks show a step, until there are no more cuts; changes `splits`."""
    waiting = [
        (i, low, high)
        for i, (values, indices) in enumerate(zip(dense, splits, strict=True))
        for low, high in zip([0, *indices], [*indices, len(values)], strict=True)
    ]
    touched: set[int] = set()
    while waiting:
        cut: list[tuple[int, int, int]] = []
        for points, members in _by_length([high - low for _, low, high in waiting]).items():
            if points < 2 * SCAN_MINIMUM_POINTS:
                continue
            segments = [waiting[j] for j in members]
            block = np.stack([dense[i][low:high] for i, low, high in segments])
            for k, step in _steps(block, minimum_effect_ratio):
                i, low, high = segments[k]
                splits[i].append(low + step)
                touched.add(i)
                cut += [(i, low, low + step), (i, low + step, high)]
        waiting = cut
    for i in touched:
        splits[i] = _drop_small(dense[i], sorted(splits[i]), minimum_effect_ratio)


def _reconsider_correlated(
    dense: list[Floats], splits: list[list[int]], noise: list[float], penalty: float, minimum_effect_ratio: float
) -> None:
    """Stage 4: judge series with changes and clearly correlated neighbours more strictly; changes `splits`."""
    chosen = [i for i, indices in enumerate(splits) if indices and lag_one_correlation(dense[i], indices, noise[i]) >= CLEARLY]
    again = [dense[i] for i in chosen]
    _, stricter = _split(again, CORRELATED_PENALTY * penalty, minimum_effect_ratio)
    _scan(again, stricter, minimum_effect_ratio)
    for i, indices in zip(chosen, stricter, strict=True):
        correlation = lag_one_correlation(dense[i], indices, noise[i])
        placed = place_steps(dense[i], indices, noise[i], correlation) if correlation >= CLEARLY else indices
        splits[i] = _drop_small(dense[i], placed, minimum_effect_ratio)


def _steps(block: Floats, minimum_effect_ratio: float) -> list[tuple[int, int]]:
    """(row, first index after the step) of each row whose step stands out and matters."""
    where, statistic = scan_step(block, SCAN_MINIMUM_POINTS)
    rows = np.flatnonzero(statistic >= SCAN_THRESHOLD)
    if not len(rows):
        return []
    rows = rows[statistic[rows] >= SCAN_THRESHOLD * correlation_factor(block[rows], where[rows])]
    steps = [(int(row), int(where[row])) for row in rows]
    return [(k, s) for k, s in steps if _effect(block[k, :s], block[k, s:]) >= minimum_effect_ratio]


def _drop_small(values: Floats, indices: list[int], minimum_effect_ratio: float) -> list[int]:
    """Remove the smallest step again and again until each step moves the median by the minimum."""
    indices = list(indices)
    while indices:
        bounds = [0, *indices, len(values)]
        segments = [values[low:high] for low, high in pairwise(bounds)]
        effects = [_effect(old, new) for old, new in pairwise(segments)]
        smallest = int(np.argmin(effects))
        if effects[smallest] >= minimum_effect_ratio:
            break
        del indices[smallest]
    return indices


def _effect(old: Floats, new: Floats) -> float:
    before, after = median(old), median(new)
    if before == after:
        return 0.0
    return abs(after - before) / abs(before) if before else float("inf")


def _describe(values: Floats, rows: NDArray[np.intp], indices: list[int]) -> list[Change]:
    bounds = [0, *indices, len(values)]
    changes: list[Change] = []
    for low, index, high in zip(bounds, bounds[1:], bounds[2:], strict=False):
        old, new = values[low:index], values[index:high]
        shift = median_shift(old, new)
        p_value = min(1.0, mann_whitney(old, new, Better.NONE)[0] * (high - low))
        changes.append(Change(int(rows[index]), shift.before, shift.after, shift.ratio, shift.low, shift.high, p_value))
    return changes


def _by_length(lengths: list[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        groups.setdefault(length, []).append(i)
    return groups


# ----------------------------------------------------------------------------------------------------------------------
# Series whose neighbouring values resemble each other: how much, and where exactly their steps are.
#
# Correlated noise wanders, so a few values in a row off the level mean less, and the search charges more per segment.
# Every method that looks at values alone also sees the place of a change blurred. The place is sharp in the innovations.
# An innovation is the part of a value that its predecessor and its level do not predict:
#
#     innovation_t = residual_t - r residual_(t-1),     residual = value - level before or after the supposed place
#
# Source: Bai 1994 (a shift in a linear process); the bounded loss is Tukey's idea, 1960.


# A series of 100 independent values exceeds this in one of 30,000 cases; one with AR(1) 0.6 stays below in one of 50.
CLEARLY = 0.4
CORRELATION_MAX = 0.9
CLIP_SIGMAS = 3.0
WINDOW = 12
LOSS_MAX = 8.0


def lag_one_correlation(values: Floats, indices: list[int], sigma: float) -> float:
    """Correlation of neighbours around the medians of the segments that `indices` cut, corrected for those medians.

    values: shape (points,). sigma: noise of the series; residuals beyond three of it are clipped.
    """
    if sigma <= 0 or len(values) < 3:
        return 0.0
    bounds = [0, *indices, len(values)]
    levels = [median(values[low:high]) for low, high in pairwise(bounds)]
    residuals = np.clip((values - np.repeat(levels, np.diff(bounds))) / sigma, -CLIP_SIGMAS, CLIP_SIGMAS)
    square = float(residuals @ residuals)
    seen = float(residuals[1:] @ residuals[:-1]) / square if square > 0 else 0.0
    return seen + (1 + 3 * seen) * (len(indices) + 1) / len(values)


def place_steps(values: Floats, indices: list[int], sigma: float, correlation: float) -> list[int]:
    """Move each step by up to WINDOW points to where the innovations are smallest. Returns ascending indices."""
    correlation = min(correlation, CORRELATION_MAX)
    bounds = [0, *indices, len(values)]
    placed: list[int] = []
    for low, index, high in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before, after = median(values[low:index]), median(values[index:high])
        places = np.arange(max(low + 2, index - WINDOW), min(high - 2, index + WINDOW) + 1)
        points = np.arange(max(low + 1, int(places[0]) - 1), min(high, int(places[-1]) + 2)) if len(places) else places
        if not len(points):
            placed.append(index)
            continue
        level = np.where(points[None, :] >= places[:, None], after, before)
        level_before = np.where(points[None, :] - 1 >= places[:, None], after, before)
        innovations = (values[points] - level) - correlation * (values[points - 1] - level_before)
        loss = np.minimum(0.5 * (innovations / sigma) ** 2, LOSS_MAX).sum(axis=1)
        placed.append(int(places[loss.argmin()]))
    return sorted(set(placed))

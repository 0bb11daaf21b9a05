"""Best segmentation of series under the rbf kernel: exact dynamic programming, many series at once, memory linear in n.

    cost of [s, t)  =  (t - s) - G(s, t) / (t - s),      G(s, t) = sum of exp(-gamma (x_i - x_j)^2) over i, j in [s, t)
    best(t)         =  min over s of  best(s) + cost(s, t) + penalty,      t - s >= minimum

A segment costs little when its values resemble each other. The kernel saturates: a value far away is "different", not
"ten times more different", so one outlier is no reason for a segment of its own. From t to t + 1, one row of the kernel
matrix is added to G of all s; the matrix is never stored.
Source: Harchaoui & Cappe 2007; Arlot, Celisse & Harchaoui 2019 (the cost); Killick, Fearnhead & Eckley 2012 (pruning).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

"""Ranks with ties, and the rank scan that looks for one step anywhere in a series.

    scan statistic at s = |sum of the first s centred ranks| / its standard deviation under exchange
    the largest over s, divided by sqrt((1 + r) / (1 - r)), r = lag-one correlation of the ranks on either side

Source: Wilcoxon 1945, Pettitt 1979 (the scan); Bayley & Hammersley 1946 (the effective number of correlated values).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

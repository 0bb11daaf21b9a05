"""Series whose neighbouring values resemble each other: how much, and where exactly their steps are.

Correlated noise wanders, so a few values in a row off the level mean less, and the search charges more per segment.
Every method that looks at values alone also sees the place of a change blurred. The place is sharp in the innovations.
An innovation is the part of a value that its predecessor and its level do not predict:

    innovation_t = residual_t - r residual_(t-1),     residual = value - level before or after the supposed place

Source: Bai 1994 (a shift in a linear process); the bounded loss is Tukey's idea, 1960.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hpcq.statistics.scale import median

Floats = NDArray[np.float64]

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

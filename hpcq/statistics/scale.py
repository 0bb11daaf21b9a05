"""How noisy a series is, from its short-range scatter, so that steps, drift and outliers do not count as noise.

    residual = value - rolling median of WINDOW values around it
    sigma    = 1.4826 * median |residual|, corrected for the window, with a floor for constant series

A rolling median follows a step within half a window, so a series that drops by 20 % has the same sigma as one that does
not. The median of the residuals ignores up to half of the values.
Source: Hampel 1974 (the median absolute deviation), Tukey 1977 (running medians).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
    residuals = values - rolling_median(values)
    sigma = MAD_TO_SIGMA * np.median(np.abs(residuals), axis=1)
    level = np.median(np.abs(values), axis=1)
    level = np.where(level > 0, level, np.mean(np.abs(values), axis=1))
    return np.asarray(np.maximum(sigma, FLOOR_RATIO * level), dtype=np.float64)


def rolling_median(values: Floats, window: int = WINDOW) -> Floats:
    """Median of the `window` values around each point; at the ends the outermost full window is used.

    values: shape (series, points). Returns the same shape. A series shorter than the window has one median for all.
    """
    points = values.shape[1]
    if points <= window:
        return np.broadcast_to(np.median(values, axis=1, keepdims=True), values.shape)
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

"""What is too small to matter: as a share of the level, and in the metric's own unit because the level may be zero.

MINIMUM_EFFECT_RATIO    a smaller move of the median is never reported as a change
PASS_EFFECT_RATIO       a pass says that a worsening of this share or more is ruled out
smallest_move(unit)     a smaller move in the metric's own unit is never reported as a change, whatever its share
beyond_doubt(...)       a move so far outside everything seen before that the number of series does not matter
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hpcq.statistics.scale import noise_scale

Floats = NDArray[np.float64]

MINIMUM_EFFECT_RATIO = 0.02
PASS_EFFECT_RATIO = 0.05
#: A median this many standard errors from the level before, and every value half as far beyond the whole range before.
#: Neither luck nor the number of series explains that, and a second mode would have been seen before.
BEYOND_DOUBT_SIGMAS = 10.0
_BEYOND_DOUBT_BEFORE_MIN = 5
_BEYOND_DOUBT_AFTER_MIN = 3
#: One lost packet of 10,000, three events, two ticks of a clock: smaller moves appear by chance and matter to nobody.
_SMALLEST_MOVES = {"ratio": 1e-4, "count": 3.0, "ns": 20.0}


def smallest_move(unit: str) -> float:
    """The smallest move that matters in a metric's own unit: `ratio` 1e-4, `count` 3, `ns` 20; 0 for all others."""
    return _SMALLEST_MOVES.get(unit, 0.0)


def beyond_doubt(before: Floats, after: Floats) -> bool:
    """Whether the median moved by ten standard errors, and all values after lie half as far beyond all values before.

    before, after: finite, time order, same unit. False with fewer than 5 values before or 3 after.
    """
    if len(before) < _BEYOND_DOUBT_BEFORE_MIN or len(after) < _BEYOND_DOUBT_AFTER_MIN:
        return False
    moved = abs(float(np.median(after)) - float(np.median(before)))
    outside = max(float(after.min() - before.max()), float(before.min() - after.max()))
    error = float(noise_scale(before)[0]) * sqrt(pi / 2 * (1 / len(before) + 1 / len(after)))
    return outside >= moved / 2 and moved >= BEYOND_DOUBT_SIGMAS * error

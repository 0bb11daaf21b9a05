"""Known boundary: are the values after it worse than those before?

    degraded       Mann-Whitney p < ALPHA towards worse, and the median moved by MINIMUM_EFFECT_RATIO or more
    inconclusive   so few values that no outcome could reach ALPHA; or it looks worse (p < LOOK_AGAIN) but might be luck; or
                   the interval does not rule out a worsening of PASS_EFFECT_RATIO
    pass           such a worsening is ruled out

Ranks assume no shape of the noise. The minimum effect spares people real changes that do not matter. Repetitions that
ran back to back are not independent, and five of them say less than five independent values. If neighbours before the
boundary are clearly correlated, p is computed with a wider spread (docs/methods/change-points.md).
For single jobs, see compare_jobs in comparison.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better
from hpcq.statistics.comparison import (
    ALPHA,
    CORRELATION_MAX,
    LOOK_AGAIN,
    MINIMUM_EFFECT_RATIO,
    PASS_EFFECT_RATIO,
    Comparison,
    ComparisonVerdict,
    Shift,
    after_count_needed,
    average_ranks,
    benjamini_hochberg,
    beyond_doubt,
    mann_whitney,
    median,
    median_shift,
    more_needed,
    noise_scale,
    smallest_p,
)

Floats = NDArray[np.float64]

FALSE_DISCOVERY_RATIO = 0.05
# Thirty runs show their own correlation poorly, so the spread widens by this power of the factor that they suggest. At
# 0, AR(1) noise of 0.6 gives 7 % false alarms; at 1, it hides a third of the 5 % drops. Measured by
# bench/changepoint.py.
CORRELATION_TRUST = 0.4
#: With fewer values a bootstrap covers too little. Then the noise before the boundary widens the interval.
_BOOTSTRAP_MIN = 6


def compare(
    before: ArrayLike,
    after: ArrayLike,
    *,
    better: Better = Better.HIGHER,
    alpha: float = ALPHA,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    smallest_move: float = 0.0,
) -> Comparison:
    """Judge whether `after` is worse than `before`.

    before, after: one value per repetition in time order, same unit; NaN and infinities are missing values and dropped.
    alpha: chance of calling an unchanged series degraded, before the minimum effect makes it smaller.
    minimum_effect_ratio: smallest move of the median that matters, as a share of the median before.
    smallest_move: the same in the unit of the values. A loss of 1e-7 after no loss is an infinite share,
    but does not matter.
    """
    old, new = _finite(before), _finite(after)
    counts = (len(old), len(new))
    attainable = smallest_p(*counts, two_sided=better is Better.NONE)
    if not all(counts):
        reason = f"no values {'before' if not counts[0] else 'after'} the boundary"
        return Comparison(ComparisonVerdict.INCONCLUSIVE, reason, False, None, None, *counts)
    shift = median_shift(old, new)
    worse, improved = _tempered(old, new, better)
    change = -shift.relative_change if better is Better.HIGHER else shift.relative_change
    if better is Better.NONE:
        change = abs(change)
    matters = abs(change) >= minimum_effect_ratio and abs(shift.after - shift.before) >= smallest_move
    gain = improved < alpha and change < 0 and matters and better is not Better.NONE
    if attainable >= alpha:
        verdict, reason = ComparisonVerdict.INCONCLUSIVE, _too_few(*counts, alpha, better)
    elif worse < alpha and change > 0 and matters:
        verdict, reason = ComparisonVerdict.DEGRADED, "clearly worse than before"
    elif worse < LOOK_AGAIN and change > 0 and matters:
        verdict, reason = ComparisonVerdict.INCONCLUSIVE, "looks worse, but might be luck: measure again"
    elif not gain and not _worsening_ruled_out(old, new, shift, better, smallest_move):
        needed = more_needed(_noise_ratio(old), PASS_EFFECT_RATIO - change, *counts)
        reason = f"{100 * PASS_EFFECT_RATIO:.0f} % worse is not ruled out: {needed}"
        verdict = ComparisonVerdict.INCONCLUSIVE
    else:
        verdict, reason = ComparisonVerdict.PASS, "clearly better than before" if gain else "no worse than before"
    return Comparison(verdict, reason, gain, worse, shift, *counts)


def p_of_worse(before: ArrayLike, after: ArrayLike, better: Better) -> float | None:
    """The p_value that compare() gives, without the rest: the best of many cuts is found by it alone."""
    old, new = _finite(before), _finite(after)
    return _tempered(old, new, better)[0] if len(old) and len(new) else None


def _tempered(old: Floats, new: Floats, better: Better) -> tuple[float, float]:
    """The p of worse and the p of better, as the correlation of neighbours allows."""
    factor = correlation_factor(old, len(new))
    worse, improved = mann_whitney(old, new, better)
    return _temper(worse, factor), _temper(improved, factor)


def compare_many(
    pairs: Iterable[tuple[ArrayLike, ArrayLike]],
    *,
    better: Better | Sequence[Better] = Better.HIGHER,
    alpha: float = ALPHA,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    false_discovery_ratio: float = FALSE_DISCOVERY_RATIO,
) -> list[Comparison]:
    """Judge many series together, so that a few that look bad by luck are not called damaged.

    pairs: (before, after) of each series, as for compare(). better: of all, or of each. Some series that compare() would
    call degraded are explained by chance among so many (Benjamini-Hochberg above false_discovery_ratio). These become
    inconclusive, unless they moved far beyond everything seen before (smallest_effect.beyond_doubt).
    """
    sides = list(pairs)
    each = [better] * len(sides) if isinstance(better, Better) else list(better)
    found = [
        compare(old, new, better=one, alpha=alpha, minimum_effect_ratio=minimum_effect_ratio)
        for (old, new), one in zip(sides, each, strict=True)
    ]
    tested = [i for i, one in enumerate(found) if one.p_value is not None]
    adjusted = benjamini_hochberg([found[i].p_value or 0.0 for i in tested])
    for i, q in zip(tested, adjusted, strict=True):
        degraded = found[i].verdict is ComparisonVerdict.DEGRADED
        if degraded and q > false_discovery_ratio and not beyond_doubt(_finite(sides[i][0]), _finite(sides[i][1])):
            reason = f"looks worse, but among {len(tested)} series that much is expected by luck: measure again"
            found[i] = replace(found[i], verdict=ComparisonVerdict.INCONCLUSIVE, reason=reason)
    return found


def _worsening_ruled_out(old: Floats, new: Floats, shift: Shift, better: Better, smallest_move: float) -> bool:
    """Whether the interval excludes a worsening of PASS_EFFECT_RATIO or, from a level of zero, one that matters."""
    if shift.ratio is None:
        worst = new.max() if better is not Better.HIGHER else -new.min()
        return shift.before == shift.after or abs(float(worst) - shift.before) < smallest_move
    low, high = shift.low, shift.high
    if min(len(old), len(new)) < _BOOTSTRAP_MIN:
        half = 1.96 * _noise_ratio(old) * sqrt(pi / 2 * (1 / len(old) + 1 / len(new)))
        low = min(low if low is not None else 0.0, shift.ratio * (1 - half))
        high = None if high is None else max(high, shift.ratio * (1 + half))
    down = 1.0 if low is None else 1 - low
    up = float("inf") if high is None else high - 1
    worst = down if better is Better.HIGHER else up if better is Better.LOWER else max(down, up)
    return worst < PASS_EFFECT_RATIO or worst * abs(shift.before) < smallest_move


def _noise_ratio(values: Floats) -> float:
    """Scatter of single values as a share of their level; 0 if the level is zero."""
    level = abs(median(values))
    return float(noise_scale(values)[0]) / level if level else 0.0


def correlation_factor(before: Floats, after_count: int) -> float:
    """By how much the correlation of neighbouring runs widens the spread of a difference; 1 if none is seen.

    before: the runs before the boundary in time order. The lag-one correlation of their ranks counts if it exceeds what
    one of twenty independent series shows. Source: Bayley & Hammersley 1946.
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
    """Variance of the mean of `count` AR(1) values over that of independent values."""
    lags = np.arange(1, count)
    return 1.0 + 2.0 * float(np.sum((1 - lags / count) * correlation**lags))


def _temper(p_value: float, factor: float) -> float:
    """The p-value if the spread is `factor` times what the test assumed."""
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

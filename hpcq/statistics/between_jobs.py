"""Jobs as the unit: how far the jobs of an unchanged series scatter, and whether two sets of jobs differ by more.

    job_scatter      learned from the history of the series, else from its peers, else assumed
    job_scatters     the same of many series at once
    pooled_scatter   learned from all series of the same test together
    compare_jobs     is `after` worse than `before`? For too few jobs to tell by ranks.

Repetitions of one job ran back to back on the same nodes and share that job's luck. With 0.5 % scatter within a job and
5 % between jobs, ten repetitions look like ten independent values but count as one. So one job is one value, the median
of its repetitions, and what matters is how far such values scatter. hpcq learns it from differences of neighbouring
jobs, because a change of level affects only one of them. It is on a logarithmic scale, as a share of the level.
Source: Kalibera & Jones 2013 (repeat at the level where the variance arises), von Neumann 1941 (successive
differences), Wallace 1959 (Student's t as a normal deviate).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import erfc, exp, log, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcq.kernels import Better
from hpcq.statistics.comparison import (
    ALPHA,
    LOOK_AGAIN,
    MINIMUM_EFFECT_RATIO,
    PASS_EFFECT_RATIO,
    Comparison,
    ComparisonVerdict,
    Shift,
    more_needed,
)

Floats = NDArray[np.float64]

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
    return replace(known, ratio=max(known.ratio, ratio if difference_count >= 2 else 0.0))


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
    medians = _middle(old), _middle(new)
    if min(medians) <= 0:
        return _from_zero(medians, counts, better, smallest_move)
    error = scatter.ratio * sqrt(sum(_median_variance(count) / count for count in counts))
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
        z = float(np.sign(t)) * factor * sqrt(degrees * log(1 + t * t / degrees))
    lower, upper = 0.5 * erfc(-z / sqrt(2)), 0.5 * erfc(z / sqrt(2))
    if better is Better.NONE:
        both = min(1.0, 2 * min(lower, upper))
        return both, both
    return (lower, upper) if better is Better.HIGHER else (upper, lower)


def _middle(values: Floats) -> float:
    """Their median; of a few values, and there are thousands of series, numpy's own takes ten times as long."""
    ordered = np.sort(values)
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0)


def _median_variance(count: int) -> float:
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

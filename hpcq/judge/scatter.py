"""How jobs of one test scatter that nothing is wrong with: one or a few levels, heavy tails, and passing traffic.

    density of a residual r = (1 - STRAY_SHARE) * sum over levels w_k * t4((r - c_k) / sigma) / sigma + STRAY_SHARE * uniform

A round trip often has two levels, one per idle state of a CPU, and a job takes either. A level is no fault: nodes meet
on all of them. What a node takes away shifts all of its levels alike, so the likelihood of a shift tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np

from hpcq.judge.values import Floats

#: Degrees of freedom: tails that one slow job in a few dozen does not break. Source: Lange, Little & Taylor 1989.
FREEDOM = 4.0
#: The median of |t4|, which turns a median absolute deviation into a scale.
MEDIAN_OF_T4 = 0.741
#: The share of jobs that may lie anywhere (other people's traffic), over this width of logarithms.
STRAY_SHARE, STRAY_WIDTH = 0.01, 4.0
#: A level of its own: at least this share of the jobs and so many pairs of which no two share a node, more on a large
#: site, and a gap of so many standard deviations above it.
LEVEL_SHARE, LEVEL_PAIRS, LEVEL_PAIRS_SHARE, LEVEL_ROWS, GAP_SIGMAS = 0.06, 3, 0.25, 4, 3.0
#: The shortest interval with this share of normal values is so many standard deviations wide.
SHORTEST_SHARE, SHORTEST_WIDTH = 0.3, 0.77
_NORM = lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2) - 0.5 * log(FREEDOM * pi)

Ends = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Scatter:
    """sigma: scale within a level (logarithm). centres, shares: the levels, shape (levels,), the topmost one at 0."""

    sigma: float
    centres: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = (1.0,)

    def log_density(self, residuals: Floats) -> Floats:
        """Log density of residuals, any shape, relative to that of the stray jobs: never below 0."""
        total = np.zeros_like(residuals)
        for centre, share in zip(self.centres, self.shares, strict=True):
            z = (residuals - centre) / self.sigma
            total += share * np.exp(_NORM - (FREEDOM + 1) / 2 * np.log1p(z * z / FREEDOM))
        found: Floats = np.log1p(total / self.sigma * (1 - STRAY_SHARE) * STRAY_WIDTH / STRAY_SHARE)
        return found

    def below_nearest(self, residuals: Floats) -> Floats:
        """How far each residual lies below the level that is nearest above it, or above its nearest level: shape kept."""
        gaps = np.stack([residuals - centre for centre in self.centres])
        found: Floats = np.take_along_axis(gaps, np.abs(gaps).argmin(axis=0)[None], axis=0)[0]
        lowest = min(self.centres)
        return np.where(residuals < lowest, residuals - lowest, found)


def scatter_of(residuals: Floats, ends: Ends, least: float, *, lower: bool = False) -> tuple[float, Scatter]:
    """The topmost level of some residuals, and how they scatter around it.

    residuals: shape (jobs,), at least 3. ends: client and server of each. least: no scatter is below it. lower: take the
    levels below it as well; only where no fault can be the reason, since a fault makes a level of its own, too.
    """
    order = np.argsort(residuals)[::-1]
    sorted_values = residuals[order]
    width = core_width(residuals, least)
    cuts = np.flatnonzero(-np.diff(sorted_values) > GAP_SIGMAS * width) + 1
    parts = np.split(order, cuts)
    levels = [part for part in parts if _is_level(part, len(order), ends)]
    largest = max(parts, key=len)
    if not levels:
        levels = [largest]
    if not lower:
        levels = levels[:1]
    centres = [float(np.median(residuals[part])) for part in levels]
    apart = np.concatenate([np.abs(residuals[part] - centre) for part, centre in zip(levels, centres, strict=True)])
    count = len(apart)
    sigma = max(least, float(np.median(apart)) / MEDIAN_OF_T4) * float(np.sqrt(1 + 4 / count))
    sizes = [len(part) / count for part in levels]
    return centres[0], Scatter(sigma, tuple(one - centres[0] for one in centres), tuple(sizes))


def core_width(residuals: Floats, least: float) -> float:
    """The standard deviation of the most crowded part: of the shortest interval that holds SHORTEST_SHARE of the values."""
    values = np.sort(residuals)
    count = min(len(values), max(3, round(SHORTEST_SHARE * len(values)) + 1))
    return max(least, float((values[count - 1 :] - values[: len(values) - count + 1]).min()) / SHORTEST_WIDTH)


def _is_level(part: np.ndarray[tuple[int], np.dtype[np.intp]], of_count: int, ends: Ends) -> bool:
    """Whether enough jobs of pairs that have nothing in common lie together: then it is no node's fault."""
    if len(part) < max(LEVEL_ROWS, LEVEL_SHARE * of_count):
        return False
    used: set[int] = set()
    count = 0
    for row in part.tolist():
        if used.isdisjoint(ends[row]):
            used.update(ends[row])
            count += 1
    everybody = len({node for pair in ends for node in pair})
    return count >= max(min(LEVEL_PAIRS, everybody // 2), LEVEL_PAIRS_SHARE * everybody)

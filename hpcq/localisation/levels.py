"""How fast a healthy pair is: the level of the topmost big cluster of results, because faults only make pairs slower.

All work is on logarithms, where "slower" is "smaller". A result becomes its logarithm relative to the healthy level of
its class. The first two classes are pairs inside a group and pairs that cross groups: crossing may cost something
without a fault. The third is rounds with few pairs. They may be faster than full ones, but never get a lower level of
their own, because a round of re-tests holds mostly suspects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.pairs import PairTable

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Lower bound of the scatter: clocks, rounding and frequency steps cause this much.
SIGMA_FLOOR = 0.004
# A failed pair (value 0), and anything slower than a twentieth of healthy speed, count as a twentieth.
SLOWEST = float(np.log(0.05))
TOP_SHARE = 0.3
# Few results show their scatter poorly, and a value that is too small does harm: twelve results widen it by a quarter.
SMALL_TABLE = 8.0
CLASS_COUNT_MIN = 10
CROWDED_SHARE = 0.5
SPARSE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Levels:
    """relative: logarithm of each result over its healthy level, <= 0 when slow. sigma: its scatter in healthy pairs.

    healthy: logarithm of the healthy level of most pairs. crowded, sparse: results of rounds with many and with few
    pairs. crowd_level: healthy level of crowded rounds relative to sparse ones, 0 when the same.
    """

    relative: Floats
    sigma: float
    healthy: float
    crowded: Bools
    sparse: Bools
    crowd_level: float


def relative_levels(table: PairTable, *, higher_is_better: bool = True, crossing_may_cost: bool = True) -> Levels:
    """Convert all results of a table to one scale. The table holds at least one result.

    crossing_may_cost: pairs that cross groups may be slower as a class without a fault. False for results that are
    already relative to a baseline of the same pair.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(table.value, 0.0))
    if not higher_is_better:
        logs = -logs
    finite = np.isfinite(logs)
    counted = finite & _evenly(table)
    reference, sigma = top_level(logs[counted]) if counted.any() else (0.0, SIGMA_FLOOR)
    sigma *= float(np.sqrt(1 + SMALL_TABLE / len(logs)))
    relative = np.where(finite, logs, -np.inf) - reference
    crowded, sparse = _crowds(table.round_index)
    group_a, group_b = table.group_index[table.node_a], table.group_index[table.node_b]
    crossing = (group_a != group_b) & (group_a >= 0) & (group_b >= 0)
    for members in (crossing, ~crossing):
        if crossing_may_cost and not members.all():
            relative[members] -= _class_level(relative[members], sigma, may_be_slower=True)
    crowd_level = -_class_level(relative[sparse], sigma, may_be_slower=False)
    relative[sparse] += crowd_level
    return Levels(np.clip(relative, SLOWEST, -SLOWEST), sigma, reference, crowded, sparse, crowd_level)


def top_level(logs: Floats) -> tuple[float, float]:
    """Centre and standard deviation of the topmost cluster that holds at least TOP_SHARE of the values.

    Starts near the top and moves to the median of the values within 2.5 standard deviations, until it stops moving.
    """
    if len(logs) < 3:
        return float(logs.max()), SIGMA_FLOOR
    for start in (0.85, 0.7, 0.5):
        level = float(np.quantile(logs, start))
        sigma = max(SIGMA_FLOOR, float(np.quantile(logs, min(start + 0.12, 1.0)) - level) / 0.85)
        for _ in range(30):
            near = logs[np.abs(logs - level) <= 2.5 * sigma]
            if len(near) < max(2, TOP_SHARE * 0.5 * len(logs)):
                sigma *= 1.3
                continue
            centre = float(np.median(near))
            spread = max(SIGMA_FLOOR, 1.4826 * 1.06 * float(np.median(np.abs(near - centre))))
            if abs(centre - level) + abs(spread - sigma) < 1e-9:
                break
            level, sigma = centre, spread
        share = float(np.mean(np.abs(logs - level) <= 2.5 * sigma))
        if share >= TOP_SHARE:
            break
    return level, sigma


def _class_level(relative: Floats, sigma: float, *, may_be_slower: bool) -> float:
    """Healthy level of a class relative to all pairs; 0 if a tenth of the class is as fast as the rest."""
    finite = relative[np.isfinite(relative)]
    if len(finite) < (CLASS_COUNT_MIN if may_be_slower else 3):
        return 0.0
    if may_be_slower and np.mean(np.abs(finite) <= 3 * sigma) >= 0.1:
        return 0.0
    level, _ = top_level(finite)
    if abs(level) <= 3 * sigma or (level < 0 and not may_be_slower):
        return 0.0
    return level


def _evenly(table: PairTable) -> Bools:
    """Which results count for the healthy level: of a pair with more results than most, the first ones, so many as most have.

    Suspects are measured again, not healthy pairs. If all of that counted, the slow results would be the level.
    """
    low, high = np.minimum(table.node_a, table.node_b), np.maximum(table.node_a, table.node_b)
    pair = low * len(table.nodes) + high
    _, of_result, count = np.unique(pair, return_inverse=True, return_counts=True)
    order = np.argsort(of_result, kind="stable")
    place = np.empty(len(pair), dtype=np.intp)
    place[order] = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(place < np.quantile(count, 0.5, method="lower"))


def _crowds(round_index: NDArray[np.intp]) -> tuple[Bools, Bools]:
    """Which results come from crowded rounds and which from sparse ones, by the number of pairs per round."""
    size = np.bincount(round_index)[round_index]
    largest = size.max()
    return size > CROWDED_SHARE * largest, size <= SPARSE_SHARE * largest

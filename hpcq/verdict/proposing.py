"""Gates from history: a bound that good runs keep, and how often they will break it nevertheless. Pure.

    bound  =  the (1 - rate) quantile in the bad direction, from the values' own tail if there are enough of them, else the
              worst value seen; or from median and robust scatter of a normal distribution, if that is further off

To see a rate of 1 in 1,000 at all, you need 1,000 values. With fewer values, the bound never lies inside the range that
was seen: a gate that its own history breaks would be useless.

To count the expected rate of false alarms, each series is left out in turn: the rest gives a bound, and that series'
values that break the bound are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hpcq.kernels import Better

Floats = NDArray[np.float64]

#: Fewer values say nothing about a tail.
VALUES_MIN = 30


@dataclass(frozen=True, slots=True)
class Proposal:
    """A bound in the metric's unit. asked_ratio: wanted rate. seen_ratio: rate by leaving out; None for one series."""

    bound: float
    better: Better
    value_count: int
    series_count: int
    asked_ratio: float
    seen_ratio: float | None

    @property
    def needed_count(self) -> int:
        """How many values the wanted rate needs, so that one of them may break the bound."""
        return ceil(1 / self.asked_ratio) if self.asked_ratio > 0 else 0

    @property
    def enough(self) -> bool:
        """Whether the values themselves show the rate; otherwise the bound is the worst value seen, or further off."""
        return self.asked_ratio > 0 and self.value_count >= self.needed_count


def propose(series: Sequence[Floats], better: Better, false_alarm_ratio: float) -> Proposal | None:
    """A bound for all these series (one test on one cluster); None if the values are too few or have no direction."""
    values = np.concatenate([*series]) if series else np.empty(0)
    if len(values) < VALUES_MIN or better is Better.NONE:
        return None
    sign = 1.0 if better is Better.HIGHER else -1.0
    order = np.argsort(sign * values, kind="stable")
    turned = sign * values[order]
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    broken = total = 0
    for own in np.split(place, np.cumsum([len(one) for one in series])[:-1]):
        rest = _Rest(turned, np.sort(own))
        if rest.count >= VALUES_MIN and len(own):
            broken += int(np.sum(turned[own] < _bound(rest, false_alarm_ratio)))
            total += len(own)
    seen = broken / total if total else None
    bound = sign * _bound(_Rest(turned, place[:0]), false_alarm_ratio)
    return Proposal(bound, better, len(values), len(series), false_alarm_ratio, seen)


class _Rest:
    """Sorted values without those at some sorted positions: what is left is found by its rank, and none of it is copied."""

    def __init__(self, turned: Floats, without: NDArray[np.intp]) -> None:
        self._turned, self._gaps = turned, without - np.arange(len(without))
        self.count = len(turned) - len(without)

    def __getitem__(self, rank: int) -> float:
        return float(self._turned[rank + np.searchsorted(self._gaps, rank, side="right")])

    def median(self) -> float:
        return (self[(self.count - 1) // 2] + self[self.count // 2]) / 2

    def median_distance(self, middle: float) -> float:
        """The median of the distances from `middle`."""
        lower, upper = ((self.count + 1) // 2, self.count // 2 + 1)
        return (self._distance(middle, lower) + self._distance(middle, upper)) / 2

    def _distance(self, middle: float, nearest_count: int) -> float:
        """The largest distance among the nearest values: they are neighbours, and bisection finds the first of them."""
        first, last = 0, self.count - nearest_count
        while first < last:
            tried = (first + last) // 2
            if middle - self[tried] > self[tried + nearest_count] - middle:
                first = tried + 1
            else:
                last = tried
        return max(abs(self[first] - middle), abs(self[first + nearest_count - 1] - middle))


def _bound(rest: _Rest, rate: float) -> float:
    """The bound of values that are better the higher they are."""
    middle = rest.median()
    scatter = 1.4826 * rest.median_distance(middle)
    by_scatter = middle + NormalDist().inv_cdf(rate) * scatter
    place = rate * (rest.count + 1) - 1
    return min(by_scatter, rest[int(place)] if place >= 0 else rest[0])

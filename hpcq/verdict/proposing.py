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
    pooled = np.concatenate([*series]) if series else np.empty(0)
    if len(pooled) < VALUES_MIN or better is Better.NONE:
        return None
    broken = total = 0
    for i, left_out in enumerate(series):
        rest = [one for j, one in enumerate(series) if j != i]
        if rest and sum(map(len, rest)) >= VALUES_MIN:
            limit = _bound(np.concatenate(rest), better, false_alarm_ratio)
            broken += int(np.sum(left_out < limit if better is Better.HIGHER else left_out > limit))
            total += len(left_out)
    seen = broken / total if total else None
    bound = _bound(pooled, better, false_alarm_ratio)
    return Proposal(bound, better, len(pooled), len(series), false_alarm_ratio, seen)


def _bound(values: Floats, better: Better, rate: float) -> float:
    sign = 1.0 if better is Better.HIGHER else -1.0
    turned = np.sort(sign * values)
    middle = float(np.median(turned))
    scatter = 1.4826 * float(np.median(np.abs(turned - middle)))
    by_scatter = middle + NormalDist().inv_cdf(rate) * scatter
    place = rate * (len(turned) + 1) - 1
    by_tail = float(turned[int(place)]) if place >= 0 else float(turned[0])
    return sign * min(by_scatter, by_tail)

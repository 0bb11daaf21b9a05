"""Estimate what to expect of each test of each pair, and how far jobs scatter. Pure.

    with a baseline      the pair's own jobs there; if it has none, those of its class in the baseline
    without one          other pairs of its class, earlier and present ones of this cluster, near the top level

A class is a test, either inside leaves or across them, since crossing may cost something by design. Without a baseline,
no person has named the earlier results good, and a pair that was always broken must not be its own reference. So only
pairs near the top count, and never the pair itself. Without known values there is no reference, and without a reference
nothing passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from statistics import median, pstdev

import numpy as np

from hpcq.kernels import Better
from hpcq.localisation.levels import top_level
from hpcq.statistics import pooled_scatter
from hpcq.verdict.acceptance.points import reference_variance

#: How many other pairs of a class must be known before it can be a pair's reference.
PEERS_MIN = 3
#: The least scatter between jobs that hpcq assumes, and the scatter if it knows nothing better.
SCATTER_LEAST, SCATTER_ASSUMED = 0.005, 0.05
#: The same for the share of packets that arrive.
LOSS_SCATTER_LEAST, LOSS_SCATTER_ASSUMED = 0.0005, 0.002
#: How many changes are enough to estimate the present scatter between jobs.
CHANGES_MIN = 8
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class PairValues:
    """One test of one pair: one value per job, in time order. Values are oriented logarithms: higher is better."""

    client: str
    server: str
    test: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a pair is compared with.

    count: how many of its own jobs it rests on. spread: between the pairs of its class, or 0.
    """

    value: float
    count: int
    spread: float = 0.0


def oriented(value: float, better: Better) -> float:
    """Return the logarithm of a value, so that higher is better.

    A share of packets that arrived stays as it is: see Scale.
    """
    sign = -1.0 if better is Better.LOWER else 1.0
    return sign * log(max(value, _TINY))


class Expected:
    """What is known about pairs and their classes."""

    def __init__(
        self, reference: Iterable[PairValues], now: Iterable[PairValues], leaf_of: Mapping[str, str], *, trusted: bool
    ) -> None:
        """reference: earlier jobs, or those of a baseline. now: jobs to judge.

        trusted: a person named the reference.
        """
        self.leaf_of = leaf_of
        self.own = {(one.client, one.server, one.test): one for one in reference if one.values} if trusted else {}
        self.trusted = trusted
        self.classes: dict[tuple[str, str], list[PairValues]] = {}
        for one in [*reference] if trusted else [*reference, *now]:
            if one.values:
                self.classes.setdefault(self._class_of(one), []).append(one)

    def of(self, one: PairValues) -> Reference | None:
        """Return what this test of this pair is compared with; None if nothing is known."""
        own = self.own.get((one.client, one.server, one.test))
        if own is not None:
            return Reference(median(own.values), len(own.values))
        ends = {one.client, one.server}
        others = [other for other in self.classes.get(self._class_of(one), []) if {other.client, other.server} != ends]
        if len({frozenset((other.client, other.server)) for other in others}) < PEERS_MIN:
            return None
        medians = np.array([median(other.values) for other in others])
        level, _ = top_level(medians)
        near = medians if self.trusted else medians[medians >= level - 0.05]
        if not len(near):
            near = medians
        return Reference(float(np.median(near)), len(near), pstdev(near.tolist()) if len(near) > 1 else 0.0)

    def _class_of(self, one: PairValues) -> tuple[str, str]:
        """Return the test, and whether the pair stays inside a leaf."""
        ends = self.leaf_of.get(one.client), self.leaf_of.get(one.server)
        return one.test, "" if None in ends else "inside" if ends[0] == ends[1] else "across"


def scatter_between_jobs(histories: Iterable[Sequence[float]], changes: Sequence[float], counts: Sequence[int]) -> float:
    """Return how far the jobs of one test scatter (standard deviation of the logarithm).

    histories: per series one oriented value per job in time order. changes: of the jobs to judge from what is expected.
    counts: jobs that each expectation rests on.
    The larger of two estimates: from history, and from how far present jobs lie above their top level, since a fault
    only
    makes a pair slower. A fixed value if there are too few of both.
    """
    learned = pooled_scatter([np.exp(np.clip(one, -600, 600)) for one in histories])
    now = spread_above(changes, counts)
    known = [one for one in (learned.ratio if learned.degrees else None, now) if one is not None]
    return max(SCATTER_LEAST, *known) if known else SCATTER_ASSUMED


def spread_above(changes: Sequence[float], counts: Sequence[int]) -> float | None:
    """Return the spread of one job, from those above the top level; None if there are too few."""
    if len(changes) < CHANGES_MIN:
        return None
    level, _ = top_level(np.array(changes))
    factors = [sqrt(1 + reference_variance(count)) for count in counts]
    above = [(one - level) / factor for one, factor in zip(changes, factors, strict=True) if one >= level]
    if len(above) < CHANGES_MIN // 2:
        return None
    return max(median(above) / 0.6745, float(np.quantile(above, 0.9)) / 1.645)

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
from itertools import pairwise
from math import log, sqrt
from statistics import median, pstdev

import numpy as np

from hpcq.kernels import Better
from hpcq.localisation.levels import Floats, top_level
from hpcq.statistics import pooled_scatter
from hpcq.verdict.acceptance.points import reference_variance

#: How many other pairs of a class must be known before it can be a pair's reference.
PEERS_MIN = 3
#: The least scatter between jobs that hpcq assumes, and the scatter if it knows nothing better.
SCATTER_LEAST, SCATTER_ASSUMED = 0.005, 0.05
#: The same for the share of packets that arrive.
LOSS_SCATTER_LEAST, LOSS_SCATTER_ASSUMED = 0.0005, 0.002
#: How far below the top level a pair may lie and still count as healthy: a logarithm of speed, a share of packets.
NEAR_TOP, NEAR_TOP_LOSS = 0.05, 0.005
#: A group of pairs at the top is the healthy one if this share of pairs and of nodes is in it, and a gap parts it.
TOP_PAIRS_SHARE, TOP_NODES_SHARE = 0.2, 0.5
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
        self,
        reference: Iterable[PairValues],
        now: Iterable[PairValues],
        leaf_of: Mapping[str, str],
        *,
        trusted: bool,
        near: float = NEAR_TOP,
    ) -> None:
        """reference: earlier jobs, or those of a baseline. now: jobs to judge.

        trusted: a person named the reference. near: how far below the top level healthy pairs may lie.
        """
        self.near = near
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
        near = medians if self.trusted else self._healthy(medians, [(other.client, other.server) for other in others])
        return Reference(float(np.median(near)), len(near), pstdev(near.tolist()) if len(near) > 1 else 0.0)

    def _healthy(self, medians: Floats, ends: Sequence[tuple[str, str]]) -> Floats:
        """Return the values that are near the top."""
        apart = set_apart(medians, ends, self.near)
        level, _ = (apart, 0.0) if apart is not None else top_level(medians)
        near = medians[medians >= level - self.near]
        return near if len(near) else medians

    def _class_of(self, one: PairValues) -> tuple[str, str]:
        """Return the test, and whether the pair stays inside a leaf."""
        ends = self.leaf_of.get(one.client), self.leaf_of.get(one.server)
        return one.test, "" if None in ends else "inside" if ends[0] == ends[1] else "across"


def set_apart(values: Floats, ends: Sequence[tuple[str, str]], gap: float) -> float | None:
    """Return the lowest value of the topmost group of pairs that a gap sets apart, if it is that of the healthy ones.

    ends: the two nodes of each value. gap: the least that parts groups; it must also exceed the width of the group.
    More than half of the nodes must be in the group, and three pairs. Whoever is bad is measured more often, with
    everybody: then most pairs are bad though most nodes are not, and the most crowded level is a bad one.
    """
    order = np.argsort(values)[::-1]
    everybody = len({node for pair in ends for node in pair})
    members: set[str] = set()
    pairs: set[frozenset[str]] = set()
    for count, (one, below) in enumerate(pairwise(order), 1):
        members.update(ends[one])
        pairs.add(frozenset(ends[one]))
        apart = values[one] - values[below]
        if apart < gap or apart <= values[order[0]] - values[one]:
            continue
        many = count >= TOP_PAIRS_SHARE * len(values) and len(members) > TOP_NODES_SHARE * everybody
        if many and len(pairs) >= PEERS_MIN:
            return float(values[one])
    return None


def scatter_between_jobs(
    histories: Iterable[Sequence[float]], changes: Sequence[float], counts: Sequence[int], ends: Sequence[tuple[str, str]] = ()
) -> float:
    """Return how far the jobs of one test scatter (standard deviation of the logarithm).

    histories: per series one oriented value per job in time order. changes: of the jobs to judge from what is expected.
    counts: jobs that each expectation rests on. ends: the two nodes of each change.
    The larger of two estimates: from history, and from how far present jobs lie above their top level, since a fault
    only
    makes a pair slower. A fixed value if there are too few of both.
    """
    learned = pooled_scatter([np.exp(np.clip(one, -600, 600)) for one in histories])
    now = spread_above(changes, counts, ends)
    known = [one for one in (learned.ratio if learned.degrees else None, now) if one is not None]
    return max(SCATTER_LEAST, *known) if known else SCATTER_ASSUMED


def spread_above(
    changes: Sequence[float], counts: Sequence[int], ends: Sequence[tuple[str, str]] = (), gap: float = NEAR_TOP
) -> float | None:
    """Return the spread of one job, from those above the top level; None if there are too few.

    ends, gap: see set_apart. Of a group that is set apart, the top level is the median.
    """
    if len(changes) < CHANGES_MIN:
        return None
    values = np.array(changes)
    apart = set_apart(values, ends, gap) if ends else None
    level = top_level(values)[0] if apart is None else float(np.median(values[values >= apart]))
    factors = [sqrt(1 + reference_variance(count)) for count in counts]
    above = [(one - level) / factor for one, factor in zip(changes, factors, strict=True) if one >= level]
    if len(above) < CHANGES_MIN // 2:
        return None
    return max(median(above) / 0.6745, float(np.quantile(above, 0.9)) / 1.645)

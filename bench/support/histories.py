"""Histories of a site, drawn with a seed: what a nightly campaign would have brought, with noises, lotteries and faults.

pairs     fixed       the same pairs each night: two rounds of the circle over all nodes
          each_run    other pairs each night
          idle        other pairs each night, among those 30 % of the nodes that happen to be idle
          which of two nodes is the client is tossed anew with each pair, as hpcq does it
noise     NOISES below; memory (ar1, sticky modes) belongs to the pair where pairs are fixed, otherwise to the node
fault     Fault(kind, size, night): one node, or one node as client (sends) or server (receives) alone, the uplink of one leaf
          switch, or everything, from that night on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcq.judge.values import Night, Outcome, Test, Values
from hpcq.kernels import Better

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

PLANS = ("fixed", "each_run", "idle")
#: Faults of a node as client, and as server.
ROLES = ("sends", "receives")
LEAF_SIZE = 16
IDLE_SHARE = 0.3
ROUNDS = 2
DAY_S = 86_400.0
#: name -> how far single jobs scatter (standard deviation); what else the noise does stands in `_noise`
NOISES = {
    "gauss1": 0.01,
    "gauss2": 0.02,
    "gauss3": 0.03,
    "gauss5": 0.05,
    "lognormal3": 0.03,
    "heavy": 0.02,
    "weekday": 0.01,
    "temperature": 0.01,
    "night": 0.01,
    "node_night": 0.01,
    "missing": 0.03,
    "modes_iid": 0.005,
    "ar1": 0.02,
    "modes_sticky": 0.005,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """From `night` on: `kind` is node, sends, receives, leaf or cluster; size 0.1 takes a tenth away."""

    kind: str
    size: float
    night: int
    #: which node or leaf
    index: int = 3


@dataclass(frozen=True, slots=True)
class Site:
    """What to draw."""

    node_count: int
    night_count: int
    noise: str
    plan: str = "fixed"
    test_count: int = 1
    fault: Fault | None = None


def circle(nodes: Ints, rounds: int) -> Ints:
    """The first rounds of the circle method over these nodes, in their order; shape (pairs, 2)."""
    ring = [int(one) for one in nodes]
    if len(ring) % 2:
        ring = ring[:-1]
    size = len(ring)
    found = []
    for _ in range(rounds):
        found += [(ring[place], ring[size - 1 - place]) for place in range(size // 2)]
        ring = [ring[0], *ring[2:], *ring[1:2]]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def draw(site: Site, seed: int) -> Values:
    """The history of `site`. The same seed gives the same values."""
    random = np.random.default_rng([seed, site.node_count, site.night_count, PLANS.index(site.plan), site.test_count])
    nodes = np.arange(site.node_count)
    planned = _plan(random, site, nodes, np.random.default_rng([seed, 7]))
    memory = _Memory(random, site, len(planned[0]))
    columns: list[tuple[Ints, Ints, Ints, Ints, Floats]] = []
    leaf = nodes // LEAF_SIZE
    for night, pairs in enumerate(planned):
        values = memory.night(night, pairs)
        values[leaf[pairs[:, 0]] != leaf[pairs[:, 1]]] *= 0.97  # the way through the spine
        if site.fault is not None and night >= site.fault.night:
            values[_hit(site.fault, pairs, leaf)] *= 1 - site.fault.size
        job, test = np.nonzero(np.isfinite(values))
        columns.append((np.full(len(job), night), test, pairs[job, 0], pairs[job, 1], np.log(values[job, test])))
    night_of, test_of, client, server = (np.concatenate([column[place] for column in columns]) for place in range(4))
    value = np.concatenate([column[4] for column in columns])
    return Values(
        night_of.astype(np.int32),
        test_of.astype(np.int32),
        client.astype(np.int32),
        server.astype(np.int32),
        value,
        np.full(len(value), Outcome.MEASURED, np.int8),
        tuple(Night(f"night{night:03d}", night * DAY_S) for night in range(site.night_count)),
        tuple(Test(f"test{test}", Better.HIGHER) for test in range(site.test_count)),
        tuple(f"n{node:04d}" for node in nodes),
        np.zeros(site.node_count, np.int32),
        leaf.astype(np.int32),
        ("class0",),
        tuple(f"leaf{one}" for one in range(int(leaf[-1]) + 1)),
    )


def again(site: Site, random: np.random.Generator, night: int, pairs: Ints) -> Floats:
    """Second measurements of a night without memory, shape (pairs, tests), around 1."""
    return _Memory(random, replace(site, plan="each_run"), len(pairs)).night(night, pairs)


def _plan(random: np.random.Generator, site: Site, nodes: Ints, roles: np.random.Generator) -> list[Ints]:
    if site.plan == "fixed":
        return [circle(random.permutation(nodes), ROUNDS)] * site.night_count
    if site.plan == "each_run":
        drawn = [circle(random.permutation(nodes), ROUNDS) for _ in range(site.night_count)]
    else:
        count = round(IDLE_SHARE * len(nodes)) // 2 * 2
        drawn = [circle(random.permutation(nodes)[:count], ROUNDS) for _ in range(site.night_count)]
    return [np.where(roles.random((len(pairs), 1)) < 0.5, pairs, pairs[:, ::-1]) for pairs in drawn]


def _hit(fault: Fault, pairs: Ints, leaf: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if fault.kind == "node":
        return np.asarray((pairs == fault.index).any(axis=1))
    if fault.kind in ROLES:
        return np.asarray(pairs[:, ROLES.index(fault.kind)] == fault.index)
    if fault.kind == "leaf":
        return np.asarray((leaf[pairs] == fault.index).sum(axis=1) == 1)
    return np.ones(len(pairs), bool)


class _Memory:
    """The noise of one history, night by night."""

    def __init__(self, random: np.random.Generator, site: Site, pair_count: int) -> None:
        self.random = random
        self.site = site
        self.fixed = site.plan == "fixed"
        things = pair_count if self.fixed else site.node_count
        self.state = random.standard_normal((things, site.test_count))
        self.low = random.random((things, site.test_count)) < 0.5
        self.offset = 1 + 0.01 * random.standard_normal((pair_count, 1)) if self.fixed else None

    def night(self, night: int, pairs: Ints) -> Floats:
        """Values of this night's pairs, shape (pairs, tests), around 1."""
        kind, random = self.site.noise, self.random
        shape = (len(pairs), self.site.test_count)
        sigma = NOISES[kind]
        drawn = random.standard_normal(shape)
        values = self._SHAPES[kind](self, night, pairs, sigma * drawn) if kind in self._SHAPES else 1 + sigma * drawn
        if self.offset is not None:
            values = values * self.offset
        return np.maximum(values, 0.05)

    def _of_pairs(self, things: Floats, pairs: Ints) -> Floats:
        """What belongs to things, as the pairs see it: their own, or that of the slower end."""
        return things if self.fixed else np.minimum(things[pairs[:, 0]], things[pairs[:, 1]])

    def _heavy(self, _night: int, pairs: Ints, _scatter: Floats) -> Floats:
        shape = (len(pairs), self.site.test_count)
        values = 1 + 0.02 * self.random.standard_t(3, shape) / 3**0.5
        dips = self.random.random(shape) < 0.03
        values[dips] *= self.random.uniform(0.6, 0.9, int(dips.sum()))
        return np.asarray(values)

    def _node_night(self, _night: int, pairs: Ints, scatter: Floats) -> Floats:
        shared = 1 + 0.015 * self.random.standard_normal((self.site.node_count, 1))
        return np.asarray(np.minimum(shared[pairs[:, 0]], shared[pairs[:, 1]]) * (1 + scatter))

    def _missing(self, _night: int, pairs: Ints, scatter: Floats) -> Floats:
        values = 1 + scatter
        values[self.random.random(len(pairs)) < 0.4] = np.nan
        return values

    def _modes_iid(self, _night: int, _pairs: Ints, scatter: Floats) -> Floats:
        return np.where(self.random.random(scatter.shape) < 0.35, 0.92, 1.0) * (1 + scatter)

    def _ar1(self, _night: int, pairs: Ints, _scatter: Floats) -> Floats:
        self.state = 0.6 * self.state + 0.8 * self.random.standard_normal(self.state.shape)
        if self.fixed:
            return 1 + 0.02 * self.state
        return self._of_pairs(1 + 0.02 * self.state, pairs) * (1 + 0.005 * self.random.standard_normal(_scatter.shape))

    def _modes_sticky(self, _night: int, pairs: Ints, scatter: Floats) -> Floats:
        self.low ^= self.random.random(self.low.shape) < 0.08
        return self._of_pairs(np.where(self.low, 0.95, 1.0), pairs) * (1 + scatter)

    _SHAPES: dict[str, Callable[[_Memory, int, Ints, Floats], Floats]] = {  # noqa: RUF012
        "lognormal3": lambda _self, _night, _pairs, scatter: np.exp(scatter),
        "heavy": _heavy,
        "weekday": lambda _self, night, _pairs, scatter: (0.96 if night % 7 >= 5 else 1.0) * (1 + scatter),
        "temperature": lambda _self, night, _pairs, scatter: (1 - 0.025 * (1 + np.sin(2 * np.pi * night / 60))) * (1 + scatter),
        "night": lambda self, _night, _pairs, scatter: (1 + 0.015 * self.random.standard_normal()) * (1 + scatter),
        "node_night": _node_night,
        "missing": _missing,
        "modes_iid": _modes_iid,
        "ar1": _ar1,
        "modes_sticky": _modes_sticky,
    }

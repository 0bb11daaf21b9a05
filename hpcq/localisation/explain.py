"""The smallest set of suspects that explains the slow results: a likelihood, a price per suspect, and explaining away.

A result runs at the speed of the slowest thing on its way (levels are logarithms, 0 = healthy):

    expected = min(0, levels of the suspects at fault on its way)
    p(result) = (1 - d) normal(expected, sigma) + d dips(result - expected) + UPWARD / RANGE     d = share of passing dips

dips() starts flat. Once suspects explain what they can, the remaining slow results show how often and how deep results
dip without a fault. The search then runs again with these dips. coincidence.py lets go whom chance may have made slow.
So a network with two modes or a long tail accuses nothing.

A suspect's gain is how much the likelihood of the results it touches grows when it is at fault, given all others at
fault. Its price grows with the number of rivals. Each round adds the suspect that gains most among all that share a
slow result with it, and drops suspects that no longer pay once others were added. Suspects that share no slow result do
not interact, so one round takes all such maxima at once, with the same outcome as one by one.
Source: Friedman, Hastie & Tibshirani 2001, ch. 8 (mixtures and their likelihood); Pearl 1988 (explaining away).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from math import exp, lgamma

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.levels import Levels
from hpcq.localisation.pairs import Kind
from hpcq.localisation.suspects import Suspects

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

RANGE = 1.2  # dips and faults reach down to about 0.3 of healthy speed
UPWARD = 0.002  # share of results that are fast for no known reason
DIP_SHARE = 0.03
DIP_SHARE_MAX = 0.6
DIP_SIGMAS = 2.5
DEPTHS = 241
STEP = RANGE / (DEPTHS - 1)
PASSES_MAX = 4
DENSITY_TOLERANCE = 0.05
ERRATIC_SHARE = 0.2  # a thing at fault is often unsteady too
CANDIDATES = 9
SWEEPS_MAX = 80
FINE_SIGMAS = -1.5
# A few results show poorly how far healthy ones scatter, and a node has only a few of them: with two modes 4 % apart one
# of eight nodes is slow in all of its three rounds in every sixth network. So a small table accuses nobody of little:
# 7 % up to 17 results, 4 % with 30, 3 % from 40 on (measured in bench/blame.py).
SMALL_TABLE_EFFECT = 1.2
SMALL_TABLE_EFFECT_MAX = 0.07
PRICE = {Kind.NODE: 2.0, Kind.GROUP: 2.0, Kind.LINK: 1.0}
LINK_RESULTS_MIN = 3  # one slow result of a pair is a dip, two may be
CROWDED_PRICE = 3.0
CROWDED_RESULTS_MIN = 3


@dataclass(frozen=True, slots=True)
class Explanation:
    """The levels of suspects and results.

    level: of each suspect, 0 if it is not at fault. gain: log odds of each suspect given the others, -inf without any
    slow result. evidence: the same before the price. expected: level of each result. slow: which results are clearly
    below healthy. fine: which results are clearly not. below: which results are below the noise, slow or not.
    slowest_healthy: level under which a result is slow. by_chance: which suspects were let go because chance may have
    dealt them their slow results.
    """

    level: Floats
    gain: Floats
    evidence: Floats
    expected: Floats
    slow: Bools
    fine: Bools
    below: Bools
    slowest_healthy: float
    by_chance: Bools


def explain(levels: Levels, suspects: Suspects, minimum_effect_ratio: float) -> Explanation:
    """Find what is at fault. minimum_effect_ratio: a suspect whose slowdown is smaller is not worth naming."""
    search = _Search(levels, suspects, minimum_effect_ratio)
    found = search.with_dips()
    while chance := by_coincidence(levels, suspects, found.level, found.slow):
        search.let_go(chance)
        found = search.with_dips()
    return found


@dataclass(frozen=True, slots=True)
class Dips:
    """How often results are slow without a fault, and how deep: density at 0, STEP, 2 STEP, ... below expected."""

    share: float
    density: Floats

    @classmethod
    def flat(cls, share: float) -> Dips:
        """Dips where every depth is equally likely."""
        return cls(share, np.full(DEPTHS, share / RANGE))

    @classmethod
    def seen(cls, residuals: Floats, sigma: float) -> Dips:
        """Dips from the remaining slow residuals: between flat and their smoothed depths, nearer to these if many."""
        count = len(residuals)
        depths = -residuals[residuals < -DIP_SIGMAS * sigma]
        share = min((len(depths) + 20 * DIP_SHARE) / (count + 20.0), DIP_SHARE_MAX)
        flat = np.full(DEPTHS, 1 / RANGE)
        if not len(depths):
            return cls(share, share * flat)
        grid = np.arange(DEPTHS) * STEP
        width = 2.0 * max(sigma, STEP)
        histogram = np.bincount(np.minimum(np.rint(depths / STEP), DEPTHS - 1).astype(np.intp), minlength=DEPTHS)
        bell = np.exp(-0.5 * ((grid - grid[:, None]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
        smooth = bell @ histogram / len(depths)
        trust = len(depths) / (len(depths) + 10.0)
        return cls(share, share * (trust * np.maximum(smooth, 0.3 * flat) + (1 - trust) * flat))

    def at(self, below: Floats) -> Floats:
        """Density of a result `below` its expected level (positive = slower); 0 if it is more than a little above."""
        position = np.clip(np.rint(below / STEP), 0, DEPTHS - 1).astype(np.intp)
        return self.density[position]


class _Search:
    """The arrays of one table, reduced to the suspects that touch a slow result."""

    def __init__(self, levels: Levels, suspects: Suspects, minimum_effect_ratio: float) -> None:
        self.suspects = suspects
        self.relative = levels.relative
        self.sigma = levels.sigma
        self.largest = float(np.log1p(-minimum_effect_ratio))
        noise = min(self.largest, -3 * self.sigma)
        self.slowest_healthy = min(noise, -min(SMALL_TABLE_EFFECT_MAX, SMALL_TABLE_EFFECT / len(self.relative)))
        self.below = self.relative < noise
        self.slow = self.relative < self.slowest_healthy
        self.fine = self.relative >= FINE_SIGMAS * self.sigma
        count = suspects.count
        result, column = np.nonzero(suspects.of_result >= 0)
        suspect = suspects.of_result[result, column]
        touches_slow = np.zeros(count, dtype=bool)
        touches_slow[suspect[self.slow[result]]] = True
        kept = touches_slow[suspect]
        order = np.argsort(suspect[kept], kind="stable")
        self.result, self.column, self.suspect = (part[kept][order] for part in (result, column, suspect))
        self.present, self.start = np.unique(self.suspect, return_index=True)
        self.candidates = self._level_candidates()
        self.allowed = self._two_witnesses() & self._ends_fine()
        self.by_chance = np.zeros(count, dtype=bool)
        kinds = np.array([PRICE[kind] for kind in suspects.kind])
        level_price = max(0.0, float(np.log(RANGE / (3 * self.sigma))))
        self.price = kinds + level_price + CROWDED_PRICE * suspects.crowded_only
        self.family = np.array([list(PRICE).index(kind) for kind in suspects.kind]) + 3 * suspects.crowded_only

    def with_dips(self) -> Explanation:
        """Search, learn the dips from what is left, and search again until both agree."""
        dips = Dips.flat(DIP_SHARE)
        for _ in range(PASSES_MAX):
            found = self.run(dips)
            before, dips = dips, Dips.seen(self.relative - found.expected, self.sigma)
            if np.max(np.abs(before.density - dips.density)) < DENSITY_TOLERANCE:
                break
        return found

    def run(self, dips: Dips) -> Explanation:
        count = self.suspects.count
        level = np.zeros(count + 1)
        evidence = gain = np.full(count, -np.inf)
        for _ in range(SWEEPS_MAX if len(self.present) else 0):
            evidence, price, best = self._gains(level, dips)
            gain = evidence - price
            active = level[:count] < 0
            level[:count] = np.where(active, best, 0.0)
            leaving = self._maxima(np.where(active & (gain < 0), -gain, 0.0))
            entering = self._maxima(np.where(~active & self.allowed & (gain > 0), gain, 0.0))
            if leaving.any():
                level[:count][leaving] = 0.0
            elif entering.any():
                level[:count][entering] = best[entering]
            else:
                break
        expected = level[self.suspects.of_result].min(axis=1)
        unexplained = np.zeros(count + 1, dtype=bool)
        unexplained[self.suspects.of_result[self.slow & (expected == 0)]] = True
        by_chance = self.by_chance & unexplained[:count]
        seen = self.slow, self.fine, self.below, self.slowest_healthy
        return Explanation(level[:count], gain, evidence, expected, *seen, by_chance)

    def let_go(self, chance: list[int]) -> None:
        """Never again call these suspects at fault."""
        self.allowed[chance] = False
        self.by_chance[chance] = True

    def _gains(self, level: Floats, dips: Dips) -> tuple[Floats, Floats, Floats]:
        """Log likelihood ratio, price and best level of every suspect, given the levels of all others."""
        on_way = level[self.suspects.of_result]
        slowest = on_way.argmin(axis=1)
        lowest = on_way.min(axis=1)
        second = np.partition(on_way, 1, axis=1)[:, 1]
        others = np.where(slowest[self.result] == self.column, second[self.result], lowest[self.result])
        relative = self.relative[self.result]
        base = self._log_density(relative, others, dips)
        local = np.repeat(np.arange(len(self.present)), np.diff(np.append(self.start, len(self.suspect))))
        totals = np.empty((len(self.present), CANDIDATES))
        for c in range(CANDIDATES):
            candidate = self.candidates[local, c]
            gained = np.where(candidate < others, self._log_density(relative, candidate, dips) - base, 0.0)
            totals[:, c] = np.add.reduceat(gained, self.start)
        chosen = totals.argmax(axis=1)
        rows = np.arange(len(self.present))
        evidence = np.full(self.suspects.count, -np.inf)
        best = np.zeros(self.suspects.count)
        evidence[self.present] = totals[rows, chosen]
        best[self.present] = self.candidates[rows, chosen]
        at_fault = np.bincount(self.family[np.flatnonzero(level[:-1] < 0)], minlength=6)
        prior = np.maximum(self.suspects.rivals_log - np.log1p(at_fault[self.family]), 0.7)
        return evidence, prior + self.price, best

    def _log_density(self, relative: Floats, expected: Floats, dips: Dips) -> Floats:
        below = expected - relative
        z = below / self.sigma
        faulty = expected < 0
        share = np.where(faulty, np.maximum(ERRATIC_SHARE, dips.share), dips.share)
        slower = np.where(faulty, np.maximum(ERRATIC_SHARE / RANGE, dips.at(below)), dips.at(below))
        core = (1 - share - UPWARD) / (self.sigma * np.sqrt(2 * np.pi)) * np.exp(-0.5 * z * z)
        return np.asarray(np.log(core + np.where(z > -2, slower, 0.0) + UPWARD / RANGE), dtype=np.float64)

    def _level_candidates(self) -> Floats:
        """Levels seen in each suspect's own slow results, spread evenly over them in order: (suspects, CANDIDATES)."""
        slow = self.slow[self.result]
        values, owner = self.relative[self.result][slow], self.suspect[slow]
        order = np.lexsort((values, owner))
        values = values[order]
        _, first, count = np.unique(owner[order], return_index=True, return_counts=True)
        position = np.linspace(0, 1, CANDIDATES)[None, :] * (count - 1)[:, None]
        return np.asarray(values[first[:, None] + np.rint(position).astype(np.intp)], dtype=np.float64)

    def _two_witnesses(self) -> Bools:
        """Whether a suspect was slow often enough: node with two partners, two nodes of a group, link three times."""
        slow = self.slow[self.result]
        witness = self.suspects.witness[self.result, self.column]
        allowed = np.zeros(self.suspects.count, dtype=bool)
        if len(self.present):
            top = np.iinfo(np.intp).max
            least = np.minimum.reduceat(np.where(slow, witness, top), self.start)
            most = np.maximum.reduceat(np.where(slow, witness, -1), self.start)
            times = np.add.reduceat(slow.astype(np.intp), self.start)
            is_link = np.array([self.suspects.kind[i] is Kind.LINK for i in self.present])
            allowed[self.present] = np.where(is_link, times >= LINK_RESULTS_MIN, least != most)
            crowded_only = self.suspects.crowded_only[self.present]
            allowed[self.present] &= ~crowded_only | (times >= CROWDED_RESULTS_MIN)
        return allowed

    def _ends_fine(self) -> Bools:
        """A link is at fault only if both of its ends are fine with somebody else."""
        fine = np.zeros(self.suspects.count, dtype=bool)
        fine[self.suspects.of_result[self.fine][:, :2].ravel()] = True
        allowed = np.ones(self.suspects.count, dtype=bool)
        for i, kind in enumerate(self.suspects.kind):
            if kind is Kind.LINK:
                a, b = self.suspects.links[int(self.suspects.item[i])]
                allowed[i] = fine[a] and fine[b]
        return allowed

    def _maxima(self, score: Floats) -> Bools:
        """Which suspects have the highest score among all that share a slow result with them; score 0 takes no part."""
        standing = score > 0
        if not standing.any():
            return standing
        ranked = np.append(score - np.arange(len(score)) * 1e-9, -np.inf)
        ranked[:-1][~standing] = -np.inf
        on_way = self.suspects.of_result[self.slow]
        scores = ranked[on_way]
        beaten = on_way[(scores < scores.max(axis=1, keepdims=True)) & (on_way >= 0)]
        winners = standing.copy()
        winners[beaten] = False
        return winners


# ----------------------------------------------------------------------------------------------------------------------
# Could the slow results of a suspect have met by chance? In an unsteady network some node draws most of the dips.
#
# The search learns how the network dips from those slow results that no culprit explains. So the results that happened
# to meet in one node speak against it and are missing among the dips: with 10 of 32 results in a second mode, one of 16
# nodes has four of four in every tenth network. This check deals the slow results again, at random:
#
#     pool         results that no other culprit explains
#     look-alikes  those in the pool that are about as slow: from half of the suspect's level down to its slowest result
#     chance       how many of its rivals a random deal would give so many look-alikes that as few other results are left
#
# It needs no form of the noise, only that noise does not care about nodes. Where all of the suspect's results are slow and
# no other is, there is nothing to deal.
# Source: Fisher 1935, ch. 2 (the hypergeometric distribution of a random deal), with Bonferroni's bound over the rivals.


CHANCE_MAX = 0.05
LOOK_ALIKE_SIGMAS = 3.0
# Nearer to the suspect's level than to healthy. With 0.65, more slow nodes are named (one of 8, two modes: 91 of 100, not
# 74), and more healthy networks accuse somebody (8 nodes, a tail of 5 %: 1.4 of 100, not 0.75; bench/blame.py).
NEARER = 0.5


def by_coincidence(levels: Levels, suspects: Suspects, level: Floats, slow: Bools) -> list[int]:
    """Which suspects at fault (level < 0) may be so by chance. slow: which results are clearly below healthy."""
    at_fault = level < 0
    if not at_fault.any():
        return []
    lowest, second = np.partition(np.append(level, 0.0)[suspects.of_result], 1, axis=1)[:, :2].T
    unexplained = lowest == 0
    others = np.sort(levels.relative[unexplained])
    rivals = _rivals(suspects, at_fault, unexplained)
    result, column = np.nonzero(np.append(at_fault, False)[suspects.of_result] & (second == 0)[:, None])
    owner = suspects.of_result[result, column]
    order = np.argsort(owner, kind="stable")
    owners, start = np.unique(owner[order], return_index=True)
    found = []
    for i, own in zip(owners, np.split(result[order], start[1:]), strict=True):
        depths = levels.relative[own]
        if not slow[own].any():
            continue
        low, high = float(depths[slow[own]].min()) - LOOK_ALIKE_SIGMAS * levels.sigma, NEARER * float(level[i])
        drawn = int((depths <= high).sum())
        alike = int(np.searchsorted(others, high, "right") - np.searchsorted(others, low))
        if not alike and drawn == len(own):
            continue
        chance = _chance(rivals[suspects.family(int(i))], len(others) + len(own), alike + drawn, len(own), drawn)
        if chance > CHANCE_MAX:
            found.append(int(i))
    return found


def _rivals(suspects: Suspects, at_fault: Bools, unexplained: Bools) -> dict[tuple[Kind, bool], Counter[int]]:
    """Of each kind, how many suspects that are not at fault have how many results that no culprit explains."""
    touched = suspects.of_result[unexplained]
    count = np.bincount(touched[touched >= 0], minlength=suspects.count)
    found: dict[tuple[Kind, bool], Counter[int]] = defaultdict(Counter)
    for i in np.flatnonzero(~at_fault):
        found[suspects.family(int(i))][int(count[i])] += 1
    return found


def _chance(rivals: Counter[int], pool: int, marked: int, drawn: int, slow: int) -> float:
    """How many suspects, the one that drew `slow` look-alikes of `drawn` results among them, would have as few others."""
    others = drawn - slow
    chance = _tail(pool, marked, drawn, slow)
    for count, times in rivals.items():
        draws = max(count, drawn)
        chance += times * _tail(pool, marked, draws, draws - others)
    return chance


def _tail(pool: int, marked: int, drawn: int, least: int) -> float:
    """Probability that `drawn` of `pool` results hold at least `least` of the `marked` ones."""
    return sum(
        exp(_choose(marked, k) + _choose(pool - marked, drawn - k) - _choose(pool, drawn))
        for k in range(max(least, drawn - pool + marked), min(marked, drawn) + 1)
    )


def _choose(total: int, count: int) -> float:
    """Logarithm of the number of ways to choose `count` of `total`."""
    return lgamma(total + 1) - lgamma(count + 1) - lgamma(total - count + 1)

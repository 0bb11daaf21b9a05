"""Could the slow results of a suspect have met by chance? In an unsteady network some node draws most of the dips.

The search learns how the network dips from those slow results that no culprit explains. So the results that happened
to meet in one node speak against it and are missing among the dips: with 10 of 32 results in a second mode, one of 16
nodes has four of four in every tenth network. This check deals the slow results again, at random:

    pool         results that no other culprit explains
    look-alikes  those in the pool that are about as slow: from half of the suspect's level down to its slowest result
    chance       how many of its rivals a random deal would give so many look-alikes that as few other results are left

It needs no form of the noise, only that noise does not care about nodes. Where all of the suspect's results are slow and
no other is, there is nothing to deal.
Source: Fisher 1935, ch. 2 (the hypergeometric distribution of a random deal), with Bonferroni's bound over the rivals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import exp, lgamma

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.levels import Levels
from hpcq.localisation.pairs import Kind
from hpcq.localisation.suspects import Suspects

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

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

"""Blame: find the slow node, link or group in the results of pairs, call them noise, or say what to measure next.

In the order of the steps: the table of pair results and what blame says about it; how fast a healthy pair is; everything
that could be at fault; the smallest set of suspects that explains the slow results; which of them chance may have made
slow; blame() itself; the pairs that would settle the open questions.

docs/methods/blame.md explains the method to people. This module imports numpy, so import it only where you use it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import exp, lgamma

import numpy as np
from numpy.typing import NDArray


class Kind(StrEnum):
    """What can be at fault."""

    NODE = "node"
    LINK = "link"
    GROUP = "group"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PairTable:
    """Results of pairs, one position per result.

    round_index: from 0; results of one round ran at the same time. node_a, node_b: positions in `nodes`.
    value: the metric, finite. nodes: names, sorted. group_index: position of each node's group in `groups`, -1 if none.
    kind_index: a number for each node's hardware class, or nothing: all are alike.
    """

    round_index: NDArray[np.intp]
    node_a: NDArray[np.intp]
    node_b: NDArray[np.intp]
    value: NDArray[np.float64]
    nodes: tuple[str, ...]
    groups: tuple[str, ...]
    group_index: NDArray[np.intp]
    kind_index: NDArray[np.intp] | None = None

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[tuple[str | int, str, str, float]],
        groups: Mapping[str, str] | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> PairTable:
        """Make a table of rows (round, node_a, node_b, value). Drops rows whose value is not finite: it is missing.

        kinds: the hardware class of every node.
        """
        kept = [row for row in rows if np.isfinite(row[3])]
        nodes = tuple(sorted({name for row in kept for name in row[1:3]}))
        position = {name: i for i, name in enumerate(nodes)}
        rounds: dict[str | int, int] = {}
        for row in kept:
            rounds.setdefault(row[0], len(rounds))
        of_node = groups or {}
        names = tuple(sorted({of_node[name] for name in nodes if name in of_node}))
        group = {name: i for i, name in enumerate(names)}
        kind = {name: i for i, name in enumerate(sorted(set(kinds.values())))} if kinds else {}
        return cls(
            round_index=np.array([rounds[row[0]] for row in kept], dtype=np.intp),
            node_a=np.array([position[row[1]] for row in kept], dtype=np.intp),
            node_b=np.array([position[row[2]] for row in kept], dtype=np.intp),
            value=np.array([row[3] for row in kept], dtype=np.float64),
            nodes=nodes,
            groups=names,
            group_index=np.array([group[of_node[n]] if n in of_node else -1 for n in nodes], dtype=np.intp),
            kind_index=np.array([kind[kinds[n]] for n in nodes], dtype=np.intp) if kinds else None,
        )


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing at fault: its speed as a share of healthy speed with a 95 % interval, and the evidence for it.

    names: one node, the two ends of a link, one group, or nothing for Kind.ALL. It touches result_count results, of
    which slow_count were slow. log_odds: natural logarithm of the odds that it is at fault rather than chance.
    in_newest_run: of several runs only the newest shows it, and these results are that one's.
    """

    kind: Kind
    names: tuple[str, ...]
    speed_ratio: float
    low: float
    high: float
    slow_count: int
    result_count: int
    log_odds: float
    in_newest_run: bool = False


@dataclass(frozen=True, slots=True)
class Blame:
    """What the table says. together: slow only when many pairs run at once, so the cause is load and not a broken part.

    undecided: the table fits more than one explanation; next_pairs would settle it, the most useful first. noise_count:
    slow results that happened once and point to nothing in particular. healthy_value: what a healthy pair reaches.
    noise_ratio: the scatter of healthy pairs. smallest_effect_ratio: a result that is slower by less is not called slow.
    """

    nodes: tuple[Culprit, ...] = ()
    links: tuple[Culprit, ...] = ()
    groups: tuple[Culprit, ...] = ()
    together: tuple[Culprit, ...] = ()
    undecided: bool = False
    next_pairs: tuple[tuple[str, str], ...] = ()
    open_questions: tuple[str, ...] = field(default=())
    noise_count: int = 0
    result_count: int = 0
    healthy_value: float | None = None
    noise_ratio: float | None = None
    smallest_effect_ratio: float | None = None


# ----------------------------------------------------------------------------------------------------------------------
# How fast a healthy pair is: the level of the topmost big cluster of results, because faults only make pairs slower.
#
# All work is on logarithms, where "slower" is "smaller". A result becomes its logarithm relative to the healthy level of
# its class. First come the hardware classes of both ends, where they are known. The next two classes are pairs inside a
# group and pairs that cross groups: crossing may cost something without a fault. The last is rounds with few pairs.
# They may be faster than full ones, but never get a lower level of their own, because a round of re-tests holds mostly
# suspects.

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
    if table.kind_index is not None:
        logs = logs - _of_kinds(table.kind_index[table.node_a], table.kind_index[table.node_b], logs)
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


def _of_kinds(kind_a: NDArray[np.intp], kind_b: NDArray[np.intp], logs: Floats) -> Floats:
    """How far the healthy level of each result's two hardware classes lies from that of most results; shape of logs.

    Where fewer than three results have both of its classes, the lowest level that one of them has with others.
    """
    ends = np.sort(np.stack([kind_a, kind_b], axis=1), axis=1)
    cells, cell, count = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    finite = np.isfinite(logs)
    each = [logs[(cell == number) & finite] for number in range(len(cells))]
    known = np.array([top_level(one)[0] if len(one) >= 3 else np.nan for one in each])
    if np.isnan(known).all():
        return np.zeros(len(logs))
    level = known.copy()
    for number in np.flatnonzero(np.isnan(known)):
        near = known[np.isin(cells, cells[number]).any(axis=1)]
        level[number] = np.nanmin(near) if np.isfinite(near).any() else np.nanmin(known)
    return np.asarray((level - known[np.argmax(np.where(np.isnan(known), 0, count))])[cell])


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


# ----------------------------------------------------------------------------------------------------------------------
# Everything that could be at fault, and which results each suspect touches.
#
# A result has SLOTS columns. A column names the suspect of its kind that the result passes through, or -1:
#
#     node of either end | the link | uplink of either group (crossing pairs) | either whole group | the same, crowded
#
# A suspect in a "crowded" column touches only results of crowded rounds: it stands for load, not for a broken part. Such
# columns exist only if the table has sparse rounds, which tell the two apart.

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Suspects:
    """The suspects and the results that they touch.

    of_result: shape (results, columns), suspect number or -1. witness: same shape, the other party of the result; a
    suspect needs two different witnesses before it is named. The other arrays have one position per suspect: its kind,
    its item (node, link or group number), whether it acts only in crowded rounds, and the natural logarithm of the
    number of its rivals, the suspects of the same kind.
    """

    of_result: Ints
    witness: Ints
    kind: tuple[Kind, ...]
    item: Ints
    crowded_only: Bools
    rivals_log: NDArray[np.float64]
    links: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """The number of suspects."""
        return len(self.kind)

    def family(self, i: int) -> tuple[Kind, bool]:
        """What suspect i has in common with its rivals."""
        return self.kind[i], bool(self.crowded_only[i])


def list_suspects(table: PairTable, levels: Levels) -> Suspects:
    """All suspects of a table: its nodes, the links measured at least twice, and its groups of two or more nodes."""
    columns: list[tuple[Kind, Ints, Ints]] = [
        (Kind.NODE, table.node_a, table.node_b),
        (Kind.NODE, table.node_b, table.node_a),
    ]
    link, links = _links(table)
    columns.append((Kind.LINK, link, np.arange(len(link))))
    if len(table.groups) > 1:
        columns += _group_columns(table)
    build = _Builder(len(table.value))
    for crowded_only in (False, True):
        if crowded_only and not (levels.sparse.any() and levels.crowded.any()):
            continue
        mask = levels.crowded if crowded_only else np.ones(len(link), dtype=bool)
        for family in _families(columns):
            if not crowded_only or family[0][0] is not Kind.LINK:
                build.add(family, mask, crowded_only)
    return build.finish(tuple(links))


def _families(columns: list[tuple[Kind, Ints, Ints]]) -> list[list[tuple[Kind, Ints, Ints]]]:
    """Columns that share one numbering: both ends of the nodes, the link, both uplinks, both groups."""
    bounds = [0, 2, 3, 5, 7]
    return [columns[low:high] for low, high in pairwise(bounds) if columns[low:high]]


def _links(table: PairTable) -> tuple[Ints, list[tuple[int, int]]]:
    """Link number of each result, -1 where the pair was measured once; and the ends of each link."""
    low, high = np.minimum(table.node_a, table.node_b), np.maximum(table.node_a, table.node_b)
    key = low * len(table.nodes) + high
    unique, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    number = np.full(len(unique), -1, dtype=np.intp)
    repeated = np.flatnonzero(counts >= 2)
    number[repeated] = np.arange(len(repeated))
    size = len(table.nodes)
    ends = [(int(k // size), int(k % size)) for k in unique[repeated]]
    return number[inverse], ends


def _group_columns(table: PairTable) -> list[tuple[Kind, Ints, Ints]]:
    sizes = np.bincount(table.group_index[table.group_index >= 0], minlength=len(table.groups))
    usable = np.append(sizes >= 2, False)
    group = np.where(usable[table.group_index], table.group_index, -1)
    group_a, group_b = group[table.node_a], group[table.node_b]
    crossing = table.group_index[table.node_a] != table.group_index[table.node_b]
    inside_b = np.where(crossing, group_b, -1)
    return [
        (Kind.GROUP, np.where(crossing, group_a, -1), table.node_a),
        (Kind.GROUP, inside_b, table.node_b),
        (Kind.GROUP, group_a, table.node_a),
        (Kind.GROUP, inside_b, table.node_b),
    ]


class _Builder:
    """Collects columns and numbers their suspects one after another."""

    def __init__(self, results: int) -> None:
        self.results = results
        self.columns: list[Ints] = []
        self.witnesses: list[Ints] = []
        self.kinds: list[Kind] = []
        self.items: list[Ints] = []
        self.crowded: list[Bools] = []
        self.rivals: list[NDArray[np.float64]] = []

    def add(self, family: list[tuple[Kind, Ints, Ints]], mask: Bools, crowded_only: bool) -> None:
        first = len(self.kinds)
        count = max(int(item.max(initial=-1)) for _, item, _ in family) + 1
        for _, item, witness in family:
            self.columns.append(np.where(mask & (item >= 0), item + first, -1))
            self.witnesses.append(witness)
        self.kinds += [family[0][0]] * count
        self.items.append(np.arange(count))
        self.crowded.append(np.full(count, crowded_only))
        self.rivals.append(np.full(count, np.log(max(count, 2))))

    def finish(self, links: tuple[tuple[int, int], ...]) -> Suspects:
        rivals = np.concatenate(self.rivals)
        rivals[[kind is Kind.LINK for kind in self.kinds]] = np.log(max(2, self.results))
        return Suspects(
            of_result=np.stack(self.columns, axis=1),
            witness=np.stack(self.witnesses, axis=1),
            kind=tuple(self.kinds),
            item=np.concatenate(self.items),
            crowded_only=np.concatenate(self.crowded),
            rivals_log=rivals,
            links=links,
        )


# ----------------------------------------------------------------------------------------------------------------------
# The smallest set of suspects that explains the slow results: a likelihood, a price per suspect, and explaining away.
#
# A result runs at the speed of the slowest thing on its way (levels are logarithms, 0 = healthy):
#
#     expected = min(0, levels of the suspects at fault on its way)
#     p(result) = (1 - d) normal(expected, sigma) + d dips(result - expected) + UPWARD / RANGE     d = share of passing dips
#
# dips() starts flat. Once suspects explain what they can, the remaining slow results show how often and how deep results
# dip without a fault. The search then runs again with these dips. The test of chance lets go whom chance may have made slow.
# So a network with two modes or a long tail accuses nothing.
#
# A suspect's gain is how much the likelihood of the results it touches grows when it is at fault, given all others at
# fault. Its price grows with the number of rivals. Each round adds the suspect that gains most among all that share a
# slow result with it, and drops suspects that no longer pay once others were added. Suspects that share no slow result do
# not interact, so one round takes all such maxima at once, with the same outcome as one by one.
# Source: Friedman, Hastie & Tibshirani 2001, ch. 8 (mixtures and their likelihood); Pearl 1988 (explaining away).

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


# ----------------------------------------------------------------------------------------------------------------------
# blame(): find out what is slow.

MINIMUM_EFFECT_RATIO = 0.03


def blame(
    table: PairTable,
    *,
    higher_is_better: bool = True,
    minimum_effect_ratio: float = MINIMUM_EFFECT_RATIO,
    crossing_may_cost: bool = True,
) -> Blame:
    """Name the nodes, links and groups that are slow, or the pairs to measure to find them.

    table: results of pairs, any unit. higher_is_better: True for rates, False for times.
    minimum_effect_ratio: smallest slowdown that is worth naming, as a share of healthy speed.
    crossing_may_cost: pairs that cross groups may be slower as a class without a fault. Give False when the values are
    ratios to a baseline of the same pair. With two groups, a slow uplink of one looks like a slow uplink of the other:
    blame names the first. An empty table is undecided.
    """
    if not len(table.value):
        return Blame(undecided=True, open_questions=("there is no result",))
    levels = relative_levels(table, higher_is_better=higher_is_better, crossing_may_cost=crossing_may_cost)
    suspects = list_suspects(table, levels)
    found = explain(levels, suspects, minimum_effect_ratio)
    advice = advise(table, levels, suspects, found, minimum_effect_ratio)
    named: dict[Kind, dict[tuple[str, ...], Culprit]] = {kind: {} for kind in Kind}
    together: list[Culprit] = []
    for i in np.flatnonzero(found.level < 0):
        culprit = _culprit(table, levels, suspects, found, int(i))
        if suspects.crowded_only[i]:
            together.append(culprit)
        else:
            named[culprit.kind].setdefault(culprit.names, culprit)
    if levels.crowd_level < np.log1p(-minimum_effect_ratio):
        together.append(_whole_fabric(levels))
    sign = 1.0 if higher_is_better else -1.0
    return Blame(
        nodes=_sorted(named[Kind.NODE]),
        links=_sorted(named[Kind.LINK]),
        groups=_sorted(named[Kind.GROUP]),
        together=tuple(together),
        undecided=advice.undecided,
        next_pairs=tuple((table.nodes[a], table.nodes[b]) for a, b in advice.next_pairs),
        open_questions=advice.questions,
        noise_count=advice.noise_count,
        result_count=len(table.value),
        healthy_value=float(np.exp(sign * levels.healthy)),
        noise_ratio=levels.sigma,
        smallest_effect_ratio=float(-np.expm1(found.slowest_healthy)),
    )


def _sorted(found: dict[tuple[str, ...], Culprit]) -> tuple[Culprit, ...]:
    return tuple(found[names] for names in sorted(found))


def _culprit(table: PairTable, levels: Levels, suspects: Suspects, found: Explanation, i: int) -> Culprit:
    """What is known of suspect i. Its level is the median of the results that only this suspect explains."""
    touched = (suspects.of_result == i).any(axis=1)
    clean = (
        touched & (found.expected >= found.level[i] - 1e-12) & (np.abs(levels.relative - found.level[i]) <= 4 * levels.sigma)
    )
    level = float(np.median(levels.relative[clean])) if clean.any() else float(found.level[i])
    error = 1.96 * 1.25 * levels.sigma / np.sqrt(max(1, int(clean.sum())))
    return Culprit(
        kind=suspects.kind[i],
        names=_names(table, suspects, i),
        speed_ratio=float(np.exp(level)),
        low=float(np.exp(level - error)),
        high=float(np.exp(level + error)),
        slow_count=int((touched & found.slow).sum()),
        result_count=int(touched.sum()),
        log_odds=float(found.gain[i]),
    )


def _names(table: PairTable, suspects: Suspects, i: int) -> tuple[str, ...]:
    item = int(suspects.item[i])
    if suspects.kind[i] is Kind.NODE:
        return (table.nodes[item],)
    if suspects.kind[i] is Kind.LINK:
        a, b = suspects.links[item]
        return table.nodes[a], table.nodes[b]
    return (table.groups[item],)


def _whole_fabric(levels: Levels) -> Culprit:
    crowded: NDArray[np.bool_] = levels.crowded
    error = 1.96 * 1.25 * levels.sigma / np.sqrt(max(1, int(levels.sparse.sum())))
    ratios = [float(np.exp(levels.crowd_level + shift)) for shift in (0.0, -error, error)]
    count = int(crowded.sum())
    return Culprit(Kind.ALL, (), ratios[0], ratios[1], ratios[2], count, count, float("inf"))


# ----------------------------------------------------------------------------------------------------------------------
# What to measure next: the pairs that would settle what the table leaves open, in as few rounds as possible.
#
#     a slow node without results that clear or convict it                    ->  three partners known to be good
#     a node below the noise with everybody, in a table too small to say so   ->  the same
#     a node that is slower with everybody than all pairs without it          ->  the same
#     a suspect that chance may have made slow                                ->  as for a node, link or group in doubt
#     a link, or a pair that was slow once while both ends are fine elsewhere ->  the same pair again
#     a group in doubt                                                        ->  pairs of its nodes with other groups
#
# Partners take turns, so the first pairs of the list share no node and can run at the same time.


DOUBT = 8.0  # log odds: less sure than 3,000 to 1 either way is doubt; a node needs about three results to leave it
CLEARED = -2.0
PARTNERS = 3
REPEATS = 2
SLOWEST_RESULTS_MIN = 3
# From this many results on, a pair that was slow once and whose ends are fine elsewhere counts as noise. While such
# slow results are less than NOISE_SHARE of all, advice still lists the pairs to run again. If they are more, the
# network is unsteady, and runs of single pairs tell nothing.
NOISE_RESULTS_MIN = 20
NOISE_SHARE = 0.06


@dataclass(frozen=True, slots=True)
class Advice:
    """undecided: something is open. questions: what is open, in words. noise_count: slow results counted as noise."""

    undecided: bool
    next_pairs: tuple[tuple[int, int], ...]
    questions: tuple[str, ...]
    noise_count: int


def advise(table: PairTable, levels: Levels, suspects: Suspects, found: Explanation, minimum_effect_ratio: float) -> Advice:
    """Say what is open and which pairs would settle it. minimum_effect_ratio: as for blame()."""
    node_count = len(table.nodes)
    at_fault = found.level < 0
    faulty_node = at_fault[:node_count]
    clear = _seen(table, found.fine) & (found.evidence[:node_count] < CLEARED) & ~faulty_node
    in_doubt = (np.abs(found.gain) < DOUBT) | found.by_chance
    loose = found.slow & (found.expected == 0)
    once = loose & clear[table.node_a] & clear[table.node_b]
    nodes = (_seen(table, found.slow) & ~clear & ~faulty_node) | in_doubt[:node_count]
    slightly = _always(table, found.below & (found.expected == 0)) & ~nodes & ~faulty_node
    slightly |= _slowest_of_all(table, levels, float(np.log1p(-minimum_effect_ratio))) & ~faulty_node
    nodes = (nodes | slightly) & ~_behind_fault(table, suspects, found)
    links = [suspects.links[int(suspects.item[i])] for i in np.flatnonzero(in_doubt) if suspects.kind[i] is Kind.LINK]
    groups = [int(suspects.item[i]) for i in np.flatnonzero(in_doubt) if suspects.kind[i] is Kind.GROUP]
    noise = len(table.value) >= NOISE_RESULTS_MIN
    unsteady = bool(once.sum() > NOISE_SHARE * len(table.value))
    good = clear & ~nodes
    plan = _Plan(table, good)
    for turn in range(PARTNERS):
        for node in np.flatnonzero(nodes):
            plan.partner(int(node), turn)
    for group in groups:
        plan.cross(group)
    loose_pairs = [] if noise and unsteady else [int(i) for i in np.flatnonzero(once)]
    again = [*links, *((int(table.node_a[i]), int(table.node_b[i])) for i in loose_pairs)]
    for a, b in dict.fromkeys((min(p), max(p)) for p in again):
        plan.pairs += [(a, b)] * (1 if noise else REPEATS)
    few = len(table.value) < 3 or not clear.any()
    undecided = bool(nodes.any() or links or groups or few or (once.any() and not noise))
    questions = ["too few healthy results to know the healthy level"] if few else []
    questions += _questions(table, nodes, found.by_chance[:node_count], links, groups)
    if once.any() and not noise:
        questions.append(f"{once.sum()} results slow once with both ends fine elsewhere: a link, or passing traffic")
    return Advice(undecided, tuple(plan.pairs), tuple(questions), int(once.sum()) if noise else 0)


def _seen(table: PairTable, results: Bools) -> Bools:
    """Which nodes took part in one of these results."""
    seen = np.zeros(len(table.nodes), dtype=bool)
    seen[table.node_a[results]] = True
    seen[table.node_b[results]] = True
    return seen


def _always(table: PairTable, results: Bools) -> Bools:
    """Which nodes took part in at least two results, and in these only."""
    count = np.bincount(table.node_a, minlength=len(table.nodes)) + np.bincount(table.node_b, minlength=len(table.nodes))
    return (count >= 2) & ~_seen(table, ~results)


def _slowest_of_all(table: PairTable, levels: Levels, largest: float) -> Bools:
    """The node, if there is one, with whom everybody is slower than `largest` and than all pairs without it.

    Noise that is as large as a fault hides it from the search, but seldom gives one node all of the slowest results.
    """
    found = np.zeros(len(table.nodes), dtype=bool)
    slowest = int(levels.relative.argmin())
    for node in (table.node_a[slowest], table.node_b[slowest]):
        own = (table.node_a == node) | (table.node_b == node)
        if own.all() or own.sum() < SLOWEST_RESULTS_MIN:
            continue
        found[node] = levels.relative[own].max() < min(largest, levels.relative[~own].min())
    return found


def _behind_fault(table: PairTable, suspects: Suspects, found: Explanation) -> Bools:
    """Nodes of a group at fault: nobody can judge them until the group is repaired."""
    behind = np.zeros(len(table.nodes), dtype=bool)
    for i in np.flatnonzero(found.level < 0):
        if suspects.kind[i] is Kind.GROUP:
            behind |= table.group_index == suspects.item[i]
    return behind


class _Plan:
    """The pairs so far, and which good partner comes next."""

    def __init__(self, table: PairTable, good: Bools) -> None:
        self.table = table
        self.good = [int(i) for i in np.flatnonzero(good)]
        self.met: set[tuple[int, int]] = {(int(a), int(b)) for a, b in zip(table.node_a, table.node_b, strict=True)}
        self.used: Counter[tuple[int, int]] = Counter()
        self.pairs: list[tuple[int, int]] = []
        self.next = 0

    def partner(self, node: int, turn: int) -> None:
        """Add a pair of `node` with the next good partner, if possible one that it has not met."""
        choice: int | None = None
        for step in range(len(self.good)):
            other = self.good[(self.next + step) % len(self.good)]
            if other == node or self.used[node, other]:
                continue
            choice = other if choice is None else choice
            if (node, other) not in self.met and (other, node) not in self.met and not self.used[other, -1 - turn]:
                choice = other
                break
        if choice is None:
            return
        self.used[node, choice] += 1
        self.used[choice, -1 - turn] += 1
        self.next = (self.good.index(choice) + 1) % len(self.good)
        self.pairs.append((node, choice))

    def cross(self, group: int) -> None:
        """Add pairs between nodes of `group` and good nodes of other groups."""
        inside = [int(i) for i in np.flatnonzero(self.table.group_index == group)]
        outside = [i for i in self.good if self.table.group_index[i] != group]
        self.pairs += list(zip(inside, outside, strict=False))[:PARTNERS]


def _questions(table: PairTable, nodes: Bools, by_chance: Bools, links: list[tuple[int, int]], groups: list[int]) -> list[str]:
    questions: list[str] = []
    if (nodes & ~by_chance).any():
        questions.append(f"not enough clean results to clear or convict: {_some(table, nodes & ~by_chance)}")
    if (nodes & by_chance).any():
        why = "slow, but so many other results are as slow that chance may have dealt them"
        questions.append(f"{why}: {_some(table, nodes & by_chance)}")
    questions += [f"link {table.nodes[a]} - {table.nodes[b]}: slow, but not often enough to be sure" for a, b in links]
    questions += [f"group {table.groups[i]}: slow, but not clearly enough to be sure" for i in groups]
    return questions


def _some(table: PairTable, nodes: Bools) -> str:
    names = [table.nodes[i] for i in np.flatnonzero(nodes)]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

"""blame(): find out what is slow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.explain import Explanation, explain
from hpcq.localisation.levels import Levels, relative_levels
from hpcq.localisation.pairs import Blame, Culprit, Kind, PairTable
from hpcq.localisation.suspects import Suspects, list_suspects

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


Bools = NDArray[np.bool_]

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

"""blame(): find out what is slow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.advice import advise
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

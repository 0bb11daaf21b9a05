"""The table of pair results, and what blame says about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
    """

    round_index: NDArray[np.intp]
    node_a: NDArray[np.intp]
    node_b: NDArray[np.intp]
    value: NDArray[np.float64]
    nodes: tuple[str, ...]
    groups: tuple[str, ...]
    group_index: NDArray[np.intp]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str | int, str, str, float]], groups: Mapping[str, str] | None = None) -> PairTable:
        """Make a table of rows (round, node_a, node_b, value). Drops rows whose value is not finite: it is missing."""
        kept = [row for row in rows if np.isfinite(row[3])]
        nodes = tuple(sorted({name for row in kept for name in row[1:3]}))
        position = {name: i for i, name in enumerate(nodes)}
        rounds: dict[str | int, int] = {}
        for row in kept:
            rounds.setdefault(row[0], len(rounds))
        of_node = groups or {}
        names = tuple(sorted({of_node[name] for name in nodes if name in of_node}))
        group = {name: i for i, name in enumerate(names)}
        return cls(
            round_index=np.array([rounds[row[0]] for row in kept], dtype=np.intp),
            node_a=np.array([position[row[1]] for row in kept], dtype=np.intp),
            node_b=np.array([position[row[2]] for row in kept], dtype=np.intp),
            value=np.array([row[3] for row in kept], dtype=np.float64),
            nodes=nodes,
            groups=names,
            group_index=np.array([group[of_node[n]] if n in of_node else -1 for n in nodes], dtype=np.intp),
        )


@dataclass(frozen=True, slots=True)
class Culprit:
    """One thing at fault: its speed as a share of healthy speed with a 95 % interval, and the evidence for it.

    names: one node, the two ends of a link, one group, or nothing for Kind.ALL. It touches result_count results, of
    which slow_count were slow. log_odds: natural logarithm of the odds that it is at fault rather than chance.
    """

    kind: Kind
    names: tuple[str, ...]
    speed_ratio: float
    low: float
    high: float
    slow_count: int
    result_count: int
    log_odds: float


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

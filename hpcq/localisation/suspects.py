"""Everything that could be at fault, and which results each suspect touches.

A result has SLOTS columns. A column names the suspect of its kind that the result passes through, or -1:

    node of either end | the link | uplink of either group (crossing pairs) | either whole group | the same, crowded

A suspect in a "crowded" column touches only results of crowded rounds: it stands for load, not for a broken part. Such
columns exist only if the table has sparse rounds, which tell the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hpcq.localisation.levels import Levels
from hpcq.localisation.pairs import Kind, PairTable

Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


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

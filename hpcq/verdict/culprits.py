"""Who explains the slow pairs: leaves, nodes, links; what nobody explains stays open. Pure.

A pair runs at the speed of the slowest thing on its way, so a fine pair clears its ends and all that lies between them:

    leaf    all pairs between it and the others slow, one direction at least: two of its nodes and two others took part, pairs
            among the others are fine, and so are pairs inside the leaf (or three of its nodes are slow inside, too)
    node    slow in one role (sending or receiving) with every partner, two at least, one of whom is fine with somebody else
    link    what is left, between two nodes of which one sends and the other receives well with others
    path    the same between two leaves, where there are no others: whose uplink it is cannot be told

The widest explanation goes first, and what it explains accuses nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: Partners that must have been slow before a node is accused.
PARTNERS_MIN = 2
#: Nodes of a leaf, and nodes beyond it, that must have been slow across its edge.
MEMBERS_MIN = 2
#: A leaf whose pairs are slow inside, too, rather than so many bad nodes.
MEMBERS_WHOLE_MIN = 3

Pair = tuple[str, str]


class PairVerdict(StrEnum):
    """What all runs of a pair (client, server) say together."""

    BAD = "bad"
    FINE = "fine"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Culprits:
    """leaves, paths, links: who -> the slow pairs that it explains. nodes: the same. open: slow pairs that nobody explains."""

    leaves: dict[str, set[Pair]] = field(default_factory=dict)
    paths: dict[Pair, set[Pair]] = field(default_factory=dict)
    nodes: dict[str, set[Pair]] = field(default_factory=dict)
    links: dict[Pair, set[Pair]] = field(default_factory=dict)
    open: set[Pair] = field(default_factory=set)


def find_culprits(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str], named: Collection[str] = (), repeated: Collection[Pair] = ()
) -> Culprits:
    """Explain the bad pairs. named: nodes that the likelihood of the values accuses. repeated: pairs that ran more than once.

    A link is never blamed on one run, so pairs outside of `repeated` stay open instead.
    """
    bad = {pair for pair, word in pairs.items() if word is PairVerdict.BAD}
    fine = {pair for pair, word in pairs.items() if word is PairVerdict.FINE}
    left = set(bad)
    leaves, paths = _leaves(pairs, leaf_of)
    for explained in (*leaves.values(), *paths.values()):
        left -= explained
    unlike_leaf = [node for node in named if not _like_its_leaf(node, pairs, leaf_of)]
    nodes = _nodes(pairs, left, fine, unlike_leaf)
    left = {pair for pair in left if not nodes.keys() & set(pair)}
    links: dict[Pair, set[Pair]] = {}
    for pair in sorted(left):
        if _ends_fine(pair, fine) and pair in repeated:
            links.setdefault((min(pair), max(pair)), set()).add(pair)
    left -= {pair for explained in links.values() for pair in explained}
    return Culprits(leaves, paths, nodes, links, left)


def _ends_fine(pair: Pair, fine: Collection[Pair]) -> bool:
    """Whether its client sends well to somebody else, and its server receives well from somebody else."""
    client, server = pair
    return any(one == client and other != server for one, other in fine) and any(
        other == server and one != client for one, other in fine
    )


def behind(pair: Pair, leaf: str, leaf_of: Mapping[str, str]) -> bool:
    """Whether a pair crosses the edge of this leaf."""
    return (leaf_of.get(pair[0]) == leaf) != (leaf_of.get(pair[1]) == leaf)


class _ByLeaves:
    """The pairs of every two leaves (of the client, of the server), so that each is looked at once."""

    def __init__(self, pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]) -> None:
        self.words: dict[tuple[str, str], dict[Pair, PairVerdict]] = {}
        for pair, word in pairs.items():
            if pair[0] in leaf_of and pair[1] in leaf_of:
                self.words.setdefault((leaf_of[pair[0]], leaf_of[pair[1]]), {})[pair] = word
        self.fine = {ends for ends, words in self.words.items() if ends[0] != ends[1] and PairVerdict.FINE in words.values()}

    def crossing(self, leaf: str, inside: int) -> dict[Pair, PairVerdict]:
        """Pairs whose client (inside = 0) or server (1) alone is in this leaf."""
        found: dict[Pair, PairVerdict] = {}
        for ends, words in self.words.items():
            if ends[inside] == leaf != ends[1 - inside]:
                found |= words
        return found

    def fine_elsewhere(self, leaf: str) -> bool:
        """Whether some pair of two other leaves is fine: else it may be whatever lies between all leaves."""
        return any(leaf not in ends for ends in self.fine)

    def not_its_nodes(self, leaf: str) -> bool:
        """Whether it is the leaf rather than every single one of its nodes."""
        inside = self.words.get((leaf, leaf), {})
        slow = {node for pair, word in inside.items() if word is PairVerdict.BAD for node in pair}
        return PairVerdict.FINE in inside.values() or len(slow) >= MEMBERS_WHOLE_MIN


def _leaves(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]
) -> tuple[dict[str, set[Pair]], dict[Pair, set[Pair]]]:
    """Leaves whose every way out, or in, is slow; and paths between two leaves that are slow where neither leaf is."""
    known = _ByLeaves(pairs, leaf_of)
    found: dict[str, set[Pair]] = {}
    for leaf in sorted({leaf for ends in known.words for leaf in ends}):
        for inside in (0, 1):
            crossing = known.crossing(leaf, inside)
            if _all_slow(crossing, inside) and known.fine_elsewhere(leaf) and known.not_its_nodes(leaf):
                found.setdefault(leaf, set()).update(_bad(crossing))
    paths: dict[Pair, set[Pair]] = {}
    for ends, words in sorted(known.words.items()):
        one, other = min(ends), max(ends)
        free = one != other and not found.keys() & {one, other}
        if free and _all_slow(words, 0) and known.not_its_nodes(one) and known.not_its_nodes(other):
            paths.setdefault((one, other), set()).update(_bad(words))
    return found, paths


def _bad(words: Mapping[Pair, PairVerdict]) -> set[Pair]:
    return {pair for pair, word in words.items() if word is PairVerdict.BAD}


def _all_slow(crossing: Mapping[Pair, PairVerdict], inside: int) -> bool:
    slow = _bad(crossing)
    ends = ({pair[inside] for pair in slow}, {pair[1 - inside] for pair in slow})
    return PairVerdict.FINE not in crossing.values() and all(len(one) >= MEMBERS_MIN for one in ends)


def _nodes(pairs: Mapping[Pair, PairVerdict], left: set[Pair], fine: set[Pair], named: Collection[str]) -> dict[str, set[Pair]]:
    """Nodes that explain what is left; who is only slow with others of them is none."""
    ends = {node for pair in left for node in pair}
    open_pairs = {pair: word for pair, word in pairs.items() if word is not PairVerdict.BAD or pair in left}
    accused = {node for node in ends if _accused(node, open_pairs, fine)}
    accused |= {node for node in named if len(_partners(node, left)) >= PARTNERS_MIN}
    culprits = {node for node in accused if not _others_explain(node, open_pairs, accused)}
    return {node: {pair for pair in left if node in pair} for node in sorted(culprits)}


def _like_its_leaf(node: str, pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]) -> bool:
    """Whether a node is slow beyond its leaf only, and fine within: then it may well be the leaf."""
    mine = {pair: word for pair, word in pairs.items() if node in pair and node in leaf_of}
    within = [word for pair, word in mine.items() if leaf_of.get(pair[0]) == leaf_of.get(pair[1])]
    return PairVerdict.FINE in within and PairVerdict.BAD not in within


def _accused(node: str, pairs: Mapping[Pair, PairVerdict], fine: Collection[Pair]) -> bool:
    fine_without = {end for pair in fine if node not in pair for end in pair}
    for role in (0, 1):
        words = {pair[1 - role]: word for pair, word in pairs.items() if pair[role] == node}
        told = {partner for partner, word in words.items() if word is PairVerdict.BAD}
        if PairVerdict.FINE not in words.values() and len(told) >= PARTNERS_MIN and fine_without.intersection(told):
            return True
    return False


def _partners(node: str, left: set[Pair]) -> set[str]:
    return {end for pair in left if node in pair for end in pair} - {node}


def _others_explain(node: str, pairs: Mapping[Pair, PairVerdict], culprits: set[str]) -> bool:
    """Whether all that speaks against a node are pairs with other culprits."""
    against = [pair for pair, word in pairs.items() if node in pair and word is PairVerdict.BAD]
    fine = [pair for pair, word in pairs.items() if node in pair and word is PairVerdict.FINE]
    return bool(fine) and all((culprits - {node}).intersection(pair) for pair in against)

"""Find what explains the bad pairs: leaves, nodes, links. Pairs that nothing explains stay open. Pure.

A pair runs at the speed of the slowest thing on its way:

    leaf    all pairs between it and other leaves are bad, in at least one direction. Two of its nodes and two others
            took part, pairs among the others are fine, and so are pairs inside the leaf (or three nodes are bad inside)
    node    an end that two or more bad pairs share, whose partners are fine with others. At least three jobs speak
            against it, and its pairs were bad in two runs, or most of them are bad
    link    what is left, between two ends that are both fine with others, bad in two runs and in at least three jobs
    path    the same between two leaves when there are no other leaves to tell whose uplink it is

The widest explanation comes first, and the pairs that it explains accuse nothing else. One fine pair does not clear a
node of its bad ones. If two nodes explain the same pairs equally well, the pairs stay open. So do the pairs across the
edge of a leaf if no pair inside the leaf could be judged: then nothing tells the leaf from its nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field

from hpcq.verdict.acceptance.points import Pair, PairVerdict

#: Partners that must have been bad before a node is accused, and jobs before anything is.
PARTNERS_MIN = 2
JOBS_MIN = 3
#: Nodes of a leaf, and nodes outside it, that must have been bad across its edge.
MEMBERS_MIN = 2
#: With this many bad nodes inside, the leaf is at fault rather than each of them.
MEMBERS_WHOLE_MIN = 3


@dataclass(frozen=True, slots=True)
class Culprits:
    """leaves, paths, nodes, links: by name, the bad pairs that it explains. open: bad pairs that nothing explains yet.

    doubtful: by leaf, those of the open pairs that are its fault or that of its nodes.
    """

    leaves: dict[str, set[Pair]] = field(default_factory=dict)
    paths: dict[Pair, set[Pair]] = field(default_factory=dict)
    nodes: dict[str, set[Pair]] = field(default_factory=dict)
    links: dict[Pair, set[Pair]] = field(default_factory=dict)
    open: set[Pair] = field(default_factory=set)
    doubtful: dict[str, set[Pair]] = field(default_factory=dict)

    def suspected(self, leaf_of: Mapping[str, str]) -> set[str]:
        """The nodes that open pairs may be the fault of."""
        known = {pair for pairs in self.doubtful.values() for pair in pairs}
        found = {end for pair in self.open - known for end in pair}
        return found | {
            end
            for leaf, pairs in self.doubtful.items()
            for pair in pairs & self.open
            for end in pair
            if leaf_of.get(end) == leaf
        }


def find_culprits(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str], jobs: Mapping[Pair, int], alive: Collection[Pair] = ()
) -> Culprits:
    """Explain the bad pairs. jobs: how many jobs (runs) speak against each bad pair.

    alive: if all bad pairs have no valid result, the pairs that have values. Then any value speaks for
    the nodes of its pair.
    """
    left = _bad(pairs)
    fine = {pair for pair, word in pairs.items() if word is PairVerdict.FINE}
    leaves, paths, doubtful = _leaves(pairs, leaf_of)
    for explained in (*leaves.values(), *paths.values()):
        left -= explained
    doubtful = {leaf: explained & left for leaf, explained in doubtful.items() if explained & left}
    aside = {pair for explained in doubtful.values() for pair in explained}
    left -= aside
    nodes = _nodes(pairs, left, fine | set(alive) - left, jobs, leaf_of)
    left = {pair for pair in left if not nodes.keys() & set(pair)}
    by_ends: dict[Pair, set[Pair]] = {}
    for pair in sorted(left):
        by_ends.setdefault((min(pair), max(pair)), set()).add(pair)
    links = {
        ends: explained
        for ends, explained in by_ends.items()
        if all(_ends_fine(pair, fine) for pair in explained)
        and max(jobs.get(pair, 0) for pair in explained) > 1
        and sum(jobs.get(pair, 0) for pair in explained) >= JOBS_MIN
    }
    left -= {pair for explained in links.values() for pair in explained}
    left |= {pair for pair in aside if not nodes.keys() & set(pair)}
    return Culprits(leaves, paths, nodes, links, left, doubtful)


def _ends_fine(pair: Pair, fine: Collection[Pair]) -> bool:
    """Whether its client sends well to another node, and its server receives well from another node."""
    client, server = pair
    return any(one == client and other != server for one, other in fine) and any(
        other == server and one != client for one, other in fine
    )


def behind(pair: Pair, leaf: str, leaf_of: Mapping[str, str]) -> bool:
    """Whether a pair crosses the edge of this leaf."""
    return (leaf_of.get(pair[0]) == leaf) != (leaf_of.get(pair[1]) == leaf)


class _ByLeaves:
    """The pairs of every two leaves (of the client, of the server), so that each is read only once."""

    def __init__(self, pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]) -> None:
        self.words: dict[tuple[str, str], dict[Pair, PairVerdict]] = {}
        for pair, word in pairs.items():
            if pair[0] in leaf_of and pair[1] in leaf_of:
                self.words.setdefault((leaf_of[pair[0]], leaf_of[pair[1]]), {})[pair] = word
        self.fine = {ends for ends, words in self.words.items() if ends[0] != ends[1] and PairVerdict.FINE in words.values()}

    def crossing(self, leaf: str, inside: int) -> dict[Pair, PairVerdict]:
        """Pairs of which only the client (inside = 0) or only the server (1) is in this leaf."""
        found: dict[Pair, PairVerdict] = {}
        for ends, words in self.words.items():
            if ends[inside] == leaf != ends[1 - inside]:
                found |= words
        return found

    def fine_elsewhere(self, leaf: str) -> bool:
        """Whether some pair of two other leaves is fine; if not, the fault may lie between all leaves."""
        return any(leaf not in ends for ends in self.fine)

    def not_its_nodes(self, leaf: str) -> bool | None:
        """Whether the leaf is at fault rather than each of its nodes. None: no pair inside it could be judged."""
        inside = self.words.get((leaf, leaf), {})
        slow = {node for pair, word in inside.items() if word is PairVerdict.BAD for node in pair}
        if PairVerdict.FINE in inside.values() or len(slow) >= MEMBERS_WHOLE_MIN:
            return True
        return False if slow else None


def _leaves(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]
) -> tuple[dict[str, set[Pair]], dict[Pair, set[Pair]], dict[str, set[Pair]]]:
    """Leaves that are slow to all others, or from all others; and slow paths between two leaves that are not slow.

    Third, by leaf, the bad pairs of leaves and paths of which nobody knows whether their nodes are fine with each other.
    """
    known = _ByLeaves(pairs, leaf_of)
    found: dict[str, set[Pair]] = {}
    doubtful: dict[str, set[Pair]] = {}
    for leaf in sorted({leaf for ends in known.words for leaf in ends}):
        for inside in (0, 1):
            crossing = known.crossing(leaf, inside)
            if not _all_slow(crossing, inside) or not known.fine_elsewhere(leaf):
                continue
            sure = known.not_its_nodes(leaf)
            if sure:
                found.setdefault(leaf, set()).update(_bad(crossing))
            elif sure is None:
                doubtful.setdefault(leaf, set()).update(_bad(crossing))
    paths: dict[Pair, set[Pair]] = {}
    for ends, words in sorted(known.words.items()):
        one, other = min(ends), max(ends)
        free = one != other and not found.keys() & {one, other}
        if free and _all_slow(words, 0):
            sure_of_both = known.not_its_nodes(one), known.not_its_nodes(other)
            if all(sure_of_both):
                paths.setdefault((one, other), set()).update(_bad(words))
            elif False not in sure_of_both and not doubtful.keys() & {one, other}:
                for leaf in ends:
                    doubtful.setdefault(leaf, set()).update(_bad(words))
    return found, paths, doubtful


def _bad(words: Mapping[Pair, PairVerdict]) -> set[Pair]:
    return {pair for pair, word in words.items() if word is PairVerdict.BAD}


def _all_slow(crossing: Mapping[Pair, PairVerdict], inside: int) -> bool:
    slow = _bad(crossing)
    ends = ({pair[inside] for pair in slow}, {pair[1 - inside] for pair in slow})
    return PairVerdict.FINE not in crossing.values() and all(len(one) >= MEMBERS_MIN for one in ends)


def _nodes(
    pairs: Mapping[Pair, PairVerdict],
    left: set[Pair],
    fine: set[Pair],
    jobs: Mapping[Pair, int],
    leaf_of: Mapping[str, str],
) -> dict[str, set[Pair]]:
    """Ends that bad pairs share. The one with most bad partners comes first; its pairs then accuse no other node."""
    found: dict[str, set[Pair]] = {}
    rest = set(left)
    while True:
        partners: dict[str, set[str]] = {}
        for client, server in rest:
            partners.setdefault(client, set()).add(server)
            partners.setdefault(server, set()).add(client)
        most = max((len(one) for one in partners.values()), default=0)
        if most < PARTNERS_MIN:
            return found
        first = {node for node, others in partners.items() if len(others) == most}
        unlike = {node for node in first if len(partners[node] - first) >= PARTNERS_MIN}  # else two explain the same pairs
        others = first | found.keys()
        accused = {node for node in unlike if _speaks_for_itself(node, others - {node}, pairs, rest, fine, jobs, leaf_of)}
        if not accused:  # these pairs stay open; nodes with fewer bad partners may still be accused
            rest = {pair for pair in rest if not first & set(pair)}
            continue
        for node in sorted(accused):
            found[node] = {pair for pair in left if node in pair}
        rest = {pair for pair in rest if not accused & set(pair)}


def _speaks_for_itself(  # noqa: PLR0917 - each is another part of the evidence
    node: str,
    others: Set[str],
    pairs: Mapping[Pair, PairVerdict],
    rest: set[Pair],
    fine: set[Pair],
    jobs: Mapping[Pair, int],
    leaf_of: Mapping[str, str],
) -> bool:
    """Whether enough jobs accuse it: two partners in two runs, or most of them; they are fine; it is not its leaf.

    others: nodes already accused, or as likely. A pair with one of these counts against neither.
    """
    mine = {pair for pair in rest if node in pair and not others & set(pair)}
    told = {end for pair in mine for end in pair} - {node}
    fine_without = {end for pair in fine if node not in pair for end in pair}
    enough = sum(jobs.get(pair, 1) for pair in mine) >= JOBS_MIN
    twice = {end for pair in mine if jobs.get(pair, 0) > 1 for end in pair} - {node}
    if not enough or (
        len(twice) < PARTNERS_MIN
        and not mostly_bad(node, {pair: word for pair, word in pairs.items() if not others & set(pair)})
    ):
        return False
    return bool(told & fine_without) and not may_be_its_leaf(node, pairs, mine, leaf_of)


def mostly_bad(node: str, pairs: Mapping[Pair, PairVerdict]) -> bool:
    """Whether most of its partners are bad in one role. Passing traffic does not cause that, even in one run."""
    for role in (0, 1):
        words = [word for pair, word in pairs.items() if pair[role] == node]
        if words.count(PairVerdict.BAD) * 2 > len(words):
            return True
    return False


def may_be_its_leaf(node: str, pairs: Mapping[Pair, PairVerdict], bad: Collection[Pair], leaf_of: Mapping[str, str]) -> bool:
    """Whether a node is bad only beyond its leaf, not known to be bad within, and no mate there is fine beyond it."""
    leaf = leaf_of.get(node)
    if leaf is None or any(leaf_of.get(pair[0]) == leaf_of.get(pair[1]) for pair in bad):
        return False
    inside = {word for pair, word in pairs.items() if node in pair and leaf_of.get(pair[0]) == leaf_of.get(pair[1])}
    if PairVerdict.FINE not in inside and PairVerdict.BAD in inside:
        return False
    mates_fine = any(
        word is PairVerdict.FINE and node not in pair and behind(pair, leaf, leaf_of) for pair, word in pairs.items()
    )
    alone = sum(other == leaf for other in leaf_of.values()) == 1  # then nothing can tell them, and nothing needs to
    return not mates_fine and not alone


def would_settle(culprits: Culprits, pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]) -> set[Pair]:
    """Pairs inside leaves that could not be judged, of nodes that are bad only beyond: they tell a leaf from its nodes."""
    beyond = {end for pair in culprits.open if leaf_of.get(pair[0]) != leaf_of.get(pair[1]) for end in pair}
    beyond &= culprits.suspected(leaf_of)
    unclear = {PairVerdict.UNCLEAR, PairVerdict.INTERMITTENT}
    return {
        pair
        for pair, word in pairs.items()
        if word in unclear and beyond & set(pair) and leaf_of.get(pair[0], "") == leaf_of.get(pair[1])
    }

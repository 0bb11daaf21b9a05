"""Choose the pairs that reveal most about the nodes under test, and about those that were slow. Pure.

    partners(...)      PARTNERS per node: one in its own leaf, the others spread evenly over all available nodes
    again(...)         slow pairs once more; suspects with good partners; of a suspected leaf also the other nodes

Each pair occurs in both directions: a limit on a node's sending does not show while it only receives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from hpcq.planning.pairs import Pair
from hpcq.sorting import natural
from hpcq.verdict.acceptance.judge import Acceptance

#: Partners per node under test, by default.
PARTNERS = 3
#: The most partners if the campaign or the baseline has all pairs. Acceptance does not cover further links.
PARTNERS_MAX = 16
#: A pair that ran this many times does not run again in the same acceptance.
RUNS_ENOUGH = 3
#: On a large machine, how many nodes are candidates for each node's partners.
SPREAD = 64


def partners(
    targets: Sequence[str],
    room: Collection[str],
    *,
    baseline: Collection[Pair] = (),
    good: Collection[str] = (),
    leaf_of: Mapping[str, str] | None = None,
    met: Collection[Pair] = (),
    every_link: bool = False,
) -> list[Pair]:
    """Return pairs for these nodes, at least PARTNERS each.

    The pairs of the baseline come first, then good partners, then any available node. It wants all of a node's pairs in
    the baseline, up to PARTNERS_MAX. every_link: it also wants all pairs that the baseline lacks.
    room: available partners. baseline: pairs that have reference values. good: nodes that passed. met: pairs that have
    already run and are not wanted again.
    """
    plan = _Plan(targets, room, baseline=baseline, good=good, leaf_of=leaf_of or {}, met=met)
    for turn in range(PARTNERS_MAX):
        for node in sorted(targets, key=natural):
            plan.add(node, turn, every_link=every_link)
    return both_ways(plan.pairs)


def again(verdicts: Acceptance, room: Collection[str], *, counts: Mapping[Pair, int], leaf_of: Mapping[str, str]) -> list[Pair]:
    """Return what to run before hpcq reports anything. counts: in how many runs each pair was."""
    once = [pair for pair in (*verdicts.open, *verdicts.unsettled) if counts.get(pair, 0) < RUNS_ENOUGH]
    for pairs in verdicts.explained:
        if all(counts.get(pair, 0) < 2 for pair in pairs):
            once += _some(pairs)
    once = [pair for pair in once if pair[0] in room and pair[1] in room]
    wanted = [node for node in verdicts.suspects if node in room]
    for node in tuple(wanted):
        if _may_be_its_leaf(node, verdicts.open, leaf_of, counts):
            mates = [one for one in room if one not in wanted and leaf_of.get(one) == leaf_of[node]]
            wanted += sorted(mates, key=natural)[:1]
    trusted = [node for node in verdicts.good if node in room]
    fresh = partners(wanted, {*trusted, *wanted}, good=trusted, leaf_of=leaf_of, met=list(counts))
    return list(dict.fromkeys([*once, *fresh]))


def _some(pairs: Sequence[Pair]) -> list[Pair]:
    """Of the pairs that a culprit explains, return enough to run each node again with PARTNERS others."""
    count: Counter[str] = Counter()
    taken = []
    for ends in dict.fromkeys(frozenset(pair) for pair in pairs):
        if all(count[end] < PARTNERS for end in ends):
            count.update(ends)
            taken += [pair for pair in pairs if frozenset(pair) == ends]
    return taken


def _may_be_its_leaf(node: str, slow: Collection[Pair], leaf_of: Mapping[str, str], met: Collection[Pair]) -> bool:
    """Whether a suspect is slow outside its leaf, and not known to be slow inside."""
    mine = [pair for pair in met if node in pair and leaf_of.get(pair[0]) and leaf_of.get(pair[1])]
    inside = [pair for pair in mine if leaf_of[pair[0]] == leaf_of[pair[1]]]
    beyond = [pair for pair in mine if pair not in inside]
    return any(pair in slow for pair in beyond) and not any(pair in slow for pair in inside)


def both_ways(pairs: Sequence[Pair]) -> list[Pair]:
    """Return each pair and its reverse."""
    return [pair for client, server in pairs for pair in ((client, server), (server, client))]


class _Plan:
    """The pairs so far, and how many each node has."""

    def __init__(
        self,
        targets: Sequence[str],
        room: Collection[str],
        *,
        baseline: Collection[Pair],
        good: Collection[str],
        leaf_of: Mapping[str, str],
        met: Collection[Pair],
    ) -> None:
        self.targets = set(targets)
        self.known = {frozenset(pair) for pair in baseline}
        self.direction = {frozenset(pair): pair for pair in baseline}
        self.good = set(good)
        self.room = sorted(room, key=natural)
        self.place = {node: index for index, node in enumerate(self.room)}
        self.trusted = [node for node in self.room if node in self.good]
        self.neighbours: dict[str, list[str]] = {}
        for one, other in self.direction.values():
            self.neighbours.setdefault(one, []).append(other)
            self.neighbours.setdefault(other, []).append(one)
        self.members: dict[str, list[str]] = {}
        for node in self.room:
            self.members.setdefault(leaf_of.get(node, ""), []).append(node)
        self.leaf_of = leaf_of
        self.taken = {frozenset(pair) for pair in met}
        self.count: Counter[str] = Counter()
        self.met_leaves: dict[str, Counter[str]] = {}
        self.pairs: list[Pair] = []

    def add(self, node: str, turn: int, *, every_link: bool) -> None:
        """Add the next partner of a node that needs one. The first comes from its own leaf if possible."""
        if self.count[node] > turn:
            return
        if turn >= PARTNERS and not every_link:
            others = self._free(node, self.neighbours.get(node, []))
        else:
            leaf = self._leaf(node)
            inside = self._free(node, self.members[leaf]) if leaf in self.members else []
            everybody = self._free(node, self._candidates(node))
            beyond = [other for other in everybody if leaf is None or self._leaf(other) != leaf]
            others = (inside if turn == 0 else beyond) or everybody or inside
        if others:
            self._take(node, min(others, key=lambda other: self._cost(node, other)))

    def _free(self, node: str, others: Sequence[str]) -> list[str]:
        return [one for one in others if one in self.place and one != node and frozenset((node, one)) not in self.taken]

    def _candidates(self, node: str) -> list[str]:
        """Return all nodes; on a large machine, its partners in the baseline and some spread over the machine."""
        if len(self.room) <= 2 * SPREAD:
            return self.room
        found = self.neighbours.get(node, [])[:SPREAD]
        for several in (self.trusted, self.room):
            step = max(1, len(several) // SPREAD)
            offset = self.place.get(node, 0) % step
            found = [*found, *several[offset::step]]
        return list(dict.fromkeys(found))

    def _cost(self, node: str, other: str) -> tuple[object, ...]:
        """Return the sort key of a partner; lowest is best.

        It has a baseline, is trusted, has few partners yet, and is in a leaf that the node has not met.
        """
        trust = 0 if other in self.good else 1 if other in self.targets else 2
        seen = self.met_leaves.get(node, Counter())[self._leaf(other) or other]
        distance = (self.place[other] - self.place.get(node, 0)) % max(1, len(self.room))
        return (frozenset((node, other)) not in self.known, trust, self.count[other], seen, distance)

    def _take(self, node: str, other: str) -> None:
        ends = frozenset((node, other))
        first, second = sorted((node, other), key=natural)
        self.pairs.append(self.direction.get(ends, (first, second)))
        self.taken.add(ends)
        for one, partner in ((node, other), (other, node)):
            self.count[one] += 1
            self.met_leaves.setdefault(one, Counter())[self._leaf(partner) or partner] += 1

    def _leaf(self, node: str) -> str | None:
        return self.leaf_of.get(node)

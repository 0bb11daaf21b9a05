"""Links and groups that were at fault before: which pairs test them, and whether they pass now. Pure.

    link a - b           a | b
    link leaf1 - leaf2   nodes of leaf1 | nodes of leaf2        every pair from one side to the other
    group leaf1          nodes of leaf1 | all other nodes

It passes if every pair across was fine, in both directions, with two nodes on each side if there are that many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hpcq.nodelist import natural
from hpcq.verdict.acceptance.culprits import MEMBERS_MIN
from hpcq.verdict.acceptance.points import Pair
from hpcq.verdict.record import Thing, VerdictRecord


@dataclass(frozen=True, slots=True)
class Sides:
    """A link or group as two sets of nodes. `near`: the group's own nodes, or those of one end."""

    kind: Thing
    name: str
    near: frozenset[str]
    far: frozenset[str]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that share it."""
        return tuple(sorted(self.near if self.kind is Thing.GROUP else self.near | self.far, key=natural))

    def across(self, pair: Pair) -> bool:
        """Whether a pair crosses from one side to the other."""
        return (pair[0] in self.near and pair[1] in self.far) or (pair[0] in self.far and pair[1] in self.near)


def sides_of(record: VerdictRecord, everybody: Collection[str], leaf_of: Mapping[str, str]) -> Sides:
    """The two sides of a link or group whose name and nodes are in the ledger."""
    kind, name, nodes = record.kind, record.name, record.nodes
    if kind is Thing.GROUP:
        return Sides(kind, name, frozenset(nodes), frozenset(everybody) - set(nodes))
    first = name.partition(" - ")[0]
    near = frozenset(node for node in nodes if first in {node, leaf_of.get(node)})
    return Sides(kind, name, near, frozenset(nodes) - near)


def pairs_across(sides: Sides, targets: Collection[str], room: Collection[str], good: Collection[str]) -> list[Pair]:
    """The fewest pairs that can test it: first with nodes under test, then with nodes known to be good."""

    def order(node: str) -> tuple[bool, bool, tuple[tuple[int, int | str], ...]]:
        return node not in targets, node not in good, natural(node)

    near, far = (sorted((node for node in one if node in room), key=order)[:MEMBERS_MIN] for one in (sides.near, sides.far))
    if not near or not far or not set(targets) & set(sides.nodes) & {*near, *far}:
        return []
    count = max(len(near), len(far))
    return [(near[index % len(near)], far[index % len(far)]) for index in range(count)]


def passes(sides: Sides, words: Mapping[Pair, str]) -> bool:
    """Whether everything across it is as expected, and enough was measured."""
    across = {pair: word for pair, word in words.items() if sides.across(pair)}
    if set(across.values()) != {"fine"}:
        return False
    for senders, receivers in ((sides.near, sides.far), (sides.far, sides.near)):
        sent = [pair for pair in across if pair[0] in senders]
        for place, members in ((0, senders), (1, receivers)):
            if len({pair[place] for pair in sent}) < min(MEMBERS_MIN, len(members)):
                return False
    return True

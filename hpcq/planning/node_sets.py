"""Sets of nodes that run a test together: collective operations and other tests of more ranks than two.

candidates + tests with a node_count --node_sets--> [n01, n[02-08]], ...   one set per number of nodes

A set is written as a pair: its first node (rank 0) and a list of the others. A set of n nodes is the first n candidates
by name, so that the same nodes make the same series in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcq import nodelist
from hpcq.definition.model import NODE_COUNT, Campaign, Test
from hpcq.planning.pairs import Pair
from hpcq.planning.plan import NotPlanned
from hpcq.sorting import natural


def node_sets(
    tests: Sequence[Test], names: Sequence[str], nodes_at_most: int
) -> tuple[tuple[Test, ...], list[Pair], list[NotPlanned]]:
    """The tests with their number of nodes final, the sets that run them, and those that too few nodes leave out.

    names: the candidates. nodes_at_most: what a budget allows of them. A test without a number takes all of these.
    """
    order = sorted(names, key=natural)
    usable = min(len(order), nodes_at_most)
    final = tuple(
        replace(test, parameters={**test.parameters, NODE_COUNT: test.node_count or usable}) if test.of_nodes else test
        for test in tests
    )
    counts = sorted({test.node_count for test in final if test.of_nodes})
    sets = [set_of(order[:count]) for count in counts if 2 <= count <= usable]
    short = [
        NotPlanned(order[0] if order else "", f"{count - 1} other nodes", f"{NODE_COUNT} {count}: {usable} nodes may be used")
        for count in counts
        if count > usable or count < 2
    ]
    return final, sets, short


def set_of(nodes: Sequence[str]) -> Pair:
    """A set of nodes as a pair: the first one, and a list of the others."""
    return nodes[0], ",".join(nodelist.fold(nodes[1:]))


def only_sets(campaign: Campaign) -> bool:
    """Whether no test of the campaign is one of pairs."""
    return all(test.of_nodes for test in campaign.tests)

"""Sets of nodes that run a test together: collective operations and other tests of more ranks than two; and single nodes.

candidates + tests with a node_count --node_sets--> [n01, n[02-08]], ...   one set per number of nodes

A set is written as a pair: its first node (rank 0) and a list of the others. A set of n nodes is the first n candidates
by name, so that the same nodes make the same series in every run. A node that runs a test alone is a pair with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcq import nodelist
from hpcq.definition.model import Campaign, Test
from hpcq.definition.running import NODE_COUNT, node_count, of_nodes
from hpcq.planning.pairs import Pair
from hpcq.planning.plan import NotPlanned, Plan
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
        replace(test, parameters={**test.parameters, NODE_COUNT: node_count(test) or usable})
        if of_nodes(test) and NODE_COUNT in test.parameters
        else test
        for test in tests
    )
    counts = sorted({node_count(test) for test in final if of_nodes(test) and test.launch != "node"})
    alone = [(name, name) for name in order[:usable]] if any(test.launch == "node" for test in final) else []
    sets = alone + [set_of(order[:count]) for count in counts if 2 <= count <= usable]
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
    return all(of_nodes(test) for test in campaign.tests)


def without_sets(plan: Plan) -> Plan:
    """The plan with its pairs alone, and their tests."""
    tests = tuple(test for test in plan.tests if not of_nodes(test))
    return replace(plan, tests=tests, pairs=plan.pairs[: plan.sets_begin], node_set_count=0)

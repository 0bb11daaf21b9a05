"""Which tests of a plan start something, and which of them all nodes of a set run together, or one node alone."""

from __future__ import annotations

from collections.abc import Iterable

from hpcq.definition.model import Test

#: The option of kernels that all nodes of a set run together: how many nodes.
NODE_COUNT = "node_count"


def running(tests: Iterable[Test]) -> list[Test]:
    """The tests that start something; the others are sizes that one of these measures too."""
    return [test for test in tests if not test.measured_by]


def of_nodes(test: Test) -> bool:
    """Whether all nodes of a set run the test together, or one node alone, not a pair."""
    return test.launch == "node" or (test.needs_mpi and NODE_COUNT in test.parameters)


def node_count(test: Test) -> int:
    """How many nodes run the test together: one, a pair, or what its parameter says. 0: as many as there are."""
    if test.launch == "node":
        return 1
    return int(test.parameters[NODE_COUNT]) if of_nodes(test) else 2


def of_set(test: Test, count: int) -> bool:
    """Whether a set of so many nodes runs the test. MPI needs two nodes, whatever a parameter says."""
    return of_nodes(test) and node_count(test) == count and (count > 1 or test.launch == "node")

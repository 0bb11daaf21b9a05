"""Which tests of a plan start something, and where they run: on pairs, over links, on the nodes of a set together or alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpcq.definition.model import Test

#: The option of kernels that all nodes of a set run together: how many nodes.
NODE_COUNT = "node_count"
#: Where a test may run: between two nodes of a cluster, over a link, on the nodes of a set together or on each alone.
PAIRS, LINKS, NODES = PLACES = ("pairs", "links", "nodes")


def running(tests: Iterable[Test]) -> list[Test]:
    """The tests that start something; the others are sizes that one of these measures too."""
    return [test for test in tests if not test.measured_by]


def of_nodes(test: Test) -> bool:
    """Whether all nodes of a set run the test together, or one node alone, not a pair."""
    return test.launch == "node" or (test.needs_mpi and NODE_COUNT in test.parameters)


def launched(test: Test) -> bool:
    """Whether the MPI launcher starts a foreign program of two ranks: in a tournament once per pair."""
    return test.launch == "mpi" and not of_nodes(test)


def node_count(test: Test) -> int:
    """How many nodes run the test together: one, a pair, or what its parameter says. 0: as many as there are."""
    if test.launch == "node":
        return 1
    return int(test.parameters[NODE_COUNT]) if of_nodes(test) else 2


def of_set(test: Test, count: int) -> bool:
    """Whether a set of so many nodes runs the test. MPI needs two nodes, whatever a parameter says."""
    return of_nodes(test) and node_count(test) == count and (count > 1 or test.launch == "node")


def possible_places(test: Test) -> tuple[str, ...]:
    """Where the processes of a test can run; over links only if the campaign has some."""
    if of_nodes(test):
        return (NODES,)
    return (PAIRS,) if test.within_cluster else (PAIRS, LINKS)


def places_of(test: Test) -> tuple[str, ...]:
    """Where a test runs: where it says, else wherever it can."""
    return test.on or possible_places(test)


def runs_on(test: Test, place: str) -> bool:
    """Whether a test runs there."""
    return place in places_of(test)


def within_clusters(tests: Iterable[Test]) -> tuple[Test, ...]:
    """The tests that run within the clusters, numbered anew, because plans number their tests without gaps."""
    kept = [test for test in tests if runs_on(test, PAIRS) or runs_on(test, NODES)]
    numbers = {test.test_no: number for number, test in enumerate(kept, 1)} | {0: 0}
    return tuple(
        replace(
            test,
            test_no=numbers[test.test_no],
            measured_by=numbers[test.measured_by],
            on=tuple(place for place in places_of(test) if place != LINKS),
        )
        for test in kept
    )

"""What the points of an acceptance show: is everything slower, which pairs are bad, and what explains them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from hpcq.verdict.acceptance.culprits import JOBS_MIN, Culprits, behind, find_culprits, mostly_bad, would_settle
from hpcq.verdict.acceptance.points import (
    Pair,
    PairFinding,
    PairPoint,
    PairVerdict,
    by_test,
    findings,
    pooled,
    unsteady_tests,
)
from hpcq.verdict.acceptance.small_faults import SmallFaults, small_faults
from hpcq.verdict.acceptance.standing import Sides
from hpcq.verdict.acceptance.whole_cluster import cluster_shifts, relative_to_cluster


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of nodes apart from their results.

    missing: why a node has no result. leaf_of: node -> leaf switch. flaws: what the evidence says is wrong with a node.
    booted: nodes that booted between their measurement and now. standing: links and groups that were at fault before.
    sleep: by test, in how many of its results a CPU slept deeply, in words.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    leaf_of: Mapping[str, str] = field(default_factory=dict)
    flaws: Mapping[str, str] = field(default_factory=dict)
    booted: Mapping[str, str] = field(default_factory=dict)
    standing: Sequence[Sides] = ()
    sleep: Mapping[str, str] = field(default_factory=dict)


class Found:
    """All findings. Each step uses the steps before it."""

    def __init__(self, points: Sequence[PairPoint], known: Known) -> None:
        self.known = known
        self.leaf_of = known.leaf_of
        self.shifts = cluster_shifts(points)
        self.points = relative_to_cluster(points, self.shifts)
        self.unsteady = unsteady_tests(self.points)
        self.pairs: dict[Pair, PairFinding] = findings(self.points, self.unsteady)
        self.words = {pair: one.word for pair, one in self.pairs.items()}
        self.jobs = {pair: len({(one.run_no) for one in found.points}) for pair, found in self.pairs.items()}
        self.culprits: Culprits = find_culprits(self.words, self.leaf_of, self.jobs, self._alive())
        self._accuse_flawed()
        told = (*self.culprits.nodes, *self.culprits.leaves)
        steady = [one for one in self.points if one.test not in self.unsteady]
        self.small: SmallFaults = small_faults(steady, self.leaf_of, self._passing_faults(), told)
        self._take_over_small_faults()
        self.explained = self._passing_faults()
        self.would_settle = would_settle(self.culprits, self.words, self.leaf_of) - self.explained
        self.of_node: dict[str, list[PairPoint]] = {}
        for one in self.points:
            for end in one.pair:
                self.of_node.setdefault(end, []).append(one)

    def _alive(self) -> set[Pair]:
        """Pairs with values, if no bad pair has a valid result; else none: only fine pairs speak for their nodes."""
        bad = [one for one in self.pairs.values() if one.word is PairVerdict.BAD]
        if not all(any(point.lost for point in one.points) for one in bad):
            return set()
        return {one.pair for one in self.points if one.change is not None and self.words[one.pair] is not PairVerdict.BAD}

    def _accuse_flawed(self) -> None:
        """If exactly one node of an open pair is flawed by its own evidence, the pair is that node's fault."""
        for pair in sorted(self.culprits.open):
            guilty = [end for end in pair if end in self.known.flaws]
            jobs = sum(self.jobs[one] for one in self.culprits.open if guilty and guilty[0] in one)
            if len(guilty) == 1 and jobs >= JOBS_MIN:
                self.culprits.nodes.setdefault(guilty[0], set()).update(one for one in self.culprits.open if guilty[0] in one)
        for pairs in self.culprits.nodes.values():
            self.culprits.open.difference_update(pairs)

    def _take_over_small_faults(self) -> None:
        """Add what the means of many pairs show. They also explain pairs that were open until now."""
        for leaf, points in self.small.leaves.items():
            self.culprits.leaves.setdefault(leaf, set()).update(one.pair for one in points)
        for node, points in self.small.nodes.items():
            self.culprits.nodes.setdefault(node, set()).update(one.pair for one in points)
            self.culprits.open.difference_update({pair for pair in self.culprits.open if node in pair})

    def all_explained(self) -> Iterable[set[Pair]]:
        for things in (self.culprits.leaves, self.culprits.paths, self.culprits.nodes, self.culprits.links):
            yield from things.values()

    def _passing_faults(self) -> set[Pair]:
        """Every pair that passes something at fault. Its results speak against nothing else."""
        nodes, leaves = set(self.culprits.nodes), self.leaves_at_fault()
        found = {pair for pair in self.words if nodes & set(pair)}
        found |= {pair for pair in self.words if any(behind(pair, leaf, self.leaf_of) for leaf in leaves)}
        found |= {pair for pair in self.words if (min(pair), max(pair)) in self.culprits.links}
        return found.union(*self.culprits.doubtful.values())

    @property
    def accused(self) -> set[str]:
        return set(self.culprits.nodes)

    def leaves_at_fault(self) -> set[str]:
        return {*self.culprits.leaves, *(leaf for leaves in self.culprits.paths for leaf in leaves)}

    def against(self, node: str) -> list[PairPoint]:
        """The points that accuse a node."""
        small = list(self.small.nodes.get(node, ()))
        return small or [one for pair in sorted(self.culprits.nodes[node]) for one in self.pairs[pair].points]

    def mostly_bad(self, node: str) -> bool:
        """Whether most of its partners are bad in one role. Then it is not worth keeping the node for users."""
        return node in self.small.nodes or mostly_bad(node, self.words)


def ratio_of(points: Iterable[PairPoint]) -> float | None:
    """The speed of the slowest test as a share of what is expected; 0 if a test has no valid result."""
    several = list(points)
    means = [pooled(part) for part in by_test(one for one in several if not one.scale.is_loss).values()]
    known = [exp(one.mean) for one in means if one is not None]
    return 0.0 if any(one.lost for one in several) else min(known, default=None)

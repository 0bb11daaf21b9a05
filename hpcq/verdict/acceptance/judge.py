"""The verdicts on nodes, groups, links and the whole cluster after a maintenance, from the results of pairs. Pure.

    points of pairs -> is everything slower? -> one word per pair -> culprits, small faults -> one verdict per node

A node passes only if it was planned in both roles, measured, comparable with a reference, and within its bounds, and if
every result against it is explained by other things. Everything else is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import exp

from hpcq.verdict.acceptance.found import Found, Known, ratio_of
from hpcq.verdict.acceptance.nodes import NodeVerdicts
from hpcq.verdict.acceptance.points import (
    Pair,
    PairPoint,
    PairVerdict,
    in_words,
    pooled,
)
from hpcq.verdict.acceptance.standing import Sides, passes
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict


@dataclass(frozen=True, slots=True)
class Acceptance:
    """All verdicts. suspects: nodes to run with good partners before anybody is told.

    explained: the bad pairs of each culprit. open: bad pairs that nothing explains yet. unsettled: pairs to run once
    more. drainable: nodes at fault with most of their partners in at least one role; others have fine pairs.
    """

    nodes: tuple[VerdictRecord, ...]
    links: tuple[VerdictRecord, ...] = ()
    groups: tuple[VerdictRecord, ...] = ()
    clusters: tuple[VerdictRecord, ...] = ()
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    explained: tuple[tuple[Pair, ...], ...] = ()
    open: tuple[Pair, ...] = ()
    unsettled: tuple[Pair, ...] = ()
    drainable: frozenset[str] = frozenset()


def judge(targets: Sequence[str], points: Sequence[PairPoint], known: Known | None = None, cluster: str = "") -> Acceptance:
    """Judge the targets and the links, groups and cluster that they share."""
    return _Judge(Found(points, known or Known()), cluster).acceptance(targets)


class _Judge:
    """Makes verdicts from the findings."""

    def __init__(self, found: Found, cluster: str) -> None:
        self.found = found
        self.cluster = cluster
        self.nodes = NodeVerdicts(found)

    def acceptance(self, targets: Sequence[str]) -> Acceptance:
        """All verdicts."""
        nodes = tuple(self.nodes.of(node) for node in targets)
        now = (*self._links(), *self._leaves())
        at_fault = {(one.kind, one.name) for one in now}
        again = [
            one for one in self.found.known.standing if (one.kind, one.name) not in at_fault and passes(one, self.found.words)
        ]
        shared = (*now, *(self._settled(one) for one in again))
        bad = self.found.culprits.suspected(self.found.leaf_of)
        thin = {one.name for one in nodes if one.verdict is Verdict.INCONCLUSIVE and self.nodes.thin(one.name)}
        fine = {node for pair, word in self.found.words.items() if word is PairVerdict.FINE for node in pair}
        behind_leaf = {node for node, leaf in self.found.leaf_of.items() if leaf in self.found.leaves_at_fault()}
        good = fine - self.found.accused - behind_leaf - bad - thin - set(self.found.known.flaws)
        return Acceptance(
            nodes,
            tuple(one for one in shared if one.kind is Thing.LINK),
            tuple(one for one in shared if one.kind is Thing.GROUP),
            tuple(self._cluster()),
            tuple(sorted(bad | thin)),
            tuple(sorted(good)),
            tuple(tuple(sorted(pairs)) for pairs in self.found.all_explained()),
            tuple(sorted(self.found.culprits.open)),
            tuple(sorted(self._unsettled(nodes))),
            frozenset(node for node in self.found.accused if self.found.mostly_bad(node)),
        )

    # -- what nodes share -----------------------------------------------------------------------------------------------

    def _links(self) -> Iterable[VerdictRecord]:
        for ends, pairs in sorted(self.found.culprits.links.items()):
            jobs = sum(self.found.jobs[pair] for pair in pairs)
            ways = "both directions" if len(pairs) > 1 else " > ".join(next(iter(pairs)))
            why = f"bad in {jobs} jobs while both ends are fine with others ({ways})"
            yield self._thing(Thing.LINK, " - ".join(ends), why, pairs, ends)
        for leaves, pairs in sorted(self.found.culprits.paths.items()):
            why = "every pair between them is bad; a third leaf with good nodes would tell whose uplink it is"
            members = tuple(sorted(node for node, leaf in self.found.leaf_of.items() if leaf in leaves))
            yield self._thing(Thing.LINK, " - ".join(leaves), why, pairs, members)

    def _leaves(self) -> Iterable[VerdictRecord]:
        for name, pairs in sorted(self.found.culprits.leaves.items()):
            members = tuple(sorted(node for node, leaf in self.found.leaf_of.items() if leaf == name))
            small = self.found.small.leaves.get(name)
            why = "bad to every other group, and its nodes are fine with each other"
            if small is None:
                yield self._thing(Thing.GROUP, name, why, pairs, members)
                continue
            mean = pooled(small)
            failure = mean is not None and mean.mean <= -mean.scale.failure
            verdict = Verdict.FAILED if failure else Verdict.DEGRADED
            yield VerdictRecord(Thing.GROUP, name, verdict, f"{why}: {in_words(small)}", members, ratio_of(small))

    def _thing(self, kind: Thing, name: str, why: str, pairs: Collection[Pair], members: Sequence[str]) -> VerdictRecord:
        against = [one for pair in sorted(pairs) for one in self.found.pairs[pair].points]
        failure = any(self.found.pairs[pair].failure for pair in pairs)
        verdict = Verdict.FAILED if failure else Verdict.DEGRADED
        return VerdictRecord(kind, name, verdict, f"{why}: {in_words(against)}", tuple(members), ratio_of(against))

    def _settled(self, sides: Sides) -> VerdictRecord:
        across = [one for one in self.found.points if sides.across(one.pair)]
        why = "as expected again, in both directions"
        return VerdictRecord(sides.kind, sides.name, Verdict.PASS, why, sides.nodes, ratio_of(across))

    def _cluster(self) -> Iterable[VerdictRecord]:
        if not self.found.shifts:
            return
        sure = [one for one in self.found.shifts if one.confirmed]
        worst = Verdict.FAILED if any(one.failure for one in sure) else Verdict.DEGRADED
        said = "; ".join(one.said for one in self.found.shifts)
        why = f"everything is worse, and no single node is the reason: {said}"
        if not sure:
            worst, why = Verdict.INCONCLUSIVE, f"{why}; seen in one run only: measure again"
        ratio = min((exp(one.change) for one in self.found.shifts if one.change is not None and not one.is_loss), default=None)
        yield VerdictRecord(Thing.CLUSTER, self.cluster, worst, why, (), ratio)

    # -- what to run again ----------------------------------------------------------------------------------------------

    def _unsettled(self, nodes: Sequence[VerdictRecord]) -> set[Pair]:
        """Pairs that one more run may settle: all if a slower cluster is unconfirmed, else those of unsure nodes."""
        if self.found.shifts:
            return set() if all(one.confirmed for one in self.found.shifts) else set(self.found.words)
        open_nodes = {one.name for one in nodes if one.verdict is Verdict.INCONCLUSIVE and self.nodes.measured_enough(one.name)}
        unsure = {pair for pair in self.found.words if open_nodes & set(pair) and pair not in self.found.explained}
        return unsure | self.found.would_settle


def run_counts(points: Iterable[PairPoint]) -> Counter[Pair]:
    """The number of runs that each pair was in."""
    return Counter(pair for pair, _ in {(one.pair, one.run_no) for one in points})

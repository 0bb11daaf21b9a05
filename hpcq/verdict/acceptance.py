"""What may be said of nodes, groups and links after a maintenance, from the results of pairs. Pure.

    results of pairs -> one word a pair (bad in every run, fine, unclear) -> culprits.py -> verdicts

FAILED below FAILED_RATIO of what is expected or beyond a gate, DEGRADED below it, INCONCLUSIVE where the results do not
tell, NOT COVERED where there is none. A pair that was slow once and fine when run again is noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hpcq.localisation import PairTable, blame
from hpcq.verdict.culprits import Culprits, Pair, PairVerdict, behind, find_culprits
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.shared import Sides, passes
from hpcq.verdict.words import Verdict

#: Slower than this share of what is expected is a failure, not only a degradation.
FAILED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class PairResult:
    """One test of one pair in one run. ratios: of its repetitions, as shares of what is expected, below 1 is worse.

    slow: judged worse than before or than its peers. gate: the gate that it broke. sure: enough values to tell.
    leans: where they do not tell, their median would have been slow; one wild value of five is enough for that.
    failed_ratio: below this it is a failure, not only a degradation. is_loss: the ratios are of packets that arrived.
    """

    client: str
    server: str
    test: str
    run_no: int
    ratios: tuple[float, ...]
    slow: bool
    sure: bool
    gate: str | None = None
    failed_ratio: float = FAILED_RATIO
    is_loss: bool = False
    leans: bool = False

    @property
    def bad(self) -> bool:
        """Whether it speaks against somebody."""
        return self.slow or self.gate is not None

    @property
    def pair(self) -> Pair:
        """Client and server."""
        return self.client, self.server

    @property
    def failure(self) -> bool:
        """Whether it is bad enough for FAILED."""
        return self.gate is not None or (self.slow and bool(self.ratios) and median(self.ratios) < self.failed_ratio)

    @property
    def words(self) -> str:
        """How bad it is: `42 % below what is expected`, `3.1 % of the packets lost`."""
        below = 100 * (1 - median(self.ratios)) if self.ratios else 100.0
        if self.is_loss:
            return f"{below:.1f} % of the packets lost"
        return f"{below:.0f} % below what is expected" if below >= 10 else f"{below:.1f} % below what is expected"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Everything that may be said. suspects: nodes that should be run against good partners before anybody is told.

    explained: the slow pairs of each culprit; open: those that nobody explains yet.
    """

    nodes: tuple[VerdictRecord, ...]
    links: tuple[VerdictRecord, ...] = ()
    groups: tuple[VerdictRecord, ...] = ()
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = field(default=())
    explained: tuple[tuple[Pair, ...], ...] = ()
    open: tuple[Pair, ...] = ()


def judge(
    targets: Sequence[str],
    results: Sequence[PairResult],
    missing: Mapping[str, str],
    groups: Mapping[str, str],
    standing: Sequence[Sides] = (),
) -> Acceptance:
    """Judge the targets. missing: why a node has no result. groups: node -> leaf switch.

    standing: links and groups that were at fault before; those that are as expected now pass.
    """
    pairs = _words(results)
    repeated = ran_twice(results)
    found = find_culprits(pairs, groups, _named(results, groups), repeated)
    now = (*_links(found, results, groups), *(_leaf(name, bad, results, groups) for name, bad in sorted(found.leaves.items())))
    at_fault = {(one.kind, one.name) for one in now}
    again = [one for one in standing if (one.kind, one.name) not in at_fault and passes(one, pairs)]
    shared = (*now, *(_settled(one, results) for one in again))
    links, leaves = (tuple(one for one in shared if one.kind is kind) for kind in (Thing.LINK, Thing.GROUP))
    of_node: dict[str, list[PairResult]] = {}
    for one in results:
        for end in one.pair:
            of_node.setdefault(end, []).append(one)
    judged = tuple(_node(node, pairs, found, of_node.get(node, []), missing, groups) for node in targets)
    fine_nodes = {node for pair, word in pairs.items() if word is PairVerdict.FINE for node in pair}
    suspects = {end for pair in found.open for end in pair}
    good = fine_nodes - found.nodes.keys() - {node for node in groups if groups[node] in found.leaves}
    sorted_good = tuple(sorted(good - suspects))
    explained = tuple(
        tuple(sorted(pairs)) for things in (found.leaves, found.paths, found.nodes, found.links) for pairs in things.values()
    )
    return Acceptance(judged, links, leaves, tuple(sorted(suspects)), sorted_good, explained, tuple(sorted(found.open)))


def ran_twice(results: Sequence[PairResult]) -> set[Pair]:
    """The pairs that were in more than one run."""
    runs: dict[Pair, set[int]] = {}
    for one in results:
        runs.setdefault(one.pair, set()).add(one.run_no)
    return {pair for pair, numbers in runs.items() if len(numbers) > 1}


def _words(results: Sequence[PairResult]) -> dict[Pair, PairVerdict]:
    """bad: some test was bad in a run and no other run speaks for the pair; fine: none was; unclear: the values do not tell."""
    by_pair: dict[Pair, dict[str, list[PairResult]]] = {}
    for one in results:
        by_pair.setdefault(one.pair, {}).setdefault(one.test, []).append(one)
    words = {}
    for pair, tests in by_pair.items():
        if any(any(one.bad for one in runs) and all(one.bad or one.leans for one in runs) for runs in tests.values()):
            words[pair] = PairVerdict.BAD
        elif all(any(one.sure and not one.bad for one in runs) for runs in tests.values()):
            words[pair] = PairVerdict.FINE
        else:
            words[pair] = PairVerdict.UNCLEAR
    return words


def _named(results: Sequence[PairResult], groups: Mapping[str, str]) -> set[str]:
    """Nodes that blame() names in some test: it sees a little everywhere where the words of single pairs see nothing."""
    nodes: set[str] = set()
    for test in sorted({one.test for one in results}):
        rows = [(one.run_no, one.client, one.server, value) for one in results if one.test == test for value in one.ratios]
        found = blame(PairTable.from_rows([row for row in rows if row[3] > 0], groups), crossing_may_cost=False)
        nodes.update(culprit.names[0] for culprit in found.nodes)
    return nodes


def _links(found: Culprits, results: Sequence[PairResult], groups: Mapping[str, str]) -> tuple[VerdictRecord, ...]:
    links = []
    for ends, pairs in sorted(found.links.items()):
        runs = {one.run_no for one in results if one.pair in pairs}
        ways = "both directions" if len(pairs) > 1 else " > ".join(next(iter(pairs)))
        why = f"slow in each of {len(runs)} runs while both ends are fine with others ({ways})"
        links.append(_thing(Thing.LINK, " - ".join(ends), why, pairs, results, ends))
    for leaves, pairs in sorted(found.paths.items()):
        why = "every pair between them is slow; a third leaf with good nodes would tell whose uplink it is"
        members = tuple(sorted(node for node, leaf in groups.items() if leaf in leaves))
        links.append(_thing(Thing.LINK, " - ".join(leaves), why, pairs, results, members))
    return tuple(links)


def _leaf(name: str, pairs: set[Pair], results: Sequence[PairResult], groups: Mapping[str, str]) -> VerdictRecord:
    members = tuple(sorted(node for node, leaf in groups.items() if leaf == name))
    return _thing(Thing.GROUP, name, "slow to every other group", pairs, results, members)


def _settled(sides: Sides, results: Sequence[PairResult]) -> VerdictRecord:
    ratio = _middle([one for one in results if sides.across(one.pair)])
    return VerdictRecord(sides.kind, sides.name, Verdict.PASS, "as expected again, in both directions", sides.nodes, ratio)


def _thing(  # noqa: PLR0917 - a verdict's parts
    kind: Thing, name: str, why: str, pairs: Collection[Pair], results: Sequence[PairResult], members: Sequence[str]
) -> VerdictRecord:
    verdict, ratio, words = _worst(results, pairs)
    return VerdictRecord(kind, name, verdict, f"{why}: {words}", tuple(members), ratio)


def _node(  # noqa: PLR0917 - each is another part of the evidence
    node: str,
    pairs: Mapping[Pair, PairVerdict],
    found: Culprits,
    results: Sequence[PairResult],
    missing: Mapping[str, str],
    groups: Mapping[str, str],
) -> VerdictRecord:
    words = {one.pair: pairs[one.pair] for one in results}
    if not words:
        return _of_node(node, Verdict.NOT_COVERED, missing.get(node, "nothing was measured with it"))
    if node in found.nodes:
        verdict, ratio, said = _worst(results, found.nodes[node])
        return _of_node(node, verdict, f"slow with {_others(node, found.nodes[node])}: {said}", ratio)
    mine = {pair for pair in found.open if node in pair}
    if mine:
        why = f"slow with {_others(node, mine)}, and it is not clear whose fault it is"
        return _of_node(node, Verdict.INCONCLUSIVE, why)
    leaf = next((name for name in _leaves_at_fault(found) if groups.get(node) == name), None)
    if leaf is not None and any(behind(pair, leaf, groups) and word is PairVerdict.BAD for pair, word in words.items()):
        return _of_node(node, Verdict.INCONCLUSIVE, f"behind {leaf}, which is slow: to be judged when that is repaired")
    fine = [pair for pair, word in words.items() if word is PairVerdict.FINE]
    if not fine:
        return _of_node(node, Verdict.INCONCLUSIVE, "no clean result: its partners are slow, or values are too few")
    why = f"as expected with {_others(node, fine)}"
    links = [" - ".join(ends) for ends in found.links if node in ends]
    return _of_node(node, Verdict.PASS, f"{why}; see link {', '.join(links)}" if links else why, _middle(results))


def _of_node(node: str, verdict: Verdict, reason: str, ratio: float | None = None) -> VerdictRecord:
    return VerdictRecord(Thing.NODE, node, verdict, reason, (node,), ratio)


def _leaves_at_fault(found: Culprits) -> list[str]:
    return [*found.leaves, *(leaf for leaves in found.paths for leaf in leaves)]


def _others(node: str, pairs: Collection[Pair]) -> str:
    return ", ".join(sorted({end for pair in pairs for end in pair} - {node}))


def _worst(results: Sequence[PairResult], pairs: Collection[Pair]) -> tuple[Verdict, float | None, str]:
    """The verdict on what these pairs have in common, the lowest median ratio, and how bad that is in words.

    Speed is named rather than lost packets where it alone is as bad: what is too slow loses packets, too.
    """
    bad = [one for one in results if one.pair in pairs and one.bad]
    verdict = Verdict.FAILED if any(one.failure for one in bad) else Verdict.DEGRADED
    counted = [one for one in bad if one.ratios and (one.failure or verdict is Verdict.DEGRADED)]
    by_speed = [one for one in counted if not one.is_loss]
    worst = min(by_speed or counted, key=lambda one: median(one.ratios), default=None)
    gate = next((one.gate for one in bad if one.gate), None)
    said = f"{worst.words} in {worst.test.partition(' ')[0]}" if worst else "nothing came through"
    return verdict, median(worst.ratios) if worst else None, f"{said}; {gate}" if gate else said


def _middle(results: Sequence[PairResult]) -> float | None:
    values = [median(one.ratios) for one in results if one.ratios]
    return median(values) if values else None

"""What may be said of nodes, groups and links after a maintenance, from the results of pairs. Pure.

    a pair runs at the speed of its slower end, so one slow pair accuses nobody:
    node    slow as client or as server with every partner (two at least), partners being fine elsewhere; or named by blame()
    link    one pair slow every time it was run, both ends fine elsewhere
    group   named by blame()
    a pair that was slow once and fine when run again is noise

FAILED below FAILED_RATIO of what is expected or beyond a gate, DEGRADED below it, INCONCLUSIVE where the results do not
tell, NOT COVERED where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hpcq.localisation import PairTable, blame
from hpcq.verdict.gates import Verdict

#: Slower than this share of what is expected is a failure, not only a degradation.
FAILED_RATIO = 0.9
#: Partners that must have been slow before a node is accused by them alone.
PARTNERS_MIN = 2


@dataclass(frozen=True, slots=True)
class PairResult:
    """One test of one pair in one run. ratios: of its repetitions, as shares of what is expected, below 1 is worse.

    slow: judged worse than before or than its peers. gate: the gate that it broke. sure: enough values to tell.
    """

    client: str
    server: str
    test: str
    run_no: int
    ratios: tuple[float, ...]
    slow: bool
    sure: bool
    gate: str | None = None

    @property
    def bad(self) -> bool:
        """Whether it speaks against somebody."""
        return self.slow or self.gate is not None


@dataclass(frozen=True, slots=True)
class Judged:
    """A node, link (`a - b`) or group with its verdict; ratio: how fast it was as a share of what is expected."""

    kind: str
    name: str
    verdict: Verdict
    reason: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Everything that may be said. suspects: nodes that should be run against good partners before anybody is told."""

    nodes: tuple[Judged, ...]
    links: tuple[Judged, ...] = ()
    groups: tuple[Judged, ...] = ()
    suspects: tuple[str, ...] = ()
    good: tuple[str, ...] = field(default=())


def judge(
    targets: Sequence[str], results: Sequence[PairResult], missing: Mapping[str, str], groups: Mapping[str, str]
) -> Acceptance:
    """Judge the targets. missing: why a node has no result. groups: node -> leaf switch."""
    pairs = _latest_word(results)
    bad = {pair for pair, word in pairs.items() if word == "bad"}
    fine_nodes = {node for pair, word in pairs.items() if word == "fine" for node in pair}
    named, named_groups = _blamed(results, bad, groups)
    culprits = {node for node in {end for pair in bad for end in pair} if _accused(node, pairs, fine_nodes)} | named
    culprits = {node for node in culprits if not _alone_explains(node, pairs, culprits)}
    links = _links(pairs, culprits, fine_nodes, results)
    judged = tuple(_node(node, pairs, culprits, links, results, missing) for node in targets)
    suspects = {end for pair in bad for end in pair if not culprits.issuperset(pair)}
    group_verdicts = tuple(
        Judged("group", name, Verdict.FAILED if ratio < FAILED_RATIO else Verdict.DEGRADED, "slow to every other group", ratio)
        for name, ratio in sorted(named_groups.items())
    )
    return Acceptance(judged, links, group_verdicts, tuple(sorted(suspects)), tuple(sorted(fine_nodes - culprits)))


def _latest_word(results: Sequence[PairResult]) -> dict[tuple[str, str], str]:
    """bad: some test was bad in every run of the pair; fine: none was; unclear: too few values to tell."""
    by_pair: dict[tuple[str, str], dict[str, list[PairResult]]] = {}
    for one in results:
        by_pair.setdefault((one.client, one.server), {}).setdefault(one.test, []).append(one)
    words = {}
    for pair, tests in by_pair.items():
        if any(all(one.bad for one in runs) for runs in tests.values()):
            words[pair] = "bad"
        elif all(any(one.sure for one in runs) for runs in tests.values()):
            words[pair] = "fine"
        else:
            words[pair] = "unclear"
    return words


def _accused(node: str, pairs: Mapping[tuple[str, str], str], fine_nodes: set[str]) -> bool:
    """Slow in one role (sending or receiving) with every partner, two at least, one of whom is fine with somebody else."""
    for role in (0, 1):
        words = {pair[1 - role]: word for pair, word in pairs.items() if pair[role] == node}
        if set(words.values()) == {"bad"} and len(words) >= PARTNERS_MIN and fine_nodes.intersection(words):
            return True
    return False


def _alone_explains(node: str, pairs: Mapping[tuple[str, str], str], culprits: set[str]) -> bool:
    """Whether all that speaks against a node are pairs with other culprits."""
    against = [pair for pair, word in pairs.items() if node in pair and word == "bad"]
    fine = [pair for pair, word in pairs.items() if node in pair and word == "fine"]
    return bool(fine) and all((culprits - {node}).intersection(pair) for pair in against)


def _blamed(
    results: Sequence[PairResult], bad: set[tuple[str, str]], groups: Mapping[str, str]
) -> tuple[set[str], dict[str, float]]:
    """Nodes and groups that blame() names in some test, as far as bad pairs bear it out."""
    nodes: set[str] = set()
    named_groups: dict[str, float] = {}
    for test in sorted({one.test for one in results}):
        rows = [(one.run_no, one.client, one.server, value) for one in results if one.test == test for value in one.ratios]
        found = blame(PairTable.from_rows([row for row in rows if row[3] > 0], groups))
        for culprit in found.nodes:
            own = [pair for pair in bad if culprit.names[0] in pair]
            if len({end for pair in own for end in pair}) > PARTNERS_MIN:
                nodes.add(culprit.names[0])
        for culprit in found.groups:
            name = culprit.names[0]
            if any((groups.get(a) == name) != (groups.get(b) == name) for a, b in bad):
                named_groups[name] = min(culprit.speed_ratio, named_groups.get(name, 1.0))
    return nodes, named_groups


def _links(
    pairs: Mapping[tuple[str, str], str], culprits: set[str], fine_nodes: set[str], results: Sequence[PairResult]
) -> tuple[Judged, ...]:
    found = []
    for pair, word in sorted(pairs.items()):
        runs = {one.run_no for one in results if (one.client, one.server) == pair}
        if word == "bad" and not culprits.intersection(pair) and fine_nodes.issuperset(pair) and len(runs) > 1:
            ratio, gate = _worst(results, lambda one, pair=pair: (one.client, one.server) == pair)
            verdict = Verdict.FAILED if gate or ratio < FAILED_RATIO else Verdict.DEGRADED
            reason = f"slow in each of {len(runs)} runs while both ends are fine with others"
            found.append(Judged("link", " - ".join(pair), verdict, reason, ratio))
    return tuple(found)


def _node(  # noqa: PLR0917 - each is another part of the evidence
    node: str,
    pairs: Mapping[tuple[str, str], str],
    culprits: set[str],
    links: Sequence[Judged],
    results: Sequence[PairResult],
    missing: Mapping[str, str],
) -> Judged:
    words = {pair: word for pair, word in pairs.items() if node in pair}
    slow_with = sorted({end for pair, word in words.items() if word == "bad" for end in pair} - {node})
    if not words:
        return Judged("node", node, Verdict.NOT_COVERED, missing.get(node, "nothing was measured with it"))
    if node in culprits:
        ratio, gate = _worst(results, lambda one: node in {one.client, one.server} and one.bad)
        verdict = Verdict.FAILED if gate or ratio < FAILED_RATIO else Verdict.DEGRADED
        slow = f"slow with {', '.join(slow_with)}: {100 * (1 - ratio):.0f} % below what is expected"
        return Judged("node", node, verdict, f"{slow}; {gate}" if gate else slow, ratio)
    named_links = {link.name for link in links}
    open_pairs = [
        pair
        for pair, word in words.items()
        if word == "bad" and not culprits & set(pair) and " - ".join(pair) not in named_links
    ]
    if open_pairs:
        others = ", ".join(sorted({end for pair in open_pairs for end in pair} - {node}))
        return Judged("node", node, Verdict.INCONCLUSIVE, f"slow with {others}, and it is not clear whose fault it is")
    fine = [pair for pair, word in words.items() if word == "fine"]
    if not fine:
        return Judged("node", node, Verdict.INCONCLUSIVE, "no clean result: its partners are slow, or values are too few")
    names = ", ".join(sorted({end for pair in fine for end in pair} - {node}))
    return Judged("node", node, Verdict.PASS, f"as expected with {names}", _middle(results, node))


def _worst(results: Sequence[PairResult], meant: object) -> tuple[float, str | None]:
    """Lowest median ratio among the chosen results, and a gate that one of them broke."""
    chosen = [one for one in results if meant(one)]  # type: ignore[operator]
    ratio = min((median(one.ratios) for one in chosen if one.ratios), default=0.0)
    return ratio, next((one.gate for one in chosen if one.gate), None)


def _middle(results: Sequence[PairResult], node: str) -> float | None:
    values = [median(one.ratios) for one in results if one.ratios and node in {one.client, one.server}]
    return median(values) if values else None

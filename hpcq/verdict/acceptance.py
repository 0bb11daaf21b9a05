"""What an acceptance says: records for the ledger and for people, made of the verdict of its run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log, sqrt
from statistics import median, stdev

from hpcq.judge.acceptance import NO_REFERENCE, PACKETS, RunVerdict, Said, Told
from hpcq.nodelist import natural
from hpcq.units import count_of
from hpcq.verdict.node_sets import PairsOfSet, set_name
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

# ----------------------------------------------------------------------------------------------------------------------
# The word on a pair over all of its runs. Pure.

#: A job that lost this share of its repetitions brought nothing.
LOST_SHARE = 0.5

Pair = tuple[str, str]


class PairVerdict(StrEnum):
    """The word on a pair (client, server) over all its runs."""

    BAD = "bad"
    FINE = "fine"
    UNCLEAR = "unclear"
    INTERMITTENT = "intermittent"


# ----------------------------------------------------------------------------------------------------------------------
# Find what explains the bad pairs: leaves, nodes, links. Pairs that nothing explains stay open. Pure.
#
# A pair runs at the speed of the slowest thing on its way:
#
#     leaf    all pairs between it and other leaves are bad, in at least one direction. Two of its nodes and two others
#             took part, pairs among the others are fine, and so are pairs inside the leaf (or three nodes are bad inside)
#     node    an end that two or more bad pairs share, whose partners are fine with others. At least three jobs speak
#             against it, and its pairs were bad in two runs, or most of them are bad
#     link    what is left, between two ends that are both fine with others, bad in two runs and in at least three jobs
#     path    the same between two leaves when there are no other leaves to tell whose uplink it is
#
# The widest explanation comes first, and the pairs that it explains accuse nothing else. One fine pair does not clear a
# node of its bad ones. If two nodes explain the same pairs equally well, the pairs stay open. So do the pairs across the
# edge of a leaf if no pair inside the leaf could be judged: then nothing tells the leaf from its nodes.

#: Partners that must have been bad before a node is accused, and jobs before anything is.
PARTNERS_MIN = 2
JOBS_MIN = 3
#: Nodes of a leaf, and nodes outside it, that must have been bad across its edge.
MEMBERS_MIN = 2
#: With this many bad nodes inside, the leaf is at fault rather than each of them.
MEMBERS_WHOLE_MIN = 3


@dataclass(frozen=True, slots=True)
class Culprits:
    """leaves, paths, nodes, links: by name, the bad pairs that it explains. open: bad pairs that nothing explains yet.

    doubtful: by leaf, those of the open pairs that are its fault or that of its nodes.
    """

    leaves: dict[str, set[Pair]] = field(default_factory=dict)
    paths: dict[Pair, set[Pair]] = field(default_factory=dict)
    nodes: dict[str, set[Pair]] = field(default_factory=dict)
    links: dict[Pair, set[Pair]] = field(default_factory=dict)
    open: set[Pair] = field(default_factory=set)
    doubtful: dict[str, set[Pair]] = field(default_factory=dict)


def find_culprits(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str], jobs: Mapping[Pair, int], alive: Collection[Pair] = ()
) -> Culprits:
    """Explain the bad pairs. jobs: how many jobs (runs) speak against each bad pair.

    alive: if all bad pairs have no valid result, the pairs that have values. Then any value speaks for
    the nodes of its pair.
    """
    left = _bad(pairs)
    fine = {pair for pair, word in pairs.items() if word is PairVerdict.FINE}
    leaves, paths, doubtful = _leaves(pairs, leaf_of)
    for explained in (*leaves.values(), *paths.values()):
        left -= explained
    doubtful = {leaf: explained & left for leaf, explained in doubtful.items() if explained & left}
    aside = {pair for explained in doubtful.values() for pair in explained}
    left -= aside
    nodes = _nodes(pairs, left, fine | set(alive) - left, jobs, leaf_of)
    left = {pair for pair in left if not nodes.keys() & set(pair)}
    by_ends: dict[Pair, set[Pair]] = {}
    for pair in sorted(left):
        by_ends.setdefault((min(pair), max(pair)), set()).add(pair)
    links = {
        ends: explained
        for ends, explained in by_ends.items()
        if all(_ends_fine(pair, fine) for pair in explained)
        and max(jobs.get(pair, 0) for pair in explained) > 1
        and sum(jobs.get(pair, 0) for pair in explained) >= JOBS_MIN
    }
    left -= {pair for explained in links.values() for pair in explained}
    left |= {pair for pair in aside if not nodes.keys() & set(pair)}
    return Culprits(leaves, paths, nodes, links, left, doubtful)


def _ends_fine(pair: Pair, fine: Collection[Pair]) -> bool:
    """Whether its client sends well to another node, and its server receives well from another node."""
    client, server = pair
    return any(one == client and other != server for one, other in fine) and any(
        other == server and one != client for one, other in fine
    )


def behind(pair: Pair, leaf: str, leaf_of: Mapping[str, str]) -> bool:
    """Whether a pair crosses the edge of this leaf."""
    return (leaf_of.get(pair[0]) == leaf) != (leaf_of.get(pair[1]) == leaf)


class _ByLeaves:
    """The pairs of every two leaves (of the client, of the server), so that each is read only once."""

    def __init__(self, pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]) -> None:
        self.words: dict[tuple[str, str], dict[Pair, PairVerdict]] = {}
        for pair, word in pairs.items():
            if pair[0] in leaf_of and pair[1] in leaf_of:
                self.words.setdefault((leaf_of[pair[0]], leaf_of[pair[1]]), {})[pair] = word
        self.fine = {ends for ends, words in self.words.items() if ends[0] != ends[1] and PairVerdict.FINE in words.values()}

    def crossing(self, leaf: str, inside: int) -> dict[Pair, PairVerdict]:
        """Pairs of which only the client (inside = 0) or only the server (1) is in this leaf."""
        found: dict[Pair, PairVerdict] = {}
        for ends, words in self.words.items():
            if ends[inside] == leaf != ends[1 - inside]:
                found |= words
        return found

    def fine_elsewhere(self, leaf: str) -> bool:
        """Whether some pair of two other leaves is fine; if not, the fault may lie between all leaves."""
        return any(leaf not in ends for ends in self.fine)

    def not_its_nodes(self, leaf: str) -> bool | None:
        """Whether the leaf is at fault rather than each of its nodes. None: no pair inside it could be judged."""
        inside = self.words.get((leaf, leaf), {})
        slow = {node for pair, word in inside.items() if word is PairVerdict.BAD for node in pair}
        if PairVerdict.FINE in inside.values() or len(slow) >= MEMBERS_WHOLE_MIN:
            return True
        return False if slow else None


def _leaves(
    pairs: Mapping[Pair, PairVerdict], leaf_of: Mapping[str, str]
) -> tuple[dict[str, set[Pair]], dict[Pair, set[Pair]], dict[str, set[Pair]]]:
    """Leaves that are slow to all others, or from all others; and slow paths between two leaves that are not slow.

    Third, by leaf, the bad pairs of leaves and paths of which nobody knows whether their nodes are fine with each other.
    """
    known = _ByLeaves(pairs, leaf_of)
    found: dict[str, set[Pair]] = {}
    doubtful: dict[str, set[Pair]] = {}
    for leaf in sorted({leaf for ends in known.words for leaf in ends}):
        for inside in (0, 1):
            crossing = known.crossing(leaf, inside)
            if not _all_slow(crossing, inside) or not known.fine_elsewhere(leaf):
                continue
            sure = known.not_its_nodes(leaf)
            if sure:
                found.setdefault(leaf, set()).update(_bad(crossing))
            elif sure is None:
                doubtful.setdefault(leaf, set()).update(_bad(crossing))
    paths: dict[Pair, set[Pair]] = {}
    for ends, words in sorted(known.words.items()):
        one, other = min(ends), max(ends)
        free = one != other and not found.keys() & {one, other}
        if free and _all_slow(words, 0):
            sure_of_both = known.not_its_nodes(one), known.not_its_nodes(other)
            if all(sure_of_both):
                paths.setdefault((one, other), set()).update(_bad(words))
            elif False not in sure_of_both and not doubtful.keys() & {one, other}:
                for leaf in ends:
                    doubtful.setdefault(leaf, set()).update(_bad(words))
    return found, paths, doubtful


def _bad(words: Mapping[Pair, PairVerdict]) -> set[Pair]:
    return {pair for pair, word in words.items() if word is PairVerdict.BAD}


def _all_slow(crossing: Mapping[Pair, PairVerdict], inside: int) -> bool:
    slow = _bad(crossing)
    ends = ({pair[inside] for pair in slow}, {pair[1 - inside] for pair in slow})
    return PairVerdict.FINE not in crossing.values() and all(len(one) >= MEMBERS_MIN for one in ends)


def _nodes(
    pairs: Mapping[Pair, PairVerdict],
    left: set[Pair],
    fine: set[Pair],
    jobs: Mapping[Pair, int],
    leaf_of: Mapping[str, str],
) -> dict[str, set[Pair]]:
    """Ends that bad pairs share. The one with most bad partners comes first; its pairs then accuse no other node."""
    found: dict[str, set[Pair]] = {}
    rest = set(left)
    while True:
        partners: dict[str, set[str]] = {}
        for client, server in rest:
            partners.setdefault(client, set()).add(server)
            partners.setdefault(server, set()).add(client)
        most = max((len(one) for one in partners.values()), default=0)
        if most < PARTNERS_MIN:
            return found
        first = {node for node, others in partners.items() if len(others) == most}
        unlike = {node for node in first if len(partners[node] - first) >= PARTNERS_MIN}  # else two explain the same pairs
        others = first | found.keys()
        accused = {node for node in unlike if _speaks_for_itself(node, others - {node}, pairs, rest, fine, jobs, leaf_of)}
        if not accused:  # these pairs stay open; nodes with fewer bad partners may still be accused
            rest = {pair for pair in rest if not first & set(pair)}
            continue
        for node in sorted(accused):
            found[node] = {pair for pair in left if node in pair}
        rest = {pair for pair in rest if not accused & set(pair)}


def _speaks_for_itself(  # noqa: PLR0917 - each is another part of the evidence
    node: str,
    others: Set[str],
    pairs: Mapping[Pair, PairVerdict],
    rest: set[Pair],
    fine: set[Pair],
    jobs: Mapping[Pair, int],
    leaf_of: Mapping[str, str],
) -> bool:
    """Whether enough jobs accuse it: two partners in two runs, or most of them; they are fine; it is not its leaf.

    others: nodes already accused, or as likely. A pair with one of these counts against neither.
    """
    mine = {pair for pair in rest if node in pair and not others & set(pair)}
    told = {end for pair in mine for end in pair} - {node}
    fine_without = {end for pair in fine if node not in pair for end in pair}
    enough = sum(jobs.get(pair, 1) for pair in mine) >= JOBS_MIN
    twice = {end for pair in mine if jobs.get(pair, 0) > 1 for end in pair} - {node}
    if not enough or (
        len(twice) < PARTNERS_MIN
        and not mostly_bad(node, {pair: word for pair, word in pairs.items() if not others & set(pair)})
    ):
        return False
    return bool(told & fine_without) and not may_be_its_leaf(node, pairs, mine, leaf_of)


def mostly_bad(node: str, pairs: Mapping[Pair, PairVerdict]) -> bool:
    """Whether most of its partners are bad in one role. Passing traffic does not cause that, even in one run."""
    for role in (0, 1):
        words = [word for pair, word in pairs.items() if pair[role] == node]
        if words.count(PairVerdict.BAD) * 2 > len(words):
            return True
    return False


def may_be_its_leaf(node: str, pairs: Mapping[Pair, PairVerdict], bad: Collection[Pair], leaf_of: Mapping[str, str]) -> bool:
    """Whether a node is bad only beyond its leaf, not known to be bad within, and no mate there is fine beyond it."""
    leaf = leaf_of.get(node)
    if leaf is None or any(leaf_of.get(pair[0]) == leaf_of.get(pair[1]) for pair in bad):
        return False
    inside = {word for pair, word in pairs.items() if node in pair and leaf_of.get(pair[0]) == leaf_of.get(pair[1])}
    if PairVerdict.FINE not in inside and PairVerdict.BAD in inside:
        return False
    mates_fine = any(
        word is PairVerdict.FINE and node not in pair and behind(pair, leaf, leaf_of) for pair, word in pairs.items()
    )
    alone = sum(other == leaf for other in leaf_of.values()) == 1  # then nothing can tell them, and nothing needs to
    return not mates_fine and not alone


# ----------------------------------------------------------------------------------------------------------------------
# Links and groups that were at fault before: which pairs test them, and whether they pass now. Pure.
#
#     link a - b           a | b
#     link leaf1 - leaf2   nodes of leaf1 | nodes of leaf2        every pair from one side to the other
#     group leaf1          nodes of leaf1 | all other nodes
#
# It passes if every pair across was fine, in both directions, with two nodes on each side if there are that many.


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


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acceptance:
    """All verdicts. suspects: nodes to run with good partners before anybody is told.

    explained: the bad pairs of each culprit. open: bad pairs that nothing explains yet. unsettled: pairs to run once
    more. drainable: nodes at fault with most of their partners in at least one role; others have fine pairs. told: the
    smallest effects that would have shown. flapping: the share of its jobs in which a node may be slow unseen. notes: what
    a person should know of the reference. decided: nodes that failed with enough good partners to need no second run.
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
    told: tuple[Told, ...] = ()
    flapping: float = 0.0
    notes: tuple[str, ...] = ()
    decided: frozenset[str] = frozenset()

    @property
    def told_words(self) -> str:
        """What would have been found: `5 % slower (6 % one way), 0.05 % of the packets lost, or slow in 33 % of the jobs`.

        Of several tests that tell different things, each is named. Empty where nothing was judged.
        """
        sizes: dict[str, list[str]] = {}
        for one in self.told:
            if not one.test.endswith(PACKETS):
                slower, one_way = (min(100 * (1 - exp(-size)), 99.0) for size in (one.slower, one.one_way))
                words = f"{slower:.2g} % slower" + (f" ({one_way:.2g} % one way)" if one_way > 1.1 * slower else "")
                sizes.setdefault(words, []).append(one.test)
        parts = [f"{words} in {', '.join(tests)}" if len(sizes) > 1 else words for words, tests in sizes.items()]
        lost = [one.slower for one in self.told if one.test.endswith(PACKETS)]
        parts += [f"{100 * max(lost):.2g} % of the packets lost"] if lost else []
        return f"{', '.join(parts)}, or slow in {100 * self.flapping:.0f} % of its jobs" if parts else ""


def acceptance_of(found: RunVerdict, standing: Sequence[Sides] = ()) -> Acceptance:
    """The records of a run's verdict. standing: links and groups that were at fault before; they may pass now."""
    things = {kind: [_record(one) for one in found.things if one.kind == kind] for kind in ("link", "group", "cluster")}
    at_fault = {(one.kind, one.name) for several in things.values() for one in several}
    for one in standing:
        if (one.kind, one.name) not in at_fault and passes(one, found.words):
            why = "as expected again, in both directions"
            things[one.kind].append(VerdictRecord(one.kind, one.name, Verdict.PASS, why, one.nodes))
    return Acceptance(
        tuple(_record(one) for one in found.nodes),
        tuple(things["link"]), tuple(things["group"]), tuple(things["cluster"]),
        found.suspects, found.good, found.explained, found.open, found.unsettled, found.drainable,
        found.told, found.flapping, found.notes, found.decided,
    )  # fmt: skip


def not_covered(node: str, reason: str) -> VerdictRecord:
    """The record of a node that nothing was measured with."""
    return VerdictRecord(Thing.NODE, node, Verdict.NOT_COVERED, reason, (node,))


def _record(one: Said) -> VerdictRecord:
    return VerdictRecord(Thing(one.kind), one.name, Verdict(one.word.value), one.reason, one.nodes, one.ratio)


# ----------------------------------------------------------------------------------------------------------------------
# The verdict of an acceptance on a test that a set of nodes ran together, against its earlier jobs. Pure.
#
# It names no node. A node stays what its pairs say of it, and what the pairs of the set say stands beside the verdict.
#
#     FAIL          in two jobs or more: nothing came, or slower than the earlier jobs by 10 % at least and beyond their scatter
#     INCONCLUSIVE  so in one job only, or in one and not in another; or beside other work; or nothing to compare it with
#     NOT COVERED   no job of it ran
#     PASS          otherwise; the reason says which slowdown it would have reported

#: Less is not told: where it comes from cannot be said of a set, and the pairs are judged by less.
EFFECT = -log(0.9)
#: How far jobs of one test scatter: the least, where fewer earlier jobs are known than that, and how many that is.
SCATTER_LEAST, SCATTER_ASSUMED, SCATTER_JOBS = 0.005, 0.05, 5
#: A job is slow beyond so many standard deviations of its difference from the earlier ones.
SIGMAS = 3.0
#: Nothing is told after one job.
SET_JOBS_MIN = 2


@dataclass(frozen=True, slots=True)
class SetJob:
    """One job. value: oriented logarithm, higher is better; None: it brought nothing, and ran only if `lost_count`."""

    value: float | None
    lost_count: int = 0
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveVerdict:
    """A verdict on one test of a set. ratio: its speed as a share of the earlier jobs'. pairs: what its pairs say.

    nodes: empty if no set could run it. measured_utc: start of the first job that ran.
    """

    test: str
    nodes: tuple[str, ...]
    verdict: Verdict
    reason: str
    ratio: float | None
    pairs: PairsOfSet
    measured_utc: str | None = None

    @property
    def name(self) -> str:
        """`mpi_collective 64 KiB on n[1-8]`: its name in the ledger."""
        return f"{self.test} on {set_name(self.nodes)}" if self.nodes else self.test

    @property
    def why(self) -> str:
        """The reason; of a bad one, with what its pairs say."""
        of_pairs = "" if self.verdict in {Verdict.PASS, Verdict.NOT_COVERED} else f"; its pairs: {self.pairs.words}"
        return f"{self.reason}{of_pairs}"

    @property
    def words(self) -> str:
        """`collective mpi_collective 64 KiB on n[1-8]: ...`: the line for people."""
        return f"collective {self.name}: {self.why}"


def records_of(verdicts: Iterable[CollectiveVerdict]) -> tuple[VerdictRecord, ...]:
    """What the ledger keeps: one record per test of a set, and the worst where two networks or toolchains ran it.

    Without a set there is nothing to keep a verdict on.
    """
    worst: dict[str, CollectiveVerdict] = {}
    for one in verdicts:
        known = worst.get(one.name)
        if one.nodes and (known is None or _GRAVITY.index(one.verdict) > _GRAVITY.index(known.verdict)):
            worst[one.name] = one
    return tuple(
        VerdictRecord(Thing.COLLECTIVE, name, one.verdict, one.why, one.nodes, one.ratio, one.measured_utc)
        for name, one in worst.items()
    )


_GRAVITY = (Verdict.PASS, Verdict.NOT_COVERED, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.FAILED)


def judge_collective(
    test: str, pairs: PairsOfSet, before: Sequence[float], jobs: Sequence[SetJob], why: str = ""
) -> CollectiveVerdict:
    """Judge one test of one set. before: one value per earlier job. why: the commonest reason of what failed."""
    ran = [one for one in jobs if one.value is not None or one.lost_count]
    values = [one.value for one in ran if one.value is not None]
    level = median(before) if before else None
    ratio = exp(median(values) - level) if values and level is not None else None
    verdict, reason = _said(ran, level, slow_below(before), why)
    return CollectiveVerdict(test, pairs.nodes, verdict, reason, ratio, pairs)


def slow_below(before: Sequence[float]) -> float:
    """How far below the earlier jobs one is slow: a logarithm, above 0."""
    known = len(before) >= SCATTER_JOBS
    scatter = max(SCATTER_LEAST, stdev(before)) if known else SCATTER_ASSUMED
    return max(EFFECT, SIGMAS * scatter * sqrt(1 + 1 / max(1, len(before))))


def _said(ran: Sequence[SetJob], level: float | None, bound: float, why: str) -> tuple[Verdict, str]:
    if not ran:
        return Verdict.NOT_COVERED, why or "no job of it ran"
    nothing = [one for one in ran if one.value is None]
    changes = [(one, one.value - level) for one in ran if one.value is not None and level is not None]
    slow = [(one, change) for one, change in changes if change < -bound]
    bad = len(nothing) + len(slow)
    parts = [f"brings nothing in {len(nothing)} of {count_of(len(ran), 'job')}: {why}"] if nothing else []
    if slow:
        middle = -100 * (exp(median(change for _, change in slow)) - 1)
        parts.append(f"{middle:.0f} % slower than before in {len(slow)} of {count_of(len(ran), 'job')}")
    said = "; ".join(parts)
    lost = sum(one.lost_count for one in ran)
    doubts = (
        (0 < bad < len(ran), f"{said}, fine in another"),
        (bad and len(ran) < SET_JOBS_MIN, f"{said}; seen in one job only"),
        (any(one.disturbed for one, _ in slow), f"{said}; beside other work"),
        (not bad and level is None, f"{NO_REFERENCE}: no earlier job of this set"),
        (not bad and lost, f"{count_of(lost, 'repetition')} brought nothing: {why}"),
    )
    doubt = next((words for holds, words in doubts if holds), None)
    if doubt is not None:
        return Verdict.INCONCLUSIVE, doubt
    if bad:
        return Verdict.FAILED, said
    change = 100 * (exp(median(change for _, change in changes)) - 1)
    told = 100 * (1 - exp(-bound))
    return Verdict.PASS, f"{change:+.1f} % against before in {count_of(len(ran), 'job')}; {told:.0f} % slower would be found"

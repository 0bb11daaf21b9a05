"""Fold changes of many series into blocks: one block per moment and per thing that all its series share.

    280 changes  ->  alpha/n02, worse since 2026-12-21: 14 of 14 series, -10 %, rmem_max 4194304 > 212992

A thing is a whole cluster, a group of nodes (leaf, rack), a node, or a pair, tried in this order. It holds a block if at
least _SHARE of its judged series changed at that moment, and for a cluster or group also without its worst node: one slow
node is never a slow leaf. Series that changed at another moment do not count against a thing, since that change may hide
this one. What no thing holds stays a block of its own.

A test that a set of nodes ran together counts for none of these: a slow collective names no node, the pairs of its nodes
do. Its changes are a block of the set, with what those pairs say, or join the block of a cluster that its pairs hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcq import nodelist
from hpcq.analysis.change import Explained
from hpcq.nodelist import natural
from hpcq.store.history import SeriesRow
from hpcq.units import parse_utc
from hpcq.verdict.causes import SEPARATES
from hpcq.verdict.node_sets import PairsOfSet, set_name

#: So much of a thing's series must have changed with it, and so many members must share a cause.
_SHARE = 0.7
#: A node or group is told from fewer series than this only if all of them changed.
_FEW = 3
#: Kinds of things, in the order in which they are tried.
_KINDS = ("cluster", "group", "node", "link")

#: cluster and name of a node, and the groups that it belongs to
Groups = Mapping[tuple[str, str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Block:
    """Changes of one thing at one moment. kind: cluster, group, node, link, nodes (a set), series.

    judged_count: series of the thing. pairs: of a set, what the pairs of its nodes say.
    """

    kind: str
    cluster: str
    name: str
    direction: str
    since_utc: str
    members: tuple[Explained, ...]
    judged_count: int
    pairs: PairsOfSet | None = None

    @property
    def ratios(self) -> list[float]:
        """After / before of its series, in order; series that are gone have none."""
        return sorted(one.changed.level.ratio for one in self.members if one.changed.level.ratio is not None)

    @property
    def causes(self) -> list[str]:
        """What differs in most of its series, the commonest first: `sysctl.net.core.rmem_max 4194304 > 212992`."""
        found: Counter[str] = Counter()
        for one in self.members:
            found.update(
                {_stripped(cause.words) for cause in one.causes if cause.separation >= SEPARATES and not cause.own_build}
            )
        of_thing = [words for words in self._shared(found) if self.kind != "node" or words.startswith(f"{self.name}: ")]
        return of_thing or self._shared(found)

    @property
    def events(self) -> list[str]:
        """Events between the two sides of most of its series."""
        found: Counter[str] = Counter()
        for one in self.members:
            found.update({event.words for event in one.events})
        return self._shared(found)

    @property
    def symptoms(self) -> list[str]:
        """Findings of the evidence that came or went in most of its series: which rule, on which node."""
        found: Counter[str] = Counter()
        for one in self.members:
            found.update({f"{_stripped(each.where)}: {each.rule}" for each in one.symptoms})
        return self._shared(found)

    @property
    def own_build(self) -> bool:
        """Whether hpcq's own program changed together with all of its series."""
        return all(one.own_build for one in self.members)

    def _shared(self, found: Counter[str]) -> list[str]:
        return [words for words, count in found.most_common() if count >= _SHARE * len(self.members)]


def blocks_of(told: Sequence[Explained], judged: Sequence[SeriesRow], groups: Groups) -> list[Block]:
    """Fold changes, the largest block first. judged: every series that was judged, whether it changed or not."""
    found = []
    changed = {one.changed.row.series_id for one in told}
    known: dict[str, _Series] = {}
    for moment in _moments(told):
        left = [one for one in moment if not _of_set(one.changed.row)]
        together = [one for one in moment if _of_set(one.changed.row)]
        hidden = changed - {one.changed.row.series_id for one in moment}
        cluster = moment[0].changed.row.cluster
        if cluster not in known:
            known[cluster] = _Series.of([row for row in judged if row.cluster == cluster], groups)
        blocks = []
        while left:
            block = _largest(left, known[cluster], hidden)
            blocks.append(block)
            left = [one for one in left if one not in block.members]
        found += _with_sets(blocks, together, told, judged)
    return sorted(found, key=_severity)


def _of_set(row: SeriesRow) -> bool:
    return nodelist.names_several(row.server)


def _with_sets(
    blocks: list[Block], together: Sequence[Explained], told: Sequence[Explained], judged: Sequence[SeriesRow]
) -> list[Block]:
    """The blocks of one moment with the changes of sets of nodes: in the cluster's block, else a block of each set."""
    if not together:
        return blocks
    whole = next((one for one in blocks if one.kind == "cluster"), None)
    if whole is not None:
        sets = sum(row.cluster == whole.cluster and _of_set(row) for row in judged)
        joined = replace(whole, members=(*whole.members, *together), judged_count=whole.judged_count + sets)
        return [joined if one is whole else one for one in blocks]
    by_set: dict[tuple[str, str], list[Explained]] = {}
    for one in together:
        by_set.setdefault((one.changed.row.client, one.changed.row.server), []).append(one)
    return blocks + [_block_of_set(members, told, judged) for members in by_set.values()]


def _block_of_set(members: list[Explained], told: Sequence[Explained], judged: Sequence[SeriesRow]) -> Block:
    """The changes of one set of nodes at one moment."""
    row = members[0].changed.row
    beside = [one for one in judged if one.cluster == row.cluster]
    count = sum((one.client, one.server) == (row.client, row.server) for one in beside)
    block = _block("nodes", set_name(nodelist.nodes_of(row.client, row.server)), members, count)
    return replace(block, pairs=pairs_at(members[0], told, beside))


def pairs_at(one: Explained, told: Sequence[Explained], judged: Sequence[SeriesRow]) -> PairsOfSet:
    """What the pairs of a set say of a change of that set. told: changes of pairs at any moment. judged: their series."""
    row = one.changed.row
    worse = [each for each in told if _lasts(each) and each.changed.row.cluster == row.cluster]
    ends = [(each.changed.row.client, each.changed.row.server) for each in worse]
    same = [pair for pair, each in zip(ends, worse, strict=True) if _overlap(one, each)]
    known = [(each.client, each.server) for each in judged if each.cluster == row.cluster and not _of_set(each)]
    return PairsOfSet.of(nodelist.nodes_of(row.client, row.server), known, same, ends)


def _lasts(one: Explained) -> bool:
    """Whether this is a change of a pair for the worse that holds."""
    level = one.changed.level
    return not _of_set(one.changed.row) and level.sure and not level.came_back and level.direction != "better"


def _overlap(one: Explained, other: Explained) -> bool:
    """Whether two changes may be of one moment, whichever was found first."""
    first, later = sorted((one, other), key=lambda each: each.changed.at_utc)
    return _same_moment(first, later)


def _severity(block: Block) -> tuple[bool, int, float, str]:
    """What matters first: worse before better, many series before few, far before near."""
    middle = block.ratios[len(block.ratios) // 2] if block.ratios else 0.0
    return block.direction == "better", -len(block.members), -abs(middle - 1.0), block.since_utc


def _moments(told: Sequence[Explained]) -> Iterator[list[Explained]]:
    """Changes of one cluster and direction whose moments cannot be told apart.

    A search may find a change one point early or late. So two changes are of one moment if the later one's last point
    before is at most half a step after the earlier one's first point of the new level.
    """
    ordered = sorted(
        told, key=lambda one: (one.changed.row.cluster, one.changed.level.direction == "better", one.changed.at_utc)
    )
    moment: list[Explained] = []
    for one in ordered:
        if moment and not _same_moment(moment[0], one):
            yield moment
            moment = []
        moment.append(one)
    if moment:
        yield moment


def _same_moment(first: Explained, later: Explained) -> bool:
    one, other = first.changed, later.changed
    if one.row.cluster != other.row.cluster or (one.level.direction == "better") != (other.level.direction == "better"):
        return False
    if not (one.at_utc and other.at_utc and other.last_before_utc):
        return one.at_utc == other.at_utc
    last_before = parse_utc(other.last_before_utc)
    return last_before - parse_utc(one.at_utc) <= (parse_utc(other.at_utc) - last_before) / 2


@dataclass(frozen=True, slots=True)
class _Series:
    """The judged series of a cluster: by kind and name of a thing those that touch it, and the ends of each."""

    things: dict[str, dict[str, set[int]]]
    ends: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, rows: Sequence[SeriesRow], groups: Groups) -> _Series:
        things: dict[str, dict[str, set[int]]] = {kind: {} for kind in _KINDS}
        for row in rows:
            for kind, named in things.items():
                for name in _things(kind, row, groups):
                    named.setdefault(name, set()).add(row.series_id)
        return cls(things, {row.series_id: (row.client, row.server) for row in rows})


def _largest(left: Sequence[Explained], judged: _Series, hidden: set[int]) -> Block:
    """The block that explains most of these changes. hidden: series that changed at another moment."""
    changed = {one.changed.row.series_id for one in left}
    for kind, things in judged.things.items():
        touched = [name for name, series in things.items() if not series.isdisjoint(changed)]
        holding = [name for name in sorted(touched, key=natural) if _holds(kind, things[name] - hidden, changed, judged.ends)]
        best = max(holding, key=lambda name: len(things[name] & changed), default=None)
        if best is not None:
            return _block(kind, best, [one for one in left if one.changed.row.series_id in things[best]], len(things[best]))
    return _block("series", left[0].changed.row.label, left[:1], 1)


def _things(kind: str, row: SeriesRow, groups: Groups) -> Iterable[str]:
    if _of_set(row):
        return ()
    if kind == "cluster":
        return [row.cluster]
    if kind == "node":
        return {row.client, row.server}
    if kind == "link":
        return [" - ".join(sorted((row.client, row.server), key=natural))]
    return {name for end in (row.client, row.server) for name in groups.get((row.cluster, end), ())}


def _holds(kind: str, series: set[int], changed: set[int], ends: Mapping[int, tuple[str, str]]) -> bool:
    hit = series & changed
    if not hit or len(hit) < _SHARE * len(series) or (len(series) < _FEW and hit != series):
        return False
    if kind == "link":
        return True
    if kind == "node":
        return len({frozenset(ends[one]) for one in hit}) > 1  # with a single partner nothing tells which of the two it is
    worst = Counter(end for one in hit for end in ends[one]).most_common(1)[0][0]
    rest = {one for one in series if worst not in ends[one]}
    return bool(rest) and len(rest & changed) >= _SHARE * len(rest)


def _block(kind: str, name: str, members: Sequence[Explained], judged_count: int) -> Block:
    first = min(one.changed.at_utc for one in members)
    directions = Counter(one.changed.level.direction for one in members)
    row = members[0].changed.row
    return Block(kind, row.cluster, name, directions.most_common(1)[0][0], first, tuple(members), judged_count)


def _stripped(words: str) -> str:
    """`client n2: ...` and `server n2: ...` say the same of n2."""
    for role in ("client ", "server "):
        words = words.removeprefix(role)
    return words

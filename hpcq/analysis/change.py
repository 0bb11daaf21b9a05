"""What an analysis of the history found: changed series, explained changes, and how many series were judged at all."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcq import nodelist
from hpcq.nodelist import natural
from hpcq.store.database import Connection
from hpcq.store.read.evidence_queries import PASSING_GROUPS
from hpcq.store.selection import MetricRow
from hpcq.store.series import SeriesRow, SeriesRows
from hpcq.units import parse_utc
from hpcq.verdict.levels import Level
from hpcq.verdict.node_sets import PairsOfSet, set_name
from hpcq.verdict.words import Tally, Verdict

# ----------------------------------------------------------------------------------------------------------------------
# Context of a series' points: facts of both nodes, groups, build and granted values, and the events between points.
#
# facts_of(database, result_ids)                    one mapping per point, only of what differs between them
# events_between(database, row, after, until)       maintenance, reboots, drains and notes between two points

#: Compare this many points on either side of a change.
POINTS_MAX = 30

Facts = dict[tuple[str, str], str | int | float | None]


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened, with its time and place."""

    event_id: int | None
    kind: str
    started_utc: str
    ended_utc: str | None
    cluster: str | None
    node: str | None
    run: str | None
    series_id: int | None
    result_id: int | None
    note: str
    who: str

    @property
    def words(self) -> str:
        """`maintenance 2026-11-21 02:00 alpha n2: new cables`."""
        place = " ".join(one for one in (self.cluster, self.node) if one)
        return f"{self.kind} {self.started_utc[:16].replace('T', ' ')} {place}".rstrip() + (
            f": {self.note}" if self.note else ""
        )


EVENT_COLUMNS = ", ".join(EventRow.__dataclass_fields__)


def facts_of(database: Connection, result_ids: Sequence[int]) -> list[Facts]:
    """The facts of each of these results, by (where, name); `where` is `client n1`, `server n2`, `build` or `granted`.

    Facts that are the same for all are left out, and so are facts that differ at every boot or moment.
    """
    heads = _heads(database, result_ids)
    nodes = {head[f"{end}_node_id"] for head in heads for end in ("client", "server")}
    known = {node: _groups(database, node) for node in nodes}
    found: list[Facts] = [{} for _ in heads]
    for end in ("client", "server"):
        sets = {head[f"{end}_set"] for head in heads} - {None}
        telling = _differing({one: _fact_set(database, one) for one in sets})
        for facts, head in zip(found, heads, strict=True):
            where = f"{end} {head[end]}"
            for name, value in telling.get(head[f"{end}_set"], {}).items():
                facts[where, name] = value
            for kind, group in _groups_at(known[head[f"{end}_node_id"]], head["started_utc"] or ""):
                facts[where, f"group.{kind}"] = group
    builds = {head["build_id"]: _build(database, head["build_id"]) for head in heads if head["build_id"] is not None}
    granted = _differing({one: _granted(database, one) for one in result_ids})
    for facts, head in zip(found, heads, strict=True):
        facts |= {("build", name): value for name, value in builds.get(head["build_id"], {}).items()}
        facts |= {("granted", name): value for name, value in granted[head["result_id"]].items()}
    return found


def findings_of(database: Connection, result_ids: Sequence[int]) -> list[frozenset[tuple[str, str]] | None]:
    """Findings in each of these results: (where, rule); `where` is `client n1`, `server n2` or `both ends`.

    None for results that were judged by rules other than the newest: a newer rule is no change of the machine.
    """
    query = (
        "SELECT ru.name AS rule, f.end_index, nc.name AS client, ns.name AS server FROM result_finding f"
        " JOIN rule ru ON ru.rule_id = f.rule_id JOIN result x ON x.result_id = f.result_id JOIN job j ON j.job_id = x.job_id"
        " JOIN node nc ON nc.node_id = j.client_node_id JOIN node ns ON ns.node_id = j.server_node_id WHERE f.result_id = ?"
    )
    versions = [_rules_version(database, one) for one in result_ids]
    found: list[frozenset[tuple[str, str]] | None] = []
    for result_id, version in zip(result_ids, versions, strict=True):
        if version != max(versions):
            found.append(None)
            continue
        rows = database.execute(query, (int(result_id),)).fetchall()
        places = {-1: "both ends"} | ({0: f"client {rows[0]['client']}", 1: f"server {rows[0]['server']}"} if rows else {})
        found.append(frozenset((places[row["end_index"]], row["rule"]) for row in rows))
    return found


def _rules_version(database: Connection, result_id: int) -> int:
    return int(database.execute("SELECT rules_version FROM result WHERE result_id = ?", (int(result_id),)).fetchone()[0])


def started_of(database: Connection, result_ids: Sequence[int]) -> list[str]:
    """When each of these results was measured."""
    query = "SELECT coalesce(started_utc, '') FROM result WHERE result_id = ?"
    return [str(database.execute(query, (int(one),)).fetchone()[0]) for one in result_ids]


def events_between(database: Connection, row: SeriesRow, after_utc: str, until_utc: str) -> list[EventRow]:
    """Events between two points that concern the nodes of a series, its cluster, or the series itself."""
    query = (
        f"SELECT {EVENT_COLUMNS} FROM v_events WHERE started_utc <= :until AND coalesce(ended_utc, started_utc) >= :after"
        " AND (series_id = :series OR (series_id IS NULL AND result_id IS NULL AND run IS NULL"
        " AND (cluster IS NULL OR cluster = :cluster) AND (node IS NULL OR node IN (:client, :server))))"
        " ORDER BY started_utc LIMIT 20"
    )
    bound = {"until": until_utc, "after": after_utc, "series": row.series_id}
    bound |= {"cluster": row.cluster, "client": row.client, "server": row.server}
    return [EventRow(*one) for one in database.execute(query, bound)]


def _heads(database: Connection, result_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Nodes and conditions of each of these results, in the given order."""
    ids = ", ".join(str(int(one)) for one in result_ids)
    rows = database.execute(
        "SELECT x.result_id, x.started_utc, x.build_id, nc.name AS client, ns.name AS server,"
        " j.client_node_id, j.server_node_id, fc.fact_set_id AS client_set, fs.fact_set_id AS server_set"
        " FROM result x JOIN job j ON j.job_id = x.job_id JOIN node nc ON nc.node_id = j.client_node_id"
        " JOIN node ns ON ns.node_id = j.server_node_id"
        " LEFT JOIN node_facts fc ON fc.attempt_id = x.attempt_id AND fc.node_id = j.client_node_id"
        " LEFT JOIN node_facts fs ON fs.attempt_id = x.attempt_id AND fs.node_id = j.server_node_id"
        f" WHERE x.result_id IN ({ids})"
    )
    found = {int(row["result_id"]): dict(row) for row in rows}
    return [found[int(one)] for one in result_ids]


def _fact_set(database: Connection, fact_set_id: int) -> dict[str, Any]:
    rows = database.execute(
        "SELECT f.name, f.value FROM fact_set_part sp JOIN fact f ON f.fact_part_id = sp.fact_part_id WHERE sp.fact_set_id = ?",
        (fact_set_id,),
    )
    return {row[0]: row[1] for row in rows if not row[0].startswith(PASSING_GROUPS)}


def _differing(sets: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Of each set, only the names whose values are not the same in all sets."""
    names = {name for one in sets.values() for name in one}
    telling = {name for name in names if len({str(one.get(name)) for one in sets.values()}) > 1}
    return {key: {name: one.get(name) for name in telling} for key, one in sets.items()}


def _groups(database: Connection, node_id: int) -> list[tuple[str, str, str]]:
    """Kind, name and start of all groups that a node ever belonged to, oldest first."""
    query = "SELECT kind, name, since_utc FROM node_group WHERE node_id = ? ORDER BY since_utc"
    return [(str(kind), str(name), str(since)) for kind, name, since in database.execute(query, (node_id,))]


def _groups_at(known: Sequence[tuple[str, str, str]], at_utc: str) -> list[tuple[str, str]]:
    """The groups of a node at a time. A group that was first seen later counts from the beginning."""
    found: dict[str, str] = {}
    for kind, name, since in known:
        if since <= at_utc or kind not in found:
            found[kind] = name
    return list(found.items())


def _build(database: Connection, build_id: int) -> dict[str, Any]:
    row = database.execute(
        "SELECT source_build_id, version, binary_sha256, compiler, flags, modules, mpi FROM build WHERE build_id = ?",
        (build_id,),
    ).fetchone()
    return dict(row)


def _granted(database: Connection, result_id: int) -> dict[str, Any]:
    rows = database.execute("SELECT granted, value FROM v_granted WHERE result_id = ?", (int(result_id),))
    return {row[0]: row[1] for row in rows}


# ----------------------------------------------------------------------------------------------------------------------

#: What people say of a change so that it is no alarm.
CLOSED = {"expected", "false"}
#: The method of a level that was recorded as a change and still holds.
RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Changed:
    """A series and what was found about its level. at_utc: the first point of the new level."""

    row: SeriesRow
    metric: MetricRow
    level: Level
    at_utc: str
    last_before_utc: str
    before_results: tuple[int, ...]
    after_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A change: what differs between its sides (best first), the events between them, and findings of the evidence."""

    changed: Changed
    causes: tuple[Cause, ...]
    events: tuple[EventRow, ...]
    symptoms: tuple[Symptom, ...]

    @property
    def own_build(self) -> bool:
        """Whether hpcq's own build changed at the same time."""
        return own_build_changed(self.causes)

    @property
    def words(self) -> str:
        """The cause in one line: facts, and events if there are any."""
        happened = "; ".join(event.words for event in self.events[:2])
        return "; ".join(one for one in (say(self.causes), happened) if one)

    def to_json(self) -> dict[str, Any]:
        """For --json: base units, names as in the database."""
        row, level = self.changed.row, self.changed.level
        named = {name: getattr(row, name) for name in ("series_id", "kernel", "cluster", "client", "server", "message_bytes")}
        numbers = ("ratio", "low", "high", "p_value", "before_count", "after_count", "reason", "came_back", "method")
        return {
            **named,
            "parameters": row.parameters,
            "metric": self.changed.metric.name,
            "unit": self.changed.metric.unit,
            "verdict": level.verdict.value,
            "direction": level.direction,
            "at_utc": self.changed.at_utc,
            "last_before_utc": self.changed.last_before_utc,
            **{name: _number(getattr(level, name)) for name in ("before", "after")},
            **{name: getattr(level, name) for name in numbers},
            "own_build": self.own_build,
            "causes": list(self.causes),
            "events": list(self.events),
            "symptoms": list(self.symptoms),
        }


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found about many series, and which of them could be judged.

    changes: levels that moved, or might have, and series that are gone. judged_ids: series with enough points.
    too_few: series with points, but fewer than can show a change. missing: planned in the stretch, and no point there.
    disturbed: measured lately only beside other work. idle: nothing was planned in the stretch, or it has nothing to be
    compared with.
    """

    changes: list[Changed]
    judged_ids: frozenset[int]
    too_few: SeriesRows
    missing: SeriesRows
    idle: SeriesRows
    disturbed: SeriesRows

    @property
    def judged_count(self) -> int:
        """Series with enough points."""
        return len(self.judged_ids)

    @property
    def too_few_count(self) -> int:
        """Series with too few points."""
        return len(self.too_few)

    @property
    def empty_count(self) -> int:
        """Series without a point in the stretch."""
        return len(self.missing) + len(self.idle)

    @property
    def one_sided_count(self) -> int:
        """Those of them that have points in the other stretch: they are compared with nothing, and INCONCLUSIVE."""
        return len({one.row.series_id for one in self.changes} & (self.missing.ids | self.idle.ids))

    @property
    def disturbed_count(self) -> int:
        """Series that were measured lately only beside other work."""
        return len(self.disturbed)

    @property
    def series_count(self) -> int:
        """All selected series."""
        return self.judged_count + self.too_few_count + self.disturbed_count + self.empty_count


def alarms(one: Explained, state: str | None) -> bool:
    """Whether this is a change for the worse that holds and that nobody declared expected, repaired or false."""
    level = one.changed.level
    return level.sure and level.direction != "better" and not level.came_back and state not in CLOSED


def is_unclear(level: Level) -> bool:
    """Whether this might be a change for the worse and cannot be told."""
    return level.verdict.value == "inconclusive" and level.direction != "better"


def tally_of(
    judged: Judged,
    worse: Sequence[Changed],
    unclear: Collection[int],
    fine: Collection[int] = frozenset(),
    *,
    failed: Collection[int] = frozenset(),
    degraded: Collection[int] = frozenset(),
) -> Tally:
    """One verdict per series: gone is FAIL, worse is DEGRADED. A series for which nothing was planned gets none.

    fine: series (by series_id) that pass with their nodes, also where they have few values of their own. failed: those that
    fail a gate. degraded: those that are it with a thing that is told.
    """
    too_few = judged.too_few.ids
    with_told = set(degraded) & (judged.judged_ids | too_few)
    directions: dict[int, set[str]] = {one: {"worse"} for one in with_told} | {one: {"gone"} for one in failed}
    for one in worse:
        directions.setdefault(one.row.series_id, set()).add(one.level.direction)
    verdicts = [Verdict.FAILED if "gone" in found else Verdict.DEGRADED for found in directions.values()]
    open_ones = (too_few | set(unclear)) - directions.keys() - set(fine)
    beside_work = judged.disturbed.ids - open_ones
    verdicts += [Verdict.INCONCLUSIVE] * (len(open_ones) + len(beside_work))
    verdicts += [Verdict.NOT_COVERED] * len(judged.missing.ids - open_ones)
    return Tally.of(verdicts + [Verdict.PASS] * len((judged.judged_ids | too_few) - directions.keys() - open_ones))


def _number(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - NaN


# ----------------------------------------------------------------------------------------------------------------------
# Fold changes of many series into blocks: one block per moment and per thing that all its series share.
#
#     280 changes  ->  alpha/n02, worse since 2026-12-21: 14 of 14 series, -10 %, rmem_max 4194304 > 212992
#
# A thing is a whole cluster, a group of nodes (leaf, rack), a node, or a pair, tried in this order. It holds a block if at
# least _SHARE of its judged series changed at that moment, and for a cluster or group also without its worst node: one slow
# node is never a slow leaf. Series that changed at another moment do not count against a thing, since that change may hide
# this one. What no thing holds stays a block of its own.
#
# A test that a set of nodes ran together counts for none of these: a slow collective names no node, the pairs of its nodes
# do. Its changes are a block of the set, with what those pairs say, or join the block of a cluster that its pairs hold.

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


# ----------------------------------------------------------------------------------------------------------------------
# Causes of a change: facts that differ between the points before and after it, ranked by how well they separate both.
#
#     separation = half the sum over values of |share of the points before - share of the points after|
#     1: no value from before occurs after      0: the same mixture on both sides
#
# A fact that separates fully is a suspect, not a culprit: everything that changed in the same night separates as well.
# The facts of hpcq's own program are kept apart from the machine's: a change of the tool is not a change of the network.

#: Facts of hpcq's own program; `mpi` and the other facts belong to the site.
OWN_BUILD = ("source_build_id", "version", "binary_sha256", "compiler", "flags", "modules")
#: From this separation on, a difference coincides with the change.
SEPARATES = 0.5
#: Facts that name things people change. Other facts of the same separation come later.
_TELLING = ("kernel.", "nic.", "sysctl.", "driver", "firmware", "mtu", "speed", "group.", "software.", "build.mpi", "cpu.")

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Cause:
    """One fact that differs. where: client n1, server n2, or build. before, after: the commonest value on each side."""

    fact: str
    where: str
    before: Value
    after: Value
    separation: float
    own_build: bool

    @property
    def words(self) -> str:
        """`server n2: nic.eth0.mtu_bytes 9000 > 1500`."""
        return f"{self.where}: {self.fact} {_shown(self.before)} > {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Symptom:
    """A rule of the evidence that applies on one side of a change and not on the other: how it got slow, not why."""

    rule: str
    where: str
    before_count: int
    before_of: int
    after_count: int
    after_of: int

    @property
    def words(self) -> str:
        """`server n2: receive_buffer_pruned in 0 of 10 points before, 9 of 10 after`."""
        sides = f"{self.before_count} of {self.before_of} points before, {self.after_count} of {self.after_of} after"
        return f"{self.where}: {self.rule} in {sides}"


def symptoms(before: Sequence[Collection[tuple[str, str]]], after: Sequence[Collection[tuple[str, str]]]) -> list[Symptom]:
    """The findings that coincide with a change, largest difference first. before, after: (where, rule) per point."""
    if not before or not after:
        return []
    found = []
    for where, rule in {one for point in (*before, *after) for one in point}:
        old, new = (sum((where, rule) in point for point in side) for side in (before, after))
        apart = abs(new / len(after) - old / len(before))
        if apart >= SEPARATES:
            found.append((-apart, where, rule, Symptom(rule, where, old, len(before), new, len(after))))
    return [one[-1] for one in sorted(found, key=lambda one: one[:-1])]


def rank(before: Sequence[Mapping[tuple[str, str], Value]], after: Sequence[Mapping[tuple[str, str], Value]]) -> list[Cause]:
    """Facts by separation, best first. before, after: facts of each point by (where, name); a missing fact is None."""
    if not before or not after:
        return []
    found = []
    for key in sorted({key for point in (*before, *after) for key in point}):
        old, new = Counter(point.get(key) for point in before), Counter(point.get(key) for point in after)
        separation = _separation(old, new, len(before), len(after))
        common = old.most_common(1)[0][0], new.most_common(1)[0][0]
        where, name = key
        if where == "build" and None in common:
            continue  # a result that failed before a program began has no build: that is no other program
        if separation > 0 and common[0] != common[1]:
            own = where == "build" and name in OWN_BUILD
            found.append(Cause(name, where, *common, round(separation, 4), own))
    return sorted(found, key=lambda one: (-one.separation, not any(word in one.fact for word in _TELLING), one.where, one.fact))


def own_build_changed(causes: Iterable[Cause]) -> bool:
    """Whether hpcq's own program changed together with the series, so that the change may not be the machine's."""
    return any(one.own_build and one.separation >= SEPARATES for one in causes)


def say(causes: Sequence[Cause], most: int = 3) -> str:
    """The best causes in words. The own build comes first, because it may explain everything."""
    telling = [one for one in causes if one.separation >= SEPARATES]
    own = [one for one in telling if one.own_build]
    words = [f"hpcq's own build changed ({own[0].words})"] if own else []
    words += [one.words for one in telling if not one.own_build][:most]
    return "; ".join(words)


def _separation(old: Counter[Value], new: Counter[Value], old_count: int, new_count: int) -> float:
    return sum(abs(old[value] / old_count - new[value] / new_count) for value in {*old, *new}) / 2


def _shown(value: Value) -> str:
    text = "(none)" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."

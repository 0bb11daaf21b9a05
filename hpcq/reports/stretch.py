"""The page over a stretch of time: of everything, of one cluster, of one node. What got worse, who is slow, what is missing."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq import __version__, units
from hpcq.analysis.change import CLOSED, Block, Changed, Explained, Judged, alarms, blocks_of, is_unclear, tally_of
from hpcq.analysis.changed import explained, known_states, searched
from hpcq.analysis.gates import FailedGate, failed_gates, failed_lines
from hpcq.analysis.standing import (
    ClusterCause,
    Standing,
    beside_nights,
    bounds_of,
    explaining,
    nights_of_cause,
    standings,
    told_series,
    touching,
    unexplained,
)
from hpcq.nodelist import names_several
from hpcq.reports.links import Links
from hpcq.reports.page import folded_missing, nodes_at_fault, of_nodes
from hpcq.reports.plots import Timeline, make_nightly, make_timeline, percent
from hpcq.run_folder.paths import write_text
from hpcq.store import query
from hpcq.store.database import Connection, reading
from hpcq.store.history import timeline
from hpcq.store.ledger import last_verdicts
from hpcq.store.query import check_known, node_groups
from hpcq.store.read.nodes import find_node, node_rows, node_story
from hpcq.store.read.stretches import events_in, findings_in, runs_in
from hpcq.store.selection import MetricRow, Selection, Window, check_selection, metrics_of, moment, window
from hpcq.store.series import SeriesRows, select
from hpcq.verdict.words import Tally, Thing, Verdict, VerdictRecord

#: Days before the stretch that a search for changes reads.
_LOOK_BACK_DAYS = 90
_ROWS_MAX = 2000
_PICTURES = 12
#: Series of a change that have a picture on its own page.
_MEMBERS = 24
_REASONS = 6
_BAD = (Verdict.FAILED, Verdict.DEGRADED)


@dataclass(frozen=True, slots=True)
class _Found:
    """The judgement: its tally over series, blocks of changes for the worse, and what the ledger calls not fit.

    causes: what the judge tells and suspects, as `regressions` does. together: of a node's page, what is said of tests that
    it ran with several nodes; they do not decide the verdict. failed: gates that the newest run of each campaign fails.
    explained_count: blocks that are not there because what is told explains them.
    """

    tally: Tally
    judged: Judged
    blocks: list[Block]
    unfit: list[VerdictRecord]
    causes: list[ClusterCause]
    standing: tuple[Standing, ...]
    together: tuple[str, ...] = ()
    failed: tuple[FailedGate, ...] = ()
    explained_count: int = 0


@dataclass(frozen=True, slots=True)
class StretchVerdict:
    """The verdict of the page, the tally of its series, in words what the verdict rests on, the judge's causes, the changes."""

    verdict: Verdict
    series: Tally
    reasons: tuple[str, ...] = ()
    causes: tuple[ClusterCause, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def exit_code(self) -> int:
        """3 where something is slow, 4 where too little is known, else 0."""
        return int(Tally.of([self.verdict]).exit_code)


def write_stretch(
    database: Path,
    since: str,
    wanted: Selection,
    path: Path,
    *,
    standing: tuple[Standing, ...] | None = None,
    links: Links | None = None,
) -> StretchVerdict:
    """Write the page of what is wanted to `path` and return its verdict. since: words for a stretch of time.

    standing: what the judge says of the clusters, if it was asked already. links: of a site, to its other pages.

    Raises UserError for an unknown stretch, cluster or node, StoreError for a file that cannot be written.
    """
    from hpcq.render import render

    with reading(database) as connection:
        context, judgement = _context(connection, since, wanted, standing)
    write_text(path, render("stretch.html.j2", {**context, "site": links, "change_name": change_name}))
    return judgement


def change_name(block: Block) -> str:
    """A name of a change for files and links: the same each time it is found."""
    return "-".join((block.cluster, block.kind, block.name, block.direction, block.since_utc[:16]))


def write_change(database: Path, block: Block, path: Path, *, links: Links) -> None:
    """Write the page of one change of a site: what differs, and a picture of each of its series."""
    from hpcq.render import render

    with reading(database) as connection:
        pictures = _drawn(connection, block.members[:_MEMBERS], None)
    context = {
        "block": block,
        "name": f"{block.kind} {block.name} is {block.direction}",
        "words": _block_words(block),
        "timelines": pictures,
        "site": links,
        "made_utc": units.utc_now()[:16].replace("T", " ") + " UTC",
        "version": __version__,
    }
    write_text(path, render("change.html.j2", context))


def _context(
    database: Connection, since: str, wanted: Selection, standing: tuple[Standing, ...] | None
) -> tuple[dict[str, Any], StretchVerdict]:
    check_known(database, cluster=wanted.cluster)
    if wanted.node is not None:
        name = wanted.node if wanted.cluster is None else f"{wanted.cluster}/{wanted.node.rpartition('/')[2]}"
        place = find_node(database, name)
        wanted = replace(wanted, cluster=place[0], node=place[1])
    cluster, node = wanted.cluster, wanted.node
    from_utc, until_utc = _bounds(database, since)
    found = _judge(database, since, wanted, standing)
    chosen = replace(wanted, window=Window(since, from_utc, until_utc))
    counts = query.outcome_counts(database, chosen)
    levels = node_rows(database, replace(chosen, node=None))
    only = {one.cluster for one in levels} if cluster is None else {cluster}
    where = f"node {cluster}/{node}" if node is not None else f"cluster {min(only)}" if len(only) == 1 else "every cluster"
    verdict, reasons = _worst(found, counts), _reasons(found, counts)
    context = {
        "title": f"{where[0].upper()}{where[1:]}, {_since_words(since)}",
        "actions": _actions(found, since, cluster),
        "from_utc": from_utc,
        "until_utc": until_utc,
        "made_utc": units.utc_now()[:16].replace("T", " ") + " UTC",
        "version": __version__,
        "verdict": verdict,
        "judged_by": found.tally.first_line("series", "series"),
        "reasons": reasons,
        "planned_count": sum(counts.values()),
        "counts": counts,
        "runs": runs_in(database, from_utc, until_utc, cluster)[:_ROWS_MAX],
        "causes": found.causes,
        "nightly": _nightly(found, from_utc),
        "states": {(one.cluster, row.node): one.of_node(row.node)[0] for one in found.standing for row in levels},
        "blocks": found.blocks[:_ROWS_MAX],
        "explained_count": found.explained_count,
        "timelines": _pictures(database, found.blocks, until_utc),
        "unfit": found.unfit,
        "nodes": sorted(levels, key=lambda one: one.level_ratio or 0.0)[:_ROWS_MAX],
        "node": node,
        "story": node_story(database, f"{cluster}/{node}", chosen) if node is not None else None,
        "findings": findings_in(database, chosen),
        "events": events_in(database, from_utc, until_utc, cluster, node)[:_ROWS_MAX],
        "missing": folded_missing(query.not_measured(database, chosen)),
    }
    return context, StretchVerdict(verdict, found.tally, tuple(reasons), tuple(found.causes), tuple(found.blocks))


def _judge(database: Connection, since: str, wanted: Selection, standing: tuple[Standing, ...] | None = None) -> _Found:
    from_utc, until_utc = _bounds(database, since)
    cluster, node = wanted.cluster, wanted.node
    check_selection(database, wanted)
    metrics = metrics_of(database, wanted.metric)
    rows = select(database, wanted).of_kernels(metrics)
    together_of = rows.of_pairs(lambda _cluster, _client, server: node is not None and names_several(server))
    sets, rows = rows.where(together_of), rows.where(~together_of)  # what a set of nodes ran together is no node's
    if standing is None:
        standing = () if wanted.facts else standings(database, rows.clusters, since, wanted.metric)
    if node is not None:
        standing = tuple(one.of_its_own(node) for one in standing)
    ids = rows.ids
    beyond = [] if wanted.facts else failed_gates(database, *bounds_of(database, since))
    failed = tuple(one for one in beyond if one.series_id in ids)
    judged, worse, tally, declared = _searched(
        database, rows, metrics, (from_utc, until_utc), wanted.facts, standing, {one.series_id for one in failed}
    )
    causes = touching(standing, rows.pairs, declared)
    groups, known = node_groups(database), list(rows.of(judged.judged_ids))
    every = blocks_of(worse, known, groups)
    blocks = unexplained(every, causes)
    together: list[str] = []
    if sets:
        judged_sets, slow, said, _ = _searched(database, sets, metrics, (from_utc, until_utc), wanted.facts)
        together.append(f"tests of several nodes together, which name none of them: {said.first_line('series', 'series')}")
        known += sets.of(judged_sets.judged_ids)
        found = blocks_of([*worse, *slow], known, groups)
        together += [_block_words(one) for one in found if any(names_several(each.changed.row.server) for each in one.members)]
    bad = {(one.cluster, one.kind, one.name): one for each in standing for one in each.unfit}
    unfit = [
        bad.get((one.cluster, one.kind, one.name), one)  # what failed stays so while nothing more is decided
        for one in last_verdicts(database, cluster)
        if one.verdict is not Verdict.PASS and (node is None or node in one.nodes or one.name == node)
    ]
    if node is not None:  # a collective is no node's
        together += [_accepted(one) for one in unfit if one.kind is Thing.COLLECTIVE]
        unfit = [one for one in unfit if one.kind is not Thing.COLLECTIVE]
    return _Found(tally, judged, blocks, unfit, causes, standing, tuple(together), failed, len(every) - len(blocks))


def _accepted(one: VerdictRecord) -> str:
    return f"last acceptance of collective {one.name}: {one.verdict.shown}: {one.reason}"


def _searched(  # noqa: PLR0917 - which series, when, and the facts of their results
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    stretch: tuple[str, str | None],
    facts: Sequence[tuple[str, str]],
    standing: Sequence[Standing] = (),
    failed: Collection[int] = frozenset(),
) -> tuple[Judged, list[Explained], Tally, list[tuple[Changed, str | None]]]:
    """Judge these series (failed: those that fail a gate): all that was found, the changes for the worse that nobody declared
    expected, the tally, and all sure changes but those for the better, each with what a person said of it.
    """
    from_utc, until_utc = stretch
    judged = searched(database, rows, metrics, from_utc, Window("", _look_back(from_utc), until_utc), facts=facts)
    sure = [one for one in judged.changes if one.level.sure and one.level.direction not in {"same", "better"}]
    told = [explained(database, one) for one in sure]
    states = known_states(database, sure)
    beside = beside_nights(judged, rows, standing)
    closed = {one.changed.row.series_id for one, state in zip(told, states, strict=True) if state in CLOSED}
    alarming = [one for one, state in zip(told, states, strict=True) if alarms(one, state)]
    worse = [one for one in alarming if id(one.changed) not in beside.noise]
    unclear = {one.row.series_id for one in judged.changes if is_unclear(one.level)} | (beside.unclear - closed)
    counted, declared = [one.changed for one in worse], list(zip(sure, states, strict=True))
    causes = touching(standing, rows.pairs, declared)
    with_told = told_series(causes, rows)
    return judged, worse, tally_of(judged, counted, unclear, beside.fine, failed=failed, degraded=with_told), declared


def _look_back(from_utc: str) -> str:
    """The day from which on is read what a stretch is compared with."""
    begin = units.parse_utc(f"{f'{from_utc}-01-01'[:10]}T00:00:00Z") - dt.timedelta(days=_LOOK_BACK_DAYS)
    return begin.strftime("%Y-%m-%d")


def of_sets(database: Connection, wanted: Selection, since: str) -> tuple[str, ...]:
    """What is said of the tests that a node ran with several others, as on its page; empty without such tests."""
    if not any(names_several(server) for _, _, server in select(database, wanted).pairs):
        return ()
    return _judge(database, since, wanted).together


def _bounds(database: Connection, since: str) -> tuple[str, str | None]:
    """The beginning of a stretch, and its end if its words name one."""
    return moment(database, since), window(database, since).until_utc if ".." in since else None


def _worst(found: _Found, counts: dict[str, int]) -> Verdict:
    """The worst of what series, ledger and coverage say. Nothing judged is never a pass."""
    bad = [one.verdict for one in found.unfit if one.verdict in _BAD]
    if found.blocks or found.failed:
        gone = found.failed or Verdict.FAILED in bad or any(one.direction == "gone" for one in found.blocks)
        return Verdict.FAILED if gone else Verdict.DEGRADED
    if bad or any(one.is_told for one in found.causes):
        return Verdict.FAILED if Verdict.FAILED in bad else Verdict.DEGRADED
    passed = found.tally.total and int(found.tally.exit_code) == 0 and not found.unfit and not _lost(counts)
    return Verdict.PASS if passed else Verdict.INCONCLUSIVE


def _lost(counts: dict[str, int]) -> int:
    return sum(count for outcome, count in counts.items() if outcome != "measured")


def _reasons(found: _Found, counts: dict[str, int]) -> list[str]:
    bad = [one for one in found.unfit if one.verdict in _BAD]
    words, others = [one.line for one in bad[:_REASONS]], list(found.blocks)
    if len(bad) > _REASONS:
        words.append(f"{len(bad) - _REASONS} more did not pass their last acceptance")
    for one in found.causes[:_REASONS]:  # what changed of a thing that is told stands beside it, and is no reason of its own
        own = [block for block in others if one.is_told and _is_of(block, one)]
        others = [block for block in others if block not in own]
        words.append("; ".join([one.words, *(cause for block in own[:1] for cause in block.causes[:1])]))
    if len(found.causes) > _REASONS:
        words.append(f"{len(found.causes) - _REASONS} more causes")
    others = [one for one in others if one.kind != "series" or not explaining(one, found.causes)]
    words += failed_lines(found.failed)[:_REASONS]
    words += [_block_words(one) for one in others[:_REASONS]]
    if len(others) > _REASONS:
        words.append(f"{len(others) - _REASONS} more changes for the worse")
    if len(bad) < len(found.unfit):
        words.append(f"{len(found.unfit) - len(bad)} were inconclusive or not covered in their last acceptance")
    lost = _lost(counts)
    if lost:
        words.append(f"{lost} of {sum(counts.values())} planned results are not there")
    if found.judged.too_few_count:
        words.append(f"{units.count_of(found.judged.too_few_count, 'series')} with too few points to judge")
    if found.judged.disturbed_count:
        words.append(f"{units.count_of(found.judged.disturbed_count, 'series')} measured lately only beside other work")
    return [*words, *found.together]


def _is_of(block: Block, cause: ClusterCause) -> bool:
    """Whether a change is one of the very thing that is at fault: the node, the link, or the only series of a pair."""
    pairs = [(one.changed.row.client, one.changed.row.server) for one in block.members]
    pair = block.kind == "series" and len(cause.names) == 2 and all(cause.concerns(*one) for one in pairs)
    return block.cluster == cause.cluster and (pair or f"{block.kind} {block.cluster}/{block.name}" == cause.name)


def _since_words(since: str) -> str:
    """`the last 30 days`, or `since` and the words for the stretch."""
    days = re.fullmatch(r"(\d+)d", since)
    return f"the last {units.count_of(int(days[1]), 'day')}" if days else f"since {since}"


def _actions(found: _Found, since: str, cluster: str | None) -> list[tuple[str, str]]:
    """What to do, most urgent first: words, and a command to copy."""
    here = f" --cluster {cluster}" if cluster is not None else ""
    made = of_nodes(nodes_at_fault(found.causes))
    if found.causes or found.blocks:
        made.append(("each series, and what differs since", f"hpcq regressions --since {since}{here} --all"))
    if found.blocks:
        made.append(("keep what was found, to deal with it", f"hpcq regressions --since {since}{here} --record"))
    if found.unfit:
        made.append(("the last verdicts, with their reasons", f"hpcq nodes --verdicts{here}"))
    return made


def _block_words(block: Block) -> str:
    ratios = block.ratios
    change = f", {percent(ratios[len(ratios) // 2] - 1)}" if ratios else ""
    cause = f"; {block.causes[0]}" if block.causes else ""
    cause += f"; {block.pairs.words}" if block.pairs else ""
    since = f" since {block.since_utc[:16].replace('T', ' ')} UTC" if block.since_utc else ""
    count = f"{len(block.members)} of {units.count_of(block.judged_count, 'series')}"
    return f"{block.kind} {block.cluster}/{block.name} is {block.direction}: {count}{change}{since}{cause}"


def _pictures(database: Connection, blocks: list[Block], until_utc: str | None) -> list[Timeline]:
    """One series of each block: the one that moved as its block did. The one that moved most may share another's change."""
    chosen = []
    for block in blocks[:_PICTURES]:
        usual = block.ratios[len(block.ratios) // 2] if block.ratios else 0.0
        chosen.append(min(block.members, key=lambda member: abs((member.changed.level.ratio or 0.0) - usual)))
    return _drawn(database, chosen, until_utc)


def _nightly(found: _Found, from_utc: str) -> list[Timeline]:
    """What is told and suspected, night by night, from some time before the stretch on."""
    nightly = (
        nights_of_cause(cause, standing, _look_back(from_utc))
        for cause in found.causes[:_PICTURES]
        for standing in found.standing
    )
    return [make_nightly(one) for one in nightly if one is not None]


def _drawn(database: Connection, members: Sequence[Explained], until_utc: str | None) -> list[Timeline]:
    made = []
    for one in members:
        row, metric = one.changed.row, one.changed.metric
        begin = units.parse_utc(one.changed.at_utc or units.utc_now()) - dt.timedelta(days=_LOOK_BACK_DAYS)
        points = timeline(database, row.series_id, metric, Window("", begin.strftime("%Y-%m-%d"), until_utc))
        drawn = make_timeline(row, metric, points, [one] if one.changed.at_utc else [])
        made += [drawn] if drawn is not None else []
    return made

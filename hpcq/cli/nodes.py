"""`hpcq nodes`: all machines side by side, one of them whole, and their verdicts."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import (
    FILTERS,
    check_metric,
    database_option,
    filter_options,
    json_option,
    limit_option,
    refuse_beside,
    since_option,
    stretch,
)
from hpcq.cli.output import Column, cell, print_json, print_rows, print_words, says_that_it_works, verdict_style
from hpcq.errors import Exit, UserError
from hpcq.visible import one_line

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.read.nodes import NodeStory
    from hpcq.store.selection import Selection

_NODE = (
    Column("cluster"),
    Column("node"),
    Column("judged"),
    Column("judged_ratio", "of expected"),
    Column("verdict", "last acceptance", style=verdict_style),
    Column("last_measured_utc", "last measured"),
    Column("result_count", "results"),
    Column("partner_count", "partners"),
    Column("level_ratio", "level"),
    Column("left_out_count", "left out"),
)
_PARTNER = (
    Column("partner"),
    Column("kernel"),
    Column("size_text", "size"),
    Column("role", "this node is"),
    Column("metric"),
    Column("newest", unit_field="unit"),
    Column("newest_utc", "run began (UTC)"),
    Column("n"),
    Column("level_ratio", "level"),
)
_CHANGE = (
    Column("at_utc", "since"),
    Column("direction"),
    Column("state"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("before", unit_field="unit"),
    Column("after", unit_field="unit"),
    Column("cause", wrap=True),
)
_EVENT = (
    Column("started_utc", "from"),
    Column("ended_utc", "to"),
    Column("kind"),
    Column("node"),
    Column("note", wrap=True),
    Column("who"),
)
_FACT = (Column("fact"), Column("value", wrap=True))
_PARTNERS_SHOWN = 8
_TOLD_SHOWN = 8
_SORTS = ("name", "level", "measured")


_VERDICTS = (
    Column("cluster"),
    Column("kind"),
    Column("name"),
    Column("verdict", style=verdict_style),
    Column("decided_utc", "decided"),
    Column("run"),
    Column("reason", wrap=True),
)
#: By view, the options that it obeys.
_USED = {
    "NODE": {"name", "since", "everything", *FILTERS},
    "--verdicts": {"name", "verdicts", "cluster", "each", "judging"},
    "the list of nodes": {"since", "age", "sort", "limit", *FILTERS},
}


@click.command()
@click.argument("name", metavar="[NODE]", required=False)
@since_option("30d")
@filter_options
@click.option("--all", "everything", is_flag=True, help="Of NODE: all partners and tests, not only the slowest.")
@click.option("--verdicts", is_flag=True, help="Verdicts of acceptances on nodes, links, groups and collectives.")
@click.option("--each", is_flag=True, help="With --verdicts: every verdict, oldest first, not only the last one.")
@click.option(
    "--exit-code",
    "judging",
    is_flag=True,
    help="With --verdicts: exit code 0 if all pass, 3 if one failed or is degraded, else 4.",
)
@click.option("--not-measured-for", "age", metavar="LENGTH", help="Only nodes without a measurement for this long: 14d.")
@click.option("--sort", type=click.Choice(_SORTS), default="name", show_default=True, help="level: the slowest first.")
@limit_option()
@database_option
@json_option
@says_that_it_works
def nodes(  # noqa: PLR0917 - Click passes by name
    name: str | None,
    since: str,
    wanted: Selection,
    everything: bool,
    verdicts: bool,
    each: bool,
    judging: bool,
    age: str | None,
    sort: str,
    limit: int | None,
    database: Path,
    as_json: bool,
) -> int:
    """List all nodes, or show all about one: verdicts, measurements, partners, changes, facts.

    For each node the list says how it compares with its own past, as `hpcq regressions` does: told (slower, and enough
    jobs show it), failed or degraded at its last acceptance, suspected (slower, and more jobs are needed), fine, too few
    jobs, or not measured; `told with its uplink` (class, group, cluster) of a node that is as slow as those it shares that
    with. For told and suspected nodes it says also how much of the former performance is left. Then come
    the last verdict of an acceptance, the last measurement, and the level in the newest run that measured the node: the
    median over its tests of what its better partners got (the upper quartile), as a share of the median of all pairs in
    the same test over the stretch. 90 % means 10 % worse, whichever direction the metric has. Results that were measured
    beside other work are left out.

    NODE is a node's name. Write CLUSTER/NODE (alpha/n1) where several clusters have one of that name. Each partner
    stands with its newest run, and the level is what that gave as a share of the median of all pairs in the same test: a slow
    node is below 100 % with everybody. A test of several nodes together names none of them as slow; hpcq lists these tests
    separately.

    --verdicts shows the last verdict of `hpcq accept` on each node and collective, and on each link and group that was ever
    at fault; with NODE only on it and on the links, groups and collectives that it shares. A group is all nodes behind one
    leaf switch. A link or group that was repaired is a pass. A collective names no single node: with NODE it is listed, but
    does not count in the exit code.

    \b
    Example: hpcq nodes --sort level --since 30d
             hpcq nodes alpha/n1
             hpcq nodes n2 --verdicts --exit-code
    """
    view = "--verdicts" if verdicts else "NODE" if name is not None else "the list of nodes"
    refuse_beside(view, _USED[view])
    if verdicts:
        return _verdicts(database, wanted.cluster, name, each=each, judging=judging, as_json=as_json)
    if name is not None:
        return _one_node(database, name, since, wanted, everything=everything, as_json=as_json)
    return _list_nodes(database, wanted, since, age, sort, limit, as_json=as_json)


def _one_node(database: Path, name: str, since: str, wanted: Selection, *, everything: bool, as_json: bool) -> int:
    from hpcq.store.database import reading
    from hpcq.store.read.nodes import node_story
    from hpcq.store.selection import check_selection

    with reading(database) as connection:
        check_metric(connection, wanted.metric, wanted.kernel)
        check_selection(connection, wanted)
        selection = replace(wanted, window=stretch(connection, since))
        story = node_story(connection, name if wanted.cluster is None or "/" in name else f"{wanted.cluster}/{name}", selection)
        told = _told(connection, story, selection, since)
    if as_json:
        print_json({**asdict(story), **told, "since": since})
        return Exit.OK
    _print_story(story, since, told, everything=everything)
    return Exit.OK


def _list_nodes(  # noqa: PLR0917 - the options of the list
    database: Path, wanted: Selection, since: str, age: str | None, sort: str, limit: int | None, *, as_json: bool
) -> int:
    from hpcq.analysis.gates import BELOW_GATE, below_gates, failed_gates
    from hpcq.analysis.standing import bounds_of, standings
    from hpcq.store.database import reading
    from hpcq.store.query import check_known
    from hpcq.store.read.nodes import node_rows
    from hpcq.store.selection import Selection, check_selection

    with reading(database) as connection:
        check_known(connection, cluster=wanted.cluster)
        check_metric(connection, wanted.metric, wanted.kernel)
        check_selection(connection, replace(wanted, cluster=None))
        before = None if age is None else _moment_before(connection, age)
        rows = [asdict(one) for one in node_rows(connection, replace(wanted, window=stretch(connection, since)))]
        where = {one.cluster: one for one in standings(connection, {row["cluster"] for row in rows}, since, wanted.metric)}
        below = below_gates(failed_gates(connection, *bounds_of(connection, since)), connection)
    for row in rows:
        word, cause = where[row["cluster"]].of_node(row["node"]) if row["cluster"] in where else ("not measured", None)
        word = BELOW_GATE if not word.startswith("told") and (row["cluster"], row["node"]) in below else word
        row |= {"judged": word, "judged_ratio": None if cause is None else cause.ratio}
    found = [one for one in rows if before is None or (one["last_measured_utc"] or "") < before]
    found.sort(key=_order(sort))
    told = _EMPTY if age is None else f"each of {units.count_of(len(rows), 'node')} was measured within {age}"
    shown = _NODE if any(one["left_out_count"] for one in rows) else _NODE[:-1]
    print_rows(
        found[:limit],
        shown,
        as_json=as_json,
        empty=told if rows else _EMPTY if wanted == Selection(cluster=wanted.cluster) else "no node has such results",
    )
    if limit is not None and len(found) > limit and not as_json:
        print_words(f"and {len(found) - limit} more; --limit shows more", err=True)
    return Exit.OK


def _verdicts(database: Path, cluster: str | None, node: str | None, *, each: bool, judging: bool, as_json: bool) -> int:
    from hpcq.analysis.standing import standings, with_told
    from hpcq.store.database import reading
    from hpcq.store.ledger import last_verdicts
    from hpcq.verdict.words import Tally, Thing

    with reading(database) as connection:
        rows = last_verdicts(connection, cluster, node, each=each)
        now = last_verdicts(connection, cluster, node) if each else rows
        if judging and rows:
            now = with_told(now, standings(connection, {one.cluster for one in now}, "90d"))
            now = [one for one in now if node is None or one.kind is Thing.CLUSTER or node in {*one.nodes, one.name}]
            rows = rows if each else now
    print_rows(rows, _VERDICTS, as_json=as_json, empty="no verdict: hpcq accept gives them")
    counted = [one for one in now if node is None or one.kind is not Thing.COLLECTIVE]
    return Tally.of(one.verdict for one in counted).exit_code if judging else Exit.OK


_EMPTY = "no node: nothing was measured yet"


def _told(connection: Connection, story: NodeStory, selection: Selection, since: str) -> dict[str, list[str]]:
    """What explains and what is wrong: flaws that the evidence shows, tests that only fail, tests of several nodes."""
    from hpcq.analysis.gates import failed_gates, failed_lines
    from hpcq.analysis.series_outcomes import lost_in
    from hpcq.analysis.standing import bounds_of, standings
    from hpcq.nodelist import names_several
    from hpcq.store.read.evidence_queries import new_flaws
    from hpcq.store.series import select

    mine = select(connection, replace(selection, cluster=story.cluster, node=story.node))
    flaws = [one for one in new_flaws(connection, selection.window) if (one.cluster, one.node) == (story.cluster, story.node)]
    lost = lost_in(connection, selection.window)
    failing = [f"{row.label}: {lost[row.series_id].words}" for row in mine if row.series_id in lost]
    together: list[str] = []
    if any(names_several(row.server) for row in mine):
        # Its arithmetic loads numpy, which costs most nodes more than all the rest.
        from hpcq.reports.stretch import of_sets

        together = list(of_sets(connection, replace(selection, cluster=story.cluster, node=story.node), since))
    found = next(iter(standings(connection, [story.cluster], since)), None)
    touching = [] if found is None else [one for one in found.causes if one.holds(story.node) or one.names_node(story.node)]
    failed = [
        one
        for one in failed_gates(connection, *bounds_of(connection, since))
        if one.verdict.series.cluster == story.cluster and story.node in (one.verdict.series.client, one.verdict.series.server)
    ]
    unfit = [] if found is None else [one.line for one in found.unfit if story.node in {one.name, *one.nodes}]
    judged = [*(one.words for one in touching), *unfit, *failed_lines(failed)]
    judged = judged or ["no value of it yet" if found is None else found.of_node(story.node)[0]]
    return {"judged": judged, "flaws": [one.words for one in flaws], "failing": failing, "together": together}


def _print_story(story: NodeStory, since: str, told: dict[str, list[str]], *, everything: bool) -> None:
    for word, text in _head(story, since):
        print_words(f"{word:<14}{one_line(text)}")
    for name, word in (("judged", "judged"), ("flaws", "evidence"), ("failing", "failing"), ("together", "together")):
        first = told[name] if everything else told[name][:_TOLD_SHOWN]
        for text in first:
            print_words(f"{word:<14}{text}")
        if len(told[name]) > len(first):
            print_words(f"{word:<14}and {len(told[name]) - len(first)} more; --all shows them")
    rows = [{**asdict(one), "size_text": one.size_text} for one in story.partners]
    shown = rows if everything else rows[:_PARTNERS_SHOWN]
    _part(f"slowest partners since {since}", shown, _PARTNER)
    if len(rows) > len(shown):
        print_words(f"and {len(rows) - len(shown)} more; --all shows them")
    _part("recorded changes", story.changes, _CHANGE)
    _part("events", story.events, _EVENT)
    facts = [{"fact": name, "value": units.human_of(name, value)} for name, value in story.facts.items()]
    _part(f"facts, read {_minute(story.facts_utc)}", facts, _FACT)


def _head(story: NodeStory, since: str) -> list[tuple[str, str]]:
    verdict = story.verdict
    said = "none: hpcq accept gives one"
    if verdict is not None:
        said = f"{verdict['verdict'].replace('_', ' ')}, {_minute(verdict['decided_utc'])}: {verdict['reason']}"
    counts = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in sorted(story.counts.items()))
    measured = f"{counts}, since {since}; last {_minute(story.last_utc)}" if counts else f"nothing since {since}"
    groups = ", ".join(f"{kind} {name}" for kind, name in story.groups.items())
    lines = [("node", f"{story.cluster}/{story.node}"), ("last verdict", said), ("measured", measured)]
    lines += [("groups", groups)] if groups else []
    return [*lines, ("boot", story.boot_id or "not known")]


def _part(title: str, rows: Any, columns: tuple[Column, ...]) -> None:
    print_words(f"\n{title}" + ("" if rows else ": none"))
    if rows:
        kept = tuple(one for one in columns if any(cell(one, row) for row in rows))
        print_rows(rows, kept)


def _order(sort: str) -> Any:
    from hpcq.nodelist import natural

    def key(one: dict[str, Any]) -> tuple[Any, ...]:
        named = (one["cluster"], natural(one["node"]))
        if sort == "level":
            return one["level_ratio"] is None, one["level_ratio"] or 0.0, *named
        return (one["last_measured_utc"] or "", *named) if sort == "measured" else named

    return key


def _moment_before(connection: Connection, age: str) -> str:
    """The moment that long ago. Raises UserError for what is no length of time."""
    from hpcq.store.selection import is_length, moment

    if not is_length(age):
        raise UserError(f"--not-measured-for: {age!r}: must be a length of time", "for example 14d, 12h, 2w")

    return moment(connection, age, dt.datetime.now(dt.UTC))


def _minute(utc: str | None) -> str:
    return f"{utc[:16].replace('T', ' ')} UTC" if utc else "never"

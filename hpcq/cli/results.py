"""`hpcq results`, and the end of `hpcq run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcq import units
from hpcq.cli.options import (
    FILTERS,
    chosen_results,
    database_option,
    filter_options,
    in_metric_of,
    json_option,
    lacks_metric,
    limit_option,
    near,
    refuse_beside,
    since_option,
    stretch,
)
from hpcq.cli.output import Column, as_mapping, outcome_style, print_json, print_rows, print_words, says_that_it_works
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.analysis.distances import Distance
    from hpcq.analysis.standing import Standing
    from hpcq.run_folder.paths import RunFolder
    from hpcq.store.database import Connection
    from hpcq.store.query import FirstSummaries, LostTries, ResultRow, RunRow, Summary
    from hpcq.store.read.evidence_queries import FindingGroup, Flaw
    from hpcq.store.read.toolchains import ToolchainLevel, ToolchainRow
    from hpcq.store.selection import Selection
    from hpcq.verdict.gates import GateVerdict


# ----------------------------------------------------------------------------------------------------------------------
# Verdicts of a campaign's gates for people and for --json: the same words right after a run and later.


_PLACES = 3


@dataclass(frozen=True, slots=True)
class RunJudged:
    """How much of what was planned is there, and what judged it.

    outcomes: planned results by outcome. gates_unread: why the campaign's gates could not be judged; empty if they were.
    """

    outcomes: Mapping[str, int]
    gates: tuple[GateVerdict, ...] = ()
    gates_unread: str = ""
    imported_count: int = 0
    """How many of the planned results other programs measured: no evidence stands behind them."""

    @property
    def planned_count(self) -> int:
        """All planned results."""
        return sum(self.outcomes.values())

    @property
    def exit_code(self) -> Exit:
        """3 if a gate failed; 4 if something is missing or could not be judged, or if there is nothing at all; else 0."""
        from hpcq.verdict.words import Tally

        code = Tally.of(one.verdict for one in self.gates).exit_code if self.gates else Exit.OK
        whole = self.planned_count > 0 and self.outcomes.get("measured", 0) == self.planned_count
        return code if code is not Exit.OK or (whole and not self.gates_unread) else Exit.INCOMPLETE

    @property
    def first_line(self) -> str:
        """`20 of 24 planned results measured (4 invalid); 12 gates judged: 11 PASS, 1 FAIL`."""
        from hpcq.verdict.words import Tally

        if not self.planned_count:
            return "no result judged: there is nothing to judge"
        lost = ", ".join(f"{count} {_OUTCOME[name]}" for name, count in self.outcomes.items() if name != "measured")
        measured = f"{self.outcomes.get('measured', 0)} of {self.planned_count} planned results measured"
        judged = Tally.of(one.verdict for one in self.gates).first_line("gate") if self.gates else "no gate judges them"
        judged = f"gates not judged: {self.gates_unread}" if self.gates_unread else judged
        imported = f"; {self.imported_count} of them imported: no evidence" if self.imported_count else ""
        return f"{measured}{f' ({lost})' if lost else ''}; {judged}{imported}"

    def to_json(self) -> dict[str, Any]:
        """For --json: counts by outcome and by verdict of the gates, and the exit code."""
        from hpcq.verdict.words import Tally

        counts = {f"{name}_count": self.outcomes.get(name, 0) for name in _OUTCOME}
        gates = Tally.of(one.verdict for one in self.gates).to_json()
        counts["imported_count"] = self.imported_count
        return {"planned_count": self.planned_count, **counts, "gates": gates, "gates_unread": self.gates_unread}


_OUTCOME = {"measured": "measured", "invalid": "invalid", "failed": "failed", "not_measured": "not measured"}


def judge_selection(connection: Connection, whole: Selection, selection: Selection | None = None) -> RunJudged:
    """What is planned and there in `whole`, and the gates of `selection` (default: the same) if that is one run.

    Gates of a campaign that this hpcq version cannot read are reported as not judged.
    """
    from hpcq.analysis.gates import judge_selected
    from hpcq.store.query import imported_count, outcome_counts

    verdicts, unread = judge_selected(connection, selection or whole)
    return RunJudged(outcome_counts(connection, whole), verdicts, unread, imported_count(connection, whole))


def gate_json(one: GateVerdict) -> dict[str, Any]:
    """For --json: all fields, and the observed values in words."""
    return {**asdict(one), "words": one.words}


def print_gates(verdicts: Sequence[GateVerdict]) -> None:
    """Print each failure in full, the inconclusive gates by reason, and the total."""
    open_gates: dict[tuple[str, str], list[str]] = {}
    for one in verdicts:
        place = f"{one.series.cluster}: {one.series.ends}"
        if one.verdict == "failed":
            print_words(f"gate failed: {place} {one.series.kernel}: {one.words}: must be {one.bound}")
        elif one.verdict == "inconclusive":
            open_gates.setdefault((one.gate, one.reason), []).append(place)
    for (gate, reason), places in open_gates.items():
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        print_words(f"gate inconclusive: {gate}: {reason} ({', '.join(places[:_PLACES])}{more})")
    if verdicts:
        counts = Counter(one.verdict.value for one in verdicts)
        print_words(
            f"gates: {', '.join(f'{counts[word]} {word}' for word in ('pass', 'failed', 'inconclusive') if counts[word])}"
        )


# ----------------------------------------------------------------------------------------------------------------------
# Links compared with the same nodes within their clusters, as a table; `hpcq results` and `hpcq run` show it.


_COLUMNS = (
    Column("link"),
    Column("network"),
    Column("kernel"),
    Column("size_text", "size"),
    Column("variant", wrap=True),
    Column("there", unit_field="unit"),
    Column("back", unit_field="unit"),
    Column("far_count", "n"),
    Column("near_from", "within from", unit_field="unit"),
    Column("near_to", "within to", unit_field="unit"),
    Column("near_count", "n within"),
    Column("ratio", "over : within"),
    Column("window_bps", "window / round trip"),
)


def print_distances(distances: Sequence[Distance]) -> None:
    """Print one table of all links. Round trips and the meaning of there and back go to standard error."""
    for one in distances:
        trips = (one.trip_ns, "over the link"), (one.near_trip_ns, "within the clusters")
        shown = [f"{units.human(ns, 'ns')} {where}" for ns, where in trips if ns is not None]
        ends = f"{f'over {one.network}; ' if one.network else ''}there is {one.from_cluster} to {one.to_cluster}"
        print_words(f"{one.link}: {ends}; round trip {', '.join(shown) or 'not measured'}", err=True)
    rows = [
        {
            "link": one.link,
            "network": one.network,
            **asdict(test),
            "size_text": test.size_text,
            "ratio": None if test.ratio is None else f"{test.ratio:.2f}",
        }
        for one in distances
        for test in one.tests
    ]
    columns = [one for one in _COLUMNS if one.name != "variant" or any(row["variant"] for row in rows)]
    print_rows(rows, columns, empty="no result over a link")


def print_links(linked: Sequence[Distance]) -> None:
    """Print the links of a run, and first how many of them were measured."""
    told = f"{sum(map(bool, (one.tests for one in linked)))} of {len(linked)} links judged"
    print_words(told if linked else "no link judged: this run has none", err=True)
    print_distances(linked)


def links_exit(linked: Sequence[Distance], judged: RunJudged) -> Exit:
    """Exit code 4 if a run has no link, or one of which nothing was measured; else that of its results."""
    whole = bool(linked) and all(one.tests for one in linked)
    return judged.exit_code if whole else judged.exit_code or Exit.INCOMPLETE


# ----------------------------------------------------------------------------------------------------------------------
# What the evidence says of the results: `hpcq results --findings`, and flaws of nodes before any table.


_FINDING = (
    Column("result_id", "result"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("rule", "finding"),
    Column("end"),
    Column("message", "what was seen", wrap=True),
)


def print_findings(connection: Connection, selection: Selection, judged: RunJudged, limit: int | None, *, as_json: bool) -> int:
    """Print the findings. Exit code 4 if no result has evidence: then "no finding" would say nothing."""
    from hpcq.store.read.evidence_queries import evidence_counts, findings_of

    result_count, seen_count = evidence_counts(connection, selection)
    if not as_json:
        none = f"no evidence judged: {f'none of {result_count} results has any' if result_count else 'there is no result'}"
        print_words(f"{seen_count} of {result_count} results judged by their evidence" if seen_count else none, err=True)
    found = cut([dict(as_mapping(one)) for one in findings_of(connection, selection)], limit, as_json=as_json)
    print_rows(found, _FINDING, as_json=as_json, empty="no finding")
    return judged.exit_code if seen_count else judged.exit_code or Exit.INCOMPLETE


def flaws_of(connection: Connection, selection: Selection) -> list[Flaw]:
    """What the evidence of the selected runs says is wrong with nodes that took part in the selected results."""
    from hpcq.nodelist import nodes_of
    from hpcq.store.query import places
    from hpcq.store.read.evidence_queries import flaws_in, new_flaws
    from hpcq.store.selection import run_id_of

    if selection.run is not None:
        found = flaws_in(connection, [run_id_of(connection, selection.run)])
    else:
        found = new_flaws(connection, selection.window)
    if not found:
        return []
    nodes = {(one.cluster, node) for one in places(connection, selection) for node in nodes_of(one.client, one.server)}
    return [one for one in found if (one.cluster, one.node) in nodes]


def print_flaws(flaws: Iterable[Flaw]) -> None:
    """Print flaws of nodes, one a line: they may explain what follows."""
    for one in flaws:
        print_words(f"evidence  {one.cluster}: {one.words}", err=True)


# ----------------------------------------------------------------------------------------------------------------------
# `hpcq results` of many runs or by a property of nodes: --group-by, --sort, --limit.


_GROUP = (
    Column("group"),
    Column("cluster"),
    Column("kernel"),
    Column("size_text", "size"),
    Column("variant", wrap=True),
    Column("metric"),
    Column("pair_count", "pairs"),
    Column("n"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("level_ratio", "of all"),
)


def print_grouped(
    connection: Connection, selection: Selection, by: str, *, sort: str | None, limit: int | None, as_json: bool
) -> None:
    """Print medians by group: one row per group and test."""
    from hpcq.store.read.grouped import grouped

    rows = [{**asdict(one), "size_text": one.size_text} for one in grouped(connection, selection, by)]
    columns = [Column("group", by) if one.name == "group" else one for one in _GROUP]
    kept = [one for one in columns if one.name != "variant" or any(row["variant"] for row in rows)]
    print_rows(cut(ordered(rows, sort), limit, as_json=as_json), kept, as_json=as_json, empty="no valid result")


_Row = TypeVar("_Row")


def ordered(rows: Sequence[dict[str, Any]], sort: str | None) -> list[dict[str, Any]]:
    """Rows by one of their fields: `-FIELD` from large to small. Empty fields come last. Raises UserError for another word."""
    if sort is None or not rows:
        return list(rows)
    name = sort.removeprefix("-").replace("-", "_")
    name = {"size": "message_bytes"}.get(name, name)
    if name not in rows[0]:
        allowed = ", ".join(one for one in rows[0] if one not in {"parameters", "size_text", "main"})
        raise UserError(f"--sort: {sort}: must be one of {allowed}, with - before it from large to small")
    from hpcq.nodelist import natural

    there = [row for row in rows if row[name] is not None]
    empty = [row for row in rows if row[name] is None]

    def key(row: dict[str, Any]) -> Any:
        return natural(row[name]) if isinstance(row[name], str) else row[name]

    return sorted(there, key=key, reverse=sort.startswith("-")) + empty


def cut(rows: Sequence[_Row], limit: int | None, *, as_json: bool) -> Sequence[_Row]:
    """The first `limit` rows, and a word on standard error about the rest."""
    if not as_json:
        tell_cut(limit, len(rows))
    return rows[:limit]


def tell_cut(limit: int | None, count: int) -> None:
    """A word on standard error about rows that are left out."""
    if limit is not None and count > limit:
        print_words(f"the first {limit} of {count} rows; --limit shows more", err=True)


# ----------------------------------------------------------------------------------------------------------------------
# Print failed attempts at results that a later attempt measured: a repeat must not hide a crash.


def print_lost_tries(found: Sequence[LostTries]) -> None:
    """Print one line per reason; attempts that a signal ended come first."""
    for one in sorted(found, key=lambda one: not one.died):
        tries = "1 try" if one.count == 1 else f"{one.count} tries"
        words = f"{one.cluster}: {tries} of {one.kernel} brought nothing before a later one did: {one.reason}"
        print_words(f"{words} ({', '.join(one.pairs)})", err=True)


# ----------------------------------------------------------------------------------------------------------------------
# The medians of `hpcq results`: one row per test and pair.


PAIR = (Column("cluster"), Column("kernel"), Column("client"), Column("server"), Column("size_text", "size"))
_SUMMARY = (
    *PAIR,
    Column("variant", wrap=True),
    Column("network"),
    Column("metric"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("n"),
    Column("disturbed"),
    Column("purpose"),
)


def print_summaries(
    connection: Connection, summaries: Sequence[Summary], sort: str | None = None, limit: int | None = None
) -> None:
    """Print them, or the first of them in an order.

    The network has a column where a cluster's file names it, or where there are several.
    """
    from hpcq.store.query import FirstSummaries

    networks = {(one.cluster, one.network) for one in summaries}
    flags = any(one.variant for one in summaries), any(one.purpose != "plan" for one in summaries)
    print_first(connection, FirstSummaries(list(summaries), len(summaries), networks, *flags), sort, limit)


def print_first(connection: Connection, first: FirstSummaries, sort: str | None = None, limit: int | None = None) -> None:
    """Print the first summaries. Which columns there are follows from all of them."""
    from hpcq.store.query import network_texts

    named = network_texts(connection)
    several = len(first.networks) > len({cluster for cluster, _ in first.networks})
    told = {"variant": first.has_variants, "network": bool(named) or several, "purpose": first.has_confirmations}
    columns = [one for one in _SUMMARY if told.get(one.name, True)]
    rows = [
        {
            **as_mapping(one),
            "size_text": one.size_text,
            "disturbed": f"{one.disturbed_count} of {one.n}" if one.disturbed_count else "0",
            "network": named.get((one.cluster, one.network), one.network),
        }
        # the rest of thousands would be made for nothing
        for one in (first.rows if sort is not None else first.rows[:limit])
    ]
    tell_cut(limit, first.count)
    print_rows(ordered(rows, sort)[:limit], columns, empty="no valid result")


# ----------------------------------------------------------------------------------------------------------------------
# Toolchains of one run beside each other, as a table; `hpcq results --toolchains` shows it.


def print_toolchains(rows: Sequence[ToolchainRow], *, as_json: bool) -> int:
    """Print one row per test and metric, one column per toolchain: the median over jobs and its 95 % interval.

    Returns the exit code.
    """
    if not rows:
        print_words("no test of this run was measured with two toolchains", err=True)
    if as_json:
        print_json({"toolchains": [asdict(one) for one in rows]})
    elif rows:
        _print_table(rows)
    return Exit.OK if rows else Exit.INCOMPLETE


def _print_table(rows: Sequence[ToolchainRow]) -> None:
    names = list(dict.fromkeys(level.toolchain for one in rows for level in one.levels))
    columns = [
        *(Column("cluster"), Column("kernel"), Column("size"), Column("variant", wrap=True), Column("metric")),
        *(Column(f"level {name}", name, wrap=True) for name in names),
        *(Column("job_count", "jobs"), Column("said", "difference", wrap=True), Column("left_out_count", "left out")),
    ]
    empty = {name for name in ("variant", "left_out_count") if not any(getattr(row, name) for row in rows)}
    print_rows([_row(one, names) for one in rows], [one for one in columns if one.name not in empty])
    if "left_out_count" not in empty:
        print_words("left out: values beside other work, see docs/evidence.md", err=True)
    usual = sum(row.disturbed for row in rows)
    if usual:
        words = "rows measured beside other work in most of their jobs, which counts as usual"
        print_words(f"{words}: {usual} of {len(rows)}", err=True)


def _row(one: ToolchainRow, names: Sequence[str]) -> dict[str, Any]:
    from hpcq.kernels import size_text

    levels = dict.fromkeys((f"level {name}" for name in names), "") | {
        f"level {level.toolchain}": _level(level, one.unit) for level in one.levels
    }
    counts = sorted({level.job_count for level in one.levels})
    return {
        **{name: getattr(one, name) for name in ("cluster", "kernel", "variant", "metric", "said", "left_out_count")},
        "size": size_text(one.message_bytes),
        "job_count": " to ".join(map(str, counts[:: max(1, len(counts) - 1)])),
        **levels,
    }


def _level(level: ToolchainLevel, unit: str) -> str:
    middle = units.human(level.median, unit)
    if level.lowest is None or level.highest is None:
        return middle
    return f"{middle} [{units.human(level.lowest, unit)}, {units.human(level.highest, unit)}]"


# ----------------------------------------------------------------------------------------------------------------------


_EACH = (
    Column("result_id", "result"),
    *PAIR,
    Column("test_no", "test"),
    Column("repetition_no", "repetition"),
    Column("outcome", style=outcome_style),
    Column("metric"),
    Column("value", unit_field="unit"),
    Column("reason", wrap=True),
)
RUN_COLUMNS = (
    Column("run"),
    Column("cluster"),
    Column("planned_count", "planned"),
    Column("measured_count", "measured"),
    Column("invalid_count", "invalid"),
    Column("failed_count", "failed"),
    Column("not_measured_count", "not measured"),
)


@click.command()
@click.argument("run", required=False)
@filter_options
@click.option("--all-metrics", is_flag=True, help="Every metric.")
@click.option("--each", is_flag=True, help="One row per repetition, with result numbers, instead of medians.")
@click.option("--findings", is_flag=True, help="Show what the evidence says: one row per finding.")
@click.option("--group-by", "by", metavar="PROPERTY", help="By a property of nodes: driver, firmware, rack, leaf, any fact.")
@since_option(help_text="All runs in this stretch of time, instead of one run")
@click.option("--sort", metavar="FIELD", help="By this field; -FIELD from large to small: median, -disturbed_count.")
@limit_option()
@click.option("--links", is_flag=True, help="Compare links with the same nodes within their clusters: one row per test.")
@click.option("--toolchains", is_flag=True, help="Compare toolchains, and say whether they differ beyond noise.")
@database_option
@json_option
@says_that_it_works
def results(  # noqa: PLR0917 - Click passes by name
    run: str | None,
    wanted: Selection,
    all_metrics: bool,
    each: bool,
    findings: bool,
    links: bool,
    toolchains: bool,
    by: str | None,
    since: str | None,
    sort: str | None,
    limit: int | None,
    database: Path,
    as_json: bool,
) -> int:
    """Show results, by run, kernel and pair, and what the campaign's gates say of them.

    RUN is a run's id, the beginning of one, or a campaign's name. Default: the latest run. The first line says how much of
    what was planned is there, and what judged it. Exit code 3 when a gate failed, 4 when planned results are
    missing, a gate could not be judged, or there is no result at all; with --metric also when no result has that metric, with
    --findings when none has evidence, with --links when no link was measured.

    \b
    Example: hpcq results --kernel tcp_stream
    """
    from hpcq.store.database import reading

    ways = {"--each": each, "--findings": findings, "--group-by": by is not None, "--links": links, "--toolchains": toolchains}
    asked = [name for name, given in ways.items() if given]
    if len(asked) > 1:
        raise UserError(f"{asked[1]}: {asked[0]} is given too: each shows other rows", "leave out one of the two")
    view = asked[0] if asked else "--json" if as_json else "the table of medians"
    refuse_beside(
        "--metric" if wanted.metric and all_metrics else view, _USED[view] - ({"all_metrics"} if wanted.metric else set())
    )
    with reading(database) as connection:
        whole = selected(connection, run, since)
        selection = chosen_results(connection, wanted, whole)
        judged = judge_selection(connection, whole, selection)
        shown = _Shown(wanted.metric, all_metrics, each, by, sort, limit, as_json)
        if toolchains:
            return _print_toolchains(connection, selection.run, as_json=as_json)
        if findings:
            return print_findings(connection, selection, judged, limit, as_json=as_json)
        if links:
            return _show_links(connection, selection, shown, judged)
        _show(connection, selection, shown, judged)
        lacks = wanted.metric is not None and lacks_metric(connection, selection, wanted.metric)
    return Exit.INCOMPLETE if lacks and judged.exit_code is Exit.OK else judged.exit_code


def _show(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> None:
    """Show the selected results: how much is there and what is wrong first, the gates last."""
    if shown.as_json:
        if shown.by is None:
            _print_json(connection, selection, shown, judged)
        else:
            print_grouped(connection, selection, shown.by, sort=shown.sort, limit=shown.limit, as_json=True)
        return
    print_words(judged.first_line, err=True)
    print_flaws(flaws_of(connection, selection))
    if shown.by is not None:
        print_grouped(connection, selection, shown.by, sort=shown.sort, limit=shown.limit, as_json=False)
    elif shown.each:
        _print_each(connection, selection, shown)
    else:
        _print_medians(connection, selection, shown)
    print_gates(judged.gates)
    if selection.run is None:
        print_words("gates belong to one run: hpcq results RUN judges them", err=True)


def _show_links(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> int:
    """Show the links of the selected run, compared with its clusters."""
    from hpcq.analysis.distances import distances

    linked = distances(connection, selection.run or "")
    if shown.as_json:
        _print_json(connection, selection, shown, judged)
    else:
        print_links(linked)
    return links_exit(linked, judged)


#: By view, the options that it obeys: the results selected, the order and number of rows, the metric.
_NARROW = {"run", "since", *FILTERS} - {"metric"}
_USED = {
    "--each": {*_NARROW, "each", "metric", "sort", "limit"},
    "--findings": {*_NARROW, "findings", "limit"},
    "--group-by": {*_NARROW, "by", "sort", "limit"},
    "--links": {"run", "links"},
    "--toolchains": {"run", "toolchains"},
    "--json": {*_NARROW, "metric", "sort", "limit"},
    "the table of medians": {*_NARROW, "metric", "all_metrics", "sort", "limit"},
}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What to show of the selected results, and how."""

    metric: str | None
    all_metrics: bool
    each: bool
    by: str | None
    sort: str | None
    limit: int | None
    as_json: bool


def selected(connection: Connection, run: str | None, since: str | None) -> Selection:
    """One run; or with --since everything in a stretch of time."""
    from hpcq.store.selection import Selection, find_run

    if since is not None and run is not None:
        raise UserError(f"--since {since}: {run}: is about one run", "leave out one of the two")
    if since is None:
        return Selection(run=find_run(connection, run))
    window = stretch(connection, since)
    if window.run_ids is not None and len(window.run_ids) == 1 and not since.startswith("baseline:"):
        return Selection(run=find_run(connection, since))
    return Selection(window=window)


def _print_json(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> None:
    from hpcq.analysis.distances import distances
    from hpcq.store import query
    from hpcq.store.query import lost_tries

    found = in_metric_of(connection, query.results(connection, selection), shown.metric)
    # the rest of a hundred thousand would be made for nothing
    first = cut(found, shown.limit, as_json=True) if shown.sort is None else found
    rows = [{**as_mapping(row), "parameters": json.loads(row.parameters)} for row in first]
    shown_rows = cut(ordered(rows, shown.sort), shown.limit, as_json=True)
    runs = [] if selection.run is None else [asdict(row) for row in query.runs(connection, selection.run)]
    told: dict[str, Any] = {"runs": runs, "judged": judged.to_json(), "results": shown_rows}
    told["flaws"] = flaws_of(connection, selection)
    told["gates"] = [gate_json(one) for one in judged.gates]
    if selection.run is not None:
        told["links"] = [asdict(one) for one in distances(connection, selection.run)]
        told["lost_tries"] = [asdict(one) for one in lost_tries(connection, selection.run)]
    print_json(told)


def _print_toolchains(connection: Connection, run: str | None, *, as_json: bool) -> int:
    from hpcq.store.read.toolchains import toolchain_rows

    if run is None:
        raise UserError("--toolchains: --since: is about one run", "leave out one of the two")
    return print_toolchains(toolchain_rows(connection, run), as_json=as_json)


def _print_medians(connection: Connection, selection: Selection, shown: _Shown) -> None:
    from hpcq.store import query
    from hpcq.store.query import lost_tries

    if shown.sort is None and shown.limit is not None:
        first = query.first_summaries(connection, selection, shown.limit, metric=shown.metric, all_metrics=shown.all_metrics)
        print_first(connection, first, limit=shown.limit)
    else:
        found = query.summaries(connection, selection, metric=shown.metric, all_metrics=shown.all_metrics, confirmations=True)
        print_summaries(connection, found, shown.sort, shown.limit)
    _print_missing(query.not_measured(connection, selection))
    if selection.run is not None:
        print_lost_tries(lost_tries(connection, selection.run))


def print_run(run: RunFolder, database: Path, *, as_json: bool) -> int:
    """Print the end of `hpcq run`: the results, the verdict of the run's page, and where everything is. Returns the exit code
    of that verdict.
    """
    from hpcq.analysis.distances import distances
    from hpcq.analysis.run_verdict import verdict_of_run
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.query import lost_tries
    from hpcq.store.read.evidence_queries import finding_groups
    from hpcq.store.selection import Selection

    with reading(database) as connection:
        runs = query.runs(connection, run.run)
        selection = Selection(run=run.run)
        judged = judge_selection(connection, selection)
        standing = _confirmed(connection, runs)
        verdict = verdict_of_run(connection, run.run)
        if as_json:
            told = _run_json(run, database, runs, judged, finding_groups(connection, run.run))
            told["second_looks"] = [{**asdict(look), "words": look.words} for one in standing for look in one.second_looks]
            told["flaws"] = flaws_of(connection, selection)
            told |= verdict.to_json()
            print_json({**told, "lost_tries": [asdict(one) for one in lost_tries(connection, run.run)]})
        else:
            print_words(judged.first_line, err=True)
            for line in verdict.lines:
                print_words(line, err=True)
            print_flaws(flaws_of(connection, selection))
            print_summaries(connection, query.summaries(connection, selection, confirmations=True))
            _print_missing(query.not_measured(connection, selection))
            print_lost_tries(lost_tries(connection, run.run))
            _print_second_looks(standing, runs)
            print_words()
            linked = distances(connection, run.run)
            if linked:
                print_distances(linked)
                print_words()
            print_rows(runs, RUN_COLUMNS)
            print_gates(judged.gates)
            print_words(f"\npage      {near(run.report)}\ndatabase  {near(database)}\nfolder    {near(run.path)}")
            _print_evidence(finding_groups(connection, run.run))
    return verdict.exit_code


def _confirmed(connection: Connection, runs: Sequence[RunRow]) -> tuple[Standing, ...]:
    """Where the clusters stand whose suspects this run has looked for, as if it were the newest."""
    looked = {one.cluster: one.run for one in runs if one.suspected_utc is not None}
    if not looked:
        return ()
    from hpcq.analysis.standing import standings

    return standings(connection, looked, next(iter(looked.values())))


def _print_second_looks(standing: Sequence[Standing], runs: Sequence[RunRow]) -> None:
    """What came of the suspects, and what is told of each cluster after that."""
    from hpcq.judge.causes import Judged, Thing

    where = {one.cluster: one for one in standing}
    for row in runs:
        if row.suspected_utc is None:
            continue
        one = where.get(row.cluster)
        for look in one.second_looks if one else ():
            print_words(look.line)
        if one is None or not any(each.thing is Thing.NODE and each.judged is Judged.JUDGED for each in one.coverage):
            print_words(f"{row.cluster}: nothing was measured again: too little is known of its nodes to suspect one")
        elif not one.second_looks:
            print_words(f"{row.cluster}: no suspect to measure again at {row.suspected_utc[11:16]}")
        looked = {(look.thing, *sorted(look.names)) for look in one.second_looks} if one else set()
        for cause in one.causes if one else ():
            mine = (cause.thing.replace("pair", "link"), *sorted(cause.names))
            again = "" if cause.is_told or mine in looked else "; not measured again"
            print_words(f"{cause.words}{again}")


def _run_json(
    run: RunFolder, database: Path, runs: Sequence[RunRow], judged: RunJudged, findings: Sequence[FindingGroup]
) -> dict[str, Any]:
    return {
        "run": run.run,
        "folder": str(run.path),
        "report": str(run.report),
        "database": str(database.absolute()),
        "runs": [asdict(row) for row in runs],
        "judged": judged.to_json(),
        "gates": [gate_json(one) for one in judged.gates],
        "findings": [asdict(one) for one in findings],
    }


def _print_each(connection: Connection, selection: Selection, shown: _Shown) -> None:
    from hpcq.kernels import size_text
    from hpcq.store import query

    found = [dict(as_mapping(row)) for row in in_metric_of(connection, query.results(connection, selection), shown.metric)]
    rows = cut(ordered(found, shown.sort), shown.limit, as_json=False)
    print_rows([{**row, "size_text": size_text(row["message_bytes"])} for row in rows], _EACH, empty="no result")


def _print_missing(rows: Sequence[ResultRow]) -> None:
    reasons: dict[tuple[str, str, str], list[ResultRow]] = {}
    for one in rows:
        reasons.setdefault((one.cluster, one.outcome, one.reason or ""), []).append(one)
    for (cluster, outcome, reason), found in reasons.items():
        pairs = sorted({f"{one.client} > {one.server}" for one in found})
        more = f" and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
        count = "1 result" if len(found) == 1 else f"{len(found)} results"
        words = f"{cluster}: {count} {outcome.replace('_', ' ')}: {reason} ({', '.join(pairs[:3])}{more})"
        print_words(words, err=True)


def _print_evidence(groups: Sequence[FindingGroup]) -> None:
    """Print one line on what the evidence says about the numbers, if it says anything."""
    counts: Counter[str] = Counter()
    for one in groups:
        counts[one.rule] += one.result_count
    if counts:
        said = ", ".join(f"{rule} {count}" for rule, count in counts.most_common())
        print_words(f"evidence  {said} (`hpcq results --findings`)")

"""`hpcq results`, and the end of `hpcq run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.metrics import check_metric, in_metric_of, lacks_metric
from hpcq.cli.options import database_option, json_option, limit_option, near, since_option, stretch
from hpcq.cli.read.distances import links_exit, print_links
from hpcq.cli.read.findings import flaws_of, print_findings, print_flaws
from hpcq.cli.read.gate_rows import RunJudged, gate_json, judge_selection, print_gates
from hpcq.cli.read.grouped import cut, ordered, print_grouped
from hpcq.cli.read.lost_tries import print_lost_tries
from hpcq.cli.read.summary_rows import PAIR, print_summaries
from hpcq.cli.rows import Column, as_mapping, outcome_style, print_json, print_rows
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.run_folder.paths import RunFolder
    from hpcq.store.counted import Place
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow, RunRow, Selection
    from hpcq.store.read.evidence_queries import FindingGroup

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
@click.option("--kernel", help="Only this kernel.")
@click.option("--cluster", help="Only this cluster.")
@click.option("--node", help="Only tests that this node took part in: as an end of a pair, or in a set.")
@click.option("--metric", help="This metric instead of each kernel's main one.")
@click.option("--all-metrics", is_flag=True, help="Every metric.")
@click.option("--each", is_flag=True, help="One row per repetition, with result numbers, instead of medians.")
@click.option("--findings", is_flag=True, help="Show what the evidence says: one row per finding.")
@click.option("--group-by", "by", metavar="PROPERTY", help="By a property of nodes: driver, firmware, rack, leaf, any fact.")
@since_option(help_text="All runs in this stretch of time, instead of one run")
@click.option("--sort", metavar="FIELD", help="By this field; -FIELD from large to small: median, -disturbed_count.")
@limit_option()
@click.option("--links", is_flag=True, help="Compare links with the same nodes within their clusters: one row per test.")
@click.option("--toolchains", is_flag=True, help="Toolchains beside each other, and whether they differ beyond noise.")
@database_option
@json_option
def results(  # noqa: PLR0917 - Click passes by name
    run: str | None,
    kernel: str | None,
    cluster: str | None,
    node: str | None,
    metric: str | None,
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
    what was planned is there, and what judged it. Exit code 3 when a gate failed, 4 when something that was planned is not
    there, a gate could not be judged, or there is no result at all; with --metric also when no result has that metric, with
    --findings when none has evidence, with --links when no link was measured.

    \b
    Example: hpcq results --kernel tcp_stream
    """
    from hpcq.store.database import reading

    ways = {"--each": each, "--findings": findings, "--group-by": by is not None, "--links": links}
    _at_most_one([name for name, given in ways.items() if given])
    if since is not None and (run is not None or links):
        raise UserError(f"--since {since}: {'--links' if links else run}: is about one run", "leave out one of the two")
    with reading(database) as connection:
        whole = _selected(connection, run, since)
        selection = _narrowed(connection, whole, {"kernel": kernel, "cluster": cluster, "node": node})
        check_metric(metric, kernel)
        judged = judge_selection(connection, whole, selection)
        shown = _Shown(metric, all_metrics, each, by, sort, limit, as_json)
        if toolchains:
            return _print_toolchains(connection, selection.run, as_json=as_json)
        if findings:
            return print_findings(connection, selection, judged, as_json=as_json)
        if links:
            return _show_links(connection, selection, shown, judged)
        _show(connection, selection, shown, judged)
        lacks = metric is not None and lacks_metric(connection, selection, metric)
    return Exit.INCOMPLETE if lacks and judged.exit_code is Exit.OK else judged.exit_code


def _narrowed(connection: Connection, whole: Selection, names: dict[str, str | None]) -> Selection:
    """The selection with these names only; a name that it does not know is refused."""
    if any(name is not None for name in names.values()):
        from hpcq.store.counted import places

        check_names(places(connection, whole), **names)
    return replace(whole, **names)


def _show(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> None:
    """Show the selected results: how much is there and what is wrong first, the gates last."""
    if shown.as_json:
        if shown.by is None:
            _print_json(connection, selection, shown, judged)
        else:
            print_grouped(connection, selection, shown.by, sort=shown.sort, limit=shown.limit, as_json=True)
        return
    click.echo(judged.first_line, err=True)
    print_flaws(flaws_of(connection, selection))
    if shown.by is not None:
        print_grouped(connection, selection, shown.by, sort=shown.sort, limit=shown.limit, as_json=False)
    elif shown.each:
        _print_each(connection, selection, shown)
    else:
        _print_medians(connection, selection, shown)
    print_gates(judged.gates)
    if selection.run is None:
        click.echo("gates belong to one run: hpcq results RUN judges them", err=True)


def _show_links(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> int:
    """Show the links of the selected run, compared with its clusters."""
    from hpcq.analysis.distances import distances

    linked = distances(connection, selection.run or "")
    if shown.as_json:
        _print_json(connection, selection, shown, judged)
    else:
        print_links(linked)
    return links_exit(linked, judged)


def _at_most_one(ways: list[str]) -> None:
    """Each of these shows other rows; one of two would be left out without a word."""
    if len(ways) > 1:
        raise UserError(f"{ways[1]}: {ways[0]} is given too: each shows other rows", "leave out one of the two")


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


def _selected(connection: Connection, run: str | None, since: str | None) -> Selection:
    """One run; or with --since everything in a stretch of time."""
    from hpcq.store import query

    if since is None:
        return query.Selection(run=query.find_run(connection, run))
    window = stretch(connection, since)
    if window.run_ids is not None:
        return query.Selection(run=query.find_run(connection, since))
    return query.Selection(from_utc=window.from_utc, until_utc=window.until_utc)


def _print_json(connection: Connection, selection: Selection, shown: _Shown, judged: RunJudged) -> None:
    from hpcq.analysis.distances import distances
    from hpcq.store import query
    from hpcq.store.read.lost_tries import lost_tries

    rows = [_result_json(row) for row in in_metric_of(connection, query.results(connection, selection), shown.metric)]
    rows = cut(ordered(rows, shown.sort), shown.limit, as_json=True)
    runs = [] if selection.run is None else [asdict(row) for row in query.runs(connection, selection.run)]
    told: dict[str, Any] = {"runs": runs, "judged": judged.to_json(), "results": rows}
    told["flaws"] = flaws_of(connection, selection)
    told["gates"] = [gate_json(one) for one in judged.gates]
    if selection.run is not None:
        told["links"] = [asdict(one) for one in distances(connection, selection.run)]
        told["lost_tries"] = [asdict(one) for one in lost_tries(connection, selection.run)]
    print_json(told)


def _print_toolchains(connection: Connection, run: str | None, *, as_json: bool) -> int:
    from hpcq.cli.read.toolchains import print_toolchains
    from hpcq.store.read.toolchains import toolchain_rows

    if run is None:
        raise UserError("--toolchains: --since: is about one run", "leave out one of the two")
    return print_toolchains(toolchain_rows(connection, run), as_json=as_json)


def _print_medians(connection: Connection, selection: Selection, shown: _Shown) -> None:
    from hpcq.store import query
    from hpcq.store.read.lost_tries import lost_tries

    found = query.summaries(connection, selection, metric=shown.metric, all_metrics=shown.all_metrics)
    print_summaries(connection, found, shown.sort, shown.limit)
    _print_missing(query.not_measured(connection, selection))
    if selection.run is not None:
        print_lost_tries(lost_tries(connection, selection.run))


def print_run(run: RunFolder, database: Path, *, as_json: bool) -> int:
    """Print the end of `hpcq run`: the results, the gates, and where everything is. Returns the exit code."""
    from hpcq.analysis.distances import distances
    from hpcq.cli.read.distances import print_distances
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.read.evidence_queries import finding_groups
    from hpcq.store.read.lost_tries import lost_tries

    with reading(database) as connection:
        runs = query.runs(connection, run.run_id)
        selection = query.Selection(run=run.run_id)
        judged = judge_selection(connection, selection)
        if as_json:
            told = _run_json(run, database, runs, judged, finding_groups(connection, run.run_id))
            told["flaws"] = flaws_of(connection, selection)
            print_json({**told, "lost_tries": [asdict(one) for one in lost_tries(connection, run.run_id)]})
        else:
            click.echo(judged.first_line, err=True)
            print_flaws(flaws_of(connection, selection))
            print_summaries(connection, query.summaries(connection, selection))
            _print_missing(query.not_measured(connection, selection))
            print_lost_tries(lost_tries(connection, run.run_id))
            click.echo()
            linked = distances(connection, run.run_id)
            if linked:
                print_distances(linked)
                click.echo()
            print_rows(runs, RUN_COLUMNS)
            print_gates(judged.gates)
            click.echo(f"\npage      {near(run.report)}\ndatabase  {near(database)}\nfolder    {near(run.path)}")
            _print_evidence(finding_groups(connection, run.run_id))
    return judged.exit_code


def _run_json(
    run: RunFolder, database: Path, runs: Sequence[RunRow], judged: RunJudged, findings: Sequence[FindingGroup]
) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "folder": str(run.path),
        "report": str(run.report),
        "database": str(database.absolute()),
        "runs": [asdict(row) for row in runs],
        "judged": judged.to_json(),
        "gates": [gate_json(one) for one in judged.gates],
        "findings": [asdict(one) for one in findings],
    }


def _result_json(row: ResultRow) -> dict[str, Any]:
    return {**as_mapping(row), "parameters": json.loads(row.parameters)}


def check_names(rows: Sequence[Place], **wanted: str | None) -> None:
    """Raise UserError for a name that nothing in the run has; it lists the valid names."""
    from hpcq.kernels import unknown_name
    from hpcq.nodelist import nodes_of
    from hpcq.sorting import natural

    for what, name in wanted.items():
        if what == "node":
            known = sorted({one for row in rows for one in nodes_of(row.client, row.server)}, key=natural)
        else:
            known = sorted({str(getattr(row, what)) for row in rows})
        if name is not None and name not in known:
            message, hint = unknown_name(f"{what} of this run", name, known)
            raise UserError(f"--{what}: {message}", hint)


def _print_each(connection: Connection, selection: Selection, shown: _Shown) -> None:
    from hpcq.store import query
    from hpcq.store.query import size_text

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
        click.echo(words, err=True)


def _print_evidence(groups: Sequence[FindingGroup]) -> None:
    """Print one line on what the evidence says about the numbers, if it says anything."""
    counts: Counter[str] = Counter()
    for one in groups:
        counts[one.rule] += one.result_count
    if counts:
        said = ", ".join(f"{rule} {count}" for rule, count in counts.most_common())
        click.echo(f"evidence  {said} (`hpcq results --findings`)")

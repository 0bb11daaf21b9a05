"""Verbs about measured results: results; and load and report, which write files into the database and the page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import database_option, json_option, near, runs_option
from hpcq.cli.read.gate_rows import chosen_gates, exit_code, gate_json, print_gates
from hpcq.cli.read.lost_tries import print_lost_tries
from hpcq.cli.rows import Column, outcome_style, print_json, print_rows
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.run_folder.paths import RunFolder
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow, RunRow, Selection, Summary
    from hpcq.store.read.evidence_queries import FindingGroup
    from hpcq.verdict import GateVerdict

_PAIR = (Column("cluster"), Column("kernel"), Column("client"), Column("server"), Column("size_text", "size"))
_SUMMARY = (
    *_PAIR,
    Column("variant", wrap=True),
    Column("metric"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("n"),
    Column("disturbed_count", "disturbed"),
)
_EACH = (
    Column("result_id", "result"),
    *_PAIR,
    Column("test_no", "test"),
    Column("repetition_no", "repetition"),
    Column("outcome", style=outcome_style),
    Column("metric"),
    Column("value", unit_field="unit"),
    Column("reason", wrap=True),
)
_RUN = (
    Column("run"),
    Column("cluster"),
    Column("planned_count", "planned"),
    Column("measured_count", "measured"),
    Column("invalid_count", "invalid"),
    Column("failed_count", "failed"),
    Column("not_measured_count", "not measured"),
)
_FINDING = (
    Column("result_id", "result"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("rule", "finding"),
    Column("end"),
    Column("message", "what was seen", wrap=True),
)
_LOADED = (*_RUN[1:], Column("read_count", "read now"))


@click.command()
@click.argument("run", required=False)
@click.option("--kernel", help="Only this kernel.")
@click.option("--cluster", help="Only this cluster.")
@click.option("--node", help="Only pairs with this node at either end.")
@click.option("--metric", help="This metric instead of each kernel's main one.")
@click.option("--all-metrics", is_flag=True, help="Every metric.")
@click.option("--each", is_flag=True, help="One row per repetition, with result numbers, instead of medians.")
@click.option("--findings", is_flag=True, help="Show what the evidence says: one row per finding.")
@click.option("--links", is_flag=True, help="Compare links with the same nodes within their clusters: one row per test.")
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
    database: Path,
    as_json: bool,
) -> int:
    """Show results, by run, kernel and pair, and what the campaign's gates say of them.

    RUN is a run's id, the beginning of one, or a campaign's name. Default: the latest run. Exit code 3 when a gate failed, 4
    when something that was planned is not there or a gate is inconclusive.

    \b
    Example: hpcq results --kernel tcp_stream
    """
    from hpcq.analysis.distances import distances
    from hpcq.cli.read.distances import print_distances
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.read.lost_tries import lost_tries

    with reading(database) as connection:
        name = query.find_run(connection, run)
        check_names(query.results(connection, query.Selection(run=name)), kernel=kernel, cluster=cluster, node=node)
        selection = query.Selection(run=name, kernel=kernel, cluster=cluster, node=node)
        runs = query.runs(connection, name)
        if findings:
            return _print_findings(connection, selection, as_json)
        if links and not as_json:
            print_distances(distances(connection, name))
            return Exit.OK
        verdicts = chosen_gates(connection, selection)
        if as_json:
            _check_metric(metric, kernel)
            rows = [_result_json(row) for row in _in_metric(connection, query.results(connection, selection), metric)]
            told = {"runs": [asdict(row) for row in runs], "results": rows, "gates": [gate_json(one) for one in verdicts]}
            lost = [asdict(one) for one in lost_tries(connection, name)]
            print_json({**told, "links": [asdict(one) for one in distances(connection, name)], "lost_tries": lost})
        elif each:
            _check_metric(metric, kernel)
            _print_each(_in_metric(connection, query.results(connection, selection), metric))
        else:
            _check_metric(metric, kernel)
            _print_summaries(query.summaries(connection, selection, metric=metric, all_metrics=all_metrics))
            _print_missing(query.not_measured(connection, selection))
            print_lost_tries(lost_tries(connection, name))
        if not as_json:
            print_gates(verdicts)
    return exit_code(verdicts, complete=all(row.complete for row in runs))


@click.command()
@click.argument("run", required=False)
@database_option
@runs_option
@json_option
def load(run: str | None, database: Path, runs_folder: Path, as_json: bool) -> int:
    """Load a run's files into the database (again).

    You may do this at any time and as often as you like; hpcq loads nothing twice.

    \b
    Example: hpcq load lab
    """
    from hpcq.runner import stages
    from hpcq.runner.live import find_run_folder

    loaded = stages.load(find_run_folder(run, runs_folder), database)
    if as_json:
        print_json(loaded)
        return Exit.OK
    print_rows(loaded["clusters"], _LOADED)
    for one in loaded["clusters"]:
        for note in one["notes"]:
            click.echo(f"{one['cluster']}: {note}", err=True)
    return Exit.OK


@click.command()
@click.argument("run", required=False)
@click.option(
    "--to", "path", type=click.Path(path_type=Path, dir_okay=False), help="The file to write. Default: in the run's folder."
)
@database_option
@runs_option
@json_option
def report(run: str | None, path: Path | None, database: Path, runs_folder: Path, as_json: bool) -> int:
    """Write a run's page: one HTML file that needs nothing else.

    \b
    Example: hpcq report --to report.html
    """
    from hpcq.reports import write_report
    from hpcq.runner.live import find_run_folder

    folder = find_run_folder(run, runs_folder)
    written = write_report(database, folder.run_id, path or folder.report)
    if as_json:
        print_json({"run_id": folder.run_id, "report": str(written.absolute())})
    else:
        click.echo(str(written))
    return Exit.OK


def print_run(run: RunFolder, database: Path, *, as_json: bool) -> int:
    """Print the end of `hpcq run`: the results, the gates, and where everything is. Returns the exit code."""
    from hpcq.analysis.distances import distances
    from hpcq.analysis.gates import judge_run
    from hpcq.cli.read.distances import print_distances
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.read.evidence_queries import finding_groups
    from hpcq.store.read.lost_tries import lost_tries

    with reading(database) as connection:
        runs = query.runs(connection, run.run_id)
        selection = query.Selection(run=run.run_id)
        verdicts = judge_run(connection, run.run_id)
        if as_json:
            told = _run_json(run, database, runs, verdicts, finding_groups(connection, run.run_id))
            print_json({**told, "lost_tries": [asdict(one) for one in lost_tries(connection, run.run_id)]})
        else:
            _print_summaries(query.summaries(connection, selection))
            _print_missing(query.not_measured(connection, selection))
            print_lost_tries(lost_tries(connection, run.run_id))
            click.echo()
            linked = distances(connection, run.run_id)
            if linked:
                print_distances(linked)
                click.echo()
            print_rows(runs, _RUN)
            print_gates(verdicts)
            click.echo(f"\npage      {near(run.report)}\ndatabase  {near(database)}\nfolder    {near(run.path)}")
            _print_evidence(finding_groups(connection, run.run_id))
    return exit_code(verdicts, complete=all(row.complete for row in runs))


def _run_json(
    run: RunFolder, database: Path, runs: Sequence[RunRow], verdicts: Sequence[GateVerdict], findings: Sequence[FindingGroup]
) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "folder": str(run.path),
        "report": str(run.report),
        "database": str(database.absolute()),
        "runs": [asdict(row) for row in runs],
        "gates": [gate_json(one) for one in verdicts],
        "findings": [asdict(one) for one in findings],
    }


def _result_json(row: ResultRow) -> dict[str, Any]:
    return {**asdict(row), "parameters": json.loads(row.parameters)}


def check_names(rows: Sequence[ResultRow], **wanted: str | None) -> None:
    """Raise UserError for a name that nothing in the run has; it lists the valid names."""
    from hpcq.kernels import unknown_name

    for what, name in wanted.items():
        ends = ("client", "server") if what == "node" else (what,)
        known = sorted({str(getattr(row, end)) for row in rows for end in ends})
        if name is not None and name not in known:
            message, hint = unknown_name(f"{what} of this run", name, known)
            raise UserError(f"--{what}: {message}", hint)


def _in_metric(connection: Connection, rows: list[ResultRow], metric: str | None) -> list[ResultRow]:
    from hpcq.store.query import in_metric

    return rows if metric is None else in_metric(connection, rows, metric)


def _check_metric(metric: str | None, kernel: str | None) -> None:
    from hpcq.kernels import kernels, unknown_name

    known = {one.name for name, found in kernels().items() if kernel in {None, name} for one in found.metrics}
    if metric is not None and metric not in known:
        message, hint = unknown_name(f"metric of {kernel or 'any kernel'}", metric, sorted(known))
        raise UserError(f"--metric: {message}", hint)


def _print_summaries(summaries: Sequence[Summary]) -> None:
    columns = [one for one in _SUMMARY if one.name != "variant" or any(row.variant for row in summaries)]
    rows = [{**asdict(one), "size_text": one.size_text} for one in summaries]
    print_rows(rows, columns, empty="no valid result")


def _print_each(rows: Sequence[ResultRow]) -> None:
    from hpcq.store.query import size_text

    print_rows([{**asdict(row), "size_text": size_text(row.message_bytes)} for row in rows], _EACH, empty="no result")


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


def _print_findings(connection: Connection, selection: Selection, as_json: bool) -> int:
    from hpcq.store.read.evidence_queries import findings_of

    print_rows(findings_of(connection, selection), _FINDING, as_json=as_json, empty="no finding")
    return Exit.OK

"""`hpcq export`: a run for other programs, and dashboards over the database."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.options import FILTERS, chosen_results, database_option, filter_options, refuse_beside, since_option
from hpcq.cli.output import says_that_it_works, write_out
from hpcq.errors import Exit, UserError
from hpcq.exports import DASHBOARDS, OWN_FORMATS, SUMMARIES, TABLES, exporter
from hpcq.plugins import EXPORTERS, plugins

if TYPE_CHECKING:
    from hpcq.exports import Exported
    from hpcq.store.selection import Selection


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "kind",
    type=click.Choice([*OWN_FORMATS, *(one.name for one in plugins(EXPORTERS))]),
    required=True,
    help="What to write.",
)
@click.option("--to", "target", type=click.Path(path_type=Path, dir_okay=False), help="This file instead of standard output.")
@since_option(help_text="Tables: all runs in this stretch of time, instead of one run")
@filter_options
@database_option
@says_that_it_works
def export(  # noqa: PLR0917 - Click passes by name
    run: str | None,
    kind: str,
    target: Path | None,
    since: str | None,
    wanted: Selection,
    database: Path,
) -> int:
    """Write a run for another program (a table, a CI system), or a dashboard over all runs.

    RUN is a run's id, the beginning of one, or a campaign's name. Default: the latest run. csv, jsonl and parquet have one
    row per result and metric, and one row with the reason per missing result; parquet needs pyarrow. junit, markdown and
    prometheus summarise the run with the verdict of its page. Their exit code is 3 when something is slow, broken or fails
    a gate, and 4 when planned results are missing or something is undecided. Plug-ins may
    add formats that summarise.

    grafana and datasette cover the whole database. grafana writes a dashboard to import; Grafana needs the plugin
    frser-sqlite-datasource with the path of the database. datasette writes metadata: what each table and column means, and
    the same questions as URLs. It refers to the database by the path that --db gives.

    \b
    Example: hpcq export --format junit --to hpcq.xml
             hpcq export --format datasette --to metadata.json
    """
    if kind in DASHBOARDS:
        refuse_beside(f"--format {kind}", {"kind", "target"})
        write_out([json.dumps(_dashboard(kind, database), indent=1, ensure_ascii=False) + "\n"], target)
        return Exit.OK
    if kind not in TABLES:
        refuse_beside(f"--format {kind}", {"run", "kind", "target", *FILTERS})
    if kind not in OWN_FORMATS:
        exporter(kind)  # a broken one is told before anything is read
    from hpcq.cli.results import selected
    from hpcq.exports import collect, fits_by_pair, rows
    from hpcq.store.database import reading

    with reading(database) as connection:
        selection = chosen_results(connection, wanted, selected(connection, run, since))
        if kind in TABLES:
            write_out(_table_writer(kind, target)(rows(connection, selection)), target)
            return Exit.OK
        exported = collect(connection, selection)
    write_out([_summary_writer(kind)(exported)], target)
    if kind == "prometheus" and not fits_by_pair(exported):
        count = units.count_of(len(exported.summaries), "median")
        click.echo(f"{count} of pairs are too many for one file: it has the main metrics by node", err=True)
    return exported.exit_code


def _dashboard(kind: str, database: Path) -> dict[str, Any]:
    from hpcq import exports
    from hpcq.assets import database_schema

    if kind == "grafana":
        return exports.grafana()
    lines = database_schema().read_text(encoding="utf-8").splitlines()
    return exports.datasette(database.stem, exports.described(lines))


def _table_writer(kind: str, target: Path | None) -> Callable[[Iterable[Mapping[str, Any]]], Iterable[str | bytes]]:
    if kind == "parquet":
        from hpcq.exports import parquet_pieces

        if target is None and sys.stdout.isatty():
            raise UserError("--format parquet: standard output is a terminal: must be a file or a pipe", "add --to FILE")
        return parquet_pieces
    from hpcq import exports

    return exports.csv_lines if kind == "csv" else exports.json_lines


def _summary_writer(kind: str) -> Callable[[Exported], str]:
    if kind not in SUMMARIES:
        from hpcq.exports import plugged_text

        return partial(plugged_text, kind)
    if kind == "junit":
        from hpcq.exports import junit_text

        return junit_text
    if kind == "markdown":
        from hpcq.exports import markdown_text

        return markdown_text
    from hpcq.exports import prometheus_text

    return prometheus_text

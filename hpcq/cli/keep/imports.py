"""`hpcq import`: results that other programs measured, from their files."""

from __future__ import annotations

import datetime as dt
import gc
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq import units
from hpcq.cli.options import database_option, json_option
from hpcq.cli.output import print_json
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.store.load.imported import ImportReport

_SHOWN = 8


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--cluster", required=True, help="The cluster of these nodes, by its name here; a new name is fine.")
@click.option(
    "--facts",
    "facts_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="CSV node,time,fact,value: what the nodes were since when, like nic.eth0.speed_bps or cpu.model.",
)
@database_option
@json_option
def import_(files: tuple[Path, ...], cluster: str, facts_file: Path | None, database: Path, as_json: bool) -> int:
    """Bring results that other programs measured into the database, from CSV files.

    The columns are time,run,test,client,server,metric,value,unit,better, and where wanted job, repetition, outcome, reason,
    message_bytes. They become runs of kind import: every reading and judging verb works on them, but no evidence stands
    behind them. Importing a file twice changes nothing. A row with a mistake is refused with its line and column, and then
    nothing is imported.

    \b
    Example: hpcq import measured.csv --cluster alpha --facts facts.csv
    """
    from hpcq.imports.table import read_facts, read_table
    from hpcq.imports.values import Problems, name_of, runs_of
    from hpcq.store.load.imported import Brought, import_runs

    try:
        name_of(cluster)
    except ValueError as error:
        raise UserError(f"--cluster: {error}") from None
    problems, was = Problems(), gc.isenabled()
    gc.disable()  # a million rows make no circles of objects: Python's search for them would take a third of the time
    try:
        runs, sources = runs_of((read_table(path, problems) for path in files), problems)
        facts = read_facts(facts_file, problems) if facts_file else {}
        problems.refuse("docs/import.md has the columns")
        done = import_runs(database, cluster, Brought(runs, sources, facts, problems))
    finally:
        if was:
            gc.enable()
    if as_json:
        print_json(asdict(done))
    else:
        _print(done)
    return Exit.OK


def _print(done: ImportReport) -> None:
    new, known = units.count_of(done.new_value_count, "new value"), done.known_value_count
    kept = f"; {units.count_of(known, 'value')} there already" if known else ""
    runs = f"{units.count_of(done.run_count, 'run')} ({done.new_run_count} new), {done.first_utc[:10]} to {done.last_utc[:10]}"
    made = f"{new} in {units.count_of(done.new_result_count, 'new result')}" if done.new_value_count else "nothing new"
    click.echo(f"{done.cluster}: {made}{kept}; {runs}", err=True)
    click.echo(f"tests: {_some(done.tests)}; imported: no evidence stands behind these values", err=True)
    if done.new_fact_count:
        click.echo(f"facts: attached to {units.count_of(done.new_fact_count, 'end')} of jobs", err=True)
    if done.late_facts:
        words = "their first fact is later than some of their results, which have no facts"
        click.echo(f"warning: {_some(done.late_facts)}: {words}", err=True)
    if done.unknown_nodes:
        click.echo(f"warning: facts of nodes without a result, left out: {_some(done.unknown_nodes)}", err=True)
    if done.last_utc > units.utc_text(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)):
        click.echo(f"warning: the newest value is of {done.last_utc[:16]} UTC, which is in the future", err=True)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

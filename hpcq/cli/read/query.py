"""`hpcq runs` and `hpcq sql`: the list of runs, and your own queries."""

from __future__ import annotations

import math
from pathlib import Path

import click

from hpcq.cli.options import NUMBER, database_option, json_option
from hpcq.cli.rows import Column, print_rows
from hpcq.errors import Exit, UserError

_RUN = (
    Column("run"),
    Column("campaign"),
    Column("cluster"),
    Column("created_utc", "started"),
    Column("planned_count", "planned"),
    Column("measured_count", "measured"),
    Column("missing_count", "missing"),
    Column("ended"),
)


@click.command()
@click.option("--campaign", help="Only runs of this campaign.")
@click.option("--limit", type=NUMBER, default=20, show_default=True, help="At most this many rows.")
@database_option
@json_option
def runs(campaign: str | None, limit: int, database: Path, as_json: bool) -> int:
    """List the runs in the database, newest first: when, where, how much was measured.

    \b
    Example: hpcq runs --campaign nightly
    """
    from hpcq.store.database import reading
    from hpcq.store.free_query import runs as found
    from hpcq.store.read.known import check_known

    with reading(database) as connection:
        check_known(connection, campaign=campaign)
        rows = found(connection, campaign, limit)
    print_rows(rows, _RUN, as_json=as_json, empty="no run: `hpcq run CAMPAIGN` makes one")
    return Exit.OK


@click.command()
@click.argument("query")
@database_option
@json_option
def sql(query: str, database: Path, as_json: bool) -> int:
    """Run a SELECT on the database, which it cannot change.

    \b
    Example: hpcq sql "SELECT kernel, count(*) FROM v_results GROUP BY kernel"
    """
    from hpcq.store.database import reading
    from hpcq.store.free_query import answer

    with reading(database) as connection:
        found = answer(connection, query)
    endless = next((name for row in found.rows for name, value in row.items() if value in {math.inf, -math.inf}), None)
    if as_json and endless is not None:
        raise UserError(f"SQL: {endless}: is infinite: JSON has no such number", "ask for it as text, or without --json")
    print_rows(found.rows, [Column(name, name, wrap=True) for name in found.columns], as_json=as_json, empty="no row")
    return Exit.OK

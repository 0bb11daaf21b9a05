"""`hpcq runs` and `hpcq sql`: the list of runs, and your own queries."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import (
    FILTERS,
    NUMBER,
    database_option,
    filters_without,
    json_option,
    limit_option,
    refuse_beside,
    since_option,
    stretch,
)
from hpcq.cli.output import Column, json_text, plain_lines, print_rows, print_words, says_that_it_works, verdict_style
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.store.free_query import Answer
    from hpcq.store.selection import Selection

_NO_ROW = "no row"
_ROWS_OF_A_TABLE = 1000
_ROWS_AT_ONCE = 100

_RUN = (
    Column("run"),
    Column("kind"),
    Column("campaign"),
    Column("cluster"),
    Column("created_utc", "started"),
    Column("planned_count", "planned"),
    Column("measured_count", "measured"),
    Column("coverage_ratio", "coverage"),
    Column("verdict", style=verdict_style),
    Column("ended"),
)


_COST = (
    Column("month"),
    Column("cluster"),
    Column("account"),
    Column("run_count", "runs"),
    Column("job_count", "jobs"),
    Column("node_hours", "node-hours"),
    Column("open_count", "not ended"),
)
#: By view, the options that it obeys.
_USED = {
    "--cost": {"cost", "campaign", "since", "cluster"},
    "the list of runs": {"campaign", "since", "limit", *FILTERS} - {"metric"},
}


@click.command()
@click.option("--campaign", help="Only runs of this campaign.")
@since_option(help_text="Only runs that began in this stretch of time")
@click.option("--limit", type=NUMBER, default=20, show_default=True, help="At most this many rows.")
@click.option("--cost", is_flag=True, help="What the tests cost instead: node-hours by month, cluster and account.")
@filters_without("metric")
@database_option
@json_option
@says_that_it_works
def runs(  # noqa: PLR0917 - Click passes by name
    campaign: str | None, since: str | None, limit: int, cost: bool, wanted: Selection, database: Path, as_json: bool
) -> int:
    """List the runs in the database, newest first: when, where, how much was measured, and the verdict.

    The verdict is that of the run's page (`hpcq report RUN`): it follows from the gates, from the comparison with earlier
    runs up to that one, from acceptances, and from what is missing. A run that nothing can judge is `not judged`. Runs of
    kind import come from `hpcq import`.

    --cost: an allocation costs its nodes times the time from its start to its end. The account is the one that the cluster's
    file named at that time; it is empty where your default account paid.

    \b
    Example: hpcq runs --campaign nightly --since 30d
             hpcq runs --cost --since 90d
    """
    view = "--cost" if cost else "the list of runs"
    refuse_beside(view, _USED[view])
    if cost:
        return _cost(database, since or "365d", wanted.cluster, campaign, as_json=as_json)
    from hpcq.analysis.run_verdict import with_verdicts
    from hpcq.store.database import reading
    from hpcq.store.free_query import runs as found
    from hpcq.store.query import check_known
    from hpcq.store.selection import check_selection

    with reading(database) as connection:
        check_known(connection, campaign=campaign, cluster=wanted.cluster)
        check_selection(connection, replace(wanted, cluster=None))
        selection = replace(wanted, window=stretch(connection, since))
        rows = with_verdicts(connection, found(connection, campaign, selection, limit))
    shown = rows if as_json else [{**row, "verdict": row["verdict"].replace("_", " ")} for row in rows]
    none = "no run: `hpcq run CAMPAIGN` makes one" if since is None else f"no run began in {since}"
    print_rows(shown, _RUN, as_json=as_json, empty=none)
    return Exit.OK


def _cost(database: Path, since: str, cluster: str | None, campaign: str | None, *, as_json: bool) -> int:
    from hpcq.store.database import reading
    from hpcq.store.query import check_known
    from hpcq.store.read.nodes import costs

    with reading(database) as connection:
        check_known(connection, cluster=cluster, campaign=campaign)
        found = costs(connection, stretch(connection, since), cluster, campaign)
    rows = [{**asdict(one), "node_hours": round(one.node_hours, 3)} for one in found]
    print_rows(rows, _COST, as_json=as_json, empty=f"no job started since {since}")
    return Exit.OK


@click.command()
@click.argument("query")
@limit_option()
@database_option
@json_option
@says_that_it_works
def sql(query: str, limit: int | None, database: Path, as_json: bool) -> int:
    """Run a SELECT on the database; it cannot change anything.

    hpcq prints rows as it finds them. On a terminal, each 1,000 rows are one table.

    \b
    Example: hpcq sql "SELECT kernel, count(*) FROM v_results GROUP BY kernel"
    """
    from hpcq.cli.output import unhurried
    from hpcq.store.database import reading
    from hpcq.store.free_query import answer

    with unhurried() as write, reading(database) as connection:
        found = answer(connection, query)
        texts = (_json if as_json else _tables if sys.stdout.isatty() else _lines)(found, limit)
        while text := "".join(islice(texts, _ROWS_AT_ONCE)):
            write(text)
        more = next(found.rows, None) is not None
    if more:
        print_words(f"the first {limit} rows; there are more: --limit", err=True)
    return Exit.OK


def _lines(found: Answer, limit: int | None) -> Iterator[str]:
    """A head and one line per row; without a row, a word on standard error too."""
    rows = islice(found.rows, limit)
    first = next(rows, None)
    if first is None:
        print_words(_NO_ROW, err=True)
    yield from plain_lines(chain(() if first is None else [first], rows), _columns(found))


def _tables(found: Answer, limit: int | None) -> Iterator[str]:
    """Tables of some rows each: the widths of their columns need them all."""
    rows = islice(found.rows, limit)
    part = list(islice(rows, _ROWS_OF_A_TABLE))
    if not part:
        yield f"{_NO_ROW}\n"
    while part:
        out = _Terminal()
        print_rows(part, _columns(found), file=out)
        yield out.getvalue()
        part = list(islice(rows, _ROWS_OF_A_TABLE))


def _json(found: Answer, limit: int | None) -> Iterator[str]:
    """One JSON array, as `print_json` writes it. An infinite number ends it: JSON has none."""
    before = "[\n"
    for row in islice(found.rows, limit):
        endless = next((name for name, value in row.items() if value in {math.inf, -math.inf}), None)
        if endless is not None:
            raise UserError(f"SQL: {endless}: is infinite: JSON has no such number", "ask for it as text, or without --json")
        yield before + indent(json_text(row), " ")
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _columns(found: Answer) -> list[Column]:
    return [Column(name, name, wrap=True) for name in found.columns]


class _Terminal(io.StringIO):
    """Text that is written to a terminal later."""

    def isatty(self) -> bool:
        return True

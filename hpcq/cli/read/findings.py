"""What the evidence says of the results: `hpcq results --findings`, and flaws of nodes before any table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hpcq.cli.read.gate_rows import RunJudged
from hpcq.cli.rows import Column, print_rows
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Selection
    from hpcq.store.read.evidence_queries import Flaw

_FINDING = (
    Column("result_id", "result"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("rule", "finding"),
    Column("end"),
    Column("message", "what was seen", wrap=True),
)


def print_findings(connection: Connection, selection: Selection, judged: RunJudged, *, as_json: bool) -> int:
    """Print the findings. Exit code 4 if no result has evidence: then "no finding" would say nothing."""
    from hpcq.store.read.evidence_queries import evidence_counts, findings_of

    result_count, seen_count = evidence_counts(connection, selection)
    if not as_json:
        none = f"no evidence judged: {f'none of {result_count} results has any' if result_count else 'there is no result'}"
        click.echo(f"{seen_count} of {result_count} results judged by their evidence" if seen_count else none, err=True)
    print_rows(findings_of(connection, selection), _FINDING, as_json=as_json, empty="no finding")
    return judged.exit_code if seen_count else judged.exit_code or Exit.INCOMPLETE


def flaws_of(connection: Connection, selection: Selection) -> list[Flaw]:
    """What the evidence of the selected runs says is wrong with nodes."""
    from hpcq.store.read.evidence_queries import flaws_in, new_flaws
    from hpcq.store.time_windows import Window, run_id_of

    if selection.run is not None:
        found = flaws_in(connection, [run_id_of(connection, selection.run)], selection.cluster)
    else:
        found = new_flaws(connection, Window("", selection.from_utc, selection.until_utc))
    return [one for one in found if selection.cluster in {None, one.cluster} and selection.node in {None, one.node}]


def print_flaws(flaws: Iterable[Flaw]) -> None:
    """Print flaws of nodes, one a line: they may explain what follows."""
    for one in flaws:
        click.echo(f"evidence  {one.cluster}: {one.words}", err=True)

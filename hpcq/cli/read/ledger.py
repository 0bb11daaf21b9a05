"""`hpcq ledger`: verdicts of acceptances on nodes, links, groups and collectives."""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.options import database_option, json_option
from hpcq.cli.output import Column, print_rows, verdict_style
from hpcq.errors import Exit

_COLUMNS = (
    Column("cluster"),
    Column("kind"),
    Column("name"),
    Column("verdict", style=verdict_style),
    Column("decided_utc", "decided"),
    Column("run"),
    Column("reason", wrap=True),
)


@click.command()
@click.option("--cluster", help="Only this cluster.")
@click.option("--node", help="Only this node, and the links, groups and collectives that it shares.")
@click.option("--each", is_flag=True, help="Every verdict, oldest first, not only the last one.")
@click.option("--exit-code", "judging", is_flag=True, help="End with 0 only where all is a pass: 3 failed or degraded, else 4.")
@database_option
@json_option
def ledger(  # noqa: PLR0917 - Click passes by name
    cluster: str | None, node: str | None, each: bool, judging: bool, database: Path, as_json: bool
) -> int:
    """Show the last verdict on each node and collective, and on each link and group that was ever at fault.

    hpcq accept records them. A group is all nodes behind one leaf switch. A link or group that was repaired is a pass. A
    collective names no node: with --node it stands in the list, and does not count in the exit code.

    \b
    Example: hpcq ledger --node n2 --each
             hpcq ledger --node n2 --exit-code
    """
    from hpcq.store.database import reading
    from hpcq.store.ledger import last_verdicts
    from hpcq.verdict.record import Thing
    from hpcq.verdict.words import Tally

    with reading(database) as connection:
        rows = last_verdicts(connection, cluster, node, each=each)
        now = rows if not each else last_verdicts(connection, cluster, node)
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no verdict: hpcq accept gives them")
    counted = [one for one in now if node is None or one.kind is not Thing.COLLECTIVE]
    return Tally.of(one.verdict for one in counted).exit_code if judging else Exit.OK

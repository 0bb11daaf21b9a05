"""`hpcq ledger`: verdicts of acceptances on nodes, links and groups."""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.options import database_option, json_option
from hpcq.cli.rows import Column, print_rows, verdict_style
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
@click.option("--node", help="Only this node, and the links and groups that it shares.")
@click.option("--each", is_flag=True, help="Every verdict, oldest first, not only the last one.")
@database_option
@json_option
def ledger(cluster: str | None, node: str | None, each: bool, database: Path, as_json: bool) -> int:
    """Show the last verdict on each node, and on each link and group that was ever at fault.

    hpcq accept records them. A group is all nodes behind one leaf switch. A link or group that was repaired is a pass.

    \b
    Example: hpcq ledger --node n2 --each
    """
    from hpcq.store.database import reading
    from hpcq.store.ledger import last_verdicts

    with reading(database) as connection:
        rows = last_verdicts(connection, cluster, node, each=each)
    print_rows(rows, _COLUMNS, as_json=as_json, empty="no verdict: hpcq accept gives them")
    return Exit.OK

"""`hpcq notify`: a command of the site gets the verdicts that changed."""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.options import database_option, json_option
from hpcq.cli.output import Column, print_rows, says_that_it_works, verdict_style
from hpcq.errors import Exit

_COLUMNS = (
    Column("kind"),
    Column("cluster"),
    Column("name"),
    Column("before", style=verdict_style),
    Column("verdict", "now", style=verdict_style),
    Column("reason", wrap=True),
)


@click.command()
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Only show what changed; run nothing and remember nothing.")
@database_option
@json_option
@says_that_it_works
def notify(command: tuple[str, ...], dry_run: bool, database: Path, as_json: bool) -> int:
    """Run COMMAND with the verdicts that changed since last time, as JSON on its standard input.

    Verdicts are those of the ledger, of what hpcq regressions tells, and of the last run of each campaign. If nothing
    changed, nothing runs. If the command fails, it gets the same changes again next time. Put -- before a command with
    options.

    \b
    Example: hpcq notify --dry-run -- mail -s "hpcq" admins@example.org
    """
    from hpcq.runner.watch.notify import notify as tell

    changed = tell(database, command, dry_run=dry_run)
    print_rows([one.to_json() for one in changed], _COLUMNS, as_json=as_json, empty="no verdict changed")
    return Exit.OK

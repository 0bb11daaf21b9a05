"""`hpcq changes`: recorded changes of level, and what people decided about them."""

from __future__ import annotations

from pathlib import Path

import click

from hpcq.cli.keep.annotations import existing, who_option, why_option
from hpcq.cli.options import NUMBER, Verbs, database_option, json_option
from hpcq.cli.output import Column, print_json, print_rows, verdict_style
from hpcq.errors import Exit, UserError

_STATES = ("open", "acknowledged", "expected", "fixed", "false")
_CHANGE = (
    Column("change_id", "change"),
    Column("state", style=verdict_style),
    Column("direction", style=verdict_style),
    Column("at_utc", "since"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("metric"),
    Column("before", unit_field="unit"),
    Column("after", unit_field="unit"),
    Column("cause", wrap=True),
    Column("who"),
    Column("why", wrap=True),
)
_DECISION = (Column("state"), Column("set_utc", "when"), Column("who"), Column("why", wrap=True))
_LIST = "`hpcq changes list` shows them"


@click.group(cls=Verbs)
def changes() -> None:
    """List recorded changes, and say what you decided about them."""


@changes.command("list")
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Only in this state; repeatable.")
@click.option("--node", help="Only tests that this node took part in.")
@database_option
@json_option
def list_changes(states: tuple[str, ...], node: str | None, database: Path, as_json: bool) -> int:
    """List recorded changes, newest first. Exit code 3 when a change for the worse is open.

    \b
    Example: hpcq changes list --state open
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import changes as recorded
    from hpcq.store.query import check_known

    with reading(database) as connection:
        check_known(connection, node=node)
        found = recorded(connection, states, node)
    print_rows(found, _CHANGE, as_json=as_json, empty="no recorded change: hpcq regressions --record records what it finds")
    bad = any(row["state"] == "open" and row["direction"] != "better" for row in found)
    return Exit.DEGRADED if bad else Exit.OK


@changes.command("set")
@click.argument("state", type=click.Choice(_STATES))
@click.argument("numbers", metavar="CHANGE...", type=NUMBER, nargs=-1, required=True)
@why_option
@who_option
@database_option
def set_changes(state: str, numbers: tuple[int, ...], why: str, who: str, database: Path) -> int:
    """Set the state of recorded changes.

    \b
    open          nobody has looked at it yet
    acknowledged  somebody works on it
    expected      it is intended; it raises no further alarm
    fixed         it was repaired
    false         there was no change; it raises no further alarm

    \b
    Example: hpcq changes set expected 1 --why "new MTU, change 4711"
    """
    from hpcq.store.keep.annotations import Said, set_state

    set_state(existing(database), numbers, state, Said(who, why))
    return Exit.OK


@changes.command("show")
@click.argument("number", metavar="CHANGE", type=NUMBER)
@database_option
@json_option
def show_change(number: int, database: Path, as_json: bool) -> int:
    """Show one change and everything that was decided about it.

    \b
    Example: hpcq changes show 1
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import changes as recorded
    from hpcq.store.keep.annotations import states_of

    with reading(database) as connection:
        found = [row for row in recorded(connection) if row["change_id"] == number]
        states = states_of(connection, number)
    if not found:
        raise UserError(f"{number} is not a recorded change", _LIST)
    if as_json:
        print_json({**found[0], "decisions": states})
    else:
        print_rows(found, _CHANGE)
        print_rows(states, _DECISION)
    return Exit.OK

"""Verbs with which people add to the database: annotate, retract, baseline, event. They delete nothing."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hpcq.assets import user_name
from hpcq.cli.options import NUMBER, Verbs, database_option, json_option
from hpcq.cli.output import Column, print_json, print_rows, print_words, says_that_it_works, verdict_style
from hpcq.errors import Exit, UserError

_Function = TypeVar("_Function", bound=Callable[..., Any])
#: A campaign refers to a baseline as `baseline:NAME`.
_BASELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_EVENT = (
    Column("kind"),
    Column("started_utc", "from"),
    Column("ended_utc", "to"),
    Column("cluster"),
    Column("node"),
    Column("run"),
    Column("note", wrap=True),
    Column("who"),
)
_BASELINE = (
    Column("baseline"),
    Column("holds"),
    Column("set_utc", "set"),
    Column("who"),
    Column("why", wrap=True),
    Column("runs", wrap=True),
)


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        return user_name(os.getuid())


def who_option(function: _Function) -> _Function:
    return click.option("--who", default=_person, help="Your name.  [default: you]")(function)


class _Words(click.ParamType):  # type: ignore[type-arg, unused-ignore] # generic only in newer releases of Click
    """What a person says: at least one word."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():
            self.fail(f"{value!r}: must be at least one word, in quotes", param, ctx)
        return value


_WORDS = _Words()


def why_option(function: _Function) -> _Function:
    return click.option("--why", required=True, type=_WORDS, help="The reason; hpcq keeps it.")(function)


@click.command()
@click.argument("what", type=click.Choice(["run", "series", "result", "node"]))
@click.argument("name")
@click.argument("note", type=_WORDS)
@who_option
@database_option
@says_that_it_works
def annotate(what: str, name: str, note: str, who: str, database: Path) -> int:
    """Add a note to a run, a series, a result or a node.

    hpcq event list shows the note, and so does every explanation of a change that it touches.

    \b
    Example: hpcq annotate run latest "fans were being replaced"
    """
    from hpcq.store.history import row_id
    from hpcq.store.keep.annotations import annotate as write

    if what == "result" and row_id(name) is None:
        raise UserError(f"{name!r} is not the number of a result", "hpcq results --each shows them")
    write(existing(database), what, name, note, who)
    print_words(f"noted on {what} {name}", err=True)
    return Exit.OK


@click.command()
@click.argument("results", type=NUMBER, nargs=-1)
@click.option("--run", help="All measured results of this run...")
@click.option("--node", help="...that this node took part in...")
@click.option("--kernel", help="...by this kernel.")
@click.option("--undo", is_flag=True, help="Let the results count again.")
@why_option
@who_option
@database_option
@says_that_it_works
def retract(  # noqa: PLR0917 - Click passes by name
    results: tuple[int, ...],
    run: str | None,
    node: str | None,
    kernel: str | None,
    undo: bool,
    why: str,
    who: str,
    database: Path,
) -> int:
    """Mark results as bad: they leave every view and every verdict, but stay in the database.

    \b
    Example: hpcq retract 1 2 --why "cable was out"
             hpcq retract --run latest --node n2 --why "n2 was being repaired"
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import Author, results_of, withdraw
    from hpcq.store.keep.annotations import retract as write

    meant = list(results)
    if meant and run is not None:
        raise UserError(
            f"--run {run}: numbers of results are given too", "leave out one of the two: --run takes all its results"
        )
    if run is not None:
        with reading(database) as connection:
            meant += results_of(connection, run, node, kernel)
        if not meant:
            raise UserError(f"--run {run}: no measured result of it fits", f"hpcq results {run} --each shows them")
    elif node or kernel:
        raise UserError("--node and --kernel choose among the results of a run", "give --run too: --run latest")
    if not meant:
        raise UserError("no result: give the numbers of results, or --run", "`hpcq results --each` shows the numbers")
    count = (withdraw if undo else write)(existing(database), meant, Author(who, why))
    what = "1 result" if count == 1 else f"{count} results"
    again = "counts again" if count == 1 else "count again"
    print_words(f"{what} {again if undo else 'retracted'}", err=True)
    return Exit.OK


@click.group(cls=Verbs)
def baseline() -> None:
    """Name the runs that later runs are compared with."""


@baseline.command("set")
@click.argument("name")
@click.argument("runs", nargs=-1, required=True)
@click.option("--why", type=_WORDS, help="The reason; hpcq keeps it.")
@who_option
@database_option
@says_that_it_works
def set_baseline(name: str, runs: tuple[str, ...], why: str | None, who: str, database: Path) -> int:
    """Make RUNS the baseline NAME. hpcq keeps an earlier baseline of that name but no longer uses it.

    It looks at the runs first and warns of nodes that are slower than their like in them, of tests far below their link, and
    of runs that were measured mostly beside other work.

    \b
    Example: hpcq baseline set good nightly-20260205 nightly-20260305 --why "accepted by the site"
    """
    from hpcq.runner.accept.judging import weak_in
    from hpcq.store.keep.annotations import Author
    from hpcq.store.keep.annotations import set_baseline as write

    if not _BASELINE_NAME.fullmatch(name):
        raise UserError(f"{name!r}: letters, digits and ._- are allowed, at most 64", "gates name it as baseline:NAME")
    names = write(existing(database), name, runs, Author(who, why or ""))
    for run in names:
        click.echo(run)
    for words in weak_in(database, names):
        print_words(f"warning: {words}", err=True)
    return Exit.OK


@baseline.command("list")
@database_option
@json_option
@says_that_it_works
def list_baselines(database: Path, as_json: bool) -> int:
    """List the baselines with their runs.

    \b
    Example: hpcq baseline list
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import baselines

    with reading(database) as connection:
        found = baselines(connection)
    shown = found if as_json else [{**one, "holds": bool(one["holds"]), "runs": " ".join(one["runs"])} for one in found]
    print_rows(shown, _BASELINE, as_json=as_json, empty="no baseline: hpcq baseline set NAME RUN... makes one")
    return Exit.OK


@click.group(cls=Verbs)
def event() -> None:
    """Record what happened to machines. hpcq uses it to explain changes."""


@event.command("add")
@click.argument("kind", type=click.Choice(["maintenance", "reboot", "drain", "resume", "change", "note"]))
@click.argument("note", type=_WORDS)
@click.option("--at", "begin", default="now", show_default=True, help="The moment or the beginning: 2026-11-21T02:00, now-2h.")
@click.option("--until", "end", help="The end; without it, the event is a moment.")
@click.option("--node", "places", multiple=True, help="A node, CLUSTER/NODE or a cluster; repeatable. Default: all.")
@who_option
@database_option
@says_that_it_works
def add_event(  # noqa: PLR0917 - Click passes by name
    kind: str, note: str, begin: str, end: str | None, places: tuple[str, ...], who: str, database: Path
) -> int:
    """Record an event; the same event again changes nothing.

    \b
    Example: hpcq event add maintenance "new firmware" --at 2026-11-21T02:00 --until 2026-11-21T04:00 --node n2
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import Author
    from hpcq.store.keep.annotations import add_event as write
    from hpcq.store.selection import moment

    with reading(database) as connection:
        times = [None if text is None else _full(moment(connection, text)) for text in (begin, end)]
    if times[0] is not None and times[1] is not None and times[1] < times[0]:
        raise UserError(f"--until {end}: is before --at {begin}")
    count = write(database, kind, (times[0] or "", times[1]), places, Author(who, note))
    print_words(f"{count} new", err=True)
    return Exit.OK


@event.command("list")
@click.option("--since", "stretch", help="Only this stretch: 30d, 2026-11, 90d..30d.")
@click.option("--node", help="Only of this node.")
@database_option
@json_option
@says_that_it_works
def list_events(stretch: str | None, node: str | None, database: Path, as_json: bool) -> int:
    """List events, and every reboot that measurements saw.

    \b
    Example: hpcq event list --since 30d --node n2
    """
    from hpcq.store.database import reading
    from hpcq.store.keep.annotations import events
    from hpcq.store.query import check_known
    from hpcq.store.selection import window

    with reading(database) as connection:
        check_known(connection, node=node)
        meant = window(connection, stretch) if stretch is not None else None
        found = events(connection, meant.from_utc if meant else None, meant.until_utc if meant else None, node)
    print_rows(found, _EVENT, as_json=as_json, empty="no event")
    return Exit.OK


def _full(moment: str) -> str:
    """Complete the beginning of a time: 2026-11 becomes 2026-11-01T00:00:00Z."""
    return moment[:19] + "0001-01-01T00:00:00"[len(moment) :] + "Z"


def existing(database: Path) -> Path:
    """Check that the database exists: a misspelt --db must not create one."""
    from hpcq.errors import StoreError

    if not database.exists():
        raise StoreError(f"{database}: there is no database", "`hpcq run` makes one; --db names another")
    return database


# ----------------------------------------------------------------------------------------------------------------------
# `hpcq changes`: recorded changes of level, and what people decided about them.


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
    """List recorded changes, and record what you decided about them."""


@changes.command("list")
@click.option("--state", "states", type=click.Choice(_STATES), multiple=True, help="Only in this state; repeatable.")
@click.option("--node", help="Only tests that this node took part in.")
@database_option
@json_option
@says_that_it_works
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
@says_that_it_works
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
    from hpcq.store.keep.annotations import Author, set_state

    set_state(existing(database), numbers, state, Author(who, why))
    return Exit.OK


@changes.command("show")
@click.argument("number", metavar="CHANGE", type=NUMBER)
@database_option
@json_option
@says_that_it_works
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

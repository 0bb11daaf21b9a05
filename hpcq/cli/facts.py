"""`hpcq facts`: the facts of a node, and what changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import Verbs, database_option, filters_without, json_option
from hpcq.cli.output import Column, print_json, print_rows, print_words, says_that_it_works
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.store.read.evidence_queries import FactChange, Snapshot
    from hpcq.store.selection import Selection


@click.group(cls=Verbs)
def facts() -> None:
    """Show the facts of nodes and what changed: drivers, firmware, sysctls, NICs."""


@facts.command("show")
@click.argument("node")
@click.option("--at", "moment", help="A run, or a time (2026-03, 2026-03-05T02:00); default: the latest facts.")
@click.option("--only", help="Only facts whose names begin with this: sysctl.net.core.")
@database_option
@json_option
@says_that_it_works
def show_facts(node: str, moment: str | None, only: str | None, database: Path, as_json: bool) -> int:
    """Show the facts of a node.

    NODE is a node's name. Write CLUSTER/NODE (alpha/n1) where several clusters have one of that name.

    \b
    Example: hpcq facts show n1 --only nic
    """
    from hpcq.store.database import reading
    from hpcq.store.read.evidence_queries import facts_at

    with reading(database) as connection:
        found = facts_at(connection, node, moment)
    chosen = {name: value for name, value in found.facts.items() if name.startswith(only or "")}
    if only and not chosen:
        groups = dict.fromkeys(name.partition(".")[0] for name in found.facts)
        raise UserError(f"--only {only}: no fact of {node} begins with it", f"groups of facts are {', '.join(groups)}")
    if as_json:
        print_json({**found.head(), "facts": chosen})
        return Exit.OK
    print_words(_where(found), err=True)
    rows = [{"fact": name, "value": str(value)} for name, value in chosen.items()]
    print_rows(rows, [Column("fact"), Column("value", wrap=True)], empty="no fact of that name")
    return Exit.OK


@facts.command()
@click.argument("what", metavar="NODE|RUN")
@click.argument("a")
@click.argument("b", required=False)
@click.option("--all", "everything", is_flag=True, help="Also what differs at every boot or moment: boot id, load.")
@filters_without("kernel", "client", "server", "network", "where", "fact", "metric")
@database_option
@json_option
@says_that_it_works
def diff(  # noqa: PLR0917 - Click passes by name
    what: str, a: str, b: str | None, everything: bool, wanted: Selection, database: Path, as_json: bool
) -> int:
    """Show what changed: on a node between two runs or times, between two runs, or between two nodes of a run.

    \b
    hpcq facts diff NODE A [B]   A and B are runs or times (2026-03, 2026-03-05, first, latest); B: the latest
    hpcq facts diff RUN A        A is another run: every node that has facts in both, A first
    hpcq facts diff RUN A B      A and B are nodes: how they differed in that run

    \b
    Example: hpcq facts diff n1 2026-02 2026-03
    """
    from hpcq.store.database import reading
    from hpcq.store.query import node_groups
    from hpcq.store.read.evidence_queries import compared, difference

    with reading(database) as connection:
        groups = {node: {name.partition(" ")[2] for name in names} for node, names in node_groups(connection).items()}
        compared_ones = compared(connection, what, a, b)
    pairs = [
        (one, other)
        for one, other in compared_ones
        if wanted.cluster in {None, one.cluster}
        and wanted.node in {None, one.node, other.node, f"{one.cluster}/{one.node}"}
        and (wanted.group is None or wanted.group in groups.get((one.cluster, one.node), ()))
    ]
    if not pairs:
        there = ", ".join(f"{one.cluster}/{one.node}" for one, _ in compared_ones[:8])
        raise UserError("no node that is compared here fits --cluster, --node and --group", f"compared are {there}")
    found = [(one, other, difference(one.facts, other.facts, passing=everything)) for one, other in pairs]
    if as_json:
        print_json([{"a": one.head(), "b": other.head(), "changed": changes} for one, other, changes in found])
        return Exit.OK
    for one, other, changes in found:
        print_words(f"a: {_where(one)}\nb: {_where(other)}", err=True)
        print_rows(
            [_row(change) for change in changes],
            [Column("fact", wrap=True), Column("a", wrap=True), Column("b", wrap=True)],
            empty="no difference",
        )
    return Exit.OK


def _row(change: FactChange) -> dict[str, Any]:
    return {
        "fact": change.fact,
        "a": "(none)" if change.a is None else str(change.a),
        "b": "(none)" if change.b is None else str(change.b),
    }


def _where(found: Snapshot) -> str:
    return f"{found.cluster}/{found.node} at {found.started_utc[:19].replace('T', ' ')} UTC in run {found.run}"

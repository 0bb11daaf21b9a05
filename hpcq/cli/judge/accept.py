"""`hpcq accept`: is the machine fit for users after a maintenance? Verdict first, then why, then what to type."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import clusters_option, database_option, json_option, runs_option
from hpcq.cli.rows import print_json
from hpcq.errors import Exit, HpcqError, UserError

if TYPE_CHECKING:
    from hpcq.runner.accept.accepting import ClusterAcceptance
    from hpcq.runner.accept.choice import NodeSelection

_WORDS = {
    "pass": "PASS",
    "degraded": "DEGRADED",
    "failed": "FAIL",
    "inconclusive": "INCONCLUSIVE",
    "not_covered": "NOT COVERED",
}


@click.command()
@click.argument("campaign")
@click.option(
    "--since", help="Nodes that came up or were released since: a reservation, a time (now-12h, 2026-11-20), or boot."
)
@click.option("--against", metavar="BASELINE", help="Judge against this baseline. Default: the cluster's newest runs.")
@click.option("--node", "nodes", multiple=True, help="Only this node, also if it needs no test; repeatable.")
@click.option("--all", "everything", is_flag=True, help="All nodes, also those that need no test.")
@click.option("--apply", is_flag=True, help="Run the commands that drain what failed and resume what passed.")
@database_option
@runs_option
@clusters_option
@json_option
def accept(  # noqa: PLR0917 - Click passes by name
    campaign: str,
    since: str | None,
    against: str | None,
    nodes: tuple[str, ...],
    everything: bool,
    apply: bool,
    database: Path,
    runs_folder: Path,
    cluster_folders: Sequence[Path],
    as_json: bool,
) -> int:
    """Test the nodes that need a verdict, and say which may go back to users.

    Without options it tests the nodes that were never accepted, that booted or came up since their last verdict, or that came
    back from a maintenance reservation or a drain. If there are none it runs nothing, so you may call it every few minutes.

    \b
    PASS          as expected
    DEGRADED      slower than expected, but not below nine tenths of it
    FAIL          slower still, or beyond a gate of the campaign
    INCONCLUSIVE  slow pairs, but not clear whose fault it is; or too few values
    NOT COVERED   nothing could be measured: down, drained, busy, reserved

    Exit code 3 when something failed or is degraded, 4 when something is inconclusive or not covered.

    \b
    Example: hpcq accept campaigns/after-maintenance.yaml --against good
    """
    from hpcq.definition.find import find_campaign
    from hpcq.runner.accept.accepting import AcceptRequest
    from hpcq.runner.accept.accepting import accept as run

    selection = _wish(since, nodes, everything, database)
    order = AcceptRequest(
        find_campaign(campaign), tuple(cluster_folders), database, runs_folder.absolute(), selection, against, apply
    )
    outcomes = run(order, _say)
    verdicts = [one.verdict.value for outcome in outcomes for one in outcome.all_judged]
    code = Exit.OK
    if {"inconclusive", "not_covered"}.intersection(verdicts):
        code = Exit.INCOMPLETE
    if {"failed", "degraded"}.intersection(verdicts):
        code = Exit.DEGRADED
    refused = [(one.cluster, *words) for one in outcomes for words in one.applied.refused]
    code = Exit.ERROR if refused else code
    if as_json:
        print_json({"clusters": [one.to_json() for one in outcomes], "exit_code": int(code)})
    else:
        for outcome in outcomes:
            _print(outcome, apply=apply)
    if refused:
        cluster, command, words = refused[0]
        raise HpcqError(
            f"{cluster}: {command}: {words}: {len(refused)} of the commands were refused",
            "this user may not do that there: an administrator can type the lines above",
        )
    return code


def _wish(since: str | None, nodes: tuple[str, ...], everything: bool, database: Path) -> NodeSelection:
    from hpcq.runner.accept.choice import NodeSelection
    from hpcq.store.database import reading, writing
    from hpcq.store.time_windows import moment

    if since is None or since == "boot":
        return NodeSelection(nodes, everything, boot=since == "boot")
    with writing(database):
        pass
    with reading(database) as connection:
        try:
            return NodeSelection(nodes, everything, since_utc=moment(connection, since))
        except UserError:
            return NodeSelection(nodes, everything, reservation=since)


def _print(outcome: ClusterAcceptance, *, apply: bool) -> None:
    counts = Counter(one.verdict.value for one in outcome.verdicts.nodes)
    tally = ", ".join(f"{counts[word]} {shown}" for word, shown in _WORDS.items() if counts[word])
    click.echo(f"{outcome.cluster}: {tally or 'no node needs it now; nothing to do'}")
    for one in outcome.all_judged:
        name = one.name if one.kind == "node" else f"{one.kind} {one.name}"
        why = outcome.reasons.get(one.name)
        click.echo(f"  {_WORDS[one.verdict.value]:<13} {name}: {one.reason}{f' [{why}]' if why else ''}")
        if one.name in outcome.changed:
            click.echo(f"  {'':<13}   differs from the reference: {outcome.changed[one.name]}")
    if outcome.reservation:
        click.echo(f"  measured inside reservation {outcome.reservation}")
    done, left_alone = dict(outcome.applied.done), dict(outcome.applied.left_alone)
    for line in outcome.commands:
        if line.command in left_alone:
            click.echo(f"  left alone: {left_alone[line.command]}    # {line.why}")
        else:
            mark = "done" if line.command in done else "type"
            click.echo(f"  {mark}: {done.get(line.command, line.command)}    # {line.why}")
    if outcome.commands and not apply:
        click.echo("  nothing of this was done; --apply drains what failed and resumes what passed")


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201

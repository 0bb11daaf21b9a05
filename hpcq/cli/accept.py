"""`hpcq accept`: is the machine fit for users after a maintenance? Prints the verdict, then why, then what to type."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import clusters_option, database_option, json_option, runs_option
from hpcq.cli.output import print_json, print_words, says_that_it_works
from hpcq.errors import Exit, HpcqError, UserError

if TYPE_CHECKING:
    from hpcq.runner.accept.accepting import ClusterAcceptance, PlannedAcceptance
    from hpcq.runner.accept.choice import NodeSelection


@click.command()
@click.argument("campaign", required=False)
@click.option("--from", "runs", metavar="RUN", multiple=True, help="Judge what this run brought; measure nothing; repeatable.")
@click.option(
    "--since", help="Nodes that came up or were released since: a reservation, a time (now-12h, 2026-11-20), or boot."
)
@click.option("--against", metavar="BASELINE", help="Judge against this baseline. Default: the cluster's newest runs.")
@click.option("--node", "nodes", multiple=True, help="Only this node, also if it needs no test; repeatable.")
@click.option("--all", "everything", is_flag=True, help="All nodes, also those that need no test.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what it would test, and why; submit nothing.")
@click.option("--apply", is_flag=True, help="Run the commands that drain failed nodes and give back what passed.")
@database_option
@runs_option
@clusters_option
@json_option
def accept(  # noqa: PLR0917 - Click passes by name
    campaign: str | None,
    runs: tuple[str, ...],
    since: str | None,
    against: str | None,
    nodes: tuple[str, ...],
    everything: bool,
    only_plan: bool,
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
    PASS          every planned test was measured in both roles, and the slowdown that the first line names is ruled out
    DEGRADED      slower than expected, but not below nine tenths of it; or its evidence shows a flaw
    FAIL          slower still, beyond a gate of the campaign, or its tests bring no result
    INCONCLUSIVE  bad pairs, but not clear whose fault it is; bad in one run only; no reference; or too few jobs
    NOT COVERED   nothing could be measured: down, drained, busy, reserved

    If the whole cluster is slower than its baseline, the cluster gets the verdict and its nodes are INCONCLUSIVE.

    With --from it judges runs that are in the database, imported ones too. Verdicts and commands are the same; the ledger
    stays unchanged.

    Exit code 3 when something failed or is degraded, 4 when something is inconclusive or not covered, or when another
    acceptance of the cluster is under way and this one judged nothing.

    \b
    Example: hpcq accept campaigns/after-maintenance.yaml --against good
    """
    if runs:
        for given, option in (
            (campaign, "CAMPAIGN"),
            (since, "--since"),
            (everything, "--all"),
            (only_plan, "--plan"),
            (apply, "--apply"),
        ):
            if given:
                raise UserError(f"--from and {option}: it measures nothing and changes nothing: must be one of them")
        from hpcq.runner.accept.accepting import accept_from

        judged = says_that_it_works(accept_from)(runs, against, nodes, database, cluster_folders, _say)
        return _show(judged, apply=False, as_json=as_json)
    if campaign is None:
        raise UserError("accept: CAMPAIGN: not given: must be a campaign to run", "or --from RUN judges a run that is there")
    from hpcq.definition.find import find_campaign
    from hpcq.runner.accept.accepting import AcceptRequest, plan_acceptance
    from hpcq.runner.accept.accepting import accept as run

    if only_plan and apply:
        raise UserError("--plan and --apply: a plan changes nothing: must be one of them")
    selection = _wish(since, nodes, everything, database)
    order = AcceptRequest(
        find_campaign(campaign), tuple(cluster_folders), database, runs_folder.absolute(), selection, against, apply
    )
    if only_plan:
        _show_plans(plan_acceptance(order, _say), as_json=as_json)
        return Exit.OK
    return _show(run(order, _say), apply=apply, as_json=as_json)


def _show(outcomes: Sequence[ClusterAcceptance], *, apply: bool, as_json: bool) -> int:
    """Print what came out, and return its exit code. Raises HpcqError when commands of --apply were refused."""
    from hpcq.verdict.words import Tally

    verdicts = [one.verdict for outcome in outcomes for one in outcome.all_judged]
    verdicts += [one.verdict for outcome in outcomes for one in outcome.collectives]
    code = Tally.of(verdicts).exit_code if verdicts else Exit.OK
    code = Exit.INCOMPLETE if code is Exit.OK and any(one.busy for one in outcomes) else code
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


def _show_plans(plans: Sequence[PlannedAcceptance], *, as_json: bool) -> None:
    if as_json:
        print_json({"clusters": plans})
        return
    for one in plans:
        _print_plan(one)


def _print_plan(plan: PlannedAcceptance) -> None:
    waiting = f", {len(plan.blocked)} of them cannot be tested now" if plan.blocked else ""
    need = f"{len(plan.reasons)} nodes need a verdict" if len(plan.reasons) != 1 else "1 node needs a verdict"
    print_words(f"{plan.cluster}: {need}{waiting}" if plan.reasons else f"{plan.cluster}: {_NOTHING_TO_DO}")
    for node, why in plan.reasons.items():
        blocked = plan.blocked.get(node)
        print_words(f"  {node}: {why}" + (f"; not now: {blocked}" if blocked else ""))
    if plan.reservation:
        print_words(f"  inside reservation {plan.reservation}")
    if plan.pairs:
        print_words(f"  {len(plan.pairs)} pairs in the first run: " + ", ".join(f"{a} > {b}" for a, b in plan.pairs))
        if plan.together:
            print_words(f"  then the collectives on {len(plan.together)} nodes together: {', '.join(plan.together)}")
        print_words("  pairs that look bad would run again; nothing was submitted")
    for words in plan.left_out:
        print_words(f"  {words}")


def _wish(since: str | None, nodes: tuple[str, ...], everything: bool, database: Path) -> NodeSelection:
    from hpcq.runner.accept.choice import NodeSelection
    from hpcq.store.database import reading, writing
    from hpcq.store.selection import looks_like_a_time, moment

    if since is None or since == "boot":
        return NodeSelection(nodes, everything, boot=since == "boot")
    with writing(database):
        pass
    with reading(database) as connection:
        try:
            return NodeSelection(nodes, everything, since_utc=moment(connection, since))
        except UserError:
            if looks_like_a_time(since):
                raise
            return NodeSelection(nodes, everything, reservation=since)


def _print(outcome: ClusterAcceptance, *, apply: bool) -> None:
    from hpcq.verdict.words import Tally, Verdict

    tally = Tally.of(one.verdict for one in outcome.verdicts.nodes)
    idle = "another acceptance is under way: this one judged nothing" if outcome.busy else _NOTHING_TO_DO
    said = tally.first_line("node") if tally.total else idle
    together = Tally.of(one.verdict for one in outcome.collectives)
    told = f"; found would be: a node {outcome.verdicts.told_words}" if outcome.verdicts.told_words else ""
    print_words(f"{outcome.cluster}: {said}" + (f"; {together.first_line('collective')}" if together.total else "") + told)
    for note in outcome.verdicts.notes:
        print_words(f"  {note}")
    for each in outcome.collectives:
        print_words(f"  {each.verdict.shown:<13} {each.words}")
    everybody = bool(outcome.verdicts.clusters) and outcome.verdicts.clusters[0].verdict is not Verdict.PASS
    alike = Counter(one.reason for one in outcome.verdicts.nodes) if everybody else Counter()
    for one in outcome.all_judged:
        name = one.name if one.kind == "node" else f"{one.kind} {one.name}"
        why = outcome.reasons.get(one.name)
        if alike[one.reason] > 1 and one.kind == "node":
            continue
        print_words(f"  {one.verdict.shown:<13} {name}: {one.reason}{f' [{why}]' if why else ''}")
        if one.name in outcome.changed:
            print_words(f"  {'':<13}   differs from the reference: {outcome.changed[one.name]}")
    for reason, count in alike.items():
        if count > 1:
            print_words(f"  {Verdict.INCONCLUSIVE.shown:<13} {count} nodes: {reason}")
    if outcome.reservation:
        print_words(f"  measured inside reservation {outcome.reservation}")
    done, left_alone = dict(outcome.applied.done), dict(outcome.applied.left_alone)
    for line in outcome.commands:
        if line.command in left_alone:
            print_words(f"  left alone: {left_alone[line.command]}    # {line.why}")
        else:
            mark = "done" if line.command in done else "type"
            print_words(f"  {mark}: {done.get(line.command, line.command)}    # {line.why}")
    if outcome.commands and not apply:
        print_words("  hpcq ran none of this; --apply drains failed nodes and gives passed ones back to users")


_NOTHING_TO_DO = "no node needs a verdict now; nothing to do"


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201

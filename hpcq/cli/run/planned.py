"""Print a plan for people."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence

import click

from hpcq.definition.running import places_of, running
from hpcq.described.commands import command
from hpcq.described_kernel import Shape
from hpcq.kernels import kernel
from hpcq.planning.coverage import coverage_of
from hpcq.planning.pairs import lap_length
from hpcq.planning.plan import Plan, nodes_of_pair
from hpcq.units import count_of, plain

_SHOWN = 12


def print_plan(plan: Plan) -> None:
    """Print coverage first, then nodes, tests, pairs and cost of one cluster."""
    goals, cost = plan.goals, plan.cost
    covered, *short = coverage_of(plan).lines()
    jobs = f"{count_of(cost.job_count, 'job')} of about {plain(cost.estimated_job_s)} s, time limit {plan.walltime_s} s each"
    lines = [
        f"{plan.cluster}: {covered}; {count_of(goals.result_count, 'result')}",
        *(f"  {line}" for line in short),
        f"  cost     {jobs}, {plain(cost.node_seconds)} node-seconds",
        *(f"  limit    {note}" for note in plan.notes),
        *_allocations(plan),
        f"  nodes    {_few([candidate.node for candidate in plan.candidates])}",
    ]
    for reason, count in Counter(excluded.reason for excluded in plan.excluded).most_common():
        names = [excluded.node for excluded in plan.excluded if excluded.reason == reason]
        lines.append(f"  without  {_few(names)}: {reason} ({count})")
    lines += [f"  without  {pair.client} - {pair.server}: {pair.reason}" for pair in plan.not_planned[:_SHOWN]]
    for (name, where), count in Counter((test.kernel, ", ".join(places_of(test))) for test in plan.tests).items():
        lines.append(
            f"  tests    {name}: {count_of(count, 'parameter set')}, {count_of(plan.repetition_count, 'time')} each, on {where}"
        )
    lines += _commands(plan)
    pairs, sets = plan.pairs[: plan.sets_begin], plan.pairs[plan.sets_begin :]
    if pairs or not sets:
        lines.append(f"  pairs    {_few([f'{client} > {server}' for client, server in pairs])}")
    lines += _repeated(plan, pairs)
    alone = [client for client, server in sets if client == server]
    lines += [f"  alone    {_few(alone)}"] if alone else []
    for one in sets[len(alone) :]:
        lines.append(f"  together {len(nodes_of_pair(one))} nodes: {one[0]},{one[1]}")
    click.echo("\n".join(lines))


def _repeated(plan: Plan, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A word on pairs that the plan measures in more than one job, where all pairs in both directions are there."""
    nodes, counts = len(plan.candidates), Counter(pairs)
    if not counts or max(counts.values()) < 2 or len(counts) < nodes * (nodes - 1):
        return []
    most = count_of(max(counts.values()), "job")
    words = f"each of the {len(counts)} pairs, by direction, is measured in up to {most}; `rounds: {2 * lap_length(nodes)}`"
    return [f"  again    {words} has each in one"]


def started(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    """All that foreign programs would start or load, each once: who runs a campaign of somebody else sees it before."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for test in running(plan.tests):
        described = kernel(test.kernel).described
        if described is None:
            continue
        role = {Shape.CLIENT_SERVER: "client", Shape.ONE_NODE: "node"}.get(described.shape, "rank")
        found += [("modules", described.modules)] if described.modules else []
        named = [("version", described.version)] if described.version else []
        named += [("server", described.server.command)] if described.server else []
        found += [
            (name, command(described, template, test.parameters)) for name, template in [*named, (role, described.command)]
        ]
    return list(dict.fromkeys(found))


def _commands(plan: Plan) -> list[str]:
    lines = [f"  starts   {name}: {' '.join(map(_word, words))}" for name, words in started(plan)]
    more = [f"  starts   and {len(lines) - _SHOWN} more commands: hpcq plan --json has all"] if len(lines) > _SHOWN else []
    return lines[:_SHOWN] + more


def _word(word: str) -> str:
    """Quote a word as a shell would need it; what is filled in at run time stands as it is."""
    return word if re.fullmatch(r"[{}\w./:=-]+", word) else shlex.quote(word)


def _allocations(plan: Plan) -> list[str]:
    """Print what each way to share allocations would cost; each job waits in the queue."""
    lines = []
    for one in plan.cost.allocations:
        waits = f"{one.job_count} wait{'s' if one.job_count != 1 else ''} in the queue"
        chosen = " (this plan)" if one.allocation.partition(" ")[0] == plan.allocation else ""
        longest = f"jobs of up to {plain(one.estimated_job_s)} s"
        lines.append(f"  allocation     {one.allocation}: {waits}, {longest}, {plain(one.node_seconds)} node-seconds{chosen}")
    return lines


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"

"""Make the plan from a campaign, a cluster and its nodes. The same input gives the same plan, byte for byte.

Campaign + Cluster + node list + seed --make_plan--> Plan
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hpcq import nodelist
from hpcq.definition.model import (
    NODE_COUNT,
    Allocation,
    AllocationKind,
    Campaign,
    Cluster,
    PairChoice,
    Pattern,
    Test,
    measured_over,
    of_nodes,
    of_set,
    running,
)
from hpcq.errors import UserError
from hpcq.kernels import PER_THING, RANKS_PER_NODE, expected_s
from hpcq.nodelist import natural
from hpcq.planning.pairs import Pair, by_fabric, lap_length, make_pairs
from hpcq.planning.plan import Cost, Excluded, Goals, NotPlanned, Plan, choose_candidates, node_sets, nodes_of_pair, only_sets
from hpcq.scheduler.kinds import mpi_example
from hpcq.units import count_of, plain

if TYPE_CHECKING:
    from hpcq.scheduler.base import JobLimits
    from hpcq.scheduler.types import NodeState


# ----------------------------------------------------------------------------------------------------------------------
# Why hpcq refuses a plan, in words: no MPI, no groups, no pair, or more than the budget allows.


#: Pairs of one plan that repeats pairs; one without repeats may have more. At 1 KiB per pair, a plan is a file of 100 MB.
_PAIRS_MAX = 100_000


def refuse_without_groups(campaign: Campaign, cluster: Cluster, groups: Mapping[str, str]) -> None:
    choice = campaign.pairs
    wanted = {Pattern.WITHIN: 1, Pattern.ACROSS: 2}.get(choice.pattern, 2 if choice.group_pair_goal else 0)
    if len(set(groups.values())) >= wanted:
        return
    found = ", ".join(sorted(set(groups.values()))) or "none"
    raise UserError(
        f"{campaign.name} on {cluster.name}: pairs: {choice.pattern}: groups by {choice.group}: {found}: needed are {wanted}",
        "a topology file beside the campaign (topology: NAME), or features like rack*, can say what the scheduler does not",
    )


def refuse_many_pairs(campaign: Campaign, cluster: Cluster, node_count: int) -> None:
    """Refuse rounds that make more pairs than a plan can hold; after two laps every pair has met in both directions."""
    rounds, lap = campaign.pairs.round_count or 0, lap_length(node_count)
    pair_count = rounds * (node_count // 2)
    if pair_count <= max(_PAIRS_MAX, lap * node_count):
        return
    raise UserError(
        f"{campaign.name} on {cluster.name}: pairs: rounds: {rounds}: {pair_count} pairs of {node_count} nodes:"
        f" a plan holds {_PAIRS_MAX}",
        f"every two nodes have met after {count_of(lap, 'round')}, in both directions after {2 * lap};"
        " `repetitions` measures more often",
    )


def refuse_without_mpi(campaign: Campaign, cluster: Cluster) -> None:
    unknown = [name for name in campaign.toolchains if name not in cluster.toolchains]
    if unknown:
        known = ", ".join(cluster.toolchains) or "none"
        raise UserError(
            f"{cluster.name}: toolchains: {', '.join(unknown)}: {campaign.name} asks for it: the cluster file names {known}",
            hint="toolchains: {gcc-openmpi: {cc: gcc, mpi: {compiler: mpicc.openmpi}}}",
        )
    needing = sorted({test.kernel for test in campaign.tests if test.needs_mpi and not test.toolchain})
    if needing and cluster.mpi is None:
        raise UserError(
            f"{cluster.name}: mpi: missing, but {campaign.name} runs {', '.join(needing)}: the cluster file must name one",
            hint=mpi_example(cluster.scheduler),
        )


def with_ranks(campaign: Campaign, cluster: Cluster) -> Campaign:
    """The campaign with the number that `ranks_per_node: per_gpu` means on this cluster. Raises UserError."""
    tests = []
    for test in campaign.tests:
        value = test.parameters.get(RANKS_PER_NODE)
        thing = PER_THING.get(value) if isinstance(value, str) else None
        if thing is not None and thing not in cluster.per_node:
            raise UserError(
                f"{cluster.name}: per_node: {thing}: missing, but {campaign.name} runs {test.kernel} with"
                f" {RANKS_PER_NODE}: {value}: the cluster file must say how many a node has",
                hint=f"per_node: {{{thing}: 2}}",
            )
        parameters = test.parameters if thing is None else {**test.parameters, RANKS_PER_NODE: cluster.per_node[thing]}
        tests.append(replace(test, parameters=parameters))
    return replace(campaign, tests=tuple(tests))


def refuse_beyond_budget(plan: Plan, campaign: Campaign, cluster: Cluster) -> None:
    where = f"{campaign.name} on {cluster.name}"
    budget = campaign.budget_on(cluster)
    most_s = budget.max_walltime_s
    if most_s is not None and plan.walltime_s > most_s:
        raise UserError(
            f"{where}: walltime_s: {plan.walltime_s} s: the budget allows {most_s} s",
            hint="fewer tests or repetitions per job, or a walltime of the campaign that is shorter",
        )
    if plan.walltime_s < plan.cost.estimated_job_s:
        raise UserError(
            f"{where}: walltime_s: {plan.walltime_s} s is below the {plain(plan.cost.estimated_job_s)} s that one job"
            " is estimated to take",
            hint="leave walltime out: it is derived from the tests",
        )
    if budget.node_limit(len(plan.candidates)) < 2:
        raise UserError(
            f"{where}: budget: {budget.node_limit(len(plan.candidates))} of {len(plan.candidates)} nodes may be used:"
            " a pair needs two"
        )
    limit = budget.max_node_seconds
    if limit is not None and plan.cost.node_seconds > limit:
        raise UserError(
            f"{where}: budget: the plan costs {plain(plan.cost.node_seconds)} node-seconds: at most {plain(limit)} are allowed",
            hint="fewer pairs (pairs: {rounds: 1}), tests or repetitions cost less",
        )


def no_pair(cluster: Cluster, not_planned: Sequence[NotPlanned]) -> UserError:
    lines = [f"{cluster.name}: no pair of the campaign can run"]
    lines += [f"  {one.client} - {one.server}: {one.reason}" for one in not_planned[:10]]
    return UserError("\n".join(lines))


# ----------------------------------------------------------------------------------------------------------------------


#: What a job costs in addition to its tests: claim, facts of both nodes, server start and end. In the lab: about 1 s.
_JOB_OVERHEAD_S = 3.0
#: What one measurement costs in addition to its duration: process start, connection, snapshots; for MPI a launch.
_TEST_OVERHEAD_S = 0.3
_MPI_TEST_OVERHEAD_S = 1.5
#: Schedulers count time limits in minutes. A slow prologue or a loaded node must fit.
_WALLTIME_MARGIN_S = 60.0


#: Tests that run in one job, and the nodes of each such job.
_Together = tuple[list["Test"], list[tuple[str, ...]]]


def make_plan(
    campaign: Campaign,
    cluster: Cluster,
    nodes: Sequence[NodeState],
    run: str,
    seed: int,
    *,
    allocation: Callable[[Plan], Plan] | None = None,
) -> Plan:
    """Plan a campaign on one cluster with these nodes; `seed` is usually `campaign.seed_of(run)`.

    allocation: how allocations.py changes the plan; without it, each pair has an allocation of its own.
    Raises UserError when the campaign cannot run there: no MPI, fewer than two nodes, no pair, or beyond the budget.
    """
    refuse_without_mpi(campaign, cluster)
    campaign = with_ranks(campaign, cluster)
    least_s = campaign.walltime_s or derive_walltime_s(campaign.tests, campaign.repetition_count)
    candidates, excluded = choose_candidates(campaign, cluster, nodes, seed, least_s)
    names = [one.node for one in candidates]
    groups = _groups(campaign.pairs, names, nodes)
    refuse_without_groups(campaign, cluster, groups)
    refuse_many_pairs(campaign, cluster, len(names))
    over = _over(names, nodes, cluster)
    differ = {name: ", ".join(one) for name, one in over.items()} if len(set(over.values())) > 1 else {}
    fabrics = _fabrics(names, nodes, differ)
    pairs = [] if only_sets(campaign) else make_pairs(campaign.pairs, names, seed, groups, fabrics)
    tests, sets, short = node_sets(campaign.tests, names, campaign.budget_on(cluster).node_limit(len(names)), fabrics)
    apart = _apart(fabrics, differ)
    not_planned = [*_not_planned(campaign, cluster, names, excluded, apart), *short]
    if not pairs and not sets:
        raise no_pair(cluster, not_planned)
    pairs, pairs_over = _over_each(pairs, over if cluster.rails else {})
    sets, sets_over = _over_each(sets, over if cluster.rails else {})
    work = _work(tests, pairs, sets)
    repetition_count = campaign.repetition_count
    plan = Plan(
        run=run,
        campaign=campaign.name,
        cluster=cluster.name,
        interface=cluster.interface if differ else next(iter(over.values()), (cluster.interface,))[0],
        networks=dict(cluster.networks),
        networks_at={
            interface: name
            for own in cluster.networks_at.values()
            for name, interface in own.items()
            if interface not in cluster.networks.values()
        },
        seed=seed,
        candidates=tuple(candidates),
        excluded=tuple(excluded),
        tests=tests,
        repetition_count=repetition_count,
        walltime_s=campaign.walltime_s or max(derive_walltime_s(together, repetition_count) for together, _ in work),
        attempt_count_max=campaign.attempt_count_max,
        decided_after=campaign.decided_after,
        pairs=(*pairs, *sets),
        not_planned=tuple(not_planned),
        over=pairs_over + sets_over,
        goals=_goals(campaign, names, (pairs, sets), work, max(1, len(cluster.rails))),
        cost=_cost(work, repetition_count),
        node_set_count=len(sets),
        evidence=campaign.evidence.value,
        groups=groups,
        fabrics=fabrics,
        interfaces=differ if not cluster.rails else {},
        notes=(*_fabric_notes(fabrics, differ), *_rail_notes(cluster), *_reservation_notes(names, nodes)),
    )
    if allocation is not None:
        plan = allocation(plan)
    refuse_beyond_budget(plan, campaign, cluster)
    return plan


def _work(tests: Sequence[Test], pairs: Sequence[Pair], sets: Sequence[Pair]) -> list[_Together]:
    """What runs together: the tests of pairs with the nodes of each pair, and the tests of each set with its nodes."""
    work = [([one for one in tests if not of_nodes(one)], [tuple(pair) for pair in pairs])]
    for one in sets:
        nodes = nodes_of_pair(one)
        work.append(([test for test in tests if of_set(test, len(nodes))], [nodes]))
    return [(together, jobs) for together, jobs in work if jobs]


def _over_each(pairs: Sequence[Pair], over: Mapping[str, tuple[str, ...]]) -> tuple[list[Pair], tuple[str, ...]]:
    """Each pair once per network, one right after the other, and the interface of each; a node alone only once."""
    if not over:
        return list(pairs), ()
    several = [(pair, rail) for pair in pairs for rail in over[pair[0]][: 1 if pair[0] == pair[1] else None]]
    return [pair for pair, _ in several], tuple(rail for _, rail in several)


def _rail_notes(cluster: Cluster) -> tuple[str, ...]:
    names = {interface: name for name, interface in cluster.networks.items()}
    rails = ", ".join(f"{names[one]} ({one})" for one in cluster.rails)
    own = "".join(f"; nodes of {pattern} over {', '.join(several)}" for pattern, several in cluster.rails_at.items())
    return (f"each pair is measured over {rails}{own}, in jobs of their own",) if rails else ()


#: A reservation that begins later than this is no news for a plan.
_BEGINS_WITHIN_S = 86400.0


def _reservation_notes(names: Sequence[str], nodes: Sequence[NodeState]) -> list[str]:
    """Say of candidates until when jobs start there."""
    found: dict[str, list[str]] = {}
    for one in nodes:
        if one.node in names and one.bounded is not None and one.bounded.in_s < _BEGINS_WITHIN_S:
            found.setdefault(one.bounded.words, []).append(one.node)
    shown = {words: ", ".join(nodelist.fold(sorted(some, key=natural))) for words, some in found.items()}
    return [f"{some}: {words}: no job starts there that would end later" for words, some in shown.items()]


def _goals(
    campaign: Campaign,
    names: Sequence[str],
    pairs_and_sets: tuple[Sequence[Pair], Sequence[Pair]],
    work: Sequence[_Together],
    rail_count: int,
) -> Goals:
    pairs, sets = pairs_and_sets
    return Goals(
        pair_count=len(pairs) + len(sets),
        result_count=sum(len(together) * len(jobs) for together, jobs in work) * campaign.repetition_count,
        node_pair_count_min=_node_pair_count_min(names, pairs),
        node_pair_count_goal=rail_count * campaign.pairs.node_goal,
        group_pair_count_goal=rail_count * campaign.pairs.group_pair_goal,
    )


def _cost(work: Sequence[_Together], repetition_count: int) -> Cost:
    """How many jobs, the longest of them, and the node-seconds of all."""
    job_s = [estimate_job_s(together, repetition_count) for together, _ in work]
    node_s = sum(one_s * sum(map(len, jobs)) for one_s, (_, jobs) in zip(job_s, work, strict=True))
    return Cost(sum(len(jobs) for _, jobs in work), max(job_s), round(node_s, 1))


def estimate_job_s(tests: Sequence[Test], repetition_count: int = 1) -> float:
    """How long one job runs: every repetition of every test, and the cost of starting them."""
    once = sum(
        expected_s(test.parameters) + (_MPI_TEST_OVERHEAD_S if test.needs_mpi else _TEST_OVERHEAD_S) for test in running(tests)
    )
    return round(_JOB_OVERHEAD_S + repetition_count * once, 1)


def derive_walltime_s(tests: Sequence[Test], repetition_count: int) -> int:
    """A short but sufficient time limit in whole minutes: twice the estimate, a margin, room for one hanging test."""
    estimate_s = estimate_job_s(tests, repetition_count)
    hanging_s = estimate_s + max(test.timeout_s for test in tests)
    return 60 * math.ceil(max(2 * estimate_s + _WALLTIME_MARGIN_S, hanging_s) / 60)


def _not_planned(
    campaign: Campaign,
    cluster: Cluster,
    names: Sequence[str],
    excluded: Sequence[Excluded],
    apart: Callable[[Pair], str],
) -> list[NotPlanned]:
    """The pairs that the campaign names, but whose nodes are not candidates, or cannot be in one job: apart says why."""
    usable = set(names)
    reasons = {one.node: one.reason for one in excluded}
    choice = campaign.pairs
    wanted: Sequence[Pair] = choice.pairs
    if choice.pattern is Pattern.STAR and choice.node is not None:
        wanted = [(choice.node, other) for other in names if other != choice.node]
    lost = []
    for pair in wanted:
        missing = [f"{node} {reasons.get(node, f'is not a node of {cluster.name}')}" for node in pair if node not in usable]
        missing = missing or [words for words in (apart(pair),) if words]
        if missing:
            lost.append(NotPlanned(*pair, reason="; ".join(missing)))
    return lost


def _over(names: Sequence[str], nodes: Sequence[NodeState], cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The interfaces over which each candidate is measured."""
    features = {one.node: one.features for one in nodes}
    return {name: measured_over(cluster, features.get(name, ())) for name in names}


def _fabrics(names: Sequence[str], nodes: Sequence[NodeState], interfaces: Mapping[str, str]) -> dict[str, str]:
    """What the candidates of one job must have in common: their fabric and interface, if they are of several."""
    known = {one.node: one.fabric for one in nodes if one.fabric is not None}
    found = {name: known[name] for name in names if name in known}
    found = found if len(by_fabric(names, found)) > 1 else {}
    if not interfaces:
        return found
    return {name: " ".join((*((found.get(name, "none"),) if found else ()), interfaces[name])) for name in names}


def _apart(fabrics: Mapping[str, str], interfaces: Mapping[str, str]) -> Callable[[Pair], str]:
    """Why no job has both nodes of a pair; empty if one may."""

    def words(pair: Pair) -> str:
        one, other = pair
        if not fabrics or len(by_fabric(pair, fabrics)) < 2:
            return ""
        if interfaces.get(one) != interfaces.get(other):
            return f"{one} is measured over {interfaces[one]}, {other} over {interfaces[other]}: no test has both"
        return f"one is in {fabrics.get(one, 'none')}, the other in {fabrics.get(other, 'none')}: no job may have nodes of both"

    return words


def _fabric_notes(fabrics: Mapping[str, str], interfaces: Mapping[str, str]) -> tuple[str, ...]:
    """What follows from several fabrics or interfaces, in a sentence."""
    members: dict[str, list[str]] = {}
    for node, fabric in fabrics.items():
        members.setdefault(fabric, []).append(node)
    named = "; ".join(f"{fabric}: {','.join(nodelist.fold(several))}" for fabric, several in members.items())
    if not members:
        return ()
    if interfaces:
        return (f"nodes differ in their interface: {named}: every job is within one",)
    return (f"no job may have nodes of two of the {len(members)} fabrics {named}: every job is within one",)


def _groups(choice: PairChoice, names: Sequence[str], nodes: Sequence[NodeState]) -> dict[str, str]:
    """The group of each candidate that has one: its switch, or its first feature that matches the pattern."""
    if choice.group is None:
        return {}
    if choice.group == "switch":
        switches = choice.switches or {node.node: node.switch for node in nodes if node.switch is not None}
        return {name: switches[name] for name in names if name in switches}
    pattern = "rack*" if choice.group == "rack" else choice.group
    features = {node.node: [word for word in node.features if fnmatchcase(word, pattern)] for node in nodes}
    return {name: features[name][0] for name in names if features.get(name)}


def _node_pair_count_min(names: Sequence[str], pairs: Sequence[Pair]) -> int:
    counts = dict.fromkeys(names, 0)
    for client, server in pairs:
        counts[client] += 1
        counts[server] += 1
    return min(counts.values()) if pairs else 0


# ----------------------------------------------------------------------------------------------------------------------
# Fit a plan into the site's limits for one job: smaller tournaments, a shorter time limit, or a reasoned refusal.
#
#     Campaign + JobLimits --fit_campaign--> Campaign      whole -> groups of MaxNodes, or pairs
#     Plan + JobLimits     --fit_plan-->     Plan          time limit cut to MaxTime; `notes` say what was changed
#     Plan + JobLimits of both clusters --fit_link--> Plan  the same for a link, whose jobs have one node on each cluster
#
# Pure. In most queues a job that is larger or longer than allowed waits forever, so hpcq never submits one.


def refuse_where_not_taken(where: str, limits: JobLimits) -> None:
    """Raise UserError if the site accepts no job of this user in the partition."""
    if limits.refusals:
        lines = [f"{where}: the site would not take its jobs", *(f"  {one}" for one in limits.refusals)]
        raise UserError("\n".join(lines), "partition, account, qos and reservation of the cluster file decide this")


def fit_campaign(campaign: Campaign, node_count: int, limits: JobLimits, where: str) -> Campaign:
    """The campaign with the largest allocations allowed on `node_count` nodes. Raises UserError if none is allowed."""
    most, least, allocation = limits.max_nodes, limits.nodes_at_least, campaign.allocation
    if most is not None and most.value < 2:
        raise UserError(f"{where}: {most.source} is {most.value}: a pair needs two", "another partition, or qos")
    wanted = {AllocationKind.PAIR: 2, AllocationKind.WHOLE: node_count}.get(allocation.kind, allocation.node_count or 2)
    size = wanted if most is None else min(wanted, most.value)
    if least is not None and size < least.value:
        hint = f"allocation: group of {least.value} makes larger jobs, allocation: whole the largest"
        raise UserError(f"{where}: {least.source} is {least.value}: the jobs of this plan have {size} nodes", hint)
    if allocation.kind is AllocationKind.PAIR or size == wanted:
        return campaign
    return replace(
        campaign, allocation=Allocation(AllocationKind.GROUP, size, allocation.concurrency) if size > 2 else Allocation()
    )


def refuse_large_sets(plan: Plan, limits: JobLimits, where: str) -> None:
    """Raise UserError if tests of many nodes need larger jobs than the site allows."""
    largest = max((len(plan.nodes_at(index)) for index in range(plan.sets_begin, len(plan.pairs))), default=0)
    most = limits.max_nodes
    if most is not None and largest > most.value:
        raise UserError(
            f"{where}: {NODE_COUNT}: {largest}: {most.source} is {most.value}", "a smaller one, or another partition"
        )


def fit_plan(plan: Plan, asked: Campaign, limits: JobLimits, where: str) -> Plan:
    """The plan with a time limit that the site allows; `asked` is the campaign as it was written."""
    notes = list(plan.notes)
    most, wall = limits.max_nodes, limits.max_walltime_s
    if most is not None and (plan.allocation, plan.allocation_node_count) != (
        asked.allocation.kind,
        asked.allocation.node_count,
    ):
        notes.append(f"{most.source} is {most.value}: jobs of {plan.allocation_node_count or 2} nodes at most")
    if wall is not None and plan.walltime_s > wall.value:
        if asked.walltime_s is not None and asked.walltime_s > wall.value:
            raise UserError(f"{where}: walltime_s: {asked.walltime_s} s: {wall.source} allows {wall.value} s")
        if plan.cost.estimated_job_s > wall.value:
            raise UserError(
                f"{where}: a job is estimated to take {plain(plan.cost.estimated_job_s)} s:"
                f" {wall.source} allows {wall.value} s",
                "fewer tests or repetitions per job, or another partition",
            )
        notes.append(f"{wall.source} is {wall.value} s: time limit cut from {plan.walltime_s} s")
        plan = replace(plan, walltime_s=wall.value)
    shortest = limits.min_walltime_s
    if shortest is not None and plan.walltime_s < shortest.value:
        notes.append(f"{shortest.source} is {shortest.value} s: time limit raised from {plan.walltime_s} s")
        plan = replace(plan, walltime_s=shortest.value)
    return replace(plan, notes=tuple(notes))


def fit_link(plan: Plan, peer_wait_s: float, limits: Mapping[str, JobLimits]) -> Plan:
    """A link's plan with a time limit that both of its clusters allow. limits: by cluster.

    Raises UserError if one of them accepts no job of one node, or none that is long enough to wait and to measure.
    """
    needed_s, asked_s, notes = plan.cost.estimated_job_s + peer_wait_s, plan.walltime_s, []
    for cluster, known in limits.items():
        where = f"{plan.campaign}: {plan.cluster} on {cluster}"
        refuse_where_not_taken(where, known)
        least, wall = known.nodes_at_least, known.max_walltime_s
        if least is not None:
            raise UserError(
                f"{where}: {least.source} is {least.value}: a link's jobs have one node", "another partition, or qos"
            )
        if wall is not None and needed_s > wall.value:
            raise UserError(
                f"{where}: a job may wait {plain(peer_wait_s)} s for the other side and is estimated to take"
                f" {plain(plan.cost.estimated_job_s)} s: {wall.source} allows {wall.value} s",
                "a shorter peer_wait_s, fewer tests or repetitions, or another partition",
            )
        if wall is not None and plan.walltime_s > wall.value:
            notes.append(f"{cluster}: {wall.source} is {wall.value} s: time limit cut from {asked_s} s")
            plan = replace(plan, walltime_s=wall.value)
    for cluster, known in limits.items():
        shortest = known.min_walltime_s
        if shortest is not None and plan.walltime_s < shortest.value:
            notes.append(f"{cluster}: {shortest.source} is {shortest.value} s: time limit raised from {plan.walltime_s} s")
            plan = replace(plan, walltime_s=shortest.value)
    return replace(plan, notes=tuple(notes))

"""Make the plan from a campaign, a cluster and its nodes. The same input gives the same plan, byte for byte.

Campaign + Cluster + node list + seed --make_plan--> Plan
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hpcq.definition.model import Campaign, Cluster, PairChoice, Pattern, Test
from hpcq.definition.running import of_nodes, of_set, running
from hpcq.kernels import expected_s
from hpcq.planning.candidates import Excluded, choose_candidates
from hpcq.planning.node_sets import node_sets, only_sets
from hpcq.planning.pairs import Pair, make_pairs
from hpcq.planning.plan import Cost, Goals, NotPlanned, Plan, nodes_of_pair
from hpcq.planning.refusals import no_pair, refuse_beyond_budget, refuse_many_pairs, refuse_without_groups, refuse_without_mpi

if TYPE_CHECKING:
    from hpcq.scheduler.types import NodeState


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
    run_id: str,
    seed: int,
    *,
    allocation: Callable[[Plan], Plan] | None = None,
) -> Plan:
    """Plan a campaign on one cluster with these nodes; `seed` is usually `campaign.seed_of(run_id)`.

    allocation: how allocations.py changes the plan; without it, each pair has an allocation of its own.
    Raises UserError when the campaign cannot run there: no MPI, fewer than two nodes, no pair, or beyond the budget.
    """
    refuse_without_mpi(campaign, cluster)
    candidates, excluded = choose_candidates(campaign, cluster, nodes, seed)
    names = [one.node for one in candidates]
    groups = _groups(campaign.pairs, names, nodes)
    refuse_without_groups(campaign, cluster, groups)
    refuse_many_pairs(campaign, cluster, len(names))
    pairs = [] if only_sets(campaign) else make_pairs(campaign.pairs, names, seed, groups)
    tests, sets, short = node_sets(campaign.tests, names, campaign.budget_on(cluster).node_limit(len(names)))
    not_planned = [*_not_planned(campaign, cluster, names, excluded), *short]
    if not pairs and not sets:
        raise no_pair(cluster, not_planned)
    work = _work(tests, pairs, sets)
    repetition_count = campaign.repetition_count
    plan = Plan(
        run_id=run_id,
        campaign=campaign.name,
        cluster=cluster.name,
        interface=cluster.interface,
        networks=dict(cluster.networks),
        seed=seed,
        candidates=tuple(candidates),
        excluded=tuple(excluded),
        tests=tests,
        repetition_count=repetition_count,
        walltime_s=campaign.walltime_s or max(derive_walltime_s(together, repetition_count) for together, _ in work),
        attempt_count_max=campaign.attempt_count_max,
        pairs=(*pairs, *sets),
        not_planned=tuple(not_planned),
        goals=_goals(campaign, names, pairs, sets, work),
        cost=_cost(work, repetition_count),
        node_set_count=len(sets),
        evidence=campaign.evidence.value,
        groups=groups,
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


def _goals(
    campaign: Campaign, names: Sequence[str], pairs: Sequence[Pair], sets: Sequence[Pair], work: Sequence[_Together]
) -> Goals:
    return Goals(
        pair_count=len(pairs) + len(sets),
        result_count=sum(len(together) * len(jobs) for together, jobs in work) * campaign.repetition_count,
        node_pair_count_min=_node_pair_count_min(names, pairs),
        node_pair_count_goal=campaign.pairs.node_goal,
        group_pair_count_goal=campaign.pairs.group_pair_goal,
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


def _not_planned(campaign: Campaign, cluster: Cluster, names: Sequence[str], excluded: Sequence[Excluded]) -> list[NotPlanned]:
    """The pairs that the campaign names, but whose nodes are not candidates."""
    usable = set(names)
    reasons = {one.node: one.reason for one in excluded}
    choice = campaign.pairs
    wanted: Sequence[Pair] = choice.pairs
    if choice.pattern is Pattern.STAR and choice.node is not None and choice.node not in usable:
        wanted = [(choice.node, other) for other in names]
    lost = []
    for pair in wanted:
        missing = [f"{node} {reasons.get(node, f'is not a node of {cluster.name}')}" for node in pair if node not in usable]
        if missing:
            lost.append(NotPlanned(*pair, reason="; ".join(missing)))
    return lost


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

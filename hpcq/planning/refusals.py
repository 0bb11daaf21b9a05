"""Why hpcq refuses a plan, in words: no MPI, no groups, no pair, or more than the budget allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcq.definition.model import Campaign, Cluster, Pattern
from hpcq.errors import UserError
from hpcq.planning.pairs import lap_length
from hpcq.planning.plan import NotPlanned, Plan
from hpcq.scheduler.kinds import mpi_example
from hpcq.units import count_of, plain

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


def refuse_beyond_budget(plan: Plan, campaign: Campaign, cluster: Cluster) -> None:
    where = f"{campaign.name} on {cluster.name}"
    budget = campaign.budget_on(cluster)
    most_s = budget.walltime_at_most_s
    if most_s is not None and plan.walltime_s > most_s:
        raise UserError(
            f"{where}: walltime: {plan.walltime_s} s: the budget allows {most_s} s",
            hint="fewer tests or repetitions per job, or a walltime of the campaign that is shorter",
        )
    if plan.walltime_s < plan.cost.estimated_job_s:
        raise UserError(
            f"{where}: walltime: {plan.walltime_s} s is below the {plain(plan.cost.estimated_job_s)} s that one job"
            " is estimated to take",
            hint="leave walltime out: it is derived from the tests",
        )
    if budget.node_limit(len(plan.candidates)) < 2:
        raise UserError(
            f"{where}: budget: {budget.node_limit(len(plan.candidates))} of {len(plan.candidates)} nodes may be used:"
            " a pair needs two"
        )
    limit = budget.node_seconds_at_most
    if limit is not None and plan.cost.node_seconds > limit:
        raise UserError(
            f"{where}: budget: the plan costs {plain(plan.cost.node_seconds)} node-seconds: at most {plain(limit)} are allowed",
            hint="fewer pairs (pairs: {rounds: 1}), tests or repetitions cost less",
        )


def no_pair(cluster: Cluster, not_planned: Sequence[NotPlanned]) -> UserError:
    lines = [f"{cluster.name}: no pair of the campaign can run"]
    lines += [f"  {one.client} - {one.server}: {one.reason}" for one in not_planned[:10]]
    return UserError("\n".join(lines))

"""Fit a plan into the site's limits for one job: smaller tournaments, a shorter time limit, or a reasoned refusal.

    Campaign + JobLimits --fit_campaign--> Campaign      whole -> groups of MaxNodes, or pairs
    Plan + JobLimits     --fit_plan-->     Plan          time limit cut to MaxTime; `notes` say what was changed
    Plan + JobLimits of both clusters --fit_link--> Plan  the same for a link, whose jobs have one node on each cluster

Pure. In most queues a job that is larger or longer than allowed waits forever, so hpcq never submits one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcq.definition.model import Allocation, AllocationKind, Campaign
from hpcq.definition.running import NODE_COUNT
from hpcq.errors import UserError
from hpcq.planning.plan import Plan
from hpcq.units import plain

if TYPE_CHECKING:
    from hpcq.scheduler.limits import JobLimits


def refuse_where_not_taken(where: str, limits: JobLimits) -> None:
    """Raise UserError if the site accepts no job of this user in the partition."""
    if limits.refusals:
        lines = [f"{where}: the site would not take its jobs", *(f"  {one}" for one in limits.refusals)]
        raise UserError("\n".join(lines), "partition, account, qos and reservation of the cluster file decide this")


def fit_campaign(campaign: Campaign, node_count: int, limits: JobLimits, where: str) -> Campaign:
    """The campaign with the largest allocations allowed on `node_count` nodes. Raises UserError if none is allowed."""
    most, least, allocation = limits.nodes_at_most, limits.nodes_at_least, campaign.allocation
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
    most = limits.nodes_at_most
    if most is not None and largest > most.value:
        raise UserError(
            f"{where}: {NODE_COUNT}: {largest}: {most.source} is {most.value}", "a smaller one, or another partition"
        )


def fit_plan(plan: Plan, asked: Campaign, limits: JobLimits, where: str) -> Plan:
    """The plan with a time limit that the site allows; `asked` is the campaign as it was written."""
    notes = []
    most, wall = limits.nodes_at_most, limits.walltime_at_most_s
    if most is not None and (plan.allocation, plan.allocation_node_count) != (
        asked.allocation.kind,
        asked.allocation.node_count,
    ):
        notes.append(f"{most.source} is {most.value}: jobs of {plan.allocation_node_count or 2} nodes at most")
    if wall is not None and plan.walltime_s > wall.value:
        if asked.walltime_s is not None and asked.walltime_s > wall.value:
            raise UserError(f"{where}: walltime: {asked.walltime_s} s: {wall.source} allows {wall.value} s")
        if plan.cost.estimated_job_s > wall.value:
            raise UserError(
                f"{where}: a job is estimated to take {plain(plan.cost.estimated_job_s)} s:"
                f" {wall.source} allows {wall.value} s",
                "fewer tests or repetitions per job, or another partition",
            )
        notes.append(f"{wall.source} is {wall.value} s: time limit cut from {plan.walltime_s} s")
        plan = replace(plan, walltime_s=wall.value)
    return replace(plan, notes=tuple(notes))


def fit_link(plan: Plan, patience_s: float, limits: Mapping[str, JobLimits]) -> Plan:
    """A link's plan with a time limit that both of its clusters allow. limits: by cluster.

    Raises UserError if one of them accepts no job of one node, or none that is long enough to wait and to measure.
    """
    needed_s, asked_s, notes = plan.cost.estimated_job_s + patience_s, plan.walltime_s, []
    for cluster, known in limits.items():
        where = f"{plan.campaign}: {plan.cluster} on {cluster}"
        refuse_where_not_taken(where, known)
        least, wall = known.nodes_at_least, known.walltime_at_most_s
        if least is not None:
            raise UserError(
                f"{where}: {least.source} is {least.value}: a link's jobs have one node", "another partition, or qos"
            )
        if wall is not None and needed_s > wall.value:
            raise UserError(
                f"{where}: a job may wait {plain(patience_s)} s for the other side and is estimated to take"
                f" {plain(plan.cost.estimated_job_s)} s: {wall.source} allows {wall.value} s",
                "a shorter patience_s, fewer tests or repetitions, or another partition",
            )
        if wall is not None and plan.walltime_s > wall.value:
            notes.append(f"{cluster}: {wall.source} is {wall.value} s: time limit cut from {asked_s} s")
            plan = replace(plan, walltime_s=wall.value)
    return replace(plan, notes=tuple(notes))

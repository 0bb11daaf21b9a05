"""`hpcq plan`: the plans of a campaign, made from the present nodes and not written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcq.definition.files.cluster import read_cluster
from hpcq.planning.allocations import Basis
from hpcq.planning.links import plan_cluster, plan_link, refuse_beyond_budget
from hpcq.planning.plan import Plan
from hpcq.runner.queue.reservations import refuse_where_forbidden
from hpcq.runner.site.place import check_definitions, nodes_now, reach, scheduler_of
from hpcq.scheduler.limits import JobLimits


def preview(campaign_path: Path, cluster_folders: Sequence[Path]) -> list[Plan]:
    """Return one plan per cluster and link.

    Raises what a run would raise: bad files, unreachable clusters, too few nodes.
    """
    campaign, paths = check_definitions(campaign_path, cluster_folders)
    plans: list[Plan] = []
    limits: dict[str, JobLimits] = {}
    clusters = {name: campaign.narrowed(read_cluster(path)) for name, path in paths.items()}
    for cluster in clusters.values():
        scheduler = scheduler_of(cluster, reach(cluster))
        refuse_where_forbidden(cluster, scheduler)
        nodes = nodes_now(campaign, scheduler)
        own = limits[cluster.name] = scheduler.job_limits()
        plans.append(plan_cluster(campaign, Basis(cluster, nodes, "preview", campaign.seed_of("preview"), own)))
    made = {plan.cluster: plan for plan in plans}
    for link in campaign.links:
        ends = (made[link.from_cluster], made[link.to_cluster])
        linked = plan_link(campaign, link, ends, {one.cluster: limits[one.cluster] for one in ends})
        for one in ends:
            refuse_beyond_budget(campaign, campaign.budget_on(clusters[one.cluster]), linked, one)
        plans.append(linked.plan)
    return plans

"""`hpcq plan`: the plans of a campaign, made from the present nodes and not written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import HpcqError
from hpcq.planning.allocations import Basis
from hpcq.planning.links import plan_cluster, plan_link, refuse_beyond_budget
from hpcq.planning.plan import Plan
from hpcq.runner.queue.reservations import refuse_where_forbidden
from hpcq.runner.site.place import check_definitions, nodes_now, reach, scheduler_of
from hpcq.scheduler.base import JobLimits


@dataclass(frozen=True, slots=True)
class Preview:
    """Plans of clusters and links; failures: why a cluster or a link has none."""

    plans: list[Plan] = field(default_factory=list)
    failures: list[HpcqError] = field(default_factory=list)


def preview(campaign_path: Path, cluster_folders: Sequence[Path]) -> Preview:
    """Plan every cluster and link. One that cannot be reached or planned does not keep the others from it.

    Raises UserError for bad files: then nothing can be planned.
    """
    campaign, paths = check_definitions(campaign_path, cluster_folders)
    found = Preview()
    limits: dict[str, JobLimits] = {}
    clusters = {name: campaign.narrowed(read_cluster(path)) for name, path in paths.items()}
    for cluster in clusters.values():
        try:
            plan, limits[cluster.name] = _plan(campaign, cluster)
            found.plans.append(plan)
        except HpcqError as error:
            found.failures.append(error)
    made = {plan.cluster: plan for plan in found.plans}
    for link in campaign.links:
        names = (link.from_cluster, link.to_cluster)
        if not set(names) <= set(made):
            lost = ", ".join(name for name in names if name not in made)
            found.failures.append(
                HpcqError(f"{link.name}: not planned, because {lost} is not", "see the error of that cluster")
            )
            continue
        try:
            linked = plan_link(campaign, link, (made[names[0]], made[names[1]]), {name: limits[name] for name in names})
            for name in names:
                refuse_beyond_budget(campaign, campaign.budget_on(clusters[name]), linked, made[name])
            found.plans.append(linked.plan)
        except HpcqError as error:
            found.failures.append(error)
    return found


def _plan(campaign: Campaign, cluster: Cluster) -> tuple[Plan, JobLimits]:
    scheduler = scheduler_of(cluster, reach(cluster))
    refuse_where_forbidden(cluster, scheduler)
    nodes = nodes_now(scheduler)
    limits = scheduler.job_limits()
    return plan_cluster(campaign, Basis(cluster, nodes, "preview", campaign.seed_of("preview"), limits)), limits

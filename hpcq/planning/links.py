"""Plan what a campaign does over the link between two clusters: pure, seeded, written to disk like any plan.

    plans of both clusters (their candidates) + Link + seed --plan_link--> LinkPlan (<from>+<to>/plan.json)

Nodes are written CLUSTER/NODE, because both clusters may have an n1. A pair is (client, server). The server listens, so
`listen: from` swaps the two. Both directions are parameters of the tests, not pairs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpcq.definition.model import (
    LINKS,
    AllocationKind,
    Budget,
    Campaign,
    Directions,
    Link,
    Listen,
    PairChoice,
    ParameterValue,
    Pattern,
    Test,
    runs_on,
    within_clusters,
)
from hpcq.errors import CHANGED_HINT, StoreError, UserError
from hpcq.planning.allocations import Basis, plan_allocations
from hpcq.planning.make_plan import derive_walltime_s, estimate_job_s, fit_link, make_plan
from hpcq.planning.pairs import Pair, seeded_order
from hpcq.planning.plan import Cost, Goals, NotPlanned, Plan
from hpcq.scheduler.base import JobLimits
from hpcq.shapes import misfit, shown
from hpcq.units import plain

#: What the rendezvous of both sides adds to a job: a few polls of the driver.
_MEETING_S = 5.0
_TURNED = {"client_to_server": "server_to_client", "server_to_client": "client_to_server"}


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """The plan of a link. In `plan`, every node is written CLUSTER/NODE and the link's name is the cluster."""

    link: Link
    plan: Plan

    def to_json(self) -> str:
        """The text of plan.json: as for a cluster, with the link's own values."""
        head, rest = self.plan.to_json().split("\n", 1)
        return f'{head}\n  "link": {json.dumps(asdict(self.link))},\n{rest}'

    @classmethod
    def from_json(cls, text: str, where: str = "plan.json") -> LinkPlan:
        """Read what `to_json` wrote. Raises StoreError if the text is anything else."""
        try:
            fields: dict[str, Any] = json.loads(text)
            link = link_in(fields, where)
            del fields["link"]
            typed = {
                "listen": Listen(link["listen"]),
                "directions": Directions(link["directions"]),
                "node_pairs": tuple((one, other) for one, other in link["node_pairs"]),
            }
            made = Link(**{**link, **typed})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{where}: not a link's plan: {type(error).__name__}: {error}") from None
        return cls(made, Plan.from_json(json.dumps(fields), where))


def link_in(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The link's own values in the fields of a plan.json. Raises StoreError if they cannot be what hpcq wrote."""
    link = fields.get("link")
    complaint = misfit(link, Link) if isinstance(link, dict) else f"{shown(link)}: must be an object"
    if not isinstance(link, dict) or complaint:
        raise StoreError(f"{where}: link: {complaint}", CHANGED_HINT)
    return link


def qualified(cluster: str, node: str) -> str:
    """A node's name as CLUSTER/NODE, for texts with nodes of several clusters."""
    return f"{cluster}/{node}"


def split(name: str) -> tuple[str, str]:
    """Cluster and node of a qualified name."""
    cluster, _, node = name.partition("/")
    return cluster, node


def plan_cluster(campaign: Campaign, basis: Basis) -> Plan:
    """The plan of one cluster of a campaign. Without `pairs` in the file, it is a ring of the nodes that its links use.

    Raises UserError as make_plan does.
    """
    within = within_clusters(campaign.tests)
    if within:
        campaign = replace(campaign, tests=within)
    if not campaign.pairs_of_links:
        return plan_allocations(campaign, basis)
    cluster, seed = basis.cluster, basis.seed
    ring = replace(campaign, pairs=PairChoice(Pattern.RING))
    everything = make_plan(ring, cluster, basis.nodes, basis.run, seed)
    usable = [one.node for one in everything.candidates]
    wanted = nodes_of_links(campaign, cluster.name, usable, seed)
    order, of = seeded_order(usable, seed), everything.fabrics
    chosen = list(wanted)
    for node in wanted:  # one that is alone in its fabric gets a partner there
        partners = [other for other in order if other != node and of.get(other) == of.get(node)]
        chosen += partners[:1] if not set(partners) & set(chosen) else []
    chosen_nodes = replace(campaign.nodes, include=tuple(chosen), at_most=None)
    compared = bool(within) and any(
        link.compare for link in campaign.links if cluster.name in {link.from_cluster, link.to_cluster}
    )
    # Without a comparison, no pair of the cluster becomes a job, so the site's limits for such a job do not matter.
    limits = basis.limits if compared else JobLimits(refusals=basis.limits.refusals)
    plan = plan_allocations(replace(campaign, nodes=chosen_nodes), replace(basis, limits=limits))
    known = {one.node: one for one in everything.excluded}
    plan = replace(plan, excluded=tuple(known.get(one.node, one) for one in plan.excluded))
    if compared:
        return plan
    nothing = replace(plan.goals, pair_count=0, result_count=0, node_pair_count_min=0)
    return replace(
        plan, pairs=(), tests=(), node_set_count=0, goals=nothing, cost=replace(plan.cost, job_count=0, node_seconds=0.0)
    )


def nodes_of_links(campaign: Campaign, cluster: str, usable: Sequence[str], seed: int) -> list[str]:
    """The usable nodes of a cluster that its links use, each once."""
    found: list[str] = []
    for link in campaign.links:
        if cluster in {link.from_cluster, link.to_cluster}:
            found += _side(link, cluster, usable, seed)
    return list(dict.fromkeys(found))


def compared_pairs(campaign: Campaign, plan: Plan, links: Sequence[LinkPlan]) -> frozenset[int]:
    """The pairs (indexes in the cluster's plan) that its links are compared with: both ends are nodes of these links.

    They are measured right beside the link's own pairs. If the campaign names no pairs, all pairs are compared. If it
    names pairs that share allocations, the allocations stay whole: no pair is taken out.
    """
    if campaign.pairs_of_links:
        return frozenset(range(len(plan.pairs)))
    if campaign.allocation.kind is not AllocationKind.PAIR:
        return frozenset()
    used = (split(node) for made in links if made.link.compare for pair in made.plan.pairs for node in pair)
    nodes = {node for cluster, node in used if cluster == plan.cluster}
    return frozenset(index for index, (client, server) in enumerate(plan.pairs) if client in nodes and server in nodes)


def plan_link(
    campaign: Campaign, link: Link, plans: tuple[Plan, Plan], limits: Mapping[str, JobLimits] | None = None
) -> LinkPlan:
    """The plan of a link. plans: the plans of its `from` and its `to` cluster, whose candidates it draws from.

    limits: what jobs may be, by cluster. Raises UserError when none of its pairs can run.
    """
    pairs, not_planned = _pairs(link, plans)
    tests = _tests(campaign, link)
    count = campaign.repetition_count
    if not pairs:
        lines = [f"{link.name}: no pair of the link can run"]
        raise UserError("\n".join(lines + [f"  {one.client} - {one.server}: {one.reason}" for one in not_planned[:10]]))
    estimated_s = estimate_job_s(tests, count) + _MEETING_S
    walltime_s = campaign.walltime_s or derive_walltime_s(tests, count)
    plan = replace(
        plans[0],
        cluster=link.name,
        candidates=tuple(replace(one, node=qualified(plan.cluster, one.node)) for plan in plans for one in plan.candidates),
        excluded=tuple(replace(one, node=qualified(plan.cluster, one.node)) for plan in plans for one in plan.excluded),
        interfaces={
            qualified(plan.cluster, one.node): plan.interface_at((one.node,)) for plan in plans for one in plan.candidates
        },
        tests=tuple(tests),
        repetition_count=count,
        # The side that starts first waits for the other within its own time limit.
        walltime_s=walltime_s + 60 * math.ceil(link.peer_wait_s / 60),
        attempt_count_max=campaign.attempt_count_max,
        pairs=pairs,
        node_set_count=0,
        not_planned=not_planned,
        goals=Goals(len(pairs), len(pairs) * len(tests) * count, min(Counter(sum(pairs, ())).values())),
        cost=Cost(2 * len(pairs), estimated_s, round(2 * estimated_s * len(pairs), 1)),
    )
    fitted = fit_link(plan, link.peer_wait_s, limits or {})
    within = sorted({one.kernel for one in campaign.tests if one.within_cluster})
    if within:
        ends = f"{link.from_cluster} and {link.to_cluster}"
        words = f"one MPI job does not span two batch systems: {', '.join(within)} runs within {ends}"
        fitted = replace(fitted, notes=(*fitted.notes, words))
    return LinkPlan(link, fitted)


def refuse_beyond_budget(campaign: Campaign, budget: Budget, made: LinkPlan, own: Plan) -> None:
    """Raise UserError if a link asks for more than one of its clusters allows. own: the plan of that cluster's pairs.

    The node-seconds of the cluster's own pairs, of this link and of its other links count together.
    """
    where = f"{campaign.name} on {own.cluster}"
    most_s = budget.max_walltime_s
    if most_s is not None and made.plan.walltime_s > most_s:
        raise UserError(
            f"{where}: walltime_s: jobs of {made.link.name} ask for {made.plan.walltime_s} s: the budget allows {most_s} s",
            hint="a link's jobs may wait peer_wait_s for each other: a shorter one, or fewer tests per job",
        )
    limit, planned_s = budget.max_node_seconds, own.cost.node_seconds
    if limit is not None and made.plan.walltime_s > limit:
        raise UserError(
            f"{where}: budget: a job of {made.link.name} may take {made.plan.walltime_s} node-seconds:"
            f" at most {plain(limit)} are allowed",
            hint="a link's jobs may wait peer_wait_s for each other: a shorter one, or a walltime of the campaign",
        )
    touching = [link for link in campaign.links if own.cluster in {link.from_cluster, link.to_cluster}]
    counts = [len(made.plan.pairs) if link.name == made.link.name else link.pair_count for link in touching]
    linked_s = round(sum(counts) * made.plan.cost.estimated_job_s, 1)
    if limit is not None and planned_s + linked_s > limit:
        raise UserError(
            f"{where}: budget: its pairs cost {plain(planned_s)} node-seconds and its links {plain(linked_s)}:"
            f" at most {plain(limit)} are allowed",
            hint="fewer pairs, tests or repetitions cost less; compare: false leaves the comparison out",
        )


def _pairs(link: Link, plans: tuple[Plan, Plan]) -> tuple[tuple[Pair, ...], tuple[NotPlanned, ...]]:
    usable = [[one.node for one in plan.candidates] for plan in plans]
    seed = plans[0].seed
    wanted = list(link.node_pairs)
    if not wanted:
        sides = (_side(link, link.from_cluster, usable[0], seed), _side(link, link.to_cluster, usable[1], seed))
        count = min(link.pair_count, len(sides[0]) * len(sides[1]))
        wanted = _zip_round(sides, count)
    reasons = [{one.node: one.reason for one in plan.excluded} for plan in plans]
    pairs, lost = [], []
    for nodes in wanted:
        names = [qualified(plan.cluster, node) for plan, node in zip(plans, nodes, strict=True)]
        if link.listen is Listen.FROM:
            names.reverse()
        missing = [
            f"{node} {reasons[side].get(node, f'is not a node of {plans[side].cluster}')}"
            for side, node in enumerate(nodes)
            if node not in usable[side]
        ]
        if missing:
            lost.append(NotPlanned(names[0], names[1], "; ".join(missing)))
        else:
            pairs.append((names[0], names[1]))
    return tuple(pairs), tuple(lost)


def _side(link: Link, cluster: str, usable: Sequence[str], seed: int) -> list[str]:
    """The nodes of one side: those that the list names, or the first ones in the seed's order."""
    side = 0 if cluster == link.from_cluster else 1
    if link.node_pairs:
        return [pair[side] for pair in link.node_pairs if pair[side] in usable]
    return seeded_order(usable, seed)[: link.pair_count]


def _zip_round(sides: tuple[list[str], list[str]], count: int) -> list[tuple[str, str]]:
    """`count` different pairs that use every node as rarely as possible; the second lap is shifted by one."""
    longer = max(len(sides[0]), len(sides[1]))
    made = []
    for lap in range(min(len(sides[0]), len(sides[1]))):
        made += [(sides[0][k % len(sides[0])], sides[1][(k + lap) % len(sides[1])]) for k in range(longer)]
    return list(dict.fromkeys(made))[:count]


def _tests(campaign: Campaign, link: Link) -> list[Test]:
    """The campaign's tests; a test that has a direction comes once per direction."""
    tests: list[Test] = []
    numbers: dict[tuple[int, int], int] = {}
    seen: set[tuple[str, tuple[tuple[str, ParameterValue], ...]]] = set()
    for one in campaign.tests:
        if not runs_on(one, LINKS):
            continue  # within the clusters
        ways = [dict(one.parameters)]
        direction = str(one.parameters.get("direction", ""))
        if link.directions is Directions.BOTH and direction in _TURNED:
            ways.append({**one.parameters, "direction": _TURNED[direction]})
        for way, parameters in enumerate(ways):
            key = (one.kernel, tuple(sorted(parameters.items())))
            if key not in seen:
                seen.add(key)
                number = numbers[one.test_no, way] = len(tests) + 1
                by = numbers[one.measured_by, way] if one.measured_by else 0
                tests.append(replace(one, test_no=number, parameters=parameters, measured_by=by, on=(LINKS,)))
    return tests

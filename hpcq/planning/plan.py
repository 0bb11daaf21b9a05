"""What a campaign will do on one cluster: pure, seeded, written to disk before anything is asked of a scheduler.

    Campaign + Cluster + node list + seed --make_plan--> Plan (plan.json)
    Plan's pending pairs + nodes idle now + own jobs + budget --choose_wave--> the pairs to submit next

The same input gives the same plan, byte for byte.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hpcq.definition.model import Budget, Campaign, Cluster, PairChoice, ParameterValue, Pattern, Test
from hpcq.errors import StoreError, UserError
from hpcq.kernels import expected_s
from hpcq.planning.candidates import Candidate, Excluded, choose_candidates
from hpcq.planning.pairs import Pair, make_pairs

if TYPE_CHECKING:
    from hpcq.scheduler.base import NodeState

#: What a job costs beside its tests: claim, facts of both nodes, server start and end. Seen in the lab: about a second.
_JOB_OVERHEAD_S = 3.0
#: What one measurement costs beside its own duration: process start, connection, snapshots; for MPI a launch.
_TEST_OVERHEAD_S = 0.3
_MPI_TEST_OVERHEAD_S = 1.5
#: Schedulers count time limits in minutes; a slow prologue or a loaded node must fit.
_WALLTIME_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """One test with nothing left to fill in."""

    test_no: int
    kernel: str
    parameters: Mapping[str, ParameterValue]
    timeout_s: int
    #: What else of ours is on the network meanwhile: see allocations.py; empty for pairs in allocations of their own.
    load: str = ""


@dataclass(frozen=True, slots=True)
class Goals:
    """What is there when everything went well."""

    pair_count: int
    result_count: int
    node_pair_count_min: int
    #: What the campaign wants of nodes and of every two groups; 0 is no goal.
    node_pair_count_goal: int = 0
    group_pair_count_goal: int = 0


@dataclass(frozen=True, slots=True)
class AllocationCost:
    """What one way to share allocations takes: a queue wait a job; seconds are of the longest job."""

    allocation: str
    job_count: int
    estimated_job_s: float
    node_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What it takes: seconds are estimates; `allocations` are the ways to share allocations."""

    job_count: int
    estimated_job_s: float
    node_seconds: float
    allocations: tuple[AllocationCost, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One job to be: a pair with its place in the plan."""

    job_id: str
    client: str
    server: str


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """A pair that the campaign lists but that cannot run, and why."""

    client: str
    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """One of our own jobs that is queued or running now."""

    nodes: tuple[str, ...]
    running: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one cluster, as in plan.json."""

    run_id: str
    campaign: str
    cluster: str
    interface: str
    seed: int
    candidates: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]
    tests: tuple[PlannedTest, ...]
    repetition_count: int
    walltime_s: int
    attempt_count_max: int
    pairs: tuple[Pair, ...]
    not_planned: tuple[NotPlanned, ...]
    goals: Goals
    cost: Cost
    evidence: str = "summary"
    #: Which pairs share an allocation: pair, group (of allocation_node_count nodes), whole.
    allocation: str = "pair"
    allocation_node_count: int | None = None
    #: The group of each candidate that has one: its switch, or a feature; empty where the campaign asks for none.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: What a limit of the site changed, each as a sentence.
    notes: tuple[str, ...] = ()

    def planned_pairs(self) -> tuple[PlannedPair, ...]:
        """All jobs to be, in order; job_id is `j` and five digits (more from 100,000 on)."""
        return tuple(map(self.pair_at, range(len(self.pairs))))

    def pair_at(self, index: int) -> PlannedPair:
        """The job to be of the pair at this place, from 0."""
        return PlannedPair(f"j{index + 1:05d}", *self.pairs[index])

    def to_json(self) -> str:
        """The text of plan.json: one line a key, so that two plans can be compared by eye."""
        # asdict would copy half a million pairs one by one
        fields = {"format": 1, **asdict(replace(self, pairs=()))}
        fields["pairs"] = self.pairs
        lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, where: str = "plan.json") -> Plan:
        """Read what `to_json` wrote. Raises StoreError when it is something else; `where` names it in the message."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != 1:
                raise ValueError("format is not 1")  # noqa: TRY301 - reported with the others below
            return cls(
                **fields
                | {
                    "candidates": tuple(Candidate(**one) for one in fields["candidates"]),
                    "excluded": tuple(Excluded(**one) for one in fields["excluded"]),
                    "tests": tuple(PlannedTest(**one) for one in fields["tests"]),
                    "pairs": tuple((client, server) for client, server in fields["pairs"]),
                    "not_planned": tuple(NotPlanned(**one) for one in fields.get("not_planned", ())),
                    "notes": tuple(fields.get("notes", ())),
                    "goals": Goals(**fields["goals"]),
                    "cost": Cost(
                        **fields["cost"]
                        | {"allocations": tuple(AllocationCost(**one) for one in fields["cost"].get("allocations", ()))}
                    ),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{where}: not a plan of this version: {type(error).__name__}: {error}") from None


def make_plan(
    campaign: Campaign,
    cluster: Cluster,
    nodes: Sequence[NodeState],
    run_id: str,
    seed: int,
    *,
    allocation: Callable[[Plan], Plan] | None = None,
) -> Plan:
    """Plan a campaign on one cluster whose nodes are as given; `seed` is usually `campaign.seed_of(run_id)`.

    allocation: what allocations.py makes of the plan; without it each pair has an allocation of its own.
    Raises UserError when it cannot run there: no MPI, fewer than two nodes, no pair, or beyond the budget.
    """
    _refuse_without_mpi(campaign, cluster)
    candidates, excluded = choose_candidates(campaign, cluster, nodes, seed)
    names = [one.node for one in candidates]
    groups = _groups(campaign.pairs, names, nodes)
    _refuse_without_groups(campaign, cluster, groups)
    pairs = make_pairs(campaign.pairs, names, seed, groups)
    not_planned = _not_planned(campaign, cluster, names, excluded)
    if not pairs:
        raise _no_pair(cluster, not_planned)
    estimated_job_s = estimate_job_s(campaign.tests, campaign.repetition_count)
    plan = Plan(
        run_id=run_id,
        campaign=campaign.name,
        cluster=cluster.name,
        interface=cluster.interface,
        seed=seed,
        candidates=tuple(candidates),
        excluded=tuple(excluded),
        tests=tuple(PlannedTest(one.test_no, one.kernel, dict(one.parameters), one.timeout_s) for one in campaign.tests),
        repetition_count=campaign.repetition_count,
        walltime_s=campaign.walltime_s or derive_walltime_s(campaign.tests, campaign.repetition_count),
        attempt_count_max=campaign.attempt_count_max,
        pairs=tuple(pairs),
        not_planned=tuple(not_planned),
        goals=Goals(
            pair_count=len(pairs),
            result_count=len(pairs) * len(campaign.tests) * campaign.repetition_count,
            node_pair_count_min=_node_pair_count_min(names, pairs),
            node_pair_count_goal=campaign.pairs.node_goal,
            group_pair_count_goal=campaign.pairs.group_pair_goal,
        ),
        cost=Cost(len(pairs), estimated_job_s, round(2 * len(pairs) * estimated_job_s, 1)),
        evidence=campaign.evidence.value,
        groups=groups,
    )
    if allocation is not None:
        plan = allocation(plan)
    _refuse_beyond_budget(plan, campaign, cluster)
    return plan


def estimate_job_s(tests: Sequence[Test], repetition_count: int = 1) -> float:
    """How long one job will run: every repetition of every test, with what starting them costs."""
    once = sum(
        expected_s(test.parameters) + (_MPI_TEST_OVERHEAD_S if test.program == "hpcq-mpi" else _TEST_OVERHEAD_S)
        for test in tests
    )
    return round(_JOB_OVERHEAD_S + repetition_count * once, 1)


def derive_walltime_s(tests: Sequence[Test], repetition_count: int) -> int:
    """A short and honest time limit in whole minutes: twice the estimate and a margin, and room for one test that hangs."""
    estimate_s = estimate_job_s(tests, repetition_count)
    hanging_s = estimate_s + max(test.timeout_s for test in tests)
    return 60 * math.ceil(max(2 * estimate_s + _WALLTIME_MARGIN_S, hanging_s) / 60)


def choose_wave(
    pending_pairs: Iterable[PlannedPair],
    idle_nodes: Collection[str],
    active_jobs: Sequence[ActiveJob],
    budget: Budget,
    *,
    layers_at_most: int | None = None,
) -> list[PlannedPair]:
    """The pairs to submit now, in the order to submit them.

    pending_pairs: in plan order, neither queued nor running nor done; gone through twice, and no further than needed.
    layers_at_most: how many jobs of ours a node may have at once.
    active_jobs: what we have queued and running; the nodes of running ones count as ours, so they may be queued on.
    Pairs on nodes without a job of ours come first, then the second job of each node, and so on: every layer is
    disjoint, and in plan order. At most budget.jobs_at_most jobs exist afterwards, on budget.node_limit nodes.
    """
    room = sys.maxsize if budget.jobs_at_most is None else budget.jobs_at_most - len(active_jobs)
    if room <= 0:
        return []
    available = set(idle_nodes).union(*(job.nodes for job in active_jobs if job.running))
    asked = {node for job in active_jobs for node in job.nodes}
    allowed = nodes_within(pending_pairs, available, asked, nodes_left(available, asked, budget))
    if len(allowed) < 2:
        return []
    return _layered(pending_pairs, allowed, active_jobs, room, layers_at_most or sys.maxsize)


def nodes_left(available: set[str], asked: set[str], budget: Budget) -> int:
    """How many more nodes may get a job of ours.

    The share must hold as things are, and also once the nodes that our queued jobs wait for are idle again.
    """
    now = budget.node_limit(len(available)) - len(asked & available)
    later = budget.node_limit(len(available | asked)) - len(asked)
    return min(now, later)


def nodes_within(pending: Iterable[PlannedPair], available: set[str], asked: set[str], left: int) -> set[str]:
    """Those available nodes that may have a job of ours: those that have one, and `left` more, in plan order."""
    if len(available - asked) <= left:
        return available
    allowed = asked & available
    for pair in pending:
        if left < 1:
            break
        fresh = {pair.client, pair.server} - allowed
        if len(fresh) <= left and fresh <= available:
            allowed |= fresh
            left -= len(fresh)
    return allowed


def _layered(
    pending: Iterable[PlannedPair], allowed: set[str], active_jobs: Sequence[ActiveJob], room: int, layers_at_most: int
) -> list[PlannedPair]:
    """First fit: each pair goes to the first layer where both its nodes are free. Bit k of taken[node] is layer k."""
    taken = dict.fromkeys(allowed, 0)
    for job in active_jobs:
        for node in job.nodes:
            if node in taken:
                taken[node] = taken[node] << 1 | 1
    layers: list[list[PlannedPair]] = []
    free_counts: list[int] = []
    open_layer = 0  # every layer below it can take no more pairs
    for pair in pending:
        if pair.client not in taken or pair.server not in taken:
            continue
        both = taken[pair.client] | taken[pair.server]
        layer = (~both & (both + 1)).bit_length() - 1
        if layer >= layers_at_most:
            continue
        while len(layers) <= layer:
            free_counts.append(sum(1 for bits in taken.values() if not bits >> len(layers) & 1))
            layers.append([])
        layers[layer].append(pair)
        free_counts[layer] -= 2
        taken[pair.client] |= 1 << layer
        taken[pair.server] |= 1 << layer
        while open_layer < len(layers) and free_counts[open_layer] < 2:
            open_layer += 1
        if open_layer >= layers_at_most or sum(map(len, layers[: open_layer + 1])) >= room:
            break
    return [pair for layer_pairs in layers for pair in layer_pairs][:room]


def _not_planned(campaign: Campaign, cluster: Cluster, names: Sequence[str], excluded: Sequence[Excluded]) -> list[NotPlanned]:
    """The pairs that the campaign names but whose nodes are no candidates."""
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
    """The group of each candidate that has one: its switch, or its first feature that fits the pattern."""
    if choice.group is None:
        return {}
    if choice.group == "switch":
        switches = choice.switches or {node.node: node.switch for node in nodes if node.switch is not None}
        return {name: switches[name] for name in names if name in switches}
    pattern = "rack*" if choice.group == "rack" else choice.group
    features = {node.node: [word for word in node.features if fnmatchcase(word, pattern)] for node in nodes}
    return {name: features[name][0] for name in names if features.get(name)}


def _refuse_without_groups(campaign: Campaign, cluster: Cluster, groups: Mapping[str, str]) -> None:
    choice = campaign.pairs
    wanted = {Pattern.WITHIN: 1, Pattern.ACROSS: 2}.get(choice.pattern, 2 if choice.group_pair_goal else 0)
    if len(set(groups.values())) >= wanted:
        return
    found = ", ".join(sorted(set(groups.values()))) or "none"
    raise UserError(
        f"{campaign.name} on {cluster.name}: pairs: {choice.pattern}: groups by {choice.group}: {found}: needed are {wanted}",
        "a topology file beside the campaign (topology: NAME), or features like rack*, can say what the scheduler does not",
    )


def _node_pair_count_min(names: Sequence[str], pairs: Sequence[Pair]) -> int:
    counts = dict.fromkeys(names, 0)
    for client, server in pairs:
        counts[client] += 1
        counts[server] += 1
    return min(counts.values())


def _refuse_without_mpi(campaign: Campaign, cluster: Cluster) -> None:
    needing = sorted({test.kernel for test in campaign.tests if test.program == "hpcq-mpi"})
    if needing and cluster.mpi is None:
        raise UserError(
            f"{cluster.name}: mpi: missing, but {campaign.name} runs {', '.join(needing)}: the cluster file must name one",
            hint="mpi: {compiler: mpicc, launch: srun --mpi=pmix}",
        )


def _refuse_beyond_budget(plan: Plan, campaign: Campaign, cluster: Cluster) -> None:
    where = f"{campaign.name} on {cluster.name}"
    budget = campaign.budget_on(cluster)
    most_s = budget.walltime_at_most_s
    if most_s is not None and plan.walltime_s > most_s:
        raise UserError(
            f"{where}: walltime: {plan.walltime_s} s: the budget allows {most_s} s",
            hint="fewer tests or repetitions a job, or a walltime of the campaign that is shorter",
        )
    if plan.walltime_s < plan.cost.estimated_job_s:
        raise UserError(
            f"{where}: walltime: {plan.walltime_s} s is below the {plan.cost.estimated_job_s:g} s that one job"
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
            f"{where}: budget: the plan costs {plan.cost.node_seconds:g} node-seconds: at most {limit:g} are allowed",
            hint="fewer pairs (pairs: {rounds: 1}), tests or repetitions cost less",
        )


def _no_pair(cluster: Cluster, not_planned: Sequence[NotPlanned]) -> UserError:
    lines = [f"{cluster.name}: no pair of the campaign can run"]
    lines += [f"  {one.client} - {one.server}: {one.reason}" for one in not_planned[:10]]
    return UserError("\n".join(lines))

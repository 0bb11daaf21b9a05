"""From pairs to allocations: which pairs share an allocation, and which of them run at the same time inside it.

    allocation: pair        each pair has an allocation of its own (the default)
    allocation: group of n  nodes that have most pairs among each other share one
    allocation: whole       all idle nodes share one

    pairs of one allocation --rounds_of--> rounds of disjoint pairs --steps_of--> steps, a barrier after each

A load says which other pairs of the campaign use the network while a pair is measured. `rounds`: all pairs of its
round. `bisection`: all pairs of its round, and each of them crosses the middle. `alone`: no other pair.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcq.definition.model import (
    Allocation,
    AllocationKind,
    Budget,
    Campaign,
    Cluster,
    Concurrency,
    Pattern,
    Test,
    launched,
    running,
)
from hpcq.kernels import expected_s
from hpcq.planning.make_plan import fit_campaign, fit_plan, make_plan, refuse_large_sets, refuse_where_not_taken
from hpcq.planning.plan import AllocationCost, Cost, Plan, PlannedPair, without_sets
from hpcq.planning.waves import ActiveJob, nodes_left, nodes_within
from hpcq.scheduler.base import NO_LIMITS, Bound, JobLimits

if TYPE_CHECKING:
    from hpcq.scheduler.types import NodeState


# ----------------------------------------------------------------------------------------------------------------------
# How long a tournament will run, and how long it may: what its steps cost, and what foreign programs may take beyond.


#: What a tournament costs in addition to its steps: claim, agents on all nodes, their connections and facts, their end.
_TOURNAMENT_OVERHEAD_S = 4.0
#: What MPI tests cost in addition: the launch of the one MPI step.
_MPI_OVERHEAD_S = 3.0
#: What a step costs in addition to the duration of its test: connection, snapshots, evidence, the barrier.
_STEP_OVERHEAD_S = 0.2
#: The same of a program that the MPI launcher starts once per pair.
_LAUNCH_OVERHEAD_S = 1.5
#: Shortest time limit of a tournament: slow starts and lost nodes must fit.
_WALLTIME_MARGIN_S = 120.0


def estimate_s(tests: Sequence[Test], repetition_count: int, round_count: int, pair_count: int) -> float:
    """How long a tournament will run."""
    total_s = _TOURNAMENT_OVERHEAD_S
    if any(test.needs_mpi and not launched(test) for test in tests):
        total_s += _MPI_OVERHEAD_S
    for test in running(tests):
        step_count = repetition_count * (pair_count if test.load == "alone" else round_count)
        total_s += step_count * _step_s(test)
    return round(total_s, 1)


def walltime_of(estimated_s: float, tests: Sequence[Test], measurement_count: int) -> int:
    """A tournament's time limit in whole minutes: 1.5 times the estimate, and enough for one test that hangs.

    measurement_count: how often each test is measured. Nobody knows how long a foreign program takes, only how long it
    may: a limit that is too short would end the tournament, and cost all its pairs a try.
    """
    hanging_s = max(test.timeout_s for test in tests)
    more_s = measurement_count * sum(test.timeout_s - _step_s(test) for test in running(tests) if launched(test))
    return 60 * math.ceil(max(1.5 * estimated_s, estimated_s + hanging_s, estimated_s + more_s, _WALLTIME_MARGIN_S) / 60)


def _step_s(test: Test) -> float:
    return expected_s(test.parameters) + (_LAUNCH_OVERHEAD_S if launched(test) else _STEP_OVERHEAD_S)


# ----------------------------------------------------------------------------------------------------------------------


#: Nodes per group in the cost that hpcq shows when the campaign gives no number.
_GROUP_NODE_COUNT = 8
#: Up to this many pairs, hpcq counts the allocations one by one. Beyond, it estimates their number.
_COUNTED_PAIRS_MAX = 5000


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """What runs at the same time: one repetition of one test by all `pairs`. No node is in two of them."""

    round_no: int
    test_no: int
    repetition_no: int
    pairs: tuple[PlannedPair, ...]


def loads_of(campaign: Campaign) -> tuple[str, ...]:
    """The loads under which every test is measured: one empty word where each pair has an allocation of its own."""
    allocation = campaign.allocation
    if allocation.kind is AllocationKind.PAIR:
        return ("",)
    whole_bisection = allocation.kind is AllocationKind.WHOLE and campaign.pairs.pattern is Pattern.BISECTION
    words = {Concurrency.ALONE: "alone", Concurrency.ROUNDS: "bisection" if whole_bisection else "rounds"}
    return tuple(words[one] for one in allocation.concurrency)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a cluster's plan is made from, apart from the campaign: the nodes' states and the site's limits per job."""

    cluster: Cluster
    nodes: Sequence[NodeState]
    run: str
    seed: int
    limits: JobLimits = NO_LIMITS


def plan_allocations(campaign: Campaign, basis: Basis) -> Plan:
    """Make a plan as make_plan does, with allocations shared as the campaign says and within the site's limits."""
    where = f"{campaign.name} on {basis.cluster.name}"
    limits = basis.limits
    refuse_where_not_taken(where, limits)
    wall = limits.max_walltime_s
    budget = campaign.budget_on(basis.cluster).tightest(Budget(max_walltime_s=wall.value if wall else None))

    def allocation(plan: Plan) -> Plan:
        refuse_large_sets(plan, limits, where)
        fitted = fit_campaign(campaign, len(plan.candidates), limits, where)
        return fit_plan(packed(plan, fitted, budget, limits.max_nodes), campaign, limits, where)

    return make_plan(campaign, basis.cluster, basis.nodes, basis.run, basis.seed, allocation=allocation)


def packed(plan: Plan, campaign: Campaign, budget: Budget, largest: Bound | None = None) -> Plan:
    """The plan with each test once per load, the cost of its allocations, and the cost of the other ways to share them.

    largest: the most nodes that the site allows per job.
    """
    pair_cost = plan.cost
    count = len(plan.tests)
    loads = loads_of(campaign)
    tests = tuple(
        replace(
            test,
            test_no=place * count + test.test_no,
            load=load,
            measured_by=place * count + test.measured_by if test.measured_by else 0,
        )
        for place, load in enumerate(loads)
        for test in plan.tests
    )
    goals = replace(plan.goals, result_count=plan.goals.result_count * len(loads))
    plan = replace(
        plan,
        tests=tests,
        goals=goals,
        allocation=campaign.allocation.kind.value,
        allocation_node_count=campaign.allocation.node_count,
    )
    # The other ways are shown with the same tests of pairs, and with all pairs of a round at the same time.
    alike = tuple(replace(one, load="rounds") for one in tests)
    as_rounds = without_sets(replace(plan, tests=alike)) if plan.allocation == AllocationKind.PAIR else plan
    if not as_rounds.pairs:
        return plan
    most_s = min((limit for limit in (campaign.walltime_s, budget.max_walltime_s) if limit is not None), default=None)
    group_size = campaign.allocation.node_count or min(_GROUP_NODE_COUNT, largest.value if largest else _GROUP_NODE_COUNT)
    allocations = {
        AllocationKind.PAIR.value: AllocationCost(
            "pair", pair_cost.job_count, pair_cost.estimated_job_s, pair_cost.node_seconds
        ),
        AllocationKind.GROUP.value: _cost(as_rounds, f"group of {group_size}", group_size, most_s),
    }
    if largest is None or largest.value >= len(plan.candidates):
        allocations[AllocationKind.WHOLE.value] = _cost(as_rounds, "whole", None, most_s)
    if plan.allocation == AllocationKind.PAIR:
        return replace(plan, cost=replace(pair_cost, allocations=tuple(allocations.values())))
    chosen = allocations[plan.allocation]
    cost = Cost(chosen.job_count, chosen.estimated_job_s, chosen.node_seconds, tuple(allocations.values()))
    inside = len(plan.pairs) if plan.allocation == AllocationKind.WHOLE else min(len(plan.pairs), math.comb(group_size, 2))
    walltime_s = walltime_of(chosen.estimated_job_s, tests, plan.repetition_count * inside)
    return replace(plan, cost=cost, walltime_s=walltime_s if most_s is None else min(walltime_s, most_s))


def choose_allocations(
    pending_pairs: Iterable[PlannedPair],
    idle_nodes: Collection[str],
    active_jobs: Sequence[ActiveJob],
    budget: Budget,
    plan: Plan,
) -> list[tuple[PlannedPair, ...]]:
    """The allocations to submit now, each as its pairs in plan order. They share no node, nor one with our jobs.

    With allocation `whole` there is only one at a time, of all idle nodes that the budget allows, within one fabric.
    """
    room = sys.maxsize if budget.max_jobs is None else budget.max_jobs - len(active_jobs)
    whole = plan.allocation == AllocationKind.WHOLE
    if room <= 0 or (whole and active_jobs):
        return []
    available = set(idle_nodes).union(*(job.nodes for job in active_jobs if job.running))
    asked = {node for job in active_jobs for node in job.nodes}
    left = nodes_left(available, asked, budget)
    free = set(idle_nodes) - asked
    pending = [pair for pair in pending_pairs if pair.client in free and pair.server in free]
    if whole:
        pending = next(iter(pairs_by_fabric(pending, plan)), [])
        free = nodes_within(pending, free, set(), left)
        sharing = [pair for pair in pending if pair.client in free and pair.server in free]
        return [tuple(fitting(sharing, plan, plan.walltime_s))] if sharing else []
    allocations: list[tuple[PlannedPair, ...]] = []
    for sharing in _groups(pending, plan.allocation_node_count or _GROUP_NODE_COUNT, left, disjoint=True):
        allocations.append(tuple(fitting(sharing, plan, plan.walltime_s)))
        if len(allocations) == room:
            break
    return allocations


def nodes_of(pairs: Iterable[PlannedPair]) -> tuple[str, ...]:
    """The nodes of an allocation, each once."""
    return tuple(dict.fromkeys(node for pair in pairs for node in (pair.client, pair.server)))


def rounds_of(pairs: Iterable[PlannedPair]) -> list[list[PlannedPair]]:
    """Rounds of disjoint pairs: each pair goes to the first round where both nodes are free. Keeps existing rounds."""
    taken: dict[str, int] = {}
    rounds: list[list[PlannedPair]] = []
    for pair in pairs:
        both = taken.get(pair.client, 0) | taken.get(pair.server, 0)
        place = (~both & (both + 1)).bit_length() - 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(pair)
        for node in (pair.client, pair.server):
            taken[node] = taken.get(node, 0) | 1 << place
    return rounds


def steps_of(
    plan: Plan, pairs: Sequence[PlannedPair], missing: Mapping[str, Collection[tuple[int, int]]]
) -> Iterator[PlayedStep]:
    """All steps that these pairs still miss, in the order in which they run. missing: test and repetition by job.

    Each repetition goes through all rounds, and each round through all tests in an order that the plan's seed decides.
    So the repetitions of a pair lie apart in time, and a tournament that is cut short has some results of every pair.
    """
    rounds = rounds_of(pairs)
    for repetition_no in range(1, plan.repetition_count + 1):
        for round_no, together in enumerate(rounds, 1):
            order = running(plan.tests)
            random.Random(f"{plan.seed} round {round_no} {repetition_no}").shuffle(order)  # noqa: S311 - an order, no secret
            for test in order:
                playing = [pair for pair in together if (test.test_no, repetition_no) in missing[pair.job]]
                at_once = [(pair,) for pair in playing] if test.load == "alone" else [tuple(playing)] if playing else []
                for one in at_once:
                    yield PlayedStep(round_no, test.test_no, repetition_no, one)


def fitting(pairs: Sequence[PlannedPair], plan: Plan, most_s: float | None) -> list[PlannedPair]:
    """As many of the first rounds as fit into the time limit; if not even one fits, as many of its pairs as fit."""
    rounds = rounds_of(pairs)

    def fits(round_count: int, pair_count: int) -> bool:
        estimated_s = estimate_s(plan.tests, plan.repetition_count, round_count, pair_count)
        return most_s is None or walltime_of(estimated_s, plan.tests, plan.repetition_count * pair_count) <= most_s

    chosen: list[PlannedPair] = []
    for round_no, together in enumerate(rounds, 1):
        if not fits(round_no, len(chosen) + len(together)):
            break
        chosen += together
    if not chosen:
        chosen = [pair for place, pair in enumerate(rounds[0], 1) if place == 1 or fits(1, place)]
    return chosen


def _cost(plan: Plan, name: str, size: int | None, most_s: int | None) -> AllocationCost:
    """What all pairs of a plan cost in allocations of `size` nodes; None: one allocation of all nodes."""
    if len(plan.pairs) > _COUNTED_PAIRS_MAX:
        return _estimated_cost(plan, name, size)
    job_count, longest_s, node_seconds = 0, 0.0, 0.0
    for sharing in _allocations(plan, size, most_s):
        one_s = estimate_s(plan.tests, plan.repetition_count, len(rounds_of(sharing)), len(sharing))
        job_count += 1
        longest_s = max(longest_s, one_s)
        node_seconds += one_s * len(nodes_of(sharing))
    return AllocationCost(name, job_count, longest_s, round(node_seconds, 1))


def _estimated_cost(plan: Plan, name: str, size: int | None) -> AllocationCost:
    """The same for very many pairs, estimated from the share of all possible pairs that the plan has."""
    if plan.over:
        first, rail_count = tuple(dict.fromkeys(plan.pairs)), max(Counter(plan.pairs).values())
        one = _estimated_cost(replace(plan, pairs=first, over=()), name, size)
        return replace(one, job_count=rail_count * one.job_count, node_seconds=rail_count * one.node_seconds)
    degrees: dict[str, int] = {}
    for pair in plan.pairs:
        for node in pair:
            degrees[node] = degrees.get(node, 0) + 1
    node_count = len(degrees)
    nodes = node_count if size is None else min(size, node_count)
    density = 2 * len(plan.pairs) / (node_count * (node_count - 1))
    inside = len(plan.pairs) if size is None else max(nodes - 1, math.floor(density * nodes * (nodes - 1) / 2))
    round_count = max(degrees.values()) if size is None else max(2, math.ceil(2 * inside / nodes))
    one_s = estimate_s(plan.tests, plan.repetition_count, round_count, inside)
    job_count = math.ceil(len(plan.pairs) / inside)
    return AllocationCost(name, job_count, one_s, round(job_count * one_s * nodes, 1))


def _allocations(plan: Plan, size: int | None, most_s: int | None) -> Iterator[Sequence[PlannedPair]]:
    """All pairs in allocations, one after the other, as if all nodes were idle."""
    pairs = plan.planned_pairs()
    for sharing in pairs_by_fabric(pairs, plan) if size is None else _groups(pairs, size, size, disjoint=False):
        rest: Sequence[PlannedPair] = sharing
        while rest:
            fit = fitting(rest, plan, most_s)
            yield fit
            gone = {pair.job for pair in fit}
            rest = [pair for pair in rest if pair.job not in gone]


def pairs_by_fabric(pairs: Iterable[PlannedPair], plan: Plan) -> list[list[PlannedPair]]:
    """The pairs of each fabric and network: one allocation cannot have all."""
    found: dict[tuple[str | None, str], list[PlannedPair]] = {}
    for pair in pairs:
        found.setdefault((plan.fabrics.get(pair.client), pair.over), []).append(pair)
    return list(found.values())


def _groups(pending: Sequence[PlannedPair], size: int, left: int, *, disjoint: bool) -> Iterator[list[PlannedPair]]:
    """Groups of at most `size` nodes with many pairs inside, `left` nodes in total. disjoint: groups share no node.

    The pairs of a group are of one network.
    """
    over: dict[str, dict[str, dict[str, list[int]]]] = {}
    for index, pair in enumerate(pending):
        for one, other in ((pair.client, pair.server), (pair.server, pair.client)):
            over.setdefault(pair.over, {}).setdefault(one, {}).setdefault(other, []).append(index)
    done: set[int] = set()
    used: set[str] = set()
    for index, pair in enumerate(pending):
        if left < 2:
            return
        if index in done or pair.client in used or pair.server in used:
            continue
        meets = over[pair.over]
        nodes = _grown(pair, meets, used, done, min(size, left))
        inside = sorted(
            {place for one in nodes for other in meets[one] if other in nodes for place in meets[one][other]} - done
        )
        done.update(inside)
        if disjoint:
            used |= nodes
            left -= len(nodes)
        yield [pending[place] for place in inside]


def _grown(
    first: PlannedPair, meets: Mapping[str, Mapping[str, Sequence[int]]], used: set[str], done: set[int], size: int
) -> set[str]:
    """The nodes of a pair, and the nodes that have most undone pairs with those already chosen."""
    nodes: dict[str, None] = {}
    counts: dict[str, int] = {}

    def join(node: str) -> None:
        nodes[node] = None
        counts.pop(node, None)
        for other, places in meets[node].items():
            if other not in nodes and other not in used:
                undone = sum(place not in done for place in places)
                if undone:
                    counts[other] = counts.get(other, 0) + undone

    join(first.client)
    join(first.server)
    while len(nodes) < size and counts:
        join(max(counts, key=counts.__getitem__))
    return set(nodes)


def allowed_words(allocation: Allocation) -> str:
    """The allocation as a person writes it."""
    return f"group of {allocation.node_count}" if allocation.kind is AllocationKind.GROUP else allocation.kind.value

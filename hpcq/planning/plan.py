"""What a campaign will do on one cluster, as in plan.json: pure data, final before hpcq submits anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from hpcq import nodelist
from hpcq.definition.model import NODE_COUNT, Campaign, Cluster, Test, node_count, of_nodes, of_set
from hpcq.errors import CHANGED_HINT, StoreError, UserError
from hpcq.nodelist import natural
from hpcq.planning.pairs import Pair, by_fabric, seeded_order
from hpcq.shapes import misfit, shown
from hpcq.units import count_of

if TYPE_CHECKING:
    from hpcq.scheduler.types import NodeState


# ----------------------------------------------------------------------------------------------------------------------
# Which nodes of a cluster a campaign is planned on, and why the others are left out. Pure: works on a node list.


#: The most that a campaign may ask for.
REPETITIONS_MAX = 10_000
#: States of a node that end when a job ends.
_AT_WORK = frozenset({"busy"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that the campaign may use."""

    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """A node that the campaign may not use, and why."""

    node: str
    reason: str


def choose_candidates(
    campaign: Campaign, cluster: Cluster, nodes: Sequence[NodeState], seed: int, walltime_s: float
) -> tuple[list[Candidate], list[Excluded]]:
    """The nodes to plan on, and every other node with its reason. Raises UserError if fewer than two are left.

    walltime_s: of a pair's job. A node that a reservation takes before such a job would end is not planned on.
    """
    choice = campaign.nodes
    states = {node.node: node for node in nodes}
    include, exclude = set(choice.include), set(choice.exclude)
    reasons: dict[str, str] = {name: f"not a node of {cluster.name}" for name in choice.include if name not in states}
    usable: list[str] = []
    busy: list[str] = []
    for name, state in states.items():
        reason = "excluded by the campaign" if name in exclude else None
        if include and name not in include:
            reason = "not included by the campaign"
        reason = reason or _unfit(state, campaign, cluster) or state.kept_from(walltime_s)
        if reason is None and state.condition not in _AT_WORK:
            usable.append(name)
            continue
        reasons[name] = reason or _state_words(state)
        if reason is None:
            busy.append(name)
    waited_for = _waited_for(campaign, usable, busy)
    usable += waited_for
    for name in waited_for:
        del reasons[name]
    if choice.at_most is not None and len(usable) > choice.at_most:
        order = seeded_order(usable, seed)
        if campaign.pairs.node in order:  # never leave out the middle of a star
            order.sort(key=lambda name: name != campaign.pairs.node)
        reasons |= dict.fromkeys(order[choice.at_most :], f"at most {choice.at_most} nodes, others were drawn")
        usable = order[: choice.at_most]
    candidates = [Candidate(name, str(states[name].condition)) for name in sorted(usable, key=natural)]
    excluded = [Excluded(name, reasons[name]) for name in sorted(reasons, key=natural)]
    if len(candidates) < 2:
        raise _too_few(cluster, candidates, excluded)
    return candidates, excluded


def _waited_for(campaign: Campaign, idle: Sequence[str], busy: Sequence[str]) -> list[str]:
    """The busy nodes that are planned on anyway: the driver waits for them until its patience ends."""
    if campaign.nodes.state == "up" or len(idle) < 2:
        return list(busy)
    named = {node for pair in campaign.pairs.pairs for node in pair} | {campaign.pairs.node}
    return [name for name in busy if name in named]


def _unfit(node: NodeState, campaign: Campaign, cluster: Cluster) -> str | None:
    """Why a node cannot be used now, nor after its jobs end; None if it can."""
    partition = campaign.nodes.partition or cluster.partition
    if partition is not None and node.partitions and not set(partition.split(",")) & set(node.partitions):
        return f"not in partition {partition}"
    for constraint in (cluster.constraint, campaign.nodes.constraint):
        if constraint is not None and not has_features(node.features, constraint):
            return f"does not have {constraint}"
    return None if node.free or node.condition in _AT_WORK else _state_words(node)


def _state_words(node: NodeState) -> str:
    native = "" if node.native_state.lower() == node.condition else f" ({node.native_state})"
    return f"state {node.condition}{native}" + (f": {node.reason}" if node.reason else "")


def has_features(features: Collection[str], constraint: str) -> bool:
    """Whether the features satisfy `a&b|c`: both a and b, or c."""
    return any(all(word in features for word in group.split("&")) for group in constraint.split("|"))


def _too_few(cluster: Cluster, candidates: Sequence[Candidate], excluded: Sequence[Excluded]) -> UserError:
    total = len(candidates) + len(excluded)
    groups: dict[str, list[str]] = {}
    for one in excluded:
        groups.setdefault(one.reason, []).append(one.node)
    lines = [f"{cluster.name}: {len(candidates)} of {total} nodes can be used: at least two are needed"]
    lines += [f"  {_few(names)}: {reason}" for reason, names in groups.items()]
    hint = None if total else f"`hpcq cluster check {cluster.name}` shows what its scheduler says"
    return UserError("\n".join(lines), hint)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


# ----------------------------------------------------------------------------------------------------------------------
# Names of jobs: j00001 measures the first pair of the plan, g00001 is the first allocation shared by several pairs.


def job_name_of(pair_index: int) -> str:
    """The name of the job that measures the pair with this index in the plan."""
    return f"j{pair_index + 1:05d}"


def pair_index_of(job: str) -> int:
    """The index in the plan of the pair that a job measures: job j00001 measures pair 0."""
    return int(job[1:]) - 1


def shared_job_name(number: int) -> str:
    """The name of the `number`th shared allocation of a plan, counted from 1."""
    return f"g{number:05d}"


def is_shared(job: str) -> bool:
    """Whether several pairs share the allocation of this job."""
    return job.startswith("g")


# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Goals:
    """What exists after a run without failures."""

    pair_count: int
    result_count: int
    node_pair_count_min: int
    #: The pairs that the campaign wants per node and per two groups; 0 means no goal.
    node_pair_count_goal: int = 0
    group_pair_count_goal: int = 0


@dataclass(frozen=True, slots=True)
class AllocationCost:
    """The cost of one way to share allocations: each job waits once in the queue; seconds are of the longest job."""

    allocation: str
    job_count: int
    estimated_job_s: float
    node_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What the plan costs: seconds are estimates; `allocations` are the ways to share allocations."""

    job_count: int
    estimated_job_s: float
    node_seconds: float
    allocations: tuple[AllocationCost, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One planned job: a pair with its place in the plan."""

    job: str
    client: str
    server: str
    #: The interface where the campaign measures several networks: one job has pairs of one.
    over: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes; of a set, the first one and those that `server` lists."""
        return nodes_of_pair((self.client, self.server))


def nodes_of_pair(pair: Pair) -> tuple[str, ...]:
    """The names of a pair's nodes; where the second name is a list (`n[02-08]`), of all that it names.

    A node with itself is one node.
    """
    return nodelist.nodes_of(*pair)


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """A pair that the campaign lists but that cannot run, and why."""

    client: str
    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one cluster, as in plan.json."""

    run: str
    campaign: str
    cluster: str
    interface: str
    seed: int
    candidates: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]
    tests: tuple[Test, ...]
    repetition_count: int
    walltime_s: int
    attempt_count_max: int
    pairs: tuple[Pair, ...]
    not_planned: tuple[NotPlanned, ...]
    goals: Goals
    cost: Cost
    evidence: str = "summary"
    #: Which pairs share an allocation: pair, group (of allocation_node_count nodes) or whole.
    allocation: str = "pair"
    allocation_node_count: int | None = None
    #: The group of each candidate that has one: its switch or a feature. Empty when the campaign asks for none.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: What hpcq changed because of the site's limits, one sentence each.
    notes: tuple[str, ...] = ()
    #: So many of the last `pairs` are sets of nodes: the first node, and a list of the others.
    node_set_count: int = 0
    #: Interfaces of the cluster's networks, by the names that its file gives them.
    networks: Mapping[str, str] = field(default_factory=dict)
    #: Names of networks by further interfaces, which they have on nodes that differ.
    networks_at: Mapping[str, str] = field(default_factory=dict)
    #: What a job's nodes must have in common, where they differ: the fabric of each candidate, and its interface.
    fabrics: Mapping[str, str] = field(default_factory=dict)
    #: The interface of each candidate where nodes differ; the others have `interface`.
    interfaces: Mapping[str, str] = field(default_factory=dict)
    #: The interface of each of `pairs` where the campaign measures several networks; else empty.
    over: tuple[str, ...] = ()
    #: With so many partners a node must fail before its other pairs are dropped; 0: they never are.
    decided_after: int = 0
    #: So many of the last `pairs`, behind the sets, measure suspects again in the same run.
    confirmation_count: int = 0

    def interface_at(self, nodes: Sequence[str]) -> str:
        """The interface that a job of these nodes measures: no job has nodes that differ in it."""
        return self.interfaces.get(nodes[0], self.interface)

    def interface_of(self, index: int) -> str:
        """The interface over which the pair or set at this place is measured."""
        return self.over[index] if self.over else self.interface_at(self.nodes_at(index))

    @property
    def sets_begin(self) -> int:
        """The place of the first set of nodes among `pairs`."""
        return self.confirmations_begin - self.node_set_count

    @property
    def confirmations_begin(self) -> int:
        """The place of the first pair that measures a suspect again."""
        return len(self.pairs) - self.confirmation_count

    def confirming(self, pairs: Sequence[Pair]) -> Plan:
        """The plan with these pairs of suspects behind its own; each of them runs all tests of pairs, over each network."""
        rails: dict[str, dict[str, None]] = {}
        for known, one in zip(self.pairs, self.over, strict=False):
            rails.setdefault(known[0], {})[one] = None
            rails.setdefault(known[1], {})[one] = None
        several = [(pair, one) for pair in pairs for one in rails.get(pair[0], {"": None})]
        pairs = [pair for pair, _ in several]
        over = (*self.over, *(one for _, one in several)) if self.over else ()
        added = len(pairs) * len([test for test in self.tests if not of_nodes(test)]) * self.repetition_count
        goals = replace(self.goals, result_count=self.goals.result_count + added)
        return replace(self, pairs=(*self.pairs, *pairs), over=over, goals=goals, confirmation_count=len(pairs))

    def nodes_at(self, index: int) -> tuple[str, ...]:
        """The nodes of the pair or set at this place."""
        return nodes_of_pair(self.pairs[index])

    def tests_at(self, index: int) -> list[Test]:
        """The tests that the pair or set at this place runs, those included that another one measures."""
        if not self.sets_begin <= index < self.confirmations_begin:
            return [test for test in self.tests if not of_nodes(test)]
        count = len(self.nodes_at(index))
        return [test for test in self.tests if of_set(test, count)]

    def planned_pairs(self) -> tuple[PlannedPair, ...]:
        """All planned jobs in order; job is `j` and five digits (more from 100,000 on)."""
        return tuple(map(self.pair_at, range(len(self.pairs))))

    def pair_at(self, index: int) -> PlannedPair:
        """The planned job of the pair at this place, from 0."""
        return PlannedPair(job_name_of(index), *self.pairs[index], over=self.over[index] if self.over else "")

    def to_json(self) -> str:
        """The text of plan.json: one line per key, so that people can compare two plans by eye."""
        # asdict would copy half a million pairs one by one
        fields = {"format": 1, **asdict(replace(self, pairs=(), over=()))}
        fields |= {"pairs": self.pairs, "over": self.over}
        lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, where: str = "plan.json") -> Plan:
        """Read what `to_json` wrote. Raises StoreError if it is anything else; `where` names the file in messages."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if complaint := misfit(fields, cls) or contradiction(fields):
                raise StoreError(f"{where}: {complaint}", CHANGED_HINT)
            del fields["format"]
            return cls(
                **fields
                | {
                    "candidates": tuple(Candidate(**one) for one in fields["candidates"]),
                    "excluded": tuple(Excluded(**one) for one in fields["excluded"]),
                    "tests": tuple(Test(**{**one, "on": tuple(one.get("on", ()))}) for one in fields["tests"]),
                    "pairs": tuple((client, server) for client, server in fields["pairs"]),
                    "not_planned": tuple(NotPlanned(**one) for one in fields.get("not_planned", ())),
                    "notes": tuple(fields.get("notes", ())),
                    "over": tuple(fields.get("over", ())),
                    "goals": Goals(**fields["goals"]),
                    "cost": Cost(
                        **fields["cost"]
                        | {"allocations": tuple(AllocationCost(**one) for one in fields["cost"].get("allocations", ()))}
                    ),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise StoreError(
                f"{where}: not a plan of this version: {what}",
                CHANGED_HINT,
            ) from None


def contradiction(fields: Mapping[str, Any]) -> str | None:
    """What cannot be in a plan whose fields are of their types: FIELD: FOUND: what it must be. None if all can."""
    if type(fields.get("format")) is not int or fields["format"] != 1:
        return f"format: {shown(fields.get('format'))}: must be 1"
    if not 0 < fields["repetition_count"] <= REPETITIONS_MAX:
        return f"repetition_count: {fields['repetition_count']}: must be from 1 to {REPETITIONS_MAX}"
    pairs = fields["pairs"]
    counts = {name: fields.get(name, 0) for name in ("node_set_count", "confirmation_count", "decided_after")}
    for name, count in counts.items():
        if count < 0:
            return f"{name}: {count}: must be at least 0"
    if counts["node_set_count"] + counts["confirmation_count"] > len(pairs):
        return f"node_set_count: {shown(counts)}: must be at most the {len(pairs)} pairs"
    if fields.get("over") and len(fields["over"]) != len(pairs):
        return f"over: {len(fields['over'])} interfaces: must be one for each of {len(pairs)} pairs"
    return None


# ----------------------------------------------------------------------------------------------------------------------
# How well pairs cover nodes and groups: as planned, and as measured so far. Pure counting; reports show it first.
#
# Plan + which of its pairs count -> Coverage: the least covered node and pair of groups, what is below its goal, and why


#: At most this many are listed; the rest is only counted.
_LISTED_MAX = 12


@dataclass(frozen=True, slots=True)
class Short:
    """A node, or two groups, with fewer pairs than wanted."""

    name: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts and goals; a goal of 0 means no goal. The lists name the worst dozen, the counts say how many exist."""

    pair_count: int
    node_count: int
    node_min: int
    node_goal: int
    group_pair_count: int
    group_pair_min: int
    group_pair_goal: int
    nodes_short_count: int
    nodes_short: tuple[Short, ...]
    group_pairs_short_count: int
    group_pairs_short: tuple[Short, ...]

    @property
    def reached(self) -> bool:
        """Whether every goal is reached."""
        return not self.nodes_short_count and not self.group_pairs_short_count

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Coverage:
        """Read what `to_json` wrote."""
        short = {name: tuple(Short(**one) for one in found[name]) for name in ("nodes_short", "group_pairs_short")}
        return cls(**{**found, **short})

    def lines(self) -> list[str]:
        """Lines for people: first the counts, then which nodes and groups have too few pairs, and why."""
        goal = f" of {self.node_goal}" if self.node_goal else ""
        pairs, nodes = count_of(self.pair_count, "pair"), count_of(self.node_count, "node")
        counts = f"{pairs} of {nodes}, each node in at least {self.node_min}{goal}"
        if self.group_pair_count:
            goal = f" of {self.group_pair_goal}" if self.group_pair_goal else ""
            counts += f", every two of the groups at least {self.group_pair_min}{goal}"
        return [
            counts,
            *_short_lines(self.nodes_short, self.nodes_short_count, self.node_goal),
            *_short_lines(self.group_pairs_short, self.group_pairs_short_count, self.group_pair_goal),
        ]


def coverage_of(plan: Plan, counted: Iterable[int] | None = None, reasons: Mapping[int, str] | None = None) -> Coverage:
    """Coverage by the pairs with these indexes (default: all of the plan). reasons: why the other pairs are missing."""
    nodes = {candidate.node: 0 for candidate in plan.candidates}
    # A set of nodes covers no pair of them.
    places = [place for place in (range(plan.sets_begin) if counted is None else counted) if place < plan.sets_begin]
    groups = plan.groups
    between = dict.fromkeys(combinations(sorted(set(groups.values()), key=natural), 2), 0)
    for place in places:
        client, server = plan.pairs[place]
        for node in (client, server):
            nodes[node] = nodes.get(node, 0) + 1
        met = groups.get(client), groups.get(server)
        for one in (met, met[::-1]):
            if one in between:
                between[one] += 1
    why = _reasons_by_node(plan, reasons or {})
    node_goal, group_goal = plan.goals.node_pair_count_goal, plan.goals.group_pair_count_goal
    nodes_short = [
        Short(node, count, why.get(node, "no partner planned")) for node, count in nodes.items() if count < node_goal
    ]
    nodes_short += [Short(one.node, 0, one.reason) for one in plan.excluded if node_goal and one.node not in nodes]
    pairs_short = [Short(f"{a} - {b}", count, "") for (a, b), count in between.items() if count < group_goal]
    return Coverage(
        pair_count=len(places),
        node_count=len(nodes),
        node_min=min(nodes.values(), default=0),
        node_goal=node_goal,
        group_pair_count=len(between),
        group_pair_min=min(between.values(), default=0),
        group_pair_goal=group_goal,
        nodes_short_count=len(nodes_short),
        nodes_short=_worst(nodes_short),
        group_pairs_short_count=len(pairs_short),
        group_pairs_short=_worst(pairs_short),
    )


def _worst(short: list[Short]) -> tuple[Short, ...]:
    return tuple(sorted(short, key=lambda one: (one.count, natural(one.name)))[:_LISTED_MAX])


def _reasons_by_node(plan: Plan, reasons: Mapping[int, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, reason in reasons.items():
        for node in plan.nodes_at(place):
            found.setdefault(node, reason)
    return found


def _short_lines(short: tuple[Short, ...], count: int, goal: int) -> list[str]:
    lines = [f"not covered: {one.name}: {one.count} of {goal}" + (f": {one.reason}" if one.reason else "") for one in short]
    return [*lines, f"not covered: {count - len(short)} more"] if count > len(short) else lines


# ----------------------------------------------------------------------------------------------------------------------
# Sets of nodes that run a test together: collective operations and other tests of more ranks than two; and single nodes.
#
# candidates + tests with a node_count --node_sets--> [n01, n[02-08]], ...   one set per number of nodes
#
# A set is written as a pair: its first node (rank 0) and a list of the others. A set of n nodes is the first n candidates
# by name, so that the same nodes make the same series in every run. A node that runs a test alone is a pair with itself.


def node_sets(
    tests: Sequence[Test], names: Sequence[str], max_nodes: int, fabrics: Mapping[str, str]
) -> tuple[tuple[Test, ...], list[Pair], list[NotPlanned]]:
    """The tests with their number of nodes final, the sets that run them, and those that too few nodes leave out.

    names: the candidates. max_nodes: what a budget allows of them. A test without a number takes all of these; where no
    job can have nodes of two fabrics, those of the largest.
    """
    everybody = sorted(names, key=natural)
    order = max(by_fabric(everybody, fabrics), key=len, default=[])
    usable = min(len(order), max_nodes)
    final = tuple(
        replace(test, parameters={**test.parameters, NODE_COUNT: node_count(test) or usable})
        if of_nodes(test) and NODE_COUNT in test.parameters
        else test
        for test in tests
    )
    counts = sorted({node_count(test) for test in final if of_nodes(test) and test.launch != "node"})
    alone = [(name, name) for name in everybody[:max_nodes]] if any(test.launch == "node" for test in final) else []
    sets = alone + [set_of(order[:count]) for count in counts if 2 <= count <= usable]
    short = [
        NotPlanned(order[0] if order else "", f"{count - 1} other nodes", f"{NODE_COUNT} {count}: {usable} nodes may be used")
        for count in counts
        if count > usable or count < 2
    ]
    return final, sets, short


def set_of(nodes: Sequence[str]) -> Pair:
    """A set of nodes as a pair: the first one, and a list of the others."""
    return nodes[0], ",".join(nodelist.fold(nodes[1:]))


def only_sets(campaign: Campaign) -> bool:
    """Whether no test of the campaign is one of pairs."""
    return all(of_nodes(test) for test in campaign.tests)


def without_sets(plan: Plan) -> Plan:
    """The plan with its pairs alone, and their tests."""
    tests = tuple(test for test in plan.tests if not of_nodes(test))
    begin = plan.sets_begin
    return replace(plan, tests=tests, pairs=plan.pairs[:begin], over=plan.over[:begin], node_set_count=0)

"""How well pairs cover nodes and groups: as planned, and as measured so far. Pure counting; reports show it first.

Plan + which of its pairs count -> Coverage: the least covered node and pair of groups, what is below its goal, and why
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from hpcq.planning.plan import Plan
from hpcq.sorting import natural
from hpcq.units import count_of

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

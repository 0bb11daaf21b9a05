"""Which nodes of a cluster a campaign is planned on, and why the others are left out. Pure: works on a node list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcq.definition.model import Campaign, Cluster
from hpcq.errors import UserError
from hpcq.planning.pairs import seeded_order
from hpcq.sorting import natural

if TYPE_CHECKING:
    from hpcq.scheduler.types import NodeState

#: States of a node that end when a job ends.
_AT_WORK = frozenset({"busy", "planned"})


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
    campaign: Campaign, cluster: Cluster, nodes: Sequence[NodeState], seed: int
) -> tuple[list[Candidate], list[Excluded]]:
    """The nodes to plan on, and every other node with its reason. Raises UserError if fewer than two are left."""
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
        reason = reason or _unfit(state, campaign, cluster)
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
    return None if node.condition == "idle" or node.condition in _AT_WORK else _state_words(node)


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

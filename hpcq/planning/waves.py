"""Which pairs to submit now, given the idle nodes, our own jobs and the budget.

pending pairs of a plan + idle nodes + own jobs + budget --choose_wave--> the pairs to submit next
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hpcq.definition.model import Budget
from hpcq.planning.plan import PlannedPair


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """One of our own jobs that is queued or running now."""

    nodes: tuple[str, ...]
    running: bool


def choose_wave(
    pending_pairs: Iterable[PlannedPair],
    idle_nodes: Collection[str],
    active_jobs: Sequence[ActiveJob],
    budget: Budget,
    *,
    layers_at_most: int | None = None,
) -> list[PlannedPair]:
    """The pairs to submit now, in the order to submit them.

    pending_pairs: in plan order, neither queued nor running nor done. They are read twice, and no further than needed.
    layers_at_most: how many of our jobs a node may have at once.
    active_jobs: our queued and running jobs. Nodes of running ones count as available, so more jobs may queue on them.
    Pairs on nodes without a job of ours come first, then the second job of each node, and so on. Every layer is
    disjoint and in plan order. Afterwards at most budget.max_jobs jobs exist, on at most budget.node_limit nodes.
    """
    room = sys.maxsize if budget.max_jobs is None else budget.max_jobs - len(active_jobs)
    if room <= 0:
        return []
    available = set(idle_nodes).union(*(job.nodes for job in active_jobs if job.running))
    asked = {node for job in active_jobs for node in job.nodes}
    allowed = nodes_within(pending_pairs, available, asked, nodes_left(available, asked, budget))
    if len(allowed) < 2:
        return []
    return _layered(pending_pairs, allowed, active_jobs, room, layers_at_most or sys.maxsize)


def nodes_left(available: set[str], asked: set[str], budget: Budget) -> int:
    """How many more nodes may get one of our jobs.

    The share must hold now, and also once the nodes that our queued jobs wait for are idle again.
    """
    now = budget.node_limit(len(available)) - len(asked & available)
    later = budget.node_limit(len(available | asked)) - len(asked)
    return min(now, later)


def nodes_within(pending: Iterable[PlannedPair], available: set[str], asked: set[str], left: int) -> set[str]:
    """The available nodes that may get one of our jobs: those that have one, and `left` more in plan order."""
    if len(available - asked) <= left:
        return available
    allowed = asked & available
    for pair in pending:
        if left < 1:
            break
        fresh = set(pair.nodes) - allowed
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
        if not taken.keys() >= set(pair.nodes):
            continue
        both = 0
        for node in pair.nodes:
            both |= taken[node]
        layer = (~both & (both + 1)).bit_length() - 1
        if layer >= layers_at_most:
            continue
        while len(layers) <= layer:
            free_counts.append(sum(1 for bits in taken.values() if not bits >> len(layers) & 1))
            layers.append([])
        layers[layer].append(pair)
        free_counts[layer] -= len(pair.nodes)
        for node in pair.nodes:
            taken[node] |= 1 << layer
        while open_layer < len(layers) and free_counts[open_layer] < 2:
            open_layer += 1
        if open_layer >= layers_at_most or sum(map(len, layers[: open_layer + 1])) >= room:
            break
    return [pair for layer_pairs in layers for pair in layer_pairs][:room]

"""The scenes of bench/acceptance.py: forty sites with a known truth."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scene:
    """The faults, and how far jobs scatter. Levels are shares of healthy speed.

    nodes, one_way (what a node sends), links, leaves: subject -> level. lossy: pairs -> share of packets lost.
    black_hole: nodes whose large packets vanish, so streams fail. half_dead: node -> partners that it cannot reach.
    intermittent: node -> level in every other run. level: of the whole cluster. traffic: share of jobs that others'
    traffic slows.
    """

    name: str
    scatter: float = 0.01
    nodes: dict[int, float] = field(default_factory=dict)
    one_way: dict[int, float] = field(default_factory=dict)
    links: dict[tuple[int, int], float] = field(default_factory=dict)
    leaves: dict[int, float] = field(default_factory=dict)
    lossy: dict[tuple[int, int], float] = field(default_factory=dict)
    black_hole: tuple[int, ...] = ()
    dead_client: tuple[int, ...] = ()
    half_dead: dict[int, tuple[int, ...]] = field(default_factory=dict)
    intermittent: dict[int, float] = field(default_factory=dict)
    level: float = 1.0
    modes: bool = False
    node_count: int = 16
    leaf_count: int = 4
    baseline_runs: int = 3
    trusted: bool = True

    @property
    def bad_nodes(self) -> set[str]:
        """Nodes that must not pass."""
        numbers = {*self.nodes, *self.one_way, *self.black_hole, *self.dead_client, *self.half_dead, *self.intermittent}
        return {name(one) for one in numbers}

    @property
    def behind(self) -> set[str]:
        """Nodes behind a bad uplink: neither good nor to be drained."""
        return {name(one) for one in range(self.node_count) if one * self.leaf_count // self.node_count in self.leaves}


def name(number: int) -> str:
    """The name of a node."""
    return f"n{number + 1:02d}"


def scenes() -> list[Scene]:
    """The forty scenes."""
    plain = [Scene(f"all is well, {100 * one:g} % between jobs", one) for one in (0.01, 0.02, 0.03, 0.05)]
    plain += [
        Scene("all is well, one run as the baseline", 0.02, baseline_runs=1),
        Scene("all is well, no baseline", 0.02, trusted=False),
        Scene("all is well, latency with two modes", 0.02, modes=True),
        Scene("all is well, 32 nodes", 0.03, node_count=32, leaf_count=8),
    ]
    alone = [
        Scene("a node at half speed", 0.02, nodes={3: 0.5}),
        Scene("a node at half speed, 5 % between jobs", 0.05, nodes={3: 0.5}),
        Scene("a node 8 % slower", 0.01, nodes={5: 0.92}),
        Scene("a node 15 % slower, 5 % between jobs", 0.05, nodes={5: 0.85}),
        Scene("a node 12 % slower, 3 % between jobs", 0.03, nodes={5: 0.88}),
        Scene("two bad nodes of one leaf", 0.02, nodes={4: 0.6, 5: 0.7}),
        Scene("three bad nodes", 0.03, nodes={0: 0.5, 7: 0.7, 12: 0.8}),
        Scene("a node that sends at 70 %", 0.02, one_way={6: 0.7}),
        Scene("a node that sends at 85 %, 3 % between jobs", 0.03, one_way={6: 0.85}),
        Scene("a node that never works as the client", 0.02, dead_client=(9,)),
        Scene("an MTU black hole", 0.02, black_hole=(2,)),
        Scene("two MTU black holes", 0.03, black_hole=(2, 13)),
        Scene("a node that reaches its own leaf only", 0.02, half_dead={2: (0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}),
        Scene("a node that misses half of the others", 0.03, half_dead={8: (1, 3, 5, 7, 9, 11, 13, 15)}),
        Scene("a node that is slow every other run", 0.02, intermittent={10: 0.5}),
        Scene("a link at 60 %", 0.02, links={(1, 2): 0.6, (0, 1): 0.6}),
        Scene("a pair that loses 3 %", 0.01, lossy={(0, 1): 0.03}),
        Scene("a leaf uplink at half speed", 0.02, leaves={1: 0.5}),
        Scene("a leaf uplink at 80 %, 3 % between jobs", 0.03, leaves={2: 0.8}),
        Scene("everything at half speed", 0.02, level=0.5),
        Scene("everything 12 % slower, 3 % between jobs", 0.03, level=0.88),
        Scene("a bad node, no baseline", 0.02, nodes={11: 0.6}, trusted=False),
        Scene("a bad node, one run as the baseline", 0.03, nodes={11: 0.7}, baseline_runs=1),
        Scene("four bad nodes of 32", 0.02, nodes={1: 0.5, 9: 0.6, 17: 0.7, 30: 0.85}, node_count=32, leaf_count=8),
    ]
    mixed = [
        Scene("a node, a pair that loses, a leaf", 0.02, nodes={15: 0.5}, lossy={(0, 1): 0.03}, leaves={1: 0.5}),
        Scene("a black hole and a slow node", 0.03, black_hole=(2,), nodes={14: 0.7}),
        Scene("a half-dead node beside a bad leaf", 0.02, half_dead={2: (0, 8, 9, 10, 11, 12, 13, 14, 15)}, leaves={1: 0.6}),
        Scene("one-way and intermittent", 0.02, one_way={3: 0.6}, intermittent={12: 0.6}),
        Scene("everything slower, and one node more so", 0.02, level=0.7, nodes={6: 0.5}),
        Scene("latency with two modes and a node at half speed", 0.02, modes=True, nodes={6: 0.5}),
        Scene("a lossy pair and a node 15 % slower, 5 % between jobs", 0.05, lossy={(8, 9): 0.05}, nodes={4: 0.85}),
        Scene("32 nodes: a leaf, a black hole, a one-way node", 0.02, leaves={3: 0.6}, black_hole=(2,), one_way={29: 0.6},
              node_count=32, leaf_count=8),
    ]  # fmt: skip
    return [*plain, *alone, *mixed]

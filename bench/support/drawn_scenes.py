"""Draws the scenes of bench/run_verdicts.py: a site, its baseline or none, and what is wrong with it, with the truth.

    value of a job = healthy level of (classes, inside or across) * common of the run * lasting offset of the pair
                     * the slower of what its ends, link and uplinks leave * scatter [* traffic in 1 of 100 jobs]

No two scenes of a kind are alike: sizes, scatter, tails, nodes and faults are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np

from hpcq.judge.acceptance import PACKETS
from hpcq.judge.values import NOBODY, Night, Outcome, Test, Values
from hpcq.kernels import Better

Pair = tuple[str, str]
STREAM, PING, RESENT = "tcp_stream 64 KiB", "tcp_pingpong 64 B", f"tcp_stream 64 KiB{PACKETS}"
TESTS = (Test(STREAM, Better.HIGHER), Test(PING, Better.LOWER), Test(RESENT, Better.HIGHER))
REPETITIONS, PACKETS_SENT, RESENT_SHARE = 5, 40_000, 3e-4
#: One job loads its nodes for so long.
JOB_S = 8.0
#: How often two jobs that run at once measure at the same moment.
AT_ONCE = 0.4


@dataclass(slots=True)
class Scene:
    """A site and its truth. Numbers of nodes from 0; levels are shares of healthy speed.

    slow, sends, receives: node -> level. links: two nodes -> share of packets lost between them, both ways.
    flaps: node -> (level, share of its jobs). loses: node -> share of packets.
    black_hole, half_dead, throttles: as named; half_dead: node -> partners that it cannot reach. uplinks, racks: group ->
    level across its edge; of all its nodes. generation: class of each node and its level. before: what the baseline saw of
    nodes and of everything; None: there is no baseline. allowed: share of the hardware's speed that is expected, if any.
    sheds: senders overrun what is slow, so that many packets are lost in front of it.
    shared: how many pairs at full speed the uplink of a group carries at once; None: any number. Pairs run at once whose
    nodes differ.
    """

    kind: str
    node_count: int = 16
    group_count: int = 4
    scatter: float = 0.01
    tails: str = "gauss"
    traffic: float = 0.002
    modes: bool = False
    level: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)
    sends: dict[int, float] = field(default_factory=dict)
    receives: dict[int, float] = field(default_factory=dict)
    links: dict[tuple[int, int], float] = field(default_factory=dict)
    flaps: dict[int, tuple[float, float]] = field(default_factory=dict)
    loses: dict[int, float] = field(default_factory=dict)
    black_hole: tuple[int, ...] = ()
    half_dead: dict[int, tuple[int, ...]] = field(default_factory=dict)
    throttles: dict[int, float] = field(default_factory=dict)
    uplinks: dict[int, float] = field(default_factory=dict)
    racks: dict[int, float] = field(default_factory=dict)
    generation: dict[int, float] = field(default_factory=dict)
    has_baseline: bool = True
    baseline_runs: int = 3
    slow_before: dict[int, float] = field(default_factory=dict)
    level_before: float = 1.0
    new_nodes: tuple[int, ...] = ()
    renamed: bool = False
    allowed: float | None = None
    sheds: bool = False
    shared: float | None = None

    @property
    def bad(self) -> dict[int, tuple[str, float]]:
        """Nodes that must not pass: how, and by how much."""
        found: dict[int, tuple[str, float]] = {}
        if self.level < 1:
            found |= dict.fromkeys(range(self.node_count), ("slow", 1 - self.level))
        found |= {
            node: ("slow", 1 - level)
            for node in range(self.node_count)
            for level in [self.racks.get(self.of(node), 1.0)]
            if level < 1
        }
        found |= {node: ("one way", 1 - level) for node, level in {**self.sends, **self.receives}.items()}
        found |= {node: ("flaps", share) for node, (_, share) in self.flaps.items()}
        found |= {node: ("loses", share) for node, share in self.loses.items()}
        found |= dict.fromkeys((*self.black_hole, *self.half_dead), ("fails", 1.0))
        found |= {node: ("throttles", 1 - level) for node, level in self.throttles.items()}
        return found | {node: ("slow", 1 - level) for node, level in self.slow.items()}

    @property
    def behind(self) -> set[int]:
        """Nodes behind a bad uplink: neither good nor to be drained."""
        return {node for node in range(self.node_count) if self.of(node) in self.uplinks}

    def of(self, node: int) -> int:
        """The group of a node."""
        return node * self.group_count // self.node_count

    def names(self, *, before: bool = False) -> tuple[str, ...]:
        """The nodes; before: in the baseline."""
        word = "old" if before and self.renamed else "n"
        return tuple(f"{word}{node + 1:03d}" for node in range(self.node_count))


class Site:
    """Measures runs of a scene."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = np.random.default_rng([seed, 34])
        self.offset = self.random.normal(0, 0.003, (len(TESTS), scene.node_count, scene.node_count))
        self.rows: list[tuple[int, int, int, int, float, int]] = []
        self.runs = 0
        self.names = scene.names()
        self.index = {name: node for node, name in enumerate(self.names)}

    def baseline(self, pairs: Sequence[Pair]) -> Values | None:
        """What was measured before anything was wrong, or on a bad day."""
        if not self.scene.has_baseline:
            return None
        rows: list[tuple[int, int, int, int, float, int]] = []
        for run in range(self.scene.baseline_runs):
            ends = [(self.index[a], self.index[b]) for a, b in pairs]
            rows += self._run(run, [one for one in ends if not set(one) & set(self.scene.new_nodes)], before=True)
        return self._values(rows, self.scene.baseline_runs, before=True)

    def measure(self, pairs: Sequence[Pair], *, alone: bool = False) -> Values:
        """One more run of these pairs; returns all runs so far. alone: one pair at a time."""
        self.rows += self._run(self.runs, [(self.index[a], self.index[b]) for a, b in pairs], before=False, alone=alone)
        self.runs += 1
        return self._values(self.rows, self.runs, before=False)

    def allowed(self, values: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
        """What the hardware should give at least, of streams."""
        if self.scene.allowed is None:
            return None
        speed = np.array([self.scene.generation.get(node, 1.0) for node in range(self.scene.node_count)])
        ends = np.minimum(speed[values.client], speed[values.server])
        return np.where(values.test == 0, np.log(1e10 * ends * self.scene.allowed), np.nan)

    def _run(
        self, run: int, pairs: Sequence[tuple[int, int]], *, before: bool, alone: bool = False
    ) -> list[tuple[int, int, int, int, float, int]]:
        busy_s = dict.fromkeys(range(self.scene.node_count), 0.0)
        crowds = self._crowds(pairs) if not alone else {}
        found = []
        common = self.random.normal(0, 0.004, len(TESTS))
        for client, server in pairs:
            for node in (client, server):
                busy_s[node] += JOB_S
            for test in range(len(TESTS)):
                value, outcome = self._job(test, client, server, busy_s, before=before)
                shift = 0.0 if test == 2 else common[test] + self.offset[test, client, server]
                shift += log(crowds.get((client, server), 1.0)) if test == 0 else 0.0
                found.append((run, test, client, server, value + shift, outcome))
        return found

    def _crowds(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """What sharing its uplinks leaves each pair, as the pairs of a run start: the next ones whose nodes are free."""
        if self.scene.shared is None:
            return {}
        waiting, found = [pairs[one] for one in self.random.permutation(len(pairs))], {}
        while waiting:
            busy, at_once = set[int](), []
            for pair in waiting:
                if busy.isdisjoint(pair):
                    busy.update(pair)
                    at_once.append(pair)
            across = [pair for pair in at_once if self.scene.of(pair[0]) != self.scene.of(pair[1])]
            for pair in across:  # the others are measured at the same moment by chance
                groups = {self.scene.of(node) for node in pair}
                beside = [one for one in across if one != pair and self.random.random() < AT_ONCE]
                load = max(1 + sum(group in map(self.scene.of, one) for one in beside) for group in groups)
                found[pair] = min(1.0, self.scene.shared / load)
            waiting = [pair for pair in waiting if pair not in at_once]
        return found

    def _job(self, test: int, client: int, server: int, busy_s: dict[int, float], *, before: bool) -> tuple[float, int]:
        scene = self.scene
        ends = (client, server)
        if test == 2:
            extra = 0.0 if before else sum(scene.loses.get(node, 0.0) for node in ends) + self._lost_between(ends)
            extra += self.random.uniform(0.1, 0.6) if not before and scene.sheds and self._overrun(client, server) else 0.0
            counts = self.random.poisson(PACKETS_SENT * (RESENT_SHARE * self.random.gamma(20, 1 / 20) + extra), REPETITIONS)
            dead = not before and self._dead(0, ends)
            return (np.nan, Outcome.FAILED) if dead else (log(1 - float(np.median(counts)) / PACKETS_SENT), Outcome.MEASURED)
        if not before and self._dead(test, ends):
            return np.nan, Outcome.FAILED
        level = min(scene.generation.get(node, 1.0) for node in ends)
        groups = scene.of(client), scene.of(server)
        across = 0.93 if test == 1 and groups[0] != groups[1] else 1.0
        if before:
            level *= scene.level_before * min(scene.slow_before.get(node, 1.0) for node in ends)
        else:
            parts = [scene.slow.get(node, 1.0) for node in ends]
            parts += [scene.sends.get(client, 1.0), scene.receives.get(server, 1.0)]
            parts += [scene.racks.get(group, 1.0) for group in groups]
            parts += [scene.uplinks.get(group, 1.0) for group in groups] if groups[0] != groups[1] else []
            parts += [
                worse for node in ends for worse, share in [scene.flaps.get(node, (1.0, 0.0))] if self.random.random() < share
            ]
            parts += [worse for node, worse in scene.throttles.items() if node in ends and busy_s[node] > 20 + JOB_S / 2]
            parts += [_with_loss(self._lost_between(ends), self.random)] if test == 0 else []
            level *= scene.level * min(parts)
        noise = scene.scatter * (self.random.standard_t(3) if scene.tails == "heavy" else self.random.standard_normal())
        value = log(level * across) + noise + 0.003 * self.random.standard_normal()
        if self.random.random() < scene.traffic:
            value += log(self.random.uniform(0.5, 0.95))
        if scene.modes and test == 1 and self.random.random() < 0.5:
            value -= log(3.0)
        return value + (log(1e10) if test == 0 else -log(3e4)), Outcome.MEASURED

    def _lost_between(self, ends: tuple[int, int]) -> float:
        return self.scene.links.get((min(ends), max(ends)), 0.0)

    def _overrun(self, client: int, server: int) -> bool:
        groups = self.scene.of(client), self.scene.of(server)
        return server in self.scene.slow or (groups[0] != groups[1] and bool(set(groups) & set(self.scene.uplinks)))

    def _dead(self, test: int, ends: tuple[int, int]) -> bool:
        scene = self.scene
        if test == 0 and set(ends) & set(scene.black_hole):
            return True
        return any(other in scene.half_dead.get(node, ()) for node, other in (ends, ends[::-1]))

    def _values(self, rows: Sequence[tuple[int, int, int, int, float, int]], runs: int, *, before: bool) -> Values:
        columns = list(zip(*rows, strict=True))
        kinds = sorted(set(self.scene.generation.values()))
        classes = [
            1 + kinds.index(self.scene.generation[node]) if node in self.scene.generation else 0
            for node in range(self.scene.node_count)
        ]
        groups = [self.scene.of(node) for node in range(self.scene.node_count)]
        night, test, client, server = (np.array(column, np.int32) for column in columns[:4])
        known = self.scene.group_count > 1
        return Values(
            night, test, client, server, np.array(columns[4]), np.array(columns[5], np.int8),
            tuple(Night(f"run-{one}", 3600.0 * one) for one in range(runs)), TESTS, self.scene.names(before=before),
            np.array(classes, np.int32), np.array(groups if known else [NOBODY] * len(groups), np.int32),
            ("new", *(f"older {one}" for one in kinds)), tuple(f"leaf{one + 1}" for one in range(self.scene.group_count)),
        )  # fmt: skip


def _with_loss(share: float, random: np.random.Generator) -> float:
    """What TCP keeps of its speed where packets are lost: it varies from job to job as the square root law does."""
    return min(1.0, float(0.03 / share**0.5 * np.exp(random.normal(0, 0.4)))) if share else 1.0


def draw(number: int, seed: int, kind: str = "") -> Scene:
    """The scene of this number: kinds take turns, unless one is named; the rest is drawn."""
    random = np.random.default_rng([seed, number])
    kinds = tuple(_KINDS)
    kind = kind or kinds[number % len(kinds)]
    nodes, groups = ((16, 4), (16, 4), (24, 4), (32, 8))[random.integers(4)]
    scatter = float(random.choice([0.008, 0.01, 0.02, 0.03, 0.05], p=[0.2, 0.3, 0.25, 0.15, 0.1]))
    tails = "heavy" if scatter <= 0.02 and random.random() < 0.25 else "gauss"
    scene = Scene(kind, nodes, groups, scatter * (0.6 if tails == "heavy" else 1), tails)
    scene.baseline_runs = int(random.integers(1, 6))
    if kind != "first-time site" and random.random() < 0.15:
        scene.has_baseline = False
    (_KINDS | {SHARED: shares_uplinks})[kind](scene, random)
    return scene


def _some(scene: Scene, random: np.random.Generator, most: int = 3) -> list[int]:
    return [int(one) for one in random.choice(scene.node_count, int(random.integers(1, most + 1)), replace=False)]


def _depth(random: np.random.Generator) -> float:
    """3 to 50 % slower, small ones as often as large ones."""
    return 1 - float(np.exp(random.uniform(log(0.03), log(0.5))))


def _well(_: Scene, __: np.random.Generator) -> None:
    pass


def _slow(scene: Scene, random: np.random.Generator) -> None:
    scene.slow = {node: _depth(random) for node in _some(scene, random)}


def _one_way(scene: Scene, random: np.random.Generator) -> None:
    which = scene.sends if random.random() < 0.5 else scene.receives
    which |= {node: _depth(random) for node in _some(scene, random, 2)}


def _loses(scene: Scene, random: np.random.Generator) -> None:
    scene.loses = {node: float(np.exp(random.uniform(log(1e-4), log(3e-3)))) for node in _some(scene, random, 2)}


def _half_dead(scene: Scene, random: np.random.Generator) -> None:
    node = int(random.integers(scene.node_count))
    others = [one for one in range(scene.node_count) if one != node]
    cut = random.choice(others, int(len(others) * random.uniform(0.5, 1.0)), replace=False)
    scene.half_dead = {node: tuple(int(one) for one in cut)}


def _mtu(scene: Scene, random: np.random.Generator) -> None:
    scene.black_hole = tuple(_some(scene, random, 2))


def _uplink(scene: Scene, random: np.random.Generator) -> None:
    scene.uplinks = {int(random.integers(scene.group_count)): 1 - float(random.uniform(0.1, 0.5))}


def _flaps(scene: Scene, random: np.random.Generator) -> None:
    scene.flaps = {
        node: (1 - float(random.uniform(0.25, 0.6)), float(random.uniform(0.2, 0.7))) for node in _some(scene, random, 2)
    }


def _throttles(scene: Scene, random: np.random.Generator) -> None:
    scene.throttles = {node: 1 - float(random.uniform(0.1, 0.5)) for node in _some(scene, random, 2)}


def _driver(scene: Scene, random: np.random.Generator) -> None:
    scene.racks = {int(random.integers(scene.group_count)): 1 - float(random.uniform(0.08, 0.5))}


def _slower(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline, scene.level = True, 1 - float(random.uniform(0.03, 0.30))


def _half_speed(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline, scene.level = True, float(random.uniform(0.3, 0.7))


def _generations(scene: Scene, random: np.random.Generator) -> None:
    level = float(random.uniform(0.3, 0.85))
    if random.random() < 0.5:
        older = random.choice(scene.node_count, int(random.integers(3, 7)), replace=False)
        scene.generation = {int(one): level for one in older}
    else:
        scene.generation = {node: level for node in range(scene.node_count) if scene.of(node) == 0}
    if random.random() < 0.5:
        scene.slow = {int(random.integers(scene.node_count)): 1 - float(random.uniform(0.15, 0.5))}


def _new(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline = True
    scene.new_nodes = tuple(_some(scene, random, 4))
    if random.random() < 0.5:
        scene.slow = {scene.new_nodes[0]: _depth(random)}


def _renamed(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline, scene.renamed = True, True
    if random.random() < 0.5:
        scene.slow = {node: _depth(random) for node in _some(scene, random, 2)}


def _bad_day(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline = True
    level = 1 - float(random.uniform(0.1, 0.5))
    scene.slow_before = dict.fromkeys(_some(scene, random, 2), level)
    scene.slow = dict(scene.slow_before)
    if random.random() < 0.3:  # all were slow in it, and all but one are well now
        node = next(iter(scene.slow))
        scene.level_before, scene.slow_before, scene.slow = level, {}, {node: level}


def _first(scene: Scene, random: np.random.Generator) -> None:
    scene.has_baseline, scene.allowed = False, 0.7
    if random.random() < 0.5:
        scene.level = float(random.uniform(0.3, 0.6))
    elif random.random() < 0.6:
        scene.slow = {node: _depth(random) for node in _some(scene, random, 2)}


def _traffic(scene: Scene, _: np.random.Generator) -> None:
    scene.traffic = 0.01


def several_at_once(scene: Scene, random: np.random.Generator) -> None:
    """A slow node, a slow uplink and a lossy link of a small site."""
    scene.node_count, scene.group_count, scene.sheds = 8, 4, random.random() < 0.5
    leaves = [int(one) for one in random.permutation(4)]
    scene.uplinks = {leaves[0]: 1 - float(random.uniform(0.3, 0.7))}
    scene.slow = {2 * leaves[1]: 1 - float(random.uniform(0.3, 0.6))}
    scene.links = {(min(ends), max(ends)): float(random.uniform(0.01, 0.05)) for ends in [(2 * leaves[2], 2 * leaves[3])]}


def shares_uplinks(scene: Scene, random: np.random.Generator) -> None:
    """Two or four groups of four nodes, and uplinks for little more than one pair; in half of the scenes a node is slow."""
    scene.group_count = int(random.choice([2, 4]))
    scene.node_count, scene.shared = 4 * scene.group_count, float(random.uniform(1.05, 1.8))
    if random.random() < 0.5:
        scene.slow = {int(random.integers(scene.node_count)): 1 - float(random.uniform(0.15, 0.5))}


def _modes(scene: Scene, random: np.random.Generator) -> None:
    scene.modes = True
    if random.random() < 0.3:
        scene.slow = {node: 1 - float(random.uniform(0.1, 0.5)) for node in _some(scene, random, 2)}


#: Not one of the kinds that take turns: drawn by its name.
SHARED = "uplinks that pairs share"
_KINDS: dict[str, Callable[[Scene, np.random.Generator], None]] = {
    "all is well": _well,
    "slow by 3 to 50 %": _slow,
    "slow one way": _one_way,
    "a port that loses 1e-4 to 3e-3": _loses,
    "half-dead": _half_dead,
    "MTU black hole": _mtu,
    "uplink": _uplink,
    "flapping": _flaps,
    "throttling after 20 s": _throttles,
    "wrong driver in a rack": _driver,
    "everything at 30 to 70 %": _half_speed,
    "everything slower by 3 to 30 %": _slower,
    "two generations": _generations,
    "new nodes": _new,
    "renamed nodes": _renamed,
    "bad-day baseline": _bad_day,
    "first-time site": _first,
    "traffic on 1 % of jobs": _traffic,
    "latencies with two modes": _modes,
    "several at once": several_at_once,
}

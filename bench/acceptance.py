"""`hpcq accept` against scenes with a known truth: 40 kinds of fault, alone and mixed, many times each.

    python bench/acceptance.py [--seeds 5] [--seed 1] [--quick]

The results of pairs are simulated. The rest is hpcq's own code: it selects the pairs, sets what is expected, gives each
pair a word, explains it, re-runs pairs and prints commands. Scatter is as measured: 0.5 % within a job, 1 to 5 %
between jobs. Others' traffic slows one job in a hundred; one eighth of a per cent of the packets is sent again.

A scene is 16 nodes on 4 leaf switches (or 32 on 8), a baseline of 1 to 5 runs, and the faults. bench/acceptance_lab.py
does the same for a few faults on a real lab.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from bench.support.acceptance_scenes import Scene, name, scenes
from hpcq.analysis.series_outcomes import JobOutcome, SeriesOutcome
from hpcq.runner.accept.accepting import Order, commands_for
from hpcq.runner.accept.choice import again, partners
from hpcq.runner.accept.judging import PointMaker
from hpcq.scheduler.administration import NodeUpkeep, Upkeep
from hpcq.scheduler.slurm.administration import SlurmAdministration
from hpcq.transport import Here
from hpcq.verdict.acceptance.found import Known
from hpcq.verdict.acceptance.judge import Acceptance, judge, run_counts
from hpcq.verdict.acceptance.points import Pair, PairPoint
from hpcq.verdict.words import Verdict

REPETITIONS = 5
WITHIN = 0.005
TRAFFIC_SHARE = 0.01
RESENT = 0.00125
TESTS = (("tcp_stream", "higher", 1e10), ("tcp_pingpong", "lower", 3e4))
RETESTS_MAX = 2


class Site:
    """The machine of a scene: measures runs of pairs."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = np.random.default_rng(seed)
        self.nodes = [name(one) for one in range(scene.node_count)]
        self.leaf_of = {name(one): f"leaf{1 + one * scene.leaf_count // scene.node_count}" for one in range(scene.node_count)}
        self.jobs: dict[tuple[str, str, str], list[JobOutcome]] = {}
        self.losses: dict[int, dict[tuple[str, str], float]] = {}

    def series_id(self, test: str, pair: Pair) -> int:
        """A distinct number for each series."""
        tests = [one[0] for one in TESTS]
        return (tests.index(test) * 1000 + int(pair[0][1:])) * 1000 + int(pair[1][1:])

    def measure(self, run: str, number: int, pairs: Sequence[Pair], *, good: bool) -> list[SeriesOutcome]:
        """One run: one job per pair and test. good: before the faults."""
        found = []
        for test, better, healthy in TESTS:
            for index, pair in enumerate(pairs):
                job = f"j{index + 1:05d}"
                value, reason = self._value(test, healthy, better, pair, number, good=good)
                lost = REPETITIONS if value is None else 0
                outcome = JobOutcome(
                    run,
                    job,
                    f"2026-11-{number + 1:02d}T00:00:00Z",
                    value,
                    value,
                    REPETITIONS - lost,
                    REPETITIONS,
                    failed_count=lost,
                )
                series = self.series_id(test, pair)
                if value is not None and test == "tcp_stream":
                    self.losses.setdefault(series, {})[run, job] = self._lost(pair, good=good)
                reasons = ((reason, REPETITIONS),) if reason else ()
                found.append(SeriesOutcome(series, "sim", *pair, test, "{}", test, better, (outcome,), reasons))
        return found

    def _value(
        self, test: str, healthy: float, better: str, pair: Pair, number: int, *, good: bool
    ) -> tuple[float | None, str]:
        scene, (client, server) = self.scene, (int(one[1:]) - 1 for one in pair)
        level = 1.0
        if not good:
            if client in scene.dead_client:
                return None, "connect: connection refused"
            if test == "tcp_stream" and {client, server} & set(scene.black_hole):
                return None, "no data for 30 s"
            for one, other in ((client, server), (server, client)):
                if other in scene.half_dead.get(one, ()):
                    return None, "connect: no route to host"
            level = scene.level * min(
                scene.nodes.get(client, 1.0), scene.nodes.get(server, 1.0), scene.one_way.get(client, 1.0)
            )
            level = min(level, scene.level * scene.links.get((min(client, server), max(client, server)), 1.0))
            leaves = [one * scene.leaf_count // scene.node_count for one in (client, server)]
            if leaves[0] != leaves[1]:
                level = min(level, *(scene.level * scene.leaves.get(one, 1.0) for one in leaves))
            for one in (client, server):
                if one in scene.intermittent and number % 2 == 1:
                    level = min(level, scene.intermittent[one])
        speed = level * np.exp(scene.scatter * self.random.standard_normal())
        if self.random.random() < TRAFFIC_SHARE:
            speed *= self.random.uniform(0.6, 0.95)
        if scene.modes and test == "tcp_pingpong" and self.random.random() < 0.5:
            speed /= 3.0
        speed *= np.exp(np.median(WITHIN * self.random.standard_normal(REPETITIONS)))
        return float(healthy * speed if better == "higher" else healthy / speed), ""

    def _lost(self, pair: Pair, *, good: bool) -> float:
        ends = sorted(int(one[1:]) - 1 for one in pair)
        extra = 0.0 if good else self.scene.lossy.get((ends[0], ends[1]), 0.0)
        return float(np.median(self.random.poisson(4000 * (RESENT + extra), REPETITIONS)) / 4000)


def accept(scene: Scene, seed: int) -> tuple[Acceptance, set[str]]:
    """One acceptance of all nodes, re-runs included: its verdicts, and the nodes that the printed commands drain."""
    site = Site(scene, seed)
    everybody = site.nodes
    pairs = partners(everybody, everybody, leaf_of=site.leaf_of)
    before = [one for number in range(scene.baseline_runs) for one in site.measure(f"good-{number}", number, pairs, good=True)]
    before = _merged(before) if scene.trusted else []
    now: list[SeriesOutcome] = []
    for number in range(1, 2 + RETESTS_MAX):
        now = _merged([*now, *site.measure(f"now-{number}", number, pairs, good=False)])
        points = _points(scene, site, now, before, number)
        verdicts = judge(everybody, points, Known(leaf_of=site.leaf_of), "sim")
        pairs = again(verdicts, everybody, counts=run_counts(points), leaf_of=site.leaf_of)
        if not pairs:
            break
    seen = Upkeep("me", {one: NodeUpkeep(one, None, False, False, "", ("main",)) for one in everybody})
    printed = commands_for(verdicts, seen, SlurmAdministration(Here()))
    drained = {node for one in printed if one.order is Order.DRAIN for node in one.nodes}
    return verdicts, drained


def _points(
    scene: Scene, site: Site, now: Sequence[SeriesOutcome], before: Sequence[SeriesOutcome], runs: int
) -> list[PairPoint]:
    maker = PointMaker({f"now-{one}": one for one in range(1, runs + 1)}, "good" if scene.trusted else None, site.leaf_of)
    found: list[PairPoint] = []
    for test, _, _ in TESTS:
        mine, earlier = ([one for one in several if one.kernel == test] for several in (now, before))
        found += maker.speed_points(test, mine, earlier)
        found += maker.loss_points(test, mine, earlier, site.losses)
    return found


def _merged(series: Sequence[SeriesOutcome]) -> list[SeriesOutcome]:
    """Join jobs of the same series."""
    found: dict[int, SeriesOutcome] = {}
    for one in series:
        known = found.get(one.series_id)
        found[one.series_id] = (
            one if known is None else replace(known, jobs=(*known.jobs, *one.jobs), reasons=known.reasons or one.reasons)
        )
    return list(found.values())


@dataclass(slots=True)
class Counts:
    """Totals over all scenes."""

    healthy: int = 0
    healthy_pass: int = 0
    accused: int = 0
    bad: int = 0
    bad_pass: int = 0
    bad_named: int = 0
    good_drained: int = 0
    cluster_said: int = 0
    cluster_of: int = 0
    quiet: int = 0
    quiet_of: int = 0


def run(scene: Scene, seed: int, counts: Counts) -> str:
    """Run one scene once. Returns a line if something is wrong."""
    verdicts, drained = accept(scene, seed)
    words = {one.name: one.verdict for one in verdicts.nodes}
    bad, behind = scene.bad_nodes, scene.behind
    at_fault = {node for node, word in words.items() if word in {Verdict.FAILED, Verdict.DEGRADED}}
    passed = {node for node, word in words.items() if word is Verdict.PASS}
    slower = scene.level < 1
    healthy = set(words) - bad - (set(words) if slower else set())
    if slower:
        counts.cluster_of += 1
        counts.cluster_said += any(one.verdict in {Verdict.FAILED, Verdict.DEGRADED} for one in verdicts.clusters)
        bad = set(words)
    counts.healthy += len(healthy)
    counts.healthy_pass += len(healthy & passed - behind)
    counts.accused += len(at_fault & healthy)
    counts.bad += len(bad)
    counts.bad_pass += len(passed & bad)
    counts.bad_named += len(at_fault & scene.bad_nodes)
    counts.good_drained += len(drained - scene.bad_nodes)
    if not bad and not scene.leaves and not scene.links and not scene.lossy:
        counts.quiet_of += 1
        counts.quiet += not at_fault and not verdicts.links and not verdicts.groups and not verdicts.clusters
    wrong = []
    if passed & bad:
        wrong.append(f"PASS of bad {sorted(passed & bad)}")
    if at_fault & healthy:
        wrong.append(f"accused healthy {sorted(at_fault & healthy)}")
    if drained - scene.bad_nodes:
        wrong.append(f"would drain {sorted(drained - scene.bad_nodes)}")
    return f"{scene.name} (seed {seed}): {'; '.join(wrong)}" if wrong else ""


def main() -> int:
    """Run and write bench/results/acceptance.json."""
    words = parser(__doc__ or "", 1)
    words.add_argument("--seeds", type=int, default=5, help="times that each scene is played (default: 5)")
    words.add_argument("--verbose", action="store_true", help="one line per scene")
    options = words.parse_args()
    seeds = 1 if options.quick else options.seeds
    counts, wrong = Counts(), 0
    for number, scene in enumerate(scenes()):
        before = replace_counts(counts)
        for seed in range(options.seed, options.seed + seeds):
            said = run(scene, 1000 * seed + number, counts)
            wrong += bool(said)
            if said:
                print(said, flush=True)
        if options.verbose:
            print("\t".join(str(one) for one in (scene.name, *difference(before, counts))), flush=True)
    return finish("acceptance", list(claims(counts, len(scenes()), seeds)), quick=options.quick)


def replace_counts(counts: Counts) -> Counts:
    """Copy the counts."""
    return replace(counts)


def difference(before: Counts, after: Counts) -> list[str]:
    """What a scene added, in words."""
    return [
        f"{one} {getattr(after, one) - getattr(before, one)}"
        for one in Counts.__slots__
        if getattr(after, one) != getattr(before, one)
    ]


def claims(counts: Counts, scene_count: int, seeds: int) -> Iterator[Claim]:
    """The claims from the totals."""
    played = f"{scene_count} scenes, {seeds} times each"
    yield claim(f"{played}: bad nodes that PASS", "of all bad nodes", "share", counts.bad_pass / counts.bad, goal="<= 0")
    yield claim(
        f"{played}: healthy nodes accused", "of all healthy nodes", "share", counts.accused / counts.healthy, goal="<= 0.01"
    )
    yield claim(f"{played}: good nodes that a printed command drains", "nodes", "count", counts.good_drained, goal="<= 0")
    yield claim(f"{played}: healthy nodes that PASS", "of all healthy nodes", "share", counts.healthy_pass / counts.healthy)
    named = counts.bad - 16 * counts.cluster_of
    yield claim(f"{played}: bad nodes named (FAIL or DEGRADED)", "of all bad nodes", "share", counts.bad_named / max(1, named))
    said, quiet = counts.cluster_said / counts.cluster_of, counts.quiet / counts.quiet_of
    yield claim(f"{played}: a cluster that is slower as a whole is told", "of these", "share", said, goal=">= 1")
    yield claim(f"{played}: a healthy cluster where nothing is accused", "of these", "share", quiet, goal=">= 1")


if __name__ == "__main__":
    sys.exit(main())

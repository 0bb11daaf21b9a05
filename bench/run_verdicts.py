"""The verdict of one acceptance run, on drawn scenes with a known truth: 100 of them, 20 kinds in turn.

    python bench/run_verdicts.py [--scenes 100] [--seed 1] [--quick] [--verbose]

Pairs, judge and re-measuring are hpcq's own; the results of jobs are simulated (bench/support/drawn_scenes.py). The first
run measures all nodes, up to two more measure suspects with good partners, and two what looks slow between leaves, one
pair at a time. Beside them, scenes whose pairs share narrow uplinks. Goals: no bad node passes unless its
fault is below the smallest effect told, no healthy node is drained, at most 5 % of the healthy stay INCONCLUSIVE.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from bench.support.drawn_scenes import PING, RESENT, SHARED, STREAM, Scene, Site, draw
from hpcq.judge.acceptance import Known, RunVerdict, Word, judge_run
from hpcq.runner.accept.accepting import ALONE_RUNS
from hpcq.runner.accept.choice import MEETINGS, PARTNERS, again, partners, to_measure_alone
from hpcq.verdict.acceptance import acceptance_of

ROUNDS_MAX = 3


@dataclass(slots=True)
class Counts:
    """Totals over scenes. wrong: lines about goals that were missed."""

    bad: int = 0
    bad_pass: int = 0
    excused: int = 0
    named: int = 0
    healthy: int = 0
    passed: int = 0
    inconclusive: int = 0
    drained: int = 0
    accused: int = 0
    jobs: int = 0
    first_jobs: int = 0
    slower: int = 0
    slower_told: int = 0
    wrong: list[str] = field(default_factory=list)


def accept(scene: Scene, seed: int) -> tuple[RunVerdict, int, int]:
    """One acceptance of all nodes with its own confirmation; and jobs of the first run, and of all."""
    site = Site(scene, seed)
    leaf_of = {name: f"leaf{scene.of(node) + 1}" for node, name in enumerate(site.names)}
    pairs = partners(site.names, site.names, leaf_of=leaf_of, meetings=MEETINGS)
    before = site.baseline(pairs)
    counts: Counter[tuple[str, str]] = Counter()
    first = len(pairs)
    for left in reversed(range(ROUNDS_MAX)):
        now = site.measure(pairs)
        counts.update(pairs)
        verdict = judge_run(site.names, now, before, Known(site.allowed(now)), final=False, cluster="sim")
        pairs = again(verdict, site.names, counts=counts, leaf_of=leaf_of)
        if not pairs or not left:
            break
    alone = frozenset[int]()
    for _ in range(ALONE_RUNS):
        pairs = to_measure_alone(acceptance_of(verdict), leaf_of)
        if not pairs:
            break
        alone |= {site.runs}
        now = site.measure(pairs, alone=True)
        counts.update(pairs)
        known = Known(site.allowed(now), alone=alone)
        verdict = judge_run(site.names, now, before, known, final=False, cluster="sim")
    known = Known(site.allowed(now), alone=alone)
    return judge_run(site.names, now, before, known, cluster="sim"), first, counts.total()


def count(scene: Scene, verdict: RunVerdict, counts: Counts, label: str) -> None:
    """Compare a verdict with the truth."""
    words = {one.name: one.word for one in verdict.nodes}
    reasons = {one.name: one.reason for one in verdict.nodes}
    told = {one.test: one for one in verdict.told}
    names = scene.names()
    bad = scene.bad
    at_fault = {Word.FAILED, Word.DEGRADED}
    if scene.level < 1:
        counts.slower += 1
        counts.slower_told += any(one.kind == "cluster" and one.word in at_fault for one in verdict.things)
    for node, (how, size) in bad.items():
        counts.bad += 1
        word = words[names[node]]
        counts.named += word in at_fault
        if word is not Word.PASS:
            continue
        limits = {
            "slow": min(1 - 2.718281828459045 ** -told[test].slower for test in (STREAM, PING)),
            "throttles": 1 - 2.718281828459045 ** -told[STREAM].slower,
            "one way": min(1 - 2.718281828459045 ** -told[test].one_way for test in (STREAM, PING)),
            "loses": told[RESENT].slower,
            "flaps": verdict.flapping,
            "fails": 0.0,
        }
        if size < limits[how]:
            counts.excused += 1
        else:
            counts.bad_pass += 1
            counts.wrong.append(
                f"{label}: PASS of {names[node]}, which {how} {size:.3g} (told {limits[how]:.3g}): {reasons[names[node]]}"
            )
    for node in set(range(scene.node_count)) - set(bad) - scene.behind:
        name = names[node]
        counts.healthy += 1
        counts.passed += words[name] is Word.PASS
        counts.inconclusive += words[name] is Word.INCONCLUSIVE
        counts.accused += words[name] in at_fault
        counts.drained += words[name] is Word.FAILED and name in verdict.drainable
        if words[name] is not Word.PASS:
            counts.wrong.append(f"{label}: {words[name]} of healthy {name}: {reasons[name]}")
    for node in set(scene.behind) - set(bad):
        counts.drained += words[names[node]] is Word.FAILED and names[node] in verdict.drainable


def play(scenes: int, seed: int, *, kind: str = "", verbose: bool = False) -> Counts:
    """Draw and play so many scenes, of all kinds in turn or of one."""
    counts = Counts()
    for number in range(scenes):
        scene = draw(number, seed, kind)
        label = f"{number} {scene.kind} ({scene.node_count} nodes, {100 * scene.scatter:.2g} % {scene.tails}"
        label += f", {scene.baseline_runs} before)" if scene.has_baseline else ", no baseline)"
        before = len(counts.wrong)
        verdict, first, jobs = accept(scene, 1000 * seed + number)
        count(scene, verdict, counts, label)
        counts.first_jobs += first
        counts.jobs += jobs
        if verbose:
            for line in counts.wrong[before:]:
                print(line, flush=True)
            for one in verdict.things:
                print(f"{label}: [{one.kind} {one.name} {one.word}] {one.reason}", flush=True)
    return counts


def main() -> int:
    """Run and write bench/results/run_verdicts.json."""
    words = parser(__doc__ or "", 1)
    words.add_argument("--scenes", type=int, default=100, help="scenes to draw (default: 100)")
    words.add_argument("--verbose", action="store_true", help="what went wrong, and causes")
    options = words.parse_args()
    scenes = 20 if options.quick else options.scenes
    counts = play(scenes, options.seed, verbose=options.verbose)
    shared = play(scenes // 4, options.seed, kind=SHARED, verbose=options.verbose)
    found = [*claims(counts, f"{scenes} drawn scenes"), *claims(shared, f"{scenes // 4} scenes of {SHARED}")]
    return finish("run_verdicts", found, quick=options.quick)


def claims(counts: Counts, text: str) -> Iterator[Claim]:
    """The claims from the totals of these scenes."""
    above = f"{text}: bad nodes that PASS, above the smallest effect told"
    yield claim(above, f"of {counts.bad} bad nodes", "nodes", counts.bad_pass, goal="<= 0")
    yield claim(f"{text}: bad nodes that PASS, below it", f"of {counts.bad} bad nodes", "nodes", counts.excused)
    yield claim(f"{text}: healthy nodes that a printed command drains", "nodes", "count", counts.drained, goal="<= 0")
    share = counts.inconclusive / counts.healthy
    yield claim(f"{text}: healthy nodes left INCONCLUSIVE", "of the healthy", "share", share, goal="<= 0.05")
    yield claim(f"{text}: healthy nodes accused", "of the healthy", "share", counts.accused / counts.healthy, goal="<= 0.005")
    yield claim(f"{text}: healthy nodes that PASS", "of the healthy", "share", counts.passed / counts.healthy)
    yield claim(f"{text}: bad nodes FAIL or DEGRADED", "of the bad", "share", counts.named / max(1, counts.bad))
    if counts.slower:
        yield claim(f"{text}: a cluster that is slower is told as one", "of these", "share", counts.slower_told / counts.slower)
    yield claim(
        f"{text}: jobs measured, of the first run's",
        f"with {PARTNERS} partners both ways and {MEETINGS} one way",
        "ratio",
        counts.jobs / counts.first_jobs,
    )


if __name__ == "__main__":
    sys.exit(main())

"""How well and how fast regressions are found in series: hpcq.judge.series and hpcq.statistics.compare.

    python bench/changepoint.py [--seed N] [--quick] [--annotated FOLDER] [--counted FOLDER]

FOLDER: public data on the developer's disk, see bench/support/annotated.py; without them those claims are left out. The
variables HPCQ_ANNOTATED and HPCQ_COUNTED do the same.

Noise of 2 % (and 1 % and 5 %) around 1: gauss; heavy (Student t with 3 degrees, 3 % of values lower by 10 to 40 %); bimodal
(70/30, modes 4.1 % apart); autocorrelated (AR(1), 0.6).

    A  100 values, no step or one at 20..80 of 2, 5, 10, 20 % either way; 200 series per cell
    B  known boundary: n0 of 10 or 30 values before, k of 1, 3, 5, 10 after, drops of 5 and 10 %; 400 series per cell
    C  300 values, three steps of 5, 10 or 20 % at least 40 apart, three single values at -25 %; 200 series per family
    D  60 values before a drop of 10 % and k after: is it found yet?
    E  ramps of 20 to 90 % over 120 values at 0.3 to 5 % noise
    F  unchanged series of 30 to 400 values: how many have an alarm, or get no PASS

A change is matched within 5 positions (D: min(3, k)). Precision, recall and F1 of A pool 0, 5, 10 and 20 %.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import harness
from bench.support.annotated import annotated, counted, f1
from bench.support.changepoint_peers import Floats, detectors, otava_settings
from hpcq.judge.series import Course, judge_series, verdict_of
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, compare

FAMILIES = ("gauss", "heavy", "bimodal", "autocorrelated")
STEADY = FAMILIES[:3]
SEEDS = 3
Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Case:
    """One series and where it truly changed."""

    family: str
    step: float
    values: Floats
    truth: list[int]


@dataclass(frozen=True, slots=True)
class Score:
    """Pooled quality; recall by step size; share of changeless series with an alarm by family."""

    precision: float
    recall: float
    f1: float
    recall_by_step: dict[float, float]
    alarms: dict[str, float]


def noise(random: Generator, family: str, count: int, spread: float) -> Floats:
    """Values around 1 with a standard deviation of about `spread`, shape (count,)."""
    if family == "gauss":
        return 1 + spread * random.standard_normal(count)
    if family == "heavy":
        values = 1 + spread * random.standard_t(3, count) / np.sqrt(3)
        dips = random.random(count) < 0.03
        values[dips] *= random.uniform(0.6, 0.9, int(dips.sum()))
        return np.asarray(values, dtype=np.float64)
    if family == "bimodal":
        gap = 0.041 * spread / 0.02
        inner = np.sqrt(spread**2 - 0.21 * gap**2)
        mode = np.where(random.random(count) < 0.7, 0.3 * gap, -0.7 * gap)
        return np.asarray(1 + mode + inner * random.standard_normal(count), dtype=np.float64)
    shocks = np.sqrt(1 - 0.6**2) * random.standard_normal(count + 50)
    state = np.zeros(count + 50)
    for i in range(1, count + 50):
        state[i] = 0.6 * state[i - 1] + shocks[i]
    return 1 + spread * state[50:]


def single_steps(seed: int, spread: float, repetitions: int) -> Iterator[Case]:
    """Set A."""
    random = np.random.default_rng([seed, 1])
    for family in FAMILIES:
        for step in (0.0, 0.02, 0.05, 0.10, 0.20):
            for _ in range(repetitions):
                values = noise(random, family, 100, spread)
                truth = [int(random.integers(20, 81))] if step else []
                for at in truth:
                    values[at:] *= 1 + step * random.choice((-1, 1))
                yield Case(family, step, values, truth)


def triple_steps(seed: int, spread: float, repetitions: int) -> Iterator[Case]:
    """Set C."""
    random = np.random.default_rng([seed, 2])
    for family in FAMILIES:
        for _ in range(repetitions):
            values = noise(random, family, 300, spread)
            truth = np.sort(random.integers(30, 271, 3))
            while np.diff(truth).min() < 40:
                truth = np.sort(random.integers(30, 271, 3))
            for at in truth:
                values[at:] *= 1 + random.choice((0.05, 0.10, 0.20)) * random.choice((-1, 1))
            values[random.choice(300, 3, replace=False)] *= 0.75
            yield Case(family, float("nan"), values, [int(at) for at in truth])


def score(cases: Sequence[Case], found: Sequence[Sequence[int]], tolerance: int = 5) -> Score:
    """Match found changes to true ones, each at most once."""
    hits = misses = extras = 0
    by_step: dict[float, list[int]] = defaultdict(list)
    alarms: dict[str, list[bool]] = defaultdict(list)
    for case, indices in zip(cases, found, strict=True):
        left = list(indices)
        matched = 0
        for at in case.truth:
            near = [i for i in left if abs(i - at) <= tolerance]
            if near:
                left.remove(min(near, key=lambda i: abs(i - at)))
                matched += 1
        if case.truth:
            by_step[case.step].append(matched)
        else:
            alarms[case.family].append(bool(indices))
        if case.step != 0.02:
            hits, misses, extras = hits + matched, misses + len(case.truth) - matched, extras + len(left)
    precision, recall = hits / max(1, hits + extras), hits / max(1, hits + misses)
    return Score(
        precision,
        recall,
        2 * precision * recall / max(1e-12, precision + recall),
        {step: float(np.mean(each)) for step, each in by_step.items()},
        {family: float(np.mean(each)) for family, each in alarms.items()},
    )


def courses(series: Sequence[Floats]) -> list[Course]:
    """Each series judged alone: control of false discoveries over the set would only help."""
    return judge_series(series, false_discovery_ratio=1.0)


def ours(series: Sequence[Floats]) -> list[list[int]]:
    """The places where each series changes its level or its line."""
    return [list(course.cuts) for course in courses(series)]


def unknown_boundary(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Sets A and C at three noise levels, all seeds pooled."""
    for spread in (0.02, 0.01, 0.05):
        promised = spread == 0.02
        where = f"noise {100 * spread:g} %"
        single = [case for k in range(SEEDS) for case in single_steps(seed + k, spread, repetitions)]
        triple = [case for k in range(SEEDS) for case in triple_steps(seed + k, spread, repetitions)]
        one = score(single, ours([case.values for case in single]))
        three = score(triple, ours([case.values for case in triple]))
        yield harness.claim(f"single step, {where}", "F1", "", one.f1, ">= 0.99" if promised else None)
        yield harness.claim(f"three steps and outliers, {where}", "F1", "", three.f1, ">= 0.98" if promised else None)
        for family, share in one.alarms.items():
            goal = "<= 0.01" if family in STEADY else None
            yield harness.claim(f"changeless {family} series with an alarm, {where}", "share", "share", share, goal)
        for step, recall in one.recall_by_step.items():
            yield harness.claim(f"steps of {100 * step:g} % found, {where}", "recall", "share", recall)


def peers(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """The public detectors on the same series as ours; a smaller set, because some are slow."""
    for spread in (0.02, 0.05):
        sets = {
            "single step": list(single_steps(seed, spread, repetitions)),
            "three steps": list(triple_steps(seed, spread, repetitions)),
        }
        for label, cases in sets.items():
            series = [case.values for case in cases]
            mine = score(cases, ours(series))
            for name, detect in detectors().items():
                theirs = score(cases, [detect(values) for values in series])
                text = f"{label}, noise {100 * spread:g} %"
                yield harness.against(text, "F1", "", mine.f1, peer=name, peer_value=theirs.f1, goal=">= peer")
                if label == "single step":
                    alarm, other = (float(np.mean([s.alarms[f] for f in STEADY])) for s in (mine, theirs))
                    yield harness.against(
                        f"changeless steady series with an alarm, noise {100 * spread:g} %",
                        "share",
                        "share",
                        alarm,
                        peer=name,
                        peer_value=other,
                    )


def known_boundary(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Set B: power and false alarms of compare(), all seeds pooled."""
    for spread in (0.02, 0.01, 0.05):
        for before, after in ((30, 1), (30, 3), (30, 5), (30, 10), (10, 5)):
            promised = spread == 0.02 and (before, after) == (30, 5)
            count = SEEDS * repetitions
            shares = {
                drop: _degraded(seed, spread=spread, before=before, after=after, drop=drop, repetitions=count)
                for drop in (0.0, 0.05, 0.10)
            }
            where = f"n0={before} k={after}, noise {100 * spread:g} %"
            pooled = {drop: float(np.mean(list(each.values()))) for drop, each in shares.items()}
            yield harness.claim(f"false alarms, {where}", "share", "share", pooled[0.0], "<= 0.025" if promised else None)
            yield harness.claim(f"drops of 5 % found, {where}", "share", "share", pooled[0.05], ">= 0.95" if promised else None)
            yield harness.claim(f"drops of 10 % found, {where}", "share", "share", pooled[0.10])
            if (before, after) == (30, 5):
                for family in FAMILIES:
                    yield harness.claim(f"false alarms in {family}, {where}", "share", "share", shares[0.0][family])


def _degraded(seed: int, *, spread: float, before: int, after: int, drop: float, repetitions: int) -> dict[str, float]:
    random = np.random.default_rng([seed, 3, before, after, round(1000 * drop), round(1000 * spread)])
    found: dict[str, float] = {}
    for family in FAMILIES:
        outcomes = []
        for _ in range(repetitions):
            values = noise(random, family, before + after, spread)
            outcomes.append(compare(values[:before], values[before:] * (1 - drop)).verdict is ComparisonVerdict.DEGRADED)
        found[family] = float(np.mean(outcomes))
    return found


def delay(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Set D: how many values after a 10 % drop are needed, for search and for the test at a known boundary."""
    for after in (1, 2, 3, 5, 8, 10, 15):
        random = np.random.default_rng([seed, 4, after])
        series = []
        for family in FAMILIES:
            for _ in range(repetitions):
                values = noise(random, family, 60 + after, 0.02)
                values[60:] *= 0.9
                series.append(values)
        searched = float(np.mean([any(abs(i - 60) <= min(3, after) for i in indices) for indices in ours(series)]))
        tested = float(np.mean([compare(v[:60], v[60:]).verdict is ComparisonVerdict.DEGRADED for v in series]))
        yield harness.claim(f"10 % drop found {after} values after it, unknown boundary", "share", "share", searched)
        yield harness.claim(f"10 % drop found {after} values after it, known boundary", "share", "share", tested)


def oddities(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Series without a step: drift, constants, rounding. Also how often the interval of a 10 % step holds the truth."""
    random = np.random.default_rng([seed, 5])
    count = 5 * repetitions
    for total in (0.03, 0.05, 0.15):
        drift = np.linspace(1, 1 - total, 100)
        found = courses([drift * noise(random, "gauss", 100, 0.02) for _ in range(count)])
        told = float(np.mean([any(change.kind == "drift" for change in course.changes) for course in found]))
        yield harness.claim(f"drift of {100 * total:g} % over 100 values, noise 2 %", "told as drift", "share", told)
    rounded = [np.round(3 * noise(random, "gauss", 100, 0.02), 2) for _ in range(count)]
    coarse = [np.round(20 * noise(random, "gauss", 100, 0.02)) for _ in range(count)]
    for label, series in (
        ("rounded to 2 decimals", rounded),
        ("rounded to the noise", coarse),
        ("constant", [np.full(100, 7.0)]),
    ):
        share = float(np.mean([bool(indices) for indices in ours(series)]))
        yield harness.claim(f"changeless series with an alarm, {label}", "share", "share", share, "<= 0.01")
    held = []
    for family in FAMILIES:
        for _ in range(repetitions):
            values = noise(random, family, 100, 0.02)
            values[50:] *= 0.9
            changes = judge_series([values])[0].changes
            held += [c.low <= 0.9 <= c.high for c in changes if c.low is not None and c.high is not None]
    yield harness.claim("95 % interval of a 10 % step holds it, 50 values either side", "share", "share", float(np.mean(held)))


def ramps(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Set E: is a ramp called worse, and told as a drift?"""
    random = np.random.default_rng([seed, 7])
    worse, drifts = [], []
    for fall in (0.2, 0.36, 0.5, 0.7, 0.9):
        for spread in (0.003, 0.005, 0.01, 0.02, 0.05):
            shape = np.linspace(1, 1 - fall, 120)
            for family in FAMILIES:
                found = courses([shape * noise(random, family, 120, spread) for _ in range(repetitions)])
                worse += [verdict_of(one, Better.HIGHER)[0] is ComparisonVerdict.DEGRADED for one in found]
                drifts += [any(change.kind == "drift" for change in one.changes) for one in found]
    yield harness.claim("ramps of 20 to 90 % over 120 values", "degraded", "share", float(np.mean(worse)), ">= 0.99")
    yield harness.claim("ramps of 20 to 90 % over 120 values", "told as drift", "share", float(np.mean(drifts)))


def unchanged(seed: int, repetitions: int) -> Iterator[harness.Claim]:
    """Set F: alarms on series that do not change; and those that get no PASS because of their newest values or thirds."""
    for family in FAMILIES:
        for points in (30, 100, 400):
            random = np.random.default_rng([seed, 8, points, len(family)])
            found = courses([noise(random, family, points, 0.02) for _ in range(repetitions)])
            where = f"unchanged {family} series of {points} values, noise 2 %"
            alarms = float(np.mean([bool(course.changes) for course in found]))
            open_ = float(np.mean([verdict_of(one, Better.HIGHER)[0] is ComparisonVerdict.INCONCLUSIVE for one in found]))
            yield harness.claim(where, "alarm", "share", alarms, "<= 0.01" if family in STEADY else None)
            yield harness.claim(where, "inconclusive", "share", open_)


def public_series(folder: Path) -> Iterator[harness.Claim]:
    """The annotated series, beside Apache Otava at its defaults and at the best of its settings on these very series."""
    series = annotated(folder)
    mine = np.mean([f1(one, ours([one.values])[0]) for one in series], axis=0)
    nothing = np.mean([f1(one, []) for one in series], axis=0)
    text = f"{len(series)} annotated series, margin 5"
    yield harness.claim(text, "F1", "", float(mine[0]), ">= 0.72")
    yield harness.claim(text, "precision", "", float(mine[1]))
    yield harness.claim(text, "recall", "", float(mine[2]))
    yield harness.against(text, "F1", "", float(mine[0]), peer="no change told at all", peer_value=float(nothing[0]))
    peers = {
        label: float(np.mean([f1(one, detect(one.values)) for one in series], axis=0)[0])
        for label, detect in otava_settings().items()
    }
    for label, theirs in peers.items():
        best = ", its best" if theirs == max(peers.values()) else ""
        goal = ">= peer" if best else None
        peer = f"Apache Otava, {label}{best}"
        yield harness.against(text, "F1", "", float(mine[0]), peer=peer, peer_value=theirs, goal=goal)


def counted_series(folder: Path) -> Iterator[harness.Claim]:
    """Series whose authors say how many changes they have."""
    for name, values, expected in counted(folder):
        found = len(ours([values])[0])
        yield harness.claim(f"{name}: {len(values)} values, {expected} changes expected", "changes told", "count", found)


def speed(seed: int, rounds: int) -> Iterator[harness.Claim]:
    """CPU time on one core."""
    random = np.random.default_rng([seed, 6])
    quiet = list(1 + 0.02 * random.standard_normal((10_000, 100)))
    changed = [np.where(np.arange(100) < 40, values, 0.9 * values) for values in quiet]
    pairs = [(values[:30], values[30:35]) for values in quiet]
    long = [1 + 0.02 * random.standard_normal(10_000)]
    work: list[tuple[str, Callable[[], object], str]] = [
        ("10,000 series of 100 values, none changed", lambda: judge_series(quiet), "< 4"),
        ("10,000 series of 100 values, all changed", lambda: judge_series(changed), "< 8"),
        ("10,000 comparisons of 30 with 5 values", lambda: [compare(a, b) for a, b in pairs], "< 3"),
        ("one series of 10,000 values", lambda: judge_series(long), "< 3"),
    ]
    for text, call, goal in work:
        yield harness.claim(text, "CPU", "s", float(np.median([harness.cpu_s(call) for _ in range(rounds)])), goal)
    yield harness.claim("one series of 10,000 values", "peak memory beyond its own", "MB", _peak_mb(long[0]), "< 20")


def _peak_mb(values: Floats) -> float:
    import tracemalloc

    tracemalloc.start()
    judge_series([values])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / 1e6


def main() -> int:
    """Run all sets."""
    parser = harness.parser("Detection of regressions in series", seed=20261101)
    for name, variable in (("--annotated", "HPCQ_ANNOTATED"), ("--counted", "HPCQ_COUNTED")):
        found = os.environ.get(variable)
        parser.add_argument(name, type=Path, default=Path(found) if found else None, help=f"folder of public data [{variable}]")
    parser.add_argument("--public-only", action="store_true", help="only the public data; no results file")
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    seed = arguments.seed
    public = [
        *(public_series(arguments.annotated) if arguments.annotated else ()),
        *(counted_series(arguments.counted) if arguments.counted else ()),
    ]
    if arguments.public_only:
        return harness.finish("changepoint", public, quick=True)
    claims = [
        *unknown_boundary(seed, 200 // part),
        *known_boundary(seed, 400 // part),
        *ramps(seed, 20 // part),
        *unchanged(seed, 1000 // part),
        *speed(seed, 1 if arguments.quick else 3),
        *peers(seed, 50 // part),
        *delay(seed, 200 // part),
        *oddities(seed, 100 // part),
        *public,
    ]
    return harness.finish("changepoint", claims, quick=arguments.quick)


if __name__ == "__main__":
    sys.exit(main())

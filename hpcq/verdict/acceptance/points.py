"""One test of one pair in one run, as a change from what is expected; and the word on a pair over all its runs. Pure.

    PairPoint        one job: its median against the reference, what it lost, the gate that it broke
    findings(...)    per pair one word over all its tests and runs: bad, fine, unclear, intermittent

The unit is the job. A change is a logarithm; below 0 is worse. A job is bad if it is slower than the smallest effect
that matters, and than what the scatter between jobs explains among so many pairs. It is fine above half of that bound.
A pair that was bad in one run and fine in another is intermittent, and does not pass. A test that ran without a
valid result is the worst case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import expm1, log, pi, sqrt
from statistics import NormalDist, fmean

#: The smallest slowdown that matters, and the smallest that is a failure; then the same for the share of lost packets.
EFFECT_RATIO, FAILED_RATIO = 0.05, 0.1
LOSS_RATIO, LOSS_FAILED_RATIO = 0.005, 0.01
#: In this share of acceptances, chance makes one of all pairs and tests bad.
CHANCE = 0.05
#: In a test with modes, at least this share of the pairs flips.
FLIPS_SHARE = 0.1
#: A job that lost this share of its repetitions is bad; one that lost fewer is intermittent.
LOST_SHARE = 0.5
#: If a test of a pair lost some repetitions in every run, and in this many, it is bad and no longer intermittent.
FAILING_RUNS_MIN = 2

#: The end of a test's name if its packets are judged and not its speed.
PACKETS = " packets"
#: The beginning of the reason if there is nothing to compare a result with.
NO_REFERENCE = "no reference"

#: Variance of the median of n normal values over the variance of their mean; for larger n it is pi / 2.
_MEDIAN_VARIANCE = {1: 1.0, 2: 1.0, 3: 1.35, 4: 1.19, 5: 1.43, 6: 1.29, 7: 1.47, 8: 1.35}

Pair = tuple[str, str]


class PairVerdict(StrEnum):
    """The word on a pair (client, server) over all its runs."""

    BAD = "bad"
    FINE = "fine"
    UNCLEAR = "unclear"
    INTERMITTENT = "intermittent"


@dataclass(frozen=True, slots=True)
class Scale:
    """Per test: the smallest change that matters, the one that is a failure, and the jobs' scatter (logarithms, > 0).

    is_loss: changes are of the share of packets that arrived.
    """

    effect: float
    failure: float
    scatter: float
    is_loss: bool = False

    @classmethod
    def speed(cls, scatter: float) -> Scale:
        """For rates and times."""
        return cls(-log(1 - EFFECT_RATIO), -log(1 - FAILED_RATIO), scatter)

    @classmethod
    def loss(cls, scatter: float) -> Scale:
        """For shares of packets that arrived."""
        return cls(LOSS_RATIO, LOSS_FAILED_RATIO, scatter, is_loss=True)


@dataclass(frozen=True, slots=True)
class PairPoint:
    """One test of one pair in one run. test: in words, the same for all pairs.

    change: from what is expected; None if nothing was measured or there is nothing to compare it with; `reason` says
    which. reference_count: jobs that the expectation rests on. lost_share: repetitions that ran without a valid result.
    gate: the gate that it broke. gate_open: why a gate could not be judged. disturbed: other work ran during all of it.
    """

    client: str
    server: str
    test: str
    run_no: int
    change: float | None
    scale: Scale
    reference_count: int = 1
    lost_share: float = 0.0
    reason: str = ""
    gate: str | None = None
    gate_open: str = ""
    disturbed: bool = False

    @property
    def pair(self) -> Pair:
        """Client and server."""
        return self.client, self.server

    @property
    def lost(self) -> bool:
        """Whether it ran without a valid result, or with too few."""
        return self.lost_share >= LOST_SHARE

    @property
    def error(self) -> float:
        """Standard error of `change`."""
        return self.scale.scatter * sqrt(1 + reference_variance(self.reference_count))

    def bound(self, z: float) -> float:
        """A larger slowdown is bad: it matters, and scatter does not explain it."""
        return max(self.scale.effect, z * self.error)

    def word(self, z: float) -> PairVerdict:
        """The word on this run alone."""
        if self.lost or self.gate is not None:
            return PairVerdict.BAD
        slow = self.change is not None and self.change <= -self.bound(z) and not self.disturbed
        if self.lost_share > 0:  # what is left of it may say enough
            return PairVerdict.BAD if slow else PairVerdict.INTERMITTENT
        if self.change is None or self.gate_open:
            return PairVerdict.UNCLEAR
        if self.change > -self.bound(z) / 2:
            return PairVerdict.FINE
        return PairVerdict.BAD if slow else PairVerdict.UNCLEAR


@dataclass(frozen=True, slots=True)
class PairFinding:
    """The word on a pair. points: the jobs that speak against it. failure: bad enough for FAILED."""

    word: PairVerdict
    points: tuple[PairPoint, ...] = ()

    @property
    def failure(self) -> bool:
        """Whether it is a failure, not only a degradation."""
        return any(
            one.lost or one.gate is not None or (one.change is not None and one.change <= -one.scale.failure)
            for one in self.points
        )


def chance_z(count: int, chance: float = CHANCE) -> float:
    """The standard errors that any of `count` unchanged values exceeds with this chance in total; at least 3."""
    return max(3.0, NormalDist().inv_cdf(1 - chance / max(1, count)))


def findings(points: Sequence[PairPoint], unsteady: Iterable[str] = ()) -> dict[Pair, PairFinding]:
    """One word per pair over all its tests and runs. unsteady: tests whose speed flips between jobs without a fault."""
    flips = set(unsteady)
    by_pair: dict[Pair, dict[str, list[PairPoint]]] = {}
    for one in points:
        by_pair.setdefault(one.pair, {}).setdefault(one.test, []).append(one)
    z = chance_z(sum(len(tests) for tests in by_pair.values()))
    return {pair: _of_pair([_of_test(runs, z, steady=test not in flips) for test, runs in tests.items()])
            for pair, tests in by_pair.items()}  # fmt: skip


def unsteady_tests(points: Sequence[PairPoint]) -> set[str]:
    """Tests with modes: a tenth of the pairs, three without a node in common, were slow in one run and fine in another.

    Among fewer than six nodes two without a node in common are enough: there is no room for three.
    One node with a loose cable flips too, but all of its pairs share it. Passing traffic slows fewer pairs.
    """
    z = chance_z(len({(one.pair, one.test) for one in points}))
    flips: dict[str, list[Pair]] = {}
    seen: dict[tuple[Pair, str], set[PairVerdict]] = {}
    for one in points:
        if not one.lost_share and one.gate is None:
            seen.setdefault((one.pair, one.test), set()).add(one.word(z))
    everybody = Counter(test for _, test in seen)
    for (pair, test), words in seen.items():
        if {PairVerdict.BAD, PairVerdict.FINE} <= words:
            flips.setdefault(test, []).append(pair)
    room = len({node for one in points for node in one.pair}) // 2
    apart = max(2, min(3, room))
    return {test for test, pairs in flips.items() if _disjoint(pairs) >= apart and len(pairs) >= FLIPS_SHARE * everybody[test]}


def _disjoint(pairs: Sequence[Pair]) -> int:
    """How many of these pairs share no node, taken one after the other."""
    used: set[str] = set()
    count = 0
    for pair in pairs:
        if used.isdisjoint(pair):
            used.update(pair)
            count += 1
    return count


def _of_test(runs: Sequence[PairPoint], z: float, *, steady: bool) -> PairFinding:
    words = [one.word(z) for one in runs]
    bad = tuple(one for one, word in zip(runs, words, strict=True) if word is PairVerdict.BAD)
    strong = tuple(one for one in bad if one.lost or one.gate is not None)
    if not steady and len(strong) < len(bad):
        bad = strong
        words = [PairVerdict.UNCLEAR if word is PairVerdict.BAD else word for word in words] if not strong else words
    fine = PairVerdict.FINE in words
    if bad and fine:
        return PairFinding(PairVerdict.INTERMITTENT, bad)
    if bad:
        return PairFinding(PairVerdict.BAD, bad)
    if PairVerdict.INTERMITTENT in words:
        failing = tuple(one for one in runs if one.lost_share > 0)
        every = len({one.run_no for one in failing}) >= FAILING_RUNS_MIN and len(failing) == len(runs)
        return PairFinding(PairVerdict.BAD if every else PairVerdict.INTERMITTENT, failing)
    known = [one for one in runs if one.change is not None and not one.disturbed]
    if (
        steady
        and len(known) > 1
        and fmean(one.change or 0.0 for one in known) <= -max(known[0].scale.effect, z * mean_error(known))
    ):
        return PairFinding(PairVerdict.BAD, tuple(known))
    # A disturbed job that is slow speaks neither for nor against its pair: those beside it decide.
    telling = [word for one, word in zip(runs, words, strict=True) if not one.disturbed or word is PairVerdict.FINE]
    if telling and all(word is PairVerdict.FINE for word in telling):
        return PairFinding(PairVerdict.FINE)
    return PairFinding(
        PairVerdict.UNCLEAR, tuple(one for one, word in zip(runs, words, strict=True) if word is PairVerdict.UNCLEAR)
    )


def _of_pair(tests: Sequence[PairFinding]) -> PairFinding:
    for word in (PairVerdict.BAD, PairVerdict.INTERMITTENT, PairVerdict.UNCLEAR):
        points = tuple(point for one in tests if one.word is word for point in one.points)
        if any(one.word is word for one in tests):
            return PairFinding(word, points)
    return PairFinding(PairVerdict.FINE)


def mean_error(runs: Sequence[PairPoint]) -> float:
    """Standard error of the mean change of one pair's runs: more runs do not make its reference more certain."""
    first = runs[0]
    return first.scale.scatter * sqrt(1 / len(runs) + reference_variance(first.reference_count))


def reference_variance(count: int) -> float:
    """Variance of the median of `count` jobs over the variance of one job. Source: Kenney & Keeping 1962; simulated."""
    return _MEDIAN_VARIANCE.get(max(1, count), pi / 2) / max(1, count)


@dataclass(frozen=True, slots=True)
class Pooled:
    """The mean change of one test over several pairs, with its standard error."""

    mean: float
    error: float
    pair_count: int
    job_count: int
    scale: Scale

    @property
    def percent(self) -> float:
        """How far it is below what is expected, in per cent."""
        return -100 * (self.mean if self.scale.is_loss else expm1(self.mean))


def pooled(points: Iterable[PairPoint]) -> Pooled | None:
    """Pool one test's points over pairs; None if no point has a value that can be compared."""
    by_pair: dict[Pair, list[PairPoint]] = {}
    for one in points:
        if one.change is not None and not one.disturbed:
            by_pair.setdefault(one.pair, []).append(one)
    if not by_pair:
        return None
    runs = list(by_pair.values())
    mean = fmean(fmean(one.change or 0.0 for one in part) for part in runs)
    error = sqrt(sum(mean_error(part) ** 2 for part in runs)) / len(runs)
    return Pooled(mean, error, len(runs), sum(len(part) for part in runs), runs[0][0].scale)


def by_test(points: Iterable[PairPoint]) -> Mapping[str, list[PairPoint]]:
    """Points by their test."""
    found: dict[str, list[PairPoint]] = {}
    for one in points:
        found.setdefault(one.test, []).append(one)
    return found


def in_words(points: Sequence[PairPoint]) -> str:
    """What speaks against a pair or node: failures with their reason first, then the worst change, then a gate."""
    parts = []
    lost = [one for one in points if one.lost_share > 0]
    if lost:
        tests = ", ".join(sorted({one.test for one in lost}))
        reasons = [one.reason for one in lost if one.reason]
        why = f": {max(set(reasons), key=reasons.count)}" if reasons else ""
        whole = "brings nothing" if all(one.lost for one in lost) else "fails in part"
        parts.append(f"{tests} {whole} in {len(lost)} jobs{why}")
    slow = [one for one in points if one.change is not None and one.change < 0]
    by_speed = [one for one in slow if not one.scale.is_loss]
    failing = [one for one in slow if one.change is not None and one.change <= -one.scale.failure]
    named = [one for one in by_speed if one in failing] or failing or by_speed or slow
    if named:
        worst = min(named, key=lambda one: one.change or 0.0)
        below = pooled([one for one in points if one.test == worst.test and one.scale.is_loss == worst.scale.is_loss])
        percent = below.percent if below is not None else 0.0
        digits = 0 if percent >= 10 else 1
        said = f"{percent:.{digits}f} %"
        parts.append(
            f"{said} of the packets lost in {worst.test.removesuffix(PACKETS)}"
            if worst.scale.is_loss
            else f"{said} below what is expected in {worst.test}"
        )
    gate = next((one.gate for one in points if one.gate), None)
    return "; ".join([*parts, *([gate] if gate else [])])

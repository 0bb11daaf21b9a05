"""Is everything slower, or does a test fail everywhere? Then the cluster gets a verdict, and its nodes do not. Pure.

Everything is slower if nearly all pairs of a test are, no single node is in all of them, and even the fastest are
slower by what matters. This needs a baseline: without one, the cluster is its own reference. A second run must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from hpcq.verdict.acceptance.points import PACKETS, Pair, PairPoint, by_test, in_words

#: The share that counts as nearly all pairs, the fewest such pairs, and the fewest nodes that they must have.
NEARLY_ALL = 0.9
PAIRS_MIN, NODES_MIN = 4, 4
RUNS_MIN = 2


@dataclass(frozen=True, slots=True)
class ClusterShift:
    """A test that is worse everywhere. change: of the cluster's level (logarithm); None if the test fails."""

    test: str
    change: float | None
    pair_count: int
    of_count: int
    run_count: int
    failure: bool
    is_loss: bool
    said: str

    @property
    def confirmed(self) -> bool:
        """Whether more than one run shows it."""
        return self.run_count >= RUNS_MIN


def cluster_shifts(points: Sequence[PairPoint]) -> list[ClusterShift]:
    """The tests that are worse everywhere; failing tests come first."""
    found = []
    for test, mine in by_test(points).items():
        shift = _failing(test, mine) or _slower(test, mine)
        if shift is not None:
            found.append(shift)
    return sorted(found, key=lambda one: (one.change is not None, one.change or 0.0, one.test))


def relative_to_cluster(points: Sequence[PairPoint], shifts: Sequence[ClusterShift]) -> list[PairPoint]:
    """The points without what they share with the whole cluster, so that each node is compared with the others."""
    levels = {one.test: one.change for one in shifts}
    kept = []
    for one in points:
        level = levels.get(one.test)
        if one.test in levels and level is None:
            kept.append(replace(one, lost_share=0.0, change=None, gate=None))
        elif level is not None and one.change is not None:
            kept.append(replace(one, change=one.change - level, gate=None))
        else:
            kept.append(one)
    return kept


def _failing(test: str, points: Sequence[PairPoint]) -> ClusterShift | None:
    lost = _by_pair([one for one in points if one.lost])
    everybody = _by_pair(points)
    if not _everywhere(lost, everybody):
        return None
    said = in_words([one for runs in lost.values() for one in runs])
    return ClusterShift(test, None, len(lost), len(everybody), _runs(lost), failure=True, is_loss=False, said=said)


def _slower(test: str, points: Sequence[PairPoint]) -> ClusterShift | None:
    known = _by_pair([one for one in points if one.change is not None and not one.disturbed])
    means = {pair: fmean(one.change or 0.0 for one in runs) for pair, runs in known.items()}
    if not means:
        return None
    scale = next(iter(known.values()))[0].scale
    slow = {pair: known[pair] for pair, mean in means.items() if mean <= -scale.effect}
    level = median(means.values())
    top = sorted(means.values())[-max(1, len(means) // 10) :][0]
    if level > -scale.effect or top > level / 2 or not _everywhere(slow, known):
        return None
    percent = -100 * level if scale.is_loss else 100 * (1 - 2.718281828459045**level)
    what = f"{percent:.0f} % of the packets lost" if scale.is_loss else f"{percent:.0f} % below the baseline"
    said = f"{test.removesuffix(PACKETS)}: {what} on {len(slow)} of {len(known)} pairs"
    return ClusterShift(test, level, len(slow), len(known), _runs(slow), level <= -scale.failure, scale.is_loss, said)


def _everywhere(slow: dict[Pair, list[PairPoint]], everybody: dict[Pair, list[PairPoint]]) -> bool:
    """Whether nearly all pairs are slow, also without the pairs of any one node."""
    nodes = {node for pair in everybody for node in pair}
    if len(slow) < max(PAIRS_MIN, NEARLY_ALL * len(everybody)) or len(nodes) < NODES_MIN:
        return False
    for node in nodes:
        without = [pair for pair in everybody if node not in pair]
        if sum(pair in slow for pair in without) < max(2, NEARLY_ALL * len(without)):
            return False
    return True


def _by_pair(points: Sequence[PairPoint]) -> dict[Pair, list[PairPoint]]:
    found: dict[Pair, list[PairPoint]] = {}
    for one in points:
        found.setdefault(one.pair, []).append(one)
    return found


def _runs(pairs: dict[Pair, list[PairPoint]]) -> int:
    return len({one.run_no for runs in pairs.values() for one in runs})

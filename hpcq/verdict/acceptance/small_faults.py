"""Faults too small for a single job to show: the mean over all pairs of a node or of a leaf shows them. Pure.

    leaf    its crossing pairs are slower together; its inside pairs and all other crossing pairs are not
    node    its pairs are slower together, in both roles or in one, whichever partner is left out

The one that stands out most comes first, and what it explains accuses nothing else. The bound is for the whole
acceptance: among all nodes, roles and tests, one healthy thing is accused in CHANCE of all acceptances (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcq.verdict.acceptance.culprits import JOBS_MIN, MEMBERS_MIN, PARTNERS_MIN, behind
from hpcq.verdict.acceptance.points import Pair, PairPoint, Pooled, by_test, chance_z, pooled

CHANCE = 0.001
#: This share of the pairs must be slower, each by half of what matters. One very slow pair is a link.
LEANING_SHARE = 0.75
#: If jobs scatter more, as with a latency that has modes, the mean of a few says nothing.
SCATTER_MAX = 0.1
#: One run is not enough to accuse a node of a small fault. Without its worst partner it must still stand out by REST_Z.
RUNS_MIN = 2
REST_Z = 2.5
#: A job counts for at most this many standard errors.
OUTLIER_Z = 3.0


@dataclass(frozen=True, slots=True)
class SmallFaults:
    """By name, the points that accuse a leaf or node."""

    leaves: dict[str, tuple[PairPoint, ...]]
    nodes: dict[str, tuple[PairPoint, ...]]


def small_faults(
    points: Sequence[PairPoint], leaf_of: Mapping[str, str], explained: Collection[Pair], known: Collection[str]
) -> SmallFaults:
    """Find small faults in the points of pairs that nothing explains yet. known: nodes and leaves accused already."""
    left = [
        _tamed(one)
        for one in points
        if one.pair not in explained and one.change is not None and not one.disturbed and one.scale.scatter <= SCATTER_MAX
    ]
    nodes = sorted({node for one in left for node in one.pair} - set(known))
    z = chance_z(3 * len(nodes) * len({one.test for one in left}), CHANCE)
    leaves: dict[str, tuple[PairPoint, ...]] = {}
    for leaf in sorted(set(leaf_of.values()) - set(known)):
        accusing = _leaf(leaf, left, leaf_of, z)
        if accusing:
            leaves[leaf] = tuple(accusing)
    crossing = {one.pair for leaf in leaves for one in left if behind(one.pair, leaf, leaf_of)}
    left = [one for one in left if one.pair not in crossing]
    found: dict[str, tuple[PairPoint, ...]] = {}
    while True:
        best: tuple[float, str, list[PairPoint]] | None = None
        for node in nodes:
            accusing = [] if node in found else _node(node, left, leaf_of, z)
            mean = pooled(accusing)
            if mean is not None and (best is None or mean.mean / mean.error < best[0]):
                best = (mean.mean / mean.error, node, accusing)
        if best is None:
            return SmallFaults(leaves, found)
        found[best[1]] = tuple(best[2])
        left = [one for one in left if best[1] not in one.pair]


def _tamed(one: PairPoint) -> PairPoint:
    """The same point with a change of at most OUTLIER_Z errors: one job beside other traffic must not decide a mean."""
    most = max(one.scale.failure, OUTLIER_Z * one.error)
    return replace(one, change=max(-most, min(most, one.change or 0.0)))


def stands_out(mean: Pooled | None, z: float, share: float = 1.0) -> bool:
    """Whether a mean is slower by what matters (or a share of it), and by more than chance explains."""
    return mean is not None and mean.mean <= -share * mean.scale.effect and mean.mean <= -z * mean.error


def _node(node: str, points: Iterable[PairPoint], leaf_of: Mapping[str, str], z: float) -> list[PairPoint]:
    """The points that accuse it, of the test and role in which it stands out most; empty if it does not stand out."""
    worst: tuple[float, list[PairPoint]] = (0.0, [])
    for mine in by_test(one for one in points if node in one.pair).values():
        for roles in ((0, 1), (0,), (1,)):
            part = [one for one in mine if any(one.pair[role] == node for role in roles)]
            mean = pooled(part)
            if mean is None or not stands_out(mean, z) or mean.mean / mean.error >= worst[0]:
                continue
            if _everywhere(node, part) and not _like_its_leaf(node, part, points, leaf_of):
                worst = (mean.mean / mean.error, part)
    return worst[1]


def _everywhere(node: str, points: Sequence[PairPoint]) -> bool:
    """Whether enough jobs and partners are slower together, also without the worst of the partners."""
    partners: dict[str, list[PairPoint]] = {}
    for one in points:
        partners.setdefault(one.server if one.client == node else one.client, []).append(one)
    runs = {one.run_no for one in points}
    if len(points) < JOBS_MIN or len(partners) < PARTNERS_MIN or len(runs) < RUNS_MIN:
        return False
    means = {partner: pooled(part) for partner, part in partners.items()}
    by_run = [pooled(one for one in points if one.run_no == run) for run in runs]
    if any(one is not None and one.mean > -one.scale.effect / 2 for one in by_run):
        return False  # bad in one run and fine in another is intermittent
    leaning = [one for one in means.values() if one is not None and one.mean <= -one.scale.effect / 2]
    worst = min(means, key=lambda partner: means[partner].mean if means[partner] else 0.0)  # type: ignore[union-attr]
    rest = pooled(one for partner, part in partners.items() if partner != worst for one in part)
    return len(leaning) >= LEANING_SHARE * len(means) and stands_out(rest, REST_Z, 0.8)


def _like_its_leaf(node: str, mine: Sequence[PairPoint], points: Iterable[PairPoint], leaf_of: Mapping[str, str]) -> bool:
    """Whether no pair within its leaf is known to be slow, and its leaf's other nodes are slower too or were not tried."""
    leaf = leaf_of.get(node)
    inside = pooled(one for one in mine if leaf_of.get(one.client) == leaf_of.get(one.server))
    alone = sum(other == leaf for other in leaf_of.values()) == 1
    if leaf is None or alone or (inside is not None and inside.mean <= -inside.scale.effect / 2):
        return False
    test = mine[0].test
    mates = pooled(one for one in points if one.test == test and node not in one.pair and behind(one.pair, leaf, leaf_of))
    return mates is None or mates.mean <= -mates.scale.effect / 2


def _leaf(leaf: str, points: Sequence[PairPoint], leaf_of: Mapping[str, str], z: float) -> list[PairPoint]:
    for mine in by_test(points).values():
        crossing = [one for one in mine if behind(one.pair, leaf, leaf_of)]
        others = pooled(
            one
            for one in mine
            if leaf not in {leaf_of.get(one.client), leaf_of.get(one.server)}
            and leaf_of.get(one.client) != leaf_of.get(one.server)
        )
        inside = pooled(one for one in mine if leaf_of.get(one.client) == leaf == leaf_of.get(one.server))
        mean = pooled(crossing)
        if mean is None or not stands_out(mean, z) or others is None or stands_out(others, 1.0):
            continue
        if inside is None or inside.mean <= mean.mean / 2:  # nothing tells the leaf from its nodes
            continue
        members: dict[str, list[PairPoint]] = {}
        beyond: dict[str, list[PairPoint]] = {}
        for one in crossing:
            near, far = one.pair if leaf_of.get(one.client) == leaf else one.pair[::-1]
            members.setdefault(near, []).append(one)
            beyond.setdefault(far, []).append(one)
        if all(_all_lean(part, mean) for part in (members, beyond)):
            return crossing
    return []


def _all_lean(parts: Mapping[str, Sequence[PairPoint]], whole: Pooled) -> bool:
    means = [pooled(part) for part in parts.values()]
    leaning = [one for one in means if one is not None and one.mean <= whole.mean / 2]
    return len(leaning) >= max(MEMBERS_MIN, LEANING_SHARE * len(means))

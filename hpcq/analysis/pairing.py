"""Compare two runs or stretches: values of the same pair of nodes with the same parameters.

Network and toolchain may differ: a second run is often made to compare them. Where one of the two measured a test with several,
each is compared with the same one there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from hpcq.analysis.changed import Tracks, disturbed_in, gone_level, scatter_of, two_and_history
from hpcq.analysis.series_outcomes import Lost, lost_in, planned_in
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, JobScatter
from hpcq.statistics.comparison import smallest_move
from hpcq.store.database import Connection
from hpcq.store.selection import MetricRow, Window
from hpcq.store.series import SeriesRow, SeriesRows
from hpcq.verdict.levels import Level, Sides, judge_boundary, smallest_worse

Facts = Sequence[tuple[str, str]]
#: The place of a test of a pair among all, by kernel, cluster, client, server, parameters, and network and toolchain where one
#: side measured several.
Key = int
#: The first of its series by number, and the values of all: one per job.
_Side = tuple[int, list[float]]


@dataclass(frozen=True, slots=True)
class Pairing:
    """One test of one pair in both, with its verdict.

    One value per job, because repetitions of a job share its luck. smallest_ratio: the smallest loss (0.1: a tenth) that
    would be told of it by its own jobs, in nine of ten cases; None: none, or it has no values on both sides.
    """

    row: SeriesRow
    metric: MetricRow
    level: Level
    smallest_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """only_a, only_b: tests of pairs that the other does not have, each by its first series.

    missing: those of only_a that B planned. planned: all that B planned, whatever became of it.
    """

    both: tuple[Pairing, ...]
    only_a: SeriesRows
    only_b: SeriesRows
    missing: SeriesRows
    planned: SeriesRows


def compare_windows(
    database: Connection,
    rows: SeriesRows,
    metrics: Mapping[str, MetricRow],
    a: Window,
    b: Window,
    *,
    facts: Facts = (),
) -> Compared:
    """Judge every pair and test of B against A."""
    *points, history = two_and_history(database, rows, metrics, (a, b), facts)
    lost, beside_work = lost_in(database, b), [disturbed_in(database, side, facts) for side in (a, b)]
    # Of half a million series, those that one of the two has something of.
    planned = planned_in(database, b)
    mine = rows.of(chain(*(one.series_id.tolist() for one in points), lost, *beside_work, planned))
    keys = _keys(mine, points)
    sides: list[dict[Key, _Side]] = [{}, {}]
    for there, found in zip(points, sides, strict=True):
        for series_id, values in there.values():
            found.setdefault(keys[series_id], (series_id, []))[1].extend(values)
    both = sorted(sides[0].keys() & sides[1].keys())
    of_both = {row.series_id: row for row in mine.of(sides[1][key][0] for key in both)}
    named = [of_both[sides[1][key][0]] for key in both]
    known = scatter_of(history, rows, of_both.keys())
    judged = judge_boundary(
        [
            _sides(sides[0][key][1], sides[1][key][1], metrics[row.kernel], known[row.series_id])
            for key, row in zip(both, named, strict=True)
        ],
        lasting_count=1,
    )
    pairings = []
    for row, level in zip(named, judged, strict=True):
        metric, counts = metrics[row.kernel], (level.before_count, level.after_count)
        smallest = smallest_worse(known[row.series_id], *counts, Better(metric.better), len(both)) if level.before > 0 else None
        pairings.append(Pairing(row, metric, level, smallest))
    disturbed = [{keys[one] for one in side if one in keys} for side in beside_work]
    pairings += _gone(mine.of_kernels(metrics), keys, metrics, sides, lost, disturbed[0])
    told = {keys[one.row.series_id] for one in pairings}
    pairings += _beside_work(mine.of_kernels(metrics), keys, metrics, sides, disturbed, told)
    told = {keys[one.row.series_id] for one in pairings}
    only_a, only_b = (mine.of(one[key][0] for key in one.keys() - other.keys() - told) for one, other in (sides, sides[::-1]))
    of_planned = {keys[one] for one in planned if one in keys}
    missing = only_a.of(one for one in only_a.series_id.tolist() if keys[one] in of_planned)
    return Compared(tuple(pairings), only_a, only_b, missing, mine.of(planned))


def _gone(  # noqa: PLR0917 - both sides, and what is known of them
    rows: SeriesRows,
    keys: Mapping[int, Key],
    metrics: Mapping[str, MetricRow],
    sides: Sequence[Mapping[Key, _Side]],
    lost: Mapping[int, Lost],
    beside_work: set[Key],
) -> list[Pairing]:
    """Tests of pairs that A measured and that only fail in B. beside_work: those that A measured only beside other work."""
    found = {}
    for row in rows.of(lost):
        one, key = lost[row.series_id], keys[row.series_id]
        if not one.measured_count and (key in sides[0] or key in beside_work) and key not in sides[1]:
            found[key] = Pairing(row, metrics[row.kernel], gone_level(sides[0][key][1] if key in sides[0] else (), one))
    return [found[key] for key in sorted(found)]


def _beside_work(  # noqa: PLR0917 - both sides, and what is known of them
    rows: SeriesRows,
    keys: Mapping[int, Key],
    metrics: Mapping[str, MetricRow],
    sides: Sequence[Mapping[Key, _Side]],
    disturbed: Sequence[set[Key]],
    told: set[Key],
) -> list[Pairing]:
    """Tests of pairs that both measured, one of them (or both) only beside other work: unclear."""
    found: dict[Key, Pairing] = {}
    beside = [one - side.keys() for one, side in zip(disturbed, sides, strict=True)]
    there = [one | side.keys() for one, side in zip(beside, sides, strict=True)]
    unclear = (beside[0] | beside[1]) & there[0] & there[1] - told
    for row in rows.of(one for one, key in keys.items() if key in unclear):
        key = keys[row.series_id]
        where = [name for name, one in zip("AB", beside, strict=True) if key in one]
        values = [side[key][1] if key in side else [] for side in sides]
        found[key] = Pairing(row, metrics[row.kernel], _not_compared(values, where))
    return [found[key] for key in sorted(found)]


def _not_compared(values: Sequence[list[float]], where: Sequence[str]) -> Level:
    before, after = (float(np.median(one)) if one else float("nan") for one in values)
    reason = f"{' and '.join(where)} measured it only beside other work: measure again"
    counts = (len(values[0]), len(values[1]))
    return Level(
        ComparisonVerdict.INCONCLUSIVE, "same", "boundary", 0, 0, 0, before, after, None, None, None, None, *counts, reason
    )  # fmt: skip


def _keys(rows: SeriesRows, measured: Sequence[Tracks]) -> dict[int, Key]:
    """The key of each series. measured: what has values in A, and in B."""
    test = np.unique(rows.places_of_tests(), return_inverse=True)[1].reshape(-1)
    way = rows.places_of_ways()
    way_count = int(way.max(initial=0)) + 1
    sides = [np.unique((test * way_count + way)[rows.are(one.series_id)]) for one in measured]
    several = [tests[counts > 1] for tests, counts in (np.unique(one // way_count, return_counts=True) for one in sides)]
    # of several that both do not share, any is as good as another
    apart = np.intersect1d(np.concatenate(several), np.intersect1d(sides[0], sides[1]) // way_count)
    keys = test * (way_count + 1) + np.where(np.isin(test, apart), way + 1, 0)
    return dict(zip(rows.series_id.tolist(), keys.tolist(), strict=True))


def _sides(old: list[float], new: list[float], metric: MetricRow, scatter: JobScatter) -> Sides:
    values = np.array(old + new, dtype=np.float64)
    return Sides(Better(metric.better), values, len(old), scatter, smallest_move(metric.unit))

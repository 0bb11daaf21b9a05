"""Compare two runs or stretches: values of the same pair of nodes with the same parameters.

Network and toolchain may differ: a second run is often made to compare them. Where one of the two measured a test with several,
each is compared with the same one there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from hpcq.analysis.changed import disturbed_in, gone_level, scatter_of, two_and_history
from hpcq.analysis.series_outcomes import Lost, lost_in, planned_in
from hpcq.kernels import Better
from hpcq.statistics import ComparisonVerdict, JobScatter
from hpcq.statistics.comparison import smallest_move
from hpcq.store.database import Connection
from hpcq.store.history import MetricRow, SeriesRow, SeriesRows
from hpcq.store.selection import Window
from hpcq.verdict.levels import Level, Sides, judge_boundary, smallest_worse

Facts = Sequence[tuple[str, str]]
#: Kernel, cluster, client, server, parameters; network and toolchain where one side measured several.
Key = tuple[str, str, str, str, str, str, str]


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
    """only_a, only_b: tests of pairs that the other does not have. missing: those of only_a that B planned.

    planned: all that B planned, whatever became of it.
    """

    both: tuple[Pairing, ...]
    only_a: tuple[SeriesRow, ...]
    only_b: tuple[SeriesRow, ...]
    missing: tuple[SeriesRow, ...] = ()
    planned: tuple[SeriesRow, ...] = ()


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
    sides: list[dict[Key, tuple[SeriesRow, list[float]]]] = [{}, {}]
    *points, history = two_and_history(database, rows, metrics, (a, b), facts)
    lost, beside_work = lost_in(database, b), [disturbed_in(database, side, facts) for side in (a, b)]
    planned_ids = planned_in(database, b)
    # Of half a million series, those that one of the two has something of.
    tried = chain(*(one.series_id.tolist() for one in points), lost, *beside_work, planned_ids)
    mine = list(rows.of(tried))
    named = {row.series_id: row for row in mine}
    keys = _keys(mine, [[named[one] for one in there.series_id.tolist()] for there in points])
    for there, found in zip(points, sides, strict=True):
        for series_id, values in there.values():
            key = keys[series_id]
            if key in found:
                found[key][1].extend(values)
            else:
                found[key] = named[series_id], values
    both = sorted(sides[0].keys() & sides[1].keys())
    known = scatter_of(history, rows, {sides[1][key][0].series_id for key in both})
    judged = judge_boundary(
        [_sides(sides[0][key][1], sides[1][key][1], metrics[key[0]], known[sides[1][key][0].series_id]) for key in both],
        lasting_count=1,
    )
    pairings = []
    for key, level in zip(both, judged, strict=True):
        row, metric = sides[1][key][0], metrics[key[0]]
        counts = level.before_count, level.after_count
        smallest = smallest_worse(known[row.series_id], *counts, Better(metric.better), len(both)) if level.before > 0 else None
        pairings.append(Pairing(row, metric, level, smallest))
    disturbed = [{keys[one] for one in side if one in keys} for side in beside_work]
    pairings += _gone(mine, keys, metrics, sides, lost, disturbed[0])
    told = {keys[one.row.series_id] for one in pairings}
    pairings += _beside_work(mine, keys, metrics, sides, disturbed, told)
    told = {keys[one.row.series_id] for one in pairings}
    sides = [{key: one for key, one in side.items() if key not in told} for side in sides]
    only = [tuple(one[key][0] for key in sorted(one.keys() - other.keys())) for one, other in (sides, sides[::-1])]
    planned = [named[one] for one in planned_ids if one in named]
    of_planned = {keys[one.series_id] for one in planned} if only[0] else set()
    missing = tuple(one for one in only[0] if keys[one.series_id] in of_planned)
    return Compared(tuple(pairings), only[0], only[1], missing, tuple(planned))


def _gone(  # noqa: PLR0917 - both sides, and what is known of them
    rows: Sequence[SeriesRow],
    keys: Mapping[int, Key],
    metrics: Mapping[str, MetricRow],
    sides: Sequence[Mapping[Key, tuple[SeriesRow, list[float]]]],
    lost: Mapping[int, Lost],
    beside_work: set[Key],
) -> list[Pairing]:
    """Tests of pairs that A measured and that only fail in B. beside_work: those that A measured only beside other work."""
    found = {}
    for row in rows:
        one = lost.get(row.series_id)
        if one is None or one.measured_count or row.kernel not in metrics:
            continue
        key = keys[row.series_id]
        if (key in sides[0] or key in beside_work) and key not in sides[1]:
            found[key] = Pairing(row, metrics[row.kernel], gone_level(sides[0][key][1] if key in sides[0] else (), one))
    return [found[key] for key in sorted(found)]


def _beside_work(  # noqa: PLR0917 - both sides, and what is known of them
    rows: Sequence[SeriesRow],
    keys: Mapping[int, Key],
    metrics: Mapping[str, MetricRow],
    sides: Sequence[Mapping[Key, tuple[SeriesRow, list[float]]]],
    disturbed: Sequence[set[Key]],
    told: set[Key],
) -> list[Pairing]:
    """Tests of pairs that both measured, one of them (or both) only beside other work: unclear."""
    found: dict[Key, Pairing] = {}
    beside = [one - side.keys() for one, side in zip(disturbed, sides, strict=True)]
    there = [one | side.keys() for one, side in zip(beside, sides, strict=True)]
    unclear = (beside[0] | beside[1]) & there[0] & there[1] - told
    for row in rows if unclear else ():
        key = keys[row.series_id]
        if key in unclear and row.kernel in metrics:
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


def _keys(rows: Sequence[SeriesRow], measured: Sequence[Sequence[SeriesRow]]) -> dict[int, Key]:
    """The key of each series. measured: the series that have values in A, and in B."""
    a, b = ({(_test(row), row.network, row.toolchain) for row in side} for side in measured)
    several = {test for side in (a, b) for test, count in Counter(one[0] for one in side).items() if count > 1}
    apart = several & {one[0] for one in a & b}  # of several that both do not share, any is as good as another
    ways = {row.series_id: (row.network, row.toolchain) if _test(row) in apart else ("", "") for row in rows}
    return {row.series_id: (*_test(row), *ways[row.series_id]) for row in rows}


def _test(row: SeriesRow) -> tuple[str, str, str, str, str]:
    return row.kernel, row.cluster, row.client, row.server, row.parameters_json


def _sides(old: list[float], new: list[float], metric: MetricRow, scatter: JobScatter) -> Sides:
    values = np.array(old + new, dtype=np.float64)
    return Sides(Better(metric.better), values, len(old), scatter, smallest_move(metric.unit))

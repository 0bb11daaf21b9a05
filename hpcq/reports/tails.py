"""The tails of latency: for each kernel, which share of its operations took how long or longer.

Both axes are logarithmic: 1 % and 0.01 % of the operations are as far apart as 100 % and 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpcq import units
from hpcq.reports.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Curve,
    Dot,
    Plot,
    Tick,
    few,
    points_text,
    tick_values,
)
from hpcq.reports.words import kernel_title
from hpcq.store.distributions import Distribution
from hpcq.store.query import size_text

#: Curves of one picture; of more sizes, some are left out, never the first and the last.
_CURVES_MAX = 6
_SHARE_MIN = 1e-6
_PERCENTILES = ((0.5, "half of them"), (0.99, "99 %"), (0.999, "99.9 %"))


@dataclass(frozen=True, slots=True)
class Tails:
    """One picture and its figures: label, number of operations, p50, p90, p99, p99.9, longest."""

    plot: Plot
    rows: tuple[tuple[str, int, str, str, str, str, str], ...]


def make_tails(found: Sequence[Distribution]) -> list[Tails]:
    """One picture for each kernel of which histograms are there."""
    by_kernel: dict[str, list[Distribution]] = {}
    for one in found:
        if one.operation_count and one.buckets[0][0] > 0:
            by_kernel.setdefault(one.kernel, []).append(one)
    return [_tails(kernel, group) for kernel, group in by_kernel.items()]


def _tails(kernel: str, group: Sequence[Distribution]) -> Tails:
    places = {one.cluster for one in group}
    shown = _chosen(group)
    low = min(one.buckets[0][0] for one in shown)
    high = max(one.buckets[-1][0] for one in shown)
    smallest = max(_SHARE_MIN, min(1 / one.operation_count for one in shown))
    x_axis = Axis(low / 1.1, max(high, low * 2) * 1.1, LEFT + 10, WIDTH - RIGHT - 10, log=True)
    y_axis = Axis(smallest / 1.5, 1.0, HEIGHT - BOTTOM, TOP, log=True)
    curves = [
        Curve(_label(one, places), index, _line(one, x_axis, y_axis), "", _dots(one, _label(one, places), x_axis, y_axis))
        for index, one in enumerate(shown)
    ]
    words = f"{kernel_title(kernel)}: how many operations took how long"
    powers = range(round(math.log10(smallest)), 1)
    plot = Plot(
        kind="curve",
        title=words,
        description=f"{words}, for {', '.join(curve.label for curve in curves)}; figures in the table below.",
        x_label="time of one operation, logarithmic",
        y_label="share of the operations that took so long or longer, logarithmic",
        height=HEIGHT,
        x_ticks=tuple(Tick(x_axis.at(value), units.human(value, shown[0].unit)) for value in few(tick_values(x_axis), 6)),
        y_ticks=tuple(Tick(y_axis.at(10.0**power), f"{100 * 10.0**power:g} %") for power in powers),
        curves=tuple(curves),
        rows=(),
    )
    return Tails(plot, tuple(_row(one, _label(one, places)) for one in group))


def _chosen(group: Sequence[Distribution]) -> list[Distribution]:
    """At most so many that a picture can be read: the first, the last, and some between them."""
    count = min(len(group), _CURVES_MAX)
    places = {round(index * (len(group) - 1) / max(1, count - 1)) for index in range(count)}
    return [group[place] for place in sorted(places)]


def _line(one: Distribution, x_axis: Axis, y_axis: Axis) -> str:
    """Steps: between two buckets lies no operation, so a slope would say what was not measured."""
    shares = [(x_axis.at(value), y_axis.at(share)) for value, share in one.at_least()]
    falls = [(here[0], following[1]) for here, following in pairwise(shares)]
    return points_text([point for both in zip(shares, falls, strict=False) for point in both] + shares[-1:])


def _dots(one: Distribution, label: str, x_axis: Axis, y_axis: Axis) -> tuple[Dot, ...]:
    shares = dict(one.at_least())
    found = []
    for share, words in _PERCENTILES:
        value = one.percentile(share)
        if one.operation_count * (1 - share) >= 1:
            text = f"{label}: {words} took at most {units.human(value, one.unit)}"
            found.append(Dot(x_axis.at(value), y_axis.at(shares[value]), text))
    return tuple(found)


def _row(one: Distribution, label: str) -> tuple[str, int, str, str, str, str, str]:
    p50, p90, p99, p999 = (units.human(one.percentile(share), one.unit) for share in (0.5, 0.9, 0.99, 0.999))
    return label, one.operation_count, p50, p90, p99, p999, units.human(one.buckets[-1][0], one.unit)


def _label(one: Distribution, places: set[str]) -> str:
    parts = [one.cluster if len(places) > 1 else "", size_text(one.message_bytes), one.variant]
    return ", ".join(part for part in parts if part) or one.cluster

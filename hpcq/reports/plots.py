"""Geometry of the report's plots: from summaries to coordinates. The template draws them.

size curve   several sizes: log2 x; median over pairs as a line, all pairs but the outermost 5 % as a band (of one or two
             pairs: all their repetitions), pairs as dots
strip        one size: one row per cluster, one dot per pair, a bar at the median
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hpcq import units
from hpcq.reports.words import kernel_title, metric_title
from hpcq.store.query import Summary, median, size_text

_Number = TypeVar("_Number", int, float)

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 14, 14, 40
_ROW_HEIGHT = 44
#: What a size below an axis takes: `1024 KiB`.
_LABEL_PX = 52
#: With more pairs than this, only those outside the band are drawn, a limited number on each side.
_DOTS_MAX = 600
_OUTSIDE_MAX = 10
#: Of so few pairs, the band of a line shows how their repetitions differ.
_REPETITIONS_SHOWN_MAX = 2
#: A value axis becomes logarithmic when its ends differ by more than this factor.
_LOG_FACTOR = 12.0
#: With fewer marks nobody reads a value off an axis.
_TICKS_MIN = 3
#: Plotted in addition to a kernel's main metric; the database has everything else.
ALSO_PLOTTED = ("throughput_bps", "round_trip_p99_ns", "lost_ratio")


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across the plot with its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One pair's median."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One cluster (and variant) in a plot; `style_index` selects colour and marker."""

    label: str
    style_index: int
    line: str
    band: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure. `rows` repeats its values as a table: label, size, median, lowest, highest, pairs."""

    kind: str
    title: str
    description: str
    x_label: str
    y_label: str
    height: int
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    rows: tuple[tuple[str, str, str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """From a value to a coordinate."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, here = (math.log(one) if self.log else one for one in (self.low, self.high, max(value, self.low)))
        share = (here - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def make_plots(summaries: Sequence[Summary]) -> list[Plot]:
    """One plot per kernel for its main metric, and for others that network engineers ask for; curves come first."""
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in summaries:
        if one.better != "none":
            groups.setdefault((one.kernel, one.metric), []).append(one)
    plots = []
    for (kernel, metric), group in groups.items():
        if not group[0].main and metric not in ALSO_PLOTTED:
            continue
        if not any(one.median for one in group):
            continue
        sizes = sorted({one.message_bytes for one in group if one.message_bytes is not None})
        words = kernel_title(kernel)
        plots.append(_curves(words, metric, _by_label(group), sizes) if len(sizes) > 1 else _strip(kernel, metric, group))
    return _compared(summaries) + sorted(plots, key=lambda plot: plot.kind)


def on_curves(one: Summary) -> bool:
    """Whether it is what curves of several kernels show: of streams the throughput, of all others the main metric."""
    return one.metric == "throughput_bps" if one.kernel.endswith("_stream") else one.main


def _compared(summaries: Sequence[Summary]) -> list[Plot]:
    """All kernels of one metric in one chart: UDP, TCP and MPI beside each other, by message size.

    Of a kernel with several variants, the first one: the kernel's own plot has them all.
    """
    groups: dict[tuple[str, str], dict[str, list[Summary]]] = {}
    clusters = {one.cluster for one in summaries}
    for one in summaries:
        if on_curves(one) and one.better != "none" and one.message_bytes is not None:
            groups.setdefault((one.metric, one.unit), {}).setdefault(one.kernel, []).append(one)
    plots = []
    for (metric, _), kernels in groups.items():
        sizes = sorted({one.message_bytes for group in kernels.values() for one in group if one.message_bytes is not None})
        if len(kernels) < 2 or len(sizes) < 2:
            continue
        by_label: dict[str, list[Summary]] = {}
        for kernel, group in kernels.items():
            variant = min(one.variant for one in group)
            for one in group:
                if one.variant == variant:
                    label = f"{kernel_title(kernel)}, {one.cluster}" if len(clusters) > 1 else kernel_title(kernel)
                    by_label.setdefault(label, []).append(one)
        plots.append(_curves("Kernels compared", metric, by_label, sizes))
    return plots


def _curves(what: str, metric: str, by_label: Mapping[str, Sequence[Summary]], sizes: Sequence[int]) -> Plot:
    group = [one for members in by_label.values() for one in members]
    places = _size_places(sizes)
    x_axis = Axis(places[sizes[0]], places[sizes[-1]], LEFT + 10, WIDTH - RIGHT - 10, log=False)
    y_axis = value_axis([one for members in by_label.values() for one in drawn_values(members)], HEIGHT - BOTTOM, TOP)
    dotted = len(group) <= _DOTS_MAX
    curves, rows = [], []
    for style_index, (label, members) in enumerate(by_label.items()):
        middle, upper, lower, dots = [], [], [], []
        for size in sizes:
            here = [one for one in members if one.message_bytes == size]
            if not here:
                continue
            x, values = x_axis.at(places[size]), sorted(one.median for one in here)
            middle.append((x, y_axis.at(median(values))))
            low, high = band_of(here)
            lower.append((x, y_axis.at(low)))
            upper.append((x, y_axis.at(high)))
            shown = here if dotted else _outside(here, low, high)
            dots += [Dot(x, y_axis.at(one.median), _pair_text(one)) for one in shown]
            rows.append(_row(label, size, here))
        band = points_text(upper + lower[::-1])
        curves.append(Curve(label, style_index, points_text(middle), band, tuple(dots)))
    unit, words = group[0].unit, f"{what}: {metric_title(metric)}"
    return Plot(
        kind="curve",
        title=words,
        description=f"{words} against message size for {', '.join(by_label)}; figures in the table below.",
        x_label="message size",
        y_label=f"{metric_title(metric)}, {group[0].better} is better" + (", logarithmic" if y_axis.log else ""),
        height=HEIGHT,
        x_ticks=_apart([Tick(x_axis.at(places[size]), size_text(size)) for size in few(sizes)]),
        y_ticks=tuple(Tick(y_axis.at(value), units.human(value, unit)) for value in tick_values(y_axis)),
        curves=tuple(curves),
        rows=tuple(rows),
    )


def _strip(kernel: str, metric: str, group: Sequence[Summary]) -> Plot:
    by_label = _by_label(group)
    height = TOP + BOTTOM + _ROW_HEIGHT * len(by_label)
    x_axis = value_axis([one.median for one in group], 24, WIDTH - 32)
    dotted = len(group) <= _DOTS_MAX
    curves, rows = [], []
    for style_index, (label, members) in enumerate(by_label.items()):
        y = TOP + _ROW_HEIGHT * (style_index + 0.65)
        values = sorted(one.median for one in members)
        middle = x_axis.at(median(values))
        low, high = _band(values)
        left, right = x_axis.at(low), x_axis.at(high)
        band = points_text([(left, y - 5), (right, y - 5), (right, y + 5), (left, y + 5)])
        shown = members if dotted else _outside(members, low, high)
        dots = tuple(Dot(x_axis.at(one.median), y, _pair_text(one)) for one in shown)
        curves.append(Curve(label, style_index, points_text([(middle, y - 13), (middle, y + 13)]), band, dots))
        rows.append(_row(label, members[0].message_bytes, members))
    unit, message_bytes = group[0].unit, group[0].message_bytes
    words = f"{metric_title(metric)} of {kernel_title(kernel)}"
    at_size = f" at {size_text(message_bytes)}" if message_bytes is not None else ""
    return Plot(
        kind="strip",
        title=f"{kernel_title(kernel)}: {metric_title(metric)}{at_size}",
        description=f"{words}{at_size}, one dot per pair, for {', '.join(by_label)}; figures in the table below.",
        x_label=f"{metric_title(metric)}, {group[0].better} is better" + (", logarithmic" if x_axis.log else ""),
        y_label="",
        height=height,
        x_ticks=tuple(Tick(x_axis.at(value), units.human(value, unit)) for value in few(tick_values(x_axis), 5)),
        y_ticks=tuple(Tick(TOP + _ROW_HEIGHT * (index + 0.25), label) for index, label in enumerate(by_label)),
        curves=tuple(curves),
        rows=tuple(rows),
    )


def _apart(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Those whose labels do not overlap. The last one always: it bounds the axis."""
    kept: list[Tick] = []
    for tick in reversed(ticks):
        if not kept or kept[-1].at - tick.at >= _LABEL_PX:
            kept.append(tick)
    return tuple(reversed(kept))


def _size_places(sizes: Sequence[int]) -> dict[int, float]:
    """The place of each size on a logarithmic axis. 0 bytes has no logarithm and goes to half of the smallest size."""
    smallest = min((math.log2(size) for size in sizes if size), default=1.0)
    return {size: math.log2(size) if size else smallest - 1 for size in sizes}


def _by_label(group: Sequence[Summary]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for one in group:
        found.setdefault(f"{one.cluster}, {one.variant}" if one.variant else one.cluster, []).append(one)
    return found


def _row(label: str, message_bytes: int | None, members: Sequence[Summary]) -> tuple[str, str, str, str, str, int]:
    values = [one.median for one in members]
    shown = (units.human(value, members[0].unit) for value in (median(values), min(values), max(values)))
    middle, low, high = shown
    return label, size_text(message_bytes), middle, low, high, len(values)


def band_of(members: Sequence[Summary]) -> tuple[float, float]:
    """What a line's band spans at one size: the middle 90 % of the pairs; of one or two pairs, all their repetitions."""
    if len(members) > _REPETITIONS_SHOWN_MAX:
        return _band(sorted(one.median for one in members))
    return min(one.lowest for one in members), max(one.highest for one in members)


def drawn_values(members: Sequence[Summary]) -> list[float]:
    """All values that the axis must have room for: the pairs and the band, size by size."""
    by_size: dict[int | None, list[Summary]] = {}
    for one in members:
        by_size.setdefault(one.message_bytes, []).append(one)
    bounds = [bound for here in by_size.values() for bound in band_of(here)]
    return [*(one.median for one in members), *bounds]


def _band(values: Sequence[float]) -> tuple[float, float]:
    """The middle 90 % of ordered values, or all of them if they are few."""
    cut = int(len(values) * 0.05)
    return values[cut], values[len(values) - 1 - cut]


def _outside(members: Sequence[Summary], low: float, high: float) -> list[Summary]:
    """The pairs outside the band, the few furthest ones on each side: the plot must always show them."""
    ordered = sorted(members, key=lambda one: one.median)
    below = [one for one in ordered if one.median < low][:_OUTSIDE_MAX]
    return below + [one for one in ordered if one.median > high][-_OUTSIDE_MAX:]


def value_axis(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    if low > 0 and high / low > _LOG_FACTOR:
        return Axis(low / 1.3, high * 1.3, start, end, log=True)
    step = _step(high - min(low, 0.0))
    floor = 0.0 if low >= 0 else math.floor(low / step) * step
    return Axis(floor, math.ceil(high * 1.02 / step) * step or 1.0, start, end, log=False)


def tick_values(axis: Axis) -> list[float]:
    """Round values on an axis: at least three."""
    if not axis.log:
        step = _step(axis.high - axis.low)
        count = round((axis.high - axis.low) / step)
        return [axis.low + step * index for index in range(count + 1)]
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    fine = axis.high / axis.low < 1000
    steps = (1, 2, 5) if fine else (1,)
    values = [factor * 10.0**power for power in range(first, last + 1) for factor in steps]
    within = [value for value in values if axis.low <= value <= axis.high]
    if len(within) >= _TICKS_MIN:
        return within
    step = _step(axis.high - axis.low)  # so narrow that 2 and 5 may both lie outside
    return [step * count for count in range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1)]


def _step(span: float) -> float:
    """A round step that gives four to eight intervals."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 8)


def few(values: Sequence[_Number], count_max: int = 8) -> list[_Number]:
    stride = max(1, math.ceil(len(values) / count_max))
    return list(values[::stride])


def points_text(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _pair_text(one: Summary) -> str:
    size = f", {one.size_text}" if one.message_bytes is not None else ""
    return f"{one.cluster}: {one.client} to {one.server}{size}: {units.human(one.median, one.unit)} (n = {one.n})"

"""Geometry of the report's plots: from summaries to coordinates. The template draws them.

size curve   several sizes: log2 x; median over pairs as a line, all pairs but the outermost 5 % as a band (of one or two
             pairs: all their repetitions), pairs as dots
strip        one size: one row per cluster, one dot per pair, a bar at the median
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hpcq import nodelist, units
from hpcq.analysis.change import Explained
from hpcq.analysis.expected import Around, Expected, Test, test_of
from hpcq.analysis.standing import CauseNight, CauseNights
from hpcq.kernels import size_text
from hpcq.nodelist import natural
from hpcq.store.history import Point
from hpcq.store.query import Summary, median
from hpcq.store.selection import MetricRow
from hpcq.store.series import SeriesRow

# ----------------------------------------------------------------------------------------------------------------------
# Names of kernels and metrics for titles: `tcp_stream` is "TCP stream", `round_trip_p50_ns` is "round trip p50".


_SHORT_FORMS = {"tcp": "TCP", "udp": "UDP", "mpi": "MPI", "cpu": "CPU"}


def kernel_title(kernel: str) -> str:
    """A kernel's name in words."""
    return _words(kernel)


def percent(change: float) -> str:
    """A change as a share: `-10 %`."""
    return f"{100 * change:+.0f} %"


def metric_title(metric: str) -> str:
    """A metric's name in words, without its unit: axes and figures show that."""
    unit = units.unit_of(metric)
    return _words(metric.removesuffix(f"_{unit}") if unit else metric)


def _words(name: str) -> str:
    return " ".join(_SHORT_FORMS.get(word, word) for word in name.split("_"))


# ----------------------------------------------------------------------------------------------------------------------


_Number = TypeVar("_Number", int, float)
#: A picture has the width of a phone: its text is as large there as on a desk.
WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 74, 14, 14, 40
_ROW_HEIGHT = 44
#: What a size below an axis takes: `1024 KiB`; a date.
_LABEL_PX, _DATE_PX = 52, 74
#: With more pairs than this, only those outside the band are drawn, a limited number on each side.
_DOTS_MAX = 600
_OUTSIDE_MAX = 10
#: Of so few pairs, the band of a line shows how their repetitions differ.
_REPETITIONS_SHOWN_MAX = 2
#: A value axis becomes logarithmic when its ends differ by more than this factor.
_LOG_FACTOR = 12.0
#: The link's speed is drawn where it is at most so many times what was measured.
_LINK_NEAR = 3.0
#: With fewer marks nobody reads a value off an axis.
_TICKS_MIN = 3
#: Plotted in addition to a kernel's main metric; the database has everything else.
ALSO_PLOTTED = ("throughput_bps", "round_trip_p99_ns", "lost_ratio")
#: Of a stream with a companion: the phases of its round trips, in words, and what is drawn of each.
_LOAD_PHASES = {"idle": "before", "loaded": "beside", "after": "after"}
_LOAD_QUANTILES = ("p50", "p99")
UNDER_LOAD = tuple(f"{phase}_round_trip_{quantile}_ns" for phase in _LOAD_PHASES for quantile in _LOAD_QUANTILES)


#: Begins the title of charts with several kernels.
SHARED = "Kernels compared"


@dataclass(frozen=True, slots=True)
class Tick:
    """A line across the plot with its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One pair's median. disturbed: all of it was measured beside other work."""

    x: float
    y: float
    text: str
    disturbed: bool = False


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
    #: Where on the value axis the link's own speed is, with its words.
    link: Tick | None = None
    width: int = WIDTH
    left: int = LEFT
    bottom: int = BOTTOM

    @property
    def pair_count(self) -> int:
        """The most pairs behind a value. A value alone is a number, not a picture."""
        return max((row[-1] for row in self.rows), default=0)


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


def make_plots(summaries: Sequence[Summary], link_bps: Mapping[Test, float] | None = None) -> list[Plot]:
    """One plot per kernel for its main metric, and for others that network engineers ask for; curves come first.

    link_bps: the speed of the link, by test; it stands as a line in charts of throughput.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in summaries:
        if one.better != "none":
            groups.setdefault((one.kernel, one.metric), []).append(one)
    plots = []
    speeds = link_bps or {}
    for (kernel, metric), group in groups.items():
        if not group[0].main and metric not in ALSO_PLOTTED:
            continue
        if not any(one.median for one in group):
            continue
        sizes = sorted({one.message_bytes for one in group if one.message_bytes is not None})
        words = kernel_title(kernel)
        plots.append(
            _curves(words, metric, _by_label(group), sizes, speeds) if len(sizes) > 1 else _strip(kernel, metric, group)
        )
    return _compared(summaries, speeds) + sorted(plots, key=lambda plot: plot.kind)


def plots_under_load(summaries: Sequence[Summary]) -> list[Plot]:
    """One plot per kernel that had a companion: its round trips before, beside and after the stream; medians over pairs."""
    kernels: dict[str, list[Summary]] = {}
    for one in summaries:
        if one.metric in UNDER_LOAD and one.median > 0:
            kernels.setdefault(one.kernel, []).append(one)
    return [_under_load(kernel, group) for kernel, group in kernels.items()]


def _under_load(kernel: str, group: Sequence[Summary]) -> Plot:
    places = {phase: place for place, phase in enumerate(_LOAD_PHASES)}
    x_axis = Axis(0, len(places) - 1, LEFT + 30, WIDTH - RIGHT - 30, log=False)
    y_axis = value_axis([one.median for one in group], HEIGHT - BOTTOM, TOP)
    curves: list[Curve] = []
    rows: list[tuple[str, str, str, str, str, int]] = []
    for label, members in _by_label(group).items():
        for quantile in _LOAD_QUANTILES:
            line, dots = [], []
            for phase, words in _LOAD_PHASES.items():
                here = [one for one in members if one.metric == f"{phase}_round_trip_{quantile}_ns"]
                if not here:
                    continue
                x = x_axis.at(places[phase])
                line.append((x, y_axis.at(median([one.median for one in here]))))
                shown = here if len(group) <= _DOTS_MAX else []
                dots += [Dot(x, y_axis.at(one.median), _pair_text(one), _beside_work(one)) for one in shown]
                rows.append(_row(f"{label}, {quantile}, {words} the stream", None, here))
            if line:
                # Without the phase in the middle, a line from the first to the last would show what nobody measured.
                whole = len(line) != 2 or line[1][0] - line[0][0] < x_axis.at(2) - x_axis.at(0)
                points = points_text(line) if whole else ""
                curves.append(Curve(f"{label}, {quantile}", len(curves), points, "", tuple(dots)))
    words = f"{kernel_title(kernel)}: round trips before, beside and after it"
    return Plot(
        kind="curve",
        title=words,
        description=f"{words}, for {', '.join(curve.label for curve in curves)}; figures in the table below.",
        x_label="before the stream, beside it, after it",
        y_label="round trip of the companion, lower is better" + (", logarithmic" if y_axis.log else ""),
        height=HEIGHT,
        x_ticks=tuple(Tick(x_axis.at(places[phase]), words) for phase, words in _LOAD_PHASES.items()),
        y_ticks=tuple(Tick(y_axis.at(value), units.human(value, group[0].unit)) for value in tick_values(y_axis)),
        curves=tuple(curves),
        rows=tuple(rows),
    )


def on_curves(one: Summary) -> bool:
    """Whether it is what curves of several kernels show: of streams the throughput, of all others the main metric."""
    return one.metric == "throughput_bps" if one.kernel.endswith("_stream") else one.main


def _compared(summaries: Sequence[Summary], speeds: Mapping[Test, float]) -> list[Plot]:
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
        in_line = [kernel for kernel, group in kernels.items() if len({one.message_bytes for one in group}) > 1]
        if len(kernels) < 2 or not in_line:
            continue
        by_label: dict[str, list[Summary]] = {}
        for kernel, group in kernels.items():
            variant = min(one.variant for one in group)
            for one in group:
                if one.variant == variant:
                    label = f"{kernel_title(kernel)}, {one.cluster}" if len(clusters) > 1 else kernel_title(kernel)
                    by_label.setdefault(label, []).append(one)
        plots.append(_curves(SHARED, metric, by_label, sizes, speeds))
    return plots


def _curves(
    what: str, metric: str, by_label: Mapping[str, Sequence[Summary]], sizes: Sequence[int], speeds: Mapping[Test, float]
) -> Plot:
    group = [one for members in by_label.values() for one in members]
    places = _size_places(sizes)
    x_axis = Axis(places[sizes[0]], places[sizes[-1]], LEFT + 10, WIDTH - RIGHT - 10, log=False)
    drawn = [one for members in by_label.values() for one in drawn_values(members)]
    link = {speeds[test_of(one)] for one in group if test_of(one) in speeds}
    # A link that is much faster than all that was measured would press the curves to the floor.
    near = [speed for speed in link if speed <= max(drawn) * _LINK_NEAR]
    y_axis = value_axis([*drawn, *near], HEIGHT - BOTTOM, TOP)
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
            dots += [Dot(x, y_axis.at(one.median), _pair_text(one), _beside_work(one)) for one in shown]
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
        link=Tick(y_axis.at(near[0]), f"link {units.human(near[0], unit)}") if len(near) == 1 else None,
    )


def _beside_work(one: Summary) -> bool:
    return one.n > 0 and one.disturbed_count == one.n


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
        dots = tuple(Dot(x_axis.at(one.median), y, _pair_text(one), _beside_work(one)) for one in shown)
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
        x_ticks=tuple(Tick(x_axis.at(value), units.human(value, unit)) for value in few(tick_values(x_axis), 4)),
        y_ticks=tuple(Tick(TOP + _ROW_HEIGHT * (index + 0.25), label) for index, label in enumerate(by_label)),
        curves=tuple(curves),
        rows=tuple(rows),
    )


def _apart(ticks: Sequence[Tick], label_px: float = _LABEL_PX) -> tuple[Tick, ...]:
    """Those whose labels do not overlap. The last one always: it bounds the axis."""
    kept: list[Tick] = []
    for tick in reversed(ticks):
        if not kept or kept[-1].at - tick.at >= label_px:
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
    beside = ", beside other work" if _beside_work(one) else ""
    return f"{one.cluster}: {one.client} to {one.server}{size}: {units.human(one.median, one.unit)} (n = {one.n}{beside})"


# ----------------------------------------------------------------------------------------------------------------------
# Node x node tables: which node communicates how well with which, at one look.
#
# Rows are clients, columns are servers. If the plan has only one direction, each pair is one cell above the diagonal. A
# bad node shows as a cross, a bad pair as one cell. Colours are relative to what is expected, else to the median of the
# cells, and end at 20 %. Grey cells were not planned; hatched cells were planned and not measured; in crossed ones the
# test ran and brought no valid result. With too many nodes for a page, rows and columns are groups of nodes (leaf
# switches, racks; else neighbours by name), and a cell is the median of its pairs.


_CLIP_RATIO = 0.20
#: Half of it, a tenth, is clearly worse.
_CLEARLY = 0.5
#: Up to this many nodes, the cells show their numbers.
_NUMBERS_MAX = 12
#: With more nodes than this, rows and columns are groups of nodes.
NODES_MAX = 128
#: What a sign of a node's name takes, at 12 px.
_SIGN_PX = 7
#: So many groups at most, where no group of the nodes is known.
_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Cell:
    """One ordered pair. kind: value, missing (planned, not measured), lost (ran without a valid result), absent (not
    planned), self.

    disturbed: measured only beside other work. earlier: by another run of the same undertaking.
    """

    x: int
    y: int
    kind: str
    worse: bool
    strength: float
    number: str
    text: str
    disturbed: bool = False
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """One cluster, kernel and size. one_way: a pair is one cell, whatever its direction.

    unit: the metric in words. reference: what the cells are held against, and its source. figures_in: the unit of the
    numbers in the cells; empty where they show none. grouped: rows and columns are groups of nodes.
    """

    title: str
    unit: str
    reference: str
    nodes: tuple[str, ...]
    cell_px: int
    cells: tuple[Cell, ...]
    one_way: bool = False
    figures_in: str = ""
    grouped: bool = False
    source: str = ""

    @property
    def left(self) -> int:
        """Room for the names beside the rows."""
        return max(map(len, self.nodes)) * _SIGN_PX + 14

    @property
    def off_count(self) -> int:
        """Cells that are clearly worse, or lost."""
        return sum(one.kind == "lost" or (one.worse and one.strength >= _CLEARLY) for one in self.cells)

    @property
    def kinds(self) -> set[str]:
        """What its legend explains."""
        words = {"disturbed": any(one.disturbed for one in self.cells), "earlier": any(one.earlier for one in self.cells)}
        return {one.kind for one in self.cells} | {word for word, seen in words.items() if seen}

    @property
    def names_lie(self) -> bool:
        """Whether each name fits above its column; else all stand upright."""
        return (max(map(len, self.nodes)) + 1) * _SIGN_PX <= self.cell_px


def make_matrices(
    summaries: Sequence[Summary],
    planned: Collection[tuple[str, str, str]],
    groups_of: Mapping[tuple[str, str], Sequence[str]] | None = None,
    surroundings: Around | None = None,
    lost: Mapping[Lost, str] | None = None,
) -> list[Matrix]:
    """One matrix per cluster and kernel: throughput at its largest size, latency at its smallest.

    planned: (cluster, client, server) of every planned pair. groups_of: the groups of nodes, by cluster and name.
    surroundings: what the cells are held against, and pairs that other runs of the same undertaking measured; without it
    they are held against their own median. lost: why a pair's test brought no result.
    """
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in summaries:
        if one.main and not nodelist.names_several(one.server):  # what a set of nodes ran is no pair's
            groups.setdefault((one.cluster, one.kernel), []).append(one)
    made = []
    for (cluster, kernel), group in groups.items():
        choose = max if group[0].better == "higher" else min
        message_bytes = choose((one.message_bytes for one in group if one.message_bytes is not None), default=None)
        here = [one for one in group if one.message_bytes == message_bytes]
        variant = min(one.variant for one in here)
        here = [one for one in here if one.variant == variant]
        test = test_of(here[0])
        pairs = {(client, server) for at, client, server in planned if at == cluster and not nodelist.names_several(server)}
        own = pairs | {(one.client, one.server) for one in here}
        others = [one for one in surroundings.others if test_of(one) == test] if surroundings is not None else []
        others = [one for one in others if (one.client, one.server) not in own]
        expected = surroundings.expected.get(test) if surroundings is not None else None
        words = {
            (a, b): why for (at, of, a, b, size), why in (lost or {}).items() if (at, of, size) == (*test[:2], message_bytes)
        }
        whole = pairs | {(one.client, one.server) for one in others}
        nodes = sorted({node for pair in whole for node in pair}, key=natural)
        if len(nodes) > 2:
            parts = [
                kernel_title(kernel),
                *([size_text(message_bytes)] if message_bytes is not None else []),
                *([variant] if variant else []),
            ]
            title = f"{cluster}: {', '.join(parts)}"
            field = _Field(here, tuple(others), whole, expected, words)
            if len(nodes) <= NODES_MAX:
                made.append(_matrix(title, field, nodes))
            else:
                known = {node: (groups_of or {}).get((cluster, node), ()) for node in nodes}
                made.append(_of_groups(title, field, _grouped(nodes, known)))
    return made


#: Cluster, kernel, client, server, size of a test that ran and brought no valid result.
Lost = tuple[str, str, str, str, int | None]


@dataclass(frozen=True, slots=True)
class _Field:
    """What a matrix is drawn from: results of this run and of others, planned pairs, what is expected, why pairs are lost."""

    here: Sequence[Summary]
    others: tuple[Summary, ...]
    planned: Collection[tuple[str, str]]
    expected: Expected | None
    lost: Mapping[tuple[str, str], str]


def _grouped(nodes: Sequence[str], known: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The group of each node: of the first kind that all have and that is not one for all; else neighbours by name."""
    for kind in dict.fromkeys(name.partition(" ")[0] for names in known.values() for name in names):
        found = {node: name for node in nodes for name in known[node] if name.startswith(f"{kind} ")}
        if len(found) == len(nodes) and 2 < len(set(found.values())) <= NODES_MAX:
            return found
    size = -(-len(nodes) // _BLOCKS)
    blocks = [nodes[first : first + size] for first in range(0, len(nodes), size)]
    return {node: f"{block[0]} to {block[-1]}" if len(block) > 1 else node for block in blocks for node in block}


def _of_groups(title: str, field: _Field, group_of: Mapping[str, str]) -> Matrix:
    """A cell is the median of the pairs between two groups; what is under the mouse names the worst of them."""
    cells: dict[tuple[str, str], list[Summary]] = {}
    here = [*field.here, *field.others]
    for one in here:
        cells.setdefault((group_of[one.client], group_of[one.server]), []).append(one)
    worst = min if here[0].better == "higher" else max
    summaries, said = [], {}
    for (client, server), pairs in cells.items():
        furthest = worst(pairs, key=lambda one: one.median)
        value = median([one.median for one in pairs])
        summaries.append(replace(pairs[0], client=client, server=server, median=value, n=len(pairs)))
        shown = units.human(furthest.median, furthest.unit)
        count = units.count_of(len(pairs), "pair")
        said[client, server] = f"{count}, the worst {furthest.client} to {furthest.server} with {shown}"
    names = sorted(set(group_of.values()), key=natural)
    wanted = {(group_of[client], group_of[server]) for client, server in field.planned}
    blocks = _Field(summaries, (), wanted, field.expected, {})
    made = _matrix(f"{title}, by {_kind(names)}", blocks, names, one_way=False)
    told = tuple(
        replace(cell, text=f"{cell.text.partition(', n = ')[0]}; {said[pair]})")
        if (pair := (names[cell.y], names[cell.x])) in said
        else cell
        for cell in made.cells
    )
    kind = f"{_kind(names)} "  # the title says it, so the names need not
    return replace(made, cells=told, nodes=tuple(name.removeprefix(kind) for name in names), grouped=True)


def _kind(names: Sequence[str]) -> str:
    """What the groups are: `leaf`; of neighbours by name, `blocks of nodes`."""
    kinds = {name.partition(" ")[0] for name in names}
    return kinds.pop() if len(kinds) == 1 else "blocks of nodes"


def _matrix(title: str, field: _Field, nodes: Sequence[str], *, one_way: bool | None = None) -> Matrix:
    here, planned = field.here, field.planned
    reference = field.expected.value if field.expected is not None else median([one.median for one in here])
    figures_in, written = units.human_like(reference, here[0].unit)
    values = {(one.client, one.server): one for one in (*field.others, *here)}
    earlier = {(one.client, one.server) for one in field.others}
    numbered = len(nodes) <= _NUMBERS_MAX
    if one_way is None:
        one_way = not any((server, client) in planned for client, server in planned)
    from_words = "from the median" if field.expected is None else "from what is expected"
    cells = []
    for y, first in enumerate(nodes):
        for x, second in enumerate(nodes):
            pair = (second, first) if one_way and (second, first) in planned else (first, second)
            if x < y and one_way:
                continue
            found = values.get(pair)
            if found is None:
                cells.append(_empty_cell((x, y), pair, field))
            else:
                text = "" if not numbered else written(found.median)
                cells.append(_cell((x, y), found, (reference, from_words), number=text, earlier=pair in earlier))
    return Matrix(
        title=title,
        unit=metric_title(here[0].metric),
        one_way=one_way,
        reference=units.human(reference, here[0].unit),
        nodes=tuple(nodes),
        cell_px=44 if numbered else max(5, 560 // len(nodes)),
        cells=tuple(cells),
        figures_in=figures_in if numbered else "",
        source=field.expected.source if field.expected is not None else "",
    )


def _empty_cell(at: tuple[int, int], pair: tuple[str, str], field: _Field) -> Cell:
    client, server = pair
    why = field.lost.get(pair)
    kind = "self" if client == server else "lost" if why else "missing" if pair in field.planned else "absent"
    words = {"self": "the same node", "lost": why, "missing": "planned, not measured", "absent": "not planned"}
    return Cell(*at, kind, worse=False, strength=0.0, number="", text=f"{client} to {server}: {words[kind]}")


def _cell(at: tuple[int, int], one: Summary, held: tuple[float, str], *, number: str, earlier: bool) -> Cell:
    """held: the reference, and how the deviation from it is called."""
    reference, from_words = held
    change = (one.median - reference) / abs(reference) if reference else 0.0
    worse = change < 0 if one.better == "higher" else change > 0
    beside = ", beside other work" if _beside_work(one) else ""
    beside += ", by an earlier run of the last hours" if earlier else ""
    text = (
        f"{one.client} to {one.server}: {units.human(one.median, one.unit)} ({change:+.1%} {from_words}, n = {one.n}{beside})"
    )
    strength = round(min(abs(change) / _CLIP_RATIO, 1.0), 3)
    return Cell(*at, "value", worse, strength, number, text, _beside_work(one), earlier)


# ----------------------------------------------------------------------------------------------------------------------
# Geometry of a series over time: points of jobs, and a line at each change of level. The template draws them.


TIMELINE_HEIGHT = 220
#: Dates below the axis.
_DATES = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """One job: its median, with lowest and highest as a line. text: what a person reads when pointing at it."""

    x: float
    y: float
    low: float
    high: float
    disturbed: bool
    text: str


@dataclass(frozen=True, slots=True)
class LevelStep:
    """One change of level: where, and the levels on both sides as lines (x1, x2, y). words: what differed."""

    x: float
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    words: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One picture. `summary` says it in words, for who cannot see it."""

    title: str
    caption: str
    summary: str
    height: int
    marks: tuple[Mark, ...]
    steps: tuple[LevelStep, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    #: Top and bottom of what is expected: the middle 90 % of the jobs before the first change; None without a change.
    band: tuple[float, float] | None = None
    width: int = WIDTH
    left: int = LEFT


def make_timeline(row: SeriesRow, metric: MetricRow, points: Sequence[Point], changes: Sequence[Explained]) -> Timeline | None:
    """One series; None without points. changes: those of this series, whose level is known."""
    if not points:
        return None
    times = [units.parse_utc(one.started_utc).timestamp() for one in points]
    levels = [value for one in changes if not _gone(one) for value in (one.changed.level.before, one.changed.level.after)]
    y_axis = _zoomed_axis([*(one.median for one in points), *levels], TIMELINE_HEIGHT - BOTTOM, TOP)
    x_axis = Axis(min(times), max(times), LEFT + 10, WIDTH - RIGHT - 10, log=False)
    marks = [
        Mark(
            x_axis.at(at),
            y_axis.at(one.median),
            y_axis.at(max(one.lowest, y_axis.low)),
            y_axis.at(min(one.highest, y_axis.high)),
            bool(one.disturbed),
            f"{one.started_utc[:16].replace('T', ' ')} UTC: {units.human(one.median, metric.unit)}, {one.run}",
        )
        for at, one in zip(times, points, strict=True)
    ]
    steps = [_timeline_step(one, x_axis, y_axis) for one in changes if not _gone(one)]
    said = "; ".join(f"{one.changed.level.direction} since {one.changed.at_utc[:10]}" for one in changes) or "no change"
    return Timeline(
        title=f"{row.cluster}: {row.label}",
        caption=", ".join(
            [
                metric_title(metric.name),
                *([f"{metric.better} is better"] if metric.better != "none" else []),
                *([f"over {row.network_name} ({row.network})"] if row.network_name else []),
            ]
        ),
        summary=f"{metric_title(metric.name)} of {row.label} in {len(points)} jobs: {said}",
        height=TIMELINE_HEIGHT,
        marks=tuple(marks),
        steps=tuple(steps),
        band=_usual_band(points, changes, y_axis),
        x_ticks=_dates_below(x_axis, times, points),
        y_ticks=tuple(Tick(y_axis.at(value), units.human(value, metric.unit)) for value in tick_values(y_axis)),
    )


def make_nightly(of: CauseNights) -> Timeline:
    """One thing at fault, night by night: a mark is the median of its jobs, with the lowest and the highest."""
    cause, nights = of.cause, of.nights
    times = [units.parse_utc(one.started_utc).timestamp() for one in nights]
    levels = [one for one in (of.before, of.after, *(of.band or ())) if one is not None]
    y_axis = _zoomed_axis([*(one.middle for one in nights), *levels], TIMELINE_HEIGHT - BOTTOM, TOP)
    x_axis = Axis(min(times), max(times), LEFT + 10, WIDTH - RIGHT - 10, log=False)
    marks = [
        Mark(
            x_axis.at(at),
            y_axis.at(one.middle),
            y_axis.at(max(one.low, y_axis.low)),
            y_axis.at(min(one.high, y_axis.high)),
            one.disturbed,
            f"{one.started_utc[:16].replace('T', ' ')} UTC: {one.middle:.1%} of what is usual in"
            f" {units.count_of(one.job_count, 'job')}, {one.run}",
        )
        for at, one in zip(times, nights, strict=True)
    ]
    steps: tuple[LevelStep, ...] = ()
    if of.before is not None and of.after is not None:
        x = x_axis.at(max(units.parse_utc(cause.since_utc).timestamp(), min(times)))
        before, after = y_axis.at(of.before), y_axis.at(of.after)
        steps = (LevelStep(x, (x_axis.start, x, before), (x, x_axis.end, after), ""),)
    kernels = sorted({one.partition(" ")[0] for one in cause.tests})
    return Timeline(
        title=cause.name,
        caption=f"share of what is usual in {', '.join(kernels)}: 100 % and more is good",
        summary=f"{cause.name} on {units.count_of(len(nights), 'night')}: {cause.words}",
        height=TIMELINE_HEIGHT,
        marks=tuple(marks),
        steps=steps,
        band=None if of.band is None else (y_axis.at(of.band[1]), y_axis.at(of.band[0])),
        x_ticks=_dates_below(x_axis, times, nights),
        y_ticks=tuple(Tick(y_axis.at(value), f"{100 * value:.3g} %") for value in tick_values(y_axis)),
    )


def _dates_below(x_axis: Axis, times: Sequence[float], marks: Sequence[Point] | Sequence[CauseNight]) -> tuple[Tick, ...]:
    """A few dates. times: seconds of each mark."""
    chosen = few(range(len(times)), _DATES)
    ticks = [Tick(min(x_axis.at(times[one]), WIDTH - _DATE_PX / 2), marks[one].started_utc[:10]) for one in chosen]
    return _apart(ticks, _DATE_PX)


def _zoomed_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis as long as what moves: from zero, a step of a tenth would be a few pixels."""
    low, high = min(values), max(values)
    span = max(high - low, abs(high) * 0.02) or 1.0
    step = _step(span * 1.1)
    floor = math.floor((low - span * 0.05) / step) * step
    ceiling = math.ceil((high + span * 0.05) / step) * step
    return Axis(max(floor, 0.0) if low >= 0 else floor, ceiling, start, end, log=False)


def _usual_band(points: Sequence[Point], changes: Sequence[Explained], y_axis: Axis) -> tuple[float, float] | None:
    first = min((one.changed.at_utc for one in changes if one.changed.at_utc), default="")
    before = sorted(one.median for one in points if one.started_utc < first)
    if not before:
        return None
    low, high = _band(before)
    return y_axis.at(high), y_axis.at(low)


def _gone(one: Explained) -> bool:
    level = one.changed.level
    return level.after != level.after or level.before != level.before


def _timeline_step(one: Explained, x_axis: Axis, y_axis: Axis) -> LevelStep:
    x = x_axis.at(units.parse_utc(one.changed.at_utc).timestamp())
    level = one.changed.level
    before, after = y_axis.at(level.before), y_axis.at(level.after)
    return LevelStep(x, (x_axis.start, x, before), (x, x_axis.end, after), one.words or "no known difference")

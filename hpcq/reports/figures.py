"""Pictures for papers, tickets and slides. The only user of matplotlib, which is optional.

curve     a kernel's main metric against message size: one line per kernel, cluster and variant; logarithmic axes
heatmap   node x node, as on the page
history   one series over time, with its levels and what differed at each change

Each returns the bytes of a file. The same input gives the same bytes. Colours are those of Okabe and Ito, which
colour-blind people can tell apart; lines differ by marker and dashes too.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import textwrap
from collections.abc import Sequence
from typing import Any

from hpcq import units
from hpcq.errors import HpcqError
from hpcq.kernels import size_text
from hpcq.reports.plots import Matrix, band_of, drawn_values, kernel_title, metric_title
from hpcq.store.history import Point
from hpcq.store.query import Summary, median
from hpcq.store.selection import MetricRow
from hpcq.store.series import SeriesRow

FORMATS = ("svg", "png", "pdf")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#4d5a66")
_MARKERS = ("o", "s", "^", "D", "v", "X")
_DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)))
_WORSE, _BETTER, _ABSENT = "#d55e00", "#0072b2", "#e9ecef"
#: At most this many lines in one chart: more cannot be told apart.
LINES_MAX = 18
#: Of a chart, in inches.
_WIDTH, _HEIGHT = 7.5, 4.4
#: So many labels fit beside an axis.
_LABELS_MAX = 32
#: Signs of all names below a heat map, with spaces between, before they are turned.
_LABELS_WIDTH = 44
#: Characters of a line below a chart.
_WORDS_WIDTH = 105
_RC = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d5dae0",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "hpcq",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "figure.dpi": 150,
}


def curve_figure(summaries: Sequence[Summary], title: str, kind: str) -> bytes:
    """Draw one chart per metric. Lines are medians over pairs; plots.py says what bands are."""
    by_metric: dict[tuple[str, str], dict[str, list[Summary]]] = {}
    several = len({one.cluster for one in summaries}) > 1
    for one in summaries:
        words = [kernel_title(one.kernel), *([one.cluster] if several else []), *([one.variant] if one.variant else [])]
        by_metric.setdefault((one.metric, one.unit), {}).setdefault(", ".join(words), []).append(one)
    figure, charts = _charts(len(by_metric), title)
    for chart, ((metric, unit), lines) in zip(charts, by_metric.items(), strict=True):
        better = next(iter(lines.values()))[0].better
        for number, (label, members) in enumerate(lines.items()):
            _line(chart, number, label, members)
        _log_value_axis(chart, [value for members in lines.values() for value in drawn_values(members)], unit)
        _size_axis(chart, [one.message_bytes for members in lines.values() for one in members])
        chart.set_ylabel(metric_title(metric) + (f"\n{better} is better" if better != "none" else ""))
        if len(lines) > 1:
            chart.legend(frameon=False, fontsize=9, loc="best")
        else:
            chart.set_title(next(iter(lines)), fontsize=10, loc="left")
    return _bytes(figure, kind)


def heatmap_figure(matrices: Sequence[Matrix], title: str, kind: str) -> bytes:
    """Draw one table per matrix."""
    side = max(4.2, min(9.0, 0.16 * max(len(one.nodes) for one in matrices) + 2.6))
    figure, charts = _charts(len(matrices), title, width=side + 1.4, height=side)
    for chart, matrix in zip(charts, matrices, strict=True):
        _heatmap(figure, chart, matrix)
    return _bytes(figure, kind)


def history_figure(
    row: SeriesRow, metric: MetricRow, points: Sequence[Point], changes: Sequence[tuple[str, float, float, str]], kind: str
) -> bytes:
    """Draw a series over time. changes: (at_utc, level before, level after, words), oldest first."""
    figure, [chart] = _charts(1, f"{row.cluster}: {row.label}")
    times = [units.parse_utc(one.started_utc) for one in points]
    middle = [one.median for one in points]
    spread = [[one.median - one.lowest for one in points], [one.highest - one.median for one in points]]
    chart.errorbar(times, middle, yerr=spread, fmt="none", ecolor=_COLOURS[0], elinewidth=0.8, alpha=0.5)
    for disturbed, face, label in ((False, _COLOURS[0], "median of a job"), (True, "white", "disturbed by other work")):
        here = [(at, value) for at, value, one in zip(times, middle, points, strict=True) if bool(one.disturbed) is disturbed]
        if here:
            chart.plot(*zip(*here, strict=True), "o", markersize=4.5, mfc=face, mec=_COLOURS[0], label=label)
    starts = [times[0], *(units.parse_utc(at) for at, *_ in changes)]
    ends = [*starts[1:], times[-1]]
    levels = [changes[0][1], *(after for _, _, after, _ in changes)] if changes else []
    for number, (start, end, level) in enumerate(zip(starts, ends, levels, strict=bool(changes))):
        chart.hlines(level, start, end, color=_COLOURS[1], linewidth=2, label=None if number else "level")
    below: list[str] = []
    for number, (at, before, after, words) in enumerate(changes, 1):
        chart.axvline(units.parse_utc(at), color=_COLOURS[5], linewidth=1, linestyle=_DASHES[2])
        change = f"{after / before - 1:+.1%}" if before else "changed"
        chart.annotate(str(number), (units.parse_utc(at), 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom")
        said = f"{number}  {at[:16].replace('T', ' ')} UTC  {change}  {words}"
        below += textwrap.wrap(said, _WORDS_WIDTH, subsequent_indent="    ")
    figure.text(0.02, -0.03, "\n".join(below), fontsize=9, va="top")
    highest, lowest = max(one.highest for one in points), min(one.lowest for one in points)
    chart.set_ylim(min(0.0, lowest), highest * 1.08 if highest > 0 else None)
    _value_axis(chart.yaxis, metric.unit)
    better = f"\n{metric.better} is better" if metric.better != "none" else ""
    chart.set_ylabel(metric_title(metric.name) + better)
    chart.set_xlabel("UTC")
    figure.autofmt_xdate(rotation=30)
    chart.legend(frameon=False, fontsize=9, loc="lower left")
    return _bytes(figure, kind)


def _line(chart: Any, number: int, label: str, members: Sequence[Summary]) -> None:
    by_size: dict[int, list[Summary]] = {}
    for one in members:
        by_size.setdefault(one.message_bytes or 0, []).append(one)
    places = sorted(by_size)
    colour = _COLOURS[number % len(_COLOURS)]
    bounds = [band_of(by_size[size]) for size in places]
    drawn = [_place(size) for size in places]
    chart.fill_between(drawn, [low for low, _ in bounds], [high for _, high in bounds], color=colour, alpha=0.16, linewidth=0)
    chart.plot(
        drawn,
        [median([one.median for one in by_size[size]]) for size in places],
        color=colour,
        marker=_MARKERS[number % len(_MARKERS)],
        linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
        markersize=4.5,
        label=label,
    )


def _place(size: int) -> float:
    """Put 0 bytes, which has no logarithm, at half a byte."""
    return float(size) or 0.5


def _size_axis(chart: Any, sizes: Sequence[int | None]) -> None:
    known = sorted({size for size in sizes if size is not None})
    chart.set_xscale("log", base=2)
    stride = max(1, -(-len(known) // 10))
    shown = known[::stride]
    chart.set_xticks([_place(size) for size in shown], [size_text(size) for size in shown], rotation=30, ha="right")
    chart.minorticks_off()
    chart.set_xlabel("message size")


def _log_value_axis(chart: Any, values: Sequence[float], unit: str) -> None:
    """Use a logarithmic axis where the values span more than a factor of twelve; else one from zero."""
    positive = [one for one in values if one > 0]
    if len(positive) == len(values) and max(values) > 12 * min(values):
        from matplotlib.ticker import LogLocator, NullFormatter

        chart.set_yscale("log")
        chart.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(values) < 1000 * min(values) else (1,)))
        chart.yaxis.set_minor_formatter(NullFormatter())
    else:
        chart.set_ylim(bottom=min(0.0, *values))
    _value_axis(chart.yaxis, unit)


def _value_axis(axis: Any, unit: str) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: units.human(value, unit)))


def _heatmap(figure: Any, chart: Any, matrix: Matrix) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Patch, Rectangle

    count = len(matrix.nodes)
    field = np.full((count, count), np.nan)
    for cell in matrix.cells:
        if cell.kind == "value":
            field[cell.y, cell.x] = -cell.strength if cell.worse else cell.strength
        elif cell.kind == "absent":
            chart.add_patch(Rectangle((cell.x - 0.5, cell.y - 0.5), 1, 1, color=_ABSENT, linewidth=0))
        elif cell.kind == "missing":
            box = Rectangle((cell.x - 0.5, cell.y - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#59636e", linewidth=0)
            chart.add_patch(box)
        if cell.number:
            chart.text(cell.x, cell.y, cell.number, ha="center", va="center", fontsize=8)
    colours = LinearSegmentedColormap.from_list("hpcq", [_WORSE, "#f6f7f9", _BETTER])
    image = chart.imshow(field, cmap=colours, vmin=-1, vmax=1)
    bar = figure.colorbar(image, ax=chart, fraction=0.046, pad=0.03, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["20 % worse", f"median\n{matrix.reference}", "20 % better"])
    bar.outline.set_visible(False)
    chart.grid(visible=False)
    stride = -(-count // _LABELS_MAX)
    shown = matrix.nodes[::stride]
    crowded = sum(map(len, shown)) + 2 * len(shown) > _LABELS_WIDTH
    chart.set_xticks(range(0, count, stride), shown, rotation=90 if crowded else 0)
    chart.set_yticks(range(0, count, stride), shown)
    chart.set_xlabel("each pair is one cell" if matrix.one_way else "server")
    chart.set_ylabel("" if matrix.one_way else "client")
    chart.set_title(f"{matrix.title}\n{matrix.unit}", fontsize=10, loc="left")
    kinds = {cell.kind for cell in matrix.cells}
    marks = [Patch(facecolor=_ABSENT, label="not planned")] if "absent" in kinds else []
    if "missing" in kinds:
        marks.append(Patch(facecolor="white", edgecolor="#59636e", hatch="////", label="planned, not measured"))
    if marks:
        chart.legend(handles=marks, frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.3)


def _load() -> None:
    """Import matplotlib away from the present folder: it obeys a file matplotlibrc there, whoever put it."""
    with contextlib.suppress(ImportError, OSError), contextlib.chdir("/"):  # a folder that is gone holds no such file
        importlib.import_module("matplotlib")


def _charts(count: int, title: str, width: float = _WIDTH, height: float = _HEIGHT) -> tuple[Any, list[Any]]:
    """Make a figure with that many charts below one another."""
    _load()
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise HpcqError(
            "hpcq plot: matplotlib is not installed", "pip install matplotlib; hpcq report needs nothing more"
        ) from None
    with rc_context(_RC):
        figure = Figure(figsize=(width, height * count + 0.4), layout="constrained")
        figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
        made = figure.subplots(count, 1, squeeze=False)
    return figure, [row[0] for row in made]


def _bytes(figure: Any, kind: str) -> bytes:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with rc_context(_RC):
        figure.savefig(buffer, format=kind, metadata=dates[kind], bbox_inches="tight", facecolor="white")
    return buffer.getvalue()

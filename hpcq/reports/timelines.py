"""Geometry of a series over time: points of jobs, and a line at each change of level. The template draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcq import units
from hpcq.analysis.change import Explained
from hpcq.reports.plots import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis, Tick, few, tick_values, value_axis
from hpcq.reports.words import metric_title
from hpcq.store.history import Metric, SeriesRow
from hpcq.store.points import Point

HEIGHT = 220
#: Dates below the axis.
_DATES = 5


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
class Step:
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
    steps: tuple[Step, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def make_timeline(row: SeriesRow, metric: Metric, points: Sequence[Point], changes: Sequence[Explained]) -> Timeline | None:
    """One series; None without points. changes: those of this series, whose level is known."""
    if not points:
        return None
    times = [units.parse_utc(one.started_utc).timestamp() for one in points]
    y_axis = value_axis([value for one in points for value in (one.lowest, one.highest)], HEIGHT - BOTTOM, TOP)
    x_axis = Axis(min(times), max(times), LEFT + 10, WIDTH - RIGHT - 10, log=False)
    marks = [
        Mark(
            x_axis.at(at),
            y_axis.at(one.median),
            y_axis.at(one.lowest),
            y_axis.at(one.highest),
            bool(one.disturbed),
            f"{one.started_utc[:16].replace('T', ' ')} UTC: {units.human(one.median, metric.unit)}, {one.run}",
        )
        for at, one in zip(times, points, strict=True)
    ]
    steps = [_step(one, x_axis, y_axis) for one in changes if not _gone(one)]
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
        height=HEIGHT,
        marks=tuple(marks),
        steps=tuple(steps),
        x_ticks=tuple(
            Tick(x_axis.at(times[place]), points[place].started_utc[:10]) for place in few(range(len(points)), _DATES)
        ),
        y_ticks=tuple(Tick(y_axis.at(value), units.human(value, metric.unit)) for value in tick_values(y_axis)),
    )


def _gone(one: Explained) -> bool:
    level = one.changed.level
    return level.after != level.after or level.before != level.before


def _step(one: Explained, x_axis: Axis, y_axis: Axis) -> Step:
    x = x_axis.at(units.parse_utc(one.changed.at_utc).timestamp())
    level = one.changed.level
    before, after = y_axis.at(level.before), y_axis.at(level.after)
    return Step(x, (x_axis.start, x, before), (x, x_axis.end, after), one.words or "no known difference")

"""Which series changed, and what differs between the two sides: verdicts and causes on the points of the database.

changed(database, rows, metrics, since, against)     method boundary: since against another stretch
searched(database, rows, metrics, since)             method search: change points since then, wherever they are
explained(database, row, ...)                        a change with its facts and events
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcq.analysis import change_context
from hpcq.analysis.bulk_points import SeriesPoints, tracks
from hpcq.analysis.scatter import histories, scatter_of
from hpcq.kernels import Better
from hpcq.statistics import JobScatter
from hpcq.statistics.smallest_effect import smallest_move
from hpcq.store.database import Connection
from hpcq.store.history import Metric, SeriesRow
from hpcq.store.time_windows import Window
from hpcq.verdict.causes import Cause, Symptom, own_build_changed, rank, say, symptoms
from hpcq.verdict.levels import Level, Sides, judge_boundary, judge_search

Facts = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Changed:
    """One series with what was found of its level. at_utc: its first point of the new level."""

    row: SeriesRow
    metric: Metric
    level: Level
    at_utc: str
    last_before_utc: str
    before_results: tuple[int, ...]
    after_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A change with what differs between its sides, best first, what happened between them, and what the evidence says."""

    changed: Changed
    causes: tuple[Cause, ...]
    events: tuple[change_context.EventRow, ...]
    symptoms: tuple[Symptom, ...]

    @property
    def own_build(self) -> bool:
        """Whether hpcq's own program changed with it."""
        return own_build_changed(self.causes)

    @property
    def words(self) -> str:
        """The cause in a line: facts, and events where there are any."""
        happened = "; ".join(event.words for event in self.events[:2])
        return "; ".join(one for one in (say(self.causes), happened) if one)

    def to_json(self) -> dict[str, Any]:
        """For --json: base units, names as in the database."""
        row, level = self.changed.row, self.changed.level
        named = {name: getattr(row, name) for name in ("series_id", "kernel", "cluster", "client", "server", "message_bytes")}
        numbers = ("ratio", "low", "high", "p_value", "before_count", "after_count", "reason", "came_back", "method")
        return {
            **named,
            "parameters": row.parameters,
            "metric": self.changed.metric.name,
            "unit": self.changed.metric.unit,
            "verdict": level.verdict.value,
            "direction": level.direction,
            "at_utc": self.changed.at_utc,
            "last_before_utc": self.changed.last_before_utc,
            **{name: _number(getattr(level, name)) for name in ("before", "after")},
            **{name: getattr(level, name) for name in numbers},
            "own_build": self.own_build,
            "causes": list(self.causes),
            "events": list(self.events),
            "symptoms": list(self.symptoms),
        }


def changed(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, Metric],
    since: Window,
    against: Window,
    *,
    facts: Facts = (),
) -> list[Changed]:
    """Every series with points in both stretches or one of them, before (`against`) and after (`since`)."""
    old = {one.series_id: one for one in tracks(database, rows, metrics, against, facts=facts)}
    new = {one.series_id: one for one in tracks(database, rows, metrics, since, facts=facts)}
    named = {row.series_id: row for row in rows}
    joined = [_joined(old.get(one), new.get(one)) for one in named if one in old or one in new]
    known = scatter_of(histories(database, rows, metrics, since), rows)
    judged = judge_boundary([_sides(one, metrics[named[one.series_id].kernel], known[one.series_id]) for one in joined])
    return [_changed(database, named[one.series_id], metrics, one, level) for one, level in zip(joined, judged, strict=True)]


def searched(
    database: Connection,
    rows: Sequence[SeriesRow],
    metrics: Mapping[str, Metric],
    since_utc: str,
    history: Window,
    *,
    facts: Facts = (),
) -> list[Changed]:
    """Changes of level since then, in series that go back as far as `history`."""
    named = {row.series_id: row for row in rows}
    found = []
    there = tracks(database, rows, metrics, history, boundary=since_utc, facts=facts)
    known = scatter_of({one.series_id: one.value[~one.after] for one in there}, rows)
    judged = judge_search([_sides(one, metrics[named[one.series_id].kernel], known[one.series_id]) for one in there])
    for one, levels in zip(there, judged, strict=True):
        found += [_changed(database, named[one.series_id], metrics, one, level) for level in levels]
    return found


def explained(database: Connection, one: Changed) -> Explained:
    """Look up what differs between the sides of a change."""
    before, after = one.before_results, one.after_results
    facts = change_context.facts_of(database, [*before, *after])
    causes = rank(facts[: len(before)], facts[len(before) :])
    events = change_context.events_between(database, one.row, one.last_before_utc, one.at_utc) if one.at_utc else []
    seen = change_context.findings_of(database, [*before, *after])
    return Explained(one, tuple(causes), tuple(events), tuple(symptoms(seen[: len(before)], seen[len(before) :])))


def _changed(database: Connection, row: SeriesRow, metrics: Mapping[str, Metric], track: SeriesPoints, level: Level) -> Changed:
    before, after = track.result[level.first : level.index], track.result[level.index : level.last]
    near = (
        tuple(int(i) for i in before[-change_context.POINTS_MAX :]),
        tuple(int(i) for i in after[: change_context.POINTS_MAX]),
    )
    told = level.direction != "same"
    at_utc = change_context.started_of(database, [near[1][0]])[0] if told and near[1] else ""
    last_before = change_context.started_of(database, [near[0][-1]])[0] if told and near[0] else ""
    return Changed(row, metrics[row.kernel], level, at_utc, last_before, *near)


def _sides(track: SeriesPoints, metric: Metric, scatter: JobScatter) -> Sides:
    boundary = int(np.sum(~track.after))
    return Sides(Better(metric.better), track.value, boundary, scatter, smallest_move(metric.unit))


def _joined(old: SeriesPoints | None, new: SeriesPoints | None) -> SeriesPoints:
    """The points of the two stretches in one: everything of the second is after."""
    if old is None or new is None:
        only, is_after = (new, True) if new is not None else (old, False)
        assert only is not None  # noqa: S101 - one of them is there
        return replace(only, after=np.full(len(only.value), is_after))
    after = np.arange(len(old.value) + len(new.value)) >= len(old.value)
    joined = [np.concatenate([getattr(old, name), getattr(new, name)]) for name in ("value", "result")]
    return SeriesPoints(old.series_id, joined[0], joined[1], after)


def _number(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - NaN

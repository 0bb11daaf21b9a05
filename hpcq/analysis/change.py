"""What an analysis of the history found: changed series, explained changes, and how many series were judged at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.analysis.change_context import EventRow
from hpcq.store.history import MetricRow, SeriesRow
from hpcq.verdict.causes import Cause, Symptom, own_build_changed, say
from hpcq.verdict.levels import Level
from hpcq.verdict.words import Tally, Verdict

#: What people say of a change so that it is no alarm.
CLOSED = {"expected", "false"}
#: The method of a level that was recorded as a change and still holds.
RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Changed:
    """A series and what was found about its level. at_utc: the first point of the new level."""

    row: SeriesRow
    metric: MetricRow
    level: Level
    at_utc: str
    last_before_utc: str
    before_results: tuple[int, ...]
    after_results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """A change: what differs between its sides (best first), the events between them, and findings of the evidence."""

    changed: Changed
    causes: tuple[Cause, ...]
    events: tuple[EventRow, ...]
    symptoms: tuple[Symptom, ...]

    @property
    def own_build(self) -> bool:
        """Whether hpcq's own build changed at the same time."""
        return own_build_changed(self.causes)

    @property
    def words(self) -> str:
        """The cause in one line: facts, and events if there are any."""
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


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found about many series, and which of them could be judged.

    changes: levels that moved, or might have, and series that are gone. judged_ids: series with enough points.
    too_few: series with points, but fewer than can show a change. missing: planned in the stretch, and no point there.
    disturbed: measured lately only beside other work. idle: nothing was planned in the stretch, or it has nothing to be
    compared with.
    """

    changes: list[Changed]
    judged_ids: frozenset[int]
    too_few: tuple[SeriesRow, ...] = ()
    missing: tuple[SeriesRow, ...] = ()
    idle: tuple[SeriesRow, ...] = ()
    disturbed: tuple[SeriesRow, ...] = ()

    @property
    def judged_count(self) -> int:
        """Series with enough points."""
        return len(self.judged_ids)

    @property
    def too_few_count(self) -> int:
        """Series with too few points."""
        return len(self.too_few)

    @property
    def empty_count(self) -> int:
        """Series without a point in the stretch."""
        return len(self.missing) + len(self.idle)

    @property
    def one_sided_count(self) -> int:
        """Those of them that have points in the other stretch: they are compared with nothing, and INCONCLUSIVE."""
        return len({row.series_id for row in (*self.missing, *self.idle)} & {one.row.series_id for one in self.changes})

    @property
    def disturbed_count(self) -> int:
        """Series that were measured lately only beside other work."""
        return len(self.disturbed)

    @property
    def series_count(self) -> int:
        """All selected series."""
        return self.judged_count + self.too_few_count + self.disturbed_count + self.empty_count


def alarms(one: Explained, state: str | None) -> bool:
    """Whether this is a change for the worse that holds and that nobody declared expected, repaired or false."""
    level = one.changed.level
    return level.sure and level.direction != "better" and not level.came_back and state not in CLOSED


def is_unclear(level: Level) -> bool:
    """Whether this might be a change for the worse and cannot be told."""
    return level.verdict.value == "inconclusive" and level.direction != "better"


def tally_of(
    judged: Judged,
    worse: Sequence[Changed],
    unclear: Collection[int],
    fine: Collection[int] = frozenset(),
    failed: Collection[int] = frozenset(),
) -> Tally:
    """One verdict per series: gone is FAIL, worse is DEGRADED. A series for which nothing was planned gets none.

    fine: series (by series_id) that pass with their nodes, also where they have few values of their own. failed: those that
    fail a gate.
    """
    directions: dict[int, set[str]] = {one: {"gone"} for one in failed}
    for one in worse:
        directions.setdefault(one.row.series_id, set()).add(one.level.direction)
    verdicts = [Verdict.FAILED if "gone" in found else Verdict.DEGRADED for found in directions.values()]
    too_few = {row.series_id for row in judged.too_few}
    open_ones = (too_few | set(unclear)) - directions.keys() - set(fine)
    beside_work = {row.series_id for row in judged.disturbed} - open_ones
    verdicts += [Verdict.INCONCLUSIVE] * (len(open_ones) + len(beside_work))
    verdicts += [Verdict.NOT_COVERED] * len({row.series_id for row in judged.missing} - open_ones)
    return Tally.of(verdicts + [Verdict.PASS] * len((judged.judged_ids | too_few) - directions.keys() - open_ones))


def _number(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - NaN

"""Print a change of level: the same for `regressions`, `history` and `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpcq import units

if TYPE_CHECKING:
    from hpcq.analysis.change import Explained
    from hpcq.store.time_windows import Window
    from hpcq.verdict.levels import Level


def print_change(one: Explained, state: str | None = None) -> None:
    """Print one change with what differs between its sides, events in between, and findings of the evidence."""
    row, level, metric = one.changed.row, one.changed.level, one.changed.metric
    word = level.direction if level.sure else f"perhaps {level.direction}"
    marks = [mark for mark, holds in (("old level is back", level.came_back), (state or "", bool(state))) if holds]
    click.echo(f"{word}: {row.label}, {metric.name}, since {_minute(one.changed.at_utc)}{_bracketed(marks)}")
    click.echo(
        f"    {_effect(level, metric.unit)}, {level.before_count} points before, {level.after_count} after: {level.reason}"
    )
    if one.own_build:
        click.echo("    hpcq's own program changed there: this is no change of the machine until the old program shows it too")
    for cause in one.causes[:4]:
        click.echo(f"    differs by {cause.separation * 100:.0f} %  {cause.words}")
    for event in one.events[:4]:
        click.echo(f"    meanwhile       {event.words}")
    for symptom in one.symptoms[:4]:
        click.echo(f"    evidence        {symptom.words}")
    if not one.causes and not one.events:
        click.echo("    hpcq knows of no difference between the two sides")


def _effect(level: Level, unit: str) -> str:
    before, after = (units.human(one, unit) if one == one else None for one in (level.before, level.after))  # noqa: PLR0124 - NaN
    if after is None:
        return f"{before or 'measured before'} > nothing"
    medians = f"{before} > {after}"
    if level.ratio is None:
        return medians
    change = f"{100 * (level.ratio - 1):+.1f} %"
    if level.low is None or level.high is None:
        return f"{medians}, {change}"
    return f"{medians}, {change} ({100 * (level.low - 1):+.1f} to {100 * (level.high - 1):+.1f} %)"


def whole_stretch(meant: Window) -> Window:
    """Extend a window that is one day or month until now: it marks the beginning of a stretch."""
    from dataclasses import replace

    return replace(meant, until_utc=None) if ".." not in meant.text and meant.run_ids is None else meant


def _minute(utc: str) -> str:
    return utc[:16].replace("T", " ") + " UTC"


def _bracketed(marks: list[str]) -> str:
    return f" [{', '.join(marks)}]" if marks else ""

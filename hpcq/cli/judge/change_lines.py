"""Print a change of level, and blocks of them: the same for `regressions`, `history` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hpcq import units

if TYPE_CHECKING:
    from hpcq.analysis.change import Explained
    from hpcq.analysis.change_blocks import Block
    from hpcq.store.time_windows import Window
    from hpcq.verdict.levels import Level
    from hpcq.verdict.node_sets import PairsOfSet


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


def print_block(block: Block, states: Mapping[int, str | None], *, everything: bool) -> None:
    """Print a block of changes; one change alone is printed whole. states: of each member's record, by the member's id()."""
    if len(block.members) == 1:
        print_change(block.members[0], states[id(block.members[0])])
        print_pairs(block.pairs)
        return
    marks = sorted({state for state in states.values() if state})
    if all(one.changed.level.came_back for one in block.members):
        marks.insert(0, "old level is back")
    sure = any(one.changed.level.sure for one in block.members)
    word = block.direction if sure else f"perhaps {block.direction}"
    count = f"{len(block.members)} of {units.count_of(block.judged_count, 'series')}"
    since = f", since {_minute(block.since_utc)}" if block.since_utc else ""
    click.echo(f"{word}: {block.kind} {_block_name(block)}: {count}{_change_of(block)}{since}{_bracketed(marks)}")
    if block.own_build:
        click.echo("    hpcq's own program changed there: this is no change of the machine until the old program shows it too")
    for words in block.causes[:_BLOCK_LINES]:
        click.echo(f"    differs         {words}")
    for words in block.events[:_BLOCK_LINES]:
        click.echo(f"    meanwhile       {words}")
    for words in block.symptoms[:_BLOCK_LINES]:
        click.echo(f"    evidence        {words}")
    if not block.causes and not block.events:
        click.echo("    hpcq knows of no difference between the two sides")
    print_pairs(block.pairs)
    shown = block.members if everything else block.members[:_BLOCK_SERIES]
    for one in shown:
        changed = one.changed
        click.echo(f"    {changed.row.label}: {_effect(changed.level, changed.metric.unit)}")
    if len(block.members) > len(shown):
        click.echo(f"    and {len(block.members) - len(shown)} more series; --all shows them")


def print_pairs(pairs: PairsOfSet | None) -> None:
    """Of a set of nodes, print what the pairs of its nodes say: the test alone accuses none of them."""
    if pairs is not None:
        click.echo(f"    its pairs       {pairs.words}")


_BLOCK_LINES = 4
_BLOCK_SERIES = 2


def block_json(block: Block) -> dict[str, Any]:
    """For --json: the thing, the moment, how many of its series, and what differs; series by number."""
    ratios = block.ratios
    return {
        **{name: getattr(block, name) for name in ("kind", "cluster", "name", "direction", "since_utc", "judged_count")},
        "ratio": _median(ratios) if ratios else None,
        **{name: getattr(block, name) for name in ("causes", "events", "symptoms", "own_build")},
        "pairs": None if block.pairs is None else pairs_json(block.pairs),
        "series_ids": [one.changed.row.series_id for one in block.members],
    }


def pairs_json(pairs: PairsOfSet) -> dict[str, Any]:
    """What the pairs of a set of nodes say, for --json."""
    return {
        "judged_count": len(pairs.judged),
        **{name: [list(pair) for pair in getattr(pairs, name)] for name in ("slow", "earlier")},
        "without_pair": list(pairs.without_pair),
        "words": pairs.words,
    }


def _block_name(block: Block) -> str:
    return block.name if block.kind == "cluster" else f"{block.cluster}/{block.name}"


def _change_of(block: Block) -> str:
    """`, -10.3 % (-12.1 to -9.8 %)`: the median over the series, and the range."""
    ratios = block.ratios
    if not ratios:
        return ""
    low, middle, high = (100 * (one - 1) for one in (ratios[0], _median(ratios), ratios[-1]))
    return f", {middle:+.1f} % ({low:+.1f} to {high:+.1f} %)"


def _median(ordered: list[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


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

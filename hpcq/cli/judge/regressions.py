"""`hpcq regressions`: which series got worse, since when, by how much, and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.filters import chosen, filter_options
from hpcq.cli.judge.change_lines import block_json, print_block, whole_stretch
from hpcq.cli.options import database_option, json_option
from hpcq.cli.rows import print_json
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.analysis.change import Explained, Judged
    from hpcq.store.history import SeriesRow
    from hpcq.verdict.levels import Level
    from hpcq.verdict.words import Tally

#: To know the old level, a search reads this much history before the stretch in question.
_LOOK_BACK_DAYS = 90
_SHOWN = 20
_COUNTS = ("series_count", "judged_count", "too_few_count", "disturbed_count", "empty_count")


@click.command()
@click.option("--since", default="30d", show_default=True, help="Where the stretch in question begins: 30d, 2026-11-20, a run.")
@click.option("--against", help="Compare with this stretch (90d..30d, baseline:NAME) instead of searching for change points.")
@click.option("--all", "everything", is_flag=True, help="Every series, and what got better, was repaired since, or is unclear.")
@click.option("--record", is_flag=True, help="Record the changes found; hpcq changes lists them.")
@filter_options
@database_option
@json_option
def regressions(  # noqa: PLR0917 - Click passes by name
    since: str,
    against: str | None,
    everything: bool,
    record: bool,
    filters: dict[str, Any],
    database: Path,
    as_json: bool,
) -> int:
    """Say which series got worse, since when, by how much, and what differs.

    Changes with one moment and one node, link, leaf or cluster in common are one block, with what differs since then.
    Without --against it searches each series for changes of its level since then; with it, it holds the stretch since then
    against another one. A series that was measured before and now only fails is `gone`. Exit code 3 when something got worse
    or is gone, 4 when nothing was judged, or a series is unclear, has too few points, or was planned and not measured.

    \b
    Example: hpcq regressions --since 30d --against 90d..30d --node n2
    """
    from hpcq.analysis.change import alarms, is_unclear, tally_of
    from hpcq.analysis.change_blocks import blocks_of
    from hpcq.analysis.changed import explained
    from hpcq.analysis.recorded import known_states, record_changes
    from hpcq.store.database import reading
    from hpcq.store.read.known import node_groups

    with reading(database) as connection:
        judged, rows = _judge(connection, filters, since, against)
        chosen_ones = sorted((one for one in judged.changes if _is_told(one.level, everything)), key=_severity)
        told = [explained(connection, one) for one in chosen_ones]
        states = known_states(connection, chosen_ones)
        blocks = blocks_of(told, [row for row in rows if row.series_id in judged.judged_ids], node_groups(connection))
    if record:
        record_changes(database, [one for one in told if one.changed.level.sure])
    unclear = {one.row.series_id for one in judged.changes if is_unclear(one.level)}
    worse = [one.changed for one, state in zip(told, states, strict=True) if alarms(one, state)]
    tally = tally_of(judged, worse, unclear)
    if as_json:
        counts = {name: getattr(judged, name) for name in _COUNTS}
        print_json(
            {
                "since": since,
                "against": against,
                "judged": tally.to_json(),
                **counts,
                "inconclusive": len(unclear),
                "blocks": [block_json(one) for one in blocks],
                "changes": [{**one.to_json(), "state": state} for one, state in zip(told, states, strict=True)],
            }
        )
        return tally.exit_code
    click.echo(_first_line(tally, told, judged, since), err=True)
    shown = blocks if everything else blocks[:_SHOWN]
    by_series = {id(one): state for one, state in zip(told, states, strict=True)}
    for block in shown:
        print_block(block, {id(one): by_series[id(one)] for one in block.members}, everything=everything)
    if everything:
        _print_unclear(judged)
    if len(blocks) > len(shown):
        click.echo(f"and {len(blocks) - len(shown)} more; --all or --json has them all")
    return tally.exit_code


def _judge(connection: Any, filters: dict[str, Any], since: str, against: str | None) -> tuple[Judged, Sequence[SeriesRow]]:
    """What was found, and in which series."""
    import datetime as dt

    from hpcq.analysis.changed import changed, searched
    from hpcq.store.time_windows import Window, moment, window

    found = chosen(connection, filters)
    if against is not None:
        meant = whole_stretch(window(connection, since))
        return changed(connection, found.rows, found.metrics, meant, window(connection, against), facts=found.facts), found.rows
    begin = moment(connection, since)
    try:
        earliest = dt.datetime.fromisoformat(begin if len(begin) >= len("2026-11-20") else f"{begin}-01-01"[:10])
        look_back = (earliest - dt.timedelta(days=_LOOK_BACK_DAYS)).strftime("%Y-%m-%d")
    except (ValueError, OverflowError):
        look_back = ""
    until = window(connection, since).until_utc if ".." in since else None
    history = Window(since, from_utc=look_back, until_utc=until)
    return searched(connection, found.rows, found.metrics, begin, history, facts=found.facts), found.rows


def _is_told(level: Level, everything: bool) -> bool:
    if level.direction == "same":
        return False
    return everything or (level.sure and not level.came_back and level.direction != "better")


def _severity(one: Any) -> tuple[bool, bool, bool, float]:
    level = one.level
    size = abs((level.ratio or 1.0) - 1.0)
    return not level.sure, level.direction == "better", level.direction != "gone", -size


def _print_unclear(judged: Judged) -> None:
    """With --all, print the series that stay unclear, with the reason and what would settle it."""
    for one in judged.changes:
        level = one.level
        if level.direction == "same" and level.verdict.value == "inconclusive":
            counts = f"{level.before_count} points before, {level.after_count} after"
            click.echo(f"unclear: {one.row.label}, {one.metric.name}: {counts}: {level.reason}")
    lists = (
        ("too few points", judged.too_few),
        ("measured lately only beside other work", judged.disturbed),
        ("planned, not measured", judged.missing),
        ("nothing to compare", judged.idle),
    )
    for words, rows in lists:
        for row in rows:
            click.echo(f"{words}: {row.label}")


def _first_line(tally: Tally, told: list[Explained], judged: Judged, since: str) -> str:
    """How much was judged, then the outcome; `none got worse` only where every series passed."""
    counts = Counter(one.changed.level.direction for one in told if one.changed.level.sure)
    words = ", ".join(_SAID[word].format(count=count, s="" if count == 1 else "s") for word, count in counts.items())
    empty_count = judged.empty_count - judged.one_sided_count
    left_out = [
        f"{judged.too_few_count} with too few points" if judged.too_few_count else "",
        f"{judged.disturbed_count} measured lately only beside other work" if judged.disturbed_count else "",
        f"{judged.one_sided_count} with results in one stretch only" if judged.one_sided_count else "",
        f"{empty_count} without results" if empty_count else "",
    ]
    rest = ", ".join(one for one in left_out if one)
    passed = tally.exit_code is Exit.OK
    outcome = words or ("none got worse" if passed else "")
    listed = "--all lists what is open" if tally.exit_code is Exit.INCOMPLETE else ""
    tail = "; ".join(one for one in (outcome, rest, listed) if one)
    return f"since {since}: {tally.first_line('series', 'series')}" + (f"; {tail}" if tail else "")


_SAID = {
    "gone": "{count} gone",
    "worse": "{count} change{s} for the worse",
    "better": "{count} change{s} for the better",
    "changed": "{count} change{s}",
}

"""`hpcq detect`: the statistics alone, on series of any CSV."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import NUMBER, json_option
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.units import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcq.cli.csv_input import SeriesTable
    from hpcq.statistics import Change, Comparison
    from hpcq.verdict.words import Verdict

_SHOWN = 12
#: A search sees a level of five values, so with fewer than twice as many it could not have seen any change.
_SEARCHED_MIN = 10


@click.command()
@click.argument("file")
@click.option("--boundary", type=NUMBER, help="Compare the first N rows with the rest instead of searching.")
@click.option(
    "--better",
    type=click.Choice([one.value for one in Better]),
    default=Better.HIGHER.value,
    show_default=True,
    help="Which direction is good; none: every change counts.",
)
@click.option(
    "--minimum-effect-ratio",
    type=click.FloatRange(min=0, max=1),
    help="Smallest change of the median that matters.  [default: 0.03, with --boundary 0.02]",
)
@json_option
def detect(file: str, boundary: int | None, better: str, minimum_effect_ratio: float | None, as_json: bool) -> int:
    """Find when the series in a CSV changed, or whether they got worse at a known boundary.

    FILE has one series per column, in time order, with or without a header; - is standard input. Empty cells are missing
    values. The first line says how many series were judged. A search needs ten values of a series. Exit code 3 when a series
    got worse, 4 when it cannot be told.

    \b
    Example: hpcq detect nightly.csv
             hpcq detect --boundary 30 --better lower latency.csv
    """
    from hpcq.cli.csv_input import read_series

    table = read_series(file)
    direction = Better(better)
    if boundary is None:
        return _print_changes(table, direction, minimum_effect_ratio, as_json)
    if boundary >= len(table.lines):
        raise UserError(
            f"{table.file}: --boundary: {boundary}: 1..{len(table.lines) - 1}, the file has {len(table.lines)} rows"
        )
    return _print_comparisons(table, boundary, direction, minimum_effect_ratio, as_json)


def _print_changes(table: SeriesTable, better: Better, minimum_effect_ratio: float | None, as_json: bool) -> int:
    from hpcq.statistics import find_changes
    from hpcq.statistics.changes import MINIMUM_EFFECT_RATIO
    from hpcq.verdict.words import Tally, Verdict, too_little

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    found = find_changes(list(table.series.values()), minimum_effect_ratio=minimum)
    verdicts = [_searched(values, changes, better) for values, changes in zip(table.series.values(), found, strict=True)]
    tally = Tally.of(verdicts)
    if as_json:
        series = [
            {"name": name, "verdict": verdict.value, "changes": [_change_json(change) for change in changes]}
            for name, verdict, changes in zip(table.series, verdicts, found, strict=True)
        ]
        click.echo(json.dumps({"judged": tally.to_json(), "series": series}))
        return tally.exit_code
    click.echo(tally.first_line("series", "series"))
    for (name, values), changes, verdict in zip(table.series.items(), found, verdicts, strict=True):
        count = sum(not math.isnan(value) for value in values)
        if verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_COVERED}:
            click.echo(f"{name}: {too_little(count_of(count, 'value'), f'a search needs {_SEARCHED_MIN}')}")
            continue
        if not changes and len(table.series) > _SHOWN:
            continue
        click.echo(f"{name}: {count_of(count, 'value')}, {count_of(len(changes), 'change') if changes else 'no change'}")
        for change in changes:
            mark = "worse" if _is_worse(change.before, change.after, better) else "better"
            mark = "changed" if better is Better.NONE else mark
            effect = _effect(change.before, change.after, change.low, change.high)
            click.echo(f"  {mark} since index {change.index} (line {table.lines[change.index]}): {effect}")
    changed = sum(bool(changes) for changes in found)
    click.echo(f"{changed} of {len(found)} series changed by {minimum:.3g} or more of the level before.")
    if changed:
        click.echo("A change is where the level before and the level after differ for good; the range in brackets holds the")
        click.echo("true size in 95 of 100 cases. Runs of fewer than five values at the end are not judged: try --boundary.")
    return tally.exit_code


def _searched(values: Sequence[float], changes: Sequence[Change], better: Better) -> Verdict:
    """The verdict on one searched series. A column without any value is not covered."""
    from hpcq.verdict.words import Verdict

    count = sum(not math.isnan(value) for value in values)
    if any(_is_worse(change.before, change.after, better) for change in changes):
        return Verdict.DEGRADED
    if count < _SEARCHED_MIN:
        return Verdict.INCONCLUSIVE if count else Verdict.NOT_COVERED
    return Verdict.PASS


def _print_comparisons(
    table: SeriesTable, boundary: int, better: Better, minimum_effect_ratio: float | None, as_json: bool
) -> int:
    from hpcq.statistics import ComparisonVerdict, compare_many
    from hpcq.statistics.smallest_effect import MINIMUM_EFFECT_RATIO
    from hpcq.verdict.words import Tally, Verdict

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    pairs = [(values[:boundary], values[boundary:]) for values in table.series.values()]
    found = compare_many(pairs, better=better, minimum_effect_ratio=minimum)
    tally = Tally.of(Verdict(one.verdict.value) for one in found)
    if as_json:
        series = [_comparison_json(name, one, boundary) for name, one in zip(table.series, found, strict=True)]
        click.echo(json.dumps({"judged": tally.to_json(), "series": series}))
        return tally.exit_code
    click.echo(tally.first_line("series", "series"))
    for name, one in zip(table.series, found, strict=True):
        if one.verdict is ComparisonVerdict.PASS and not one.improved and len(found) > _SHOWN:
            continue
        click.echo(f"{one.verdict.value:<12} {name}: {one.reason} ({one.before_count} values before, {one.after_count} after)")
        if one.shift is not None:
            shift = one.shift
            click.echo(f"{'':<12} {_effect(shift.before, shift.after, shift.low, shift.high)}")
    if any(one.improved for one in found):
        other = "lower" if better is Better.HIGHER else "higher"
        click.echo(f"Some moved clearly in the good direction; if {other} is better for them, say --better {other}.")
    click.echo(
        "degraded: fewer than 1 in 100 unchanged series would look so much worse, and the move is large enough to matter."
    )
    return tally.exit_code


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "index": change.index,
        "before": change.before,
        "after": change.after,
        "effect_ratio": change.effect_ratio,
        "low": change.low,
        "high": change.high,
    }


def _comparison_json(name: str, one: Comparison, boundary: int) -> dict[str, Any]:
    shift = one.shift
    effect = {
        "before": shift.before if shift else None,
        "after": shift.after if shift else None,
        "effect_ratio": shift.ratio if shift else None,
        "low": shift.low if shift else None,
        "high": shift.high if shift else None,
    }
    moved = one.improved or one.verdict.value == "degraded"
    return {
        "name": name,
        "verdict": one.verdict.value,
        "reason": one.reason,
        "improved": one.improved,
        "p_value": one.p_value,
        **effect,
        "before_count": one.before_count,
        "after_count": one.after_count,
        "changes": [{"index": boundary, **effect}] if moved else [],
    }


def _is_worse(before: float, after: float, better: Better) -> bool:
    return after != before if better is Better.NONE else (after < before) == (better is Better.HIGHER)


def _effect(before: float, after: float, low: float | None, high: float | None) -> str:
    """`10.2 % lower (8.1 to 11.9 % lower), median 9.41e9 -> 8.45e9`."""
    medians = f"median {before:.4g} -> {after:.4g}"
    if before <= 0 or low is None:
        return medians
    change = 100 * (after / before - 1)
    ends = sorted((100 * (low - 1), 100 * (high - 1) if high is not None else math.inf))
    return f"{_signed(change)} (95 % range {ends[0]:+.1f} to {ends[1]:+.1f} %), {medians}"


def _signed(percent: float) -> str:
    return f"{abs(percent):.1f} % {'lower' if percent < 0 else 'higher'}"

"""`hpcq detect`: the judge of one series, on any CSV."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import NUMBER, json_option
from hpcq.cli.output import print_words, says_that_it_works
from hpcq.errors import UserError
from hpcq.kernels import Better
from hpcq.units import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcq.cli.csv_input import Series, SeriesTable
    from hpcq.judge.series import Change, Course
    from hpcq.statistics import Comparison
    from hpcq.verdict.words import Verdict

_SHOWN = 12
_GOOD = {Better.HIGHER: "higher is better", Better.LOWER: "lower is better", Better.NONE: "any change counts"}


@click.command()
@click.argument("file")
@click.option(
    "--time",
    metavar="COLUMN",
    help="The column of times: rows are sorted by it, changes have dates. Default: one called time, date, timestamp or utc, "
    "or the only one with dates.",
)
@click.option("--value", "values", metavar="COLUMN", multiple=True, help="A column of values; repeatable. Default: all others.")
@click.option("--by", metavar="COLUMN", multiple=True, help="A column that tells series apart, such as the node; repeatable.")
@click.option("--boundary", type=NUMBER, help="Compare the first N values of a series with the rest instead of searching.")
@click.option(
    "--better",
    type=click.Choice([one.value for one in Better]),
    help="Which direction is good; none: every change counts. Needed where the names of the columns do not say it.",
)
@click.option(
    "--minimum-effect-ratio",
    type=click.FloatRange(min=0, max=1),
    help="Smallest change of the median that matters.  [default: 0.03, with --boundary 0.02]",
)
@json_option
@says_that_it_works
def detect(
    *,
    file: str,
    time: str | None,
    values: tuple[str, ...],
    by: tuple[str, ...],
    boundary: int | None,
    better: str | None,
    minimum_effect_ratio: float | None,
    as_json: bool,
) -> int:
    """Find when the series in a CSV changed or drifted, or whether they got worse at a known boundary.

    FILE has one series per column, in time order, with or without a header; - is standard input. With --by it has one value
    per row, and the columns named there say to which series it belongs. Empty cells are missing values. The names tell
    which direction is good: those of hpcq's metrics, words such as latency, time, loss or errors, and units such as Gbit/s.
    The first line says how many series were judged. A search needs at least ten values per series. Exit code 3 when a
    series is worse than it was, 4 if undecided.

    \b
    Example: hpcq detect --better higher nightly.csv
             hpcq detect --time date --value round_trip_p50_ns --by node --by partner round_trips.csv
             hpcq detect --boundary 30 --better lower latency.csv
    """
    from hpcq.cli.csv_input import read_series

    table = read_series(file, time, values, by)
    directions = _directions(table, better)
    if boundary is None:
        return _print_courses(table, directions, minimum_effect_ratio, as_json)
    longest = max(len(one.values) for one in table.series)
    if boundary >= longest:
        raise UserError(f"{table.file}: --boundary: {boundary}: 1..{longest - 1}, the longest series has {longest} rows")
    return _print_comparisons(table, boundary, directions, minimum_effect_ratio, as_json)


def _directions(table: SeriesTable, better: str | None) -> list[Better]:
    """Which direction is good for each series."""
    if better is not None:
        return [Better(better)] * len(table.series)
    from hpcq.judge.directions import direction_of
    from hpcq.kernels import own_kernels

    metrics = {metric.name: metric.better for kernel in own_kernels().values() for metric in kernel.metrics}
    found: list[Better] = []
    for one in table.series:
        direction = direction_of(one.column, metrics) or direction_of(one.name, metrics)
        if direction is None:
            raise UserError(
                f"{table.file}: --better: nothing: higher, lower or none, since {one.name!r} does not tell which is good",
                "names such as throughput_bps, latency, run time or errors tell it",
            )
        found.append(direction)
    return found


def _print_courses(table: SeriesTable, directions: Sequence[Better], minimum_effect_ratio: float | None, as_json: bool) -> int:
    from hpcq.judge.series import MINIMUM_EFFECT_RATIO, judge_series, verdict_of
    from hpcq.verdict.words import Tally, Verdict

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    courses = judge_series([one.values for one in table.series], minimum_effect_ratio=minimum)
    verdicts: list[Verdict] = []
    reasons: list[str] = []
    for course, better in zip(courses, directions, strict=True):
        word, reason = verdict_of(course, better, minimum)
        verdicts.append(Verdict(word.value) if course.count else Verdict.NOT_COVERED)
        reasons.append(reason)
    tally = Tally.of(verdicts)
    if as_json:
        series = [
            {
                "name": one.name,
                "better": better.value,
                "count": course.count,
                "verdict": verdict.value,
                "reason": reason,
                "changes": [_change_json(one, change) for change in course.changes],
                "cuts": list(course.cuts),
            }
            for one, better, course, verdict, reason in zip(table.series, directions, courses, verdicts, reasons, strict=True)
        ]
        click.echo(json.dumps({"judged": tally.to_json(), "series": series}))
        return tally.exit_code
    print_words(tally.first_line("series", "series"))
    for one, better, course, verdict, reason in zip(table.series, directions, courses, verdicts, reasons, strict=True):
        _print_course(one, better, course, verdict, reason, brief=len(table.series) > _SHOWN)
    changed = sum(bool(course.changes) for course in courses)
    print_words(f"{changed} of {len(courses)} series changed by {minimum:.3g} or more of the level before.")
    if changed:
        print_words("The range in brackets holds the true size in 95 of 100 cases. Three newest values make a level; fewer are")
        print_words("told only when they lie far off.")
    return tally.exit_code


def _print_course(one: Series, better: Better, course: Course, verdict: Verdict, reason: str, *, brief: bool) -> None:
    from hpcq.judge.series import JUDGED_POINTS_MIN
    from hpcq.verdict.words import Verdict, too_little

    if not course.changes and course.count < JUDGED_POINTS_MIN:
        print_words(f"{one.name}: {too_little(count_of(course.count, 'value'), f'a search needs {JUDGED_POINTS_MIN}')}")
        return
    if verdict is Verdict.PASS and not course.changes and brief:
        return
    count = count_of(len(course.changes), "change") if course.changes else "no change"
    print_words(f"{one.name}: {count_of(course.count, 'value')}, {_GOOD[better]}, {count}")
    for change in course.changes:
        worse = change.is_worse(better)
        mark = "changed" if better is Better.NONE else "worse" if worse else "better"
        print_words(f"  {mark} {_what(one, change)}")
    if verdict is Verdict.INCONCLUSIVE:
        newest = course.newest
        sides = (newest.before, newest.after) if newest else (course.first_third, course.last_third)
        print_words(f"  {reason} ({sides[0]:.4g} -> {sides[1]:.4g})")


def _what(one: Series, change: Change) -> str:
    """`since 2026-11-24 (line 42): 10.2 % lower (95 % range ...), median ...`, or how a drift went."""
    ended = "" if change.ended is None else f"; the old level is back since {_place(one, change.ended)}"
    if change.kind == "step":
        return f"since {_place(one, change.index)}: {_effect(change.before, change.after, change.low, change.high)}{ended}"
    count = sum(not math.isnan(value) for value in one.values[change.index : change.end])
    stretch = f"over {count} values from {_place(one, change.index)} to {_place(one, change.end - 1)}"
    if change.effect_ratio is None or change.low is None or change.high is None:
        return f"drifts {stretch}: {change.before:.4g} -> {change.after:.4g}{ended}"
    ends = f"95 % range {100 * (change.low - 1):+.1f} to {100 * (change.high - 1):+.1f} %"
    moved = f"{change.before:.4g} -> {change.after:.4g}"
    return f"drifts by {100 * (change.effect_ratio - 1):+.1f} % {stretch} ({ends}), {moved}{ended}"


def _place(one: Series, index: int) -> str:
    line = f"line {one.lines[index]}"
    if not one.times:
        return f"index {index} ({line})"
    whole_days = all(time.hour == time.minute == time.second == 0 for time in one.times)
    return f"{one.times[index]:{'%Y-%m-%d' if whole_days else '%Y-%m-%dT%H:%M:%SZ'}} ({line})"


def _print_comparisons(
    table: SeriesTable, boundary: int, directions: Sequence[Better], minimum_effect_ratio: float | None, as_json: bool
) -> int:
    from hpcq.statistics import ComparisonVerdict, compare_many
    from hpcq.statistics.comparison import MINIMUM_EFFECT_RATIO
    from hpcq.verdict.words import Tally, Verdict

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    pairs = [(one.values[:boundary], one.values[boundary:]) for one in table.series]
    found = compare_many(pairs, better=directions, minimum_effect_ratio=minimum)
    tally = Tally.of(Verdict(one.verdict.value) for one in found)
    if as_json:
        rows = [
            {"name": series.name, "better": better.value, **_comparison_json(one, boundary)}
            for series, better, one in zip(table.series, directions, found, strict=True)
        ]
        click.echo(json.dumps({"judged": tally.to_json(), "series": rows}))
        return tally.exit_code
    print_words(tally.first_line("series", "series"))
    for series, better, one in zip(table.series, directions, found, strict=True):
        if one.verdict is ComparisonVerdict.PASS and not one.improved and len(found) > _SHOWN:
            continue
        counts = f"{one.before_count} values before, {one.after_count} after, {_GOOD[better]}"
        print_words(f"{one.verdict.value:<12} {series.name}: {one.reason} ({counts})")
        if one.shift is not None:
            shift = one.shift
            print_words(f"{'':<12} {_effect(shift.before, shift.after, shift.low, shift.high)}")
    print_words(
        "degraded: fewer than 1 in 100 unchanged series would look so much worse, and the move is large enough to matter."
    )
    return tally.exit_code


def _change_json(one: Series, change: Change) -> dict[str, Any]:
    times = {"time_utc": one.times[change.index].strftime("%Y-%m-%dT%H:%M:%SZ")} if one.times else {}
    return {
        "kind": change.kind,
        "index": change.index,
        "end": change.end,
        "line": one.lines[change.index],
        **times,
        "before": change.before,
        "after": change.after,
        "effect_ratio": change.effect_ratio,
        "low": change.low,
        "high": change.high,
        "ended": change.ended,
    }


def _comparison_json(one: Comparison, boundary: int) -> dict[str, Any]:
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
        "verdict": one.verdict.value,
        "reason": one.reason,
        "improved": one.improved,
        "p_value": one.p_value,
        **effect,
        "before_count": one.before_count,
        "after_count": one.after_count,
        "changes": [{"index": boundary, **effect}] if moved else [],
    }


def _effect(before: float, after: float, low: float | None, high: float | None) -> str:
    """`10.2 % lower (95 % range -11.9 to -8.1 %), median 9.41e9 -> 8.45e9`."""
    medians = f"median {before:.4g} -> {after:.4g}"
    if before <= 0 or low is None:
        return medians
    change = 100 * (after / before - 1)
    ends = sorted((100 * (low - 1), 100 * (high - 1) if high is not None else math.inf))
    way = "lower" if change < 0 else "higher"
    return f"{abs(change):.1f} % {way} (95 % range {ends[0]:+.1f} to {ends[1]:+.1f} %), {medians}"

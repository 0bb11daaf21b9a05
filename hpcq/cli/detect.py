"""The statistics by themselves, on anybody's CSV: `hpcq detect` for series, `hpcq blame` for results of pairs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import json_option
from hpcq.errors import Exit, UserError
from hpcq.kernels import Better

if TYPE_CHECKING:
    from hpcq.cli.tables import SeriesTable
    from hpcq.localisation import Blame, Culprit
    from hpcq.statistics import Change, Comparison

_SHOWN = 12


@click.command()
@click.argument("file")
@click.option("--boundary", type=click.IntRange(min=1), help="Compare the first N rows with the rest instead of searching.")
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
    """Say when the series in a CSV changed, or whether they got worse at a known boundary.

    FILE has one series a column, in time order, with or without a header; - is standard input. Empty cells are missing
    values. Exit code 3 when a series got worse, 4 when it cannot be told.

    \b
    Example: hpcq detect nightly.csv
             hpcq detect --boundary 30 --better lower latency.csv
    """
    from hpcq.cli.tables import read_series

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

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    found = find_changes(list(table.series.values()), minimum_effect_ratio=minimum)
    worse = any(_is_worse(change.before, change.after, better) for changes in found for change in changes)
    code = Exit.DEGRADED if worse else Exit.OK
    if as_json:
        series = [
            {"name": name, "changes": [_change_json(change) for change in changes]}
            for name, changes in zip(table.series, found, strict=True)
        ]
        click.echo(json.dumps({"series": series}))
        return code
    for (name, values), changes in zip(table.series.items(), found, strict=True):
        if not changes and len(table.series) > _SHOWN:
            continue
        count = sum(not math.isnan(value) for value in values)
        click.echo(f"{name}: {_plural(count, 'value')}, {_plural(len(changes), 'change') if changes else 'no change'}")
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
    return code


def _print_comparisons(
    table: SeriesTable, boundary: int, better: Better, minimum_effect_ratio: float | None, as_json: bool
) -> int:
    from hpcq.statistics import Outcome, compare_many
    from hpcq.statistics.boundary import MINIMUM_EFFECT_RATIO

    minimum = MINIMUM_EFFECT_RATIO if minimum_effect_ratio is None else minimum_effect_ratio
    pairs = [(values[:boundary], values[boundary:]) for values in table.series.values()]
    found = compare_many(pairs, better=better, minimum_effect_ratio=minimum)
    outcomes = [one.outcome for one in found]
    code = Exit.INCOMPLETE if Outcome.INCONCLUSIVE in outcomes else Exit.OK
    code = Exit.DEGRADED if Outcome.DEGRADED in outcomes else code
    if as_json:
        series = [_comparison_json(name, one, boundary) for name, one in zip(table.series, found, strict=True)]
        click.echo(json.dumps({"series": series}))
        return code
    for name, one in zip(table.series, found, strict=True):
        if one.outcome is Outcome.PASS and not one.improved and len(found) > _SHOWN:
            continue
        click.echo(f"{one.outcome.value:<12} {name}: {one.reason} ({one.before_count} values before, {one.after_count} after)")
        if one.shift is not None:
            shift = one.shift
            click.echo(f"{'':<12} {_effect(shift.before, shift.after, shift.low, shift.high)}")
    tally = ", ".join(f"{outcomes.count(one)} {one.value}" for one in Outcome if one in outcomes)
    click.echo(f"{len(found)} series: {tally}.")
    if any(one.improved for one in found):
        other = "lower" if better is Better.HIGHER else "higher"
        click.echo(f"Some moved clearly in the good direction; if {other} is better for them, say --better {other}.")
    click.echo(
        "degraded: fewer than 1 in 100 unchanged series would look so much worse, and the move is large enough to matter."
    )
    return code


@click.command()
@click.option(
    "--pairs", "pairs_file", required=True, metavar="FILE", help="CSV: round,node_a,node_b,value; - is standard input."
)
@click.option("--groups", "groups_file", metavar="FILE", help="CSV: node,group (leaf switch, rack).")
@click.option(
    "--better",
    type=click.Choice([Better.HIGHER.value, Better.LOWER.value]),
    default=Better.HIGHER.value,
    show_default=True,
    help="Whether the values are rates or times.",
)
@click.option(
    "--minimum-effect-ratio",
    type=click.FloatRange(min=0, max=1, max_open=True),
    default=0.03,
    show_default=True,
    help="Smallest slowdown worth naming.",
)
@json_option
def blame(pairs_file: str, groups_file: str | None, better: str, minimum_effect_ratio: float, as_json: bool) -> int:
    """Name the slow node, link or group in a table of pair results, or the pairs that would tell.

    Results of one round ran at the same time. A link is only named after three slow results. Exit code 3 when something is
    named, 4 when the table leaves it open.

    \b
    Example: hpcq blame --pairs pairs.csv --groups leaves.csv
    """
    from hpcq.cli.tables import read_groups, read_pairs
    from hpcq.localisation import PairTable
    from hpcq.localisation import blame as find_blame

    groups = read_groups(groups_file) if groups_file else None
    table = PairTable.from_rows(read_pairs(pairs_file), groups)
    found = find_blame(table, higher_is_better=better == Better.HIGHER, minimum_effect_ratio=minimum_effect_ratio)
    if as_json:
        click.echo(json.dumps(_blame_json(found)))
    else:
        _print_blame(found)
    if found.nodes or found.links or found.groups or found.together:
        return Exit.DEGRADED
    return Exit.INCOMPLETE if found.undecided else Exit.OK


def _print_blame(found: Blame) -> None:
    if found.healthy_value is not None and found.noise_ratio is not None:
        click.echo(
            f"{_plural(found.result_count, 'result')}; a healthy pair gets {found.healthy_value:.4g}, "
            f"give or take {100 * found.noise_ratio:.2g} %."
        )
    for culprit in (*found.groups, *found.nodes, *found.links):
        click.echo(_culprit_line(culprit))
    for culprit in found.together:
        click.echo(f"{_culprit_line(culprit)}, but only when many pairs run at once: load, not a broken part")
    if not (found.groups or found.nodes or found.links or found.together):
        click.echo("Nobody is slow." if not found.undecided else "Nobody is named.")
    if found.noise_count:
        click.echo(
            f"noise  {_plural(found.noise_count, 'slow result')} that nobody in particular explains: passing traffic, say"
        )
    for question in found.open_questions:
        click.echo(f"open   {question}")
    if found.next_pairs:
        use = "These pairs would settle it" if found.undecided else "To be sure about the noise, run these pairs again"
        click.echo(f"{use}:")
        for a, b in found.next_pairs[: 4 * _SHOWN]:
            click.echo(f"  {a} {b}")
        if len(found.next_pairs) > 4 * _SHOWN:
            click.echo(f"  and {len(found.next_pairs) - 4 * _SHOWN} more; --json has them all")


def _culprit_line(culprit: Culprit) -> str:
    slower, most, least = (100 * (1 - ratio) for ratio in (culprit.speed_ratio, culprit.low, culprit.high))
    name = " - ".join(culprit.names) or "everybody"
    counts = f"slow in {culprit.slow_count} of {_plural(culprit.result_count, 'result')}"
    return (
        f"{culprit.kind.value:<6} {name}: {slower:.1f} % slower than healthy ({max(least, 0.0):.1f} to {most:.1f} %), {counts}"
    )


def _blame_json(found: Blame) -> dict[str, Any]:
    culprits = (*found.nodes, *found.links, *found.groups, *found.together)
    return {
        "nodes": [one.names[0] for one in found.nodes],
        "links": [list(one.names) for one in found.links],
        "groups": [one.names[0] for one in found.groups],
        "together": [{"kind": one.kind.value, "names": list(one.names)} for one in found.together],
        "undecided": found.undecided,
        "next_pairs": [list(pair) for pair in found.next_pairs],
        "open_questions": list(found.open_questions),
        "noise_count": found.noise_count,
        "healthy_value": found.healthy_value,
        "noise_ratio": found.noise_ratio,
        "evidence": [
            {
                "kind": one.kind.value,
                "names": list(one.names),
                "speed_ratio": one.speed_ratio,
                "low": one.low,
                "high": one.high,
                "slow_count": one.slow_count,
                "result_count": one.result_count,
            }
            for one in culprits
        ],
    }


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
    moved = one.improved or one.outcome.value == "degraded"
    return {
        "name": name,
        "verdict": one.outcome.value,
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


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

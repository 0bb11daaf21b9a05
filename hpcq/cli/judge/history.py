"""Verbs that read the history: series, history, regressions, compare. They parse and print; store and verdict work."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.filters import chosen, filter_options
from hpcq.cli.options import database_option, json_option
from hpcq.cli.rows import Column, print_json, print_rows
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.analysis.changed import Changed, Explained
    from hpcq.store.history import Metric, Point, SeriesRow
    from hpcq.verdict.levels import Level

#: A search looks at this much before the stretch in question, to know the old level.
_LOOK_BACK_DAYS = 90
_SHOWN = 20
_SERIES = (
    Column("series_id", "series"),
    Column("cluster"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("message_bytes", "size"),
    Column("variant", wrap=True),
    Column("network"),
    Column("toolchain"),
    Column("result_count", "results"),
    Column("first_utc", "first"),
    Column("last_utc", "last"),
)
_POINT = (
    Column("started_utc", "when"),
    Column("run"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("n"),
    Column("note", wrap=True),
)
_COMPARED = (
    Column("verdict"),
    Column("kernel"),
    Column("client"),
    Column("server"),
    Column("message_bytes", "size"),
    Column("variant", wrap=True),
    Column("metric"),
    Column("a", unit_field="unit"),
    Column("b", unit_field="unit"),
    Column("change"),
    Column("n_a", "n a"),
    Column("n_b", "n b"),
)


@click.command()
@filter_options
@database_option
@json_option
def series(filters: dict[str, Any], database: Path, as_json: bool) -> int:
    """List the series: what may be compared over time.

    A series is one kernel with the same parameters between the same two nodes, over one network and with one toolchain.

    \b
    Example: hpcq series --node n2 --where message_bytes=64KiB
    """
    from hpcq.store.database import reading
    from hpcq.store.history import summary

    with reading(database) as connection:
        found = chosen(connection, filters)
        counts = summary(connection, found.rows, found.facts)
    rows = []
    for row in found.rows:
        count, first, last = counts[row.series_id]
        if found.facts and not count:
            continue
        names = {name: getattr(row, name) for name in row.__slots__}
        rows.append({**names, "result_count": count, "first_utc": first, "last_utc": last})
    print_rows(rows, _SERIES, as_json=as_json, empty="no series: nothing was measured yet")
    return Exit.OK


@click.command()
@click.argument("name", metavar="SERIES")
@click.option("--since", "stretch", help="Only this stretch: 30d, 2026-11, 90d..30d, a run.")
@click.option("--metric", help="This metric instead of the kernel's main one.")
@click.option("--last", type=click.IntRange(min=1), help="Only the newest N points.")
@database_option
@json_option
def history(  # noqa: PLR0917 - Click passes by name
    name: str, stretch: str | None, metric: str | None, last: int | None, database: Path, as_json: bool
) -> int:
    """Show one series over time, with its changes of level and what differs at each.

    SERIES is a number (hpcq series), or KERNEL/CLIENT/SERVER where that names only one. One row is one job: its median.

    \b
    Example: hpcq history tcp_stream/n1/n2 --since 90d
    """
    from hpcq.analysis.changed import explained, searched
    from hpcq.store.database import reading
    from hpcq.store.history import find_series, metrics_of, timeline
    from hpcq.store.time_windows import Window, window

    with reading(database) as connection:
        row = find_series(connection, name)
        metrics = metrics_of(connection, metric)
        if row.kernel not in metrics:
            raise UserError(f"{metric!r} is not a metric of {row.kernel}", f"hpcq kernels {row.kernel} lists them")
        meant = Window("all") if stretch is None else _stretch(window(connection, stretch))
        points = timeline(connection, row.series_id, metrics[row.kernel], meant)
        changes = [explained(connection, one) for one in searched(connection, [row], metrics, "", meant)]
    shown = points if last is None else points[-last:]
    if as_json:
        print_json(
            {"series": row, "metric": metrics[row.kernel], "points": shown, "changes": [one.to_json() for one in changes]}
        )
        return Exit.OK
    click.echo(f"series {row.series_id}: {row.label}, {metrics[row.kernel].name}", err=True)
    print_rows(_point_rows(shown, metrics[row.kernel], changes), _POINT, empty="nothing was measured in this stretch")
    for one in changes:
        _print_change(one)
    return Exit.OK


@click.command()
@click.option("--since", default="30d", show_default=True, help="Where the stretch in question begins: 30d, 2026-11-20, a run.")
@click.option("--against", help="Compare with this stretch (90d..30d, baseline:NAME) instead of searching for change points.")
@click.option("--all", "everything", is_flag=True, help="Also what got better, what was repaired since, and what is unclear.")
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

    Without --against it searches each series for changes of its level since then; with it, it holds the stretch since then
    against another one. Exit code 3 when something got worse, 4 when too little was measured to tell for any series.

    \b
    Example: hpcq regressions --since 30d --against 90d..30d --node n2
    """
    from hpcq.analysis.changed import explained
    from hpcq.store.annotations import state_by_change
    from hpcq.store.database import reading

    with reading(database) as connection:
        found, judged_count = _find(connection, filters, since, against)
        told = [explained(connection, one) for one in found if _is_told(one.level, everything)]
        states = state_by_change(connection)
    if record:
        from hpcq.analysis.record_changes import record_changes

        record_changes(database, [one for one in told if one.changed.level.sure])
    worse = [one for one in told if one.changed.level.sure and one.changed.level.direction != "better"]
    open_ones = [
        one for one in worse if not one.changed.level.came_back and _state(states, one.changed) not in {"expected", "false"}
    ]
    unclear = sum(one.level.verdict.value == "inconclusive" for one in found)
    code = Exit.DEGRADED if open_ones else Exit.INCOMPLETE if unclear and unclear == judged_count else Exit.OK
    if as_json:
        rows = [{**one.to_json(), "state": _state(states, one.changed)} for one in told]
        print_json({"since": since, "against": against, "series_count": judged_count, "inconclusive": unclear, "changes": rows})
        return code
    for one in sorted(told, key=_severity)[: None if everything else _SHOWN]:
        _print_change(one, _state(states, one.changed))
    if len(told) > _SHOWN and not everything:
        click.echo(f"and {len(told) - _SHOWN} more; --all or --json has them all")
    _print_tally(told, judged_count, unclear)
    return code


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--all", "everything", is_flag=True, help="Also the pairs that are the same.")
@filter_options
@database_option
@json_option
def compare(  # noqa: PLR0917 - Click passes by name
    a: str, b: str, everything: bool, filters: dict[str, Any], database: Path, as_json: bool
) -> int:
    """Compare two runs or stretches, pair by pair and parameter by parameter. B is judged against A.

    A and B are runs, campaigns (their last run), baseline:NAME, or stretches of time. Exit code 3 when something got worse, 4
    when too little was measured to tell.

    \b
    Example: hpcq compare baseline:good latest
             hpcq compare 90d..30d 30d --kernel tcp_stream
    """
    from hpcq.analysis.pairing import compare_windows
    from hpcq.store.database import reading
    from hpcq.store.time_windows import window

    with reading(database) as connection:
        found = chosen(connection, filters)
        windows = [window(connection, text) for text in (a, b)]
        compared = compare_windows(connection, found.rows, found.metrics, windows[0], windows[1], facts=found.facts)
    rows = [_compared_row(one.row, one.metric, one.level) for one in compared.both]
    verdicts = Counter(row["verdict"] for row in rows)
    code = Exit.DEGRADED if verdicts["worse"] else Exit.INCOMPLETE if verdicts["unclear"] or not rows else Exit.OK
    if as_json:
        print_json({"a": a, "b": b, "pairs": rows, "only_a": list(compared.only_a), "only_b": list(compared.only_b)})
        return code
    told = [row for row in rows if everything or row["verdict"] != "same"]
    order = ["worse", "unclear", "changed", "better", "same"]
    told.sort(key=lambda row: order.index(row["verdict"]))
    print_rows(told, _COMPARED, empty="no pair differs")
    tally = ", ".join(f"{verdicts[word]} {word}" for word in order if verdicts[word]) or "none in both"
    only = f"; only in A: {len(compared.only_a)}, only in B: {len(compared.only_b)}"
    click.echo(f"{len(rows)} tests of pairs in both: {tally}{only if compared.only_a or compared.only_b else ''}", err=True)
    return code


def _find(connection: Any, filters: dict[str, Any], since: str, against: str | None) -> tuple[list[Changed], int]:
    """What was found, and of how many series."""
    import datetime as dt

    from hpcq.analysis.changed import changed, searched
    from hpcq.store.time_windows import Window, moment, window

    found = chosen(connection, filters)
    if against is not None:
        meant = _stretch(window(connection, since))
        judged = changed(connection, found.rows, found.metrics, meant, window(connection, against), facts=found.facts)
        return judged, len(judged)
    begin = moment(connection, since)
    try:
        earliest = dt.datetime.fromisoformat(begin if len(begin) >= len("2026-11-20") else f"{begin}-01-01"[:10])
        look_back = (earliest - dt.timedelta(days=_LOOK_BACK_DAYS)).strftime("%Y-%m-%d")
    except (ValueError, OverflowError):
        look_back = ""
    levels = searched(connection, found.rows, found.metrics, begin, Window(since, from_utc=look_back), facts=found.facts)
    return levels, len(found.rows)


def _stretch(meant: Any) -> Any:
    """A day or month that begins a stretch goes on until now."""
    from dataclasses import replace

    return replace(meant, until_utc=None) if ".." not in meant.text and meant.run_ids is None else meant


def _is_told(level: Level, everything: bool) -> bool:
    if level.direction == "same":
        return False
    return everything or (level.sure and not level.came_back and level.direction != "better")


def _state(states: dict[tuple[int, str, str], str], one: Changed) -> str | None:
    return states.get((one.row.series_id, one.metric.name, one.at_utc))


def _severity(one: Explained) -> tuple[bool, bool, float]:
    level = one.changed.level
    size = abs((level.ratio or 1.0) - 1.0)
    return not level.sure, level.direction == "better", -size


def _print_change(one: Explained, state: str | None = None) -> None:
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
        click.echo("    nothing that hpcq knows of differs between the two sides")


def _effect(level: Level, unit: str) -> str:
    medians = f"{units.human(level.before, unit)} > {units.human(level.after, unit)}"
    if level.ratio is None:
        return medians
    change = f"{100 * (level.ratio - 1):+.1f} %"
    if level.low is None or level.high is None:
        return f"{medians}, {change}"
    return f"{medians}, {change} ({100 * (level.low - 1):+.1f} to {100 * (level.high - 1):+.1f} %)"


def _print_tally(told: list[Explained], judged_count: int, unclear: int) -> None:
    counts = Counter(one.changed.level.direction for one in told if one.changed.level.sure)
    words = ", ".join(
        f"{count} changes for the {word}" if word != "changed" else f"{count} changes" for word, count in counts.items()
    )
    tail = f"; {unclear} unclear (--all shows them): more runs would tell" if unclear else ""
    click.echo(f"{judged_count} series: {words or 'none got worse'}{tail}", err=True)


def _point_rows(points: list[Point], metric: Metric, changes: list[Explained]) -> list[dict[str, Any]]:
    marks: dict[str, list[str]] = {}
    for one in changes:
        marks.setdefault(one.changed.at_utc, []).append(f"<- {one.changed.level.direction} from here")
    rows = []
    for point in points:
        notes = marks.get(point.started_utc, []) + (["disturbed"] if point.disturbed else [])
        rows.append({name: getattr(point, name) for name in point.__slots__} | {"unit": metric.unit, "note": ", ".join(notes)})
    return rows


def _compared_row(row: SeriesRow, metric: Metric, level: Level) -> dict[str, Any]:
    verdict = level.direction if level.sure else "same" if level.verdict.value == "pass" else "unclear"
    change = "" if level.ratio is None else f"{100 * (level.ratio - 1):+.1f} %"
    names = {
        name: getattr(row, name) for name in ("kernel", "cluster", "client", "server", "message_bytes", "variant", "parameters")
    }
    numbers = {"a": level.before, "b": level.after} if level.before == level.before else {"a": None, "b": None}
    rest = {"ratio": level.ratio, "low": level.low, "high": level.high, "change": change}
    counts = {"n_a": level.before_count, "n_b": level.after_count, "reason": level.reason}
    return {"verdict": verdict, **names, "metric": metric.name, "unit": metric.unit, **numbers, **rest, **counts}


def _minute(utc: str) -> str:
    return utc[:16].replace("T", " ") + " UTC"


def _bracketed(marks: list[str]) -> str:
    return f" [{', '.join(marks)}]" if marks else ""

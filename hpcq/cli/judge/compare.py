"""`hpcq compare`: two runs or stretches of time, pair by pair."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.filters import chosen, filter_options
from hpcq.cli.options import database_option, json_option
from hpcq.cli.rows import Column, print_json, print_rows, verdict_style
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.store.history import Metric, SeriesRow
    from hpcq.verdict.levels import Level

_ORDER = ("gone", "worse", "unclear", "changed", "better", "same")
_COMPARED = (
    Column("verdict", style=verdict_style),
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
    Column("why", wrap=True),
)


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
    """Compare two runs or stretches, pair by pair and parameter by parameter; B is judged against A.

    A and B are runs, campaigns (their last run), baseline:NAME, or stretches of time. What was measured in A and only fails
    in B is `gone`. Exit code 3 when something got worse or is gone, 4 when too little was measured to tell.

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
    bad = verdicts["worse"] + verdicts["gone"]
    code = Exit.DEGRADED if bad else Exit.INCOMPLETE if verdicts["unclear"] or not rows else Exit.OK
    if as_json:
        print_json({"a": a, "b": b, "pairs": rows, "only_a": list(compared.only_a), "only_b": list(compared.only_b)})
        return code
    told = [row for row in rows if everything or row["verdict"] != "same"]
    told.sort(key=lambda row: _ORDER.index(row["verdict"]))
    only = f"; only in A: {len(compared.only_a)}, only in B: {len(compared.only_b)}"
    only = only if compared.only_a or compared.only_b else ""
    if not rows:
        click.echo(f"nothing to compare: no test of a pair is in both{only}", err=True)
        return code
    tally = ", ".join(f"{verdicts[word]} {word}" for word in _ORDER if verdicts[word])
    click.echo(f"{len(rows)} tests of pairs in both: {tally}{only}", err=True)
    print_rows(told, _COMPARED, empty="no pair differs")
    return code


def _compared_row(row: SeriesRow, metric: Metric, level: Level) -> dict[str, Any]:
    verdict = level.direction if level.sure else "same" if level.verdict.value == "pass" else "unclear"
    change = "" if level.ratio is None else f"{100 * (level.ratio - 1):+.1f} %"
    names = {
        name: getattr(row, name) for name in ("kernel", "cluster", "client", "server", "message_bytes", "variant", "parameters")
    }
    numbers = {name: one if one == one else None for name, one in (("a", level.before), ("b", level.after))}  # noqa: PLR0124 - NaN
    why = level.reason if verdict in {"gone", "unclear"} else ""
    rest = {"ratio": level.ratio, "low": level.low, "high": level.high, "change": change}
    counts = {"n_a": level.before_count, "n_b": level.after_count, "reason": level.reason, "why": why}
    return {"verdict": verdict, **names, "metric": metric.name, "unit": metric.unit, **numbers, **rest, **counts}

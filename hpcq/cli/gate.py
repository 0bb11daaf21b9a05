"""`hpcq gate propose`: bounds for a campaign's gates, from what good runs did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.filters import chosen, filter_options
from hpcq.cli.options import Verbs, database_option, json_option
from hpcq.cli.rows import print_json
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.store.history import Metric, SeriesRow
    from hpcq.verdict.proposing import Proposal


@click.group(cls=Verbs)
def gate() -> None:
    """Bounds that results must keep."""


@gate.command("propose")
@click.option("--from", "stretch", default="90d", show_default=True, help="The good runs: 90d, 2026-10, baseline:NAME, a run.")
@click.option(
    "--false-alarm-ratio",
    type=click.FloatRange(min=1e-6, max=0.2),
    default=0.001,
    show_default=True,
    help="Share of good results that may break the bound.",
)
@filter_options
@database_option
@json_option
def propose_gates(stretch: str, false_alarm_ratio: float, filters: dict[str, Any], database: Path, as_json: bool) -> int:
    """Propose gates for each test from history, as lines for a campaign, with their expected rate of false alarms.

    The rate is of a pair's median in one job. It is checked by making the bound without each series in turn, and counting how
    often that series breaks it. Fewer than 30 points propose nothing.

    \b
    Example: hpcq gate propose --from 90d --false-alarm-ratio 0.01
    """
    from hpcq.store.database import reading
    from hpcq.store.moments import window

    with reading(database) as connection:
        found = chosen(connection, filters)
        tests = _tests(connection, found.rows, found.metrics, window(connection, stretch), found.facts)
    proposals = [one for one in (_proposal(test, false_alarm_ratio) for test in tests) if one is not None]
    if as_json:
        print_json([_row(row, metric, made) for row, metric, made in proposals])
        return Exit.OK
    if not proposals:
        click.echo("nothing to propose: no test has 30 points in this stretch", err=True)
        return Exit.OK
    click.echo("gates:")
    for row, metric, made in proposals:
        seen = "not checked: one series only" if made.seen_ratio is None else f"{made.seen_ratio:.2%} when left out"
        one = _row(row, metric, made)
        told = units.human(made.bound, metric.unit)
        click.echo(
            f"  # {told}, from {made.value_count} points of {made.series_count} series; {made.asked_ratio:.2%} asked, {seen}"
        )
        click.echo(f"  - {json.dumps(one['gate'])}")
    return Exit.OK


def _tests(
    connection: Any, rows: Sequence[SeriesRow], metrics: dict[str, Metric], window: Any, facts: Any
) -> list[tuple[SeriesRow, Metric, list[Any]]]:
    """Values by test: kernel and parameters, on one cluster."""
    from hpcq.store.blocks import tracks

    named = {row.series_id: row for row in rows}
    found: dict[tuple[str, str, str], tuple[SeriesRow, Metric, list[Any]]] = {}
    for track in tracks(connection, rows, metrics, window, facts=facts):
        row = named[track.series_id]
        key = (row.cluster, row.kernel, json.dumps(row.parameters, sort_keys=True))
        found.setdefault(key, (row, metrics[row.kernel], []))[2].append(track.value)
    return list(found.values())


def _proposal(test: tuple[SeriesRow, Metric, list[Any]], ratio: float) -> tuple[SeriesRow, Metric, Proposal] | None:
    from hpcq.kernels import Better
    from hpcq.verdict.proposing import propose

    row, metric, series = test
    made = propose(series, Better(metric.better), ratio)
    return None if made is None else (row, metric, made)


def _row(row: SeriesRow, metric: Metric, made: Proposal) -> dict[str, Any]:
    bound = "minimum" if made.better.value == "higher" else "maximum"
    size = {
        name: value for name, value in row.parameters.items() if name in {"message_bytes", "datagram_bytes", "payload_bytes"}
    }
    written: dict[str, Any] = {"metric": metric.name, "kernel": row.kernel}
    written |= {"where": size} if size else {}
    numbers = {"asked_ratio": made.asked_ratio, "seen_ratio": made.seen_ratio}
    counts = {"value_count": made.value_count, "series_count": made.series_count}
    return {"cluster": row.cluster, "gate": {**written, bound: float(f"{made.bound:.4g}")}, **numbers, **counts}

"""Links compared with the same nodes within their clusters, as a table; `hpcq results` and `hpcq run` show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hpcq import units
from hpcq.cli.rows import Column, print_rows
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.analysis.distances import Distance
    from hpcq.cli.read.gate_rows import RunJudged

_COLUMNS = (
    Column("link"),
    Column("network"),
    Column("kernel"),
    Column("size_text", "size"),
    Column("variant", wrap=True),
    Column("there", unit_field="unit"),
    Column("back", unit_field="unit"),
    Column("far_count", "n"),
    Column("near_from", "within from", unit_field="unit"),
    Column("near_to", "within to", unit_field="unit"),
    Column("near_count", "n within"),
    Column("ratio", "over : within"),
    Column("window_bps", "window / round trip"),
)


def print_distances(distances: Sequence[Distance]) -> None:
    """Print one table of all links. Round trips and the meaning of there and back go to standard error."""
    for one in distances:
        trips = [f"{units.human(ns, 'ns')} {where}" for ns, where in _trips(one) if ns is not None]
        ends = f"{f'over {one.network}; ' if one.network else ''}there is {one.from_cluster} to {one.to_cluster}"
        click.echo(f"{one.link}: {ends}; round trip {', '.join(trips) or 'not measured'}", err=True)
    rows = [
        {"link": one.link, "network": one.network, **asdict(test), "size_text": test.size_text, "ratio": _ratio(test.ratio)}
        for one in distances
        for test in one.tests
    ]
    columns = [one for one in _COLUMNS if one.name != "variant" or any(row["variant"] for row in rows)]
    print_rows(rows, columns, empty="no result over a link")


def print_links(linked: Sequence[Distance]) -> None:
    """Print the links of a run, and first how many of them were measured."""
    told = f"{sum(map(bool, (one.tests for one in linked)))} of {len(linked)} links judged"
    click.echo(told if linked else "no link judged: this run has none", err=True)
    print_distances(linked)


def links_exit(linked: Sequence[Distance], judged: RunJudged) -> Exit:
    """Exit code 4 if a run has no link, or one of which nothing was measured; else that of its results."""
    whole = bool(linked) and all(one.tests for one in linked)
    return judged.exit_code if whole else judged.exit_code or Exit.INCOMPLETE


def _trips(one: Distance) -> tuple[tuple[float | None, str], ...]:
    return (one.trip_ns, "over the link"), (one.near_trip_ns, "within the clusters")


def _ratio(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f}"

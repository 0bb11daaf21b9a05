"""Verbs that read the history: series, history. They parse and print; store and verdict do the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.options import (
    FILTERS,
    NUMBER,
    chosen,
    database_option,
    filter_options,
    json_option,
    refuse_beside,
    since_option,
    stretch,
)
from hpcq.cli.output import Column, as_mapping, print_json, print_rows, print_words, says_that_it_works, sparkline
from hpcq.cli.regressions import pairs_json, print_change, print_pairs, whole_stretch
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcq.analysis.change import Explained
    from hpcq.store.database import Connection
    from hpcq.store.history import Point
    from hpcq.store.selection import MetricRow, Selection, Window
    from hpcq.store.series import SeriesRow
    from hpcq.verdict.node_sets import PairsOfSet

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
#: They say nothing where each job has one value.
_SPREAD = ("lowest", "highest", "n")


#: By view, the options that it obeys.
_USED = {"SERIES": {"name", "since", "metric", "last"}, "the list of series": {"since", *FILTERS}}


@click.command()
@click.argument("name", metavar="[SERIES]", required=False)
@since_option()
@click.option("--last", type=NUMBER, help="Of SERIES: only the newest N points.")
@filter_options
@database_option
@json_option
@says_that_it_works
def history(  # noqa: PLR0917 - Click passes by name
    name: str | None, since: str | None, last: int | None, wanted: Selection, database: Path, as_json: bool
) -> int:
    """List the series, or show one over time, with its changes of level and what differs at each.

    A series is one kernel with the same parameters between the same two nodes, over one network and with one toolchain: what
    may be compared over time. SERIES is a number of the list, or KERNEL/CLIENT/SERVER where that names only one. One row is
    one job: its median. Exit code 4 when nothing was measured in the stretch.

    \b
    Example: hpcq history --node n2 --where message_bytes=64KiB
             hpcq history tcp_stream/n1/n2 --since 90d
    """
    view = "the list of series" if name is None else "SERIES"
    refuse_beside(view, _USED[view])
    if name is None:
        return _list_series(database, wanted, since, as_json=as_json)
    return _one_series(database, name, since, wanted.metric, last, as_json=as_json)


def _list_series(database: Path, wanted: Selection, since: str | None, *, as_json: bool) -> int:
    from hpcq.store.database import reading
    from hpcq.store.series import summary

    with reading(database) as connection:
        found, _ = chosen(connection, wanted)
        counts = summary(connection, found, stretch(connection, since), wanted.facts)
    rows = []
    for row in found:
        count, first, last = counts[row.series_id]
        if (wanted.facts or since) and not count:
            continue
        names = as_mapping(row)
        rows.append({**names, "result_count": count, "first_utc": first, "last_utc": last})
    print_rows(
        rows, _SERIES, as_json=as_json, empty=f"no series: nothing was measured {'yet' if since is None else f'in {since}'}"
    )
    return Exit.OK


def _one_series(database: Path, name: str, since: str | None, metric: str | None, last: int | None, *, as_json: bool) -> int:
    from hpcq.analysis.changed import explained, searched
    from hpcq.nodelist import names_several
    from hpcq.store.database import reading
    from hpcq.store.history import timeline
    from hpcq.store.selection import ALL_TIME, metrics_of, window
    from hpcq.store.series import find_series

    with reading(database) as connection:
        found = find_series(connection, name)
        row = found[0]
        metrics = metrics_of(connection, metric)
        if row.kernel not in metrics:
            raise UserError(f"{metric!r} is not a metric of {row.kernel}", f"hpcq kernels {row.kernel} lists them")
        meant = ALL_TIME if since is None else whole_stretch(window(connection, since))
        points = timeline(connection, row.series_id, metrics[row.kernel], meant)
        changes = [explained(connection, one) for one in searched(connection, found, metrics, "", meant).changes]
        pairs = _pairs_of_set(connection, row, changes, meant) if changes and names_several(row.server) else []
    shown = points if last is None else points[-last:]
    if as_json:
        print_json(
            {
                "series": row,
                "metric": metrics[row.kernel],
                "points": shown,
                "changes": [one.to_json() for one in changes],
                "pairs": [pairs_json(one) for one in pairs],
            }
        )
        return Exit.OK if points else Exit.INCOMPLETE
    print_words(f"series {row.series_id}: {row.label}, {metrics[row.kernel].name}", err=True)
    if len(points) > 1:
        print_words(sparkline([point.median for point in points], metrics[row.kernel].unit), err=True)
    told = [one for one in _POINT if one.name not in _SPREAD or any(point.n > 1 for point in shown)]
    print_rows(_point_rows(shown, metrics[row.kernel], changes), told, empty="nothing was measured in this stretch")
    for place, one in enumerate(changes):
        print_change(one)
        print_pairs(pairs[place] if pairs else None)
    return Exit.OK if points else Exit.INCOMPLETE


def _pairs_of_set(database: Connection, row: SeriesRow, changes: Sequence[Explained], meant: Window) -> list[PairsOfSet]:
    """For each change of a set of nodes, what the pairs of its nodes say at that moment."""
    from hpcq.analysis.change import pairs_at
    from hpcq.analysis.changed import explained, searched
    from hpcq.nodelist import nodes_of
    from hpcq.store.selection import Selection, metrics_of
    from hpcq.store.series import select

    metrics, members = metrics_of(database, None), set(nodes_of(row.client, row.server))
    rows = select(database, Selection(cluster=row.cluster))
    rows = rows.where(rows.of_pairs(lambda _cluster, client, server: members.issuperset((client, server))))
    judged = searched(database, rows.of_kernels(metrics), metrics, "", meant)
    told = [explained(database, one) for one in judged.changes]
    return [pairs_at(one, told, rows.of(judged.judged_ids)) for one in changes]


def _point_rows(points: list[Point], metric: MetricRow, changes: list[Explained]) -> list[dict[str, Any]]:
    marks: dict[str, list[str]] = {}
    for one in changes:
        marks.setdefault(one.changed.at_utc, []).append(f"<- {one.changed.level.direction} from here")
    rows = []
    for point in points:
        notes = marks.get(point.started_utc, []) + (["disturbed"] if point.disturbed else [])
        rows.append({name: getattr(point, name) for name in point.__slots__} | {"unit": metric.unit, "note": ", ".join(notes)})
    return rows

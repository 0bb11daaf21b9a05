"""The metric that a person names with --metric: is it one, which results have it, and what is said where none has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow, Selection


def check_metric(metric: str | None, kernel: str | None) -> None:
    """Raise UserError for a name that no metric of these kernels has; it lists the valid names."""
    from hpcq.kernels import kernels, unknown_name

    known = {one.name for name, found in kernels().items() if kernel in {None, name} for one in found.metrics}
    if metric is not None and metric not in known:
        message, hint = unknown_name(f"metric of {kernel or 'any kernel'}", metric, sorted(known))
        raise UserError(f"--metric: {message}", hint)


def in_metric_of(connection: Connection, rows: list[ResultRow], metric: str | None) -> list[ResultRow]:
    """The results in this metric instead of their main one; as they are without one."""
    from hpcq.store.query import in_metric

    return rows if metric is None else in_metric(connection, rows, metric)


def lacks_metric(connection: Connection, selection: Selection, metric: str) -> bool:
    """Whether no selected result has this metric; says so, and which metrics their kernels have."""
    from hpcq.kernels import kernels
    from hpcq.store import query

    rows = query.results(connection, selection)
    if any(row.value is not None for row in query.in_metric(connection, rows, metric)):
        return False
    known = kernels()
    names = sorted({one.name for kernel in {row.kernel for row in rows} & known.keys() for one in known[kernel].metrics})
    click.echo(f"no result here has {metric}: the metrics of the kernels measured here are {', '.join(names)}", err=True)
    return True

"""`hpcq plot`: pictures as files, for tickets, papers and slides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcq.cli.options import Verbs, chosen_results, database_option, filter_options, since_option
from hpcq.cli.output import check_target, print_words, says_that_it_works, write_out
from hpcq.cli.regressions import whole_stretch
from hpcq.errors import Exit, UserError

if TYPE_CHECKING:
    from hpcq.store.selection import Selection

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NOTHING = "nothing was measured there: no picture"


def _output_option(function: _Function) -> _Function:
    return click.option(
        "-o",
        "--output",
        "target",
        required=True,
        type=click.Path(path_type=Path, dir_okay=False),
        help="The file: .svg, .png or .pdf.",
    )(function)


@click.group(cls=Verbs)
def plot() -> None:
    """Draw a picture into a file: SVG, PNG or PDF. Needs matplotlib."""


@plot.command()
@click.argument("run", required=False)
@filter_options
@_output_option
@database_option
@says_that_it_works
def curve(run: str | None, wanted: Selection, target: Path, database: Path) -> int:
    """Draw each kernel against message size: TCP, UDP and MPI in one chart, logarithmic axes.

    Without --metric: the throughput of streams and the main metric of other kernels.
    A line is the median over the pairs of a run. Its band holds the middle 90 % of them; with one or two pairs, all their
    repetitions.

    \b
    Example: hpcq plot curve latest -o curve.svg
    """
    from hpcq.reports.plots import ALSO_PLOTTED, on_curves
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.selection import Selection, find_run

    kind = _kind(target)
    with reading(database) as connection:
        name = find_run(connection, run)
        selection = chosen_results(connection, wanted, Selection(run=name))
        metric = selection.metric
        all_of_them = query.summaries(connection, selection, metric=metric, also=() if metric else ALSO_PLOTTED)
    found = [one for one in all_of_them if one.message_bytes is not None and (metric or on_curves(one))]
    if not found:
        return _nothing(metric)
    from hpcq.reports.figures import LINES_MAX, curve_figure

    lines = len({(one.kernel, one.cluster, one.variant) for one in found})
    if lines > LINES_MAX:
        raise UserError(f"{lines} lines: at most {LINES_MAX} can be told apart", "choose with --kernel or --cluster")
    return _write(curve_figure(found, name, kind), target)


@plot.command()
@click.argument("run", required=False)
@filter_options
@_output_option
@database_option
@says_that_it_works
def heatmap(run: str | None, wanted: Selection, target: Path, database: Path) -> int:
    """Draw node against node: which node communicates how well with which.

    Throughput at its largest size, latency at its smallest. Colours are relative to the median and end at 20 %. Grey was not
    planned, hatched was planned and not measured.

    \b
    Example: hpcq plot heatmap latest --kernel tcp_stream -o heatmap.png
    """
    from hpcq.reports.plots import make_matrices
    from hpcq.store import query
    from hpcq.store.database import reading
    from hpcq.store.query import node_groups, pairs_of_run
    from hpcq.store.selection import Selection, find_run

    kind = _kind(target)
    with reading(database) as connection:
        name = find_run(connection, run)
        selection = chosen_results(connection, wanted, Selection(run=name))
        found = query.summaries(connection, selection, metric=selection.metric)
        matrices = make_matrices(found, pairs_of_run(connection, name), node_groups(connection))
    if not matrices:
        print_words(f"{_NOTHING}: a heat map needs at least 3 nodes of one cluster" if found else _NOTHING, err=True)
        return Exit.INCOMPLETE
    from hpcq.reports.figures import heatmap_figure

    return _write(heatmap_figure(matrices, name, kind), target)


@plot.command()
@click.argument("name", metavar="SERIES")
@since_option()
@click.option("--metric", help="This metric instead of the kernel's main one.")
@_output_option
@database_option
@says_that_it_works
def history(name: str, since: str | None, metric: str | None, target: Path, database: Path) -> int:
    """Draw one series over time, with its levels and what differs at each change.

    SERIES is a number (hpcq history), or KERNEL/CLIENT/SERVER where that names only one.

    \b
    Example: hpcq plot history tcp_stream/n1/n2 -o history.svg
    """
    from hpcq.analysis.changed import explained, searched
    from hpcq.store.database import reading
    from hpcq.store.history import timeline
    from hpcq.store.selection import ALL_TIME, metrics_of, window
    from hpcq.store.series import find_series

    kind = _kind(target)
    with reading(database) as connection:
        found = find_series(connection, name)
        row = found[0]
        metrics = metrics_of(connection, metric)
        if row.kernel not in metrics:
            raise UserError(f"--metric: {metric!r} is not a metric of {row.kernel}", f"hpcq kernels {row.kernel} lists them")
        meant = ALL_TIME if since is None else whole_stretch(window(connection, since))
        points = timeline(connection, row.series_id, metrics[row.kernel], meant)
        changes = [explained(connection, one) for one in searched(connection, found, metrics, "", meant).changes]
    if not points:
        return _nothing(None)
    told = sorted(
        (one.changed.at_utc, one.changed.level.before, one.changed.level.after, one.words or "no known difference")
        for one in changes
        if one.changed.level.sure and one.changed.level.after == one.changed.level.after
    )
    from hpcq.reports.figures import history_figure

    return _write(history_figure(row, metrics[row.kernel], points, told, kind), target)


def _kind(target: Path) -> str:
    from hpcq.reports.figures import FORMATS

    kind = target.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        allowed = ", ".join(f".{one}" for one in FORMATS)
        raise UserError(f"-o: {target}: must be a name that ends with {allowed}")
    check_target(target, "-o")
    return kind


def _nothing(metric: str | None) -> int:
    print_words(_NOTHING + (f" of {metric}" if metric else ""), err=True)
    return Exit.INCOMPLETE


def _write(content: bytes, target: Path) -> int:
    write_out([content], target, "-o")
    click.echo(str(target))
    return Exit.OK

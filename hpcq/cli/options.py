"""Shared by several verbs: options, default paths, and the answer to an unknown verb."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hpcq.cli.output import print_words
from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import ResultRow
    from hpcq.store.selection import MetricRow, Selection, Window
    from hpcq.store.series import SeriesRows


class _Number(click.IntRange):
    """A whole number from 1; SQLite can hold no larger one than the maximum."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(1, 2**63 - 1)

    def _describe_range(self) -> str:
        return "x>=1"


#: A row number or a count.
NUMBER = _Number()


class NoSuchVerb(click.UsageError):
    """An unknown verb; `hint` lists the known ones."""

    def __init__(self, message: str, hint: str, context: click.Context) -> None:
        super().__init__(message, context)
        self.hint = hint


class Verbs(click.Group):
    """A group that suggests the nearest of its verbs."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].startswith("-") or self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        from hpcq.kernels import unknown_name

        raise NoSuchVerb(*unknown_name("command", args[0], self.list_commands(ctx)), ctx)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def database_option(function: _Function) -> _Function:
    """--db FILE."""
    return click.option(
        "--db",
        "database",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("results.db"),
        envvar="HPCQ_DB",
        show_default=True,
        help="The results database.",
    )(function)


def runs_option(function: _Function) -> _Function:
    """--runs FOLDER."""
    return click.option(
        "--runs",
        "runs_folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs"),
        envvar="HPCQ_RUNS",
        show_default=True,
        help="The folder of run folders.",
    )(function)


def clusters_option(function: _Function) -> _Function:
    """--clusters FOLDER, repeatable."""
    return click.option(
        "--clusters",
        "cluster_folders",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        multiple=True,
        help="A folder with cluster files, searched first; repeatable.",
    )(function)


def json_option(function: _Function) -> _Function:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def refuse_beside(view: str, used: Collection[str]) -> None:
    """Refuse each option on the command line that `view` would leave out without a word.

    view: what the person asked for, as typed (--links). used: names of the parameters that it obeys.
    """
    context = click.get_current_context()
    for one in context.command.params:
        typed = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if typed and one.name not in {*used, "database", "as_json"}:
            name = one.opts[0] if isinstance(one, click.Option) else one.human_readable_name
            raise UserError(f"{name}: {view} does not use it: must be left out", f"{context.command_path} --help")


def near(path: Path) -> str:
    """A path relative to here, as a person would type it."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("../..") else str(path)


def since_option(default: str | None = None, help_text: str = "Only this stretch of time") -> Callable[[_Function], _Function]:
    """--since STRETCH, with the same words in every verb; `stretch` reads them."""
    return click.option(
        "--since",
        default=default,
        show_default=default is not None,
        metavar="STRETCH",
        help=f"{help_text}: 30d, 2026-11, 90d..30d, a run.",
    )


def limit_option(default: int | None = None) -> Callable[[_Function], _Function]:
    """--limit N."""
    return click.option(
        "--limit", type=NUMBER, default=default, show_default=default is not None, help="At most this many rows."
    )


def stretch(connection: Connection, since: str | None) -> Window:
    """The stretch of time that --since names. A day or month is where it begins; nothing given is all time."""
    from dataclasses import replace

    from hpcq.store.selection import ALL_TIME, window

    if since is None:
        return ALL_TIME
    found = window(connection, since)
    return replace(found, until_utc=None) if ".." not in found.text and found.run_ids is None else found


# ----------------------------------------------------------------------------------------------------------------------
# Options that select results, the same for every verb that reads or judges. --since stands beside them: `since_option`.


_NAMES = ("kernel", "cluster", "client", "server", "node", "group", "network", "metric")
#: Names of their parameters.
FILTERS = frozenset({*_NAMES, "where", "fact"})
_OPTIONS = {
    "kernel": click.option("--kernel", help="Only this kernel."),
    "cluster": click.option("--cluster", help="Only this cluster, or link: alpha+beta."),
    "client": click.option("--client", help="Only pairs with this node as client."),
    "server": click.option("--server", help="Only pairs with this node as server."),
    "node": click.option("--node", help="Only tests that this node took part in: as an end of a pair, or in a set."),
    "group": click.option("--group", help="Only tests that a node of this leaf, rack or other group took part in."),
    "network": click.option(
        "--network", help="Only over this network: its name in the cluster's file, or its interface, like ib0."
    ),
    "where": click.option(
        "--where", multiple=True, metavar="NAME=VALUE", help="Only with this parameter: message_bytes=64KiB."
    ),
    "fact": click.option(
        "--fact", multiple=True, metavar="NAME=VALUE", help="Only results of nodes that had this fact at that time."
    ),
    "metric": click.option("--metric", help="This metric instead of each kernel's main one."),
}


def filter_options(function: _Function) -> _Function:
    """Add the options and pass them as `wanted`, a Selection."""
    return filters_without()(function)


def filters_without(*left_out: str) -> Callable[[_Function], _Function]:
    """The same for a verb to which some say nothing, or that has them with words of its own."""

    def decorated(function: _Function) -> _Function:
        wrapped = _gathering(function, [name for name in _OPTIONS if name not in left_out])
        for name in reversed(_OPTIONS):
            if name not in left_out:
                wrapped = _OPTIONS[name](wrapped)
        return wrapped

    return decorated


def _gathering(function: _Function, names: Sequence[str]) -> _Function:
    import functools

    @functools.wraps(function)
    def gathered(**given: Any) -> Any:
        from hpcq.store.selection import Selection

        filters = {name: given.pop(name) for name in names}
        where, facts = (_assignments(filters.pop(name, ()), f"--{name}") for name in ("where", "fact"))
        return function(wanted=Selection(**filters, where=where, facts=facts), **given)

    return gathered  # type: ignore[return-value]


def chosen(connection: Connection, wanted: Selection) -> tuple[SeriesRows, dict[str, MetricRow]]:
    """The series that the options select, and the metric of each kernel. Raises UserError for unknown names."""
    from hpcq.store.selection import Selection, check_selection, metrics_of
    from hpcq.store.series import select

    check_selection(connection, wanted)
    metrics = metrics_of(connection, wanted.metric)
    rows = select(connection, wanted).of_kernels(metrics)
    if not rows and wanted != Selection():
        raise UserError("no series fits", "hpcq history without options lists them all")
    return rows, metrics


def chosen_results(connection: Connection, wanted: Selection, whole: Selection) -> Selection:
    """The same for results, of a run or a stretch of time (`whole`). Raises UserError for names that none of them has."""
    from dataclasses import replace

    from hpcq.kernels import unknown_name
    from hpcq.nodelist import natural, nodes_of
    from hpcq.store.query import places
    from hpcq.store.selection import Selection, check_selection

    check_metric(connection, wanted.metric, wanted.kernel)
    selection = replace(wanted, run=whole.run, window=whole.window)
    if wanted == Selection(metric=wanted.metric):
        return selection
    here = places(connection, whole)
    for what in ("kernel", "cluster", "client", "server", "node"):
        name = getattr(wanted, what)
        ends = (nodes_of(one.client, one.server) for one in here)
        found = {each for pair in ends for each in pair} if what == "node" else {str(getattr(one, what)) for one in here}
        if name is not None and name not in found:
            known = sorted(found, key=natural)
            message, hint = unknown_name(f"{what} of {'this run' if whole.run else 'any run in this stretch'}", name, known)
            raise UserError(f"--{what}: {message}", hint)
    check_selection(connection, replace(wanted, kernel=None, cluster=None, client=None, server=None, node=None))
    if not places(connection, selection):
        raise UserError("no result fits all of these options", "leave out one of them")
    return selection


def _assignments(texts: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    found = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"{option} {text!r}: must be NAME=VALUE")
        found.append((name.strip(), value.strip()))
    return tuple(found)


# ----------------------------------------------------------------------------------------------------------------------
# The metric that a person names with --metric: is it one, which results have it, and what is said where none has.


#: More names than this are no help.
_SHOWN = 60


def check_metric(connection: Connection, metric: str | None, kernel: str | None) -> None:
    """Raise UserError for a name that no metric of these kernels has, here or in hpcq; it lists the valid names."""
    from hpcq.kernels import own_kernels, unknown_name
    from hpcq.store.query import metrics_by_kernel

    here = metrics_by_kernel(connection)
    own = {name: [one.name for one in found.metrics] for name, found in own_kernels().items()}
    known = {one for metrics in (here, own) for name in metrics if kernel in {None, name} for one in metrics[name]}
    if metric is not None and metric not in known:
        message, hint = unknown_name(f"metric of {kernel or 'any kernel'}", metric, sorted(known))
        raise UserError(f"--metric: {message}", hint if len(known) <= _SHOWN else "hpcq kernels NAME lists those of a kernel")


def in_metric_of(connection: Connection, rows: list[ResultRow], metric: str | None) -> list[ResultRow]:
    """The results in this metric instead of their main one; as they are without one."""
    from hpcq.store.query import in_metric

    return rows if metric is None else in_metric(connection, rows, metric)


def lacks_metric(connection: Connection, selection: Selection, metric: str) -> bool:
    """Whether no selected result has this metric; says so, and which metrics their kernels have."""
    from hpcq.store import query

    rows = query.results(connection, selection)
    if any(row.value is not None for row in query.in_metric(connection, rows, metric)):
        return False
    known = query.metrics_by_kernel(connection)
    names = sorted({name for kernel in {row.kernel for row in rows} & known.keys() for name in known[kernel]})
    print_words(f"no result here has {metric}: the metrics of the kernels measured here are {', '.join(names)}", err=True)
    return True

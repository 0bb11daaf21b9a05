"""Options that select series, the same for every verb that reads the history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.history import Metric, SeriesRow

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAMES = ("kernel", "cluster", "client", "server", "node", "group", "network")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The selection: the series, the metric of each kernel, and facts that results must have had."""

    rows: list[SeriesRow]
    metrics: dict[str, Metric]
    facts: tuple[tuple[str, str], ...]


def filter_options(function: _Function) -> _Function:
    """Add options and pass them as `filters`.

    --kernel, --cluster, --client, --server, --node, --group, --network, --where, --fact, --metric.
    """
    options = (
        click.option("--kernel", help="Only this kernel."),
        click.option("--cluster", help="Only this cluster."),
        click.option("--client", help="Only pairs with this node as client."),
        click.option("--server", help="Only pairs with this node as server."),
        click.option("--node", help="Only tests that this node took part in: as an end of a pair, or in a set."),
        click.option("--group", help="Only tests that a node of this leaf, rack or other group took part in."),
        click.option("--network", help="Only over this network: its name in the cluster's file, or its interface, like ib0."),
        click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only with this parameter: message_bytes=64KiB."),
        click.option(
            "--fact", multiple=True, metavar="NAME=VALUE", help="Only results of nodes that had this fact at that time."
        ),
        click.option("--metric", help="This metric instead of each kernel's main one."),
    )
    wrapped = _gathering(function)
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _gathering(function: _Function) -> _Function:
    import functools

    @functools.wraps(function)
    def gathered(**given: Any) -> Any:
        filters = {name: given.pop(name) for name in (*_NAMES, "where", "fact", "metric")}
        return function(filters=filters, **given)

    return gathered  # type: ignore[return-value]


def chosen(connection: Connection, filters: dict[str, Any]) -> Chosen:
    """Look up what the options select. Raises UserError for unknown names."""
    from hpcq.store.history import Filter, check_facts, check_names, metrics_of, select

    where, facts = (_assignments(filters[name], f"--{name}") for name in ("where", "fact"))
    check_facts(connection, facts)
    wanted = Filter(**{name: filters[name] for name in _NAMES}, where=where, facts=facts)
    check_names(connection, wanted)
    metrics = metrics_of(connection, filters["metric"])
    rows = [row for row in select(connection, wanted) if row.kernel in metrics]
    if not rows and any(filters.values()):
        raise UserError("no series fits", "hpcq series without options lists them all")
    return Chosen(rows, metrics, facts)


def _assignments(texts: tuple[str, ...], option: str) -> tuple[tuple[str, str], ...]:
    found = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UserError(f"{option} {text!r}: allowed is NAME=VALUE")
        found.append((name.strip(), value.strip()))
    return tuple(found)

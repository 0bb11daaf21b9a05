"""The medians of `hpcq results`: one row per test and pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcq.cli.read.grouped import cut, ordered
from hpcq.cli.rows import Column, as_mapping, print_rows

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Summary

PAIR = (Column("cluster"), Column("kernel"), Column("client"), Column("server"), Column("size_text", "size"))
_SUMMARY = (
    *PAIR,
    Column("variant", wrap=True),
    Column("network"),
    Column("metric"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("n"),
    Column("disturbed"),
)


def print_summaries(
    connection: Connection, summaries: Sequence[Summary], sort: str | None = None, limit: int | None = None
) -> None:
    """Print them. The network has a column where a cluster's file names it, or where there are several."""
    from hpcq.store.counted import network_texts

    named = network_texts(connection)
    several = len({(one.cluster, one.network) for one in summaries}) > len({one.cluster for one in summaries})
    told = {"variant": any(one.variant for one in summaries), "network": bool(named) or several}
    columns = [one for one in _SUMMARY if told.get(one.name, True)]
    rows = [
        {
            **as_mapping(one),
            "size_text": one.size_text,
            "disturbed": _disturbed(one),
            "network": named.get((one.cluster, one.network), one.network),
        }
        for one in summaries
    ]
    print_rows(cut(ordered(rows, sort), limit, as_json=False), columns, empty="no valid result")


def _disturbed(one: Summary) -> str:
    return f"{one.disturbed_count} of {one.n}" if one.disturbed_count else "0"

"""`hpcq results` of many runs or by a property of nodes: --group-by, --sort, --limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hpcq.cli.rows import Column, print_rows
from hpcq.errors import UserError

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Selection

_GROUP = (
    Column("group"),
    Column("cluster"),
    Column("kernel"),
    Column("size_text", "size"),
    Column("variant", wrap=True),
    Column("metric"),
    Column("pair_count", "pairs"),
    Column("n"),
    Column("median", unit_field="unit"),
    Column("lowest", unit_field="unit"),
    Column("highest", unit_field="unit"),
    Column("level_ratio", "of all"),
)


def print_grouped(
    connection: Connection, selection: Selection, by: str, *, sort: str | None, limit: int | None, as_json: bool
) -> None:
    """Print medians by group: one row per group and test."""
    from hpcq.store.read.grouped import grouped

    rows = [{**asdict(one), "size_text": one.size_text} for one in grouped(connection, selection, by)]
    columns = [Column("group", by) if one.name == "group" else one for one in _GROUP]
    kept = [one for one in columns if one.name != "variant" or any(row["variant"] for row in rows)]
    print_rows(cut(ordered(rows, sort), limit, as_json=as_json), kept, as_json=as_json, empty="no valid result")


def ordered(rows: Sequence[dict[str, Any]], sort: str | None) -> list[dict[str, Any]]:
    """Rows by one of their fields: `-FIELD` from large to small. Empty fields come last. Raises UserError for another word."""
    if sort is None or not rows:
        return list(rows)
    name = sort.removeprefix("-").replace("-", "_")
    name = {"size": "message_bytes"}.get(name, name)
    if name not in rows[0]:
        allowed = ", ".join(one for one in rows[0] if one not in {"parameters", "size_text", "main"})
        raise UserError(f"--sort: {sort}: allowed are {allowed}, with - before it from large to small")
    from hpcq.sorting import natural

    there = [row for row in rows if row[name] is not None]
    empty = [row for row in rows if row[name] is None]

    def key(row: dict[str, Any]) -> Any:
        return natural(row[name]) if isinstance(row[name], str) else row[name]

    return sorted(there, key=key, reverse=sort.startswith("-")) + empty


def cut(rows: list[dict[str, Any]], limit: int | None, *, as_json: bool) -> list[dict[str, Any]]:
    """The first `limit` rows, and a word on standard error about the rest."""
    if limit is not None and len(rows) > limit and not as_json:
        click.echo(f"the first {limit} of {len(rows)} rows; --limit shows more", err=True)
    return rows[:limit]

"""Toolchains of one run beside each other, as a table; `hpcq results --toolchains` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hpcq import units
from hpcq.cli.rows import Column, print_json, print_rows
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.store.read.toolchains import Level, ToolchainRow


def print_toolchains(rows: Sequence[ToolchainRow], *, as_json: bool) -> int:
    """Print one row per test and metric, one column per toolchain: the median over jobs and its 95 % interval.

    Returns the exit code.
    """
    if not rows:
        click.echo("no test of this run was measured with two toolchains", err=True)
    if as_json:
        print_json({"toolchains": [asdict(one) for one in rows]})
    elif rows:
        _print_table(rows)
    return Exit.OK if rows else Exit.INCOMPLETE


def _print_table(rows: Sequence[ToolchainRow]) -> None:
    names = list(dict.fromkeys(level.toolchain for one in rows for level in one.levels))
    columns = [
        *(Column("cluster"), Column("kernel"), Column("size"), Column("variant", wrap=True), Column("metric")),
        *(Column(f"level {name}", name, wrap=True) for name in names),
        *(Column("job_count", "jobs"), Column("said", "difference", wrap=True), Column("left_out_count", "left out")),
    ]
    empty = {name for name in ("variant", "left_out_count") if not any(getattr(row, name) for row in rows)}
    print_rows([_row(one, names) for one in rows], [one for one in columns if one.name not in empty])
    if "left_out_count" not in empty:
        click.echo("left out: values beside other work, see docs/evidence.md", err=True)
    usual = sum(row.disturbed for row in rows)
    if usual:
        words = "rows measured beside other work in most of their jobs, which counts as usual"
        click.echo(f"{words}: {usual} of {len(rows)}", err=True)


def _row(one: ToolchainRow, names: Sequence[str]) -> dict[str, Any]:
    from hpcq.store.query import size_text

    levels = dict.fromkeys((f"level {name}" for name in names), "") | {
        f"level {level.toolchain}": _level(level, one.unit) for level in one.levels
    }
    counts = sorted({level.job_count for level in one.levels})
    return {
        **{name: getattr(one, name) for name in ("cluster", "kernel", "variant", "metric", "said", "left_out_count")},
        "size": size_text(one.message_bytes),
        "job_count": " to ".join(map(str, counts[:: max(1, len(counts) - 1)])),
        **levels,
    }


def _level(level: Level, unit: str) -> str:
    middle = units.human(level.median, unit)
    if level.lowest is None or level.highest is None:
        return middle
    return f"{middle} [{units.human(level.lowest, unit)}, {units.human(level.highest, unit)}]"

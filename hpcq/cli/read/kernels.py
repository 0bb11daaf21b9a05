"""`hpcq kernels`: what hpcq can measure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hpcq.cli.options import json_option
from hpcq.cli.rows import Column, print_json, print_rows
from hpcq.errors import Exit

if TYPE_CHECKING:
    from hpcq.kernels import Kernel, Option

_LIST = (Column("name", "kernel"), Column("program"), Column("summary", "measures", wrap=True))
_OPTIONS = (Column("name", "parameter"), Column("allowed"), Column("default"), Column("help", "meaning", wrap=True))
_METRICS = (Column("name", "metric"), Column("better"), Column("help", "meaning", wrap=True))


@click.command()
@click.argument("name", required=False)
@json_option
def kernels(name: str | None, as_json: bool) -> int:
    """List the kernels, what they measure and their parameters.

    \b
    Example: hpcq kernels tcp_stream
    """
    from hpcq.kernels import kernel as find_kernel
    from hpcq.kernels import kernels as all_kernels

    chosen = [find_kernel(name)] if name else list(all_kernels().values())
    if as_json:
        print_json([asdict(one) for one in chosen])
    elif name is None:
        print_rows(chosen, _LIST)
    else:
        _print_kernel(chosen[0])
    return Exit.OK


def _print_kernel(one: Kernel) -> None:
    click.echo(f"{one.name} ({one.program}): {one.summary}\n\n{one.method}\n")
    rows = [
        {"name": option.name, "allowed": _allowed(option), "default": json.dumps(option.default), "help": option.help}
        for option in one.options
    ]
    print_rows(rows, _OPTIONS)
    click.echo()
    print_rows(one.metrics, _METRICS)


def _allowed(option: Option) -> str:
    if option.choices:
        return " ".join(option.choices)
    if option.minimum is None and option.maximum is None:
        return str(option.type.value)
    return " to ".join("any" if bound is None else f"{bound:.12g}" for bound in (option.minimum, option.maximum))

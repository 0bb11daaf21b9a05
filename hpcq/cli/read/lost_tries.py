"""Print failed attempts at results that a later attempt measured: a repeat must not hide a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpcq.store.read.lost_tries import LostTries


def print_lost_tries(found: Sequence[LostTries]) -> None:
    """Print one line per reason; attempts that a signal ended come first."""
    for one in sorted(found, key=lambda one: not one.died):
        tries = "1 try" if one.count == 1 else f"{one.count} tries"
        words = f"{one.cluster}: {tries} of {one.kernel} brought nothing before a later one did: {one.reason}"
        click.echo(f"{words} ({', '.join(one.pairs)})", err=True)

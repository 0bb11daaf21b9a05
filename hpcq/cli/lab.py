"""`hpcq lab`: passes its arguments to the lab's own program, which needs only Python."""

from __future__ import annotations

import sys

import click

from hpcq import assets
from hpcq.transport import run_here


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lab(arguments: tuple[str, ...]) -> int:
    """Start a cluster in a box: two real Slurm clusters on this machine.

    \b
    hpcq lab up [--nodes N]     start them (needs root)
    hpcq lab status             what runs
    hpcq lab down               end them; nothing is left
    hpcq lab --help             everything else

    \b
    Example: hpcq lab up --nodes 8
    """
    return run_here([sys.executable, str(assets.lab()), *(arguments or ("--help",))], passthrough=True).returncode

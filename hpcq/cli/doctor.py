"""`hpcq doctor`: what is wrong on this machine, and what to type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from hpcq.cli.options import clusters_option, database_option, json_option, runs_option
from hpcq.cli.output import print_json, print_words, says_that_it_works
from hpcq.errors import Exit
from hpcq.units import count_of

_MARKS = {"ok": "ok  ", "note": "note", "open": "OPEN", "bad": "BAD "}


@click.command()
@click.option("--reach", is_flag=True, help="Also query every cluster whose file is found here; it waits for their answers.")
@database_option
@runs_option
@clusters_option
@json_option
@says_that_it_works
def doctor(reach: bool, database: Path, runs_folder: Path, cluster_folders: Sequence[Path], as_json: bool) -> int:
    """Report what is wrong with this installation, its schedules, runs and database, and what to type.

    It checks timers and crontab lines that `hpcq schedule` wrote, starts that were missed, runs that a schedule should have
    started; runs that nobody drives any more, results that were never loaded; the database's version and soundness; locks
    of its file system; room on the disks. It changes nothing. The first line says how much was checked. Exit code 1 when
    something is BAD, 4 when something could not be checked (OPEN).

    \b
    Example: hpcq doctor
    """
    from hpcq.runner.watch.doctor import Places, examine

    told = examine(Places(database, runs_folder, tuple(cluster_folders), reach))
    if as_json:
        print_json([asdict(one) for one in told])
    else:
        counts = Counter(one.state for one in told)
        said = ", ".join(f"{counts[state]} {mark.strip()}" for state, mark in _MARKS.items() if counts[state])
        print_words(f"{len(told) - counts['open']} of {count_of(len(told), 'item')} checked: {said}")
        for one in told:
            print_words(f"{_MARKS[one.state]} {one.area:<13} {one.item}: {one.found}")
            if one.advice and one.state != "ok":
                print_words(f"     {'':<13} {one.advice}")
    states = {one.state for one in told}
    return Exit.ERROR if "bad" in states else Exit.INCOMPLETE if "open" in states else Exit.OK

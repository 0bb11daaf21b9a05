"""Find runs whose driver died: unfinished, driven by nobody, and not left alone for so long that a person forgot them.

    hpcq schedule add revive --when 10min -- resume --abandoned

Only files here are read. A driver on another machine shows itself by the link beside its journal, which it touches every
second; whoever overlooks it is refused when the journal is opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcq.errors import HpcqError
from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.paths import RunFolder, read_json_or_none
from hpcq.runner.watch.doctor_runs import holder_of

#: A run in which nothing was written for less than this may be between two stages; after the longer time it is a person's.
_QUIET_S, _FORGOTTEN_S = 300.0, 7 * 86400.0
#: After so many drivers in a row that did nothing at all, another one would not help.
_FRUITLESS_MAX = 3
#: What a driver writes without having got anywhere.
_NO_PROGRESS = frozenset({"waiting", "powered_down", "cancel"})


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A run without a driver. left: why nobody should take it over by himself; empty: it may be resumed."""

    run: RunFolder
    left: str


def abandoned(runs_folder: Path) -> list[Abandoned]:
    """Return the runs below a folder that have no driver and have not ended, oldest first."""
    return [one for path in sorted(runs_folder.glob("*/run.json")) for one in _abandoned(RunFolder(path.parent.absolute()))]


def _abandoned(run: RunFolder) -> Iterator[Abandoned]:
    described = read_json_or_none(run.run_json)
    if described is None:
        return
    parts = [*described.get("clusters", ()), *run.link_names()]
    journals = [run.journal(part) for part in parts if run.journal(part).is_file()]
    if not journals or all((run.path / part / "driven.json").is_file() for part in parts):
        return
    quiet_s = time.time() - max(path.stat().st_mtime for path in [*journals, run.path / "log.txt"] if path.is_file())
    if quiet_s < _QUIET_S or _beats(run.run_json) or any(holder_of(path) or _beats(path) for path in journals):
        return
    if quiet_s > _FORGOTTEN_S:
        yield Abandoned(run, f"nothing happened in it for {quiet_s / 86400:.0f} days")
        return
    try:
        fruitless = min(_fruitless(path) for path in journals)
    except HpcqError as error:
        yield Abandoned(run, error.message)
        return
    yield Abandoned(run, f"{fruitless} drivers in a row got nowhere" if fruitless >= _FRUITLESS_MAX else "")


def _beats(held: Path) -> bool:
    """Whether a process somewhere has touched its link beside this file lately."""
    try:
        return time.time() - held.with_name(f"{held.name}.writer").lstat().st_mtime < _QUIET_S
    except OSError:
        return False


def _fruitless(journal: Path) -> int:
    """Return how many drivers at the end of a journal opened it and recorded nothing that counts."""
    count = 0
    for event in reversed(read_journal(journal)):
        if event["event"] == "opened":
            count += 1
        elif event["event"] not in _NO_PROGRESS:
            break
    return count

"""Check runs by their folders and locks alone: which have lost their driver, and which were never loaded."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcq.run_folder.paths import RunFolder, read_json, read_json_or_none

#: Clocks of file servers differ: a smaller difference counts as the same age.
_AGE_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class RunTold:
    """What the doctor reports about one run. It does not report finished and loaded ones."""

    run: str
    state: str
    found: str
    advice: str = ""


def look_at_runs(runs_folder: Path, database: Path) -> list[RunTold]:
    """Check all run folders. Reports those that are unfinished, not loaded, or unknown to the database."""
    from hpcq.store.read.doctor_queries import known_runs

    known = known_runs(database)
    told: list[RunTold] = []
    for path in sorted(runs_folder.glob("*/run.json")):
        told += _look_at(RunFolder(path.parent), known)
    return told


def _look_at(run: RunFolder, known: set[str] | None) -> Iterator[RunTold]:
    described = read_json_or_none(run.run_json)
    if described is None:
        yield RunTold(run.path.name, "bad", f"{run.run_json} cannot be read", "remove the folder if nothing in it is needed")
        return
    name = run.run_id
    parts = [*described.get("clusters", ()), *run.link_names()]
    holders = holders_of(run)
    stages = {part: _stage(run, part) for part in parts}
    if holders:
        yield RunTold(name, "note", "; ".join(f"{part} is driven by {holder}" for part, holder in holders.items()))
        return
    unfinished = [part for part, stage in stages.items() if stage not in {"loaded", "measured", "stale"}]
    unloaded = [part for part, stage in stages.items() if stage in {"measured", "stale"}]
    if unfinished:
        words = ", ".join(f"{part} is {stages[part]}" for part in unfinished)
        yield RunTold(name, "bad", f"nobody drives it, and {words}", f"hpcq resume {name}, or hpcq cancel {name}")
    if unloaded:
        words = ", ".join(unloaded)
        yield RunTold(name, "bad", f"{words}: measured, and not all of it is loaded", f"hpcq load {name}")
    elif not unfinished and known is not None and name not in known:
        yield RunTold(name, "bad", "it is loaded into another database than this one, or lost there", f"hpcq load {name}")


def _stage(run: RunFolder, part: str) -> str:
    folder, loaded = run.path / part, run.path / part / "loaded.json"
    if not run.plan(part).is_file():
        return "not planned"
    if not (folder / "driven.json").is_file():
        return "not measured to its end" if run.journal(part).is_file() else "planned only"
    if not loaded.is_file():
        return "measured"
    return "stale" if _newest(run, part) > loaded.stat().st_mtime + _AGE_TOLERANCE_S else "loaded"


def _newest(run: RunFolder, part: str) -> float:
    """Return the time of the last write to what loading reads: the journal, and the spools of tournaments."""
    files = [run.journal(part), *(run.path / part).glob("jobs/g*/*/spool.jsonl")]
    return max((path.stat().st_mtime for path in files if path.is_file()), default=0.0)


def holders_of(run: RunFolder) -> dict[str, str]:
    """Return who drives the parts of a run now, by part."""
    parts = [*read_json(run.run_json)["clusters"], *run.link_names()]
    return {part: holder for part in parts if (holder := holder_of(run.journal(part)))}


def holder_of(journal: Path) -> str | None:
    """Return the present holder of a journal's lock; None if it is free."""
    path = journal.with_name(f"{journal.name}.lock")
    try:
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(500).strip() or "a process that did not say who it is"
    except OSError:
        return None
    return None

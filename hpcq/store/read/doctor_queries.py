"""Queries of `hpcq doctor`. They report an unreadable database instead of raising."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpcq import units
from hpcq.errors import StoreError
from hpcq.store.database import SCHEMA_VERSION, reading


def look_at_database(path: Path) -> Iterator[tuple[str, bool, str, str]]:
    """(item, ok, found, advice): leftovers of a writer, version, a quick integrity check."""
    journal = path.with_name(f"{path.name}-journal")
    left = journal.stat().st_size if journal.exists() else 0
    try:
        with reading(path) as database:
            said = [str(row[0]) for row in database.execute("PRAGMA quick_check(5)")]
            runs = int(database.execute("SELECT count(*) FROM run").fetchone()[0])
    except StoreError as error:
        advice = f"hpcq db upgrade --db {path}" if "has version" in error.message else error.hint or ""
        yield "readable", False, error.message, advice
        return
    size = units.human(path.stat().st_size, "bytes")
    yield "version", True, f"{path}: version {SCHEMA_VERSION}, {units.count_of(runs, 'run')}, {size}", ""
    yield "soundness", said == ["ok"], f"quick_check: {'; '.join(said)}", "" if said == ["ok"] else f"hpcq db check --db {path}"
    if left and not journal.exists():
        yield "journal", True, "a writer had been killed; what it had half written was rolled back just now", ""


def known_runs(path: Path) -> set[str] | None:
    """Names of all runs in it; None if it cannot be read."""
    try:
        with reading(path) as database:
            return {str(row[0]) for row in database.execute("SELECT name FROM run")}
    except StoreError:
        return None


def last_run(path: Path, campaign: str) -> str | None:
    """When the last run of a campaign began; None if there is none, or no readable database."""
    try:
        with reading(path) as database:
            row = database.execute(
                "SELECT max(r.created_utc) FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id WHERE c.name = ?",
                (campaign,),
            ).fetchone()
    except StoreError:
        return None
    return None if row[0] is None else str(row[0])

"""Upkeep of the database: check that it is sound, and keep it small.

    check(path)              integrity, references, and that every planned repetition is accounted for
    prune(path, before)      of runs that ended before, metrics become one point per job; counters and histograms go;
                             runs of a baseline that holds stay as they are

A job is rolled up once. Values that arrive later (a late file, a withdrawn retraction) stay beside the roll-up, and the
point of the job combines both.

A pruned point equals the point that histories show and verdicts use, so neither changes. The single values remain in
the run's folder for as long as you keep it.
"""

# ruff: noqa: S608 - table names are our own

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.store.database import Connection, reading, transaction, writing
from hpcq.store.points import counted
from hpcq.store.query import median
from hpcq.units import utc_now

#: Rows that pruning deletes; results, boots, facts, warnings and findings stay.
_PRUNED = ("metric", "evidence", "gauge", "histogram", "interval_value", "sample")


@dataclass(frozen=True, slots=True)
class Checked:
    """One check and its outcome."""

    item: str
    ok: bool
    found: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did, or would do."""

    run_count: int
    result_count: int
    value_count: int
    rollup_count: int
    bytes_before: int
    bytes_after: int


def check(path: Path) -> list[Checked]:
    """Check everything that can be wrong with a database. Reads all of it."""
    with reading(path) as database:
        return list(_checks(database, path))


def prune(path: Path, before_utc: str, *, dry_run: bool = False) -> Pruned:
    """Roll up runs that ended before then, all or nothing, then shrink the file. Retracted results stay as they are."""
    bytes_before = path.stat().st_size if path.exists() else 0
    with writing(path) as database:
        with transaction(database):
            parts = _old_parts(database, before_utc)
            _mark(database, parts)
            rows = list(_rollups(database))
            results, values = _counts(database)
            if not dry_run:
                database.executemany("INSERT INTO rollup VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                for table in _PRUNED:
                    database.execute(f"DELETE FROM {table} WHERE result_id IN (SELECT result_id FROM temp.old_result)")
            database.execute("DROP TABLE temp.old_result")
        if not dry_run and parts:
            database.execute("VACUUM")
    return Pruned(len(parts), results, values, len(rows), bytes_before, path.stat().st_size)


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics; the whole range below 6 values. David & Nagaraja 2003."""
    ordered, count = sorted(values), len(values)
    tail, weight, place = 0.0, 0.5**count, 0
    while tail + weight <= 0.025 and place < count // 2:
        tail += weight
        weight *= (count - place) / (place + 1)
        place += 1
    place = max(place - 1, 0)
    return ordered[place], ordered[count - 1 - place]


def _checks(database: Connection, path: Path) -> Iterator[Checked]:
    said = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
    yield Checked("integrity", said == ["ok"], "; ".join(said[:5]))
    broken = database.execute("PRAGMA foreign_key_check").fetchall()
    words = (
        f"{len(broken)} rows without what they refer to: {broken[0][0]} > {broken[0][2]}" if broken else "every reference holds"
    )
    yield Checked("references", not broken, words)
    off = database.execute(
        "SELECT run, cluster FROM v_runs"
        " WHERE planned_count <> measured_count + invalid_count + failed_count + not_measured_count"
    ).fetchall()
    words = (
        f"{off[0][0]} on {off[0][1]} does not add up: load it again"
        if off
        else "measured + invalid + failed + not measured = planned"
    )
    yield Checked("accounting", not off, words)
    bare = database.execute(
        "SELECT count(*) FROM result x WHERE x.outcome = 'measured' AND x.final = 1"
        " AND NOT EXISTS (SELECT 1 FROM metric m WHERE m.result_id = x.result_id)"
        " AND NOT EXISTS (SELECT 1 FROM rollup u WHERE u.series_id = x.series_id AND u.job_id = x.job_id)"
    ).fetchone()[0]
    words = (
        f"{bare} measured results have neither values nor a roll-up"
        if bare
        else "every measured result has values or a roll-up"
    )
    yield Checked("values", not bare, words)
    mode = str(database.execute("PRAGMA journal_mode").fetchone()[0])
    yield Checked(
        "journal", mode == "delete", f"{mode}: {'safe on shared file systems' if mode == 'delete' else 'must be delete'}"
    )
    counts = {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("run", "result", "metric")}
    yield Checked(
        "size", True, f"{path.stat().st_size / 1e6:.1f} MB: " + ", ".join(f"{n} {name}s" for name, n in counts.items())
    )


def _old_parts(database: Connection, before_utc: str) -> list[int]:
    rows = database.execute(
        "SELECT j.run_cluster_id FROM job j JOIN result x ON x.job_id = j.job_id GROUP BY j.run_cluster_id"
        " HAVING max(coalesce(x.started_utc, '')) BETWEEN '1' AND ?1 AND max(x.reason LIKE 'pending:%') IS NOT 1",
        (before_utc,),
    ).fetchall()
    return [int(row[0]) for row in rows if int(row[0]) not in _of_baselines(database)]


def _of_baselines(database: Connection) -> set[int]:
    """Run parts of baselines that hold. Others are compared with their single values, so pruning leaves them alone."""
    rows = database.execute(
        "SELECT rc.run_cluster_id FROM v_baselines b JOIN run_cluster rc ON rc.run_id = b.run_id WHERE b.holds = 1"
    )
    return {int(row[0]) for row in rows}


def _mark(database: Connection, parts: list[int]) -> None:
    database.execute("CREATE TEMP TABLE old_result (result_id INTEGER PRIMARY KEY)")
    database.executemany(
        "INSERT INTO temp.old_result SELECT x.result_id FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.outcome = 'measured' AND NOT EXISTS (SELECT 1 FROM retraction t"
        " WHERE t.result_id = x.result_id) AND EXISTS (SELECT 1 FROM metric m WHERE m.result_id = x.result_id)"
        " AND NOT EXISTS (SELECT 1 FROM rollup u WHERE u.series_id = x.series_id AND u.job_id = x.job_id)",
        [(part,) for part in parts],
    )


def _counts(database: Connection) -> tuple[int, int]:
    results = database.execute("SELECT count(*) FROM temp.old_result").fetchone()[0]
    query = "SELECT count(*) FROM metric WHERE result_id IN (SELECT result_id FROM temp.old_result)"
    return int(results), int(database.execute(query).fetchone()[0])


def _rollups(database: Connection) -> Iterator[tuple[Any, ...]]:
    rows = database.execute(
        "SELECT x.series_id, m.metric_name_id, x.job_id, x.result_id, coalesce(x.started_utc, ?) AS started_utc, m.value,"
        " x.disturbed"
        " FROM temp.old_result o JOIN result x ON x.result_id = o.result_id JOIN metric m ON m.result_id = x.result_id"
        " WHERE x.final = 1 ORDER BY x.series_id, m.metric_name_id, x.job_id, started_utc, x.result_id",
        (utc_now(),),
    )
    for key, group in itertools.groupby(rows, key=_rollup_key):
        found = counted(list(group))
        values = [row["value"] for row in found]
        spread = (median(values), *interval(values), min(values), max(values))
        yield (*key, found[0]["result_id"], found[0]["started_utc"], len(values), *spread)


def _rollup_key(row: Any) -> tuple[int, int, int]:
    return row["series_id"], row["metric_name_id"], row["job_id"]

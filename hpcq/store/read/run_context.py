"""Context of a run's results: builds, what the plan left out, warnings of kernels."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from hpcq.store.query import columns


@dataclass(frozen=True, slots=True)
class BuildRow:
    """A program as built on a cluster, and how many of the selected results it produced."""

    cluster: str
    toolchain: str
    program: str
    version: str
    source_build_id: str
    compiler: str
    flags: str
    mpi: str
    modules: str
    binary_sha256: str
    built_utc: str | None
    result_count: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A pair that a plan left out, or a node if server is None, and why."""

    cluster: str
    client: str
    server: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class WarningCount:
    """How many measured results have a warning, with one of its messages."""

    cluster: str
    kernel: str
    name: str
    result_count: int
    example: str


def builds(database: sqlite3.Connection, run: str) -> list[BuildRow]:
    """The builds that produced results of a run."""
    columns = ", ".join(f"b.{name}" for name in BuildRow.__dataclass_fields__ if name != "result_count")
    query = (
        f"SELECT {columns}, u.result_count FROM v_builds b JOIN (SELECT x.build_id, count(*) AS result_count FROM result x"
        " JOIN v_pairs p ON p.job_id = x.job_id WHERE p.run = ? GROUP BY x.build_id) u ON u.build_id = b.build_id"
        " ORDER BY b.cluster, b.program"
    )
    return [BuildRow(*row) for row in database.execute(query, (run,))]


def left_out(database: sqlite3.Connection, run: str) -> list[LeftOut]:
    """Pairs and nodes that the plans of a run left out."""
    query = f"SELECT {columns(LeftOut)} FROM v_not_planned WHERE run = ? ORDER BY cluster, server IS NOT NULL, client, server"
    return [LeftOut(*row) for row in database.execute(query, (run,))]


def warnings(database: sqlite3.Connection, run: str) -> list[WarningCount]:
    """Warnings of kernels in the results of a run that count."""
    query = (
        "SELECT v.cluster, v.kernel, w.name, count(*) AS result_count, min(w.message) AS example FROM v_results v"
        " JOIN warning w ON w.result_id = v.result_id WHERE v.run = ? AND v.outcome = 'measured'"
        " GROUP BY v.cluster, v.kernel, w.name ORDER BY result_count DESC, v.cluster, v.kernel, w.name"
    )
    return [WarningCount(*row) for row in database.execute(query, (run,))]


def last_runs(database: sqlite3.Connection) -> dict[str, str]:
    """The newest run of each campaign, by the campaign's name."""
    query = "SELECT c.name, r.name FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id ORDER BY r.created_utc, r.run_id"
    return {str(campaign): str(run) for campaign, run in database.execute(query)}

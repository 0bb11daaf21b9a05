"""Load a run folder into results.db. You can do this at any time, and again.

    run.json, plan.json, build.json, journal.jsonl   -> run, run_cluster, build, job, attempt
    jobs/<job>/<attempt>/t*-r*.json, facts-*.json    -> result and all that depends on it, node_facts
    planned, but no file                             -> a result row not_measured with the reason

One transaction per cluster: if the load is killed, locked out or out of disk, the database stays as it was, and so do
the files. The sha256 of each loaded file is stored, so loading twice changes nothing. After every load, each planned
repetition has exactly one final row, so measured + invalid + failed + not_measured = planned, even while the campaign
still runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.described import know_folder
from hpcq.errors import StoreError
from hpcq.evidence.judgement import Judge, no_judge
from hpcq.run_folder.lines import Outcome
from hpcq.run_folder.paths import RunFolder, read_json
from hpcq.store.database import transaction, writing
from hpcq.store.load.cluster import ClusterLoader
from hpcq.store.load.link import LinkLoader


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """A cluster's part of a run as it now is in the database; the counts of outcomes add up to planned_count."""

    cluster: str
    planned_count: int
    measured_count: int
    invalid_count: int
    failed_count: int
    not_measured_count: int
    pending_count: int
    """The part of not_measured_count that may still come, because the job has not ended."""
    read_count: int
    """Result files that this load read."""
    known_count: int
    """Result files that earlier loads had read."""
    notes: tuple[str, ...]
    """Irregularities that the load skipped."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading a run folder did."""

    run: str
    clusters: tuple[ClusterLoad, ...]

    @property
    def complete(self) -> bool:
        """Whether every planned result is measured."""
        return all(one.measured_count == one.planned_count for one in self.clusters)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def load_run(database: Path, run_folder: Path, *, clusters: Iterable[str] | None = None, judge: Judge = no_judge) -> LoadReport:
    """Load a run, or some of its clusters, into the database at `database`. Creates the database if it does not exist.

    Raises StoreError if the database is locked, unwritable or not ours, or if the run folder lacks run.json, a plan or
    a readable journal. Clusters that were loaded before the error stay loaded, and you can load again.
    """
    folder = RunFolder(run_folder)
    run = read_json(folder.run_json)
    if run.get("format", 1) != 1:
        raise StoreError(f"{folder.run_json}: format {run['format']}: allowed is 1")
    wanted = folder.parts() if clusters is None else list(clusters)
    links = folder.link_names()
    know_folder(folder.described)
    loaded = []
    with writing(database) as connection:
        for cluster in wanted:
            with transaction(connection):
                loader = (LinkLoader if cluster in links else ClusterLoader)(connection, folder, cluster, run, judge)
                loader.load()
            loaded.append(_account(connection, loader))
    return LoadReport(str(run.get("run_id") or folder.run_id), tuple(loaded))


def _account(connection: sqlite3.Connection, loader: ClusterLoader) -> ClusterLoad:
    rows = connection.execute(
        "SELECT x.outcome, count(*) FROM result x JOIN job j ON j.job_id = x.job_id"
        " WHERE j.run_cluster_id = ? AND x.final = 1 GROUP BY x.outcome",
        (loader.run_cluster_id,),
    )
    counts = dict(iter(rows))
    return ClusterLoad(
        cluster=loader.cluster,
        planned_count=loader.planned_count,
        measured_count=counts.get(Outcome.MEASURED, 0),
        invalid_count=counts.get(Outcome.INVALID, 0),
        failed_count=counts.get(Outcome.FAILED, 0),
        not_measured_count=counts.get(Outcome.NOT_MEASURED, 0),
        pending_count=loader.pending_count,
        read_count=loader.read_count,
        known_count=loader.known_count,
        notes=tuple(loader.notes),
    )

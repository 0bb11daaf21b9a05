"""From a run folder into results.db; may be done at any time, and again.

    run.json, plan.json, build.json, journal.jsonl   -> run, run_cluster, build, job, attempt
    jobs/<job>/<attempt>/t*-r*.json, facts-*.json    -> result and all that hangs on it, node_facts
    planned, but no file                             -> a result row not_measured with the reason

One transaction a cluster: killed, locked out or out of disk, it leaves the database as it was, and the files stay. What was
loaded is known by its sha256, so loading twice changes nothing. After every load, each planned repetition has exactly one
final row, so measured + invalid + failed + not_measured = planned, also while the campaign still runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcq.errors import StoreError
from hpcq.evidence.judgement import Judge, no_judge
from hpcq.run_folder.lines import Outcome
from hpcq.run_folder.paths import RunFolder, read_json
from hpcq.store.database import transaction, writing
from hpcq.store.load.cluster import ClusterLoader
from hpcq.store.load.link import LinkLoader


@dataclass(frozen=True, slots=True)
class ClusterLoad:
    """What a cluster's part of a run now is in the database; the counts of outcomes add up to planned_count."""

    cluster: str
    planned_count: int
    measured_count: int
    invalid_count: int
    failed_count: int
    not_measured_count: int
    pending_count: int
    """Of not_measured_count: may still come, because its job is not over."""
    read_count: int
    """Result files that this load brought in."""
    known_count: int
    """Result files that were there already."""
    notes: tuple[str, ...]
    """What was found odd and passed over."""


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
    """Load a run, or some of its clusters, into the database at `database`, which is made if it is not there.

    Raises StoreError when the database is locked, unwritable or not ours, or the run folder lacks run.json, a plan or a
    readable journal; what was loaded of other clusters before stays, and loading again goes on.
    """
    folder = RunFolder(run_folder)
    run = read_json(folder.run_json)
    if run.get("format", 1) != 1:
        raise StoreError(f"{folder.run_json}: format {run['format']}: allowed is 1")
    wanted = folder.parts() if clusters is None else list(clusters)
    links = folder.link_names()
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

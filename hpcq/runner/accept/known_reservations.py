"""Reservations that the clusters of an acceptance have, or had as far as the ledger knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpcq.definition.files.cluster import read_cluster
from hpcq.errors import UserError
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.store import ledger
from hpcq.store.database import reading


def check_reservation(name: str, database: Path, cluster_paths: Mapping[str, Path]) -> None:
    """Raise UserError for a name that no cluster has or had: a wrong name must not read as "nothing to do"."""
    there: set[str] = set()
    with reading(database) as connection:
        for cluster in cluster_paths:
            there |= {one for node in ledger.nodes_of(connection, cluster).values() for one in node.reservations}
    for path in cluster_paths.values():
        cluster_file = read_cluster(path)
        administration = scheduler_of(cluster_file, reach(cluster_file)).administration()
        there |= {one.name for one in administration.look().reservations} if administration is not None else set()
    if name not in there:
        known = f"there are {', '.join(sorted(there)[:12])}" if there else "no reservation is there, and none was recorded"
        raise UserError(f"--since: {name!r}: allowed is a reservation, a time (now-12h, 2026-11-20), a run, or boot", known)

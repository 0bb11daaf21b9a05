"""Names and counts of results, without the results: a run may have a hundred thousand of them."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from hpcq.store.query import Selection, columns, where


@dataclass(frozen=True, slots=True)
class Place:
    """A kernel that ran between two nodes."""

    cluster: str
    kernel: str
    client: str
    server: str


def places(database: sqlite3.Connection, selection: Selection) -> list[Place]:
    """Every cluster, kernel and pair of the selected results, once."""
    conditions, values = where(selection)
    query = f"SELECT DISTINCT {columns(Place)} FROM v_results WHERE {conditions}"
    return [Place(*row) for row in database.execute(query, values)]


def pairs_of_run(database: sqlite3.Connection, run: str) -> set[tuple[str, str, str]]:
    """Cluster, client and server of every planned pair."""
    rows = database.execute("SELECT DISTINCT cluster, client, server FROM v_pairs WHERE run = ?", (run,))
    return {(str(row[0]), str(row[1]), str(row[2])) for row in rows}


def repeated_series(database: sqlite3.Connection, run: str, job_count: int) -> set[int]:
    """Series of a run that at least so many jobs of any run were to measure: the others have no history."""
    rows = database.execute(
        "SELECT x.series_id FROM result x WHERE x.series_id IN (SELECT y.series_id FROM v_pairs p"
        " JOIN result y ON y.job_id = p.job_id WHERE p.run = ?) GROUP BY x.series_id HAVING count(DISTINCT x.job_id) >= ?",
        (run, job_count),
    )
    return {int(row[0]) for row in rows}


def network_texts(database: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """By cluster and interface: a network for people, `ib (ib0)`. Only those that a cluster's file names."""
    return {key: text for key, (_, text) in named_networks(database).items()}


def network_text(name: str | None, interface: str) -> str:
    """A network for people: its name in the cluster file, if it has one, and the interface."""
    return f"{name} ({interface})" if name and name != interface else interface


def named_networks(database: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """The same with the bare name before the text."""
    query = "SELECT c.name, w.interface, w.name FROM network w JOIN cluster c ON c.cluster_id = w.cluster_id"
    return {
        (str(cluster), str(interface)): (str(name), network_text(str(name), str(interface)))
        for cluster, interface, name in database.execute(query)
    }


def disturbed_count(database: sqlite3.Connection, selection: Selection) -> int:
    """How many measured results have evidence of other work on a node."""
    conditions, values = where(replace(selection, outcome="measured"))
    found = database.execute(f"SELECT count(*) FROM v_results WHERE {conditions} AND disturbed", values).fetchone()
    return int(found[0])

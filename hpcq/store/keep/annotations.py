"""What people add to the database: notes, events, baselines, retractions and decisions about changes.

Nothing here deletes a row: undoing something adds a row that says who did it and why.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.errors import UserError
from hpcq.nodelist import takes_part
from hpcq.store.database import Connection, transaction, writing
from hpcq.store.selection import TOOK_PART, find_run
from hpcq.units import utc_now

STATES = ("open", "acknowledged", "expected", "fixed", "false")
EVENT_KINDS = ("maintenance", "reboot", "drain", "resume", "change", "note")


@dataclass(frozen=True, slots=True)
class Author:
    """The author of an entry and the reason."""

    who: str
    why: str


def set_state(path: Path, change_ids: Sequence[int], state: str, said: Author) -> None:
    """Set the state of changes. Raises UserError for numbers that do not exist."""
    with writing(path) as database, transaction(database):
        for change_id in change_ids:
            if database.execute("SELECT 1 FROM change WHERE change_id = ?", (change_id,)).fetchone() is None:
                raise UserError(f"{change_id} is not a recorded change", "`hpcq changes list` shows them")
            add_state(database, change_id, state, said)


def changes(database: Connection, states: Sequence[str] = (), node: str | None = None) -> list[dict[str, Any]]:
    """Recorded changes in these states (empty: all), newest first."""
    # from the changes, which are few, to their series
    query = "SELECT * FROM v_changes WHERE change_id IN (SELECT change_id FROM change) ORDER BY at_utc DESC, change_id"
    rows = [dict(row) for row in database.execute(query)]
    return [
        row
        for row in rows
        if (not states or row["state"] in states) and (node is None or takes_part(node, row["client"], row["server"]))
    ]


def states_of(database: Connection, change_id: int) -> list[dict[str, Any]]:
    """All decisions about one change, oldest first."""
    query = "SELECT state_no, state, set_utc, who, why FROM change_state WHERE change_id = ? ORDER BY state_no"
    return [dict(row) for row in database.execute(query, (change_id,))]


def retract(path: Path, result_ids: Sequence[int], said: Author) -> int:
    """Declare measured results bad. Returns how many were not retracted before."""
    with writing(path) as database, transaction(database):
        before = database.total_changes
        for result_id in result_ids:
            _measured(database, result_id)
            database.execute("INSERT OR IGNORE INTO retraction VALUES (?, ?, ?, ?)", (result_id, utc_now(), said.who, said.why))
        return database.total_changes - before


def withdraw(path: Path, result_ids: Sequence[int], said: Author) -> int:
    """Let retracted results count again. The database still knows who retracted them, and why."""
    count = 0
    with writing(path) as database, transaction(database):
        for result_id in result_ids:
            row = database.execute("SELECT * FROM retraction WHERE result_id = ?", (result_id,)).fetchone()
            if row is None:
                raise UserError(
                    f"{result_id} is not retracted", '`hpcq sql "SELECT * FROM v_retractions"` lists those that are'
                )
            database.execute(
                "INSERT INTO retraction_withdrawn VALUES (?, ?, ?, ?, ?, ?, ?)",
                (result_id, utc_now(), row["retracted_utc"], row["who"], row["reason"], said.who, said.why),
            )
            database.execute("DELETE FROM retraction WHERE result_id = ?", (result_id,))
            count += 1
    return count


def results_of(database: Connection, run: str, node: str | None, kernel: str | None) -> list[int]:
    """Measured results of a run that count, that this node took part in and of this kernel."""
    name = find_run(database, run)
    rows = database.execute(
        f"SELECT result_id FROM v_results WHERE run = :run AND outcome = 'measured' AND (:node IS NULL OR {TOOK_PART})"
        " AND (:kernel IS NULL OR kernel = :kernel)",
        {"run": name, "node": node, "kernel": kernel},
    )
    return [int(row[0]) for row in rows]


def set_baseline(path: Path, name: str, runs: Sequence[str], said: Author) -> list[str]:
    """Make these runs the baseline of that name.

    Returns their full names. The previous baseline stays, but no longer holds.
    """
    with writing(path) as database, transaction(database):
        names = sorted({find_run(database, run) for run in runs})
        baseline_id = database.execute(
            "INSERT INTO baseline (name, set_utc, who, why) VALUES (?, ?, ?, ?)", (name, utc_now(), said.who, said.why)
        ).lastrowid
        database.executemany(
            "INSERT INTO baseline_run SELECT ?, run_id FROM run WHERE name = ?", [(baseline_id, run) for run in names]
        )
    return names


def baselines(database: Connection) -> list[dict[str, Any]]:
    """All baselines, newest first, with runs and clusters.

    On a cluster, the newest baseline of a name is the one that holds.
    """
    found: dict[int, dict[str, Any]] = {}
    for row in database.execute("SELECT * FROM v_baselines ORDER BY set_utc DESC, run"):
        kept = {name: row[name] for name in ("baseline", "set_utc", "who", "why")}
        one = found.setdefault(row["baseline_id"], {**kept, "holds": 0, "clusters": [], "runs": []})
        one["holds"] = max(one["holds"], row["holds"])
        for name in ("cluster", "run"):
            if row[name] not in one[f"{name}s"]:
                one[f"{name}s"].append(row[name])
    return list(found.values())


def add_event(path: Path, kind: str, times: tuple[str, str | None], places: Sequence[str], said: Author) -> int:
    """Record an event once per place: a cluster, cluster/node, or a node that only one cluster has. No place: all.

    Recording the same event again adds nothing. Returns how many rows were new.
    """
    with writing(path) as database, transaction(database):
        new = 0
        for cluster_id, node_id in [_place(database, place) for place in places] or [(None, None)]:
            new += insert_event(database, kind, times, said, cluster_id=cluster_id, node_id=node_id)
    return new


def annotate(path: Path, what: str, name: str, note: str, who: str) -> None:
    """Add a note to a run, a series, a result or a node (`what`). Raises UserError if none has that name."""
    with writing(path) as database, transaction(database):
        target: dict[str, int | None] = {}
        moment = utc_now()
        if what == "run":
            row = database.execute("SELECT run_id, created_utc FROM run WHERE name = ?", (find_run(database, name),)).fetchone()
            target, moment = {"run_id": row["run_id"]}, row["created_utc"]
        elif what == "result":
            target, moment = {"result_id": int(name)}, _measured(database, int(name))
        elif what == "series":
            from hpcq.store.series import find_series

            target = {"series_id": find_series(database, name)[0].series_id}
        else:
            cluster_id, node_id = _place(database, name)
            target = {"cluster_id": cluster_id, "node_id": node_id}
        insert_event(database, "note", (moment, None), Author(who, note), **target)


def insert_event(database: Connection, kind: str, times: tuple[str, str | None], said: Author, **target: int | None) -> int:
    """Insert one row unless it exists (1 or 0). times: from and until. said.why: the note.

    If the stored event has no end yet, it gets this one.
    """
    columns = ("cluster_id", "node_id", "run_id", "series_id", "result_id")
    where = " AND ".join(f"{name} IS :{name}" for name in columns)
    bound: dict[str, Any] = {name: target.get(name) for name in columns}
    bound |= {"kind": kind, "started": times[0], "ended": times[1], "note": said.why, "who": said.who, "now": utc_now()}
    known = database.execute(
        f"SELECT event_id, ended_utc FROM event WHERE kind = :kind AND started_utc = :started AND note = :note AND {where}",
        bound,
    ).fetchone()
    if known is None:
        database.execute(
            "INSERT INTO event (kind, started_utc, ended_utc, note, who, recorded_utc, cluster_id, node_id, run_id, series_id,"
            " result_id) VALUES (:kind, :started, :ended, :note, :who, :now, :cluster_id, :node_id, :run_id, :series_id,"
            " :result_id)",
            bound,
        )
        return 1
    if known["ended_utc"] is None and times[1] is not None:
        database.execute("UPDATE event SET ended_utc = ? WHERE event_id = ?", (times[1], known["event_id"]))
    return 0


def events(database: Connection, from_utc: str | None, until_utc: str | None, node: str | None) -> list[dict[str, Any]]:
    """Events in a stretch of time, oldest first."""
    rows = database.execute(
        "SELECT * FROM v_events WHERE (?1 IS NULL OR coalesce(ended_utc, started_utc) >= ?1)"
        " AND (?2 IS NULL OR started_utc < ?2) AND (?3 IS NULL OR node = ?3 OR cluster || '/' || node = ?3)"
        " ORDER BY started_utc, event_id",
        (from_utc, until_utc, node),
    )
    return [dict(row) for row in rows]


def set_groups(database: Connection, cluster: str, kind: str, groups: Iterable[tuple[str, str]], seen_utc: str) -> int:
    """Record (node, group) of a cluster's nodes where it differs from what is stored. Returns how many are new."""
    news = 0
    for node, group in groups:
        row = database.execute(
            "SELECT n.node_id, (SELECT g.name FROM node_group g WHERE g.node_id = n.node_id AND g.kind = ?3"
            " ORDER BY g.since_utc DESC LIMIT 1) AS known FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id"
            " WHERE c.name = ?1 AND n.name = ?2",
            (cluster, node, kind),
        ).fetchone()
        if row is not None and row["known"] != group:
            database.execute("INSERT OR REPLACE INTO node_group VALUES (?, ?, ?, ?)", (row["node_id"], kind, seen_utc, group))
            news += 1
    return news


def node_ids(database: Connection, cluster: str) -> dict[str, int]:
    """The nodes of a cluster that this database knows."""
    rows = database.execute(
        "SELECT n.name, n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?", (cluster,)
    )
    return {str(row[0]): int(row[1]) for row in rows}


def add_state(database: Connection, change_id: int, state: str, said: Author) -> None:
    database.execute(
        "INSERT INTO change_state SELECT ?1, 1 + coalesce(max(state_no), 0), ?2, ?3, ?4, ?5 FROM change_state"
        " WHERE change_id = ?1",
        (change_id, state, utc_now(), said.who, said.why),
    )


def _measured(database: Connection, result_id: int) -> str:
    """When a measured result was measured. A later load may replace other results, so they take no annotations."""
    row = database.execute("SELECT outcome, started_utc FROM result WHERE result_id = ?", (result_id,)).fetchone()
    if row is None:
        raise UserError(f"{result_id} is not a result in this database", "`hpcq results --each` shows their numbers")
    if row["outcome"] != "measured":
        raise UserError(f"result {result_id} is {row['outcome'].replace('_', ' ')}: only measured ones count anyway")
    if database.execute("SELECT 1 FROM metric WHERE result_id = ? LIMIT 1", (result_id,)).fetchone() is None:
        raise UserError(
            f"result {result_id} was pruned: its values are part of a roll-up", "results are retracted before pruning"
        )
    return str(row["started_utc"] or utc_now())


def _place(database: Connection, name: str) -> tuple[int | None, int | None]:
    cluster, _, node = name.rpartition("/")
    rows = database.execute(
        "SELECT n.cluster_id, n.node_id, c.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id"
        " WHERE n.name = ?1 AND (?2 = '' OR c.name = ?2)",
        (node, cluster),
    ).fetchall()
    if len(rows) == 1:
        return int(rows[0][0]), int(rows[0][1])
    if rows:
        raise UserError(f"{name!r} is a node of {', '.join(str(row[2]) for row in rows)}", "write CLUSTER/NODE")
    found = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise UserError(f"{name!r} is neither a node nor a cluster in this database", "`hpcq nodes` lists them")
    return int(found[0]), None

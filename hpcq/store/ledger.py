"""The ledger of acceptances: verdicts on nodes, links, groups, clusters and collectives, and what happened to nodes since.

decide(database, cluster, records)       write verdicts into the ledger
last_verdicts(database, cluster)         the last verdict on each subject, or every verdict
at_fault(database, cluster)              all but nodes whose last verdict is not a pass
says_as_much(database, cluster, record)  whether a verdict adds nothing to the ledger
nodes_of(database, cluster)              each node with its last verdict, its boot and the events since
"""

from __future__ import annotations

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# ruff: noqa: S608 - queries are put together from numbers of our own; values are always bound
from hpcq import units
from hpcq.clock import CLOCK_TOLERANCE_S
from hpcq.gate_kinds import End, needed_facts
from hpcq.nodelist import natural
from hpcq.store.database import Connection
from hpcq.store.keep.annotations import Author, insert_event, set_groups
from hpcq.store.query import check_known
from hpcq.store.selection import COUNTS, Window
from hpcq.units import parse_utc, utc_now
from hpcq.verdict.words import Thing, Verdict, VerdictRecord

#: Something inconclusive or at fault is tried again after this time, then after twice as long, up to one day.
TRY_AGAIN_S = 600
TRY_AGAIN_MAX_S = 86400


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """One node. last: its last verdict. booted: its boot is not the judged one. since: events after the verdict.

    reservations: the recorded maintenance reservations of the node, each with its end; None while it lasts.
    """

    node: str
    last: VerdictRecord | None = None
    booted: bool = False
    since: tuple[str, ...] = ()
    reservations: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """Its last verdict as a word; None for a node without a verdict."""
        return self.last.verdict if self.last is not None else None


def decide(
    database: Connection, cluster: str, records: Iterable[VerdictRecord], *, run_id: int | None, baseline: str | None
) -> None:
    """Write verdicts into the ledger, with the boot in which each node was measured."""
    cluster_id = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (cluster,)).fetchone()[0]
    baseline_id = _baseline_id(database, baseline)
    for one in records:
        cursor = database.execute(
            "INSERT INTO acceptance (cluster_id, kind, name, run_id, baseline_id, verdict, reason, measured_utc, decided_utc)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (cluster_id, one.kind, one.name, run_id, baseline_id, one.verdict, one.reason, one.measured_utc, utc_now()),
        )
        boot = "NULL" if one.verdict is Verdict.NOT_COVERED else _LAST_BOOT
        database.executemany(
            f"INSERT INTO acceptance_node SELECT ?, n.node_id, {boot} FROM node n WHERE n.cluster_id = ? AND n.name = ?",
            [(cursor.lastrowid, cluster_id, node) for node in one.nodes],
        )


_LAST_BOOT = "(SELECT node_boot_id FROM node_boot b WHERE b.node_id = n.node_id ORDER BY last_seen_utc DESC LIMIT 1)"


def last_verdicts(
    database: Connection, cluster: str | None = None, node: str | None = None, *, each: bool = False
) -> list[VerdictRecord]:
    """The last verdict on each subject; with `each`, every verdict, oldest first. node: the node and what it shares.

    Raises UserError for a cluster or node that the database does not know.
    """
    check_known(database, cluster=cluster, node=node)
    rows = database.execute(
        f"SELECT * FROM {'v_acceptances' if each else 'v_ledger'} WHERE (?1 IS NULL OR cluster = ?1)"
        " AND (?2 IS NULL OR instr(' ' || nodes || ' ', ' ' || ?2 || ' ') > 0)"
        f" ORDER BY {'decided_utc, ' if each else ''}cluster,"
        " CASE kind WHEN 'cluster' THEN 0 WHEN 'node' THEN 1 WHEN 'link' THEN 2 WHEN 'group' THEN 3 ELSE 4 END, name",
        (cluster, node),
    )
    return [_record(row) for row in rows]


def unfit(database: Connection, cluster: str, until_utc: str | None = None) -> list[VerdictRecord]:
    """What failed an acceptance and has passed none since, as it stood at a time; None: now. A verdict is as old as its run."""
    rows = database.execute(
        "SELECT * FROM v_acceptances WHERE acceptance_id IN (SELECT acceptance_id FROM (SELECT a.acceptance_id, a.verdict,"
        " row_number() OVER (PARTITION BY a.kind, a.name ORDER BY a.decided_utc DESC) AS place"
        " FROM acceptance a JOIN cluster c ON c.cluster_id = a.cluster_id LEFT JOIN run r ON r.run_id = a.run_id"
        " WHERE c.name = ?1 AND a.kind <> 'collective' AND a.verdict IN ('pass', 'failed', 'degraded')"
        " AND (?2 IS NULL OR coalesce(r.created_utc, a.decided_utc) <= ?2)) WHERE place = 1 AND verdict <> 'pass')",
        (cluster, until_utc),
    )
    return sorted((_record(row) for row in rows), key=lambda one: (one.kind.value, natural(one.name)))


def at_fault(database: Connection, cluster: str) -> list[VerdictRecord]:
    """Links, groups, clusters and collectives whose last verdict is not a pass."""
    rows = database.execute(
        "SELECT * FROM v_ledger WHERE cluster = ? AND kind <> 'node' AND verdict <> 'pass' ORDER BY kind, name", (cluster,)
    ).fetchall()
    return [_record(row, waits=_waits(database, row, "verdict <> 'pass'")) for row in rows]


def nodes_of(database: Connection, cluster: str) -> dict[str, LedgerNode]:
    """Every node of a cluster that this database knows."""
    happened: dict[str, list[tuple[str, str]]] = {}
    reserved: dict[str, dict[str, str | None]] = {}
    for row in database.execute(
        "SELECT n.name AS node, e.kind, e.note, e.ended_utc, coalesce(e.ended_utc, e.started_utc) AS at_utc FROM event e"
        " JOIN node n ON n.node_id = e.node_id JOIN cluster c ON c.cluster_id = n.cluster_id"
        " WHERE c.name = ? AND e.kind NOT IN ('note', 'drain', 'reboot') AND at_utc <= ? ORDER BY e.event_id",
        (cluster, utc_now()),
    ):
        happened.setdefault(row["node"], []).append((row["at_utc"], row["kind"]))
        if row["kind"] == "maintenance":
            reserved.setdefault(row["node"], {})[row["note"]] = row["ended_utc"]
    found = {}
    for row in database.execute("SELECT *, node AS nodes FROM v_nodes WHERE cluster = ?", (cluster,)).fetchall():
        node, decided_utc = str(row["node"]), row["decided_utc"] or ""
        since = tuple(dict.fromkeys(kind for at_utc, kind in happened.get(node, []) if at_utc > decided_utc))
        booted = row["accepted_boot_id"] not in {None, row["boot_id"]}  # no accepted boot: was not measured
        last = None
        if decided_utc:
            known = {**dict(row), "kind": Thing.NODE, "name": node}
            waits = row["verdict"] == Verdict.INCONCLUSIVE and _waits(database, known, "verdict = 'inconclusive'")
            last = _record(known, waits=waits)
        found[node] = LedgerNode(node, last, booted, since, reserved.get(node, {}))
    return found


def says_as_much(database: Connection, cluster: str, one: VerdictRecord) -> bool:
    """Whether the ledger already says as much as a NOT COVERED does: it failed, or was not covered for the same reason.

    A node that failed and was drained is not covered until its repair, and has not got better.
    """
    if one.verdict is not Verdict.NOT_COVERED:
        return False
    row = database.execute(
        "SELECT verdict, reason FROM v_ledger WHERE cluster = ? AND kind = ? AND name = ?", (cluster, one.kind, one.name)
    ).fetchone()
    return row is not None and (row["verdict"] in {Verdict.FAILED, Verdict.DEGRADED} or tuple(row) == (one.verdict, one.reason))


def _record(row: Any, *, waits: bool = False) -> VerdictRecord:
    return VerdictRecord(
        Thing(row["kind"]),
        row["name"],
        Verdict(row["verdict"]),
        row["reason"],
        tuple(sorted(row["nodes"].split(), key=natural)),
        measured_utc=row["measured_utc"],
        cluster=row["cluster"],
        decided_utc=row["decided_utc"],
        run=row["run"],
        waits=waits,
    )


def _waits(database: Connection, row: Any, same: str) -> bool:
    """Whether to leave an unchanged subject alone. The pause doubles with each such verdict."""
    tries = database.execute(
        f"SELECT count(*) FROM v_acceptances WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND {same} AND decided_utc >"
        " coalesce((SELECT max(decided_utc) FROM v_acceptances"
        f" WHERE cluster = ?1 AND kind = ?2 AND name = ?3 AND NOT {same}), '')",
        (row["cluster"], row["kind"], row["name"]),
    ).fetchone()[0]
    pause = dt.timedelta(seconds=min(TRY_AGAIN_S * 2 ** (tries - 1), TRY_AGAIN_MAX_S))
    ago = parse_utc(utc_now()) - parse_utc(row["decided_utc"])
    return dt.timedelta(seconds=-CLOCK_TOLERANCE_S) <= ago < pause


def _baseline_id(database: Connection, name: str | None) -> int | None:
    """The baseline of this name that holds now."""
    row = database.execute("SELECT baseline_id FROM baseline WHERE name = ? ORDER BY set_utc DESC LIMIT 1", (name,)).fetchone()
    return int(row[0]) if row else None


# ----------------------------------------------------------------------------------------------------------------------
# Record once what the scheduler says of nodes: maintenance, drains, leaf switches. Includes nodes never measured.
#
# observed(database, cluster, ...)     events and groups
# leaves_of(database, cluster)         the leaf switch of each node, as the scheduler last reported it


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A maintenance reservation of one node, for the event table; note: its name."""

    node: str
    started_utc: str
    note: str


def ensure_nodes(database: Connection, cluster: str, nodes: Iterable[str]) -> None:
    """Create rows for a cluster and its nodes that were never measured."""
    database.execute("INSERT OR IGNORE INTO cluster (name) VALUES (?)", (cluster,))
    cluster_id = database.execute("SELECT cluster_id FROM cluster WHERE name = ?", (cluster,)).fetchone()[0]
    database.executemany("INSERT OR IGNORE INTO node (cluster_id, name) VALUES (?, ?)", [(cluster_id, node) for node in nodes])


def observed(
    database: Connection, cluster: str, standing: Sequence[Occurrence], drained: Iterable[str], leaves: Mapping[str, str]
) -> None:
    """Record what the scheduler says. What is already recorded is not written again.

    standing: present maintenance; recorded maintenance that is missing from it has ended. drained: nodes drained now.
    """
    ids = {str(row[0]): (row[1], row[2]) for row in database.execute(
        "SELECT n.name, n.cluster_id, n.node_id FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?",
        (cluster,),
    )}  # fmt: skip
    who = f"scheduler:{cluster}"
    for one in standing:
        if one.node in ids:
            place = {"cluster_id": ids[one.node][0], "node_id": ids[one.node][1]}
            insert_event(database, "maintenance", (one.started_utc, None), Author(who, one.note), **place)
    _end_maintenance(database, who, {one.note for one in standing})
    open_drains = _open_drains(database, who)
    now, still = utc_now(), set(drained)
    for node, (cluster_id, node_id) in ids.items():
        place = {"cluster_id": cluster_id, "node_id": node_id}
        if node in still and node_id not in open_drains:
            insert_event(database, "drain", (now, None), Author(who, "seen drained"), **place)
        elif node not in still and node_id in open_drains:
            database.execute("UPDATE event SET ended_utc = ? WHERE event_id = ?", (now, open_drains[node_id]))
            insert_event(database, "resume", (now, None), Author(who, "no longer drained"), **place)
    set_groups(database, cluster, "leaf", leaves.items(), now)


def leaves_of(database: Connection, cluster: str) -> dict[str, str]:
    """node -> leaf switch, as the scheduler last reported it; empty if it never did."""
    rows = database.execute("SELECT node, \"group\" FROM v_groups WHERE cluster = ? AND kind = 'leaf'", (cluster,))
    return {str(row[0]): str(row[1]) for row in rows}


def _end_maintenance(database: Connection, who: str, standing: set[str]) -> None:
    for row in database.execute(
        "SELECT event_id, note FROM event WHERE kind = 'maintenance' AND ended_utc IS NULL AND who = ?", (who,)
    ).fetchall():
        if row["note"] not in standing:
            database.execute("UPDATE event SET ended_utc = ? WHERE event_id = ?", (utc_now(), row["event_id"]))


def _open_drains(database: Connection, who: str) -> dict[int, int]:
    rows = database.execute(
        "SELECT node_id, event_id FROM event WHERE kind = 'drain' AND ended_utc IS NULL AND who = ?", (who,)
    )
    return {int(row[0]): int(row[1]) for row in rows}


# ----------------------------------------------------------------------------------------------------------------------
# Database queries of relative gates: a baseline's values by series, runs in a stretch of time, facts of both ends.
#
# Nothing here judges: the kinds in hpcq.gate_kinds do.


def holding_baseline(database: Connection, name: str) -> tuple[int, ...] | None:
    """The runs of the baseline that holds under this name; None if there is none."""
    rows = database.execute("SELECT DISTINCT run_id FROM v_baselines WHERE baseline = ? AND holds = 1", (name,)).fetchall()
    return tuple(int(row[0]) for row in rows) or None


def values_in_runs(
    database: Connection, run_ids: Sequence[int], metric: str, series_ids: Iterable[int]
) -> dict[int, list[tuple[float, int]]]:
    """By series: (value, how many it represents) of a metric in these runs.

    A pruned job's value represents all that it had. Values beside other work are no reference.
    """
    found: dict[int, list[tuple[float, int]]] = {}
    runs = ", ".join(str(int(one)) for one in run_ids)
    inside = (
        "IN (SELECT j.job_id FROM job j JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
        f" WHERE rc.run_id IN ({runs}))"
    )
    single = (
        "SELECT m.value, 1 FROM result x JOIN metric m ON m.result_id = x.result_id"
        " JOIN metric_name n ON n.metric_name_id = m.metric_name_id AND n.name = :metric"
        f" WHERE x.series_id = :series AND {COUNTS} AND x.disturbed = 0 AND x.job_id {inside}"
    )
    rolled = (
        "SELECT u.median, u.value_count FROM rollup u JOIN metric_name n ON n.metric_name_id = u.metric_name_id"
        " AND n.name = :metric JOIN result x ON x.result_id = u.result_id AND x.disturbed = 0"
        f" WHERE u.series_id = :series AND u.job_id {inside}"
    )
    for series in set(series_ids):
        bound = {"metric": metric, "series": series}
        rows = [*database.execute(single, bound), *database.execute(rolled, bound)]
        found[series] = [(float(value), int(count)) for value, count in rows]
    return found


def runs_before(database: Connection, run: str, history_s: float) -> list[str]:
    """Names of this run and of those that began at most this long before it."""
    (created,) = database.execute("SELECT created_utc FROM run WHERE name = ?", (run,)).fetchone()
    first = units.utc_text(units.parse_utc(created) - dt.timedelta(seconds=history_s))
    rows = database.execute(
        "SELECT name FROM run WHERE name = ?1 OR (created_utc >= ?2 AND created_utc <= ?3) ORDER BY created_utc",
        (run, first, created),
    )
    return [str(row[0]) for row in rows]


def runs_of(database: Connection, window: Window) -> list[str]:
    """Names of the runs in the window, oldest first: its own runs, or those that began in it."""
    conditions, bound = ["1"], []
    for condition, value in (("created_utc >= ?", window.from_utc), ("created_utc < ?", window.until_utc)):
        if value is not None:
            conditions.append(condition)
            bound.append(value)
    if window.run_ids is not None:
        conditions.append(f"run_id IN ({', '.join(str(int(one)) for one in window.run_ids)})")
    query = f"SELECT name FROM run WHERE {' AND '.join(conditions)} ORDER BY created_utc"
    return [str(row[0]) for row in database.execute(query, bound)]


def ends_of(database: Connection, result_ids: Iterable[int]) -> dict[int, tuple[End, End]]:
    """By result: both ends, with the facts that any gate kind needs."""
    known: dict[tuple[int, str], dict[str, Any]] = {}
    found = {}
    for result_id in set(result_ids) - {0}:
        row = database.execute(_ENDS, (result_id,)).fetchone()
        ends = []
        for end in ("client", "server"):
            interface = str(row[f"{end}_interface"] or row["network"])
            key = (row[f"{end}_set"] or 0, interface)
            if key not in known:
                known[key] = _facts(database, *key)
            ends.append(End(str(row[end]), interface, known[key]))
        found[result_id] = (ends[0], ends[1])
    return found


_ENDS = """
    SELECT nc.name AS client, ns.name AS server, se.network, fc.fact_set_id AS client_set, fs.fact_set_id AS server_set,
           (SELECT d.interface FROM evidence_end e JOIN endpoint d ON d.endpoint_id = e.endpoint_id
            WHERE e.result_id = x.result_id AND e.end_index = 0) AS client_interface,
           (SELECT d.interface FROM evidence_end e JOIN endpoint d ON d.endpoint_id = e.endpoint_id
            WHERE e.result_id = x.result_id AND e.end_index = 1) AS server_interface
    FROM result x
    JOIN job j ON j.job_id = x.job_id
    JOIN series se ON se.series_id = x.series_id
    JOIN node nc ON nc.node_id = j.client_node_id
    JOIN node ns ON ns.node_id = j.server_node_id
    LEFT JOIN node_facts fc ON fc.attempt_id = x.attempt_id AND fc.node_id = j.client_node_id
    LEFT JOIN node_facts fs ON fs.attempt_id = x.attempt_id AND fs.node_id = j.server_node_id
    WHERE x.result_id = ?
"""


def _facts(database: Connection, fact_set_id: int, interface: str) -> dict[str, Any]:
    names = [name.replace("{interface}", interface) for name in needed_facts()]
    marks = ", ".join("?" * len(names))
    rows = database.execute(
        "SELECT f.name, f.value FROM fact_set_part sp JOIN fact f ON f.fact_part_id = sp.fact_part_id"
        f" WHERE sp.fact_set_id = ? AND f.name IN ({marks})",
        (fact_set_id, *names),
    )
    return {row[0]: row[1] for row in rows}

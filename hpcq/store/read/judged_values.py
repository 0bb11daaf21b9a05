"""What the judge needs of results.db: the jobs of one cluster, as columns. One query, read straight from the cursor.

    results of the window, main metric of each test  ->  one row per result  ->  Values (hpcq/judge/values.py)

A run is a night. A test is a kernel with its parameters, network, toolchain and metric. The repetitions of a job come as
rows of their own: the judge takes their median. Collectives are left out: they name no node.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hpcq.judge.causes import Role
from hpcq.judge.values import NOBODY, Night, Outcome, Test, Values, oriented
from hpcq.kernels import Better
from hpcq.nodelist import names_several
from hpcq.store.database import Connection
from hpcq.store.selection import MetricRow, Window, metric_in

_ROW = np.dtype([("run", "i8"), ("series", "i8"), ("value", "f8"), ("outcome", "i1"), ("confirms", "i8")])
_SERIES = np.dtype([("series", "i8"), ("client", "i8"), ("server", "i8"), ("test", "i8")])
#: Results of the stretch with this outcome say what became of the test; those that were never tried say nothing.
_OUTCOMES = {"measured": Outcome.MEASURED, "failed": Outcome.FAILED, "invalid": Outcome.INVALID}
#: The job that measured a suspect again; 0: none of these.
_CONFIRMS = "CASE j.purpose WHEN 'confirmation' THEN j.job_id ELSE 0 END"
#: The facts of this many newest runs say what hardware a node is.
_FACT_RUNS = 60
#: In the parameters of a test, which are part of its name.
_DIRECTION = re.compile(r'"direction": ?"(\w+)"')
#: What a group of nodes shares, the most telling first.
_GROUP_KINDS = ("leaf", "rack")


@dataclass(frozen=True, slots=True)
class SeriesSeen:
    """Which series stand behind Values, each of shape (series,). client, server, test: indices into the tables of Values.

    night_count: nights on which it was tried.
    """

    series_id: np.ndarray[tuple[int], np.dtype[np.int64]]
    client: np.ndarray[tuple[int], np.dtype[np.int32]]
    server: np.ndarray[tuple[int], np.dtype[np.int32]]
    test: np.ndarray[tuple[int], np.dtype[np.int32]]
    night_count: np.ndarray[tuple[int], np.dtype[np.int64]]

    def only(self, series_ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> SeriesSeen:
        """Those of these series that are here."""
        places = np.searchsorted(self.series_id, series_ids)
        kept = places[places < len(self.series_id)]
        kept = kept[self.series_id[kept] == series_ids[places < len(self.series_id)]]
        return SeriesSeen(*(getattr(self, one.name)[kept] for one in fields(self)))


def series_ids_of_run(database: Connection, run: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The series that a run planned."""
    cursor = database.cursor()
    cursor.row_factory = None
    query = (
        "SELECT DISTINCT x.series_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id"
        " JOIN job j ON j.run_cluster_id = rc.run_cluster_id JOIN result x ON x.job_id = j.job_id AND x.final = 1"
        " WHERE r.name = ?"
    )
    return np.fromiter((row[0] for row in cursor.execute(query, (run,))), np.int64)


def job_values(
    database: Connection, cluster: str, metrics: Mapping[str, MetricRow], window: Window
) -> tuple[Values, SeriesSeen]:
    """All pairs and nodes of a cluster in the window, oriented by what is better, and the series that they are of.

    metrics: by the name of their kernel. Those of which no direction is better are left out.
    """
    wanted = {name: one for name, one in metrics.items() if one.better in (Better.HIGHER, Better.LOWER)}
    ids = ", ".join(str(one.metric_name_id) for one in wanted.values()) or "NULL"
    words = " ".join(f"WHEN '{word}' THEN {int(outcome)}" for word, outcome in _OUTCOMES.items())
    query = (
        "SELECT rc.run_id, x.series_id, coalesce(m.value, 0.0),"
        f" CASE WHEN x.outcome = 'measured' AND x.disturbed = 1 THEN {int(Outcome.DISTURBED)}"
        f" ELSE CASE x.outcome {words} END END, {_CONFIRMS}"
        " FROM run_cluster rc JOIN cluster c ON c.cluster_id = rc.cluster_id JOIN job j ON j.run_cluster_id = rc.run_cluster_id"
        " JOIN result x ON x.job_id = j.job_id AND x.final = 1 AND x.outcome <> 'not_measured'"
        " JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        f" LEFT JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = {metric_in(database, wanted.values())}"
        " JOIN run r ON r.run_id = rc.run_id"
        " WHERE c.name = :cluster AND x.result_id NOT IN (SELECT result_id FROM retraction)"
        " AND r.created_utc >= :from_utc AND r.created_utc < :until_utc AND (m.value IS NOT NULL OR x.outcome <> 'measured')"
    )
    pruned = (  # of a job whose results were pruned: its median
        f"SELECT rc.run_id, u.series_id, u.median, CASE b.disturbed WHEN 1 THEN {int(Outcome.DISTURBED)}"
        f" ELSE {int(Outcome.MEASURED)} END, {_CONFIRMS}"
        " FROM rollup u JOIN result b ON b.result_id = u.result_id JOIN job j ON j.job_id = u.job_id"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        " JOIN run r ON r.run_id = rc.run_id"
        f" WHERE c.name = :cluster AND u.metric_name_id IN ({ids})"
        " AND u.result_id NOT IN (SELECT result_id FROM retraction)"
        " AND r.created_utc >= :from_utc AND r.created_utc < :until_utc"
    )
    cursor = database.cursor()
    cursor.row_factory = None
    bound = {"cluster": cluster, "from_utc": window.from_utc or "", "until_utc": window.until_utc or "~"}
    rows = np.fromiter(cursor.execute(f"{query} UNION ALL {pruned}", bound), dtype=_ROW)
    return _columns(database, cluster, wanted, rows)


def _columns(
    database: Connection, cluster: str, metrics: Mapping[str, MetricRow], rows: np.ndarray[tuple[int], np.dtype[np.void]]
) -> tuple[Values, SeriesSeen]:
    series_ids, place = _numbered(rows["series"])
    ends, nodes, tests = _ends(database, cluster, metrics, series_ids)
    kept = ends[place, 2] != NOBODY if len(rows) else np.zeros(0, bool)
    if not kept.all():
        rows, place = rows[kept], place[kept]
    run_ids, night = _numbered(rows["run"])
    nights = {int(run_id): Night(str(name), _utc_s(str(utc))) for run_id, name, utc in _runs(database)}
    in_time = sorted(run_ids.tolist(), key=lambda one: nights[one].utc_s)
    order = np.array([in_time.index(one) for one in run_ids.tolist()], np.int32)
    value = rows["value"].astype(np.float64)
    lower = np.array([better == Better.LOWER for _, better in tests], bool)
    test = ends[place, 2]
    logarithm = oriented(value, Better.HIGHER)
    outcome = np.where((rows["outcome"] == Outcome.MEASURED) & ~np.isfinite(logarithm), int(Outcome.DISTURBED), rows["outcome"])
    group, groups = _groups(database, cluster, nodes)
    of_kind = classes_of(database, cluster, nodes, in_time[-_FACT_RUNS:])
    kinds = tuple(sorted(set(of_kind.values())))
    kind = np.array([kinds.index(of_kind[node]) if kinds else NOBODY for node in nodes], np.int32)
    of_night = np.sort(place * len(run_ids) + night)
    new = np.diff(of_night, prepend=-1) != 0
    named = np.flatnonzero(ends[:, 2] != NOBODY)
    night_counts = np.bincount(of_night[new] // max(len(run_ids), 1), minlength=len(series_ids))[named]
    seen = SeriesSeen(series_ids[named], ends[named, 0], ends[named, 1], ends[named, 2], night_counts)
    values = Values(
        order[night] if len(rows) else np.zeros(0, np.int32),
        test,
        ends[place, 0],
        ends[place, 1],
        np.where(lower[test], -logarithm, logarithm) if tests else logarithm,
        outcome.astype(np.int8),
        tuple(nights[one] for one in in_time),
        tuple(Test(name, Better(better), _sends(name, Better(better))) for name, better in tests),
        tuple(nodes),
        kind,
        group,
        kinds,
        groups,
        _looks(np.column_stack([rows["run"], ends[place, :2]]), rows["confirms"]),
    )
    return values, seen


def _numbered(
    ids: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The different ids in order, and for each of `ids` its place among them.

    SQLite counts rows up from 1, so that a table by id is small, and a tenth of what sorting a million of them costs.
    """
    seen = np.zeros(ids.max(initial=-1) + 1, bool)
    seen[ids] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[ids]


def _sends(test: str, better: Better) -> Role | None:
    """Which end of a test sends: the client, unless its parameters say otherwise; both where a time is measured."""
    direction = _DIRECTION.search(test)
    if direction is None:
        return Role.CLIENT if better is Better.HIGHER else None
    return {"client_to_server": Role.CLIENT, "server_to_client": Role.SERVER}.get(direction[1])


def _looks(
    of_pair: np.ndarray[tuple[int, int], np.dtype[np.int64]], confirms: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int8]] | None:
    """By row, of the jobs of its pair in its run that measured a suspect again: which one, from 1; 0: it was none of them.

    of_pair: run, client and server of each row. confirms: the job, 0 for others. None: there is no such job.
    """
    again = np.flatnonzero(confirms)
    if not len(again):
        return None
    jobs, job = np.unique(np.column_stack([of_pair[again], confirms[again]]), axis=0, return_inverse=True)
    new = np.append(True, (jobs[1:, :3] != jobs[:-1, :3]).any(axis=1))
    place = np.arange(len(jobs))
    number = place - np.maximum.accumulate(np.where(new, place, 0)) + 1
    look = np.zeros(len(confirms), np.int8)
    look[again] = number[job.reshape(-1)]
    return look


def _ends(
    database: Connection, cluster: str, metrics: Mapping[str, MetricRow], series_ids: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], list[str], list[tuple[str, str]]]:
    """Client, server and test of each of these series, and the tables that these are indices into: nodes, and tests with
    their good direction. NOBODY for a test of several nodes or of another cluster, and for the server of a node alone.

    Names are looked up here: a join that brings them costs more than the series, of which a site may have half a million.
    """
    kernels = {kernel_id: str(name) for kernel_id, name in database.execute("SELECT kernel_id, name FROM kernel")}
    named = database.execute(
        "SELECT n.node_id, n.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE c.name = ?", (cluster,)
    )
    of_node = {node_id: str(name) for node_id, name in named}
    several = {node_id for node_id, name in of_node.items() if names_several(name)}
    cursor = database.cursor()
    cursor.row_factory = None
    # Half a million series have a few tests: each is named once. One statement, or a writer may come in between.
    no_of: dict[tuple[Any, ...], int] = {}
    query = "SELECT series_id, client_node_id, server_node_id, kernel_id, parameters, network, toolchain FROM series"
    rows = ((*row[:3], no_of.setdefault(row[3:], len(no_of))) for row in cursor.execute(query))
    numbers = np.fromiter(rows, _SERIES)
    named_tests = [
        (" ".join(part for part in (kernels[kernel_id], *map(str, others)) if part) + f" {metric.name}", str(metric.better))
        if (metric := metrics.get(kernels[kernel_id]))
        else None
        for kernel_id, *others in no_of
    ]
    here = np.array([*of_node, -1], np.int64)
    alone = np.array([*several, -1], np.int64)
    kept = (
        np.isin(numbers["series"], series_ids)
        & np.isin(numbers["client"], here)
        & np.isin(numbers["server"], here)
        & ~np.isin(numbers["server"], alone)
        & np.array([one is not None for one in named_tests], bool)[numbers["test"]]
    )
    numbers = numbers[kept]
    nodes = sorted({of_node[one] for name in ("client", "server") for one in np.unique(numbers[name]).tolist()})
    of_no = {one: test for one in np.unique(numbers["test"]).tolist() if (test := named_tests[one]) is not None}
    tests = sorted(set(of_no.values()))
    node_no, test_no = {one: place for place, one in enumerate(nodes)}, {one: place for place, one in enumerate(tests)}
    place_of = np.full(max(of_node, default=0) + 1, NOBODY, np.int32)
    for node_id, name in of_node.items():
        place_of[node_id] = node_no.get(name, NOBODY)
    place_of_test = np.array([test_no[of_no[one]] if one in of_no else NOBODY for one in range(len(no_of))], np.int32)
    ends = np.full((len(series_ids), 3), NOBODY, np.int32)
    if len(numbers):
        client, server = place_of[numbers["client"]], place_of[numbers["server"]]
        server = np.where(numbers["client"] == numbers["server"], NOBODY, server)
        ends[np.searchsorted(series_ids, numbers["series"])] = np.column_stack([client, server, place_of_test[numbers["test"]]])
    return ends, nodes, tests


def _runs(database: Connection) -> Iterable[tuple[int, str, str]]:
    return ((int(one), str(name), str(utc)) for one, name, utc in database.execute("SELECT run_id, name, created_utc FROM run"))


def _groups(
    database: Connection, cluster: str, nodes: list[str]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], tuple[str, ...]]:
    """The group of each node now, of the first kind that any node has."""
    rows = list(database.execute('SELECT node, kind, "group" FROM v_groups WHERE cluster = :cluster', {"cluster": cluster}))
    kinds = {str(kind) for _, kind, _ in rows}
    kind = next((one for one in (*_GROUP_KINDS, *sorted(kinds)) if one in kinds), None)
    of = {str(node): str(group) for node, its, group in rows if its == kind}
    names = sorted(set(of.values()))
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[of[node]] if node in of else NOBODY for node in nodes], np.int32), tuple(names)


def hardware_of(database: Connection, run_ids: Iterable[int], cluster: str) -> dict[str, str]:
    """By node, its CPU and network cards in one line, from its last facts in these runs; nodes without facts are left out.

    Drivers, link widths and the speed that a link came up with are no hardware: a wrong one is a fault. Only where no
    card is identified, its speed stands for it.
    """
    names = "f.name IN ('cpu.model', 'cpu.part') OR f.name LIKE 'nic.%.pci_vendor' OR f.name LIKE 'nic.%.pci_device'"
    speeds = "f.name LIKE 'nic.%.speed_maximum_bps' OR f.name LIKE 'nic.%speed_bps' OR f.name LIKE 'nic.%.speed_mbps'"
    ids = ", ".join(str(int(one)) for one in run_ids) or "NULL"
    facts: dict[str, dict[str, str]] = {}
    for node, name, value in database.execute(
        "WITH last AS (SELECT nf.node_id, nf.fact_set_id, max(nf.attempt_id) FROM run_cluster rc"
        " JOIN cluster c ON c.cluster_id = rc.cluster_id JOIN job j ON j.run_cluster_id = rc.run_cluster_id"
        " JOIN attempt a ON a.job_id = j.job_id JOIN node_facts nf ON nf.attempt_id = a.attempt_id"
        f" WHERE c.name = ? AND rc.run_id IN ({ids}) GROUP BY nf.node_id)"
        " SELECT n.name, f.name, f.value FROM last JOIN node n ON n.node_id = last.node_id"
        " JOIN fact_set_part sp ON sp.fact_set_id = last.fact_set_id JOIN fact_part p ON p.fact_part_id = sp.fact_part_id"
        f" JOIN fact f ON f.fact_part_id = p.fact_part_id WHERE p.part IN ('cpu', 'nic') AND ({names} OR {speeds})",
        (cluster,),
    ):
        facts.setdefault(str(node), {})[str(name)] = str(value)
    found = {}
    for node, known in facts.items():
        cpu = known.get("cpu.model") or known.get("cpu.part") or ""
        cards = sorted({value for name, value in known.items() if name.endswith(("pci_vendor", "pci_device"))})
        able = sorted({value for name, value in known.items() if name.endswith("speed_maximum_bps")})
        speed = sorted({value for name, value in known.items() if "speed" in name})
        found[node] = "; ".join([cpu, *(cards or able or speed)])
    return found


def classes_of(database: Connection, cluster: str, nodes: Collection[str], run_ids: Iterable[int]) -> dict[str, str]:
    """The hardware class of each node; that of most nodes where its facts do not say. Nothing where they differ too much.

    run_ids: runs whose facts are read.
    """
    hardware = hardware_of(database, run_ids, cluster)
    of = {node: hardware[node] for node in nodes if node in hardware}
    if not of or 2 * len(set(of.values())) > len(nodes):
        return {}
    [(usual, _)] = Counter(of.values()).most_common(1)
    return {node: of.get(node, usual) for node in nodes}


def _utc_s(utc: str) -> float:
    return dt.datetime.fromisoformat(utc.replace("Z", "+00:00")).timestamp()

"""Series over time: which exist, and which results count.

select(database, Filter(...))      series with their names, in order
metrics_of(database, name)         the metric of each kernel that an analysis reads
points.py reads the points of one series, hpcq/analysis/bulk_points.py those of many
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from dataclasses import dataclass, replace
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import size_of, size_option, unknown_name
from hpcq.nodelist import natural, nodes_of, single_nodes
from hpcq.store.database import Connection
from hpcq.store.query import median, size_text
from hpcq.store.time_windows import Window

# ----------------------------------------------------------------------------------------------------------------------
# Measured values of runs, one row per test, pair and metric, as gates need them.


#: cluster, client, server, kernel, parameters, metric, values, series_id, result_id, why a test that ran gave no value,
#: values left out because of other work, whether all were beside other work
SeriesValues = tuple[str, str, str, str, dict[str, Any], str, tuple[float, ...], int, int, str, int, bool]

#: SQLite has no number of 20 digits, and int() takes no text of thousands.
_ROW_DIGITS_MAX = 18
_QUERY = """
    SELECT v.cluster, v.client, v.server, v.kernel, v.parameters, g.value, v.series_id, v.result_id,
           CASE WHEN v.outcome IN ('invalid', 'failed') THEN coalesce(v.reason, v.outcome) END, v.disturbed
    FROM v_results v
    LEFT JOIN (SELECT m.result_id, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id
               WHERE n.name = :metric) g ON g.result_id = v.result_id AND v.outcome = 'measured'
    WHERE v.run = :run
    ORDER BY v.cluster, v.client, v.server, v.kernel, v.parameters, v.repetition_no
"""


def series_values(connection: Connection, runs: Sequence[str], metrics: Iterable[str]) -> list[SeriesValues]:
    """The valid values of each metric for every planned test and pair of these runs; empty if nothing was measured.

    After the numbers of series and newest measured result (0 if there is none) comes the commonest reason of a test that
    ran and never gave a valid result; empty for one with values, and for one that never ran. Values beside other work
    are left out and counted; where there are no others, all are kept, and the last field is True.
    """
    found: list[SeriesValues] = []
    for metric in sorted(metrics):
        groups: dict[tuple[str, str, str, str, str], tuple[tuple[list[float], list[float]], list[int], list[str]]] = {}
        for run in runs:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric})
            for *names, value, series_id, result_id, why, is_disturbed in rows:
                key = (names[0], names[1], names[2], names[3], names[4])
                of_test, ids, reasons = groups.setdefault(key, (([], []), [series_id, 0], []))
                reasons += [] if why is None else [str(why)]
                if value is not None:
                    of_test[bool(is_disturbed)].append(value)
                    ids[1] = max(ids[1], result_id)
        for (cluster, client, server, kernel, parameters), ((clean, disturbed), ids, reasons) in groups.items():
            names_of = (cluster, client, server, kernel, json.loads(parameters), metric)
            values = tuple(clean or disturbed)
            why = max(reasons, key=reasons.count) if reasons and not values else ""
            left_out = len(disturbed) if clean else 0
            found.append((*names_of, values, ids[0], ids[1], why, left_out, bool(disturbed and not clean)))
    return found


#: Numbers in one statement; SQLite reads at most a million characters.
_IDS_MAX = 10_000


def named_series(database: Connection, only: Iterable[int] | None, **names: str | None) -> Iterator[Any]:
    """Series with the names of their kernel and nodes. only: none but these. names: kernel, client, server; node: it took part.

    The database picks them: a site that draws its pairs by lot has half a million series.
    """
    query = (
        "SELECT series_id, kernel, client_cluster, client, server, network, network_name, toolchain, parameters FROM v_series"
    )
    conditions = [_CONDITIONS[name] for name, value in names.items() if value is not None]
    ids = None if only is None else sorted(only)
    chunks = [None] if ids is None else [ids[first : first + _IDS_MAX] for first in range(0, len(ids), _IDS_MAX)]
    for chunk in chunks:
        here = [] if chunk is None else [f"series_id IN ({', '.join(str(int(one)) for one in chunk)})"]
        told = " AND ".join(["1", *conditions, *here])
        yield from database.execute(f"{query} WHERE {told}", names)


_CONDITIONS = {
    "kernel": "kernel = :kernel",
    "client": "series_id IN (SELECT series_id FROM series"
    " WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :client))",
    "server": "series_id IN (SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :server))",
    "node": "series_id IN (SELECT series_id FROM series WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :node)"
    " UNION ALL SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :node OR names_node(name, :node)))",
}


def row_id(text: str) -> int | None:
    """The number of a row that a person wrote; None for what is the number of none, 30 digits for instance."""
    return int(text) if text.isdecimal() and len(text) <= _ROW_DIGITS_MAX else None


def beside(database: Connection, series_id: int) -> list[int]:
    """The series of the same two nodes, this one among them: those that its label must differ from."""
    rows = database.execute(
        "SELECT o.series_id FROM series s JOIN series o ON o.client_node_id = s.client_node_id"
        " AND o.server_node_id = s.server_node_id WHERE s.series_id = ?",
        (series_id,),
    )
    return [int(row[0]) for row in rows]


# ----------------------------------------------------------------------------------------------------------------------


#: Results that count.
COUNTS = "x.final = 1 AND x.outcome = 'measured' AND x.result_id NOT IN (SELECT result_id FROM retraction)"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which series to select; empty means all. `node` took part, `group` is a group of one that did.

    where: parameter and value as a person writes them. facts: fact and value that a node of the result had at the time.
    """

    kernel: str | None = None
    cluster: str | None = None
    client: str | None = None
    server: str | None = None
    node: str | None = None
    group: str | None = None
    network: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One series with its names. parameters: complete, except for options that this database never saw."""

    series_id: int
    kernel: str
    cluster: str
    client: str
    server: str
    network: str
    toolchain: str
    message_bytes: int | None
    variant: str
    parameters: dict[str, Any]
    network_name: str | None = None
    """What the cluster's file calls its network; None: nothing."""

    @property
    def label(self) -> str:
        """`tcp_stream 128 KiB n1 > n2`: a short name that identifies the series."""
        size = f" {size_text(self.message_bytes)}" if self.message_bytes is not None else ""
        return f"{self.kernel}{size} {self.client} > {self.server}" + (f" ({self.variant})" if self.variant else "")


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric of a kernel that an analysis reads."""

    metric_name_id: int
    name: str
    unit: str
    better: str


def select(database: Connection, wanted: Filter, only: Iterable[int] | None = None) -> list[SeriesRow]:
    """The series that match, by cluster, kernel, pair and size. Raises UserError for names that no series has.

    only: none but these, by number; a site may have half a million series and a run a few thousand of them.
    """
    options = _options(database)
    members = _members(database, wanted.group) if wanted.group else None
    for name, _ in wanted.where:
        if not any(name in known for known in options.values()):
            known = sorted({one for of_kernel in options.values() for one in of_kernel})
            raise UserError(f"{name!r} is not a parameter of any kernel here", f"there are {', '.join(known)}")
    found = []
    names = {"kernel": wanted.kernel, "client": wanted.client, "server": wanted.server, "node": wanted.node}
    for row in named_series(database, only, **names):
        if wanted.network not in {None, row["network"], row["network_name"]}:
            continue
        if wanted.cluster not in {None, row["client_cluster"]}:
            continue
        if members is not None and not any(
            (row["client_cluster"], one) in members for one in nodes_of(row["client"], row["server"])
        ):
            continue
        parameters = {**options[row["kernel"]], **json.loads(row["parameters"])}
        if all(name in parameters and _same(name, parameters[name], value) for name, value in wanted.where):
            found.append(_series_row(row, parameters))
    return sorted(_told_apart(found), key=_order)


def _told_apart(rows: list[SeriesRow]) -> list[SeriesRow]:
    """Name the network of series that differ in nothing else, so that no label stands for two of them."""
    networks: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        networks.setdefault((row.cluster, row.label), set()).add(row.network)
    return [
        replace(row, variant=", ".join(filter(None, (row.variant, f"network={row.network}"))))
        if len(networks[row.cluster, row.label]) > 1
        else row
        for row in rows
    ]


def find_series(database: Connection, text: str) -> SeriesRow:
    """One series by its number, or by kernel/client/server. Raises UserError that lists the matching ones."""
    if text.isdecimal():
        series_id = row_id(text)
        near = [] if series_id is None else beside(database, series_id)
        fitting = [row for row in select(database, Filter(), near) if row.series_id == series_id]
    else:
        kernel, client, server, *more = [*text.split("/"), "", ""]
        if any(more):
            raise UserError(
                f"{text!r} has {text.count('/') + 1} parts: must be KERNEL/CLIENT/SERVER", "hpcq history lists them"
            )
        wanted = Filter(kernel=kernel or None, client=client or None, server=server or None)
        fitting = select(database, wanted)
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise UserError(f"{text!r} is not a series", "hpcq history lists them; give its number or KERNEL/CLIENT/SERVER")
    shown = "; ".join(f"{row.series_id} {row.label}" for row in fitting[:8])
    raise UserError(f"{text!r} fits {len(fitting)} series", f"name one by its number: {shown}")


def metrics_of(database: Connection, name: str | None) -> dict[str, Metric]:
    """By kernel: the metric of that name; without a name, the kernel's main metric."""
    condition = "mn.metric_name_id = k.main_metric_name_id" if name is None else "mn.name = ?"
    found = {
        row["kernel"]: Metric(row["metric_name_id"], row["name"], row["unit"], row["better"])
        for row in database.execute(
            "SELECT k.name AS kernel, mn.metric_name_id, mn.name, mn.unit, mn.better FROM metric_name mn"
            f" JOIN kernel k ON k.kernel_id = mn.kernel_id WHERE {condition}",
            () if name is None else (name,),
        )
    }
    if not found and name is not None:
        names = [str(row[0]) for row in database.execute("SELECT DISTINCT name FROM metric_name ORDER BY name")]
        raise UserError(f"{name!r} is not a metric in this database", f"there are {', '.join(names)}")
    return found


def summary(
    database: Connection, rows: Sequence[SeriesRow], facts: Sequence[tuple[str, str]] = ()
) -> dict[int, tuple[int, str | None, str | None]]:
    """For each series: how many measured results have nodes with these facts, and the first and last time."""
    found = {}
    condition, bound = within(Window("all"), facts)
    query = (
        "SELECT count(*), min(x.started_utc), max(x.started_utc) FROM result x"
        f" WHERE x.series_id = :series AND {COUNTS} AND {condition}"
    )
    for row in rows:
        count, first, last = database.execute(query, {**bound, "series": row.series_id}).fetchone()
        found[row.series_id] = (int(count), first, last)
    return found


def within(window: Window, facts: Sequence[tuple[str, str]] = (), table: str = "x") -> tuple[str, dict[str, Any]]:
    """An SQL condition on `table` (a result; x has its time), with the values to bind."""
    conditions, bound = ["1"], dict[str, Any]()
    if window.from_utc is not None:
        conditions.append("x.started_utc >= :from_utc")
        bound["from_utc"] = window.from_utc
    if window.until_utc is not None:
        conditions.append("x.started_utc < :until_utc")
        bound["until_utc"] = window.until_utc
    if window.run_ids is not None:
        runs = ", ".join(str(int(one)) for one in window.run_ids)
        conditions.append(
            f"{table}.job_id IN (SELECT j2.job_id FROM job j2 JOIN run_cluster rc2 ON rc2.run_cluster_id = j2.run_cluster_id"
            f" WHERE rc2.run_id IN ({runs}))"
        )
    for number, (name, value) in enumerate(facts):
        conditions.append(
            f"{table}.attempt_id IN (SELECT nf.attempt_id FROM fact f JOIN fact_set_part sp ON sp.fact_part_id = f.fact_part_id"
            f" JOIN node_facts nf ON nf.fact_set_id = sp.fact_set_id WHERE f.name = :fact{number}"
            f" AND CAST(f.value AS TEXT) = :fact_value{number})"
        )
        bound |= {f"fact{number}": name, f"fact_value{number}": value}
    return " AND ".join(conditions), bound


def check_names(database: Connection, wanted: Filter) -> None:
    """Raise UserError for a kernel, cluster or node that no series has; the message names the nearest."""
    for what, query in _NAMES_OF_SERIES.items():
        name = getattr(wanted, what)
        found = set() if name is None else {str(row[0]) for row in database.execute(query)}
        known = sorted(single_nodes(found) if what == "node" else found, key=natural)
        if known and name not in known:
            message, hint = unknown_name(f"{what} of any series here", name, known[:40])
            raise UserError(f"--{what}: {message}", hint)


_CLIENTS = "EXISTS (SELECT 1 FROM series s WHERE s.client_node_id = n.node_id)"
_SERVERS = "EXISTS (SELECT 1 FROM series s WHERE s.server_node_id = n.node_id)"
#: Names by what they name. Each looks at an index once per node: the series may be half a million.
_NAMES_OF_SERIES = {
    "kernel": "SELECT name FROM kernel k WHERE EXISTS (SELECT 1 FROM series s WHERE s.kernel_id = k.kernel_id)",
    "cluster": f"SELECT DISTINCT c.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE {_CLIENTS}",
    "network": "SELECT network FROM series UNION SELECT name FROM network",
    "client": f"SELECT n.name FROM node n WHERE {_CLIENTS}",
    "server": f"SELECT n.name FROM node n WHERE {_SERVERS}",
    "node": f"SELECT n.name FROM node n WHERE {_CLIENTS} OR {_SERVERS}",
}


def check_facts(database: Connection, facts: Sequence[tuple[str, str]]) -> None:
    """Raise UserError for a fact that no node has. The message names the nearest."""
    for name, _ in facts:
        if database.execute("SELECT 1 FROM fact WHERE name = ? LIMIT 1", (name,)).fetchone() is None:
            last = name.rpartition(".")[2]
            near = database.execute("SELECT DISTINCT name FROM fact WHERE name LIKE ? LIMIT 8", (f"%{last}%",)).fetchall()
            hint = f"near it: {', '.join(str(row[0]) for row in near)}" if near else "hpcq facts show NODE lists them"
            raise UserError(f"{name!r} is not a fact of any node in this database", hint)
    for name, value in facts:
        query = "SELECT DISTINCT CAST(value AS TEXT) FROM fact WHERE name = ? ORDER BY 1"
        known = [str(row[0]) for row in database.execute(query, (name,))]
        if value not in known:
            shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
            raise UserError(f"no node ever had {name}={value}", f"there are {shown}")


def _series_row(row: Any, parameters: dict[str, Any]) -> SeriesRow:
    telling = json.loads(row["parameters"])
    size_name = size_option(row["kernel"])
    size = size_of(size_name, parameters)
    variant = ", ".join(f"{name}={units.human_of(name, value)}" for name, value in telling.items() if name != size_name)
    names = (row["series_id"], row["kernel"], row["client_cluster"], row["client"], row["server"])
    return SeriesRow(*names, row["network"], row["toolchain"], size, variant, parameters, row["network_name"])


def _order(row: SeriesRow) -> tuple[Any, ...]:
    return row.cluster, row.kernel, natural(row.client), natural(row.server), row.message_bytes or 0, row.variant, row.series_id


def _options(database: Connection) -> dict[str, dict[str, Any]]:
    """Neutral value of every option, by kernel: a series that does not state an option has this value."""
    found: dict[str, dict[str, Any]] = {str(row[0]): {} for row in database.execute("SELECT name FROM kernel")}
    for kernel, name, first_default in database.execute(
        "SELECT k.name, o.name, o.first_default FROM option o JOIN kernel k ON k.kernel_id = o.kernel_id"
    ):
        found[kernel][name] = None if first_default is None else json.loads(first_default)
    return found


def _members(database: Connection, group: str) -> set[tuple[str, str]]:
    rows = database.execute('SELECT cluster, node FROM v_groups WHERE "group" = ?', (group,)).fetchall()
    if not rows:
        known = [str(row[0]) for row in database.execute('SELECT DISTINCT "group" FROM v_groups ORDER BY "group"')]
        hint = (
            f"there are {', '.join(known[:12])}" if known else "hpcq db groups FILE adds them; hpcq accept asks the scheduler"
        )
        raise UserError(f"{group!r} is not a group of nodes", hint)
    return {(str(row[0]), str(row[1])) for row in rows}


def _same(name: str, value: object, wanted: str) -> bool:
    """Whether a parameter equals the value that a person wrote: 64KiB, true, cubic."""
    if isinstance(value, bool):
        return wanted.lower() == ("true" if value else "false")
    if isinstance(value, (int, float)):
        try:
            return units.parse(wanted, units.unit_of(name) or "") == value
        except ValueError as error:
            raise UserError(f"{name}={wanted}: {error}") from error
    return str(value) == wanted


# ----------------------------------------------------------------------------------------------------------------------
# The points of one series, oldest first: timeline().
#
# A point is the median of a test's repetitions in one job. They ran back to back and share the job's luck, so they are
# not that many independent values. Repetitions beside other work do not count; where a job has no others, the point is
# their median, and it is disturbed. Pruning keeps the point of each job, and it stays the same.


@dataclass(frozen=True, slots=True)
class Point:
    """The part of a series that one job measured."""

    started_utc: str
    run: str
    median: float
    lowest: float
    highest: float
    n: int
    disturbed: int
    result_id: int


def timeline(
    database: Connection, series_id: int, metric: Metric, window: Window, facts: Sequence[tuple[str, str]] = ()
) -> list[Point]:
    """The points of one series, oldest first."""
    condition, bound = within(window, facts)
    rows = database.execute(
        "SELECT x.started_utc, r.name AS run, x.job_id, x.result_id, x.disturbed, m.value FROM result x"
        " JOIN metric m ON m.result_id = x.result_id AND m.metric_name_id = :metric JOIN job j ON j.job_id = x.job_id"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id"
        f" WHERE x.series_id = :series AND {COUNTS} AND {condition} ORDER BY x.started_utc, x.result_id",
        {"metric": metric.metric_name_id, "series": series_id, **bound},
    )
    jobs: dict[int, list[Any]] = {}
    for row in rows:
        jobs.setdefault(row["job_id"], []).append(row)
    rolled = database.execute(
        "SELECT x.started_utc, r.name AS run, x.median, x.lowest, x.highest, x.value_count, b.disturbed, x.result_id, x.job_id"
        " FROM rollup x JOIN result b ON b.result_id = x.result_id JOIN job j ON j.job_id = x.job_id"
        " JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id"
        f" WHERE x.series_id = :series AND x.metric_name_id = :metric AND {within(window, facts, 'b')[0]}",
        {"metric": metric.metric_name_id, "series": series_id, **bound},
    )
    found = [_joined(Point(*row[:-1]), jobs.pop(row["job_id"], [])) for row in rolled]
    found += [_point(group) for group in jobs.values()]
    return sorted(found, key=lambda point: (point.started_utc, point.result_id))


def counted(group: Sequence[Any]) -> list[Any]:
    """The rows of a job that make its point: those without other work beside them; all, if there are no such rows."""
    return [row for row in group if not row["disturbed"]] or list(group)


def _point(group: Sequence[Any]) -> Point:
    rows = counted(group)
    values = [row["value"] for row in rows]
    first = rows[0]
    spread = (median(values), min(values), max(values), len(values))
    return Point(first["started_utc"], first["run"], *spread, int(first["disturbed"]), first["result_id"])


def _joined(rolled: Point, late: Sequence[Any]) -> Point:
    """The point of a job that was rolled up, combined with the values that arrived afterwards."""
    same = [row for row in late if row["disturbed"] == rolled.disturbed]
    if len(same) < len(late) and rolled.disturbed:
        return _point(late)
    if not same:
        return rolled
    values = [row["value"] for row in same]
    spread = (median([rolled.median, *values]), min(rolled.lowest, *values), max(rolled.highest, *values))
    return replace(rolled, median=spread[0], lowest=spread[1], highest=spread[2], n=rolled.n + len(values))

"""Which results a person means: the words of the options, what they select, and the one translation into SQL.

    Selection            which tests, which results of them, which metric; empty means all
    check_selection      a misspelt name is refused with the nearest, not answered with nothing
    of_results           the condition over v_results and v_all_results
    of_series            the condition over v_series
    within               the condition over tables of results, for one stretch of time

Words for a stretch of time, as after --since:

    30d  12h  2w            that long ago
    now  now-7d  today  yesterday
    2026  2026-11  2026-11-20  2026-11-20T02:00      a stretch as long as the part that the word leaves open
    latest, a run, a campaign                   the run (of a campaign: its last one)
    baseline:NAME                               the runs of a baseline
    A..B                                        from A to B; either side may be left out

Bounds have no Z and may be the beginning of a time, so comparing them as plain text suffices.
"""

from __future__ import annotations

# ruff: noqa: S608 - conditions are put together from our own column names; values are always bound
import datetime as dt
import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import unknown_name
from hpcq.nodelist import natural, single_nodes
from hpcq.store.database import Connection


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch: from_utc <= started_utc < until_utc (None: no bound), and only these runs (None: any)."""

    text: str
    from_utc: str | None = None
    until_utc: str | None = None
    run_ids: tuple[int, ...] | None = None


ALL_TIME = Window("all time")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which results; None or empty means all.

    node: took part, as either end or in a set. group: a node of this leaf, rack or other group took part. network: its name
    in the cluster's file, or the interface. where: parameter and value as a person writes them. facts: fact and value that a
    node of the result had at the time. window: a result that was never started has its run's time. metric: the one to read
    instead of each kernel's main one; it selects no results by itself.
    """

    run: str | None = None
    cluster: str | None = None
    kernel: str | None = None
    client: str | None = None
    server: str | None = None
    node: str | None = None
    group: str | None = None
    network: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    outcome: str | None = None
    window: Window = ALL_TIME
    metric: str | None = None


# ----------------------------------------------------------------------------------------------------------------------
# A selection in SQL.


#: More series than this are not named in a query one by one.
_NAMED_MAX = 100


def among(series_ids: Collection[int] | None) -> str:
    """SQL that follows a condition on a result `x`: of these series. Nothing where they are all, or too many to be named."""
    if series_ids is None or len(series_ids) > _NAMED_MAX:
        return ""
    return f" AND x.series_id IN ({', '.join(str(int(one)) for one in series_ids)})"


#: Results that count.
COUNTS = "x.final = 1 AND x.outcome = 'measured' AND x.result_id NOT IN (SELECT result_id FROM retraction)"
#: When a result was measured; the creation of its run where it never began.
AT_UTC = "coalesce(x.started_utc, r.created_utc)"
#: Results with their run, for conditions of `counted_within`.
RESULTS = (
    "FROM result x JOIN job j ON j.job_id = x.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id"
    " JOIN run r ON r.run_id = rc.run_id LEFT JOIN retraction t ON t.result_id = x.result_id"
)
#: Whether :node ran a test: as either end, or in the set that ran it together. Of the columns client and server.
TOOK_PART = "(client = :node OR server = :node OR server IN (SELECT n8.name FROM node n8 WHERE names_node(n8.name, :node)))"
_NODES_OF_GROUP = (
    'SELECT g8.node_id FROM v_groups g8 WHERE g8."group" = :group UNION SELECT n8.node_id FROM node n8'
    " JOIN cluster c8 ON c8.cluster_id = n8.cluster_id JOIN v_groups g8 ON g8.cluster = c8.name"
    ' WHERE g8."group" = :group AND names_node(n8.name, g8.node)'
)
#: Both views have these columns.
_OF_TESTS = {
    "kernel": "kernel = :kernel",
    "network": ":network IN (network, network_name)",
    "group": "series_id IN (SELECT s8.series_id FROM series s8"
    f" WHERE s8.client_node_id IN ({_NODES_OF_GROUP}) OR s8.server_node_id IN ({_NODES_OF_GROUP}))",
}
_OF_RESULTS = _OF_TESTS | {
    "run": "run = :run",
    "cluster": "cluster = :cluster",
    "client": "client = :client",
    "server": "server = :server",
    "node": TOOK_PART,
    "outcome": "outcome = :outcome",
}
#: Each looks at an index: a site that draws its pairs by lot has half a million series.
_OF_SERIES = _OF_TESTS | {
    "cluster": "(client_cluster = :cluster OR :cluster IN (client_cluster || '+' || server_cluster,"
    " server_cluster || '+' || client_cluster))",
    "client": "series_id IN (SELECT series_id FROM series"
    " WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :client))",
    "server": "series_id IN (SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :server))",
    "node": "series_id IN (SELECT series_id FROM series WHERE client_node_id IN (SELECT node_id FROM node WHERE name = :node)"
    " UNION ALL SELECT series_id FROM series"
    " WHERE server_node_id IN (SELECT node_id FROM node WHERE name = :node OR names_node(name, :node)))",
}


def of_results(database: Connection, selection: Selection, result_id: str = "result_id") -> tuple[str, dict[str, Any]]:
    """The condition over v_results or v_all_results, and its values. Raises UserError for an unknown group or parameter.

    result_id: what the query calls the column, where it joins tables that have one too.
    """
    conditions, values = _named(database, selection, _OF_RESULTS)
    every = "SELECT k.name, ps.json FROM parameter_set ps JOIN kernel k ON k.kernel_id = ps.kernel_id"
    _add_parameters(database, selection, every, conditions, values)
    condition, bound = within(
        selection.window,
        selection.facts,
        at_utc="coalesce(started_utc, (SELECT created_utc FROM run r9 WHERE r9.name = run))",
        of_runs="run IN (SELECT r9.name FROM run r9 WHERE r9.run_id IN ({}))",
        of_attempts=f"{result_id} IN (SELECT x9.result_id FROM result x9 WHERE x9.attempt_id IN ({{}}))",
    )
    return " AND ".join([*conditions, condition]), values | bound


def of_series(database: Connection, selection: Selection) -> tuple[str, dict[str, Any]]:
    """The condition over v_series: which tests. Time, run, outcome and facts are of results, and no part of it."""
    conditions, values = _named(database, selection, _OF_SERIES)
    every = "SELECT DISTINCT k.name, s.parameters FROM series s JOIN kernel k ON k.kernel_id = s.kernel_id"
    _add_parameters(database, selection, every, conditions, values)
    return " AND ".join(conditions), values


def of_tables(database: Connection, selection: Selection) -> tuple[str, dict[str, Any]]:
    """The condition over `result x`, and its values: tests, time and facts, neither run nor outcome."""
    condition, bound = within(selection.window, selection.facts)
    tests, values = of_series(database, selection)
    of_tests = "" if tests == "1" else f" AND x.series_id IN (SELECT series_id FROM v_series WHERE {tests})"
    return condition + of_tests, values | bound


def _named(database: Connection, selection: Selection, told: dict[str, str]) -> tuple[list[str], dict[str, Any]]:
    if selection.group is not None:
        _check_group(database, selection.group)
    values = {name: getattr(selection, name) for name in told if getattr(selection, name) is not None}
    return ["1", *(told[name] for name in values)], values


#: Not by SQLite's functions of JSON: those of RHEL 8 need not have them.
_PARAMETERS = "instr(:fitting, char(31) || kernel || char(30) || parameters || char(31)) > 0"


def _add_parameters(
    database: Connection, selection: Selection, every: str, conditions: list[str], values: dict[str, Any]
) -> None:
    """Add the condition of --where. every: a query of the kernels and parameters that there are.

    `fitting` is one text with those of them that have the values. Raises UserError for a name that no kernel has.
    """
    where = selection.where
    if not where:
        return
    options = first_defaults(database)
    for name, _ in where:
        if not any(name in known for known in options.values()):
            known = sorted({one for of_kernel in options.values() for one in of_kernel})
            raise UserError(f"{name!r} is not a parameter of any kernel here", f"there are {', '.join(known)}")
    found = []
    for kernel, text in database.execute(every):
        parameters = {**options[kernel], **json.loads(text)}
        if all(name in parameters and _same(name, parameters[name], value) for name, value in where):
            found.append(f"{kernel}\x1e{text}")
    conditions.append(_PARAMETERS)
    values["fitting"] = "\x1f" + "\x1f\x1f".join(found) + "\x1f"


_OF_RUNS = (
    "{table}.job_id IN (SELECT j2.job_id FROM job j2 JOIN run_cluster rc2 ON rc2.run_cluster_id = j2.run_cluster_id"
    " WHERE rc2.run_id IN ({}))"
)


def within(
    window: Window,
    facts: Sequence[tuple[str, str]] = (),
    table: str = "x",
    *,
    at_utc: str = "x.started_utc",
    of_runs: str = _OF_RUNS,
    of_attempts: str = "{table}.attempt_id IN ({})",
) -> tuple[str, dict[str, Any]]:
    """The condition for results of a stretch whose nodes had these facts, and its values.

    table: what the query calls `result`. at_utc, of_runs, of_attempts: how it calls the time of a row, and finds its run and
    attempt.
    """
    conditions, bound = ["1"], dict[str, Any]()
    if window.from_utc is not None:
        conditions.append(f"{at_utc} >= :from_utc")
        bound["from_utc"] = window.from_utc
    if window.until_utc is not None:
        conditions.append(f"{at_utc} < :until_utc")
        bound["until_utc"] = window.until_utc
    if window.run_ids is not None:
        conditions.append(of_runs.format(", ".join(str(int(one)) for one in window.run_ids), table=table))
    for number, (name, value) in enumerate(facts):
        attempts = (
            "SELECT nf.attempt_id FROM fact f JOIN fact_set_part sp ON sp.fact_part_id = f.fact_part_id"
            f" JOIN node_facts nf ON nf.fact_set_id = sp.fact_set_id WHERE f.name = :fact{number}"
            f" AND CAST(f.value AS TEXT) = :fact_value{number}"
        )
        conditions.append(of_attempts.format(attempts, table=table))
        bound |= {f"fact{number}": name, f"fact_value{number}": value}
    return " AND ".join(conditions), bound


def counted_within(window: Window) -> tuple[str, dict[str, Any]]:
    """The condition over RESULTS for results that count and lie in this stretch, and its values."""
    condition, bound = within(window, at_utc=AT_UTC, of_runs="r.run_id IN ({})")
    return f"x.final = 1 AND t.result_id IS NULL AND {condition}", bound


# ----------------------------------------------------------------------------------------------------------------------
# Names that no series has, and parameters as people write them.


def check_selection(database: Connection, wanted: Selection) -> None:
    """Raise UserError for a kernel, cluster, network, node or fact that no series has; the message names the nearest."""
    _check_facts(database, wanted.facts)
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
    "cluster": f"SELECT DISTINCT c.name FROM node n JOIN cluster c ON c.cluster_id = n.cluster_id WHERE {_CLIENTS}"
    " UNION SELECT c.name FROM link l JOIN cluster c ON c.cluster_id = l.cluster_id",
    "network": "SELECT network FROM series UNION SELECT name FROM network",
    "client": f"SELECT n.name FROM node n WHERE {_CLIENTS}",
    "server": f"SELECT n.name FROM node n WHERE {_SERVERS}",
    "node": f"SELECT n.name FROM node n WHERE {_CLIENTS} OR {_SERVERS}",
}


def _check_facts(database: Connection, facts: Sequence[tuple[str, str]]) -> None:
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


def _check_group(database: Connection, group: str) -> None:
    if database.execute('SELECT 1 FROM v_groups WHERE "group" = ? LIMIT 1', (group,)).fetchone() is None:
        known = [str(row[0]) for row in database.execute('SELECT DISTINCT "group" FROM v_groups ORDER BY "group"')]
        hint = (
            f"there are {', '.join(known[:12])}" if known else "hpcq db groups FILE adds them; hpcq accept asks the scheduler"
        )
        raise UserError(f"{group!r} is not a group of nodes", hint)


def first_defaults(database: Connection) -> dict[str, dict[str, Any]]:
    """First default of every option, by kernel: a series that does not state an option has this value."""
    found: dict[str, dict[str, Any]] = {str(row[0]): {} for row in database.execute("SELECT name FROM kernel")}
    for kernel, name, first_default in database.execute(
        "SELECT k.name, o.name, o.first_default FROM option o JOIN kernel k ON k.kernel_id = o.kernel_id"
    ):
        found[kernel][name] = None if first_default is None else json.loads(first_default)
    return found


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
# Runs and times in words.


_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(min|h|d|w|m|y)")
_MOMENT = re.compile(r"\d{4}(-\d{2}(-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?Z?)?)?)?")
_DAYS = {"min": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}
#: Sorts after every continuation of a time.
_BEHIND = "~"
_HINT = "give 30d, now-7d, 2026, 2026-11, 2026-11-20T02:00, latest, a run, a campaign, baseline:NAME, or A..B"


def moment(database: Connection, text: str, now: dt.datetime | None = None) -> str:
    """The beginning of the time that `text` names. Raises UserError with what is allowed."""
    found = window(database, text, now)
    if found.from_utc is not None:
        return found.from_utc
    if found.run_ids:
        marks = ",".join("?" * len(found.run_ids))
        query = f"SELECT min(created_utc) FROM run WHERE run_id IN ({marks})"
        return str(database.execute(query, found.run_ids).fetchone()[0])[:19]
    raise UserError(f"{text!r} has no beginning", _HINT)


def newest_run_at(database: Connection) -> dt.datetime:
    """When the newest run began, but for those that are dated later than now; now where there is none."""
    present = dt.datetime.now(dt.UTC)
    query = "SELECT max(created_utc) FROM run WHERE created_utc <= ?"
    newest = database.execute(query, (units.utc_text(present),)).fetchone()[0]
    with suppress(ValueError):  # a day that no month has
        return present if newest is None else units.parse_utc(str(newest))
    return present


def window(database: Connection, text: str, now: dt.datetime | None = None) -> Window:
    """The window that `text` names. Raises UserError with what is allowed."""
    present = now or dt.datetime.now(dt.UTC)
    if ".." in text:
        first, _, last = (part.strip() for part in text.partition(".."))
        from_utc = moment(database, first, present) if first else None
        until_utc = _end(database, last, present) if last else None
        if from_utc is not None and until_utc is not None and from_utc >= until_utc:
            raise UserError(f"{text!r}: {first} is not before {last}", "write the earlier moment first: 90d..30d")
        return Window(text, from_utc, until_utc)
    bounds = _bounds(text.strip(), present)
    if bounds is not None:
        return Window(text, *bounds)
    if text.startswith("baseline:"):
        return Window(text, run_ids=baseline_runs(database, text.partition(":")[2]))
    try:
        name = find_run(database, text)
    except UserError as error:
        raise UserError(f"{error.message}, and no time either", f"{_HINT}; {error.hint}") from error
    return Window(text, run_ids=(int(database.execute("SELECT run_id FROM run WHERE name = ?", (name,)).fetchone()[0]),))


def is_length(text: str) -> bool:
    """Whether a text is a length of time: 30d, 12h."""
    return _LENGTH.fullmatch(text) is not None


def baseline_runs(database: Connection, name: str) -> tuple[int, ...]:
    """The runs of the baseline that holds under NAME or `baseline:NAME`. Raises UserError that lists the baselines."""
    name = name.removeprefix("baseline:")
    rows = database.execute("SELECT DISTINCT run_id FROM v_baselines WHERE baseline = ? AND holds = 1", (name,)).fetchall()
    if not rows:
        known = [str(row[0]) for row in database.execute("SELECT DISTINCT baseline FROM v_baselines ORDER BY baseline")]
        hint = f"there are {', '.join(known)}" if known else "hpcq baseline set NAME RUN... makes one"
        raise UserError(f"{name!r} is not a baseline", hint)
    return tuple(int(row[0]) for row in rows)


def run_ids(database: Connection) -> dict[str, int]:
    """Row number of every run, by its name."""
    return {str(row[1]): int(row[0]) for row in database.execute("SELECT run_id, name FROM run")}


def newest_runs(database: Connection, cluster: str, count: int) -> tuple[int, ...]:
    """The last `count` runs on a cluster, the newest first."""
    rows = database.execute(
        "SELECT r.run_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        " WHERE c.name = ? ORDER BY r.created_utc DESC LIMIT ?",
        (cluster, count),
    )
    return tuple(int(row[0]) for row in rows)


def runs_before(database: Connection, cluster: str, run_id: int, count: int) -> tuple[int, ...]:
    """The last `count` runs on a cluster before a run began, the newest first."""
    rows = database.execute(
        "SELECT r.run_id FROM run r JOIN run_cluster rc ON rc.run_id = r.run_id JOIN cluster c ON c.cluster_id = rc.cluster_id"
        " WHERE c.name = ? AND r.created_utc < (SELECT created_utc FROM run WHERE run_id = ?)"
        " ORDER BY r.created_utc DESC LIMIT ?",
        (cluster, run_id, count),
    )
    return tuple(int(row[0]) for row in rows)


def clusters_of(database: Connection, run_ids: Sequence[int]) -> list[str]:
    """The clusters that these runs were on, by name."""
    marks = ",".join("?" * len(run_ids))
    query = (
        "SELECT DISTINCT c.name FROM cluster c JOIN run_cluster rc ON rc.cluster_id = c.cluster_id"
        f" WHERE rc.run_id IN ({marks}) ORDER BY c.name"
    )
    rows = database.execute(query, tuple(run_ids))
    return [str(row[0]) for row in rows]


def looks_like_a_time(text: str) -> bool:
    """Whether a word was meant as a date: digits as in 2026-02-30 or 20261101, even if no calendar has that day."""
    return re.fullmatch(r"\d{4}-?\d{1,2}(-?\d{1,2})?([T ].*)?", text) is not None


def _end(database: Connection, text: str, now: dt.datetime) -> str | None:
    """Where a stretch that ends with `text` ends: a date includes all of it; a length is the moment that long ago."""
    bounds = _bounds(text, now)
    if bounds is None or _LENGTH.fullmatch(text):
        return moment(database, text, now)
    return bounds[1] if bounds[1] is not None else bounds[0]


def _bounds(text: str, now: dt.datetime) -> tuple[str, str | None] | None:
    """First and last bound of a time word; None if `text` is none."""
    if _MOMENT.fullmatch(text):
        plain = text.rstrip("Z").replace(" ", "T")
        _check_date(text, plain)
        return plain, plain + _BEHIND
    if text in {"today", "yesterday"}:
        day = (now - dt.timedelta(days=1 if text == "yesterday" else 0)).strftime("%Y-%m-%d")
        return day, day + _BEHIND
    if text == "now":
        return _text(now), None
    match = _LENGTH.fullmatch(text.removeprefix("now-"))
    if match is None:
        return None
    try:
        return _text(now - dt.timedelta(days=float(match.group(1)) * _DAYS[match.group(2)])), None
    except OverflowError:
        return "0000", None


def _check_date(text: str, plain: str) -> None:
    """Raise UserError for a day or hour that no calendar has. 2026-02-30 would otherwise select nothing."""
    whole = plain + "0001-01-01T00:00:00"[len(plain) :] if len(plain) < len("0001-01-01T00:00:00") else plain
    try:
        dt.datetime.fromisoformat(whole)
    except ValueError as error:
        raise UserError(f"{text!r} is not a date: {error}", _HINT) from error


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def runs_in(database: Connection, window: Window) -> list[int]:
    """The run_id of every run with a planned result in this stretch."""
    condition, bound = counted_within(window)
    return [int(row[0]) for row in database.execute(f"SELECT DISTINCT r.run_id {RESULTS} WHERE {condition}", bound)]


def run_id_of(database: Connection, name: str) -> int:
    """The database number of a run."""
    return int(database.execute("SELECT run_id FROM run WHERE name = ?", (name,)).fetchone()[0])


def find_run(database: sqlite3.Connection, name: str | None) -> str:
    """Find a run: None or `latest` is the last one; else a name, or an unambiguous beginning of one.

    A campaign's name selects its last run. Raises UserError that lists the existing runs.
    """
    rows = database.execute(
        "SELECT r.name, c.name FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id"
        " ORDER BY r.created_utc DESC, r.run_id DESC"
    ).fetchall()
    if not rows:
        raise UserError("no run in this database", "`hpcq run CAMPAIGN` makes one; --db names another database")
    if name is None or name == "latest":
        return str(rows[0][0])
    for run, campaign in rows:
        if name in {run, campaign}:
            return str(run)
    beginning = [str(run) for run, _ in rows if name and run.startswith(name)]
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        raise UserError(f"{name!r} begins the name of {len(beginning)} runs: {', '.join(beginning[:5])}", "write more of it")
    raise UserError(f"{name!r} is not a run", f"the last ones are {', '.join(str(row[0]) for row in rows[:5])}")


# ----------------------------------------------------------------------------------------------------------------------
# The metric that is meant: the one of a name, or the main one of each kernel.


@dataclass(frozen=True, slots=True)
class MetricRow:
    """The metric of a kernel that an analysis reads."""

    metric_name_id: int
    name: str
    unit: str
    better: str


def metrics_of(database: Connection, name: str | None) -> dict[str, MetricRow]:
    """By kernel: the metric of that name; without a name, the kernel's main metric."""
    condition = "mn.metric_name_id = k.main_metric_name_id" if name is None else "mn.name = ?"
    found = {
        row["kernel"]: MetricRow(row["metric_name_id"], row["name"], row["unit"], row["better"])
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


def metric_in(database: Connection, metrics: Iterable[MetricRow]) -> str:
    """SQL for which of these metrics a result has, at most one a kernel; it must be joined with its parameter_set `ps`.

    A list of all of them costs SQLite a look into the index for each, of every result.
    """
    ids = ", ".join(str(one.metric_name_id) for one in metrics) or "NULL"
    query = f"SELECT kernel_id, metric_name_id FROM metric_name WHERE metric_name_id IN ({ids})"
    cases = "".join(f" WHEN {kernel_id} THEN {metric_id}" for kernel_id, metric_id in database.execute(query))
    return f"CASE ps.kernel_id{cases} END" if cases else "NULL"

"""What a page over a stretch of time shows besides values: runs, findings and events."""

from __future__ import annotations

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from hpcq import units
from hpcq.clock import CLOCK_TOLERANCE_S
from hpcq.errors import StoreError
from hpcq.store.database import SCHEMA_VERSION, answered, reading
from hpcq.store.query import columns
from hpcq.store.selection import Selection, of_results
from hpcq.strangers import replaceable
from hpcq.writer_lock import is_written

# ruff: noqa: S608 - statements are put together from our own texts; what people choose is always bound

if TYPE_CHECKING:
    from hpcq.store.database import Connection


@dataclass(frozen=True, slots=True)
class StretchRun:
    """One run on one cluster."""

    run: str
    campaign: str
    cluster: str
    created_utc: str
    planned_count: int
    measured_count: int


@dataclass(frozen=True, slots=True)
class FoldedFinding:
    """A rule over all clusters and nodes of the stretch. nodes: those with most results first."""

    rule: str
    result_count: int
    clusters: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    meaning: str
    advice: str
    example: str


@dataclass(frozen=True, slots=True)
class StretchEvent:
    """What happened to machines: a maintenance, drain, reboot, note."""

    started_utc: str
    kind: str
    cluster: str | None
    node: str | None
    note: str | None
    who: str | None


def runs_in(database: Connection, from_utc: str, until_utc: str | None, cluster: str | None) -> list[StretchRun]:
    """Runs that began in the stretch, newest first."""
    query = f"SELECT {columns(StretchRun)} FROM v_runs WHERE {_WITHIN.format('created_utc')} ORDER BY created_utc DESC, cluster"
    return [StretchRun(*row) for row in database.execute(query, _bound(from_utc, until_utc, cluster))]


def declared_marks(database: Connection) -> tuple[int, ...]:
    """A number of what people said: another one, and pages of old results may say something else."""
    tables = (
        "retraction",
        "retraction_withdrawn",
        "change_state",
        "event WHERE who <> 'evidence' AND who NOT LIKE 'scheduler:%'",
    )
    return tuple(int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables)


def events_in(
    database: Connection, from_utc: str, until_utc: str | None, cluster: str | None, node: str | None
) -> list[StretchEvent]:
    """Events of the stretch, newest first."""
    query = (
        f"SELECT {columns(StretchEvent)} FROM v_events WHERE {_WITHIN.format('started_utc')}"
        " AND (:node IS NULL OR node = :node) ORDER BY started_utc DESC"
    )
    return [StretchEvent(*row) for row in database.execute(query, _bound(from_utc, until_utc, cluster, node))]


def findings_in(database: Connection, selection: Selection) -> list[FoldedFinding]:
    """Findings of the selected results, one row per rule, most results first."""
    condition, values = of_results(database, selection)
    query = (
        "SELECT rule, result_id, cluster, coalesce(node, '') AS node, meaning, advice, message FROM v_findings"
        f" WHERE result_id IN (SELECT result_id FROM v_results WHERE {condition})"
    )
    groups: dict[str, list[Any]] = {}
    for row in database.execute(query, values):
        groups.setdefault(str(row["rule"]), []).append(row)
    found = []
    for rule, rows in groups.items():
        nodes = Counter(f"{row['cluster']}/{row['node']}" for row in rows if row["node"])
        clusters = tuple(sorted({str(row["cluster"]) for row in rows}))
        results = len({row["result_id"] for row in rows})
        first = rows[0]
        found.append(
            FoldedFinding(
                rule, results, clusters, tuple(nodes.most_common()), first["meaning"], first["advice"] or "", first["message"]
            )
        )
    return sorted(found, key=lambda one: (-one.result_count, one.rule))


_WITHIN = "{0} >= :from_utc AND (:until_utc IS NULL OR {0} < :until_utc) AND (:cluster IS NULL OR cluster = :cluster)"


def _bound(from_utc: str, until_utc: str | None, cluster: str | None, node: str | None = None) -> dict[str, str | None]:
    return {"from_utc": from_utc, "until_utc": until_utc, "cluster": cluster, "node": node}


# ----------------------------------------------------------------------------------------------------------------------
# Queries of `hpcq doctor`. They report an unreadable database instead of raising.


_IN_FUTURE = "SELECT name FROM run WHERE created_utc > ? ORDER BY created_utc"


def _soon() -> str:
    return units.utc_text(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=CLOCK_TOLERANCE_S))


def look_at_database(path: Path) -> Iterator[tuple[str, bool, str, str]]:
    """(item, ok, found, advice): leftovers of a writer, version, a quick integrity check."""
    journal = path.with_name(f"{path.name}-journal")
    left = not is_written(path) and journal.exists()
    try:
        with reading(path) as database:
            # It reads the whole file: once for each state of it. `hpcq db check` reads it every time.
            said = answered(database, {"quick_check": 5}, lambda: _quick_check(database))
            runs = int(database.execute("SELECT count(*) FROM run").fetchone()[0])
            later = [str(row[0]) for row in database.execute(_IN_FUTURE, (_soon(),))]
    except StoreError as error:
        advice = f"hpcq db upgrade --db {quote(str(path))}" if "has version" in error.message else error.hint or ""
        yield "readable", False, error.message, advice
        return
    size = units.human(path.stat().st_size, "bytes")
    yield "version", True, f"{path}: version {SCHEMA_VERSION}, {units.count_of(runs, 'run')}, {size}", ""
    if open_ := replaceable(path):
        yield "writers", False, f"{open_.words}: what it says may be anybody's", f"chmod o-w {quote(str(open_.at))}"
    yield (
        "soundness",
        said == ["ok"],
        f"quick_check: {'; '.join(said)}",
        "" if said == ["ok"] else f"hpcq db check --db {quote(str(path))}",
    )
    if later:
        found = f"{later[-1]} is dated in the future and is the newest run until then: a clock was wrong, there or here"
        shown = found if len(later) == 1 else f"{units.count_of(len(later), 'run')} dated in the future; {found}"
        yield "clock", False, shown, f"hpcq retract --run {later[-1]} --why 'wrong clock' takes it out of every verdict"
    if left and not journal.exists():
        yield "journal", True, "a writer had been killed; what it had half written was rolled back just now", ""


def _quick_check(database: Connection) -> list[str]:
    return [str(row[0]) for row in database.execute("PRAGMA quick_check(5)")]


def known_runs(path: Path) -> set[str] | None:
    """Names of all runs in it; None if it cannot be read."""
    try:
        with reading(path) as database:
            return {str(row[0]) for row in database.execute("SELECT name FROM run")}
    except StoreError:
        return None


def last_run(path: Path, campaign: str) -> str | None:
    """When the last run of a campaign began; None if there is none, or no readable database."""
    try:
        with reading(path) as database:
            row = database.execute(
                "SELECT max(r.created_utc) FROM run r JOIN campaign c ON c.campaign_id = r.campaign_id WHERE c.name = ?",
                (campaign,),
            ).fetchone()
    except StoreError:
        return None
    return None if row[0] is None else str(row[0])


# ----------------------------------------------------------------------------------------------------------------------
# What dashboards ask of results.db. Grafana and Datasette get the same statements.
#
# Each is one SELECT over views. Named parameters: `:cluster` and `:kernel` (a name, or `all`), `:since_utc` and
# `:until_utc` (as they stand in the database). A question whose first column is `time_utc` is drawn over time, with one line
# per value of its column `line`.


PARAMETERS = ("cluster", "kernel", "since_utc", "until_utc")


@dataclass(frozen=True, slots=True)
class Question:
    """One question. name: also the last part of its address in Datasette. unit: of the drawn value, as in the database."""

    name: str
    title: str
    words: str
    sql: str
    unit: str = ""

    @property
    def over_time(self) -> bool:
        """Whether its rows are points in time."""
        return self.sql.startswith("SELECT started_utc AS time_utc") or self.sql.startswith("SELECT created_utc AS time_utc")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the named parameters that it has, in their fixed order."""
        return tuple(name for name in PARAMETERS if f":{name}" in self.sql)


_HERE = ":cluster IN ('all', '', cluster)"
#: Nothing given is all time: Datasette gives nothing as an empty text.
_STRETCH = "BETWEEN :since_utc AND coalesce(nullif(:until_utc, ''), '9999')"


def _levels(metric: str) -> str:
    return (
        "SELECT started_utc AS time_utc, client || ' > ' || server || ' #' || series_id AS line, value"
        f" FROM v_points WHERE metric = '{metric}' AND {_HERE} AND :kernel IN ('all', '', kernel)"
        f" AND started_utc {_STRETCH} ORDER BY started_utc LIMIT 50000"
    )


QUESTIONS = (
    Question(
        "not_fit",
        "Not fit for users",
        "Nodes, links, groups and collectives whose last acceptance was no pass.",
        f"SELECT cluster, kind, name, verdict, reason, decided_utc FROM v_ledger WHERE verdict <> 'pass' AND {_HERE}"
        " ORDER BY decided_utc DESC",
    ),
    Question(
        "open_changes",
        "Changes for the worse that nobody decided about",
        "What hpcq regressions --record found: first what is gone (it only fails now), then the furthest.",
        "SELECT change_id, at_utc, cluster, kernel, client, server, metric, direction,"
        f" round(100 * (ratio - 1), 1) AS change_percent, cause FROM v_changes"
        f" WHERE state = 'open' AND direction <> 'better' AND {_HERE} ORDER BY direction = 'gone' DESC,"
        " abs(1 - ratio) DESC",
    ),
    Question(
        "coverage",
        "Measured of what was planned",
        "Share of the planned results that each run measured.",
        "SELECT created_utc AS time_utc, campaign || ' ' || cluster AS line,"
        f" 1.0 * measured_count / max(planned_count, 1) AS value FROM v_runs WHERE {_HERE} AND created_utc {_STRETCH}"
        " ORDER BY created_utc",
        "ratio",
    ),
    Question(
        "throughput",
        "Throughput of each pair",
        "Median of each job. One line per series.",
        _levels("throughput_bps"),
        "bps",
    ),
    Question(
        "round_trip",
        "Round trip of each pair, median",
        "Median of each job. One line per series.",
        _levels("round_trip_p50_ns"),
        "ns",
    ),
    Question(
        "missing",
        "What is missing, and why",
        "Planned results that are not there, by reason, in the runs of this stretch.",
        "SELECT m.cluster, m.outcome, m.reason, count(*) AS results, max(m.run) AS last_run FROM v_not_measured m"
        f" JOIN v_runs r ON r.run = m.run AND r.cluster = m.cluster WHERE {_HERE.replace('cluster)', 'm.cluster)')}"
        f" AND r.created_utc {_STRETCH} GROUP BY m.cluster, m.outcome, m.reason ORDER BY results DESC LIMIT 100",
    ),
    Question(
        "findings",
        "What the evidence says",
        "Rules over counters and facts of both ends, by node.",
        "SELECT cluster, coalesce(node, client || ' > ' || server) AS node, rule, count(*) AS results, min(message) AS example"
        f" FROM v_findings WHERE {_HERE} AND started_utc {_STRETCH} GROUP BY 1, 2, 3 ORDER BY results DESC LIMIT 100",
    ),
    Question(
        "not_measured_for",
        "Nodes by the time since they were last measured",
        "A node that nobody measures is not known to be fine.",
        "SELECT cluster, node, last_measured_utc, round(julianday('now') - julianday(last_measured_utc), 1) AS days, verdict"
        f" FROM v_nodes WHERE {_HERE} ORDER BY last_measured_utc IS NOT NULL, last_measured_utc LIMIT 200",
    ),
    Question(
        "events",
        "What happened to machines",
        "Maintenance, drains, reboots and notes.",
        "SELECT started_utc, ended_utc, kind, cluster, node, note, who FROM v_events"
        f" WHERE {_HERE} AND started_utc {_STRETCH} ORDER BY started_utc DESC LIMIT 200",
    ),
)

"""What dashboards ask of results.db. Grafana and Datasette get the same statements.

Each is one SELECT over views. Named parameters: `:cluster` and `:kernel` (a name, or `all`), `:since_utc` and
`:until_utc` (as they stand in the database). A question whose first column is `time_utc` is drawn over time, with one line
per value of its column `line`.
"""

# ruff: noqa: S608 - statements are put together from our own texts; what people choose is always bound

from __future__ import annotations

from dataclasses import dataclass

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

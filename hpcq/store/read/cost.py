"""What runs cost the users of a cluster: node-hours that their allocations held nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hpcq import units
from hpcq.store.database import Connection
from hpcq.store.time_windows import Window

#: The key of a cluster file. Its text is in the database as it was when the run began.
_ACCOUNT = re.compile(r"^\s*account:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """One month, cluster and account. account: empty if the cluster file names none, so that the user's default paid.

    open_count: allocations that started and have no end yet; their hours are not counted.
    """

    month: str
    cluster: str
    account: str
    run_count: int
    job_count: int
    node_hours: float
    open_count: int


def costs(database: Connection, window: Window, cluster: str | None = None, campaign: str | None = None) -> list[Cost]:
    """Node-hours by month, cluster and account, newest month first.

    An attempt counts from its start to its end, times its nodes. Pairs of one tournament share an allocation, which counts
    once. Each side of an attempt over a link is an allocation of one node on its own cluster.
    """
    seen: set[str] = set()
    runs: dict[tuple[str, str, str], set[str]] = {}
    jobs: dict[tuple[str, str, str], list[float]] = {}
    unended: dict[tuple[str, str, str], int] = {}
    accounts: dict[int, str] = {}
    for row in database.execute(_ALLOCATIONS, _bound(window, cluster, campaign)):
        tag = str(row["tag"]).partition("/")[0] + str(row["side"])
        if tag in seen:
            continue
        seen.add(tag)
        key = (str(row["started_utc"])[:7], str(row["cluster"]), _account(database, row["document_id"], accounts))
        runs.setdefault(key, set()).add(row["run"])
        jobs.setdefault(key, []).append(_node_seconds(row))
        unended[key] = unended.get(key, 0) + (row["ended_utc"] is None)
    found = [Cost(*key, len(runs[key]), len(each), sum(each) / _SECONDS_PER_HOUR, unended[key]) for key, each in jobs.items()]
    return sorted(sorted(found, key=lambda one: (one.cluster, one.account)), key=lambda one: one.month, reverse=True)


_ALLOCATIONS = """
SELECT a.tag, '' AS side, r.name AS run, c.name AS cluster, rc.document_id, a.started_utc, a.ended_utc,
       CASE a.nodes WHEN '' THEN 2 ELSE length(a.nodes) - length(replace(a.nodes, ' ', '')) + 1 END AS node_count
FROM attempt a JOIN job j ON j.job_id = a.job_id JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id
JOIN run r ON r.run_id = rc.run_id JOIN campaign ca ON ca.campaign_id = r.campaign_id
JOIN cluster c ON c.cluster_id = rc.cluster_id
WHERE a.started_utc >= :from_utc AND a.started_utc < :until_utc AND (:cluster IS NULL OR c.name = :cluster)
  AND (:campaign IS NULL OR ca.name = :campaign) AND c.cluster_id NOT IN (SELECT cluster_id FROM link)
UNION ALL
SELECT e.tag, e.side, r.name, c.name, own.document_id, e.started_utc, e.ended_utc, 1
FROM link_end e JOIN attempt a ON a.attempt_id = e.attempt_id JOIN job j ON j.job_id = a.job_id
JOIN run_cluster rc ON rc.run_cluster_id = j.run_cluster_id JOIN run r ON r.run_id = rc.run_id
JOIN campaign ca ON ca.campaign_id = r.campaign_id JOIN node n ON n.node_id = e.node_id
JOIN cluster c ON c.cluster_id = n.cluster_id
LEFT JOIN run_cluster own ON own.run_id = rc.run_id AND own.cluster_id = n.cluster_id
WHERE e.started_utc >= :from_utc AND e.started_utc < :until_utc AND (:cluster IS NULL OR c.name = :cluster)
  AND (:campaign IS NULL OR ca.name = :campaign)
"""


def _bound(window: Window, cluster: str | None, campaign: str | None) -> dict[str, Any]:
    times = {"from_utc": window.from_utc or "", "until_utc": window.until_utc or "~"}
    return {**times, "cluster": cluster, "campaign": campaign}


def _node_seconds(row: Any) -> float:
    """What an allocation held; zero while it has no end."""
    if row["ended_utc"] is None:
        return 0.0
    length = units.parse_utc(row["ended_utc"]) - units.parse_utc(row["started_utc"])
    return max(0.0, length.total_seconds()) * int(row["node_count"])


def _account(database: Connection, document_id: int | None, known: dict[int, str]) -> str:
    if document_id is None:
        return ""
    if document_id not in known:
        text = database.execute("SELECT text FROM document WHERE document_id = ?", (document_id,)).fetchone()[0]
        found = _ACCOUNT.search(text)
        known[document_id] = found.group(1) if found else ""
    return known[document_id]

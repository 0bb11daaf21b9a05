"""Every value of a run in one table, for programs that read tables."""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hpcq.store.query import where

if TYPE_CHECKING:
    from hpcq.store.database import Connection
    from hpcq.store.query import Selection


def metric_rows(database: Connection, selection: Selection) -> Iterator[dict[str, Any]]:
    """One row per result and metric of the results that count, and one row per result that has no metric, with its reason."""
    conditions, values = where(selection)
    query = (
        "SELECT v.run, v.campaign, v.cluster, v.kernel, v.client, v.server, v.message_bytes, v.test_no, v.repetition_no,"
        " v.outcome, v.reason, v.started_utc, v.disturbed, v.crossed_interface, n.name AS metric, m.value, n.unit, n.better,"
        " v.series_id, v.result_id, v.job, v.attempt_no, v.parameters, v.network, v.network_name"
        " FROM v_all_results v LEFT JOIN metric m ON m.result_id = v.result_id"
        " LEFT JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
        f" WHERE v.final = 1 AND v.retracted IS NULL AND {conditions}"
        " ORDER BY v.run, v.cluster, v.job, v.test_no, v.repetition_no, n.position_no"
    )
    for row in database.execute(query, values):
        yield dict(row)


def finding_rows(database: Connection, run: str) -> list[dict[str, Any]]:
    """Findings of a run: one row per cluster, rule and pair, with a count and one of the messages."""
    query = (
        "SELECT v.cluster, v.kernel, v.client, v.server, f.rule, count(*) AS result_count, min(f.message) AS example"
        " FROM v_findings f JOIN v_results v ON v.result_id = f.result_id WHERE v.run = ?"
        " GROUP BY v.cluster, v.kernel, v.client, v.server, f.rule ORDER BY result_count DESC, v.cluster, f.rule"
    )
    return [dict(row) for row in database.execute(query, (run,))]

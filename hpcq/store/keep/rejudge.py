"""Judge the stored evidence again with the present rules, so that old results get today's findings.

    stored evidence, gauges, metrics, facts  ->  JudgedResult  ->  judge  ->  result_finding, result.disturbed, rules_version

The outcome of a result (measured, invalid) and whether it crossed the interface stay as loading set them: loading may
have used more than the database keeps. Pruned results have no evidence left and keep their findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.evidence.judgement import Judge, JudgedResult
from hpcq.kernels import kernels
from hpcq.run_folder.described_lines import told_of
from hpcq.store.database import Connection, transaction, writing
from hpcq.store.load.row_keys import RowKeys, canonical

_ENDS = ("client", "server")


@dataclass(frozen=True, slots=True)
class Rejudged:
    """What judging again changed. changed_count: results whose findings differ now."""

    judged_count: int
    changed_count: int
    pruned_count: int


def rejudge(path: Path, judge: Judge, version: int, run: str | None = None) -> Rejudged:
    """Judge the evidence of measured results (of one run) again if rules other than `version` judged them."""
    judged = changed = 0
    with writing(path) as database, transaction(database):
        keys = RowKeys(database)
        old, pruned = _outdated(database, version, run)
        for result_id in old:
            judgement = judge(_stored(database, result_id))
            before = _findings(database, result_id)
            database.execute("DELETE FROM result_finding WHERE result_id = ?", (result_id,))
            for finding in judgement.findings:
                rule = finding.rule
                rule_id = keys.rule(rule.name, rule.meaning, rule.advice, rule.source)
                end_index = _ENDS.index(finding.end) if finding.end else -1
                database.execute(
                    "INSERT INTO result_finding (result_id, rule_id, end_index, message, figures) VALUES (?, ?, ?, ?, ?)",
                    (result_id, rule_id, end_index, finding.message, canonical(finding.figures)),
                )
            database.execute(
                "UPDATE result SET disturbed = ?, rules_version = ? WHERE result_id = ?",
                (int(judgement.disturbed), version, result_id),
            )
            judged += 1
            changed += before != _findings(database, result_id)
    return Rejudged(judged, changed, pruned)


def _outdated(database: Connection, version: int, run: str | None) -> tuple[list[int], int]:
    """Measured results that other rules judged, and how many more have lost their evidence."""
    rows = database.execute(
        "SELECT x.result_id, EXISTS (SELECT 1 FROM evidence e WHERE e.result_id = x.result_id) AS evidence FROM result x"
        " JOIN v_pairs p ON p.job_id = x.job_id WHERE x.outcome = 'measured' AND x.rules_version <> ?1"
        " AND (?2 IS NULL OR p.run = ?2) ORDER BY x.result_id",
        (version, run),
    ).fetchall()
    return [int(row["result_id"]) for row in rows if row["evidence"]], sum(not row["evidence"] for row in rows)


def _findings(database: Connection, result_id: int) -> list[tuple[Any, ...]]:
    query = "SELECT rule_id, end_index, message FROM result_finding WHERE result_id = ? ORDER BY rule_id, end_index"
    return [tuple(row) for row in database.execute(query, (result_id,))]


def _stored(database: Connection, result_id: int) -> JudgedResult:
    """A result in the form in which loading gave it to the rules, from the stored line and the facts of the nodes."""
    head = database.execute(
        "SELECT k.name AS kernel, ps.json AS parameters, x.granted_set_id, x.attempt_id, j.client_node_id, j.server_node_id"
        " FROM result x JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        " JOIN kernel k ON k.kernel_id = ps.kernel_id JOIN job j ON j.job_id = x.job_id WHERE x.result_id = ?",
        (result_id,),
    ).fetchone()
    metrics = "SELECT n.name, m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
    line = {
        "kernel": head["kernel"],
        "metrics": _pairs(database, f"{metrics} WHERE m.result_id = ?", result_id),
        "granted": _pairs(database, "SELECT name, value FROM granted WHERE granted_set_id = ?", head["granted_set_id"]),
        "warnings": [
            {"name": row[0]} for row in database.execute("SELECT name FROM warning WHERE result_id = ?", (result_id,))
        ],
        "evidence": dict(_ends(database, result_id)),
    }
    described = kernels().get(head["kernel"])
    if described is not None:
        line |= told_of(described, json.loads(head["parameters"]))
    facts = [_facts(database, head["attempt_id"], head[f"{end}_node_id"]) for end in _ENDS]
    return JudgedResult(line, json.loads(head["parameters"]), facts[0], facts[1])


def _ends(database: Connection, result_id: int) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = database.execute(
        "SELECT e.*, d.interface, d.address, n.name AS node, b.boot_id FROM evidence_end e"
        " JOIN endpoint d ON d.endpoint_id = e.endpoint_id JOIN node n ON n.node_id = d.node_id"
        " LEFT JOIN node_boot b ON b.node_boot_id = e.node_boot_id WHERE e.result_id = ?",
        (result_id,),
    ).fetchall()
    for row in rows:
        key = (result_id, row["end_index"])
        names = " JOIN counter c ON c.counter_id = e.counter_id WHERE e.result_id = ? AND e.end_index = ?"
        gauges = database.execute(f"SELECT c.name, e.before, e.after FROM gauge e{names}", key)  # noqa: S608 - our own text
        yield (
            (*_ENDS, f"rank{row['end_index']}")[min(2, row["end_index"])],
            {
                **{name: row[name] for name in ("node", "interface", "address", "boot_id", "cpu_index", "interval_ns")},
                **{name: row[name] for name in ("before_utc", "after_utc")},
                "snapshot_cost_ns": [row["before_cost_ns"], row["after_cost_ns"]],
                "counters": _pairs(database, f"SELECT c.name, e.delta FROM evidence e{names}", *key),  # noqa: S608
                "gauges": {name: before if after is None else [before, after] for name, before, after in gauges},
                "unavailable": _pairs(
                    database, "SELECT source, reason FROM unavailable WHERE unavailable_set_id = ?", row["unavailable_set_id"]
                ),
            },
        )


def _facts(database: Connection, attempt_id: int | None, node_id: int) -> dict[str, Any] | None:
    found = _pairs(
        database,
        "SELECT f.name, f.value FROM node_facts nf JOIN fact_set_part sp ON sp.fact_set_id = nf.fact_set_id"
        " JOIN fact f ON f.fact_part_id = sp.fact_part_id WHERE nf.attempt_id = ? AND nf.node_id = ?",
        attempt_id,
        node_id,
    )
    return found or None


def _pairs(database: Connection, query: str, *values: Any) -> dict[str, Any]:
    return {str(row[0]): row[1] for row in database.execute(query, values)}

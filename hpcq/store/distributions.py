"""How long the single operations of a run took: histograms of its results, added up by test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from hpcq.store.database import Connection
from hpcq.store.query import variant_names

#: Of a run with more jobs, so many are read, evenly chosen: a histogram has some hundred rows.
_JOBS_MAX = 300


@dataclass(frozen=True, slots=True)
class Distribution:
    """The operations of one test on one cluster. buckets: lowest value of each, and how many operations fell into it."""

    cluster: str
    kernel: str
    message_bytes: int | None
    variant: str
    unit: str
    buckets: tuple[tuple[float, int], ...]
    result_count: int

    @property
    def operation_count(self) -> int:
        """How many operations there are."""
        return sum(count for _, count in self.buckets)

    def at_least(self) -> Iterator[tuple[float, float]]:
        """By value: the share of operations that took so long or longer, from 1 downwards."""
        left = total = self.operation_count
        for lower, count in self.buckets:
            yield lower, left / total
            left -= count

    def percentile(self, share: float) -> float:
        """The value that this share of the operations does not exceed, as exactly as the buckets are fine."""
        wanted, seen = share * self.operation_count, 0
        for lower, count in self.buckets:
            seen += count
            if seen >= wanted:
                return lower
        return self.buckets[-1][0]


def distributions(database: Connection, run: str) -> list[Distribution]:
    """One per cluster, kernel, size and variant whose results have histograms, in this order."""
    query = "SELECT DISTINCT job_id FROM v_pairs WHERE run = ? ORDER BY job_id"
    jobs = [int(row[0]) for row in database.execute(query, (run,))]
    stride = -(-len(jobs) // _JOBS_MAX) or 1
    rows = database.execute(
        "SELECT v.cluster, v.kernel, v.message_bytes, v.parameters, h.unit, h.lower, sum(h.sample_count) AS operation_count,"
        " count(DISTINCT h.result_id) AS result_count FROM json_each(?) j CROSS JOIN result x ON x.job_id = j.value"
        " CROSS JOIN v_results v ON v.result_id = x.result_id CROSS JOIN histogram h ON h.result_id = x.result_id"
        " WHERE v.outcome = 'measured' GROUP BY v.cluster, v.kernel, v.message_bytes, v.parameters, h.unit, h.lower"
        " ORDER BY v.cluster, v.kernel, v.message_bytes, v.parameters, h.lower",
        (json.dumps(jobs[::stride]),),
    ).fetchall()
    variants = variant_names({(row["kernel"], row["parameters"]) for row in rows})
    found: dict[tuple[str, str, int | None, str, str], list[tuple[float, int]]] = {}
    counts: dict[tuple[str, str, int | None, str, str], int] = {}
    for row in rows:
        variant = variants[row["kernel"], row["parameters"]]
        key = (row["cluster"], row["kernel"], row["message_bytes"], variant, row["unit"])
        found.setdefault(key, []).append((float(row["lower"]), int(row["operation_count"])))
        counts[key] = max(counts.get(key, 0), int(row["result_count"]))
    return [Distribution(*key, tuple(buckets), counts[key]) for key, buckets in found.items()]

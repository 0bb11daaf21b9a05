"""Results by a property of the nodes: driver, firmware, rack, or any fact.

A result has two ends. Where both ends have the same value, that is its group; else both values stand, in order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound
from dataclasses import dataclass, field
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import KernelTest, MetricOfTest
from hpcq.nodelist import natural
from hpcq.store.database import Connection
from hpcq.store.query import median, variant_names
from hpcq.store.selection import Selection, of_results

#: Words that people use, and the end of the fact's name; {interface} is the interface under test.
_WORDS = {
    "driver": "nic.{interface}.driver",
    "firmware": "nic.{interface}.firmware",
    "speed": "nic.{interface}.speed_bps",
    "mtu": "nic.{interface}.mtu_bytes",
    "kernel": "kernel.release",
    "cpu": "cpu.model",
}
_NOT_KNOWN = "(not known)"


@dataclass(frozen=True, slots=True)
class GroupRow(KernelTest):
    """One test in one group, over pairs and repetitions. level_ratio: its median beside that of all groups; 1.1 is better."""

    group: str
    variant: str
    metric: str
    unit: str
    pair_count: int
    n: int
    median: float
    lowest: float
    highest: float
    level_ratio: float | None


def grouped(database: Connection, selection: Selection, by: str) -> list[GroupRow]:
    """Measured results of the selection by `by`: a word of _WORDS, a kind of group (rack, leaf) or a fact's whole name.

    Raises UserError for a word that is none of these; it lists what there is.
    """
    values = _values(database, by)
    groups: dict[tuple[Any, ...], dict[str, list[tuple[str, float]]]] = {}
    conditions, bound = of_results(database, selection)
    rows = database.execute(
        "SELECT v.cluster, v.kernel, v.message_bytes, v.parameters, v.metric, v.unit, v.client, v.server, v.value, v.network,"
        " x.attempt_id, j.client_node_id, j.server_node_id"
        f" FROM (SELECT * FROM v_results WHERE outcome = 'measured' AND value IS NOT NULL AND {conditions}) v"
        " JOIN result x ON x.result_id = v.result_id JOIN job j ON j.job_id = x.job_id",
        bound,
    ).fetchall()
    for row in rows:
        ends = [values.of(row["attempt_id"], row[f"{end}_node_id"], row["network"]) for end in ("client", "server")]
        group = ends[0] if ends[0] == ends[1] else " and ".join(sorted(ends, key=natural))
        pair = f"{row['client']} > {row['server']}"
        groups.setdefault(tuple(row)[:6], {}).setdefault(group, []).append((pair, row["value"]))
    return _rows(database, groups)


def _rows(database: Connection, tests: dict[tuple[Any, ...], dict[str, list[tuple[str, float]]]]) -> list[GroupRow]:
    better = {str(row[0]): str(row[1]) for row in database.execute("SELECT DISTINCT name, better FROM metric_name")}
    variants = variant_names((key[1], key[3]) for key in tests)
    found = []
    for (cluster, kernel, message_bytes, parameters, metric, unit), groups in tests.items():
        middle = median([value for members in groups.values() for _, value in members])
        for group, members in groups.items():
            values = [value for _, value in members]
            level = None
            if len(groups) > 1 and middle > 0 and median(values) > 0 and better[metric] != "none":
                level = median(values) / middle if better[metric] == "higher" else middle / median(values)
            spread = (len({pair for pair, _ in members}), len(values), median(values), min(values), max(values))
            head = (cluster, kernel, message_bytes, group, variants[kernel, parameters], metric, unit)
            found.append(GroupRow(*head, *spread, level))
    return sorted(found, key=lambda one: (*one.order, one.variant, natural(one.group)))


@dataclass(slots=True)
class _Values:
    """Looks up the value of a property. facts: by fact set and name. sets: known so far. groups: by node, for racks."""

    database: Connection
    name: str
    facts: dict[tuple[int, str], str] = field(default_factory=dict)
    groups: dict[int, str] | None = None
    sets: dict[tuple[int, int], int] = field(default_factory=dict)

    def of(self, attempt_id: int | None, node_id: int, network: str) -> str:
        """The value for a node in an attempt, measured over this interface."""
        if self.groups is not None:
            return self.groups.get(node_id, _NOT_KNOWN)
        key = (attempt_id or 0, node_id)
        if key not in self.sets:
            row = self.database.execute(
                "SELECT fact_set_id FROM node_facts WHERE attempt_id = ? AND node_id = ?", key
            ).fetchone()
            self.sets[key] = int(row[0]) if row else 0
        return self.facts.get((self.sets[key], self.name.format(interface=network)), _NOT_KNOWN)


def _values(database: Connection, by: str) -> _Values:
    kinds = [str(row[0]) for row in database.execute("SELECT DISTINCT kind FROM v_groups ORDER BY kind")]
    if by in kinds:
        rows = database.execute('SELECT node_id, "group" FROM v_groups WHERE kind = ?', (by,))
        return _Values(database, by, groups={int(row[0]): str(row[1]) for row in rows})
    name = _WORDS.get(by, by)
    pattern = name.format(interface="*")
    names = [str(row[0]) for row in database.execute("SELECT DISTINCT name FROM fact WHERE name GLOB ?", (pattern,))]
    if not names and by not in _WORDS:  # of a word that is: not known of any node
        words = ", ".join(dict.fromkeys([*_WORDS, *kinds]))
        if by in {"rack", "leaf"}:
            raise UserError(f"--group-by: no node has a {by}", "hpcq db groups FILE adds racks and leaf switches of nodes")
        near = database.execute("SELECT DISTINCT name FROM fact WHERE name LIKE ? LIMIT 6", (f"%{by}%",)).fetchall()
        hint = f"near it: {', '.join(str(row[0]) for row in near)}" if near else "hpcq facts show NODE lists the facts"
        raise UserError(f"--group-by: no node has a fact {by!r}: must be one of {words}, or a fact's whole name", hint)
    facts = {
        (int(row[0]), str(row[1])): _said(by, row[2])
        for row in database.execute(
            "SELECT sp.fact_set_id, f.name, f.value FROM fact f JOIN fact_set_part sp ON sp.fact_part_id = f.fact_part_id"
            " WHERE f.name GLOB ?",
            (pattern,),
        )
    }
    return _Values(database, name, facts)


def _said(by: str, value: object) -> str:
    """A fact for people: 100 Gbit/s instead of 100000000000."""
    unit = units.unit_of(_WORDS.get(by, by))
    return units.human(value, unit) if unit is not None and isinstance(value, (int, float)) else str(value)


# ----------------------------------------------------------------------------------------------------------------------
# How long the single operations of a run took: histograms of its results, added up by test.


#: Of a run with more jobs, so many are read, evenly chosen: a histogram has some hundred rows.
_JOBS_MAX = 300


@dataclass(frozen=True, slots=True)
class Distribution(KernelTest):
    """The operations of one test on one cluster. buckets: lowest value of each, and how many operations fell into it."""

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
        " CROSS JOIN v_results v ON v.result_id = x.result_id CROSS JOIN v_histogram h ON h.result_id = x.result_id"
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


# ----------------------------------------------------------------------------------------------------------------------
# Values of one run with everything that decides whether two programs measured the same.


@dataclass(frozen=True, slots=True)
class PeerValue(MetricOfTest):
    """One metric of one measured result."""

    unit: str
    value: float


def peer_values(database: Connection, run: str, wanted: Collection[tuple[str, str]]) -> list[PeerValue]:
    """The values of a run that count. wanted: kernel and metric."""
    if not wanted:
        return []
    pairs = ", ".join(["(?, ?)"] * len(wanted))
    rows = database.execute(
        "SELECT m.cluster, m.client, m.server, m.kernel, v.parameters, m.metric, m.unit, m.value"
        " FROM v_metrics m JOIN v_results v ON v.result_id = m.result_id"
        f" WHERE m.run = ? AND (m.kernel, m.metric) IN (VALUES {pairs}) ORDER BY m.result_id",
        [run, *(word for one in sorted(wanted) for word in one)],
    )
    return [
        PeerValue(cluster, client, server, kernel, json.loads(parameters), metric, unit or "", value)
        for cluster, client, server, kernel, parameters, metric, unit, value in rows
    ]

"""Queries about evidence: findings, the facts behind a result, and what changed on a node.

    findings_of(database, selection)          one row per finding
    evidence_counts(database, selection)      how many results there are, and how many have evidence
    finding_groups(database, run)             one row per rule that applied, with counts
    facts_of_result(database, result_id)      the facts of both nodes as they were in that job
    facts_at(database, node, moment)          the facts of a node in a run, or at a time
    compared(database, what, a, b)            two of those, named as a person types them
    difference(before, after)                 what changed
    flaws_in(database, run_ids)               per node, what the evidence says is wrong with it
    new_flaws(database, window)               the same of a stretch, without what another one had already

Nothing here writes. No heavy imports here: reading verbs start in well under 0.2 s.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcq.errors import UserError
from hpcq.nodelist import natural
from hpcq.store.database import Connection
from hpcq.store.selection import Selection, Window, find_run, of_results, runs_in

Facts = dict[str, str | int | float]

#: Groups of facts that differ at every boot or at every moment: they are no change of the node.
PASSING_GROUPS = ("boot.", "now.", "unavailable.")
_MOMENT = re.compile(r"\d{4}(-\d{2}(-\d{2}(T\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?Z?)?)?)?")

#: Rules of the evidence that say what is wrong with a node itself; the others explain how a result came about.
FLAW_RULES = ("mtu_mismatch", "link_degraded", "pcie_degraded", "link_errors")
#: A single finding may be a momentary flaw of a counter.
FLAW_RESULTS_MIN = 2


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts of a node at a time."""

    cluster: str
    node: str
    run: str
    started_utc: str
    facts: Facts

    def head(self) -> dict[str, str]:
        """Place and time, without the facts."""
        return {"cluster": self.cluster, "node": self.node, "run": self.run, "started_utc": self.started_utc}


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differs; None on a side without that fact."""

    fact: str
    a: str | int | float | None
    b: str | int | float | None


def findings_of(database: sqlite3.Connection, selection: Selection, rule: str | None = None) -> list[dict[str, Any]]:
    """Every finding of the selected results that count, with its figures as a mapping."""
    conditions, wanted = of_results(database, selection)
    rows = database.execute(
        f"SELECT * FROM v_findings WHERE result_id IN (SELECT result_id FROM v_results WHERE {conditions})"
        " AND (:rule IS NULL OR rule = :rule) ORDER BY started_utc, result_id, rule",
        {**wanted, "rule": rule},
    )
    return [dict(row) | {"figures": json.loads(row["figures"])} for row in rows]


def evidence_counts(database: sqlite3.Connection, selection: Selection) -> tuple[int, int]:
    """How many of the selected results count, and of how many of these an end took evidence."""
    conditions, wanted = of_results(database, selection)
    seen = "EXISTS (SELECT 1 FROM evidence_end e WHERE e.result_id = v.result_id AND e.taken = 1)"
    row = database.execute(f"SELECT count(*), coalesce(sum({seen}), 0) FROM v_results v WHERE {conditions}", wanted).fetchone()
    return int(row[0]), int(row[1])


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """How often one rule applied to the results of a run on a cluster, and where."""

    cluster: str
    rule: str
    result_count: int
    nodes: tuple[tuple[str, int], ...]
    """Nodes with the number of results in which the rule names them, most first; empty if it names no end."""
    meaning: str
    advice: str
    example: str


def finding_groups(database: sqlite3.Connection, run: str) -> list[FindingGroup]:
    """What the rules found in the results of a run that count, most frequent first."""
    nodes: dict[tuple[str, str], list[tuple[str, int]]] = {}
    places = (
        "SELECT cluster, rule, node, count(DISTINCT result_id) AS n FROM v_findings WHERE run = ? AND node IS NOT NULL"
        " GROUP BY cluster, rule, node ORDER BY n DESC, node"
    )
    for cluster, rule, node, count in database.execute(places, (run,)):
        nodes.setdefault((cluster, rule), []).append((node, count))
    rules = (
        "SELECT cluster, rule, count(DISTINCT result_id) AS n, meaning, advice, min(message) FROM v_findings WHERE run = ?"
        " GROUP BY cluster, rule ORDER BY n DESC, cluster, rule"
    )
    return [
        FindingGroup(cluster, rule, count, tuple(nodes.get((cluster, rule), ())), *words)
        for cluster, rule, count, *words in database.execute(rules, (run,))
    ]


def words_of_kernel(database: sqlite3.Connection, kernel: str) -> dict[str, str]:
    """What a kernel measures, and how: `summary` and `method`."""
    row = database.execute("SELECT summary, method FROM kernel WHERE name = ?", (kernel,)).fetchone()
    return dict(row) if row else {"summary": "", "method": ""}


def facts_of_result(database: sqlite3.Connection, result_id: int) -> dict[str, Facts]:
    """The facts of client and server in the attempt that produced a result; an end without facts is left out."""
    found: dict[str, Facts] = {}
    for end, column in (("client", "client_node_id"), ("server", "server_node_id")):
        rows = database.execute(
            f"SELECT f.name, f.value FROM result x JOIN job j ON j.job_id = x.job_id"
            f" JOIN node_facts nf ON nf.attempt_id = x.attempt_id AND nf.node_id = j.{column}"
            " JOIN fact_set_part sp ON sp.fact_set_id = nf.fact_set_id JOIN fact f ON f.fact_part_id = sp.fact_part_id"
            " WHERE x.result_id = ? ORDER BY f.name",
            (result_id,),
        )
        facts = {row[0]: row[1] for row in rows}
        if facts:
            found[end] = facts
    return found


def nodes_with_facts(database: sqlite3.Connection, run: str | None = None) -> list[str]:
    """cluster/node of every node that has facts, at all or in one run."""
    rows = database.execute(
        "SELECT DISTINCT c.name || '/' || n.name FROM node_facts nf JOIN node n ON n.node_id = nf.node_id"
        " JOIN cluster c ON c.cluster_id = n.cluster_id JOIN attempt a ON a.attempt_id = nf.attempt_id"
        " JOIN v_pairs p ON p.job_id = a.job_id WHERE ?1 IS NULL OR p.run = ?1",
        (run,),
    )
    return sorted((str(row[0]) for row in rows), key=natural)


def is_node(database: sqlite3.Connection, name: str) -> bool:
    """Whether a node with facts has this name, with or without `cluster/` before it."""
    return any(name in {one, one.partition("/")[2]} for one in nodes_with_facts(database))


def facts_at(database: sqlite3.Connection, node: str, moment: str | None) -> Snapshot:
    """A node's facts: of a run (its last), at or before a time (ISO 8601, or only its beginning), or the latest.

    `first` is the oldest. A time before all facts also gives the oldest. Raises UserError that lists what exists.
    """
    cluster, name = _node(database, node)
    condition, value, order = "1", None, "DESC"
    if moment is not None and _MOMENT.fullmatch(moment):
        # the beginning of a time stands for its end: 2026-03 sorts after everything in March
        condition, value = "a.committed_utc <= ?3", moment.rstrip("Z") + "~"
    elif moment == "first":
        order = "ASC"
    elif moment is not None and is_node(database, moment):
        raise UserError(
            f"{moment!r} is a node: must be runs and times", f"two nodes of one run: hpcq facts diff RUN {node} {moment}"
        )
    elif moment not in {None, "latest"}:
        condition, value = "p.run = ?3", find_run(database, moment)
    select = (
        "SELECT p.run, coalesce(a.started_utc, a.committed_utc) AS started_utc, nf.fact_set_id FROM node_facts nf"
        " JOIN node n ON n.node_id = nf.node_id JOIN cluster c ON c.cluster_id = n.cluster_id"
        " JOIN attempt a ON a.attempt_id = nf.attempt_id JOIN v_pairs p ON p.job_id = a.job_id"
        " WHERE c.name = ?1 AND n.name = ?2 AND {condition} ORDER BY a.committed_utc {order}, a.attempt_id {order} LIMIT 1"
    )
    bound = (cluster, name, value) if value is not None else (cluster, name)
    row = database.execute(select.format(condition=condition, order=order), bound).fetchone()
    if row is None and value is not None and condition.startswith("a."):
        row = database.execute(select.format(condition="1", order="ASC"), (cluster, name)).fetchone()
    if row is None:
        raise UserError(f"{cluster}/{name} has no facts in {moment}", f"`hpcq facts show {name}` shows the latest it has")
    facts = database.execute(
        "SELECT f.name, f.value FROM fact_set_part sp JOIN fact f ON f.fact_part_id = sp.fact_part_id"
        " WHERE sp.fact_set_id = ? ORDER BY f.name",
        (row["fact_set_id"],),
    )
    return Snapshot(cluster, name, row["run"], row["started_utc"], {one[0]: one[1] for one in facts})


def compared(database: sqlite3.Connection, what: str, a: str, b: str | None) -> list[tuple[Snapshot, Snapshot]]:
    """What `hpcq facts diff` compares: a node at two times, the nodes of two runs, or two nodes of a run.

    what: a node; then a and b are runs or times (b: None is the latest). Or a run; then a is another run, or a and b
    are nodes.
    """
    if is_node(database, what):
        return [(facts_at(database, what, a), facts_at(database, what, b))]
    try:
        run = find_run(database, what)
    except UserError as error:
        raise UserError(f"{what!r} is neither a node with facts nor a run", error.hint) from error
    if b is not None:
        return [(facts_at(database, a, run), facts_at(database, b, run))]
    other = find_run(database, a)
    there = set(nodes_with_facts(database, other))
    both = [node for node in nodes_with_facts(database, run) if node in there]
    if not both:
        raise UserError(f"no node has facts in both {other} and {run}", "hpcq facts diff NODE A B compares times of one node")
    return [(facts_at(database, node, other), facts_at(database, node, run)) for node in both]


def difference(before: Mapping[str, Any], after: Mapping[str, Any], *, passing: bool = False) -> list[FactChange]:
    """Facts that differ, by name. passing: include those that differ at every boot or moment."""
    return [
        FactChange(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and (passing or not name.startswith(PASSING_GROUPS))
    ]


def _node(database: sqlite3.Connection, name: str) -> tuple[str, str]:
    there = nodes_with_facts(database)
    fitting = [one for one in there if name in {one, one.partition("/")[2]}]
    if len(fitting) == 1:
        cluster, _, node = fitting[0].partition("/")
        return cluster, node
    if fitting:
        raise UserError(f"{name!r} is a node of several clusters: {', '.join(fitting)}", "write the cluster before it")
    if not there:
        raise UserError(
            "no facts of any node in this database",
            "facts are stored with results: `hpcq db load` adds them, or `hpcq import --facts`",
        )
    shown = ", ".join(there[:8]) + (f" and {len(there) - 8} more" if len(there) > 8 else "")
    raise UserError(f"{name!r} is not a node with facts", f"there are {shown}")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A rule that found a flaw of a node. message: the commonest of its findings."""

    node: str
    rule: str
    message: str
    result_count: int
    cluster: str = ""

    @property
    def words(self) -> str:
        """`n2 has an MTU of 1300 bytes, n1 of 1500 bytes (24 findings)`."""
        return f"{self.message} ({self.result_count} findings)"


def flaws_in(database: Connection, run_ids: Sequence[int], cluster: str | None = None) -> list[Flaw]:
    """What the evidence of these runs, including failed results, says is wrong with nodes. cluster: None means all."""
    marks = ", ".join(repr(one) for one in FLAW_RULES)
    rows = database.execute(
        "SELECT cluster, node, rule, min(message) AS message, count(DISTINCT result_id) AS n FROM v_findings"
        f" WHERE (:cluster IS NULL OR cluster = :cluster) AND rule IN ({marks}) AND node IS NOT NULL"
        f" AND run IN (SELECT name FROM run WHERE run_id IN ({', '.join(str(int(one)) for one in run_ids)}))"
        f" GROUP BY cluster, node, rule HAVING n >= {FLAW_RESULTS_MIN} ORDER BY cluster, node, rule",
        {"cluster": cluster},
    )
    return [Flaw(row["node"], row["rule"], row["message"], int(row["n"]), row["cluster"]) for row in rows]


def new_flaws(database: Connection, window: Window, before: Window | None = None) -> list[Flaw]:
    """What the evidence of the runs in a stretch says is wrong with nodes. before: leave out what this stretch had, too."""
    had = {(one.cluster, one.node, one.rule) for one in flaws_in(database, runs_in(database, before))} if before else set()
    found = flaws_in(database, runs_in(database, window))
    return [one for one in found if (one.cluster, one.node, one.rule) not in had]

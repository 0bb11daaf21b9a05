"""Answer questions to results.db with plain values; nothing here writes.

    with reading(path) as database:
        run = find_run(database, None)                the latest
        summaries(database, Selection(run))           median and spread by pair, size and metric

No heavy imports here: reading verbs start in well under 0.2 s.
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcq import units
from hpcq.errors import UserError
from hpcq.kernels import size_option
from hpcq.sorting import natural

#: Whether :node ran a test: as either end, or in the set that ran it together. Of the columns client and server.
TOOK_PART = "(client = :node OR server = :node OR server IN (SELECT n8.name FROM node n8 WHERE names_node(n8.name, :node)))"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which results to select; None means all. `node` took part in them: as either end, or in a set.

    A result that was never started has its run's time.
    """

    run: str | None = None
    cluster: str | None = None
    kernel: str | None = None
    client: str | None = None
    server: str | None = None
    node: str | None = None
    outcome: str | None = None
    from_utc: str | None = None
    until_utc: str | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run on one cluster; the counts of outcomes add up to planned_count."""

    run: str
    campaign: str
    cluster: str
    created_utc: str
    opened_utc: str | None
    closed_utc: str | None
    loaded_utc: str
    planned_count: int
    measured_count: int
    invalid_count: int
    failed_count: int
    not_measured_count: int
    hpcq_version: str
    seed: int | None

    @property
    def complete(self) -> bool:
        """Whether everything planned was measured."""
        return self.measured_count == self.planned_count


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The outcome of one planned repetition, with its main metric."""

    result_id: int
    run: str
    campaign: str
    cluster: str
    kernel: str
    client: str
    server: str
    message_bytes: int | None
    test_no: int
    repetition_no: int
    outcome: str
    metric: str | None
    value: float | None
    unit: str | None
    reason: str | None
    started_utc: str | None
    exit_code: int | None
    disturbed: int
    crossed_interface: str
    series_id: int
    job: str
    attempt_no: int | None
    parameters: str
    raw_file: str | None
    network: str
    """The interface under test."""
    network_name: str | None
    """What the cluster's file calls it; None: nothing."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One metric of one test between two nodes, over its repetitions."""

    cluster: str
    kernel: str
    client: str
    server: str
    message_bytes: int | None
    variant: str
    """Other parameters that differ between the tests of this kernel: `no_delay=true`; empty if none does."""
    metric: str
    unit: str
    better: str
    main: bool
    n: int
    median: float
    lowest: float
    highest: float
    disturbed_count: int
    """How many of n have evidence of other work on a node during the measurement."""
    network: str = ""
    """The interface under test; two of them are two measurements."""

    @property
    def size_text(self) -> str:
        """Its size for people; empty if the test has none."""
        return size_text(self.message_bytes)

    @property
    def spread_ratio(self) -> float | None:
        """Highest minus lowest, divided by the median; None if the median is zero."""
        return (self.highest - self.lowest) / abs(self.median) if self.median else None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One submission and how it ended."""

    run: str
    cluster: str
    job: str
    attempt_no: int
    client: str
    server: str
    native_id: str | None
    state: str | None
    outcome: str | None
    reason: str | None
    exit_code: int | None
    nodes: str
    committed_utc: str
    submitted_utc: str | None
    started_utc: str | None
    ended_utc: str | None
    tag: str


def runs(database: sqlite3.Connection, run: str | None = None) -> list[RunRow]:
    """Every run and cluster, latest first; or the rows of one run."""
    query = f"SELECT {columns(RunRow)} FROM v_runs WHERE ?1 IS NULL OR run = ?1 ORDER BY created_utc DESC, run, cluster"
    return [RunRow(*row) for row in database.execute(query, (run,))]


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


def results(
    database: sqlite3.Connection, selection: Selection, *, all_tries: bool = False, missing_only: bool = False
) -> list[ResultRow]:
    """One row per planned repetition, ordered by cluster, job, test and repetition; or every attempt."""
    conditions, values = where(selection)
    counted = "" if all_tries else " AND final = 1 AND retracted IS NULL"
    counted += " AND outcome <> 'measured'" if missing_only else ""
    query = (
        f"SELECT {columns(ResultRow)} FROM v_all_results WHERE {conditions}{counted}"
        " ORDER BY run, cluster, job, test_no, repetition_no, attempt_no"
    )
    return [ResultRow(*row) for row in database.execute(query, values)]


def in_metric(database: sqlite3.Connection, rows: Sequence[ResultRow], metric: str) -> list[ResultRow]:
    """The same results with this metric instead of the main one, without those of kernels that lack it."""
    units_of = dict(
        database.execute(
            "SELECT k.name, n.unit FROM metric_name n JOIN kernel k ON k.kernel_id = n.kernel_id WHERE n.name = ?", (metric,)
        ).fetchall()
    )
    query = (
        "SELECT m.value FROM metric m JOIN metric_name n ON n.metric_name_id = m.metric_name_id"
        " WHERE m.result_id = ? AND n.name = ?"
    )
    found = []
    for row in rows:
        if row.kernel in units_of:
            value = database.execute(query, (row.result_id, metric)).fetchone()
            one = None if value is None else float(value[0])
            found.append(replace(row, metric=metric, value=one, unit=str(units_of[row.kernel])))
    return found


def not_measured(database: sqlite3.Connection, selection: Selection) -> list[ResultRow]:
    """Planned measurements that are missing, each with its reason."""
    return results(database, selection, missing_only=True)


def outcome_counts(database: sqlite3.Connection, selection: Selection) -> dict[str, int]:
    """How many planned results have which outcome: measured, invalid, failed, not_measured. Retracted ones do not count."""
    conditions, values = where(selection)
    query = f"SELECT outcome, count(*) FROM v_results WHERE {conditions} GROUP BY outcome"
    return {str(outcome): int(count) for outcome, count in database.execute(query, values)}


def summaries(
    database: sqlite3.Connection,
    selection: Selection,
    *,
    metric: str | None = None,
    all_metrics: bool = False,
    also: Sequence[str] = (),
) -> list[Summary]:
    """Median and spread by cluster, kernel, pair, size and metric.

    metric: only this one. Without it, each kernel's main metric and those of `also`; with all_metrics, every one.
    """
    conditions, values = where(selection)
    metrics = "1" if all_metrics else "mn.name = :metric"
    if metric is None and not all_metrics:
        names = {f"also{number}": name for number, name in enumerate(also)}
        metrics = f"mn.name IN ({', '.join(['v.metric', *(f':{name}' for name in names)])})"
        values |= names
    query = (
        "SELECT v.cluster, v.kernel, v.client, v.server, v.message_bytes, v.parameters, mn.name, mn.unit, mn.better,"
        " mn.name = v.metric AS main, mn.position_no, v.network, m.value, v.disturbed"
        " FROM v_results v JOIN metric m ON m.result_id = v.result_id"
        " JOIN metric_name mn ON mn.metric_name_id = m.metric_name_id"
        f" WHERE v.outcome = 'measured' AND {conditions} AND {metrics}"
    )
    cursor = database.cursor()
    cursor.row_factory = None
    groups: dict[tuple[Any, ...], list[float]] = {}
    disturbed: Counter[tuple[Any, ...]] = Counter()
    once: dict[Any, Any] = {}  # SQLite makes each text anew, and a run repeats the same few a million times
    for row in cursor.execute(query, values | {"metric": metric or ""}):
        test = row[:-2]
        if test not in groups:
            groups[tuple([once.setdefault(one, one) for one in test])] = []
        groups[test].append(row[-2])
        if row[-1]:
            disturbed[test] += 1
    variants = variant_names({(key[1], key[5]) for key in groups})
    made = []
    for key, found in sorted(groups.items(), key=_summary_order):
        cluster, kernel, client, server, message_bytes, parameters, name, unit, better, main, _, network = key
        variant = variants[kernel, parameters]
        spread = (len(found), median(found), min(found), max(found), disturbed[key])
        test = (cluster, kernel, client, server, message_bytes, variant)
        made.append(Summary(*test, name, unit, better, bool(main), *spread, network))
    return made


def attempts(database: sqlite3.Connection, run: str) -> list[AttemptRow]:
    """Every submission of a run, in the order they were made."""
    query = f"SELECT {columns(AttemptRow)} FROM v_attempts WHERE run = ? ORDER BY cluster, committed_utc, job, attempt_no"
    return [AttemptRow(*row) for row in database.execute(query, (run,))]


def variant_names(tests: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """For each (kernel, parameters as JSON): what, beside the size, distinguishes it from the kernel's other tests."""
    by_kernel: dict[str, dict[str, Mapping[str, Any]]] = {}
    for kernel, text in tests:
        by_kernel.setdefault(kernel, {})[text] = json.loads(text)
    names = {}
    for kernel, sets in by_kernel.items():
        options = {name for parameters in sets.values() for name in parameters} - {size_option(kernel)}
        differing = sorted(
            name for name in options if len({json.dumps(parameters.get(name)) for parameters in sets.values()}) > 1
        )
        for text, parameters in sets.items():
            names[kernel, text] = ", ".join(f"{name}={units.human_of(name, parameters.get(name))}" for name in differing)
    return names


def size_text(message_bytes: int | None) -> str:
    """A message size for people; empty if the test has none."""
    return "" if message_bytes is None else units.human(message_bytes, "bytes")


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _summary_order(group: tuple[tuple[Any, ...], list[float]]) -> tuple[Any, ...]:
    cluster, kernel, client, server, message_bytes, parameters, _, _, _, _, position_no, network = group[0]
    return cluster, kernel, natural(client), natural(server), message_bytes or 0, parameters, position_no, network


def where(selection: Selection) -> tuple[str, dict[str, str]]:
    """The conditions of a selection over the columns of v_results."""
    conditions, values = ["1"], {}
    for name in ("run", "cluster", "kernel", "client", "server", "outcome"):
        wanted = getattr(selection, name)
        if wanted is not None:
            conditions.append(f"{name} = :{name}")
            values[name] = wanted
    if selection.node is not None:
        conditions.append(TOOK_PART)
        values["node"] = selection.node
    for name, sign in (("from_utc", ">="), ("until_utc", "<")):
        wanted = getattr(selection, name)
        if wanted is not None:
            conditions.append(f"coalesce(started_utc, (SELECT created_utc FROM run AS r9 WHERE r9.name = run)) {sign} :{name}")
            values[name] = wanted
    return " AND ".join(conditions), values


def columns(row: type) -> str:
    return ", ".join(row.__dataclass_fields__)  # type: ignore[attr-defined]  # every caller passes a dataclass

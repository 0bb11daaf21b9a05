"""Write what was read from other programs' files: runs of kind import, whose results have no evidence.

    runs of hpcq/imports  ->  one transaction  ->  run, run_cluster, job, attempt, result, metric, node_facts

A measurement is known again by run, job, test and repetition, or without a repetition by its time. Known ones stay as they
are, so importing twice changes nothing; one that is there with another value or outcome is refused, and so is the whole import.
A job gets an attempt where there are facts of its nodes, because facts belong to attempts.
"""

# ruff: noqa: S608 - queries are put together from our own table names; values are always bound

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpcq import __version__, units
from hpcq.definition.find import kernels_named
from hpcq.errors import UserError
from hpcq.imports.table import NodeFacts
from hpcq.imports.values import Imported, ImportedJob, ImportedRun, ImportedTest, MetricName, Problems
from hpcq.kernels import Kernels
from hpcq.nodelist import nodes_of
from hpcq.store.database import transaction, writing
from hpcq.store.load.row_keys import RowKeys

#: The campaign of imported runs, the toolchain of their series, and the program of kernels that only a file names.
CAMPAIGN = "import"
_IMPORTED = "imported"
_INSERTS = {
    "job": "INSERT INTO job (job_id, run_cluster_id, name, client_node_id, server_node_id) VALUES (?, ?, ?, ?, ?)",
    "attempt": "INSERT INTO attempt (attempt_id, job_id, attempt_no, tag, outcome, reason, nodes, committed_utc, started_utc)"
    " VALUES (?, ?, 1, ?, 'completed', 'measured elsewhere and imported', ?, ?, ?)",
    "attached": "UPDATE result SET attempt_id = ? WHERE job_id = ?",
    "result": "INSERT INTO result (result_id, job_id, test_no, repetition_no, attempt_id, final, series_id, parameter_set_id,"
    " outcome, reason, started_utc, disturbed, crossed_interface, ingest_file_id)"
    " VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, 0, 'unknown', ?)",
    "metric": "INSERT INTO metric (result_id, metric_name_id, value) VALUES (?, ?, ?)",
    "node_facts": "INSERT OR REPLACE INTO node_facts (attempt_id, node_id, fact_set_id) VALUES (?, ?, ?)",
}
_FLUSH_ROWS = 200_000


@dataclass(slots=True)
class ImportReport:
    """What an import did. counts of rows: new in the database, or there already; facts: nodes that have any now.

    late_facts: nodes whose first fact is later than a result of theirs; such results have no facts.
    """

    cluster: str
    run_count: int = 0
    new_run_count: int = 0
    new_result_count: int = 0
    new_value_count: int = 0
    known_value_count: int = 0
    new_fact_count: int = 0
    first_utc: str = ""
    last_utc: str = ""
    tests: list[str] = field(default_factory=list)
    late_facts: list[str] = field(default_factory=list)
    unknown_nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Brought:
    """What was read from files. files: path and SHA-256 of each, by the number that places have. facts: by node."""

    runs: Sequence[ImportedRun]
    files: Sequence[tuple[str, bytes]]
    facts: Mapping[str, NodeFacts]
    problems: Problems

    @property
    def kernels(self) -> Kernels:
        """The kernels that its tests are named after, where they are kernels."""
        jobs = (job for run in self.runs for job in run.jobs.values())
        return kernels_named({one.test.kernel for job in jobs for one in job.found})


def import_runs(database: Path, cluster: str, brought: Brought) -> ImportReport:
    """Write runs into the database at `database`, all or nothing; creates it if it does not exist.

    Raises UserError with the places of rows that contradict what the
    database has, StoreError if the database is locked, unwritable or not ours.
    """
    with writing(database) as connection, transaction(connection):
        writer = _Writer(connection, cluster, brought)
        for run in sorted(brought.runs, key=lambda one: min(job.first_utc for job in one.jobs.values())):
            writer.run(run)
        brought.problems.refuse("give changed values a run of their own, or retract the old ones")
        writer.flush()
        writer.settle()
    return writer.report


def reframe_sessions(path: Path) -> list[bytes]:
    """The sessions in a database of ReFrame's results, oldest first, each as JSON. Raises UserError if it is none."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT json_blob FROM sessions ORDER BY session_start_unix").fetchall()
    except sqlite3.Error as error:
        raise UserError(
            f"{path}: is no database of ReFrame's results: {error}", "its table is sessions, with json_blob"
        ) from None
    return [blob if isinstance(blob, bytes) else str(blob).encode() for (blob,) in rows]


class _Writer:
    """Collects the rows of one import. Nothing of results reaches the database before `flush`."""

    def __init__(self, database: sqlite3.Connection, cluster: str, brought: Brought) -> None:
        self.report = ImportReport(cluster)
        self._database = database
        self._files, self._facts, self._problems = brought.files, brought.facts, brought.problems
        self._names = RowKeys(database, brought.kernels)
        self._cluster_id = self._names.row("cluster", name=cluster)
        if database.execute("SELECT 1 FROM link WHERE cluster_id = ?", (self._cluster_id,)).fetchone():
            raise UserError(f"--cluster {cluster}: is a link between two clusters: must be the name of one cluster")
        self._campaign_id = self._names.row("campaign", name=CAMPAIGN)
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _INSERTS}
        self._row_count = 0
        self._next = {
            table: int(database.execute(f"SELECT coalesce(max({table}_id), 0) FROM {table}").fetchone()[0]) + 1
            for table in ("job", "attempt", "result")
        }
        self._series: dict[tuple[ImportedTest, int, int], int] = {}
        self._sets: dict[ImportedTest, tuple[int, int]] = {}
        self._metrics: dict[tuple[str, MetricName], int] = {}
        self._fact_sets: dict[tuple[str, int], int] = {}
        self._changed: dict[int, tuple[str, str]] = {}

    # -- one run ----------------------------------------------------------------------------------------------------

    def run(self, run: ImportedRun) -> None:
        """Add what is new of one run."""
        first_utc = min(job.first_utc for job in run.jobs.values())
        last_utc = max(job.last_utc for job in run.jobs.values())
        report = self.report
        report.run_count += 1
        report.first_utc = min(report.first_utc or first_utc, first_utc)
        report.last_utc = max(report.last_utc, last_utc)
        part = self._part(run, first_utc)
        if part is None:
            return
        there = _There(self._database, part, _Ingest(self._database, self._names, part, self._files))
        before = self._row_count, report.new_value_count
        for job in run.jobs.values():
            self._job(part, run, job, there)
        run.jobs.clear()  # a million rows take a gigabyte otherwise
        if sum(map(len, self._rows.values())) > _FLUSH_ROWS:
            self.flush()
        if (self._row_count, report.new_value_count) != before:
            self._changed[part] = (first_utc, last_utc)

    def _part(self, run: ImportedRun, first_utc: str) -> int | None:
        """The run_cluster_id of a run; None, and a problem, if a run of this name was measured by hpcq."""
        found = self._database.execute("SELECT run_id, kind FROM run WHERE name = ?", (run.name,)).fetchone()
        if found is not None and found["kind"] != CAMPAIGN:
            path, line = self._place(run)
            self._problems.add(path, line, f"column run: {run.name!r}: hpcq measured a run of this name: must be another")
            return None
        if found is None:
            self.report.new_run_count += 1
        run_id = (
            found["run_id"]
            if found
            else self._names.insert(
                "run",
                {
                    "name": run.name,
                    "campaign_id": self._campaign_id,
                    "created_utc": first_utc,
                    "hpcq_version": __version__,
                    "kind": CAMPAIGN,
                },
            )
        )
        known = self._database.execute(
            "SELECT run_cluster_id FROM run_cluster WHERE run_id = ? AND cluster_id = ?", (run_id, self._cluster_id)
        ).fetchone()
        if known is not None:
            return int(known[0])
        counts = dict.fromkeys(("repetition_count", "pair_count", "result_count"), 0)
        columns = {"run_id": run_id, "cluster_id": self._cluster_id, **counts, "loaded_utc": units.utc_now()}
        return self._names.insert("run_cluster", columns)

    def _job(self, part: int, run: ImportedRun, job: ImportedJob, there: _There) -> None:
        ends = self._names.node(self._cluster_id, job.client), self._names.node(self._cluster_id, job.server)
        job_id, attempt_id = there.jobs.get(job.name) or (0, None)
        facts = self._facts_at(job)
        if not job_id:
            job_id = self._take("job")
            self._put("job", (job_id, part, job.name, *ends))
        if facts and attempt_id is None:
            attempt_id = self._take("attempt")
            tag, nodes = f"import:{run.name}:{self.report.cluster}:{job.name}", nodes_of(job.client, job.server)
            self._put("attempt", (attempt_id, job_id, tag, " ".join(nodes), job.first_utc, job.first_utc))
            if job.name in there.jobs:
                self._put("attached", (attempt_id, job_id))
        if facts:
            known = there.facts_of(attempt_id) if job.name in there.jobs else {}
            new = [(attempt_id, node_id, set_id) for node_id, set_id in facts.items() if known.get(node_id) != set_id]
            self._rows["node_facts"] += new
            self.report.new_fact_count += len(new)
        tests: dict[ImportedTest, list[Imported]] = {}
        for one in job.found:
            tests.setdefault(one.test, []).append(one)
        for found in tests.values():
            self._test((job_id, attempt_id), ends, found, there)

    def _test(self, keys: tuple[int, int | None], ends: tuple[int, int], found: list[Imported], there: _There) -> None:
        """Add the measurements of one test in one job; keys: job_id and attempt_id."""
        (job_id, attempt_id), test = keys, found[0].test
        kernel_id, parameter_set_id = self._set(test)
        series_id = self._series_of(test, kernel_id, ends)
        test_no = there.test_no(parameter_set_id)
        known = there.of_test(job_id, test_no)
        next_no = max((one.repetition_no for one in known), default=0) + 1
        by_number = {one.repetition_no: one for one in known}
        by_time: dict[tuple[str, str], list[_Known]] = {}
        for one in known:
            by_time.setdefault((one.time_utc, one.outcome), []).append(one)
        for brought in sorted(found, key=_in_time):
            number = brought.repetition_no
            if number is not None:
                match = by_number.get(number)
            else:
                same = by_time.get((brought.time_utc, brought.outcome), ())
                match = same[brought.order] if brought.order < len(same) else None
                if match is None:
                    number, next_no = next_no, next_no + 1
            if match is not None:
                self._add_to(match, test, brought, there)
                continue
            result_id = self._take("result")
            where = (job_id, test_no, number, attempt_id, series_id, parameter_set_id)
            file_id = there.ingest.of(brought.source_no)
            self._put("result", (result_id, *where, brought.outcome, brought.reason, brought.time_utc, file_id))
            self.report.new_result_count += 1
            for metric, value in brought.metrics:
                self._put("metric", (result_id, self._metric(test, kernel_id, metric, brought), value))
                self.report.new_value_count += 1

    def _add_to(self, match: _Known, test: ImportedTest, one: Imported, there: _There) -> None:
        """Add what a known measurement has not yet; what contradicts it is a problem."""
        path, line = self._place(one)
        if (match.time_utc, match.outcome) != (one.time_utc, one.outcome):
            has = f"the database has it {match.outcome} at {match.time_utc}"
            self._problems.add(path, line, f"column repetition: {one.repetition_no}: {has}: results never change")
            return
        kernel_id, _ = self._set(test)
        for metric, value in one.metrics:
            metric_id = self._metric(test, kernel_id, metric, one)
            if there.is_pruned(match, metric_id):
                self.report.known_value_count += 1
            elif metric_id not in match.metrics:
                self._put("metric", (match.result_id, metric_id, value))
                self.report.new_value_count += 1
            elif match.metrics[metric_id] == value:
                self.report.known_value_count += 1
            else:
                has = f"the database has {match.metrics[metric_id]!r} of the same measurement: results never change"
                self._problems.add(path, line, f"column value: {value!r}: {has}")

    # -- keys -------------------------------------------------------------------------------------------------------

    def _set(self, test: ImportedTest) -> tuple[int, int]:
        found = self._sets.get(test)
        if found is None:
            kernel_id = self._names.kernel(test.kernel, _IMPORTED)
            found = self._sets[test] = kernel_id, self._names.parameter_set(kernel_id, json.loads(test.parameters))
            if test.kernel not in self.report.tests:
                self.report.tests.append(test.kernel)
        return found

    def _series_of(self, test: ImportedTest, kernel_id: int, ends: tuple[int, int]) -> int:
        key = (test, *ends)
        found = self._series.get(key)
        if found is None:
            where = {"client_node_id": ends[0], "server_node_id": ends[1], "network": "", "toolchain": _IMPORTED}
            found = self._series[key] = self._names.series(kernel_id, json.loads(test.parameters), **where)
        return found

    def _metric(self, test: ImportedTest, kernel_id: int, metric: MetricName, brought: Imported) -> int:
        """The key of a metric. One that the kernel has with another unit or direction is a problem."""
        key = (test.kernel, metric)
        found = self._metrics.get(key)
        if found is None:
            row = self._database.execute(
                "SELECT metric_name_id, unit, better FROM metric_name WHERE kernel_id = ? AND name = ?",
                (kernel_id, metric.name),
            ).fetchone()
            if row is not None and (row["unit"], row["better"]) != (metric.unit, metric.better):
                said = f"{metric.name} of {test.kernel} is in {row['unit']}, better {row['better']}, in this database"
                path, line = self._place(brought)
                self._problems.add(path, line, f"column better: {metric.better!r}: {said}: must be the same")
            found = self._names.metric_name(kernel_id, metric.name, metric.better)
            self._metrics[key] = found
        return found

    def _take(self, table: str) -> int:
        key = self._next[table]
        self._next[table] = key + 1
        return key

    def _place(self, one: Imported | ImportedRun) -> tuple[str, int]:
        return self._files[one.source_no][0], one.line

    # -- facts ------------------------------------------------------------------------------------------------------

    def _facts_at(self, job: ImportedJob) -> dict[int, int]:
        """The facts of a job's nodes when it began: fact_set_id by node_id."""
        found = {}
        for name in nodes_of(job.client, job.server) if self._facts else ():
            facts = self._facts.get(name)
            if facts is None:
                continue
            index = facts.index_at(job.first_utc)
            if index < 0:
                if name not in self.report.late_facts:
                    self.report.late_facts.append(name)
                continue
            key = (name, index)
            if key not in self._fact_sets:
                self._fact_sets[key] = self._names.fact_set(facts.parts[index])
            found[self._names.node(self._cluster_id, name)] = self._fact_sets[key]
        return found

    # -- writing ----------------------------------------------------------------------------------------------------

    def _put(self, table: str, row: tuple[Any, ...]) -> None:
        self._rows[table].append(row)
        self._row_count += 1

    def flush(self) -> None:
        """Write the collected rows."""
        for table, rows in self._rows.items():
            if rows:
                self._database.executemany(_INSERTS[table], rows)
                rows.clear()

    def settle(self) -> None:
        """Bring the heads of changed runs up to date: when they were, and how much they have."""
        for part, (first_utc, last_utc) in self._changed.items():
            self._database.execute(
                "UPDATE run_cluster SET opened_utc = min(coalesce(opened_utc, ?2), ?2),"
                " closed_utc = max(coalesce(closed_utc, ?3), ?3), loaded_utc = ?4,"
                " pair_count = (SELECT count(*) FROM (SELECT DISTINCT client_node_id, server_node_id FROM job"
                "  WHERE run_cluster_id = ?1)),"
                " result_count = (SELECT count(*) FROM result x JOIN job j ON j.job_id = x.job_id WHERE j.run_cluster_id = ?1),"
                " repetition_count = (SELECT coalesce(max(x.repetition_no), 0) FROM result x JOIN job j ON j.job_id = x.job_id"
                "  WHERE j.run_cluster_id = ?1) WHERE run_cluster_id = ?1",
                (part, first_utc, last_utc, units.utc_now()),
            )
            self._database.execute(
                "UPDATE run SET created_utc = min(created_utc, ?2)"
                " WHERE run_id = (SELECT run_id FROM run_cluster WHERE run_cluster_id = ?1)",
                (part, first_utc),
            )
        named = {
            str(row[0]) for row in self._database.execute("SELECT name FROM node WHERE cluster_id = ?", (self._cluster_id,))
        }
        self.report.unknown_nodes = sorted(set(self._facts) - named)
        for name in self.report.tests:
            kernel_id = self._names.kernel(name, _IMPORTED)
            self._names.choose_main_metric(kernel_id)
            words = f"what imported files call {name}: how it was measured, they do not say"
            self._database.execute(
                "UPDATE kernel SET summary = ? WHERE kernel_id = ? AND program = ? AND summary = ''",
                (words, kernel_id, _IMPORTED),
            )


def _in_time(one: Imported) -> tuple[str, int, int]:
    return one.time_utc, one.source_no, one.line


@dataclass(slots=True)
class _Known:
    """A measurement that the database has, with its metrics by metric_name_id."""

    result_id: int
    job_id: int
    test_no: int
    repetition_no: int
    time_utc: str
    outcome: str
    metrics: dict[int, float]


class _There:
    """What the database has of one run on one cluster."""

    def __init__(self, database: sqlite3.Connection, part: int, ingest: _Ingest) -> None:
        jobs = database.execute(
            "SELECT j.name, j.job_id, a.attempt_id FROM job j LEFT JOIN attempt a ON a.job_id = j.job_id"
            " WHERE j.run_cluster_id = ?",
            (part,),
        )
        #: Keys of job and attempt (None: it has none), by the job's name.
        self.jobs: dict[str, tuple[int, int | None]] = {str(row[0]): (row[1], row[2]) for row in jobs}
        self.ingest = ingest
        self._database = database
        self._numbers: dict[int, int] = {}
        self._results: dict[tuple[int, int], list[_Known]] = {}
        self._pruned: set[tuple[int, int, int]] = set()
        if self.jobs:
            self._read(database, part)

    def _read(self, database: sqlite3.Connection, part: int) -> None:
        by_id: dict[int, _Known] = {}
        of_run = "FROM result x JOIN job j ON j.job_id = x.job_id"
        cursor = database.cursor()
        cursor.row_factory = None
        for result_id, job_id, test_no, number, set_id, time_utc, outcome in cursor.execute(
            f"SELECT x.result_id, x.job_id, x.test_no, x.repetition_no, x.parameter_set_id, x.started_utc, x.outcome {of_run}"
            " WHERE j.run_cluster_id = ? ORDER BY x.job_id, x.test_no, x.repetition_no",
            (part,),
        ):
            known = by_id[result_id] = _Known(result_id, job_id, test_no, number, time_utc, outcome, {})
            self._numbers[set_id] = test_no
            self._results.setdefault((job_id, test_no), []).append(known)
        for result_id, metric_name_id, value in cursor.execute(
            f"SELECT m.result_id, m.metric_name_id, m.value {of_run} JOIN metric m ON m.result_id = x.result_id"
            " WHERE j.run_cluster_id = ?",
            (part,),
        ):
            by_id[result_id].metrics[metric_name_id] = value
        rolled = cursor.execute(
            f"SELECT x.job_id, x.test_no, u.metric_name_id {of_run} JOIN rollup u ON u.result_id = x.result_id"
            " WHERE j.run_cluster_id = ?",
            (part,),
        )
        self._pruned = {(row[0], row[1], row[2]) for row in rolled}

    def is_pruned(self, known: _Known, metric_name_id: int) -> bool:
        """Whether `hpcq db prune` has made one point of this job's values of a metric."""
        return (known.job_id, known.test_no, metric_name_id) in self._pruned

    def test_no(self, parameter_set_id: int) -> int:
        """The number of a test in this run; a new one gets the next."""
        if parameter_set_id not in self._numbers:
            self._numbers[parameter_set_id] = max(self._numbers.values(), default=0) + 1
        return self._numbers[parameter_set_id]

    def of_test(self, job_id: int, test_no: int) -> list[_Known]:
        """The measurements of one test in one job."""
        return self._results.get((job_id, test_no), [])

    def facts_of(self, attempt_id: int | None) -> dict[int, int]:
        """The fact sets of an attempt, by node."""
        rows = self._database.execute("SELECT node_id, fact_set_id FROM node_facts WHERE attempt_id = ?", (attempt_id,))
        return {int(row[0]): int(row[1]) for row in rows}


class _Ingest:
    """The files that brought results into one run: stored with the first result of each."""

    def __init__(self, database: sqlite3.Connection, names: RowKeys, part: int, files: Iterable[tuple[str, bytes]]) -> None:
        self._database, self._names, self._part, self._files = database, names, part, list(files)
        self._ids: dict[int, int] = {}

    def of(self, number: int) -> int:
        """The key of a file in this run."""
        if number not in self._ids:
            path, digest = self._files[number]
            found = self._database.execute(
                "SELECT ingest_file_id FROM ingest_file WHERE run_cluster_id = ? AND path = ?", (self._part, path)
            ).fetchone()
            columns = {"run_cluster_id": self._part, "path": path, "sha256": digest}
            self._ids[number] = found[0] if found else self._names.insert("ingest_file", columns)
            if found:
                self._database.execute("UPDATE ingest_file SET sha256 = ? WHERE ingest_file_id = ?", (digest, found[0]))
        return self._ids[number]

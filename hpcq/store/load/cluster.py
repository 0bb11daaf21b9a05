"""Load one cluster's part of a run into the database, within the caller's transaction.

plan     run, campaign, run_cluster, nodes, build, jobs and attempts: plan_rows.py
results  every file of every new attempt
rest     a row with a reason for everything planned but missing; which row of several attempts counts
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcq.definition.model import Test
from hpcq.errors import StoreError
from hpcq.evidence.judgement import Judge, JudgedResult, Judgement
from hpcq.kernels import SIZE_OPTION
from hpcq.planning.job_ids import pair_index_of
from hpcq.run_folder.journal_state import Attempt, JournalState, StepKey
from hpcq.run_folder.lines import Line, Outcome, RawLine, elsewhere, read_line, read_raw
from hpcq.run_folder.paths import RESULT_NAME, RunFolder, parse_json, read_json
from hpcq.run_folder.printed import skipped_sizes
from hpcq.run_folder.spools import SPOOL, Spool
from hpcq.store.load import missing
from hpcq.store.load.plan_rows import JobKeys, PlanRows, TestKeys
from hpcq.store.load.rows import Place, ResultWriter
from hpcq.units import utc_now

#: One planned measurement of a job.
Step = StepKey
#: The facts of both nodes of a job, by node.
Facts = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Known:
    """A result file that an earlier load read."""

    ingest_file_id: int
    sha256: bytes
    result_id: int | None
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """One result file: its path and what it belongs to."""

    path: Path
    job: JobKeys
    attempt: Attempt
    attempt_id: int
    step: Step
    raw: RawLine | None = None


class ClusterLoader(PlanRows):
    """Loads one cluster once; create a new loader for each load."""

    def __init__(
        self, database: sqlite3.Connection, folder: RunFolder, cluster: str, run: Mapping[str, Any], judge: Judge
    ) -> None:
        super().__init__(database, folder, cluster, run)
        self.pending_count = 0
        self.read_count = 0
        self.known_count = 0
        self._judge = judge
        self._writer = ResultWriter(database, self._names)
        self._spools: dict[Path, Spool] = {}
        self._shared_facts: dict[Path, tuple[Mapping[str, Any], int]] = {}

    def load(self) -> None:
        """Load everything that is new. The caller's transaction makes it one step."""
        changes = self._database.total_changes
        plan = read_json(self._folder.plan(self.cluster))
        if plan.get("format") != 1:
            raise StoreError(f"{self._folder.plan(self.cluster)}: format {plan.get('format')}: allowed is 1")
        state = self._state(plan)
        try:
            self._heads(plan, state)
            jobs = self._jobs(plan)
            self._tests = {test["test_no"]: self._test(Test(**test)) for test in plan["tests"]}
        except (KeyError, TypeError) as error:
            raise StoreError(f"{self._folder.plan(self.cluster)}: not a plan: {error!r}") from error
        attempts = self._attempts(jobs)
        placeholders = missing.placeholders(self._database, self.run_cluster_id)
        self._next_result_id = self._highest_result_id() + 1
        for job in jobs.values():
            for attempt, attempt_id in attempts.get(job.name, ()):
                self._load_attempt(job, attempt, attempt_id, placeholders)
        self._writer.flush()
        self._fill_missing(jobs, state, placeholders)
        missing.choose_final(self._database, self.run_cluster_id)
        if self._database.total_changes != changes:
            self._database.execute(
                "UPDATE run_cluster SET loaded_utc = ? WHERE run_cluster_id = ?", (utc_now(), self.run_cluster_id)
            )

    # -- results ----------------------------------------------------------------------------------------------------

    @cached_property
    def _loaded(self) -> dict[str, Known]:
        results = {
            row[0]: (row[1], row[2])
            for row in self._database.execute(
                "SELECT x.ingest_file_id, x.result_id, x.outcome FROM job j JOIN result x ON x.job_id = j.job_id"
                " WHERE j.run_cluster_id = ?",
                (self.run_cluster_id,),
            )
        }
        files = self._database.execute(
            "SELECT path, ingest_file_id, sha256 FROM ingest_file WHERE run_cluster_id = ?", (self.run_cluster_id,)
        )
        return {path: Known(key, sha256, *results.get(key, (None, None))) for path, key, sha256 in files}

    def _highest_result_id(self) -> int:
        return int(self._database.execute("SELECT coalesce(max(result_id), 0) FROM result").fetchone()[0])

    def _load_attempt(self, job: JobKeys, attempt: Attempt, attempt_id: int, placeholders: missing.Placeholders) -> None:
        folder = self._attempt_folder(attempt)
        if not folder.is_dir():
            return
        facts = {node: self._facts(folder, node, attempt_id) for node in job.nodes}
        if attempt.place is not None:
            self._load_spooled(Source(folder, job, attempt, attempt_id, (0, 0)), facts, placeholders)
            return
        names = {
            path.stem.removesuffix(".json") + ".json"
            for path in folder.iterdir()
            if path.suffix in {".json", ".status", ".part"}
        }
        for name in sorted(names):
            match = RESULT_NAME.fullmatch(name)
            if match is None:
                continue
            step = (int(match[1]), int(match[2]))
            if step not in job.steps:
                self.notes.append(f"{self._path_below(folder / name)}: is not in the plan")
                continue
            for source in self._measured_in(Source(folder / name, job, attempt, attempt_id, step)):
                if self._load_result(source, facts, placeholders.get((job.job_id, *source.step))):
                    placeholders.pop((job.job_id, *source.step), None)

    def _load_spooled(self, source: Source, facts: Facts, placeholders: missing.Placeholders) -> None:
        """Load what a tournament measured of one pair; `source.path` is its folder."""
        spool, job = self._spool(source.path / SPOOL), source.job
        for step in spool.steps(job.name):
            path = source.path / f"{SPOOL}#{job.name}-t{step[0]}-r{step[1]}"
            if step not in job.steps:
                self.notes.append(f"{self._path_below(path)}: is not in the plan")
                continue
            one = replace(source, path=path, step=step)
            one = replace(one, raw=self._counting(one, facts, spool.read_all(job.name, step)))
            for size in self._measured_in(one):
                if self._load_result(size, facts, placeholders.get((job.job_id, *size.step))):
                    placeholders.pop((job.job_id, *size.step), None)

    def _measured_in(self, source: Source) -> list[Source]:
        """The results in one file: usually one, with a table of sizes one per size, each with a name of its own."""
        first, repetition_no = source.step
        more = [test_no for test_no, keys in self._tests.items() if keys.test.measured_by == first]
        if not more:
            return [source]
        raw = source.raw or read_raw(source.path)
        skipped = skipped_sizes(raw.content or b"") if raw is not None else []
        named = [(first, source.path), *((no, source.path.with_name(f"{source.path.name}#t{no}")) for no in more)]
        named = [one for one in named if self._tests[one[0]].test.parameters.get(SIZE_OPTION) not in skipped]
        return [replace(source, path=path, step=(no, repetition_no), raw=raw) for no, path in named]

    def _counting(self, source: Source, facts: Facts, lines: list[RawLine]) -> RawLine:
        """Of several lines about one measurement, return the first measured one, else the last.

        Loading one by one gives the same.
        """
        if len(lines) == 1:
            return lines[0]
        self.notes.append(f"{self._path_below(source.path)}: {len(lines)} lines about one measurement; one of them counts")
        test = self._tests[source.step[0]]
        for raw in lines[:-1]:
            line = read_line(raw, source.path, test.test.kernel, test.test.parameters)
            self._judged(line, test.test, facts, source.job)
            if line.outcome is Outcome.MEASURED:
                return raw
        return lines[-1]

    def _spool(self, path: Path) -> Spool:
        if path not in self._spools:
            spool = self._spools[path] = Spool(path)
            if spool.damaged_count:
                where = f"{self._path_below(path)}: {spool.damaged_count} lines that cannot be read"
                self.notes.append(f"{where}, the first at byte {spool.first_damaged_byte}")
        return self._spools[path]

    def _load_result(self, source: Source, facts: Facts, there: missing.Placeholder | None) -> bool:
        """Load one file unless it is known or may still be growing. `there` is the placeholder row for it."""
        path_below = self._path_below(source.path)
        raw, known = source.raw or read_raw(source.path), self._loaded.get(path_below)
        if raw is None or (raw.status is None and source.attempt.live):
            return False
        if known is not None and (known.sha256 == raw.sha256 or known.outcome == Outcome.MEASURED):
            self.known_count += 1
            if known.sha256 != raw.sha256:
                self.notes.append(f"{path_below}: changed after it was loaded; the first content stays")
            return False
        result_id = known.result_id if known is not None else there.result_id if there is not None else None
        if result_id is None:
            result_id = self._next_result_id
            self._next_result_id += 1
        else:
            missing.remove(self._database, result_id)
        self._write(source, facts, result_id, self._ingest(source.path, raw.sha256, known), raw)
        return True

    def _write(self, source: Source, facts: Facts, result_id: int, ingest_file_id: int, raw: RawLine) -> None:
        keys, job = self._tests[source.step[0]], source.job
        line = read_line(raw, source.path, keys.test.kernel, keys.test.parameters)
        judgement = self._judged(line, keys.test, facts, job)
        place = Place(
            result_id=result_id,
            job_id=job.job_id,
            test_no=source.step[0],
            repetition_no=source.step[1],
            attempt_id=source.attempt_id,
            kernel_id=keys.kernel_id,
            series_id=self._series(keys, job, self._network_of(line)),
            parameter_set_id=keys.parameter_set_id,
            build_id=self._builds_of(job).of_line(line, keys.test.toolchain),
            ingest_file_id=ingest_file_id,
            node_ids=self._ends_of(job),
        )
        self._writer.add(line, place, judgement)
        self.read_count += 1

    def _judged(self, line: Line, test: Test, facts: Facts, job: JobKeys) -> Judgement:
        if line.outcome is not Outcome.MEASURED:
            return Judgement()
        line.reason = elsewhere(line.content, self._nodes_of(job))
        if line.reason is not None:
            line.outcome = Outcome.INVALID
            return Judgement()
        named = self._nodes_of(job)
        ends = (named[0], named[:2][-1])
        both = facts[job.nodes[0]], facts[job.nodes[:2][-1]]
        judgement = self._judge(JudgedResult(line.content, test.parameters, *both, ends))
        if judgement.invalid_reason is not None:
            line.outcome, line.reason = Outcome.INVALID, judgement.invalid_reason
        return judgement

    def _nodes_of(self, job: JobKeys) -> tuple[str, ...]:
        """Client and server, of a set of nodes each of them, with the names that their schedulers give them."""
        return job.nodes

    def _ends_of(self, job: JobKeys) -> tuple[int, ...]:
        """The nodes of a result's ends: client and server, of a set of nodes each of them."""
        if len(job.nodes) <= 2:
            return (job.client_node_id, job.server_node_id)[: len(job.nodes)]
        return tuple(map(self._node_id, job.nodes))

    def _network_of(self, line: Line) -> str:
        evidence = line.content.get("evidence")
        client = evidence.get("client") if isinstance(evidence, dict) else None
        interface = client.get("interface") if isinstance(client, dict) else None
        if not self._network and isinstance(interface, str):
            self._network = interface  # lines of this run that ended before this point would have used it too
        return interface if isinstance(interface, str) and interface else self._network

    def _series(self, keys: TestKeys, job: JobKeys, network: str) -> int:
        return self._names.series(
            keys.kernel_id,
            keys.test.telling,
            client_node_id=job.client_node_id,
            server_node_id=job.server_node_id,
            network=network,
            toolchain=keys.test.toolchain or self._builds_of(job).toolchain,
        )

    def _facts(self, folder: Path, node: str, attempt_id: int) -> Mapping[str, Any] | None:
        path = self._facts_path(folder, node)
        if path in self._shared_facts:  # another pair of the same tournament has loaded it
            facts, fact_set_id = self._shared_facts[path]
            row = (attempt_id, self._node_id(node), fact_set_id)
            self._database.execute("INSERT OR IGNORE INTO node_facts (attempt_id, node_id, fact_set_id) VALUES (?, ?, ?)", row)
            return facts
        try:
            content = path.read_bytes()
            facts = parse_json(content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.notes.append(f"{self._path_below(path)}: {error}")
            return None
        digest = hashlib.sha256(content).digest()
        known = self._loaded.get(self._path_below(path))
        if known is None or known.sha256 != digest:
            self._ingest(path, digest, known)
            row = (attempt_id, self._node_id(node), self._names.fact_set(facts))
            self._database.execute("INSERT OR REPLACE INTO node_facts (attempt_id, node_id, fact_set_id) VALUES (?, ?, ?)", row)
        if (folder / SPOOL).is_file():
            self._shared_facts[path] = (facts, self._names.fact_set(facts))
        return facts

    def _ingest(self, path: Path, digest: bytes, known: Known | None) -> int:
        if known is not None:
            self._database.execute(
                "UPDATE ingest_file SET sha256 = ?, loaded_utc = ? WHERE ingest_file_id = ?",
                (digest, utc_now(), known.ingest_file_id),
            )
            return known.ingest_file_id
        columns = {"run_cluster_id": self.run_cluster_id, "path": self._path_below(path)}
        return self._names.insert("ingest_file", {**columns, "sha256": digest, "loaded_utc": utc_now()})

    def _path_below(self, path: Path) -> str:
        return str(path.relative_to(self._folder.path))

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _fill_missing(self, jobs: Mapping[str, JobKeys], state: JournalState, placeholders: missing.Placeholders) -> None:
        brought = missing.brought_steps(self._database, self.run_cluster_id)
        attempts: dict[str, list[Attempt]] = {}
        for attempt in self._tries:
            attempts.setdefault(attempt.job_id, []).append(attempt)
        for job in jobs.values():
            absent = sorted(job.steps - brought.get(job.job_id, set()))
            if not absent:
                continue
            tries = attempts.get(job.name, [])
            reason = missing.reason(tries, state.not_run.get(pair_index_of(job.name)), closed=state.closed_utc is not None)
            self.pending_count += len(absent) if reason.startswith(missing.PENDING) else 0
            for step in absent:
                self._put_missing(job, step, reason, placeholders.pop((job.job_id, *step), None))
        for placeholder in placeholders.values():
            missing.remove(self._database, placeholder.result_id)

    def _put_missing(self, job: JobKeys, step: Step, reason: str, there: missing.Placeholder | None) -> None:
        if there is not None:
            if there.reason != reason:
                missing.reword(self._database, there.result_id, reason)
            return
        keys = self._tests[step[0]]
        series_id = self._series(keys, job, self._network)
        missing.insert(self._database, (job.job_id, *step, series_id, keys.parameter_set_id, reason))

"""One cluster's part of a run into the database, within the caller's transaction.

heads    run, campaign, run_cluster, nodes, build, jobs from the plan
attempts from the journal
results  every file of every attempt that is new
rest     a row with its reason for what was planned and is not there; which row of several tries counts
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
from hpcq.planning.job_ids import job_id_of, pair_index_of
from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.journal_state import Attempt, JournalState, StepKey, fold
from hpcq.run_folder.lines import Line, Outcome, RawLine, read_line, read_raw, utc_or_none, whole
from hpcq.run_folder.paths import RESULT_NAME, RunFolder, parse_json, read_json, read_json_or_none
from hpcq.run_folder.spools import SPOOL, Spool, of_pairs
from hpcq.store.load import missing
from hpcq.store.load.builds import Builds
from hpcq.store.load.row_keys import RowKeys
from hpcq.store.load.rows import Place, ResultWriter
from hpcq.units import utc_now

#: One planned measurement of a job.
Step = StepKey
#: The facts of both nodes of a job, by node.
Facts = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class TestKeys:
    """A test of the plan and its keys."""

    __test__ = False  # not one of pytest's, whatever it is called

    test: Test
    kernel_id: int
    parameter_set_id: int


@dataclass(frozen=True, slots=True)
class JobKeys:
    """One job of the plan with its keys."""

    name: str
    pair: tuple[str, str]
    job_id: int
    client_node_id: int
    server_node_id: int


@dataclass(frozen=True, slots=True)
class Known:
    """A result file that was loaded before."""

    ingest_file_id: int
    sha256: bytes
    result_id: int | None
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Source:
    """One result file: where it is, and whose."""

    path: Path
    job: JobKeys
    attempt: Attempt
    attempt_id: int
    step: Step
    raw: RawLine | None = None


class ClusterLoader:
    """Loads one cluster once; make a new one for the next time."""

    def __init__(
        self, database: sqlite3.Connection, folder: RunFolder, cluster: str, run: Mapping[str, Any], judge: Judge
    ) -> None:
        self.cluster = cluster
        self.run_cluster_id = 0
        self.planned_count = 0
        self.pending_count = 0
        self.read_count = 0
        self.known_count = 0
        self.notes: list[str] = []
        self._database = database
        self._folder = folder
        self._run = run
        self._judge = judge
        self._names = RowKeys(database)
        self._writer = ResultWriter(database, self._names)
        self._network = ""
        #: The attempts of the journal, one per pair.
        self._tries: list[Attempt] = []
        self._spools: dict[Path, Spool] = {}
        self._shared_facts: dict[Path, tuple[Mapping[str, Any], int]] = {}

    def load(self) -> None:
        """Bring in everything that is new; the caller's transaction makes it one step."""
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
        steps = {(test_no, rep) for test_no in self._tests for rep in range(1, plan["repetition_count"] + 1)}
        attempts = self._attempts(jobs)
        placeholders = missing.placeholders(self._database, self.run_cluster_id)
        self._next_result_id = self._highest_result_id() + 1
        for job in jobs.values():
            for attempt, attempt_id in attempts.get(job.name, ()):
                self._load_attempt(job, attempt, attempt_id, steps, placeholders)
        self._writer.flush()
        self._fill_missing(jobs, steps, state, placeholders)
        missing.choose_final(self._database, self.run_cluster_id)
        if self._database.total_changes != changes:
            self._database.execute(
                "UPDATE run_cluster SET loaded_utc = ? WHERE run_cluster_id = ?", (utc_now(), self.run_cluster_id)
            )

    # -- what a link has otherwise ------------------------------------------------------------------------------------

    def _state(self, plan: dict[str, Any]) -> JournalState:  # noqa: ARG002
        """The journal folded up; may put the plan right where the journal knows better."""
        state = fold(read_journal(self._folder.journal(self.cluster)))
        self._tries = of_pairs(state.attempts.values())
        return state

    def _node_id(self, name: str) -> int:
        """The key of a node, by its name in the plan."""
        return self._names.node(self._cluster_id, name)

    def _builds_of(self, job: JobKeys) -> Builds:  # noqa: ARG002
        """The builds of the cluster where a job's client runs."""
        return self._builds

    def _facts_path(self, folder: Path, node: str) -> Path:
        """Where the facts of a node of an attempt lie."""
        return folder / f"facts-{node}.json"

    # -- heads ------------------------------------------------------------------------------------------------------

    def _heads(self, plan: Mapping[str, Any], state: JournalState) -> None:
        names = self._names
        self._cluster_id = names.row("cluster", name=self.cluster)
        run_name = str(self._run.get("run_id") or self._folder.run_id)
        campaign_id = names.row("campaign", name=str(self._run["campaign"]))
        found = self._database.execute("SELECT run_id FROM run WHERE name = ?", (run_name,)).fetchone()
        if found is None:
            columns = {
                "name": run_name,
                "campaign_id": campaign_id,
                "document_id": self._document(self._folder.campaign_yaml),
                "created_utc": self._run["created_utc"],
                "seed": whole(self._run.get("seed")),
                "hpcq_version": str(self._run.get("hpcq_version", "")),
            }
        run_id = found[0] if found else names.insert("run", columns)
        planned = {
            "document_id": self._document(self._folder.cluster_yaml(self.cluster)),
            "repetition_count": plan["repetition_count"],
            "pair_count": len(plan["pairs"]),
            "result_count": len(plan["pairs"]) * len(plan["tests"]) * plan["repetition_count"],
            "opened_utc": state.opened_utc,
            "closed_utc": state.closed_utc,
        }
        self.planned_count = planned["result_count"]
        self.run_cluster_id = self._upsert("run_cluster", {"run_id": run_id, "cluster_id": self._cluster_id}, planned)
        self._plan_nodes(plan)
        self._network = str(plan.get("interface") or "")
        build = read_json_or_none(self._folder.build(self.cluster)) or {}
        self._builds = Builds(self._database, names, self._cluster_id, build)

    def _plan_nodes(self, plan: Mapping[str, Any]) -> None:
        rows = [("candidate", one["node"], one.get("state")) for one in plan.get("candidates", ())]
        rows += [("excluded", one["node"], one.get("reason")) for one in plan.get("excluded", ())]
        self._database.executemany(
            "INSERT OR IGNORE INTO run_node (run_cluster_id, node_id, planned, note) VALUES (?, ?, ?, ?)",
            [(self.run_cluster_id, self._node_id(node), planned, str(note or "")) for planned, node, note in rows],
        )

        self._database.executemany(
            "INSERT OR IGNORE INTO unplanned_pair (run_cluster_id, client, server, reason) VALUES (?, ?, ?, ?)",
            [
                (self.run_cluster_id, str(one["client"]), str(one["server"]), str(one["reason"]))
                for one in plan.get("not_planned", ())
            ],
        )

    def _document(self, path: Path) -> int | None:
        try:
            return self._names.document(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            return None

    def _jobs(self, plan: Mapping[str, Any]) -> dict[str, JobKeys]:
        known = {
            row["name"]: row["job_id"]
            for row in self._database.execute("SELECT * FROM job WHERE run_cluster_id = ?", (self.run_cluster_id,))
        }
        jobs = {}
        for index, (client, server) in enumerate(plan["pairs"]):
            name = job_id_of(index)
            nodes = {
                "client_node_id": self._node_id(client),
                "server_node_id": self._node_id(server),
            }
            job_id = known.get(name)
            if job_id is None:
                job_id = self._names.insert("job", {"run_cluster_id": self.run_cluster_id, "name": name, **nodes})
            jobs[name] = JobKeys(name, (client, server), job_id, **nodes)
        return jobs

    def _test(self, test: Test) -> TestKeys:
        kernel_id = self._names.kernel(test.kernel, test.program)
        return TestKeys(test, kernel_id, self._names.parameter_set(kernel_id, test.telling))

    # -- attempts ---------------------------------------------------------------------------------------------------

    def _attempts(self, jobs: Mapping[str, JobKeys]) -> dict[str, list[tuple[Attempt, int]]]:
        found: dict[str, list[tuple[Attempt, int]]] = {}
        for attempt in self._tries:
            job = jobs.get(attempt.job_id)
            if job is None:
                self.notes.append(f"journal: {attempt.tag}: job {attempt.job_id} is not in the plan")
                continue
            attempt_id = self._upsert(
                "attempt",
                {"job_id": job.job_id, "attempt_no": attempt.attempt_no},
                {
                    "tag": attempt.tag,
                    "native_id": attempt.native_id or None,
                    "state": attempt.state.value if attempt.native_id else None,
                    "outcome": attempt.outcome or None,
                    "reason": attempt.reason or None,
                    "nodes": " ".join(attempt.nodes),
                    "exit_code": whole(attempt.exit_code),
                    "committed_utc": attempt.committed_utc,
                    "submitted_utc": attempt.submitted_utc,
                    "started_utc": utc_or_none(attempt.started_utc) or self._started(attempt),
                    "ended_utc": utc_or_none(attempt.ended_utc),
                },
            )
            found.setdefault(attempt.job_id, []).append((attempt, attempt_id))
        return found

    def _started(self, attempt: Attempt) -> str | None:
        started = read_json_or_none(self._attempt_folder(attempt) / "started.json") or {}
        return utc_or_none(started.get("started_utc"))

    def _attempt_folder(self, attempt: Attempt) -> Path:
        return self._folder.attempt(self.cluster, *(attempt.place or (attempt.job_id, attempt.attempt_no)))

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

    def _load_attempt(
        self, job: JobKeys, attempt: Attempt, attempt_id: int, steps: set[Step], placeholders: missing.Placeholders
    ) -> None:
        folder = self._attempt_folder(attempt)
        if not folder.is_dir():
            return
        facts = {node: self._facts(folder, node, attempt_id) for node in job.pair}
        if attempt.place is not None:
            self._load_spooled(Source(folder, job, attempt, attempt_id, (0, 0)), facts, steps, placeholders)
            return
        names = {path.stem + ".json" for path in folder.iterdir() if path.suffix in {".json", ".status"}}
        for name in sorted(names):
            match = RESULT_NAME.fullmatch(name)
            if match is None:
                continue
            step = (int(match[1]), int(match[2]))
            if step not in steps:
                self.notes.append(f"{self._path_below(folder / name)}: is not in the plan")
                continue
            there = placeholders.get((job.job_id, *step))
            source = Source(folder / name, job, attempt, attempt_id, step)
            if self._load_result(source, facts, there):
                placeholders.pop((job.job_id, *step), None)

    def _load_spooled(self, source: Source, facts: Facts, steps: set[Step], placeholders: missing.Placeholders) -> None:
        """What a tournament brought of one pair; `source.path` is its folder."""
        spool, job = self._spool(source.path / SPOOL), source.job
        for step in spool.steps(job.name):
            path = source.path / f"{SPOOL}#{job.name}-t{step[0]}-r{step[1]}"
            if step not in steps:
                self.notes.append(f"{self._path_below(path)}: is not in the plan")
                continue
            one = replace(source, path=path, step=step, raw=spool.read(job.name, step))
            if self._load_result(one, facts, placeholders.get((job.job_id, *step))):
                placeholders.pop((job.job_id, *step), None)

    def _spool(self, path: Path) -> Spool:
        if path not in self._spools:
            self._spools[path] = Spool(path)
        return self._spools[path]

    def _load_result(self, source: Source, facts: Facts, there: missing.Placeholder | None) -> bool:
        """Load one file unless it is known, or may still be growing; `there` is the row that waits for it."""
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
            build_id=self._builds_of(job).of_line(line),
            ingest_file_id=ingest_file_id,
            client_node_id=job.client_node_id,
            server_node_id=job.server_node_id,
        )
        self._writer.add(line, place, judgement)
        self.read_count += 1

    def _judged(self, line: Line, test: Test, facts: Facts, job: JobKeys) -> Judgement:
        if line.outcome is not Outcome.MEASURED:
            return Judgement()
        judgement = self._judge(JudgedResult(line.content, test.parameters, facts[job.pair[0]], facts[job.pair[1]]))
        if judgement.invalid_reason is not None:
            line.outcome, line.reason = Outcome.INVALID, judgement.invalid_reason
        return judgement

    def _network_of(self, line: Line) -> str:
        evidence = line.content.get("evidence")
        client = evidence.get("client") if isinstance(evidence, dict) else None
        interface = client.get("interface") if isinstance(client, dict) else None
        if not self._network and isinstance(interface, str):
            self._network = interface  # what other lines of this run, which got no further, would have used
        return interface if isinstance(interface, str) and interface else self._network

    def _series(self, keys: TestKeys, job: JobKeys, network: str) -> int:
        return self._names.series(
            keys.kernel_id,
            keys.test.telling,
            client_node_id=job.client_node_id,
            server_node_id=job.server_node_id,
            network=network,
            toolchain=self._builds_of(job).toolchain,
        )

    def _facts(self, folder: Path, node: str, attempt_id: int) -> Mapping[str, Any] | None:
        path = self._facts_path(folder, node)
        if path in self._shared_facts:  # another pair of the same tournament
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

    def _fill_missing(
        self, jobs: Mapping[str, JobKeys], steps: set[Step], state: JournalState, placeholders: missing.Placeholders
    ) -> None:
        brought = missing.brought_steps(self._database, self.run_cluster_id)
        attempts: dict[str, list[Attempt]] = {}
        for attempt in self._tries:
            attempts.setdefault(attempt.job_id, []).append(attempt)
        for job in jobs.values():
            absent = sorted(steps - brought.get(job.job_id, set()))
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

    def _upsert(self, table: str, identity: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
        """The key of the row; writes only what differs, so that loading again changes nothing."""
        where = " AND ".join(f"{name} = ?" for name in identity)
        query = f"SELECT {table}_id, {', '.join(columns)} FROM {table} WHERE {where}"  # noqa: S608 - our own names
        found = self._database.execute(query, tuple(identity.values())).fetchone()
        if found is None:
            extra = {"loaded_utc": utc_now()} if table == "run_cluster" else {}
            return self._names.insert(table, {**identity, **columns, **extra})
        key: int = found[0]
        if tuple(found)[1:] != tuple(columns.values()):
            assignments = ", ".join(f"{name} = ?" for name in columns)
            update = f"UPDATE {table} SET {assignments} WHERE {table}_id = ?"  # noqa: S608 - our own names
            self._database.execute(update, (*columns.values(), key))
        return key

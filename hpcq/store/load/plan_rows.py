"""Rows from the plan and the journal of one cluster; results refer to them.

heads      run, campaign, run_cluster, nodes, build, documents
jobs       one row per pair of the plan
attempts   one row per attempt of a pair, from the journal
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.definition.model import Test
from hpcq.definition.running import of_nodes, of_set
from hpcq.planning.job_ids import job_id_of
from hpcq.planning.plan import nodes_of_pair
from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.journal_state import Attempt, JournalState, fold
from hpcq.run_folder.lines import utc_or_none, whole
from hpcq.run_folder.paths import RunFolder, read_json_or_none
from hpcq.run_folder.spools import of_pairs
from hpcq.store.load.builds import Builds
from hpcq.store.load.row_keys import RowKeys
from hpcq.units import utc_now


@dataclass(frozen=True, slots=True)
class TestKeys:
    """A test of the plan and its database keys."""

    __test__ = False  # pytest collects classes named Test*: this is not one

    test: Test
    kernel_id: int
    parameter_set_id: int


@dataclass(frozen=True, slots=True)
class JobKeys:
    """One job of the plan with its database keys."""

    name: str
    pair: tuple[str, str]
    job_id: int
    client_node_id: int
    server_node_id: int
    #: The nodes, by name; of a set of nodes, all of them.
    nodes: tuple[str, ...]
    #: Measurements that the plan wants of it.
    steps: frozenset[tuple[int, int]]


def _steps_of(plan: Mapping[str, Any]) -> Callable[[int], frozenset[tuple[int, int]]]:
    """What a plan wants of the pair or set of nodes at a place. The pairs, of which there may be very many, want the same."""
    sets_begin = len(plan["pairs"]) - plan.get("node_set_count", 0)
    tests = [Test(**one) for one in plan["tests"]]

    def steps(chosen: Iterable[Test]) -> frozenset[tuple[int, int]]:
        return frozenset((one.test_no, rep) for one in chosen for rep in range(1, plan["repetition_count"] + 1))

    of_pairs = steps(one for one in tests if not of_nodes(one))

    def of_place(index: int) -> frozenset[tuple[int, int]]:
        if index < sets_begin:
            return of_pairs
        count = len(nodes_of_pair(tuple(plan["pairs"][index])))
        return steps(one for one in tests if of_set(one, count))

    return of_place


class PlanRows:
    """The rows of a cluster's plan and journal. link.py overrides a few of them."""

    def __init__(self, database: sqlite3.Connection, folder: RunFolder, cluster: str, run: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.run_cluster_id = 0
        self.planned_count = 0
        self.notes: list[str] = []
        self._database = database
        self._folder = folder
        self._run = run
        self._names = RowKeys(database)
        self._network = ""
        #: The attempts of the journal, one per pair.
        self._tries: list[Attempt] = []

    # -- what a link has otherwise ------------------------------------------------------------------------------------

    def _state(self, plan: dict[str, Any]) -> JournalState:  # noqa: ARG002
        """Read the state of the journal. May correct the plan where the journal knows better."""
        state = fold(read_journal(self._folder.journal(self.cluster)))
        self._tries = of_pairs(state.attempts.values())
        return state

    def _node_id(self, name: str) -> int:
        """The key of a node, by its name in the plan."""
        return self._names.node(self._cluster_id, name)

    def _builds_of(self, job: JobKeys) -> Builds:  # noqa: ARG002
        """The builds of the cluster on which a job's client runs."""
        return self._builds

    def _facts_path(self, folder: Path, node: str) -> Path:
        """Path of the facts of one node in an attempt."""
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
            "result_count": plan["goals"]["result_count"],
            "opened_utc": state.opened_utc,
            "closed_utc": state.closed_utc,
        }
        self.planned_count = planned["result_count"]
        self.run_cluster_id = self._upsert("run_cluster", {"run_id": run_id, "cluster_id": self._cluster_id}, planned)
        self._plan_nodes(plan)
        self._network = str(plan.get("interface") or "")
        self._database.executemany(
            "INSERT OR REPLACE INTO network (cluster_id, interface, name) VALUES (?, ?, ?)",
            [(self._cluster_id, interface, name) for name, interface in (plan.get("networks") or {}).items()],
        )
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
        steps = _steps_of(plan)
        for index, (client, server) in enumerate(plan["pairs"]):
            name = job_id_of(index)
            nodes = {
                "client_node_id": self._node_id(client),
                "server_node_id": self._node_id(server),
            }
            job_id = known.get(name)
            if job_id is None:
                job_id = self._names.insert("job", {"run_cluster_id": self.run_cluster_id, "name": name, **nodes})
            pair = (client, server)
            jobs[name] = JobKeys(name, pair, job_id, **nodes, nodes=nodes_of_pair(pair), steps=steps(index))
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

    def _upsert(self, table: str, identity: Mapping[str, Any], columns: Mapping[str, Any]) -> int:
        """Insert or update a row and return its key. Writes only what differs, so loading again changes nothing."""
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

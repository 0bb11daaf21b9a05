"""Everything that is stored once and referenced by number: kernels, nodes, parameter sets, series, facts.

    names.series(...)  ->  in memory?  ->  in the database?  ->  INSERT  ->  its key

One object lives as long as one load: it belongs to that load's transaction and is discarded with it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq import units
from hpcq.clock import utc_or_none
from hpcq.definition.model import Test, of_nodes, of_set
from hpcq.kernels import Kernel, Kernels, message_bytes
from hpcq.planning.plan import job_name_of, nodes_of_pair
from hpcq.run_folder.journal import Attempt, JournalState, fold, read_journal
from hpcq.run_folder.lines import INTEGER_MAX, Line, mapping, whole
from hpcq.run_folder.paths import RunFolder, read_json_or_none, read_regular
from hpcq.run_folder.spools import of_pairs
from hpcq.units import utc_now

Scalar = int | float | str


class RowKeys:
    """Keys of rows that are stored once."""

    def __init__(self, database: sqlite3.Connection, kernels: Kernels) -> None:
        """kernels: those whose descriptions are stored with their rows."""
        self._database, self._kernels = database, kernels
        self._known: dict[tuple[Any, ...], int] = {}
        self._neutral: dict[int, dict[str, str | None]] = {}
        self._telling: dict[tuple[int, str], str] = {}
        self._option_ids: dict[tuple[int, str], int] = {}
        self._metric_ids: dict[tuple[int, str], int] = {}
        self._metric_counts: dict[int, int] = {}

    def row(self, table: str, **columns: Any) -> int:
        """The key of the row with these columns. `columns` must hold the row's identity and all required columns."""
        known = (table, *columns.values())
        key = self._known.get(known)
        if key is None:
            where = " AND ".join(f"{name} = ?" for name in columns)
            values = tuple(columns.values())
            found = self._database.execute(f"SELECT {table}_id FROM {table} WHERE {where}", values).fetchone()  # noqa: S608
            key = found[0] if found else self.insert(table, columns)
            self._known[known] = key
        return key

    def insert(self, table: str, columns: Mapping[str, Any]) -> int:
        """Insert one row; returns its key."""
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - our own names
        key = self._database.execute(statement, tuple(columns.values())).lastrowid
        if key is None:
            raise RuntimeError(f"{table}: no key")
        return key

    def node(self, cluster_id: int, name: str) -> int:
        """The node that has this name, or once had it."""
        known = ("node", cluster_id, name)
        if known not in self._known:
            found = self._database.execute(
                "SELECT node_id FROM node WHERE cluster_id = ?1 AND name = ?2"
                " UNION ALL SELECT node_id FROM node_alias WHERE cluster_id = ?1 AND name = ?2",
                (cluster_id, name),
            ).fetchone()
            self._known[known] = found[0] if found else self.insert("node", {"cluster_id": cluster_id, "name": name})
        return self._known[known]

    def document(self, text: str) -> int:
        """Store a file's text once."""
        digest = _sha256(text)
        found = self._database.execute("SELECT document_id FROM document WHERE sha256 = ?", (digest,)).fetchone()
        return found[0] if found else self.insert("document", {"sha256": digest, "text": text})

    def kernel(self, name: str, program: str) -> int:
        """A kernel with the options and metrics of its description."""
        known = ("kernel", name)
        if known not in self._known:
            found = self._database.execute("SELECT kernel_id FROM kernel WHERE name = ?", (name,)).fetchone()
            described = self._kernels.get(name)
            columns = {
                "name": name,
                "program": described.program if described else program,
                "summary": described.summary if described else "",
                "method": described.method if described else "",
            }
            kernel_id: int = found[0] if found else self.insert("kernel", columns)
            self._known[known] = kernel_id
            self._read_kernel(kernel_id)
            if described:
                self._describe(kernel_id, described)
                self._keep_description(kernel_id, described)
        return self._known[known]

    def metric_name(self, kernel_id: int, name: str, better: str = "none") -> int:
        """A metric. If no description mentions it, its name gives the unit, and `better` the good direction."""
        key = self._metric_ids.get((kernel_id, name))
        if key is None:
            key = self._add_metric(kernel_id, name, better, "")
        return key

    def parameter_set(self, kernel_id: int, parameters: Mapping[str, Any]) -> int:
        """A set of parameters with a row for each."""
        text = canonical(parameters)
        known = ("parameter_set", kernel_id, text)
        if known not in self._known:
            digest = _sha256(text)
            found = self._database.execute(
                "SELECT parameter_set_id FROM parameter_set WHERE kernel_id = ? AND sha256 = ?", (kernel_id, digest)
            ).fetchone()
            self._known[known] = found[0] if found else self._add_parameter_set(kernel_id, text, digest, parameters)
        return self._known[known]

    def series(self, kernel_id: int, parameters: Mapping[str, Any], **where: Any) -> int:
        """The series of results with these parameters; `where`: client_node_id, server_node_id, network, toolchain."""
        known = (kernel_id, canonical(parameters))
        if known not in self._telling:
            for name, value in parameters.items():
                self._option(kernel_id, name, value)
            first_default = self._neutral[kernel_id]
            telling = {name: value for name, value in parameters.items() if canonical(value) != first_default[name]}
            self._telling[known] = canonical(telling)
        return self.row("series", kernel_id=kernel_id, parameters=self._telling[known], **where)

    def evidence_name(self, name: str, kind: str) -> int:
        """A counter, a gauge, a granted value or what intervals tell."""
        known = ("evidence_name", name, kind)
        if known not in self._known:
            found = self._database.execute(
                "SELECT evidence_name_id FROM evidence_name WHERE name = ? AND kind = ?", (name, kind)
            ).fetchone()
            columns = {"name": name, "source": name.partition(".")[0], "kind": kind, "unit": unit_or_number(name)}
            self._known[known] = found[0] if found else self.insert("evidence_name", columns)
        return self._known[known]

    def rule(self, name: str, meaning: str, advice: str, source: str) -> int:
        """A rule over evidence, in its present wording."""
        known = ("rule", name)
        if known not in self._known:
            found = self._database.execute("SELECT rule_id FROM rule WHERE name = ?", (name,)).fetchone()
            columns = {"name": name, "meaning": meaning, "advice": advice, "source": source}
            self._known[known] = found[0] if found else self.insert("rule", columns)
            if found:
                words = "UPDATE rule SET meaning = ?, advice = ?, source = ? WHERE rule_id = ?"
                self._database.execute(words, (meaning, advice, source, found[0]))
        return self._known[known]

    def node_boot(self, node_id: int, boot_id: str, seen_utc: str) -> int:
        """A boot of a node; a new one is first and last seen at `seen_utc`."""
        known = ("node_boot", node_id, boot_id)
        if known not in self._known:
            found = self._database.execute(
                "SELECT node_boot_id FROM node_boot WHERE node_id = ? AND boot_id = ?", (node_id, boot_id)
            ).fetchone()
            seen = {"first_seen_utc": seen_utc, "last_seen_utc": seen_utc}
            columns = {"node_id": node_id, "boot_id": boot_id, **seen}
            self._known[known] = found[0] if found else self.insert("node_boot", columns)
        return self._known[known]

    def content_set(self, table: str, content: Mapping[str, Any], value_columns: tuple[str, str]) -> int:
        """A set stored once by content in <table>_set, with one row for each entry in <table>."""
        text = canonical(content)
        known = (table, text)
        if known not in self._known:
            digest = _sha256(text)
            statement = f"SELECT {table}_set_id FROM {table}_set WHERE sha256 = ?"  # noqa: S608 - our own names
            found = self._database.execute(statement, (digest,)).fetchone()
            key = found[0] if found else self.insert(f"{table}_set", {"sha256": digest})
            self._known[known] = key
            if not found:
                rows = ((key, name, scalar(value)) for name, value in content.items())
                insert = f"INSERT INTO {table} ({table}_set_id, {', '.join(value_columns)}) VALUES (?, ?, ?)"  # noqa: S608
                self._database.executemany(insert, (row for row in rows if row[2] is not None))
        return self._known[known]

    def fact_set(self, facts: Mapping[str, Any]) -> int:
        """All facts of a node; each top-level key is a part of its own."""
        parts = {part: flatten(part, content) for part, content in facts.items()}
        digest = _sha256(canonical(parts))
        found = self._database.execute("SELECT fact_set_id FROM fact_set WHERE sha256 = ?", (digest,)).fetchone()
        if found:
            return int(found[0])
        part_ids = sorted({self._fact_part(part, content) for part, content in parts.items() if content})
        key = self.insert("fact_set", {"sha256": digest})
        self._database.executemany("INSERT INTO fact_set_part VALUES (?, ?)", ((key, part_id) for part_id in part_ids))
        return key

    def _fact_part(self, part: str, content: Mapping[str, Scalar]) -> int:
        text = canonical(content)
        known = ("fact_part", part, text)
        if known not in self._known:
            digest = _sha256(text)
            found = self._database.execute(
                "SELECT fact_part_id FROM fact_part WHERE part = ? AND sha256 = ?", (part, digest)
            ).fetchone()
            key = found[0] if found else self.insert("fact_part", {"part": part, "sha256": digest})
            self._known[known] = key
            if not found:
                rows = ((key, name, value) for name, value in content.items())
                self._database.executemany("INSERT INTO fact (fact_part_id, name, value) VALUES (?, ?, ?)", rows)
        return self._known[known]

    def _read_kernel(self, kernel_id: int) -> None:
        self._neutral[kernel_id] = {}
        for option_id, name, first_default in self._database.execute(
            "SELECT option_id, name, first_default FROM option WHERE kernel_id = ?", (kernel_id,)
        ):
            self._neutral[kernel_id][name] = first_default
            self._option_ids[kernel_id, name] = option_id
        for metric_name_id, name in self._database.execute(
            "SELECT metric_name_id, name FROM metric_name WHERE kernel_id = ?", (kernel_id,)
        ):
            self._metric_ids[kernel_id, name] = metric_name_id
            self._metric_counts[kernel_id] = self._metric_counts.get(kernel_id, 0) + 1

    def _keep_description(self, kernel_id: int, one: Kernel) -> None:
        """Store the file of a described kernel: gates and pages read it when the file is gone."""
        if one.described is None:
            return
        try:
            document_id = self.document(Path(one.described.path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            return
        self._database.execute(
            "UPDATE kernel SET document_id = ?2 WHERE kernel_id = ?1 AND document_id IS NOT ?2", (kernel_id, document_id)
        )

    def _describe(self, kernel_id: int, described: Kernel) -> None:
        for option in described.options:
            if (kernel_id, option.name) not in self._option_ids:
                self._add_option(kernel_id, option.name, option.type.value, canonical(option.default), option.help)
        for metric in described.metrics:
            key = self._metric_ids.get((kernel_id, metric.name))
            if key is None:
                self._add_metric(kernel_id, metric.name, metric.better.value, metric.help)
        self.choose_main_metric(kernel_id)

    def choose_main_metric(self, kernel_id: int) -> None:
        """Give a kernel that has none its main metric: a median, else the first one with a direction.

        A median of round trips beside a stream, idle, loaded or after it, is not the stream's own, and that of captured packets
        is a second look at what the kernel measured.
        """
        self._database.execute(
            "UPDATE kernel SET main_metric_name_id = (SELECT metric_name_id FROM metric_name"
            " WHERE kernel_id = ?1 AND better <> 'none'"
            " ORDER BY instr(name, '_p50_') = 0 OR substr(name, 1, instr(name, '_')) IN ('idle_', 'loaded_', 'after_',"
            " 'queueing_', 'capture_'), position_no LIMIT 1)"
            " WHERE kernel_id = ?1 AND main_metric_name_id IS NULL",
            (kernel_id,),
        )

    def _add_metric(self, kernel_id: int, name: str, better: str, help_text: str) -> int:
        self._metric_counts[kernel_id] = position_no = self._metric_counts.get(kernel_id, 0) + 1
        key = self.insert(
            "metric_name",
            {
                "kernel_id": kernel_id,
                "name": name,
                "unit": unit_or_number(name),
                "better": better,
                "help": help_text,
                "position_no": position_no,
            },
        )
        self._metric_ids[kernel_id, name] = key
        return key

    def _option(self, kernel_id: int, name: str, value: object) -> int:
        """An option. One that no description mentions has no first_default value, so it always distinguishes series."""
        key = self._option_ids.get((kernel_id, name))
        return key if key is not None else self._add_option(kernel_id, name, _type_of(value), None, "")

    def _add_option(self, kernel_id: int, name: str, option_type: str, first_default: str | None, help_text: str) -> int:
        columns = {"kernel_id": kernel_id, "name": name, "type": option_type, "unit": unit_or_number(name)}
        key = self.insert("option", {**columns, "first_default": first_default, "help": help_text})
        self._option_ids[kernel_id, name] = key
        self._neutral[kernel_id][name] = first_default
        return key

    def _add_parameter_set(self, kernel_id: int, text: str, digest: bytes, parameters: Mapping[str, Any]) -> int:
        name = self._database.execute("SELECT name FROM kernel WHERE kernel_id = ?", (kernel_id,)).fetchone()[0]
        size = {"message_bytes": message_bytes(name, parameters)}
        key = self.insert("parameter_set", {"kernel_id": kernel_id, "sha256": digest, "json": text, **size})
        for name, value in parameters.items():
            stored = scalar(value)
            if stored is not None:
                self._database.execute(
                    "INSERT INTO parameter (parameter_set_id, option_id, value) VALUES (?, ?, ?)",
                    (key, self._option(kernel_id, name, value), stored),
                )
        return key


def canonical(value: object) -> str:
    """JSON with sorted keys and no blanks. 1.0 is written as 1, so equal numbers are equal texts."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def scalar(value: object) -> Scalar | None:
    """A value in the database's form: booleans as true and false, anything that is no scalar as JSON, None as null."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return value if abs(value) <= INTEGER_MAX else str(value)
    return value if isinstance(value, float) else canonical(value)


def flatten(prefix: str, content: object) -> dict[str, Scalar]:
    """Nested facts as dotted names.

    A list of plain values is one fact; an object in a list is addressed by its name.
    """
    found: dict[str, Scalar] = {}
    if isinstance(content, dict):
        for name, value in content.items():
            found.update(flatten(f"{prefix}.{name}", value))
    elif isinstance(content, list) and any(isinstance(one, (dict, list)) for one in content):
        for index, one in enumerate(content):
            name = one.get("name", index) if isinstance(one, dict) else index
            found.update(flatten(f"{prefix}.{name}", one))
    elif isinstance(content, list):
        found[prefix] = " ".join(str(scalar(one)) for one in content)
    elif (value := scalar(content)) is not None:
        found[prefix] = value
    return found


def unit_or_number(name: str) -> str:
    """The unit in a name; `number` if it has none."""
    return units.unit_of(name) or "number"


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return {int: "integer", float: "number"}.get(type(value), "choice")


# ----------------------------------------------------------------------------------------------------------------------
# build.json into `build`, and which build produced a result.
#
# Two programs are the same build if compiler, flags, MPI, modules, sources and binary agree. Build time and folder do not
# matter.


class Builds:
    """The builds of one cluster in one run."""

    def __init__(self, database: sqlite3.Connection, names: RowKeys, cluster_id: int, record: Mapping[str, Any]) -> None:
        self.toolchain = str(record.get("toolchain") or "default")
        #: By toolchain (empty: the cluster's own) and program.
        self._by_program: dict[tuple[str, str], tuple[int, str]] = {}
        self._add("", record, database, names, cluster_id)
        for name, one in mapping(record.get("toolchains")).items():
            self._add(name, mapping(one), database, names, cluster_id)

    def _add(
        self, toolchain: str, record: Mapping[str, Any], database: sqlite3.Connection, names: RowKeys, cluster_id: int
    ) -> None:
        for program, built in mapping(record.get("programs")).items():
            columns = _columns(program, mapping(built), record, toolchain or self.toolchain)
            digest = hashlib.sha256(canonical(columns).encode()).digest()
            found = database.execute(
                "SELECT build_id FROM build WHERE cluster_id = ? AND sha256 = ?", (cluster_id, digest)
            ).fetchone()
            built_utc = utc_or_none(record.get("built_utc"))
            row = {"cluster_id": cluster_id, "sha256": digest, **columns, "built_utc": built_utc}
            build_id = found[0] if found else names.insert("build", row)
            self._by_program[toolchain, program] = (build_id, columns["source_build_id"])

    def of_line(self, line: Line, toolchain: str = "") -> int | None:
        """The build that printed a line. A line from sources other than the recorded ones gets None and a warning."""
        program = line.content.get("program")
        if not isinstance(program, str) or (toolchain, program) not in self._by_program:
            return None
        build_id, source_build_id = self._by_program[toolchain, program]
        printed = str(line.content.get("build_id", ""))
        if printed != source_build_id:
            message = f"{program}: the line says build {printed}, build.json says {source_build_id}"
            line.warnings.append(("build_mismatch", message))
            return None
        return build_id


def _columns(program: str, built: Mapping[str, Any], record: Mapping[str, Any], toolchain: str) -> dict[str, str]:
    uses_mpi = program == "hpcq-mpi"
    modules = record.get("modules")
    return {
        "toolchain": toolchain,
        "program": program,
        "version": str(built.get("version") or ""),
        "source_build_id": str(built.get("build_id") or ""),
        "compiler": str(record.get("compiler_version") or record.get("cc") or ""),
        "flags": str(record.get("flags") or ""),
        "mpi": str(record.get("mpi_version") or "") if uses_mpi else "",
        "modules": " ".join(str(one) for one in modules) if isinstance(modules, list) else "",
        "binary_sha256": str(built.get("sha256") or ""),
    }


# ----------------------------------------------------------------------------------------------------------------------
# Rows from the plan and the journal of one cluster; results refer to them.
#
# heads      run, campaign, run_cluster, nodes, build, documents
# jobs       one row per pair of the plan
# attempts   one row per attempt of a pair, from the journal


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
    #: The interface that the plan says; empty: not known.
    network: str = ""


def _steps_of(plan: Mapping[str, Any]) -> Callable[[int], frozenset[tuple[int, int]]]:
    """What a plan wants of the pair or set of nodes at a place. The pairs, of which there may be very many, want the same."""
    sets_end = _plan_ends(plan)
    sets_begin = sets_end - plan.get("node_set_count", 0)
    tests = [Test(**one) for one in plan["tests"]]

    def steps(chosen: Iterable[Test]) -> frozenset[tuple[int, int]]:
        return frozenset((one.test_no, rep) for one in chosen for rep in range(1, plan["repetition_count"] + 1))

    of_pairs = steps(one for one in tests if not of_nodes(one))

    def of_place(index: int) -> frozenset[tuple[int, int]]:
        if not sets_begin <= index < sets_end:
            return of_pairs
        count = len(nodes_of_pair(tuple(plan["pairs"][index])))
        return steps(one for one in tests if of_set(one, count))

    return of_place


def _plan_ends(plan: Mapping[str, Any]) -> int:
    """The place of the first pair that measures a suspect again."""
    return len(plan["pairs"]) - int(plan.get("confirmation_count", 0))


class PlanRows:
    """The rows of a cluster's plan and journal. link.py overrides a few of them."""

    def __init__(
        self, database: sqlite3.Connection, folder: RunFolder, cluster: str, run: Mapping[str, Any], kernels: Kernels
    ) -> None:
        self.cluster = cluster
        self.run_cluster_id = 0
        self.planned_count = 0
        self.notes: list[str] = []
        self._database = database
        self._folder = folder
        self._run = run
        self._names = RowKeys(database, kernels)
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
        run_name = str(self._run.get("run") or self._folder.run)
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
            "suspected_utc": state.suspected_utc,
        }
        self.planned_count = planned["result_count"]
        self.run_cluster_id = self._upsert("run_cluster", {"run_id": run_id, "cluster_id": self._cluster_id}, planned)
        self._plan_nodes(plan)
        self._network = str(plan.get("interface") or "")
        self._database.executemany(
            "INSERT OR REPLACE INTO network (cluster_id, interface, name) VALUES (?, ?, ?)",
            [
                *((self._cluster_id, interface, name) for interface, name in (plan.get("networks_at") or {}).items()),
                *((self._cluster_id, interface, name) for name, interface in (plan.get("networks") or {}).items()),
            ],
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
            "INSERT OR IGNORE INTO skipped_pair (run_cluster_id, client, server, reason) VALUES (?, ?, ?, ?)",
            [
                (self.run_cluster_id, str(one["client"]), str(one["server"]), str(one["reason"]))
                for one in plan.get("not_planned", ())
            ],
        )

    def _document(self, path: Path) -> int | None:
        try:
            return self._names.document(read_regular(path).decode())
        except (OSError, UnicodeDecodeError):
            return None

    def _jobs(self, plan: Mapping[str, Any]) -> dict[str, JobKeys]:
        known = {
            row["name"]: row["job_id"]
            for row in self._database.execute("SELECT * FROM job WHERE run_cluster_id = ?", (self.run_cluster_id,))
        }
        jobs = {}
        steps = _steps_of(plan)
        over, interfaces = plan.get("over") or (), plan.get("interfaces") or {}
        for index, (client, server) in enumerate(plan["pairs"]):
            name = job_name_of(index)
            nodes = {
                "client_node_id": self._node_id(client),
                "server_node_id": self._node_id(server),
            }
            job_id = known.get(name)
            if job_id is None:
                purpose = "plan" if index < _plan_ends(plan) else "confirmation"
                row = {"run_cluster_id": self.run_cluster_id, "name": name, **nodes, "purpose": purpose}
                job_id = self._names.insert("job", row)
            pair = (client, server)
            network = over[index] if over else str(interfaces.get(client, self._network))
            jobs[name] = JobKeys(name, pair, job_id, **nodes, nodes=nodes_of_pair(pair), steps=steps(index), network=network)
        return jobs

    def _test(self, test: Test) -> TestKeys:
        kernel_id = self._names.kernel(test.kernel, test.program)
        return TestKeys(test, kernel_id, self._names.parameter_set(kernel_id, test.telling))

    # -- attempts ---------------------------------------------------------------------------------------------------

    def _attempts(self, jobs: Mapping[str, JobKeys]) -> dict[str, list[tuple[Attempt, int]]]:
        found: dict[str, list[tuple[Attempt, int]]] = {}
        for attempt in self._tries:
            job = jobs.get(attempt.job)
            if job is None:
                self.notes.append(f"journal: {attempt.tag}: job {attempt.job} is not in the plan")
                continue
            attempt_id = self._upsert(
                "attempt",
                {"job_id": job.job_id, "attempt_no": attempt.attempt_no},
                {
                    "tag": attempt.tag,
                    "scheduler_job_id": attempt.scheduler_job_id or None,
                    "state": attempt.state.value if attempt.scheduler_job_id else None,
                    "outcome": attempt.outcome or None,
                    "reason": attempt.reason or None,
                    "nodes": " ".join(attempt.nodes),
                    "exit_code": whole(attempt.exit_code),
                    "committed_utc": attempt.committed_utc,
                    "submitted_utc": attempt.submitted_utc,
                    "started_utc": attempt.started_utc or self._started(attempt),
                    "ended_utc": attempt.ended_utc,
                },
            )
            found.setdefault(attempt.job, []).append((attempt, attempt_id))
        return found

    def _started(self, attempt: Attempt) -> str | None:
        started = read_json_or_none(self._attempt_folder(attempt) / "started.json") or {}
        claimed_utc = utc_or_none(started.get("started_utc"))
        return None if claimed_utc is None else attempt.driver_times.believed(claimed_utc)

    def _attempt_folder(self, attempt: Attempt) -> Path:
        return self._folder.attempt(self.cluster, *(attempt.place or (attempt.job, attempt.attempt_no)))

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

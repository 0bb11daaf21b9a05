"""Run folders as docs/architecture.md describes them, made without a cluster.

Measurements are synthetic; names, nesting and formats are those of the contract. A test changes what it is about:

    folder = RunBuilder(tmp_path / "runs")      two nodes pairs, two kernels, three repetitions
    folder.attempt("j00001", 1)                 a whole attempt: journal, facts, one line a step
    folder.line_path("j00001", 1, 1, 1)         ...whose files the test may then damage
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcq import assets
from hpcq.run_folder.journal import Journal
from hpcq.run_folder.paths import RunFolder, write_json, write_text
from hpcq.store.database import reading
from hpcq.store.load.cluster import ClusterLoad, load_run

START = dt.datetime(2026, 11, 21, 2, 0, tzinfo=dt.UTC)
BUILD_IDS = {"hpcq-net": "net-1111", "hpcq-mpi": "mpi-2222"}

Pair = tuple[str, str]
Step = tuple[int, int]


def utc(seconds: float) -> str:
    """A moment after the run's start."""
    return (START + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def described_kernels() -> dict[str, dict[str, Any]]:
    """The kernels by name as they describe themselves, each with its program."""
    return _described_in(assets.kernel_descriptions())


@functools.cache
def _described_in(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        description = json.loads(path.read_text("utf-8"))
        for kernel in description["kernels"]:
            found[kernel["name"]] = {**kernel, "program": description["program"]}
    return found


def parameters_of(kernel: str, **changed: Any) -> dict[str, Any]:
    """All options of a kernel at their defaults, but for the changed ones."""
    return {option["name"]: option["default"] for option in described_kernels()[kernel]["options"]} | changed


#: Metrics of a companion's round trips and of captures: only tests that ask for one have them.
_ASKED_FOR = (
    *("idle_", "loaded_", "after_", "queueing_", "responsiveness_", "companion_"),
    *("capture_", "client_capture_", "server_capture_"),
)


@dataclass
class RunBuilder:
    """Builds one run folder with one cluster (or more, by `other_cluster`)."""

    runs: Path
    cluster: str = "alpha"
    pairs: Sequence[Pair] = (("n1", "n2"), ("n2", "n1"))
    tests: Sequence[tuple[str, dict[str, Any]]] = (
        ("tcp_stream", {"message_bytes": 65536}),
        ("tcp_pingpong", {"message_bytes": 64}),
    )
    repetition_count: int = 3
    run: str = "nightly-20261121T020000Z-00ff"
    campaign: str = "nightly"
    interface: str = "eth0"
    counter_count: int = 12
    seed: int = 7
    seconds: float = field(default=0.0, init=False)
    _journal: Journal | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder = RunFolder(self.runs / self.run)
        self.random = random.Random(self.seed)
        self.kernels = described_kernels()
        if not self.folder.run_json.exists():
            write_json(self.folder.run_json, self._run_json([self.cluster]))
            write_text(self.folder.campaign_yaml, f"name: {self.campaign}\n")
        write_text(self.folder.cluster_yaml(self.cluster), f"name: {self.cluster}\nscheduler: slurm\n")
        write_json(self.folder.build(self.cluster), self.build_json())
        self.write_plan()
        self.journal("opened")

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def steps(self) -> list[Step]:
        return [(test, rep) for test in range(1, len(self.tests) + 1) for rep in range(1, self.repetition_count + 1)]

    def other_cluster(self, name: str, **changed: Any) -> RunBuilder:
        """The same run on one more cluster."""
        run = json.loads(self.folder.run_json.read_text())
        write_json(self.folder.run_json, {**run, "clusters": [*run["clusters"], name]})
        same: dict[str, Any] = {"tests": self.tests, "pairs": self.pairs, "repetition_count": self.repetition_count}
        return RunBuilder(self.runs, cluster=name, run=self.run, campaign=self.campaign, **(same | changed))

    def tag(self, job_id: str, attempt_no: int) -> str:
        return f"hpcq-{self.run}-{self.cluster}-{job_id}-{attempt_no}"

    def journal(self, event: str, **fields: Any) -> None:
        """Append one event."""
        with self.journal_open() as journal:
            journal.append(event, **{"utc": utc(self.seconds), **fields})

    @contextmanager
    def journal_open(self) -> Iterator[Journal]:
        """The journal, opened for an event or two; or for all of them, within another such block."""
        if self._journal is not None:
            yield self._journal
            return
        with Journal(self.folder.journal(self.cluster)) as journal:
            self._journal = journal
            try:
                yield journal
            finally:
                self._journal = None

    def submit(self, job_id: str, attempt_no: int = 1) -> None:
        """Up to a submission that the scheduler accepted."""
        pair = self.pairs[int(job_id[1:]) - 1]
        tag, now = self.tag(job_id, attempt_no), {"utc": utc(self.seconds)}
        with self.journal_open() as journal:
            journal.append_all(
                [
                    {"event": "attempt", "job": job_id, "attempt_no": attempt_no, "tag": tag, "nodes": list(pair)} | now,
                    {"event": "submitted", "tag": tag, "scheduler_job_id": str(100 + int(job_id[1:]))} | now,
                ]
            )

    def end(self, job_id: str, attempt_no: int = 1, outcome: str = "completed", reason: str = "") -> None:
        """The end of an attempt, as the driver writes it down."""
        tag = self.tag(job_id, attempt_no)
        pair = list(self.pairs[int(job_id[1:]) - 1])
        times = {"started_utc": utc(self.seconds), "ended_utc": utc(self.seconds + 9)}
        ending = {"outcome": outcome, "reason": reason, "nodes": pair, "rc": 0 if outcome == "completed" else 1}
        self.journal("ended", tag=tag, measured=[], **ending, **times, utc=utc(self.seconds + 10))

    def attempt(self, job_id: str, attempt_no: int = 1, *, steps: Iterable[Step] | None = None) -> Path:
        """A completed attempt with a valid line for each step; returns its folder."""
        self.submit(job_id, attempt_no)
        folder = self.measure(job_id, attempt_no, steps=steps)
        self.end(job_id, attempt_no)
        return folder

    def measure(self, job_id: str, attempt_no: int = 1, *, steps: Iterable[Step] | None = None) -> Path:
        """Only the files of an attempt."""
        folder = self.folder.attempt(self.cluster, job_id, attempt_no)
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.pairs[int(job_id[1:]) - 1]:
            (folder / f"facts-{node}.json").write_text(json.dumps(self.facts(node)))
        for step in steps if steps is not None else self.steps:
            self.write_line(job_id, attempt_no, step, self.line(job_id, step))
        return folder

    def everything(self) -> None:
        """Every job completes at its first attempt, and the journal is closed."""
        with self.journal_open():
            for number in range(1, len(self.pairs) + 1):
                self.attempt(f"j{number:05d}")
            self.journal("closed")

    def line_path(self, job_id: str, attempt_no: int, test_no: int, repetition_no: int) -> Path:
        return self.folder.attempt(self.cluster, job_id, attempt_no) / f"t{test_no}-r{repetition_no}.json"

    def write_line(self, job_id: str, attempt_no: int, step: Step, line: dict[str, Any], rc: int = 0) -> Path:
        """One measurement's three files."""
        path = self.line_path(job_id, attempt_no, *step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(line) + "\n")
        path.with_suffix(".err").write_text("")
        self.seconds += 1
        status = {"rc": rc, "started_utc": utc(self.seconds), "ended_utc": utc(self.seconds + 1)}
        path.with_suffix(".status").write_text(json.dumps(status) + "\n")
        return path

    def line(self, job_id: str, step: Step, **changed: Any) -> dict[str, Any]:
        """A valid result line."""
        kernel, parameters = self.planned(step[0])
        client, server = self.pairs[int(job_id[1:]) - 1]
        description = self.kernels[kernel]
        return {
            "format": 1,
            "kernel": kernel,
            "program": description["program"],
            "version": "1.0.0",
            "build_id": BUILD_IDS.get(description["program"], "fabric-3333"),
            "options": parameters,
            "granted": {"client_send_buffer_bytes": 425984, "mss_bytes": 1448, "congestion_control": "cubic"},
            "valid": True,
            "invalid_reason": None,
            "exit_code": 0,
            "error": None,
            "started_utc": utc(self.seconds),
            "duration_ns": 1_000_000_000,
            "metrics": self.metrics(kernel, parameters["message_bytes"]),
            "warnings": [],
            "samples": {"file": f"t{step[0]}-r{step[1]}.samples", "format": "u64-ns-le", "count": 1000},
            "histogram": {"unit": "ns", "buckets": [[50_000, 900], [60_000, 90], [120_000, 10]]},
            "series": {"interval_ms": 100, "throughput_bps": [1e8, 2e8, 2e8], "retransmit_count": [3, None, 0]},
            "evidence": {"client": self.evidence(client, 1), "server": self.evidence(server, 2)},
        } | changed

    def metrics(self, kernel: str, size_bytes: int) -> dict[str, float]:
        """Plausible numbers: 200 Mbit/s and 70 us, with some noise."""
        noise = 1 + self.random.gauss(0, 0.02)
        rtt_ns = (70_000 + size_bytes * 80) * noise
        values = {"throughput_bps": 2e8 * size_bytes / (size_bytes + 3000) * noise}
        for number, share in enumerate(("min", "p50", "p90", "p99", "p999", "max"), 8):
            values[f"round_trip_{share}_ns"] = rtt_ns * number / 9
        names = [metric["name"] for metric in self.kernels[kernel]["metrics"] if not metric["name"].startswith(_ASKED_FOR)]
        return {name: values.get(name, 0.0 if name.startswith("lost") else 0.25) for name in names}

    def evidence(self, node: str, last: int) -> dict[str, Any]:
        """One end's evidence."""
        names = [f"netstat.TcpExt.Counter{number}" for number in range(self.counter_count)]
        counters = {
            f"net_dev.{self.interface}.rx_bytes": 25_000_000 + last,
            f"net_dev.{self.interface}.tx_bytes": 400_000,
            "stat.cpu.user_ticks": 40,
            "softirqs.cpu0.NET_RX": 1800,
            **{name: self.random.randrange(1, 5000) for name in names},
        }
        return {
            "node": node,
            "address": f"10.0.0.{last}",
            "interface": self.interface,
            "pid": 4000 + last,
            "cpu_index": 0,
            "boot_id": f"boot-of-{node}",
            "before_utc": utc(self.seconds),
            "after_utc": utc(self.seconds + 1),
            "interval_ns": 1_000_100_000,
            "snapshot_cost_ns": [400_000, 410_000],
            "counters": counters,
            "gauges": {"meminfo.memory.MemFree_bytes": [10**9, 10**9 - 4096], "loadavg.all.one": 0.25},
            "unavailable": {"schedstat": "ENOENT"},
        }

    def facts(self, node: str) -> dict[str, Any]:
        """A node's facts, nested as a program would print them."""
        return {
            "kernel": {"release": "6.1.0-26-amd64", "cmdline": "quiet", "smt": True},
            "boot": {"id": f"boot-of-{node}", "boot_utc": utc(-86400)},
            "nic": [{"name": self.interface, "driver": "mlx5_core", "mtu_bytes": 1500, "speed_bps": 10**11}],
            "sysctl": {"net.core.rmem_max": 4194304, "net.ipv4.tcp_rmem": [4096, 131072, 6291456]},
        }

    def planned(self, test_no: int) -> tuple[str, dict[str, Any]]:
        """Kernel and complete parameters of a test."""
        kernel, changed = self.tests[test_no - 1]
        return kernel, parameters_of(kernel, **changed)

    def write_plan(self, **changed: Any) -> None:
        """plan.json; written when the builder is made, and again where a test wants it otherwise."""
        nodes = sorted({node for pair in self.pairs for node in pair})
        planned = [(number, *self.planned(number)) for number in range(1, len(self.tests) + 1)]
        plan = {
            "format": 1,
            "run": self.run,
            "campaign": self.campaign,
            "cluster": self.cluster,
            "interface": self.interface,
            "seed": self.seed,
            "candidates": [{"node": node, "state": "idle"} for node in nodes],
            "excluded": [{"node": "n9", "reason": "state drained"}],
            "tests": [
                {"test_no": number, "kernel": kernel, "program": "hpcq-net", "parameters": parameters, "timeout_s": 30}
                for number, kernel, parameters in planned
            ],
            "repetition_count": self.repetition_count,
            "walltime_s": 120,
            "attempt_count_max": 2,
            "pairs": [list(pair) for pair in self.pairs],
            "not_planned": [{"client": "n1", "server": "n9", "reason": "n9: state drained"}],
            "goals": {
                "pair_count": len(self.pairs),
                "result_count": len(self.pairs) * len(self.steps),
                "node_pair_count_min": 1,
            },
            "cost": {"job_count": len(self.pairs), "estimated_job_s": 30.0, "node_seconds": 60.0 * len(self.pairs)},
        }
        write_json(self.folder.plan(self.cluster), plan | changed)

    def build_json(self, **changed: Any) -> dict[str, Any]:
        """What the build stage leaves."""
        return {
            "format": 1,
            "cluster": self.cluster,
            "root": f"/scratch/{self.run}",
            "built_utc": utc(-30),
            "host": "login1",
            "modules": ["gcc/12", "openmpi/4.1"],
            "cc": "cc",
            "compiler_version": "cc (Debian 12.2.0-14) 12.2.0",
            "cflags": [],
            "flags": "-O2 -std=c11",
            "mpi_version": "mpicc: Open MPI 4.1.4 (Language: C)",
            "programs": {
                program: {"sha256": f"{number:064x}", "version": "1.0.0", "build_id": BUILD_IDS[program]}
                for number, program in enumerate(BUILD_IDS, 1)
            },
        } | changed

    def _run_json(self, clusters: list[str]) -> dict[str, Any]:
        return {
            "format": 1,
            "run": self.run,
            "campaign": self.campaign,
            "clusters": clusters,
            "seed": self.seed,
            "created_utc": utc(-60),
            "hpcq_version": "1.0.0",
            "database": "results.db",
        }


def load(database: Path, builder: RunBuilder) -> ClusterLoad:
    """Load one cluster; the four counts always add up."""
    [loaded] = load_run(database, builder.path, clusters=[builder.cluster]).clusters
    counted = loaded.measured_count + loaded.invalid_count + loaded.failed_count + loaded.not_measured_count
    assert counted == loaded.planned_count
    return loaded


def ask(database: Path, sql: str, *values: Any) -> list[Any]:
    """The rows of a query: tuples, or plain values where there is one column."""
    with reading(database) as connection:
        rows = [tuple(row) for row in connection.execute(sql, values)]
    return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows

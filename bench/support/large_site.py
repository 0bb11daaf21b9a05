"""A synthetic site as loading would leave it: 1,000 nodes, ten million metrics, and a last run of 100,000 results.

    nights      each night 500 pairs play the ten tests twice
    last run    10,000 pairs play the ten tests once; its page is the largest that hpcq must write

Node n13 is at 80 % in the last run, 2 % of its results are disturbed, 0.5 % invalid, and 1 % carry a finding. Every
result has the evidence of both ends; a few hundred drawn blocks stand for all.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcq.kernels import own_kernels
from hpcq.store.blocks import BlockWriter, Content
from hpcq.store.database import Connection, transaction, writing
from hpcq.store.load.row_keys import RowKeys

#: Kernel and message size of each test.
TESTS = (
    *(("tcp_stream", size) for size in (1024, 16384, 262144, 1048576)),
    *(("udp_stream", size) for size in (1400, 8192)),
    *(("tcp_pingpong", size) for size in (64, 4096)),
    *(("mpi_pingpong", size) for size in (64, 1048576)),
)
#: Each result has so many metrics, whatever its kernel could have.
METRICS = 10
LEAF_NODES = 32
SLOW = "n0013"
_PARTS = (
    "run_cluster_id, run_id, cluster_id, document_id, repetition_count, pair_count, result_count, opened_utc, closed_utc,"
    " loaded_utc"
)
#: So many results of a run get evidence of their own; the others have that of one of these. A multiple of the tests.
DRAWN = 400
COUNTERS = (
    *(f"softirqs.{name}.cpu{cpu}" for name in ("NET_RX", "NET_TX", "TIMER", "SCHED", "RCU", "HRTIMER") for cpu in range(4)),
    *(f"interrupts.{name}.cpu{cpu}" for name in ("LOC", "RES", "CAL") for cpu in range(4)),
    *(f"netstat.TcpExt.{name}" for name in ("TCPHPAcks", "TCPOrigDataSent", "TCPDelivered", "DelayedACKs", "TCPRcvCoalesce")),
    *(f"snmp.Tcp.{name}" for name in ("InSegs", "OutSegs")),
    *(f"snmp.Ip.{name}" for name in ("InReceives", "InDelivers", "OutRequests")),
    *(f"net_dev.eth0.{name}" for name in ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")),
    *(f"vmstat.node.{name}" for name in ("numa_hit", "numa_local", "pgalloc_normal", "pgfree", "pgfault")),
    *(f"stat.cpu.{name}_ticks" for name in ("user", "system", "idle", "softirq")),
    *(f"stat.cpu{cpu}.{name}_ticks" for cpu in range(4) for name in ("user", "system", "idle")),
    *(f"self.{name}" for name in ("schedstat.run_ns", "schedstat.wait_ns", "schedstat.slices", "rusage.system_us")),
)
GAUGES = (
    *(f"meminfo.node.{name}_bytes" for name in ("MemTotal", "MemFree", "MemAvailable", "Cached", "Dirty")),
    *(f"loadavg.node.{name}" for name in ("1min", "5min", "15min")),
    *(f"sockstat.TCP.{name}" for name in ("inuse", "orphan", "tw", "alloc", "mem")),
    *("stat.node.boot_time_s", "clock.wall_minus_monotonic_us", "self.tcp_info.min_round_trip_us"),
)
GRANTED = tuple(
    f"{end}_{name}"
    for end in ("client", "server")
    for name in (
        "mss_bytes",
        "send_buffer_bytes",
        "receive_buffer_bytes",
        "dscp",
        "hop_limit_count",
        "no_delay",
        "clock_source",
    )
)
INTERVALS = ("throughput_bps", "congestion_window_bytes", "tcp_round_trip_ns", "delivery_rate_bps", "retransmit_count")
_FACTS = {f"net.core.knob_{number}": number for number in range(300)}


@dataclass(frozen=True, slots=True)
class Size:
    """How large to make it."""

    nodes: int = 1000
    nights: int = 90
    night_repetitions: int = 2
    last_pairs: int = 10_000

    @property
    def result_count(self) -> int:
        """Return the number of results, the last run's among them."""
        return (self.nights * (self.nodes // 2) * self.night_repetitions + self.last_pairs) * len(TESTS)


@dataclass(slots=True)
class _Keys:
    """Keys that rows refer to."""

    kernels: list[int] = field(default_factory=list)
    metrics: list[list[int]] = field(default_factory=list)
    parameters: list[tuple[int, str]] = field(default_factory=list)
    series: dict[tuple[int, int, int], int] = field(default_factory=dict)
    build: int = 0
    run: int = 0
    job: int = 0
    result: int = 0


def make_site(path: Path, size: Size, seed: int) -> None:
    """Fill a database."""
    random = np.random.default_rng(seed)
    begin = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0) - dt.timedelta(days=size.nights)
    with writing(path) as database, transaction(database):
        keys = _heads(database, size)
        for night in range(size.nights):
            ends = random.permutation(size.nodes) + 1
            pairs = [(int(a), int(b)) for a, b in ends[: size.nodes // 2 * 2].reshape(-1, 2)]
            at = begin + dt.timedelta(days=night)
            _run(database, keys, random, at, pairs, name="nightly", repetitions=size.night_repetitions)
        at = begin + dt.timedelta(days=size.nights)
        _run(database, keys, random, at, _many_pairs(random, size), name="survey", repetitions=1)
    with writing(path) as database:
        database.execute("ANALYZE")


def _many_pairs(random: np.random.Generator, size: Size) -> list[tuple[int, int]]:
    found: dict[tuple[int, int], None] = {}
    while len(found) < size.last_pairs:
        ends = random.permutation(size.nodes) + 1
        found.update(dict.fromkeys((int(a), int(b)) for a, b in ends[: size.nodes // 2 * 2].reshape(-1, 2)))
    return list(found)[: size.last_pairs]


def _heads(database: Connection, size: Size) -> _Keys:
    rows, keys = RowKeys(database, own_kernels()), _Keys()
    cluster = rows.row("cluster", name="alpha")
    rows.row("campaign", name="nightly")
    rows.row("campaign", name="survey")
    for kernel, message_bytes in TESTS:
        described = own_kernels()[kernel]
        kernel_id = rows.kernel(kernel, described.program)
        parameters = {one.name: one.default for one in described.options} | {"message_bytes": message_bytes}
        keys.kernels.append(kernel_id)
        names = sorted(described.metrics, key=lambda one: one.better.value == "none")[:METRICS]
        keys.metrics.append([rows.metric_name(kernel_id, one.name) for one in names])
        keys.parameters.append((rows.parameter_set(kernel_id, parameters), json.dumps({"message_bytes": message_bytes})))
    width = len(str(size.nodes))
    leaf_of = "INSERT INTO node_group VALUES (?, 'leaf', '2026-01-01T00:00:00Z', ?)"
    for number in range(1, size.nodes + 1):
        node_id = rows.node(cluster, f"n{number:0{width}d}")
        database.execute(leaf_of, (node_id, f"leaf{(number - 1) // LEAF_NODES + 1:02d}"))
    digest = hashlib.sha256(b"build").digest()
    words = {"toolchain": "default", "program": "hpcq-net", "version": "1", "source_build_id": "1", "compiler": "gcc 13"}
    more = {"flags": "-O2", "mpi": "", "modules": "", "binary_sha256": "00"}
    database.execute(
        "INSERT INTO endpoint SELECT node_id, node_id, name, 'eth0', '10.0.' || node_id / 250 || '.' || node_id % 250 FROM node"
    )
    database.execute(
        "INSERT INTO node_boot SELECT node_id, node_id, 'boot-of-' || name, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z'"
        " FROM node"
    )
    keys.build = rows.row("build", cluster_id=cluster, sha256=digest, **words, **more)
    rows.rule("receive_buffer_full", "The receiver's socket buffer was full.", "Ask for a larger one.", "tcp(7)")
    rows.fact_set(_facts("mlx5_core"))
    rows.fact_set(_facts("ice"))
    return keys


def _facts(driver: str) -> dict[str, Any]:
    nic = {"eth0.driver": driver, "eth0.speed_bps": 100_000_000_000, "eth0.mtu_bytes": 9000}
    return {"sysctl": _FACTS, "nic": nic, "kernel": {"release": "6.1.0"}, "cpu": {"model": "64 cores"}}


def _run(
    database: Connection,
    keys: _Keys,
    random: np.random.Generator,
    at: dt.datetime,
    pairs: list[tuple[int, int]],
    *,
    name: str,
    repetitions: int,
) -> None:
    moment = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    keys.run += 1
    campaign = 1 if name == "nightly" else 2
    row = (keys.run, f"{name}-{at:%Y%m%dT%H%M%SZ}-0000", campaign, moment)
    database.execute("INSERT INTO run VALUES (?, ?, ?, NULL, ?, 1, '1', 'campaign')", row)
    count = len(pairs) * len(TESTS) * repetitions
    head = (keys.run, keys.run, repetitions, len(pairs), count, moment, moment, moment)
    database.execute(f"INSERT INTO run_cluster ({_PARTS}) VALUES (?, ?, 1, NULL, ?, ?, ?, ?, ?, ?)", head)
    jobs = [(keys.job + number, client, server) for number, (client, server) in enumerate(pairs, 1)]
    database.executemany(
        "INSERT INTO job (job_id, run_cluster_id, name, client_node_id, server_node_id) VALUES (?, ?, ?, ?, ?)",
        ((job, keys.run, f"j{job - keys.job:05d}", client, server) for job, client, server in jobs),
    )
    starts = [(at + dt.timedelta(seconds=10 * number)).strftime("%Y-%m-%dT%H:%M:%S") for number in range(len(pairs))]
    database.executemany(
        "INSERT INTO attempt (attempt_id, job_id, attempt_no, tag, scheduler_job_id, outcome, nodes, committed_utc,"
        " submitted_utc, started_utc, ended_utc) VALUES (?, ?, 1, ?, ?, 'completed', ?, ?, ?, ?, ?)",
        (
            (job, job, f"hpcq-{job}", str(job), f"{client} {server}", *[f"{start}Z"] * 4)
            for (job, client, server), start in zip(jobs, starts, strict=True)
        ),
    )
    facts = ((job, node, 1 if node % 7 else 2) for job, client, server in jobs for node in (client, server))
    database.executemany("INSERT INTO node_facts VALUES (?, ?, ?)", facts)
    results = list(_results(keys, random, jobs, starts, repetitions))
    new = [row for row in keys.series.items() if row[1] > _series_there(database)]
    database.executemany(
        "INSERT INTO series VALUES (?, ?, ?, ?, ?, 'eth0', 'default')",
        ((key, keys.kernels[test], keys.parameters[test][1], client, server) for (test, client, server), key in new),
    )
    database.executemany(
        f"INSERT INTO ingest_file VALUES (?, {keys.run}, 'alpha/jobs/j' || ? || '/1/t' || ? || '-r' || ? || '.json',"
        " randomblob(32))",
        ((row[0], f"{row[1] - keys.job:05d}", row[2], row[3]) for row in results),
    )
    database.executemany(
        "INSERT INTO result (result_id, job_id, test_no, repetition_no, attempt_id, final, series_id, parameter_set_id,"
        " outcome, reason, started_utc, duration_ns, exit_code, disturbed, crossed_interface, rules_version, build_id,"
        f" ingest_file_id) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, 1000000000, 0, ?, 'yes', 1, {keys.build}, ?1)",
        results,
    )
    _numbers(database, keys, random, results, jobs)
    _evidence(database, random, results, count > 100_000 or name == "survey")
    keys.job += len(pairs)
    keys.result += len(results)


def _series_there(database: Connection) -> int:
    return int(database.execute("SELECT coalesce(max(series_id), 0) FROM series").fetchone()[0])


def _results(
    keys: _Keys, random: np.random.Generator, jobs: list[tuple[int, int, int]], starts: list[str], repetitions: int
) -> Iterator[tuple[Any, ...]]:
    lots = random.random(len(jobs) * len(TESTS) * repetitions)
    number = 0
    for (job, client, server), start in zip(jobs, starts, strict=True):
        for test in range(len(TESTS)):
            series = keys.series.setdefault((test, client, server), len(keys.series) + 1)
            for repetition in range(1, repetitions + 1):
                bad = lots[number] < 0.005
                outcome = ("invalid", "fewer than two datagrams arrived") if bad else ("measured", None)
                number += 1
                place = (keys.result + number, job, test + 1, repetition, job, series, keys.parameters[test][0])
                yield *place, *outcome, f"{start}.{number % 1000000:06d}Z", int(lots[number - 1] > 0.98)


def _numbers(
    database: Connection,
    keys: _Keys,
    random: np.random.Generator,
    results: list[tuple[Any, ...]],
    jobs: list[tuple[int, int, int]],
) -> None:
    """Metrics of all results, histograms of ping-pongs, and findings."""
    ends = {job: (client, server) for job, client, server in jobs}
    noise = 1 + 0.02 * random.standard_normal(len(results))
    last = len(jobs) > 1000

    def metrics() -> Iterator[tuple[int, int, float]]:
        for row, factor in zip(results, noise.tolist(), strict=True):
            if row[7] == "measured":
                test = row[2] - 1
                level = 0.8 if last and 13 in ends[row[1]] else 1.0
                value = 2e9 * (test + 1) * level * factor if "stream" in TESTS[test][0] else 2e4 * (test + 1) / level * factor
                for metric in keys.metrics[test]:
                    yield row[0], metric, value

    database.executemany("INSERT INTO metric VALUES (?, ?, ?)", metrics())
    measured = [row for row in results if row[7] == "measured"]
    found = ((row[0], 1, 1, "receive buffer 212,992 B: 40 drops", '{"drops":40}') for row in measured[::100])
    database.executemany("INSERT INTO result_finding VALUES (?, ?, ?, ?, ?)", found)


def _evidence(database: Connection, random: np.random.Generator, results: list[tuple[Any, ...]], histograms: bool) -> None:
    """Where each result ran, and its block."""
    writer = BlockWriter(database, RowKeys(database, own_kernels()).evidence_name)
    levels = [random.lognormal(6, 2.5, len(COUNTERS)) for _ in range(2)]
    for row in results[:DRAWN]:
        writer.add(row[0], _content(random, levels, row, histogram=histograms and row[2] in {7, 8}))
    writer.flush()
    first, last, drawn = results[0][0], results[-1][0], min(DRAWN, len(results))
    database.execute(
        "INSERT INTO evidence SELECT x.result_id, e.layout_id, e.counter_count, e.json_bytes, e.block FROM result x"
        " JOIN evidence e ON e.result_id = ?1 + (x.result_id - ?1) % ?3 WHERE x.result_id BETWEEN ?1 + ?3 AND ?2",
        (first, last, drawn),
    )
    for end_index, end in enumerate(("client", "server")):
        database.execute(
            f"INSERT INTO evidence_end SELECT x.result_id, {end_index}, j.{end}_node_id, j.{end}_node_id, 1, NULL FROM result x"
            " JOIN job j ON j.job_id = x.job_id WHERE x.result_id BETWEEN ?1 AND ?2",
            (first, last),
        )


def _content(random: np.random.Generator, levels: list[Any], row: tuple[Any, ...], *, histogram: bool) -> Content:
    begun = row[9] or "2026-01-01T00:00:00.000000Z"
    found = Content()
    for end in range(2):
        costs = random.integers(400_000, 2_000_000, 2).tolist()
        found.ends[end] = (int(random.integers(1000, 60_000)), end, begun, begun, 1_000_000_000 + costs[0], *costs)
        moved = (levels[end] * random.lognormal(0, 0.3, len(COUNTERS)) * (random.random(len(COUNTERS)) > 0.1)).astype(int)
        values = {("ends", "counter", name): value for name, value in zip(COUNTERS, moved.tolist(), strict=True) if value}
        read = random.integers(1, 10**9, len(GAUGES)).tolist()
        found.readings[end] = values | {("ends", "gauge", name): value for name, value in zip(GAUGES, read, strict=True)}
    found.granted = {("granted", "granted", name): 131_072 + 64 * int(random.integers(3)) for name in GRANTED}
    found.intervals = [("intervals", "interval", name) for name in INTERVALS]
    found.rows = {100 * number: random.integers(1, 10**9, len(INTERVALS)).tolist() for number in range(3)}
    if histogram:
        found.histogram_unit = "ns"
        found.buckets = {15000 + 1000 * step: 400 - 30 * step for step in range(12)}
    return found

"""Queries of acceptance and blame: which pairs ran, what they lost, names of tests, sleep and boots.

losses_in(database, run_ids)      per series and job, the share of packets that did not arrive
sleep_in(database, run_ids)       per test, in how many results a CPU slept deeply
boots_in(database, run_ids)       per node, its boots in the order in which they were seen
"""

# ruff: noqa: S608 - queries are put together from our own column names; values are always bound

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from hpcq.errors import UserError
from hpcq.kernels import size_text
from hpcq.store.database import Connection
from hpcq.store.query import variant_names

#: The rule that says that a CPU was in a deep idle state while it measured a round trip.
SLEEP_RULE = "deep_sleep"
#: Segment size of a TCP connection that did not report it: Ethernet's, with time stamps.
_MSS_BYTES = 1448
_LOSS_METRICS = ("lost_ratio", "retransmit_count", "sent_bytes", "operation_count")


def pairs_of(database: Connection, cluster: str, run_ids: Sequence[int] | None) -> list[tuple[str, str]]:
    """Pairs that were measured on a cluster in these runs (None: in any), the latest first."""
    marks = "" if run_ids is None else f" AND p.run_id IN ({_ids(run_ids)})"
    rows = database.execute(
        f"SELECT p.client, p.server FROM v_pairs p WHERE p.cluster = ?{marks} GROUP BY p.client, p.server"
        " ORDER BY max(p.run_created_utc) DESC, p.client, p.server",
        (cluster,),
    )
    return [(str(row[0]), str(row[1])) for row in rows]


def losses_in(database: Connection, run_ids: Sequence[int], cluster: str) -> dict[int, dict[tuple[str, str], float]]:
    """By series_id, then by (run, job): the median share of packets that did not arrive, 0 to 1.

    For datagrams as the kernel counted them; for TCP the retransmitted share. Tests that cannot know are left out.
    """
    parts = ", ".join(f"max(CASE WHEN h.metric = '{name}' THEN h.value END) AS {name}" for name in _LOSS_METRICS)
    mss = "SELECT g.value FROM v_granted g WHERE g.result_id = h.result_id AND g.granted = 'client_mss_bytes'"
    found: dict[int, dict[tuple[str, str], list[float]]] = {}
    for row in database.execute(
        f"SELECT h.series_id, h.run, h.job, {parts}, ({mss}) AS mss_bytes FROM v_history h"
        f" WHERE h.cluster = ? AND h.metric IN ({', '.join(repr(name) for name in _LOSS_METRICS)})"
        f" AND h.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)}))"
        " GROUP BY h.series_id, h.run, h.job, h.result_id",
        (cluster,),
    ):
        lost = _lost_ratio(row)
        if lost is not None:
            found.setdefault(row["series_id"], {}).setdefault((row["run"], row["job"]), []).append(min(1.0, lost))
    return {series: {job: median(values) for job, values in jobs.items()} for series, jobs in found.items()}


def _lost_ratio(row: Any) -> float | None:
    """Of datagrams as counted; of a TCP stream, segments sent again; of its ping-pong, two packets per operation."""
    if row["lost_ratio"] is not None:
        return float(row["lost_ratio"])
    if row["retransmit_count"] is None:
        return None
    if row["sent_bytes"]:
        return float(row["retransmit_count"] * float(row["mss_bytes"] or _MSS_BYTES) / row["sent_bytes"])
    if row["operation_count"]:
        return float(row["retransmit_count"] / (2 * row["operation_count"]))
    return None


def sleep_in(database: Connection, run_ids: Sequence[int], cluster: str) -> dict[str, str]:
    """By name of a test, in words in how many of its results a CPU slept deeply; only tests where one did.

    Waking takes tens of microseconds, so a round trip has one level per idle state, often the same for all of a job.
    """
    names = names_of_tests(database, run_ids)
    counts: dict[str, tuple[int, int]] = {}
    for row in database.execute(
        "SELECT v.kernel, s.parameters, s.network, s.toolchain, count(*) AS of_count,"
        " sum(EXISTS (SELECT 1 FROM result_finding f JOIN rule r"
        f" ON r.rule_id = f.rule_id WHERE f.result_id = v.result_id AND r.name = '{SLEEP_RULE}')) AS n"
        " FROM v_results v JOIN series s ON s.series_id = v.series_id WHERE v.cluster = ? AND v.outcome = 'measured'"
        f" AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)})) "
        " GROUP BY v.kernel, s.parameters, s.network, s.toolchain",
        (cluster,),
    ):
        name = names[str(row["kernel"]), str(row["parameters"]), str(row["network"]), str(row["toolchain"])]
        slept, of = counts.get(name, (0, 0))
        counts[name] = (slept + int(row["n"]), of + int(row["of_count"]))
    return {name: f"a CPU slept deeply in {slept} of {of} results" for name, (slept, of) in counts.items() if slept}


def boots_in(database: Connection, run_ids: Sequence[int], cluster: str) -> dict[str, list[tuple[str, str]]]:
    """By node, its boots in these runs as (boot id, first seen UTC), in the order in which they were seen."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in database.execute(
        "SELECT e.node, e.boot_id, min(v.started_utc) AS seen_utc FROM v_ends e JOIN v_results v ON v.result_id = e.result_id"
        " WHERE v.cluster = ? AND e.boot_id IS NOT NULL AND v.started_utc IS NOT NULL"
        f" AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)}))"
        " GROUP BY e.node, e.boot_id ORDER BY seen_utc",
        (cluster,),
    ):
        found.setdefault(str(row["node"]), []).append((str(row["boot_id"]), str(row["seen_utc"])))
    return found


def results_of_node(database: Connection, cluster: str, node: str, run_ids: Sequence[int], most: int = 10) -> list[int]:
    """Newest measured results of a node in these runs: at most `most` as client, and as many as server.

    Both roles, because facts are compared with those of the same end, and a baseline may have the node at one end only.
    """
    found: list[int] = []
    for end in ("client", "server"):
        rows = database.execute(
            f"SELECT v.result_id FROM v_results v WHERE v.cluster = ?1 AND v.{end} = ?2 AND v.outcome = 'measured'"
            f" AND v.run IN (SELECT name FROM run WHERE run_id IN ({_ids(run_ids)})) ORDER BY v.started_utc DESC LIMIT ?3",
            (cluster, node, most),
        )
        found += [int(row[0]) for row in rows]
    return found


def cluster_of(database: Connection, runs: Sequence[str], wanted: str | None) -> str:
    """The cluster that these runs measured; with several, the one named by `wanted`.

    Raises UserError that lists them.
    """
    marks = ", ".join("?" * len(runs))
    found = [str(row[0]) for row in database.execute(
        f"SELECT DISTINCT cluster FROM v_runs WHERE run IN ({marks}) ORDER BY cluster", list(runs)
    )]  # fmt: skip
    if wanted in found or (wanted is None and len(found) == 1):
        return wanted or found[0]
    said = "several clusters" if wanted is None else repr(wanted)
    raise UserError(f"--cluster: {said}: {', '.join(found)} were measured", f"--cluster {found[0]}" if found else None)


def names_of_tests(database: Connection, run_ids: Sequence[int]) -> dict[tuple[str, str, str, str], str]:
    """By (kernel, parameters of the series, network, toolchain): `tcp_stream 64 KiB`, unlike the kernel's other tests.

    Where some pair was measured over several networks, `tcp_stream 64 KiB over ib0`, and with several toolchains,
    `mpi_pingpong 64 KiB with intel`: each is a test of its own.
    """
    sizes: dict[tuple[str, str], str] = {}
    ways: set[tuple[str, str, str, str]] = set()
    series = (
        "FROM result x JOIN v_pairs p ON p.job_id = x.job_id JOIN series s ON s.series_id = x.series_id"
        " JOIN kernel k ON k.kernel_id = s.kernel_id JOIN parameter_set ps ON ps.parameter_set_id = x.parameter_set_id"
        f" WHERE p.run_id IN ({_ids(run_ids)})"
    )
    query = f"SELECT DISTINCT k.name AS kernel, s.parameters, s.network, s.toolchain, ps.message_bytes {series}"
    for row in database.execute(query):
        test = (str(row["kernel"]), str(row["parameters"]))
        sizes[test] = size_text(row["message_bytes"])
        ways.add((*test, str(row["network"]), str(row["toolchain"])))
    apart: dict[str, set[tuple[str, str]]] = {"network": set(), "toolchain": set()}
    for column, tests in apart.items():
        if len({(*one[:2], one[2 if column == "network" else 3]) for one in ways}) == len(sizes):
            continue  # else nodes may differ, each with one of its own
        pairs = f"GROUP BY s.kernel_id, s.parameters, s.client_node_id, s.server_node_id HAVING count(DISTINCT s.{column}) > 1"
        rows = database.execute(f"SELECT DISTINCT k.name AS kernel, s.parameters {series} {pairs}")
        tests |= {(str(row["kernel"]), str(row["parameters"])) for row in rows}
    variants = variant_names(sizes)
    found: dict[tuple[str, str, str, str], str] = {}
    for kernel, parameters, network, toolchain in ways:
        test = (kernel, parameters)
        over = f"over {network}" if test in apart["network"] else ""
        by = f"with {toolchain}" if test in apart["toolchain"] else ""
        found[kernel, parameters, network, toolchain] = " ".join(
            one for one in (kernel, sizes[test], variants[test], over, by) if one
        )
    return found


def _ids(run_ids: Sequence[int]) -> str:
    return ", ".join(str(int(one)) for one in run_ids)

"""Two generations: beta's machines run Debian 13 (Slurm 24.11, Open MPI 5, PMIx 5) beside alpha's Debian 12.

What holds on one generation holds here on both, and between them. The first run on a machine makes the root file system;
`tools/run_tests` begins with that, and the lab waits for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.heads_in_lab import typed_in_readme, typed_on_head
from tests.lab.lab_fixture import PROGRAM, RunningLab, lab_command
from tests.lab.lab_programs import MPI_BYTES, MPI_ENVIRONMENT, MPI_PROGRAM
from tests.lab.test_lab import eth0_bytes
from tests.local.desk import assert_clean
from tests.schedulers.scheduler_contract import PROMISES, Site, slurm_site

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

PAIRS = """
clusters: [alpha, beta]
pairs: {rounds: 1}
repetitions: 1
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: mpi_pingpong, parameters: {duration_s: 200ms, warmup_s: 50ms, message_bytes: 32KiB}}
"""
TOURNAMENT = """
clusters: [beta]
pairs: all
allocation: whole
repetitions: 1
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: udp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms}}
  - {kernel: mpi_pingpong, parameters: {duration_s: 200ms, warmup_s: 50ms, message_bytes: 32KiB}}
"""
LINK = """
clusters: [alpha, beta]
links: [{from: alpha, to: beta, pairs: 2}]
repetitions: 1
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 100ms}}
  - {kernel: udp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms}}
"""
#: Asleep while nothing comes: two nodes share a CPU here.
FABRIC = """
clusters: [alpha, beta]
{pairs}
repetitions: 1
tests:
  - {{kernel: fabric_pingpong, parameters: {{provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}}}
  - {{kernel: fabric_stream, parameters: {{provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}}}
  - {{kernel: fabric_write, parameters: {{provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}}}
  - {{kernel: fabric_read, parameters: {{provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}}}
  - {{kernel: fabric_atomic, parameters: {{provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}}}
"""
FABRIC_KERNELS = ("fabric_atomic", "fabric_pingpong", "fabric_read", "fabric_stream", "fabric_write")
#: More than the link or a node's own carries: a queue stands somewhere on the way.
LOADED_LINK = """
clusters: [alpha, beta]
links: [{from: alpha, to: beta, pairs: 1}]
repetitions: 1
tests:
  - kernel: udp_stream
    parameters: {rate_bps: 400M, duration_s: 600ms, warmup_s: 200ms, companion: udp_pingpong, companion_idle_s: 300ms}
  - kernel: tcp_stream
    parameters: {duration_s: 600ms, warmup_s: 200ms, companion: tcp_pingpong, companion_idle_s: 300ms}
"""


@pytest.fixture(scope="module")
def mixed() -> Iterator[RunningLab]:
    """A lab of both generations; that it cannot be made is a failure."""
    given = os.environ.get("HPCQ_TEST_LAB_TRIXIE")
    if given:
        yield RunningLab(given)
        return
    lab = RunningLab(f"test-trixie-{os.getpid()}")
    try:
        lab_command("prepare", "trixie", timeout_s=840)
        lab_command("up", "--name", lab.name, "--beta", "trixie", timeout_s=300)
        yield lab
    finally:
        lab_command("down", "--name", lab.name)


def desk_of(mixed: RunningLab, folder: Path, campaign: str) -> Desk:
    """A desk where this campaign was run, its kernels built without optimiser."""
    (folder / "clusters").mkdir(parents=True)
    for name in ("alpha", "beta"):
        text = mixed.cluster_file(name).read_text()
        (folder / "clusters" / f"{name}.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\n")
    mixed.at_rest("alpha", "beta")
    desk = Desk(folder, mixed)
    desk.campaign(campaign)
    desk.hpcq("run", "campaign.yaml")
    return desk


def test_the_two_clusters_are_of_two_generations(mixed: RunningLab) -> None:
    versions = {
        cluster: mixed.ssh(cluster, "sinfo -V; ldd --version | head -1; mpicc --showme:version")
        for cluster in ("alpha", "beta")
    }
    assert versions["alpha"].startswith("slurm-wlm 22.05.")
    assert versions["beta"].startswith("slurm-wlm 24.11.")
    assert "Open MPI 4.1" in versions["alpha"]
    assert "Open MPI 5.0" in versions["beta"]
    assert "2.36" in versions["alpha"]
    assert "2.41" in versions["beta"]
    releases = [mixed.ssh(cluster, "cat /etc/debian_version") for cluster in ("alpha", "beta")]
    assert [release.split(".")[0] for release in releases] == ["12", "13"]


@pytest.mark.parametrize(("compiler", "plugin"), [("mpicc.openmpi", "pmix"), ("mpicc.mpich", "pmi2")])
def test_mpi_of_the_newer_release_goes_through_eth0(mixed: RunningLab, compiler: str, plugin: str) -> None:
    mixed.ssh("beta", f"cat > {plugin}.c; {compiler} -o {plugin} {plugin}.c", text=MPI_PROGRAM)
    nodes = ["beta/n01", "beta/n02"]
    before = [eth0_bytes(mixed, node) for node in nodes]
    found = mixed.ssh("beta", f"{MPI_ENVIRONMENT} srun -w beta-n0[1-2] -N2 --ntasks-per-node=1 --mpi={plugin} ./{plugin}")
    moved = [eth0_bytes(mixed, node) - was for node, was in zip(nodes, before, strict=True)]
    assert sorted(found.splitlines()) == [f"rank {i} of 2 on beta-n0{i + 1}" for i in (0, 1)]
    assert all(MPI_BYTES < byte_count < 1.5 * MPI_BYTES for byte_count in moved), moved


@pytest.fixture(scope="module")
def site(mixed: RunningLab) -> Site:
    mixed.at_rest("beta")
    return slurm_site(mixed, "beta")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_newer_slurm_keeps_the_contract(site: Site, promise: Callable[[Site], None]) -> None:
    promise(site)


@pytest.fixture(scope="module")
def pairs(mixed: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return desk_of(mixed, tmp_path_factory.mktemp("pairs") / "desk", PAIRS)


@pytest.mark.long
def test_pairs_of_both_are_measured_mpi_through_srun_and_pmix(pairs: Desk) -> None:
    found = pairs.rows("SELECT cluster, kernel, outcome, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1, 2")
    assert [tuple(row.values()) for row in found] == [
        (cluster, kernel, "measured", 2) for cluster in ("alpha", "beta") for kernel in ("mpi_pingpong", "tcp_stream")
    ]
    assert_clean(pairs.run_folder)
    for path in pairs.run_folder.glob("*/jobs/*/*/job.sh"):
        assert "srun --mpi=pmix" in path.read_text()
        job = json.loads((path.parent / "job.json").read_text())
        # A try that died of Open MPI's known crash left an empty file.
        for line in [json.loads(one.read_text()) for one in path.parent.glob("t*-r1.json") if one.stat().st_size]:
            ends = [line["evidence"][end]["node"] for end in ("client", "server")]
            assert ends == [job["client"], job["server"]], line["kernel"]


@pytest.mark.long
def test_every_cluster_has_a_build_of_its_own(pairs: Desk) -> None:
    """Compiler, MPI and binary differ between the generations, and each result knows its own."""
    builds = {(row["cluster"], row["program"]): row for row in pairs.rows("SELECT * FROM v_builds")}
    assert len(builds) == 4
    assert all(row["result_count"] == 2 for row in builds.values())
    for program in ("hpcq-net", "hpcq-mpi"):
        one, other = builds["alpha", program], builds["beta", program]
        assert " 12.2" in one["compiler"]
        assert " 14.2" in other["compiler"]
        assert one["binary_sha256"] != other["binary_sha256"]
    assert "4.1" in builds["alpha", "hpcq-mpi"]["mpi"]
    assert "5.0" in builds["beta", "hpcq-mpi"]["mpi"]
    records = [json.loads((pairs.run_folder / name / "build.json").read_text()) for name in ("alpha", "beta")]
    assert ["2.36" in records[0]["libc_version"], "2.41" in records[1]["libc_version"]] == [True, True]


@pytest.mark.long
def test_a_tournament_of_the_newer_slurm_plays_sockets_and_mpi(mixed: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(mixed, tmp_path / "desk", TOURNAMENT)
    found = desk.rows("SELECT kernel, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1")
    assert [tuple(row.values()) for row in found] == [
        (kernel, "measured", 6) for kernel in ("mpi_pingpong", "tcp_stream", "udp_pingpong")
    ]
    assert [event["event"] for event in desk.events("beta")].count("submitted") == 1  # all of it in one allocation
    assert desk.rows("SELECT DISTINCT crossed_interface FROM result") == [{"crossed_interface": "yes"}]
    assert desk.rows("SELECT count(DISTINCT fact_set_id) AS n FROM node_facts") == [{"n": 4}]


@pytest.mark.long
def test_the_link_between_the_generations_is_measured(mixed: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(mixed, tmp_path / "desk", LINK)
    found = desk.rows("SELECT placement, kernel, outcome, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1, 2")
    assert [tuple(row.values()) for row in found] == [
        ("cluster", "tcp_stream", "measured", 2),  # the same nodes within each cluster
        ("cluster", "udp_pingpong", "measured", 2),
        ("link", "tcp_stream", "measured", 4),  # two pairs, both directions
        ("link", "udp_pingpong", "measured", 2),
    ]
    ends = desk.rows("SELECT side, cluster, role, reaches, outcome FROM v_links ORDER BY job, side")
    assert [tuple(row.values()) for row in ends] == [
        ("from", "alpha", "client", "open", "completed"),
        ("to", "beta", "server", "open", "completed"),
    ] * 2


@pytest.mark.long
@pytest.mark.promise(
    "Kernels over libfabric run on both generations, pair by pair and in one allocation; over tcp they cross the interface."
)
@pytest.mark.parametrize("pairs", ["pairs: {rounds: 1}", "pairs: {rounds: 1}\nallocation: whole"], ids=["pair", "whole"])
def test_fabric_kernels_run_on_both(mixed: RunningLab, tmp_path: Path, pairs: str) -> None:
    desk = desk_of(mixed, tmp_path / "desk", FABRIC.format(pairs=pairs))
    found = desk.rows("SELECT cluster, kernel, outcome, crossed_interface FROM v_results GROUP BY 1, 2, 3, 4 ORDER BY 1, 2")
    # Additions of 8 bytes may be too few bytes to prove it.
    wanted = [(cluster, kernel, "measured") for cluster in ("alpha", "beta") for kernel in FABRIC_KERNELS]
    assert [tuple(row.values())[:3] for row in found] == wanted
    assert {row["crossed_interface"] for row in found if row["kernel"] != "fabric_atomic"} == {"yes"}
    versions = {name: json.loads((desk.run_folder / name / "build.json").read_text()) for name in ("alpha", "beta")}
    assert [versions[name]["libfabric_version"].split(".")[0] for name in ("alpha", "beta")] == ["1", "2"]
    assert_clean(desk.run_folder)


@pytest.mark.long
@pytest.mark.promise("A companion measures across a link as within a cluster; the distance is in its round trips.")
def test_latency_under_load_across_the_link(mixed: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(mixed, tmp_path / "desk", LOADED_LINK)
    found = desk.rows("SELECT placement, kernel, outcome, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1, 2")
    assert [tuple(row.values()) for row in found] == [
        ("cluster", "tcp_stream", "measured", 2),
        ("cluster", "udp_stream", "measured", 2),
        ("link", "tcp_stream", "measured", 2),  # both directions
        ("link", "udp_stream", "measured", 2),
    ]
    values = desk.rows(
        "SELECT v.result_id, v.placement, v.kernel, m.metric, m.value FROM v_results v JOIN v_metrics m USING (result_id)"
        " WHERE m.metric LIKE '%round_trip_p50_ns' OR m.metric LIKE 'queueing%'"
    )
    by_result: dict[tuple[int, str, str], dict[str, float]] = {}
    for row in values:
        by_result.setdefault((row["result_id"], row["placement"], row["kernel"]), {})[row["metric"]] = row["value"]
    assert len(by_result) == 8
    for (_, placement, _), metrics in by_result.items():
        far = placement == "link"
        assert (metrics["idle_round_trip_p50_ns"] > 2.8e6) is far, "the link's own delay, both ways"
        assert metrics["loaded_round_trip_p50_ns"] > metrics["idle_round_trip_p50_ns"]
        assert metrics["queueing_delay_p50_ns"] > 0
    assert_clean(desk.run_folder)


@pytest.mark.long
@pytest.mark.promise("On a login node of either Slurm, an ordinary user in an empty folder has a verdict after two commands.")
def test_an_ordinary_user_on_the_head_of_the_newer_slurm(mixed: RunningLab) -> None:
    mixed.at_rest("beta")
    typed = typed_on_head(mixed, "beta", typed_in_readme("On your cluster", "beta"))
    typed.assert_verdict()
    assert set(typed.files) == {"clusters/beta.yaml", "first-beta.yaml"}, "what hpcq wrote, and nobody edited"
    assert "scheduler: slurm  # slurm-wlm 24.11" in typed.files["clusters/beta.yaml"]
    assert "against: link" in typed.files["first-beta.yaml"], "it says what is expected"
    assert re.search(r"tcp_stream 128 KiB: \S+ Mbit/s, \d+ % of token bucket of beta-n0\d: (not )?ok", typed.said), typed.said


def test_an_unknown_system_is_refused() -> None:
    words = [sys.executable, str(PROGRAM), "up", "--beta", "potato"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'potato'" in done.stderr
    assert "trixie" in done.stderr

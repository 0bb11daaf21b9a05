"""Campaigns with kernels over libfabric on the embedded scheduler: pair jobs, a tournament, and a cluster without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.local.desk import assert_clean
from tests.local.local_desk import CLUSTER, INSTANT, LocalDesk

#: Of a count, and asleep while nothing comes: the machine may be busy.
FEW = "wait_by: sleep, duration_s: 20s, warmup_s: 0, operation_count_max: 40"
STREAM = f"{{kernel: fabric_stream, parameters: {{provider: tcp, {FEW}}}}}"
CAPTURED = INSTANT.replace("}}", ", capture: headers}}")
PINGPONG = f"{{kernel: fabric_pingpong, parameters: {{message_bytes: 0, sweep_to_bytes: 2, {FEW}}}}}"


@pytest.mark.promise("A campaign measures TCP/IP and the fabric below MPI in the same jobs, pair by pair or as a tournament.")
@pytest.mark.promise(
    "The packets of a test with `capture: headers` stay in the run's folder, and `hpcq show` names their files."
)
@pytest.mark.parametrize("allocation", ["pair", pytest.param("whole", marks=pytest.mark.long)])
def test_sockets_and_fabric_in_one_campaign(tmp_path: Path, allocation: str) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER + "environment: {{FI_PROVIDER: tcp}}\n")
    desk.campaign(CAPTURED, STREAM, PINGPONG, more=f"allocation: {allocation}")
    desk.hpcq("run", "try.yaml")
    rows = desk.rows("SELECT kernel, outcome, count(*) AS n FROM v_results GROUP BY kernel, outcome ORDER BY kernel")
    assert [(row["kernel"], row["outcome"], row["n"]) for row in rows] == [
        ("fabric_pingpong", "measured", 3),
        ("fabric_stream", "measured", 1),
        ("tcp_pingpong", "measured", 1),
    ]
    programs = desk.rows("SELECT DISTINCT program FROM v_builds ORDER BY 1")
    assert [row["program"] for row in programs] == ["hpcq-fabric", "hpcq-net"]
    build = json.loads((desk.run_folder / "tiny" / "build.json").read_text())
    assert build["libfabric_version"][0].isdigit()
    kept = sorted(desk.run_folder.glob("tiny/jobs/*/1/**/*.pcap"))
    assert [path.name.split("r1.")[1] for path in kept] == ["client.pcap", "server.pcap"]
    assert all(path.stat().st_size > 20 * 128 for path in kept)
    (row,) = desk.rows("SELECT result_id FROM v_results WHERE kernel = 'tcp_pingpong'")
    shown = desk.hpcq("show", str(row["result_id"])).stdout
    assert all(path.name in shown for path in kept)
    assert "capture_round_trip_p50_ns" in shown
    assert_clean(desk.run_folder)


@pytest.mark.long
def test_fabric_alone(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign(STREAM)
    desk.hpcq("run", "try.yaml")
    assert desk.rows("SELECT outcome FROM v_results") == [{"outcome": "measured"}]
    assert [row["program"] for row in desk.rows("SELECT * FROM v_builds")] == ["hpcq-fabric"]
    assert {path.name for path in desk.run_folder.glob("tiny/jobs/*/1/facts-*.json")} == {
        "facts-tiny-a.json",
        "facts-tiny-b.json",
    }


@pytest.mark.promise("Where libfabric is missing, a campaign with fabric kernels says that and how to name it.")
def test_a_cluster_without_libfabric_says_so(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.cluster("tiny", CLUSTER + "environment: {{PKG_CONFIG_LIBDIR: /nonexistent}}\n")
    desk.campaign(STREAM)
    said = desk.hpcq("run", "try.yaml", expect=1).stderr
    assert "error: tiny: hpcq-fabric: does not build" in said
    assert "hpcq-fabric needs libfabric: pkg-config does not find it" in said
    assert "libfabric must be there with its headers" in said

"""Whole campaigns on the two real Slurm clusters: what was planned is measured, between the nodes and as it was asked."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean, known_crashes, result_lines

pytestmark = pytest.mark.lab

CAMPAIGN = """
clusters: [alpha, beta]
pairs: {rounds: 1}
repetitions: 2
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms, message_bytes: 64KiB}}
  - {kernel: tcp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms}, matrix: {message_bytes: [1, 1KiB]}}
  - {kernel: udp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms, message_bytes: 1400, rate_bps: 50M}}
  - {kernel: udp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms, message_bytes: 64}}
  - {kernel: mpi_pingpong, parameters: {duration_s: 200ms, warmup_s: 50ms, message_bytes: 32KiB}}
"""


@pytest.fixture(scope="module")
def measured(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    lab.at_rest("alpha", "beta")
    desk = Desk(tmp_path_factory.mktemp("desk"), lab)
    desk.campaign(CAMPAIGN)
    desk.hpcq("run", "campaign.yaml")
    return desk


def test_every_planned_result_is_measured_and_valid(measured: Desk) -> None:
    plans = [json.loads((measured.run_folder / name / "plan.json").read_text()) for name in ("alpha", "beta")]
    planned = sum(plan["goals"]["result_count"] for plan in plans)
    assert planned == 2 * 2 * 6 * 2  # clusters x pairs x tests x repetitions
    assert measured.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [
        {"outcome": "measured", "n": planned}
    ]
    assert_clean(measured.run_folder)


def test_pairs_are_of_different_nodes_and_each_node_was_used(measured: Desk) -> None:
    lines = result_lines(measured.run_folder)
    for line in lines:
        client, server = line["evidence"]["client"], line["evidence"]["server"]
        assert client["node"] != server["node"]
        assert client["boot_id"] != server["boot_id"]
        assert client["address"] != server["address"]
    nodes = {line["evidence"][end]["node"] for line in lines for end in ("client", "server")}
    assert nodes == {f"{cluster}-n{number:02d}" for cluster in ("alpha", "beta") for number in range(1, 5)}


def test_the_roles_are_the_plans(measured: Desk) -> None:
    for folder, job in _tries(measured):
        for path in _results(folder):
            evidence = json.loads(path.read_text())["evidence"]
            assert (evidence["client"]["node"], evidence["server"]["node"]) == (job["client"], job["server"]), path


def test_the_echo_is_the_jobs_parameters(measured: Desk) -> None:
    for folder, job in _tries(measured):
        parameters = {f"{step['name']}.json": step["parameters"] for step in job["steps"]}
        for path in _results(folder):
            assert json.loads(path.read_text())["options"] == parameters[path.name]


def test_the_bytes_went_through_the_nodes_interface(measured: Desk) -> None:
    streams = 0
    for line in result_lines(measured.run_folder):
        client = line["evidence"]["client"]
        assert client["interface"] == "eth0"
        assert client["address"].startswith(("10.77.", "10.78."))
        if line["kernel"] == "tcp_stream":
            streams += 1
            assert client["interface_bytes"]["tx"] > line["metrics"]["received_bytes"]
        if line["kernel"] == "mpi_pingpong":
            moved = line["metrics"]["operation_count"] * line["options"]["message_bytes"]
            assert client["interface_bytes"]["tx"] > moved, "an MPI library took a short cut"
            assert line["evidence"]["server"]["interface_bytes"]["tx"] > moved
    assert streams == 8


def test_the_network_is_what_was_measured(measured: Desk) -> None:
    """Node links are shaped to 200 Mbit/s; a machine's own memory carries gigabits, however busy it is."""
    rates_bps = [row["value"] for row in measured.rows("SELECT value FROM v_results WHERE kernel = 'tcp_stream'")]
    assert all(rates_bps)
    assert statistics.median(rates_bps) < 400e6, rates_bps


def test_builds_say_with_what_they_were_made(measured: Desk) -> None:
    builds = measured.rows("SELECT * FROM v_builds")
    assert {(row["cluster"], row["program"]) for row in builds} == {
        (cluster, program) for cluster in ("alpha", "beta") for program in ("hpcq-net", "hpcq-mpi")
    }
    for row in builds:
        assert "Debian" in row["compiler"]
        assert len(row["binary_sha256"]) == 64
    assert all("MPI" in row["mpi"] for row in builds if row["program"] == "hpcq-mpi")


def test_facts_of_every_node_came_along(measured: Desk) -> None:
    names = {path.name for path in measured.run_folder.glob("alpha/jobs/*/1/facts-*.json")}
    assert names == {f"facts-alpha-n{number:02d}.json" for number in range(1, 5)}


def test_scripts_ask_for_what_they_should_and_hold_no_secret(measured: Desk) -> None:
    secret = (measured.run_folder / "secret").read_text().strip()
    assert (measured.run_folder / "secret").stat().st_mode & 0o777 == 0o600
    for path in measured.run_folder.rglob("*"):
        if path.is_file() and path.name != "secret":
            assert secret not in path.read_text(errors="replace"), path
    script = next(measured.run_folder.glob("alpha/jobs/*/1/job.sh")).read_text()
    for directive in ("--nodes=2", "--exclusive", "--no-requeue", "--account=lab", "--partition=main"):
        assert f"#SBATCH {directive}\n" in script
    assert "srun --mpi=pmix" in script


def test_reading_verbs_agree(measured: Desk) -> None:
    said = json.loads(measured.hpcq("results", "--json").stdout)
    assert len(said["results"]) == 48
    status = json.loads(measured.hpcq("status", "--json").stdout)
    assert [(one["name"], one["stage"], one["counts"]["measured_result_count"]) for one in status["clusters"]] == [
        ("alpha", "loaded", 24),
        ("beta", "loaded", 24),
    ]
    page = re.sub(r"<script>.*?</script>", "", (measured.run_folder / "report.html").read_text(), flags=re.DOTALL)
    assert "NaN" not in page


def test_a_known_crash_of_the_mpi_library_is_told_beside_the_results(measured: Desk) -> None:
    """A repeat may save the campaign from it, but hides nothing; most runs of this test see none."""
    tries = json.loads(measured.hpcq("results", "--json").stdout)["lost_tries"]
    assert sum(one["count"] for one in tries if "died of " in one["reason"]) == len(known_crashes(measured.run_folder))


def test_one_scheduler_query_a_second_at_most(measured: Desk) -> None:
    for cluster in ("alpha", "beta"):
        driven = json.loads((measured.run_folder / cluster / "driven.json").read_text())
        assert driven["scheduler_query_count"] <= driven["wall_s"] + 2


def test_loading_again_changes_nothing(measured: Desk) -> None:
    before = measured.rows("SELECT count(*) AS n FROM result")
    loaded = json.loads(measured.hpcq("db", "load", "--json").stdout)
    assert [one["read_count"] for one in loaded["clusters"]] == [0, 0]
    assert measured.rows("SELECT count(*) AS n FROM result") == before


def test_all_evidence_of_a_result_takes_little_more_than_a_kilobyte(measured: Desk) -> None:
    [row] = measured.rows("SELECT sum(payload) AS n FROM dbstat WHERE name IN ('evidence', 'evidence_end')")
    assert row["n"] / 48 <= 1280


def _tries(desk: Desk) -> list[tuple[Path, dict[str, Any]]]:
    found = sorted(desk.run_folder.glob("*/jobs/*/*/job.json"))
    assert found
    return [(path.parent, json.loads(path.read_text())) for path in found]


def _results(folder: Path) -> list[Path]:
    """The results that a try brought: a program that died left an empty file."""
    return [path for path in folder.glob("t*-r[0-9].json") if path.stat().st_size]

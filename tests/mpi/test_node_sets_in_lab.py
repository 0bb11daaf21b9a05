"""Collective operations beside pairs and links on the real lab: sets of nodes are planned, started, stored and shown."""

from __future__ import annotations

import json
import re

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean, result_lines

# Four ranks that wait for each other meet their time limit where other labs have the two cores.
pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet, pytest.mark.real_time]

FEW = "duration_s: 30, warmup_s: 0, operation_count_max: 20"
CAMPAIGN = f"""
clusters: [alpha, beta]
links: [{{from: alpha, to: beta, pairs: 1}}]
pairs: {{rounds: 1}}
repetitions: 1
tests:
  - {{kernel: tcp_pingpong, on: [links], parameters: {{{FEW}}}}}
  - {{kernel: udp_pingpong, on: [pairs], parameters: {{{FEW}}}}}
  - {{kernel: mpi_stream, parameters: {{{FEW}, message_bytes: 4KiB}}}}
  - kernel: mpi_collective
    parameters: {{{FEW}, message_bytes: 4KiB, validate: true}}
    matrix: {{node_count: [3, 0], operation: [barrier, allreduce, ialltoall]}}
  - kernel: mpi_collective
    parameters: {{{FEW}, message_bytes: 4KiB, validate: true, operation: multi_pair, ranks_per_node: per_core}}
  - {{kernel: mpi_matrix_multiply, parameters: {{{FEW}, matrix_row_count: 128, ranks_per_node: per_core}}}}
"""


@pytest.fixture(scope="module")
def measured(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    lab.at_rest("alpha", "beta")
    desk = Desk(tmp_path_factory.mktemp("desk") / "folder", lab)
    (desk.folder / "clusters").mkdir(parents=True)
    for name in ("alpha", "beta"):
        text = lab.cluster_file(name).read_text()
        (desk.folder / "clusters" / f"{name}.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\nper_node: {{core: 2}}\n")
    desk.campaign(CAMPAIGN)
    desk.hpcq("run", "campaign.yaml")
    return desk


def test_pairs_links_and_sets_stand_in_one_run(measured: Desk) -> None:
    assert_clean(measured.run_folder, gave_way=True)  # pairs and sets want the same nodes
    found = measured.rows(
        "SELECT cluster, kernel, count(*) AS n FROM v_results WHERE outcome = 'measured' GROUP BY 1, 2 ORDER BY 1, 2"
    )
    within = [("mpi_collective", 7), ("mpi_matrix_multiply", 1), ("mpi_stream", 2), ("udp_pingpong", 2)]
    assert [tuple(row.values()) for row in found] == [
        *(("alpha", *one) for one in within),
        ("alpha+beta", "tcp_pingpong", 1),
        *(("beta", *one) for one in within),
    ]
    assert measured.rows("SELECT count(*) AS n FROM v_results WHERE outcome <> 'measured'") == [{"n": 0}]


def test_all_nodes_of_a_set_took_part_over_the_network(measured: Desk) -> None:
    lines = [line for line in result_lines(measured.run_folder) if line["kernel"] == "mpi_collective"]
    assert sorted(line["metrics"]["rank_count"] for line in lines) == [3] * 6 + [4] * 6 + [8] * 2
    products = [line for line in result_lines(measured.run_folder) if line["kernel"] == "mpi_matrix_multiply"]
    assert [line["metrics"]["rank_count"] for line in products] == [8] * 2
    for line in lines + products:
        assert line["options"]["node_count"] * line["options"]["ranks_per_node"] == line["metrics"]["rank_count"]
        assert line["evidence"]["client"]["node"].endswith("n01")
        assert line["evidence"]["server"]["node"].endswith("n02")
        assert [line["evidence"][end]["interface_bytes"]["tx"] > 1000 for end in ("client", "server")] == [True, True]
    series = measured.rows("SELECT DISTINCT client, server FROM v_series WHERE kernel = 'mpi_collective' ORDER BY 1, 2")
    assert [tuple(row.values()) for row in series] == [
        (f"{cluster}-n01", f"{cluster}-n[02-{last}]") for cluster in ("alpha", "beta") for last in ("03", "04")
    ]
    names = {path.name for path in measured.run_folder.glob("alpha/jobs/*/*/facts-*.json")}
    assert names == {f"facts-alpha-n{number:02d}.json" for number in range(1, 5)}


def test_sets_are_shown_beside_pairs(measured: Desk) -> None:
    said = measured.hpcq("results", "--kernel", "mpi_collective", "--cluster", "alpha").stdout
    assert "alpha-n[02-04]" in said
    told = json.loads(measured.hpcq("results", "--json").stdout)
    assert len([one for one in told["results"] if one["kernel"] == "mpi_collective"]) == 14
    plan = measured.hpcq("plan", "campaign.yaml").stdout
    assert "together 4 nodes: alpha-n01,alpha-n[02-04]" in plan
    assert "mpi_collective, mpi_matrix_multiply, mpi_stream runs within alpha and beta" in plan
    parts = dict(zip(["alpha", "beta", "link"], re.split(r"^(?=\S+: )", plan, flags=re.MULTILINE)[1:], strict=True))
    for name in ("alpha", "beta"):
        tests = re.findall(r"^  tests    (\w+): .* on (\w+)$", parts[name], flags=re.MULTILINE)
        on_nodes = [("mpi_collective", "nodes"), ("mpi_matrix_multiply", "nodes")]
        assert tests == [("udp_pingpong", "pairs"), ("mpi_stream", "pairs"), *on_nodes]
    assert re.findall(r"^  tests    (\w+): .* on (\w+)$", parts["link"], flags=re.MULTILINE) == [("tcp_pingpong", "links")]
    assert (measured.run_folder / "report.html").is_file()

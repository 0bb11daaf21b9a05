"""MPI on a real PBS, whose nodes mpirun and hydra reach through pbs_tmrsh.

hpcq's own kernels run with both libraries, described programs of two ranks and of all nodes with Debian's Open MPI, without tm.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.described.descriptions import write
from tests.described.test_ranks_in_lab import DESCRIPTION, SUM
from tests.pbs_live.live import QUICK, Live

FEW = "duration_s: 30, warmup_s: 0, operation_count_max: 20"
OWN = f"""clusters: [beta]
pairs: {{rounds: 1}}
repetitions: 1
tests:
  - {{kernel: mpi_pingpong, parameters: {{{FEW}}}}}
  - {{kernel: mpi_one_sided, parameters: {{{FEW}}}}}
  - {{kernel: mpi_collective, parameters: {{{FEW}, operation: allreduce}}, matrix: {{node_count: [3, 0]}}}}"""
FOREIGN = """clusters: [beta]
pairs: {rounds: 1}
repetitions: 1
tests:
  - {kernel: netpipe_mpi, parameters: {message_bytes_max: 512}}
  - {kernel: foreign_sum}"""
LAUNCHERS = {
    "Open MPI": "{compiler: mpicc.openmpi}",
    "MPICH": "{compiler: mpicc.mpich, launch: 'mpirun.mpich -np {count} -f {hostfile}'}",
}


def with_mpi(live: Live, folder: Path, mpi: str) -> None:
    """The cluster file names another MPI library."""
    path = live.cluster_yaml(folder / "clusters")
    text = path.read_text()
    assert "\nmpi: {compiler: mpicc}\n" in text
    path.write_text(text.replace("\nmpi: {compiler: mpicc}\n", f"\nmpi: {mpi}\n"))


@pytest.mark.parametrize("library", LAUNCHERS)
def test_pairs_and_sets_are_measured_with_each_library(live: Live, tmp_path: Path, library: str) -> None:
    desk = live.desk(tmp_path, QUICK)
    with_mpi(live, tmp_path, LAUNCHERS[library])
    desk.campaign(OWN)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    found = desk.rows("SELECT kernel, outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert [(row["kernel"], row["outcome"], row["reason"], row["n"]) for row in found] == [
        ("mpi_collective", "measured", None, 2),
        ("mpi_one_sided", "measured", None, 2),
        ("mpi_pingpong", "measured", None, 2),
    ]
    assert {row["crossed_interface"] for row in desk.rows("SELECT crossed_interface FROM v_results")} == {"yes"}
    lines = list(desk.run_folder.glob("beta/jobs/*/1/**/t*-r[0-9].json"))
    assert lines
    assert all(library in line.read_text() for line in lines)


def test_described_programs_of_two_ranks_and_of_all_nodes(live: Live, tmp_path: Path) -> None:
    assert shutil.which("NPopenmpi"), "tools/packages test installs netpipe-openmpi"
    desk = live.desk(tmp_path)
    write(desk.folder, DESCRIPTION)
    build = 'printf "%s" "$1" >/scratch/sum.c && mpicc.openmpi -O1 -o /scratch/foreign-sum /scratch/sum.c'
    live.lab.exec("beta", "sh", "-c", build, "sh", SUM)
    desk.campaign(FOREIGN)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    rows = desk.rows("SELECT kernel, outcome, reason, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert [(row["kernel"], row["outcome"], row["reason"]) for row in rows] == [
        ("foreign_sum", "measured", None),
        ("netpipe_mpi", "measured", None),
    ]
    nodes = desk.rows(
        "SELECT DISTINCT e.node FROM v_ends e JOIN v_results v USING (result_id) WHERE v.kernel = 'foreign_sum' ORDER BY 1"
    )
    assert [row["node"] for row in nodes] == live.nodes
    crossed = desk.rows("SELECT DISTINCT crossed_interface FROM v_results")
    assert [row["crossed_interface"] for row in crossed] == ["yes"]

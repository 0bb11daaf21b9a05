"""Toolchains on this machine: what the check of a cluster says of each, and a campaign of which one does not build."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.local.local_desk import LocalDesk

TOOLCHAINS = """name: tiny
scheduler: local
compiler: {cflags: -O0}
toolchains:
  mpich: {mpi: {compiler: mpicc.mpich, launch: mpirun.mpich -np 2}, cflags: -O0, environment: {UCX_LOG_LEVEL: info, EVEN: 08}}
  mixed: {mpi: {compiler: mpicc.mpich, launch: mpirun.openmpi --oversubscribe -np 2}}
  absent: {mpi: {compiler: mpicc.absent}}
  silent: {mpi: {compiler: mpicc.mpich, launch: "false"}}
"""
CAMPAIGN = """name: try
clusters: [tiny]
pairs: all
repetitions: 1
toolchains: [mpich, absent]
tests:
  - {kernel: mpi_pingpong, parameters: {duration_s: 20, warmup_s: 0, operation_count_max: 20}}
  - {kernel: udp_pingpong, parameters: {duration_s: 20, warmup_s: 0, operation_count_max: 20}}
"""


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    made = LocalDesk.at(tmp_path)
    (tmp_path / "clusters" / "tiny.yaml").write_text(TOOLCHAINS)
    return made


@pytest.mark.promise("`hpcq cluster check` builds a program of ten lines with each toolchain and starts it on two nodes.")
def test_the_check_tries_each_toolchain(desk: LocalDesk) -> None:
    items = {one["item"]: one for one in desk.json("cluster", "check", "tiny", expect=1)}
    found = {name.removeprefix("toolchain "): one for name, one in items.items() if name.startswith("toolchain ")}
    assert {name: one["ok"] for name, one in found.items()} == {
        "absent": False, "mpich": True, "mixed": False, "silent": False
    }  # fmt: skip
    assert found["mpich"]["found"] == "two ranks started by mpirun.mpich -np 2 reach each other"
    assert "mpicc.absent: not found" in found["absent"]["found"]
    assert "starts 2 programs of one rank each, which know nothing of each other" in found["mixed"]["found"]
    assert "same PMI" in found["mixed"]["advice"]
    assert found["silent"]["found"] == "false: nothing was said"


@pytest.mark.promise("`hpcq cluster check` tells of a launcher that puts both ranks on one of two nodes.")
def test_two_ranks_on_one_node_are_told(desk: LocalDesk) -> None:
    """As Hydra of Intel MPI does with -f. Here both nodes are this machine, and one is called as it is."""
    here = socket.gethostname().partition(".")[0]
    one = TOOLCHAINS[: TOOLCHAINS.index("  mixed:")].replace("local\n", f"local\nnodes: [{here}, other]\n")
    (desk.folder / "clusters" / "tiny.yaml").write_text(one)
    [found] = [one for one in desk.json("cluster", "check", "tiny", expect=1) if one["item"] == "toolchain mpich"]
    told = f"mpirun.mpich -np 2 puts both ranks on {here}, of {' and '.join(sorted([here, 'other']))}"
    assert (found["ok"], found["found"]) == (False, told)
    assert "-ppn 1" in found["advice"]


@pytest.mark.long
@pytest.mark.promise("A toolchain that does not build costs its own tests, each a row with the reason; the others run.")
@pytest.mark.promise("A result among the words of an MPI library is not measured again.")
def test_a_toolchain_that_does_not_build_is_a_row(desk: LocalDesk) -> None:
    (desk.folder / "c.yaml").write_text(CAMPAIGN)
    desk.hpcq("run", "c.yaml", expect=3)
    rows = desk.rows("SELECT kernel, toolchain, outcome, reason FROM v_results ORDER BY toolchain = 'absent', kernel")
    assert [(row["kernel"], row["toolchain"], row["outcome"]) for row in rows] == [
        ("mpi_pingpong", "mpich", "measured"),
        ("udp_pingpong", "default", "measured"),
        ("mpi_pingpong", "absent", "failed"),
    ], rows
    assert "toolchain absent: hpcq-mpi does not build with mpicc.absent: " in rows[2]["reason"]
    words = "SELECT DISTINCT name FROM warning JOIN v_results USING (result_id) WHERE toolchain = 'mpich'"
    assert {"name": "library_said"} in desk.rows(words), "its environment reached the ranks"
    assert len([one for one in desk.events("tiny") if one["event"] == "attempt"]) == 1


@pytest.mark.long
def test_where_no_toolchain_builds_the_run_ends_with_the_compilers_words(desk: LocalDesk) -> None:
    one = CAMPAIGN.replace("[mpich, absent]", "[absent]")
    (desk.folder / "c.yaml").write_text("\n".join(line for line in one.splitlines() if "udp" not in line))
    said = desk.hpcq("run", "c.yaml", expect=1)
    assert "error: tiny: hpcq-mpi: does not build with mpicc.absent:\n" in said.stderr

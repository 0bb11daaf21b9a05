"""A foreign program of two MPI ranks inside a campaign, on the embedded scheduler."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests import REPOSITORY
from tests.described.descriptions import RANKS, write
from tests.local.local_desk import LocalDesk

pytestmark = [pytest.mark.fast, pytest.mark.skipif(shutil.which("mpicc") is None, reason="no mpicc here")]

#: Two ranks share what may be one core.
CLUSTER = """name: {name}
scheduler: local
nodes: [{name}-a, {name}-b]
compiler: {{cflags: -O0}}
mpi: {{compiler: mpicc, launch: mpirun -np 2}}
environment:
  OMPI_MCA_btl: "tcp,self"
  OMPI_MCA_rmaps_base_oversubscribe: 1
  PRTE_MCA_rmaps_default_mapping_policy: ":oversubscribe"
  OMPI_MCA_mpi_yield_when_idle: 1
"""
SOURCE = REPOSITORY / "tests" / "described" / "ranks.c"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> LocalDesk:
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    desk.cluster("tiny", CLUSTER)
    subprocess.run(["mpicc", "-O1", "-o", str(desk.folder / "ranks"), str(SOURCE)], check=True, timeout=120)
    write(desk.folder, RANKS.replace("RANKS", str(desk.folder / "ranks")))
    desk.campaign("{kernel: foreign_ranks}", "{kernel: foreign_ranks, parameters: {program_ends: false}}", more="retries: 0")
    (desk.folder / "plan.txt").write_text(desk.hpcq("plan", "try.yaml").stdout)
    desk.hpcq("run", "try.yaml", expect=None)
    return desk


def test_two_ranks_bring_one_result_per_size(done: LocalDesk) -> None:
    rows = done.rows("SELECT message_bytes, outcome, reason, value, over_mpi FROM v_results WHERE outcome = 'measured'")
    assert [row["message_bytes"] for row in rows] == [1, 2, 4], done.rows("SELECT outcome, reason FROM v_results")
    assert all(row["value"] > 0 for row in rows)


def test_both_ends_have_evidence_around_the_ranks(done: LocalDesk) -> None:
    [path] = {*done.run_folder.glob("*/jobs/*/1/t1-r1.json")}
    line = json.loads(path.read_text())
    assert set(line["evidence"]) >= {"client", "server"}
    assert "foreign" not in line["outputs"]
    assert set(line["outputs"]) == {"client"}
    command = line["outputs"]["client"]["command"]
    assert command[-2:] == [str(done.folder / "ranks"), "4"]
    assert "2" in command[:-2]


def test_ranks_that_fail_are_a_row_with_their_words(done: LocalDesk) -> None:
    [failed] = {row["reason"] for row in done.rows("SELECT reason FROM v_results WHERE outcome = 'failed'")}
    assert failed.startswith("program: foreign_ranks: exit code")


def test_plan_shows_the_command_of_a_rank(done: LocalDesk) -> None:
    assert f"  starts   rank: {done.folder / 'ranks'} 4\n" in (done.folder / "plan.txt").read_text()


def test_ranks_are_refused_in_an_allocation_of_many_pairs(done: LocalDesk) -> None:
    done.campaign("{kernel: foreign_ranks}", more="allocation: whole", name="whole")
    said = done.hpcq("plan", "whole.yaml", expect=2).stderr
    assert "foreign_ranks is MPI of two ranks: not in an allocation of many pairs" in said

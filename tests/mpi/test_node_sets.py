"""Tests that all nodes of a set run together: their plan, their jobs, their results, and what they do not say of nodes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hpcq.analysis.change import _things
from hpcq.cli.main import run as hpcq
from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.definition.model import Budget, Campaign, Cluster, node_count
from hpcq.errors import UserError
from hpcq.kernels import own_kernels
from hpcq.planning.allocations import Basis, plan_allocations
from hpcq.planning.plan import Plan, coverage_of
from hpcq.planning.waves import choose_wave
from hpcq.runner.queue.run_state import ClusterState, all_steps, make_job, write_job
from hpcq.scheduler.base import Bound, JobLimits
from hpcq.scheduler.types import NodeCondition, NodeState
from hpcq.store.series import SeriesRow
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast

TESTS = """tests:
- {kernel: tcp_pingpong}
- {kernel: mpi_collective, matrix: {node_count: [2, 5, 0], operation: [barrier, bcast]}}
"""
BOTH = "pairs: {rounds: 1}\nrepetitions: 2\n" + TESTS
#: A budget that leaves one node out.
SEVEN = Budget(max_nodes=7)


def campaign(tmp_path: Path, text: str = BOTH) -> Campaign:
    path = tmp_path / "c.yaml"
    path.write_text(f"name: c\nclusters: [alpha]\n{text}")
    return read_campaign(path)


def cluster(tmp_path: Path) -> Cluster:
    path = tmp_path / "alpha.yaml"
    path.write_text(
        "{name: alpha, scheduler: slurm, partition: main, interface: eth0, work_directory: /scratch,"
        " mpi: {compiler: mpicc, launch: srun --mpi=pmix}}\n"
    )
    return read_cluster(path)


def plan(tmp_path: Path, text: str = BOTH, count: int = 8, limits: JobLimits | None = None) -> Plan:
    nodes = [NodeState(f"n{number}", NodeCondition.IDLE, "idle", ("main",)) for number in range(1, count + 1)]
    basis = Basis(cluster(tmp_path), nodes, "c-20260101T000000Z-00ff", 1, limits or JobLimits())
    return plan_allocations(campaign(tmp_path, text), basis)


def test_sets_stand_after_the_pairs_the_first_nodes_by_name(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert made.node_set_count == 3
    assert made.sets_begin == 4
    assert made.pairs[4:] == (("n1", "n2"), ("n1", "n[2-5]"), ("n1", "n[2-8]"))
    assert made.nodes_at(6) == tuple(f"n{number}" for number in range(1, 9))
    assert Plan.from_json(made.to_json()) == made
    assert [node_count(test) for test in made.tests] == [2, 2, 2, 5, 5, 8, 8]  # 0 is final now
    assert made.goals.result_count == (4 + 3 * 2) * 2
    assert made.goals.pair_count == 7
    assert coverage_of(made).pair_count == 4


@pytest.mark.promise("A test of many nodes runs on as many nodes as it says, and pairs do not run it.")
def test_each_job_has_the_tests_of_its_size_and_asks_for_all_its_nodes(tmp_path: Path) -> None:
    made = plan(tmp_path)
    state = ClusterState(made)
    assert [len(state.missing(index)) for index in range(7)] == [2, 2, 2, 2, 4, 4, 4]
    assert state.planned_count == made.goals.result_count
    job = make_job(made, 5, 1, all_steps(made, 5))
    assert job.nodes == ("n1", "n2", "n3", "n4", "n5")
    assert {step.parameters["node_count"] for step in job.steps} == {5}
    site = cluster(tmp_path)
    write_job(job, own_kernels(), site, "/r", tmp_path / "job")
    script = (tmp_path / "job" / "job.sh").read_text()
    assert "#SBATCH --nodes=5\n" in script
    assert "#SBATCH --nodelist=n1,n2,n3,n4,n5\n" in script
    assert "--nodes n1,n2,n3,n4,n5" in script
    assert "--node_count 5" in script


@pytest.mark.promise("A node that runs a test alone is one node: its job asks for one, and has the tests of one.")
def test_a_node_alone_is_one_node(tmp_path: Path) -> None:
    """Its pair is the node with itself: a job that asks for one node and has the test of one."""
    made = plan(tmp_path, "pairs: {rounds: 1}\nrepetitions: 1\ntests: [{kernel: tcp_pingpong}, {kernel: stream}]\n", count=4)
    alone = made.pairs[made.sets_begin :]
    assert alone == tuple((f"n{number}", f"n{number}") for number in range(1, 5))
    job = make_job(made, made.sets_begin, 1, all_steps(made, made.sets_begin))
    assert (job.nodes, [step.kernel for step in job.steps]) == (("n1",), ["stream"])


def test_a_set_waits_for_all_of_its_nodes(tmp_path: Path) -> None:
    made = plan(tmp_path)
    sets = made.planned_pairs()[4:]
    idle = [f"n{number}" for number in range(1, 8)]
    assert [len(one.nodes) for one in choose_wave(sets, idle, (), Budget())] == [2, 5]
    assert [one.nodes for one in choose_wave(sets, [*idle, "n8"], (), Budget(), layers_at_most=1)] == [("n1", "n2")]


def test_a_campaign_of_sets_alone_has_no_pairs(tmp_path: Path) -> None:
    made = plan(tmp_path, "pairs: all\ntests: [{kernel: mpi_collective, parameters: {node_count: 3}}]\n")
    assert made.pairs == (("n1", "n[2-3]"),)
    assert ClusterState(made).planned_count == 3
    assert made.cost.node_seconds == pytest.approx(3 * made.cost.estimated_job_s)


def test_a_set_that_cannot_be_is_told_with_its_reason(tmp_path: Path) -> None:
    made = plan(tmp_path, BOTH + "budget: {max_nodes: 4}\n")
    assert made.pairs[made.sets_begin :] == (("n1", "n2"), ("n1", "n[2-4]"))
    assert [one.reason for one in made.not_planned] == ["node_count 5: 4 nodes may be used"]
    with pytest.raises(UserError, match="node_count: 8: MaxNodes is 6"):
        plan(tmp_path, limits=JobLimits(max_nodes=Bound(6, "MaxNodes")))


def test_tournaments_refuse_tests_of_many_nodes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a tournament plays pairs: mpi_collective runs on all nodes of a set"):
        campaign(tmp_path, BOTH + "allocation: whole\n")


def test_tournaments_refuse_a_transport_of_one_test(tmp_path: Path) -> None:
    """Its ranks start once, and libraries read their settings then."""
    tests = "pairs: all\nallocation: whole\ntests: [{kernel: mpi_pingpong, parameters: {transport: tcp}}]\n"
    with pytest.raises(UserError, match="the ranks of a tournament start once: mpi_pingpong with a transport of its own"):
        campaign(tmp_path, tests)


@pytest.mark.promise("A slow collective names no node.")
@pytest.mark.parametrize("kind", ["node", "link", "group", "cluster"])
def test_a_slow_collective_names_no_node(kind: str) -> None:
    groups = {("alpha", "n1"): {"leaf1"}}
    row = SeriesRow.__new__(SeriesRow)
    for name, value in {"cluster": "alpha", "client": "n1", "server": "n[2-8]"}.items():
        object.__setattr__(row, name, value)
    assert list(_things(kind, row, groups)) == []
    object.__setattr__(row, "server", "n2")
    assert list(_things(kind, row, groups))


def test_a_set_is_no_node_of_the_list_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(tmp_path / "r.db", builder)
    with closing(sqlite3.connect(tmp_path / "r.db")) as database, database:
        database.execute("INSERT INTO node (cluster_id, name) SELECT cluster_id, 'n[2-8]' FROM cluster LIMIT 1")
    assert hpcq(["nodes", "--db", str(tmp_path / "r.db")]) == 0
    said = capsys.readouterr().out
    assert "n1" in said
    assert "n[2-8]" not in said


@pytest.mark.promise("A pair does not run a test of a set of nodes for which there are too few nodes.")
def test_a_pair_does_not_run_what_too_few_nodes_leave_out(tmp_path: Path) -> None:
    made = plan(tmp_path, "pairs: {rounds: 1}\nrepetitions: 1\n" + TESTS.replace("[2, 5, 0]", "[5]"), count=4)
    assert made.node_set_count == 0
    assert [test.kernel for test in made.tests_at(0)] == ["tcp_pingpong"]
    assert [(one.client, one.reason) for one in made.not_planned] == [("n1", "node_count 5: 4 nodes may be used")]
    assert made.goals.result_count == len(made.pairs) == 2

"""mpi_collective: each operation of the table does what MPI says of it, on any number of ranks, under both libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcq.kernels import own_kernel
from tests.kernels.test_kernels_mpi import MPICH, MPIS
from tests.mpi.mpi_programs import Launched, mpich_takes_long, on_two_nodes, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

SPOIL, PLACES = (Path(__file__).with_name(f"{name}.c") for name in ("spoil", "places"))

#: One operation of each kind runs with both libraries also in the shorter tests.
WITH_BOTH = {"barrier", "allreduce", "alltoallv", "ibcast", "incast", "multi_pair"}


def operations() -> list[str]:
    option = own_kernel("mpi_collective").option("operation")
    assert option is not None
    return list(option.choices)


@pytest.mark.promise("Every collective of the table gives each rank what MPI says, on each number of ranks.")
@pytest.mark.promise("An incast brings the root what each rank sent, in its place.")
@pytest.mark.promise("`rank_mean_ns` is a mean over ranks, not longer than the longest time of any rank.")
@pytest.mark.promise("Collectives also have the least and the largest mean of any rank, as IMB's and OSU's columns do.")
@pytest.mark.parametrize(
    ("launched", "operation"),
    [
        pytest.param(
            mpi, one, id=f"{mpi.compiler}-{one}", marks=[pytest.mark.long] if mpi is MPICH and one not in WITH_BOTH else []
        )
        for mpi in MPIS
        for one in operations()
    ],
    indirect=["launched"],
)
def test_every_operation_gives_each_rank_what_it_should(launched: Launched, operation: str) -> None:
    done = launched.run("mpi_collective", ranks=3, operation=operation, message_bytes=1000, validate="true")
    assert (done.rc, done.line.get("valid")) == (0, True), done.err
    metrics = done.line["metrics"]
    assert (metrics["operation_count"], metrics["rank_count"]) == (5, 3)
    assert ("message_rate_pps" in metrics) == (operation == "multi_pair")
    assert 0 < metrics["operation_min_ns"] <= metrics["operation_p50_ns"] <= metrics["operation_max_ns"]
    assert metrics["fastest_rank_p50_ns"] <= metrics["slowest_rank_p50_ns"]
    assert 0 < metrics["rank_mean_ns"] <= metrics["operation_mean_ns"]  # a sample is the longest time of any rank
    assert 0 < metrics["fastest_rank_mean_ns"] <= metrics["rank_mean_ns"] * (1 + 1e-12)
    assert (
        metrics["rank_mean_ns"] * (1 - 1e-12) <= metrics["slowest_rank_mean_ns"] <= metrics["operation_mean_ns"] * (1 + 1e-12)
    )
    assert ("overlap_ratio" in metrics) == (operation.startswith("i") and operation != "incast")


@pytest.mark.parametrize(
    ("ranks", "message_bytes"),
    [pytest.param(2, 0, marks=pytest.mark.long), (5, 4), pytest.param(2, 4 << 20, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("operation", ["alltoallv", "reduce_scatter", "iallgather", "incast", "multi_pair"])
@mpich_takes_long
def test_other_numbers_of_ranks_and_sizes(launched: Launched, operation: str, ranks: int, message_bytes: int) -> None:
    options: dict[str, Any] = {"operation": operation, "message_bytes": message_bytes, "operation_count_max": 2}
    done = launched.run("mpi_collective", ranks=ranks, validate="true", **options)
    assert (done.rc, done.line.get("valid")) == (0, True), done.err
    assert done.line["metrics"]["rank_count"] == ranks


@pytest.mark.parametrize(
    "buffers", ["hot", *(pytest.param(one, marks=pytest.mark.long) for one in ("separate", "cold")), "swapped"]
)
@pytest.mark.parametrize("operation", ["bcast", "reduce", "gatherv", "ialltoall", "multi_pair"])
@mpich_takes_long
def test_every_buffer_policy_brings_what_was_given(launched: Launched, operation: str, buffers: str) -> None:
    placed: dict[str, Any] = {"buffers": buffers, "buffer_offset_bytes": 24}
    done = launched.run("mpi_collective", ranks=3, operation=operation, message_bytes=5000, validate="true", **placed)
    assert (done.rc, done.line.get("valid")) == (0, True), done.err


@pytest.mark.promise("Buffers of collectives stay in place, change roles or go round, as their policy says, on any operation.")
@mpich_takes_long
def test_buffers_of_collectives_are_where_their_policy_says(launched: Launched, tmp_path: Path) -> None:
    env = preloaded(launched.mpi, PLACES, tmp_path / "places.so")
    found = {}
    for policy in ("hot", "separate", "swapped"):
        placed: dict[str, Any] = {"operation": "alltoall", "message_bytes": 1000, "buffers": policy, "buffer_offset_bytes": 8}
        done = launched.run("mpi_collective", env=env, **placed)
        assert done.rc == 0, done.err
        found[policy] = [line for line in done.err.splitlines() if line.startswith("places: ")]
    apart = ["places: sent 1 received 1 both 0 at pages 0 at 8 1, received at 16 1"]
    assert found == {
        "hot": apart,
        "separate": apart,
        "swapped": ["places: sent 2 received 2 both 2 at pages 0 at 8 1, received at 16 1"],
    }


@pytest.mark.promise("Pairs of multi_pair send at once, all messages of all pairs count, and an odd rank is in none.")
@pytest.mark.parametrize(("ranks", "pairs"), [(2, 1), (3, 1), (4, 2), (5, 2)])
@mpich_takes_long
def test_pairs_send_at_once_and_an_odd_rank_is_in_none(launched: Launched, ranks: int, pairs: int) -> None:
    sent: dict[str, Any] = {"operation": "multi_pair", "message_bytes": 1000, "window_count": 7, "validate": "true"}
    done = launched.run("mpi_collective", ranks=ranks, **sent)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    assert (metrics["pair_count"], metrics["rank_count"]) == (pairs, ranks)
    total_ns = metrics["operation_mean_ns"] * metrics["operation_count"]
    assert metrics["message_rate_pps"] * total_ns / 1e9 == pytest.approx(5 * 7 * pairs, rel=0.01)
    assert metrics["throughput_bps"] == pytest.approx(metrics["message_rate_pps"] * 8000)


@pytest.mark.promise("With validate, a wrong value of a collective at any rank makes the result invalid.")
@pytest.mark.promise("With validate, a wrong byte at the receiver of any pair of multi_pair makes the result invalid.")
@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("allreduce", "allreduce: word 249 at rank 2 is not the sum"),
        ("alltoall", "alltoall: byte 999 at rank 1 is not what"),
        ("multi_pair", "multi_pair: byte 999 at rank 1 is not what rank 0 gave"),
    ],
)
@mpich_takes_long
def test_a_wrong_value_at_any_rank_makes_the_result_invalid(
    launched: Launched, tmp_path: Path, operation: str, said: str
) -> None:
    env = preloaded(launched.mpi, SPOIL, tmp_path / "spoil.so")
    done = launched.run("mpi_collective", ranks=3, env=env, operation=operation, message_bytes=1000, validate="true")
    assert done.line["valid"] is False
    assert said in done.line["invalid_reason"]


@pytest.mark.promise(
    "Several ranks per node follow each other, whatever order the launcher gave them; both ends are of two nodes."
)
@mpich_takes_long
def test_ranks_of_a_node_follow_each_other(launched: Launched, tmp_path: Path) -> None:
    placed = on_two_nodes(launched, tmp_path)  # of the list a,b the first two ranks are those on a
    pairs: dict[str, Any] = {"operation": "multi_pair", "message_bytes": 1000, "validate": "true", "rank_binding": "numa"}
    done = placed.run("mpi_collective", "--nodes", "a,b", ranks=4, ranks_per_node=2, node_count=2, **pairs)
    assert (done.rc, done.line.get("valid")) == (0, True), done.err
    assert [done.line["evidence"][end]["scheduler_node"] for end in ("client", "server")] == ["a", "b"]
    assert (done.line["metrics"]["pair_count"], done.line["metrics"]["rank_count"]) == (2, 4)
    assert [done.line["options"][name] for name in ("ranks_per_node", "rank_binding")] == [2, "numa"]
    uneven = placed.run("mpi_collective", "--nodes", "a,b", ranks=3, operation="barrier")
    assert uneven.line["evidence"]["client"]["scheduler_node"] == "b", "as the launcher numbered them"


@pytest.mark.parametrize(
    ("ranks", "options", "said"),
    [
        (3, {"ranks_per_node": 2}, "ranks_per_node: found 2: allowed with 3 ranks: a divisor of it"),
        (4, {"ranks_per_node": 2, "node_count": 4}, "node_count: found 4 ranks: allowed: 8, 2 per node"),
        (1, {}, "found 1 rank: allowed for barrier: 2 and more"),
        (2, {"node_count": 3}, "node_count: found 2 ranks: allowed: 3, 1 per node"),
        (
            2,
            {"operation": "scan", "message_bytes": 3},
            "message_bytes: found 3: allowed: a multiple of 4 where operation is scan",
        ),
    ],
)
def test_what_it_cannot_do_it_refuses(launched: Launched, ranks: int, options: dict[str, Any], said: str) -> None:
    done = launched.run("mpi_collective", ranks=ranks, **options)
    assert (done.line["valid"], done.line["exit_code"], done.line["error"]["message"]) == (False, 2, said)


@pytest.mark.promise("A rank that believes to be alone in a job of several is told which launch line its library needs.")
def test_ranks_that_believe_to_be_alone_are_told_what_to_change(launched: Launched) -> None:
    """As under `srun --mpi=pmi2` with an Open MPI that knows pmix only: each rank is a job of its own."""
    done = launched.run("mpi_pingpong", ranks=1, env={"SLURM_STEP_NUM_TASKS": "2"})
    assert done.line["error"]["message"].startswith("each of the 2 ranks believes to be alone")
    assert "srun --mpi=pmix" in done.err
    assert "srun --mpi=pmi2" in done.err

"""The application-shaped kernels: right on any number of ranks, wrong results found, and a slower link told as such."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import inside, joined, namespace_of
from tests.kernels.kernel_programs import LIMIT_S, Programs, ended
from tests.kernels.test_kernels_mpi import MPICH, YIELD, _built
from tests.mpi.mpi_programs import Launched, mpich_takes_long, on_two_nodes, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

SPOIL = Path(__file__).with_name("spoil.c")
ROWS = 97
#: Neither ranks nor panels divide the rows.
MULTIPLY: dict[str, Any] = {"matrix_row_count": ROWS, "panel_row_count": 10, "operation_count_max": 3}


def shares(metrics: dict[str, float]) -> None:
    """What holds for every application."""
    assert metrics["operation_count"] == 3
    assert 0 < metrics["operation_min_ns"] <= metrics["operation_p50_ns"] <= metrics["operation_max_ns"]
    assert 0 <= metrics["communication_share_ratio"] <= metrics["communication_share_max_ratio"] <= 1
    assert 0 <= metrics["communication_mean_ns"] <= metrics["operation_mean_ns"]
    assert metrics["imbalance_ratio"] >= 0
    assert metrics["speed_up_ratio"] == pytest.approx(metrics["alone_ns"] / metrics["operation_p50_ns"])
    assert metrics["efficiency_ratio"] == pytest.approx(metrics["speed_up_ratio"] / metrics["rank_count"])


@pytest.mark.promise("A product is right, and all rows take part, on any number of ranks.")
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@mpich_takes_long
def test_a_product_is_right_on_any_number_of_ranks(launched: Launched, ranks: int) -> None:
    done = launched.run("mpi_matrix_multiply", ranks=ranks, **MULTIPLY)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    shares(metrics)
    assert metrics["rank_count"] == ranks
    assert metrics["rate_flops"] == pytest.approx(2 * ROWS**3 / metrics["operation_p50_ns"] * 1e9)
    assert metrics["alone_flops"] == pytest.approx(2 * ROWS**3 / metrics["alone_ns"] * 1e9)
    assert metrics["moved_bytes"] == (ranks - 1) * ROWS * ROWS * 8
    first_rows, second_rows = (len(range(rank, ROWS, ranks)) for rank in (0, 1))
    assert metrics["client_moved_bytes"] == (3 * first_rows * ROWS * 8 if ranks > 1 else 0)
    assert metrics.get("server_moved_bytes") == (3 * second_rows * ROWS * 8 if ranks > 1 else None)


@pytest.mark.promise("Every product of mpi_matrix_multiply is checked: a number that came wrong makes the result invalid.")
@mpich_takes_long
def test_a_number_that_came_wrong_makes_the_product_invalid(launched: Launched, tmp_path: Path) -> None:
    """One bit of one number in each panel that rank 1 receives: a change of some 1e-5."""
    env = preloaded(launched.mpi, SPOIL, tmp_path / "spoil.so")
    done = launched.run("mpi_matrix_multiply", ranks=3, env=env, **MULTIPLY | {"panel_row_count": 64})
    assert done.line["valid"] is False
    assert " of the product at rank 1 is off by " in done.line["invalid_reason"]


@pytest.mark.parametrize(
    ("ranks", "options", "said"),
    [
        (3, {"matrix_row_count": 2}, "matrix_row_count: found 2: allowed with 3 ranks: 3 and more"),
        (2, {"node_count": 3}, "node_count: found 2 ranks: allowed: 3, 1 per node"),
        (2, {"matrix_row_count": 16385}, "matrix_row_count: found 16385: allowed: integer 1 to 16384 count"),
        (2, {"panel_row_count": 0}, "panel_row_count: found 0: allowed: integer 1 to 1024 count"),
    ],
)
@mpich_takes_long
def test_what_a_product_cannot_be_is_refused(launched: Launched, ranks: int, options: dict[str, Any], said: str) -> None:
    done = launched.run("mpi_matrix_multiply", ranks=ranks, **options)
    assert (done.line["valid"], done.line["exit_code"], done.line["error"]["message"]) == (False, 2, said)


@pytest.mark.promise("mpi_matrix_multiply and mpi_sort take ranks_per_node: what stays on a node is no proof of the network.")
@mpich_takes_long
def test_several_ranks_of_a_node_work_together(launched: Launched, tmp_path: Path) -> None:
    placed = on_two_nodes(launched, tmp_path)
    both: dict[str, Any] = {"ranks": 4, "ranks_per_node": 2, "node_count": 2, "rank_binding": "numa"}
    done = placed.run("mpi_matrix_multiply", "--nodes", "a,b", **both, **MULTIPLY)
    assert (done.rc, done.line.get("valid")) == (0, True), done.err
    shares(done.line["metrics"])
    assert [done.line["evidence"][end]["scheduler_node"] for end in ("client", "server")] == ["a", "b"]
    rows = [len(range(rank, ROWS, 4)) for rank in range(4)]
    assert done.line["metrics"]["client_moved_bytes"] == 3 * rows[0] * ROWS * 8
    assert done.line["metrics"]["server_moved_bytes"] == 3 * rows[2] * ROWS * 8
    done = placed.run("mpi_sort", "--nodes", "a,b", **both, **SORT)
    assert (done.rc, done.line.get("valid")) == (0, True), done.err
    metrics = done.line["metrics"]
    shares(metrics)
    # Of random keys half belong to ranks of the other node, and each rank has a quarter of the elements.
    assert metrics["moved_bytes"] == pytest.approx(5003 * 100 * 3 / 4, rel=0.2)
    for name in ("client_moved_bytes", "server_moved_bytes"):
        assert metrics[name] == pytest.approx(3 * 5003 * 100 / 4 / 2, rel=0.2)
    alone = placed.run("mpi_sort", "--nodes", "a,b", ranks=3, ranks_per_node=2, **SORT)
    assert alone.line["error"]["message"] == "ranks_per_node: found 2: allowed with 3 ranks: a divisor of it"


def test_without_the_work_alone_there_is_no_speed_up(launched: Launched) -> None:
    metrics = launched.run("mpi_matrix_multiply", alone="false", **MULTIPLY).line["metrics"]
    assert not {"alone_ns", "alone_flops", "speed_up_ratio", "efficiency_ratio"} & set(metrics)
    assert metrics["communication_share_ratio"] > 0


SORT: dict[str, Any] = {"element_count": 5003, "operation_count_max": 3}


@pytest.mark.promise("Elements are sorted, none lost, on any number of ranks.")
@pytest.mark.parametrize(
    ("ranks", "element_bytes", "key_bytes"),
    [
        (1, 64, 8),
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((2, 64, 8), (3, 100, 10), (8, 256, 10))),
        (5, 101, 9),
    ],
)
def test_elements_are_sorted_on_any_number_of_ranks(launched: Launched, ranks: int, element_bytes: int, key_bytes: int) -> None:
    done = launched.run("mpi_sort", ranks=ranks, element_bytes=element_bytes, key_bytes=key_bytes, **SORT)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    shares(metrics)
    assert metrics["rank_count"] == ranks
    assert metrics["sorted_eps"] == pytest.approx(5003 / metrics["operation_p50_ns"] * 1e9)
    assert metrics["sorted_bps"] == pytest.approx(8 * element_bytes * metrics["sorted_eps"])
    assert metrics["alone_eps"] == pytest.approx(5003 / metrics["alone_ns"] * 1e9)
    # Of random keys a rank keeps one of `ranks`; whoever has most has no more than half above the mean.
    assert metrics["moved_bytes"] == pytest.approx(5003 * element_bytes * (1 - 1 / ranks), rel=0.2)
    assert metrics["moved_bytes"] % element_bytes == 0
    assert 0 <= metrics["element_imbalance_ratio"] < 0.5
    told = (metrics["client_moved_bytes"], metrics.get("server_moved_bytes", 0))
    assert sum(told) == pytest.approx(3 * metrics["moved_bytes"] * min(2 / ranks, 1), rel=0.2)


@pytest.mark.promise("A sort of sorted, reversed, few or skewed keys is right, and loads ranks and link as its keys say.")
@pytest.mark.parametrize(
    ("ranks", "key_bytes"), [pytest.param(1, 8, marks=pytest.mark.long), pytest.param(2, 10, marks=pytest.mark.long), (4, 9)]
)
@pytest.mark.parametrize("keys", ["sorted", "reversed", "few", "skewed"])
@mpich_takes_long
def test_other_keys_than_noise_are_sorted_and_load_ranks_and_link_as_they_say(
    launched: Launched, ranks: int, key_bytes: int, keys: str
) -> None:
    done = launched.run("mpi_sort", ranks=ranks, keys=keys, key_bytes=key_bytes, **SORT)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    shares(metrics)
    if ranks == 1:
        return
    moved_ratio, imbalance = metrics["moved_bytes"] / (5003 * 100), metrics["element_imbalance_ratio"]
    if keys == "sorted":
        assert (moved_ratio < 0.05, imbalance < 0.1) == (True, True)
    elif keys == "reversed":  # every rank gives all it has to the one at the other end
        assert (moved_ratio > 0.95, imbalance < 0.1) == (True, True)
    elif keys == "few":  # of 16, each rank gets 16 / ranks, or one more
        assert imbalance < ranks / 16 + 0.15
    else:  # half of the elements are equal, and go to one rank
        assert imbalance > 0.45 * ranks - 1


@mpich_takes_long
def test_the_seed_makes_the_elements(launched: Launched) -> None:
    """Which of them leave their rank depends on their keys alone."""
    moved = [launched.run("mpi_sort", seed=seed, **SORT).line["metrics"]["moved_bytes"] for seed in (1, 1, 2)]
    assert moved[0] == moved[1] != moved[2]


@pytest.mark.promise(
    "A sort is invalid where an element changed, came twice, or stands at a wrong place within a rank or between ranks."
)
@pytest.mark.promise("The sum over all elements of a sort detects a single changed byte.")
@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ("byte", "the sum over all elements is not what it was: some changed on their way"),
        ("twice", "the sum over all elements is not what it was: some changed on their way"),
        ("places", " at rank 1 is before the one that stands before it"),
        ("samples", "the first element at rank 2 is before the last one at rank "),
    ],
)
@mpich_takes_long
def test_what_is_not_sorted_or_not_the_same_elements_is_invalid(
    launched: Launched, tmp_path: Path, spoilt: str, said: str
) -> None:
    env = preloaded(launched.mpi, SPOIL, tmp_path / "spoil.so") | {"SPOIL": spoilt}
    done = launched.run("mpi_sort", ranks=3, env=env, **SORT)
    assert done.line["valid"] is False
    assert said in done.line["invalid_reason"]


@pytest.mark.parametrize(
    ("ranks", "options", "said"),
    [
        (2, {"keys": "odd"}, "keys: found odd: allowed: one of uniform sorted reversed few skewed"),
        (3, {"element_count": 2}, "element_count: found 2: allowed with 3 ranks: 3 and more"),
        (2, {"element_bytes": 63}, "element_bytes: found 63: allowed: integer 64 to 256 bytes"),
        (2, {"key_bytes": 11}, "key_bytes: found 11: allowed: integer 8 to 10 bytes"),
    ],
)
@mpich_takes_long
def test_what_cannot_be_sorted_is_refused(launched: Launched, ranks: int, options: dict[str, Any], said: str) -> None:
    done = launched.run("mpi_sort", ranks=ranks, **options)
    assert (done.line["valid"], done.line["exit_code"], done.line["error"]["message"]) == (False, 2, said)


def over_a_link(folder: Path, program: Path, rate_bps: float, kernel: str, **options: object) -> dict[str, Any]:
    """The result line of two ranks in network namespaces of their own."""
    given = {"transport": "tcp", "duration_s": 60, "warmup_s": 0, "operation_count_max": 3, **options}
    words = [str(program), kernel, "--interface", "eth0", *(w for name, one in given.items() for w in (f"--{name}", str(one)))]
    folder.mkdir()
    with joined(folder, rate_bps):
        deadline = time.monotonic() + LIMIT_S
        while any("state UP" not in inside(end, "ip", "link", "show", "eth0") for end in ("client", "server")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first, second = (["-np", "1", "ip", "netns", "exec", namespace_of(end), *words] for end in ("client", "server"))
        done = ended([MPICH.launcher[0], *first, ":", *second], timeout_s=LIMIT_S, env=YIELD)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    return done.line


#: Other work may hold up the work alone, which is done once, or the faster link. What is wrong with ours is wrong each time.
TURNS = 3
GROWS_WITH_A_SLOWER_LINK = ("communication_mean_ns", "communication_share_ratio")


@pytest.mark.promise("Over a slower link the share of communication is higher and the speed-up lower.")
@pytest.mark.parametrize(
    ("kernel", "options"), [("mpi_matrix_multiply", {"matrix_row_count": 256}), ("mpi_sort", {"element_count": 10_000})]
)
def test_a_slower_link_raises_the_share_of_communication(
    programs: Programs, tmp_path: Path, kernel: str, options: dict[str, Any]
) -> None:
    """0.5 MB or so per operation: 4 ms or 200 ms of a link, beside some ms of computing."""
    program = _built(programs, MPICH)[0]
    told = list[dict[str, bool]]()
    while len(told) < TURNS and not (told and set(told[-1].values()) == {True}):
        turn = tmp_path / f"turn-{len(told)}"
        turn.mkdir()
        fast, slow = (over_a_link(turn / f"{rate:.0f}", program, rate, kernel, **options) for rate in (1e9, 2e7))
        for line in (fast, slow):
            for end in ("client", "server"):
                crossed_bytes = line["evidence"][end]["interface_bytes"]["tx"]
                assert crossed_bytes > line["metrics"][f"{end}_moved_bytes"] > 0
        assert fast["metrics"]["moved_bytes"] == slow["metrics"]["moved_bytes"]
        told.append({name: fast["metrics"][name] < slow["metrics"][name] for name in GROWS_WITH_A_SLOWER_LINK})
        told[-1]["speed_up_ratio"] = fast["metrics"]["speed_up_ratio"] > slow["metrics"]["speed_up_ratio"]
    assert set(told[-1].values()) == {True}, told

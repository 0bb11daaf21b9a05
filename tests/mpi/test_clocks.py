"""Operations that begin at a moment by synchronised clocks: known offsets are found, and who comes too late is marked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import LIMIT_S, ended
from tests.kernels.test_kernels_mpi import YIELD
from tests.mpi.mpi_programs import Launched, mpich_takes_long, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

LATE = Path(__file__).with_name("late.c")
SHIFT = ["unshare", "--time", "--fork"]
SHIFTS = (
    shutil.which("unshare") is not None and not subprocess.run([*SHIFT, "true"], check=False, capture_output=True).returncode
)
#: What the goal of the clocks is; on a busy machine their own error says more.
WITHIN_NS = 10_000


@pytest.mark.promise("Offsets between the clocks of ranks are found within the error that the result states.")
@pytest.mark.skipif(not SHIFTS, reason="this system gives no time namespace")
@pytest.mark.parametrize(("first_s", "second_s"), [(5000, 0), (0, 777), (300, 86_400)])
@mpich_takes_long
def test_known_offsets_are_found_within_the_error_that_is_stated(launched: Launched, first_s: int, second_s: int) -> None:
    """Rank 1 and 2 live in time namespaces of their own, whose clocks are that far ahead."""
    options = {"start": "window", "operation": "allreduce", "duration_s": "60", "warmup_s": "0", "validate": "true"}
    options["operation_count_max"] = "100"  # what came too late on a busy machine is repeated
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    program = [str(launched.program), "mpi_collective", *words]
    ranks = [[*SHIFT, "--monotonic", str(ahead_s), *program] for ahead_s in (first_s, second_s)]
    command = [*launched.mpi.launcher, "1", *program, ":", "-np", "1", *ranks[0], ":", "-np", "1", *ranks[1]]
    done = ended(command, timeout_s=LIMIT_S, env=YIELD)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    off_ns = abs(metrics["clock_offset_ns"] - 1e9 * max(first_s, second_s))
    assert off_ns <= metrics["clock_error_ns"], "further off than it says"
    assert off_ns <= max(WITHIN_NS, metrics["clock_error_ns"])
    assert abs(metrics["clock_drift_ratio"]) < 1e-3  # one clock, in fact
    # A time that mixed two clocks would be an hour.
    assert 0 < metrics["operation_min_ns"] <= metrics["operation_max_ns"] < 60e9


@pytest.mark.promise("An operation that a rank came too late for is not measured, and repeated.")
def test_who_comes_too_late_is_marked_and_the_operation_repeated(launched: Launched, tmp_path: Path) -> None:
    env = preloaded(launched.mpi, LATE, tmp_path / "late.so")
    done = launched.run("mpi_collective", start="window", operation="bcast", env=env, operation_count_max=7)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    assert metrics["window_missed_count"] >= 1
    assert metrics["operation_count"] == sum(count for _, count in done.line["histogram"]["buckets"]) == 7


@pytest.mark.promise("Where a rank came too late for every operation, the result is invalid.")
def test_where_a_rank_is_always_late_nothing_was_measured(launched: Launched, tmp_path: Path) -> None:
    env = preloaded(launched.mpi, LATE, tmp_path / "late.so") | {"LATE": "always"}
    done = launched.run("mpi_collective", start="window", operation="allreduce", env=env, duration_s=0.3)
    assert (done.rc, done.line["valid"]) == (1, False), done.err
    assert "no operation was measured: a rank came too late for each of " in done.line["invalid_reason"]
    assert "operation_p50_ns" not in done.line["metrics"]


def test_behind_a_barrier_no_clocks_are_told(launched: Launched) -> None:
    metrics = launched.run("mpi_collective", operation="bcast").line["metrics"]
    assert not [name for name in metrics if name.startswith(("clock_offset", "clock_drift", "clock_error", "window"))]

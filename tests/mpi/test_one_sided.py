"""mpi_one_sided: each operation with each synchronisation, under both libraries, and what arrives is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import Programs
from tests.kernels.test_kernels_mpi import OPEN_MPI, _built
from tests.mpi.mpi_programs import Launched, mpich_takes_long, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

SPOIL = Path(__file__).with_name("spoil.c")
OPERATIONS = ["put", "get", "accumulate"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("synchronization", ["fence", "lock", "flush"])
@mpich_takes_long
def test_every_operation_arrives(launched: Launched, operation: str, synchronization: str) -> None:
    chosen: dict[str, Any] = {"operation": operation, "synchronization": synchronization}
    done = launched.run("mpi_one_sided", message_bytes=100_004, validate="true", **chosen)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    assert metrics["operation_count"] == 5
    # Within what a histogram's bucket is wide.
    assert metrics["throughput_bps"] == pytest.approx(8e9 * 100_004 / metrics["operation_p50_ns"], rel=0.01)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_bytes_are_a_size(launched: Launched, operation: str) -> None:
    done = launched.run("mpi_one_sided", message_bytes=0, operation=operation, synchronization="flush", validate="true")
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    assert "throughput_bps" not in done.line["metrics"]


@pytest.mark.promise("With validate, a put, get or accumulate of which anything did not arrive makes the result invalid.")
@pytest.mark.parametrize("operation", OPERATIONS)
@mpich_takes_long
def test_what_did_not_arrive_makes_a_result_invalid(launched: Launched, tmp_path: Path, operation: str) -> None:
    env = preloaded(launched.mpi, SPOIL, tmp_path / "spoil.so")
    options: dict[str, Any] = {"operation": operation, "synchronization": "lock", "message_bytes": 1000}
    spoilt = launched.run("mpi_one_sided", env=env, validate="true", **options)
    assert spoilt.line["valid"] is False
    at, rank = (996 if operation == "accumulate" else 999), (0 if operation == "get" else 1)
    assert spoilt.line["invalid_reason"] == f"byte {at} at rank {rank} is not what {operation} gives"
    assert launched.run("mpi_one_sided", env=env, **options).line["valid"] is True  # nobody looked


def test_words_are_whole(launched: Launched) -> None:
    done = launched.run("mpi_one_sided", operation="accumulate", message_bytes=6)
    assert done.line["error"]["message"] == "message_bytes: found 6: allowed: a multiple of 4 where operation is accumulate"
    assert (done.line["valid"], done.line["exit_code"]) == (False, 2)


@pytest.mark.promise(
    "Where an MPI library serves no window between two ranks, `mpi_one_sided` names its setting and one that works."
)
@pytest.mark.promise("`transport: tcp` gives Open MPI a part for windows where its own settings leave none.")
def test_a_library_that_serves_no_window_says_so(programs: Programs) -> None:
    """Debian's settings of Open MPI leave osc rdma alone between two nodes over TCP, and that needs RDMA."""
    launched = Launched(OPEN_MPI, _built(programs, OPEN_MPI)[0])
    env = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_osc": "rdma"}
    done = launched.run("mpi_one_sided", env=env)
    assert done.line["error"]["message"] == (
        "window: this library, whose osc is rdma, has no part that serves a window between these ranks: "
        "transport: tcp gives it one"
    )
    assert launched.run("mpi_one_sided", env=env, transport="tcp").line["valid"] is True

"""Open MPI dies of a message that comes while another rank is still in MPI_Init: hpcq-mpi keeps quiet for a moment."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import LIMIT_S, Programs
from tests.kernels.test_kernels_mpi import OPEN_MPI, YIELD, _built

SHIM = Path(__file__).with_name("early_message.c")


@pytest.mark.promise("Under Open MPI no rank sends a message while another may still be in MPI_Init, where it would crash.")
@pytest.mark.parametrize(
    ("says", "waits"),
    [("Open MPI v5.0.7, package", True), ("Open MPI v4.1.4, package", True), ("MPICH Version: 4.0.2", False)],
)
def test_no_message_leaves_right_after_mpi_init_of_open_mpi(
    programs: Programs, tmp_path: Path, says: str, *, waits: bool
) -> None:
    shim = tmp_path / "early.so"
    subprocess.run([OPEN_MPI.compiler, "-shared", "-fPIC", f'-DSAYS="{says}"', "-o", shim, SHIM], check=True)
    words = ["mpi_pingpong", "--operation_count_max", "5", "--warmup_s", "0"]
    preload = ["env", f"LD_PRELOAD={shim}", *(f"{name}={value}" for name, value in YIELD.items())]
    command = [*OPEN_MPI.launcher, "2", *preload, str(_built(programs, OPEN_MPI)[0]), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    quiet_ms = [float(one) for one in re.findall(r"quiet_ms (\S+)", done.stderr)]
    assert len(quiet_ms) == 2
    if waits:
        assert min(quiet_ms) >= 100
    else:
        assert min(quiet_ms) < 100  # of two ranks; one of them may have waited for a CPU

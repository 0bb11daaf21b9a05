"""Leaving MPI: a library that does not come back from MPI_Finalize() costs a node seconds, and at times the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.mpi_programs import Launched, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

BACK = Path(__file__).with_name("back.c")
#: Half of the runs hung with MPICH 4.0 over UCX and TCP: as many as make it sure.
RUNS = 8


@pytest.mark.promise("Ranks come back from MPI_Finalize(), with MPICH before 4.2 over UCX too.")
def test_ranks_come_back_from_finalize(launched: Launched, tmp_path: Path) -> None:
    env = preloaded(launched.mpi, BACK, tmp_path / "back.so")
    for _ in range(RUNS):
        done = launched.run("mpi_pingpong", "--interface", "lo", transport="tcp", env=env)
        assert (done.rc, done.line["valid"], done.err.count("came back")) == (0, True, 2), done.err

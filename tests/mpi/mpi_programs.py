"""hpcq-mpi of both libraries, started on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import LIMIT_S, Ended, Programs, ended
from tests.kernels.test_kernels_mpi import MPICH, MPIS, YIELD, Mpi, _built

#: A few operations, however slow this machine is.
FEW: Mapping[str, object] = {"duration_s": 60, "warmup_s": 0, "operation_count_max": 5}


class Launched:
    """One MPI library's hpcq-mpi. reports: the caller reads what sanitizers say; else any word of theirs fails the test."""

    def __init__(self, mpi: Mpi, program: Path, *, reports: bool = False) -> None:
        self.mpi, self.program, self.reports = mpi, program, reports

    def run(self, kernel: str, *words: str, ranks: int = 2, env: Mapping[str, str] | None = None, **options: object) -> Ended:
        """Run a kernel to its end, for a few operations unless the options say otherwise."""
        given = [word for name, value in {**FEW, **options}.items() for word in (f"--{name}", str(value))]
        preload = ["env", *(f"{name}={value}" for name, value in (env or {}).items())]
        command = [*self.mpi.launcher, str(ranks), *preload, str(self.program), kernel, *words, *given]
        return ended(command, timeout_s=LIMIT_S, env=YIELD, reports=self.reports)


@pytest.fixture(params=MPIS, ids=lambda mpi: mpi.compiler)
def launched(request: pytest.FixtureRequest, programs: Programs) -> Launched:
    """hpcq-mpi of each library."""
    return Launched(request.param, _built(programs, request.param)[0])


#: Before a test of what the kernels do whichever library they are linked with: with MPICH it is one of the long tests.
#: Of each kernel there is a test without this mark, so that each library runs all of them in the shorter ones, too.
mpich_takes_long = pytest.mark.parametrize(
    "launched",
    [pytest.param(mpi, id=mpi.compiler, marks=[pytest.mark.long] if mpi is MPICH else []) for mpi in MPIS],
    indirect=True,
)


def on_two_nodes(launched: Launched, folder: Path) -> Launched:
    """The same, where ranks 0 and 2 of the launcher are on a node b, 1 and 3 on a."""
    wrapper = folder / "placed"
    wrapper.write_text(
        "#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}\n[ $((rank % 2)) = 1 ] && HPCQ_NODE=a || HPCQ_NODE=b\n"
        f'export HPCQ_NODE\nexec {launched.program} "$@"\n'
    )
    wrapper.chmod(0o755)
    return Launched(launched.mpi, wrapper)


def preloaded(mpi: Mpi, source: Path, to: Path) -> dict[str, str]:
    """The environment that puts a library made from this source before the MPI library."""
    import subprocess

    subprocess.run([mpi.compiler, "-shared", "-fPIC", "-o", to, source], check=True)
    return {"LD_PRELOAD": str(to)}

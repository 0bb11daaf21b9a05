"""hpcq-mpi under every MPI that is installed: Open MPI and MPICH are two compilers and two launchers of one source."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from hpcq.kernels import complete, own_kernel, sweep_sizes
from tests.kernels.kernel_programs import ROOT, SOURCES, Ended, Programs, ended, made_once

YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


MPI_SOURCES = {
    path.relative_to(SOURCES).as_posix() for path in SOURCES.glob("*/*.c") if path.parent.name in {"mpi", "applications"}
}


@dataclass(frozen=True)
class Mpi:
    """One MPI: how it compiles, how it starts two ranks, what it calls itself."""

    compiler: str
    launcher: tuple[str, ...]
    name: str


OPEN_MPI = Mpi("mpicc.openmpi", ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np"), "Open MPI")
MPICH = Mpi("mpicc.mpich", ("mpirun.mpich", "-np"), "MPICH")
#: Both, always: one that is missing is a failure, not a skip.
MPIS = [OPEN_MPI, MPICH]


@cache
def _built(programs: Programs, mpi: Mpi) -> tuple[Path, str]:
    """Beside a hpcq-net that is there: what both share is not compiled again."""
    folder = programs.folder.with_name(mpi.compiler)
    return folder / "hpcq-mpi", made_once(folder, "mpi", f"MPICC={mpi.compiler}", beside=programs.folder)


@pytest.fixture(params=MPIS, ids=lambda mpi: mpi.compiler)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    chosen: Mpi = request.param
    return chosen


#: Before a test of what is the same code whichever library it is linked with: with MPICH it is one of the long tests.
mpich_alone_takes_long = pytest.mark.parametrize(
    "mpi",
    [pytest.param(one, id=one.compiler, marks=[pytest.mark.long] if one is MPICH else []) for one in MPIS],
    indirect=True,
)


@pytest.fixture
def program(mpi: Mpi, programs: Programs) -> Path:
    return _built(programs, mpi)[0]


def run(mpi: Mpi, program: Path, *words: str, ranks: int = 2, **options: object) -> Ended:
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ended(
        [*mpi.launcher, str(ranks), str(program), "mpi_pingpong", *words, *given], timeout_s=200, env=YIELD, reports=True
    )


def test_builds_without_a_warning_and_compiles_nothing_twice(mpi: Mpi, programs: Programs) -> None:
    said = _built(programs, mpi)[1]
    assert "warning" not in said
    compiled = [(line.split()[0], line.split()[-1]) for line in said.splitlines() if " -c " in line]
    assert {name for compiler, name in compiled if compiler == mpi.compiler} == MPI_SOURCES
    assert [name for compiler, name in compiled if compiler != mpi.compiler] == ["build_id.c"]


def test_describes_itself_without_mpi(mpi: Mpi, program: Path) -> None:
    """No launcher, no MPI_Init: the description is what is committed, whatever MPI it was built with."""
    said = json.loads(subprocess.run([program, "--describe"], capture_output=True, text=True, check=True).stdout)
    assert said["build_id"]
    said["build_id"] = ""
    assert said == json.loads((ROOT / "kernels" / "describe" / "hpcq-mpi.json").read_text())


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_the_client_is_the_rank_on_its_node_however_the_launcher_numbers_them(
    mpi: Mpi, program: Path, order: tuple[str, str]
) -> None:
    words = [str(program), "mpi_pingpong", "--nodes", "n1,n2", "--operation_count_max", "5", "--warmup_s", "0"]
    first, second = (["1", "env", f"HPCQ_NODE={name}", *words] for name in order)
    done = ended([*mpi.launcher, *first, ":", "-np", *second], timeout_s=200, env=YIELD)
    assert done.rc == 0, done.err
    evidence = done.line["evidence"]
    assert [evidence[end]["scheduler_node"] for end in ("client", "server")] == ["n1", "n2"]


@pytest.mark.promise("MPI sweeps measure each size between the same two processes.")
def test_a_sweep_measures_each_size_between_the_same_two_processes(mpi: Mpi, program: Path) -> None:
    options = {"message_bytes": 0, "sweep_to_bytes": 40000, "sweep_perturbation_bytes": 3, "operation_count_max": 20}
    done = run(mpi, program, "--interface", "lo", warmup_s=0, duration_s=100, **options)
    assert done.rc == 0, done.err
    sizes = done.line["sizes"]
    mpi_pingpong = own_kernel("mpi_pingpong")
    assert [one["options"]["message_bytes"] for one in sizes] == sorted(
        sweep_sizes(mpi_pingpong, complete(mpi_pingpong, options))
    )
    assert all(one["valid"] and one["metrics"]["operation_count"] == 20 for one in sizes)
    for end in ("client", "server"):
        assert len({one["evidence"][end]["pid"] for one in sizes}) == 1


@pytest.mark.parametrize("message_bytes", [0, 1, 100000])
def test_measures(mpi: Mpi, program: Path, tmp_path: Path, message_bytes: int) -> None:
    samples = tmp_path / "samples"
    whole = tmp_path / "whole.json"
    words = ["--interface", "lo", "--samples-file", str(samples), "--evidence-file", str(whole)]
    done = run(mpi, program, *words, message_bytes=message_bytes, operation_count_max=50, warmup_s=0, duration_s=100)
    line = done.line
    assert done.rc == 0, done.err
    assert line["valid"] is True
    assert line["options"]["message_bytes"] == message_bytes
    metrics = line["metrics"]
    assert metrics["operation_count"] == 50
    assert sum(count for _, count in line["histogram"]["buckets"]) == 50
    assert samples.stat().st_size == 50 * 8
    assert 0 < metrics["round_trip_min_ns"] <= metrics["round_trip_p50_ns"] <= metrics["round_trip_max_ns"]
    assert ("throughput_bps" in metrics) == (message_bytes > 0)
    said = {warning["name"]: warning["message"] for warning in line["warnings"]}
    if coarse := said.pop("clock_coarse", None):  # the clock of some machines moves in steps of 10 ns, a round trip takes 1 us
        found = re.search(r"moves in steps of (\d+) ns, .* of a mean sample of", coarse)
        assert found, coarse
        assert float(found[1]) > 0.008 * metrics["round_trip_mean_ns"]
    assert list(said) == ["same_node"]
    for end in ("client", "server"):
        assert mpi.name in line["granted"][f"{end}_mpi_library_version"]
        assert line["evidence"][end]["interface"] == "lo"
        assert line["evidence"][end]["address"] == "127.0.0.1"
        assert json.loads(whole.read_text())[end]["pid"] == line["evidence"][end]["pid"]
    assert line["evidence"]["client"]["pid"] != line["evidence"]["server"]["pid"]


def test_ends_by_time(mpi: Mpi, program: Path) -> None:
    line = run(mpi, program, duration_s=0.1, warmup_s=0.02).line
    assert line["valid"]
    assert line["duration_ns"] >= 0.1e9
    assert line["metrics"]["operation_count"] >= 1


def test_usage(mpi: Mpi, program: Path) -> None:
    done = run(mpi, program, message_bytes=-1)
    assert done.line["error"]["message"] == "message_bytes: found -1: allowed: integer 0 to 1073741824 bytes"
    assert (done.line["valid"], done.line["exit_code"]) == (False, 2)
    assert done.rc != 0
    done = run(mpi, program, ranks=1)
    assert done.line["error"]["message"] == "found 1 ranks: allowed: 2"
    done = run(mpi, program, "--interface", "nope0")
    assert done.line["valid"] is False
    assert "nope0" in done.line["error"]["message"]

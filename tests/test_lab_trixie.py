"""Two generations: beta's machines run another Debian release than alpha's. The first run makes its root file system."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.lab_fixture import PROGRAM, RunningLab, lab_command
from tests.test_lab import MPI_BYTES, MPI_ENVIRONMENT, MPI_PROGRAM, eth0_bytes

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def mixed(request: pytest.FixtureRequest) -> Iterator[RunningLab]:
    lab = RunningLab("test-trixie")
    try:
        lab_command("up", "--name", lab.name, "--nodes", "2", "--beta", "trixie", timeout_s=900)
        yield lab
    finally:
        lab_command("down", "--name", lab.name)


def test_the_two_clusters_are_of_two_generations(mixed: RunningLab) -> None:
    versions = {
        cluster: mixed.ssh(cluster, "sinfo -V; ldd --version | head -1; mpicc --showme:version")
        for cluster in ("alpha", "beta")
    }
    assert versions["alpha"].startswith("slurm-wlm 22.05.")
    assert versions["beta"].startswith("slurm-wlm 24.11.")
    assert "Open MPI 4.1" in versions["alpha"]
    assert "Open MPI 5.0" in versions["beta"]
    assert "2.36" in versions["alpha"]
    assert "2.41" in versions["beta"]


@pytest.mark.parametrize(("compiler", "plugin"), [("mpicc.openmpi", "pmix"), ("mpicc.mpich", "pmi2")])
def test_mpi_of_the_newer_release_goes_through_eth0(mixed: RunningLab, compiler: str, plugin: str) -> None:
    mixed.ssh("beta", f"cat > {plugin}.c; {compiler} -o {plugin} {plugin}.c", text=MPI_PROGRAM)
    nodes = ["beta/n01", "beta/n02"]
    before = [eth0_bytes(mixed, node) for node in nodes]
    found = mixed.ssh("beta", f"{MPI_ENVIRONMENT} srun -N2 --ntasks-per-node=1 --mpi={plugin} ./{plugin}")
    moved = [eth0_bytes(mixed, node) - was for node, was in zip(nodes, before, strict=True)]
    assert sorted(found.splitlines()) == [f"rank {i} of 2 on beta-n0{i + 1}" for i in (0, 1)]
    assert all(MPI_BYTES < byte_count < 1.2 * MPI_BYTES for byte_count in moved), moved


def test_a_file_of_one_generation_is_not_seen_by_the_other(mixed: RunningLab) -> None:
    releases = [mixed.ssh(cluster, "cat /etc/debian_version") for cluster in ("alpha", "beta")]
    assert [release.split(".")[0] for release in releases] == ["12", "13"]


def test_an_unknown_system_is_refused() -> None:
    words = [sys.executable, str(PROGRAM), "up", "--beta", "potato"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'potato'" in done.stderr
    assert "trixie" in done.stderr

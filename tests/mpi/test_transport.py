"""`transport` of the MPI kernels: one plain word becomes the settings of each library, and the result says what was used."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.kernel_programs import Ended
from tests.kernels.test_kernels_mpi import MPICH, OPEN_MPI
from tests.mpi.mpi_programs import Launched
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

MESSAGE_BYTES = 1 << 20
MOVED_BYTES = 5 * MESSAGE_BYTES


def measured(launched: Launched, transport: str, **more: Any) -> Ended:
    return launched.run("mpi_pingpong", "--interface", "lo", transport=transport, message_bytes=MESSAGE_BYTES, **more)


def crossed_bytes(done: Ended) -> int:
    """What left over lo meanwhile; others may send there too."""
    return int(done.line["evidence"]["client"]["interface_bytes"]["tx"])


@pytest.mark.promise("`transport: tcp` sends over TCP and the interface under test, also where the ranks share a machine.")
def test_tcp_is_sent_over_the_interface(launched: Launched) -> None:
    """Both ranks are on one machine, where each library would choose its memory."""
    done = measured(launched, "tcp")
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    assert done.line["options"]["transport"] == "tcp"
    assert crossed_bytes(done) > MOVED_BYTES
    granted = done.line["granted"]
    assert "lo" in granted["client_mpi_tcp_interfaces"].split()
    if launched.mpi == OPEN_MPI:
        assert {"mca_pml_ob1", "mca_btl_tcp"} < set(granted["client_mpi_components"].split())
        assert "mca_btl_vader" not in granted["client_mpi_components"]


@pytest.mark.promise("`transport: shared_memory` holds against an environment that asks for TCP.")
def test_shared_memory_is_not_sent(launched: Launched) -> None:
    """An environment that asks for TCP gives way to the word."""
    done = measured(launched, "shared_memory", env={"OMPI_MCA_btl": "tcp,self", "UCX_TLS": "tcp,self"})
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    words = "UCX_TLS=sm,self" if launched.mpi == MPICH else "OMPI_MCA_btl=vader,self"
    assert words in done.line["granted"]["client_mpi_environment"].split()
    if launched.mpi == OPEN_MPI:
        assert "mca_btl_tcp" not in done.line["granted"]["client_mpi_components"]


@pytest.mark.promise("An MPICH that was built without the transport that a test asks for refuses it.")
def test_a_library_that_was_built_without_it_says_so(launched: Launched) -> None:
    done = measured(launched, "ofi")
    if launched.mpi == MPICH and "ofi" not in done.line.get("granted", {}).get("client_mpi_device", "ch4:ucx"):
        assert (done.rc, done.line["valid"]) == (2, False)
        assert done.line["error"]["message"] == "transport: found ofi: this library was built without it"
    else:
        assert (done.rc, done.line["valid"]) == (0, True), done.err
        assert "mca_mtl_ofi" in done.line["granted"]["client_mpi_components"]


def test_ucx_is_used_by_both(launched: Launched) -> None:
    done = measured(launched, "ucx")
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    granted = done.line["granted"]
    assert "libucp" in granted["client_mpi_components"].split()
    assert "UCX_NET_DEVICES=lo" in granted["client_mpi_environment"].split()
    if launched.mpi == OPEN_MPI:
        assert "mca_pml_ucx" in granted["client_mpi_components"].split()


def test_devices_that_a_site_names_stay(launched: Launched) -> None:
    """With ucx; with tcp it is the interface under test."""
    devices = {"UCX_NET_DEVICES": "all"}
    stay = measured(launched, "ucx", env=devices).line["granted"]["client_mpi_environment"].split()
    assert "UCX_NET_DEVICES=all" in stay
    gone = measured(launched, "tcp", env=devices).line["granted"]["client_mpi_environment"].split()
    assert "UCX_NET_DEVICES=lo" in gone


@pytest.mark.parametrize("kernel", ["mpi_one_sided", "mpi_collective", "mpi_stream"])
def test_every_kernel_takes_it(launched: Launched, kernel: str) -> None:
    done = launched.run(kernel, "--interface", "lo", transport="tcp", message_bytes=64)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    assert "UCX_TLS=tcp,self" in done.line["granted"]["client_mpi_environment"].split()


@pytest.mark.promise("A result has the PMIx version and the Slurm plugin that started its ranks.")
def test_what_started_the_ranks_is_told(launched: Launched) -> None:
    env = {"SLURM_MPI_TYPE": "pmix_v9"}
    granted = launched.run("mpi_pingpong", env=env).line["granted"]
    assert granted["client_slurm_mpi_plugin"] == "pmix_v9"
    assert ("client_pmix_version" in granted) == (launched.mpi == OPEN_MPI)
    assert ("client_mpi_device" in granted) == (launched.mpi == MPICH)

"""What a cluster compiles the kernels with, and starts MPI programs with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mpi:
    """How MPI programs are compiled and started; `launch` is argument words, the template adds "one rank per node"."""

    compiler: str
    launch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compiler:
    """How the socket kernels are compiled."""

    cc: str
    cflags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler with an MPI, and the modules of both, by the name that a campaign calls."""

    compiler: Compiler
    mpi: Mpi
    modules: tuple[str, ...]

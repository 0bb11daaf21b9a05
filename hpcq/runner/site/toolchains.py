"""The MPI kernels once per toolchain: each below `toolchains/NAME` of the run's folder on the cluster.

Each build is kept by sources, compiler and flags as the cluster's own is: see build.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hpcq.definition.model import Cluster
from hpcq.runner.site.build import build_kernels, check_description, slim
from hpcq.transport import Transport

#: The variables by which wrappers of Open MPI, MPICH and Intel MPI are told which compiler to use.
_COMPILER_VARIABLES = ("OMPI_CC", "MPICH_CC", "I_MPI_CC")


def build_toolchains(cluster: Cluster, transport: Transport, root: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Build hpcq-mpi with each of these toolchains of the cluster. Returns the record of each, by name."""
    found = {}
    for name in names:
        made = build_kernels(with_toolchain(cluster, name), transport, f"{root}/toolchains/{name}", {"hpcq-mpi"})
        check_description(made)
        found[name] = {**slim(made), "toolchain": name}
    return found


def with_toolchain(cluster: Cluster, name: str) -> Cluster:
    """The cluster as it is with this toolchain alone."""
    chosen = cluster.toolchains[name]
    return replace(
        cluster,
        compiler=chosen.compiler,
        mpi=chosen.mpi,
        modules=(*cluster.modules, *chosen.modules),
        environment={**cluster.environment, **dict.fromkeys(_COMPILER_VARIABLES, chosen.compiler.cc)},
    )

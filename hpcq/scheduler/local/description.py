"""The embedded queue as plain data: it simulates nodes on this machine and takes no options."""

from __future__ import annotations

from hpcq.scheduler.description import Description, SharedKey

DESCRIPTION = Description(
    kind="local",
    title="the local queue",
    keys=(),
    takes=frozenset({SharedKey.NODES}),
    found_by="",
    head_template="local.directives.j2",
    default_mpi_launch=("mpirun", "-np", "2"),
    default_interface="lo",
    default_nodes=("local-1", "local-2"),
    poll_interval_s=0.5,
    poll_interval_min_s=0.0,
    filesystem_delay_s=1.0,
    here_only=True,
)

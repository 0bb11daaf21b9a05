"""What `hpcq cluster check` asks a Slurm beyond what every scheduler is asked."""

from __future__ import annotations

from collections.abc import Sequence

from hpcq.scheduler.types import CheckedItem, SchedulerSettings
from hpcq.transport import Transport


def site_items(
    transport: Transport,
    settings: SchedulerSettings,  # noqa: ARG001 - what depends on the partition comes next
    mpi_launch: Sequence[str] | None,
) -> list[CheckedItem]:
    """Everything, in the order in which a person reads it."""
    return _mpi_plugin(transport, mpi_launch) if mpi_launch else []


def _mpi_plugin(transport: Transport, mpi_launch: Sequence[str]) -> list[CheckedItem]:
    """Whether srun has the plugin that the launch line names."""
    wanted = next((word.partition("=")[2] for word in mpi_launch if word.startswith("--mpi=")), None)
    if mpi_launch[0] != "srun" or wanted is None:
        return []
    plugins = [word.strip() for word in transport.sh("srun --mpi=list 2>&1").text.replace(",", " ").split()]
    shown = [word for word in plugins if word.startswith(("pmi", "cray", "none"))]
    advice = None if wanted in plugins else f"mpi.launch says --mpi={wanted}; install its plugin or name another"
    return [CheckedItem("mpi plugin", wanted in plugins, " ".join(dict.fromkeys(shown)) or "none listed", advice)]

"""All kinds of scheduler. Only this module names them: a new kind is a module or package, and one line here, or a plug-in.

DESCRIPTIONS["pbs"]                   what the definition checks cluster files against
make("pbs", transport, settings)      the scheduler itself
commands_environment("pbs", {...})    the environment of its commands
"""

from __future__ import annotations

from collections.abc import Mapping

from hpcq import plugins
from hpcq.errors import UserError
from hpcq.scheduler import local, pbs, slurm, torque
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.description import Description
from hpcq.scheduler.types import SchedulerSettings
from hpcq.transport import CommandEnvironment, Transport

_PACKAGES: dict[str, tuple[Description, type[Scheduler]]] = {
    "slurm": (slurm.DESCRIPTION, slurm.Slurm),
    "pbs": (pbs.DESCRIPTION, pbs.Pbs),
    "torque": (torque.DESCRIPTION, torque.Torque),
    "local": (local.DESCRIPTION, local.Local),
}


def _complaint(name: str, found: object) -> str:
    description, its_class = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    if not (isinstance(description, Description) and isinstance(its_class, type) and issubclass(its_class, Scheduler)):
        return f"is a {type(found).__name__}: must be (Description, a class of Scheduler)"
    return "" if description.kind == name else f"its kind is {description.kind!r}: must be the name of its entry point"


_PACKAGES |= plugins.usable(plugins.SCHEDULERS, _PACKAGES, _complaint)

DESCRIPTIONS: dict[str, Description] = {kind: description for kind, (description, _) in _PACKAGES.items()}


def describe(kind: str) -> Description:
    """Return the description of a kind. Raises UserError, with the list of kinds, for an unknown kind."""
    plugins.refuse_broken(plugins.SCHEDULERS, kind, "scheduler")
    if kind not in DESCRIPTIONS:
        raise UserError(f"scheduler: {kind!r}: must be one of {', '.join(DESCRIPTIONS)}")
    return DESCRIPTIONS[kind]


def make(kind: str, transport: Transport, settings: SchedulerSettings) -> Scheduler:
    """Return the scheduler of a cluster. Raises UserError, with the list of kinds, for an unknown kind."""
    describe(kind)
    return _PACKAGES[kind][1](transport, settings)


def commands_environment(kind: str, instance: Mapping[str, str]) -> CommandEnvironment:
    """Return the environment of a cluster's commands: of all scheduler variables, only those that select its instance.

    instance: what the cluster file sets. hpcq removes the variables of all kinds, since it may itself run inside a job.
    """
    prefixes = tuple(prefix for one in DESCRIPTIONS.values() for prefix in one.scrubbed_prefixes)
    found = describe(kind)
    return CommandEnvironment(prefixes, found.kept_variables, {**found.assigned_variables, **instance})


def mpi_example(kind: str) -> str:
    """Return an example of the key `mpi` of a cluster file, for hints."""
    return f"mpi: {{compiler: mpicc, launch: {' '.join(describe(kind).default_mpi_launch)}}}"

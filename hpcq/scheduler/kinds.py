"""All kinds of scheduler. Only this module names them: a new kind is a module or package, and one line here, or a plug-in.

DESCRIPTIONS["pbs"]                   what the definition checks cluster files against
make("pbs", transport, settings)      the scheduler itself
commands_environment("pbs", {...})    the environment of its commands
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from hpcq import assets, plugins
from hpcq.errors import HpcqError, SchedulerError, UserError
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


def _complaint(one: plugins.Plugin) -> str:
    found = one.found
    description, its_class = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    if not (isinstance(description, Description) and isinstance(its_class, type) and issubclass(its_class, Scheduler)):
        return f"is {plugins.type_words(found)}: must be (Description, a class of Scheduler)"
    for name, type_told in get_type_hints(Description).items():
        if not plugins.fits(getattr(description, name), type_told):
            return f"its {name} is {plugins.type_words(getattr(description, name))}: must be {plugins.hint_words(type_told)}"
    if missing := sorted(its_class.__abstractmethods__):
        return f"its {its_class.__name__} has no {', '.join(missing)}: must have all that Scheduler asks for"
    places = [assets.templates(), *([one.folder] if one.folder else [])]
    if not any((place / description.head_template).is_file() for place in places):
        return f"its head_template {description.head_template!r} is not there: must be a file beside its module"
    return "" if description.kind == one.name else f"its kind is {description.kind!r}: must be the name of its entry point"


def _guarded(kind: str, its_class: type[Scheduler]) -> type[Scheduler]:
    """A plug-in's class, whose own failures are told as such: they are no defect of hpcq."""
    names = ("__init__", *sorted(name for name, one in vars(Scheduler).items() if callable(one) and name[0] != "_"))
    return type(its_class.__name__, (its_class,), {name: _telling(kind, name, getattr(its_class, name)) for name in names})


def _telling(kind: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*words: Any, **named: Any) -> Any:
        try:
            return method(*words, **named)
        except HpcqError:
            raise
        except Exception as error:
            message = f"scheduler {kind}: its plug-in failed in {name}: {type(error).__name__}: {error}"
            raise SchedulerError(message, "tell its authors") from error

    return called


_PACKAGES |= {
    kind: (description, _guarded(kind, its_class))
    for kind, (description, its_class) in plugins.usable(plugins.SCHEDULERS, _PACKAGES, _complaint).items()
}

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

"""Gate kinds, schedulers and exporters of other packages: what entry points name, loaded once.

    [project.entry-points."hpcq.gate_kinds"]    reverse_of_last_week = "site_hpcq:KIND"          a GateKind
    [project.entry-points."hpcq.schedulers"]    flux = "site_hpcq.flux:SCHEDULER"                (DESCRIPTION, the class)
    [project.entry-points."hpcq.exporters"]     influx = "site_hpcq:influx_text"                 Exported -> str

A plug-in that cannot be used is named with the reason wherever its word is used, and by `hpcq doctor`; all else works.
docs/extending.md has an example of each.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcq.errors import UserError

if TYPE_CHECKING:
    import importlib.metadata

GATE_KINDS, SCHEDULERS, EXPORTERS = GROUPS = ("hpcq.gate_kinds", "hpcq.schedulers", "hpcq.exporters")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point. found: what it names; folder: of its module, with its templates. reason: why it cannot be used."""

    name: str
    package: str
    found: Any = None
    folder: Path | None = None
    reason: str = ""


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """All entry points of a group, in the order of their names, the broken ones too."""
    import importlib.metadata  # brings the package email, which verbs without plug-ins need not load

    return tuple(_load(one) for one in sorted(importlib.metadata.entry_points(group=group), key=lambda one: one.name))


def usable(group: str, own: Collection[str], complaint: Callable[[str, Any], str]) -> dict[str, Any]:
    """What the plug-ins of a group bring, by name. own: names that hpcq has itself; they stay hpcq's.

    complaint: why a name and what it stands for do not fit; empty if they do. Such plug-ins are remembered as broken.
    """
    fine = {}
    for one in plugins(group):
        reason = one.reason or ("hpcq has one of this name" if one.name in own else complaint(one.name, one.found))
        if not reason and one.name in fine:
            reason = "another package has one of this name"
        if reason:
            _broken[group, one.name] = f"{one.package}: {reason}"
        else:
            fine[one.name] = one.found
    return fine


def broken() -> dict[tuple[str, str], str]:
    """Why plug-ins cannot be used, by group and name; complete once the three groups were asked for."""
    return dict(_broken)


def refuse_broken(group: str, name: str, where: str) -> None:
    """Raise UserError if this name, which stands at `where`, is that of a plug-in that cannot be used."""
    if (group, name) in _broken:
        raise UserError(
            f"{where}: {name!r}: plug-in {_broken[group, name]}",
            "mend or uninstall that package; hpcq doctor lists all plug-ins",
        )


_broken: dict[tuple[str, str], str] = {}


def _load(point: importlib.metadata.EntryPoint) -> Plugin:
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
    try:
        found = point.load()
        file = getattr(importlib.import_module(point.module), "__file__", None)
    except (Exception, SystemExit) as error:
        return Plugin(point.name, package, reason=f"{point.value}: cannot be loaded: {type(error).__name__}: {error}")
    return Plugin(point.name, package, found, Path(file).parent if file else None)

"""Gate kinds, schedulers and exporters of other packages: what entry points name, loaded once.

    [project.entry-points."hpcq.gate_kinds"]    reverse_of_last_week = "site_hpcq:KIND"          a GateKind
    [project.entry-points."hpcq.schedulers"]    flux = "site_hpcq.flux:SCHEDULER"                (DESCRIPTION, the class)
    [project.entry-points."hpcq.exporters"]     influx = "site_hpcq:influx_text"                 Exported -> str

A plug-in that cannot be used is named with the reason wherever its word is used, and by `hpcq doctor`; all else works.
docs/extending.md has an example of each.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Union, get_args, get_origin

from hpcq.clock import time_limit
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


def usable(group: str, own: Collection[str], complaint: Callable[[Plugin], str]) -> dict[str, Any]:
    """What the plug-ins of a group bring, by name. own: names that hpcq has itself; they stay hpcq's.

    complaint: why a plug-in's name and what it stands for do not fit; empty if they do. Such plug-ins, and two of one name, are
    remembered as broken.
    """
    fine: dict[str, Plugin] = {}
    twice: set[str] = set()
    for one in plugins(group):
        reason = one.reason or ("hpcq has one of this name" if one.name in own else _complained(complaint, one))
        if reason:
            _broken[group, one.name, one.package] = reason
        elif one.name in fine:
            twice.add(one.name)
            for first, other in ((one, fine[one.name]), (fine[one.name], one)):
                _broken[group, first.name, first.package] = f"{other.package} has one of this name, too: must be one"
        else:
            fine[one.name] = one
    found = {name: one.found for name, one in fine.items() if name not in twice}
    _known[group] = {*own, *found}
    return found


def broken() -> dict[tuple[str, str, str], str]:
    """Why plug-ins cannot be used, by group, name and package; complete once the three groups were asked for."""
    return dict(_broken)


def refusal(group: str, name: str) -> str:
    """Why a name that stands for nothing usable does not: of each plug-in that has it, package and reason. Else empty."""
    if name in _known.get(group, ()):
        return ""
    return "; ".join(f"{package}: {why}" for (of, one, package), why in _broken.items() if (of, one) == (group, name))


def refuse_broken(group: str, name: str, where: str) -> None:
    """Raise UserError if this name, which stands at `where`, is that of a plug-in that cannot be used."""
    if reason := refusal(group, name):
        raise UserError(
            f"{where}: {name!r}: plug-in {reason}",
            "mend or uninstall that package; hpcq doctor lists all plug-ins",
        )


# ----------------------------------------------------------------------------------------------------------------------
# Whether what a plug-in says of itself has the type that hpcq relies on: Python does not look.


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation says, with the elements of tuples, sets and mappings."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is ClassVar:
        return fits(value, of[0])
    if origin in {Union, UnionType}:
        return any(fits(value, one) for one in of)
    if origin is None or not isinstance(value, origin):
        return origin is None and (isinstance(value, hint) or (hint is float and type(value) is int))
    if isinstance(value, Mapping):
        return all(fits(key, of[0]) and fits(one, of[1]) for key, one in value.items())
    return not isinstance(value, (tuple, frozenset)) or all(fits(one, of[0]) for one in value)


def hint_words(hint: Any) -> str:
    """An annotation, without the folders of its names."""
    if get_origin(hint) is ClassVar:
        return hint_words(get_args(hint)[0])
    words = hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)
    return re.sub(r"\w+\.(?=\w)", "", words)


def type_words(value: object) -> str:
    """The type of a value, for messages: an int."""
    name = type(value).__name__
    return f"a{'n' if name[0] in 'aeiou' else ''} {name}"


# ----------------------------------------------------------------------------------------------------------------------


_broken: dict[tuple[str, str, str], str] = {}
_known: dict[str, set[str]] = {}
#: How long a plug-in may take to be imported: every verb that asks for its group waits for it.
_LOAD_S = 5.0
_TOO_SLOW = f"it takes more than {_LOAD_S:g} s: must be less"


class _TooSlowError(BaseException):
    """No Exception, which a module may catch while it is imported."""


def _load(point: importlib.metadata.EntryPoint) -> Plugin:
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
    try:
        # data of hpcq goes to standard output, and only that
        with contextlib.redirect_stdout(sys.stderr), time_limit(_LOAD_S, _TooSlowError(_TOO_SLOW)):
            found = point.load()
            file = getattr(importlib.import_module(point.module), "__file__", None)
    except (Exception, SystemExit, _TooSlowError) as error:
        words = str(error) if isinstance(error, _TooSlowError) else f"{type(error).__name__}: {error}"
        return Plugin(point.name, package, reason=f"{point.value}: cannot be loaded: {words}")
    return Plugin(point.name, package, found, Path(file).parent if file else None)


def _complained(complaint: Callable[[Plugin], str], one: Plugin) -> str:
    try:
        return complaint(one)
    except Exception as error:
        return f"cannot be looked at: {type(error).__name__}: {error}"

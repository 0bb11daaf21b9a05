"""All gate kinds: every module of this package that defines a KIND, and those of plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import hpcq.gate_kinds
from hpcq import plugins
from hpcq.gate_kinds.base import GateAgainst, GateKind

#: Fewer values of a baseline, or fewer peers, are too uncertain. With five, the median is right even if two are off.
REFERENCES_AT_LEAST = 5


@cache
def gate_kinds() -> dict[str, GateKind]:
    """All kinds by name, in the order of the names."""
    modules = (
        importlib.import_module(f"hpcq.gate_kinds.{found.name}") for found in pkgutil.iter_modules(hpcq.gate_kinds.__path__)
    )
    own = {module.KIND.name: module.KIND for module in modules if hasattr(module, "KIND")}
    return dict(sorted({**own, **plugins.usable(plugins.GATE_KINDS, own, _complaint)}.items()))


def _complaint(name: str, found: object) -> str:
    if not isinstance(found, GateKind):
        return f"is a {type(found).__name__}: must be a GateKind"
    missing = [one for one in ("name", "meaning", "missing") if not hasattr(found, one)]
    if missing:
        return f"has no {missing[0]}: must have name, meaning and missing"
    return "" if found.name == name else f"calls itself {found.name!r}: must be the name of its entry point"


def read_against(text: str) -> GateAgainst:
    """Read what a person wrote, such as baseline:NAME or peers. Raises ValueError `FOUND: ALLOWED`."""
    name, _, argument = text.partition(":")
    kind = gate_kinds().get(name)
    reason = plugins.broken().get((plugins.GATE_KINDS, name))
    if reason:
        raise ValueError(f"{text!r}: plug-in {reason}")
    if kind is None or bool(argument) != bool(kind.argument):
        raise ValueError(f"{text!r}: must be {written_kinds('or')}")
    return GateAgainst(kind, argument, REFERENCES_AT_LEAST if kind.counted else 0)


def written_kinds(word: str, chosen: Callable[[GateKind], bool] = lambda _: True) -> str:
    """The kinds as a campaign writes them, as part of a sentence: `baseline:NAME, link, memory or peers`."""
    *others, last = [kind.written for kind in gate_kinds().values() if chosen(kind)]
    return f"{', '.join(others)} {word} {last}" if others else last


def needed_facts() -> tuple[str, ...]:
    """All facts that any kind needs, each once."""
    return tuple(dict.fromkeys(fact for kind in gate_kinds().values() for fact in kind.facts))

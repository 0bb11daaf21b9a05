"""What the fields of hpcq's own JSON files must be, by the types that the code gives them.

    content of a file + a dataclass or a TypedDict --misfit--> "FIELD: FOUND: must be WHAT", or None

A file of hpcq that somebody changed by hand is told by its field, before anything computes with it. A field that the type does
not know is its reader's affair.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as fields_of
from enum import EnumMeta
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

_DIGITS_MAX = 18
#: Where in a value something is wrong, what is found there, what it must be; None: nothing is wrong.
_Wrong = tuple[str, object, str] | None
_Check = Callable[[Any], _Wrong]
#: A part of a value: where it is, what is found there, and its check.
_Part = tuple[str, object, _Check]
#: Stands for what is not there.
_NOTHING = type("_Nothing", (), {"__str__": lambda _: "nothing"})()


def misfit(found: Mapping[str, Any], kind: type) -> str | None:
    """Say which field cannot be what hpcq wrote: FIELD: FOUND: what it must be. None if each can."""
    wrong = _check(kind)(found)
    if wrong is None:
        return None
    place, value, must_be = wrong
    return f"{place.removeprefix('.') or 'all of it'}: {shown(value)}: must be {must_be}"


def shown(value: object) -> str:
    """A value of a JSON file as messages show it."""
    text = repr(value) if isinstance(value, str) else "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value: object) -> str | None:
    if type(value) is not str:
        return "a text"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "a text in UTF-8"
    return "a text without a zero byte" if "\0" in value else None


def _whole(value: object) -> str | None:
    fits = type(value) is int and abs(value) < 10**_DIGITS_MAX
    return None if fits else f"a whole number of at most {_DIGITS_MAX} digits"


def _number(value: object) -> str | None:
    fits = (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 10**_DIGITS_MAX)
    return None if fits else "a number"


_PLAIN: Mapping[Any, Callable[[object], str | None]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: lambda value: None if type(value) is bool else "true or false",
    types.NoneType: lambda value: None if value is None else "null",
    Any: lambda _: None,
}


@cache
def _check(kind: Any) -> _Check:
    """The check of one type hint."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        check = _plain(_PLAIN[kind])
    elif origin in {Union, types.UnionType}:
        check = _one_of(tuple(map(_check, arguments)))
    elif is_dataclass(kind) or is_typeddict(kind):
        check = _object(kind)
    elif isinstance(kind, EnumMeta):
        members: Iterable[Any] = kind.__members__.values()
        known = [str(one.value) for one in members]
        check = _plain(lambda value: None if type(value) is str and value in known else f"one of {', '.join(known)}")
    elif issubclass(origin, Mapping):
        check = _mapping(_check(arguments[0]), _check(arguments[1]))
    elif origin is tuple and arguments[-1] is not Ellipsis:
        check = _listed(tuple(map(_check, arguments)))
    else:
        check = _list(_check(arguments[0]))
    return check


def _plain(complaint: Callable[[object], str | None]) -> _Check:
    def check(value: object) -> _Wrong:
        must_be = complaint(value)
        return None if must_be is None else ("", value, must_be)

    return check


def _one_of(checks: tuple[_Check, ...]) -> _Check:
    def check(value: object) -> _Wrong:
        wrong = [one(value) for one in checks]
        if None in wrong:
            return None
        return "", value, " or ".join(dict.fromkeys(one[2] for one in wrong if one is not None))

    return check


def _object(kind: Any) -> _Check:
    checks = {name: _check(one) for name, one in get_type_hints(kind).items()}
    if is_typeddict(kind):
        needed = kind.__required_keys__
    else:
        needed = {one.name for one in fields_of(kind) if one.default is MISSING and one.default_factory is MISSING}

    def parts(value: Mapping[str, Any]) -> Iterable[_Part]:
        for name, check in checks.items():
            if name in value:
                yield f".{name}", value[name], check
            elif name in needed:
                yield f".{name}", _NOTHING, _plain(lambda _: "there")

    return lambda value: _first_wrong(value, dict, parts)


def _mapping(key_check: _Check, value_check: _Check) -> _Check:
    def parts(value: Mapping[str, Any]) -> Iterable[_Part]:
        for key, one in value.items():
            yield "", key, key_check
            yield f".{key[:40]}", one, value_check

    return lambda value: _first_wrong(value, dict, parts)


def _list(each: _Check) -> _Check:
    def parts(value: Sequence[object]) -> Iterable[_Part]:
        for index, one in enumerate(value):
            yield f"[{index}]", one, each

    return lambda value: _first_wrong(value, list, parts)


def _listed(checks: Sequence[_Check]) -> _Check:
    def parts(value: Sequence[object]) -> Iterable[_Part]:
        if len(value) != len(checks):
            yield "", value, _plain(lambda _: f"a list of {len(checks)}")
        else:
            yield from zip((f"[{index}]" for index in range(len(value))), value, checks, strict=True)

    return lambda value: _first_wrong(value, list, parts)


def _first_wrong(found: Any, kind: type, parts: Callable[[Any], Iterable[_Part]]) -> _Wrong:
    """The first part of a list or an object that is wrong, with its place."""
    if type(found) is not kind:
        return "", found, "a list" if kind is list else "an object"
    for place, one, check in parts(found):
        wrong = check(one)
        if wrong is not None:
            return f"{place}{wrong[0]}", wrong[1], wrong[2]
    return None

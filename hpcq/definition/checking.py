"""Shared by campaign and cluster files: field types, and pydantic's errors as complaints `KEY: FOUND: ALLOWED`.

Hides pydantic's wording. Types are strict: text never counts as a number, but a quantity may carry its unit.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from hpcq import nodelist, units
from hpcq.definition.budget import Hours
from hpcq.definition.yamlfile import Document, Place, shown
from hpcq.kernels import read_quantity, unknown_name

_Section = TypeVar("_Section", bound="Section")

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_WORD_PATTERN = r"^[A-Za-z0-9._@+:%=][A-Za-z0-9._@+:,/%=-]{0,254}$"
_FEATURES = re.compile(r"[A-Za-z0-9._:=-]+(?:\s*[&|]\s*[A-Za-z0-9._:=-]+)*")


class Section(BaseModel):
    """Keys with values in a file: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    #: Keys that people look for here and that stand elsewhere: message and hint of the complaint, by key.
    elsewhere: ClassVar[Mapping[str, tuple[str, str]]] = {}


def refuse(message: str, hint: str | None = None) -> PydanticCustomError:
    """Create the error that a validator raises; the message reads `FOUND: ALLOWED`."""
    return PydanticCustomError("hpcq", "{message}", {"message": message, "hint": hint or ""})


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value) or value.endswith("\n"):
        raise refuse(f"{shown(value)} is not a name: allowed are letters, digits and ._-, 64 at most, a letter or digit first")
    return value


def _word(value: str) -> str:
    if not re.fullmatch(_WORD_PATTERN, value) or value.endswith("\n"):
        raise refuse(f"{shown(value)}: allowed are letters, digits and ._@+:,/%=- (no spaces, quotes or shell signs)")
    return value


def _features(value: str) -> str:
    if not _FEATURES.fullmatch(value):
        raise refuse(f"{shown(value)}: allowed are feature names joined by & (all) or | (any of), like rack1&ib|rack2")
    return re.sub(r"\s+", "", value)


def _node(value: str) -> str:
    if not nodelist.is_node_name(value):
        raise refuse(f"{shown(value)} is not a node name: allowed are letters, digits and ._-")
    return value


def _node_list(value: str) -> str:
    try:
        nodelist.expand(value)
    except ValueError as error:
        raise refuse(str(error)) from None
    return value


def _line(value: str) -> str:
    bad = next((character for character in value if ord(character) < 32 or ord(character) == 127), None)
    if bad is not None:
        raise refuse(f"{shown(value)} holds the control character {bad!r}: allowed is one line of text")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise refuse(f"{shown(value)} holds a NUL byte: allowed is any other text")
    return value


def is_stored(info: ValidationInfo) -> bool:
    """Whether the file was stored with a run: rules that came later must not make its results unreadable."""
    return bool((info.context or {}).get("stored"))


def listed(value: object) -> object:
    """A text as a list of one."""
    return [value] if isinstance(value, str) else value


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise refuse(f"{shown(value)}: {error}: allowed are words as a shell would read them, or a list of words") from None


def _seconds(value: object) -> object:
    try:
        return read_quantity(value, "s")
    except ValueError as error:
        raise refuse(str(error)) from None


def _walltime(value: object) -> object:
    allowed = 'allowed are "90s", "2min", "1h" or h:mm:ss'
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise refuse(f"{shown(value)} has no unit: {allowed}", f"write {shown(value)}s or {shown(value)}min")
    clock = re.fullmatch(r"(\d{1,3}):([0-5]\d):([0-5]\d)", value) if isinstance(value, str) else None
    if clock:
        hours, minutes, seconds = map(int, clock.groups())
        walltime_s = 3600 * hours + 60 * minutes + seconds
    elif isinstance(value, str) and re.search(r"[a-z]", value):
        try:
            walltime_s = math.ceil(units.parse(value, "s"))
        except ValueError:
            raise refuse(f"{shown(value)}: {allowed}") from None
    else:
        raise refuse(f"{shown(value)}: {allowed}")
    if not 1 <= walltime_s <= 30 * 86400:
        raise refuse(f"{shown(value)}: allowed are 1s to 30d")
    return walltime_s


def read_hours(text: str) -> Hours:
    """`20-06` or `20:30-06:15` as minutes. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d{1,2})(?::(\d\d))?\s*-\s*(\d{1,2})(?::(\d\d))?", text)
    if match is None:
        raise ValueError(text)
    first, last = (60 * int(match[place]) + int(match[place + 1] or 0) for place in (1, 3))
    minutes = max(int(match[place] or 0) for place in (2, 4))
    if first == last or max(first, last) > 24 * 60 or minutes > 59:
        raise ValueError(text)
    return Hours(first, last)


def _hours(value: object) -> object:
    try:
        read_hours(value if isinstance(value, str) else "")
    except ValueError:
        raise refuse(f"{shown(value)}: allowed is FIRST-LAST of a day of 24 hours, like 20-06 or 20:30-06:15") from None
    return value


_ONE_OR_MORE = {"type": ["string", "array"], "items": {"type": "string"}}
QUANTITY = {"type": ["number", "string"]}

Name = Annotated[str, Field(pattern=None, json_schema_extra={"pattern": NAME_PATTERN}), AfterValidator(_name)]
Word = Annotated[str, AfterValidator(_word)]
Features = Annotated[str, AfterValidator(_features)]
NodeName = Annotated[str, AfterValidator(_node)]
Line = Annotated[str, AfterValidator(_line)]
Text = Annotated[str, AfterValidator(_no_nul)]
Names = Annotated[list[Name], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
NodeLists = Annotated[list[Annotated[str, AfterValidator(_node_list)]], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Words = Annotated[list[Line], BeforeValidator(_words), WithJsonSchema(_ONE_OR_MORE)]
Lines = Annotated[list[Line], BeforeValidator(listed), WithJsonSchema(_ONE_OR_MORE)]
Seconds = Annotated[float, BeforeValidator(_seconds), WithJsonSchema({**QUANTITY, "description": "seconds"})]
Walltime = Annotated[int, BeforeValidator(_walltime), WithJsonSchema({"type": "string"})]


class BudgetSection(Section):
    """What a campaign may use of a cluster at any time; the tighter limit of campaign and cluster file wins."""

    jobs_at_most: int | None = Field(
        default=None, ge=1, le=100_000, description="Most jobs queued and running at once. Default: 32."
    )
    nodes_at_most: int | None = Field(default=None, ge=2, description="Most nodes in use or asked for at once.")
    node_share_ratio: float | None = Field(
        default=None, gt=0, le=1, description="Largest share to use of the nodes that are idle or ours, 0 to 1."
    )
    node_seconds_at_most: Seconds | None = Field(
        default=None,
        description="Node-seconds on one cluster. hpcq refuses plans that cost more; jobs, retries included, never take more.",
    )
    walltime_at_most: Walltime | None = Field(default=None, description='Longest time limit of a job, with its unit: "10min".')
    hours: Annotated[str, BeforeValidator(_hours)] | None = Field(
        default=None, description="Jobs start only in these hours of the day, FIRST-LAST in local time, like 20-06."
    )
    gives_way: bool = Field(
        default=False, alias="yield", description="Withdraw waiting jobs while jobs of other users wait for nodes."
    )


def check(
    section: type[_Section], value: object, document: Document, place: Place = (), *, stored: bool = False
) -> _Section | None:
    """The section with its types checked, or None after a complaint. stored: as `is_stored` says."""
    try:
        return section.model_validate(value, context={"stored": stored})
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _complain(section, detail, document, place)
        return None


def _complain(section: type[Section], detail: ErrorDetails, document: Document, place: Place) -> None:
    loc = detail["loc"]
    if loc[-1:] == ("[key]",):  # pydantic's word for: the key itself
        loc, at_key = loc[:-1], True
    else:
        at_key = False
    if loc[-1:] in {("int",), ("float",)}:  # pydantic names the branches of a union: one complaint is enough
        loc = loc[:-1]
        if not document.clean((*place, *loc)):
            return
    where = (*place, *loc)
    context: dict[str, Any] = detail.get("ctx") or {}
    if detail["type"] == "extra_forbidden":
        key = str(detail["loc"][-1])
        inner = _section_at(section, detail["loc"][:-1])
        message, hint = inner.elsewhere.get(key) or unknown_name("key here", key, _keys(inner))
        document.complain(where, message.removeprefix(f"{key!r} is "), f"{hint}", at_key=True)
    elif detail["type"] == "hpcq":
        document.complain(where, context["message"], context["hint"] or None, at_key=at_key)
    else:
        document.complain(where, _message(detail, context))


def _message(detail: ErrorDetails, context: dict[str, Any]) -> str:
    found = f"{detail['input']:g}" if isinstance(detail["input"], float) else shown(detail["input"])
    bounds = {
        "greater_than_equal": ("is below the minimum", "ge"),
        "greater_than": ("is not above", "gt"),
        "less_than_equal": ("is above the maximum", "le"),
    }
    types = {
        "string_type": "a text (in quotes)" if isinstance(detail["input"], (bool, int, float)) else "a text",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "keys with values",
        "model_type": "keys with values",
        "model_attributes_type": "keys with values",
        "tuple_type": "a list",
    }
    name = detail["type"]
    if name in bounds:
        words, bound = bounds[name]
        return f"{found} {words} {context[bound]:g}"
    if name in types:
        return f"{found}: allowed is {types[name]}"
    others = {
        "missing": "missing: this key is required",
        "literal_error": f"{found}: allowed are {context.get('expected')}",
        "too_short": f"{context.get('actual_length')} given: at least {context.get('min_length')} needed",
        "too_long": f"{context.get('actual_length')} given: at most {context.get('max_length')} allowed",
        "string_too_short": f"{found}: allowed is a text that is not empty",
    }
    return others.get(name) or f"{found}: {detail['msg']}"


def keys_at(section: type[Section], loc: Iterable[int | str]) -> list[str]:
    """The keys that a file may hold at `loc` below a section."""
    return _keys(_section_at(section, loc))


def _keys(section: type[Section]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _section_at(section: type[Section], loc: Iterable[int | str]) -> type[Section]:
    """The section at `loc` below a section."""
    current = section
    for part in loc:
        if isinstance(part, str):
            current = next(
                (
                    inner
                    for name, field in current.model_fields.items()
                    if (field.alias or name) == part and (inner := section_in(field.annotation)) is not None
                ),
                current,
            )
    return current


def section_in(annotation: object) -> type[Section] | None:
    """The section class in an annotation, also inside Optional, list and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((inner for inner in map(section_in, get_args(annotation)) if inner is not None), None)

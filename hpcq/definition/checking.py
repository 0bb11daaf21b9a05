"""Shared by campaign and cluster files: field types, and pydantic's errors as complaints `KEY: FOUND: ALLOWED`.

Hides pydantic's wording. Types are strict: text never counts as a number, but a quantity may carry its unit.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from hpcq import nodelist, units
from hpcq.definition.model import Hours
from hpcq.errors import DATABASE_HEAD, UserError
from hpcq.kernels import read_quantity, unknown_name

# ----------------------------------------------------------------------------------------------------------------------
# One YAML file with the line of every key and value, and the complaints about it.
#
# Hides the YAML library. YAML 1.2: `yes` and `on` are words, `010` is ten. Refused, each with its line: bytes that are
# not UTF-8, tabs as indentation, duplicate keys, `<<` merges, tags, more than one document.
#
#     bytes -> text -> nodes with marks -> plain dicts, lists and scalars  (document.data)
#                                       +> lines by path                   (document.line(("tests", 0, "kernel")))
#                                       +> complaints                      (document.complaints)
#
#     FILE:LINE: KEY: FOUND: ALLOWED     one line per complaint, in the order of the file


#: A place in a document: keys and list positions from the top.
Place = tuple[str | int, ...]

#: The most values that aliases may expand to; no hand-written file reaches it.
_NODE_COUNT_MAX = 200_000
_FILE_BYTES_MAX = 4 * 2**20
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One error, at one place of one file."""

    line: int
    key: str
    message: str
    hint: str | None = None


@dataclass(slots=True)
class Document:
    """A parsed file. `path` is as the person typed it, quoted if it contains line breaks or the like."""

    path: str
    data: Any = None
    complaints: list[Complaint] = field(default_factory=list)
    _lines: dict[Place, int] = field(default_factory=dict)
    _key_lines: dict[Place, int] = field(default_factory=dict)
    _texts: dict[Place, str] = field(default_factory=dict)
    _complained: set[Place] = field(default_factory=set)

    def line(self, place: Place) -> int:
        """The line of the value there, or of the nearest value around it."""
        while place not in self._lines and place:
            place = place[:-1]
        return self._lines.get(place, 1)

    def key_line(self, place: Place) -> int:
        """The line of the key there."""
        return self._key_lines.get(place) or self.line(place)

    def refuse_other_kind(self, needs: str, other_has: str, what: str, hint: str) -> None:
        """Raise UserError for a file of another kind, of which all keys would be complaints.

        needs, other_has: a key that a file of this kind, and one of the other kind, always has.
        """
        if needs not in self.data and other_has in self.data:
            raise UserError(f"{self.path}:{self.line((other_has,))}: {other_has}: {what}", hint)

    def text(self, place: Place) -> str | None:
        """A scalar as written, without its quotes."""
        return self._texts.get(place)

    def complain(self, place: Place, message: str, hint: str | None = None, *, at_key: bool = False) -> None:
        """Record a complaint about the value (or the key) at `place`. The same complaint counts once."""
        key = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
        complaint = Complaint(self.key_line(place) if at_key else self.line(place), key, message, hint)
        if complaint not in self.complaints:
            self.complaints.append(complaint)
        self._complained.add(place)

    def clean(self, place: Place) -> bool:
        """Whether there is no complaint about `place` and its content."""
        return not any(at[: len(place)] == place for at in self._complained)

    def raise_complaints(self) -> None:
        """Raise all complaints as one UserError, if there are any."""
        if not self.complaints:
            return
        ordered = sorted(self.complaints, key=lambda one: one.line)
        lines = [": ".join(part for part in (f"{self.path}:{one.line}", one.key, one.message) if part) for one in ordered]
        hints = [f"line {one.line}: {one.hint}" if len(lines) > 1 else one.hint for one in ordered if one.hint]
        raise UserError("\n".join(lines), "\n".join(dict.fromkeys(hints)) or None)


def read_document(path: Path) -> Document:
    """Read and parse a file. Raises UserError if it cannot be read or is not YAML."""
    shown = str(path) if str(path).isprintable() else repr(str(path))
    return parse_document(_read_text(path, shown), shown)


def parse_document(text: str, shown: str) -> Document:
    """Parse a text that messages call `shown`. Raises UserError if it is not YAML."""
    document = Document(shown)
    root = _compose(shown, text)
    if root is None:
        raise UserError(f"{shown}:1: the file is empty: it must hold keys with values")
    try:
        document.data = _Builder(document).value(root, ())
    except RecursionError:
        raise UserError(f"{shown}:1: nested too deeply: a campaign or cluster file is a few levels deep") from None
    if not isinstance(document.data, dict):
        raise UserError(f"{shown}:{document.line(())}: found {kind(document.data)}: the file must hold keys with values")
    return document


def kind(value: object) -> str:
    """The type of a value in plain words."""
    if value is None:
        return "nothing"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "keys with values"}
    return words.get(type(value), type(value).__name__)


def shown(value: object) -> str:
    """A value as shown in messages: short, on one line, texts in quotes."""
    if isinstance(value, (list, dict)):
        return kind(value)
    text = {True: "true", False: "false", None: "nothing"}.get(value) if value is None or isinstance(value, bool) else None
    text = text or (repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_text(path: Path, shown: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would be waited for without end
        with os.fdopen(descriptor, "rb") as file:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = file.read(_FILE_BYTES_MAX + 1) if regular else b""
    except IsADirectoryError:
        raise UserError(f"{shown}: this is a folder: name the file in it") from None
    except FileNotFoundError:
        raise UserError(f"{shown}: no such file") from None
    except OSError as error:
        raise UserError(f"{shown}: cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise UserError(f"{shown}: this is not a file name") from None
    if not regular:
        raise UserError(f"{shown}: is a pipe or a device: must be a file")
    if content.startswith(DATABASE_HEAD):
        raise UserError(f"{shown}: a database: must be a YAML file", "--db FILE names a database")
    if len(content) > _FILE_BYTES_MAX:
        raise UserError(f"{shown}: {path.stat().st_size} bytes are above the maximum {_FILE_BYTES_MAX} of a definition")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        offset = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        line = content.count(b"\n", 0, offset) + 1
        raise UserError(
            f"{shown}:{line}: byte 0x{content[offset]:02x} at offset {offset} is not UTF-8: must be UTF-8 text",
            hint="save the file as UTF-8, for example: iconv -f latin1 -t utf-8 FILE",
        ) from None


def _compose(shown: str, text: str) -> Node | None:
    try:
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
        return node
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = chr(error.character) if isinstance(error.character, int) else error.character
        raise UserError(f"{shown}:{line}: control character {character!r}: must be printable characters") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
        problem = " ".join(part for part in (error.problem, error.context) if part)
        raise UserError(f"{where}: not YAML: {problem}", _yaml_hint(problem)) from None
    except YAMLError as error:
        raise UserError(f"{shown}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{shown}:1: nested too deeply: a campaign or cluster file is a few levels deep") from None


def _yaml_hint(problem: str) -> str | None:
    if "'\\t'" in problem:
        return "indent with spaces, not with tabs"
    if "but got '['" in problem:
        return 'inside [ ] put node ranges in quotes: ["n[01-04]", login]'
    if "mapping values are not allowed" in problem:
        return "a value that holds a colon and a space belongs in quotes; keys of one level are indented alike"
    return None


class _Builder:
    """Builds plain values from nodes and records lines. An alias copies its value."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.node_count = 0
        self.open: list[Node] = []

    def value(self, node: Node, place: Place) -> Any:
        self.node_count += 1
        document = self.document
        document._lines[place] = node.start_mark.line + 1
        if self.node_count > _NODE_COUNT_MAX or any(node is outer for outer in self.open):
            raise UserError(
                f"{document.path}:{node.start_mark.line + 1}: aliases make the document larger than {_NODE_COUNT_MAX} values"
            )
        if isinstance(node, ScalarNode):
            return self.scalar(node, place)
        self.open.append(node)
        try:
            if isinstance(node, SequenceNode):
                self.refuse_tag(node, place, "seq")
                return [self.value(item, (*place, position)) for position, item in enumerate(node.value)]
            self.refuse_tag(node, place, "map")
            return self.mapping(node, place) if isinstance(node, MappingNode) else None
        finally:
            self.open.pop()

    def mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        document = self.document
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                document.complaints.append(
                    Complaint(line, "<<", "merge keys are not YAML 1.2: write the keys out, or sweep with matrix")
                )
                continue
            if not isinstance(key_node, ScalarNode):
                document.complaints.append(Complaint(line, "", "a key must be a text"))
                continue
            key = str(key_node.value)
            here = (*place, key)
            if key in result:
                first = document.key_line(here)
                document.complaints.append(
                    Complaint(line, key, f"written twice, first on line {first}: each key may stand once")
                )
                document._complained.add(here)
                continue
            document._key_lines[here] = line
            result[key] = self.value(value_node, here)
            if result[key] is None:
                document._lines[here] = line  # a missing value gets the line of the next key
        return result

    def scalar(self, node: ScalarNode, place: Place) -> Any:
        text = str(node.value)
        self.document._texts[place] = text
        tag = str(node.tag)
        if tag == f"{_TAG}null":
            return None
        if tag == f"{_TAG}bool":
            return text.lower() == "true"
        try:
            if tag == f"{_TAG}int":
                return _integer(text)
            if tag == f"{_TAG}float":
                return _number(text)
        except ValueError:
            return text
        self.refuse_tag(node, place, "str", "timestamp")
        return text

    def refuse_tag(self, node: Node, place: Place, *allowed: str) -> None:
        if str(node.tag) not in {_TAG + name for name in allowed}:
            tag = str(node.tag).replace(_TAG, "!!")
            self.document.complain(place, f"tag {tag} found: tags are not used in definitions")


def _integer(text: str) -> int:
    digits = text.replace("_", "").lower()
    prefixes = {"0x": 16, "0o": 8, "0b": 2}
    bare = digits.lstrip("+-")
    return int(digits, prefixes[bare[:2]]) if bare[:2] in prefixes else int(digits)


def _number(text: str) -> float:
    digits = text.replace("_", "").lower()
    return float(digits.replace(".inf", "inf").replace(".nan", "nan"))


# ----------------------------------------------------------------------------------------------------------------------


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
        raise refuse(f"{shown(value)} is not a name: must be letters, digits and ._-, 64 at most, a letter or digit first")
    return value


def _word(value: str) -> str:
    if not re.fullmatch(_WORD_PATTERN, value) or value.endswith("\n"):
        raise refuse(f"{shown(value)}: must be letters, digits and ._@+:,/%=- (no spaces, quotes or shell signs)")
    return value


def _features(value: str) -> str:
    if not _FEATURES.fullmatch(value):
        raise refuse(f"{shown(value)}: must be feature names joined by & (all) or | (any of), like rack1&ib|rack2")
    return re.sub(r"\s+", "", value)


def _node(value: str) -> str:
    if not nodelist.is_node_name(value):
        raise refuse(f"{shown(value)} is not a node name: must be letters, digits and ._-")
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
        raise refuse(f"{shown(value)} holds the control character {bad!r}: must be one line of text")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise refuse(f"{shown(value)} holds a NUL byte: must be any other text")
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
        raise refuse(f"{shown(value)}: {error}: must be words as a shell would read them, or a list of words") from None


def _seconds(value: object) -> object:
    try:
        return read_quantity(value, "s")
    except ValueError as error:
        raise refuse(str(error)) from None


def _walltime(value: object) -> object:
    allowed = 'must be seconds, "90s", "2min", "1h" or h:mm:ss'
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
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
        raise refuse(f"{shown(value)}: must be 1s to 30d")
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
        raise refuse(f"{shown(value)}: must be FIRST-LAST of a day of 24 hours, like 20-06 or 20:30-06:15") from None
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
Walltime = Annotated[int, BeforeValidator(_walltime), WithJsonSchema({"type": ["integer", "string"]})]


class BudgetSection(Section):
    """What a campaign may use of a cluster at any time; the tighter limit of campaign and cluster file wins."""

    max_jobs: int | None = Field(
        default=None, ge=1, le=100_000, description="Most jobs queued and running at once. Default: 32."
    )
    max_nodes: int | None = Field(default=None, ge=2, description="Most nodes in use or asked for at once.")
    max_node_ratio: float | None = Field(
        default=None, gt=0, le=1, description="Largest share to use of the nodes that are idle or ours, 0 to 1."
    )
    max_node_seconds: Seconds | None = Field(
        default=None,
        description="Node-seconds on one cluster. hpcq refuses plans that cost more; jobs, retries included, never take more.",
    )
    max_walltime_s: Walltime | None = Field(
        default=None, description='Longest time limit of a job: seconds, or with its unit: "10min".'
    )
    max_confirmation_jobs: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Most jobs per run that measure suspects again (`hpcq run --confirm`), six each. Default: 60. 0: none.",
    )
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
        document.complain(
            where, _message(detail, context), _missing_hint(section, detail["loc"]) if detail["type"] == "missing" else None
        )


def _missing_hint(section: type[Section], loc: tuple[int | str, ...]) -> str | None:
    """Return what may be written under a key that is missing: its description, as the reference of keys has it."""
    fields = _section_at(section, loc[:-1]).model_fields.items()
    field = next((one for name, one in fields if loc[-1] in {name, one.alias}), None)
    return f"{loc[-1]}: {field.description}" if field is not None and field.description else None


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
        return f"{found}: must be {types[name]}"
    others = {
        "missing": "missing: this key is required",
        "literal_error": f"{found}: must be {context.get('expected')}",
        "too_short": f"{context.get('actual_length')} given: at least {context.get('min_length')} needed",
        "too_long": f"{context.get('actual_length')} given: at most {context.get('max_length')} allowed",
        "string_too_short": f"{found}: must be a text that is not empty",
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

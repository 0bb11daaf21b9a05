"""One YAML file with the line of every key and value, and the complaints about it.

Hides the YAML library. YAML 1.2: `yes` and `on` are words, `010` is ten. Refused, each with its line: bytes that are
not UTF-8, tabs as indentation, duplicate keys, `<<` merges, tags, more than one document.

    bytes -> text -> nodes with marks -> plain dicts, lists and scalars  (document.data)
                                      +> lines by path                   (document.line(("tests", 0, "kernel")))
                                      +> complaints                      (document.complaints)

    FILE:LINE: KEY: FOUND: ALLOWED     one line per complaint, in the order of the file
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from hpcq.errors import DATABASE_HEAD, UserError

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
        content = path.read_bytes()
    except IsADirectoryError:
        raise UserError(f"{shown}: this is a folder: name the file in it") from None
    except FileNotFoundError:
        raise UserError(f"{shown}: no such file") from None
    except OSError as error:
        raise UserError(f"{shown}: cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise UserError(f"{shown}: this is not a file name") from None
    if content.startswith(DATABASE_HEAD):
        raise UserError(f"{shown}: a database: allowed is a YAML file", "--db FILE names a database")
    if len(content) > _FILE_BYTES_MAX:
        raise UserError(f"{shown}: {len(content)} bytes are above the maximum {_FILE_BYTES_MAX} of a definition")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        offset = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        line = content.count(b"\n", 0, offset) + 1
        raise UserError(
            f"{shown}:{line}: byte 0x{content[offset]:02x} at offset {offset} is not UTF-8: allowed is UTF-8 text",
            hint="save the file as UTF-8, for example: iconv -f latin1 -t utf-8 FILE",
        ) from None


def _compose(shown: str, text: str) -> Node | None:
    try:
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
        return node
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = chr(error.character) if isinstance(error.character, int) else error.character
        raise UserError(f"{shown}:{line}: control character {character!r}: allowed are printable characters") from None
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

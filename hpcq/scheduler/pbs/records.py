"""What PBS prints, as records: an object's kind and name, and its attributes as text.

Two forms are read. dsv is asked for wherever PBS offers it: one object per line, line breaks and control characters
inside values
are escaped by PBS, so a separator that is itself a control character can never stand in a value. The plain form is what is left
for reservations, and for a PBS that knows no formats.

    Job Id: 67.pbhead<0x1f>Job_Name=runner<0x1f>...        dsv; pbsnodes begins with Name=pbn1
    Job Id: 67.pbhead                                      plain; long values go on in lines that begin with a tab
        Job_Name = runner

JSON is not asked for: PBS turns values that look like numbers or lists into such, passes bytes that are no UTF-8,
and shows only
the first of several ids (`qstat -f -F json ID ID`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: The separator that hpcq asks for, and how to type it.
SEPARATOR = "\x1f"
DSV = "-F dsv -D \"$(printf '\\037')\""

_HEAD = re.compile(r"(Job Id|Queue|Server|Resv ID|Name)(?:: |=)(\S+)\s*")
_PLAIN_VALUE = re.compile(r"\s*([A-Za-z_][\w.-]*) = ?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class Record:
    """One job, node, queue, server or reservation. Attributes of a resource are called as PBS does: Resource_List.select."""

    kind: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """One attribute's text."""
        return self.attributes.get(name, default)

    def number(self, name: str) -> int | None:
        """An attribute that is a whole number; None where it is not there or something else."""
        text = self.get(name)
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else None

    def below(self, prefix: str) -> dict[str, str]:
        """All attributes of one prefix: below("resources_available") -> {"host": "pbn1", ...}."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.attributes.items() if name.startswith(start)}

    def variable(self, name: str) -> str:
        """One variable of a job's environment; commas in values are escaped."""
        for word in _VARIABLE.split(self.get("Variable_List")):
            key, found, value = word.partition("=")
            if found and key == name:
                return value.replace("\\,", ",")
        return ""


def read_dsv(text: str, separator: str = SEPARATOR) -> list[Record]:
    """One record per line that begins like one; other lines continue the one before (a node's comment may have line breaks)."""
    lines: list[str] = []
    for line in text.split("\n"):
        if _HEAD.fullmatch(line.partition(separator)[0]):
            lines.append(line)
        elif lines and line:
            lines[-1] += f" {line}"
    return [_dsv_record(line, separator) for line in lines]


def _dsv_record(line: str, separator: str) -> Record:
    head, *words = line.split(separator)
    match = _HEAD.fullmatch(head)
    assert match is not None  # noqa: S101 - the caller has seen it
    pairs = (word.partition("=") for word in words)
    return Record(match[1], match[2], {name: value for name, sign, value in pairs if sign})


def read_plain(text: str) -> list[Record]:
    """The indented form, folded or not."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for line in _unfolded(text):
        head = _HEAD.fullmatch(line) if not line.startswith((" ", "\t")) else None
        if head is not None and "=" not in line:
            found.append((head[1], head[2], {}))
            continue
        value = _PLAIN_VALUE.fullmatch(line)
        if value is not None and found:
            found[-1][2][value[1]] = value[2]
    return [Record(*one) for one in found]


def _unfolded(text: str) -> Iterator[str]:
    yield from text.replace("\n\t", "").split("\n")

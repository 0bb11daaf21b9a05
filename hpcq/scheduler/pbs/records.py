"""What PBS prints, as records: an object's kind and name, and its attributes as text.

hpcq reads two forms. It asks for dsv wherever PBS offers it: one object per line. PBS escapes line breaks and
control characters in values, so a control character as separator never occurs in a value. hpcq reads the plain form
of reservations, and of a PBS that knows no formats.

    Job Id: 67.pbhead<0x1f>Job_Name=runner<0x1f>...        dsv; pbsnodes begins with Name=pbn1
    Job Id: 67.pbhead                                      plain; long values continue in lines that begin with a tab
        Job_Name = runner

hpcq does not ask for JSON: PBS turns values that look like numbers or lists into numbers or lists, passes on bytes
that are not UTF-8, and shows only the first of several ids (`qstat -f -F json ID ID`).

Values that name hosts (`exec_host`, `exec_vnode`, chunks of a select) are read here, too. Listings have short names,
node files have full names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: The separator that hpcq asks for, and how to type it.
SEPARATOR = "\x1f"
DSV = "-F dsv -D \"$(printf '\\037')\""

_HEAD = re.compile(r"(Job Id|Queue|Server|Resv ID|Name)(?:: |=)(\S+)\s*")
_PLAIN_VALUE = re.compile(r"\s*([A-Za-z_][\w.-]*) = ?(.*)", re.DOTALL)
#: No number of PBS has more digits; int() refuses very long ones.
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_VARIABLE = re.compile(r"(?<!\\),")
#: host/slot or host/slot*cpus; PBS joins several with +.
_SLOT = re.compile(r"([^/+]+)/\d+(?:\*\d+)?")


@dataclass(frozen=True, slots=True)
class Record:
    """One job, node, queue, server or reservation. Attributes have PBS's own names: Resource_List.select."""

    kind: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """Return the text of one attribute."""
        return self.attributes.get(name, default)

    def number(self, name: str) -> int | None:
        """Return an attribute that is a whole number; None if it is absent or something else."""
        text = self.get(name)
        return int(text) if _NUMBER.fullmatch(text) else None

    def below(self, prefix: str) -> dict[str, str]:
        """Return all attributes with one prefix: below("resources_available") -> {"host": "pbn1", ...}."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.attributes.items() if name.startswith(start)}

    def variable(self, name: str) -> str:
        """Return one variable of a job's environment. PBS escapes commas in values."""
        for word in _VARIABLE.split(self.get("Variable_List")):
            key, found, value = word.partition("=")
            if found and key == name:
                return value.replace("\\,", ",")
        return ""


def read_dsv(text: str, separator: str = SEPARATOR) -> list[Record]:
    """Return one record per line that begins a record.

    Other lines continue the one before: a node's comment may have line breaks.
    """
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in text.split("\n"):
        first, *words = line.split(separator)
        head = _HEAD.fullmatch(first)
        if head is not None:
            found.append((head, words))
        elif found and line and found[-1][1]:
            found[-1][1][-1] += f" {first}"
            found[-1][1].extend(words)
    return [_dsv_record(head, words) for head, words in found]


def _dsv_record(head: re.Match[str], words: Sequence[str]) -> Record:
    pairs = (word.partition("=") for word in words)
    return Record(head[1], head[2], {name: value for name, sign, value in pairs if sign})


def read_plain(text: str) -> list[Record]:
    """Return the records of the plain form, with long values folded or not."""
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


def exec_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of `pbn1/0*3+pbn2/0*3` in that order, each once. The script runs on the first."""
    return tuple(dict.fromkeys(match[1] for match in _SLOT.finditer(text)))


def vnodes(text: str) -> tuple[str, ...]:
    """Return the vnodes of an exec_vnode or resv_nodes such as `(v[0]:ncpus=2+v[1]:ncpus=1)+(pbn2:ncpus=3)`."""
    inner = re.sub(r"[()]", "", text)
    return tuple(dict.fromkeys(chunk.partition(":")[0] for chunk in inner.split("+") if chunk))


def named_hosts(select: str) -> tuple[str, ...]:
    """Return the hosts that a select names: `1:host=pbn1:ncpus=4+1:vnode=pbn2` -> pbn1, pbn2."""
    words = (word for chunk in select.split("+") for word in chunk.split(":"))
    return tuple(dict.fromkeys(word.partition("=")[2] for word in words if word.startswith(("host=", "vnode="))))

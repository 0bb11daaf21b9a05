"""Node names and the ranges that people write for them: `n[01-03,7],login` -> n01 n02 n03 n7 login."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_TAIL = re.compile(r"\d{1,9}$")
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")

#: No cluster has more nodes, but a typing error can ask for more.
NODE_COUNT_MAX = 100_000
ALLOWED = "must be names of letters, digits and ._- with ranges like n[01-04,7]"


def is_node_name(text: str) -> bool:
    """Whether the text is one plain node name."""
    return _NAME.fullmatch(text) is not None


def names_several(text: str) -> bool:
    """Whether a text that hpcq wrote lists nodes: the others of a set that ran a test together."""
    return "[" in text or "," in text


def nodes_of(client: str, server: str) -> tuple[str, ...]:
    """The nodes of a test by the names of its ends: two, or all of a set that ran it together. A node with itself is one."""
    if client == server:
        return (client,)
    return (client, *expand(server)) if names_several(server) else (client, server)


def takes_part(node: str, client: str, server: str) -> bool:
    """Whether a node is an end of a test, or one of the set that ran it together."""
    return node in {client, server} or node in members_of(server)


@lru_cache(maxsize=4096)
def members_of(text: str) -> frozenset[str]:
    """The nodes that the name of a set lists; none for the name of one node."""
    try:
        return frozenset(expand(text)) if names_several(text) else frozenset()
    except ValueError:
        return frozenset()


def expand(text: str) -> list[str]:
    """All names in a list of names and ranges. Raises ValueError `FOUND: ALLOWED`."""
    names: list[str] = []
    for word in _split(text):
        names += _expand_word(word, text)
        if len(names) > NODE_COUNT_MAX:
            raise ValueError(f"{text!r} names more than {NODE_COUNT_MAX} nodes")
    return names


def fold(names: Iterable[str]) -> list[str]:
    """Names folded into ranges: n01 n02 n03 login -> login n[01-03]. `expand` returns the same names."""
    groups: dict[tuple[str, int], list[int]] = {}
    folded: list[str] = []
    for name in names:
        digits = _TAIL.search(name)
        if digits is None:
            folded.append(name)
        else:
            groups.setdefault((name[: digits.start()], len(digits[0])), []).append(int(digits[0]))
    for (stem, width), numbers in groups.items():
        spans: list[list[int]] = []
        for number in sorted(set(numbers)):
            if spans and number == spans[-1][1] + 1:
                spans[-1][1] = number
            else:
                spans.append([number, number])
        shown = [f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "") for first, last in spans]
        folded.append(f"{stem}[{','.join(shown)}]" if len(numbers) > 1 else f"{stem}{shown[0]}")
    return sorted(folded)


def _split(text: str) -> list[str]:
    words, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            words.append("")
        else:
            words[-1] += character
    return words


def _expand_word(word: str, text: str) -> list[str]:
    pieces = _PIECE.findall(word)
    if not word or "".join(plain or f"[{span}]" for span, plain in pieces) != word:
        raise ValueError(f"{text!r} is not a node list: {ALLOWED}")
    names = [""]
    for spans, plain in pieces:
        choices = [plain] if plain else _numbers(spans, text)
        if len(names) * len(choices) > NODE_COUNT_MAX:
            raise ValueError(f"{text!r} names more than {NODE_COUNT_MAX} nodes")
        names = [name + choice for name in names for choice in choices]
    if not all(map(is_node_name, names)):
        raise ValueError(f"{text!r} is not a node list: {ALLOWED}")
    return names


def _numbers(spans: str, text: str) -> list[str]:
    numbers: list[str] = []
    for span in spans.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"{text!r}: {span!r} is not a range: {ALLOWED}")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first) or int(last) - int(first) > NODE_COUNT_MAX:
            raise ValueError(f"{text!r}: range {span} must go upward and hold at most {NODE_COUNT_MAX} nodes")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def single_nodes(found: Iterable[str]) -> set[str]:
    """The nodes among these names, and the members of the sets among them."""
    names_of = set(found)
    return {one for one in names_of if not names_several(one)}.union(*map(members_of, names_of))


# ----------------------------------------------------------------------------------------------------------------------
# The order in which people read names: n2 before n10.


_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=65536)  # a page sorts a hundred thousand rows by the names of a thousand nodes
@lru_cache(maxsize=65536)
def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A sorting key that compares the numbers within a name as numbers."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part)

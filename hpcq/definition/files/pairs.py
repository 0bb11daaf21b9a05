"""The `pairs` key of a campaign: how nodes become pairs, the checks of it, and the files that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from hpcq import nodelist
from hpcq.definition.checking import NodeName, Section, check, refuse
from hpcq.definition.linked import Directions
from hpcq.definition.model import PairChoice, Pattern
from hpcq.definition.yamlfile import Document, shown
from hpcq.topology import read_topology

_Read = TypeVar("_Read")

_PATTERNS = ", ".join(Pattern)
_FORMS = (
    "allowed are all, ring, {rounds: K}, {random: K}, {star: NODE}, {within: switch}, {across: switch}, {file: NAME},"
    " {bisection: K} and {list: [[a, b], ...]}"
)
#: Keys that select a pattern by themselves, in the order of search.
NAMING_KEYS = ("star", "within", "across", "random", "file", "bisection", "rounds", "list")
#: A pairs file or a topology file is never larger than this.
_FILE_SIZE_MAX_BYTES = 64 * 2**20


def _pair(value: object) -> object:
    if not isinstance(value, list) or len(value) != 2:
        raise refuse(f"{shown(value)}: allowed is [client, server]")
    return value


def _beside(value: str) -> str:
    path = PurePosixPath(value)
    if not value or path.is_absolute() or ".." in path.parts:
        raise refuse(f"{shown(value)}: allowed is a file beside the campaign file, or below its folder")
    return value


def _group(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:*?\[\]-]+", value) or value.endswith("\n"):
        raise refuse(f"{shown(value)}: allowed are switch, rack, and features by a pattern like rack*")
    return value


FileName = Annotated[str, AfterValidator(_beside)]
Group = Annotated[str, AfterValidator(_group)]


class CoverageSection(Section):
    """Goals for the pairs. `hpcq plan` and `hpcq status` first show what is reached, then what is not and why."""

    node: int = Field(default=0, ge=0, description="Each node in at least this many pairs.")
    group_pair: int = Field(default=0, ge=0, description="Every two groups in at least this many pairs.")


class PairsSection(Section):
    """How nodes become pairs; short forms: `pairs: all`, `pairs: {rounds: 3}`, `pairs: {star: n1}`."""

    pattern: Literal["all", "ring", "rounds", "star", "list", "random", "within", "across", "file", "bisection"] = Field(
        description=f"{_PATTERNS}."
    )
    rounds: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Rounds of disjoint pairs; with within, in each group."
    )
    random: int | None = Field(
        default=None, ge=1, le=100_000, description="Pattern random: each node in this many drawn pairs."
    )
    bisection: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Pattern bisection: this many rounds of pairs that all cross the middle."
    )
    within: Group | None = Field(
        default=None, description="Pattern within: pairs inside each group, `switch` or features like `rack*`."
    )
    across: Group | None = Field(
        default=None, description="Pattern across: pairs between every two groups, named as for within."
    )
    each: int | None = Field(default=None, ge=1, le=100_000, description="Pattern across: pairs per two groups. Default: 1.")
    topology: FileName | None = Field(
        default=None, description="A topology.conf beside the campaign that names the switches instead of the scheduler."
    )
    file: FileName | None = Field(
        default=None, description="Pattern file: lines `ROUND CLIENT SERVER` in a file beside the campaign."
    )
    coverage: CoverageSection = Field(default=CoverageSection(), description="The coverage that the pairs should reach.")
    node: NodeName | None = Field(default=None, description="Pattern star: the node in the middle.")
    star: NodeName | None = Field(default=None, description="Short for pattern star with this node.")
    pairs: list[Annotated[list[NodeName], BeforeValidator(_pair)]] = Field(
        default=[], alias="list", description="Pattern list: [client, server], in this order."
    )
    directions: Literal["one", "both"] = Field(default="one", description="both: each pair once from each end.")

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in {"all", "ring"}:
                need = {"rounds": "{rounds: 3}", "star": "{star: NODE}", "list": "{list: [[a, b]]}"}
                need |= {"random": "{random: 3}", "within": "{within: switch}", "across": "{across: switch}"}
                need |= {"file": "{file: NAME}", "bisection": "{bisection: 3}"}
                allowed = f"write pairs: {need[value]}" if value in need else f"allowed are {_PATTERNS}"
                raise refuse(f"{shown(value)}: {allowed}")
            return {"pattern": value}
        if not isinstance(value, dict):
            raise refuse(f"{shown(value)}: {_FORMS}")
        if not {"pattern", *NAMING_KEYS}.intersection(value):
            raise refuse(f"{', '.join(map(shown, value)) or 'no keys'}: {_FORMS}")
        named = next((key for key in NAMING_KEYS if key in value), None)
        return {"pattern": named, **value}


def read_pairs(section: PairsSection, folder: Path, document: Document) -> PairChoice:
    """The pairs of a campaign. Files are read relative to `folder`."""
    pairs = tuple((pair[0], pair[1]) for pair in section.pairs)
    if section.file is not None:
        pairs = tuple(_read_beside(section.file, folder, document, "file", _pairs_of_file) or ())
    switches: Mapping[str, str] = {}
    if section.topology is not None:
        switches = _read_beside(section.topology, folder, document, "topology", read_topology) or {}
        if not switches and document.clean(("pairs",)):
            document.complain(("pairs", "topology"), f"{section.topology}: no line with SwitchName and Nodes")
    goals_need_groups = section.coverage.group_pair > 0 or section.topology is not None
    return PairChoice(
        pattern=Pattern(section.pattern),
        round_count=section.rounds or section.bisection,
        node=section.node or section.star,
        pairs=pairs,
        directions=Directions(section.directions),
        per_node_count=section.random,
        per_group_pair_count=section.each or 1,
        group=section.within or section.across or ("switch" if goals_need_groups else None),
        switches=switches,
        files=tuple(name for name in (section.file, section.topology) if name is not None),
        node_goal=section.coverage.node,
        group_pair_goal=section.coverage.group_pair,
    )


def _read_beside(name: str, folder: Path, document: Document, key: str, read: Callable[[str], _Read]) -> _Read | None:
    """The result of `read` on a file beside the campaign. If `read` cannot use the file, None and a complaint."""
    path = folder / name
    try:
        if path.stat().st_size > _FILE_SIZE_MAX_BYTES:
            raise ValueError(f"larger than {_FILE_SIZE_MAX_BYTES} bytes")  # noqa: TRY301
        return read(path.read_text("utf-8"))
    except OSError as error:
        document.complain(("pairs", key), f"{path}: cannot be read: {error.strerror}")
    except ValueError as error:
        document.complain(("pairs", key), f"{path}: {error}")
    return None


def _pairs_of_file(text: str) -> list[tuple[str, str]]:
    """Lines `ROUND CLIENT SERVER`, ordered by round; # begins a comment. Raises ValueError that names the line."""
    found: list[tuple[int, str, str]] = []
    for line_no, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        good = len(words) == 3 and words[0].isdecimal() and all(map(nodelist.is_node_name, words[1:])) and words[1] != words[2]
        if not good:
            raise ValueError(f"line {line_no}: {shown(line.strip())}: allowed is ROUND CLIENT SERVER, like: 1 n1 n2")
        found.append((int(words[0]), words[1], words[2]))
    if not found:
        raise ValueError("no pairs in it: allowed are lines ROUND CLIENT SERVER")
    found.sort(key=lambda one: one[0])
    return list(dict.fromkeys((client, server) for _, client, server in found))


def check_pairs(document: Document) -> None:
    """Checks beyond one key's type: patterns and the keys that they need or exclude."""
    pairs = document.data.get("pairs")
    if not document.clean(("pairs",)):
        return
    if pairs is None:
        _check_no_pairs(document, document.data)
    elif isinstance(pairs, dict):
        _check_pairs(document, pairs)


def _check_no_pairs(document: Document, data: dict[str, Any]) -> None:
    """Without `pairs`, every cluster must be an end of a link."""
    links, clusters = data.get("links"), data.get("clusters")
    if not links:
        document.complain(("pairs",), "missing: this key is required")
        return
    if not (document.clean(("links",)) and document.clean(("clusters",))):
        return  # what is wrong there is said there
    listed = [clusters] if isinstance(clusters, str) else clusters if isinstance(clusters, list) else []
    linked = {link.get(end) for link in links if isinstance(link, dict) for end in ("from", "to")}
    for name in listed:
        if name not in linked:
            document.complain(("pairs",), f"missing: {shown(name)} is in no link, so its pairs must be said")


def _check_pairs(document: Document, pairs: dict[str, Any]) -> None:
    section = check(PairsSection, pairs, document, ("pairs",))
    if section is None:
        return
    needs = {
        "rounds": ("rounds", section.rounds),
        "star": ("node", section.node or section.star),
        "list": ("list", section.pairs),
        "random": ("random", section.random),
        "within": ("within", section.within),
        "across": ("across", section.across),
        "file": ("file", section.file),
        "bisection": ("bisection", section.bisection),
    }
    if section.each is not None and section.pattern != "across":
        document.complain(("pairs", "each"), f"belongs to pattern across: found pattern {section.pattern}", at_key=True)
    for pattern, (key, value) in needs.items():
        if section.pattern == pattern and not value:
            document.complain(("pairs", key), f"missing: pattern {pattern} needs it")
        if section.pattern != pattern and value and (key, section.pattern) != ("rounds", "within"):
            written = "star" if key == "node" and section.star else key
            document.complain(("pairs", written), f"belongs to pattern {pattern}: found pattern {section.pattern}", at_key=True)
    if section.node and section.star:
        document.complain(("pairs", "node"), "star is given too: they are the same, give one", at_key=True)
    seen: set[tuple[str, str]] = set()
    for position, (client, server) in enumerate(section.pairs):
        if client == server:
            document.complain(("pairs", "list", position), f"[{client}, {server}]: a pair has two different nodes")
        if (client, server) in seen:
            document.complain(("pairs", "list", position), f"[{client}, {server}] stands twice: raise repetitions instead")
        seen.add((client, server))

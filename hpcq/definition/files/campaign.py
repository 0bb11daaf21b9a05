"""The campaign file: its keys, their checks, and how it becomes a `Campaign`.

read_document -> types of every key (pydantic) -> tests against the kernels' own tables -> gates -> Campaign
                             |                                |                              |
                             +--------------- complaints, all of them, raised together ------+
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from hpcq import nodelist, units
from hpcq.definition.checking import (
    QUANTITY,
    BudgetSection,
    Document,
    Features,
    Name,
    Names,
    NodeLists,
    NodeName,
    Place,
    Seconds,
    Section,
    Text,
    Walltime,
    Word,
    check,
    parse_document,
    read_document,
    read_hours,
    refuse,
    shown,
)
from hpcq.definition.files.gates import GateSection, read_expect, read_gates
from hpcq.definition.files.links import LinkSection, Places, placed, read_links
from hpcq.definition.find import kernel_names, kernels_named, kernels_of_texts
from hpcq.definition.kernel_file import described_tests
from hpcq.definition.model import (
    Allocation,
    AllocationKind,
    Budget,
    Campaign,
    Concurrency,
    Directions,
    Evidence,
    Gate,
    NodeChoice,
    PairChoice,
    ParameterValue,
    Pattern,
    Test,
    WithoutReservation,
    launched,
    of_nodes,
    seed_from,
)
from hpcq.kernels import (
    SIZE_OPTION,
    Kernel,
    Kernels,
    Option,
    complete,
    expected_s,
    option_value,
    own_kernels,
    related,
    sweep_sizes,
    unknown_name,
)
from hpcq.topology import read_topology

# ----------------------------------------------------------------------------------------------------------------------
# Which interface a campaign measures where a cluster has several networks.

_BIND_DEVICES = ("bind_device", "client_bind_device", "server_bind_device")

#: Keys of cluster files that people write into campaigns and tests, and what they then read: message and hint.
NETWORK_INSTEAD = (
    "not a key of campaigns or tests, whose clusters name theirs: must be network: NAME, a key of the campaign",
    "the cluster file says which interface that is: networks: {NAME: eth0}",
)
#: An address belongs to one node, and a campaign has many: each end takes that of the interface on its own node.
NO_ADDRESS = (
    "not a key of campaigns or tests, which name no address: must be network: NAME, a key of the campaign",
    "each end takes the address of networks: {NAME: eth0} in the cluster file; bind_device: eth0 keeps packets there",
)
IN_CLUSTER_FILES: Mapping[str, tuple[str, str]] = {
    "interface": NETWORK_INSTEAD,
    **dict.fromkeys(("bind", "bind_address", "source_address", "local_address"), NO_ADDRESS),
}


def check_bind_device(document: Document) -> None:
    """Complain about tests whose bind_device is an address: it passes for a name, and no node has such an interface."""
    entries = document.data.get("tests")
    for no, entry in enumerate(entries if isinstance(entries, list) else []):
        for place, value in _bind_devices(entry if isinstance(entry, dict) else {}):
            at = ("tests", no, *place)
            if _is_address(value) and document.clean(at):
                said = f"{value!r} is an address: must be the name of an interface"
                hint = "bind_device: eth0; an address belongs to one node, a name is that of an interface on each"
                document.complain(at, said, hint)


def _bind_devices(entry: Mapping[str, Any]) -> Iterator[tuple[Place, object]]:
    columns = entry.get("zip")
    lists: list[tuple[Place, object]] = [(("matrix",), entry.get("matrix"))]
    lists += [(("zip", no), one) for no, one in enumerate(columns)] if isinstance(columns, list) else [(("zip",), columns)]
    fixed = entry.get("parameters")
    for name in _BIND_DEVICES:
        if isinstance(fixed, dict) and name in fixed:
            yield ("parameters", name), fixed[name]
        for place, values in lists:
            swept = values.get(name) if isinstance(values, dict) else None
            for no, value in enumerate(swept if isinstance(swept, list) else []):
                yield (*place, name, no), value


def _is_address(value: object) -> bool:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------------------------
# `nodes.reservation` of a campaign file: an existing one, or one that hpcq makes for the run.
#
# nodes: {reservation: upkeep-7}
# nodes: {reservation: {make: true, otherwise: without}}


def named_reservation(value: object) -> object:
    """Turn the short form into the long one."""
    return {"name": value} if isinstance(value, str) else value


class ReservationSection(Section):
    """A reservation: the name of one that exists, or {make: true} for one of the run's own."""

    name: Word | None = Field(default=None, description="A reservation that exists.")
    make: bool = Field(default=False, description="hpcq reserves idle nodes, uses them and removes the reservation.")
    otherwise: Literal["stop", "without"] = Field(
        default="stop", description="With make, if you may not make one: stop before anything runs, or go on without."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> ReservationSection:
        if self.make == (self.name is not None):
            found = "a name and make: true" if self.make else "no name and no make: true"
            raise refuse(f"{found}: must be the name of a reservation that exists, or {{make: true}}")
        return self


# ----------------------------------------------------------------------------------------------------------------------
# The keys `allocation`, `concurrency`, `toolchains` and `transport` of a campaign file: what shares an allocation, and how
# its MPI tests run.
#
# allocation: pair | whole | group of 8          concurrency: rounds | alone | [alone, rounds]


_GROUP = re.compile(r"group of ([1-9]\d{0,4})")
_NODE_COUNT_MIN = 3
#: The option of MPI kernels that the campaign's key of this name gives.
TRANSPORT = "transport"


def _allocation_word(value: object) -> object:
    found = _GROUP.fullmatch(value) if isinstance(value, str) else None
    if found and int(found[1]) < _NODE_COUNT_MIN:
        raise refuse(f"{shown(value)}: a group has {_NODE_COUNT_MIN} nodes or more; two are allocation: pair")
    if not found and value not in ("pair", "whole"):
        raise refuse(f"{shown(value)}: must be pair, whole or group of N, for example: group of 8")
    return value


def _words(value: object) -> object:
    words = value if isinstance(value, list) else [value]
    if not words or len(set(map(str, words))) != len(words):
        raise refuse(f"{shown(value)}: must be rounds, alone, or both once: [alone, rounds]")
    return words


def _transports() -> tuple[str, ...]:
    """The words that hpcq's MPI kernels know."""
    options = (kernel.option(TRANSPORT) for kernel in own_kernels().values())
    return next(option.choices for option in options if option is not None)


def _transport_word(value: object) -> object:
    if value is not None and value not in _transports():
        raise refuse(f"{shown(value)}: must be one of {', '.join(_transports())}", "a test may have its own, under parameters")
    return value


TransportWord = Annotated[
    str | None, BeforeValidator(_transport_word), WithJsonSchema({"type": "string", "enum": list(_transports())})
]
AllocationWord = Annotated[
    str,
    BeforeValidator(_allocation_word),
    WithJsonSchema({"type": "string", "pattern": f"^(pair|whole|{_GROUP.pattern})$"}),
]
ConcurrencyWords = Annotated[
    list[Literal["rounds", "alone"]],
    BeforeValidator(_words),
    WithJsonSchema({"anyOf": [{"enum": ["rounds", "alone"]}, {"type": "array", "items": {"enum": ["rounds", "alone"]}}]}),
]


def read_allocation(document: Document) -> Allocation:
    """What a campaign file says about sharing; reports keys that contradict each other."""
    data: dict[str, Any] = document.data
    if not (document.clean(("allocation",)) and document.clean(("concurrency",))):
        return Allocation()
    text, words = data.get("allocation") or "pair", data.get("concurrency")
    group = _GROUP.fullmatch(text)
    kind = AllocationKind.GROUP if group else AllocationKind(text)
    if words is not None and kind is AllocationKind.PAIR:
        message = "belongs to tournaments: found allocation: pair, where a pair is measured in an allocation of its own"
        document.complain(("concurrency",), message, at_key=True)
    listed = [words] if isinstance(words, str) else words or ["rounds"]
    return Allocation(kind, int(group[1]) if group else None, tuple(Concurrency(word) for word in listed))


def check_sets(document: Document, allocation: Allocation, tests: Sequence[Test]) -> None:
    """Complain about tests of many nodes in tournaments, whose steps are pairs."""
    if allocation.kind is AllocationKind.PAIR:
        return
    for kernel in sorted({test.kernel for test in tests if of_nodes(test)}):
        message = f"a tournament plays pairs: {kernel} runs on all nodes of a set: allowed with it is allocation: pair"
        document.complain(("allocation",), message, "put its tests into a campaign of their own")
    for kernel in sorted({test.kernel for test in tests if test.parameters.get("transport", "as_is") != "as_is"}):
        message = f"the ranks of a tournament start once: {kernel} with a transport of its own: allowed with it is"
        hint = "the cluster file's `environment` sets what holds for all tests"
        document.complain(("allocation",), f"{message} allocation: pair", hint)
    if allocation.concurrency == (Concurrency.ALONE,):
        return
    for kernel in sorted({test.kernel for test in tests if launched(test)}):
        message = f"the MPI launcher starts {kernel} once per pair, so the pairs of a round would not run at once: allowed with"
        hint = "pairs that shall run at once need a kernel of hpcq or a client and a server"
        document.complain(("allocation",), f"{message} it is concurrency: alone", hint)


def with_transport(document: Document, kernel: Kernel, point: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """A test's parameters with the campaign's `transport`, where its kernel has this option and the test gives none."""
    word = document.data.get(TRANSPORT) if document.clean((TRANSPORT,)) else None
    if not isinstance(word, str) or kernel.option(TRANSPORT) is None or TRANSPORT in point:
        return dict(point)
    return {**point, TRANSPORT: word}


def check_transport(document: Document, tests: Sequence[Test]) -> None:
    """Complain about a transport that no test takes."""
    if document.data.get(TRANSPORT) and tests and not any(TRANSPORT in test.parameters for test in tests):
        document.complain((TRANSPORT,), "no test is one of hpcq's MPI kernels, which alone take it")


def with_toolchains(document: Document, tests: Sequence[Test]) -> list[Test]:
    """The tests with each MPI test once per toolchain. Tests of the first keep their numbers; complaints go to the document."""
    names = document.data.get("toolchains")
    if not names or not document.clean(("toolchains",)):
        return list(tests)
    listed = [names] if isinstance(names, str) else list(names)
    ours = [test for test in tests if test.program == "hpcq-mpi"]
    if len(set(listed)) < len(listed):
        document.complain(("toolchains",), "a name stands twice: each toolchain may stand once")
    if tests and not ours:
        document.complain(("toolchains",), "no test is one of hpcq's MPI kernels, which alone they build")
    if (document.data.get("allocation") or "pair") != "pair":
        message = "a tournament runs one program on all nodes: allowed with toolchains is allocation: pair"
        document.complain(("toolchains",), message)
    swept = [replace(test, toolchain=listed[0]) if test.program == "hpcq-mpi" else test for test in tests]
    for name in listed[1:]:
        swept += [replace(test, test_no=len(swept) + number, toolchain=name) for number, test in enumerate(ours, 1)]
    return swept


# ----------------------------------------------------------------------------------------------------------------------
# The `pairs` key of a campaign: how nodes become pairs, the checks of it, and the files that it names.


_Read = TypeVar("_Read")
_PATTERNS = ", ".join(Pattern)
_FORMS = (
    "must be all, ring, {rounds: K}, {random: K}, {star: NODE}, {within: switch}, {across: switch}, {file: NAME},"
    " {bisection: K} and {list: [[a, b], ...]}"
)
#: Keys that select a pattern by themselves, in the order of search.
NAMING_KEYS = ("star", "within", "across", "random", "file", "bisection", "rounds", "list")
#: A pairs file or a topology file is never larger than this.
_FILE_SIZE_MAX_BYTES = 64 * 2**20


def _pair(value: object) -> object:
    if not isinstance(value, list) or len(value) != 2:
        raise refuse(f"{shown(value)}: must be [client, server]")
    return value


def _beside(value: str) -> str:
    path = PurePosixPath(value)
    if not value or path.is_absolute() or ".." in path.parts:
        raise refuse(f"{shown(value)}: must be a file beside the campaign file, or below its folder")
    return value


def _group(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:*?\[\]-]+", value) or value.endswith("\n"):
        raise refuse(f"{shown(value)}: must be switch, rack or a feature by a pattern like rack*")
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
                allowed = f"write pairs: {need[value]}" if value in need else f"must be one of {_PATTERNS}"
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
        found = _read_beside(section.topology, folder, document, "topology", read_topology)
        switches = found.leaves if found else {}
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
            raise ValueError(f"line {line_no}: {shown(line.strip())}: must be ROUND CLIENT SERVER, like: 1 n1 n2")
        found.append((int(words[0]), words[1], words[2]))
    if not found:
        raise ValueError("no pairs in it: must be lines ROUND CLIENT SERVER")
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


#: Rounds of disjoint pairs where a campaign says nothing of pairs: each node meets two others.
_ROUNDS = 2


def _check_no_pairs(document: Document, data: dict[str, Any]) -> None:
    """With links but without `pairs`, every cluster must be an end of a link."""
    links, clusters = data.get("links"), data.get("clusters")
    if not links or not (document.clean(("links",)) and document.clean(("clusters",))):
        return  # what is wrong there is said there
    listed = [clusters] if isinstance(clusters, str) else clusters if isinstance(clusters, list) else []
    linked = {link.get(end) for link in links if isinstance(link, dict) for end in ("from", "to")}
    for name in listed:
        if name not in linked:
            document.complain(("pairs",), f"missing: {shown(name)} is in no link, so its pairs must be said", _FORMS)


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


# ----------------------------------------------------------------------------------------------------------------------
# Expand one entry under `tests` to its points: fixed parameters, `matrix`, `zip` and `exclude`.
#
#     parameters: {duration_ms: 200}              every point
#     matrix: {message_bytes: [1, 64KiB], a: [1, 2]}    every combination, the first key slowest
#     zip: {b: [1, 2], c: [10, 20]}               together: (1, 10), (2, 20); a list of such mappings is several axes
#     exclude: [{message_bytes: 1, a: 2}]         points where all of these hold; a list of values means any of them
#
# Every value is checked once, before anything is combined.


#: More points than this are probably a slip in a matrix.
POINT_COUNT_MAX = 10_000
_Point = dict[str, ParameterValue]


@dataclass(frozen=True, slots=True)
class TestEntry:
    """An entry's four mappings as written."""

    parameters: Mapping[str, Any]
    matrix: Mapping[str, Sequence[Any]]
    zips: Sequence[Mapping[str, Sequence[Any]]]
    exclude: Sequence[Mapping[str, Any]]
    zip_is_list: bool = False


def expand(kernel: Kernel, entry: TestEntry, document: Document, place: Place) -> list[_Point]:
    """All points of an entry in order, without the defaults.

    Complaints go to the document; after one, nothing is returned.
    """
    reader = _Reader(kernel, document, place)
    fixed = {name: reader.value((*place, "parameters", name), name, value) for name, value in entry.parameters.items()}
    axes = [
        [{name: value} for value in reader.values((*place, "matrix", name), name, values)]
        for name, values in entry.matrix.items()
    ]
    for zip_no, columns in enumerate(entry.zips):
        at = (*place, "zip", zip_no) if entry.zip_is_list else (*place, "zip")
        axes.append(reader.zipped(at, columns))
    swept = {*entry.matrix, *(name for columns in entry.zips for name in columns)}
    rules = [reader.rule((*place, "exclude", rule_no), rule, swept) for rule_no, rule in enumerate(entry.exclude)]
    if not document.clean(place):
        return []
    if prod(map(len, axes)) > POINT_COUNT_MAX:
        document.complain(place, f"sweeps to {prod(map(len, axes))} tests: {POINT_COUNT_MAX} at most")
        return []
    return _kept([fixed | point for point in _combined(axes)], rules, document, place)


def _combined(axes: Sequence[Sequence[_Point]]) -> Iterator[_Point]:
    for choice in product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


def _kept(
    points: list[_Point], rules: Sequence[Mapping[str, Sequence[ParameterValue]]], document: Document, place: Place
) -> list[_Point]:
    kept = points
    for rule_no, rule in enumerate(rules):
        if not any(_matches(point, rule) for point in points):
            document.complain((*place, "exclude", rule_no), "matches no combination of the sweep: correct it or leave it out")
        kept = [point for point in kept if not _matches(point, rule)]
    if not kept:
        document.complain((*place, "exclude"), "nothing is left of the sweep: at least one combination must remain")
    return kept


def _matches(point: _Point, rule: Mapping[str, Sequence[ParameterValue]]) -> bool:
    return all(point[name] in values for name, values in rule.items())


class _Reader:
    """Checks single values against the kernel's table and remembers where each name occurred."""

    def __init__(self, kernel: Kernel, document: Document, place: Place) -> None:
        self.kernel = kernel
        self.document = document
        self.place = place
        self.given: dict[str, Place] = {}

    def option(self, at: Place, name: str) -> Option | None:
        option = self.kernel.option(name)
        if option is None:
            what = f"parameter of {self.kernel.name}"
            unknown = unknown_name(what, name, [one.name for one in self.kernel.options])
            message, hint = IN_CLUSTER_FILES.get(name, unknown)
            self.document.complain(at, message.removeprefix(f"{name!r} is "), hint, at_key=True)
        return option

    def once(self, at: Place, name: str) -> None:
        if name in self.given:
            first = self.given[name]
            self.document.complain(
                at, f"given already under {first[2]} on line {self.document.key_line(first)}: once is allowed", at_key=True
            )
        self.given.setdefault(name, at)

    def value(self, at: Place, name: str, value: Any) -> ParameterValue:
        self.once(at, name)
        option = self.option(at, name)
        return 0 if option is None else self.checked(at, option, value)

    def values(self, at: Place, name: str, values: Sequence[Any]) -> list[ParameterValue]:
        self.once(at, name)
        option = self.option(at, name)
        if option is None:
            return []
        checked = [self.checked((*at, position), option, value) for position, value in enumerate(values)]
        for position, value in enumerate(checked):
            if value in checked[:position] and self.document.clean((*at, position)):
                self.document.complain((*at, position), f"{shown(values[position])} stands twice: each value may stand once")
        return checked

    def checked(self, at: Place, option: Option, value: Any) -> ParameterValue:
        try:
            return option_value(self.kernel, option, value)
        except ValueError as error:
            self.document.complain(at, str(error), _hint(self.kernel, option, value, swept="matrix" in at or "zip" in at))
            return 0

    def zipped(self, at: Place, columns: Mapping[str, Sequence[Any]]) -> list[_Point]:
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            self.document.complain(at, f"lists of different lengths ({found}): all lists of a zip are equally long")
        checked = {}
        for name, values in columns.items():
            self.once((*at, name), name)
            option = self.option((*at, name), name)
            if option is not None:
                checked[name] = [self.checked((*at, name, no), option, value) for no, value in enumerate(values)]
        return [dict(zip(checked, row, strict=True)) for row in zip(*checked.values(), strict=False)]

    def rule(self, at: Place, rule: Mapping[str, Any], swept: set[str]) -> dict[str, list[ParameterValue]]:
        checked = {}
        for name, value in rule.items():
            option = self.option((*at, name), name)
            if option is None:
                continue
            if name not in swept:
                message = f"not swept here: must be {' or '.join(sorted(swept)) or 'left out, since nothing is swept'}"
                self.document.complain((*at, name), message, at_key=True)
                continue
            several = value if isinstance(value, list) else [value]
            checked[name] = [self.checked((*at, name), option, one) for one in several]
        return checked


def _above(option: Option, value: Any) -> bool:
    """Whether a value was refused because it is too large: another kernel may take it."""
    try:
        return option.maximum is not None and units.parse(value, option.unit or "") > option.maximum
    except (ValueError, TypeError):
        return False


def _hint(kernel: Kernel, option: Option, value: Any, *, swept: bool) -> str | None:
    """What to try after a value was refused."""
    if isinstance(value, list):
        return "several values belong under matrix, or under zip"
    if option.maximum is None or isinstance(value, (bool, dict)) or not _above(option, value):
        return None
    family = kernel.name.partition("_")[2]
    for other in own_kernels().values():
        theirs = other.option(option.name)
        if other.name != kernel.name and other.name.partition("_")[2] == family and theirs is not None:
            try:
                option_value(other, theirs, value)
            except ValueError:
                continue
            use = f"use {other.name} above {option.maximum:.12g}" + (f" {option.unit}" if option.unit else "")
            return f"split the sweep, or {use}" if swept else use
    return None


# ----------------------------------------------------------------------------------------------------------------------


class NodesSection(Section):
    """Which nodes may be used."""

    state: Literal["idle", "up"] = Field(
        default="idle", description="`idle`: nodes that are idle at the start. `up`: also busy ones, for which the run waits."
    )
    include: NodeLists = Field(default=[], description="Only these nodes: names, or ranges like n[01-04,7]. Empty: all.")
    exclude: NodeLists = Field(default=[], description="Never these nodes.")
    constraint: Features | None = Field(default=None, description="Features a node must have, joined by & and |.")
    partition: Word | None = Field(default=None, description="The partition of this campaign instead of the cluster file's.")
    queue: Word | None = Field(default=None, description="The same as partition, in PBS's word.")
    reservation: Annotated[ReservationSection | None, BeforeValidator(named_reservation)] = Field(
        default=None, description="A reservation instead of the cluster file's: its name, or {make: true}."
    )
    at_most: int | None = Field(default=None, ge=2, description="At most this many nodes, which the seed chooses.")
    reboot_within_s: Seconds = Field(
        default=0.0, ge=0, description="Wait so long for nodes that are down, drained or not responding. Default: not at all."
    )


def _columns(value: object) -> object:
    return [value] if isinstance(value, dict) else value


_Values = Annotated[list[Any], Field(min_length=1)]
_Zips = Annotated[
    list[dict[str, _Values]],
    BeforeValidator(_columns),
    WithJsonSchema({"type": ["object", "array"], "items": {"type": "object"}}),
]


class TestSection(Section):
    """A kernel with its parameters, fixed or swept."""

    __test__ = False
    elsewhere = IN_CLUSTER_FILES

    kernel: str = Field(description="The kernel to run; `hpcq kernels` lists them.")
    parameters: dict[str, Any] = Field(default={}, description="Fixed parameters; the others keep the kernel's default.")
    matrix: dict[str, _Values] = Field(default={}, description="Parameters with lists of values: every combination.")
    zips: _Zips = Field(default=[], alias="zip", description="Parameters with lists of one length: taken together.")
    exclude: list[dict[str, Any]] = Field(default=[], description="Combinations to leave out.")
    on: Places | None = Field(
        default=None, description="Where it runs: of `pairs`, `links` and `nodes`. Default: wherever its kernel can."
    )
    timeout_s: Seconds | None = Field(
        default=None, gt=0, le=86400, description="Time limit of one measurement. Default: from its durations."
    )


def _seed(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    if value is not None and value != "each_run" and not number:
        raise refuse(f"{shown(value)}: must be a whole number from 0 to {2**63 - 1}, or each_run")
    return value


def _expect(value: object) -> object:
    if value is not None and value != "link" and not (isinstance(value, dict) and value):
        raise refuse(f"{shown(value)}: must be link, or values by metric like {{throughput_bps: 190mbit}}")
    return value


class CampaignFile(Section):
    """A campaign: what to measure, on which nodes of which clusters."""

    elsewhere = IN_CLUSTER_FILES

    name: Name = Field(description="Name of the campaign; run ids and job names begin with it.")
    description: Text = Field(default="", description="What the campaign is for.")
    clusters: Names = Field(min_length=1, description="The clusters to measure: names of cluster files.")
    nodes: NodesSection = Field(default=NodesSection(), description="Which nodes may be used.")
    pairs: PairsSection | None = Field(
        default=None,
        description="How nodes become pairs. Default: `{rounds: 2}`, each node meets two others; with links: their nodes in a"
        " ring.",
    )
    tests: list[TestSection] = Field(min_length=1, description="What each pair runs, in this order.")
    repetitions: int = Field(default=3, ge=1, le=10_000, description="How often each pair runs all its tests.")
    walltime_s: Walltime | None = Field(
        default=None, description='Time limit of one job: seconds, or with its unit: "5min". Default: from the tests.'
    )
    retries: int = Field(
        default=1,
        ge=0,
        le=10,
        description="How often hpcq tries a failed job again, whatever failed: what a node refuses now it may take later.",
    )
    decided_after: int = Field(
        default=0,
        ge=0,
        le=100,
        description="A node that fails with so many partners that are fine with others is measured no further, and no"
        " job repeats a test that failed twice the same way. 0: never. `hpcq accept` takes 3.",
    )
    seed: Annotated[
        int | Literal["each_run"] | None,
        BeforeValidator(_seed),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "each_run"}]}),
    ] = Field(
        default=None,
        description="Decides pairs and roles. Default: from the name, the same in every run; each_run: a new one per run.",
    )
    gates: list[GateSection] = Field(default=[], description="Bounds that results must keep.")
    expect: Annotated[
        Any,
        BeforeValidator(_expect),
        WithJsonSchema({"anyOf": [{"const": "link"}, {"type": "object", "additionalProperties": QUANTITY}]}),
    ] = Field(
        default=None,
        description="What the hardware should give: link (three fifths of the link's speed, or of 20 Gbit/s where it is"
        " faster), or values by metric, like `{throughput_bps: 190mbit}`, of which nine tenths are enough.",
    )
    links: list[LinkSection] = Field(default=[], description="Pairs of clusters whose connection to measure.")
    budget: BudgetSection | None = Field(default=None, description="What the campaign may take of a cluster.")
    toolchains: Names = Field(
        default=[], description="Toolchains of the cluster files with which each MPI test runs, one after the other."
    )
    transport: TransportWord = Field(
        default=None,
        description="Over what the MPI tests send that give no `transport` of their own: `hpcq kernels mpi_pingpong`.",
    )
    network: Names = Field(
        default=[],
        description="Which of the cluster files' networks to measure, by name; several: every pair over each of them, in"
        " jobs of their own. Default: their interface.",
    )
    allocation: AllocationWord = Field(
        default="pair", description="Which pairs share an allocation, in which they play a tournament."
    )
    concurrency: ConcurrencyWords | None = Field(
        default=None, description="In a tournament: all pairs of a round at once, or one pair at a time. Default: rounds."
    )
    evidence: Literal["summary", "full"] = Field(default="summary", description="How much of the evidence to keep.")


def read_campaign(path: Path) -> Campaign:
    """Read and check a campaign file. Raises UserError with every complaint, one per line."""
    document = read_document(path)
    hint = "a campaign names it under `clusters`; hpcq cluster check NAME looks at the cluster"
    document.refuse_other_kind("tests", "scheduler", "this is a cluster file: must be a campaign", hint)
    file = check(CampaignFile, document.data, document)
    _check_values(document)
    kernels = kernels_named(_kernel_names(document), path)
    tests = _read_tests(document, kernels, kernel_names(path))
    check_bind_device(document)
    tests = with_toolchains(document, tests)
    gates = [*read_gates(document, tests, kernels), *read_expect(document, tests, kernels)]
    links = read_links(document, tests)
    _check_networks(document)
    allocation = read_allocation(document)
    check_sets(document, allocation, tests)
    check_transport(document, tests)
    pairs = PairChoice(Pattern.RING) if document.data.get("links") else PairChoice(Pattern.ROUNDS, round_count=_ROUNDS)
    if file is not None and file.pairs is not None and document.clean(("pairs",)):
        pairs = read_pairs(file.pairs, path.parent, document)
    document.raise_complaints()
    assert file is not None  # noqa: S101 - without complaints there is a file
    return Campaign(
        name=file.name,
        description=file.description,
        clusters=tuple(file.clusters),
        nodes=_nodes(file.nodes),
        pairs=pairs,
        tests=tuple(tests),
        repetition_count=file.repetitions,
        walltime_s=file.walltime_s,
        attempt_count_max=file.retries + 1,
        decided_after=file.decided_after,
        seed=seed_from(file.name) if file.seed is None else None if file.seed == "each_run" else int(file.seed),
        gates=tuple(gates),
        budget=None if file.budget is None else budget(file.budget),
        evidence=Evidence(file.evidence),
        kernels=kernels,
        links=tuple(links),
        pairs_of_links=file.pairs is None and bool(links),
        allocation=allocation,
        toolchains=tuple(file.toolchains),
        networks=tuple(file.network),
    )


def _check_networks(document: Document) -> None:
    """Complain about several networks where one is measured."""
    names = document.data.get("network")
    if isinstance(names, list) and len(names) > 1 and document.clean(("network",)):
        if len(set(names)) < len(names):
            document.complain(("network",), f"{', '.join(names)}: must name each network once")
        if document.data.get("links"):
            document.complain(("network",), "a campaign with links measures one network: must be one name")


def gates_of(text: str, name: str, descriptions: Mapping[str, str]) -> tuple[Gate, ...]:
    """The gates of a campaign's text as a run stored it. descriptions: the stored texts of described kernels, by name.

    Needs no files beside it. Raises UserError, which calls the text `name`.
    """
    document = parse_document(text, name)
    names = _kernel_names(document)
    stored = {one: descriptions[one] for one in names if one in descriptions}
    kernels = {**kernels_named(names - stored.keys()), **kernels_of_texts(stored)}
    tests = with_toolchains(document, _read_tests(document, kernels, [*kernel_names(), *descriptions]))
    gates = [*read_gates(document, tests, kernels), *read_expect(document, tests, kernels)]
    document.raise_complaints()
    return tuple(gates)


def budget(section: BudgetSection) -> Budget:
    """Convert a budget section for the rest of hpcq."""
    return Budget(
        max_jobs=section.max_jobs,
        max_nodes=section.max_nodes,
        max_node_ratio=1.0 if section.max_node_ratio is None else section.max_node_ratio,
        max_node_seconds=section.max_node_seconds,
        max_walltime_s=section.max_walltime_s,
        max_confirmation_jobs=section.max_confirmation_jobs,
        hours=() if section.hours is None else (read_hours(section.hours),),
        gives_way=section.gives_way,
    )


def _nodes(section: NodesSection) -> NodeChoice:
    made = section.reservation
    return NodeChoice(
        state=section.state,
        include=tuple(dict.fromkeys(name for text in section.include for name in nodelist.expand(text))),
        exclude=tuple(dict.fromkeys(name for text in section.exclude for name in nodelist.expand(text))),
        constraint=section.constraint,
        partition=section.partition or section.queue,
        reservation=None if made is None else made.name,
        make_reservation=None if made is None or not made.make else WithoutReservation(made.otherwise),
        at_most=section.at_most,
        reboot_within_s=section.reboot_within_s,
    )


def _check_values(document: Document) -> None:
    """Checks beyond one key's type: keys that need or exclude each other."""
    data = document.data
    clusters = data.get("clusters")
    if isinstance(clusters, list) and document.clean(("clusters",)):
        for position, name in enumerate(clusters):
            if name in clusters[:position]:
                document.complain(("clusters", position), f"{shown(name)} stands twice: each cluster may stand once")
    nodes = data.get("nodes")
    if isinstance(nodes, dict) and "partition" in nodes and "queue" in nodes:
        document.complain(("nodes", "queue"), "partition is given too: they are the same, give one", at_key=True)
    made = nodes.get("reservation") if isinstance(nodes, dict) else None
    if isinstance(made, dict) and made.get("make") and data.get("links"):
        said = "true, and links: allowed with links is the name of a reservation that exists"
        document.complain(("nodes", "reservation", "make"), said)
    check_pairs(document)


def _kernel_names(document: Document) -> set[str]:
    """The kernels that a campaign's tests name, as far as the file can be read."""
    entries = document.data.get("tests")
    names = (entry.get("kernel") for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict))
    return {name for name in names if isinstance(name, str)}


def _read_tests(document: Document, kernels: Kernels, valid: Sequence[str]) -> list[Test]:
    entries = document.data.get("tests")
    tests: list[Test] = []
    first_lines: dict[tuple[Any, ...], int] = {}
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        place: Place = ("tests", position)
        section = check(TestSection, entry, document, place) if document.clean(place) else None
        if section is None:
            _check_kernel_name(document, entry, place, valid)
            continue
        read = _read_test(document, section, place, len(tests), kernels, valid)
        for test in placed(document, section.on, read, place):
            key = (test.kernel, tuple(test.parameters.items()))
            if key in first_lines:
                message = f"the same {test.kernel} with the same parameters as on line {first_lines[key]}"
                document.complain(place, f"{message}: raise repetitions instead")
            first_lines.setdefault(key, document.line(place))
            tests.append(test)
    if len(tests) > POINT_COUNT_MAX:
        document.complain(("tests",), f"{len(tests)} tests after all sweeps: {POINT_COUNT_MAX} at most")
    return tests


def _check_kernel_name(document: Document, entry: object, place: Place, valid: Sequence[str]) -> None:
    name = entry.get("kernel") if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in valid:
        document.complain((*place, "kernel"), *unknown_name("kernel", name, valid))


def _check_related(kernel: Kernel, points: Sequence[_Point], document: Document, place: Place) -> bool:
    """Complain about options that do not go together, at the one that stands in the file."""
    for point in points:
        found = related(kernel, point)
        if found is None:
            continue
        relation, message = found
        entry = document.data["tests"][place[1]]
        names = [name for name in (relation.option, relation.other, relation.last, relation.when) if name is not None]
        mappings = [(*place, key) for key in ("parameters", "matrix", "zip") if isinstance(entry.get(key), dict)]
        written = [(*at, name) for name in names for at in mappings if name in entry[at[2]]]
        swept = "an exclude leaves out what does not go together" if len(points) > 1 or "matrix" in entry else None
        at = written[0] if written else place
        message = message if at[-1] == relation.option else f"{relation.option}: {message}"
        document.complain(at, message, swept, at_key=bool(written))
        return False
    return True


def _read_test(  # noqa: PLR0917 - one entry, and what it may name
    document: Document, section: TestSection, place: Place, before: int, kernels: Kernels, valid: Sequence[str]
) -> list[Test]:
    _check_kernel_name(document, {"kernel": section.kernel}, place, valid)
    if not document.clean(place):
        return []
    kernel = kernels[section.kernel]
    zip_is_list = isinstance(document.data["tests"][place[1]].get("zip"), list)
    entry = TestEntry(section.parameters, section.matrix, section.zips, section.exclude, zip_is_list)
    tests: list[Test] = []
    for point in expand(kernel, entry, document, place):
        parameters = complete(kernel, with_transport(document, kernel, point))
        first_no = before + len(tests) + 1
        if kernel.described is not None:
            tests += described_tests(kernel, parameters, first_no, document, place, timeout_s=section.timeout_s)
            continue
        expected = expected_s(parameters)
        if section.timeout_s is not None and section.timeout_s <= expected:
            at = (*place, "timeout_s")
            document.complain(at, f"{section.timeout_s:g} s, but the test itself takes {expected:g} s: must be more")
        timeout_s = math.ceil(section.timeout_s or max(30.0, 20.0 + 3.0 * expected))
        try:
            points = [{**parameters, SIZE_OPTION: size} for size in sweep_sizes(kernel, parameters)] or [parameters]
        except ValueError as error:
            document.complain(place, str(error))
            continue
        if not _check_related(kernel, points, document, place):
            continue
        tests += [
            Test(first_no + no, kernel.name, kernel.program, one, timeout_s, measured_by=first_no if no else 0)
            for no, one in enumerate(points)
        ]
    return tests

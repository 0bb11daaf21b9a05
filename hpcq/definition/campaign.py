"""The campaign file: its keys, what is checked of them, and how it becomes a `Campaign`.

read_document -> types of every key (pydantic) -> tests against the kernels' own tables -> gates -> Campaign
                             |                                |                              |
                             +--------------- complaints, all of them, raised together ------+
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from hpcq.definition import nodelist
from hpcq.definition.checking import (
    BudgetSection,
    Features,
    Name,
    Names,
    NodeLists,
    NodeName,
    Seconds,
    Section,
    Text,
    Walltime,
    Word,
    check,
    read_hours,
    refuse,
)
from hpcq.definition.gates import GateSection, read_gates
from hpcq.definition.links import LinkSection, read_links
from hpcq.definition.model import (
    Budget,
    Campaign,
    Directions,
    Evidence,
    Gate,
    NodeChoice,
    PairChoice,
    Pattern,
    Test,
    WithoutReservation,
    seed_from,
)
from hpcq.definition.packs import DisturbWords, PackWord, read_pack
from hpcq.definition.reservations import ReservationSection, named_reservation
from hpcq.definition.sweep import POINT_COUNT_MAX, Entry, expand
from hpcq.definition.yamlfile import Document, Place, parse_document, read_document, shown
from hpcq.kernels import check_parameters, expected_s, kernels, unknown_name
from hpcq.scheduler.topology import read_topology

_Read = TypeVar("_Read")

_PATTERNS = ", ".join(Pattern)
_FORMS = (
    "allowed are all, ring, {rounds: K}, {random: K}, {star: NODE}, {within: switch}, {across: switch}, {file: NAME},"
    " {bisection: K} and {list: [[a, b], ...]}"
)
#: Keys that name a pattern by themselves, in the order in which they are looked for.
NAMING_KEYS = ("star", "within", "across", "random", "file", "bisection", "rounds", "list")
#: A pairs file or a topology file is no novel.
_FILE_SIZE_MAX_BYTES = 64 * 2**20


class NodesSection(Section):
    """Which nodes may be used."""

    state: Literal["idle", "up"] = Field(
        default="idle", description="Idle at the start (`idle`), or also at work (`up`), which are waited for."
    )
    include: NodeLists = Field(default=[], description="Only these: names, or ranges like n[01-04,7]. Empty is all.")
    exclude: NodeLists = Field(default=[], description="Never these.")
    constraint: Features | None = Field(default=None, description="Features a node must have, joined by & and |.")
    partition: Word | None = Field(default=None, description="The partition of this campaign instead of the cluster file's.")
    queue: Word | None = Field(default=None, description="The same as partition, in the words of PBS.")
    reservation: Annotated[ReservationSection | None, BeforeValidator(named_reservation)] = Field(
        default=None, description="A reservation instead of the cluster file's: its name, or {make: true}."
    )
    at_most: int | None = Field(default=None, ge=2, description="This many nodes at most, chosen by the seed.")


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
    """What the pairs should reach; said first by `hpcq plan` and `hpcq status`, with what is not reached and why."""

    node: int = Field(default=0, ge=0, description="Each node in at least so many pairs.")
    group_pair: int = Field(default=0, ge=0, description="Each two groups in at least so many pairs.")


class PairsSection(Section):
    """How nodes become pairs; short forms: `pairs: all`, `pairs: {rounds: 3}`, `pairs: {star: n1}`."""

    pattern: Literal["all", "ring", "rounds", "star", "list", "random", "within", "across", "file", "bisection"] = Field(
        description=f"{_PATTERNS}."
    )
    rounds: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Rounds of disjoint pairs; with within, in each group."
    )
    random: int | None = Field(default=None, ge=1, le=100_000, description="Pattern random: each node in so many drawn pairs.")
    bisection: int | None = Field(
        default=None, ge=1, le=1_000_000, description="Pattern bisection: so many rounds of pairs that all cross the middle."
    )
    within: Group | None = Field(
        default=None, description="Pattern within: pairs inside each group, `switch` or features like `rack*`."
    )
    across: Group | None = Field(
        default=None, description="Pattern across: pairs between every two groups, named as for within."
    )
    each: int | None = Field(
        default=None, ge=1, le=100_000, description="Pattern across: pairs of every two groups. Default: 1."
    )
    topology: FileName | None = Field(
        default=None, description="A topology.conf beside the campaign that says the switches instead of the scheduler."
    )
    file: FileName | None = Field(
        default=None, description="Pattern file: lines `ROUND CLIENT SERVER` in a file beside the campaign."
    )
    coverage: CoverageSection = Field(default=CoverageSection(), description="What the pairs should reach.")
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

    kernel: str = Field(description="The kernel to run; `hpcq kernels` lists them.")
    parameters: dict[str, Any] = Field(default={}, description="Fixed parameters; those left out keep the kernel's default.")
    matrix: dict[str, _Values] = Field(default={}, description="Parameters with lists of values: every combination.")
    zips: _Zips = Field(default=[], alias="zip", description="Parameters with lists of one length: taken together.")
    exclude: list[dict[str, Any]] = Field(default=[], description="Combinations to leave out.")
    timeout_s: Seconds | None = Field(
        default=None, gt=0, le=86400, description="When one measurement is given up. Default: from its durations."
    )


def _seed(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    if value is not None and value != "each_run" and not number:
        raise refuse(f"{shown(value)}: allowed are whole numbers from 0 to {2**63 - 1}, and each_run")
    return value


class CampaignFile(Section):
    """A campaign: what to measure, on which nodes of which clusters."""

    name: Name = Field(description="Name of the campaign; run ids and job names begin with it.")
    description: Text = Field(default="", description="What it is for, for people.")
    clusters: Names = Field(min_length=1, description="Names of cluster files.")
    nodes: NodesSection = Field(default=NodesSection(), description="Which nodes may be used.")
    pairs: PairsSection | None = Field(
        default=None,
        description="How nodes become pairs. Required without links; with them, by default, their nodes in a ring.",
    )
    tests: list[TestSection] = Field(min_length=1, description="What each pair runs, in this order.")
    repetitions: int = Field(
        default=3, ge=1, le=10_000, description="How often the tests of a pair are run, all of them each time."
    )
    walltime: Walltime | None = Field(
        default=None, description='Time limit of one job, with its unit: "5min". Default: from the tests.'
    )
    retries: int = Field(default=1, ge=0, le=10, description="How often a job that failed is tried again.")
    seed: Annotated[
        int | Literal["each_run"] | None,
        BeforeValidator(_seed),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "each_run"}]}),
    ] = Field(
        default=None,
        description="Decides pairs and roles. Default: from the name, so equal in every run; each_run: another each run.",
    )
    gates: list[GateSection] = Field(default=[], description="Bounds that results must keep.")
    links: list[LinkSection] = Field(default=[], description="Pairs of clusters whose connection is measured.")
    budget: BudgetSection | None = Field(default=None, description="What the campaign may take of a cluster.")
    pack: PackWord = Field(default="pair", description="Which pairs share an allocation and play a tournament in it.")
    disturb: DisturbWords | None = Field(
        default=None, description="In a tournament: all pairs of a round at once, or one pair at a time. Default: rounds."
    )
    evidence: Literal["summary", "full"] = Field(default="summary", description="How much of what the kernels saw is kept.")


def read_campaign(path: Path) -> Campaign:
    """Read and check a campaign file. Raises UserError with every complaint, one a line."""
    document = read_document(path)
    file = check(CampaignFile, document.data, document)
    _check_values(document)
    tests = _read_tests(document)
    gates = read_gates(document, tests)
    links = read_links(document, tests)
    pack = read_pack(document)
    pairs = PairChoice(Pattern.RING)
    if file is not None and file.pairs is not None and document.clean(("pairs",)):
        pairs = _pairs(file.pairs, path.parent, document)
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
        walltime_s=file.walltime,
        attempt_count_max=file.retries + 1,
        seed=seed_from(file.name) if file.seed is None else None if file.seed == "each_run" else int(file.seed),
        gates=tuple(gates),
        budget=None if file.budget is None else budget(file.budget),
        evidence=Evidence(file.evidence),
        links=tuple(links),
        pairs_of_links=file.pairs is None,
        pack=pack,
    )


def gates_of(text: str, name: str) -> tuple[Gate, ...]:
    """The gates of a campaign's text as a run kept it; files beside it are not needed. Raises UserError, calling it `name`."""
    document = parse_document(text, name)
    gates = read_gates(document, _read_tests(document))
    document.raise_complaints()
    return tuple(gates)


def budget(section: BudgetSection) -> Budget:
    """A budget section as the rest of hpcq sees it."""
    return Budget(
        jobs_at_most=section.jobs_at_most,
        nodes_at_most=section.nodes_at_most,
        node_share_ratio=1.0 if section.node_share_ratio is None else section.node_share_ratio,
        node_seconds_at_most=section.node_seconds_at_most,
        walltime_at_most_s=section.walltime_at_most,
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
    )


def _pairs(section: PairsSection, folder: Path, document: Document) -> PairChoice:
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
    """What `read` makes of a file beside the campaign; None and a complaint where it makes nothing of it."""
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
    """Lines `ROUND CLIENT SERVER`, in the order of their rounds; # begins a comment. Raises ValueError naming the line."""
    found: list[tuple[int, str, str]] = []
    for line_no, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        good = len(words) == 3 and words[0].isdigit() and all(map(nodelist.is_node_name, words[1:])) and words[1] != words[2]
        if not good:
            raise ValueError(f"line {line_no}: {shown(line.strip())}: allowed is ROUND CLIENT SERVER, like: 1 n1 n2")
        found.append((int(words[0]), words[1], words[2]))
    if not found:
        raise ValueError("no pairs in it: allowed are lines ROUND CLIENT SERVER")
    found.sort(key=lambda one: one[0])
    return list(dict.fromkeys((client, server) for _, client, server in found))


def _check_values(document: Document) -> None:
    """What one key's type cannot say: keys that need or forbid each other."""
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
    if data.get("pairs") is None and document.clean(("pairs",)):
        _check_no_pairs(document, data)
    if isinstance(data.get("pairs"), dict) and document.clean(("pairs",)):
        _check_pairs(document, data["pairs"])


def _check_no_pairs(document: Document, data: dict[str, Any]) -> None:
    """Without `pairs`, every cluster must be an end of a link."""
    links, clusters = data.get("links"), data.get("clusters")
    if not links:
        document.complain(("pairs",), "missing: this key is required")
        return
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
            written = "star" if section.star else key
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


def _read_tests(document: Document) -> list[Test]:
    entries = document.data.get("tests")
    tests: list[Test] = []
    first_lines: dict[tuple[Any, ...], int] = {}
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        place: Place = ("tests", position)
        section = check(TestSection, entry, document, place) if document.clean(place) else None
        if section is None:
            _check_kernel_name(document, entry, place)
            continue
        for test in _read_test(document, section, place, len(tests)):
            key = (test.kernel, tuple(test.parameters.items()))
            if key in first_lines:
                message = f"the same {test.kernel} with the same parameters as on line {first_lines[key]}"
                document.complain(place, f"{message}: raise repetitions instead")
            first_lines.setdefault(key, document.line(place))
            tests.append(test)
    if len(tests) > POINT_COUNT_MAX:
        document.complain(("tests",), f"{len(tests)} tests after all sweeps: {POINT_COUNT_MAX} at most")
    return tests


def _check_kernel_name(document: Document, entry: object, place: Place) -> None:
    name = entry.get("kernel") if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in kernels():
        document.complain((*place, "kernel"), *unknown_name("kernel", name, kernels()))


def _read_test(document: Document, section: TestSection, place: Place, before: int) -> list[Test]:
    _check_kernel_name(document, {"kernel": section.kernel}, place)
    if not document.clean(place):
        return []
    kernel = kernels()[section.kernel]
    zip_is_list = isinstance(document.data["tests"][place[1]].get("zip"), list)
    entry = Entry(section.parameters, section.matrix, section.zips, section.exclude, zip_is_list)
    tests = []
    for test_no, point in enumerate(expand(kernel, entry, document, place), before + 1):
        checked = check_parameters(kernel, point)
        for complaint in checked.complaints:
            document.complain((*place, "parameters", complaint.name), complaint.message, complaint.hint)
        expected = expected_s(checked.parameters)
        if section.timeout_s is not None and section.timeout_s <= expected:
            at = (*place, "timeout_s")
            document.complain(at, f"{section.timeout_s:g} s, but the test itself takes {expected:g} s: allowed is more")
        timeout_s = math.ceil(section.timeout_s or max(30.0, 20.0 + 3.0 * expected))
        tests.append(Test(test_no, kernel.name, kernel.program, checked.parameters, timeout_s))
    return tests

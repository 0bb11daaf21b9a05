"""The campaign file: its keys, their checks, and how it becomes a `Campaign`.

read_document -> types of every key (pydantic) -> tests against the kernels' own tables -> gates -> Campaign
                             |                                |                              |
                             +--------------- complaints, all of them, raised together ------+
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hpcq import nodelist
from hpcq.definition.budget import Budget
from hpcq.definition.checking import (
    BudgetSection,
    Features,
    Name,
    Names,
    NodeLists,
    Seconds,
    Section,
    Text,
    Walltime,
    Word,
    check,
    read_hours,
    refuse,
)
from hpcq.definition.described import know_described, know_texts
from hpcq.definition.files.allocations import (
    AllocationWord,
    ConcurrencyWords,
    TransportWord,
    check_sets,
    check_transport,
    read_allocation,
    with_toolchains,
    with_transport,
)
from hpcq.definition.files.gates import GateSection, read_gates
from hpcq.definition.files.links import LinkSection, Places, placed, read_links
from hpcq.definition.files.pairs import PairsSection, check_pairs, read_pairs
from hpcq.definition.files.reservations import ReservationSection, named_reservation
from hpcq.definition.files.sweep import POINT_COUNT_MAX, Entry, expand
from hpcq.definition.foreign.described_tests import described_tests
from hpcq.definition.model import Campaign, Evidence, Gate, NodeChoice, PairChoice, Pattern, Test, WithoutReservation, seed_from
from hpcq.definition.networks import IN_CLUSTER_FILES, check_bind_device
from hpcq.definition.yamlfile import Document, Place, parse_document, read_document, shown
from hpcq.kernels import SIZE_OPTION, complete, expected_s, kernels, sweep_sizes, unknown_name


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
        raise refuse(f"{shown(value)}: allowed are whole numbers from 0 to {2**63 - 1}, and each_run")
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
        description="How nodes become pairs. Required without links. Default with links: their nodes in a ring.",
    )
    tests: list[TestSection] = Field(min_length=1, description="What each pair runs, in this order.")
    repetitions: int = Field(default=3, ge=1, le=10_000, description="How often each pair runs all its tests.")
    walltime: Walltime | None = Field(
        default=None, description='Time limit of one job, with its unit: "5min". Default: from the tests.'
    )
    retries: int = Field(default=1, ge=0, le=10, description="How often hpcq tries a failed job again.")
    seed: Annotated[
        int | Literal["each_run"] | None,
        BeforeValidator(_seed),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"const": "each_run"}]}),
    ] = Field(
        default=None,
        description="Decides pairs and roles. Default: from the name, the same in every run; each_run: a new one per run.",
    )
    gates: list[GateSection] = Field(default=[], description="Bounds that results must keep.")
    links: list[LinkSection] = Field(default=[], description="Pairs of clusters whose connection to measure.")
    budget: BudgetSection | None = Field(default=None, description="What the campaign may take of a cluster.")
    toolchains: Names = Field(
        default=[], description="Toolchains of the cluster files with which each MPI test runs, one after the other."
    )
    transport: TransportWord = Field(
        default=None,
        description="Over what the MPI tests send that give no `transport` of their own: `hpcq kernels mpi_pingpong`.",
    )
    network: Name | None = Field(
        default=None, description="Which of the cluster files' networks to measure, by name. Default: their interface."
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
    document.refuse_other_kind("tests", "scheduler", "this is a cluster file: allowed is a campaign", hint)
    file = check(CampaignFile, document.data, document)
    _check_values(document)
    tests = _read_tests(document, know_described(_kernel_names(document), path))
    check_bind_device(document)
    tests = with_toolchains(document, tests)
    gates = read_gates(document, tests)
    links = read_links(document, tests)
    allocation = read_allocation(document)
    check_sets(document, allocation, tests)
    check_transport(document, tests)
    pairs = PairChoice(Pattern.RING)
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
        walltime_s=file.walltime,
        attempt_count_max=file.retries + 1,
        seed=seed_from(file.name) if file.seed is None else None if file.seed == "each_run" else int(file.seed),
        gates=tuple(gates),
        budget=None if file.budget is None else budget(file.budget),
        evidence=Evidence(file.evidence),
        links=tuple(links),
        pairs_of_links=file.pairs is None,
        allocation=allocation,
        toolchains=tuple(file.toolchains),
        network=file.network,
    )


def gates_of(text: str, name: str, descriptions: Mapping[str, str]) -> tuple[Gate, ...]:
    """The gates of a campaign's text as a run stored it. descriptions: the stored texts of described kernels, by name.

    Needs no files beside it. Raises UserError, which calls the text `name`.
    """
    document = parse_document(text, name)
    names = _kernel_names(document)
    know_texts({one: descriptions[one] for one in names if one in descriptions})
    valid = [*know_described(names - descriptions.keys()), *descriptions]
    gates = read_gates(document, with_toolchains(document, _read_tests(document, valid)))
    document.raise_complaints()
    return tuple(gates)


def budget(section: BudgetSection) -> Budget:
    """Convert a budget section for the rest of hpcq."""
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


def _read_tests(document: Document, valid: Sequence[str]) -> list[Test]:
    entries = document.data.get("tests")
    tests: list[Test] = []
    first_lines: dict[tuple[Any, ...], int] = {}
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        place: Place = ("tests", position)
        section = check(TestSection, entry, document, place) if document.clean(place) else None
        if section is None:
            _check_kernel_name(document, entry, place, valid)
            continue
        read = _read_test(document, section, place, len(tests), valid)
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


def _read_test(document: Document, section: TestSection, place: Place, before: int, valid: Sequence[str]) -> list[Test]:
    _check_kernel_name(document, {"kernel": section.kernel}, place, valid)
    if not document.clean(place):
        return []
    kernel = kernels()[section.kernel]
    zip_is_list = isinstance(document.data["tests"][place[1]].get("zip"), list)
    entry = Entry(section.parameters, section.matrix, section.zips, section.exclude, zip_is_list)
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
            document.complain(at, f"{section.timeout_s:g} s, but the test itself takes {expected:g} s: allowed is more")
        timeout_s = math.ceil(section.timeout_s or max(30.0, 20.0 + 3.0 * expected))
        try:
            points = [{**parameters, SIZE_OPTION: size} for size in sweep_sizes(kernel, parameters)] or [parameters]
        except ValueError as error:
            document.complain(place, str(error))
            continue
        tests += [
            Test(first_no + no, kernel.name, kernel.program, one, timeout_s, measured_by=first_no if no else 0)
            for no, one in enumerate(points)
        ]
    return tests

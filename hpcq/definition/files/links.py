"""`links` of a campaign file: pairs of clusters whose nodes measure the network between them; and where a test runs (`on`).

links:
  - {from: alpha, to: beta}                  two pairs, both directions, either side may listen
  - {from: alpha, to: gamma, listen: to, pairs: 4}
tests:
  - {kernel: tcp_stream, on: [links]}        not between the nodes within a cluster
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hpcq.definition.checking import Document, Name, NodeName, Place, Seconds, Section, check, refuse, shown
from hpcq.definition.model import (
    LINKS,
    NODES,
    PAIRS,
    PLACES,
    Directions,
    Link,
    Listen,
    Test,
    of_nodes,
    possible_places,
    runs_on,
)

#: Default time that a running side waits for the other one.
PATIENCE_S = 120.0


def _pair(value: object) -> object:
    if not isinstance(value, list) or len(value) != 2:
        raise refuse(f"{shown(value)}: must be [node of from, node of to]")
    return value


def _places(value: object) -> object:
    words = [value] if isinstance(value, str) else value
    allowed = f"must be one of {', '.join(PLACES)}"
    if not isinstance(words, list) or not words:
        raise refuse(f"{'an empty list' if words == [] else shown(value)}: {allowed}, or no key `on`: wherever the kernel can")
    for place, word in enumerate(words):
        if word not in PLACES:
            raise refuse(f"{shown(word)}: {allowed}")
        if word in words[:place]:
            raise refuse(f"{shown(word)} stands twice: each of {', '.join(PLACES)} may stand once")
    return words


Places = Annotated[
    list[Literal["pairs", "links", "nodes"]],
    BeforeValidator(_places),
    WithJsonSchema({"anyOf": [{"enum": [*PLACES]}, {"type": "array", "items": {"enum": [*PLACES]}}]}),
]


class LinkSection(Section):
    """Two clusters and how the network between them is measured."""

    from_cluster: Name = Field(alias="from", description="One of the campaign's clusters; its nodes are the clients.")
    to_cluster: Name = Field(alias="to", description="Another of them; its nodes listen, unless `listen` says otherwise.")
    listen: Literal["from", "to", "either"] = Field(
        default="either",
        description="Which side may be connected to. either: both listen, both are tried; if both are open, `to` serves.",
    )
    pairs: int | None = Field(
        default=None, ge=1, le=10_000, description="How many node pairs; the seed chooses them. Default: 2."
    )
    node_pairs: list[Annotated[list[NodeName], BeforeValidator(_pair)]] = Field(
        default=[], alias="list", description="These pairs instead: [node of from, node of to]."
    )
    directions: Literal["one", "both"] = Field(
        default="both", description="both: tests with a `direction` run once in each direction, whichever side listens."
    )
    compare: bool = Field(
        default=True,
        description="Measure its nodes within their clusters too: a ring, or the campaign's `pairs` of these nodes.",
    )
    at_once: int = Field(
        default=1, ge=1, le=1000, description="Number of pairs that measure at the same time and share the link."
    )
    peer_wait_s: Seconds = Field(
        default=PATIENCE_S, ge=1, le=86400, description="How long a side that runs waits for the other one."
    )


def read_links(document: Document, tests: list[Test]) -> list[Link]:
    """The links of a campaign, checked against its clusters and tests. Complaints go to the document."""
    entries = document.data.get("links")
    links: list[Link] = []
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        place: Place = ("links", position)
        section = check(LinkSection, entry, document, place) if document.clean(place) else None
        if section is None:
            continue
        _check_link(document, section, place, links)
        links.append(_link(section))
    if links:
        _check_places(document, links, tests)
    return links


def placed(document: Document, on: Sequence[str] | None, tests: Sequence[Test], place: Place) -> list[Test]:
    """The tests of one entry with where they run: as its key `on` says, or empty. Complaints go to the document."""
    if on is None or not tests:
        return list(tests)
    linked = bool(document.data.get("links"))
    allowed = [word for word in possible_places(tests[0]) if linked or word != LINKS]
    for word in on:
        if word not in allowed:
            why, hint = _impossible(word, tests[0], linked=linked)
            document.complain((*place, "on"), f"{shown(word)}, but {why}: must be {' or '.join(allowed)}", hint)
    return [replace(test, on=tuple(on)) for test in tests]


def _impossible(word: str, test: Test, *, linked: bool) -> tuple[str, str]:
    """Why a test cannot run there, and what to do."""
    kernel = test.kernel
    if word == NODES:
        ends = f"{kernel} runs between two nodes"
        return ends, "kernels with the option node_count run on a set of nodes, described kernels of one node on each alone"
    if of_nodes(test) and test.launch == "node":
        return f"{kernel} runs on one node alone", "leave `on` out: it runs on each node"
    if of_nodes(test) and word == PAIRS:
        return f"all nodes of a set run {kernel} together", "node_count: 2 is a set of two nodes"
    if not linked:
        return "the campaign has no links", "links: [{from: A, to: B}] names two of its clusters"
    return f"one MPI job does not span two batch systems, and {kernel} is one", "leave `on` out: it runs within the clusters"


def _check_link(document: Document, section: LinkSection, place: Place, before: list[Link]) -> None:
    clusters = document.data.get("clusters")
    known = [clusters] if isinstance(clusters, str) else clusters if isinstance(clusters, list) else []
    for key, name in (("from", section.from_cluster), ("to", section.to_cluster)):
        if name not in known:
            found = ", ".join(map(str, known)) or "none"
            document.complain((*place, key), f"{shown(name)} is not one of the campaign's clusters: {found}")
    if section.from_cluster == section.to_cluster:
        document.complain((*place, "to"), f"{shown(section.to_cluster)} is on both sides: a link has two clusters")
    ends = {section.from_cluster, section.to_cluster}
    if any({link.from_cluster, link.to_cluster} == ends for link in before):
        document.complain(place, f"{' and '.join(sorted(ends))} stand in a link already: raise pairs instead")
    if section.pairs is not None and section.node_pairs:
        document.complain((*place, "pairs"), "list is given too: give one of them", at_key=True)
    seen: set[tuple[str, str]] = set()
    for number, (one, other) in enumerate(section.node_pairs):
        if (one, other) in seen:
            document.complain((*place, "list", number), f"[{one}, {other}] stands twice: raise repetitions instead")
        seen.add((one, other))


def _check_places(document: Document, links: Sequence[Link], tests: Sequence[Test]) -> None:
    """Complain about links without a test, pairs without a test, and tests that the campaign gives no pairs."""
    over = [test for test in tests if runs_on(test, LINKS)]
    within = [test for test in tests if runs_on(test, PAIRS) or runs_on(test, NODES)]
    only = [test for test in tests if test.within_cluster]
    what = "one-node" if any(test.launch == "node" for test in only) else "MPI"
    compared = any(one.compare for one in links)
    if tests and len(only) == len(tests):
        message = f"all tests are {what}, which cannot run over a link: needed is a test of a socket kernel"
        document.complain(("links",), message, "one MPI job does not span two batch systems")
    elif tests and not over:
        message = "no test runs over them: needed is a test of a socket kernel whose `on` is left out or names links"
        document.complain(("links",), message, "on: [pairs, links] is what a socket kernel does by itself")
    elif tests and not within and document.data.get("pairs"):
        document.complain(("pairs",), "all tests run over links only: must be left out, or have a test without on: [links]")
    elif document.data.get("pairs") or compared:
        return
    elif only:
        message = f"compare: false and no `pairs`: {what} tests run within the clusters, where this campaign has no pairs"
        document.complain(("links",), message, "give `pairs`, or leave compare out")
    elif any(PAIRS in test.on for test in tests):
        message = "compare: false and no `pairs`: a test says `on: pairs`, but this campaign has none within the clusters"
        document.complain(("links",), message, "give `pairs`, or leave compare out")


def _link(section: LinkSection) -> Link:
    return Link(
        from_cluster=section.from_cluster,
        to_cluster=section.to_cluster,
        listen=Listen(section.listen),
        pair_count=len(section.node_pairs) or section.pairs or 2,
        node_pairs=tuple((one, other) for one, other in section.node_pairs),
        directions=Directions(section.directions),
        compare=section.compare,
        at_once=section.at_once,
        peer_wait_s=section.peer_wait_s,
    )

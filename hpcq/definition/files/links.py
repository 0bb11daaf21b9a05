"""`links` of a campaign file: pairs of clusters whose nodes measure the network between them.

links:
  - {from: alpha, to: beta}                  two pairs, both directions, either side may listen
  - {from: alpha, to: gamma, listen: to, pairs: 4}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from hpcq.definition.files.checking import Name, NodeName, Seconds, Section, check, refuse
from hpcq.definition.files.yamlfile import Document, Place, shown
from hpcq.definition.model import Directions, Link, Listen, Test

#: Default time that a running side waits for the other one.
PATIENCE_S = 120.0


def _pair(value: object) -> object:
    if not isinstance(value, list) or len(value) != 2:
        raise refuse(f"{shown(value)}: allowed is [node of from, node of to]")
    return value


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
    patience_s: Seconds = Field(
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
        _check_mpi(document, links, tests)
    return links


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


def _check_mpi(document: Document, links: Sequence[Link], tests: Sequence[Test]) -> None:
    """MPI tests run within the clusters of a link: one MPI job does not span two batch systems. So do those of one node."""
    within = [test for test in tests if test.within_cluster]
    what = "one-node" if any(test.launch == "node" for test in within) else "MPI"
    if within and len(within) == len(tests):
        message = f"all tests are {what}, which cannot run over a link: needed is a test of a socket kernel"
        document.complain(("links",), message, "one MPI job does not span two batch systems")
    elif within and not document.data.get("pairs") and not any(one.compare for one in links):
        message = f"compare: false and no `pairs`: {what} tests run within the clusters, where this campaign has no pairs"
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
        patience_s=section.patience_s,
    )

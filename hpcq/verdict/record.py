"""One verdict on one thing: a node, a link, a group of nodes, a whole cluster, or a collective on a set of nodes. Pure.

An acceptance makes these records, the ledger stores them, and people read them later. It is the same record each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hpcq.verdict.words import Verdict


class Thing(StrEnum):
    """What a verdict can be about. The values are the words of the database."""

    NODE = "node"
    LINK = "link"
    GROUP = "group"
    CLUSTER = "cluster"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """A verdict on one thing, with its reason in words.

    name: the node, both ends of a link (`a - b`), the leaf switch, the cluster, or the test and its set. nodes: the nodes
    that share it. ratio: its speed as a share of what is expected. measured_utc: start of the first measurement that the
    verdict rests on. cluster, decided_utc, run: known once the ledger has it. waits: judged too recently to measure again.
    """

    kind: Thing
    name: str
    verdict: Verdict
    reason: str
    nodes: tuple[str, ...] = ()
    ratio: float | None = None
    measured_utc: str | None = None
    cluster: str = ""
    decided_utc: str = ""
    run: str | None = None
    waits: bool = False

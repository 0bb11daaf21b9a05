"""What a scheduler tells an acceptance of its nodes' upkeep, and the orders that a person or `--apply` gives afterwards.

A scheduler that can do some of it returns an `Administration` from `Scheduler.administration()`; one that cannot returns None,
and acceptance then does without: the ledger and the results are all it has.

The adapter writes every order as one line for the cluster's shell, so that what is printed is what `--apply` runs.
`--apply` looks again right before it gives an order, and asks for the line anew:

    drain      takes nodes out of service; a node that somebody has drained meanwhile keeps that drain and its reason
    give back  takes nodes out of a reservation by subtraction from what it holds now, never by writing an old list back
    reserve    keeps users off nodes while the test may have them; where its own reservation stands, it adds to that one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

#: The reservation that releases nodes to the test, and how long it stands unless the test ends it.
OWN_RESERVATION = "hpcq-accept"
OWN_MINUTES = 120
#: How the reason of a drain begins that is hpcq's own; any other drain belongs to somebody else.
OWN_REASON = "hpcq accept:"


@dataclass(frozen=True, slots=True)
class NodeUpkeep:
    """One node. started_utc: when its scheduler daemon or the node itself last came up, whichever is later."""

    node: str
    started_utc: str | None
    drained: bool
    down: bool
    reason: str
    partitions: tuple[str, ...]

    @property
    def own_drain(self) -> bool:
        """Whether it is drained, and hpcq did it."""
        return self.drained and self.reason.startswith(OWN_REASON)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation that the scheduler has now. mine: this user may run in it. flex: its jobs may have nodes outside, too."""

    name: str
    started_utc: str
    ended_utc: str
    nodes: tuple[str, ...]
    active: bool
    maintenance: bool
    mine: bool
    flex: bool = False

    @property
    def own(self) -> bool:
        """Whether an order of hpcq made it for a test."""
        return self.name == OWN_RESERVATION


@dataclass(frozen=True, slots=True)
class Upkeep:
    """All of it at one moment; `leaves` is node -> leaf switch, empty where the site states no topology."""

    user: str = ""
    nodes: dict[str, NodeUpkeep] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    leaves: dict[str, str] = field(default_factory=dict)


class Administration(ABC):
    """What an acceptance may ask of a scheduler. A scheduler that lacks one of the orders returns None for its line."""

    @abstractmethod
    def look(self) -> Upkeep:
        """Everything at this moment, in one command; an answer that cannot be read tells nothing, which is no error."""

    @abstractmethod
    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        """Take nodes out of service, with the reason that others will read."""

    @abstractmethod
    def resume(self, nodes: Sequence[str]) -> str | None:
        """End the drain of nodes: users get them, but for a reservation that keeps them."""

    @abstractmethod
    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:
        """Release drained nodes to the test alone. standing: the reservation of an earlier order, which takes them in."""

    @abstractmethod
    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        """Take these nodes out of a reservation, so that users get them; one that has no others ends."""

    @abstractmethod
    def admit(self, reservation: str, user: str) -> str | None:
        """Let this user run in a reservation."""

    @abstractmethod
    def open_outward(self, reservation: str) -> str | None:
        """Let jobs of a reservation have nodes outside of it, too."""

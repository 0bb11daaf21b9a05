"""What a scheduler tells an acceptance about the upkeep of nodes, and the orders that a person or `--apply` gives then.

A scheduler that supports some of this returns an `Administration` from `Scheduler.administration()`. Otherwise it
returns None, and the acceptance has only the ledger and the results.

The adapter writes every order as one line for the cluster's shell, so `--apply` runs exactly the printed line.
`--apply` queries the scheduler right before each order, and then asks the adapter for the line again:

    drain      takes nodes out of service; a node that another person drained meanwhile keeps that drain and its reason
    give back  removes nodes from the reservation's present list, never writes an old list back
    reserve    keeps users off nodes that the test may use; extends its own reservation if there is one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The reservation that releases nodes to the test, and how long it lasts unless the test ends it.
OWN_RESERVATION = "hpcq-accept"
OWN_MINUTES = 120
#: The prefix of the reason of hpcq's own drains. Any other drain belongs to a person or another program.
OWN_REASON = "hpcq accept:"
#: The reason of a node that its scheduler does not hear, for each scheduler has other words of its own for it.
SILENT = "does not answer"


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
        """Whether it is drained by hpcq."""
        return self.drained and self.reason.startswith(OWN_REASON)


@dataclass(frozen=True, slots=True)
class Reservation:
    """One present reservation. mine: this user may run in it. flex: its jobs may also use nodes outside."""

    name: str
    started_utc: str
    ended_utc: str
    nodes: tuple[str, ...]
    active: bool
    maintenance: bool
    mine: bool
    flex: bool = False
    #: What the scheduler itself calls it, where a person gave it another name.
    native_id: str = ""

    def is_called(self, name: str) -> bool:
        """Whether a person may mean it by this name."""
        return name != "" and name in {self.name, self.native_id}

    @property
    def own(self) -> bool:
        """Whether hpcq made it for a test."""
        return self.name == OWN_RESERVATION


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The upkeep of all nodes at one moment.

    `leaves` is node -> leaf switch, empty if the site reports no topology. `fabrics`: as in hpcq.topology.
    """

    user: str = ""
    nodes: dict[str, NodeUpkeep] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    leaves: Mapping[str, str] = field(default_factory=dict)
    fabrics: Mapping[str, str] = field(default_factory=dict)


class Administration(ABC):
    """What an acceptance may ask of a scheduler. If a scheduler lacks an order, the method returns None."""

    @abstractmethod
    def look(self) -> Upkeep:
        """Query everything in one command. An unreadable answer gives an empty Upkeep and is not an error."""

    @abstractmethod
    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        """Take nodes out of service, with a reason that other people will read."""

    @abstractmethod
    def resume(self, nodes: Sequence[str]) -> str | None:
        """End the drain of nodes. Users get them, unless a reservation holds them."""

    @abstractmethod
    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:
        """Release drained nodes to the test only. standing: the reservation of an earlier order, to be extended."""

    @abstractmethod
    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        """Remove these nodes from a reservation, so that users get them. A reservation without other nodes ends."""

    @abstractmethod
    def admit(self, reservation: str, user: str) -> str | None:
        """Let this user run in a reservation."""

    @abstractmethod
    def open_outward(self, reservation: str) -> str | None:
        """Let jobs of a reservation also use nodes outside it."""

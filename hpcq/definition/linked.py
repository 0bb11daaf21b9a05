"""A link as a campaign describes it: two clusters, and how to measure the network between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Directions(StrEnum):
    """Whether a pair is measured from one end only, or once from each end."""

    ONE = "one"
    BOTH = "both"


class Listen(StrEnum):
    """Which side of a link accepts connections."""

    FROM = "from"
    TO = "to"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Link:
    """Two clusters of a campaign and how to measure the network between them.

    If node_pairs is empty, the seed chooses pairs.
    """

    from_cluster: str
    to_cluster: str
    listen: Listen
    pair_count: int
    node_pairs: tuple[tuple[str, str], ...]
    directions: Directions
    compare: bool
    at_once: int
    patience_s: float

    @property
    def name(self) -> str:
        """The name of the link's part of a run. No cluster's name can contain the sign."""
        return f"{self.from_cluster}+{self.to_cluster}"

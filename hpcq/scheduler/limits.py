"""What a site allows one job of this user: its size, its time, and whether the site accepts it at all. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit and who sets it, in the site's own words."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of one job in its partition or queue; None means no limit."""

    partition: str = ""
    #: UP, DOWN, DRAIN or INACTIVE: the present state, which may change.
    state: str = "UP"
    nodes_at_most: Bound | None = None
    nodes_at_least: Bound | None = None
    walltime_at_most_s: Bound | None = None
    #: Why the site would refuse jobs of this user, each reason with the site's words.
    refusals: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the limits as text for a person."""
        shown = [
            (self.nodes_at_least, "at least {} nodes per job"),
            (self.nodes_at_most, "at most {} nodes per job"),
            (self.walltime_at_most_s, "at most {} s"),
        ]
        return [f"{text.format(bound.value)} ({bound.source})" for bound, text in shown if bound is not None]


NO_LIMITS = JobLimits()

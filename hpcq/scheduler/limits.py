"""What a site lets one job of this user be: its size, its time, and whether it is let in at all. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit, and who sets it, in the site's own words."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What one job may be where it would run; None is no limit."""

    partition: str = ""
    #: UP, DOWN, DRAIN or INACTIVE: true now, and may pass.
    state: str = "UP"
    nodes_at_most: Bound | None = None
    nodes_at_least: Bound | None = None
    walltime_at_most_s: Bound | None = None
    #: Why jobs of this user would not be taken, each with what the site says.
    refusals: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Its limits for a person."""
        shown = [
            (self.nodes_at_least, "at least {} nodes per job"),
            (self.nodes_at_most, "at most {} nodes per job"),
            (self.walltime_at_most_s, "at most {} s"),
        ]
        return [f"{text.format(bound.value)} ({bound.source})" for bound, text in shown if bound is not None]


NO_LIMITS = JobLimits()

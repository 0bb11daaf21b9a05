"""What a campaign may use of a cluster: jobs, nodes, node-seconds, hours of the day."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from math import floor
from typing import TypeVar

#: Jobs queued and running at once if no budget says otherwise: enough to keep a scheduler busy.
JOBS_AT_MOST = 32


_Limit = TypeVar("_Limit", int | None, float | None)


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day in this machine's local time, as minutes since midnight; the end may be on the next day."""

    first_min: int
    last_min: int

    def open_at(self, moment: dt.time) -> bool:
        """Whether jobs may start then."""
        now_min = 60 * moment.hour + moment.minute
        if self.first_min <= self.last_min:
            return self.first_min <= now_min < self.last_min
        return now_min >= self.first_min or now_min < self.last_min

    def seconds_left(self, moment: dt.time) -> int:
        """How long jobs may still start at that time of day; 0 if they may not."""
        if not self.open_at(moment):
            return 0
        now_s = 3600 * moment.hour + 60 * moment.minute + moment.second
        return (60 * self.last_min - now_s) % 86400 or 86400

    def __str__(self) -> str:
        return "-".join(f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in (self.first_min, self.last_min))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a campaign may use of a cluster at any time; None means no limit."""

    max_jobs: int | None = None
    max_nodes: int | None = None
    max_node_ratio: float = 1.0
    max_node_seconds: float | None = None
    max_walltime_s: int | None = None
    max_confirmation_jobs: int | None = None
    hours: tuple[Hours, ...] = ()
    gives_way: bool = False
    #: Nodes that other runs of this user have or ask for; they count in the share.
    elsewhere_count: int = 0

    def tightest(self, other: Budget) -> Budget:
        """Combine two budgets: the tighter limit wins."""
        return Budget(
            max_jobs=_smaller(self.max_jobs, other.max_jobs),
            max_nodes=_smaller(self.max_nodes, other.max_nodes),
            max_node_ratio=min(self.max_node_ratio, other.max_node_ratio),
            max_node_seconds=_smaller(self.max_node_seconds, other.max_node_seconds),
            max_walltime_s=_smaller(self.max_walltime_s, other.max_walltime_s),
            max_confirmation_jobs=_smaller(self.max_confirmation_jobs, other.max_confirmation_jobs),
            hours=tuple(dict.fromkeys((*self.hours, *other.hours))),
            gives_way=self.gives_way or other.gives_way,
            elsewhere_count=self.elsewhere_count + other.elsewhere_count,
        )

    def node_limit(self, node_count: int) -> int:
        """How many of `node_count` nodes, idle or ours, may be in use or requested at once."""
        ours_or_idle = node_count + self.elsewhere_count
        share = max(0, floor(self.max_node_ratio * ours_or_idle + 1e-9) - self.elsewhere_count)
        return share if self.max_nodes is None else min(share, self.max_nodes)


def _smaller(one: _Limit, other: _Limit) -> _Limit:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)

"""A reservation of the run's own, where the campaign asks for one: made of idle nodes, kept while it is needed, removed.

    hold     made of the idle nodes that the next jobs want, as many as the budget allows
    keep     prolonged as long as the driver lives; without one it ends by itself, a walltime and a quarter of an hour later
    drop     removed when the run has ended, when its nodes have nothing more to do, and while the campaign yields

Its name is made from the run's, so a later driver finds what an earlier one left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

from hpcq.clock import Clock
from hpcq.definition.model import Cluster, WithoutReservation
from hpcq.errors import UserError
from hpcq.scheduler.base import Scheduler

#: What a reservation lasts beyond the time limit of a job that starts now; half of it gone, it is prolonged.
_MARGIN_S = 900.0
#: Jobs that are still ending keep a reservation: how often and how long to wait for them.
_DROPS = 20
_DROP_S = 1.5


class Held(StrEnum):
    """What came of the wish for a reservation."""

    YES = "yes"
    BUSY = "busy"
    REFUSED = "refused"


class OwnReservation:
    """The reservation of one cluster's part of a run."""

    def __init__(
        self, scheduler: Scheduler, name: str, walltime_s: float, otherwise: WithoutReservation, *,
        say: Callable[[str], None], clock: Clock,
    ) -> None:  # fmt: skip
        self.name = name
        self.held = False
        self._nodes: tuple[str, ...] = ()
        #: The site does not let this user, and the campaign goes on without.
        self.given_up = False
        self.refusal = ""
        self._scheduler = scheduler
        self._minutes = math.ceil((walltime_s + _MARGIN_S) / 60)
        self._otherwise = otherwise
        self._say = say
        self._clock = clock
        self._prolong_at = 0.0

    @property
    def wanted(self) -> bool:
        """Whether there must be one before a job is submitted."""
        return not self.held and not self.given_up

    @property
    def nodes(self) -> tuple[str, ...]:
        """What it keeps from others now."""
        return self._nodes if self.held else ()

    def adopt(self, nodes: Sequence[str]) -> None:
        """Take over what an earlier driver of the run left; nodes: those of which it may be."""
        self.held = self._scheduler.has_reservation(self.name)
        self._nodes = tuple(nodes)

    def hold(self, nodes: Sequence[str]) -> Held:
        """Make it of these nodes."""
        words = self._scheduler.reserve(self.name, nodes, self._minutes)
        if words is None:
            self.held = True
            self._nodes = tuple(nodes)
            self._prolong_at = self._clock.now_s() + _MARGIN_S / 2
            self._say(f"reservation {self.name} of {len(nodes)} nodes")
            return Held.YES
        if any(sign in words for sign in self._scheduler.busy_words()):
            return Held.BUSY
        self.refusal = f"reservation refused: {words}"
        self._say(self.refusal)
        self.given_up = self._otherwise is WithoutReservation.GO_ON
        return Held.REFUSED

    def keep(self) -> None:
        """Prolong it when that is due; one that somebody removed is made again."""
        if self.held and self._clock.now_s() >= self._prolong_at:
            self.held = self._scheduler.prolong(self.name, self._minutes)
            self._prolong_at = self._clock.now_s() + _MARGIN_S / 2

    def drop(self, *, patiently: bool = False) -> None:
        """Remove it; while a job of ours is still ending that is refused, and asked for again."""
        for _ in range(_DROPS if patiently else 1):
            if not self.held:
                return
            self.held = not self._scheduler.release(self.name)
            if self.held and patiently:
                self._clock.sleep(_DROP_S)
        if self.held and patiently:
            self._say(f"reservation {self.name} could not be removed; it ends by itself in {self._minutes} min at most")


def refuse_where_forbidden(cluster: Cluster, scheduler: Scheduler) -> None:
    """Raise UserError where the campaign insists on a reservation that this user may not make; nothing has happened yet."""
    if cluster.make_reservation is not WithoutReservation.STOP:
        return
    words = scheduler.may_not_reserve()
    if words is not None:
        raise UserError(
            f"{cluster.name}: nodes.reservation.make: {words}: allowed is a reservation that exists, or `otherwise: without`",
            f"ask the administrators of {cluster.name} for a reservation and name it: `reservation: NAME`",
        )


def reservation_name(run_id: str, cluster_name: str) -> str:
    """What a run's reservation is called on a cluster."""
    return f"hpcq-{run_id}-{cluster_name}"

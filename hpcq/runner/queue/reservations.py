"""The run's own reservation, if the campaign asks for one: made of idle nodes, kept while needed, then removed.

    hold     make it of the idle nodes that the next jobs want, as many as the budget allows
    keep     prolong it while the driver lives; without a driver it ends by itself, a walltime and 15 minutes later
    drop     remove it when the run ends, when its nodes have no more work, and while the campaign yields

Its name contains the run's, so a later driver finds what an earlier one left.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from enum import StrEnum

from hpcq.clock import Clock
from hpcq.definition.model import Cluster, WithoutReservation
from hpcq.errors import SchedulerError, UserError
from hpcq.scheduler.base import Scheduler

#: How long a reservation lasts beyond the time limit of a job that starts now. At half of it hpcq prolongs it.
_MARGIN_S = 900.0
_AGAIN_S = 60.0
#: Jobs that are still ending keep a reservation: how often and how long hpcq waits for them.
_DROPS = 20
_DROP_S = 1.5


class ReservationState(StrEnum):
    """The outcome of asking for a reservation."""

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
        #: The site does not allow it for this user, and the campaign continues without.
        self.given_up = False
        self.refusal = ""
        self._scheduler = scheduler
        self._minutes = math.ceil((walltime_s + _MARGIN_S) / 60)
        self._otherwise = otherwise
        self._say = say
        self._clock = clock
        self._prolong_at = 0.0
        #: Whether the last try to prolong it failed, which is said once.
        self._unprolonged = False

    @property
    def wanted(self) -> bool:
        """Whether a reservation must exist before hpcq submits a job."""
        return not self.held and not self.given_up

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that it holds now."""
        return self._nodes if self.held else ()

    def adopt(self, nodes: Sequence[str]) -> None:
        """Take over what an earlier driver of the run left. nodes: those that it may consist of."""
        self.held = self._may_be_there()
        self._nodes = tuple(nodes)

    def hold(self, nodes: Sequence[str]) -> ReservationState:
        """Make it of these nodes."""
        words = self._scheduler.reserve(self.name, nodes, self._minutes)
        if words is None:
            self.held = True
            self._nodes = tuple(nodes)
            self._prolong_at = self._clock.now_s() + _MARGIN_S / 2
            self._say(f"reservation {self.name} of {len(nodes)} nodes")
            return ReservationState.YES
        if any(sign in words for sign in self._scheduler.busy_words()):
            return ReservationState.BUSY
        self.refusal = f"reservation refused: {words}"
        self._say(self.refusal)
        self.given_up = self._otherwise is WithoutReservation.GO_ON
        return ReservationState.REFUSED

    def keep(self) -> None:
        """Prolong it when that is due. If it was removed, make it again."""
        if self.held and self._clock.now_s() >= self._prolong_at:
            prolonged = self._scheduler.prolong(self.name, self._minutes)
            self.held = prolonged or self._may_be_there()
            if self.held and not prolonged and not self._unprolonged:
                self._say(f"reservation {self.name} could not be prolonged; hpcq tries again each minute")
            self._unprolonged = self.held and not prolonged
            self._prolong_at = self._clock.now_s() + (_AGAIN_S if self._unprolonged else _MARGIN_S / 2)

    def _may_be_there(self) -> bool:
        try:
            return self._scheduler.has_reservation(self.name)
        except SchedulerError:  # a controller that is away is no proof that the reservation has gone
            return True

    def drop(self, *, patiently: bool = False) -> None:
        """Remove it. The scheduler refuses that while a job of ours is still ending, so try again."""
        for _ in range(_DROPS if patiently else 1):
            if not self.held:
                return
            with contextlib.suppress(SchedulerError):  # no answer: it may be there still
                self.held = not self._scheduler.release(self.name)
            if self.held and patiently:
                self._clock.sleep(_DROP_S)
        if self.held and patiently:
            self._say(f"reservation {self.name} could not be removed; it ends by itself in {self._minutes} min at most")


def refuse_where_forbidden(cluster: Cluster, scheduler: Scheduler) -> None:
    """Raise UserError if the campaign insists on a reservation that this user may not make.

    Nothing has happened yet then.
    """
    if cluster.make_reservation is not WithoutReservation.STOP:
        return
    words = scheduler.may_not_reserve()
    if words is not None:
        raise UserError(
            f"{cluster.name}: nodes.reservation.make: {words}: must be a reservation that exists, or `otherwise: without`",
            f"ask the administrators of {cluster.name} for a reservation and name it: `reservation: NAME`",
        )

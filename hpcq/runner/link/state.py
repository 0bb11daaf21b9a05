"""Fold the journal of a link into its tries, each with one attempt per side, and into what hpcq may try again.

    estimate -> attempt(side) -> submitted -> state … -> met -> ways -> ended(side)          for both sides
                                 withdraw(side): it leaves the queue, or ends after the current test; not counted
                                   stop(side): the driver ends it, with the reason

A try is over when none of its attempts lives. The side that caused the end decides whether there is another try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcq.planning.job_ids import pair_index_of
from hpcq.planning.links import LinkPlan, split
from hpcq.run_folder.journal_state import Attempt
from hpcq.runner.queue.run_state import RunState

#: The two ends of a link, in the order of its name.
SIDES = ("from", "to")


def other(side: str) -> str:
    """Return the opposite end."""
    return SIDES[1 - SIDES.index(side)]


@dataclass(slots=True)
class Try:
    """One measurement of a pair over the link, with its attempts by side."""

    index: int
    attempt_no: int
    #: The side that the driver told to measure if it can connect.
    first: str
    sides: dict[str, Attempt] = field(default_factory=dict)
    met: bool = False
    ways_known: bool = False

    @property
    def live(self) -> bool:
        return any(attempt.live for attempt in self.sides.values())


class LinkState(RunState):
    """The state of one link's part of a run."""

    def __init__(self, link_plan: LinkPlan) -> None:
        super().__init__(link_plan.plan)
        self.link = link_plan.link
        #: Node-seconds of ended attempts, by side.
        self.node_seconds = dict.fromkeys(SIDES, 0.0)
        #: The last try of each pair.
        self.tries: dict[int, Try] = {}
        #: The side that measured as the client, by pair, once known.
        self.clients: dict[int, str] = {}

    @classmethod
    def replay(cls, link_plan: LinkPlan, events: Iterable[Mapping[str, Any]]) -> LinkState:
        """Return the state after all these events."""
        return cls(link_plan).replayed(events)

    def next_attempt_no(self, index: int) -> int:
        """Return the number of the next try."""
        return self.tries[index].attempt_no + 1 if index in self.tries else 1

    def client_side(self, index: int) -> str:
        """Return the side that is the client first: the one that was before, else the plan's."""
        if index in self.clients:
            return self.clients[index]
        return "from" if split(self.plan.pairs[index][0])[0] == self.link.from_cluster else "to"

    def node(self, index: int, side: str) -> str:
        """Return the node of a pair on one side, by its name in its own cluster."""
        wanted = self.cluster_of(side)
        return next(node for cluster, node in map(split, self.plan.pairs[index]) if cluster == wanted)

    def cluster_of(self, side: str) -> str:
        """Return the cluster on one side."""
        return self.link.from_cluster if side == "from" else self.link.to_cluster

    @property
    def open_tries(self) -> list[Try]:
        """Return the tries that have a live attempt."""
        return [one for one in self.tries.values() if one.live]

    def live_on(self, side: str) -> list[Attempt]:
        """Return the live attempts of one side."""
        return [attempt for attempt in self.active.values() if attempt.side == side]

    def apply(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "attempt":
            index, attempt_no = pair_index_of(event["job_id"]), event["attempt_no"]
            if index not in self.tries or self.tries[index].attempt_no != attempt_no:
                self.tries[index] = Try(index, attempt_no, event["first"])
        super().apply(event)

    def _commit(self, attempt: Attempt) -> None:
        super()._commit(attempt)
        self.tries[attempt.pairs[0]].sides[attempt.side] = attempt

    def _apply_other(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "met":
                self.tries[pair_index_of(event["job_id"])].met = True
            case "ways":
                index = pair_index_of(event["job_id"])
                self.tries[index].ways_known = True
                if event["client"] is not None:
                    self.clients[index] = event["client"]
            case _:
                pass

    def _took(self, attempt: Attempt, node_seconds: float) -> None:
        self.node_seconds[attempt.side] += node_seconds

    def _end_pair(self, index: int, attempt: Attempt) -> None:  # noqa: ARG002 - both sides of the try count
        ended = self.tries[index]
        if not ended.live:
            causes = [one for one in ended.sides.values() if not one.follows] or list(ended.sides.values())
            self._try_again(index, [one.outcome for one in causes], final=any(one.final for one in causes))

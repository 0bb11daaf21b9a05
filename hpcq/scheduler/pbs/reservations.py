"""Reservations: what `pbs_rstat -f` says, and why their names are not ours.

PBS names them itself (R109.pbhead; M131.pbhead for maintenance), and their queue is the number with its letter:
R109. The name that
somebody gave is Reserve_Name; several may have the same. There is no JSON and no dsv for them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcq.scheduler.pbs.hosts import vnodes
from hpcq.scheduler.pbs.nodes import Vnode
from hpcq.scheduler.pbs.records import Record, read_plain
from hpcq.scheduler.types import NodeCondition, NodeState

ID_PATTERN = re.compile(r"[RSM]\d+(?:\.[A-Za-z0-9][A-Za-z0-9.-]*)?")
_RUNNING = {"RESV_RUNNING", "5"}
_ENDING = {"RESV_BEING_DELETED", "RESV_DELETED", "RESV_FINISHED", "RESV_DELETING_JOBS", "7", "8", "9", "10"}
_CONFIRMED = {"RESV_CONFIRMED", "2", *_RUNNING}
#: A node whose reservation begins within this time is not free for hpcq: a job there might not end before it.
_SOON = dt.timedelta(hours=1)
_CTIME = "%a %b %d %H:%M:%S %Y"
_ANSWER = re.compile(r"^([RSM]\d+\S*) (CONFIRMED|UNCONFIRMED|DENIED)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PbsReservation:
    """One of them. start and end are as PBS prints them: local time without a zone."""

    native_id: str
    name: str
    queue: str
    state: str
    vnodes: tuple[str, ...]
    users: tuple[str, ...]
    start: str
    end: str

    @property
    def active(self) -> bool:
        """Whether jobs in it may run now."""
        return self.state in _RUNNING

    @property
    def standing(self) -> bool:
        """Whether it is there for jobs, now or later: confirmed, and not about to end."""
        return self.state in _CONFIRMED

    @property
    def ending(self) -> bool:
        """Whether it is being removed."""
        return self.state in _ENDING

    @property
    def maintenance(self) -> bool:
        """Whether an administrator made it of whole hosts, jobs or no jobs."""
        return self.native_id.startswith("M")

    def admits(self, user: str) -> bool:
        """Whether this user may submit to its queue."""
        return any(entry.partition("@")[0] in {user, "*"} for entry in self.users)


def read_reservations(text: str) -> list[PbsReservation]:
    """All of `pbs_rstat -f`."""
    return [read_reservation(record) for record in read_plain(text) if record.kind == "Resv ID"]


def read_reservation(record: Record) -> PbsReservation:
    """One record of it."""
    return PbsReservation(
        native_id=record.name,
        name=record.get("Reserve_Name").removeprefix("NULL"),
        queue=record.get("queue") or record.name.partition(".")[0],
        state=record.get("reserve_state"),
        vnodes=vnodes(record.get("resv_nodes")),
        users=tuple(one.strip() for one in record.get("Authorized_Users").split(",") if one.strip()),
        start=record.get("reserve_start"),
        end=record.get("reserve_end"),
    )


def called(reservations: Sequence[PbsReservation], name: str) -> PbsReservation | None:
    """The one that a person means by a name: its id, its queue, or the name it was given; one that is not ending goes first."""
    meant = [one for one in reservations if name in {one.native_id, one.queue, one.name}]
    return next((one for one in meant if not one.ending), next(iter(meant), None))


def read_made(text: str) -> tuple[str, bool] | None:
    """What pbs_rsub answered: the id, and whether it is confirmed. A denied one ends with 0, too. None: no answer."""
    match = _ANSWER.search(text)
    return None if match is None else (match[1], match[2] == "CONFIRMED")


def seen_from_inside(
    states: Sequence[NodeState], vnodes: Sequence[Vnode], ours: PbsReservation | None, name: str
) -> list[NodeState]:
    """Nodes as seen from inside a reservation: its own are idle when only the reservation keeps them. Others are not ours."""
    mine = _hosts(vnodes, ours) if ours is not None else set()
    busy = {vnode.host for vnode in vnodes if vnode.jobs}
    found = []
    for state in states:
        condition, reason = state.condition, state.reason
        if ours is None or state.node not in mine or not ours.active:
            condition = NodeCondition.RESERVED if condition is NodeCondition.IDLE else condition
            reason = f"reservation {name} is not active" if state.node in mine else f"not in reservation {name}"
        elif condition in {NodeCondition.RESERVED, NodeCondition.MAINTENANCE}:
            condition = NodeCondition.BUSY if state.node in busy else NodeCondition.IDLE
        found.append(replace(state, condition=condition, reason=reason))
    return found


def taken_soon(
    states: Sequence[NodeState], vnodes: Sequence[Vnode], reservations: Sequence[PbsReservation], now: str
) -> list[NodeState]:
    """Nodes as seen from outside: a free one whose reservation begins soon, or at an unknown time, is reserved."""
    found = list(states)
    for one in reservations:
        if one.standing and _begins_soon(one, now):
            hosts = _hosts(vnodes, one)
            words = f"reservation {one.queue} of {one.name}, from {one.start}"
            found = [
                replace(state, condition=NodeCondition.RESERVED, reason=state.reason or words)
                if state.node in hosts and state.condition is NodeCondition.IDLE
                else state
                for state in found
            ]
    return found


def _hosts(listed: Sequence[Vnode], one: PbsReservation) -> set[str]:
    names = set(one.vnodes)
    return {vnode.host for vnode in listed if vnode.name in names or one.native_id in vnode.reserved_by}


def _begins_soon(one: PbsReservation, now: str) -> bool:
    if one.active:
        return True
    try:  # both are local times of the server's machine
        return dt.datetime.strptime(one.start, _CTIME) - dt.datetime.strptime(now.strip(), _CTIME) < _SOON
    except ValueError:
        return True

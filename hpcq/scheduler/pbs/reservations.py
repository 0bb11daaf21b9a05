"""Read the reservations of `pbs_rstat -f`. Their names are not ours:

PBS itself names them (R109.pbhead; M131.pbhead for maintenance). Their queue is the letter and the number: R109.
Reserve_Name is the name that a person gave; several reservations may share it. PBS has no JSON and no dsv for them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcq.scheduler.pbs.nodes import Vnode
from hpcq.scheduler.pbs.records import Record, read_plain, vnodes
from hpcq.scheduler.types import NodeCondition, NodeState

ID_PATTERN = re.compile(r"[RSM]\d+(?:\.[A-Za-z0-9][A-Za-z0-9.-]*)?")
#: reserve_state and reserve_substate of `pbs_rstat -f`. Source: convert_resv_state() in src/cmds/pbs_rstat.c and
#: enum resv_states in src/include/pbs_ifl.h of OpenPBS 23.06.
_RUNNING, _RUNNING_SUBSTATE = "RESV_RUNNING", "5"
_ALTERED = "RESV_BEING_ALTERED"  # for a moment after pbs_ralter; the substate tells whether it runs
_ENDING = {"RESV_BEING_DELETED", "RESV_DELETED", "RESV_FINISHED", "RESV_DELETING_JOBS"}
#: Degraded: one of its nodes is offline or down, before it began. In conflict: with a maintenance reservation.
_STANDING = {_RUNNING, _ALTERED, "RESV_CONFIRMED", "RESV_TIME_TO_RUN", "RESV_DEGRADED", "RESV_IN_CONFLICT"}
#: If a node's reservation begins within this time, hpcq does not use the node: a job there might not end in time.
_SOON = dt.timedelta(hours=1)
_CTIME = "%a %b %d %H:%M:%S %Y"
_ANSWER = re.compile(r"^([RSM]\d+\S*) (CONFIRMED|UNCONFIRMED|DENIED)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PbsReservation:
    """One reservation. start and end are as PBS prints them: local time without a zone."""

    native_id: str
    name: str
    queue: str
    state: str
    substate: str
    vnodes: tuple[str, ...]
    users: tuple[str, ...]
    start: str
    end: str

    @property
    def active(self) -> bool:
        """Whether jobs in it may run now."""
        return self.state == _RUNNING or (self.state == _ALTERED and self.substate == _RUNNING_SUBSTATE)

    @property
    def standing(self) -> bool:
        """Whether it accepts jobs, now or later: it is confirmed and not about to end, whatever happened to a node of it."""
        return self.state in _STANDING

    @property
    def ending(self) -> bool:
        """Whether PBS is removing it."""
        return self.state in _ENDING

    @property
    def maintenance(self) -> bool:
        """Whether it is a maintenance reservation: an administrator took whole hosts, whatever jobs run there."""
        return self.native_id.startswith("M")

    def admits(self, user: str) -> bool:
        """Whether this user may submit to its queue."""
        return any(entry.partition("@")[0] in {user, "*"} for entry in self.users)


def read_reservations(text: str) -> list[PbsReservation]:
    """Read all reservations of `pbs_rstat -f`."""
    return [read_reservation(record) for record in read_plain(text) if record.kind == "Resv ID"]


def read_reservation(record: Record) -> PbsReservation:
    """Read one record of `pbs_rstat -f`."""
    return PbsReservation(
        native_id=record.name,
        name=record.get("Reserve_Name").removeprefix("NULL"),
        queue=record.get("queue") or record.name.partition(".")[0],
        state=record.get("reserve_state"),
        substate=record.get("reserve_substate"),
        vnodes=vnodes(record.get("resv_nodes")),
        users=tuple(one.strip() for one in record.get("Authorized_Users").split(",") if one.strip()),
        start=record.get("reserve_start"),
        end=record.get("reserve_end"),
    )


def called(reservations: Sequence[PbsReservation], name: str) -> PbsReservation | None:
    """Find a reservation by its id, its queue, or the name a person gave it. One that is not ending goes first."""
    meant = [one for one in reservations if name in {one.native_id, one.queue, one.name}]
    return next((one for one in meant if not one.ending), next(iter(meant), None))


def read_made(text: str) -> tuple[str, bool] | None:
    """Read the answer of pbs_rsub: the id, and whether the reservation is confirmed; None without an answer.

    PBS also ends with 0 when it denies a reservation.
    """
    match = _ANSWER.search(text)
    return None if match is None else (match[1], match[2] == "CONFIRMED")


def seen_from_inside(
    states: Sequence[NodeState], vnodes: Sequence[Vnode], ours: PbsReservation | None, name: str
) -> list[NodeState]:
    """Return the nodes as a job in a reservation sees them.

    The reservation's own nodes are idle if only the reservation holds them. All other nodes are out of its reach.
    """
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
    """Return the nodes as a job outside all reservations sees them.

    A free node counts as reserved if its reservation begins soon or at an unknown time.
    """
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

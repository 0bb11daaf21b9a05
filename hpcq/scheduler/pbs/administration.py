"""What PBS tells an acceptance about the upkeep of its nodes, and the orders that an operator may give.

    drain        pbsnodes -o -C REASON       a vnode that is already offline keeps its reason
    resume       pbsnodes -r -C ""
    reserve      pbs_rsub --hosts            a maintenance reservation: whole hosts, even if jobs run there
    give back    pbs_rdel, when all its nodes go back: PBS cannot take single hosts out of a running reservation

A job in a reservation cannot use nodes outside it, so there is no order for that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from hpcq.scheduler.administration import (
    OWN_MINUTES,
    OWN_RESERVATION,
    Administration,
    NodeUpkeep,
    Reservation,
    Upkeep,
)
from hpcq.scheduler.pbs import shell
from hpcq.scheduler.pbs.dialects import Ability, Dialect, Family, read_dialect
from hpcq.scheduler.pbs.nodes import Vnode, read_vnode
from hpcq.scheduler.pbs.records import DSV, read_dsv
from hpcq.scheduler.pbs.reservations import PbsReservation, read_reservations
from hpcq.scheduler.types import NodeCondition
from hpcq.transport import Transport, quote

_SIGN = "== hpcq =="


class PbsAdministration(Administration):
    """Orders of `pbsnodes` and `pbs_rsub`, each one line that a person could type."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: The queue of each known reservation, which is also PBS's name for it.
        self._queues: dict[tuple[str, tuple[str, ...]], str] = {}
        #: Queue -> who may use that reservation.
        self._users: dict[str, tuple[str, ...]] = {}
        #: Host -> its vnodes. Orders name hosts, which PBS takes for all vnodes there; a vnode's own name is unknown to it.
        self._vnodes: dict[str, list[str]] = {}
        #: The folder of the commands, if the cluster's shell does not find them: orders then include it.
        self._bin = ""
        #: What this release can do; of an unknown one, everything.
        self._dialect = Dialect(Family.UNKNOWN, "")

    def look(self) -> Upkeep:
        done = self._transport.sh(
            "command -v pbsnodes || echo not-found\n"
            + shell.subshell(
                "export TZ=UTC0 LC_ALL=C; command -v pbsnodes; id -un;"
                f" echo '{_SIGN}'; pbsnodes -av {DSV}; echo '{_SIGN}'; qstat --version; echo '{_SIGN}'; pbs_rstat -f"
            )
        )
        parts = done.text.split(f"{_SIGN}\n")
        if len(parts) != 4:
            return Upkeep()
        self._dialect = read_dialect(parts[2])
        plain, found_at, user = [*parts[0].split(), "", "", ""][:3]
        self._bin = "" if plain == found_at else f"{found_at.rpartition('/')[0]}/"
        vnodes = [read_vnode(record) for record in read_dsv(parts[1]) if record.kind == "Name"]
        self._vnodes = {}
        for vnode in vnodes:
            self._vnodes.setdefault(vnode.host, []).append(vnode.name)
        found = []
        for one in read_reservations(parts[3]):
            shown = _reservation(one, vnodes, user) if one.standing else None
            if shown is not None:
                self._queues[shown.name, shown.nodes] = one.queue
                self._users[one.queue] = one.users
                found.append(shown)
        return Upkeep(user, _nodes(vnodes), tuple(found))

    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        return " && ".join(
            f"{{ {self._bin}pbsnodes -v {self._vnodes_of(node)} | grep -q 'state = .*offline'"
            f" || {self._bin}pbsnodes -o -C {quote(reason)} {quote(node)}; }}"
            for node in nodes
        )

    def resume(self, nodes: Sequence[str]) -> str | None:
        # -C '' removes the reason, which PBS would keep otherwise.
        return f"{self._bin}pbsnodes -r -C '' {' '.join(map(quote, nodes))}"

    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:  # noqa: ARG002
        if not self._dialect.has(Ability.MAINTENANCE_RESERVATIONS):
            return None
        # PBS cannot enlarge a reservation, so hpcq makes another one with the same name.
        hosts = " ".join(quote(node) for node in nodes)
        start = 'date -d "@$(($(date +%s) + 3))" +%Y%m%d%H%M.%S'
        users = quote(f"{user}@*")
        made = f'{self._bin}pbs_rsub -N {OWN_RESERVATION} -R "$({start})" -D {60 * OWN_MINUTES} -U {users} --hosts {hosts}'
        return f"{made} | grep CONFIRMED"

    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        # All of its nodes or none: PBS cannot take single hosts out of a running reservation.
        queue = self._queues.get((standing.name, standing.nodes), standing.name)
        return f"{self._bin}pbs_rdel {quote(queue)}" if set(standing.nodes) <= set(nodes) else None

    def admit(self, reservation: str, user: str) -> str | None:
        if not self._dialect.has(Ability.USERS_OF_RESERVATIONS):
            return None
        queue = next((queue for (name, _), queue in self._queues.items() if name == reservation), reservation)
        # qmgr could add to the queue's list, but pbs_rstat would go on to name the old users.
        users = ",".join([*self._users.get(queue, ()), f"{user}@*"])
        return f"{self._bin}pbs_ralter -U {quote(users)} {quote(queue)}"

    def _vnodes_of(self, node: str) -> str:
        return " ".join(map(quote, self._vnodes.get(node, [node])))

    def open_outward(self, reservation: str) -> str | None:  # noqa: ARG002 - PBS cannot do this
        return None


def _nodes(vnodes: Sequence[Vnode]) -> dict[str, NodeUpkeep]:
    found: dict[str, list[Vnode]] = {}
    for vnode in vnodes:
        found.setdefault(vnode.host, []).append(vnode)
    return {host: _node(host, parts) for host, parts in found.items()}


def _node(host: str, parts: Sequence[Vnode]) -> NodeUpkeep:
    words = {word.strip() for part in parts for word in part.words.split(",")}
    return NodeUpkeep(
        node=host,
        started_utc=None,  # PBS records when a state changed, which is not when a node came up
        drained=bool(words & {"offline", "offline_by_mom"}),
        down=any(part.condition in {NodeCondition.DOWN, NodeCondition.POWERED_DOWN} for part in parts),
        reason=next((part.comment for part in parts if part.comment), ""),
        partitions=tuple(dict.fromkeys(part.queue for part in parts if part.queue)),
    )


def _reservation(one: PbsReservation, vnodes: Sequence[Vnode], user: str) -> Reservation | None:
    start, end = _utc(one.start), _utc(one.end)
    if start is None or end is None:
        return None
    hosts = dict.fromkeys(v.host for v in vnodes if v.name in one.vnodes or one.native_id in v.reserved_by)
    return Reservation(
        name=one.name if one.name == OWN_RESERVATION else one.queue,
        started_utc=start,
        ended_utc=end,
        nodes=tuple(hosts),
        active=one.active,
        maintenance=one.maintenance,
        mine=one.admits(user),
    )


def _utc(text: str) -> str | None:
    try:
        moment = dt.datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}Z"

"""The upkeep of nodes as scontrol reports it, and the orders of an acceptance as scontrol commands.

Slurm 22.05 and 24.11 share these formats. hpcq asks for times in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcq.scheduler.administration import OWN_MINUTES, OWN_RESERVATION, Administration, NodeUpkeep, Reservation, Upkeep
from hpcq.scheduler.slurm.reading import expanded
from hpcq.topology import read_topology
from hpcq.transport import Transport, quote

_SIGN = "== hpcq =="
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9/:]*)=")


class SlurmAdministration(Administration):
    """scontrol commands, as an operator would type them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def look(self) -> Upkeep:
        script = (
            f"export TZ=UTC0 SLURM_TIME_FORMAT=standard; id -un; echo '{_SIGN}'\n"
            f"scontrol --oneliner show node; echo '{_SIGN}'\n"
            f"scontrol --oneliner show reservation 2>/dev/null; echo '{_SIGN}'; scontrol --oneliner show topology 2>/dev/null"
        )
        parts = self._transport.sh(script).text.split(f"{_SIGN}\n")
        if len(parts) != 4:
            return Upkeep()
        user, nodes, reservations, topology = parts
        return Upkeep(user.strip(), read_nodes(nodes), read_reservations(reservations, user.strip()), read_topology(topology))

    def drain(self, nodes: Sequence[str], reason: str) -> str | None:
        return f"scontrol update nodename={_listed(nodes)} state=drain reason={quote(reason)}"

    def resume(self, nodes: Sequence[str]) -> str | None:
        return f"scontrol update nodename={_listed(nodes)} state=resume"

    def reserve(self, nodes: Sequence[str], user: str, standing: Reservation | None) -> str | None:
        # maint keeps users off; flex lets the test pair these nodes with partners outside.
        if standing is None:
            return (
                f"scontrol create reservation reservationname={OWN_RESERVATION} starttime=now duration={OWN_MINUTES}"
                f" users={quote(user)} flags=maint,ignore_jobs,flex nodes={_listed(nodes)}"
            )
        return f"scontrol update reservationname={quote(standing.name)} nodes+={_listed(nodes)}"

    def give_back(self, standing: Reservation, nodes: Sequence[str]) -> str | None:
        kept = [node for node in standing.nodes if node not in nodes]
        if not kept:
            return f"scontrol delete reservationname={quote(standing.name)}"
        return f"scontrol update reservationname={quote(standing.name)} nodes-={_listed(nodes)}"

    def admit(self, reservation: str, user: str) -> str | None:
        return f"scontrol update reservationname={quote(reservation)} users+={quote(user)}"

    def open_outward(self, reservation: str) -> str | None:
        return f"scontrol update reservationname={quote(reservation)} flags+=flex"


def _listed(nodes: Sequence[str]) -> str:
    return quote(",".join(nodes))


def read_nodes(text: str) -> dict[str, NodeUpkeep]:
    """Read the lines of `scontrol --oneliner show node`."""
    found = {}
    for line in text.splitlines():
        keys = _keys(line)
        if "NodeName" not in keys:
            continue
        state = keys.get("State", "").upper()
        times = [one for one in (_utc(keys.get("BootTime")), _utc(keys.get("SlurmdStartTime"))) if one]
        found[keys["NodeName"]] = NodeUpkeep(
            node=keys["NodeName"],
            started_utc=max(times, default=None),
            drained="DRAIN" in state,
            down="DOWN" in state or "NOT_RESPONDING" in state or "POWERED" in state,
            reason=re.sub(r"\s*\[.*\]$", "", keys.get("Reason", "")),
            partitions=tuple(one for one in keys.get("Partitions", "").split(",") if one),
        )
    return found


def read_reservations(text: str, user: str) -> tuple[Reservation, ...]:
    """Read the lines of `scontrol --oneliner show reservation`."""
    found = []
    for line in text.splitlines():
        keys = _keys(line)
        started, ended = _utc(keys.get("StartTime")), _utc(keys.get("EndTime"))
        if "ReservationName" in keys and started and ended:
            users = keys.get("Users", "").split(",")
            flags = keys.get("Flags", "").split(",")
            found.append(
                Reservation(
                    name=keys["ReservationName"],
                    started_utc=started,
                    ended_utc=ended,
                    nodes=expanded(keys.get("Nodes", "")),
                    active=keys.get("State") == "ACTIVE",
                    maintenance="MAINT" in flags,
                    mine=user in users,
                    flex="FLEX" in flags,
                )
            )
    return tuple(found)


def _keys(line: str) -> dict[str, str]:
    """Return the KEY=value pairs of a line of scontrol. A value ends at the next key, since reasons contain blanks."""
    starts = list(_KEY.finditer(line))
    ends = [*(one.start() for one in starts[1:]), len(line)][: len(starts)]
    found: dict[str, str] = {}
    for one, end in zip(starts, ends, strict=True):
        value = line[one.end() : end].strip()
        found.setdefault(one.group(1), "" if value in {"(null)", "None"} else value)
    return found


def _utc(text: str | None) -> str | None:
    return f"{text}Z" if text and re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}", text) else None

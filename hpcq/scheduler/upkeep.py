"""What a scheduler knows of upkeep: boots, drains, maintenance reservations, leaf switches; and how to drain or resume.

    upkeep(scheduler) -> Upkeep      of Slurm; other schedulers tell less, and then ledger and results must do
    drain_command(...), resume_command(...), release_command(...), give_back_command(...), ...      what a person would type

Formats are those that Slurm 22.05 and 24.11 share. Times are asked for in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.slurm import Slurm
from hpcq.transport import quote

#: The reservation that releases nodes to the test, and how long it stands unless the test ends it.
OWN_RESERVATION = "hpcq-accept"
OWN_MINUTES = 120

_SIGN = "== hpcq =="
_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9/:]*)=")


@dataclass(frozen=True, slots=True)
class NodeUpkeep:
    """One node. started_utc: when its scheduler daemon or the node itself last came up, whichever is later."""

    node: str
    started_utc: str | None
    drained: bool
    down: bool
    reason: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation that the scheduler has now. mine: this user may run in it. flex: its jobs may have nodes outside, too."""

    name: str
    started_utc: str
    ended_utc: str
    nodes: tuple[str, ...]
    active: bool
    maintenance: bool
    mine: bool
    flex: bool = False

    @property
    def own(self) -> bool:
        """Whether it was made for a test, with the words of release_command."""
        return self.name == OWN_RESERVATION


@dataclass(frozen=True, slots=True)
class Upkeep:
    """All of it at one moment; `leaves` is node -> leaf switch, empty where the site states no topology."""

    user: str = ""
    nodes: dict[str, NodeUpkeep] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    leaves: dict[str, str] = field(default_factory=dict)


def upkeep(scheduler: Scheduler) -> Upkeep:
    """Ask once. A scheduler that is not Slurm, or an answer that cannot be read, tells nothing: that is no error."""
    if not isinstance(scheduler, Slurm):
        return Upkeep()
    script = (
        f"export TZ=UTC0 SLURM_TIME_FORMAT=standard; id -un; echo '{_SIGN}'; scontrol --oneliner show node; echo '{_SIGN}'\n"
        f"scontrol --oneliner show reservation 2>/dev/null | while IFS= read -r line; do printf '%s\\n' \"$line\"\n"
        " list=$(printf '%s\\n' \"$line\" | sed -n 's/.*[[:space:]]Nodes=\\([^[:space:]]*\\).*/\\1/p')\n"
        " scontrol show hostnames \"$list\" 2>/dev/null | tr '\\n' ' '; echo; done\n"
        f"echo '{_SIGN}'; scontrol --oneliner show topology 2>/dev/null | grep 'Level=0' | while IFS= read -r line; do\n"
        " printf '%s\\n' \"$line\" | sed -n 's/.*SwitchName=\\([^[:space:]]*\\).*/\\1/p'\n"
        " list=$(printf '%s\\n' \"$line\" | sed -n 's/.*[[:space:]]Nodes=\\([^[:space:]]*\\).*/\\1/p')\n"
        " scontrol show hostnames \"$list\" 2>/dev/null | tr '\\n' ' '; echo; done"
    )
    scheduler.query_count += 1
    parts = scheduler.transport.sh(script).text.split(f"{_SIGN}\n")
    if len(parts) != 4:
        return Upkeep()
    user, nodes, reservations, topology = parts
    leaves = {node: name.strip() for name, members in _couples(topology) for node in members.split()}
    return Upkeep(user.strip(), read_nodes(nodes), read_reservations(reservations, user.strip()), leaves)


def read_nodes(text: str) -> dict[str, NodeUpkeep]:
    """The lines of `scontrol --oneliner show node`."""
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
    """Two lines a reservation: what scontrol says, and its nodes one by one."""
    found = []
    for line, members in _couples(text):
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
                    nodes=tuple(members.split()),
                    active=keys.get("State") == "ACTIVE",
                    maintenance="MAINT" in flags,
                    mine=user in users,
                    flex="FLEX" in flags,
                )
            )
    return tuple(found)


def drain_command(node: str, reason: str) -> str:
    """Take a node out of service, with the reason that others will read."""
    return f"scontrol update nodename={quote(node)} state=drain reason={quote(reason)}"


def resume_command(nodes: Sequence[str]) -> str:
    """End the drain of nodes: users get them, but for a reservation that keeps them."""
    return f"scontrol update nodename={quote(','.join(nodes))} state=resume"


def release_command(nodes: Sequence[str], user: str, standing: Reservation | None) -> str:
    """Release drained nodes to the test alone. standing: the reservation of an earlier release, which takes them in.

    maint keeps users off, flex lets the test run them with partners outside.
    """
    if standing is None:
        made = (
            f"scontrol create reservation reservationname={OWN_RESERVATION} starttime=now duration={OWN_MINUTES}"
            f" users={quote(user)} flags=maint,ignore_jobs,flex nodes={quote(','.join(nodes))}"
        )
    else:
        made = keep_command(standing.name, [*standing.nodes, *(node for node in nodes if node not in standing.nodes)])
    return f"{made} && {resume_command(nodes)}"


def keep_command(reservation: str, nodes: Sequence[str]) -> str:
    """Let a reservation have these nodes and no others."""
    return f"scontrol update reservationname={quote(reservation)} nodes={quote(','.join(nodes))}"


def give_back_command(standing: Reservation, nodes: Sequence[str]) -> str:
    """Give these nodes of a reservation back to users; it ends when it has no others."""
    kept = [node for node in standing.nodes if node not in nodes]
    return keep_command(standing.name, kept) if kept else f"scontrol delete reservationname={quote(standing.name)}"


def flex_command(reservation: str) -> str:
    """Let jobs of a reservation have nodes outside of it, too."""
    return f"scontrol update reservationname={quote(reservation)} flags+=flex"


def admit_command(reservation: str, user: str) -> str:
    """Let this user run in a reservation."""
    return f"scontrol update reservationname={quote(reservation)} users+={quote(user)}"


def _couples(text: str) -> list[tuple[str, str]]:
    lines: Sequence[str] = text.splitlines()
    return list(zip(lines[::2], lines[1::2], strict=False))


def _keys(line: str) -> dict[str, str]:
    """KEY=value pairs of a line of scontrol; a value runs to the next key, for reasons hold blanks."""
    starts = list(_KEY.finditer(line))
    ends = [*(one.start() for one in starts[1:]), len(line)][: len(starts)]
    found: dict[str, str] = {}
    for one, end in zip(starts, ends, strict=True):
        value = line[one.end() : end].strip()
        found.setdefault(one.group(1), "" if value in {"(null)", "None"} else value)
    return found


def _utc(text: str | None) -> str | None:
    return f"{text}Z" if text and re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}", text) else None

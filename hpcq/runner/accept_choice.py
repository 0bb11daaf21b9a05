"""Which nodes an acceptance is about. Pure but for its types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcq.errors import UserError
from hpcq.pairs import natural
from hpcq.scheduler.upkeep import Reservation, Upkeep
from hpcq.store.ledger import NodeLedger


@dataclass(frozen=True, slots=True)
class Wish:
    """Which nodes a person asks for; without any of these, those that need it.

    since_utc: what came up or was released since then. reservation: its nodes. boot: what booted since its last verdict.
    """

    nodes: tuple[str, ...] = ()
    everything: bool = False
    since_utc: str | None = None
    reservation: str | None = None
    boot: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """targets: node -> why. testable: those that can be had now. blocked: node -> why not. inside: nodes of `reservation`."""

    targets: dict[str, str]
    testable: tuple[str, ...]
    blocked: dict[str, str] = field(default_factory=dict)
    reservation: str | None = None
    inside: frozenset[str] = frozenset()

    @property
    def can_run(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.testable)


def choose(wish: Wish, known: Mapping[str, NodeLedger], seen: Upkeep, idle: set[str]) -> Choice:
    """Find the nodes that need a verdict and those of them that can be measured now."""
    unknown = [node for node in wish.nodes if node not in known]
    if unknown:
        raise UserError(
            f"{unknown[0]!r} is not a node of this cluster's partition", f"there are {', '.join(sorted(known)[:12])}"
        )
    targets = {}
    for node in sorted(known, key=natural):
        why = _why(wish, known[node], seen)
        if why:
            targets[node] = why
    standing = _usable(seen, targets, idle)
    if standing is not None:
        inside = frozenset(node for node in standing.nodes if node in known and not _held(node, seen))
        testable = tuple(node for node in targets if node in inside)
    else:
        inside = frozenset()
        testable = tuple(node for node in targets if node in idle)
    blocked = {node: _blocked(node, seen) for node in targets if node not in testable}
    return Choice(targets, testable, blocked, standing.name if standing else None, inside)


def _why(wish: Wish, node: NodeLedger, seen: Upkeep) -> str:
    """Why a node needs a verdict; empty when it does not."""
    if wish.nodes:
        return "asked for" if node.node in wish.nodes else ""
    if wish.everything:
        return "asked for"
    up = seen.nodes.get(node.node)
    started = up.started_utc if up else None
    if wish.reservation is not None:
        members = {member for one in seen.reservations if one.name == wish.reservation for member in one.nodes}
        return f"in reservation {wish.reservation}" if node.node in members or wish.reservation in node.since else ""
    came_up = bool(started and started > (wish.since_utc or node.decided_utc or "~"))
    reasons = ["booted"] if node.booted else []
    reasons += ["came up"] if came_up and not node.booted else []
    if wish.boot:
        return ", ".join(reasons)
    if node.decided_utc is None:
        return "never accepted"
    reasons += [{"maintenance": "maintenance", "resume": "back from drain"}.get(kind, kind) for kind in node.since]
    if node.verdict in {"not_covered", "inconclusive"} and not node.waits:
        reasons.append(f"{node.verdict.replace('_', ' ')} last time")
    if not reasons and up is not None and up.down:
        reasons.append("down")
    return ", ".join(dict.fromkeys(reasons))


def _usable(seen: Upkeep, targets: Mapping[str, str], idle: set[str]) -> Reservation | None:
    """A reservation that stands, lets this user in, and holds at least two nodes to test that nobody else can have."""
    for one in seen.reservations:
        held = [node for node in one.nodes if node in targets and node not in idle and not _held(node, seen)]
        if one.active and one.mine and len(held) >= 2:
            return one
    return None


def _held(node: str, seen: Upkeep) -> bool:
    up = seen.nodes.get(node)
    return up is not None and (up.drained or up.down)


def _blocked(node: str, seen: Upkeep) -> str:
    up = seen.nodes.get(node)
    if up is not None and up.down:
        return f"down{': ' + up.reason if up.reason else ''}"
    if up is not None and up.drained:
        return f"drained{': ' + up.reason if up.reason else ''}"
    held = next((one for one in seen.reservations if one.active and node in one.nodes), None)
    if held is not None:
        return f"in reservation {held.name} until {held.ended_utc[:16].replace('T', ' ')} UTC"
    return "busy: not idle now"

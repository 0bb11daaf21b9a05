"""Choose the nodes that an acceptance tests. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcq.errors import UserError
from hpcq.scheduler.administration import Reservation, Upkeep
from hpcq.sorting import natural
from hpcq.store.ledger import NodeState
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes that a person asks for; with all fields empty, the nodes that need a test.

    since_utc: nodes that came up or were released since then. boot: nodes that booted since their last verdict.
    reservation: its nodes; once it has ended, those without a verdict since.
    """

    nodes: tuple[str, ...] = ()
    everything: bool = False
    since_utc: str | None = None
    reservation: str | None = None
    boot: bool = False


@dataclass(frozen=True, slots=True)
class NodesToTest:
    """The nodes to test.

    targets: node -> why. testable: those available now. blocked: node -> why not. room: possible partners.
    """

    targets: dict[str, str]
    testable: tuple[str, ...]
    room: frozenset[str]
    blocked: dict[str, str] = field(default_factory=dict)
    reservation: str | None = None

    @property
    def can_run(self) -> bool:
        """Whether there is something to measure."""
        return bool(self.testable)


def choose(
    selection: NodeSelection,
    known: Mapping[str, NodeState],
    seen: Upkeep,
    idle: set[str],
    standing: Sequence[VerdictRecord] = (),
) -> NodesToTest:
    """Find the nodes that need a verdict, and those of them that can be measured now.

    standing: links and groups at fault. The nodes of a reservation are paired with each other and, if it is flexible,
    also
    with idle nodes outside. Nodes outside our reservations then wait for the next acceptance.
    """
    idle = idle - {node for one in seen.reservations if one.active for node in one.nodes}
    unknown = [node for node in selection.nodes if node not in known]
    if unknown:
        raise UserError(
            f"{unknown[0]!r} is not a node of this cluster's partition", f"there are {', '.join(sorted(known)[:12])}"
        )
    targets = {}
    for node in sorted(known, key=natural):
        why = _why(selection, known[node], seen)
        if why:
            targets[node] = why
    if selection == NodeSelection():
        targets |= {node: why for node, why in _of_links(standing, idle).items() if node not in targets}
    usable = _usable(seen, targets, idle)
    room = frozenset(idle)
    if usable is not None:
        inside = frozenset(node for node in usable.nodes if node in known and not _held(node, seen))
        room = inside | idle if usable.flex else inside
    testable = tuple(node for node in targets if node in room)
    blocked = {node: _blocked(node, seen, idle) for node in targets if node not in testable}
    return NodesToTest(targets, testable, room, blocked, usable.name if usable else None)


def _why(selection: NodeSelection, node: NodeState, seen: Upkeep) -> str:
    """Return why a node needs a verdict; empty if it does not."""
    if selection.nodes:
        return "asked for" if node.node in selection.nodes else ""
    if selection.everything:
        return "asked for"
    up = seen.nodes.get(node.node)
    started = up.started_utc if up else None
    if selection.reservation is not None:
        return _why_reserved(selection.reservation, node, seen)
    came_up = bool(started and started > (selection.since_utc or _judged_utc(node) or "~"))
    reasons = ["booted"] if node.booted else []
    reasons += ["came up"] if came_up and not node.booted else []
    if selection.boot:
        return ", ".join(reasons)
    if node.last is None:
        return "never accepted"
    reasons += [{"maintenance": "maintenance", "resume": "back from drain"}.get(kind, kind) for kind in node.since]
    if node.verdict in {Verdict.NOT_COVERED, Verdict.INCONCLUSIVE} and not node.last.waits:
        reasons.append(f"{node.last.verdict.replace('_', ' ')} last time")
    if not reasons and up is not None and up.down:
        reasons.append("down")
    return ", ".join(dict.fromkeys(reasons))


def _why_reserved(name: str, node: NodeState, seen: Upkeep) -> str:
    """Return why a reservation gives a node a test: the node is in it, or has no verdict since it ended."""
    if any(one.name == name and node.node in one.nodes for one in seen.reservations):
        return f"in reservation {name}"
    ended = node.reservations.get(name)
    return f"was in reservation {name}" if ended is not None and (_judged_utc(node) or "") <= ended else ""


def _judged_utc(node: NodeState) -> str | None:
    """Return the time that its last verdict is about.

    A boot after the measurement is not judged, even if the verdict came later.
    """
    return None if node.last is None else node.last.measured_utc or node.last.decided_utc


def _of_links(standing: Sequence[VerdictRecord], idle: set[str]) -> dict[str, str]:
    """Return both ends of links that failed, so that they are tested again: hpcq cannot see that a cable was changed.

    Leaves are tested with their nodes.
    """
    links = [one for one in standing if one.kind is Thing.LINK and len(one.nodes) == 2 and not one.waits]
    due = [one for one in links if idle.issuperset(one.nodes)]
    return {node: f"link {one.name} {one.verdict} last time" for one in due for node in one.nodes}


def _usable(seen: Upkeep, targets: Mapping[str, str], idle: set[str]) -> Reservation | None:
    """Return an active reservation for this user with at least two nodes to test, or with one if it is flexible."""
    for one in seen.reservations:
        held = [node for node in one.nodes if node in targets and not _held(node, seen)]
        if one.active and one.mine and (len(held) >= 2 or (held and one.flex and idle)):
            return one
    return None


def _held(node: str, seen: Upkeep) -> bool:
    up = seen.nodes.get(node)
    return up is not None and (up.drained or up.down)


def _blocked(node: str, seen: Upkeep, idle: set[str]) -> str:
    up = seen.nodes.get(node)
    if up is not None and up.down:
        return f"down{': ' + up.reason if up.reason else ''}"
    if up is not None and up.drained:
        return f"drained{': ' + up.reason if up.reason else ''}"
    held = next((one for one in seen.reservations if one.active and node in one.nodes), None)
    if held is not None:
        alone = ", alone there: it has no partner" if held.mine and not held.flex else ""
        return f"in reservation {held.name} until {held.ended_utc[:16].replace('T', ' ')} UTC{alone}"
    if node in idle:
        return "idle, but a reservation was tested first: the next acceptance takes it"
    return "busy: not idle now"

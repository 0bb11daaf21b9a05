"""Write the scheduler commands to type after an acceptance, and run those that a person allowed.

    failed with most of its partners              drain it
    passed inside a reservation                   give it back to users; --apply only in the reservation for the test
    not covered: drained, down                    release it to the test: a reservation keeps users off, the drain ends
    not covered, inconclusive: in a reservation   let this user in, or let its jobs have partners outside

A scheduler runs nothing on a drained node, so hpcq cannot measure it, and no verdict ends a drain. hpcq does not drain
a node whose other pairs are fine: neither for a link nor for the uplink of its leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hpcq.scheduler.administration import OWN_REASON, Administration, Reservation, Upkeep
from hpcq.transport import Transport
from hpcq.verdict.acceptance.judge import Acceptance
from hpcq.verdict.words import Verdict


class Order(StrEnum):
    """What a command does. The scheduler writes the line for it."""

    DRAIN = "drain"
    GIVE_BACK = "give_back"
    RESERVE = "reserve"
    RESUME = "resume"
    ADMIT = "admit"
    OPEN_OUTWARD = "open_outward"


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the cluster's shell. by_apply: whether --apply runs it; a person decides on the others.

    reservation: the one that the order changes. reason: what a drain tells other people.
    """

    command: str
    why: str
    by_apply: bool
    order: Order
    nodes: tuple[str, ...] = ()
    reservation: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """What --apply did with commands.

    Three groups: (printed, run), (run, the scheduler's words against it), (printed, what had changed).
    """

    done: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    left_alone: tuple[tuple[str, str], ...] = ()


class Orders:
    """Writes commands for one cluster. It leaves out an order for which the scheduler has no line."""

    def __init__(self, administration: Administration | None, seen: Upkeep) -> None:
        self._administration = administration
        self._seen = seen

    def drain(self, nodes: Sequence[str], reason: str, why: str, *, by_apply: bool) -> list[Command]:
        """Take nodes out of service."""
        line = self._administration.drain(nodes, reason) if self._administration else None
        return self._of(line, why, Order.DRAIN, by_apply=by_apply, nodes=nodes, reason=reason)

    def give_back(self, standing: Reservation, nodes: Sequence[str], why: str) -> list[Command]:
        """Take nodes out of a reservation. --apply does this only in hpcq's own reservation."""
        line = self._administration.give_back(standing, nodes) if self._administration else None
        return self._of(line, why, Order.GIVE_BACK, by_apply=standing.own, nodes=nodes, reservation=standing.name)

    def resume(self, nodes: Sequence[str], why: str) -> list[Command]:
        """End drains."""
        line = self._administration.resume(nodes) if self._administration else None
        return self._of(line, why, Order.RESUME, nodes=nodes)

    def reserve(self, nodes: Sequence[str], standing: Reservation | None, why: str) -> list[Command]:
        """Keep users off nodes, then end the drains of these nodes."""
        if self._administration is None:
            return []
        reserve = self._administration.reserve(nodes, self._seen.user, standing)
        resume = self._administration.resume(nodes)
        line = f"{reserve} && {resume}" if reserve and resume else None
        return self._of(line, why, Order.RESERVE, nodes=nodes)

    def admit(self, reservation: str, why: str) -> list[Command]:
        """Let this user run in a reservation."""
        line = self._administration.admit(reservation, self._seen.user) if self._administration else None
        return self._of(line, why, Order.ADMIT, reservation=reservation)

    def open_outward(self, reservation: str, why: str) -> list[Command]:
        """Let jobs of a reservation also use nodes outside it."""
        line = self._administration.open_outward(reservation) if self._administration else None
        return self._of(line, why, Order.OPEN_OUTWARD, reservation=reservation)

    @staticmethod
    def _of(
        line: str | None,
        why: str,
        order: Order,
        *,
        by_apply: bool = False,
        nodes: Sequence[str] = (),
        reservation: str | None = None,
        reason: str = "",
    ) -> list[Command]:
        return [] if line is None else [Command(line, why, by_apply, order, tuple(nodes), reservation, reason)]


def commands_for(
    verdicts: Acceptance, seen: Upkeep, administration: Administration | None, inside: str | None = None
) -> list[Command]:
    """Drain what failed, give back what passed, release to the test what could not be measured.

    inside: the reservation in which the test ran.
    """
    orders = Orders(administration, seen)
    found = [
        command
        for one in verdicts.nodes
        if one.verdict is Verdict.FAILED and one.name in verdicts.drainable
        if one.name in seen.nodes and not seen.nodes[one.name].drained
        for command in orders.drain([one.name], f"{OWN_REASON} {one.reason}", f"{one.name} failed", by_apply=True)
    ]
    standing = next((one for one in seen.reservations if one.name == inside), None)
    if standing is not None:
        found += _after(orders, verdicts, standing)
    open_nodes = [one.name for one in verdicts.nodes if one.verdict is Verdict.NOT_COVERED and one.name in seen.nodes]
    found += [one for name in open_nodes for one in _admit(orders, name, seen)]
    found += _release(orders, [name for name in open_nodes if not _kept_out(name, seen)], seen)
    return list(dict.fromkeys(found))


def apply(transport: Transport, administration: Administration | None, commands: Sequence[Command]) -> Applied:
    """Run the allowed commands, each after a new query of the states. If the scheduler refuses one, run the others."""
    done, refused, left_alone = [], [], []
    for one in commands:
        if not one.by_apply or administration is None:
            continue
        line, changed = _line_now(administration, one)
        if line is None:
            left_alone.append((one.command, changed))
            continue
        result = transport.sh(line)
        if result.returncode == 0:
            done.append((one.command, line))
        else:
            refused.append((line, result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "failed"))
    return Applied(tuple(done), tuple(refused), tuple(left_alone))


def _line_now(administration: Administration, one: Command) -> tuple[str | None, str]:
    """Return the order as it must be given now; None, and why, if nothing of it is left to do."""
    seen = administration.look()
    if one.order is Order.DRAIN:
        free = [name for name in one.nodes if name in seen.nodes and not seen.nodes[name].drained]
        held = [name for name in one.nodes if name in seen.nodes and seen.nodes[name].drained]
        if free:
            return administration.drain(free, one.reason), ""
        words = [f"{name} is drained already: {seen.nodes[name].reason or 'without a reason'}" for name in held]
        return None, "; ".join(words) or "the scheduler does not say how its nodes are"
    standing = next((found for found in seen.reservations if found.name == one.reservation), None)
    if standing is None or not standing.own:
        return None, f"reservation {one.reservation} is gone"
    inside = [name for name in one.nodes if name in standing.nodes]
    if not inside:
        return None, f"{', '.join(one.nodes)} left reservation {one.reservation} meanwhile"
    return administration.give_back(standing, inside), ""


def _after(orders: Orders, verdicts: Acceptance, standing: Reservation) -> list[Command]:
    """After the test of a reservation: give back nodes that passed.

    If the fault is still open, admit partners from outside.
    """
    behind = {node for one in verdicts.groups if one.verdict is Verdict.FAILED for node in one.nodes}
    mine = [one for one in verdicts.nodes if one.name in standing.nodes]
    passed = [one.name for one in mine if one.verdict is Verdict.PASS and one.name not in behind]
    found: list[Command] = []
    if passed:
        why = f"{', '.join(passed)} passed: back to users before {standing.name} ends"
        found += orders.give_back(standing, passed, why)
    if not standing.flex and any(one.verdict is Verdict.INCONCLUSIVE for one in mine):
        why = f"to the test: lets it run the nodes of {standing.name} with good ones outside, to tell whose fault it is"
        found += orders.open_outward(standing.name, why)
    return found


def _holder(name: str, seen: Upkeep) -> Reservation | None:
    return next((one for one in seen.reservations if one.active and name in one.nodes), None)


def _kept_out(name: str, seen: Upkeep) -> bool:
    """Whether another reservation keeps this user off the node."""
    held = _holder(name, seen)
    return held is not None and not held.mine


def _admit(orders: Orders, name: str, seen: Upkeep) -> list[Command]:
    """Return what would give the test access to a node that a reservation holds."""
    held = _holder(name, seen)
    if held is None:
        return []
    if not held.mine:
        return orders.admit(held.name, f"to the test: lets {seen.user} run in {held.name}")
    if not held.flex:
        return orders.open_outward(held.name, f"to the test: lets it run {name} with partners outside of {held.name}")
    return []


def _release(orders: Orders, names: Sequence[str], seen: Upkeep) -> list[Command]:
    """Release nodes that are out of service to the test, not to users.

    Otherwise users would be the first to try them.
    """
    dead = [name for name in names if seen.nodes[name].drained or seen.nodes[name].down]
    silent = [name for name in dead if seen.nodes[name].down]
    later = f"; once {', '.join(silent)} answers" if silent else ""
    held = [name for name in dead if _holder(name, seen) is not None]
    free = [name for name in dead if name not in held]
    found: list[Command] = []
    if held:
        found += orders.resume(held, f"to the test: in a reservation already: {', '.join(held)}{later}")
    if free:
        own = next((one for one in seen.reservations if one.own), None)
        why = f"to the test, and not to users: {', '.join(free)}{later}"
        found += orders.reserve(free, own, why)
    return found

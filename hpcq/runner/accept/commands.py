"""What to type after an acceptance, in the scheduler's words; and typing what a person said may be typed.

    failed                                        drain it
    passed inside a reservation                   give it back to users; by --apply out of the one that released it to the test
    not covered: drained, down                    release it to the test: a reservation keeps users off, then the drain ends
    not covered, inconclusive: in a reservation   let this user in, or let its jobs have partners outside

A node that is drained was not measured, for a scheduler runs nothing there: so no verdict ends a drain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcq.scheduler.upkeep import (
    Reservation,
    Upkeep,
    admit_command,
    drain_command,
    flex_command,
    give_back_command,
    release_command,
    resume_command,
)
from hpcq.transport import Transport
from hpcq.verdict.acceptance import Acceptance
from hpcq.verdict.record import Thing, VerdictRecord
from hpcq.verdict.words import Verdict


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the cluster's shell. by_apply: whether --apply runs it; the others are a person's decision."""

    command: str
    why: str
    by_apply: bool


@dataclass(frozen=True, slots=True)
class Applied:
    """What --apply ran, and what the scheduler would not do: command -> its words."""

    done: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def commands_for(verdicts: Acceptance, seen: Upkeep, inside: str | None = None) -> list[Command]:
    """Drain what failed, give back what passed, release to the test what could not be measured. inside: where it was run."""
    found = [
        Command(drain_command(one.name, f"hpcq accept: {one.reason}"), f"{one.name} failed", True)
        for one in verdicts.nodes
        if one.verdict is Verdict.FAILED and one.name in seen.nodes and not seen.nodes[one.name].drained
    ]
    standing = next((one for one in seen.reservations if one.name == inside), None)
    if standing is not None:
        found += _after(verdicts, standing)
    open_nodes = [one.name for one in verdicts.nodes if one.verdict is Verdict.NOT_COVERED and one.name in seen.nodes]
    found += [one for name in open_nodes for one in _admit(name, seen)]
    found += _release([name for name in open_nodes if not _kept_out(name, seen)], seen)
    for thing in (*verdicts.groups, *verdicts.links):
        found += _of_thing(thing, seen)
    return list(dict.fromkeys(found))


def apply(transport: Transport, commands: Sequence[Command]) -> Applied:
    """Run those that may be run; one that is refused does not keep the others from being tried."""
    done, refused = [], []
    for one in commands:
        if not one.by_apply:
            continue
        result = transport.sh(one.command)
        if result.returncode == 0:
            done.append(one.command)
        else:
            refused.append((one.command, result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "failed"))
    return Applied(tuple(done), tuple(refused))


def _after(verdicts: Acceptance, standing: Reservation) -> list[Command]:
    """Of a reservation that was tested: give back who passed; where the fault is open, let partners outside tell."""
    behind = {node for one in verdicts.groups if one.verdict is Verdict.FAILED for node in one.nodes}
    mine = [one for one in verdicts.nodes if one.name in standing.nodes]
    passed = [one.name for one in mine if one.verdict is Verdict.PASS and one.name not in behind]
    found = []
    if passed:
        why = f"{', '.join(passed)} passed: back to users before {standing.name} ends"
        found.append(Command(give_back_command(standing, passed), why, standing.own))
    if not standing.flex and any(one.verdict is Verdict.INCONCLUSIVE for one in mine):
        why = f"to the test: lets it run the nodes of {standing.name} with good ones outside, to tell whose fault it is"
        found.append(Command(flex_command(standing.name), why, False))
    return found


def _holder(name: str, seen: Upkeep) -> Reservation | None:
    return next((one for one in seen.reservations if one.active and name in one.nodes), None)


def _kept_out(name: str, seen: Upkeep) -> bool:
    """Whether somebody's reservation does not let this user at the node."""
    held = _holder(name, seen)
    return held is not None and not held.mine


def _admit(name: str, seen: Upkeep) -> list[Command]:
    """What would let the test have a node that a reservation holds."""
    held = _holder(name, seen)
    if held is None:
        return []
    if not held.mine:
        return [Command(admit_command(held.name, seen.user), f"to the test: lets {seen.user} run in {held.name}", False)]
    if not held.flex:
        return [
            Command(flex_command(held.name), f"to the test: lets it run {name} with partners outside of {held.name}", False)
        ]
    return []


def _release(names: Sequence[str], seen: Upkeep) -> list[Command]:
    """Nodes that the scheduler gives to nobody, to the test and not to users, who would be the first to try them else."""
    dead = [name for name in names if seen.nodes[name].drained or seen.nodes[name].down]
    silent = [name for name in dead if seen.nodes[name].down]
    later = f"; once {', '.join(silent)} answers" if silent else ""
    held = [name for name in dead if _holder(name, seen) is not None]
    free = [name for name in dead if name not in held]
    found = []
    if held:
        found.append(Command(resume_command(held), f"to the test: in a reservation already: {', '.join(held)}{later}", False))
    if free:
        own = next((one for one in seen.reservations if one.own), None)
        why = f"to the test, and not to users: {', '.join(free)}{later}"
        found.append(Command(release_command(free, seen.user, own), why, False))
    return found


def _of_thing(one: VerdictRecord, seen: Upkeep) -> list[Command]:
    """A leaf keeps its nodes from users as a whole; of a link, one end less is enough."""
    if one.verdict is not Verdict.FAILED:
        return []
    free = [name for name in one.nodes if name in seen.nodes and not seen.nodes[name].drained]
    reason = f"hpcq accept: {one.kind} {one.name}: {one.reason}"
    if one.kind is Thing.GROUP and free:
        return [Command(drain_command(",".join(free), reason), f"all nodes of {one.name}, until it is repaired", False)]
    if one.kind is Thing.LINK and len(one.nodes) == 2 and len(free) == 2:
        return [Command(drain_command(free[-1], reason), f"either end of {one.name} will do: no job gets both", False)]
    return []

"""What to type after an acceptance, in the scheduler's words; and typing what a person said may be typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcq.scheduler.upkeep import Upkeep, admit_command, drain_command, resume_command
from hpcq.transport import Transport
from hpcq.verdict.acceptance import Acceptance, Judged
from hpcq.verdict.gates import Verdict


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


def commands_for(verdicts: Acceptance, seen: Upkeep) -> list[Command]:
    """Drain what failed, resume what passed, release to the test what nobody could measure."""
    found: list[Command] = []
    held_back = {node for one in verdicts.groups if one.verdict is Verdict.FAILED for node in one.members}
    for one in verdicts.nodes:
        node = seen.nodes.get(one.name)
        if node is None:
            continue
        if one.verdict is Verdict.FAILED and not node.drained:
            found.append(Command(drain_command(one.name, f"hpcq accept: {one.reason}"), f"{one.name} failed", True))
        elif one.verdict is Verdict.PASS and node.drained and one.name not in held_back:
            found.append(Command(resume_command(one.name), f"{one.name} passed", True))
        elif one.verdict is Verdict.NOT_COVERED:
            found += _release(one.name, seen)
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


def _release(name: str, seen: Upkeep) -> list[Command]:
    """What would let the test have a node."""
    node = seen.nodes[name]
    held = next((one for one in seen.reservations if one.active and name in one.nodes and not one.mine), None)
    if held is not None:
        return [Command(admit_command(held.name, seen.user), f"to the test: lets {seen.user} run in {held.name}", False)]
    if node.drained:
        return [Command(resume_command(name), f"to the test: {name} is drained, nothing runs there", False)]
    if node.down:
        return [Command(resume_command(name), f"to the test: {name} is down; once it answers, this brings it back", False)]
    return []


def _of_thing(one: Judged, seen: Upkeep) -> list[Command]:
    """A leaf keeps its nodes from users as a whole; of a link, one end less is enough."""
    if one.verdict is not Verdict.FAILED:
        return []
    free = [name for name in one.members if name in seen.nodes and not seen.nodes[name].drained]
    reason = f"hpcq accept: {one.kind} {one.name}: {one.reason}"
    if one.kind == "group" and free:
        return [Command(drain_command(",".join(free), reason), f"all nodes of {one.name}, until it is repaired", False)]
    if one.kind == "link" and len(one.members) == 2 and len(free) == 2:
        return [Command(drain_command(free[-1], reason), f"either end of {one.name} will do: no job gets both", False)]
    return []

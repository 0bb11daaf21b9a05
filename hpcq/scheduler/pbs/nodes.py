"""Read nodes: vnodes of `pbsnodes -av`, their comma lists of state words, and the state of a host whose vnodes differ.

    vnode pbn1[0]  free           \
    vnode pbn1[1]  job-exclusive  / host pbn1: busy, "free + job-exclusive"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcq.scheduler.pbs.records import Record
from hpcq.scheduler.types import NodeCondition, NodeState

#: Source: ND_* of src/include/pbs_internal.h. hpcq reports an unknown word and does not guess.
_STATES = {
    "free": NodeCondition.IDLE,
    "job-busy": NodeCondition.BUSY,
    "job-exclusive": NodeCondition.BUSY,
    "job-sharing": NodeCondition.BUSY,
    "busy": NodeCondition.BUSY,
    "resv-exclusive": NodeCondition.RESERVED,
    "maintenance": NodeCondition.MAINTENANCE,
    "offline": NodeCondition.DRAINED,
    "offline_by_mom": NodeCondition.DRAINED,
    "down": NodeCondition.DOWN,
    "state-unknown": NodeCondition.DOWN,
    "Stale": NodeCondition.DOWN,
    "initializing": NodeCondition.DOWN,
    "unresolvable": NodeCondition.DOWN,
    "provisioning": NodeCondition.DOWN,
    "wait-provisioning": NodeCondition.DOWN,
    "sleep": NodeCondition.POWERED_DOWN,
    "powered-off": NodeCondition.POWERED_DOWN,
    "powered-down": NodeCondition.POWERED_DOWN,
}
#: Of several words, and of several vnodes, the worst determines the host's condition.
_WORST_FIRST = (
    NodeCondition.UNKNOWN,
    NodeCondition.DOWN,
    NodeCondition.POWERED_DOWN,
    NodeCondition.DRAINED,
    NodeCondition.MAINTENANCE,
    NodeCondition.BUSY,
    NodeCondition.RESERVED,
    NodeCondition.PLANNED,
    NodeCondition.IDLE,
)
_FEATURES_LEFT_OUT = {"host", "vnode", "mem", "ncpus", "arch", "vmem", "hbmem", "accelerator_memory", "naccelerators"}


@dataclass(frozen=True, slots=True)
class Vnode:
    """One vnode. reserved_by: ids of the reservations that hold a part of it. jobs: ids without slots, each once."""

    name: str
    host: str
    mom: str
    condition: NodeCondition
    words: str
    comment: str
    jobs: tuple[str, ...]
    reserved_by: tuple[str, ...]
    queue: str
    features: tuple[str, ...]
    state_changed_s: int | None


def read_vnode(record: Record) -> Vnode:
    """Read one record of pbsnodes. An unknown node has no attributes, and its condition is unknown."""
    available = record.below("resources_available")
    words = record.get("state")
    return Vnode(
        name=record.name,
        host=available.get("host") or record.name,
        mom=record.get("Mom"),
        condition=condition(words),
        words=words,
        comment=record.get("comment"),
        jobs=tuple(dict.fromkeys(one.strip().partition("/")[0] for one in record.get("jobs").split(",") if one.strip())),
        reserved_by=tuple(one.strip() for one in record.get("resv").split(",") if one.strip()),
        queue=record.get("queue"),
        features=tuple(sorted(f"{name}={value}" for name, value in available.items() if name not in _FEATURES_LEFT_OUT)),
        state_changed_s=record.number("last_state_change_time"),
    )


def condition(words: str) -> NodeCondition:
    """Return the condition for a comma list such as `offline,job-busy`: the worst of its words."""
    return _worst(_STATES.get(word.strip(), NodeCondition.UNKNOWN) for word in words.split(","))


def hosts_of(vnodes: Sequence[Vnode], queue: str | None) -> list[NodeState]:
    """Return the hosts that jobs of a queue may use, one entry per host. queue: None if it does not matter.

    If vnodes are bound to the queue, only those are its nodes; else all vnodes that are bound to no queue.
    """
    bound = {vnode.queue for vnode in vnodes if vnode.queue}
    wanted = queue if queue in bound else ""
    return list(_hosts(vnode for vnode in vnodes if vnode.queue == wanted).values())


def by_name(vnodes: Sequence[Vnode]) -> dict[str, NodeState]:
    """Return every host of every queue, by its own name and by those of its vnodes: a select may name either."""
    hosts = _hosts(vnodes)
    return {vnode.name: hosts[vnode.host] for vnode in vnodes if vnode.host} | hosts


def _hosts(vnodes: Iterable[Vnode]) -> dict[str, NodeState]:
    found: dict[str, list[Vnode]] = {}
    for vnode in vnodes:
        if vnode.host:
            found.setdefault(vnode.host, []).append(vnode)
    return {host: _host(host, parts) for host, parts in found.items()}


def _host(host: str, parts: Sequence[Vnode]) -> NodeState:
    words = list(dict.fromkeys(part.words for part in parts))
    found = _worst(part.condition for part in parts)
    # A host that is partly in use counts as in use: hpcq takes whole hosts.
    if found is NodeCondition.IDLE and any(part.jobs for part in parts):
        found = NodeCondition.BUSY
    comments = list(dict.fromkeys(part.comment for part in parts if part.comment))
    return NodeState(
        node=host,
        condition=found,
        native_state=" + ".join(words),
        partitions=tuple(dict.fromkeys(part.queue for part in parts if part.queue)),
        features=tuple(sorted({feature for part in parts for feature in part.features})),
        reason="; ".join(comments) or None,
    )


def _worst(conditions: Iterable[NodeCondition]) -> NodeCondition:
    present = set(conditions)
    return next((one for one in _WORST_FIRST if one in present), NodeCondition.UNKNOWN)

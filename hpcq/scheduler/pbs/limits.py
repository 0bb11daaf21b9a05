"""Read what a queue allows one job of this user, and how many jobs this user may have.
The records come from `qstat -Qf` and `qstat -Bf`.

Entity limits are lists such as `[u:PBS_GENERIC=10],[u:anna=50],[o:PBS_ALL=100]`. The user's own entry overrides the
generic one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcq.scheduler.limits import NO_LIMITS, Bound, JobLimits
from hpcq.scheduler.pbs.records import Record

_ENTITY = re.compile(r"([ugop]):([^=\]]+)=([0-9]{1,18})(?=\])")
_TIME = re.compile(r"[0-9]{1,18}(:[0-9]{1,18}){0,2}")
_COUNT = re.compile(r"[0-9]{1,18}")
_TRUE = "True"


def read_job_limits(records: Sequence[Record], queue: str | None, *, user: str, groups: Sequence[str]) -> JobLimits:
    """Return the limits of a queue, or of the server's default queue; no limits if the server reports none."""
    queues = {record.name: record for record in records if record.kind == "Queue"}
    server = next((record for record in records if record.kind == "Server"), Record("Server", ""))
    name = queue or server.get("default_queue")
    if not queues:
        return NO_LIMITS
    if name not in queues:
        words = f"queue {name}: not there: there are {', '.join(queues)}" if name else "the server has no default queue"
        return JobLimits(refusals=(words,))
    found = queues[name]
    sources = [(found, f"of queue {name}"), (server, "of the server")]
    least = _tightest(sources, "resources_min.nodect", _count, most=True)
    return JobLimits(
        partition=name,
        state=_state(found, server),
        nodes_at_most=_tightest(sources, "resources_max.nodect", _count),
        nodes_at_least=least if least is not None and least.value > 1 else None,
        walltime_at_most_s=_tightest(sources, "resources_max.walltime", seconds),
        refusals=tuple(_refusals(found, name, user, groups)),
    )


def submit_limit(records: Sequence[Record], queue: str | None, user: str) -> int | None:
    """Return how many jobs this user may have queued and running in the queue; None if there is no limit."""
    server = next((record for record in records if record.kind == "Server"), Record("Server", ""))
    name = queue or server.get("default_queue")
    counted = [record for record in records if record.kind == "Server" or record.name == name]
    found = [_entity_limit(record.get("max_queued"), user) for record in counted]
    return min((one for one in found if one is not None), default=None)


def seconds(text: str) -> int | None:
    """Convert `02:00:00`, `10:00` or `90`; None for text that is not a time."""
    if not _TIME.fullmatch(text):
        return None
    total = 0
    for part in text.split(":"):
        total = 60 * total + int(part)
    return total


def _count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def _tightest(sources: Sequence[tuple[Record, str]], name: str, read, *, most: bool = False) -> Bound | None:  # type: ignore[no-untyped-def]
    bounds = [Bound(value, f"{name} {where}") for record, where in sources if (value := read(record.get(name))) is not None]
    choose = max if most else min
    return choose(bounds, key=lambda bound: bound.value, default=None)


def _state(queue: Record, server: Record) -> str:
    """Return the state in hpcq's words: UP, DOWN (takes jobs, starts none), DRAIN (takes none), INACTIVE (neither)."""
    enabled = queue.get("enabled") == _TRUE
    started = queue.get("started") == _TRUE and server.get("scheduling", _TRUE) == _TRUE
    return {(True, True): "UP", (True, False): "DOWN", (False, True): "DRAIN", (False, False): "INACTIVE"}[enabled, started]


def _refusals(queue: Record, name: str, user: str, groups: Sequence[str]) -> list[str]:
    said = []
    if queue.get("acl_user_enable") == _TRUE and not _listed([user], queue.get("acl_users")):
        said.append(f"queue {name}: acl_users={queue.get('acl_users')}: {user} is not among them")
    if queue.get("acl_group_enable") == _TRUE and not _listed(groups, queue.get("acl_groups")):
        said.append(f"queue {name}: acl_groups={queue.get('acl_groups')}: {', '.join(groups)} are not among them")
    if queue.get("queue_type") == "Route":
        said.append(f"queue {name}: queue_type=Route: it passes jobs on: name the queue that runs them")
    return said


def _listed(names: Sequence[str], acl: str) -> bool:
    """Whether an access list such as `anna@*,-bert@*` contains one of these names."""
    entries = [entry.strip().partition("@")[0] for entry in acl.split(",")]
    denied = {entry[1:] for entry in entries if entry.startswith("-")}
    allowed = {entry.removeprefix("+") for entry in entries if not entry.startswith("-")}
    return any((name in allowed or "*" in allowed) and name not in denied for name in names)


def _entity_limit(text: str, user: str) -> int | None:
    found = {(kind, name): int(count) for kind, name, count in _ENTITY.findall(text)}
    own = found.get(("u", user), found.get(("u", "PBS_GENERIC")))
    everybody = found.get(("o", "PBS_ALL"))
    return min((one for one in (own, everybody) if one is not None), default=None)

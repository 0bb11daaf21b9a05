"""Read what a queue gives jobs of this user: its limits, where it passes jobs on to, and which hosts are its own.

The records come from `qstat -Qf` and `qstat -Bf`.

    max_queued                 [u:PBS_GENERIC=10], [u:anna=50], [g:staff=100], [p:PBS_GENERIC=20], [o:PBS_ALL=500]
                               of a user, group or project its own entry overrides the generic one
    queue_type = Route         jobs go on to the first of route_destinations that takes them; ids stay the same
    from_route_only            takes jobs from such a queue only
    default_chunk.Qlist        which hosts are the queue's, where no vnode is bound to it by `queue`
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpcq.scheduler.base import NO_LIMITS, Bound, JobLimits
from hpcq.scheduler.pbs.nodes import Listed, Vnode

_ENTITY = re.compile(r"([ugop]):\s*\"?([^=\]\"]+?)\"?\s*=\s*([0-9]{1,18})\s*(?=\])")
_TIME = re.compile(r"[0-9]{1,18}(:[0-9]{1,18}){0,2}")
_COUNT = re.compile(r"[0-9]{1,18}")
_TRUE = "True"
_ROUTE = "Route"
#: The project of jobs that name none. Source: PBS_DEFAULT_PROJECT in src/include/job.h.
NO_PROJECT = "_pbs_project_default"
#: A number or an amount of memory: how much of a host a chunk gets, not which host.
_AMOUNT = re.compile(r"[0-9]+([.][0-9]+)?([kmgtp]?[bw])?", re.IGNORECASE)
#: Limits of a user's jobs together that no single job may exceed either.
_TOGETHER = ("max_queued_res", "max_run_res")


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose limits they are. groups: the first is the one that PBS counts."""

    user: str
    groups: Sequence[str] = ()
    project: str = NO_PROJECT


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a server, by name."""

    server: Listed = field(default_factory=lambda: Listed("Server", ""))
    by_name: dict[str, Listed] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Listed]) -> Queues:
        """Take the server and the queues out of a listing."""
        server = next((one for one in records if one.kind == "Server"), Listed("Server", ""))
        return cls(server, {one.name: one for one in records if one.kind == "Queue"})

    def named(self, queue: str | None) -> str:
        """Return the queue of jobs that name this one, or none; "" if nobody says."""
        return queue or self.server.get("default_queue")

    def routes(self, queue: str) -> bool:
        """Whether it passes jobs on."""
        return queue in self.by_name and self.by_name[queue].get("queue_type") == _ROUTE

    def behind(self, queue: str) -> list[str]:
        """Return the queues that run its jobs: itself, or those that it passes them on to, through others too."""
        found, seen, waiting = [], {queue}, [queue]
        while waiting:
            name = waiting.pop(0)
            if not self.routes(name):
                found.append(name)
                continue
            # A destination on another server (small@other) is out of reach: its jobs would leave this one's listings.
            named = [one.strip() for one in self.by_name[name].get("route_destinations").split(",")]
            new = [one for one in named if one in self.by_name and one not in seen]
            seen.update(new)
            waiting += new
        return found

    def group_keys(self, queue: str | None) -> list[str]:
        """Return the resources by which placement sets of a queue are made: its own, or the server's."""
        name = self.named(queue)
        own = self.by_name[name].get("node_group_key") if name in self.by_name else ""
        return [one.strip(" \"'") for one in (own or self.server.get("node_group_key")).split(",") if one.strip()]

    def unspanned(self, queue: str | None, place: str, schedulers: Sequence[Listed]) -> tuple[list[str], bool]:
        """Return the resources that make the sets which no job of a queue may span, and whether only their words make sets.

        No resources if jobs may.

        place: what the cluster file writes there. schedulers: of `qmgr -c 'list sched'`; each serves the queues of some
        partitions, and the default one all others.
        """
        name = self.named(queue)
        partition = self._partition(name)
        serving = [one for one in schedulers if partition and partition in one.get("partition").split(",")]
        serving = serving or [one for one in schedulers if one.name == "default"]
        explicit = any(one.get("only_explicit_psets") == _TRUE for one in serving)
        grouped = [word.removeprefix("group=") for word in place.split(":") if word.startswith("group=")]
        kept = self.server.get("node_group_enable") == _TRUE and any(one.get("do_not_span_psets") == _TRUE for one in serving)
        return grouped or (self.group_keys(queue) if kept else []), explicit

    def may_run(self, queue: str, vnodes: Iterable[Vnode], select: str = "") -> Callable[[Vnode], bool]:
        """Return a test of a vnode: whether jobs of a queue may run there, or of one that it passes them on to.

        vnodes: all there are: some may be bound to a queue (`queue` of pbsnodes). select: what the cluster file adds.
        """
        bound = {vnode.queue for vnode in vnodes if vnode.queue}
        behind = self.behind(queue)
        tests = [(one if one in bound else "", self._partition(one), self._words(one, select)) for one in behind]

        def may(vnode: Vnode) -> bool:
            return any(
                (vnode.queue, vnode.partition) == (owner, partition)
                and all(_is_among(value, vnode.available.get(name, "")) for name, value in words.items())
                for owner, partition, words in tests
            )

        return may

    def _partition(self, queue: str) -> str:
        return self.by_name[queue].get("partition") if queue in self.by_name else ""

    def _words(self, queue: str, select: str) -> dict[str, str]:
        """Return what each chunk of a queue asks of its host in words, not in amounts."""
        defaults = self.server.below("default_chunk")
        if queue in self.by_name:
            defaults = {**defaults, **self.by_name[queue].below("default_chunk")}
        wanted = {**defaults, **dict(word.split("=", 1) for word in select.split(":") if "=" in word)}
        return {name: value for name, value in wanted.items() if name != "host" and not _AMOUNT.fullmatch(value)}


def _is_among(word: str, there: str) -> bool:
    """Whether a host has a word that a chunk asks for: one of several, or yes and no."""
    if word.lower() in {"false", "f", "n", "no"}:
        return there.lower() in {"", "false"}
    if word.lower() in {"true", "t", "y", "yes"}:
        return there.lower() == "true"
    return word.strip("\"'") in [one.strip() for one in there.split(",")]


def read_job_limits(
    records: Sequence[Listed], queue: str | None, asker: Asker, cpus: tuple[int, int] | None = None
) -> JobLimits:
    """Return the limits of a queue, or of the server's default queue; no limits if the server reports none.

    Of a queue that passes jobs on: its own, and the widest of those that take them. cpus: how many processors a job
    gets on a node at least and at most; None if that is not known: limits of processors then count nothing.
    """
    site = Queues.of(records)
    name = site.named(queue)
    if not site.by_name:
        return NO_LIMITS
    if name not in site.by_name:
        words = f"queue {name}: not there: there are {', '.join(site.by_name)}" if name else "the server has no default queue"
        return JobLimits(refusals=(words,))
    own = _limits(site, name, asker, cpus)
    if not site.routes(name):
        return own
    behind = [_limits(site, one, asker, cpus, routed=True) for one in site.behind(name)]
    taking = [one for one in behind if not one.refusals]
    if not taking:
        words = f"queue {name}: queue_type=Route: none of its route_destinations takes jobs of {asker.user}"
        return replace(own, refusals=(*own.refusals, words, *(word for one in behind for word in one.refusals)))
    up = any(one.state == "UP" for one in taking)
    return replace(
        own,
        state=own.state if up or own.state != "UP" else taking[0].state,
        max_nodes=_both(own.max_nodes, _widest(one.max_nodes for one in taking), min),
        nodes_at_least=_both(own.nodes_at_least, _widest((one.nodes_at_least for one in taking), least=True), max),
        max_walltime_s=_both(own.max_walltime_s, _widest(one.max_walltime_s for one in taking), min),
        min_walltime_s=_both(own.min_walltime_s, _widest((one.min_walltime_s for one in taking), least=True), max),
    )


def _limits(site: Queues, name: str, asker: Asker, cpus: tuple[int, int] | None, *, routed: bool = False) -> JobLimits:
    found = site.by_name[name]
    sources = [(found, f"of queue {name}"), (site.server, "of the server")]
    most = _bounds(sources, "resources_max.nodect", _count)
    least = _bounds(sources, "resources_min.nodect", _count)
    for together in _TOGETHER:
        most += _bounds(sources, f"{together}.nodect", lambda text: _entity_limit(text, asker))
    if cpus is not None:
        fewest, largest = cpus
        of_cpus = _bounds(sources, "resources_max.ncpus", _count)
        for together in _TOGETHER:
            of_cpus += _bounds(sources, f"{together}.ncpus", lambda text: _entity_limit(text, asker))
        most += [_nodes(bound, bound.value // largest, largest) for bound in of_cpus]
        least += [_nodes(one, math.ceil(one.value / fewest), fewest) for one in _bounds(sources, "resources_min.ncpus", _count)]
    nodes_at_least = max(least, key=_value, default=None)
    return JobLimits(
        partition=name,
        state=_state(found, site.server),
        max_nodes=min(most, key=_value, default=None),
        nodes_at_least=nodes_at_least if nodes_at_least is not None and nodes_at_least.value > 1 else None,
        max_walltime_s=min(_bounds(sources, "resources_max.walltime", seconds), key=_value, default=None),
        min_walltime_s=max(_bounds(sources, "resources_min.walltime", seconds), key=_value, default=None),
        refusals=tuple(_refusals(site, found, asker, routed=routed)),
    )


def submit_limit(records: Sequence[Listed], queue: str | None, asker: Asker) -> int | None:
    """Return how many jobs this user may have queued and running in the queue; None if there is no limit.

    Those that a queue passes on to count nothing here: what they do not take waits in the queue that passes on.
    """
    site = Queues.of(records)
    counted = [site.server, *(record for record in site.by_name.values() if record.name == site.named(queue))]
    found = [_entity_limit(record.get("max_queued"), asker) for record in counted]
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


def _value(bound: Bound) -> int:
    return bound.value


def _bounds(sources: Sequence[tuple[Listed, str]], name: str, read: Callable[[str], int | None]) -> list[Bound]:
    return [Bound(value, f"{name} {where}") for record, where in sources if (value := read(record.get(name))) is not None]


def _nodes(bound: Bound, count: int, cpus: int) -> Bound:
    """A limit of processors as one of nodes."""
    return Bound(count, f"{bound.source}, {bound.value}, in nodes of {cpus} CPUs")


def _widest(bounds, *, least: bool = False) -> Bound | None:  # type: ignore[no-untyped-def]
    """Of several queues one of which takes the job: no bound if one has none."""
    found = list(bounds)
    return None if None in found else (min if least else max)(found, key=_value)


def _both(own: Bound | None, other: Bound | None, choose: Callable[..., Bound]) -> Bound | None:
    found = [one for one in (own, other) if one is not None]
    return choose(found, key=_value) if found else None


def _state(queue: Listed, server: Listed) -> str:
    """Return the state in hpcq's words: UP, DOWN (takes jobs, starts none), DRAIN (takes none), INACTIVE (neither)."""
    enabled = queue.get("enabled") == _TRUE
    started = queue.get("started") == _TRUE and server.get("scheduling", _TRUE) == _TRUE
    return {(True, True): "UP", (True, False): "DOWN", (False, True): "DRAIN", (False, False): "INACTIVE"}[enabled, started]


def _refusals(site: Queues, queue: Listed, asker: Asker, *, routed: bool) -> list[str]:
    said, name = [], queue.name
    if queue.get("acl_user_enable") == _TRUE and not _listed([asker.user], queue.get("acl_users")):
        said.append(f"queue {name}: acl_users={queue.get('acl_users')}: {asker.user} is not among them")
    if queue.get("acl_group_enable") == _TRUE and not _listed(asker.groups, queue.get("acl_groups")):
        said.append(f"queue {name}: acl_groups={queue.get('acl_groups')}: {', '.join(asker.groups)} are not among them")
    if queue.get("from_route_only") == _TRUE and not routed:
        routes = [one for one in site.by_name if site.routes(one) and name in site.behind(one)]
        words = f"write `queue: {routes[0]}`" if routes else "no queue here passes jobs on to it"
        said.append(f"queue {name}: from_route_only: it takes jobs from other queues only: {words}")
    return said


def _listed(names: Sequence[str], acl: str) -> bool:
    """Whether an access list such as `anna@*,-bert@*` contains one of these names."""
    entries = [entry.strip().partition("@")[0] for entry in acl.split(",")]
    denied = {entry[1:] for entry in entries if entry.startswith("-")}
    allowed = {entry.removeprefix("+") for entry in entries if not entry.startswith("-")}
    return any((name in allowed or "*" in allowed) and name not in denied for name in names)


def _entity_limit(text: str, asker: Asker) -> int | None:
    found = {(kind, name): int(count) for kind, name, count in _ENTITY.findall(text)}
    named = (("u", asker.user), ("g", next(iter(asker.groups), "")), ("p", asker.project))
    own = [found.get((kind, name), found.get((kind, "PBS_GENERIC"))) for kind, name in named]
    return min((one for one in [*own, found.get(("o", "PBS_ALL"))] if one is not None), default=None)

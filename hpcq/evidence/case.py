"""One result in the form that rules read: what was moved, in which direction, and one end beside the other.

Case   the whole result: both ends if present, what each end sent through and received from its sockets
Side   one end of it: `here`, `there`, whether it sends
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from hpcq.clock import DriverTimes
from hpcq.evidence import names
from hpcq.kernels import message_bytes

# ----------------------------------------------------------------------------------------------------------------------
# Input and output of judging.
#
#     load: one measured line + facts of both nodes -> JudgedResult -> judge(...) -> Judgement -> result_finding, result
#
# Gathering and judging are separate: rules never see the database, and loading knows no rule. The caller of `load_run`
# passes the judge.


class CrossedInterface(StrEnum):
    """Whether the bytes of a measurement went through the interface under test."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for people: its name, its message when it applies, what to try, and the source of the knowledge."""

    name: str
    meaning: str
    advice: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that applied; `end` is client, server or None (both or neither)."""

    rule: Rule
    end: str | None
    message: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """The input of a judge: the kernel's whole line and the facts of both nodes, if present.

    nodes: client and server as the plan calls them. A program only knows its host's name, which two local nodes share.
    driver_times: between which moments the driver's clock says that it was measured; None if no driver was there.
    """

    line: Mapping[str, Any]
    parameters: Mapping[str, Any]
    client_facts: Mapping[str, Any] | None
    server_facts: Mapping[str, Any] | None
    nodes: tuple[str, str] | None = None
    driver_times: DriverTimes | None = None


@dataclass(frozen=True, slots=True)
class EvidenceVerdict:
    """The outcome. `invalid_reason` makes the result invalid."""

    findings: tuple[Finding, ...] = ()
    disturbed: bool = False
    crossed_interface: CrossedInterface = CrossedInterface.UNKNOWN
    invalid_reason: str | None = None
    rules_version: int = 0
    """Version of the rules that judged (hpcq.evidence.rules.VERSION); 0: not judged."""


Judge = Callable[[JudgedResult], EvidenceVerdict]


def no_judge(_: JudgedResult) -> EvidenceVerdict:
    """A judge that finds nothing; loading uses it if the caller passes none."""
    return EvidenceVerdict()


# ----------------------------------------------------------------------------------------------------------------------
# One end's evidence and facts as rules read them: only whole numbers, absent means zero, unavailable means None.
#
#     End.count(names)      0 if the counter did not move, None if its source could not be read
#     End.matching(regex)   every counter that fits and moved
#     End.fact("mtu_bytes") None if the node's facts lack it
#
# Values without the promised form are dropped here, so no rule sees them.


#: Patterns that rules ask for, and the sources that can match them.
_REGEXES: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {}

#: Clock ticks of /proc/stat per second: USER_HZ is 100 on every architecture that clusters have (proc_stat(5)).
TICKS_A_SECOND = 100
#: Largest gap between two readings of one clock: some instructions and perhaps a preemption.
SAME_START_US = 1000


@dataclass(frozen=True)
class EndEvidence:
    """One end of a measurement: `name` is client or server."""

    name: str
    node: str
    interface: str
    address: str
    boot_id: str
    cpu_index: int | None
    interval_ns: int
    before_utc: str
    after_utc: str
    before_cost_ns: int
    counters: Mapping[str, int]
    gauges: Mapping[str, tuple[float, float]]
    unavailable: Mapping[str, str]
    rdma_bytes: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        """Time between the snapshots; 0 if it is not known."""
        return self.interval_ns / 1e9

    def readable(self, counter: str) -> bool:
        """Whether the counter's source was read in both snapshots."""
        return not any(counter == source or counter.startswith(source + ".") for source in self.unavailable)

    def count(self, counters: Iterable[str] | str) -> int | None:
        """The sum of counters; None if none of them could be read."""
        wanted = [self.named(counter) for counter in ((counters,) if isinstance(counters, str) else counters)]
        readable = [counter for counter in wanted if self.readable(counter)]
        return sum(self.counters.get(counter, 0) for counter in readable) if readable else None

    def matching(self, pattern: str) -> dict[str, int]:
        """Counters whose whole name matches the pattern.

        In it, {interface} is the interface under test, {rdma} its RDMA port, {cpu} the CPU that this end ran on.
        """
        text = pattern.replace("{interface}", re.escape(self.interface)).replace("{cpu}", str(self.cpu_index))
        text = text.replace("{rdma}", self.rdma_pattern)
        regex, sources = _REGEXES.get(text) or _REGEXES.setdefault(text, (re.compile(text), _sources(pattern)))
        return {
            name: self.counters[name] for source in sources for name in self.by_source.get(source, ()) if regex.fullmatch(name)
        }

    @cached_property
    def rdma_pattern(self) -> str:
        """The RDMA port of the interface under test, from the node's facts; without them, the ports that moved data."""
        port = self.facts.get(f"rdma.{self.interface}.port")
        if isinstance(port, str) and port:
            return re.escape(port)
        moved = {
            match[1] for name in self.counters if (match := re.fullmatch(r"infiniband\.(.+\.\d+)\.port_\w+_data_bytes", name))
        }
        return "(" + "|".join(re.escape(one) for one in sorted(moved)) + ")" if moved else "(?!)"

    @cached_property
    def by_source(self) -> dict[str, list[str]]:
        """Names of the counters that moved, by their first word."""
        found: dict[str, list[str]] = {}
        for name in self.counters:
            found.setdefault(name.partition(".")[0], []).append(name)
        return found

    def gauge(self, name: str) -> tuple[float, float] | None:
        """Both readings of a gauge."""
        return self.gauges.get(self.named(name))

    def fact(self, key: str) -> Any:
        """A fact by its key in names.FACTS, or None."""
        return next((self.facts[name] for one, _ in names.FACTS[key] if (name := self.named(one)) in self.facts), None)

    def number(self, key: str) -> float | None:
        """A fact that is a number, in the unit of its key, or None."""
        for one, factor in names.FACTS[key]:
            value = self.facts.get(self.named(one))
            if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
                value = float(value)
            if isinstance(value, (int, float)) and _numbers([value]):
                return value * factor
        return None

    def named(self, name: str) -> str:
        """A name of the table with this end's interface and CPU filled in."""
        return name.replace("{interface}", self.interface).replace("{cpu}", str(self.cpu_index))

    @cached_property
    def ticks(self) -> dict[str, dict[str, int]]:
        """Ticks by CPU (`cpu` is all of them) and mode; empty if they could not be read."""
        found: dict[str, dict[str, int]] = {}
        for name, delta in self.matching(names.TICKS).items():
            _, cpu, mode = name.split(".")
            found.setdefault(cpu, {})[mode.removesuffix("_ticks")] = delta
        return found


def read_end(name: str, evidence: object, facts: Mapping[str, Any] | None) -> EndEvidence | None:
    """An end of a result line; None if the line lacks it."""
    if not isinstance(evidence, Mapping) or not evidence:
        return None
    gauges = {}
    for gauge, value in _mapping(evidence.get("gauges")).items():
        pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
        if all(_is_number(one) for one in pair):
            gauges[gauge] = (float(pair[0]), float(pair[1]))
    costs = evidence.get("snapshot_cost_ns")
    return EndEvidence(
        name=name,
        node=_text(evidence.get("scheduler_node")) or _text(evidence.get("node")) or name,
        interface=_text(evidence.get("interface")),
        address=_text(evidence.get("address")),
        boot_id=_text(evidence.get("boot_id")),
        cpu_index=cpu if (cpu := _whole(evidence.get("cpu_index"))) is not None and cpu >= 0 else None,
        interval_ns=max(0, _whole(evidence.get("interval_ns")) or 0),
        before_utc=_text(evidence.get("before_utc")),
        after_utc=_text(evidence.get("after_utc")),
        before_cost_ns=_whole(costs[0]) or 0 if isinstance(costs, list) and costs else 0,
        counters={
            counter: delta
            for counter, value in _mapping(evidence.get("counters")).items()
            if (delta := _whole(value)) is not None and delta > 0
        },
        gauges=gauges,
        unavailable={source: str(reason) for source, reason in _mapping(evidence.get("unavailable")).items()},
        rdma_bytes={
            way: moved
            for way, value in _mapping(evidence.get("rdma_bytes")).items()
            if (moved := _whole(value)) is not None and moved > 0
        },
        facts=flat(facts or {}),
    )


def same_kernel(client: EndEvidence, server: EndEvidence) -> bool:
    """Whether both ends ran on one operating system: two names of one machine, or two of its namespaces.

    Counters of the whole machine then contain both ends and cannot separate them. A lab may give each node its own boot
    id, so the start of the monotonic clock counts too: no two systems start within a millisecond.
    """
    if client.boot_id and client.boot_id == server.boot_id:
        return True
    here, there = client.gauge(names.WALL_MINUS_MONOTONIC), server.gauge(names.WALL_MINUS_MONOTONIC)
    if here is None or there is None or abs(here[0] - there[0]) > SAME_START_US:
        return False
    memory = client.gauge(names.MEMORY_TOTAL)
    return memory is not None and memory == server.gauge(names.MEMORY_TOTAL)


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts as dotted names, as in the database; an object in a list is addressed by its name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found.update(flat(value, dotted + "."))
        elif isinstance(value, list) and any(isinstance(one, (Mapping, list)) for one in value):
            named = {str(one.get("name", index) if isinstance(one, Mapping) else index): one for index, one in enumerate(value)}
            found.update(flat(named, dotted + "."))
        elif isinstance(value, list):
            found[dotted] = " ".join(str(one) for one in value)
        elif value is not None:
            found[dotted] = value
    return found


def _sources(pattern: str) -> tuple[str, ...]:
    """The first words of a pattern's alternatives: the part before an escaped dot at their beginning."""
    return tuple(dict.fromkeys(re.findall(r"(?:^|\|)([a-z0-9_]+)\\\.", pattern)))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# ----------------------------------------------------------------------------------------------------------------------
# How much the ends of hpcq's own MPI kernels, and of path_probe, send at least: enough for a proof of crossing.
#
# Libraries choose their algorithms, so a collective has a lower bound: what a rank gives to others has to leave it.


#: By operation, without the `i` of the non-blocking ones: blocks that rank 0 and rank 1 send at least; `n`: one per other
#: rank.
_BLOCKS: Mapping[str, tuple[str, str]] = {
    "bcast": ("1", "0"),
    "scatter": ("n", "0"),
    "scatterv": ("n", "0"),
    "scan": ("1", "0"),
    "reduce": ("0", "1"),
    "gather": ("0", "1"),
    "gatherv": ("0", "1"),
    "incast": ("0", "1"),
    "allreduce": ("1", "1"),
    "allgather": ("1", "1"),
    "allgatherv": ("1", "1"),
    "reduce_scatter": ("n", "n"),
    "alltoall": ("n", "n"),
    "alltoallv": ("n", "n"),
}
#: Where kernels tell it themselves.
_TOLD = ("client_moved_bytes", "server_moved_bytes")
#: Of path_probe: what the server answered came from the client.
_ANSWERED = "answered_bytes"
_WAYS = {"client_to_server": (1, 0), "server_to_client": (0, 1), "both": (1, 1)}


def sent_at_least_bytes(kernel: str, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    """The bytes that the client (rank 0) and the server (rank 1) sent at least; empty if nothing tells."""
    if _ANSWERED in metrics:
        return metrics[_ANSWERED], 0.0
    told = tuple(metrics[name] for name in _TOLD if name in metrics)
    return told if len(told) == len(_TOLD) else _of_messages(kernel, parameters, metrics)


def _of_messages(kernel: str, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    size, count = parameters.get("message_bytes"), metrics.get("operation_count")
    if not isinstance(size, (int, float)) or count is None:
        return ()
    each = count * size
    if kernel == "mpi_pingping":
        return each, each
    if kernel == "mpi_stream":
        there, back = _WAYS.get(str(parameters.get("direction")), (0, 0))
        messages = each * float(parameters.get("window_count") or 0)
        return there * messages, back * messages
    if kernel == "mpi_one_sided":
        return (0.0, each) if parameters.get("operation") == "get" else (each, 0.0)
    return _of_collective(each, parameters, metrics) if kernel == "mpi_collective" else ()


def _of_collective(each: float, parameters: Mapping[str, Any], metrics: Mapping[str, float]) -> tuple[float, ...]:
    name = str(parameters.get("operation"))
    on_node = float(parameters.get("ranks_per_node") or 1)
    if name == "multi_pair":  # the first half of the ranks sends, and the second node's follow those of the first
        messages = each * float(parameters.get("window_count") or 0)
        return messages * on_node, messages * max(0.0, min(on_node, metrics.get("pair_count", 0.0) - on_node))
    blocks = _BLOCKS.get(name) or _BLOCKS.get(name.removeprefix("i"))
    others = metrics.get("rank_count", 0.0) - on_node
    return tuple(each * (others if one == "n" else float(one)) for one in blocks) if blocks else ()


# ----------------------------------------------------------------------------------------------------------------------


#: Largest head of one segment on the wire: Ethernet 14, VLAN 4, IPv6 40, TCP 20 with 12 of options (RFC 7323 time
#: stamps).
HEAD_BYTES_MAX = 90
#: Smallest head, without Ethernet: IPv4 20 and UDP 8.
HEAD_BYTES_MIN = 28


@dataclass(frozen=True, slots=True)
class Moved:
    """What the measurement moved through one end's interface, payload only, in one direction.

    Datagrams can be lost, so there are two bounds: what reached the other end's socket, and what left this one's.
    """

    least_bytes: float = 0.0
    least_count: float = 0.0
    most_bytes: float = 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """A measured result."""

    kernel: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, float]
    granted: Mapping[str, Any]
    warnings: frozenset[str]
    client: EndEvidence | None
    server: EndEvidence | None
    shared_kernel: bool
    #: A foreign program that the MPI launcher started.
    mpi_program: bool = False
    #: A program of one node, or one at each end: nothing crosses a network.
    one_node: bool = False
    #: Bytes that the client and the server send at least, where a description says so. Of more nodes than two, nobody
    #: knows from whom one receives.
    sent_at_least_bytes: tuple[float, ...] = ()
    #: By interval, in order of time; intervals without a value are left out.
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: Lower bound and count of each bucket of round trips.
    histogram_ns: tuple[tuple[float, float], ...] = ()
    many_ranks: bool = False
    driver_times: DriverTimes | None = None

    @property
    def round_trips(self) -> bool:
        """Whether both ends send, one after the other."""
        return "round_trip_min_ns" in self.metrics

    @property
    def both_send(self) -> bool:
        """Whether both ends send at once; what the server sent has metrics of its own (`return_*`)."""
        return self.parameters.get("direction") == "both"

    def metric_of_sender(self, end: str, name: str) -> float | None:
        """A metric of what this end sends."""
        return self.metric(f"return_{name}" if self.both_send and end == "server" else name)

    @property
    def over_mpi(self) -> bool:
        """Whether an MPI library chose the path, which may bypass the operating system's network stack."""
        return self.mpi_program or self.kernel.startswith("mpi_")

    @property
    def over_fabric(self) -> bool:
        """Whether libfabric moved the bytes: such an end spins for completions, as MPI does."""
        return self.kernel.startswith("fabric_")

    @property
    def bypasses(self) -> bool:
        """Whether the bytes may have gone past the interfaces that the operating system counts."""
        provider = str(self.granted.get("client_provider") or "")
        return self.over_mpi or (self.over_fabric and not provider.startswith(_SOCKET_PROVIDERS))

    def metric(self, *wanted: str) -> float | None:
        """The first of these metrics that the kernel reports."""
        return next((self.metrics[name] for name in wanted if name in self.metrics), None)

    def moved(self, end: str) -> dict[str, Moved] | None:
        """What the kernel reports to have moved at an end, by direction (tx, rx); None if it reports nothing."""
        size = message_bytes(self.kernel, self.parameters)
        if self.round_trips:
            operations = self.metric("operation_count", "received_count")
            if operations is None or size is None:
                return None
            most = max(operations, self.metrics.get("sent_count", 0.0))
            reply = self.parameters.get("reply_bytes") or size
            asked, answered = (Moved(operations * each, operations, most * each) for each in (size, reply))
            return {"tx": asked, "rx": answered} if end == "client" else {"tx": answered, "rx": asked}
        there, back = self._way("", size), self._way("return_", size)
        if there is None:
            return None
        if self.both_send and back is not None:
            return {"tx": there, "rx": back} if end == "client" else {"tx": back, "rx": there}
        return {"tx": there, "rx": Moved()} if self.sends(end) else {"tx": Moved(), "rx": there}

    def moved_at_least(self, end: str) -> dict[str, Moved] | None:
        """As `moved`, but a lower bound alone: enough for a proof of crossing, too little to find other traffic."""
        known = self.moved(end)
        if known is not None or len(self.sent_at_least_bytes) != 2:
            return known
        client, server = (Moved(least) for least in self.sent_at_least_bytes)
        sent, received = (client, server) if end == "client" else (server, client)
        return {"tx": sent, "rx": Moved() if self.many_ranks else received}

    def _way(self, prefix: str, size: int | None) -> Moved | None:
        sent, received = self._bytes(f"{prefix}sent", size), self._bytes(f"{prefix}received", size)
        if sent is None:
            return None
        return Moved(sent if received is None else received, self.metrics.get(f"{prefix}received_count", 0.0), sent)

    def _bytes(self, which: str, size: int | None) -> float | None:
        found, count = self.metric(f"{which}_bytes"), self.metric(f"{which}_count")
        return found if found is not None or count is None or size is None else count * size

    def sends(self, end: str) -> bool:
        """Whether an end sends what is measured."""
        if self.round_trips or self.both_send:
            return True
        from_server = self.kernel == "fabric_read" or self.parameters.get("direction") == "server_to_client"
        return end == ("server" if from_server else "client")

    def receives(self, end: str) -> bool:
        """Whether an end receives what is measured."""
        return self.round_trips or self.both_send or not self.sends(end)


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a case."""

    case: Case
    here: EndEvidence
    there: EndEvidence | None

    @property
    def sends(self) -> bool:
        """Whether this end sends what is measured."""
        return self.case.sends(self.here.name)

    @property
    def receives(self) -> bool:
        """Whether this end receives what is measured."""
        return self.case.receives(self.here.name)

    @property
    def role(self) -> str:
        """sender, receiver or both."""
        return "both" if self.sends and self.receives else "sender" if self.sends else "receiver"

    @property
    def sender(self) -> EndEvidence | None:
        """The end that sends; with round trips, this one."""
        return self.here if self.sends else self.there

    @property
    def receiver(self) -> EndEvidence | None:
        """The end that receives; with round trips, the other one."""
        return self.there if self.sends else self.here


def read_case(result: JudgedResult) -> Case:
    """Parse a result line into types that rules can trust."""
    line = result.line
    evidence = line.get("evidence")
    ends = evidence if isinstance(evidence, Mapping) else {}
    client, server = (
        read_end(name, ends.get(name), facts)
        for name, facts in (("client", result.client_facts), ("server", result.server_facts))
    )
    if result.nodes is not None:
        client = client and replace(client, node=result.nodes[0])
        server = server and replace(server, node=result.nodes[1])
    metrics = line.get("metrics")
    warnings = line.get("warnings")
    granted = line.get("granted")
    kernel = str(line.get("kernel") or "")
    numbers = {
        name: float(value)
        for name, value in (metrics if isinstance(metrics, Mapping) else {}).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    warned = frozenset(
        str(one.get("name")) for one in (warnings if isinstance(warnings, list) else ()) if isinstance(one, Mapping)
    )
    at_least = tuple(line.get("sent_at_least_bytes") or ())
    if not at_least and "same_node" not in warned:  # within a node a library may use memory for what it sends
        at_least = sent_at_least_bytes(kernel, result.parameters, numbers)
    return Case(
        kernel=kernel,
        parameters=result.parameters,
        metrics=numbers,
        granted=granted if isinstance(granted, Mapping) else {},
        warnings=warned,
        client=client,
        server=server,
        mpi_program=line.get("over_mpi") is True,
        one_node=line.get("one_node") is True or kernel == "memory_copy",
        many_ranks=line.get("many_ranks") is True
        or numbers.get("rank_count", 0.0) > 2 * float(result.parameters.get("ranks_per_node") or 1),
        sent_at_least_bytes=at_least,
        series=_series(line.get("series")),
        histogram_ns=_histogram_ns(line.get("histogram")),
        driver_times=result.driver_times,
        shared_kernel=client is not None and server is not None and same_kernel(client, server),
    )


def _series(found: object) -> dict[str, tuple[float, ...]]:
    columns = found if isinstance(found, Mapping) else {}
    return {str(name): tuple(_numbers(values)) for name, values in columns.items() if isinstance(values, list)}


def _histogram_ns(found: object) -> tuple[tuple[float, float], ...]:
    buckets = found.get("buckets") if isinstance(found, Mapping) and found.get("unit") == "ns" else None
    pairs = [_numbers(one) for one in buckets if isinstance(one, list)] if isinstance(buckets, list) else []
    return tuple((one[0], one[1]) for one in pairs if len(one) == 2 and one[0] >= 0 < one[1])


def _numbers(values: list[Any]) -> list[float]:
    """Without what is no number that can be reckoned with."""
    return [float(one) for one in values if isinstance(one, (int, float)) and not isinstance(one, bool) and abs(one) < 1e18]


def interface_moved(end: EndEvidence, way: str) -> tuple[int, int] | None:
    """Bytes and packets that crossed the interface under test, direction tx or rx; None if they could not be read."""
    if not end.interface:
        return None
    moved, packets = end.count(names.INTERFACE_BYTES[way]), end.count(names.INTERFACE_PACKETS[way])
    return None if moved is None or packets is None else (moved, packets)


# ----------------------------------------------------------------------------------------------------------------------
# Decide from the interface's own counters whether the bytes of a measurement crossed the interface under test.
#
# yes      both ends' interface counters, or those of the RDMA port behind it, contain what the test moved
# no       the counters exist and did not move with the test: the number does not belong to that network
# unknown  nothing can show it: no counters, counters that lag behind, a fabric that bypasses them


#: Providers of libfabric that move every byte through sockets.
_SOCKET_PROVIDERS = ("tcp", "udp", "sockets", "net")
#: From this share of the expected bytes on, they have crossed. Losses before the interface leave less than all of it.
CROSSED_RATIO = 0.5
#: Below this share they have not crossed. Between the two shares nothing is certain.
NOT_CROSSED_RATIO = 0.1
#: With fewer bytes than this, background traffic of a node (ssh, time keeping) would decide.
EXPECTED_BYTES_MIN = 2000
#: Drivers that copy counters from the card once per second (ethtool -c: stats-block-usecs). A shorter measurement may
#: end
#: before its bytes show.
LAGGING_DRIVERS = frozenset({"be2net", "bnx2", "bnx2x", "bnxt_en", "tg3"})
LAG_INTERVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class Crossing:
    """The answer and its reason, for people. `end` is the end that decided, None for both."""

    answer: CrossedInterface
    reason: str
    end: str | None = None
    expected_bytes: int = 0
    moved_bytes: int = 0


@lru_cache(maxsize=1)  # several rules ask about one case
def crossing(case: Case) -> Crossing:
    """Judge both ends. An end that says `no` decides, then one that cannot tell."""
    if case.one_node:
        return Crossing(CrossedInterface.UNKNOWN, "it runs on one node: nothing crosses a network")
    found = [_at_end(case, end) for end in (case.client, case.server) if end is not None]
    if len(found) < 2:
        return Crossing(CrossedInterface.UNKNOWN, "the evidence of an end is missing")
    for answer in (CrossedInterface.NO, CrossedInterface.UNKNOWN):
        first = next((one for one in found if one.answer is answer), None)
        if first is not None:
            return first
    return found[0]


def lags(end: EndEvidence) -> bool:
    """Whether the interface's counters may miss the end of the measurement."""
    return end.fact("driver") in LAGGING_DRIVERS and end.interval_s < LAG_INTERVAL_S


def _at_end(case: Case, end: EndEvidence) -> Crossing:
    moved = case.moved_at_least(end.name)
    if moved is None:
        return Crossing(CrossedInterface.UNKNOWN, f"{case.kernel} does not say how much it moved", end.name)
    if not end.interface:
        return Crossing(CrossedInterface.UNKNOWN, f"the interface of the {end.name} is not known", end.name)
    shares = []
    for way, one in moved.items():
        expected = one.least_bytes + one.least_count * HEAD_BYTES_MIN
        if expected <= 0:
            continue
        seen = interface_moved(end, way)
        if seen is None:
            return Crossing(
                CrossedInterface.UNKNOWN, f"{end.name}: the counters of {end.interface} could not be read", end.name
            )
        moved_bytes = max([seen[0], end.rdma_bytes.get(way, 0), *end.matching(names.RDMA_BYTES[way]).values()])
        shares.append((moved_bytes / expected, way, int(expected), moved_bytes))
    if not shares:
        return Crossing(CrossedInterface.UNKNOWN, "nothing was moved", end.name)
    share, way, expected_bytes, moved_bytes = min(shares)
    figures = (end.name, expected_bytes, moved_bytes)
    if share >= CROSSED_RATIO:
        return Crossing(CrossedInterface.YES, f"{end.interface} moved what the test moved", *figures)
    return _doubtful(case, end, way, share, figures)


def _doubtful(case: Case, end: EndEvidence, way: str, share: float, figures: tuple[str, int, int]) -> Crossing:
    _, expected_bytes, moved_bytes = figures
    if share >= NOT_CROSSED_RATIO or expected_bytes < EXPECTED_BYTES_MIN:
        reason = f"{end.name}: {end.interface} moved {moved_bytes} bytes, the test {expected_bytes}: too few to tell"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    if lags(end):
        reason = f"{end.name}: the counters of {end.interface} lag behind by up to a second ({end.fact('driver')})"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    return _not_crossed(case, end, way, figures)


def _not_crossed(case: Case, end: EndEvidence, way: str, figures: tuple[str, int, int]) -> Crossing:
    """Sockets always use a network interface; an MPI library or a provider of libfabric may bypass all of them."""
    elsewhere = _busiest(end, way)
    if elsewhere and elsewhere[1] >= CROSSED_RATIO * figures[1]:
        where = f"; {elsewhere[0]} moved {elsewhere[1]}"
    elif case.bypasses and "same_node" not in case.warnings:
        user = "MPI" if case.over_mpi else str(case.granted.get("client_provider"))
        reason = f"{end.name}: {end.interface} did not move, and the fabric that {user} used has no counters here"
        return Crossing(CrossedInterface.UNKNOWN, reason, *figures)
    else:
        where = ""
    reason = (
        f"the bytes did not cross {end.interface} of the {end.name}: the test moved {figures[1]}, it moved {figures[2]}{where}"
    )
    return Crossing(CrossedInterface.NO, reason, *figures)


def _busiest(end: EndEvidence, way: str) -> tuple[str, int] | None:
    regex = re.compile(names.ANY_INTERFACE_BYTES[way])
    found = end.matching(names.ANY_INTERFACE_BYTES[way])
    moved = [(delta, match["interface"]) for name, delta in found.items() if (match := regex.fullmatch(name))]
    others = [one for one in moved if one[1] != end.interface]
    return (max(others)[1], max(others)[0]) if others else None

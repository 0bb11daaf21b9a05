"""One result in the form that rules read: what was moved, in which direction, and one end beside the other.

Case   the whole result: both ends if present, what each end sent through and received from its sockets
Side   one end of it: `here`, `there`, whether it sends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpcq.evidence import names
from hpcq.evidence.ends import End, read_end, same_kernel
from hpcq.evidence.judgement import JudgedResult
from hpcq.evidence.mpi_bytes import sent_at_least_bytes
from hpcq.kernels import message_bytes

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
    client: End | None
    server: End | None
    shared_kernel: bool
    #: A foreign program that the MPI launcher started.
    mpi_program: bool = False
    #: A program of one node, or one at each end: nothing crosses a network.
    one_node: bool = False
    #: Bytes that the client and the server send at least, where a description says so. Of more ranks than two, nobody
    #: knows from whom a rank receives.
    sent_at_least_bytes: tuple[float, ...] = ()
    #: By interval, in order of time; intervals without a value are left out.
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: Lower bound and count of each bucket of round trips.
    histogram_ns: tuple[tuple[float, float], ...] = ()
    many_ranks: bool = False

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
        return end == ("server" if self.parameters.get("direction") == "server_to_client" else "client")

    def receives(self, end: str) -> bool:
        """Whether an end receives what is measured."""
        return self.round_trips or self.both_send or not self.sends(end)


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a case."""

    case: Case
    here: End
    there: End | None

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
    def sender(self) -> End | None:
        """The end that sends; with round trips, this one."""
        return self.here if self.sends else self.there

    @property
    def receiver(self) -> End | None:
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
        many_ranks=line.get("many_ranks") is True or numbers.get("rank_count", 0.0) > 2,
        sent_at_least_bytes=at_least,
        series=_series(line.get("series")),
        histogram_ns=_histogram_ns(line.get("histogram")),
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


def interface_moved(end: End, way: str) -> tuple[int, int] | None:
    """Bytes and packets that crossed the interface under test, direction tx or rx; None if they could not be read."""
    if not end.interface:
        return None
    moved, packets = end.count(names.INTERFACE_BYTES[way]), end.count(names.INTERFACE_PACKETS[way])
    return None if moved is None or packets is None else (moved, packets)

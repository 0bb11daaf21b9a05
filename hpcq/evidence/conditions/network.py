"""Conditions of rules on one end: small functions that return the figures they used, or None.

    Counted(names.TCP_PRUNED, at_least=1)     a condition that is only data: counters, threshold, what to show beside them
    lost_in_nic(side)                         a condition that needs a few lines

The host's conditions (CPU, clock, facts) are in host.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hpcq.evidence import names
from hpcq.evidence.case import HEAD_BYTES_MAX, Side, interface_moved
from hpcq.evidence.crossing import lags
from hpcq.evidence.ends import End

Figures = dict[str, float | int | str]
Condition = Callable[[Side], Figures | None]

#: Below 1 in 10,000, a counter that also includes unwanted packets says nothing.
DROPPED_RATIO = 1e-4
DROPPED_COUNT_MIN = 10
#: A tail loss probe resends one segment that may not have been lost (RFC 8985, section 7), so two of them are no sign.
RETRANSMIT_COUNT_MIN = 3
RETRANSMIT_RATIO = 1e-4
#: Other traffic below 1 Mbit/s, 0.1 % of the link or 5 % of the measured rate moves no result by more than its noise.
OTHER_BPS_MIN = 1e6
OTHER_OF_LINK_RATIO = 1e-3
OTHER_OF_MEASURED_RATIO = 0.05
#: The share of a socket buffer for payload: half. The rest is for headers (tcp(7), tcp_adv_win_scale).
BUFFER_PAYLOAD_RATIO = 0.5
#: A window that limited a flow for a smaller share of its time is not its limit.
WINDOW_LIMITED_RATIO = 0.2
#: Autotuning lags slightly behind a growing flow. Half of the time is more than lag.
AUTOTUNED_LIMITED_RATIO = 0.5
#: A sender that reaches this share of the requested rate did not fall behind.
RATE_REACHED_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of an end that reach a number."""

    counters: tuple[str, ...]
    at_least: int = 1
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __call__(self, side: Side) -> Figures | None:
        """The count and the figures to show beside it."""
        found = side.here.count(self.counters)
        if found is None or found < self.at_least:
            return None
        return {"count": found, **{name: side.here.count(counters) or 0 for name, counters in self.beside.items()}}


@dataclass(frozen=True, slots=True)
class Matching:
    """Counters that fit a pattern. The largest counts, since several often count the same packets."""

    pattern: str
    at_least: int = 1

    def __call__(self, side: Side) -> Figures | None:
        """The largest, by name."""
        found = side.here.matching(self.pattern)
        if not found:
            return None
        largest = max(found, key=lambda name: found[name])
        return {"count": found[largest], "counter": largest} if found[largest] >= self.at_least else None


def dropped_at_qdisc(side: Side) -> Figures | None:
    """Drops of the interface's queueing disciplines; without those counters, packets that IP could not pass on."""
    found = side.here.matching(names.QDISC_DROPPED)
    if found:
        largest = max(found, key=lambda name: found[name])
        match = re.fullmatch(names.QDISC_DROPPED, largest)
        return {"count": found[largest], "qdisc": match["kind"] if match else "", "counter": largest}
    discarded = side.here.count(names.IP_OUT_DISCARDED)
    if not discarded or any(name.startswith("qdisc.") for name in side.here.counters):
        return None
    return {"count": discarded, "qdisc": "unknown", "counter": names.IP_OUT_DISCARDED[0]}


def refused_at_send_socket(side: Side) -> Figures | None:
    """Datagrams that the sending socket refused, without drops of the queue below it, which count here too."""
    refused = side.here.count(names.UDP_SEND_REFUSED)
    if not refused:
        return None
    below = max((dropped_at_qdisc(side) or {}).get("count", 0), side.here.count(names.IP_OUT_DISCARDED) or 0)
    at_socket = refused - int(below)
    return {"count": at_socket, "refused_count": refused} if at_socket > 0 else None


def dropped_in_nic(side: Side) -> Figures | None:
    """Any overrun; plain drops only above the level that every network has."""
    overrun = Matching(names.NIC_OVERRUN)(side)
    if overrun:
        return overrun | {"ring": ring_text(side)}
    unwanted = side.here.matching(names.NIC_DROPPED_NOT)
    found = {name: delta for name, delta in side.here.matching(names.NIC_DROPPED).items() if name not in unwanted}
    # the interface counts the backlog's drops too (net/core/dev.c, enqueue_to_backlog)
    if not found or not side.here.readable("softnet"):
        return None
    largest = max(found, key=lambda name: found[name])
    dropped = found[largest] - sum(side.here.matching(names.SOFTNET_DROPPED).values())
    packets = sum(moved[1] for way in ("tx", "rx") if (moved := interface_moved(side.here, way)))
    if dropped < max(DROPPED_COUNT_MIN, DROPPED_RATIO * packets):
        return None
    return {"count": dropped, "counter": largest, "ring": ring_text(side)}


def ring_text(side: Side) -> str:
    """`1024 of 8192 entries`: the size of the receive ring, which limits how long the CPU may be away."""
    ring, most = side.here.number("ring_rx"), side.here.number("ring_rx_max")
    if not ring:
        return "an unknown number of entries"
    return f"{ring:.0f} of {most:.0f} possible entries" if most else f"{ring:.0f} entries"


def dropped_in_softnet(side: Side) -> Figures | None:
    """Packets for which a CPU's backlog had no room."""
    found = side.here.matching(names.SOFTNET_DROPPED)
    if not found:
        return None
    worst = max(found, key=lambda name: found[name])
    return {"count": sum(found.values()), "cpu": worst.split(".")[1]}


def refused_at_receive_socket(side: Side) -> Figures | None:
    """Datagrams that a full receive buffer refused: by the test's own socket if possible, else by the node's counters."""
    own_name = "return_socket_drop_count" if side.case.both_send and side.here.name == "client" else "socket_drop_count"
    own = side.case.metric(own_name) if side.receives and not side.case.round_trips else None
    node = side.here.count(names.UDP_RECEIVE_REFUSED) or 0
    count = int(own) if own is not None else node
    if count < 1:
        return None
    granted = side.case.granted.get(f"{side.here.name}_receive_buffer_bytes")
    buffer = {"receive_buffer_bytes": granted} if isinstance(granted, int) and not isinstance(granted, bool) else {}
    return {"count": count, "node_count": node, **buffer}


def sent_again(side: Side) -> Figures | None:
    """Segments that TCP sent again, more than a stray probe explains."""
    again, sent = side.here.count(names.TCP_SENT_AGAIN), side.here.count(names.TCP_SENT)
    if again is None or again < RETRANSMIT_COUNT_MIN or again < RETRANSMIT_RATIO * (sent or 0):
        return None
    total = (sent or 0) + again
    return {
        "count": again,
        "sent_count": total,
        "again_ratio": again / total,
        "timeout_count": side.here.count(names.TCP_TIMEOUTS) or 0,
        "in_vain_count": side.here.count(names.TCP_SENT_AGAIN_IN_VAIN) or 0,
        "dropped_in_hosts_count": _dropped_between(side),
    }


def lost_in_network(side: Side) -> Figures | None:
    """Datagrams that left the sender but appear in no counter of the receiver."""
    lost = side.case.metric_of_sender(side.here.name, "lost_count")
    sent = side.case.metric_of_sender(side.here.name, "sent_count")
    if not lost or not sent or side.case.round_trips or not side.sends or side.there is None:
        return None
    # a node that cannot count its drops could have lost all of them itself
    unseen = [f"{end.name}: {counter.split('.')[0]}" for end, counter in _drop_counters(side) if not end.readable(counter)]
    in_hosts = _dropped_between(side)
    between = int(lost) - in_hosts
    if unseen or between < 1:
        return None
    return {"count": between, "lost_count": int(lost), "in_hosts_count": in_hosts, "lost_ratio": between / sent}


def fell_behind(side: Side) -> Figures | None:
    """A sender that missed its rate because its socket or its CPU could not keep up."""
    rate, sent = side.case.parameters.get("rate_bps"), side.case.metric_of_sender(side.here.name, "sent_bps")
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or rate <= 0 or sent is None or not side.sends:
        return None
    if side.case.round_trips or sent >= RATE_REACHED_RATIO * rate:
        return None
    granted = side.case.granted.get(f"{side.here.name}_send_buffer_bytes")
    buffer = granted if isinstance(granted, int) and not isinstance(granted, bool) else 0
    return {"asked_bps": float(rate), "sent_bps": sent, "send_buffer_bytes": buffer}


def buffer_too_small(side: Side) -> Figures | None:
    """A TCP socket buffer of fixed size that limited the flow: by the sender's timing in Linux, else by an estimate."""
    which = "send" if side.sends else "receive"
    asked = side.case.parameters.get(f"{which}_buffer_bytes")
    round_trip_ns = side.case.metric("tcp_round_trip_ns")
    rate = side.case.metric("throughput_bps")
    granted = side.case.granted.get(f"{side.here.name}_{which}_buffer_bytes")
    if not asked or round_trip_ns is None or rate is None or not isinstance(granted, int) or side.sender is None:
        return None
    under_way = rate / (side.case.parameters.get("flow_count") or 1) * round_trip_ns / 8e9  # of one flow
    limited_ratio = window_limited_ratio(side)
    figures: Figures = {"buffer": which, "granted_bytes": granted, "under_way_bytes": int(under_way)}
    if limited_ratio is not None:
        return figures | {"limited_ratio": limited_ratio} if limited_ratio >= WINDOW_LIMITED_RATIO else None
    return figures if under_way >= BUFFER_PAYLOAD_RATIO * granted else None


def autotuning_at_its_end(side: Side) -> Figures | None:
    """A TCP buffer that the system sizes, and that still limited the flow for most of its time."""
    which = "send" if side.sends else "receive"
    limited_ratio = window_limited_ratio(side)
    if side.case.round_trips or side.case.parameters.get(f"{which}_buffer_bytes") or limited_ratio is None:
        return None
    if limited_ratio < AUTOTUNED_LIMITED_RATIO:
        return None
    limit = str(side.here.fact(f"tcp_{which}_limits") or "").split()
    return {
        "buffer": which,
        "limited_ratio": limited_ratio,
        "maximum_bytes": int(limit[-1]) if limit and limit[-1].isdecimal() else 0,
        "sysctl": {"send": "net.ipv4.tcp_wmem", "receive": "net.ipv4.tcp_rmem"}[which],
    }


def window_limited_ratio(side: Side) -> float | None:
    """The share of time for which this end's buffer limited the flow, as the sender counted it.

    None before Linux 4.10.
    """
    sender = side.sender
    if sender is None or sender.interval_ns <= 0 or not sender.count(names.FLOW_BUSY_US):
        return None
    limited_us = sender.count(names.WINDOW_LIMITED_US["send" if side.sends else "receive"]) or 0
    return min(1.0, limited_us * 1e3 / sender.interval_ns)


def other_traffic(side: Side) -> Figures | None:
    """More bytes on the interface than the test, its headers and its retransmissions can explain."""
    end, moved = side.here, side.case.moved(side.here.name)
    if moved is None or end.interval_ns <= 0 or lags(end):
        return None
    found = []
    for way, one in moved.items():
        seen = interface_moved(end, way)
        if seen is None:
            return None
        # one counter of the loopback interface holds both directions of the test, and both ends
        own_bytes = sum(each.most_bytes for each in moved.values()) if end.interface == "lo" else one.most_bytes
        segments = (names.TCP_SENT, names.UDP_SENT) if way == "tx" else (names.TCP_RECEIVED, names.UDP_RECEIVED)
        head_count = max(seen[1], sum(end.count(counters) or 0 for counters in segments))
        other_bytes = seen[0] - own_bytes - head_count * HEAD_BYTES_MAX - _again_bytes(side)
        found.append((other_bytes * 8e9 / end.interval_ns, own_bytes * 8e9 / end.interval_ns, way))
    other_bps, own_bps, way = max(found)
    least = max(OTHER_BPS_MIN, OTHER_OF_LINK_RATIO * (end.number("speed_bps") or 0), OTHER_OF_MEASURED_RATIO * own_bps)
    if other_bps < least:
        return None
    return {"way": way, "other_bps": other_bps, "measured_bps": own_bps, "interface": end.interface}


def _again_bytes(side: Side) -> float:
    """The most that TCP can have sent twice, in both directions."""
    again = sum(end.count(names.TCP_SENT_AGAIN) or 0 for end in (side.here, side.there) if end)
    mss = side.case.granted.get("client_mss_bytes")
    return again * (mss if isinstance(mss, int) else 9000)


def _drop_counters(side: Side) -> list[tuple[End, str]]:
    ends = [(side.here, counter) for counter in ("snmp.Udp", "net_dev")]
    if side.there is not None:
        ends += [(side.there, counter) for counter in ("snmp.Udp", "net_dev", "softnet")]
    return ends


def _dropped_between(side: Side) -> int:
    """Packets that both hosts report as dropped between this end's socket and the other's."""
    there = Side(side.case, side.there, side.here) if side.there is not None else None
    places = [dropped_at_qdisc(side), refused_at_send_socket(side)]
    if there is not None:
        places += [dropped_in_nic(there), dropped_in_softnet(there), refused_at_receive_socket(there)]
    return sum(int(found["count"]) for found in places if found)

"""The table of rules. docs/evidence.md is generated from it; judge.py applies it.

A row (row.py): its scope, the condition, the condition in words, the message about the figures, what that means, what
to try, the source of the knowledge. Conditions and their thresholds are in conditions/.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, pairwise
from statistics import fmean, median

from hpcq.clock import CLOCK_TOLERANCE_S, off_words, seconds_between
from hpcq.evidence import names
from hpcq.evidence.case import (
    HEAD_BYTES_MAX,
    TICKS_A_SECOND,
    Case,
    CrossedInterface,
    Crossing,
    EndEvidence,
    Rule,
    Side,
    crossing,
    interface_moved,
    lags,
)

# ----------------------------------------------------------------------------------------------------------------------
# Conditions of rules on one end: small functions that return the figures they used, or None.
#
#     Counted(names.TCP_PRUNED, at_least=1)     a condition that is only data: counters, threshold, what to show beside them
#     lost_in_nic(side)                         a condition that needs a few lines
#
# The host's conditions (CPU, clock, facts) are in host.py.


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


def _drop_counters(side: Side) -> list[tuple[EndEvidence, str]]:
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


# ----------------------------------------------------------------------------------------------------------------------
# Conditions on the course of a measurement: one number for it is honest only if it was one thing from beginning to end.


#: Of the middle value, from the first interval to the last.
DRIFT_RATIO = 0.1
#: A trend of this z comes by chance once in 1,000 (two-sided).
DRIFT_Z = 3.29
#: How much of the variance two levels must explain; one normal distribution comes to 0.64, a uniform one to 0.75.
EXPLAINED_RATIO = 0.9
#: The smaller group has at least this share: less is a disturbance, or a ramp.
SHARE_MIN = 0.15
#: How far the levels are apart, of the lower one.
APART_RATIO = 0.2
#: Round trips in a histogram.
ROUND_TRIPS_MIN = 500
_RATES = ("throughput_bps", "return_throughput_bps")


def rate_drifted(side: Side) -> Figures | None:
    """The rate went one way through the whole measurement, without a jump between two levels."""
    if "ramp" in side.case.warnings:  # the kernel has said so
        return None
    return next((found for name in _RATES if (found := _drifted(side, name, "bps")) is not None), None)


def round_trips_drifted(side: Side) -> Figures | None:
    """The same of the median round trip of each interval."""
    return _drifted(side, "round_trip_p50_ns", "ns")


def _drifted(side: Side, name: str, unit: str) -> Figures | None:
    values = side.case.series.get(name, ())
    found = drift(values)
    if found is None or abs(found.z) < DRIFT_Z or abs(found.change_ratio) < DRIFT_RATIO or _two(values):
        return None
    first, last = values[: len(values) // 5 or 1], values[-(len(values) // 5 or 1) :]
    return {
        "metric": name,
        "direction": "rose" if found.change_ratio > 0 else "fell",
        "change_ratio": abs(found.change_ratio),
        f"first_{unit}": sum(first) / len(first),
        f"last_{unit}": sum(last) / len(last),
    }


def rate_of_two_levels(side: Side) -> Figures | None:
    """The rate jumped between two levels, or once from one to the other."""
    for name in _RATES:
        values = side.case.series.get(name, ())
        found = _two(values)
        if found is None:
            continue
        return {
            "metric": name,
            "low_bps": found.low,
            "high_bps": found.high,
            "low_ratio": found.low_ratio,
            "switch_count": switches(values, (found.low + found.high) / 2),
        }
    return None


def round_trips_of_two_levels(side: Side) -> Figures | None:
    """The histogram has two humps: most round trips are near one of two times."""
    buckets = side.case.histogram_ns
    if sum(count for _, count in buckets) < ROUND_TRIPS_MIN:
        return None
    found = levels([math.log2(max(lower, 1)) for lower, _ in buckets], [count for _, count in buckets])
    if found is None or found.explained_ratio < EXPLAINED_RATIO:
        return None
    low_ns, high_ns = 2**found.low, 2**found.high
    if min(found.low_ratio, 1 - found.low_ratio) < SHARE_MIN or high_ns < low_ns * (1 + APART_RATIO):
        return None
    return {"low_ns": low_ns, "high_ns": high_ns, "low_ratio": found.low_ratio}


def _two(values: tuple[float, ...]) -> TwoLevels | None:
    found = levels(values) if len(values) >= VALUES_MIN else None
    if found is None or found.explained_ratio < EXPLAINED_RATIO:
        return None
    smaller = min(found.low_ratio, 1 - found.low_ratio)
    return found if smaller >= SHARE_MIN and found.high >= found.low * (1 + APART_RATIO) else None


# ----------------------------------------------------------------------------------------------------------------------
# One row of the table of rules.


class Scope(Enum):
    """The ends at which a rule applies."""

    EACH_END = "each end"
    """For counters of one network stack, process or interface."""
    EACH_MACHINE = "each machine"
    """For counters of a whole machine: reported once for both ends if they share one system."""
    RESULT = "the result"
    """For both ends at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: `when` is its condition in words, `message` its text with places for the figures."""

    rule: Rule
    scope: Scope
    condition: Condition
    when: str
    message: str
    disturbs: bool = False


def rule(
    name: str,
    scope: Scope,
    condition: Condition,
    *,
    when: str,
    message: str,
    meaning: str,
    advice: str,
    source: str,
    disturbs: bool = False,
) -> Row:
    return Row(Rule(name, meaning, advice, source), scope, condition, when, message, disturbs)


# ----------------------------------------------------------------------------------------------------------------------
# Rules on the course of a measurement: it was not one thing from beginning to end. See rules.py.


COURSE: tuple[Row, ...] = (
    rule(
        "rate_drifted",
        Scope.RESULT,
        rate_drifted,
        when=f"a trend of the rate by interval of {DRIFT_RATIO:.0%} from beginning to end that chance makes once in"
        " 1,000 times, where no ramp was said and there are not two levels",
        message="{metric} {direction} by {change_ratio}, from {first_bps} to {last_bps}",
        meaning="The rate went one way through the whole measurement: its mean is not what a longer one would tell.",
        advice="Measure longer and look at the series (`hpcq show`): a buffer that fills, a clock that falls, a cache.",
        source="Theil 1950 and Sen 1968 (slope); Mann 1945 and Kendall 1975 (trend)",
    ),
    rule(
        "round_trip_drifted",
        Scope.RESULT,
        round_trips_drifted,
        when=f"a trend of the median round trip by interval of {DRIFT_RATIO:.0%} from beginning to end that chance makes"
        " once in 1,000 times, where there are not two levels",
        message="the median round trip of an interval {direction} by {change_ratio}, from {first_ns} to {last_ns}",
        meaning="Round trips went one way through the whole measurement: its percentiles are not what a longer one would tell.",
        advice="Measure longer, with a longer warm-up, and look at the series (`hpcq show`): a queue that fills, a clock"
        " that rises or falls.",
        source="Theil 1950 and Sen 1968 (slope); Mann 1945 and Kendall 1975 (trend)",
    ),
    rule(
        "rate_of_two_levels",
        Scope.RESULT,
        rate_of_two_levels,
        when=f"two levels of the rate by interval, {APART_RATIO:.0%} or more apart, each in {SHARE_MIN:.0%} or"
        f" more of the intervals, that explain {EXPLAINED_RATIO:.0%} of its variance",
        message="{metric} was {low_bps} in {low_ratio} of the intervals and {high_bps} in the others, with {switch_count}"
        " changes between them",
        meaning="The measurement was two things, and its mean is neither of them.",
        advice="Look at the series (`hpcq show`): another flow that comes and goes, a CPU that changes its clock or its"
        " place, a path that changes. Pin the ends, and measure each level by itself.",
        source="Otsu 1979 (the split with the most variance between the groups)",
    ),
    rule(
        "round_trip_of_two_levels",
        Scope.RESULT,
        round_trips_of_two_levels,
        when=f"{ROUND_TRIPS_MIN} round trips or more at two times, {APART_RATIO:.0%} or more apart, each with"
        f" {SHARE_MIN:.0%} or more of them, that explain {EXPLAINED_RATIO:.0%} of the variance of their"
        " logarithms",
        message="{low_ratio} of the round trips are near {low_ns}, the others near {high_ns}",
        meaning="There are two kinds of round trips: the median stands for one of them, and the mean for none.",
        advice="Idle states (`idle: hold`), interrupts on another socket, adaptive coalescing, two paths: change one of them"
        " and look at the histogram again.",
        source="Otsu 1979 (the split with the most variance between the groups)",
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Conditions on the hosts: who used the CPU, the wall clock, and whether the bytes crossed the interface.


#: Busy share of a core. Below it, the core had time for more packets (with ticks of 10 ms, 5 % is 5 of a second's 100).
CORE_BUSY_RATIO = 0.95
#: Share of that in interrupts: above it, the operating system's receive path is the limit and not a process.
CORE_INTERRUPT_RATIO = 0.5
#: With fewer ticks than these, nothing can be said about a core.
CORE_TICKS_MIN = 20
#: Share of the process's time. Quiet ping-pongs wait 3 to 4 % (measured, 14,000 wake-ups per second); one competitor
#: adds 20 to 50 %.
WAITED_RATIO = 0.10
#: Cores that others keep busy: daemons stay below a tenth; a process that shares the test's core gets half of it.
OTHER_CORES = 0.25
OTHER_TICKS_MIN = 10
#: Share of one core. Repetitions on a quiet machine spread by about 3 %.
STOLEN_RATIO = 0.05
STOLEN_TICKS_MIN = 5
QUOTA_HELD_RATIO = 0.01
#: Time daemons slew by at most 500 ppm (adjtimex(2)); 10 ms more is a step and not a preempted snapshot.
STEP_NS_MIN = 10_000_000
SLEW_RATIO = 500e-6


def core_busy_with_interrupts(side: Side) -> Figures | None:
    """A core at its limit, most of it in interrupts.

    Nodes with many cores omit idle time, so the interval counts as the whole.
    """
    worst: Figures | None = None
    whole_ticks = side.here.interval_s * TICKS_A_SECOND
    for cpu, ticks in side.here.ticks.items():
        if cpu == "cpu" or whole_ticks < CORE_TICKS_MIN:
            continue
        busy = min(1.0, sum(count for mode, count in ticks.items() if mode not in names.IDLE_MODES) / whole_ticks)
        share = min(1.0, sum(ticks.get(mode, 0) for mode in names.INTERRUPT_MODES) / whole_ticks)
        if (
            busy >= CORE_BUSY_RATIO
            and share >= CORE_INTERRUPT_RATIO
            and (worst is None or share > float(worst["interrupt_ratio"]))
        ):
            worst = {"cpu": cpu, "busy_ratio": busy, "interrupt_ratio": share}
    return worst


def core_busy_with_process(side: Side) -> Figures | None:
    """The test's own process, or its busiest thread, used all of its core.

    A process that waits by spinning always looks so and is left out.
    """
    spins = side.case.over_mpi or side.case.over_fabric or (side.sends and side.case.parameters.get("pacing") == "spin")
    own_us = side.here.count(names.OWN_CPU_US)
    if spins or own_us is None or side.here.interval_ns <= 0:
        return None
    of_threads = side.case.metric(f"{side.here.name}_busiest_thread_ratio")
    ratio = own_us * 1e3 / side.here.interval_ns if of_threads is None else of_threads
    if ratio < CORE_BUSY_RATIO:
        return None
    cpu = side.here.cpu_index if of_threads is None else side.case.granted.get(f"{side.here.name}_busiest_thread_cpu_index")
    return {"own_ratio": ratio, **({"cpu": f"cpu{cpu}"} if cpu is not None else {})}


def waited_for_cpu(side: Side) -> Figures | None:
    """The process was ready to run while another one had its CPU.

    Waiting for the interrupts that deliver its own packets is part of the work: a quiet receiver of a stream waits
    10 to 23 % of the time. So others must have been active too. If both ends share one system, the other end may have
    had the CPU, which is no sign of others.
    """
    waited_ns = side.here.count(names.OWN_WAIT_NS)
    if waited_ns is None or side.here.interval_ns <= 0 or waited_ns < WAITED_RATIO * side.here.interval_ns:
        return None
    # A wait counts when it ends, so one that began before the interval can be longer than it.
    waited_ratio = min(1.0, waited_ns / side.here.interval_ns)
    peer_us = side.there.count(names.OWN_CPU_US) if side.case.shared_kernel and side.there is not None else 0
    peer_ratio = min(waited_ratio, (peer_us or 0) * 1e3 / side.here.interval_ns)
    work = _work_of_others(side)
    by_others_ratio = min(waited_ratio - peer_ratio, work.cores) if work is not None and work.seen else 0.0
    if peer_ratio + by_others_ratio < WAITED_RATIO:
        return None
    return {
        "waited_ratio": waited_ratio,
        "by_others_ratio": by_others_ratio,
        "switched_away_count": side.here.count(names.OWN_SWITCHED_AWAY) or 0,
        "cpu": f"cpu{side.here.cpu_index}" if side.here.cpu_index is not None else "unknown",
    }


def others_at_work(side: Side) -> Figures | None:
    """CPU time of the node that neither the test nor interrupts used."""
    work = _work_of_others(side)
    return {"other_cores": work.cores, "own_cores": work.own_cores} if work is not None and work.seen else None


@dataclass(frozen=True, slots=True)
class _Work:
    """CPU time of a node in cores: that of others, and that of the test."""

    cores: float
    own_cores: float
    ticks: float

    @property
    def seen(self) -> bool:
        """Whether it exceeds daemons and the coarseness of ticks."""
        return self.cores >= OTHER_CORES and self.ticks >= OTHER_TICKS_MIN


def _work_of_others(side: Side) -> _Work | None:
    """CPU time of the node's processes without the test's; None if it is not counted."""
    ticks = side.here.ticks.get("cpu", {})
    own_us = side.here.count(names.OWN_CPU_US)
    if not ticks or own_us is None or side.here.interval_ns <= 0:
        return None
    if side.case.shared_kernel and side.there is not None:
        own_us += side.there.count(names.OWN_CPU_US) or 0
    # NAPI threads receive the test's own packets, but their time counts as system time
    modes = [mode for mode in names.WORK_MODES if mode != "system"] if side.here.number("threaded") else names.WORK_MODES
    work_ticks = max(0.0, sum(ticks.get(mode, 0) for mode in modes) - _own_share(side, own_us) * TICKS_A_SECOND / 1e6)
    return _Work(work_ticks / TICKS_A_SECOND / side.here.interval_s, own_us * 1e3 / side.here.interval_ns, work_ticks)


def _own_share(side: Side, own_us: int) -> float:
    """The part of the test's own CPU time that the examined ticks contain."""
    if not side.here.number("threaded"):
        return own_us
    ends = [side.here] + ([side.there] if side.case.shared_kernel and side.there is not None else [])
    return sum(end.count(names.OWN_USER_US) or 0 for end in ends)


def stolen(side: Side) -> Figures | None:
    """Time that the hypervisor gave to other virtual machines."""
    ticks = side.here.ticks.get("cpu", {}).get("steal", 0)
    if side.here.interval_ns <= 0 or ticks < STOLEN_TICKS_MIN:
        return None
    cores = ticks / TICKS_A_SECOND / side.here.interval_s
    return {"stolen_cores": cores, "stolen_ticks": ticks} if cores >= STOLEN_RATIO else None


def held_by_quota(side: Side) -> Figures | None:
    """The control group's CPU quota throttled the process."""
    held_us = side.here.count(names.QUOTA_HELD_US)
    if not held_us or side.here.interval_ns <= 0:
        return None
    ratio = held_us * 1e3 / side.here.interval_ns
    return {"held_us": held_us, "held_ratio": ratio} if ratio >= QUOTA_HELD_RATIO else None


def clock_stepped(side: Side) -> Figures | None:
    """The wall clock and the monotonic clock advanced differently between the snapshots."""
    end = side.here
    reading = end.gauge(names.WALL_MINUS_MONOTONIC)
    if reading is not None:
        step_ns = (reading[1] - reading[0]) * 1e3
    else:
        wall_ns = _between_ns(end)
        if wall_ns is None:
            return None
        step_ns = wall_ns - end.interval_ns - end.before_cost_ns
    if end.interval_ns <= 0 or abs(step_ns) < STEP_NS_MIN + SLEW_RATIO * end.interval_ns:
        return None
    return {"step_ns": step_ns}


def clock_off(side: Side) -> Figures | None:
    """This end's time of day is outside the driver's times. The other end tells by how much, if its time can be true."""
    times, here, there = side.case.driver_times, side.here, side.there
    if times is None or not (off_s := times.off_s(here.before_utc)):
        return None
    between_s = seconds_between(there.before_utc, here.before_utc) if there else None
    exact = there is not None and between_s is not None and between_s * off_s > 0 and not times.off_s(there.before_utc)
    off_s = between_s if exact and between_s is not None else off_s
    return {"off_s": off_s, "words": f"{'' if exact else 'at least '}{off_words(off_s)}"}


def interface_unverified(side: Side) -> Figures | None:
    """No counter shows whether the bytes crossed the interface under test."""
    return _crossing(side.case, CrossedInterface.UNKNOWN)


def wrong_interface(side: Side) -> Figures | None:
    """The bytes took another path."""
    return _crossing(side.case, CrossedInterface.NO)


def _crossing(case: Case, answer: CrossedInterface) -> Figures | None:
    found: Crossing = crossing(case)
    if found.answer is not answer:
        return None
    return {"reason": found.reason, "expected_bytes": found.expected_bytes, "moved_bytes": found.moved_bytes}


def _between_ns(end: EndEvidence) -> float | None:
    try:
        before, after = (dt.datetime.fromisoformat(one.replace("Z", "+00:00")) for one in (end.before_utc, end.after_utc))
        return (after - before).total_seconds() * 1e9
    except (ValueError, TypeError):
        return None


# ----------------------------------------------------------------------------------------------------------------------
# Rules on whether the bytes crossed the network under test. See rules.py.


CROSSING: tuple[Row, ...] = (
    rule(
        "wrong_interface",
        Scope.RESULT,
        wrong_interface,
        when="the interface's counters moved by less than a tenth of what the test moved",
        message="{reason}",
        meaning="The bytes did not cross the network under test: the number is not that network's, and invalid.",
        advice="Check `interface` in the cluster's file, routes and host names, btl_tcp_if_include or UCX_NET_DEVICES.",
        source="Documentation/networking/statistics.rst; open-mpi/ompi issues 4963, 6377, 10041",
    ),
    rule(
        "interface_unverified",
        Scope.RESULT,
        interface_unverified,
        when="neither the interface nor an RDMA port behind it has counters that tell",
        message="{reason}",
        meaning="No counter tells whether the bytes used the network under test.",
        advice="Trust the number only if you know the way that the library takes (`granted` shows its settings).",
        source="Documentation/ABI/stable/sysfs-class-infiniband; ethtool(8) -c stats-block-usecs",
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Conditions on the NIC and its place in the node: PCIe, link, MTU, rings, interrupts, coalescing.


#: Share of the NIC's interrupts; below it, only one or two queues are misplaced.
FAR_RATIO = 0.5
FAR_COUNT_MIN = 1000
#: NUMA distances below this are within a socket (sub-NUMA clusters, NPS2 and NPS4); from 20 on it is another one
#: (ACPI SLIT).
FAR_DISTANCE = 20
#: A coalescing delay below this is no more than the latency of fast cards.
COALESCING_NS_MIN = 10_000
#: The floor explains a round trip if it is most of it, but not more than all of it.
COALESCING_RATIO_MIN, COALESCING_RATIO_MAX = 0.5, 1.05


def interrupts_far(side: Side) -> Figures | None:
    """Most of the NIC's interrupts ran on CPUs of another NUMA node than the NIC's."""
    near = cpus_near(side.here)
    if near is None:
        return None
    address = str(side.here.fact("pci_address") or "").replace(".", "-")
    numbers = set(re.findall(r"(\d+)=", str(side.here.fact("interrupt_affinity") or "")))
    regex = re.compile(names.INTERRUPTS)
    total = far = 0
    for name, delta in side.here.matching(names.INTERRUPTS).items():
        match = regex.fullmatch(name)
        if match and _of_nic(match["name"], side.here.interface, address, numbers):
            total += delta
            far += delta if int(match["cpu"]) not in near else 0
    if total < FAR_COUNT_MIN or far < FAR_RATIO * total:
        return None
    return {"far_count": far, "count": total, "far_ratio": far / total, "numa_node": str(side.here.fact("numa_node"))}


def process_far(side: Side) -> Figures | None:
    """The test's process last ran on a CPU of a socket other than the NIC's."""
    near = cpus_near(side.here)
    if near is None or side.here.cpu_index is None or side.here.cpu_index in near:
        return None
    return {"cpu": f"cpu{side.here.cpu_index}", "numa_node": str(side.here.fact("numa_node"))}


def coalescing(side: Side) -> Figures | None:
    """The round trip consists mostly of the time that both NICs wait before they interrupt."""
    median_ns = side.case.metric("round_trip_p50_ns")
    if side.there is None or not median_ns:
        return None
    waits = {}
    for end in (side.here, side.there):
        usecs, adaptive = end.number("rx_usecs"), end.number("adaptive_rx")
        if usecs is None or adaptive:
            return None
        waits[end.name] = usecs
    floor_ns = sum(waits.values()) * 1e3
    if floor_ns < COALESCING_NS_MIN or not COALESCING_RATIO_MIN <= floor_ns / median_ns <= COALESCING_RATIO_MAX:
        return None
    figures: Figures = {f"{end}_rx_us": usecs for end, usecs in waits.items()}
    return figures | {"floor_ns": floor_ns, "round_trip_p50_ns": median_ns, "floor_ratio": floor_ns / median_ns}


def mtu_differs(side: Side) -> Figures | None:
    """Reported at the end with the smaller MTU. The loopback interface has its own MTU."""
    if side.there is None or "lo" in {side.here.interface, side.there.interface}:
        return None
    here, there = side.here.number("mtu_bytes"), side.there.number("mtu_bytes")
    if here is None or there is None or here >= there:
        return None
    return {"mtu_bytes": int(here), "other_mtu_bytes": int(there), "other_node": side.there.node}


def link_degraded(side: Side) -> Figures | None:
    """Half duplex, below what the NIC can, or below the other end with the same driver."""
    duplex = str(side.here.fact("duplex") or "unknown").lower()
    speed = side.here.number("speed_bps")
    # a slower switch port that advertises its rate is no fault of this link
    known = [most for key in ("speed_max_bps", "partner_speed_max_bps") if (most := side.here.number(key))]
    most = min(known) if side.here.number("speed_max_bps") else None
    figures: Figures = {"duplex": duplex, "speed_bps": speed or 0.0}
    if duplex == "half":
        return figures | {"expected_bps": most or speed or 0.0}
    if not speed or speed <= 0:
        return None
    if most and speed < most:
        return figures | {"expected_bps": most}
    if side.there is None or side.here.fact("driver") != side.there.fact("driver"):
        return None
    there = side.there.number("speed_bps")
    return figures | {"expected_bps": there} if there and speed < there else None


def pcie_degraded(side: Side) -> Figures | None:
    """The NIC's PCIe link has fewer lanes or runs slower than both the card and its slot can."""
    lanes, rate = side.here.number("pci_width"), _transfer_rate(side.here.fact("pci_speed"))
    most = _least(side.here.number("pci_width_max"), side.here.number("slot_width_max"))
    fastest = _least(*(_transfer_rate(side.here.fact(key)) for key in ("pci_speed_max", "slot_speed_max")))
    if not ((lanes and most and 0 < lanes < most) or (rate and fastest and 0 < rate < fastest)):
        return None
    return {
        "lanes": int(lanes or 0),
        "lanes_max": int(most or 0),
        "gigatransfers": rate or 0.0,
        "gigatransfers_max": fastest or 0.0,
    }


def _least(*values: float | None) -> float | None:
    """The lower limit of card and slot; if only the card's is known, the card's."""
    known = [value for value in values if value]
    return min(known) if known else None


def cpus_near(end: EndEvidence) -> set[int] | None:
    """CPUs of the NIC's socket; None if there is only one NUMA node, or if it is not known.

    NUMA nodes of the same socket (by their distance) count as near: an interrupt there crosses no link between sockets.
    """
    node = end.number("numa_node")
    nodes = {
        int(match["node"]): str(value)
        for name, value in end.facts.items()
        if (match := re.fullmatch(names.NUMA_CPUS, name)) is not None
    }
    if node is None or len(nodes) < 2 or int(node) not in nodes:
        return None
    said = str(end.facts.get(names.NUMA_DISTANCE.format(node=int(node)), "")).split()
    distances = dict(zip(sorted(nodes), said, strict=False)) if len(said) == len(nodes) else {}
    near = {one for one, text in distances.items() if text.isdecimal() and int(text) < FAR_DISTANCE} | {int(node)}
    return {cpu for one in near for cpu in cpu_list(nodes[one])}


def cpu_list(text: str) -> set[int]:
    """`0-3,8`, the form in which Linux writes lists of CPUs."""
    return {
        cpu
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text)
        for cpu in range(int(first), min(int(last or first), int(first) + 65535) + 1)
    }


def _of_nic(interrupt: str, interface: str, address: str, numbers: set[str]) -> bool:
    """Whether an interrupt belongs to the NIC.

    Forms: eth0-TxRx-3#57, mlx5_comp3@pci:0000:81:00-0#57, or #57 of its affinities.
    """
    action, _, number = interrupt.rpartition("#")
    if number in numbers:
        return True
    by_name = bool(interface) and re.match(rf"(.*[-:])?{re.escape(interface.replace('.', '-'))}(-|$)", action) is not None
    return by_name or (bool(address) and address in action)


def _transfer_rate(value: object) -> float | None:
    """`16.0 GT/s PCIe` -> 16.0"""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", str(value)) if value is not None else None
    return float(match[1]) if match else None


# ----------------------------------------------------------------------------------------------------------------------
# Conditions on the CPU's clock, sleep states and sibling threads.


#: Share of the clock that the CPU is sold with. Turbo varies with heat and load, so it is no reference.
SLOW_CLOCK_RATIO = 0.9
#: If the base clock is unknown: share of the highest (turbo) clock. Base clocks are 0.55 to 0.8 of it.
SLOW_TURBO_RATIO = 0.5
#: Above this share of the time in deep sleep, every round trip includes waking up.
DEEP_IDLE_RATIO = 0.2
#: Share of the sibling's time: two threads of one core share its units.
SIBLING_BUSY_RATIO = 0.25
COMPACTION_COUNT_MIN = 10


def cpu_throttled(side: Side) -> Figures | None:
    """The CPU lowered its own clock because of heat."""
    return Matching(names.THROTTLED)(side)


def cpu_saves_power(side: Side) -> Figures | None:
    """The CPU ran well below its nominal clock, or under a governor that keeps it there."""
    reading = side.here.gauge(names.FREQUENCY)
    governor, driver = side.here.fact("governor"), str(side.here.fact("frequency_driver") or "")
    reference_hz = reference_clock_hz(side.here)
    figures: Figures = {"governor": str(governor or "unknown"), "driver": driver or "unknown"}
    ratio = 0.0 if not (reference_hz and reading) else max(reading) / reference_hz
    # powersave of intel_pstate and amd-pstate (active mode) means "by load"; elsewhere it means "lowest"
    if governor == "powersave" and not driver.startswith(("intel_pstate", "amd-pstate", "amd_pstate")):
        return figures | {"clock_ratio": ratio}
    if not reference_hz or reading is None or max(reading) <= 0 or ratio >= SLOW_CLOCK_RATIO:
        return None
    return figures | {"clock_ratio": ratio}


def reference_clock_hz(end: EndEvidence) -> float | None:
    """The base clock: as Linux reports it, else from the model's name, else a fixed share of the highest clock."""
    base_hz = end.number("frequency_base_hz")
    named = re.search(r"@\s*(\d+(?:\.\d+)?)\s*GHz", str(end.fact("cpu_model") or ""))
    highest_hz = end.number("frequency_max_hz")
    if base_hz:
        return base_hz
    if named:
        return float(named[1]) * 1e9
    return highest_hz * SLOW_TURBO_RATIO / SLOW_CLOCK_RATIO if highest_hz else None


def deep_sleep(side: Side) -> Figures | None:
    """A round trip, measured by a CPU that slept deeply between its messages."""
    if not side.case.round_trips or side.here.interval_ns <= 0:
        return None
    found = side.here.matching(names.DEEP_IDLE)
    idle_us = sum(found.values())
    ratio = idle_us * 1e3 / side.here.interval_ns
    if ratio < DEEP_IDLE_RATIO:
        return None
    deepest = max(found, key=lambda name: found[name])
    match = re.fullmatch(names.DEEP_IDLE.replace("{cpu}", str(side.here.cpu_index)), deepest)
    return {"idle_ratio": min(1.0, ratio), "state": match["state"] if match else "", "cpu": f"cpu{side.here.cpu_index}"}


def sibling_busy(side: Side) -> Figures | None:
    """The other hardware thread of the process's core was busy: neither had the whole core."""
    cpu = side.here.cpu_index
    whole_ticks = side.here.interval_s * TICKS_A_SECOND
    if cpu is None or whole_ticks < 1 or side.case.shared_kernel:
        return None
    # the kernels write each list with the number of CPUs in it: `0,32 2, 1,33 2`
    for group in str(side.here.fact("thread_siblings") or "").split(", "):
        members = cpu_list(group.split(" ")[0])
        if cpu not in members:
            continue
        for other in sorted(members - {cpu}):
            ticks = side.here.ticks.get(f"cpu{other}", {})
            busy = sum(ticks.get(mode, 0) for mode in names.WORK_MODES) / whole_ticks
            if busy >= SIBLING_BUSY_RATIO:
                return {"cpu": f"cpu{cpu}", "sibling": f"cpu{other}", "busy_ratio": min(1.0, busy)}
    return None


def memory_compacted(side: Side) -> Figures | None:
    """Processes waited while Linux compacted memory for large pages."""
    count = side.here.count(names.COMPACTION_STALLED[:1]) or 0
    if count < COMPACTION_COUNT_MIN:
        return None
    setting = re.search(r"\[(\w+)\]", str(side.here.fact("transparent_hugepage") or ""))
    return {"count": count, "setting": setting[1] if setting else "unknown"}


# ----------------------------------------------------------------------------------------------------------------------
# Rules on others who shared the node: their findings mark a result as disturbed. See rules.py.


DISTURBANCE: tuple[Row, ...] = (
    rule(
        "stolen_time",
        Scope.EACH_MACHINE,
        stolen,
        when=f"steal of {STOLEN_RATIO:.0%} of a core",
        message="{node}: the hypervisor took {stolen_cores} cores away",
        meaning="Other virtual machines had this node's CPU during the measurement.",
        advice="Measure again, or on hosts that are not shared.",
        source="proc_stat(5) steal",
        disturbs=True,
    ),
    rule(
        "host_busy",
        Scope.EACH_MACHINE,
        others_at_work,
        when="CPU time of neither the test nor interrupts (with threaded NAPI only in user mode):"
        f" {OTHER_CORES:g} cores or more",
        message="{node}: other processes used {other_cores} cores, the test {own_cores}",
        meaning="Something else worked on this node during the measurement.",
        advice="Ask for whole nodes (exclusive); look for left-over processes and daemons; measure again.",
        source="proc_stat(5) user, nice and system, less getrusage(2) of the test",
        disturbs=True,
    ),
    rule(
        "waited_for_cpu",
        Scope.EACH_END,
        waited_for_cpu,
        when=f"the process waited runnable for {WAITED_RATIO:.0%} of the time, and other work was seen that explains it",
        message="{node}: the test's process was ready and had no CPU for {waited_ratio} of the time (last on {cpu})",
        meaning="Something else had the CPU that this process needed.",
        advice="Pin to another CPU, ask for whole nodes, look what runs on that CPU.",
        source="Documentation/scheduler/sched-stats.rst (/proc/<pid>/schedstat, second field)",
        disturbs=True,
    ),
    rule(
        "held_by_quota",
        Scope.EACH_END,
        held_by_quota,
        when=f"the control group was throttled for {QUOTA_HELD_RATIO:.0%} of the time",
        message="{node}: the CPU quota of its control group stopped the test for {held_us}",
        meaning="The job may use less CPU than the test needs: its control group has a quota.",
        advice="Ask for more CPUs in the job, or for whole nodes.",
        source="Documentation/admin-guide/cgroup-v2.rst (cpu.stat throttled_usec); scheduler/sched-bwc.rst (throttled_time)",
        disturbs=True,
    ),
    rule(
        "other_traffic",
        Scope.EACH_END,
        other_traffic,
        when="bytes on the interface beyond the test's, with all headers:"
        f" {OTHER_BPS_MIN / 1e6:g} Mbit/s, {OTHER_OF_LINK_RATIO:.1%} of the link and {OTHER_OF_MEASURED_RATIO:.0%}"
        " of what was measured",
        message="{node}: {interface} carried at least {other_bps} of other traffic ({way}) beside the test's {measured_bps}",
        meaning="The test shared its interface with another flow.",
        advice="Look what else uses this network (storage, MPI of other jobs); measure again when it is quiet.",
        source="proc_net(5) dev; the test's own account of bytes and segments",
        disturbs=True,
    ),
    rule(
        "sibling_busy",
        Scope.EACH_END,
        sibling_busy,
        when=f"the other hardware thread of the process's core was at work for {SIBLING_BUSY_RATIO:.0%} of the time",
        message="{node}: {sibling} was {busy_ratio} busy and shares its core with the test's {cpu}",
        meaning="Two threads of one core share its units: the test had little more than half of a core.",
        advice="Ask for whole cores or nodes (--exclusive, --hint=nomultithread); look what ran there.",
        source="sysfs topology/thread_siblings_list; proc_stat(5)",
        disturbs=True,
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Conditions on flow control, congestion and RDMA ports: what slows a fabric without losing a packet for good.
#
# Only the RDMA port of the interface under test counts (End.rdma_pattern): another card of the node may carry storage.


#: A single late acknowledgement happens on any fabric.
RDMA_AGAIN_COUNT_MIN = 3
#: Fewer congestion notices or pause frames than these occur at the start of any flow.
CONGESTION_COUNT_MIN = 100
PAUSE_COUNT_MIN = 10
#: Share of the interval in which a port waited for credits; ticks of 4 ns (ConnectX; other cards differ by a small
#: factor).
XMIT_WAIT_RATIO = 0.05
XMIT_WAIT_TICK_NS = 4.0
#: Lanes of an InfiniBand link. Split cables of HDR and NDR have two.
LANES = 4
SPLIT_LANES = 2
_SPLIT_RATES = ("HDR", "NDR", "XDR")


def rdma_sent_again(side: Side) -> Figures | None:
    """Packets of the RDMA port that were out of sequence, acknowledged late or not acknowledged."""
    return Matching(names.RDMA_AGAIN, at_least=RDMA_AGAIN_COUNT_MIN)(side)


def congestion_marked(side: Side) -> Figures | None:
    """Packets that switches marked (ECN), and congestion notices that the ends sent or obeyed."""
    found = Matching(names.CONGESTION_MARKED, at_least=CONGESTION_COUNT_MIN)(side)
    marked = side.here.count(names.IP_CONGESTION_MARKED) or 0
    if found is None and marked >= CONGESTION_COUNT_MIN:
        return {"count": marked, "counter": names.IP_CONGESTION_MARKED[0]}
    return found


def paused(side: Side) -> Figures | None:
    """Pause frames, of the whole link or of a priority (PFC), at the interface under test."""
    found = {name: delta for name, delta in side.here.matching(names.PAUSED).items() if not re.search(names.PAUSED_NOT, name)}
    if not found:
        return None
    largest = max(found, key=lambda name: found[name])
    if found[largest] < PAUSE_COUNT_MIN:
        return None
    match = re.fullmatch(names.PAUSED, largest)
    way = match["way"] if match else "rx"
    return {"count": found[largest], "counter": largest, "way": "received" if way == "rx" else "sent"}


def waited_for_credits(side: Side) -> Figures | None:
    """Time in which the RDMA port had data but the other end of the link had no room for it."""
    found = side.here.matching(names.XMIT_WAIT)
    if not found or side.here.interval_ns <= 0:
        return None
    largest = max(found, key=lambda name: found[name])
    ratio = found[largest] * XMIT_WAIT_TICK_NS / side.here.interval_ns
    return {"count": found[largest], "wait_ratio": min(1.0, ratio), "counter": largest} if ratio >= XMIT_WAIT_RATIO else None


def lanes_missing(side: Side) -> Figures | None:
    """An InfiniBand link with fewer than four lanes, unless both ends have the two of a split cable."""
    here = _lanes(side.here)
    if here is None or here[0] >= LANES:
        return None
    lanes, rate = here
    there = _lanes(side.there) if side.there is not None else None
    split = lanes == SPLIT_LANES and any(word in rate for word in _SPLIT_RATES)
    if split and (there is None or there[0] <= lanes):
        return None
    return {"lanes": lanes, "lanes_max": there[0] if there is not None and there[0] > lanes else LANES, "rate": rate}


def _lanes(end: EndEvidence) -> tuple[int, str] | None:
    """Lanes and rate of the port behind the interface: `100 Gb/sec (4X EDR)`; None if it is no InfiniBand port."""
    port = str(end.facts.get(f"rdma.{end.interface}.port") or "")
    device, _, number = port.rpartition(".")
    rate = str(end.facts.get(f"rdma.{device}.port{number}.rate") or "")
    layer = str(end.facts.get(f"rdma.{device}.port{number}.link_layer") or "")
    match = re.search(r"\((\d+)X\b", rate)
    return (int(match[1]), rate) if match and layer != "Ethernet" else None


# ----------------------------------------------------------------------------------------------------------------------
# Rules on what limits or slows a result: buffers, CPU, NIC, fabric. See rules.py.


LIMITS: tuple[Row, ...] = (
    rule(
        "small_buffer",
        Scope.EACH_END,
        buffer_too_small,
        when=f"a TCP buffer set by hand that held the flow up for {WINDOW_LIMITED_RATIO:.0%} of its time, as the sender's"
        " kernel counted; before Linux 4.10, one of which half is less than throughput times round trip",
        message="{node}: the {buffer} buffer of {granted_bytes} is small beside the {under_way_bytes} that were under way",
        meaning="The socket buffer, and not the network, may set this throughput: no more can be under way than it holds.",
        advice="Leave send_buffer_bytes and receive_buffer_bytes at 0 (auto-tuned), or set twice rate times round trip.",
        source="RFC 7323 section 1.1 (bandwidth times delay); tcp(7); Linux include/uapi/linux/tcp.h (tcpi_rwnd_limited)",
    ),
    rule(
        "autotuning_limited",
        Scope.EACH_END,
        autotuning_at_its_end,
        when=f"a TCP buffer sized by the system that held the flow up for {AUTOTUNED_LIMITED_RATIO:.0%} of its time",
        message="{node}: the {buffer} buffer held the flow up for {limited_ratio} of its time; {sysctl} allows {maximum_bytes}",
        meaning="The node's largest TCP buffer, and not the network, may set this throughput; or, at a receiver, the process"
        " reads too slowly and its window stays full.",
        advice="Raise the last value of net.ipv4.tcp_rmem or tcp_wmem to twice rate times round trip; look at CPU findings.",
        source="Documentation/networking/ip-sysctl.rst (tcp_rmem); Linux include/uapi/linux/tcp.h (tcpi_rwnd_limited)",
    ),
    rule(
        "sender_fell_behind",
        Scope.EACH_END,
        fell_behind,
        when=f"a datagram sender below {RATE_REACHED_RATIO:.0%} of the rate it was asked for",
        message="{node} sent {sent_bps} of the {asked_bps} asked; its send buffer has {send_buffer_bytes}",
        meaning="The sender did not reach its rate: its socket waited for room (a small send buffer, a slow interface),"
        " or its CPU had no time left. Loss at the rate that was asked for is not known.",
        advice="Raise send_buffer_bytes, lower rate_bps below the interface's rate, or look at the sender's CPU findings.",
        source="socket(7) SO_SNDBUF; udp(7): a blocking send waits for room in the send buffer",
    ),
    rule(
        "core_saturated_by_interrupts",
        Scope.EACH_MACHINE,
        core_busy_with_interrupts,
        when=f"a core {CORE_BUSY_RATIO:.0%} busy, {CORE_INTERRUPT_RATIO:.0%} of it in interrupts",
        message="{node}: {cpu} was {busy_ratio} busy, {interrupt_ratio} in interrupts",
        meaning="One core that serves the network had no time left: the number is that core's, not the network's.",
        advice="Spread interrupts and receive queues over cores (RSS, RPS, `ethtool -L`, irqbalance); check GRO and LRO.",
        source="Documentation/networking/scaling.rst; proc_stat(5)",
    ),
    rule(
        "core_saturated_by_process",
        Scope.EACH_END,
        core_busy_with_process,
        when=f"the process, or its busiest thread, {CORE_BUSY_RATIO:.0%} of the time on a CPU, unless it waits by spinning",
        message="{node}: the test's process used {own_ratio} of a core",
        meaning="The process had no CPU time left: the number is that core's, not the network's.",
        advice="Use larger messages, more threads (`thread_count`), a core near the NIC, or take it as the limit of one core.",
        source="getrusage(2); Documentation/networking/scaling.rst",
    ),
    rule(
        "interrupts_far",
        Scope.EACH_END,
        interrupts_far,
        when=f"{FAR_RATIO:.0%} of {FAR_COUNT_MIN} or more interrupts of the NIC on CPUs of another socket",
        message="{node}: {far_ratio} of {count} interrupts of the NIC ran away from its NUMA node {numa_node}",
        meaning="Packets are handled on a socket other than the NIC's: each crosses the link between the sockets.",
        advice="Set the interrupts' affinity to the NIC's node (/proc/irq/*/smp_affinity_list), or run there.",
        source="Documentation/core-api/irq/irq-affinity.rst; sysfs-bus-pci numa_node; perfsonar/pscheduler issue 166",
    ),
    rule(
        "coalescing_floor",
        Scope.RESULT,
        coalescing,
        when=f"rx-usecs of both ends make {COALESCING_RATIO_MIN:.0%} or more of the median round trip, and at least"
        f" {COALESCING_NS_MIN / 1e3:g} us",
        message="interrupt coalescing of both NICs makes {floor_ns} of the {round_trip_p50_ns} median round trip",
        meaning="The latency's floor is the time that the NICs hold interrupts back, not the network.",
        advice="Measure with `ethtool -C IF adaptive-rx off rx-usecs 0`, and weigh latency against the CPU it costs.",
        source="ethtool(8) -c; Documentation/networking/ethtool-netlink.rst; Hpcbench (Huang, Bauer, Katchabaw 2005)",
    ),
    rule(
        "cpu_throttled",
        Scope.EACH_MACHINE,
        cpu_throttled,
        when="core or package throttle count moved",
        message="{node}: its CPU throttled {count} times ({counter})",
        meaning="The CPU cut its clock for heat or power during the measurement.",
        advice="Look at cooling, power limits and BMC events of this node.",
        source="sysfs thermal_throttle: Linux drivers/thermal/intel/therm_throt.c",
    ),
    rule(
        "cpu_saves_power",
        Scope.EACH_MACHINE,
        cpu_saves_power,
        when="governor powersave of a driver that takes it literally, or the CPU below"
        f" {SLOW_CLOCK_RATIO:.0%} of its base clock (of half its highest where that is not known) at both snapshots",
        message="{node}: governor {governor} ({driver}), its CPU ran at {clock_ratio} of its base clock",
        meaning="The CPU saved power while it measured: latency and the rate of small messages suffer.",
        advice="Set the governor `performance` (cpupower frequency-set, tuned-adm profile network-latency).",
        source="Documentation/admin-guide/pm/cpufreq.rst; intel_pstate.rst; amd-pstate.rst",
    ),
    rule(
        "mtu_mismatch",
        Scope.EACH_END,
        mtu_differs,
        when="the MTU of this end's interface is below that of the other end's",
        message="{node} has an MTU of {mtu_bytes}, {other_node} of {other_mtu_bytes}",
        meaning="The two ends disagree about the largest packet: fragments, smaller segments, or packets that vanish.",
        advice="Give every node of the network the same MTU; check the switches' as well.",
        source="RFC 1191; RFC 2923 section 2; RFC 4821",
    ),
    rule(
        "link_degraded",
        Scope.EACH_END,
        link_degraded,
        when="half duplex, or a speed below what the NIC can or, with the same driver, below the other end's",
        message="{node}: its link runs at {speed_bps}, {duplex} duplex; expected {expected_bps}",
        meaning="The link was negotiated below what it should be.",
        advice="Check cable, transceiver, the switch port's settings and autonegotiation (`ethtool IF`).",
        source="Documentation/ABI/testing/sysfs-class-net (speed, duplex); ethtool(8)",
    ),
    rule(
        "pcie_degraded",
        Scope.EACH_END,
        pcie_degraded,
        when="current PCIe width or speed below the maximum of the card and, where it is known, of its slot",
        message="{node}: its NIC's slot runs with {lanes} of {lanes_max} lanes at {gigatransfers} of {gigatransfers_max} GT/s",
        meaning="The NIC's PCIe link is narrower or slower than it could be, and may be slower than the network.",
        advice="Reseat the card, use another slot, check the BIOS; `lspci -vv` shows LnkCap against LnkSta.",
        source="Documentation/ABI/testing/sysfs-bus-pci (current_link_width, max_link_width)",
    ),
    rule(
        "clock_stepped",
        Scope.EACH_MACHINE,
        clock_stepped,
        when=f"wall clock against monotonic clock by {STEP_NS_MIN / 1e6:g} ms and {SLEW_RATIO * 1e6:g} ppm",
        message="{node}: its wall clock stepped by {step_ns} during the measurement",
        meaning="Somebody set this node's clock. Metrics use the monotonic clock and stand; times of day of this node do not.",
        advice="Look at the node's time daemon (chronyc tracking).",
        source="adjtimex(2): a slewed clock runs at most 500 ppm off; clock_gettime(2)",
    ),
    rule(
        "clock_off",
        Scope.EACH_MACHINE,
        clock_off,
        when="a time of day before the driver submitted the job, or after it saw its end, by more than"
        f" {CLOCK_TOLERANCE_S:g} s",
        message="{node}: its clock is {words}, by the driver's clock",
        meaning="This node's clock is wrong. Metrics use the monotonic clock and stand; the driver's time orders the result.",
        advice="Look at the node's time daemon (chronyc tracking) and its clock battery; at the driver's, if all nodes say so.",
        source="clock_gettime(2): CLOCK_REALTIME is what somebody set; rtc(4): a clock without power starts anywhere",
    ),
    rule(
        "congestion_marked",
        Scope.EACH_END,
        congestion_marked,
        when=f"{CONGESTION_COUNT_MIN} or more packets marked by switches (ECN), or notices of congestion (CNP)",
        message="{node}: {count} packets were marked for congestion, or notices of it sent or obeyed ({counter})",
        meaning="Switches between the nodes had queues: others use the same path, or it is oversubscribed.",
        advice="Compare pairs on the same leaf with pairs across; look at the switches' queues on the path.",
        source="RFC 3168; RoCEv2 annex A17 (CNP); Linux drivers/infiniband/hw/mlx5/counters.c",
    ),
    rule(
        "paused",
        Scope.EACH_END,
        paused,
        when=f"{PAUSE_COUNT_MIN} or more pause frames of the link or of a priority (PFC) at the interface",
        message="{node}: its interface {way} {count} pause frames ({counter})",
        meaning="The link had to stand still. Received: the switch had no room. Sent: this node took packets too slowly.",
        advice="Sent: enlarge rings, look at CPU and PCIe here. Received: look for the slow receiver behind the switch.",
        source="IEEE 802.3 annex 31B (pause), 802.1Qbb (PFC); ethtool(8) -S",
    ),
    rule(
        "waited_for_credits",
        Scope.EACH_END,
        waited_for_credits,
        when=f"port_xmit_wait of the interface's RDMA port for {XMIT_WAIT_RATIO:.0%} of the time, at"
        f" {XMIT_WAIT_TICK_NS:g} ns per tick",
        message="{node}: its port waited for credits for {wait_ratio} of the time",
        meaning="The port had data and the next hop had no room: congestion in the fabric, or a slow receiver.",
        advice="Follow port_xmit_wait from hop to hop (`perfquery`); the last port that waits is before the cause.",
        source="InfiniBand Architecture Specification, PortXmitWait; Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    rule(
        "lanes_missing",
        Scope.EACH_END,
        lanes_missing,
        when=f"an InfiniBand link with fewer than {LANES} lanes, or fewer than the other end where split cables have two",
        message="{node}: its InfiniBand link has {lanes} of {lanes_max} lanes ({rate})",
        meaning="Lanes of the link are off: it carries half or a quarter of what it should.",
        advice="Reseat or change cable and transceiver; `ibstat`, `iblinkinfo` show width and speed of both ends.",
        source="InfiniBand Architecture Specification, PortInfo LinkWidthActive; sysfs-class-infiniband (rate)",
    ),
    rule(
        "process_far",
        Scope.EACH_END,
        process_far,
        when="the test's process ran on a CPU of a socket other than the NIC's",
        message="{node}: the test ran on {cpu}, away from the NIC's NUMA node {numa_node}",
        meaning="Each packet crosses the link between the sockets: throughput and latency may be those of that link.",
        advice="Bind the test near the NIC (numactl --cpunodebind, or the launcher), and compare.",
        source="Documentation/ABI/testing/sysfs-bus-pci (numa_node); ACPI SLIT (distances)",
    ),
    rule(
        "deep_sleep",
        Scope.EACH_END,
        deep_sleep,
        when=f"round trips measured by a CPU that spent {DEEP_IDLE_RATIO:.0%} of the time in idle state C2 or deeper",
        message="{node}: {cpu} slept for {idle_ratio} of the time between messages, mostly in {state}",
        meaning="Waking from a deep idle state takes tens of microseconds, and is part of each round trip.",
        advice="Measure with shallow idle states (`cpupower idle-set`, tuned-adm profile latency-performance).",
        source="Documentation/admin-guide/pm/cpuidle.rst",
    ),
    rule(
        "memory_compacted",
        Scope.EACH_MACHINE,
        memory_compacted,
        when=f"vmstat compact_stall by {COMPACTION_COUNT_MIN} or more",
        message="{node}: processes waited {count} times while memory was compacted (transparent huge pages: {setting})",
        meaning="The kernel stopped processes to make large pages: latency has outliers that are not the network's.",
        advice="Set transparent huge pages or their defrag to madvise; look for fragmented memory.",
        source="Documentation/admin-guide/mm/transhuge.rst (compact_stall)",
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Rules on what was lost, damaged or sent again. See rules.py.


LOSS: tuple[Row, ...] = (
    rule(
        "loss_at_send_socket",
        Scope.EACH_END,
        refused_at_send_socket,
        when="UDP SndbufErrors beyond what the queue below dropped",
        message="{node}: the sending socket refused {count} datagrams",
        meaning="Datagrams were lost in the sender's own socket, before any network: its send buffer was full.",
        advice="Raise send_buffer_bytes (and net.core.wmem_max), or lower rate_bps.",
        source="Linux net/ipv4/udp.c (UDP_MIB_SNDBUFERRORS); Documentation/networking/snmp_counter.rst; udp(7)",
    ),
    rule(
        "loss_at_qdisc",
        Scope.EACH_END,
        dropped_at_qdisc,
        when="drops of the interface's queueing disciplines; where those cannot be read, Ip OutDiscards",
        message="{node}: the queue of its interface ({qdisc}) dropped {count} packets",
        meaning="Packets were lost in this node's send queue: more was sent than the interface, or a shaper on it, lets out.",
        advice="Lower the rate, or look at `tc -s qdisc show`: a shaper's rate and limit, txqueuelen, BQL.",
        source="tc(8), tc-tbf(8); RFC 4293 ipIfStatsOutDiscards; Linux include/net/sch_generic.h",
    ),
    rule(
        "loss_in_nic",
        Scope.EACH_END,
        dropped_in_nic,
        when="overruns (no buffer, FIFO, missed) of interface, driver or RDMA port; plain drops:"
        f" {DROPPED_COUNT_MIN} or more, and {DROPPED_RATIO:g} of the packets or more",
        message="{node}: its NIC dropped {count} packets ({counter}); its receive ring has {ring}",
        meaning="Packets were lost in this node's NIC: its ring or its memory was full before the CPU came to empty it.",
        advice="Enlarge the rings (`ethtool -G`), add queues (`ethtool -L`), or free the CPU that serves them.",
        source="Documentation/networking/statistics.rst; sysfs-class-net-statistics; the drivers' lists of ethtool statistics",
    ),
    rule(
        "link_errors",
        Scope.EACH_END,
        Matching(names.LINK_ERRORS),
        when="frames or symbols in error (CRC, alignment, carrier), or the link went down",
        message="{node}: {count} errors on the link ({counter})",
        meaning="The cable, the transceiver or the switch port damages frames, or the link went down during the measurement.",
        advice="Clean, reseat or change cable and transceiver; compare with the switch port's own error counters.",
        source="Documentation/networking/statistics.rst; Documentation/ABI/stable/sysfs-class-infiniband; IEEE 802.3 clause 30",
    ),
    rule(
        "loss_in_softnet",
        Scope.EACH_MACHINE,
        dropped_in_softnet,
        when="softnet_stat dropped of any CPU",
        message="{node}: the backlog of {cpu} and others dropped {count} packets",
        meaning="The receiving kernel dropped packets between the driver and the protocols: one CPU's backlog was full.",
        advice="Spread receiving over more CPUs (RSS, RPS), or raise net.core.netdev_max_backlog and netdev_budget.",
        source="Linux net/core/net-procfs.c (softnet_seq_show); Documentation/admin-guide/sysctl/net.rst",
    ),
    rule(
        "loss_at_receive_socket",
        Scope.EACH_END,
        refused_at_receive_socket,
        when="the test socket's own drops (SO_MEMINFO), else UDP RcvbufErrors",
        message="{node}: the receiving socket's full buffer refused {count} datagrams",
        meaning="Datagrams arrived and were lost at the receiver's socket: the process did not read them in time.",
        advice="Raise receive_buffer_bytes (and net.core.rmem_max), pin the receiver near its NIC, or lower the rate.",
        source="Linux net/ipv4/udp.c (UDP_MIB_RCVBUFERRORS); socket(7); sock_diag(7)",
    ),
    rule(
        "loss_in_network",
        Scope.EACH_END,
        lost_in_network,
        when="datagrams lost beyond every drop that both nodes counted",
        message="{count} of {lost_count} lost datagrams ({lost_ratio}) were lost between the nodes, no counter there has them",
        meaning="Neither host dropped these datagrams: switches or links between the nodes did.",
        advice="Look at the switches' discard counters on the path; run `hpcq blame` over a campaign of many pairs.",
        source="the method of UDPmon (R. Hughes-Jones): loss in the host apart from loss in the network",
    ),
    rule(
        "retransmits",
        Scope.EACH_END,
        sent_again,
        when=f"Tcp RetransSegs: {RETRANSMIT_COUNT_MIN} or more, and {RETRANSMIT_RATIO:g} of the segments or more",
        message="{node} sent {count} segments again ({again_ratio} of {sent_count}), {timeout_count} times after a time-out;"
        " both hosts dropped {dropped_in_hosts_count}",
        meaning="TCP had to send again: segments were lost or came late. Where no host dropped them, the network between did."
        " Those counted as in vain (`in_vain_count`) had arrived after all.",
        advice="Look for loss findings at both ends first; then at the path: switch discards, a lossy link, reordering.",
        source="RFC 4022 tcpRetransSegs; RFC 8985 (tail loss probes); Mathis et al. 1997: throughput falls with 1/sqrt(loss)",
    ),
    rule(
        "receive_buffer_pruned",
        Scope.EACH_END,
        Counted((*names.TCP_PRUNED, *names.TCP_BACKLOG_DROPPED), beside={"collapsed_count": names.TCP_COLLAPSED}),
        when="TcpExt PruneCalled, RcvPruned, OfoPruned, TCPRcvQDrop, TCPZeroWindowDrop or TCPBacklogDrop",
        message="{node}: TCP pruned receive buffers {count} times and collapsed {collapsed_count} segments",
        meaning="The receiver's TCP ran out of buffer: it dropped or squeezed data that had arrived.",
        advice="Raise net.ipv4.tcp_rmem and tcp_mem (or receive_buffer_bytes); look why the reader is slow.",
        source="Documentation/networking/snmp_counter.rst (PruneCalled, TCPRcvCollapsed, TCPBacklogDrop)",
    ),
    rule(
        "listen_overflow",
        Scope.EACH_END,
        Counted((*names.LISTEN_OVERFLOWED, *names.LISTEN_DROPPED), beside={"overflow_count": names.LISTEN_OVERFLOWED}),
        when="TcpExt ListenOverflows or ListenDrops",
        message="{node}: listening sockets dropped {count} connection attempts",
        meaning="Connections to a listening socket of this node were dropped; each is tried again a second later.",
        advice="Raise net.core.somaxconn and the server's backlog; look who connects so often.",
        source="Documentation/networking/snmp_counter.rst (TcpExtListenOverflows); listen(2)",
    ),
    rule(
        "conntrack_drops",
        Scope.EACH_END,
        Counted(names.CONNTRACK_DROPPED),
        when="drop, early_drop or insert_failed of the connection tracker",
        message="{node}: its connection tracker dropped {count} packets",
        meaning="The node's firewall lost packets because its table of connections was full or raced.",
        advice="Raise nf_conntrack_max, or leave the cluster network untracked (NOTRACK).",
        source="Documentation/networking/nf_conntrack-sysctl.rst; conntrack(8)",
    ),
    rule(
        "rdma_sent_again",
        Scope.EACH_END,
        rdma_sent_again,
        when=f"packets of the interface's RDMA port out of sequence or acknowledged late, {RDMA_AGAIN_COUNT_MIN} or more",
        message="{node}: its RDMA port saw {count} packets that were lost or out of order ({counter})",
        meaning="RoCE or InfiniBand had to send again: the fabric lost or reordered packets, which costs time-outs.",
        advice="Look for congestion and link errors on the path; RoCE without loss needs PFC or ECN on every switch.",
        source="Linux drivers/infiniband/hw (mlx5, bnxt_re, irdma: hw_counters); InfiniBand Architecture Specification 9.7.5",
    ),
)


# ----------------------------------------------------------------------------------------------------------------------


__all__ = ["RULES", "VERSION", "Row", "Scope"]

#: Increase it with every rule that is new or judges otherwise. Each result stores it, and findings of different
#: versions are
#: never compared: a newer rule is no change of the machine (`hpcq db rejudge` updates old results).
VERSION = 3

#: In the order in which findings are reported.
RULES: tuple[Row, ...] = (*CROSSING, *LOSS, *LIMITS, *COURSE, *DISTURBANCE)


# ----------------------------------------------------------------------------------------------------------------------
# How the values of one measurement go over its time: a drift, or two levels instead of one. Pure, standard library.


#: Fewer values have no course.
VALUES_MIN = 10
#: A drift is looked for in so many means of neighbours, for which time and slopes stay small.
_SHARES = 40


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend: the values at the end over those at the beginning, less 1; `z` is that of Mann and Kendall's test."""

    change_ratio: float
    z: float


@dataclass(frozen=True, slots=True)
class TwoLevels:
    """Two groups of values: their means, the share of the lower one, and how much of the variance lies between them.

    One normal distribution has 0.64 of it between its halves, a uniform one 0.75, two sharp levels 1.
    """

    low: float
    high: float
    low_ratio: float
    explained_ratio: float


def drift(values: Sequence[float]) -> Drift | None:
    """The trend of values that stand in order of time; None: too few, or they are about 0.

    Slope: the median of the slopes between all pairs (Theil 1950, Sen 1968). Test: Mann 1945, Kendall 1975, with ties;
    its variance grows with the correlation of neighbours, as they tell less than independent values would.
    """
    if len(values) < VALUES_MIN:
        return None
    shares = thinned(values, _SHARES)
    middle, count = median(shares), len(shares)
    if middle <= 0:
        return None
    slopes = [(after - before) / (j - i) for (i, before), (j, after) in combinations(enumerate(shares), 2)]
    score = sum((slope > 0) - (slope < 0) for slope in slopes)
    ties = sum(t * (t - 1) * (2 * t + 5) for t in (shares.count(one) for one in set(shares)))
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18
    slope = median(slopes)
    variance *= _inflation([one - slope * at for at, one in enumerate(shares)])
    z = (score - math.copysign(1, score)) / math.sqrt(variance) if score and variance > 0 else 0.0
    return Drift(slope * (count - 1) / middle, z)


def _inflation(values: Sequence[float]) -> float:
    """How much more the mean of correlated values scatters than that of independent ones: (1 + r) / (1 - r)."""
    middle = fmean(values)
    spread = sum((one - middle) ** 2 for one in values)
    if spread <= 0:
        return 1.0
    together = sum((before - middle) * (after - middle) for before, after in pairwise(values))
    correlation = min(max(together / spread, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)


def levels(values: Sequence[float], weights: Sequence[float] | None = None) -> TwoLevels | None:
    """The split into a lower and a higher group with the most variance between them (Otsu 1979); None: all are equal."""
    given = weights or [1.0] * len(values)
    ordered = sorted(zip(values, given, strict=True))
    total = sum(given)
    whole = sum(value * weight for value, weight in ordered)
    spread = sum(weight * (value - whole / total) ** 2 for value, weight in ordered) if total else 0.0
    if spread <= 0:
        return None
    best = (-1.0, 0.0, 0.0)
    below, below_sum = 0.0, 0.0
    for (value, weight), (following, _) in pairwise(ordered):
        below, below_sum = below + weight, below_sum + value * weight
        if following == value or below >= total:
            continue
        gap = (whole - below_sum) / (total - below) - below_sum / below
        best = max(best, (below * (total - below) / total * gap**2, below, below_sum))
    between, below, below_sum = best
    if below <= 0:
        return None
    return TwoLevels(below_sum / below, (whole - below_sum) / (total - below), below / total, between / spread)


def switches(values: Sequence[float], boundary: float) -> int:
    """How often values in order of time cross a boundary."""
    return sum((before < boundary) is not (after < boundary) for before, after in pairwise(values))


def thinned(values: Sequence[float], count: int) -> list[float]:
    """At most so many means of neighbours."""
    step = -(-len(values) // count)
    return [fmean(values[at : at + step]) for at in range(0, len(values), step)]

"""Conditions on the NIC and its place in the node: PCIe, link, MTU, rings, interrupts, coalescing."""

from __future__ import annotations

import re

from hpcq.evidence import names
from hpcq.evidence.case import Side
from hpcq.evidence.conditions.network import Figures
from hpcq.evidence.ends import End

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


def cpus_near(end: End) -> set[int] | None:
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

"""Conditions on the hosts: CPU, interrupts, clock, and the facts of NIC and link. See conditions.py."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from hpcq.evidence import names
from hpcq.evidence.case import Case, Side
from hpcq.evidence.conditions import Figures, Matching
from hpcq.evidence.crossing import Crossing, crossing
from hpcq.evidence.ends import TICKS_A_SECOND, End
from hpcq.evidence.judgement import CrossedInterface

#: Of a core's time: below it the core had time left for more packets (with ticks of 10 ms, 5 % is 5 of a second's 100).
CORE_BUSY_RATIO = 0.95
#: Of that, in interrupts: then it is the kernel's receive path and not a process that is at its end.
CORE_INTERRUPT_RATIO = 0.5
#: Fewer ticks than these tell nothing of a core.
CORE_TICKS_MIN = 20
#: Of the process's time. Quiet ping-pongs wait 3 to 4 % (measured, 14,000 wake-ups a second); one competitor brings 20 to 50 %.
WAITED_RATIO = 0.10
#: Cores kept busy by others: daemons stay below a tenth; a process that shares the test's core gets half of it.
OTHER_CORES = 0.25
OTHER_TICKS_MIN = 10
#: Of one core. Repetitions on a quiet machine spread by some 3 %.
STOLEN_RATIO = 0.05
STOLEN_TICKS_MIN = 5
QUOTA_HELD_RATIO = 0.01
#: Of the NIC's interrupts; below, only a queue or two is misplaced.
FAR_RATIO = 0.5
FAR_COUNT_MIN = 1000
#: A coalescing delay below it is no more than what fast cards take anyway.
COALESCING_NS_MIN = 10_000
#: The floor explains a round trip when it is most of it and not more than all of it.
COALESCING_RATIO_MIN, COALESCING_RATIO_MAX = 0.5, 1.05
#: Of the CPU's highest frequency: turbo steps and temperature stay above.
SLOW_CLOCK_RATIO = 0.7
#: Time daemons slew by 500 ppm at the most (adjtimex(2)); 10 ms more is a step and not a preempted snapshot.
STEP_NS_MIN = 10_000_000
SLEW_RATIO = 500e-6


def core_busy_with_interrupts(side: Side) -> Figures | None:
    """A core at its end, most of it in interrupts. Lines of large nodes leave idle time out, so the interval is the whole."""
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
    """The test's own process had no time left; one that waits by spinning always looks so and is left out."""
    spins = side.case.over_mpi or (side.sends and side.case.parameters.get("pacing") == "spin")
    own_us = side.here.count(names.OWN_CPU_US)
    if spins or own_us is None or side.here.interval_ns <= 0:
        return None
    ratio = own_us * 1e3 / side.here.interval_ns
    if ratio < CORE_BUSY_RATIO:
        return None
    return {"own_ratio": ratio, **({"cpu": f"cpu{side.here.cpu_index}"} if side.here.cpu_index is not None else {})}


def waited_for_cpu(side: Side) -> Figures | None:
    """The process was ready to run while another had its CPU. Waiting for the interrupts that bring its own packets is part
    of the work (a quiet receiver of a stream waits 10 to 23 % of the time so), hence others must be seen at work too. On a
    shared kernel the other end may have had the CPU: no sign of others."""
    waited_ns = side.here.count(names.OWN_WAIT_NS)
    if waited_ns is None or side.here.interval_ns <= 0 or waited_ns < WAITED_RATIO * side.here.interval_ns:
        return None
    waited_ratio = waited_ns / side.here.interval_ns
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
    """CPU time of the node that neither the test nor interrupts took."""
    work = _work_of_others(side)
    return {"other_cores": work.cores, "own_cores": work.own_cores} if work is not None and work.seen else None


@dataclass(frozen=True, slots=True)
class _Work:
    """CPU time of a node in cores, of others and of the test."""

    cores: float
    own_cores: float
    ticks: float

    @property
    def seen(self) -> bool:
        """More than daemons and the coarseness of ticks."""
        return self.cores >= OTHER_CORES and self.ticks >= OTHER_TICKS_MIN


def _work_of_others(side: Side) -> _Work | None:
    """What processes did on the node, less the test's; None where that is not counted."""
    ticks = side.here.ticks.get("cpu", {})
    own_us = side.here.count(names.OWN_CPU_US)
    if not ticks or own_us is None or side.here.interval_ns <= 0:
        return None
    if side.case.shared_kernel and side.there is not None:
        own_us += side.there.count(names.OWN_CPU_US) or 0
    work_ticks = sum(ticks.get(mode, 0) for mode in names.WORK_MODES) - own_us * TICKS_A_SECOND / 1e6
    return _Work(work_ticks / TICKS_A_SECOND / side.here.interval_s, own_us * 1e3 / side.here.interval_ns, work_ticks)


def stolen(side: Side) -> Figures | None:
    """Time that the hypervisor gave to other machines."""
    ticks = side.here.ticks.get("cpu", {}).get("steal", 0)
    if side.here.interval_ns <= 0 or ticks < STOLEN_TICKS_MIN:
        return None
    cores = ticks / TICKS_A_SECOND / side.here.interval_s
    return {"stolen_cores": cores, "stolen_ticks": ticks} if cores >= STOLEN_RATIO else None


def held_by_quota(side: Side) -> Figures | None:
    """The control group's CPU quota stopped the process."""
    held_us = side.here.count(names.QUOTA_HELD_US)
    if not held_us or side.here.interval_ns <= 0:
        return None
    ratio = held_us * 1e3 / side.here.interval_ns
    return {"held_us": held_us, "held_ratio": ratio} if ratio >= QUOTA_HELD_RATIO else None


def interrupts_far(side: Side) -> Figures | None:
    """Most of the NIC's interrupts ran on CPUs of another NUMA node than the NIC's."""
    near = _cpus_near(side.here)
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


def coalescing(side: Side) -> Figures | None:
    """The round trip is mostly the time that both NICs wait before they interrupt."""
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


def cpu_throttled(side: Side) -> Figures | None:
    """The CPU cut its own clock for heat."""
    return Matching(names.THROTTLED)(side)


def cpu_saves_power(side: Side) -> Figures | None:
    """The CPU ran well below its clock, or under a governor that keeps it there."""
    highest_hz = side.here.number("frequency_max_hz")
    reading = side.here.gauge(names.FREQUENCY)
    governor, driver = side.here.fact("governor"), str(side.here.fact("frequency_driver") or "")
    figures: Figures = {"governor": str(governor or "unknown"), "driver": driver or "unknown"}
    # powersave of intel_pstate and amd-pstate (active mode) means "by load"; elsewhere it means "lowest"
    if governor == "powersave" and not driver.startswith(("intel_pstate", "amd-pstate", "amd_pstate")):
        return figures | {"clock_ratio": 0.0 if not (highest_hz and reading) else max(reading) / highest_hz}
    if not highest_hz or reading is None or max(reading) <= 0 or max(reading) >= SLOW_CLOCK_RATIO * highest_hz:
        return None
    return figures | {"clock_ratio": max(reading) / highest_hz}


def mtu_differs(side: Side) -> Figures | None:
    """Told at the end with the smaller MTU; the loopback interface has one of its own."""
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
    # a slower switch port that says so is no fault of this link
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
    """The NIC's slot runs with fewer lanes or slower than both could."""
    lanes, most = side.here.number("pci_width"), side.here.number("pci_width_max")
    rate, fastest = _transfer_rate(side.here.fact("pci_speed")), _transfer_rate(side.here.fact("pci_speed_max"))
    if not ((lanes and most and 0 < lanes < most) or (rate and fastest and 0 < rate < fastest)):
        return None
    return {
        "lanes": int(lanes or 0),
        "lanes_max": int(most or 0),
        "rate_gt_s": rate or 0.0,
        "rate_max_gt_s": fastest or 0.0,
    }


def clock_stepped(side: Side) -> Figures | None:
    """The wall clock moved otherwise than the monotonic one between the snapshots."""
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


def crossing_unknown(side: Side) -> Figures | None:
    """No counter tells whether the bytes crossed the interface under test."""
    return _crossing(side.case, CrossedInterface.UNKNOWN)


def not_crossed(side: Side) -> Figures | None:
    """The bytes went another way."""
    return _crossing(side.case, CrossedInterface.NO)


def _crossing(case: Case, answer: CrossedInterface) -> Figures | None:
    found: Crossing = crossing(case)
    if found.answer is not answer:
        return None
    return {"reason": found.reason, "expected_bytes": found.expected_bytes, "moved_bytes": found.moved_bytes}


def _cpus_near(end: End) -> set[int] | None:
    """CPUs of the NUMA node that the NIC hangs on; None when there is but one, or it is not known."""
    node = end.number("numa_node")
    nodes = {
        int(match["node"]): str(value)
        for name, value in end.facts.items()
        if (match := re.fullmatch(names.NUMA_CPUS, name)) is not None
    }
    return _cpu_list(nodes[int(node)]) if node is not None and len(nodes) > 1 and int(node) in nodes else None


def _cpu_list(text: str) -> set[int]:
    """`0-3,8` as the kernel writes lists of CPUs."""
    return {
        cpu
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text)
        for cpu in range(int(first), min(int(last or first), int(first) + 65535) + 1)
    }


def _of_nic(interrupt: str, interface: str, address: str, numbers: set[str]) -> bool:
    """Whether an interrupt's name is that of the NIC: eth0-TxRx-3#57, mlx5_comp3@pci:0000:81:00-0#57, #57 of its affinities."""
    action, _, number = interrupt.rpartition("#")
    if number in numbers:
        return True
    by_name = bool(interface) and re.match(rf"(.*[-:])?{re.escape(interface.replace('.', '-'))}(-|$)", action) is not None
    return by_name or (bool(address) and address in action)


def _transfer_rate(value: object) -> float | None:
    """`16.0 GT/s PCIe` -> 16.0"""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", str(value)) if value is not None else None
    return float(match[1]) if match else None


def _between_ns(end: End) -> float | None:
    try:
        before, after = (dt.datetime.fromisoformat(one.replace("Z", "+00:00")) for one in (end.before_utc, end.after_utc))
        return (after - before).total_seconds() * 1e9
    except (ValueError, TypeError):
        return None

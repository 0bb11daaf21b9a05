"""Conditions on the hosts: who used the CPU, the wall clock, and whether the bytes crossed the interface."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from hpcq.evidence import names
from hpcq.evidence.case import Case, Side
from hpcq.evidence.conditions.network import Figures
from hpcq.evidence.crossing import Crossing, crossing
from hpcq.evidence.ends import TICKS_A_SECOND, End
from hpcq.evidence.judgement import CrossedInterface

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
    """The test's own process used all of its core. A process that waits by spinning always looks so and is left out."""
    spins = side.case.over_mpi or (side.sends and side.case.parameters.get("pacing") == "spin")
    own_us = side.here.count(names.OWN_CPU_US)
    if spins or own_us is None or side.here.interval_ns <= 0:
        return None
    ratio = own_us * 1e3 / side.here.interval_ns
    if ratio < CORE_BUSY_RATIO:
        return None
    return {"own_ratio": ratio, **({"cpu": f"cpu{side.here.cpu_index}"} if side.here.cpu_index is not None else {})}


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


def crossing_unknown(side: Side) -> Figures | None:
    """No counter shows whether the bytes crossed the interface under test."""
    return _crossing(side.case, CrossedInterface.UNKNOWN)


def not_crossed(side: Side) -> Figures | None:
    """The bytes took another path."""
    return _crossing(side.case, CrossedInterface.NO)


def _crossing(case: Case, answer: CrossedInterface) -> Figures | None:
    found: Crossing = crossing(case)
    if found.answer is not answer:
        return None
    return {"reason": found.reason, "expected_bytes": found.expected_bytes, "moved_bytes": found.moved_bytes}


def _between_ns(end: End) -> float | None:
    try:
        before, after = (dt.datetime.fromisoformat(one.replace("Z", "+00:00")) for one in (end.before_utc, end.after_utc))
        return (after - before).total_seconds() * 1e9
    except (ValueError, TypeError):
        return None

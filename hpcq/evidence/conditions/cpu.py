"""Conditions on the CPU's clock, sleep states and sibling threads."""

from __future__ import annotations

import re

from hpcq.evidence import names
from hpcq.evidence.case import Side
from hpcq.evidence.conditions.link import cpu_list
from hpcq.evidence.conditions.network import Figures, Matching
from hpcq.evidence.ends import TICKS_A_SECOND, End

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


def reference_clock_hz(end: End) -> float | None:
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

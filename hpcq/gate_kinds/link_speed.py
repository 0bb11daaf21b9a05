"""What the facts of a node say of the speed of its interface; shared by `link` and `peers`."""

from __future__ import annotations

from hpcq.gate_kinds.base import End

#: Facts that speed_bps() reads.
SPEED_FACTS = ("nic.{interface}.speed_mbps", "nic.{interface}.link.speed_bps")


def speed_bps(end: End) -> float | None:
    """What the interface says of its speed now; None where it says nothing."""
    speed = end.fact("nic.{interface}.link.speed_bps")
    mbps = end.fact("nic.{interface}.speed_mbps")
    found = speed if isinstance(speed, (int, float)) else 1e6 * mbps if isinstance(mbps, (int, float)) else 0
    return float(found) if found > 0 else None

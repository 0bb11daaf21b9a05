"""The speed of a node's interface according to the node's facts; shared by `link` and `peers`."""

from __future__ import annotations

from hpcq.gate_kinds.base import End

#: Facts that speed_bps() reads.
SPEED_FACTS = ("nic.{interface}.speed_mbps", "nic.{interface}.link.speed_bps")


def speed_bps(end: End) -> float | None:
    """The current speed that the interface reports; None if it reports none."""
    speed = end.fact("nic.{interface}.link.speed_bps")
    mbps = end.fact("nic.{interface}.speed_mbps")
    found = speed if isinstance(speed, (int, float)) else 1e6 * mbps if isinstance(mbps, (int, float)) else 0
    return float(found) if found > 0 else None

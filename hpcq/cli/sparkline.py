"""A history in one line of characters."""

from __future__ import annotations

from collections.abc import Sequence

from hpcq import units

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


def sparkline(values: Sequence[float], unit: str | None) -> str:
    """The values from left to right, the lowest as the lowest bar, and what the two ends mean.

    values: in the order of time, not empty. More values than the line is wide: each bar is the median of its share.
    """
    shares = [values[len(values) * k // _WIDTH : len(values) * (k + 1) // _WIDTH] for k in range(_WIDTH)]
    shown = list(values) if len(values) <= _WIDTH else [sorted(share)[len(share) // 2] for share in shares]
    lowest, highest = min(shown), max(shown)
    span = highest - lowest
    bars = "".join(_BARS[round((one - lowest) / span * (len(_BARS) - 1)) if span else 0] for one in shown)
    return f"{bars}  {units.human(lowest, unit)} to {units.human(highest, unit)}"

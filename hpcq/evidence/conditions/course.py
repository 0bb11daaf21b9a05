"""Conditions on the course of a measurement: one number for it is honest only if it was one thing from beginning to end."""

from __future__ import annotations

import math

from hpcq.evidence import course
from hpcq.evidence.case import Side
from hpcq.evidence.conditions.network import Figures

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
    found = course.drift(values)
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
            "switch_count": course.switches(values, (found.low + found.high) / 2),
        }
    return None


def round_trips_of_two_levels(side: Side) -> Figures | None:
    """The histogram has two humps: most round trips are near one of two times."""
    buckets = side.case.histogram_ns
    if sum(count for _, count in buckets) < ROUND_TRIPS_MIN:
        return None
    found = course.levels([math.log2(max(lower, 1)) for lower, _ in buckets], [count for _, count in buckets])
    if found is None or found.explained_ratio < EXPLAINED_RATIO:
        return None
    low_ns, high_ns = 2**found.low, 2**found.high
    if min(found.low_ratio, 1 - found.low_ratio) < SHARE_MIN or high_ns < low_ns * (1 + APART_RATIO):
        return None
    return {"low_ns": low_ns, "high_ns": high_ns, "low_ratio": found.low_ratio}


def _two(values: tuple[float, ...]) -> course.Levels | None:
    found = course.levels(values) if len(values) >= course.VALUES_MIN else None
    if found is None or found.explained_ratio < EXPLAINED_RATIO:
        return None
    smaller = min(found.low_ratio, 1 - found.low_ratio)
    return found if smaller >= SHARE_MIN and found.high >= found.low * (1 + APART_RATIO) else None

"""Parse delays, rates and losses as people write them into base units: ns, bits per second, a ratio."""

import re

from faults import UsageError

_DELAY_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_RATE_BPS = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z%]*)", re.IGNORECASE)
DELAY_MAX_NS = 10 * _DELAY_NS["s"]
RATE_MIN_BPS = 8_000
RATE_MAX_BPS = 100_000_000_000


def delay_ns(option: str, text: str) -> int:
    """`1.45ms` -> 1450000. A bare 0 is allowed; any other number needs its unit."""
    value, unit = _split(option, text, "a delay such as 1.45ms, 200us or 0")
    if unit not in _DELAY_NS and value != 0:
        raise UsageError(f"{option}: {text!r} has no unit of time: ns, us, ms and s are allowed")
    found = round(value * _DELAY_NS.get(unit, 1))
    if found > DELAY_MAX_NS:
        raise UsageError(f"{option}: {text!r} is above 10s, the longest delay that the link can hold")
    return found


def rate_bps(option: str, text: str, *, may_be_none: bool = False) -> int:
    """`400mbit` -> 400000000; `none` -> 0 (unlimited), if that is allowed."""
    if may_be_none and text.lower() == "none":
        return 0
    allowed = "a rate such as 400mbit or 1gbit" + (", or none" if may_be_none else "")
    value, unit = _split(option, text, allowed)
    if unit not in _RATE_BPS:
        raise UsageError(f"{option}: {text!r} has no unit of rate: bit, kbit, mbit and gbit are allowed")
    found = round(value * _RATE_BPS[unit])
    if not RATE_MIN_BPS <= found <= RATE_MAX_BPS:
        raise UsageError(f"{option}: {text!r} is out of range: 8kbit to 100gbit are allowed")
    return found


def loss_ratio(option: str, text: str) -> float:
    """`1%` and `0.01` -> 0.01. A bare number is a ratio and must be below 1."""
    value, unit = _split(option, text, "a ratio such as 0.01 or a percentage such as 1%")
    if unit == "%" and value <= 100:
        return value / 100
    if unit == "" and value < 1:
        return value
    raise UsageError(
        f"{option}: {text!r} is not a loss: 0 to 100% are allowed",
        "a bare number is a ratio below 1: write 1% or 0.01 for one packet in a hundred",
    )


def rate_text(found_bps: int) -> str:
    """200000000 -> `200mbit`; 0 -> `none`."""
    if not found_bps:
        return "none"
    for unit, scale in (("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)):
        if found_bps >= scale:
            return f"{found_bps / scale:g}{unit}"
    return f"{found_bps}bit"


def _split(option: str, text: str, allowed: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: {text!r} is not understood: {allowed}")
    return float(match[1]), match[2].lower()

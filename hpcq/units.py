"""Quantities as people write them and as hpcq stores them.

Hides the two conventions: prefixes are decimal for rates and times, binary for sizes; and a name's suffix is its unit.

    "64KiB" -> 65536 (bytes)    "400mbit" -> 400_000_000 (bps)    "1.45ms" -> 1_450_000 (ns) or 0.00145 (s)
    "95%" -> 0.95 (ratio)
    65536 -> "64 KiB"           1.2e8 -> "120 Mbit/s"             71_000 ns -> "71 us"
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

_NUMBER = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z/µ%]*)\s*$")

_SIZE_BYTES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_RATE_BPS = {"": 1, "bps": 1, "bit": 1, "bit/s": 1}
for _prefix, _factor in (("k", 10**3), ("m", 10**6), ("g", 10**9), ("t", 10**12)):
    for _unit in ("", "bit", "bps", "bit/s"):
        _RATE_BPS[_prefix + _unit] = _factor
_TIME_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}

_PER_CENT = 100.0  # to divide by: 95 / 100 is 0.95, but 95 * 0.01 is slightly more
_RATIO = {"": 1.0, "%": 1 / _PER_CENT}
_TABLES: dict[str, Mapping[str, float]] = {
    "bytes": _SIZE_BYTES,
    "bps": _RATE_BPS,
    "ns": _TIME_NS,
    "us": _TIME_NS,
    "ms": _TIME_NS,
    "s": _TIME_NS,
    "ratio": _RATIO,
}

#: The suffixes that a name may have, longest first.
SUFFIXES = (
    *("_bytes", "_ratio", "_count", "_index", "_flops", "_bps", "_pps", "_eps", "_rpm", "_utc"),
    *("_ns", "_us", "_ms", "_no", "_s"),
)


@cache
def unit_of(name: str) -> str | None:
    """The unit that a name has as its suffix, or None: `message_bytes` -> `bytes`."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix[1:]
    return None


def unit_of_option(name: str) -> str | None:
    """The unit of an option by its name, also of one that is a bound: `message_bytes_max` -> `bytes`."""
    return unit_of(name) or unit_of(name.removesuffix("_max").removesuffix("_min"))


def parse(text: str | int | float, unit: str) -> float:
    """Read a quantity in `unit` (bytes, bps, ns, us, ms, s, ratio).

    A bare number is already in that unit. Raises ValueError that names what is allowed.
    """
    if isinstance(text, (int, float)):
        return text
    match = _NUMBER.match(text)
    table = _TABLES.get(unit, {"": 1})
    suffix = match.group(2).lower() if match else ""
    if match is None or (suffix and suffix not in table):
        known = ", ".join(sorted(key for key in table if key))
        if not known:
            raise ValueError(f"{text!r} is not a number: must be a number without a unit")
        allowed = f"a number and one of {known}"
        if unit == "bytes" and suffix in {"k", "m", "g"}:
            allowed = f"{text.strip()}iB (binary) and {text.strip()}B (decimal)"
        raise ValueError(f"{text!r} is not a quantity in {unit}: must be {allowed}")
    value = float(match.group(1))
    if suffix:
        value = value / _PER_CENT if suffix == "%" else value * table[suffix]
        if table is _TIME_NS:
            value /= _TIME_NS[unit]
    return int(value) if value == int(value) else value


def utc_now() -> str:
    """The current time as ISO 8601 with microseconds and Z."""
    return utc_text(dt.datetime.now(dt.UTC))


def utc_text(moment: dt.datetime) -> str:
    """A time with a time zone, as ISO 8601 in UTC with microseconds and Z."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_utc(text: str) -> dt.datetime:
    """Read what `utc_text` wrote."""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))


_SIZE_STEPS = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_FLOP_STEPS = ((1e12, "Tflop/s"), (1e9, "Gflop/s"), (1e6, "Mflop/s"), (1.0, "flop/s"))
_RATE_STEPS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_TIME_STEPS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
#: Figures below are shown with four digits; those above whole, up to where a float has no more digits.
_FOUR_DIGITS_BELOW, _WHOLE_BELOW = 9999.5, 1e15
_STEPS = {"bytes": _SIZE_STEPS, "bps": _RATE_STEPS, "flops": _FLOP_STEPS, "ns": _TIME_STEPS}


def human(value: float, unit: str | None) -> str:
    """A stored value as text for people: `human(1.2e8, "bps")` -> `120 Mbit/s`. Sizes that are no whole KiB stay exact."""
    if unit == "bytes" and value == int(value) and value % 2**10 and abs(value) < 2**20:
        return f"{int(value)} B"
    factor, label = _step(value, unit)
    if label:
        return f"{_figure(value / factor)} {label}"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if 1e6 <= abs(value) < _WHOLE_BELOW else f"{value:.6g}"


def plain(value: float) -> str:
    """A number whose unit stands elsewhere; `:g` would make 2099980 node-seconds 2.09998e+06."""
    return human(value, None)


def _figure(value: float) -> str:
    """Four digits that count, and never fewer before the decimal point than there are."""
    return f"{value:.0f}" if _FOUR_DIGITS_BELOW <= abs(value) < _WHOLE_BELOW else f"{value + 0.0:.4g}"  # no -0


def human_of(name: str, value: object) -> str:
    """A stored value as text for people, in the unit of its name; text stays, and what is no number is JSON."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return human(value, unit_of(name))
    return value if isinstance(value, str) else json.dumps(value)


def human_column(values: Sequence[float], unit: str | None) -> list[str]:
    """The same for values that stand below each other: equally many decimals where all have the same prefix."""
    texts = [human(value, unit) for value in values]
    steps = {_step(value, unit) for value in values}
    labels = {text.partition(" ")[2] for text in texts}
    if len(steps) != 1 or len(labels) != 1 or any("e" in text.partition(" ")[0] for text in texts):
        return texts
    factor, label = steps.pop()
    if label not in labels:
        return texts
    decimals = max(len(text.partition(" ")[0].partition(".")[2]) for text in texts)
    return [f"{value / factor:.{decimals}f} {label}".rstrip() for value in values]


def human_like(reference: float, unit: str | None) -> tuple[str, Callable[[float], str]]:
    """The prefix with its unit that suits a value, as `Mbit/s`, and what writes others in it, without that word.

    For figures that are compared at one look and have no room for a unit each.
    """
    factor, label = _step(reference, unit)

    return label, lambda value: _figure(value / factor)


def _step(value: float, unit: str | None) -> tuple[float, str]:
    """What a value is divided by, and the prefix with its unit; 1 and nothing if the unit has no prefixes.

    Of the figure as it is shown, with four digits: 999.97 Mbit/s would be 1000 Mbit/s, so it is 1 Gbit/s.
    """
    if unit == "ratio":
        return 1 / _PER_CENT, "%"
    steps = _STEPS.get("ns" if unit in {"us", "ms", "s"} else unit or "")
    if steps is None:
        return 1.0, ""
    base = 1.0 / _TIME_NS[unit] if unit in {"ns", "us", "ms", "s"} else 1.0
    lower = (*steps[1:], steps[-1])
    for (factor, label), (below, _) in zip(steps, lower, strict=True):
        if float(f"{abs(value) / (below * base):.4g}") * below >= factor:
            return factor * base, label
    return steps[-1][0] * base, steps[-1][1]


def count_of(count: int, noun: str) -> str:
    """`count_of(1, "pair")` -> `1 pair`, `count_of(2, "pair")` -> `2 pairs`; `series` does not change."""
    return f"{count} {noun}" if count == 1 or noun == "series" else f"{count} {noun}s"

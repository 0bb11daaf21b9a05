"""What relative gates hold results against: a baseline, peers of the same hardware, the physical limit. Pure.

baseline   the median of the same series in the baseline's runs
peers      the median over the medians of other pairs in the same test, whose two ends are the same hardware as this pair's
link       the speed of the slowest interface on the way, and of a token bucket at the sender's
memory     the rate at which the slower of both nodes copies memory: no byte reaches a program without a copy

A reference that does not stand says why, and the gate is inconclusive: never a pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hpcq.verdict.gates import MeasuredSeries, Reference

Facts = Mapping[str, Any]
#: Interfaces that exist in the kernel only: the speed that they report is a fixed number, not a limit.
VIRTUAL_DRIVERS = frozenset(
    {"veth", "tun", "bridge", "dummy", "ifb", "macvlan", "ipvlan", "virtio_net", "openvswitch", "vxlan"}
)


@dataclass(frozen=True, slots=True)
class End:
    """One node of a series as its facts describe it; facts are empty where none were read."""

    node: str
    interface: str
    facts: Facts

    def fact(self, name: str) -> Any:
        """A fact of the interface under test, or None."""
        return self.facts.get(name.replace("{interface}", self.interface))


def baseline_reference(name: str, values: Sequence[tuple[float, int]] | None, at_least: int) -> Reference:
    """values: (value, how many it stands for) of the series in the baseline; None: there is no such baseline."""
    source = f"baseline {name}"
    if values is None:
        return Reference(source, None, reason=f"there is no baseline {name}: hpcq baseline set {name} RUN makes it")
    count = sum(weight for _, weight in values)
    if count < at_least:
        return Reference(
            source, None, count, f"baseline {name} has {count} values of this test and pair: {at_least} are needed"
        )
    spread = [value for value, weight in values for _ in range(weight)]
    return Reference(f"{source}, {count} values", median(spread), count)


def hardware(end: End) -> str | None:
    """CPU and NIC of an end in one line; None where its facts do not say.

    Of a NIC what it is and can, not the speed that its link came up with: a link that came up slow is no other hardware.
    """
    cpu = end.fact("cpu.model") or end.fact("cpu.part")
    if not cpu:
        return None
    model = [end.fact(f"nic.{{interface}}.{name}") for name in ("pci_vendor", "pci_device", "driver")]
    able_bps = end.fact("nic.{interface}.link.speed_maximum_bps")
    if able_bps is None and model[0] is None:
        able_bps = speed_bps(end)
    nic = " ".join(str(part) for part in (*model, able_bps) if part is not None)
    return f"{cpu}; {nic or end.interface}"


class Peers:
    """The medians of pairs, by test and hardware of both ends; asked for each pair in turn."""

    def __init__(self, series: Iterable[MeasuredSeries], ends: Mapping[int, tuple[End, End]]) -> None:
        """ends: by result_id of the series. Series without values or with unknown hardware are nobody's peers."""
        self._ends = ends
        values: dict[str, dict[frozenset[str], list[float]]] = {}
        for one in series:
            alike = self._alike(one)
            if one.values and None not in alike:
                pairs = values.setdefault(_test(one, alike), {})
                pairs.setdefault(frozenset((one.client, one.server)), []).append(median(one.values))
        self._medians = {key: {pair: median(each) for pair, each in pairs.items()} for key, pairs in values.items()}
        self._ordered = {key: sorted(pairs.values()) for key, pairs in self._medians.items()}

    def reference(self, series: MeasuredSeries, at_least: int) -> Reference:
        """The median of the other pairs; the two nodes of this one are not their own peers, whichever is the client."""
        alike = self._alike(series)
        if None in alike:
            node = (series.client, series.server)[alike.index(None)]
            return Reference("peers", None, reason=f"the hardware of {node} is not known: it has no facts of its CPU")
        key = _test(series, alike)
        ordered, own = self._ordered.get(key, []), self._medians.get(key, {}).get(frozenset((series.client, series.server)))
        count = len(ordered) - (own is not None)
        if count < at_least:
            reason = f"{count} other pairs of the same hardware have this test: {at_least} are needed"
            return Reference("peers", None, count, reason)
        left_out = len(ordered) if own is None else bisect_left(ordered, own)
        middle = [ordered[place + (place >= left_out)] for place in ((count - 1) // 2, count // 2)]
        return Reference(f"{count} peers", sum(middle) / 2, count)

    def _alike(self, series: MeasuredSeries) -> tuple[str | None, str | None]:
        found = self._ends.get(series.result_id)
        return (None, None) if found is None else (hardware(found[0]), hardware(found[1]))


def link_reference(series: MeasuredSeries, ends: tuple[End, End]) -> Reference:
    """The slowest thing on the way that the facts know of."""
    sender = 1 if series.parameters.get("direction") == "server_to_client" else 0
    limits: list[tuple[float, str]] = []
    reasons = []
    for place, end in enumerate(ends):
        own, why = _link_limit(end)
        shaped = end.fact("qdisc.{interface}.tbf_rate_bps") if place == sender else None
        limits += [(own, f"link of {end.node}")] if own else []
        limits += [(float(shaped), f"token bucket of {end.node}")] if shaped else []
        if why and not shaped:
            reasons.append(why)
    shaped_at = [limit for limit in limits if limit[1].startswith("token")]
    if reasons and not shaped_at:
        return Reference("link", None, reason=reasons[0])
    value, source = min(limits)
    return Reference(source, value, 1)


def memory_reference(ends: tuple[End, End]) -> Reference:
    """The copy rate of the slower node."""
    rates = [(end.fact("now.memory_copy_bps"), end.node) for end in ends]
    for rate, node in rates:
        if not rate:
            reason = f"how fast {node} copies memory was not measured: its facts are from an older hpcq, or missing"
            return Reference("memory copy", None, reason=reason)
    value, node = min((float(rate), node) for rate, node in rates if rate)
    return Reference(f"memory copy of {node}", value, 1)


def speed_bps(end: End) -> float | None:
    """What the interface says of its speed now; None where it says nothing."""
    speed = end.fact("nic.{interface}.link.speed_bps")
    mbps = end.fact("nic.{interface}.speed_mbps")
    found = speed if isinstance(speed, (int, float)) else 1e6 * mbps if isinstance(mbps, (int, float)) else 0
    return float(found) if found > 0 else None


def _link_limit(end: End) -> tuple[float | None, str]:
    """The speed of an end's link, or None and why there is none."""
    driver = end.fact("nic.{interface}.driver")
    if end.interface == "lo":
        return None, f"{end.node} was measured over lo, which is no link: gate against memory"
    if driver in VIRTUAL_DRIVERS:
        return None, f"{end.interface} of {end.node} is virtual ({driver}): the speed it reports is no limit"
    speed = speed_bps(end)
    return speed, "" if speed else f"the speed of {end.interface or 'the interface'} of {end.node} is not known"


def _test(series: MeasuredSeries, alike: tuple[str | None, str | None]) -> str:
    """What peers have in common."""
    test = (series.cluster, series.kernel, series.metric, alike)
    return f"{test} {sorted((name, str(value)) for name, value in series.parameters.items())}"

"""`against: link`: the speed of the slowest interface on the path, or of a token bucket at the sender."""

from __future__ import annotations

from hpcq.gate_kinds.base import End, GateAgainst, GateKind, Lookup, MeasuredSeries, Reference
from hpcq.gate_kinds.link_speed import SPEED_FACTS, speed_bps

#: Interfaces that exist only in the operating system: the speed that they report is a fixed number, not a limit.
VIRTUAL_DRIVERS = frozenset(
    {"veth", "tun", "bridge", "dummy", "ifb", "macvlan", "ipvlan", "virtio_net", "openvswitch", "vxlan"}
)


def link_reference(series: MeasuredSeries, ends: tuple[End, End]) -> Reference:
    """The slowest part of the path that the facts show."""
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


def _link_limit(end: End) -> tuple[float | None, str]:
    """The speed of a node's link, or None and the reason."""
    driver = end.fact("nic.{interface}.driver")
    if end.interface == "lo":
        return None, f"{end.node} was measured over lo, which is no link: gate against memory"
    if driver in VIRTUAL_DRIVERS:
        return None, f"{end.interface} of {end.node} is virtual ({driver}): the speed it reports is no limit"
    speed = speed_bps(end)
    return speed, "" if speed else f"the speed of {end.interface or 'the interface'} of {end.node} is not known"


#: What one core of today's servers sends or receives of TCP at least, checksums and segments left to the card: a faster
#: link needs more than one stream. Single streams on 100 Gbit/s reach 20 to 40.
ONE_CORE_BPS = 20e9
#: The argument with which a link faster than that counts as ONE_CORE_BPS.
ONE_CORE = "one core"


class _Link(GateKind):
    name = "link"
    unit = "bps"
    facts = ("qdisc.{interface}.tbf_rate_bps", "nic.{interface}.driver", *SPEED_FACTS)
    meaning = "the slower of both ends' NIC speeds, and a token bucket (tbf) at the sender"
    missing = "a speed is not known; the interface is virtual (veth, virtio, ...): what it reports is no limit; lo"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        found = link_reference(series, lookup.ends([series])[series.result_id])
        if against.argument == ONE_CORE and found.value is not None and found.value > ONE_CORE_BPS:
            return Reference(f"what one core moves; {found.source} is faster", ONE_CORE_BPS, 1)
        return found


KIND = _Link()

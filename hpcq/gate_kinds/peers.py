"""`against: peers`: the median of the medians of other pairs in the same test whose nodes have the same hardware."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from statistics import median

from hpcq.gate_kinds.base import End, GateAgainst, GateKind, Lookup, MeasuredSeries, Reference
from hpcq.gate_kinds.link_speed import SPEED_FACTS, speed_bps


def hardware(end: End) -> str | None:
    """CPU and NIC of a node in one line; None if its facts do not say.

    For a NIC: its model and abilities, not the speed of its link. A link that came up slow is not different hardware.
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
    """The medians of pairs, by test and hardware of both ends. A gate asks for the reference of each pair in turn."""

    def __init__(self, series: Iterable[MeasuredSeries], ends: Mapping[int, tuple[End, End]]) -> None:
        """ends: by result_id of the series. Series without values or with unknown hardware are peers of no series."""
        self._ends = ends
        values: dict[str, dict[frozenset[str], list[float]]] = {}
        for one in series:
            alike = self._alike(one)
            if one.values and not one.disturbed and None not in alike:
                pairs = values.setdefault(_test(one, alike), {})
                pairs.setdefault(frozenset((one.client, one.server)), []).append(median(one.values))
        self._medians = {key: {pair: median(each) for pair, each in pairs.items()} for key, pairs in values.items()}
        self._ordered = {key: sorted(pairs.values()) for key, pairs in self._medians.items()}

    def reference(self, series: MeasuredSeries, at_least: int) -> Reference:
        """The median of the other pairs. The two nodes of this pair do not count, whichever of them is the client."""
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


def _test(series: MeasuredSeries, alike: tuple[str | None, str | None]) -> str:
    """What peers have in common."""
    test = (series.cluster, series.kernel, series.metric, alike)
    return f"{test} {sorted((name, str(value)) for name, value in series.parameters.items())}"


class _Peers(GateKind):
    name = "peers"
    counted = True
    takes_history = True
    facts = (
        "cpu.model",
        "cpu.part",
        "nic.{interface}.driver",
        "nic.{interface}.pci_vendor",
        "nic.{interface}.pci_device",
        "nic.{interface}.link.speed_maximum_bps",
        *SPEED_FACTS,
    )
    meaning = (
        "the median over the medians of other pairs in the same run (and `history`), same test, both ends the same hardware"
    )
    missing = "fewer than `at_least` other pairs; a node without facts of its CPU"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        def peers() -> Peers:
            others = lookup.measured_with(series.metric, against.history_s)
            return Peers(others, lookup.ends([*others, series]))

        return lookup.kept(("peers", series.metric, against.history_s), peers).reference(series, against.at_least)


KIND = _Peers()

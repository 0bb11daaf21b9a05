"""An example package with a gate kind and an exporter of its own; beside it a scheduler."""

from __future__ import annotations

from hpcq.exports import Exported
from hpcq.gate_kinds import GateAgainst, GateKind, Lookup, MeasuredSeries, Reference


class _Promised(GateKind):
    """What the vendor promised for this site, by the name of the contract's line."""

    name = "promised"
    argument = "LINE"
    meaning = "what the vendor promised"
    missing = "the contract has no such line"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:  # noqa: ARG002
        promised_ns = {"latency": 1e9}[against.argument]  # an unknown line is a defect of this example
        return Reference(f"line {against.argument} of the contract", promised_ns, 1)


KIND = _Promised()


def lines(exported: Exported) -> str:
    """One line per cluster."""
    return "".join(f"{exported.run} {one.cluster} {one.measured_count}\n" for one in exported.clusters)


def fails(exported: Exported) -> str:
    """An exporter that does not work."""
    raise KeyError(exported.run)

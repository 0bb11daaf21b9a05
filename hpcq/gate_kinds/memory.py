"""`against: memory`: the rate at which the slower of both nodes copies memory. No byte reaches a program uncopied."""

from __future__ import annotations

from hpcq.gate_kinds.base import End, GateAgainst, GateKind, Lookup, MeasuredSeries, Reference


def memory_reference(ends: tuple[End, End]) -> Reference:
    """The copy rate of the slower node."""
    rates = [(end.fact("now.memory_copy_bps"), end.node) for end in ends]
    for rate, node in rates:
        if not rate:
            reason = f"how fast {node} copies memory was not measured: its facts are from an older hpcq, or missing"
            return Reference("memory copy", None, reason=reason)
    value, node = min((float(rate), node) for rate, node in rates if rate)
    return Reference(f"memory copy of {node}", value, 1)


class _Memory(GateKind):
    name = "memory"
    unit = "bps"
    facts = ("now.memory_copy_bps",)
    meaning = "the rate at which the slower of both nodes copies a block that fits its caches, measured once per job"
    missing = "the job's facts are missing or of an older hpcq"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:  # noqa: ARG002
        return memory_reference(lookup.ends([series])[series.result_id])


KIND = _Memory()

"""`against: baseline:NAME`: the median of the same series in the runs of a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hpcq.gate_kinds.base import GateAgainst, GateKind, Lookup, MeasuredSeries, Reference


def baseline_reference(name: str, values: Sequence[tuple[float, int]] | None, at_least: int) -> Reference:
    """values: (value, number of results behind it) of the series in the baseline; None: there is no such baseline."""
    source = f"baseline {name}"
    if values is None:
        return Reference(source, None, reason=f"there is no baseline {name}: hpcq baseline set {name} RUN makes it")
    count = sum(weight for _, weight in values)
    if count < at_least:
        return Reference(
            source, None, count, f"baseline {name} has {count} undisturbed values of this test and pair: {at_least} are needed"
        )
    spread = [value for value, weight in values for _ in range(weight)]
    return Reference(f"{source}, {count} values", median(spread), count)


class _Baseline(GateKind):
    name = "baseline"
    argument = "NAME"
    counted = True
    meaning = "the median of the same series (pair, test, network) in the baseline's runs"
    missing = "there is no such baseline, or it has fewer than `at_least` values of the series"

    def baseline_of(self, argument: str) -> str:
        return argument

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:
        values = lookup.baseline(against.argument, series.metric)
        mine = None if values is None else values.get(series.series_id, [])
        return baseline_reference(against.argument, mine, against.at_least)


KIND = _Baseline()

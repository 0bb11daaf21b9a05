"""`against: reverse`: the result of the same two nodes in the other direction. 90 % finds pairs with one fast way."""

from __future__ import annotations

from statistics import median

from hpcq.gate_kinds.base import GateAgainst, GateKind, Lookup, MeasuredSeries, Reference

_OTHER_WAY = {"client_to_server": "server_to_client", "server_to_client": "client_to_server"}


def is_reverse(series: MeasuredSeries, other: MeasuredSeries) -> bool:
    """Whether the other series is the same test of the same two nodes, with the data in the other direction."""
    direction = series.parameters.get("direction")
    turned = {**series.parameters, "direction": _OTHER_WAY[direction]} if direction in _OTHER_WAY else None
    same_test = (series.cluster, series.kernel, series.metric) == (other.cluster, other.kernel, other.metric)
    swapped = (series.client, series.server) == (other.server, other.client) and series.parameters == other.parameters
    other_direction = (series.client, series.server) == (other.client, other.server) and turned == other.parameters
    return same_test and (swapped or other_direction)


class _Reverse(GateKind):
    name = "reverse"
    meaning = "the median of the same test between the same two nodes in the other direction, in the same run"
    missing = "the run did not measure the other direction (`directions: both`, or a sweep over `direction`)"

    def reference(self, against: GateAgainst, series: MeasuredSeries, lookup: Lookup) -> Reference:  # noqa: ARG002
        measured = [one for one in lookup.measured_with(series.metric, 0.0) if one.values and is_reverse(series, one)]
        others = [one for one in measured if not one.disturbed]
        if not others:
            pair = f"{series.server} > {series.client}"
            reason = f"{pair} was not measured: give pairs `directions: both`"
            if measured:
                reason = f"{pair} was measured only beside other work: measure again"
            return Reference("other direction", None, reason=reason)
        return Reference("other direction", median(median(one.values) for one in others), len(others))


KIND = _Reverse()

"""Verdicts on results: how a campaign's gates judge the series that it measured. Pure.

Gate + every series it applies to           -> GateVerdict: pass, failed, or inconclusive if it never ran; a test
                                                       that ran without a valid result is gone: failed
relative gate + its Reference of the series -> the same for the share; inconclusive if there is no reference

Other work only makes a test slower. Values that were all measured beside it can pass a gate, and they can fail one by
being better than allowed. By being worse they fail none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from hpcq import units
from hpcq.definition.model import Gate, GateStatistic
from hpcq.gate_kinds import MeasuredSeries, Reference
from hpcq.kernels import Better
from hpcq.verdict.words import Verdict


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """One gate on one series. value: what the gate judged; bound: the limit in words; gate: the gate in words.

    share_ratio: value as a share of the reference, for a relative gate. reason: why the verdict is inconclusive. expected: it
    stands for what the campaign expects. limit: the minimum, or else the maximum, in the metric's own unit, where it is known.
    """

    verdict: Verdict
    series: MeasuredSeries
    statistic: str
    value: float | None
    bound: str
    gate: str = ""
    against: str | None = None
    reference: Reference | None = None
    share_ratio: float | None = None
    reason: str = ""
    expected: bool = False
    limit: float | None = None

    @property
    def words(self) -> str:
        """The result for people: `median throughput_bps is 5 Gbit/s, 50 % of 10 Gbit/s (baseline good, 15 values)`."""
        if self.value is None:
            return f"{self.statistic} {self.series.metric}: {self.reason}"
        unit = units.unit_of(self.series.metric)
        seen = f"{self.statistic} {self.series.metric} is {units.human(self.value, unit)}"
        if self.reference is None or self.reference.value is None or self.share_ratio is None:
            return f"{seen}{self._left_out}: {self.reason}" if self.reason else f"{seen}{self._left_out}"
        share = units.human(self.share_ratio, "ratio")
        words = f"{seen}, {share} of {units.human(self.reference.value, unit)} ({self.reference.source}){self._left_out}"
        return f"{words}: {self.reason}" if self.reason else words

    @property
    def _left_out(self) -> str:
        count = self.series.left_out_count
        return f" ({units.count_of(count, 'value')} beside other work left out)" if count else ""


#: Returns the reference that a relative gate compares a series with.
Refer = Callable[[Gate, MeasuredSeries], Reference]


def judge_gates(gates: Iterable[Gate], measured: Sequence[MeasuredSeries], refer: Refer | None = None) -> list[GateVerdict]:
    """Judge every series by every gate that applies to it; failures come first, then inconclusive verdicts."""
    verdicts = [_judge(gate, series, refer) for gate in gates for series in measured if speaks_of(gate, series)]
    verdicts = [one for one in verdicts if not (one.expected and one.verdict is Verdict.INCONCLUSIVE)]
    order = {Verdict.FAILED: 0, Verdict.INCONCLUSIVE: 1}
    return sorted(verdicts, key=lambda one: order.get(one.verdict, 2))


def looked_at(gate: Gate, values: Sequence[float]) -> float:
    """The value that the gate judges: the median of these values, or the worst one in the metric's direction."""
    if gate.statistic is GateStatistic.MEDIAN:
        return median(values)
    return max(values) if gate.better is Better.LOWER else min(values)


def bound_words(gate: Gate) -> str:
    """`>= 95 %`, `<= 80 us`, or both."""
    unit = units.unit_of(gate.metric) if gate.against is None else "ratio"
    shown = [(sign, bound) for sign, bound in ((">=", gate.minimum), ("<=", gate.maximum)) if bound is not None]
    return " and ".join(f"{sign} {units.human(bound, unit)}" for sign, bound in shown)


def gate_words(gate: Gate) -> str:
    """The gate in words: `median throughput_bps of tcp_stream >= 95 % of baseline:good`."""
    if gate.expected:
        return f"expected: {gate.metric} of {gate.kernel} {bound_words(gate)}{' of the link' if gate.against else ''}"
    of = f" of {gate.against}" if gate.against is not None else ""
    where = f" where {', '.join(f'{name}={value}' for name, value in gate.where.items())}" if gate.where else ""
    return f"{gate.statistic.value} {gate.metric} of {gate.kernel}{where} {bound_words(gate)}{of}"


def speaks_of(gate: Gate, series: MeasuredSeries) -> bool:
    """Whether the gate applies to this series."""
    return (
        gate.kernel == series.kernel
        and gate.metric == series.metric
        and all(series.parameters.get(name) == value for name, value in gate.where.items())
    )


def _judge(gate: Gate, series: MeasuredSeries, refer: Refer | None) -> GateVerdict:
    value = looked_at(gate, series.values) if series.values else None
    reference: Reference | None = None
    compared, reason = value, _why_no_value(series)
    if gate.against is not None and value is not None:
        reference = refer(gate, series) if refer is not None else Reference(str(gate.against), None, reason="is not known")
        reason = reference.reason or ("" if reference.value else "the reference is 0")
        compared = value / reference.value if reference.value and not reason else None
    above = gate.minimum is None or (compared is not None and compared >= gate.minimum)
    below = gate.maximum is None or (compared is not None and compared <= gate.maximum)
    verdict = Verdict.INCONCLUSIVE if compared is None else Verdict.PASS if above and below else Verdict.FAILED
    verdict = Verdict.FAILED if series.lost_reason and not series.values else verdict
    too_good = (not above and gate.better is Better.LOWER) or (not below and gate.better is Better.HIGHER)
    if verdict is Verdict.FAILED and series.disturbed and not too_good:
        verdict = Verdict.INCONCLUSIVE
        reason = f"{units.count_of(len(series.values), 'value')}, each measured beside other work: measure again"
    against = None if gate.against is None else str(gate.against)
    share = compared if gate.against is not None else None
    words = (bound_words(gate), gate_words(gate))
    bound = gate.minimum if gate.minimum is not None else gate.maximum
    unit = 1.0 if gate.against is None else reference.value if reference is not None else None
    limit = None if bound is None or unit is None else bound * unit
    return GateVerdict(
        verdict, series, gate.statistic.value, value, *words, against, reference, share, reason, gate.expected, limit
    )


def _why_no_value(series: MeasuredSeries) -> str:
    if series.values:
        return ""
    return f"gone: it ran without a valid result: {series.lost_reason}" if series.lost_reason else "nothing was measured"

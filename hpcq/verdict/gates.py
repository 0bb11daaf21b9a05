"""Verdicts on results: what a campaign's gates say of the series that it measured. Pure.

Gate + every series it speaks of -> GateVerdict: pass, failed, or inconclusive where nothing was measured
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from hpcq.definition.model import Gate, GateStatistic
from hpcq.kernels import Better, kernel


class Verdict(StrEnum):
    """What may be said of a series; the words of the database."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    DEGRADED = "degraded"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_COVERED = "not_covered"


@dataclass(frozen=True, slots=True)
class MeasuredSeries:
    """All valid values of one metric of one test between two nodes; values in the metric's own unit."""

    cluster: str
    client: str
    server: str
    kernel: str
    parameters: Mapping[str, Any]
    metric: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """One gate on one series; `value` is what the gate looked at, `bound` what it had to keep."""

    verdict: Verdict
    series: MeasuredSeries
    statistic: str
    value: float | None
    bound: str


def judge_gates(gates: Iterable[Gate], measured: Sequence[MeasuredSeries]) -> list[GateVerdict]:
    """Hold every series against every gate that speaks of it; failures first."""
    verdicts = [_judge(gate, series) for gate in gates for series in measured if _speaks_of(gate, series)]
    return sorted(verdicts, key=lambda one: one.verdict is not Verdict.FAILED)


def _speaks_of(gate: Gate, series: MeasuredSeries) -> bool:
    return (
        gate.kernel == series.kernel
        and gate.metric == series.metric
        and all(series.parameters.get(name) == value for name, value in gate.where.items())
    )


def _judge(gate: Gate, series: MeasuredSeries) -> GateVerdict:
    value = _looked_at(gate, series) if series.values else None
    above = gate.minimum is None or (value is not None and value >= gate.minimum)
    below = gate.maximum is None or (value is not None and value <= gate.maximum)
    verdict = Verdict.INCONCLUSIVE if value is None else Verdict.PASS if above and below else Verdict.FAILED
    bounds = [
        f">= {gate.minimum:g}" if gate.minimum is not None else "",
        f"<= {gate.maximum:g}" if gate.maximum is not None else "",
    ]
    return GateVerdict(verdict, series, gate.statistic.value, value, " and ".join(bound for bound in bounds if bound))


def _looked_at(gate: Gate, series: MeasuredSeries) -> float:
    if gate.statistic is GateStatistic.MEDIAN:
        return median(series.values)
    metric = kernel(gate.kernel).metric(gate.metric)
    lower_is_better = metric is not None and metric.better is Better.LOWER
    return max(series.values) if lower_is_better else min(series.values)

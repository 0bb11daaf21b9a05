"""Absolute gates: which value a gate looks at, and on which side of its bound it passes."""

from __future__ import annotations

import pytest

from hpcq.definition.model import Gate, GateStatistic
from hpcq.gate_kinds import MeasuredSeries
from hpcq.kernels import Better
from hpcq.verdict.gates import judge_gates
from hpcq.verdict.words import Verdict

pytestmark = pytest.mark.fast

RATE = ("tcp_stream", "throughput_bps")
TIME = ("tcp_pingpong", "round_trip_p50_ns")


def judged(
    of: tuple[str, str],
    values: tuple[float, ...],
    statistic: GateStatistic,
    minimum: float | None = None,
    maximum: float | None = None,
) -> tuple[Verdict, float | None]:
    """The verdict on one series, and the value that it rests on."""
    kernel, metric = of
    series = MeasuredSeries("alpha", "n1", "n2", kernel, {}, metric, values)
    better = Better.LOWER if metric.endswith("_ns") else Better.HIGHER
    [found] = judge_gates([Gate(metric, kernel, statistic, minimum, maximum, {}, better=better)], [series])
    return found.verdict, found.value


@pytest.mark.promise("A gate fails below its minimum.")
@pytest.mark.promise("A value exactly on the minimum of a gate passes.")
@pytest.mark.promise("A gate fails above its maximum.")
@pytest.mark.promise("A gate with both bounds holds both.")
@pytest.mark.parametrize(
    ("minimum", "maximum", "verdict"),
    [
        (10.0, None, Verdict.PASS), (10.1, None, Verdict.FAILED), (9.9, None, Verdict.PASS),
        (None, 10.0, Verdict.PASS), (None, 9.9, Verdict.FAILED), (None, 10.1, Verdict.PASS),
        (9.0, 11.0, Verdict.PASS), (10.5, 11.0, Verdict.FAILED), (9.0, 9.5, Verdict.FAILED),
    ],
)  # fmt: skip
def test_a_value_on_its_bound_passes_and_one_beyond_fails(
    minimum: float | None, maximum: float | None, verdict: Verdict
) -> None:
    assert judged(RATE, (1.0, 10.0, 30.0), GateStatistic.MEDIAN, minimum, maximum) == (verdict, 10.0)


@pytest.mark.promise("`statistic: worst` looks at the lowest rate and the longest time.")
@pytest.mark.promise("`statistic: worst` is not the median.")
@pytest.mark.parametrize(("of", "worst"), [(RATE, 1.0), (TIME, 30.0)])
def test_the_worst_is_the_lowest_rate_and_the_longest_time(of: tuple[str, str], worst: float) -> None:
    values = (10.0, 30.0, 1.0, 12.0)
    assert judged(of, values, GateStatistic.WORST, minimum=2.0, maximum=29.0) == (Verdict.FAILED, worst)
    assert judged(of, values, GateStatistic.WORST, minimum=1.0, maximum=30.0) == (Verdict.PASS, worst)
    assert judged(of, values, GateStatistic.MEDIAN, minimum=2.0, maximum=29.0) == (Verdict.PASS, 11.0)


@pytest.mark.promise("A gate on nothing measured is inconclusive.")
def test_a_gate_on_nothing_is_inconclusive_and_says_so() -> None:
    series = MeasuredSeries("alpha", "n1", "n2", *RATE[:1], {}, RATE[1], ())
    [found] = judge_gates([Gate(RATE[1], RATE[0], GateStatistic.MEDIAN, 1.0, None, {}, better=Better.HIGHER)], [series])
    assert (found.verdict, found.words) == (Verdict.INCONCLUSIVE, "median throughput_bps: nothing was measured")


@pytest.mark.promise("A gate judges only tests with its parameters.")
def test_a_gate_speaks_of_its_own_metric_kernel_and_parameters_only() -> None:
    gate = Gate(RATE[1], RATE[0], GateStatistic.MEDIAN, 2.0, None, {"message_bytes": 64}, better=Better.HIGHER)
    others = [
        MeasuredSeries("alpha", "n1", "n2", "udp_stream", {"message_bytes": 64}, RATE[1], (1.0,)),
        MeasuredSeries("alpha", "n1", "n2", RATE[0], {"message_bytes": 65}, RATE[1], (1.0,)),
        MeasuredSeries("alpha", "n1", "n2", RATE[0], {"message_bytes": 64}, "cpu_ratio", (1.0,)),
    ]
    assert judge_gates([gate], others) == []
    mine = MeasuredSeries("alpha", "n1", "n2", RATE[0], {"message_bytes": 64}, RATE[1], (1.0,))
    assert [one.series for one in judge_gates([gate], [*others, mine])] == [mine]


def test_failures_come_first_then_what_is_inconclusive() -> None:
    gate = Gate(RATE[1], RATE[0], GateStatistic.MEDIAN, 5.0, None, {}, better=Better.HIGHER)
    levels: tuple[tuple[float, ...], ...] = ((9.0,), (), (1.0,))
    measured = [MeasuredSeries("alpha", "n1", f"n{i}", RATE[0], {}, RATE[1], values) for i, values in enumerate(levels)]
    assert [one.verdict for one in judge_gates([gate], measured)] == [Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASS]

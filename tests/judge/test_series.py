"""The judge of one series: steps, drifts, newest values, correlated and unchanged series, and what is no PASS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcq.judge.directions import direction_of
from hpcq.judge.series import Course, judge_series, verdict_of
from hpcq.kernels import Better, own_kernels
from hpcq.statistics import ComparisonVerdict

pytestmark = pytest.mark.fast

Floats = NDArray[np.float64]
Random = np.random.Generator


def one(values: object, better: Better = Better.HIGHER) -> tuple[Course, ComparisonVerdict]:
    [course] = judge_series([values])  # type: ignore[list-item]
    return course, verdict_of(course, better)[0]


def level(random: Random, count: int, noise: float, value: float = 1.0) -> Floats:
    return value * (1 + noise * random.standard_normal(count))


def correlated(random: Random, count: int, noise: float, r: float = 0.6) -> Floats:
    state = np.zeros(count + 50)
    for i in range(1, count + 50):
        state[i] = r * state[i - 1] + np.sqrt(1 - r * r) * random.standard_normal()
    return np.asarray(1 + noise * state[50:])


@pytest.mark.promise("A ramp is told as a drift, not called unchanged.")
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.05])
@pytest.mark.parametrize("fall", [0.2, 0.36, 0.5, 0.9])
def test_a_ramp_is_told_as_a_drift_of_its_size(fall: float, noise: float) -> None:
    random = np.random.default_rng([3, int(1000 * noise), int(100 * fall)])
    for _ in range(4):
        course, verdict = one(np.linspace(1, 1 - fall, 120) * level(random, 120, noise))
        assert verdict is ComparisonVerdict.DEGRADED
        drifts = [change for change in course.changes if change.kind == "drift"]
        assert drifts
        if fall < 0.9:
            widest = max(drifts, key=lambda change: change.end - change.index)
            assert widest.effect_ratio == pytest.approx(1 - fall, abs=0.08 + noise)
            near = 10 + 300 * noise  # where a line in noise ends is not sharp
            assert widest.index <= near
            assert widest.end >= 120 - near


def test_a_drift_says_where_it_began_and_ended() -> None:
    random = np.random.default_rng(4)
    shape = np.concatenate([np.ones(60), np.linspace(1, 0.8, 40), np.full(60, 0.8)])
    course, _ = one(shape * level(random, 160, 0.01))
    [drift] = [change for change in course.changes if change.kind == "drift"]
    assert [drift.index, drift.end] == pytest.approx([60, 100], abs=6)
    assert drift.low is not None
    assert drift.high is not None
    assert drift.low < 0.8 + 0.02 < drift.high + 0.04


@pytest.mark.promise("The newest three values are judged, whatever the length of the history.")
@pytest.mark.parametrize("history", [20, 60, 116, 400])
@pytest.mark.parametrize("newest", [3, 4, 8])
def test_three_newest_values_are_a_change_whatever_the_history(history: int, newest: int) -> None:
    random = np.random.default_rng([5, history, newest])
    course, verdict = one(np.concatenate([level(random, history, 0.02), level(random, newest, 0.02, 0.7)]))
    assert verdict is ComparisonVerdict.DEGRADED
    assert course.changes[-1].index == history
    assert course.changes[-1].effect_ratio == pytest.approx(0.7, abs=0.05)


@pytest.mark.promise("One or two newest values far off are said, and are no PASS.")
@pytest.mark.parametrize("newest", [1, 2])
@pytest.mark.parametrize("history", [30, 119])
def test_one_or_two_newest_values_far_off_are_said_and_no_pass(history: int, newest: int) -> None:
    random = np.random.default_rng([6, history, newest])
    values = np.concatenate([level(random, history, 0.01), level(random, newest, 0.01, 0.5)])
    course, verdict = one(values)
    assert verdict is ComparisonVerdict.INCONCLUSIVE
    assert course.newest is not None
    assert course.newest.count == newest
    assert "measure again" in verdict_of(course, Better.HIGHER)[1]
    assert one(values, Better.LOWER)[1] is ComparisonVerdict.PASS  # a gain is no doubt


@pytest.mark.heavy
def test_a_step_in_correlated_noise_is_not_thrown_away() -> None:
    random = np.random.default_rng(7)
    series = [correlated(random, 100, 0.02) for _ in range(60)]
    for values in series:
        values[45:] *= 0.9
    found = judge_series(series, false_discovery_ratio=1.0)
    assert sum(any(abs(cut - 45) <= 5 for cut in course.cuts) for course in found) >= 57


FAMILIES: dict[str, tuple[Callable[[Random], Floats], int]] = {
    "gauss": (lambda random: level(random, 100, 0.02), 2),
    "coarse": (lambda random: np.round(20 * level(random, 100, 0.02)), 2),
    "heavy": (lambda random: np.asarray(1 + 0.02 * random.standard_t(3, 100) / np.sqrt(3)), 3),
    "two modes": (lambda random: np.where(random.random(100) < 0.35, 0.92, 1) * level(random, 100, 0.005), 4),
    "correlated": (lambda random: correlated(random, 100, 0.02), 12),
}


@pytest.mark.heavy
@pytest.mark.parametrize("family", FAMILIES)
def test_unchanged_series_raise_few_alarms(family: str) -> None:
    draw, most = FAMILIES[family]
    random = np.random.default_rng([8, len(family)])
    found = judge_series([draw(random) for _ in range(300)], false_discovery_ratio=1.0)
    assert sum(bool(course.changes) for course in found) <= most


def test_single_outliers_are_no_change() -> None:
    random = np.random.default_rng(9)
    values = level(random, 120, 0.01)
    values[[20, 50, 51, 90]] *= 0.5
    course, verdict = one(values)
    assert (course.changes, verdict) == ((), ComparisonVerdict.PASS)


@pytest.mark.promise("A dip that is over is told, and the series passes.")
def test_a_dip_that_is_over_is_told_and_not_held_against_the_series() -> None:
    random = np.random.default_rng(10)
    values = level(random, 100, 0.01)
    values[40:60] *= 0.8
    course, verdict = one(values)
    assert verdict is ComparisonVerdict.PASS
    assert [(change.index, change.ended) for change in course.changes] == [(40, 60), (60, None)]
    values[90:] *= 0.8
    assert one(values)[1] is ComparisonVerdict.DEGRADED


@pytest.mark.promise("A series whose last third is worse than its first gets no PASS.")
def test_no_pass_where_the_thirds_differ() -> None:
    course = Course(count=90, first_third=100.0, last_third=90.0, thirds_p=1e-6)
    assert verdict_of(course, Better.HIGHER)[0] is ComparisonVerdict.INCONCLUSIVE
    assert verdict_of(course, Better.NONE)[0] is ComparisonVerdict.INCONCLUSIVE
    assert verdict_of(course, Better.LOWER)[0] is ComparisonVerdict.PASS


def test_the_thirds_are_measured() -> None:
    random = np.random.default_rng(11)
    values = np.linspace(1, 0.8, 90) * level(random, 90, 0.01)
    course, _ = one(values)
    assert course.first_third == pytest.approx(np.median(values[:30]))
    assert course.last_third == pytest.approx(np.median(values[-30:]))
    assert course.thirds_p < 1e-3


def test_missing_values_count_in_places() -> None:
    values = [5.0] * 10 + [np.nan] * 4 + [5.0] * 10 + [4.0] * 20
    course, _ = one(values)
    [change] = course.changes
    assert (change.index, change.end, course.count) == (24, 44, 40)


@pytest.mark.parametrize("factor", [1e-9, 1e12])
def test_the_unit_does_not_matter(factor: float) -> None:
    random = np.random.default_rng(12)
    values = np.concatenate([level(random, 50, 0.02), level(random, 50, 0.02, 0.9)])
    assert one(values * factor)[0].cuts == one(values)[0].cuts


def test_levels_of_zero_and_below_have_no_ratio() -> None:
    [change] = one([0.0] * 20 + [40.0, 41.0, 39.0, 42.0] * 5, Better.LOWER)[0].changes
    assert (change.index, change.before, change.effect_ratio) == (20, 0.0, None)
    assert one([0.0] * 40)[0].changes == ()


def test_too_few_values_are_no_pass() -> None:
    assert one([1.0] * 9)[1] is ComparisonVerdict.INCONCLUSIVE
    assert one([1.0] * 10)[1] is ComparisonVerdict.PASS
    assert one([])[1] is ComparisonVerdict.INCONCLUSIVE


@pytest.mark.heavy
def test_many_series_together_say_what_each_says_alone() -> None:
    random = np.random.default_rng(13)
    series = [np.concatenate([level(random, 40, 0.02), level(random, 60, 0.02, drop)]) for drop in (1, 0.9, 0.7, 1.2) * 60]
    together = judge_series(series, false_discovery_ratio=1.0)
    assert [course.cuts for course in together] == [judge_series([values])[0].cuts for values in series]


def test_a_long_series_is_cut_where_its_parts_are() -> None:
    random = np.random.default_rng(14)
    values = np.concatenate([level(random, 700, 0.02), level(random, 500, 0.02, 0.95), level(random, 300, 0.02, 1.1)])
    assert list(one(values)[0].cuts) == pytest.approx([700, 1200], abs=3)


def test_small_moves_are_not_told() -> None:
    random = np.random.default_rng(15)
    values = np.concatenate([level(random, 100, 0.002), level(random, 100, 0.002, 0.98)])
    assert one(values)[0].changes == ()
    assert len(judge_series([values], minimum_effect_ratio=0.01)[0].changes) == 1
    assert judge_series([values], minimum_effect_ratio=0.01, smallest_moves=[0.1])[0].changes == ()


@pytest.mark.promise("`detect` passes no series whose newest three values or more lost 30 %, from 16 values on.")
@pytest.mark.parametrize("count", [16, 20, 30, 60, 120])
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03])
def test_a_fall_of_the_newest_values_is_no_pass_at_any_length(count: int, noise: float) -> None:
    random = np.random.default_rng([16, count])
    for newest in (3, 4, 5, 6):
        fallen = np.where(np.arange(count) >= count - newest, 0.7, 1.0)
        found = [one(fallen * level(random, count, noise))[1] for _ in range(10 if newest <= count // 3 else 0)]
        assert ComparisonVerdict.PASS not in found
        assert count < 60 or found.count(ComparisonVerdict.DEGRADED) >= 8


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("round_trip_p50_ns", Better.LOWER),
        ("n1 > n2 throughput_bps", Better.HIGHER),
        ("sent_bps", Better.NONE),
        ("Latency (us)", Better.LOWER),
        ("runTime", Better.LOWER),
        ("error_rate", Better.LOWER),
        ("packet loss", Better.LOWER),
        ("wall_s", Better.LOWER),
        ("GFlops", Better.HIGHER),
        ("memory bandwidth", Better.HIGHER),
        ("Gbit/s", Better.HIGHER),
        ("osu_bw MB/s", Better.HIGHER),
        ("gbit_s", Better.HIGHER),
        ("requests per second", Better.HIGHER),
        ("ns/day", Better.HIGHER),
        ("IOPS", Better.HIGHER),
        ("ns/op", Better.LOWER),
        ("ms_per_step", Better.LOWER),
        ("days/ns", Better.LOWER),
        ("lat_us", Better.LOWER),
        ("latency_64_bytes_s", Better.LOWER),
        ("drops/s", Better.LOWER),
        ("retransmission rate", Better.LOWER),
        ("interrupts/s", None),
        ("latency improvement", None),
        ("n1-n2", None),
        ("column_1", None),
        ("s", None),
    ],
)
def test_names_tell_which_direction_is_good(name: str, expected: Better | None) -> None:
    metrics = {metric.name: metric.better for kernel in own_kernels().values() for metric in kernel.metrics}
    assert direction_of(name, metrics) is expected


def test_every_metric_of_hpcq_has_its_own_direction() -> None:
    metrics = {metric.name: metric.better for kernel in own_kernels().values() for metric in kernel.metrics}
    assert {name: direction_of(name, metrics) for name in metrics} == metrics

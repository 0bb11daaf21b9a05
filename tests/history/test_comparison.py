"""Before against after: exact tails, verdicts, intervals and false discoveries, each against a reference."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hpcq.kernels import Better
from hpcq.statistics import (
    ComparisonVerdict,
    benjamini_hochberg,
    compare,
    compare_many,
    mann_whitney,
    median_shift,
)
from hpcq.statistics.comparison import EXACT_TOTAL, after_count_needed, average_ranks, smallest_p, smallest_side
from tests.history.test_statistics import noisy

pytestmark = pytest.mark.fast


@pytest.mark.promise("The rank sum test is exact for few values without ties.")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.heavy
def test_mann_whitney_agrees_with_scipy(seed: int) -> None:
    from scipy import stats  # here: it loads for a second, and the other workers need not

    random = np.random.default_rng(seed)
    before = random.normal(10, 1, int(random.integers(1, 60)))
    after = random.normal(random.choice([9, 10, 11]), 1, int(random.integers(1, 25)))
    if seed % 3 == 0:
        before, after = before.round(), after.round()
        if len(before) + len(after) <= EXACT_TOTAL:
            return  # scipy has only the normal tail there: see below
    short = min(len(before), len(after)) <= 8 or len(before) + len(after) <= EXACT_TOTAL
    method = "exact" if seed % 3 and short else "asymptotic"
    lower, higher = mann_whitney(before, after, Better.HIGHER)
    for p, alternative in ((lower, "less"), (higher, "greater")):
        oracle = stats.mannwhitneyu(after, before, alternative=alternative, method=method).pvalue
        assert p == pytest.approx(oracle, rel=1e-9, abs=1e-15)
    both = mann_whitney(before, after, Better.NONE)[0]
    assert both == pytest.approx(stats.mannwhitneyu(after, before, method=method).pvalue, rel=1e-9, abs=1e-15)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(20))
def test_tails_with_ties_count_every_way_to_deal_the_ranks(seed: int) -> None:
    from scipy import stats

    random = np.random.default_rng(seed)
    values = random.integers(0, 5, int(random.integers(4, 13))).astype(float)
    after_count = int(random.integers(1, len(values)))
    lower, higher = mann_whitney(values[:-after_count], values[-after_count:])
    ranks = stats.rankdata(values)
    observed = ranks[-after_count:].sum()
    sums = np.array([sum(one) for one in itertools.combinations(ranks, after_count)])
    assert lower == pytest.approx(np.mean(sums <= observed + 1e-9))
    assert higher == pytest.approx(np.mean(sums >= observed - 1e-9))


@pytest.mark.promise("Rank tests are exact up to 40 values, with ties too.")
def test_a_tie_does_not_blunt_a_clear_case() -> None:
    before, after = np.arange(100.0, 130.0), np.arange(41.0, 50.0)
    untied = mann_whitney(before, after)[0]
    before[1] = before[0]
    assert untied == pytest.approx(4.7e-9, rel=0.01)
    assert mann_whitney(before, after)[0] == pytest.approx(untied, rel=1e-6)  # the normal tail says 3.7e-6


@pytest.mark.parametrize("rounded", [False, True])
def test_a_first_look_at_a_tail_hides_nothing(rounded: bool) -> None:
    random = np.random.default_rng(8)
    for _ in range(300):
        before = random.standard_normal(random.integers(8, 60))
        after = random.standard_normal(random.integers(2, 5)) - random.integers(0, 3)
        if rounded:
            before, after = np.round(before, 1), np.round(after, 1)
        told = min(mann_whitney(before, after))
        looked = smallest_side(sorted(before.tolist()), after.tolist())
        assert looked <= told + 1e-12
        assert rounded or looked == pytest.approx(told)


@pytest.mark.heavy
def test_ranks_share_ties() -> None:
    from scipy import stats

    values = np.array([[3.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    assert average_ranks(values).tolist() == stats.rankdata(values, axis=1).tolist()
    for one in [*values, np.array([2.0]), np.array([4.0, 1.0, 2.5])]:  # a row alone has a way of its own
        assert average_ranks(one[None, :]).tolist() == [stats.rankdata(one).tolist()]


@pytest.mark.parametrize(
    ("better", "factor"), [(Better.HIGHER, 0.9), (Better.LOWER, 1.1), (Better.NONE, 1.1), (Better.NONE, 0.9)]
)
def test_worse_is_degraded(better: Better, factor: float) -> None:
    random = np.random.default_rng(13)
    before, after = 1 + 0.02 * random.standard_normal(30), factor * (1 + 0.02 * random.standard_normal(5))
    found = compare(before, after, better=better)
    assert found.verdict is ComparisonVerdict.DEGRADED
    assert found.shift is not None
    assert found.shift.ratio == pytest.approx(factor, rel=0.03)


def test_better_is_a_pass_and_said_so() -> None:
    random = np.random.default_rng(14)
    found = compare(1 + 0.02 * random.standard_normal(30), 1.1 + 0.02 * random.standard_normal(5))
    assert (found.verdict, found.improved) == (ComparisonVerdict.PASS, True)


def test_a_move_too_small_to_matter_passes() -> None:
    random = np.random.default_rng(15)
    before, after = 1 + 0.001 * random.standard_normal(30), 0.99 + 0.001 * random.standard_normal(30)
    assert compare(before, after).verdict is ComparisonVerdict.PASS
    assert compare(before, after, minimum_effect_ratio=0.005).verdict is ComparisonVerdict.DEGRADED


@pytest.mark.promise("A move of the median of less than 2 % passes.")
@pytest.mark.parametrize(("level", "verdict"), [(0.985, ComparisonVerdict.PASS), (0.975, ComparisonVerdict.DEGRADED)])
def test_a_move_below_two_per_cent_passes(level: float, verdict: ComparisonVerdict) -> None:
    random = np.random.default_rng(24)
    before, after = 1 + 0.002 * random.standard_normal(30), level * (1 + 0.002 * random.standard_normal(5))
    assert compare(before, after).verdict is verdict


@pytest.mark.promise("A change that may be chance is inconclusive, and hpcq says to measure again.")
def test_what_may_be_luck_is_to_be_measured_again() -> None:
    found = compare(np.arange(100.0, 130.0), [99.5, 101.5, 105.5])
    assert found.p_value is not None
    assert 0.01 < found.p_value < 0.05
    assert (found.verdict, found.reason) == (ComparisonVerdict.INCONCLUSIVE, "looks worse, but might be luck: measure again")


@pytest.mark.parametrize(("before", "after"), [(30, 1), (5, 2), (3, 3), (0, 5), (5, 0), (1, 1)])
def test_too_few_values_are_inconclusive_whatever_they_are(before: int, after: int) -> None:
    found = compare([1.0 + i / 1000 for i in range(before)], [0.2 + i / 1000 for i in range(after)])
    assert found.verdict is ComparisonVerdict.INCONCLUSIVE
    assert found.reason


def test_missing_values_do_not_count() -> None:
    found = compare([1.0, math.nan] * 15, [0.5, math.nan, 0.51, math.inf])
    assert (found.before_count, found.after_count) == (15, 2)


def test_ties_and_constants_pass() -> None:
    assert compare([5.0] * 30, [5.0] * 5).verdict is ComparisonVerdict.PASS
    assert compare([0.0] * 30, [0.0] * 5, better=Better.LOWER).verdict is ComparisonVerdict.PASS


def test_errors_that_appear_are_degraded() -> None:
    found = compare([0.0] * 30, [3.0, 4.0, 5.0, 3.0, 6.0], better=Better.LOWER)
    assert found.verdict is ComparisonVerdict.DEGRADED
    assert found.shift is not None
    assert found.shift.ratio is None


def test_smallest_p_is_reached() -> None:
    for before, after in ((30, 5), (10, 3), (8, 8)):
        lowest = mann_whitney(np.linspace(100, 200, before), np.linspace(1, 2, after))[0]
        assert lowest == pytest.approx(smallest_p(before, after))
    assert after_count_needed(30, 0.01) == 2
    assert after_count_needed(1, 0.01) == 100
    assert after_count_needed(0, 0.01) is None


@pytest.mark.promise("A before/after comparison calls an unchanged series degraded in one of a hundred cases at most.")
@pytest.mark.heavy
def test_power_and_false_alarms_of_the_comparison() -> None:
    random = np.random.default_rng(16)
    rates = {}
    for drop in (0.0, 0.05):
        found = []
        for family in ("gauss", "heavy", "bimodal"):
            for _ in range(300):
                values = noisy(random, family)
                found.append(compare(values[:30], (1 - drop) * values[30:35]).verdict is ComparisonVerdict.DEGRADED)
        rates[drop] = np.mean(found)
    assert rates[0.0] <= 0.02
    assert rates[0.05] >= 0.95


def test_correlated_runs_are_believed_less() -> None:
    random = np.random.default_rng(17)
    wandering = np.cumsum(random.standard_normal(30)) * 0.02 + 1
    shuffled = random.permutation(wandering)
    after = np.sort(wandering)[:5] - 0.03
    p_values = [compare(values, after).p_value for values in (wandering, shuffled)]
    assert p_values[0] is not None
    assert p_values[1] is not None
    assert p_values[0] > p_values[1]


@pytest.mark.heavy
def test_many_comparisons_keep_luck_out() -> None:
    random = np.random.default_rng(18)
    pairs = [(1 + 0.05 * random.standard_normal(30), 1 + 0.05 * random.standard_normal(5)) for _ in range(1000)]
    found = compare_many(pairs)
    assert not any(one.verdict is ComparisonVerdict.DEGRADED for one in found)
    assert any("expected by luck" in one.reason for one in found)
    pairs[0] = (pairs[0][0], 0.7 * pairs[0][1])
    assert compare_many(pairs)[0].verdict is ComparisonVerdict.DEGRADED
    assert compare_many([]) == []


# ---- intervals and false discoveries ----


@pytest.mark.heavy
def test_median_shift_is_the_bootstrap() -> None:
    random = np.random.default_rng(19)
    before, after = random.lognormal(0, 0.1, 30), 0.8 * random.lognormal(0, 0.1, 20)
    shift = median_shift(before, after)
    picks = [(random.choice(before, 30), random.choice(after, 20)) for _ in range(4000)]
    low, high = np.quantile([np.median(new) / np.median(old) for old, new in picks], (0.025, 0.975))
    assert shift.ratio == pytest.approx(np.median(after) / np.median(before))
    assert shift.low == pytest.approx(low, rel=0.01)
    assert shift.high == pytest.approx(high, rel=0.01)
    assert median_shift(before, after) == shift


@pytest.mark.promise("The interval of a shift holds 95 % of the resampled ratios.")
def test_the_interval_of_a_shift_covers_what_it_says() -> None:
    random = np.random.default_rng(25)
    held = 0
    for _ in range(400):
        shift = median_shift(random.lognormal(0, 0.1, 20), 0.8 * random.lognormal(0, 0.1, 20))
        assert shift.low is not None
        assert shift.high is not None
        held += shift.low <= 0.8 <= shift.high
    assert 0.92 <= held / 400 <= 0.985


@pytest.mark.heavy
def test_benjamini_hochberg_agrees_with_scipy() -> None:
    from scipy import stats

    random = np.random.default_rng(20)
    for count in (1, 2, 17, 500):
        p_values = random.random(count) ** 3
        assert benjamini_hochberg(p_values) == pytest.approx(stats.false_discovery_control(p_values))
    assert benjamini_hochberg([]).size == 0

"""Statistics against their oracles (scipy, ruptures), and on series whose truth is known."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcq.statistics import (
    change_indices,
    find_changes,
    noise_scale,
)
from hpcq.statistics.changes import _split
from tests import REPOSITORY

pytestmark = pytest.mark.fast

Floats = NDArray[np.float64]


def steps(random: np.random.Generator, levels: list[float], length: int, noise: float = 0.02) -> Floats:
    parts = [level * (1 + noise * random.standard_normal(length)) for level in levels]
    return np.concatenate(parts)


# ---- the engine ----


def kinds_of_series(seed: int) -> list[Floats]:
    random = np.random.default_rng(seed)
    heavy = 1 + 0.02 * random.standard_t(3, 100)
    heavy[random.random(100) < 0.05] *= 0.7
    bimodal = np.where(random.random(90) < 0.7, 1.0, 0.96) + 0.007 * random.standard_normal(90)
    return [
        1 + 0.02 * random.standard_normal(int(random.integers(6, 200))),
        steps(random, [1.0, 0.9], 40),
        steps(random, [1.0, 1.1, 1.0, 0.8], int(random.integers(4, 60))),
        heavy,
        bimodal,
        np.round(3 * (1 + 0.02 * random.standard_normal(150)), 2),
        1e9 * np.cumsum(random.standard_normal(120)),
    ]


@pytest.mark.heavy
def test_engine_finds_what_ruptures_finds() -> None:
    import ruptures  # here: it loads for a second, and the other workers need not

    differing = []
    for seed in range(40):
        for number, values in enumerate(kinds_of_series(seed)):
            sigma, penalty = noise_scale(values), 1.5 * math.log(len(values))
            search = ruptures.KernelCPD(kernel="rbf", min_size=3, params={"gamma": 1 / (8 * float(sigma[0]) ** 2)})
            theirs = search.fit(values).predict(pen=penalty)[:-1]
            if change_indices(values[None, :], sigma, penalty, 3)[0] != theirs:
                differing.append((seed, number))
    assert differing == []


@pytest.mark.heavy
def test_engine_is_the_same_alone_and_in_a_block() -> None:
    random = np.random.default_rng(1)
    block = np.stack([steps(random, [1, level], 50) for level in np.linspace(0.8, 1.2, 300)])
    sigma = noise_scale(block)
    together = change_indices(block, sigma, 6.9, 3)
    assert together == [change_indices(block[i : i + 1], sigma[i : i + 1], 6.9, 3)[0] for i in range(300)]


@pytest.mark.heavy
def test_pruning_of_long_series_changes_nothing() -> None:
    import ruptures

    random = np.random.default_rng(2)
    values = steps(random, [1, 0.9, 1, 1.1, 0.95], 300)[None, :]
    sigma = noise_scale(values)
    search = ruptures.KernelCPD(kernel="rbf", min_size=3, params={"gamma": 1 / (8 * float(sigma[0]) ** 2)})
    assert change_indices(values, sigma, 11.0, 3)[0] == search.fit(values[0]).predict(pen=11.0)[:-1]


# ---- scale ----


@pytest.mark.promise("The noise of a series ignores its steps and outliers.")
@pytest.mark.parametrize("sigma", [0.01, 3.0, 1e9])
def test_noise_scale_ignores_steps_and_outliers(sigma: float) -> None:
    random = np.random.default_rng(3)
    values = 100 * sigma + sigma * random.standard_normal(2000)
    values[700:] += 20 * sigma
    values[::40] *= 0.5
    assert noise_scale(values)[0] == pytest.approx(sigma, rel=0.12)


def test_noise_scale_of_a_constant_is_a_small_share_of_it() -> None:
    assert noise_scale(np.full(50, 8.0))[0] == pytest.approx(0.02)
    assert noise_scale(np.zeros(50))[0] == 0.0


# ---- change points ----


def test_a_step_is_found_with_its_size() -> None:
    random = np.random.default_rng(4)
    values = np.concatenate([9.4e9 * (1 + 0.02 * random.standard_normal(60)), 8.5e9 * (1 + 0.02 * random.standard_normal(40))])
    [[change]] = find_changes([values])
    assert abs(change.index - 60) <= 2
    assert change.effect_ratio == pytest.approx(8.5 / 9.4, rel=0.02)
    assert change.low is not None
    assert change.high is not None
    assert change.low < 8.5 / 9.4 < change.high
    assert change.p_value < 1e-6


def test_three_steps_among_outliers() -> None:
    random = np.random.default_rng(5)
    values = steps(random, [1.0, 0.9, 1.05, 0.85], 75)
    values[[20, 110, 250]] *= 0.6
    assert [round(change.index / 75) for change in find_changes([values])[0]] == [1, 2, 3]


def test_index_counts_missing_values() -> None:
    random = np.random.default_rng(6)
    values = steps(random, [1.0, 0.8], 50)
    holes = np.insert(values, [10, 10, 30, 49], [math.nan, math.inf, math.nan, -math.inf])
    assert find_changes([values])[0][0].index == 50
    assert find_changes([holes])[0][0].index == 54


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [math.nan] * 20,
        [1.0, 0.5, 1.0, 0.5, 1.0],
        [7.0] * 100,
        [0.0] * 100,
        [1.0] * 40 + [0.2] + [1.0] * 40,
        [0.0] * 30 + [5.0] + [0.0] * 30,
        [3.01, 3.02] * 50,
    ],
)
def test_nothing_changed(values: list[float]) -> None:
    assert find_changes([values]) == [[]]


def test_a_constant_that_jumps() -> None:
    [[change]] = find_changes([[5.0] * 20 + [6.0] * 20])
    assert (change.index, change.before, change.after) == (20, 5.0, 6.0)
    assert (change.effect_ratio, change.low, change.high) == (1.2, 1.2, 1.2)


def test_a_counter_that_leaves_zero_has_no_ratio() -> None:
    [[change]] = find_changes([[0.0] * 20 + [40.0, 41.0, 39.0, 42.0] * 5])
    assert (change.index, change.before, change.effect_ratio) == (20, 0.0, None)


@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e15])
def test_the_unit_does_not_matter(factor: float) -> None:
    values = steps(np.random.default_rng(7), [1.0, 0.9, 1.0], 40)
    found = find_changes([values * factor])[0]
    assert [change.index for change in found] == [change.index for change in find_changes([values])[0]]


def noisy(random: np.random.Generator, family: str) -> Floats:
    values = 1 + 0.02 * random.standard_normal(100)
    if family == "heavy":
        values = 1 + 0.02 * random.standard_t(3, 100) / math.sqrt(3)
        values[random.random(100) < 0.03] *= 0.75
    if family == "bimodal":
        values = np.where(random.random(100) < 0.7, 1.012, 0.971) + 0.007 * random.standard_normal(100)
    if family == "rounded":
        values = np.round(values, 2)
    return values


@pytest.mark.promise("A step below 3 % is not reported.")
@pytest.mark.parametrize(("drop", "told"), [(0.02, False), (0.026, False), (0.034, True), (0.04, True)])
def test_a_step_below_three_per_cent_is_not_told(drop: float, told: bool) -> None:
    random = np.random.default_rng(21)
    found = find_changes([steps(random, [1.0, 1 - drop], 60, noise=0.004) for _ in range(40)])
    assert {bool(changes) for changes in found} == {told}


@pytest.mark.promise("A new level of fewer than three points is no change.")
def test_a_level_has_at_least_three_points() -> None:
    random = np.random.default_rng(22)
    values = np.tile([1.0, 1.0, 0.7, 0.7], 15) + 0.001 * random.standard_normal(60)
    _, [indices] = _split([values], 0.01, 0.03)
    assert len(indices) > 4
    assert min(np.diff([0, *indices, len(values)])) >= 3


@pytest.mark.promise("Correlated noise raises no alarm: the scan divides by what correlation adds.")
@pytest.mark.promise("A series with clearly correlated neighbours is judged again at 1.2 times the price.")
@pytest.mark.parametrize("correlation", [0.3, 0.5, 0.7])
def test_correlated_noise_raises_few_alarms(correlation: float) -> None:
    random = np.random.default_rng(23)
    noise = random.standard_normal((200, 100))
    for i in range(1, 100):
        noise[:, i] = correlation * noise[:, i - 1] + math.sqrt(1 - correlation**2) * noise[:, i]
    found = find_changes(list(1 + 0.05 * noise), false_discovery_ratio=1.0)
    assert sum(map(bool, found)) <= (2 if correlation < 0.7 else 10)


@pytest.mark.parametrize("family", ["gauss", "heavy", "bimodal", "rounded"])
def test_changeless_series_raise_no_alarm(family: str) -> None:
    random = np.random.default_rng(8)
    found = find_changes([noisy(random, family) for _ in range(300)], false_discovery_ratio=1.0)
    assert sum(map(bool, found)) <= 2


def two_modes(count: int) -> list[Floats]:
    random = np.random.default_rng(31)
    return [np.where(random.random(100) < 0.7, 1.0, 0.85) + 0.01 * random.standard_normal(100) for _ in range(count)]


@pytest.mark.promise("A changeless series raises no alarm: the scan wants four standard deviations.")
@pytest.mark.promise("A changeless series raises no alarm: a segment costs 1.5 ln n.")
def test_noise_of_a_tenth_or_of_two_modes_raises_no_alarm() -> None:
    random = np.random.default_rng(31)
    wide = list(1 + 0.1 * random.standard_normal((600, 80)))
    assert sum(map(bool, find_changes(wide, false_discovery_ratio=1.0))) <= 3
    assert sum(map(bool, find_changes(two_modes(300), false_discovery_ratio=1.0))) <= 2


@pytest.mark.heavy
@pytest.mark.promise("A chance fluctuation among many series is not reported as a change.")
def test_what_may_be_luck_among_all_series_is_not_told() -> None:
    eager = find_changes(two_modes(300), penalty=0.7, false_discovery_ratio=1.0)
    assert sum(map(bool, eager)) > 10, "so many would be told of"
    assert sum(map(bool, find_changes(two_modes(300), penalty=0.7))) <= 4


@pytest.mark.parametrize("family", ["gauss", "heavy", "bimodal"])
def test_steps_of_ten_per_cent_are_found_where_they_are(family: str) -> None:
    random = np.random.default_rng(9)
    series, truth = [], []
    for _ in range(150):
        values, at = noisy(random, family), int(random.integers(20, 81))
        values[at:] *= 0.9
        series.append(values)
        truth.append(at)
    found = find_changes(series)
    right = [len(f) == 1 and abs(f[0].index - at) <= 5 for f, at in zip(found, truth, strict=True)]
    assert np.mean(right) >= 0.98


def test_the_scan_finds_steps_as_small_as_the_noise() -> None:
    random = np.random.default_rng(10)
    series = [steps(random, [1.0, 0.95], 50, noise=0.05) for _ in range(100)]
    assert np.mean([bool(found) for found in find_changes(series)]) > 0.6


@pytest.mark.heavy
def test_luck_among_many_series_is_not_told() -> None:
    random = np.random.default_rng(11)
    series = [1 + 0.05 * random.standard_normal(100) for _ in range(2000)]
    for values in series[:20]:
        values[50:] *= 0.8
    found = find_changes(series)
    assert all(found[:20])
    assert sum(map(bool, found[20:])) <= 2


@pytest.mark.heavy
@pytest.mark.real_time
def test_ten_thousand_series_take_little_time() -> None:
    random = np.random.default_rng(12)
    series = list(1 + 0.02 * random.standard_normal((2000, 100)))
    start = time.process_time()
    find_changes(series)
    assert time.process_time() - start < 15  # a fifth of the set; the goal is 3 s for all of it, and bench/ holds it to that


# ---- before against after ----


def test_numpy_is_not_imported_at_start_up() -> None:
    code = "import sys; import hpcq.cli.detect, hpcq.cli.csv_input; sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False)
    assert done.returncode == 0

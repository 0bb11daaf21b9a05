"""What a benchmark may call as good as another: no noise passes, and what is not decided is told as that."""

from __future__ import annotations

import numpy as np
import pytest

from bench.harness import Claim, finish, is_narrow, non_inferior, paired_ratio

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [(0.975, 1.02, True), (0.707, 1.1, None), (0.969, 1.2, None), (0.9, 0.969, False), (1.2, 1.4, True)],
)
def test_the_lower_bound_decides(low: float, high: float, answer: bool | None) -> None:
    assert non_inferior(low, high) is answer
    assert non_inferior(1 / high, 1 / low, higher_is_better=False) is answer, "the same of times"
    assert non_inferior(8 * low, 8 * high, gain=8) is answer


@pytest.mark.promise("A benchmark's goal is not met by noise: a wide interval is undecided, and undecided is not met.")
def test_noise_is_undecided_and_undecided_is_not_met() -> None:
    generator = np.random.default_rng(1)
    theirs = generator.lognormal(0, 0.4, 20)
    middle, low, high = paired_ratio(list(0.95 * generator.lognormal(0, 0.4, 20)), list(theirs))
    assert low < 1 < high, "the old rule called this met"
    assert non_inferior(low, high) is None
    assert not is_narrow(middle, low, high)
    one = Claim("a cell", "throughput_bps", "bit/s", 1.0, "peer", 1.0, middle, low, high, "whole interval", None)
    assert finish("x", [one], quick=True) == 1


def test_equal_runs_are_as_good() -> None:
    generator = np.random.default_rng(2)
    level = generator.lognormal(0, 0.3, 20)
    ours, theirs = (level * generator.normal(1, 0.01, 20) for _ in range(2))
    middle, low, high = paired_ratio(list(ours), list(theirs))
    assert non_inferior(low, high) is True
    assert is_narrow(middle, low, high)

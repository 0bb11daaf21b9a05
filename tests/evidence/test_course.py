"""Drift and levels within one measurement: found where they are, and nearly never in noise."""

from __future__ import annotations

import random

import pytest

from hpcq.evidence import rules
from hpcq.evidence import rules as conditions
from hpcq.evidence.case import JudgedResult
from hpcq.evidence.judge import judge

pytestmark = pytest.mark.fast

COUNT = 400


def _noise(chance: random.Random, count: int, correlation: float) -> list[float]:
    """Around 1 with a deviation of 5 %, each value partly as the one before."""
    values, last = list[float](), 0.0
    for _ in range(count):
        last = correlation * last + chance.gauss(0, (1 - correlation**2) ** 0.5)
        values.append(1 + 0.05 * last)
    return values


def _told(values: list[float]) -> set[str]:
    ends = {end: {"node": end, "interface": "eth0", "counters": {"snmp.Tcp.InSegs": 1}} for end in ("client", "server")}
    series = {"interval_ms": 100, "throughput_bps": values}
    line = {"kernel": "tcp_stream", "options": {}, "series": series, "evidence": ends}
    return {one.rule.name for one in judge(JudgedResult(line, {}, {}, {})).findings} & {"rate_drifted", "rate_of_two_levels"}


@pytest.mark.promise("A rate that goes one way through the whole measurement is a finding; noise is none.")
@pytest.mark.heavy
@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("count", [10, 20, 100, 3000])
def test_noise_is_neither_a_drift_nor_two_levels(count: int, correlation: float) -> None:
    chance = random.Random(count)
    told = [_told(_noise(chance, count, correlation)) for _ in range(COUNT if count < 1000 else 20)]
    assert sum(map(bool, told)) <= 0.01 * COUNT


@pytest.mark.promise("A rate that goes one way through the whole measurement is a finding; noise is none.")
@pytest.mark.parametrize("change", [-0.4, 0.4])
def test_a_drift_is_found_whichever_way(change: float) -> None:
    chance = random.Random(7)
    many = [[one * (1 + change * at / 39) for at, one in enumerate(_noise(chance, 40, 0.2))] for _ in range(50)]
    told = [_told(values) for values in many]
    assert told.count({"rate_drifted"}) >= 48
    for values in many:
        found = rules.drift(values)
        assert found is not None
        assert found.change_ratio == pytest.approx(change / (1 + change / 2), abs=0.12)


@pytest.mark.promise("A rate or round trips of two levels within one measurement are a finding; one wide distribution is none.")
@pytest.mark.parametrize("low_ratio", [0.2, 0.5, 0.8])
def test_two_levels_are_found_with_their_shares(low_ratio: float) -> None:
    chance = random.Random(9)
    values = [(0.6 if chance.random() < low_ratio else 1.2) * one for one in _noise(chance, 300, 0)]
    assert _told(values) == {"rate_of_two_levels"}
    found = rules.levels(values)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([0.6, 1.2], rel=0.05)
    assert found.low_ratio == pytest.approx(low_ratio, abs=0.08)


@pytest.mark.promise("A rate or round trips of two levels within one measurement are a finding; one wide distribution is none.")
def test_a_uniform_and_a_normal_distribution_explain_what_is_known_of_them() -> None:
    chance = random.Random(3)
    uniform, normal = (rules.levels([draw() for _ in range(20_000)]) for draw in (chance.random, lambda: chance.gauss(0, 1)))
    assert uniform is not None
    assert normal is not None
    assert [uniform.explained_ratio, normal.explained_ratio] == pytest.approx([0.75, 0.637], abs=0.01)
    assert max(uniform.explained_ratio, normal.explained_ratio) < conditions.EXPLAINED_RATIO


def test_what_has_no_course() -> None:
    assert rules.drift([1.0] * 9) is None
    assert rules.drift([0.0] * 20) is None
    assert rules.levels([]) is None
    assert rules.levels([5.0] * 20) is None
    assert rules.levels([1.0, 2.0], [0.0, 0.0]) is None
    still = rules.drift([3.0] * 20)
    assert still == rules.Drift(0.0, 0.0)
    assert rules.switches([1, 3, 1, 1, 3], 2) == 3
    assert _told([float("nan")] * 3 + [0.0] * 30) == set()

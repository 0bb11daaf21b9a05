"""Proposed gates keep their promise on values that they were not made from."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from hpcq.cli.main import run
from hpcq.definition.files.campaign import read_campaign
from hpcq.kernels import Better
from hpcq.verdict.proposing import propose
from tests.history.histories import History, json_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("better", [Better.HIGHER, Better.LOWER])
@pytest.mark.parametrize("rate", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("heavy", [False, True])
def test_the_false_alarm_rate_is_kept(better: Better, rate: float, heavy: bool) -> None:
    random = np.random.default_rng(5)

    def values(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        noise = random.standard_t(3, count) / 1.7 if heavy else random.standard_normal(count)
        return 1e9 * (1 + 0.02 * noise)

    made = propose([values(200) for _ in range(20)], better, rate)
    assert made is not None
    fresh = values(200_000)
    broken = float(np.mean(fresh < made.bound if better is Better.HIGHER else fresh > made.bound))
    assert broken <= 2 * rate + 0.0005
    assert made.seen_ratio is not None
    assert abs(made.seen_ratio - broken) <= rate + 0.001


@pytest.mark.promise("A proposed gate never lies inside what was seen where the values are too few.")
@pytest.mark.parametrize("family", ["gauss", "heavy", "two modes"])
def test_no_bound_lies_inside_what_was_seen_where_the_values_are_too_few(family: str) -> None:
    random = np.random.default_rng(6)
    for _ in range(50):
        noise = random.standard_t(3, 60) if family == "heavy" else random.standard_normal(60)
        values = 1e9 * (1 + 0.02 * noise)
        if family == "two modes":
            values[random.random(60) < 0.1] *= 0.7
        made = propose([values[:30], values[30:]], Better.HIGHER, 0.001)
        assert made is not None
        assert made.bound <= values.min()
        assert (made.enough, made.needed_count) == (False, 1000)


def bound_of(values: np.ndarray[tuple[int], np.dtype[np.float64]], rate: float) -> float:
    """As the method says it, of values that are better the higher they are."""
    middle = np.median(values)
    by_scatter = middle + NormalDist().inv_cdf(rate) * 1.4826 * np.median(np.abs(values - middle))
    place = int(rate * (len(values) + 1) - 1)
    return float(min(by_scatter, np.sort(values)[max(place, 0)]))


@pytest.mark.parametrize("better", [Better.HIGHER, Better.LOWER])
@pytest.mark.parametrize("rate", [0.2, 0.01])
@pytest.mark.parametrize("ties", [False, True])
def test_each_series_in_turn_is_held_against_the_others(better: Better, rate: float, ties: bool) -> None:
    random = np.random.default_rng(8)
    sign = 1.0 if better is Better.HIGHER else -1.0
    for _ in range(100):
        series = [random.standard_normal(count) for count in random.integers(0, 40, random.integers(2, 9))]
        series = [np.round(one) for one in series] if ties else series
        if sum(map(len, series)) < 30:
            continue
        made = propose(series, better, rate)
        assert made is not None
        assert made.bound == pytest.approx(sign * bound_of(sign * np.concatenate(series), rate), rel=1e-12)
        broken = total = 0
        for left_out, own in enumerate(series):
            rest = np.concatenate([one for i, one in enumerate(series) if i != left_out])
            if len(rest) >= 30:
                broken += int(np.sum(sign * own < bound_of(sign * rest, rate)))
                total += len(own)
        assert made.seen_ratio == (broken / total if total else None)


def test_too_little_proposes_nothing() -> None:
    assert propose([np.ones(10)], Better.HIGHER, 0.01) is None
    assert propose([np.ones(100)], Better.NONE, 0.01) is None


@pytest.mark.heavy
def test_the_lines_fit_into_a_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    for day in range(-20, 0):
        made.night(day)
    words = ["gate", "propose", "--since", "2026", "--db", str(made.database)]
    assert run(["gate", "propose", "--since", "2026-11", "--db", str(made.database), "--json"]) == 0
    [found] = json_of(capsys.readouterr().out)
    assert 1.85e8 < found["gate"]["minimum"] < 1.99e8
    assert run([*words[:3], "2026-11", *words[4:]]) == 0
    text = capsys.readouterr().out
    assert "would need" in text
    assert run([*words[:3], "2027", *words[4:]]) == 4
    assert "nothing to propose" in capsys.readouterr().err
    path = tmp_path / "a.yaml"
    tests = "tests: [{kernel: tcp_stream, parameters: {message_bytes: 64KiB}}]"
    path.write_text(f"name: a\nclusters: [x]\npairs: all\n{tests}\n{text}")
    [gate] = read_campaign(path).gates
    assert gate.minimum == found["gate"]["minimum"]

"""Jobs are the unit: what scatters between them is learned, and repetitions of one job are one witness."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcq.analysis.blame_tables import tables_of
from hpcq.kernels import Better
from hpcq.localisation import blame
from hpcq.statistics import ComparisonVerdict, JobScatter, compare, compare_jobs, job_scatter, job_scatters, pooled_scatter
from hpcq.statistics.comparison import ASSUMED_RATIO, LEAST_RATIO, runs_needed, t_quantile
from hpcq.store.database import reading
from hpcq.store.selection import Selection
from hpcq.verdict.levels import Sides, judge_boundary, judge_search, smallest_worse
from tests.history.histories import History
from tests.history.test_localisation import judge, names, rounds_of, rows_of

WITHIN, BETWEEN = 0.005, 0.05
NIGHTS = 30


def job_medians(random: np.random.Generator, count: int, between: float = BETWEEN) -> NDArray[np.float64]:
    """Medians of five repetitions each: 0.5 % within a job, `between` from job to job."""
    jobs = 1 + between * random.standard_normal(count)
    repetitions = jobs[:, None] * (1 + WITHIN * random.standard_normal((count, 5)))
    return np.asarray(np.median(repetitions, axis=1))


@pytest.mark.promise("How far jobs scatter is learned from their history.")
@pytest.mark.fast
@pytest.mark.parametrize("between", [0.01, 0.03, 0.05])
def test_scatter_is_learned_and_a_change_of_level_does_not_count(between: float) -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(50):
        history = job_medians(random, NIGHTS, between)
        history[20:] *= 0.5
        found.append(job_scatter(history).ratio)
    assert np.median(found) == pytest.approx(between, rel=0.3)


@pytest.mark.fast
def test_a_short_history_borrows_from_its_peers_and_none_assumes() -> None:
    random = np.random.default_rng(2)
    peers = pooled_scatter(job_medians(random, 4, 0.02) for _ in range(20))
    assert peers.degrees == 30
    assert job_scatter([1.0], peers).ratio == pytest.approx(0.02, rel=0.3)
    assert job_scatter([1.0, 2.0, 0.5], peers).ratio > 0.5  # its own few jobs show more
    assert job_scatter([1.0, 1.0, 1.0], peers).ratio == peers.ratio  # and never less
    assert job_scatter([]) == JobScatter(ASSUMED_RATIO, 0)
    assert pooled_scatter([]) == JobScatter(ASSUMED_RATIO, 0)
    assert job_scatter([1.0] * 20).ratio == LEAST_RATIO


@pytest.mark.promise("The smallest loss that `compare` says it would tell is one that it tells, in nine of ten cases.")
@pytest.mark.fast
@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 3), (10, 5), (30, 12)])
@pytest.mark.parametrize("together", [1, 40])
def test_the_smallest_loss_that_is_named_would_be_told(before: int, after: int, together: int) -> None:
    """One series of `together` loses as much as is named; and half of it is told far more rarely."""
    random, scatter = np.random.default_rng([3, before, after, together]), JobScatter(0.02, 60)
    smallest = smallest_worse(scatter, before, after, Better.HIGHER, together)
    assert smallest is not None
    told = {}
    for loss in (smallest, smallest / 2):
        found = []
        for _ in range(60):
            points = [np.exp(0.02 * random.standard_normal(before + after)) for _ in range(together)]
            points[0][before:] *= 1 - loss
            sides = [Sides(Better.HIGHER, one, before, scatter) for one in points]
            found.append(judge_boundary(sides, lasting_count=1)[0].sure)
        told[loss] = sum(found) / len(found)
    assert told[smallest] >= 0.8
    assert told[smallest / 2] <= 0.5


def test_no_loss_is_named_where_none_would_be_told() -> None:
    assert smallest_worse(JobScatter(0.9, 0), 1, 1, Better.HIGHER, 1) is None


@pytest.mark.promise("The scatter of many series at once is that of each alone.")
@pytest.mark.fast
def test_the_scatter_of_many_series_is_that_of_each_alone() -> None:
    random = np.random.default_rng(7)
    histories = [np.exp(random.normal(0, 0.05, random.integers(0, 25))) for _ in range(300)]
    for number, one in enumerate(histories):
        one[: number % 3] = (0.0, -1.0, np.nan)[number % 3]  # values that do not count
    peers = [None if number % 2 else JobScatter(0.02, 30) for number in range(len(histories))]
    assert job_scatters(histories, peers) == [job_scatter(one, peer) for one, peer in zip(histories, peers, strict=True)]
    assert len({one.ratio for one in job_scatters(histories, peers)}) > 100


@pytest.mark.promise("Two jobs that differ by what jobs scatter are not worse.")
def test_two_jobs_apart_by_what_jobs_scatter_are_not_worse() -> None:
    random = np.random.default_rng(3)
    worse = 0
    for _ in range(2000):
        history = job_medians(random, NIGHTS + 1)
        one = compare_jobs(history[-2:-1], history[-1:], job_scatter(history[:-1]))
        worse += one.verdict is ComparisonVerdict.DEGRADED
    assert worse / 2000 <= 0.02


def test_nightly_search_cries_wolf_rarely_and_tells_ten_per_cent_by_the_fourth_night() -> None:
    random = np.random.default_rng(4)
    count = 400
    quiet = [Sides(Better.HIGHER, job_medians(random, NIGHTS + 4), NIGHTS) for _ in range(count)]
    alarms = sum(any(level.sure for level in judge_search([one])[0]) for one in quiet)
    assert alarms / count <= 0.02 + 2 * np.sqrt(0.02 * 0.98 / count)
    told = 0
    for _ in range(count):
        points = job_medians(random, NIGHTS + 4)
        points[NIGHTS:] *= 0.9
        seen = [judge_search([Sides(Better.HIGHER, points[: NIGHTS + night], NIGHTS - 4)])[0] for night in (2, 3, 4)]
        told += any(level.sure and level.direction == "worse" for levels in seen for level in levels)
    assert told / count >= 0.85


@pytest.mark.promise("A change that is reported at night 4 is still reported at nights 5 to 12.")
def test_what_was_told_at_the_fourth_night_is_told_at_the_tenth() -> None:
    random = np.random.default_rng(5)
    nights = (4, 5, 6, 8, 10, 12)
    told = dict.fromkeys(nights, 0)
    for number in range(120):
        points = job_medians(random, NIGHTS + 12, 0.05 if number % 2 else 0.025)
        points[NIGHTS:] *= 0.9
        for night in nights:
            levels = judge_search([Sides(Better.HIGHER, points[: NIGHTS + night], NIGHTS - 4)])[0]
            told[night] += any(level.sure and level.direction == "worse" for level in levels)
    assert min(told.values()) >= 0.9 * 120, told
    assert sorted(told.values()) == list(told.values()), f"more nights never say less: {told}"


@pytest.mark.promise("A move far beyond everything seen before is reported, however many series are judged.")
def test_a_halving_is_told_among_a_thousand_series() -> None:
    random = np.random.default_rng(6)
    series = [Sides(Better.HIGHER, np.round(job_medians(random, NIGHTS + 3, 0.02), 4), NIGHTS) for _ in range(1000)]
    series[0].points[NIGHTS:] *= 0.5
    assert any(level.sure and level.direction == "worse" for level in judge_search(series)[0])
    boundary = judge_boundary(series)
    assert boundary[0].sure
    assert sum(level.sure and level.direction == "worse" for level in boundary) <= 3


@pytest.mark.fast
def test_one_job_after_is_never_a_lasting_change() -> None:
    one = Sides(Better.HIGHER, np.array([1.0] * 20 + [0.4]), 20)
    assert judge_boundary([one])[0].verdict is ComparisonVerdict.INCONCLUSIVE
    assert judge_boundary([one], lasting_count=1)[0].verdict is ComparisonVerdict.DEGRADED


@pytest.mark.promise("Pass is said only where a worsening of 5 % is ruled out.")
def test_a_pass_rules_out_what_matters_and_else_says_how_many_runs_would() -> None:
    random = np.random.default_rng(7)
    passed = 0
    for _ in range(300):
        noisy = compare(1 + 0.08 * random.standard_normal(20), 0.92 * (1 + 0.08 * random.standard_normal(4)))
        passed += noisy.verdict is ComparisonVerdict.PASS
    assert passed / 300 <= 0.05  # eight per cent slower at eight per cent of noise
    unclear = compare(1 + 0.05 * np.sin(np.arange(30.0)), [1.0, 1.01, 0.99])
    assert unclear.verdict is ComparisonVerdict.INCONCLUSIVE
    assert "would settle it" in unclear.reason
    assert runs_needed(0.02, 30) == 1
    assert runs_needed(0.05, 5) is None


@pytest.mark.promise("A tiny loss ratio is not reported as worse.")
@pytest.mark.fast
def test_a_trace_of_loss_is_not_worse_and_a_real_one_is() -> None:
    none = [0.0] * 30
    trace = compare(none, [1e-7] * 5, better=Better.LOWER, smallest_move=1e-4)
    assert trace.verdict is ComparisonVerdict.PASS
    assert compare(none, [0.01] * 5, better=Better.LOWER, smallest_move=1e-4).verdict is ComparisonVerdict.DEGRADED
    levels = judge_search([Sides(Better.LOWER, np.array([0.0] * 30 + [1e-7] * 10), 30, smallest_move=1e-4)])[0]
    assert not any(level.sure for level in levels)


@pytest.mark.fast
def test_t_is_wider_than_the_normal() -> None:
    assert t_quantile(1.96, 0) == 1.96
    assert t_quantile(1.96, 6) == pytest.approx(2.447, rel=0.01)


@pytest.mark.promise(
    "Sixty-four healthy nodes whose jobs scatter by 5 % get nobody accused: repetitions of a job are one witness."
)
def test_sixty_four_healthy_nodes_whose_jobs_scatter_get_nobody_accused(tmp_path: Path) -> None:
    """Four repetitions of 0.5 % in each job, 5 % from job to job: the ring's 64 pairs, one job each."""
    random = np.random.default_rng(8)
    pairs = [(f"n{node:02d}", f"n{(node + 1) % 64:02d}") for node in range(64)]
    luck = {f"{a}>{b}": float(1 + BETWEEN * random.standard_normal()) for a, b in pairs}
    nights = History(tmp_path, pairs=pairs)
    run = nights.night(0, repetitions=4, noise=WITHIN, levels=luck, bare=True)
    with reading(nights.database) as database:
        ((_, higher, table),) = tables_of(database, [run], Selection(), {}).tables
    assert len(table.value) == 64
    found = blame(table, higher_is_better=higher)
    assert (found.nodes, found.links, found.together) == ((), (), ())


@pytest.mark.promise("Pairs of a slow node that are measured again and again do not make its level the healthy one.")
@pytest.mark.parametrize("nodes", [4, 8])
@pytest.mark.parametrize("again", [0, 2, 4])
def test_measuring_a_slow_node_again_does_not_make_its_level_the_healthy_one(nodes: int, again: int) -> None:
    """Twenty tables: after every pair once, the pairs of the slow node `again` times, as people do who suspect it."""
    named = 0
    for seed in range(20):
        random = np.random.default_rng([seed, nodes])
        bad = int(random.integers(nodes))
        rounds = rounds_of(nodes, random, nodes - 1) + [[(bad, one)] for one in range(nodes) if one != bad] * again
        found = judge(rows_of(random, rounds, {bad: 0.9}, dips=0.0))
        assert names(found) <= {f"n{bad:03d}"}
        assert found.healthy_value == pytest.approx(1e10, rel=0.05)
        named += names(found) == {f"n{bad:03d}"}
    assert named >= 18


@pytest.mark.parametrize("nodes", [4, 8])
def test_measuring_a_healthy_node_again_accuses_nobody(nodes: int) -> None:
    for seed in range(40):
        random = np.random.default_rng([seed, nodes])
        rounds = rounds_of(nodes, random, nodes - 1) + [[(0, one)] for one in range(1, nodes)] * 4
        found = judge(rows_of(random, rounds, {}, dips=0.0, noise=0.02))
        assert (found.nodes, found.links) == ((), ())

"""Whole campaigns on this machine while things break: nothing lost, nothing twice, nothing left, and the next run works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.campaigns_here import FAULTS, MOMENTS, SITES, drawn, play, told

#: Ten of the two hundred of `make faults`: together they draw every kind, every site, and runs with their workflow.
SEEDS = (54, 71, 163, 166, 17, 41, 108, 124, 144, 149)
MORE_SEEDS = (172, 178, 179, 195)


@pytest.mark.promise(
    "Whatever breaks under a run: each planned result has a row, nothing is measured twice or left behind, the next run works."
)
@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.long) for seed in MORE_SEEDS)])
def test_faults_drawn_by_a_seed(tmp_path: Path, seed: int) -> None:
    story = play(tmp_path / "place", seed)
    assert not story.broken, told(story)
    assert story.outcomes, told(story)


@pytest.mark.fast
def test_the_ten_draw_every_kind_and_site() -> None:
    stories = [drawn(seed) for seed in SEEDS]
    assert {one.kind for *_, faults in stories for one in faults} == set(FAULTS)
    assert {site for site, *_ in stories} == set(SITES)
    assert {by_hand for _, _, by_hand, _ in stories} == {True, False}
    assert all(moment in MOMENTS for kind in FAULTS.values() for moment in kind.moments)
    assert drawn(SEEDS[0]) == stories[0], "a seed draws the same for ever"

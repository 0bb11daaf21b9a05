"""A campaign over two clusters and their link while things break: nothing lost, nothing twice, each with its row.

The injector draws and plays (fault_campaign.py); after every run all promises of fault_invariants.py are looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fault_campaign import Planned, Schedule, Story, drawn, in_order, play, told
from tests.faults.fault_kinds import FAULTS, LINK, MOMENTS
from tests.lab.lab_fixture import RunningLab

lab_test = [pytest.mark.lab]


def played(lab: RunningLab, folder: Path, *faults: Planned, seed: int, repetition_count: int = 2) -> Story:
    story = play(lab, folder, Schedule(seed, "allocation: whole", in_order(faults), repetition_count))
    assert not story.broken, told(story)
    assert not [line for line in story.said if "had ended before" in line], told(story)
    return story


class TestInTheLab:
    pytestmark = lab_test

    def test_a_cut_connection_a_restarted_controller_and_a_killed_driver_cost_nothing(
        self, lab: RunningLab, tmp_path: Path
    ) -> None:
        story = played(
            lab,
            tmp_path,
            Planned("ssh_is_cut", "submitted", "beta"),
            Planned("controller_restarts", "measuring", "beta"),
            Planned("driver_is_killed", "measuring", "beta"),
            seed=1,
        )
        assert (story.exit_code, story.count("measured"), len(story.rows)) == (0, 18, 18), told(story)

    @pytest.mark.long  # tests/links/test_link_faults_in_lab.py does the same by hand, always
    def test_a_far_side_that_does_not_start_and_a_dead_node_cost_themselves(self, lab: RunningLab, tmp_path: Path) -> None:
        story = played(
            lab,
            tmp_path,
            Planned("far_side_does_not_start", "running", "beta"),
            Planned("node_dies", "measuring", "alpha"),
            seed=5,
            repetition_count=6,
        )
        assert story.exit_code in {3, 4}  # play() says which
        linked = [row for step, row in story.rows.items() if step[0] == LINK]
        assert [outcome for outcome, _ in linked] == ["not_measured"] * 6
        assert all("beta/beta-n01: did not start within 8 s" in str(reason) for _, reason in linked), linked
        assert story.count("measured", "beta") == 24, told(story)
        assert 12 <= story.count("measured", "alpha") < 24, told(story)  # each node is in two of the four pairs
        lost = [str(reason) for step, (outcome, reason) in story.rows.items() if step[0] == "alpha" and outcome != "measured"]
        assert all(reason != "None" for reason in lost), lost

    @pytest.mark.long
    @pytest.mark.parametrize("seed", range(1, 31))
    def test_faults_drawn_by_a_seed(self, lab: RunningLab, tmp_path: Path, seed: int) -> None:
        story = play(lab, tmp_path, drawn(seed))
        assert not story.broken, told(story)


@pytest.mark.fast
def test_a_seed_draws_the_same_schedule_for_ever_and_all_kinds_are_drawn() -> None:
    assert [str(one) for one in drawn(15).faults] == ["committed (alpha): ssh_is_cut", "measuring (alpha): node_dies"]
    assert {one.kind for seed in range(1, 31) for one in drawn(seed).faults} == set(FAULTS)
    assert all(moment in MOMENTS for kind in FAULTS.values() for moment in kind.moments)

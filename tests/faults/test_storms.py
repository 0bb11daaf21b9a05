"""Storms over the real driver on a site in this process: nothing lost, nothing twice, nothing left (storms.py)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hpcq.scheduler.types import NodeCondition
from tests.driver.fake_site import FakeSite
from tests.faults.storm_site import Orders, StormScheduler
from tests.faults.storms import KINDS, Storm, play, told

#: How many storms of new seeds the long tier plays besides its sixty.
FRESH_SEEDS = 40


@pytest.mark.promise(
    "If a wrapper garbles an id, hpcq looks the job up by name; nothing runs twice and nothing is left behind."
)
@pytest.mark.promise("A controller back on an old state costs tries, no result, and no two jobs of a pair measure at once.")
@pytest.mark.promise("Where locks lock nothing, a second driver is refused beside a living one.")
@pytest.mark.promise("After a cancel that fell into an outage of the controller, no job of the user is left.")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_kind_of_trouble_breaks_no_promise(tmp_path: Path, kind: str) -> None:
    for seed in (1, 7):
        storm = play(tmp_path / str(seed), seed, kind)
        assert not storm.broken, told(storm)


def _late(folder: Path) -> Storm:
    """One wave that reaches the controller 250 s after it was made; users have all nodes by then."""
    site = FakeSite(folder, scheduler_class=StormScheduler)  # type: ignore[type-abstract]
    storm = Storm(0, site, random.Random(0))
    storm.scheduler.troubles.append(Orders(delay_s=250.0))
    site.at(200, lambda: storm.scheduler.node_states.update({"n1": (NodeCondition.BUSY, "allocated")}))
    return storm


@pytest.mark.promise("A driver does not end while one of its submit commands may still run; what arrives is cancelled by name.")
def test_a_submission_that_arrives_after_everything_is_cancelled(tmp_path: Path) -> None:
    storm = _late(tmp_path)
    storm.site.at(130, (storm.site.run.path / "cancel").touch)
    storm.site.drive()
    storm.site.clock.sleep(600)
    assert not storm.scheduler.live()
    assert any("submit commands have not ended; looks for their jobs until" in text for text in storm.site.said)


@pytest.mark.promise("A later driver knows which submit commands of an earlier one had not ended.")
@pytest.mark.fast
def test_a_later_driver_still_looks_for_what_an_earlier_one_withdrew(tmp_path: Path) -> None:
    storm = _late(tmp_path)

    def killed() -> None:
        raise KeyboardInterrupt

    storm.site.at(130, (storm.site.run.path / "cancel").touch)
    storm.site.at(140, killed)
    with pytest.raises(KeyboardInterrupt):
        storm.site.drive()
    assert storm.site.events()[-1]["event"] != "closed"
    storm.site.drive()
    storm.site.clock.sleep(600)
    assert not storm.scheduler.live()


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(1, 61), 66_476])
def test_a_storm_drawn_by_a_seed(tmp_path: Path, seed: int) -> None:
    storm = play(tmp_path, seed)
    assert not storm.broken, told(storm)


@pytest.mark.long
def test_storms_of_seeds_that_nobody_has_seen(tmp_path: Path) -> None:
    """Others in each run; what fails says its seed, which `python -m tests.faults.storms --seed` plays again."""
    for seed in random.SystemRandom().sample(range(1000, 1_000_000), FRESH_SEEDS):
        storm = play(tmp_path / str(seed), seed)
        assert not storm.broken, told(storm)


def test_a_seed_draws_the_same_storm_for_ever(tmp_path: Path) -> None:
    one, two = play(tmp_path / "one", 7), play(tmp_path / "two", 7)
    assert [line for line in one.said if "ended" not in line] == [line for line in two.said if "ended" not in line]
    assert one.said

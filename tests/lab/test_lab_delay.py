"""The delay of the lab's wide-area link, on the real thing.

What this machine takes to wake the ends and the wire is in every round trip. So the link is measured without a delay and
with one in turns, and the difference is judged.
"""

import statistics

import pytest

from tests.lab.lab_fixture import RunningLab
from tests.lab.test_lab import round_trips_us

pytestmark = [pytest.mark.lab]

TURNS = 4
COUNT = 200


@pytest.mark.quiet
@pytest.mark.real_time
def test_the_wide_area_link_has_the_asked_delay(lab: RunningLab) -> None:
    lab.at_rest("alpha", "beta")
    turns: list[tuple[list[float], list[float]]] = []
    for _ in range(3 * TURNS):
        turn = whole_turn_us(lab, "0ms"), whole_turn_us(lab, "1.45ms")
        turns += [turn] if all(turn) else []
        if len(turns) == TURNS:
            break
    assert len(turns) == TURNS, "nothing is lost"
    for typical in (min, statistics.median):  # of the quietest turn
        plain_us, delayed_us = (min(typical(times_us) for times_us in each) for each in zip(*turns, strict=True))
        assert delayed_us > 2900, "no round trip beats the delay"
        # A frame without a delay wakes the wire, which may cost more than what waits for its time: 38 us beside 140 were seen.
        assert 2850 < delayed_us - plain_us < 3100


def whole_turn_us(lab: RunningLab, delay: str) -> list[float]:
    """Round trips at this delay; none if an echo was late, since the next one then takes its answer for its own."""
    lab.command("wan", "--delay", delay, "--rate", "400mbit", "--loss", "0")
    found = round_trips_us(lab, "alpha/n01", "beta/n01", COUNT)
    return [] if None in found else [time_us for time_us in found if time_us is not None]

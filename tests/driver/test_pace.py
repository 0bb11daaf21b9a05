"""How often a scheduler is asked: quick at first, seldom in the steady state, slower when it does not answer."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hpcq.runner.queue.account import FAILURES_SAID, Pace
from tests.driver.fake_clock import FakeClock

pytestmark = pytest.mark.fast


def pace_of(time: FakeClock) -> Pace:
    return Pace(query_s=1.0, poll_max_s=5.0, grace_s=10.0, refill_s=5.0, clock=time)


def questions(time: FakeClock, pace: Pace, within_s: float, eager: bool) -> list[float]:
    asked = []
    start = time.now_s()
    while time.now_s() - start < within_s:
        pace.ask()
        asked.append(time.now_s() - start)
        pace.sleep(eager=eager)
    return asked


def test_never_more_than_one_question_a_second() -> None:
    time = FakeClock()
    asked = questions(time, pace_of(time), 600, eager=True)
    assert min(later - earlier for earlier, later in pairwise(asked)) >= 0.9


def test_the_steady_state_is_one_in_five_seconds_even_when_something_always_happens() -> None:
    time = FakeClock()
    asked = questions(time, pace_of(time), 3600, eager=True)
    assert len(asked) <= 30 + 3600 / 5 + 1
    late = [at for at in asked if at > 600]
    assert (late[-1] - late[0]) / (len(late) - 1) >= 4.99


def test_the_interval_grows_when_nothing_happens() -> None:
    time = FakeClock()
    asked = questions(time, pace_of(time), 120, eager=False)
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert gaps[0] < 1.2
    assert all(4.4 <= gap <= 5.6 for gap in gaps[6:])
    assert len({round(gap, 6) for gap in gaps[6:]}) > 3  # jitter


@pytest.mark.promise("A controller that answers slowly is asked for a tenth of the time at most.")
def test_a_controller_that_answers_slowly_is_asked_for_a_tenth_of_the_time_at_most() -> None:
    time = FakeClock()
    pace = pace_of(time)
    for took_s, least_s, most_s in ((1.0, 0.9, 5.6), (4.0, 32.0, 40.0), (100.0, 54.0, 66.0), (0.1, 0.9, 5.6)):
        pace.answered(took_s)
        before = time.now_s()
        pace.sleep(eager=True)
        assert least_s <= time.now_s() - before <= most_s, took_s


def test_after_five_failures_it_slows_down_and_says_so_once() -> None:
    random.seed(1)
    time = FakeClock()
    pace = pace_of(time)
    heard = []
    for count in range(1, 12):
        if pace.failed():
            heard.append(count)
        pace.sleep(eager=True)
    assert heard == [1, FAILURES_SAID]
    assert pace.interval_s == 60.0
    assert pace.succeeded()
    assert not pace.succeeded()

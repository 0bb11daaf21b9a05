"""The delay of the lab's wide-area link, on the real thing.

What this machine takes to wake the ends and the wire is in every round trip. So the link is measured with two delays in
turns, and the difference is judged. Neither is 0: a frame that need not wait wakes the wire at another time, at another cost.
CPUs stay out of deep idle states meanwhile: waking takes the longer, the longer they sleep, which is 200 us of 2,400 here.
"""

import contextlib
import statistics
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab_fixture import RunningLab
from tests.lab.test_lab import round_trips_us

pytestmark = [pytest.mark.lab]

TURNS = 4
COUNT = 200
SHORT_MS, LONG_MS = 0.25, 1.45
#: What the difference of the round trips must be, within the 5 % that a round trip of the lab may be off: what it takes
#: to wake the ends is not the same at both delays (25 us less was seen).
ASKED_US = 2 * (LONG_MS - SHORT_MS) * 1000


@pytest.mark.quiet
@pytest.mark.real_time
def test_the_wide_area_link_has_the_asked_delay(lab: RunningLab) -> None:
    lab.at_rest("alpha", "beta")
    turns: list[tuple[list[float], list[float]]] = []
    with awake():
        for _ in range(3 * TURNS):
            turn = whole_turn_us(lab, SHORT_MS), whole_turn_us(lab, LONG_MS)
            turns += [turn] if all(turn) else []
            if len(turns) == TURNS:
                break
    assert len(turns) == TURNS, "nothing is lost"
    for typical in (lowest_tenth, statistics.median):  # of the quietest turn
        short_us, long_us = (min(typical(times_us) for times_us in each) for each in zip(*turns, strict=True))
        assert short_us > 2000 * SHORT_MS, "no round trip beats the delay"
        assert long_us > 2000 * LONG_MS
        print(f"{typical.__name__}: {short_us:.1f} {long_us:.1f}, off by {long_us - short_us - ASKED_US:+.1f} us")
        assert 0.95 * ASKED_US < long_us - short_us < ASKED_US + 200


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """No CPU of this machine goes into a deep idle state, where the system has a word for it."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            asked = stack.enter_context(Path("/dev/cpu_dma_latency").open("wb", buffering=0))
            asked.write(struct.pack("i", 0))
        yield


def lowest_tenth(times_us: list[float]) -> float:
    return statistics.quantiles(times_us, n=10)[0]


def whole_turn_us(lab: RunningLab, delay_ms: float) -> list[float]:
    """Round trips at this delay; none if an echo was late, since the next one then takes its answer for its own."""
    lab.command("wan", "--delay", f"{delay_ms}ms", "--rate", "400mbit", "--loss", "0")
    found = round_trips_us(lab, "alpha/n01", "beta/n01", COUNT)
    return [] if None in found else [time_us for time_us in found if time_us is not None]

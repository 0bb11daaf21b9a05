"""Whether bytes crossed the interface: what share of the expected ones must be seen there, and from how many on."""

from __future__ import annotations

from typing import Any

import pytest

from hpcq.evidence.case import read_case
from hpcq.evidence.crossing import crossing
from hpcq.evidence.judgement import CrossedInterface, JudgedResult

pytestmark = pytest.mark.fast

YES, NO, UNKNOWN = CrossedInterface.YES, CrossedInterface.NO, CrossedInterface.UNKNOWN


def answer(moved: float, share: float, *, driver: str = "mlx5_core", interval_s: float = 10) -> CrossedInterface:
    """What is said of a stream of so many bytes of which the interfaces of both ends saw this share."""
    seen = round(moved * share)

    def end(way: str) -> dict[str, Any]:
        counters = {f"net_dev.eth0.{way}_bytes": seen, f"net_dev.eth0.{way}_packets": 1, "net_dev.eth0.other_bytes": 1}
        return {
            "node": way,
            "interface": "eth0",
            "interval_ns": round(interval_s * 1e9),
            "interface_bytes": {"tx": seen if way == "tx" else 0, "rx": seen if way == "rx" else 0},
            "counters": counters,
            "gauges": {},
            "unavailable": {},
        }

    line = {
        "kernel": "tcp_stream",
        "metrics": {"sent_bytes": moved, "received_bytes": moved},
        "evidence": {"client": end("tx"), "server": end("rx")},
    }
    facts = {"nic": {"eth0.driver": driver}}
    return crossing(read_case(JudgedResult(line, {"message_bytes": 1}, facts, facts))).answer


@pytest.mark.parametrize(
    ("share", "found"),
    [(1.0, YES), (1.05, YES), (0.51, YES), (0.5, YES), (0.49, UNKNOWN), (0.11, UNKNOWN), (0.09, NO), (0.0, NO)],
)
def test_half_of_the_bytes_have_crossed_and_less_than_a_tenth_have_not(share: float, found: CrossedInterface) -> None:
    assert answer(1e9, share) is found


@pytest.mark.parametrize(("moved", "found"), [(1e4, NO), (2000, NO), (1990, UNKNOWN), (100, UNKNOWN)])
def test_few_bytes_are_lost_in_the_chatter_of_a_node(moved: float, found: CrossedInterface) -> None:
    assert answer(moved, 0.0) is found


@pytest.mark.parametrize(("driver", "interval_s", "found"), [("tg3", 2, UNKNOWN), ("tg3", 4, NO), ("mlx5_core", 2, NO)])
def test_counters_that_lag_behind_accuse_nobody(driver: str, interval_s: float, found: CrossedInterface) -> None:
    assert answer(1e9, 0.0, driver=driver, interval_s=interval_s) is found

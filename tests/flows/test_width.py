"""A measurement that ends once its interval is as narrow as asked, the width in the result, and the bound on its time."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance, variance
from typing import Any

import pytest

from hpcq.statistics.comparison import t_quantile
from tests.kernels.kernel_programs import LIMIT_S, Server

CALM: dict[str, dict[str, Any]] = {
    "tcp_stream": {"pacing_rate_bps": 50_000_000},
    "udp_stream": {"rate_bps": 10_000_000},
    "tcp_pingpong": {},
    "udp_pingpong": {"reply_timeout_s": 5},
}


def width_ratio(values: list[float], level: float) -> float:
    """Batch means with the correlation of neighbours: what the program reckons, written once more."""
    mean, count = fmean(values), len(values)
    together = sum((before - mean) * (after - mean) for before, after in pairwise(values))
    seen = together / (variance(values) * (count - 1))
    correlation = min(max(seen + (1 + 3 * seen) / count, 0.0), 0.9)
    apart = max(count * (1 - correlation) / (1 + correlation), 3.0)
    error = (pvariance(values) / (1 - 1 / apart) / apart) ** 0.5
    return float(2 * t_quantile(NormalDist().inv_cdf((1 + level) / 2), apart - 1) * error / mean)


def _metric(kernel: str) -> tuple[str, str]:
    return (
        ("throughput_width_ratio", "throughput_bps")
        if kernel.endswith("stream")
        else ("round_trip_width_ratio", "round_trip_p50_ns")
    )


@pytest.mark.promise("The width of the interval is in the result, with the correlation of the values that follow each other.")
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("kernel", CALM)
def test_the_width_is_that_of_the_series(server: Server, kernel: str, level: float) -> None:
    options = {"duration_s": 0.6, "warmup_s": 0.05, "series_interval_ms": 20, "width_level_ratio": level, **CALM[kernel]}
    line = server.run(kernel, **options).line
    width, column = _metric(kernel)
    values = line["series"][column]
    assert len(values) >= 10, "of some 30 intervals"
    assert line["metrics"][width] == pytest.approx(width_ratio(values, level), rel=0.01)


@pytest.mark.promise(
    "With `width_max_ratio` a measurement ends once its interval is that narrow, at the latest after `duration_s`."
)
@pytest.mark.parametrize("kernel", CALM)
def test_it_ends_when_the_interval_is_narrow_enough(server: Server, kernel: str) -> None:
    """A wide interval is reached within some intervals, far from the minutes that are allowed."""
    options = {"duration_s": 50, "warmup_s": 0.1, "series_interval_ms": 10, "width_max_ratio": 0.8, **CALM[kernel]}
    line = server.run(kernel, **options).line
    assert line["valid"], line
    assert 0.09e9 < line["duration_ns"] < 45e9
    assert "width_not_reached" not in {one["name"] for one in line["warnings"]}
    if not kernel.endswith("stream"):  # the receiver of a stream reckons with what arrived, not with what was sent
        assert line["metrics"]["round_trip_width_ratio"] <= 0.8


@pytest.mark.promise("With `width_max_ratio` the sender of a TCP stream decides by what was acknowledged.")
def test_a_sender_decides_by_what_arrived_and_not_by_the_bursts_that_its_socket_takes(server: Server) -> None:
    """The line is even (paced), the socket's buffer of some MB is not: judged by it, this took 8 to 50 s. Now it is 2."""
    options = {"duration_s": 50, "warmup_s": 0.1, "series_interval_ms": 10, "width_max_ratio": 0.4, **CALM["tcp_stream"]}
    took_ns: list[float] = []
    while len(took_ns) < 3 and (not took_ns or min(took_ns) >= 5e9):  # a busy machine makes an even line uneven
        took_ns.append(server.run("tcp_stream", **options).line["duration_ns"])
    assert min(took_ns) < 5e9, took_ns


def test_the_server_ends_it_where_it_sends(server: Server) -> None:
    options = {"duration_s": 50, "warmup_s": 0.1, "series_interval_ms": 10, "width_max_ratio": 0.8, **CALM["udp_stream"]}
    assert server.run("udp_stream", direction="server_to_client", **options).line["duration_ns"] < 45e9


@pytest.mark.promise("The result says if the requested width was not reached.")
def test_the_time_is_bounded_and_the_width_that_was_not_reached_is_said(server: Server) -> None:
    options = {"warmup_s": 0, "series_interval_ms": 20, "width_max_ratio": 1e-9}
    line = server.run("tcp_pingpong", duration_s=0.5, **options).line
    assert line["valid"]
    assert line["duration_ns"] >= 0.5e9
    [said] = [one["message"] for one in line["warnings"] if one["name"] == "width_not_reached"]
    assert "not to 1e-09" in said
    assert line["metrics"]["round_trip_width_ratio"] > 1e-9
    short = server.run("tcp_pingpong", duration_s=0.05, **options).line
    [said] = [one["message"] for one in short["warnings"] if one["name"] == "width_not_reached"]
    assert "at least 10 are needed" in said
    assert "round_trip_width_ratio" not in short["metrics"]


@pytest.mark.promise("With `warmup_level_ratio` a warm-up ends once it is level.")
@pytest.mark.parametrize("direction", ["client_to_server", "server_to_client"])
@pytest.mark.parametrize("kernel", CALM)
def test_a_warm_up_ends_once_it_is_level(server: Server, kernel: str, direction: str) -> None:
    """Whichever end sends decides, long before the minutes that it may last."""
    way = {"direction": direction} if kernel.endswith("stream") else {}
    options = {"duration_s": 0.1, "series_interval_ms": 20, "warmup_s": 300, "warmup_level_ratio": 0.9, **way, **CALM[kernel]}
    start_s = time.monotonic()
    line = server.run(kernel, **options).line
    assert time.monotonic() - start_s < LIMIT_S
    assert line["valid"], line
    assert "warmup_not_level" not in {one["name"] for one in line["warnings"]}


@pytest.mark.promise("A warm-up that was asked to become level and did not is said.")
@pytest.mark.parametrize(
    ("warmup_s", "words"),
    [(0.5, "warm-up differed by "), (0.05, "intervals of warm-up tell too little")],
    ids=["seen", "short"],
)
@pytest.mark.parametrize("kernel", CALM)
def test_a_warm_up_that_was_not_level_is_said(server: Server, kernel: str, warmup_s: float, words: str) -> None:
    options = {"duration_s": 0.1, "series_interval_ms": 20, "warmup_s": warmup_s, "warmup_level_ratio": 1e-12, **CALM[kernel]}
    said: dict[str, str] = {}
    for _ in range(8):  # whole nanoseconds: on a quiet machine the median round trip of two halves may be the same
        said = {one["name"]: one["message"] for one in server.run(kernel, **options).line["warnings"]}
        if "warmup_not_level" in said:
            break
    assert words in said["warmup_not_level"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width_max_ratio": 1.1}, "width_max_ratio: found 1.1: allowed: number 0 to 1 ratio"),
        ({"width_max_ratio": -0.1}, "width_max_ratio: found -0.1: allowed: number 0 to 1 ratio"),
        ({"width_level_ratio": 1}, "width_level_ratio: found 1: allowed: number 0.5 to 0.9999 ratio"),
        ({"warmup_level_ratio": 1.5}, "warmup_level_ratio: found 1.5: allowed: number 0 to 1 ratio"),
    ],
)
def test_no_width_and_no_level_outside_the_range(server: Server, options: dict[str, Any], message: str) -> None:
    done = server.run("tcp_stream", **options)
    assert done.rc == 2
    assert message in done.err

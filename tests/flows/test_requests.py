"""Ping-pongs with many requests under way, at a fixed rate, with sizes apart: what is timed, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import Pair, joined, wired
from tests.kernels.kernel_programs import Programs, Server

PINGPONGS = ("tcp_pingpong", "udp_pingpong")


@pytest.mark.promise("A measurement that ends by count ends with exactly that many round trips, however many are under way.")
@pytest.mark.parametrize("kernel", PINGPONGS)
@pytest.mark.parametrize("wait_by", ["block", "epoll", "spin"])
def test_a_count_is_kept_with_many_under_way(server: Server, kernel: str, wait_by: str) -> None:
    options: dict[str, Any] = {"outstanding_count": 10, "flow_count": 3, "reply_bytes": 300, "wait_by": wait_by}
    line = server.run(kernel, operation_count_max=77, duration_s=60, warmup_s=0.005, reply_timeout_s=30, **options).line
    assert line["valid"], line["invalid_reason"]
    assert sum(count for _, count in line["histogram"]["buckets"]) == 77
    assert line["metrics"].get("operation_count", line["metrics"].get("sent_count")) == 77


@pytest.mark.promise("With one request under way, a round trip costs each end two system calls.")
@pytest.mark.parametrize("kernel", PINGPONGS)
def test_one_request_costs_two_calls_an_end(server: Server, kernel: str) -> None:
    metrics = server.run(kernel, operation_count_max=2000, duration_s=60, warmup_s=0, reply_timeout_s=30).line["metrics"]
    for end in ("client", "server"):
        assert 4000 <= metrics[f"{end}_call_count"] < 4100


@pytest.mark.promise("A request at a fixed rate is timed from when it was due: what waits for others is in the round trips.")
@pytest.mark.lab
@pytest.mark.parametrize("kernel", PINGPONGS)
def test_requests_under_way_and_their_rate(programs: Programs, tmp_path: Path, kernel: str) -> None:
    """20 ms there and back: one under way makes 50 a second. At 100 a second they queue, and the queue is in the times."""
    with wired(tmp_path, delay_s=0.01) as pair:

        def of(**options: Any) -> dict[str, float]:
            done = pair.run(programs.net, kernel, duration_s=1, warmup_s=0, reply_timeout_s=5, **options)
            assert done.rc == 0, done.err
            metrics: dict[str, float] = done.line["metrics"]
            return metrics

        one, many = of(), of(outstanding_count=8, flow_count=2)
        behind, abreast = of(rate_pps=100), of(rate_pps=100, outstanding_count=8)
    assert one["reply_rate_pps"] < 50.5
    assert many["reply_rate_pps"] > 4 * one["reply_rate_pps"]
    assert behind["round_trip_max_ns"] > 0.35e9, "the last one was due half a second before it could be sent"
    assert behind["request_late_max_ns"] > 0.35e9
    assert behind["reply_rate_pps"] < 50.5 < abreast["reply_rate_pps"]


@pytest.mark.promise("The reply has the size that was asked for.")
@pytest.mark.lab
def test_sizes_there_and_back_are_apart(programs: Programs, tmp_path: Path) -> None:
    with joined(tmp_path) as pair:
        for kernel in PINGPONGS:
            crossed = _crossed(pair, programs, kernel)
            assert crossed["rx"] > 1200 * 500 > 400 * 500 > crossed["tx"] > 100 * 500, kernel


def _crossed(pair: Pair, programs: Programs, kernel: str) -> dict[str, float]:
    options: dict[str, Any] = {"message_bytes": 100, "reply_bytes": 1200, "operation_count_max": 500, "duration_s": 60}
    line = pair.run(programs.net, kernel, "--interface", "eth0", warmup_s=0, reply_timeout_s=30, **options).line
    assert line["valid"], line["invalid_reason"]
    crossed: dict[str, float] = line["evidence"]["client"]["interface_bytes"]
    return crossed


@pytest.mark.promise("A lost datagram is counted and frees its place, while others are under way.")
@pytest.mark.lab
def test_lost_datagrams_are_counted_while_others_are_under_way(programs: Programs, tmp_path: Path) -> None:
    with wired(tmp_path, delay_s=0.002, rate_bps=3e8, loss_ratio=0.05) as pair:
        options: dict[str, Any] = {"outstanding_count": 8, "reply_timeout_s": 0.05, "operation_count_max": 1000}
        done = pair.run(programs.net, "udp_pingpong", duration_s=60, warmup_s=0, **options)
    metrics = done.line["metrics"]
    assert done.rc == 0, done.err
    assert metrics["sent_count"] == 1000
    assert metrics["sent_count"] == metrics["received_count"] + metrics["late_count"] + metrics["lost_count"]
    assert 40 < metrics["lost_count"] < 180  # 9.75 % of 1,000 there and back, six standard deviations
    assert 0 < metrics["request_lost_count"] < metrics["lost_count"]


def test_sanitizers_find_nothing_in_requests(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as running:
        for kernel, options in (
            ("udp_pingpong", {"outstanding_count": 256, "flow_count": 64, "reply_bytes": 9000}),
            ("tcp_pingpong", {"outstanding_count": 256, "flow_count": 2, "message_bytes": 20000, "reply_bytes": 7}),
            ("tcp_pingpong", {"outstanding_count": 3, "rate_pps": 5000, "reply_bytes": 300000, "wait_by": "epoll"}),
        ):
            done = running.run(kernel, operation_count_max=300, duration_s=60, warmup_s=0.005, reply_timeout_s=20, **options)
            assert (done.rc, done.err) == (0, ""), kernel

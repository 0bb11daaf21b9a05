"""The series of a stream: what arrived in each interval, and what TCP at the sender said at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import wired
from tests.kernels.kernel_programs import INSTANT, Programs, Server

TCP = {
    *("congestion_window_bytes", "tcp_round_trip_ns", "delivery_rate_bps", "retransmit_count"),
    *("busy_ns", "receive_window_limited_ns", "send_buffer_limited_ns"),
}
RETURN = {f"return_{name}" for name in (*TCP, "throughput_bps")}


def _known(values: list[float | None]) -> list[float]:
    """Without intervals in which the sender got no turn."""
    return [one for one in values if one is not None]


@pytest.mark.promise("The series of a TCP stream says interval by interval what was sent again, and what held the sender back.")
@pytest.mark.promise("With both directions at once, the series of what the server sends has the prefix `return_`.")
@pytest.mark.parametrize(
    ("direction", "columns"),
    [
        ("client_to_server", {"throughput_bps", *TCP}),
        ("server_to_client", {"throughput_bps", *TCP}),
        ("both", {"throughput_bps", *TCP, *RETURN}),
    ],
)
def test_each_sender_tells_of_its_connections(server: Server, direction: str, columns: set[str]) -> None:
    options: dict[str, Any] = {"direction": direction, "duration_s": 0.4, "warmup_s": 0.1, "series_interval_ms": 20}
    line = server.run("tcp_stream", flow_count=3, **options).line
    series = line["series"]
    assert series.pop("interval_ms") == 20
    assert set(series) == columns
    for name in columns - {"throughput_bps", "return_throughput_bps"}:
        assert 0 < len(series[name]) <= 21, name
        assert _known(series[name]), name
    assert all(one > 0 for one in _known(series["congestion_window_bytes"]))
    assert 0 < sum(_known(series["busy_ns"])) <= 1.2 * line["duration_ns"] + 20e6  # in jiffies
    assert sum(_known(series["retransmit_count"])) <= line["metrics"]["retransmit_count"] + 1


@pytest.mark.promise("The series of a TCP stream says interval by interval what was sent again, and what held the sender back.")
@pytest.mark.lab
def test_a_line_that_loses_is_in_the_series(programs: Programs, tmp_path: Path) -> None:
    with wired(tmp_path, delay_s=0.002, rate_bps=5e7, loss_ratio=0.02) as pair:
        line = pair.run(programs.net, "tcp_stream", duration_s=1, warmup_s=0.2, series_interval_ms=50).line
    again = _known(line["series"]["retransmit_count"])
    assert sum(again) == pytest.approx(line["metrics"]["retransmit_count"], rel=0.2, abs=3)
    assert sum(again) > 0 < sum(1 for one in again if one)
    assert min(_known(line["series"]["tcp_round_trip_ns"])) > 4e6, "the line's own"
    rates = line["series"]["throughput_bps"]
    assert sum(rates) / len(rates) == pytest.approx(line["metrics"]["throughput_bps"], rel=0.2)


@pytest.mark.promise("The series of a TCP stream says interval by interval what was sent again, and what held the sender back.")
@pytest.mark.lab
def test_what_holds_a_sender_back_is_in_the_series(programs: Programs, tmp_path: Path) -> None:
    """A round trip of 10 ms needs more than 10 kB under way: whoever has less room for them holds the sender back."""
    with wired(tmp_path, delay_s=0.005, rate_bps=1e8) as pair:
        options: dict[str, Any] = {"duration_s": 0.6, "warmup_s": 0.2, "series_interval_ms": 50}
        narrow = pair.run(programs.net, "tcp_stream", send_buffer_bytes=8192, **options).line
        shut = pair.run(programs.net, "tcp_stream", receive_buffer_bytes=8192, **options).line

    def held_back(line: dict[str, Any], by: str) -> float:
        return sum(_known(line["series"][f"{by}_limited_ns"])) / sum(_known(line["series"]["busy_ns"]))

    assert held_back(narrow, "send_buffer") > 0.3 > held_back(narrow, "receive_window")
    assert held_back(shut, "receive_window") > 0.3 > held_back(shut, "send_buffer")


def test_udp_has_what_arrived_and_no_tcp(server: Server) -> None:
    options: dict[str, Any] = {"duration_s": 0.2, "rate_bps": 10_000_000, "warmup_s": 0, "series_interval_ms": 10}
    series = server.run("udp_stream", **options).line["series"]
    assert (set(series), series["interval_ms"]) == ({"interval_ms", "throughput_bps"}, 10)
    assert len(series["throughput_bps"]) > 10
    assert server.run("tcp_connect", **INSTANT).line["series"] is None
    trips = server.run("udp_pingpong", duration_s=0.3, warmup_s=0, series_interval_ms=20).line
    assert set(trips["series"]) == {"interval_ms", "round_trip_p50_ns"}
    metrics = trips["metrics"]
    for median_ns in trips["series"]["round_trip_p50_ns"]:
        assert metrics["round_trip_min_ns"] <= median_ns <= metrics["round_trip_max_ns"]


@pytest.mark.parametrize("interval_ms", [0, 60_001, "1.5"])
def test_an_interval_out_of_range_is_refused(server: Server, interval_ms: object) -> None:
    done = server.run("tcp_stream", series_interval_ms=interval_ms)
    assert done.rc == 2
    assert f"series_interval_ms: found {interval_ms}: allowed: integer 1 to 60000 ms" in done.err

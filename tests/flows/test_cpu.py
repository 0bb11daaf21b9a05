"""What a measurement costs: CPU time of process and node at both ends, per byte, and what the stamps are made of."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import INSTANT, Server

ENDS = ("client", "server")
CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


@pytest.mark.promise("CPU time is that of the process in the measurement.")
def test_cpu_time_is_that_of_the_process(server: Server) -> None:
    """The system's own account of the whole client is above it, and no warm-up is inside that is not measured."""
    command = server.command("tcp_stream", duration_s=1, warmup_s=0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        line = json.loads(client.stdout.read())
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
    metrics = line["metrics"]
    whole_ns = (usage.ru_utime + usage.ru_stime) * 1e9
    assert 0 < metrics["client_cpu_ns"] <= whole_ns + 1e6
    assert metrics["client_cpu_ns"] == pytest.approx(metrics["client_cpu_ratio"] * line["duration_ns"], rel=0.01)
    for end in ENDS:
        # counted in ticks of 10 ms, at moments that are not those of the process
        assert metrics[f"{end}_node_cpu_ns"] > 0.5 * metrics[f"{end}_cpu_ns"] - 5e7


@pytest.mark.promise("CPU time of process and node is reported for both ends, and per byte of both directions.")
@pytest.mark.parametrize("direction", ["client_to_server", "both"])
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_a_byte_costs_its_share(server: Server, kernel: str, direction: str) -> None:
    metrics = server.run(kernel, duration_s=0.3, warmup_s=0.1, direction=direction).line["metrics"]
    size_bytes = 1452  # udp_stream's default
    one_way = {
        "client": metrics.get("sent_bytes", metrics["sent_count"] * size_bytes),
        "server": metrics.get("received_bytes", metrics.get("received_count", 0) * size_bytes),
    }
    back = {
        "client": metrics.get("return_received_bytes", metrics.get("return_received_count", 0) * size_bytes),
        "server": metrics.get("return_sent_bytes", metrics.get("return_sent_count", 0) * size_bytes),
    }
    for end in ENDS:
        moved_bytes = one_way[end] + back[end]
        for what in ("cpu", "node_cpu"):
            cost_ns = metrics[f"{end}_{what}_per_byte_ns"]
            assert cost_ns * moved_bytes == pytest.approx(metrics[f"{end}_{what}_ns"], rel=0.02), (end, what)


def test_an_exchange_has_no_cost_per_byte(server: Server) -> None:
    metrics = server.run("tcp_pingpong", **INSTANT).line["metrics"]
    assert metrics["client_cpu_ns"] > 0 < metrics["server_cpu_ns"]
    assert not [name for name in metrics if name.endswith("per_byte_ns")]


@pytest.mark.promise("The result names the clock source of both ends.")
@pytest.mark.parametrize("kernel", ["udp_pingpong", "tcp_stream"])
def test_the_clock_source_is_told_beside_its_cost(server: Server, kernel: str) -> None:
    line = server.run(kernel, **INSTANT).line
    assert {line["granted"][f"{end}_clock_source"] for end in ENDS} == {CLOCK.read_text().strip()}

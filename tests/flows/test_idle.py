"""`idle: hold`: the node's idle states are held as long as the kernel runs, and what was granted is told."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import ENDLESS_S, LIMIT_S, Server, wait_for

LATENCY = Path("/dev/cpu_dma_latency")


def _latency_us() -> int:
    with LATENCY.open("rb", buffering=0) as file:
        (value,) = struct.unpack("<i", file.read(4))
    return int(value)


@pytest.mark.promise("Where idle states are to be held and cannot be, the result says so; where they are, it says that.")
def test_what_was_granted_is_told(server: Server) -> None:
    free = server.run("udp_pingpong", operation_count_max=5, duration_s=60, warmup_s=0).line
    held = server.run("udp_pingpong", operation_count_max=5, duration_s=60, warmup_s=0, idle="hold").line
    assert not [name for name in free["granted"] if name.endswith("_idle")]
    told = [one["message"] for one in held["warnings"] if one["name"] == "option_not_granted"]
    granted = {held["granted"][f"{end}_idle"] for end in ("client", "server")}
    assert (granted, len(told)) == (({"hold"}, 0) if LATENCY.exists() else ({"as_is"}, 2))


def test_idle_states_are_held_while_it_runs(server: Server) -> None:
    """Where this system has the file: what anybody may have asked for before is over 0."""
    if not LATENCY.exists():
        return
    before_us = _latency_us()
    command = server.command("tcp_pingpong", idle="hold", duration_s=ENDLESS_S)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            wait_for(lambda: _latency_us() == 0)
        finally:
            client.terminate()
            client.wait(timeout=LIMIT_S)
    wait_for(lambda: _latency_us() == before_us)

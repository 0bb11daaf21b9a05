"""Kernels between two ranks, under both libraries: every call, layout and buffer policy, and what came is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mpi.mpi_programs import Launched, mpich_takes_long, preloaded
from tests.mpi.mpi_programs import launched as launched  # noqa: PLC0414 - a fixture

KERNELS = ["mpi_pingpong", "mpi_pingping", "mpi_stream"]
SPOIL, PLACES = (Path(__file__).with_name(f"{name}.c") for name in ("spoil", "places"))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("call", ["blocking", "synchronous", "nonblocking", "persistent"])
@mpich_takes_long
def test_every_call_brings_what_was_sent(launched: Launched, kernel: str, call: str) -> None:
    if (kernel, call) == ("mpi_stream", "persistent"):
        done = launched.run(kernel, call=call)
        assert done.rc != 0
        assert "call: found persistent: allowed: blocking nonblocking synchronous" in done.line["error"]["message"]
        return
    done = launched.run(kernel, call=call, message_bytes=100_000, validate="true", source="any")
    assert done.rc == 0, done.err
    assert (done.line["valid"], done.line["metrics"]["operation_count"]) == (True, 5)
    assert done.line["metrics"]["throughput_bps"] > 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "buffers",
    ["hot", pytest.param("separate", marks=pytest.mark.long), "swapped", pytest.param("cold", marks=pytest.mark.long)],
)
@mpich_takes_long
def test_every_buffer_policy_and_layout_brings_what_was_sent(launched: Launched, kernel: str, buffers: str) -> None:
    placed: dict[str, Any] = {"buffers": buffers, "buffer_offset_bytes": 8 if buffers == "cold" else 0}
    done = launched.run(kernel, layout="strided", message_bytes=4096, validate="true", **placed)
    assert (done.rc, done.line["valid"]) == (0, True), done.err


@pytest.mark.promise("`buffers: separate` sends from one place and receives into another, the same ones each time.")
@pytest.mark.promise("Buffers of messages begin at a page, so that the library's copies take no detour.")
@pytest.mark.promise("Buffers begin as far after the beginning of a page as the option says.")
@mpich_takes_long
def test_buffers_are_where_their_policy_says(launched: Launched, tmp_path: Path) -> None:
    env = preloaded(launched.mpi, PLACES, tmp_path / "places.so")
    found = {}
    for policy, offset_bytes in (("hot", 0), ("separate", 0), ("swapped", 0), ("separate", 8), ("swapped", 8)):
        placed: dict[str, Any] = {"buffers": policy, "buffer_offset_bytes": offset_bytes, "message_bytes": 1000}
        done = launched.run("mpi_pingpong", env=env, **placed)
        assert done.rc == 0, done.err
        found[policy, offset_bytes] = [line for line in done.err.splitlines() if line.startswith("places: ")]
    assert found == {
        ("hot", 0): ["places: sent 1 received 1 both 1 at pages 1 at 8 0, received at 16 0"],
        ("separate", 0): ["places: sent 1 received 1 both 0 at pages 1 at 8 0, received at 16 0"],
        ("swapped", 0): ["places: sent 2 received 2 both 2 at pages 2 at 8 0, received at 16 0"],
        ("separate", 8): ["places: sent 1 received 1 both 0 at pages 0 at 8 1, received at 16 1"],
        ("swapped", 8): ["places: sent 2 received 2 both 2 at pages 0 at 8 1, received at 16 1"],
    }


@pytest.mark.parametrize("direction", ["client_to_server", "server_to_client", "both"])
@mpich_takes_long
def test_a_stream_goes_each_way(launched: Launched, direction: str) -> None:
    done = launched.run("mpi_stream", direction=direction, message_bytes=1000, window_count=7, validate="true")
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    ways = 2 if direction == "both" else 1
    # Both are made from one sum of times: every message counts, the answers do not.
    assert metrics["throughput_bps"] == pytest.approx(metrics["message_rate_pps"] * 8000)
    total_ns = metrics["operation_mean_ns"] * metrics["operation_count"]
    assert metrics["message_rate_pps"] * total_ns / 1e9 == pytest.approx(5 * 7 * ways, rel=0.01)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_bytes_are_a_size(launched: Launched, kernel: str) -> None:
    done = launched.run(kernel, message_bytes=0)
    assert done.rc == 0, done.err
    assert "throughput_bps" not in done.line["metrics"]
    assert done.line["metrics"]["operation_count"] == 5


@pytest.mark.promise(
    "With validate, a message between two ranks that came otherwise than it was sent makes the result invalid."
)
@pytest.mark.parametrize(
    ("kernel", "options"), [("mpi_pingpong", {}), ("mpi_pingping", {}), ("mpi_stream", {"call": "blocking"})]
)
@mpich_takes_long
def test_what_came_otherwise_than_it_was_sent_makes_a_result_invalid(
    launched: Launched, tmp_path: Path, kernel: str, options: dict[str, Any]
) -> None:
    env = preloaded(launched.mpi, SPOIL, tmp_path / "spoil.so")
    spoilt = launched.run(kernel, message_bytes=1000, env=env, validate="true", **options)
    assert spoilt.line["valid"] is False
    assert "byte 999 of a message was not what rank" in spoilt.line["invalid_reason"]
    assert spoilt.line["exit_code"] == 1
    assert launched.run(kernel, message_bytes=1000, env=env, **options).line["valid"] is True  # nobody looked


def test_persistent_requests_keep_their_buffer(launched: Launched) -> None:
    done = launched.run("mpi_pingpong", call="persistent", buffers="cold")
    assert done.line["error"]["message"] == "buffers: found cold: allowed: hot separate where call is persistent"

"""memory_copy: each node of a pair moves memory by itself; what it made of it is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import Programs, Server

LOOPS = {"copy": 16, "scale": 16, "add": 24, "triad": 24}
FEW: dict[str, Any] = {"array_bytes": 1_000_003, "duration_s": 0.1, "warmup_s": 0.02}


@pytest.mark.promise(
    "memory_copy moves the memory of both ends, with as many threads as it says, and every element is checked."
)
@pytest.mark.parametrize("thread_count", [1, 2])
def test_both_ends_move_their_memory(server: Server, thread_count: int) -> None:
    done = server.run("memory_copy", thread_count=thread_count, **FEW)
    assert (done.rc, done.line["valid"]) == (0, True), done.err
    metrics = done.line["metrics"]
    for end in ("client", "server"):
        assert metrics[f"{end}_pass_count"] >= 1
        assert done.line["granted"][f"{end}_array_bytes"] == 1_000_000
        assert done.line["granted"][f"{end}_thread_count"] == thread_count
        for loop, element_bytes in LOOPS.items():
            slowest, median, fastest = (metrics[f"{end}_{loop}_{which}_bps"] for which in ("min", "p50", "max"))
            assert 0 < slowest <= median <= fastest
            # What STREAM counts of each element, in the time of a whole number of ns.
            took_ns = 8 * element_bytes * (1_000_000 / 8) / fastest * 1e9
            assert took_ns == pytest.approx(round(took_ns), abs=0.01)
    assert {warning["name"] for warning in done.line["warnings"]} <= {"fits_in_cache"}


def test_the_sanitizers_see_every_thread_through(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as running:
        done = running.run("memory_copy", thread_count=2, **FEW)
        assert (done.rc, done.line["valid"]) == (0, True), done.err
        assert running.run("memory_copy", thread_count=2, client_cpu_index=0, **FEW).line["valid"] is False


@pytest.mark.promise("More threads than CPUs that memory_copy may use are refused.")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"thread_count": 2, "client_cpu_index": 0}, "thread_count: found 2: allowed here: 0 to 1, the CPUs it may use"),
        ({"array_bytes": 8, "thread_count": 2}, "array_bytes: found 8: allowed: 16 and more (thread_count times 8)"),
        ({"array_bytes": -1}, "array_bytes: found -1: allowed: integer 0 to 8589934592 bytes"),
    ],
)
def test_what_does_not_fit_here_is_refused(server: Server, options: dict[str, Any], said: str) -> None:
    done = server.run("memory_copy", **FEW | options)
    assert (done.rc, done.line["valid"], done.line["error"]["message"]) == (2, False, said)


def test_arrays_that_take_too_long_to_write_end_at_the_time_limit(server: Server) -> None:
    """The system makes pages as they are written first, which may take it half a minute."""
    done = server.run("memory_copy", "--timeout-s", "0.15", **FEW | {"array_bytes": 1 << 30})
    assert (done.rc, done.line["valid"]) == (3, False), done.err
    assert "timed out: the arrays were not written for the first time" in done.err
    assert "hint: array_bytes" in done.err

"""The lab's wire, asked by several at once."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kernels.kernel_namespaces import wired
from tests.kernels.kernel_programs import Programs


@pytest.mark.lab
def test_who_asks_the_link_late_is_answered_and_holds_no_frame_up(programs: Programs, tmp_path: Path) -> None:
    """Its asker may have lost the CPU after it came; another one waits for its turn."""
    with wired(tmp_path, delay_s=0.01) as pair, ExitStack() as askers:
        first, second = (askers.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        for asker in (first, second):
            asker.connect(str(tmp_path / "wire.socket"))
            asker.settimeout(60)
        second.sendall(b"get\n")
        waited = pair.run(programs.net, "udp_pingpong", duration_s=1, warmup_s=0.1)
        assert waited.line["metrics"]["round_trip_min_ns"] < 40e6
        first.sendall(b"get\n")
        for asker in (first, second):
            assert json.loads(asker.makefile().readline())["delay_ns"] == 10_000_000

"""The first round trip that is timed is one like those after it, however late the server begins its phase."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.kernels.kernel_programs import Programs, Server, write_secret

LATE_MS = 400


@pytest.mark.promise("The first round trip that is timed does not hold the start of the phase at the server.")
@pytest.mark.parametrize("warmup_s", [0, 0.05])
@pytest.mark.parametrize("kernel", ["tcp_pingpong", "udp_pingpong"])
def test_the_first_round_trip_is_like_the_fiftieth(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, warmup_s: float
) -> None:
    shim, samples_file = tmp_path / "late_start.so", tmp_path / "samples"
    source = Path(__file__).with_name("late_start.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("LATE_MS", str(LATE_MS))
    with Server(programs.net, write_secret(tmp_path / "secret")) as server:
        monkeypatch.delenv("LD_PRELOAD")
        options = {"duration_s": 60, "warmup_s": warmup_s, "operation_count_max": 50, "flow_count": 2}
        line = server.run(kernel, "--samples-file", str(samples_file), **options).line
    data = samples_file.read_bytes()
    samples_ns = struct.unpack(f"<{len(data) // 8}Q", data)
    assert len(samples_ns) == 50
    assert samples_ns[0] - samples_ns[49] < LATE_MS * 1e6 / 2
    assert line["metrics"]["round_trip_max_ns"] < LATE_MS * 1e6 / 2
    sent = line["metrics"].get("sent_count", line["metrics"].get("operation_count"))
    assert sent == 50, "the exchange before is no part of the measurement"

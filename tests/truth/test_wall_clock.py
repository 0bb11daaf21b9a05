"""A wall clock that is set while a test runs, as NTP or an operator does: rates and delays stay those of the path."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import Programs, Server, write_secret

RATE_BPS = 20e6


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wall_clock") / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.fixture
def measured(programs: Programs, shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def measure(kernel: str, set_ms: int, stamps: str, **options: Any) -> dict[str, Any]:
        monkeypatch.setenv("LD_PRELOAD", str(shim))
        monkeypatch.setenv("SET_MS", str(set_ms))
        monkeypatch.setenv("SET_AFTER_MS", "600")
        monkeypatch.setenv("STAMPS", stamps)
        with Server(programs.net, write_secret(tmp_path / "secret")) as server:
            monkeypatch.delenv("LD_PRELOAD")
            line = server.run(kernel, duration_s=1.5, warmup_s=0, **options).line
        assert line["valid"], line["invalid_reason"]
        return line

    return measure


@pytest.mark.promise("A wall clock that is set while datagrams arrive changes neither rate nor delay, and is said.")
@pytest.mark.parametrize("set_ms", [-700, 700, -3_600_000, 3_600_000])
def test_a_clock_that_is_set_changes_no_rate_of_datagrams(measured: Any, set_ms: int) -> None:
    line = measured("udp_stream", set_ms, "set_too", rate_bps=RATE_BPS)
    assert line["metrics"]["throughput_bps"] == pytest.approx(
        line["metrics"]["sent_bps"], rel=0.1
    )  # its sender may wait for a CPU
    assert line["metrics"]["jitter_ns"] < 100e6
    warnings = {warning["name"]: warning["message"] for warning in line["warnings"]}
    assert f"set by {set_ms / 1000:.6g} s" in warnings["clock_set"]


@pytest.mark.parametrize("set_ms", [-700, 700])
def test_a_clock_that_is_set_changes_no_delay(measured: Any, set_ms: int) -> None:
    line = measured("udp_oneway", set_ms, "set_too", rate_pps=500)
    assert line["metrics"]["jitter_ns"] < 100e6
    assert abs(line["metrics"]["delay_trend_ns"]) < 300e6
    assert "clock_set" in {warning["name"] for warning in line["warnings"]}


@pytest.mark.parametrize("set_ms", [-900, 900, 100_000])
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_stamps_that_cannot_be_are_not_believed(measured: Any, kernel: str, set_ms: int) -> None:
    """A clock that was set between its reading and the first stamp."""
    options = {"pacing_rate_bps": int(RATE_BPS), "message_bytes": 16384} if kernel == "tcp_stream" else {"rate_bps": RATE_BPS}
    line = measured(kernel, set_ms, "as_before", **options)
    rate_bps = RATE_BPS if kernel == "tcp_stream" else line["metrics"]["sent_bps"]  # its sender may wait for a CPU
    assert line["metrics"]["throughput_bps"] == pytest.approx(rate_bps, rel=0.15)
    if kernel == "tcp_stream" or set_ms > 0:
        assert "clock_set" in {warning["name"] for warning in line["warnings"]}


def test_a_clock_that_stays_is_not_called_set(measured: Any) -> None:
    for kernel in ("tcp_stream", "udp_stream", "udp_oneway"):
        assert "clock_set" not in {warning["name"] for warning in measured(kernel, 0, "set_too")["warnings"]}

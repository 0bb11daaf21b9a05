"""`clock: software | hardware` of udp_pingpong: stamps of what leaves and comes, and what is said where there are none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import joined, wired
from tests.kernels.kernel_programs import INSTANT, Programs, Server, unreported, write_secret

ENDS = ("client", "server")
DELAY_S = 0.004


def _refusals(line: dict[str, Any]) -> dict[str, str]:
    told = [one["message"] for one in line["warnings"] if one["name"] == "option_not_granted"]
    return {message.partition(":")[0]: message for message in told}


@pytest.mark.promise("With `clock: software` each round trip also has the system's stamps, and its parts add up to the whole.")
@pytest.mark.parametrize(
    "way",
    [{}, {"flow_count": 5, "outstanding_count": 7}, {"wait_by": "epoll", "flow_count": 3}, {"wait_by": "spin"}],
    ids=str,
)
def test_every_round_trip_has_its_stamps(server: Server, way: dict[str, Any]) -> None:
    line = server.run("udp_pingpong", clock="software", duration_s=0.5, warmup_s=0.05, **way).line
    metrics = line["metrics"]
    assert (line["valid"], _refusals(line)) == (True, {})
    assert {line["granted"][f"{end}_clock"] for end in ENDS} == {"software"}
    answered = metrics["received_count"] + metrics["late_count"]
    assert answered >= metrics["stamped_round_trip_count"] >= 0.9 * answered > 0
    assert metrics["stamped_round_trip_min_ns"] < metrics["round_trip_min_ns"]
    assert 0 < metrics["stamped_server_turn_mean_ns"] < metrics["stamped_round_trip_mean_ns"] < metrics["round_trip_mean_ns"]
    assert metrics["stamped_send_p50_ns"] > 0
    assert metrics["stamped_receive_p50_ns"] > 0


@pytest.mark.lab
@pytest.mark.promise("What is left of a stamped round trip without the server's turn is the path, whatever the ends take.")
def test_the_path_is_what_the_stamps_say(programs: Programs, tmp_path: Path) -> None:
    """A link of known delay; a lost datagram leaves the stamps of the others where they belong."""
    with wired(tmp_path, delay_s=DELAY_S, rate_bps=1e8, loss_ratio=0.02) as pair:
        line = pair.run(programs.net, "udp_pingpong", clock="software", duration_s=3, outstanding_count=4).line
    metrics = line["metrics"]
    assert metrics["lost_count"] > 0
    assert {line["granted"][f"{end}_clock"] for end in ENDS} == {"software"}
    path_ns = metrics["stamped_round_trip_p50_ns"] - metrics["stamped_server_turn_p50_ns"]
    assert path_ns == pytest.approx(2 * DELAY_S * 1e9, rel=0.05)


@pytest.mark.lab
@pytest.mark.promise("Where the network card has no stamps the system's count instead, and the result says so and why.")
def test_hardware_stamps_fall_back_to_those_of_the_system(programs: Programs, tmp_path: Path) -> None:
    with joined(tmp_path) as pair:
        done = pair.run(programs.net, "udp_pingpong", clock="hardware", duration_s=0.3, six=True)
    assert done.rc == 0
    assert {done.line["granted"][f"{end}_clock"] for end in ENDS} == {"software"}
    for end in ENDS:
        said = _refusals(done.line)[end]
        assert "clock: asked for hardware, granted software: eth0: its driver stamps no packets" in said
    assert done.line["metrics"]["stamped_round_trip_count"] > 0


@pytest.mark.promise("A system that gives no stamps leaves the round trip of the process, and the result says so and why.")
@pytest.mark.parametrize(
    ("without", "why"), [("asked", "SO_TIMESTAMPING: ENOPROTOOPT"), ("left", "the driver stamps none that leave")]
)
def test_no_stamps_at_all(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str, why: str) -> None:
    shim = tmp_path / "no_stamps.so"
    source = Path(__file__).with_name("no_stamps.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("WITHOUT", without)
    with Server(programs.net, write_secret(tmp_path / "secret")) as server:
        done = server.run("udp_pingpong", clock="software", duration_s=0.2, warmup_s=0.05)
    monkeypatch.delenv("LD_PRELOAD")
    assert done.rc == 0
    assert {done.line["granted"][f"{end}_clock"] for end in ENDS} == {"process"}
    for end in ENDS:
        said = _refusals(done.line)[end]
        assert "clock: asked for software, granted process: " in said
        assert said.endswith(why)
    assert not [name for name in done.line["metrics"] if name.startswith("stamped_")]
    assert done.line["metrics"]["round_trip_p50_ns"] > 0


def test_sanitizers_find_nothing(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as running:
        done = running.run("udp_pingpong", clock="hardware", flow_count=3, outstanding_count=5, **INSTANT)
        unreported(done.err)
        assert done.line["valid"]

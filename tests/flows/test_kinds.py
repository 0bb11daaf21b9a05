"""tcp_connect and udp_oneway: what they count, against lines of known delay and loss and a sender that is made up."""

from __future__ import annotations

import math
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.control_peer import ControlPeer
from tests.kernels.kernel_namespaces import inside, joined, wired
from tests.kernels.kernel_programs import LIMIT_S, Programs, Server

REQUEST = """request
kernel udp_oneway
timeout_s 60
option.message_bytes 64
option.settle_s 0.05
"""
MEASURE = 2  # enum phase of kernels/c/engine/run.h


@pytest.mark.promise("Runs of lost datagrams are counted and measured exactly.")
def test_runs_of_loss_reordering_and_repeats_are_told_apart(server: Server) -> None:
    """Numbers 3, 4, 5 and 8 of ten never leave; 2 comes after 6, and 7 twice."""
    with ControlPeer(server.port, server.secret.read_bytes().strip()) as peer:
        peer.send(REQUEST.encode())
        ready = dict(line.split(" ", 1) for line in peer.receive()[1:])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            channel.settimeout(LIMIT_S)
            channel.connect(("127.0.0.1", int(ready["port"])))
            channel.send(b"\xff\x00\x00" + peer.token())
            assert peer.receive()[0] == "opened"
            peer.send(b"start\nphase measure\n")
            assert peer.receive()[0] == "started"
            peer.send(b"go\n")
            for number in (0, 1, 6, 2, 7, 7, 9):
                channel.send(struct.pack(">QQ", MEASURE << 56 | number, 1) + bytes(48))
            peer.send(b"stop\nsent_count 10\nsent_bytes 640\n")
            assert peer.receive()[0] == "stopped"
            report = dict(line.split(" ", 1) for line in peer.receive() if line.startswith("metric."))
            peer.send(b"bye\n")
    counts = {name.removeprefix("metric."): float(value) for name, value in report.items() if name.endswith("_count")}
    counts = {name: counts[name] for name in counts if not name.startswith(("server", "socket"))}
    assert counts == {
        "received_count": 6,
        "lost_count": 4,
        "loss_run_count": 2,
        "loss_run_max_count": 3,
        "reordered_count": 1,
        "duplicate_count": 1,
    }


@pytest.mark.promise("How much longer a datagram took is counted from the fastest one.")
@pytest.mark.lab
def test_one_way_loss_and_delays_of_a_line(programs: Programs, tmp_path: Path) -> None:
    with wired(tmp_path, delay_s=0.005, rate_bps=3e8, loss_ratio=0.05) as pair:
        options: dict[str, Any] = {"rate_pps": 5000, "operation_count_max": 2000, "duration_s": 60, "warmup_s": 0}
        line = pair.run(programs.net, "udp_oneway", direction="server_to_client", **options).line
    metrics = line["metrics"]
    assert line["valid"], line["invalid_reason"]
    assert metrics["sent_count"] == 2000 == metrics["received_count"] + metrics["lost_count"]
    assert abs(metrics["lost_count"] - 100) < 5 * math.sqrt(100)
    assert 0 < metrics["loss_run_count"] <= metrics["lost_count"]
    assert metrics["jitter_p50_ns"] <= metrics["jitter_p99_ns"] <= metrics["jitter_max_ns"]
    assert metrics["jitter_max_ns"] <= metrics["delay_change_max_ns"]
    assert 0 <= metrics["delay_change_p50_ns"] <= metrics["delay_change_p99_ns"] <= metrics["delay_change_max_ns"]


@pytest.mark.promise("Connections are ended by a reset: none of them keeps its ports in TIME_WAIT.")
@pytest.mark.lab
def test_a_connection_takes_a_round_trip_and_leaves_no_port_behind(programs: Programs, tmp_path: Path) -> None:
    with wired(tmp_path, delay_s=0.005) as pair:
        slow = pair.run(programs.net, "tcp_connect", operation_count_max=20, duration_s=60, warmup_s=0).line["metrics"]
    assert 10e6 <= slow["round_trip_min_ns"] < 15e6
    assert slow["connection_rate_pps"] < 50.5  # there and back for the connection, and again for the answer
    with joined(tmp_path) as pair:
        fast = pair.run(programs.net, "tcp_connect", operation_count_max=500, duration_s=60, warmup_s=0.05).line["metrics"]
        states = [line.split()[3] for end in ("client", "server") for line in inside(end, "cat", "/proc/net/tcp").splitlines()]
    assert fast["connection_count"] + fast["failed_count"] == 500
    assert states.count("06") <= 2, "TIME_WAIT, but for the control channel"


def test_every_connection_is_answered_or_has_failed(server: Server) -> None:
    line = server.run(
        "tcp_connect", connect_timeout_s=0.001, operation_count_max=3, duration_s=60, warmup_s=0, mss_bytes=500
    ).line
    metrics = line["metrics"]
    assert metrics["connection_count"] + metrics["failed_count"] == 3
    assert line["valid"] is (metrics["connection_count"] > 0)
    assert line["granted"]["server_mss_bytes"] > 0

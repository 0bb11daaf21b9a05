"""udp_dispersion: the capacity of known lines, which trains it rests on, and what it must not call a capacity."""

from __future__ import annotations

import math
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.control_peer import ControlPeer
from tests.kernels.kernel_namespaces import ADDRESSES, inside, joined, wired
from tests.kernels.kernel_programs import LIMIT_S, Programs, Server

MEASURE = 2  # enum phase of kernels/c/engine/run.h
MESSAGE_BYTES, GAP_S = 972, 0.004
REQUEST = f"""request
kernel udp_dispersion
timeout_s 60
option.message_bytes {MESSAGE_BYTES}
option.train_datagram_count 3
option.settle_s 0.05
"""
TURNS = 4


def report_of(server: Server, trains: list[list[int]]) -> dict[str, str]:
    """What a server says of trains of three, whose datagrams are sent GAP_S apart and all bear one stamp."""
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
            for no, train in enumerate(trains):
                for index in train:
                    channel.send(struct.pack(">QQ", MEASURE << 56 | 3 * no + index, 1).ljust(MESSAGE_BYTES, b"\0"))
                    time.sleep(GAP_S)
            peer.send(f"stop\nsent_count {3 * len(trains)}\nsent_bytes 1\n".encode())
            assert peer.receive()[0] == "stopped"
            report = dict(line.split(" ", 1) for line in peer.receive() if " " in line)
            peer.send(b"bye\n")
    return report


@pytest.mark.promise("A capacity rests on trains that arrived whole and in order, ten at least.")
def test_trains_that_are_not_whole_and_in_order_are_left_out(server: Server) -> None:
    """One lost its second datagram, one its first, one came in another order; ten did not."""
    report = report_of(server, [[0, 2], [1, 2], [0, 2, 1], *[[0, 1, 2]] * 10])
    assert float(report["metric.train_used_count"]) == 10
    assert float(report["metric.train_incomplete_count"]) == 3
    # Nobody sends sooner than the sleep says; two datagrams with 28 bytes of heads each take two sleeps.
    assert 0 < float(report["metric.capacity_bps"]) <= (MESSAGE_BYTES + 28) * 8 / GAP_S * 1.01


def test_nine_trains_are_too_few(server: Server) -> None:
    report = report_of(server, [[0, 1, 2]] * 9)
    assert any("9 of 9 trains arrived whole and in order: at least 10 are needed" in value for value in report.values()), report


@pytest.mark.promise("Where the sender is not faster than the path, a dispersion is no capacity.")
def test_a_path_faster_than_its_sender_has_no_capacity(server: Server) -> None:
    done = server.run("udp_dispersion", operation_count_max=20, duration_s=60, warmup_s=0, train_interval_s=0.001)
    assert (done.rc, done.line["valid"]) == (1, False)
    assert "trains" in done.line["invalid_reason"]
    assert done.line["metrics"]["train_sent_count"] == 20


@pytest.mark.lab
def test_a_datagram_above_the_mtu_is_refused(programs: Programs, tmp_path: Path) -> None:
    """In fragments it would have more heads than are counted."""
    with joined(tmp_path) as pair:
        done = pair.run(programs.net, "udp_dispersion", message_bytes=1473, duration_s=1, warmup_s=0)
    assert done.rc == 2
    assert "message_bytes: found 1473: allowed on this client: 1472 at most" in done.line["error"]["message"]


@pytest.mark.lab
@pytest.mark.promise("What a kernel sends by default fits an MTU of 1500 over IPv6 too.")
@pytest.mark.parametrize("kernel", ["udp_stream", "udp_dispersion", "udp_rate_search"])
def test_the_default_datagram_fits_ipv6(programs: Programs, tmp_path: Path, kernel: str) -> None:
    with joined(tmp_path) as pair:
        line = pair.run(programs.net, kernel, duration_s=0.3, warmup_s=0, six=True).line
    assert line["error"] is None
    assert "fragments" not in {one["name"] for one in line["warnings"]}


def test_sanitizers_find_nothing(sanitized: Programs, secret: Path) -> None:
    given: dict[str, Any] = {"operation_count_max": 20, "duration_s": 60, "warmup_s": 0.005, "train_interval_s": 0.001}
    with Server(sanitized.net, secret, "--sessions", "1") as running:
        done = running.run("udp_dispersion", **given)
        assert done.rc in {0, 1}, done.err  # loopback is no faster than its sender: measured, but invalid
        assert done.err == "" or (done.err.startswith("warning: measured, but invalid") and done.err.count("\n") == 1)
        assert running.process.wait(timeout=LIMIT_S) == 0
        assert running.process.stderr is not None
        assert running.process.stderr.read() == ""


@pytest.mark.promise("The capacity of a line is measured within 3 %, in bits of IP, from trains of datagrams.")
@pytest.mark.lab
@pytest.mark.parametrize(("rate_bps", "length", "direction"), [(11e6, 8, "server_to_client"), (67e6, 32, "client_to_server")])
def test_the_capacity_of_a_line(programs: Programs, tmp_path: Path, rate_bps: float, length: int, direction: str) -> None:
    """Within 3 %, in bits of IP. A busy machine spaces some trains itself, so the best of some turns counts."""
    truth_bps = rate_bps * 1500 / 1514
    given: dict[str, Any] = {"operation_count_max": 30, "duration_s": 60, "warmup_s": 0, "direction": direction}
    found = math.inf
    with wired(tmp_path, delay_s=0.003, rate_bps=rate_bps) as pair:
        for _ in range(TURNS):
            line = pair.run(programs.net, "udp_dispersion", train_datagram_count=length, **given).line
            if line["valid"] and abs(line["metrics"]["capacity_bps"] / truth_bps - 1) < abs(found / truth_bps - 1):
                found = line["metrics"]["capacity_bps"]
            if found == pytest.approx(truth_bps, rel=0.03):
                break
    assert found == pytest.approx(truth_bps, rel=0.03)


@pytest.mark.lab
def test_a_bucket_of_tokens_is_no_capacity(programs: Programs, tmp_path: Path) -> None:
    """The bucket lets the first 32 kB pass: a train of which that is a good part would say too much."""
    with joined(tmp_path, rate_bps=1e8) as pair:
        given: dict[str, Any] = {"operation_count_max": 20, "duration_s": 60, "warmup_s": 0}
        line = pair.run(programs.net, "udp_dispersion", train_datagram_count=96, **given).line
    assert line["valid"] is False
    assert "trains" in line["invalid_reason"] or "gaps" in line["invalid_reason"]


@pytest.mark.promise("A token bucket that lets only the head of a train pass is no capacity, and pairs have a warning.")
@pytest.mark.lab
def test_a_small_bucket_is_seen_by_the_head_of_the_train(programs: Programs, tmp_path: Path) -> None:
    """It holds more than one packet and less than two: the first gap alone is too short, by what the metric says."""
    rate_bps, bucket_bytes = 6e6, 2500
    given: dict[str, Any] = {"operation_count_max": 20, "duration_s": 60, "warmup_s": 0}
    with joined(tmp_path) as pair:
        for end in ADDRESSES:
            bucket = ["rate", f"{rate_bps:.0f}bit", "burst", str(bucket_bytes), "latency", "500ms"]
            inside(end, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *bucket)
        train = pair.run(programs.net, "udp_dispersion", train_datagram_count=8, **given).line
        two = pair.run(programs.net, "udp_dispersion", train_datagram_count=2, **given).line
    assert train["valid"] is False
    assert "bucket of tokens lets their head pass" in train["invalid_reason"]
    too_much = train["metrics"]["capacity_bps"] / (rate_bps * 1500 / 1514) - 1
    assert train["metrics"]["head_gain_ratio"] == pytest.approx(too_much, abs=0.03)
    assert "bucket_unseen" in [warning["name"] for warning in two["warnings"]]
    assert "head_gain_ratio" not in two["metrics"]

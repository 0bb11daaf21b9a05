"""A companion of a stream: what messages wait while the path is busy, and what is not the path's."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.control_peer import ControlPeer
from tests.kernels.kernel_namespaces import QueueLook, inside, queued, watched_queue
from tests.kernels.kernel_programs import LIMIT_S, Programs, Server, children, wait_for

PHASES = ("idle", "loaded", "after")
COMPANIONS = ("tcp_pingpong", "udp_pingpong")
#: Of the default datagram. A full queue is one short of its limit: half of it does not fit, half of the first is sent.
FRAME_BYTES = 1452 + 28 + 14
SHORT: dict[str, Any] = {"duration_s": 0.4, "warmup_s": 0.05, "companion_idle_s": 0.15, "companion_rate_pps": 1000}


@pytest.mark.promise("The delay that a stream adds is that of the queue that it fills, within 5 %.")
@pytest.mark.lab
@pytest.mark.quiet
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("rate_bps", "queue_bytes", "options"),
    [
        (50e6, 125_000, {}),
        pytest.param(80e6, 40_000, {}, marks=pytest.mark.long),
        (20e6, 250_000, {"direction": "server_to_client"}),
    ],
)
def test_the_added_delay_is_that_of_the_queue(
    programs: Programs, tmp_path: Path, rate_bps: float, queue_bytes: int, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"rate_bps": 1.5 * rate_bps, "duration_s": 1.2, "warmup_s": 0.3, "companion_idle_s": 0.4, **options}
    towards = "client" if options else "server"
    with queued(tmp_path, rate_bps=rate_bps, queue_bytes=queue_bytes) as pair, watched_queue(towards) as looks:
        line = pair.run(programs.net, "udp_stream", companion="udp_pingpong", **given).line
    # It drains at its rate, or slower where a hypervisor took the CPU away: what left it says so.
    queue_ns = (queue_bytes - FRAME_BYTES) * 8e9 / rate_bps
    drained_ns = (queue_bytes - FRAME_BYTES) * 8e9 / _steady(looks, queue_bytes)[1]
    metrics = line["metrics"]
    assert metrics["lost_count"] > 0, "the queue was full"
    assert 0.95 * queue_ns < metrics["queueing_delay_p50_ns"] < 1.05 * max(queue_ns, drained_ns)
    assert metrics["loaded_round_trip_p50_ns"] > 0.95 * queue_ns > 5 * metrics["after_round_trip_p50_ns"]
    mean_ns = 60e9 / metrics["responsiveness_rpm"]  # the time in which the queue fills is in it, and late wake-ups
    assert 0.5 * metrics["loaded_round_trip_p50_ns"] < mean_ns < metrics["loaded_round_trip_max_ns"]
    known = [one for one in line["series"]["loaded_round_trip_p50_ns"] if one is not None]
    assert len(known) > 8
    assert sorted(known)[len(known) // 2] == pytest.approx(metrics["loaded_round_trip_p50_ns"], rel=0.1)


@pytest.mark.promise("The delay that a stream adds is that of the queue that it fills, within 5 %.")
@pytest.mark.lab
@pytest.mark.quiet
@pytest.mark.real_time
def test_a_companion_takes_no_place_in_a_queue_of_packets(programs: Programs, tmp_path: Path) -> None:
    """As many of its small requests as of the stream's datagrams would make the queue shorter that they are to measure."""
    rate_bps, queue_packets = 30e6, 64
    options: dict[str, Any] = {"rate_bps": 1.5 * rate_bps, "duration_s": 2, "warmup_s": 0.3, "companion_idle_s": 0.4}
    with queued(tmp_path, rate_bps=rate_bps, queue_packets=queue_packets) as pair:
        metrics = pair.run(programs.net, "udp_stream", companion="udp_pingpong", **options).line["metrics"]
    queue_ns = (queue_packets - 1) * FRAME_BYTES * 8e9 / rate_bps
    drained_bps = metrics["throughput_bps"] * FRAME_BYTES / 1452  # less where a hypervisor took the CPU away
    assert metrics["lost_count"] > 0, "the queue was full"
    assert 0.95 * queue_ns < metrics["queueing_delay_p50_ns"] < 1.05 * queue_ns * max(1, rate_bps / drained_bps)


@pytest.mark.promise("The delay that a stream adds is that of the queue that it fills, within 5 %.")
@pytest.mark.lab
@pytest.mark.quiet
@pytest.mark.real_time
def test_several_streams_of_tcp_fill_a_queue_as_it_is_seen(programs: Programs, tmp_path: Path) -> None:
    """Their windows rise and fall: the mean of the companion is the mean of what stands in the queue."""
    rate_bps, queue_bytes = 40e6, 200_000
    options: dict[str, Any] = {"flow_count": 4, "duration_s": 3, "warmup_s": 0.5, "companion_idle_s": 0.3}
    with queued(tmp_path, rate_bps=rate_bps, queue_bytes=queue_bytes) as pair, watched_queue("server") as looks:
        metrics = pair.run(programs.net, "tcp_stream", companion="udp_pingpong", **options).line["metrics"]
    waiting_bytes, drained_bps = _steady(looks, queue_bytes, warmup_s=0.5)
    assert metrics["queueing_delay_mean_ns"] == pytest.approx(waiting_bytes * 8e9 / drained_bps, rel=0.1), len(looks)


def _steady(looks: list[QueueLook], queue_bytes: int, *, warmup_s: float = 0.3) -> tuple[float, float]:
    """While a stream filled the queue: the mean of what stood in it (bytes), and the rate at which it drained (bit/s)."""
    busy = [one for one in looks if one.waiting_bytes > 0.2 * queue_bytes]
    phase = [one for one in looks if busy[0].at_s + warmup_s < one.at_s <= busy[-1].at_s]
    lasted_s = [later.at_s - one.at_s for one, later in pairwise(phase)]  # a look that comes late counts for its time
    waiting_bytes = sum(one.waiting_bytes * long_s for one, long_s in zip(phase, lasted_s, strict=False)) / sum(lasted_s)
    return waiting_bytes, (phase[-1].sent_bytes - phase[0].sent_bytes) * 8 / sum(lasted_s)


@pytest.mark.promise("A companion has its percentiles before, beside and after a stream, each way and both.")
@pytest.mark.parametrize("companion", COMPANIONS)
@pytest.mark.parametrize(
    "direction", [*(pytest.param(one, marks=pytest.mark.long) for one in ("client_to_server", "server_to_client")), "both"]
)
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_a_companion_runs_before_beside_and_after(server: Server, kernel: str, direction: str, companion: str) -> None:
    rate = {"rate_bps": 1e7} if kernel == "udp_stream" else {"pacing_rate_bps": 10**7, "message_bytes": 4096}
    line = server.run(kernel, companion=companion, direction=direction, **rate, **SHORT).line
    metrics = line["metrics"]
    assert line["valid"], line["invalid_reason"]
    for phase in PHASES:
        times = [metrics[f"{phase}_round_trip_{which}_ns"] for which in ("p50", "p90", "max")]
        assert 1e3 < times[0] <= times[1] <= times[2] < 10e9
    assert metrics["companion_lost_count"] == 0
    assert metrics["responsiveness_rpm"] > 6
    assert metrics["companion_sent_count"] > 0
    assert len(line["series"]["loaded_round_trip_p50_ns"]) <= 4


def test_a_stream_without_a_companion_says_nothing_of_it(server: Server) -> None:
    line = server.run("tcp_stream", duration_s=0.2, warmup_s=0).line
    assert line["options"]["companion"] == "none"
    assert not {name for name in line["metrics"] if "round_trip_p" in name or "companion" in name or name.endswith("_rpm")}
    assert "loaded_round_trip_p50_ns" not in line["series"]


def test_without_idle_phases_there_is_no_added_delay(server: Server) -> None:
    options = {**SHORT, "companion_idle_s": 0}
    metrics = server.run("udp_stream", companion="udp_pingpong", rate_bps=1e7, **options).line["metrics"]
    assert metrics["loaded_round_trip_p50_ns"] > 0
    assert not {"queueing_delay_p50_ns", "idle_round_trip_p50_ns", "after_round_trip_p50_ns"} & set(metrics)


def test_a_stream_too_short_for_its_companion_says_so(server: Server) -> None:
    options = {
        **SHORT,
        "warmup_s": 0,
        "companion_rate_pps": 1,
        "operation_count_max": 2,
        "message_bytes": 1000,
        "duration_s": 60,
    }
    line = server.run("tcp_stream", companion="udp_pingpong", **options).line
    assert line["invalid_reason"] == "the stream ended before the companion sent a request beside it"


REQUEST = """request
kernel tcp_stream
timeout_s 60
option.companion udp_pingpong
option.warmup_s 0
"""


@pytest.mark.promise("What a server takes to answer a companion is no delay of the path.")
def test_a_server_that_answers_late_says_how_late(server: Server) -> None:
    """It is stopped between the kernel's stamp of a request and its answer."""
    with ControlPeer(server.port, server.secret.read_bytes().strip()) as peer:
        peer.send(REQUEST.encode())
        ready = dict(line.split(" ", 1) for line in peer.receive()[1:])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as companion:
            companion.settimeout(LIMIT_S)
            companion.connect(("127.0.0.1", int(ready["told.companion_port"])))
            token = b"\xff\0\0" + peer.token()
            companion.settimeout(0.05)
            deadline = time.monotonic() + LIMIT_S
            answer = b""
            while answer != token:
                assert time.monotonic() < deadline
                companion.send(token)
                try:
                    answer = companion.recv(2048)
                except TimeoutError:
                    continue
            companion.settimeout(LIMIT_S)
            (session,) = children(server.process.pid)
            os.kill(session, signal.SIGSTOP)
            wait_for(lambda: "T (stopped)" in Path(f"/proc/{session}/status").read_text())
            probe = struct.pack(">QQQQ", 1 << 56 | 7, 11, 12, 0) + bytes(32)
            companion.send(probe)
            time.sleep(0.3)
            os.kill(session, signal.SIGCONT)
            while len(answer) != len(probe):
                answer = companion.recv(2048)
    head, due_ns, sent_ns, held_ns = struct.unpack(">QQQQ", answer[:32])
    assert (head, due_ns, sent_ns) == (1 << 56 | 7, 11, 12)
    assert 0.25e9 < held_ns < 60e9


@pytest.mark.promise("A companion that no reply reached makes the result invalid.")
@pytest.mark.lab
def test_a_companion_without_replies_is_invalid(programs: Programs, tmp_path: Path) -> None:
    """The server's interface takes no frame as long as its requests, and says nothing."""
    with queued(tmp_path, rate_bps=50e6, queue_bytes=100_000) as pair:
        inside("server", "ip", "link", "set", "eth0", "mtu", "600")
        options: dict[str, Any] = {**SHORT, "companion_message_bytes": 1000, "message_bytes": 400, "rate_bps": 1e6}
        done = pair.run(programs.net, "udp_stream", companion="udp_pingpong", **options)
    assert done.rc == 1
    assert "no reply to any of the companion's" in done.line["invalid_reason"]
    assert done.line["metrics"]["companion_lost_count"] == done.line["metrics"]["companion_sent_count"] > 0

"""Datagrams that a queue held back and handed over at once are no rate of the line: udp_stream says so."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.kernels.control_peer import ControlPeer
from tests.kernels.kernel_programs import Server, children, state, wait_for

BYTES, COUNT, MEASURE = 1000, 100, 2


def _stream(server: Server, secret: Path, gap_ns: int, *, asleep_s: float = 0.0, held_ns: int = 0) -> dict[str, str]:
    """The server's report of COUNT datagrams that come in one burst, and were sent with this gap by their stamps.

    asleep_s: they come over this time instead, and the server is stopped meanwhile: it finds them all in its socket.
    held_ns: so long the sender had no CPU between the first stamp and its call, as it says when it stops.
    """
    key = secret.read_bytes().strip()
    with ControlPeer(server.port, key) as peer, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        options = {"message_bytes": BYTES, "duration_s": 1, "warmup_s": 0, "settle_s": 0.2}
        lines = ["request", "kernel udp_stream", "timeout_s 30"]
        peer.send("".join(f"{line}\n" for line in [*lines, *(f"option.{k} {v}" for k, v in options.items())]).encode())
        ready = dict(line.split(" ", 1) for line in peer.receive()[1:])
        place = ("127.0.0.1", int(ready["port"]))
        datagrams.sendto(b"\xff\x00\x00" + peer.token(), place)  # of the first flow
        assert peer.receive()[0] == "opened"
        peer.send(b"start\nphase measure\n")
        assert peer.receive()[0] == "started"
        peer.send(b"go\n")
        (session,) = children(server.process.pid)
        if asleep_s:
            os.kill(session, signal.SIGSTOP)
            wait_for(lambda: state(session) == "T")
        begun_ns = time.monotonic_ns()
        for number in range(COUNT):
            time.sleep(asleep_s / COUNT)
            stamp_ns = begun_ns + (held_ns if number else 0) + number * gap_ns
            head = struct.pack(">QQ", MEASURE << 56 | number, stamp_ns)
            datagrams.sendto(head + bytes(BYTES - len(head)), place)
        os.kill(session, signal.SIGCONT)
        left = f"first_left_ns {begun_ns + held_ns}\n" if held_ns else ""
        peer.send(f"stop\nsent_count {COUNT}\nsent_bytes {COUNT * BYTES}\n{left}".encode())
        assert peer.receive()[0] == "stopped"
        report = dict(line.split(" ", 1) for line in peer.receive()[1:])
        peer.send(b"bye\nmore 0\n")
    return report


@pytest.mark.promise("Datagrams that a queue hands over at once are told as that, and are no rate above what was sent.")
def test_a_burst_is_no_rate(server: Server, secret: Path) -> None:
    gap_ns = 1_000_000_000
    report = _stream(server, secret, gap_ns)
    assert "a queue held it and handed it over at once" in report["warning.arrived_at_once"]
    assert float(report["metric.received_count"]) == COUNT
    assert float(report["metric.throughput_bps"]) == pytest.approx(8 * BYTES * 1e9 / gap_ns)


def test_what_was_sent_at_once_is_a_rate(server: Server, secret: Path) -> None:
    report = _stream(server, secret, 0)
    assert "warning.arrived_at_once" not in report
    assert float(report["metric.throughput_bps"]) > 8e6


@pytest.mark.promise("Bytes that queued in a socket while its receiver waited for a CPU do not raise the throughput.")
def test_a_receiver_that_slept_is_no_queue(server: Server, secret: Path) -> None:
    """The kernel stamped each datagram when it came: so the rate is that of their arrivals, and nothing held them."""
    asleep_s = 0.5
    report = _stream(server, secret, int(asleep_s / COUNT * 1e9), asleep_s=asleep_s)
    assert float(report["metric.received_count"]) == COUNT
    assert "warning.arrived_at_once" not in report
    assert float(report["metric.throughput_bps"]) < 1.05 * 8 * BYTES * COUNT / asleep_s


@pytest.mark.promise("A sender that lost its CPU before its first datagram left is no queue: the rate is that of the arrivals.")
def test_a_sender_that_waited_is_no_queue(server: Server, secret: Path) -> None:
    held_ns = 1_000_000_000
    report = _stream(server, secret, 0, held_ns=held_ns)
    assert "warning.arrived_at_once" not in report
    assert float(report["metric.throughput_bps"]) > 2 * 8 * BYTES * COUNT * 1e9 / held_ns


@pytest.mark.parametrize("thread_count", [1, 2])
def test_a_sender_says_by_when_its_first_one_had_left(server: Server, secret: Path, thread_count: int) -> None:
    """By the clock of its stamps: after the first of them, and before the second one of the slower thread."""
    stamps_ns: list[int] = []
    options = {"message_bytes": BYTES, "rate_bps": 8e5, "duration_s": 0.2, "warmup_s": 0, "direction": "server_to_client"}
    with (
        ControlPeer(server.port, secret.read_bytes().strip()) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine,
    ):
        options |= {"flow_count": thread_count, "thread_count": thread_count}
        lines = ["request", "kernel udp_stream", "timeout_s 30", *(f"option.{key} {value}" for key, value in options.items())]
        peer.send("".join(f"{line}\n" for line in lines).encode())
        ready = dict(line.split(" ", 1) for line in peer.receive()[1:])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
            sockets = [mine, second][:thread_count]
            for number, one in enumerate(sockets):
                one.sendto(b"\xff" + struct.pack(">H", number) + peer.token(), ("127.0.0.1", int(ready["port"])))
            assert peer.receive()[0] == "opened"
            peer.send(b"start\nphase measure\n")
            assert peer.receive()[0] == "started"
            peer.send(b"go\n")
            stop = peer.receive()
            for one in sockets:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        stamps_ns.append(struct.unpack(">QQ", one.recv(BYTES)[:16])[1])
    assert stop[0] == "stop"
    left_ns = int(dict(line.split(" ", 1) for line in stop[1:])["first_left_ns"])
    assert min(stamps_ns) < left_ns <= sorted(stamps_ns)[thread_count]

"""The control channel and the server: secrets, deadlines, peers that die, peers that are none."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import (
    ENDLESS_S,
    INSTANT,
    LIMIT_S,
    Programs,
    Server,
    children,
    ended,
    runs,
    wait_for,
    write_secret,
)


def frame(*lines: str) -> bytes:
    payload = "".join(line + "\n" for line in lines).encode()
    return struct.pack(">I", len(payload)) + payload


def read_frame(peer: socket.socket) -> list[str]:
    head = peer.recv(4, socket.MSG_WAITALL)
    return peer.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL).decode().splitlines()


def measures(pid: int) -> bool:
    """A client that has been at work for a while: without a warm-up it comes to neither before its measurement."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    ticks = sum(int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    return ticks > 30 or int(status["voluntary_ctxt_switches"]) > 500


def start(server: Server, kernel: str, *words: str, **options: object) -> subprocess.Popen[str]:
    """A client whose session is there when this returns."""
    command = server.command(kernel, *words, **{"warmup_s": 0, **options})
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: children(server.process.pid) or client.poll() is not None)
    return client


def measuring(server: Server, kernel: str, **options: object) -> subprocess.Popen[str]:
    """A client that is in its measurement when this returns, and stays in it."""
    client = start(server, kernel, duration_s=ENDLESS_S, **options)
    wait_for(lambda: measures(client.pid))
    return client


@pytest.mark.promise("A server that does not know the secret is refused.")
def test_client_refuses_a_server_without_the_secret(server: Server, tmp_path: Path) -> None:
    other = write_secret(tmp_path / "other")
    command = server.command("tcp_stream", **INSTANT)
    command[command.index("--secret-file") + 1] = str(other)
    done = ended(command)
    assert done.rc == 3
    assert done.line["error"] == {"state": "hello", "message": "the server does not know our secret"}
    assert "hint: both ends must read the same secret" in done.err
    assert server.run("tcp_stream", **INSTANT).rc == 0, "the server goes on"


@pytest.mark.promise("A client that does not know the secret is refused.")
def test_server_refuses_a_client_without_the_secret(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as peer:
        peer.sendall(frame("hello", "protocol 1", "nonce " + "00" * 16))
        assert read_frame(peer)[0] == "challenge"
        peer.sendall(frame("proof", "proof " + "00" * 32))
        answer = read_frame(peer)
        assert answer[0] == "refused"
        assert "does not know the secret" in answer[1]
        assert peer.recv(1) == b""


def test_both_prove_it_over_both_nonces_and_their_role(server: Server) -> None:
    """An independent client: what the handshake is, written down a second time."""
    key = server.secret.read_bytes().strip()
    nonce = os.urandom(16)

    def mac(purpose: str, theirs: bytes) -> str:
        return hmac.new(key, b"hpcq 1 " + purpose.encode() + nonce + theirs, hashlib.sha256).hexdigest()

    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as peer:
        peer.sendall(frame("hello", "protocol 1", "nonce " + nonce.hex()))
        challenge = dict(line.split(" ", 1) for line in read_frame(peer)[1:])
        theirs = bytes.fromhex(challenge["nonce"])
        assert challenge["proof"] == mac("server", theirs)
        assert challenge["proof"] != mac("client", theirs), "a proof cannot be sent back"
        peer.sendall(frame("proof", "proof " + mac("client", theirs)))
        # From here each frame needs a MAC of the session key: one with another ends the session without a word.
        peer.sendall(frame("request", "kernel tcp_stream") + b"\0" * 32)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    assert server.run("tcp_stream", **INSTANT).rc == 0


@pytest.mark.promise("Sessions of strangers do not break the server's memory: the sanitized server says nothing.")
@pytest.mark.parametrize(
    "noise", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096, frame("hello", "protocol 2", "nonce 00"), frame("hello")]
)
def test_noise_does_not_end_the_server(sanitized: Programs, secret: Path, noise: bytes) -> None:
    with Server(sanitized.net, secret) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as peer:
            peer.sendall(noise)
        assert server.serves()


def test_a_silent_connection_holds_nobody_up(server: Server) -> None:
    """Its process is stopped, so that it cannot give up: whoever waited for it would wait for ever."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S):
        wait_for(lambda: children(server.process.pid))
        os.kill(children(server.process.pid)[0], signal.SIGSTOP)
        assert server.serves()


@pytest.mark.promise("A secret file that others can read is refused.")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(programs: Programs, tmp_path: Path, mode: int) -> None:
    path = write_secret(tmp_path / "open", mode)
    client = ended([str(programs.net), "tcp_stream", "--to", "127.0.0.1", "--port", "1", "--secret-file", str(path)])
    listen = ended([str(programs.net), "server", "--interface", "lo", "--secret-file", str(path)])
    for done in (client, listen):
        assert done.rc == 2
        assert f"mode {mode:04o}: allowed 0600" in done.err
        assert f"hint: chmod 600 {path}" in done.err
    assert client.line["error"]["state"] == "secret"


@pytest.mark.promise("A secret of fewer than 16 bytes is refused.")
def test_a_secret_that_is_none_is_refused(programs: Programs, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("x" * 15 + "\n")
    short.chmod(0o600)
    for path, word in ((short, "15 bytes: allowed 16 to 1024"), (tmp_path / "missing", "ENOENT"), (tmp_path, "regular")):
        done = ended([str(programs.net), "server", "--interface", "lo", "--secret-file", str(path)])
        assert done.rc == 2
        assert word in done.err


def test_nobody_listens(programs: Programs, secret: Path) -> None:
    done = ended([str(programs.net), "tcp_stream", "--to", "127.0.0.1", "--port", "1", "--secret-file", str(secret)])
    assert done.rc == 3
    assert done.line["error"]["state"] == "connect"
    assert "ECONNREFUSED" in done.err
    assert done.line["valid"] is False
    assert done.line["options"]["message_bytes"] == 131072


def test_a_peer_that_says_nothing_is_given_up(programs: Programs, secret: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = str(silent.getsockname()[1])
        place = ["--to", "127.0.0.1", "--port", port, "--secret-file", str(secret), "--timeout-s", "2"]
        done = ended([str(programs.net), "tcp_stream", *place, "--duration_s", str(ENDLESS_S)])
    assert done.rc == 3
    assert done.line["error"]["state"] == "hello"
    assert "said nothing for 2 s" in done.line["error"]["message"]


@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream", "udp_pingpong"])
def test_server_survives_a_killed_client(server: Server, kernel: str) -> None:
    client = measuring(server, kernel)
    client.kill()
    client.communicate()
    wait_for(lambda: not children(server.process.pid))
    assert server.run(kernel, **INSTANT).rc == 0


@pytest.mark.parametrize("kernel", ["tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong"])
def test_client_ends_when_its_session_is_killed(server: Server, kernel: str) -> None:
    client = measuring(server, kernel)
    os.kill(children(server.process.pid)[0], signal.SIGKILL)
    out, _ = client.communicate(timeout=LIMIT_S)
    line = json.loads(out)
    assert (client.returncode, line["valid"], line["error"]["state"]) == (3, False, "measure")
    assert line["evidence"] == {"client": None, "server": None}
    assert server.run(kernel, **INSTANT).rc == 0


def test_client_ends_on_a_signal_long_before_its_time(server: Server) -> None:
    number = signal.SIGTERM
    client = measuring(server, "tcp_stream")
    client.send_signal(number)
    out, err = client.communicate(timeout=LIMIT_S)
    line = json.loads(out)
    assert (client.returncode, line["valid"], line["exit_code"]) == (1, False, 1)
    assert line["error"] == {"state": "measure", "message": f"interrupted by signal {number.value}"}
    assert "interrupted" in err
    assert server.run("tcp_stream", **INSTANT).rc == 0


#: Of each kernel and direction: a metric of what was measured before Ctrl-C.
KEPT = {
    ("tcp_stream", "client_to_server"): "throughput_bps",
    ("tcp_stream", "server_to_client"): "throughput_bps",
    ("tcp_stream", "both"): "return_throughput_bps",
    ("udp_stream", "server_to_client"): "received_count",
    ("tcp_pingpong", None): "round_trip_p50_ns",
    ("udp_pingpong", None): "round_trip_p50_ns",
}


@pytest.mark.promise("Ctrl-C at a client ends the measurement and keeps what was measured.")
@pytest.mark.parametrize(("kernel", "direction"), KEPT)
def test_an_interrupt_keeps_what_was_measured(server: Server, kernel: str, direction: str | None) -> None:
    client = measuring(server, kernel, **({} if direction is None else {"direction": direction}))
    time.sleep(0.5)
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=LIMIT_S)
    line = json.loads(out)
    assert (client.returncode, line["valid"], line["exit_code"], line["error"]) == (1, False, 1, None), err
    assert re.fullmatch(rf"interrupted by signal 2 after [0-9.]+ of {ENDLESS_S} s", line["invalid_reason"])
    assert line["metrics"][KEPT[kernel, direction]] > 0
    assert line["evidence"]["client"]
    assert line["evidence"]["server"]
    assert 0.4e9 < line["duration_ns"] < ENDLESS_S * 1e9 / 2
    assert server.serves()


def test_an_interrupt_ends_a_sweep_after_the_size_in_hand(server: Server) -> None:
    client = measuring(server, "tcp_pingpong", message_bytes=16, sweep_to_bytes=64)
    client.send_signal(signal.SIGINT)
    out, _ = client.communicate(timeout=LIMIT_S)
    sizes = json.loads(out)["sizes"]
    assert [line["options"]["message_bytes"] for line in sizes] == [16]
    assert sizes[0]["invalid_reason"].startswith("interrupted by signal 2")
    assert server.serves()


@pytest.mark.promise("A client that waits for a server which measures for another one is told that it is busy.")
def test_a_busy_server_is_called_busy(server: Server) -> None:
    first = measuring(server, "udp_stream", rate_bps=1e6)
    second = server.run("tcp_stream", **INSTANT)
    assert second.rc == 3
    assert second.line["error"]["state"] == "hello"
    address = f"{server.ready['address']}, port {server.port},"
    assert f"the server {address} is busy: it said nothing for 8 s" in second.line["error"]["message"]
    assert "let the other measurement end first" in second.err
    first.terminate()
    first.communicate(timeout=LIMIT_S)


def test_a_client_waits_for_its_turn_as_long_as_it_is_said(server: Server) -> None:
    """A measurement in its last six seconds keeps the next client waiting, and no longer."""
    first = start(server, "udp_stream", rate_bps=1e7, duration_s=6, warmup_s=0)
    wait_for(lambda: measures(first.pid) or first.poll() is not None)
    assert first.poll() is None, "six seconds have passed"
    assert server.run("tcp_stream", **INSTANT).rc == 0
    first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0


def _line_with_a_nap(server: Server) -> dict[str, Any] | None:
    """None when the machine stalled, and the nap was not in the measurement."""
    options = {"message_bytes": 8192, "receive_buffer_bytes": 1, "send_buffer_bytes": 0}
    client = start(server, "udp_pingpong", duration_s=1.5, reply_timeout_s=0.05, **options)
    with contextlib.suppress(FileNotFoundError):
        wait_for(lambda: client.poll() is not None or measures(client.pid))
    with contextlib.suppress(ProcessLookupError):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for session in children(server.process.pid):
                os.kill(session, number)
            time.sleep(0.3)
    line: dict[str, Any] = json.loads(client.communicate(timeout=LIMIT_S)[0])
    assert not line["valid"]
    return line if line["invalid_reason"].startswith("the server stood still") else None


def test_late_and_lost_replies_cost_their_timeout_and_nothing_else(server: Server) -> None:
    """The server sleeps for a while with room for one datagram in its socket: that one is late, the others are lost.

    A late reply and the next one meet in the client's buffer, which is as small: the late one may be lost there. And on a
    busy machine the nap may miss the measurement. Such a turn shows nothing, and there is another one.
    """
    wanted = {"late_count", "lost_count", "request_lost_count"}
    turns = (_line_with_a_nap(server) for _ in range(30))
    line = next(line for line in turns if line and all(line["metrics"][name] for name in wanted))
    metrics = line["metrics"]
    assert metrics["received_count"] + metrics["late_count"] + metrics["lost_count"] == metrics["sent_count"]
    assert metrics["duplicate_count"] == 0
    assert metrics["request_lost_count"] <= metrics["lost_count"]
    assert metrics["lost_ratio"] == pytest.approx(metrics["lost_count"] / metrics["sent_count"])
    assert line["evidence"]["server"]["counters"]["snmp.Udp.RcvbufErrors"] >= metrics["request_lost_count"]


def test_server_ends_on_term_and_takes_its_session_along(server: Server) -> None:
    client = measuring(server, "udp_stream")
    session = children(server.process.pid)[0]
    server.process.terminate()
    assert server.process.wait(timeout=LIMIT_S) == 0
    client.communicate(timeout=LIMIT_S)
    assert client.returncode == 3
    wait_for(lambda: not runs(session))


def test_sessions_follow_one_another(server: Server) -> None:
    """Two clients at once: the second waits for its turn, and neither sees the other's traffic as its own.

    All that one of them sends has room in a socket buffer, so that nothing is lost when the receiver gets no CPU.
    """
    clients = [start(server, "udp_stream", duration_s=0.3, warmup_s=0, rate_bps=1e6) for _ in range(2)]
    lines = [json.loads(client.communicate(timeout=LIMIT_S)[0]) for client in clients]
    assert all(line["valid"] for line in lines)
    assert all(line["metrics"]["lost_count"] == 0 for line in lines)
    first, second = sorted(lines, key=lambda line: str(line["started_utc"]))
    assert second["evidence"]["server"]["before_utc"] > first["evidence"]["server"]["after_utc"]


def test_server_ends_after_its_sessions(programs: Programs, secret: Path) -> None:
    with Server(programs.net, secret, "--sessions", "2") as running:
        with socket.create_connection(("127.0.0.1", running.port)):
            pass  # whoever proves nothing is no session
        assert running.serves()
        assert running.process.poll() is None
        assert running.serves()
        assert running.process.wait(timeout=LIMIT_S) == 0


def test_server_does_not_wait_for_ever(programs: Programs, secret: Path) -> None:
    command = [str(programs.net), "server", "--interface", "lo", "--secret-file", str(secret), "--idle-timeout-s", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 3
    assert "no client for 0.1 s" in done.stderr


def test_ports_stay_in_their_range(programs: Programs, secret: Path) -> None:
    allowed = range(23400, 23500)  # others may use some of them

    def taken() -> set[int]:
        text = Path("/proc/net/tcp").read_text()
        return {int(port, 16) for port in re.findall(r": [0-9A-F]{8}:([0-9A-F]{4}) \S+ 0[1A] ", text)} & set(allowed)

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(programs.net, secret, "--ports", "23400-23499")) for _ in range(2)]
        assert {one.port for one in servers} <= set(allowed)
        assert servers[0].port != servers[1].port
        before = taken()
        assert {one.port for one in servers} <= before
        client = measuring(servers[0], "tcp_stream")
        assert taken() - before, "the test channel"
        client.terminate()
        client.communicate(timeout=LIMIT_S)
    done = ended([str(programs.net), "server", "--interface", "lo", "--secret-file", str(secret), "--ports", "9-5"])
    assert done.rc == 2
    assert "ports: found 9-5" in done.err


def test_ipv6(programs: Programs, secret: Path) -> None:
    if " lo\n" not in (Path("/proc/net/if_inet6").read_text() if Path("/proc/net/if_inet6").exists() else ""):
        pytest.skip("this machine has no IPv6 on its loopback interface")
    command = [str(programs.net), "server", "--bind", "::1", "--secret-file", str(secret)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())["ready"]
            assert ready["address"] == "::1"
            for kernel in ("tcp_stream", "udp_pingpong"):
                place = ["--to", "::1", "--port", str(ready["port"]), "--secret-file", str(secret)]
                words = [word for name, value in INSTANT.items() for word in (f"--{name}", str(value))]
                done = ended([str(programs.net), kernel, *place, *words])
                assert done.rc == 0, done.err
                assert done.line["evidence"]["client"]["address"] == "::1"
        finally:
            process.terminate()

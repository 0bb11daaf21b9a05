"""Guests that are not invited: silent, slow, scanning, or clients that know the secret and talk nonsense.

Every server here is built with both sanitizers; none may die, and each must measure afterwards, or meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernels.control_peer import ControlPeer
from tests.kernels.kernel_programs import (
    INSTANT,
    LIMIT_S,
    Programs,
    Server,
    children,
    runs,
    unreported,
    wait_for,
    write_secret,
)
from tests.kernels.test_kernels_control import measuring

#: What a host gets of a server's places before it proves anything (SESSIONS_OF_ONE_HOST_MAX).
PLACES_OF_A_HOST = 8
#: More than a server has places for.
CROWD = 40
SEED = 20261121
REQUEST = """request
kernel {kernel}
timeout_s {timeout_s}
evidence_full 1
raw 1
option.message_bytes 1000
option.duration_s 0.02
option.warmup_s 0
"""
#: What a field may turn into.
VALUES = ["", " ", "-1", "0", "1e400", "nan", "9" * 400, "%s%n", "\x7f", "../../x", "true", "18446744073709551616", "0x10"]


@pytest.fixture(scope="module")
def server(sanitized: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(sanitized.net, write_secret(tmp_path_factory.mktemp("hostile") / "secret")) as running:
        yield running
        running.process.terminate()
        said = running.process.stderr.read() if running.process.stderr else ""
        assert running.process.wait(timeout=LIMIT_S) == 0
        unreported(said)


@pytest.fixture
def crowd(server: Server) -> Iterator[list[socket.socket]]:
    """Connections that send nothing, or one byte of a head."""
    with contextlib.ExitStack() as stack:
        guests = []
        for number in range(CROWD):
            guest = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S))
            if number % 2:
                guest.sendall(b"\0")
            guests.append(guest)
        yield guests


def test_silent_connections_take_no_place_from_a_client(server: Server, crowd: list[socket.socket]) -> None:
    """Their processes are stopped, so that no time-out of theirs can help."""
    wait_for(lambda: len(children(server.process.pid)) >= PLACES_OF_A_HOST)
    for child in children(server.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGSTOP)
    assert server.serves()


def test_a_crowd_while_it_measures(server: Server) -> None:
    """A port scan beside a measurement: guests come and go, and prove nothing."""
    client = measuring(server, "tcp_stream")
    for _ in range(CROWD):
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as guest:
            guest.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert server.process.poll() is None
    client.terminate()
    out, err = client.communicate(timeout=LIMIT_S)
    assert json.loads(out)["error"] == {"state": "measure", "message": f"interrupted by signal {signal.SIGTERM.value}"}, err
    assert server.serves()


@pytest.mark.promise("A flood of connections does not fill the server's log.")
def test_a_flood_from_elsewhere_evicts_nobody_and_fills_no_log(sanitized: Programs, secret: Path) -> None:
    """Connections as fast as they can be made, each with garbage; clients come through, and the log stays short."""
    with Server(sanitized.net, secret) as server:
        stop = threading.Event()

        def flood() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError), socket.socket() as guest:
                    guest.bind(("127.0.0.9", 0))
                    guest.settimeout(1)
                    guest.connect(("127.0.0.1", server.port))
                    guest.sendall(b"GET / HTTP/1.0\r\n\r\n")

        floods = [threading.Thread(target=flood) for _ in range(3)]
        for one in floods:
            one.start()
        time.sleep(1)
        served = [server.serves() for _ in range(6)]
        stop.set()
        for one in floods:
            one.join()
        server.process.terminate()
        said = server.process.stderr.read() if server.process.stderr else ""
    assert served == [True] * 6
    assert said.count("\n") <= 21, said
    assert "connections in all were refused" in said


@pytest.mark.promise("A server admits no second client during a measurement.")
def test_nobody_is_let_in_while_one_measures(server: Server) -> None:
    """A process for each stranger would take the CPU from what is measured."""
    client = measuring(server, "tcp_stream")
    time.sleep(0.2)
    before = children(server.process.pid)
    with contextlib.ExitStack() as guests:
        for _ in range(5):
            guests.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S))
        time.sleep(0.5)
        assert children(server.process.pid) == before
        client.terminate()
        client.communicate(timeout=LIMIT_S)
    assert server.serves()


@pytest.mark.promise("The secret is wiped from client and session before they measure.")
def test_the_secret_is_wiped_before_the_measurement(programs: Programs, secret: Path) -> None:
    """Neither the client's process nor the session's holds it any more; the server does, for its next client."""
    word = secret.read_bytes().strip()
    with Server(programs.net, secret) as server:
        client = measuring(server, "tcp_stream")
        session = children(server.process.pid)[0]
        assert not _holds(client.pid, word)
        assert not _holds(session, word)
        assert _holds(server.process.pid, word)
        client.terminate()
        client.communicate(timeout=LIMIT_S)


def _holds(pid: int, word: bytes) -> bool:
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            bounds, flags = line.split()[:2]
            if flags.startswith("rw") and "[vvar" not in line:
                start, end = (int(one, 16) for one in bounds.split("-"))
                memory.seek(start)
                with contextlib.suppress(OSError):
                    if word in memory.read(end - start):
                        return True
    return False


def test_strangers_on_the_test_channel_cost_the_client_nothing(server: Server) -> None:
    """Silent ones, wrong tokens, half a token and an end: the client's connection is known by its token."""
    with ControlPeer(server.port, server.secret.read_bytes().strip()) as peer, contextlib.ExitStack() as stack:
        peer.send(REQUEST.format(kernel="tcp_stream", timeout_s=60).encode())
        ready = dict(line.split(" ", 1) for line in peer.receive()[1:])
        place = ("127.0.0.1", int(ready["port"]))
        for number in range(24):
            guest = stack.enter_context(socket.create_connection(place, timeout=LIMIT_S))
            guest.sendall([b"", b"\0" * 16, peer.token()[:8], b"GET / HTTP/1.0\r\n\r\n"][number % 4])
            if number % 3 == 0:
                guest.close()
        test = stack.enter_context(socket.create_connection(place, timeout=LIMIT_S))
        test.sendall(peer.token()[:5])
        test.sendall(peer.token()[5:])
        assert peer.receive()[0] == "opened"
    assert server.run("tcp_stream", **INSTANT).rc == 0


def test_a_stopped_session_does_not_outlive_its_server(sanitized: Programs, secret: Path) -> None:
    with Server(sanitized.net, secret) as server:
        client = measuring(server, "udp_stream")
        [session] = children(server.process.pid)
        os.kill(session, signal.SIGSTOP)
        server.process.kill()
        wait_for(lambda: not runs(session))
        client.kill()
        client.communicate()


def mutated(dice: random.Random, payload: bytes) -> bytes:
    """One field changed, a line lost or doubled, or bytes turned; many keep the form and change the sense."""
    lines = payload.split(b"\n")[:-1]
    chosen = dice.randrange(len(lines))
    what = dice.randrange(5)
    if what == 0 and b" " in lines[chosen]:
        lines[chosen] = lines[chosen].split(b" ")[0] + b" " + dice.choice(VALUES).encode()
    elif what == 1:
        del lines[chosen]
    elif what == 2:
        lines += [lines[chosen]] * dice.choice([1, 2000])
    elif what == 3:
        lines[chosen] = dice.randbytes(dice.randrange(60))
    else:
        turned = bytearray(b"\n".join(lines) + b"\n")
        for _ in range(dice.randrange(1, 6)):
            turned[dice.randrange(len(turned))] = dice.randrange(256)
        return bytes(turned)
    return b"\n".join(lines) + b"\n"


def test_a_client_that_talks_nonsense(server: Server) -> None:
    """It knows the secret, so its frames are taken and read."""
    dice = random.Random(SEED)
    key = server.secret.read_bytes().strip()
    refused = 0
    for number in range(120):
        kernel = ("tcp_stream", "udp_stream", "tcp_pingpong", "udp_pingpong")[number % 4]
        text = REQUEST.format(kernel=kernel, timeout_s=5).encode()
        with ControlPeer(server.port, key) as peer, contextlib.suppress(ConnectionError):
            peer.send(mutated(dice, text))
            answer = peer.receive()
            refused += answer[0] == "refused"
            if answer[0] == "ready":
                peer.send(mutated(dice, b"start\nphase measure\n"))
    assert refused > 20
    assert server.process.poll() is None
    assert server.serves()


@contextlib.contextmanager
def hung_up() -> Iterator[None]:
    """The other end may have closed by now; which word the kernel has for that depends on who comes first."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN}:
            raise


def test_somebody_without_the_secret_who_talks_nonsense(server: Server) -> None:
    dice = random.Random(SEED)
    hello = b"hello\nprotocol 1\nnonce " + b"0" * 32 + b"\n"
    for _ in range(120):
        payload = mutated(dice, hello)
        length = dice.choice([len(payload)] * 6 + [0, 2**31, 4096, 4097])
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as guest, hung_up():
            guest.sendall(struct.pack(">I", length) + payload)
            guest.shutdown(socket.SHUT_WR)
            answer = guest.recv(4096)
            assert b"opened" not in answer
            assert b"ready" not in answer
    assert server.process.poll() is None
    assert server.serves()


@pytest.mark.parametrize(
    "rude", [lambda peer: peer.send(b"start\nphase measure\n"), lambda peer: peer.peer.sendall(b"\xff" * 64)]
)
def test_the_order_of_messages_is_kept(server: Server, rude: Callable[[ControlPeer], None]) -> None:
    with ControlPeer(server.port, server.secret.read_bytes().strip()) as peer:
        rude(peer)
        with contextlib.suppress(ConnectionError):
            assert peer.receive()[0] in {"refused", "failed"}
    assert server.serves()


def test_a_half_open_client_is_given_up(server: Server) -> None:
    """It was served as far as `ready`, and is gone without a word: the next one need not know."""
    with ControlPeer(server.port, server.secret.read_bytes().strip()) as peer:
        peer.send(REQUEST.format(kernel="udp_stream", timeout_s=5).encode())
        assert peer.receive()[0] == "ready"
        peer.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.serves()

"""A server that fails says why; its client says the same, also where the test channel's end comes before the word."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from tests.kernels.control_peer import ControlHost
from tests.kernels.kernel_programs import LIMIT_S, Programs, write_secret

REASON, HINT = "its disk burns", "put it out"
#: The word is under way so long after the test channel ended.
LATER_S = 0.1
#: Before a client of a test sends: the server ends the connection within the half of that.
LATE_MS = 300


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.promise("A client whose test channel ended says the server's reason, which may arrive after that end.")
@pytest.mark.parametrize(
    ("moment", "type_", "direction"),
    [
        ("open", "refused", "client_to_server"),
        ("measure", "failed", "client_to_server"),
        ("measure", "failed", "server_to_client"),
    ],
)
def test_the_reason_comes_after_the_end_of_the_test_channel(
    programs: Programs, tmp_path: Path, moment: str, type_: str, direction: str
) -> None:
    secret, shim = write_secret(tmp_path / "secret"), tmp_path / "late_send.so"
    env = dict(os.environ)
    if moment == "open":
        source = Path(__file__).with_name("late_send.c")
        subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
        env |= {"LD_PRELOAD": str(shim), "LATE_MS": str(LATE_MS)}
    with ControlHost(0, secret.read_bytes().strip()) as host, socket.create_server(("127.0.0.1", 0)) as tests:
        tests.settimeout(LIMIT_S)
        place = ["--to", "127.0.0.1", "--port", str(host.port), "--secret-file", str(secret)]
        options = ["--duration_s", "20", "--warmup_s", "0", "--direction", direction]
        with subprocess.Popen(
            [str(programs.net), "tcp_stream", *place, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        ) as client:
            host.meet()
            assert host.receive()[0] == "request"
            host.send(f"ready\nport {tests.getsockname()[1]}\nversion 1\nbuild_id 0\n".encode())
            channel, _ = tests.accept()
            if moment == "open":
                time.sleep(LATE_MS / 2000)  # its connect has ended, its token is not sent yet
            else:
                while len(channel.recv(16, socket.MSG_PEEK)) < 16:
                    pass
                assert channel.recv(16) == host.token()
                host.send(b"opened\n")
                assert host.receive()[0] == "start"
                host.send(b"started\n")
                assert host.receive()[0] == "go"
            _reset(channel)
            time.sleep(LATER_S)
            host.send(f"{type_}\nreason {REASON}\nhint {HINT}\n".encode())
            said, errors = client.communicate(timeout=LIMIT_S)
    assert client.returncode == 3, errors
    assert json.loads(said)["error"] == {"state": moment, "message": f"the server {type_}: {REASON}"}
    assert errors == f"error: {moment}: the server {type_}: {REASON}\n\nhint: {HINT}\n"


@pytest.mark.parametrize("kernel", ["tcp_stream", "tcp_pingpong"])
def test_a_server_that_says_nothing_is_gone(programs: Programs, tmp_path: Path, kernel: str) -> None:
    """Its control channel stays open: what the client saw itself is what it says, and soon."""
    secret = write_secret(tmp_path / "secret")
    with ControlHost(0, secret.read_bytes().strip()) as host, socket.create_server(("127.0.0.1", 0)) as tests:
        tests.settimeout(LIMIT_S)
        place = ["--to", "127.0.0.1", "--port", str(host.port), "--secret-file", str(secret)]
        with subprocess.Popen(
            [str(programs.net), kernel, *place, "--duration_s", "20", "--warmup_s", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as client:
            host.meet()
            host.receive()
            host.send(f"ready\nport {tests.getsockname()[1]}\nversion 1\nbuild_id 0\n".encode())
            channel, _ = tests.accept()
            host.send(b"opened\n")
            host.receive()
            host.send(b"started\n")
            assert host.receive()[0] == "go"
            _reset(channel)
            said, errors = client.communicate(timeout=LIMIT_S)
    assert client.returncode == 3, errors
    assert "the peer is gone" in json.loads(said)["error"]["message"]

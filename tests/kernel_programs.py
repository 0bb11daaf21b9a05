"""The kernel programs for tests: built once a session, and a server with clients on the loopback interface."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "kernels" / "c"
SOCKET_KERNELS = ("tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong")
INSTANT: Mapping[str, object] = {"duration_s": 0.03, "warmup_s": 0.005}


def make(*words: str) -> str:
    """Run make on the kernels; returns all it said."""
    done = subprocess.run(["make", "-j2", "-C", str(SOURCES), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Programs:
    """Where the built programs are, and what the compiler said."""

    folder: Path
    said: str

    @property
    def net(self) -> Path:
        """hpcq-net."""
        return self.folder / "hpcq-net"


@dataclass(frozen=True)
class Ended:
    """How a client ended."""

    rc: int
    line: dict[str, Any]
    err: str


def made_once(folder: Path, *words: str, beside: Path | None = None) -> str:
    """What make said when it built into `folder`: once a session, whichever process of it asks first.

    beside: a folder with objects that need not be compiled again.
    """
    said = folder.with_name(folder.name + ".said")
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            if beside is not None:
                shutil.copytree(beside, folder)
            said.write_text(make(*words, f"BUILD={folder}"))
    return said.read_text()


@cache
def _built(base: Path, target: str) -> Programs:
    """One build a session, whichever test modules ask for it."""
    folder = base / f"kernels-{target}"
    said = made_once(folder, target)
    return Programs(folder / "asan" if target == "asan" else folder, said)


def _base(factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a session share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _kept_builds(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the desks of a session keep what they built, whichever process of it they belong to."""
    folder = _base(tmp_path_factory) / "builds"
    folder.mkdir(exist_ok=True)
    os.environ["HPCQ_TEST_BUILDS"] = str(folder)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """hpcq-net as it is built on a cluster."""
    return _built(_base(tmp_path_factory), "net")


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """hpcq-net with the address and undefined-behaviour sanitizers."""
    return _built(_base(tmp_path_factory), "asan")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A secret file of mode 0600."""
    return write_secret(tmp_path / "secret")


def write_secret(path: Path, mode: int = 0o600) -> Path:
    """A new secret in a file of this mode."""
    path.write_text(secrets.token_hex(32) + "\n")
    path.chmod(mode)
    return path


class Server:
    """A server on lo that a with-statement ends; `run` is one client against it."""

    def __init__(self, program: Path, secret: Path, *words: str) -> None:
        self.program = program
        self.secret = secret
        command = [str(program), "server", "--interface", "lo", "--secret-file", str(secret), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self.process.stdout.readline())["ready"]
        self.port = int(self.ready["port"])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=10)

    def command(self, kernel: str, *words: str, **options: object) -> list[str]:
        """A client's command line."""
        address = ["--to", str(self.ready["address"]), "--port", str(self.port), "--secret-file", str(self.secret)]
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [str(self.program), kernel, *address, *words, *given]

    def run(self, kernel: str, *words: str, **options: object) -> Ended:
        """Run a client to its end."""
        return ended(self.command(kernel, *words, **options))


def ended(command: list[str], timeout_s: float = 30, env: Mapping[str, str] | None = None) -> Ended:
    """Run a program that prints one JSON line, or nothing."""
    full = None if env is None else {**os.environ, **env}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=full)
    assert done.stdout.count("\n") <= 1, done.stdout
    line = json.loads(done.stdout, parse_constant=_no_constant) if done.stdout else {}
    return Ended(done.returncode, line, done.stderr)


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@pytest.fixture
def server(programs: Programs, secret: Path) -> Iterator[Server]:
    """A running server."""
    with Server(programs.net, secret) as running:
        yield running

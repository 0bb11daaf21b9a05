"""The kernel programs for tests: built once a session, and a server with clients on the loopback interface."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY

ROOT = REPOSITORY
SOURCES = ROOT / "kernels" / "c"
SOCKET_KERNELS = ("tcp_stream", "tcp_pingpong", "udp_stream", "udp_pingpong", "tcp_connect", "udp_oneway")
#: Ends by count: on a machine that stalls for a second, a duration of milliseconds may pass before the first reply.
INSTANT: Mapping[str, object] = {"duration_s": 60, "warmup_s": 0.005, "operation_count_max": 100}
#: How long anything may take that takes milliseconds: a limit for what hangs, no figure to be met.
LIMIT_S = 120.0
#: A measurement that somebody else ends; longer than LIMIT_S, so its own end cannot pass for that.
ENDLESS_S = 600


def wait_for(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Until something is so."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """The processes that this one started and that are not reaped yet."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    """The letter of a process's state, as S for one that waits; empty if there is no such process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def make(*words: str) -> str:
    """Run make on the kernels; returns all it said."""
    done = subprocess.run(["make", "-j2", "-C", str(SOURCES), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:  # no assertion: a mutant that does not compile shows nothing of a test
        raise RuntimeError(done.stdout + done.stderr)
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
            built = Path(os.environ.get("HPCQ_TEST_BUILT", ROOT)) / folder.name
            if beside is None and built.is_dir():  # of a run of mutants: what the mutant does not touch is built already
                shutil.copytree(built, folder)
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


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a session share; HPCQ_TEST_SHARED: that of several sessions, as tools/run_tests has."""
    given = os.environ.get("HPCQ_TEST_SHARED")
    if given:
        return Path(given)
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _kept_builds(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the desks of a session keep what they built, whichever process of it they belong to."""
    folder = session_folder(tmp_path_factory) / "builds"
    folder.mkdir(exist_ok=True)
    folder.with_name("sums").mkdir(exist_ok=True)
    os.environ["HPCQ_TEST_BUILDS"] = str(folder)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """hpcq-net as it is built on a cluster."""
    return _built(session_folder(tmp_path_factory), "net")


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """hpcq-net with the address and undefined-behaviour sanitizers."""
    return _built(session_folder(tmp_path_factory), "asan")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A secret file of mode 0600."""
    return write_secret(tmp_path / "secret")


def write_secret(path: Path, mode: int = 0o600) -> Path:
    """A new secret in a file of this mode."""
    path.write_text(secrets.token_hex(32) + "\n")
    path.chmod(mode)
    return path


def unreported(said: str) -> None:
    """No sanitizer reported anything; a server, an agent and what they forked write to one stderr."""
    assert "Sanitizer: " not in said, said
    assert "runtime error: " not in said, said


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
        try:
            _, words = self.process.communicate(timeout=LIMIT_S)
        finally:
            self.process.kill()
        unreported(words)

    def command(self, kernel: str, *words: str, **options: object) -> list[str]:
        """A client's command line."""
        address = ["--to", str(self.ready["address"]), "--port", str(self.port), "--secret-file", str(self.secret)]
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [str(self.program), kernel, *address, *words, *given]

    def run(self, kernel: str, *words: str, **options: object) -> Ended:
        """Run a client to its end."""
        return ended(self.command(kernel, *words, **options))

    def serves(self) -> bool:
        """Whether a client is served, after whatever went before."""
        return self.run("tcp_pingpong", **INSTANT).rc == 0


def ended(
    command: list[str], timeout_s: float = LIMIT_S, env: Mapping[str, str] | None = None, *, reports: bool = False
) -> Ended:
    """Run a program that prints one JSON line, of a sweep one per size, or nothing.

    reports: a sanitizer may report something; the test reads it.
    """
    full = None if env is None else {**os.environ, **env}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=full)
    if not reports:
        unreported(done.stderr)
    line = json.loads(done.stdout, parse_constant=_no_constant) if done.stdout else {}
    assert done.stdout.count("\n") <= 1 + len(line.get("sizes", ())) + ("sizes" in line), done.stdout[:2000]
    return Ended(done.returncode, line, done.stderr)


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@pytest.fixture
def server(programs: Programs, secret: Path) -> Iterator[Server]:
    """A running server."""
    with Server(programs.net, secret) as running:
        yield running

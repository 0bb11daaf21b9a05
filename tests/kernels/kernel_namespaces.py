"""Two network namespaces, joined by a veth pair with a rate, or by the lab's wire with rate, delay and loss.

with joined(tmp_path, rate_bps=1e9) as pair:                      tc's token bucket on both ends
with queued(tmp_path, rate_bps=1e8, queue_bytes=250_000) as pair: a switch between them with a queue of that length
with wired(tmp_path, delay_s=0.01, rate_bps=1e8) as pair:         lab/wire.c: exact, for some hundred Mbit/s
    line = pair.run(program, "tcp_stream", duration_s=1).line
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kernels.kernel_programs import LIMIT_S, ROOT, Ended, ended, write_secret

ADDRESSES = {"client": "10.78.0.1", "server": "10.78.0.2"}
ADDRESSES_6 = {"client": "fd78::1", "server": "fd78::2"}


def namespace_of(end: str) -> str:
    """The namespace of one end, of this process's tests alone."""
    return f"hpcq-kernel-{os.getpid()}-{end}"


def inside(end: str, *words: str) -> str:
    """Run a command in the namespace of an end; returns what it printed."""
    command = ["ip", "netns", "exec", namespace_of(end), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout


@dataclass(frozen=True)
class Pair:
    """Both ends are up."""

    secret: Path
    interface: str

    def run(self, program: Path, kernel: str, *words: str, six: bool = False, **options: Any) -> Ended:
        """One measurement from the client's namespace to a server of its own."""
        with self.serving(program, six=six) as place:
            given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            return ended(["ip", "netns", "exec", namespace_of("client"), str(program), kernel, *place, *words, *given])

    @contextlib.contextmanager
    def serving(self, program: Path, *, six: bool = False, by: Sequence[str] = ()) -> Iterator[list[str]]:
        """A server; gives the words by which a client finds it. by: words of a program that starts it."""
        address = (ADDRESSES_6 if six else ADDRESSES)["server"]
        serve = ["ip", "netns", "exec", namespace_of("server"), *by, str(program), "server", "--bind", address]
        words = [*serve, "--secret-file", str(self.secret)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout is not None
                ready: dict[str, Any] = json.loads(server.stdout.readline())["ready"]
                yield ["--to", address, "--port", str(ready["port"]), "--secret-file", str(self.secret)]
            finally:
                server.terminate()


@contextlib.contextmanager
def _namespaces(folder: Path, interface: str) -> Iterator[Pair]:
    try:
        for end in ADDRESSES:
            subprocess.run(["ip", "netns", "add", namespace_of(end)], check=True)
            inside(end, "ip", "link", "set", "lo", "up")
        yield Pair(write_secret(folder / "secret"), interface)
    finally:
        for end in ADDRESSES:
            subprocess.run(["ip", "netns", "delete", namespace_of(end)], check=False, capture_output=True)


def _addresses(interface: str) -> None:
    for end, address in ADDRESSES.items():
        inside(end, "ip", "address", "add", f"{address}/24", "dev", interface)
        inside(end, "ip", "-6", "address", "add", f"{ADDRESSES_6[end]}/64", "dev", interface, "nodad")
        inside(end, "ip", "link", "set", interface, "up")


@contextlib.contextmanager
def joined(folder: Path, rate_bps: float | None = None, server_rate_bps: float | None = None) -> Iterator[Pair]:
    """A veth pair of MTU 1500, without offloads, behind a token bucket of this rate; that of the server may be another."""
    with _namespaces(folder, "eth0") as pair:
        far = ["peer", "name", "eth0", "netns", namespace_of("server")]
        inside("client", "ip", "link", "add", "eth0", "type", "veth", *far)
        _addresses("eth0")
        for end in ADDRESSES if rate_bps else ():
            own_bps = (server_rate_bps if end == "server" else None) or rate_bps
            bucket = ["rate", f"{own_bps:.0f}bit", "burst", "32kb", "latency", "50ms"]
            inside(end, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *bucket)
        yield pair


@contextlib.contextmanager
def queued(folder: Path, *, rate_bps: float, queue_bytes: int = 10**7, queue_packets: int | None = None) -> Iterator[Pair]:
    """Two ends at a switch that sends to each at this rate (in bits of Ethernet frames) from a queue of that length."""
    switch = namespace_of("switch")
    with _namespaces(folder, "eth0") as pair:
        subprocess.run(["ip", "netns", "add", switch], check=True)
        try:
            inside("switch", "ip", "link", "add", "bridge", "type", "bridge")
            inside("switch", "ip", "link", "set", "bridge", "up")
            for end in ADDRESSES:
                near = ["peer", "name", "eth0", "netns", namespace_of(end)]
                inside("switch", "ip", "link", "add", end, "type", "veth", *near)
                inside("switch", "ip", "link", "set", end, "master", "bridge", "up")
                # Ten frames of burst: what a timer misses while a hypervisor has the CPU, it makes up for.
                bucket = ["rate", f"{rate_bps:.0f}bit", "burst", "15140", "limit", f"{queue_bytes}"]
                inside("switch", "tc", "qdisc", "add", "dev", end, "root", "handle", "1:", "tbf", *bucket)
                if queue_packets:
                    inside("switch", "tc", "qdisc", "add", "dev", end, "parent", "1:1", "pfifo", "limit", str(queue_packets))
            _addresses("eth0")
            yield pair
        finally:
            subprocess.run(["ip", "netns", "delete", switch], check=False, capture_output=True)


@dataclass(frozen=True)
class QueueLook:
    """What stood in the queue towards an end at a moment, and what had left it until then."""

    at_s: float
    waiting_bytes: int
    sent_bytes: int


@contextlib.contextmanager
def watched_queue(end: str, *, every_s: float = 0.002) -> Iterator[list[QueueLook]]:
    """Look at the queue of `queued` towards an end all the time: one process answers, so that a look costs 0.1 ms."""
    looks, ended = list[QueueLook](), threading.Event()
    command = ["ip", "netns", "exec", namespace_of("switch"), "stdbuf", "-oL", "tc", "-s", "-batch", "-"]

    def look(tc: subprocess.Popen[str]) -> None:
        assert tc.stdin is not None
        assert tc.stdout is not None
        while not ended.wait(every_s):
            tc.stdin.write(f"qdisc show dev {end}\n")
            tc.stdin.flush()
            said = ""
            while " backlog " not in said:
                said += tc.stdout.readline() or " backlog 0b 0p"
            if " Sent " in said:
                words = [said.partition(word)[2].split()[0] for word in (" Sent ", " backlog ")]
                looks.append(QueueLook(time.monotonic(), _bytes_of(words[1]), int(words[0])))

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tc:
        looking = threading.Thread(target=look, args=(tc,))
        looking.start()
        try:
            yield looks
        finally:
            ended.set()
            looking.join()
            assert tc.stdin is not None
            tc.stdin.close()


def _bytes_of(text: str) -> int:
    number = text.removesuffix("b")
    return int(float(number.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(number[-1], 1))


@contextlib.contextmanager
def wired(folder: Path, *, delay_s: float = 0.0, rate_bps: float = 1e9, loss_ratio: float = 0.0) -> Iterator[Pair]:
    """The lab's wire: each way a serial line of this rate (in bits of Ethernet frames), delay and loss."""
    program = folder / "wire"
    subprocess.run(["cc", "-O2", "-o", str(program), str(ROOT / "lab" / "wire.c"), "-lm"], check=True)
    with _namespaces(folder, "wan0") as pair:
        places = [f"/run/netns/{namespace_of(end)}" for end in ADDRESSES]
        figures = [f"{delay_s * 1e9:.0f}", f"{rate_bps:.0f}", f"{loss_ratio * 1e9:.0f}", "7"]
        control = folder / "wire.socket"
        with subprocess.Popen([str(program), str(control), *places, "wan0", *figures]) as wire:
            try:
                deadline = time.monotonic() + LIMIT_S
                while not control.exists():
                    assert wire.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                _addresses("wan0")
                yield pair
            finally:
                wire.terminate()

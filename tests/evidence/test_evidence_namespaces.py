"""Findings about link and limits, provoked on two network namespaces joined by a wire of TAP devices, and in a control group.

A TAP device keeps the link settings that somebody gives it, as a NIC's driver does: duplex, speed, what it could do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcq.evidence.case import CrossedInterface, EvidenceVerdict, JudgedResult
from hpcq.evidence.judge import judge
from tests.evidence.test_evidence_lab import OF_THE_MACHINE
from tests.kernels.kernel_programs import Programs, Server, wait_for, write_secret

pytestmark = [pytest.mark.lab, pytest.mark.quiet, pytest.mark.real_time]

ENDS = ("client", "server")
ADDRESSES = {"client": "10.77.0.1", "server": "10.77.0.2"}
ADDRESSES_6 = {"client": "fd77::1", "server": "fd77::2"}
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SIOCETHTOOL, GLINKSETTINGS, SLINKSETTINGS = 0x8946, 0x4C, 0x4D
CLONE_NEWNET = 0x40000000
#: Bits of enum ethtool_link_mode_bit_indices.
GIGABIT, TEN_GIGABIT = 5, 12


def namespace_of(name: str) -> str:
    return f"hpcq-test-{os.getpid()}-{name}"


def inside(name: str, *words: str) -> str:
    command = ["ip", "netns", "exec", namespace_of(name), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def in_namespace(name: str, work: Any) -> Any:
    """What `work` returns, done by a thread of its own in that namespace."""
    found: list[Any] = []

    def enter() -> None:
        with Path(f"/run/netns/{namespace_of(name)}").open() as file:
            if _libc().setns(file.fileno(), CLONE_NEWNET):
                raise OSError("setns")
        found.append(work())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def tap() -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", b"tap0", IFF_TAP | IFF_NO_PI))
    return descriptor


def link_settings(*, speed_mbps: int, duplex: int, modes: tuple[int, ...]) -> None:
    """Of tap0 in this thread's namespace, by the ioctl that a driver would answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:

        def ask(request: bytearray) -> None:
            import ctypes

            buffer = (ctypes.c_char * len(request)).from_buffer(request)
            fcntl.ioctl(handle, SIOCETHTOOL, struct.pack("16sQ16x", b"tap0", ctypes.addressof(buffer)))

        question = bytearray(struct.pack("II8B", GLINKSETTINGS, 0, *[0] * 8) + bytes(36))
        ask(question)
        words = 256 - question[15]
        mask = bytearray(4 * words)
        for bit in modes:
            mask[bit // 8] |= 1 << bit % 8
        head = struct.pack("II8B", SLINKSETTINGS, speed_mbps, duplex, 0, 0, 0, 0, 0, 0, words) + bytes(32)
        ask(bytearray(head + mask + mask + bytes(len(mask))))


class Wire(threading.Thread):
    """Carries frames between two TAP devices until it is told to stop."""

    def __init__(self, taps: list[int]) -> None:
        super().__init__(daemon=True)
        self.taps = taps
        self.ends = os.pipe()

    def run(self) -> None:
        other = {self.taps[0]: self.taps[1], self.taps[1]: self.taps[0]}
        while True:
            ready, _, _ = select.select([*self.taps, self.ends[0]], [], [])
            if self.ends[0] in ready:
                return
            for one in ready:
                frame = os.read(one, 65536)
                with contextlib.suppress(OSError):  # the other end is not up yet
                    os.write(other[one], frame)

    def stop(self) -> None:
        os.write(self.ends[1], b".")
        self.join()
        for descriptor in (*self.taps, *self.ends):
            os.close(descriptor)


@dataclass(frozen=True)
class Link:
    """Two namespaces with tap0 each."""

    program: Path
    secret: Path

    def settings(self, end: str, **settings: Any) -> None:
        in_namespace(end, lambda: link_settings(**settings))

    def facts(self, end: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(inside(end, str(self.program), "facts", "--interface", "tap0"))
        return found

    def measure(self, addresses: dict[str, str]) -> tuple[dict[str, Any], EvidenceVerdict]:
        """A ping-pong, judged with the facts of both ends."""
        serve = ["ip", "netns", "exec", namespace_of("server"), str(self.program), "server", "--bind", addresses["server"]]
        with subprocess.Popen(
            [*serve, "--secret-file", str(self.secret), "--sessions", "1"], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            port = str(json.loads(server.stdout.readline())["ready"]["port"])
            place = ["--to", addresses["server"], "--port", port, "--secret-file", str(self.secret), "--interface", "tap0"]
            try:
                line = json.loads(inside("client", str(self.program), "tcp_pingpong", *place, "--duration_s", "0.5"))
                assert server.wait(timeout=60) == 0
            finally:
                server.kill()
        judged = judge(JudgedResult(line, line["options"], self.facts("client"), self.facts("server")))
        return line, judged


@contextmanager
def link_up(program: Path, secret: Path) -> Iterator[Link]:
    wire = None
    try:
        for end in ENDS:
            subprocess.run(["ip", "netns", "add", namespace_of(end)], check=True)
            inside(end, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad || true")
        wire = Wire([in_namespace(end, tap) for end in ENDS])
        wire.start()
        for end in ENDS:
            inside(end, "ip", "link", "set", "lo", "up")
            inside(end, "ip", "address", "add", f"{ADDRESSES[end]}/24", "dev", "tap0")
            inside(end, "ip", "link", "set", "tap0", "up")
            inside(end, "ip", "-6", "address", "add", f"{ADDRESSES_6[end]}/64", "dev", "tap0", "nodad")
        inside("client", "ip", "-6", "route", "add", "fd78::/48", "via", ADDRESSES_6["server"], "dev", "tap0")
        yield Link(program, secret)
    finally:
        if wire is not None:
            wire.stop()
        for end in ENDS:
            subprocess.run(["ip", "netns", "delete", namespace_of(end)], check=False, capture_output=True)


@pytest.fixture(scope="module")
def link(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    with link_up(programs.net, write_secret(tmp_path_factory.mktemp("link") / "secret")) as up:
        yield up


FINE = {"speed_mbps": 10000, "duplex": 1, "modes": (GIGABIT, TEN_GIGABIT)}


def findings(judgement: EvidenceVerdict) -> list[tuple[str, str | None]]:
    return [(one.rule.name, one.end) for one in judgement.findings if one.rule.name not in OF_THE_MACHINE]


@pytest.mark.parametrize(
    ("end", "settings", "figures"),
    [
        (None, {}, {}),
        ("client", {"duplex": 0}, {"duplex": "half", "expected_bps": 10e9}),
        ("server", {"speed_mbps": 1000}, {"duplex": "full", "speed_bps": 1e9, "expected_bps": 10e9}),
    ],
    ids=["as it should be", "half duplex", "reduced speed"],
)
def test_the_settings_of_a_link(link: Link, end: str | None, settings: dict[str, int], figures: dict[str, Any]) -> None:
    for one in ENDS:
        link.settings(one, **{**FINE, **(settings if one == end else {})})
    line, judgement = link.measure(ADDRESSES)
    assert line["valid"]
    assert judgement.crossed_interface is CrossedInterface.YES
    assert findings(judgement) == ([] if end is None else [("link_degraded", end)])
    for finding in judgement.findings:
        if finding.rule.name == "link_degraded":
            assert {name: finding.figures[name] for name in figures} == figures


def test_the_way_over_ipv6_is_a_fact(link: Link) -> None:
    line, judgement = link.measure(ADDRESSES_6)
    assert line["evidence"]["client"]["address"] == ADDRESSES_6["client"]
    assert judgement.crossed_interface is CrossedInterface.YES
    facts = link.facts("client")
    assert facts["route"]["tap0.fd77::/64"] == "link"
    assert facts["route"]["tap0.fd78::/48"] == ADDRESSES_6["server"]
    assert not [name for name in facts["route"] if name.startswith("tap0.ff")]
    there = inside("server", "cat", "/sys/class/net/tap0/address").strip()
    assert facts["now"][f"neighbour.{ADDRESSES_6['server']}"] == there
    assert facts["nic"]["tap0.link.speed_maximum_bps"] == 10_000_000_000


def emptied(group: Path) -> bool:
    """Whether a control group could be removed; what has just ended there may keep it for a moment."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


@contextmanager
def quota(ratio: float) -> Iterator[Path]:
    """A control group that may use this share of one CPU; yields the file that takes processes in."""
    old = Path("/sys/fs/cgroup/cpu")
    group = (old if old.exists() else Path("/sys/fs/cgroup")) / f"hpcq-test-{os.getpid()}"
    if not old.exists():
        Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+cpu")
    group.mkdir()
    try:
        if old.exists():
            (group / "cpu.cfs_quota_us").write_text(str(int(ratio * 100_000)))
        else:
            (group / "cpu.max").write_text(f"{int(ratio * 100_000)} 100000")
        yield group / "cgroup.procs"
    finally:
        wait_for(lambda: emptied(group))


def test_a_control_group_with_a_quota(programs: Programs, secret: Path) -> None:
    """One end in a group that gets a fiftieth of a core: it is held, and the other is not."""
    with Server(programs.net, secret) as server:
        command = server.command("tcp_stream", "--interface", "lo", duration_s=1, warmup_s=0)
        with quota(0.02) as members:
            held = ["sh", "-c", f'echo $$ > {members}; exec "$@"', "sh", *command]
            done = subprocess.run(held, check=True, capture_output=True, text=True, timeout=60)
        line = json.loads(done.stdout)
        free = server.run("tcp_stream", "--interface", "lo", duration_s=0.5, warmup_s=0).line
    judged = judge(JudgedResult(line, line["options"], {}, {}))
    [finding] = [one for one in judged.findings if one.rule.name == "held_by_quota"]
    assert finding.end == "client"
    assert float(finding.figures["held_ratio"]) > 0.1
    assert judged.disturbed
    assert "held_by_quota" not in {one.rule.name for one in judge(JudgedResult(free, free["options"], {}, {})).findings}

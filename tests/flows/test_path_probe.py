"""path_probe over known paths: four namespaces in a row, with known delays and a small MTU in the middle.

client --wan0-- left --wan1 (MTU)-- right --wan2-- server
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_programs import LIMIT_S, ROOT, Ended, Programs, Server, ended, wait_for, write_secret

ROW = ("client", "left", "right", "server")
DELAYS_MS = (1, 3, 5)
MIDDLE_MTU = 1332
SMALL: dict[str, Any] = {"answer_timeout_s": 0.3}
TURNS = 4
#: The owner of its files, but nothing that root may.
POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
#: Without these a packet that is too large for the middle vanishes without a word.
MUTE = "add table inet mute; add chain inet mute out { type filter hook output priority 0; }; "
MUTE += "add rule inet mute out icmp type destination-unreachable drop; "
MUTE += "add rule inet mute out icmpv6 type packet-too-big drop"
SILENT = "add table inet silent; add chain inet silent out { type filter hook output priority 0; }; "
SILENT += "add rule inet silent out icmp type time-exceeded drop"
CLOSED = "add table inet closed; add chain inet closed on { type filter hook forward priority 0; }; "
CLOSED += "add rule inet closed on udp length 24 reject with icmp type admin-prohibited"


def _space(end: str) -> str:
    return f"hpcq-path-{os.getpid()}-{end}"


def _inside(end: str, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", _space(end), *words], check=True, capture_output=True, timeout=LIMIT_S)


def _address(link: int, side: int, *, six: bool) -> str:
    return f"fd79:a{link}::{side + 1}" if six else f"10.79.{link}.{side + 1}"


@dataclass(frozen=True)
class Chain:
    """The row is up."""

    secret: Path

    def run(self, program: Path, *, six: bool = False, **options: Any) -> Ended:
        """One path_probe from the client to a server of its own."""
        words = ["ip", "netns", "exec", _space("server"), str(program), "server", "--bind", _address(2, 1, six=six)]
        given = [word for name, value in {**SMALL, **options}.items() for word in (f"--{name}", str(value))]
        with subprocess.Popen(
            [*words, "--secret-file", str(self.secret)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            try:
                assert server.stdout is not None
                port: int = json.loads(server.stdout.readline())["ready"]["port"]
                place = ["--to", _address(2, 1, six=six), "--port", str(port), "--secret-file", str(self.secret)]
                client = ["ip", "netns", "exec", _space("client"), *POWERLESS, str(program)]
                return ended([*client, "path_probe", *place, *given])
            finally:
                server.terminate()


def _route(six: bool) -> None:
    """Everybody knows the way to both ends."""
    far, near = (f"fd79:a{link}::/64" if six else f"10.79.{link}.0/24" for link in (2, 0))
    ip = ["ip", "-6"] if six else ["ip"]
    _inside("client", *ip, "route", "add", "default", "via", _address(0, 1, six=six))
    _inside("left", *ip, "route", "add", far, "via", _address(1, 1, six=six))
    _inside("right", *ip, "route", "add", near, "via", _address(1, 0, six=six))
    _inside("server", *ip, "route", "add", "default", "via", _address(2, 0, six=six))
    for router in ("left", "right"):
        _inside(router, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1" if six else "net.ipv4.ip_forward=1")
        _inside(router, "sysctl", "-qw", "net.ipv6.icmp.ratelimit=0" if six else "net.ipv4.icmp_ratelimit=0")


@contextlib.contextmanager
def _wires(folder: Path) -> Iterator[None]:
    """The lab's wires, one per link."""
    program = folder / "wire"
    subprocess.run(["cc", "-O2", "-o", str(program), str(ROOT / "lab" / "wire.c"), "-lm"], check=True)
    with contextlib.ExitStack() as stack:
        for link, (near, far) in enumerate(pairwise(ROW)):
            places = [f"/run/netns/{_space(end)}" for end in (near, far)]
            control = folder / f"wire{link}.socket"
            figures = [f"{DELAYS_MS[link] * 1_000_000}", "0", "0", "7"]
            wire = stack.enter_context(subprocess.Popen([str(program), str(control), *places, f"wan{link}", *figures]))
            stack.callback(wire.terminate)
            wait_for(control.exists)
            for side, end in enumerate((near, far)):
                for six, bits in ((False, "24"), (True, "64")):
                    more = ["nodad"] if six else []
                    address = f"{_address(link, side, six=six)}/{bits}"
                    _inside(end, "ip", "address", "add", address, "dev", f"wan{link}", *more)
                _inside(end, "ip", "link", "set", f"wan{link}", "up", "mtu", str(MIDDLE_MTU if link == 1 else 1500))
        yield


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    try:
        for end in ROW:
            subprocess.run(["ip", "netns", "add", _space(end)], check=True)
            _inside(end, "ip", "link", "set", "lo", "up")
        with _wires(folder):
            for six in (False, True):
                _route(six)
            yield Chain(write_secret(folder / "secret"))
    finally:
        for end in ROW:
            subprocess.run(["ip", "netns", "delete", _space(end)], check=False, capture_output=True)


@contextlib.contextmanager
def _rules(end: str, rules: str) -> Iterator[None]:
    """Rules of nft, for as long as this lasts."""
    _inside(end, "nft", rules)
    try:
        yield
    finally:
        _inside(end, "nft", "flush ruleset")


@pytest.mark.promise("Each hop of a path has its address and its round trips, without a right that only root has.")
@pytest.mark.lab
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_every_hop_has_its_address_and_round_trip(chain: Chain, programs: Programs, *, six: bool) -> None:
    """A busy machine delays the wires: the best of some turns counts."""
    truth_ms = [2 * sum(DELAYS_MS[: hop + 1]) for hop in range(3)]
    for _ in range(TURNS):
        line = chain.run(programs.net, six=six).line
        assert line["valid"], (line["error"], line["invalid_reason"])
        series = line["series"]
        assert series["hop_no"] == [1, 2, 3]
        assert series["hop_answered_count"] == [5, 5, 5]
        assert [line["granted"][f"client_hop_{hop + 1}_address"] for hop in range(3)] == [
            _address(hop, 1, six=six) for hop in range(3)
        ]
        assert line["metrics"]["hop_count"] == 3
        assert line["metrics"]["silent_hop_count"] == 0
        sent_bytes = line["evidence"]["client"]["interface_bytes"]["tx"]
        assert line["metrics"]["path_mtu_bytes"] - 48 < line["metrics"]["answered_bytes"] < sent_bytes
        assert line["metrics"]["round_trip_p50_ns"] == series["hop_round_trip_p50_ns"][2]
        for least, middle, most in zip(*(series[f"hop_round_trip_{one}_ns"] for one in ("min", "p50", "max")), strict=True):
            assert 0 < least <= middle <= most
        found_ms = [value / 1e6 for value in series["hop_round_trip_min_ns"]]
        if found_ms == pytest.approx(truth_ms, rel=0.2):
            return
        time.sleep(0.1)
    assert found_ms == pytest.approx(truth_ms, rel=0.2)


@pytest.mark.promise("The MTU of a path is found to the byte, with IPv4 and IPv6, and which router reported it.")
@pytest.mark.lab
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_the_mtu_that_a_router_tells(chain: Chain, programs: Programs, *, six: bool) -> None:
    line = chain.run(programs.net, six=six).line
    assert line["metrics"]["path_mtu_bytes"] == MIDDLE_MTU
    assert line["metrics"]["told_mtu_bytes"] == MIDDLE_MTU
    assert line["metrics"]["silent_size_count"] == 0
    assert (line["granted"]["client_mtu_limit"], line["granted"]["client_mtu_told_by"]) == ("told", _address(0, 1, six=six))
    assert "mtu_black_hole" not in [warning["name"] for warning in line["warnings"]]


@pytest.mark.promise(
    "Where large packets are lost without a word, the MTU of a path is found all the same, and the black hole named."
)
@pytest.mark.lab
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_a_black_hole_is_found_and_named(chain: Chain, programs: Programs, *, six: bool) -> None:
    with _rules("left", MUTE):
        line = chain.run(programs.net, six=six).line
    assert line["metrics"]["path_mtu_bytes"] == MIDDLE_MTU
    assert "told_mtu_bytes" not in line["metrics"]
    assert line["metrics"]["silent_size_count"] > 0
    assert line["granted"]["client_mtu_limit"] == "silent"
    assert [
        f"more than {MIDDLE_MTU} bytes" in one["message"] for one in line["warnings"] if one["name"] == "mtu_black_hole"
    ] == [True]


@pytest.mark.promise("A router that does not answer is a hop without an answer, and the path goes on behind it.")
@pytest.mark.lab
def test_a_silent_router_is_a_hop_without_an_answer(chain: Chain, programs: Programs) -> None:
    with _rules("left", SILENT):
        line = chain.run(programs.net).line
    assert line["series"]["hop_answered_count"] == [0, 5, 5]
    assert line["series"]["hop_round_trip_p50_ns"][0] is None
    assert (line["metrics"]["hop_count"], line["metrics"]["silent_hop_count"]) == (3, 1)
    assert "client_hop_1_address" not in line["granted"]


@pytest.mark.promise("A server that no probe reaches gives no path: the result says who refused it, or how far it looked.")
@pytest.mark.lab
def test_a_server_out_of_reach_is_no_path(chain: Chain, programs: Programs) -> None:
    done = chain.run(programs.net, hop_count_max=2)
    assert done.rc == 1
    assert done.line["invalid_reason"] == "the server did not answer within 2 hops"
    assert "path_mtu_bytes" not in done.line["metrics"]
    with _rules("right", CLOSED):  # only the probes, which are as long
        done = chain.run(programs.net)
    assert done.rc == 1
    assert done.line["invalid_reason"].startswith(f"{_address(1, 1, six=False)}, 3 hops away, passed nothing on: ")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_sanitizers_find_nothing(sanitized: Programs, secret: Path, address: str) -> None:
    """On the loopback interface: one hop, and the MTU that the interface has or IP allows."""
    most = 65535 if address == "127.0.0.1" else 40 + 65535
    truth = min(int(Path("/sys/class/net/lo/mtu").read_text()), most)
    with Server(sanitized.net, secret, "--sessions", "1", "--bind", address) as running:
        done = running.run("path_probe", "--to", address, answer_timeout_s=10)
        assert (done.rc, done.err) == (0, "")
        assert done.line["metrics"]["hop_count"] == 1
        assert done.line["metrics"]["path_mtu_bytes"] == truth
        assert running.process.wait(timeout=LIMIT_S) == 0
        assert running.process.stderr is not None
        assert running.process.stderr.read() == ""

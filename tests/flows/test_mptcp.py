"""`mptcp`: Multipath TCP where both nodes have it; where one has not, plain TCP, and the result says so and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import ADDRESSES, Pair, inside, joined, namespace_of
from tests.kernels.kernel_programs import INSTANT, Ended, Programs, ended, wait_for

SHORT: dict[str, Any] = {"duration_s": 0.3, "warmup_s": 0.05}


def _set(end: str, enabled: int) -> None:
    inside(end, "sysctl", "-qw", f"net.mptcp.enabled={enabled}")


def _refusals(done: Ended) -> list[str]:
    return [one["message"] for one in done.line["warnings"] if one["name"] == "option_not_granted"]


def _second_path() -> None:
    """Another pair of interfaces, over which the client's system may open subflows and the server's takes them."""
    far = ["peer", "name", "eth1", "netns", namespace_of("server")]
    inside("client", "ip", "link", "add", "eth1", "type", "veth", *far)
    for end, address in (("client", "10.79.0.1"), ("server", "10.79.0.2")):
        inside(end, "ip", "address", "add", f"{address}/24", "dev", "eth1")
        inside(end, "ip", "link", "set", "eth1", "up")
        inside(end, "ip", "mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2")


def _told() -> None:
    """The server's system tells of the second path, to connections that there are too."""
    inside("server", "ip", "mptcp", "endpoint", "add", "10.79.0.2", "dev", "eth1", "signal")


def _crossed_bytes(interface: str) -> int:
    return int(inside("client", "cat", f"/sys/class/net/{interface}/statistics/tx_bytes"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two nodes whose systems have Multipath TCP."""
    with joined(tmp_path) as made:
        for end in ("client", "server"):
            _set(end, 1)
        yield made


@pytest.mark.lab
@pytest.mark.promise("`granted` says whether a connection is Multipath TCP, by what the system says of it at the end.")
@pytest.mark.parametrize("kernel", ["tcp_stream", "tcp_pingpong"])
@pytest.mark.parametrize("six", [False, True])
def test_a_connection_is_mptcp_where_both_have_it(programs: Programs, pair: Pair, kernel: str, six: bool) -> None:
    done = pair.run(programs.net, kernel, six=six, mptcp="true", **SHORT)
    assert (done.rc, _refusals(done)) == (0, [])
    for end in ("client", "server"):
        assert done.line["granted"][f"{end}_mptcp"] is True
        assert done.line["granted"][f"{end}_mptcp_subflow_count"] == 1
    plain = pair.run(programs.net, kernel, six=six, **SHORT)
    assert not [name for name in plain.line["granted"] if "mptcp" in name]


@pytest.mark.lab
@pytest.mark.promise("Where a node has no Multipath TCP the measurement is of plain TCP, and both ends say that, and why.")
@pytest.mark.parametrize("lacking", ["client", "server"])
def test_a_node_without_it_is_measured_over_plain_tcp(programs: Programs, pair: Pair, lacking: str) -> None:
    _set(lacking, 0)
    done = pair.run(programs.net, "tcp_stream", mptcp="true", **SHORT)
    other = {"client": "server", "server": "client"}[lacking]
    assert (done.rc, done.line["granted"]["client_mptcp"], done.line["granted"]["server_mptcp"]) == (0, False, False)
    assert done.line["metrics"]["received_bytes"] == done.line["metrics"]["sent_bytes"] > 0
    said = {message.partition(":")[0]: message for message in _refusals(done)}
    assert said[lacking].endswith("net.mptcp.enabled is 0")
    assert said[other].endswith("the peer or the network has none")


@pytest.mark.lab
@pytest.mark.promise("A test port listens beyond the interface under test only where the server's node has Multipath TCP.")
@pytest.mark.parametrize(("enabled", "listens_at"), [(1, {"0.0.0.0"}), (0, {ADDRESSES["server"]})])
def test_where_the_test_port_listens(programs: Programs, pair: Pair, enabled: int, listens_at: set[str]) -> None:
    _set("server", enabled)
    with pair.serving(programs.net) as place, ThreadPoolExecutor() as aside:
        before = _listeners()
        words = ["tcp_connect", *place, "--mptcp", "true", "--duration_s", "1.5", "--warmup_s", "0.1"]
        done = aside.submit(ended, ["ip", "netns", "exec", namespace_of("client"), str(programs.net), *words])
        seen = set[str]()
        while not done.done():
            seen |= _listeners() - before
            time.sleep(0.02)
        assert done.result().rc == 0
    assert {one.rpartition(":")[0] for one in seen} == listens_at


def _listeners() -> set[str]:
    return {line.split()[3] for line in inside("server", "ss", "-Hltn").splitlines()}


@pytest.mark.lab
@pytest.mark.promise("A path of Multipath TCP that is known, or becomes known while it is measured, carries its part.")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_second_path_is_a_second_subflow(programs: Programs, pair: Pair, when: str) -> None:
    _second_path()
    if when == "before":
        _told()
    before = _crossed_bytes("eth1")
    with ThreadPoolExecutor() as aside:
        running = aside.submit(pair.run, programs.net, "tcp_stream", mptcp="true", duration_s=3, warmup_s=0.1)
        if when == "meanwhile":
            wait_for(lambda: _crossed_bytes("eth0") > 10_000_000)
            _told()
        done = running.result()
    assert done.line["granted"]["client_mptcp_subflow_count"] == 2
    assert _crossed_bytes("eth1") - before > 1_000_000
    assert done.line["metrics"]["received_bytes"] == done.line["metrics"]["sent_bytes"]


@pytest.mark.lab
def test_connections_and_many_flows(programs: Programs, pair: Pair) -> None:
    connected = pair.run(programs.net, "tcp_connect", mptcp="true", **dict[str, Any](INSTANT))
    assert (connected.rc, connected.line["granted"]["client_mptcp"]) == (0, True)
    assert connected.line["metrics"]["failed_count"] == 0
    flows = pair.run(programs.net, "tcp_stream", mptcp="true", flow_count=8, thread_count=2, direction="both", **SHORT)
    assert (flows.rc, _refusals(flows)) == (0, [])
    for prefix in ("", "return_"):
        assert flows.line["metrics"][f"{prefix}received_bytes"] == flows.line["metrics"][f"{prefix}sent_bytes"] > 0


@pytest.mark.lab
def test_what_it_does_not_go_with_is_refused(programs: Programs, pair: Pair) -> None:
    copied = pair.run(programs.net, "tcp_stream", mptcp="true", send_by="zero_copy", **SHORT)
    assert (copied.rc, "send_by: found zero_copy: allowed: send sendfile where mptcp is true" in copied.err) == (2, True)
    paced = pair.run(programs.net, "tcp_stream", mptcp="true", pacing_rate_bps=10**9, **SHORT)
    if paced.rc:  # a later system may have it
        assert "pacing_rate_bps" in paced.err
        assert "Multipath TCP has no pacing_rate_bps" in paced.err

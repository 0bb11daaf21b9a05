"""Where the ends of a flow are: address, ports, device, NUMA node; with what the system granted, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.kernel_namespaces import ADDRESSES, ADDRESSES_6, Pair, inside, joined, namespace_of
from tests.kernels.kernel_programs import ENDLESS_S, INSTANT, LIMIT_S, Programs, Server, children, wait_for

OTHER = {False: "10.78.0.9", True: "fd78::9"}  # of the client too
SHORT: dict[str, Any] = dict(INSTANT)
KERNELS = ("tcp_stream", "tcp_connect", "udp_oneway")


def _seen_ports(pair: Pair, program: Path, kernel: str, **options: Any) -> set[int]:
    """The client's ports of a measurement under way, as its own namespace tells them."""
    with pair.serving(program) as place:
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = ["ip", "netns", "exec", namespace_of("client"), str(program), kernel, *place, *given]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            try:
                return _ports(kernel, int(options["flow_count"]), place[3])
            finally:
                client.terminate()
                client.wait(timeout=LIMIT_S)


def _ports(kernel: str, flow_count: int, control_port: str) -> set[int]:
    found = set[int]()

    def seen() -> bool:
        words = ["ss", "-Hn", "-t" if kernel.startswith("tcp") else "-u", "state", "established"]
        rows = [row.split() for row in inside("client", *words).splitlines()]
        ends = [(row[-2].rpartition(":")[2], row[-1].rpartition(":")[2]) for row in rows]
        found.clear()
        found.update(int(own) for own, far in ends if far != control_port)
        return len(found) >= flow_count

    wait_for(seen)
    return found


@pytest.mark.promise(
    "The client's source address is the one that `--bind` names; an address that the node does not have is refused."
)
@pytest.mark.lab
@pytest.mark.parametrize("six", [False, True])
def test_the_source_address_is_the_one_that_was_named(programs: Programs, tmp_path: Path, *, six: bool) -> None:
    """The server has no way back to the address that the client would take by itself."""
    with joined(tmp_path) as pair:
        family = ["-6"] if six else []
        bits, usual = (64, ADDRESSES_6["client"]) if six else (24, ADDRESSES["client"])
        more = ["nodad"] if six else []
        inside("client", "ip", *family, "address", "add", f"{OTHER[six]}/{bits}", "dev", "eth0", *more)
        # a deprecated address is never taken unless it is named
        if six:
            inside("client", "ip", *family, "address", "change", f"{OTHER[six]}/{bits}", "dev", "eth0", "preferred_lft", "0")
        inside("server", "ip", *family, "route", "add", "blackhole", usual)
        for kernel in KERNELS:
            line = pair.run(programs.net, kernel, "--bind", OTHER[six], six=six, **SHORT).line
            assert line["valid"], line
            assert line["evidence"]["client"]["address"] == OTHER[six]
            assert line["evidence"]["client"]["interface"] == "eth0"
        refused = pair.run(programs.net, "tcp_stream", "--bind", "fd78::7" if six else "10.78.0.7", six=six)
        assert (refused.rc, "bind: found " in refused.err) == (2, True)
        assert "allowed: an address of this node" in refused.err


@pytest.mark.promise("The flows of a client have the source ports that were asked for, one after another.")
@pytest.mark.lab
@pytest.mark.parametrize("kernel", ["tcp_stream", "udp_stream"])
def test_flows_have_the_source_ports_that_were_asked_for(programs: Programs, tmp_path: Path, kernel: str) -> None:
    asked: dict[str, Any] = {"flow_count": 3, "duration_s": ENDLESS_S, "warmup_s": 0, "rate_bps": 1_000_000}
    if kernel == "tcp_stream":
        del asked["rate_bps"]
    with joined(tmp_path) as pair:
        assert _seen_ports(pair, programs.net, kernel, source_port_first_no=7000, **asked) == {7000, 7001, 7002}
        short = {**SHORT, "flow_count": 3, "source_port_first_no": 7000}
        line = pair.run(programs.net, kernel, **short).line
        assert line["granted"]["client_source_port_no"] == 7000
        assert pair.run(programs.net, kernel, **short).rc == 0, "again, right after"


@pytest.mark.promise("A source port that is taken is passed over where there is a range, and an error where there is none.")
def test_a_taken_source_port_is_passed_over_where_there_is_a_range(server: Server) -> None:
    """Three flows of a measurement that goes on have 7400 to 7402."""
    held = server.command("udp_stream", duration_s=ENDLESS_S, flow_count=3, source_port_first_no=7400, rate_bps=1_000_000)
    with Server(server.program, server.secret) as other, subprocess.Popen(held, stdout=subprocess.DEVNULL) as client:
        try:
            wait_for(lambda: children(server.process.pid) and _udp_port_taken(7402))
            line = other.run("udp_stream", source_port_first_no=7401, source_port_last_no=7499, **SHORT).line
            assert line["granted"]["client_source_port_no"] == 7403
            done = other.run("udp_stream", source_port_first_no=7401, **SHORT)
            assert done.rc == 4
            assert "found port 7401: allowed: a port that is not taken" in done.err
        finally:
            client.terminate()
            client.wait(timeout=LIMIT_S)


def _udp_port_taken(port: int) -> bool:
    rows = Path("/proc/net/udp").read_text().splitlines()[1:]
    return any(int(row.split()[1].rpartition(":")[2], 16) == port for row in rows)


@pytest.mark.promise("A NUMA node that an end does not have is refused with those it has.")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_port_first_no": 65536}, "source_port_first_no: found 65536: allowed: integer 0 to 65535 no"),
        ({"source_port_last_no": 9}, "source_port_last_no: found 9: allowed: 0 where source_port_first_no is 0"),
        (
            {"source_port_first_no": 10, "source_port_last_no": 9},
            "source_port_last_no: found 9: allowed: 10 and more (source_port_first_no)",
        ),
        ({"source_port_first_no": 65535, "flow_count": 2}, "flow_count: found 2: allowed: 1 at most with the source ports"),
        ({"client_numa_index": 1024}, "client_numa_index: found 1024: allowed: integer -1 to 1023"),
        ({"client_numa_index": 1023}, "client_numa_index: found 1023: allowed on this client: -1, 0"),
        ({"bind_device": "no such"}, "bind_device: found no such: allowed: name of a-z, 0-9, _, . and -, 15 at most"),
    ],
)
def test_what_no_end_can_have_is_refused(server: Server, options: dict[str, Any], message: str) -> None:
    done = server.run("udp_stream", **options)
    assert done.rc == 2
    assert message in done.err


@pytest.mark.promise("A NUMA node that an end does not have is refused with those it has.")
def test_a_server_without_that_numa_node_says_so(server: Server) -> None:
    done = server.run("tcp_stream", server_numa_index=1023, **SHORT)
    assert done.rc == 3
    assert "server_numa_index: found 1023: allowed on this server: -1, 0" in done.err


@pytest.mark.promise("A bound device is read back; one that a node does not have is refused with those it has.")
@pytest.mark.lab
def test_a_bound_device_is_read_back_and_lets_no_other_bring_packets(programs: Programs, tmp_path: Path) -> None:
    with joined(tmp_path) as pair:
        for kernel in KERNELS:
            line = pair.run(programs.net, kernel, bind_device="eth0", **SHORT).line
            assert line["valid"], line
            assert [line["granted"][f"{end}_bind_device"] for end in ("client", "server")] == ["eth0", "eth0"]
        free = pair.run(programs.net, "tcp_stream", **SHORT).line
        assert not [name for name in free["granted"] if name.endswith("bind_device")]
        own = pair.run(
            programs.net, "tcp_stream", bind_device="lo", client_bind_device="eth0", server_bind_device="eth0", **SHORT
        )
        assert [own.line["granted"][f"{end}_bind_device"] for end in ("client", "server")] == ["eth0", "eth0"]
        apart = pair.run(programs.net, "tcp_stream", server_bind_device="eth9", **SHORT)
        assert "server_bind_device: found eth9: allowed on this server: system" in apart.err
        lost = pair.run(programs.net, "tcp_stream", bind_device="lo", **SHORT)
        assert lost.rc in (3, 4), "the server is not on the other side of lo"
        assert lost.line["metrics"] == {}
        unknown = pair.run(programs.net, "udp_stream", bind_device="eth7.42", **SHORT)
        assert unknown.rc in (2, 3)  # whichever end says it first
        assert "bind_device: found eth7.42: allowed on this " in unknown.err
        assert "lo eth0" in unknown.err.replace("eth0@", "eth0")


@pytest.mark.promise("With a NUMA index, memory and CPUs of an end are those of the node.")
def test_cpus_and_memory_are_those_of_the_numa_node(server: Server) -> None:
    """The last node of this machine: each CPU that the threads may use is one of it, and new memory comes from it."""
    node = sorted(int(path.name[4:]) for path in Path("/sys/devices/system/node").glob("node[0-9]*"))[-1]
    cpus = Path(f"/sys/devices/system/node/node{node}/cpulist").read_text().strip()
    options = {"client_numa_index": node, "server_numa_index": node}
    line = server.run("tcp_stream", **SHORT, **options).line
    assert [line["granted"][f"{end}_numa_index"] for end in ("client", "server")] == [node, node]
    command = server.command("tcp_stream", duration_s=ENDLESS_S, **options)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            wait_for(lambda: f"bind:{node}" in Path(f"/proc/{client.pid}/numa_maps").read_text())
            said = Path(f"/proc/{client.pid}/status").read_text()
            assert f"Cpus_allowed_list:\t{cpus}\n" in said
        finally:
            client.terminate()
            client.wait(timeout=LIMIT_S)

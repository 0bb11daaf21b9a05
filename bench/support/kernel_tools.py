"""How each public tool measures one cell of bench/kernels/peers.py: its two command lines, and where its figures stand.

A cell's figures: throughput_bps, mean_ns, p50_ns and p99_ns, of whole round trips and at the receiver. A tool that does
not give one of them has none: sockperf counts a stream at its sender, so it has no throughput here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.kernel_namespaces import ADDRESSES

SERVER = ADDRESSES["server"]
UDP_BUFFER_BYTES = 4194304
PORTS_EACH = 10  # nuttcp takes one per flow, behind that of its server
Figures = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """What is measured: every tool gets these figures."""

    name: str
    title: str
    protocol: str
    message_bytes: int
    flow_count: int
    seconds: float

    @property
    def streams(self) -> bool:
        """One way, or there and back."""
        return self.name.count("stream") > 0


CELLS = (
    Cell("tcp_stream_1", "TCP, 128 KiB writes, one flow", "tcp", 131072, 1, 1),
    Cell("tcp_stream_8", "TCP, 128 KiB writes, eight flows", "tcp", 131072, 8, 1),
    Cell("udp_stream", "UDP, 1472-byte datagrams, unlimited", "udp", 1472, 1, 1),
    Cell("udp_stream_gso", "UDP, 1472-byte datagrams, unlimited, UDP_SEGMENT and UDP_GRO", "udp", 1472, 1, 1),
    Cell("tcp_pingpong", "TCP ping-pong, 16 bytes", "tcp", 16, 1, 1),
    Cell("udp_pingpong", "UDP ping-pong, 16 bytes", "udp", 16, 1, 1),
)


@dataclass(frozen=True)
class Tool:
    """One way to measure a cell. read: what the client and then the server printed."""

    name: str
    server: list[str]
    client: list[str]
    port: str
    read: Callable[[str, str], Figures]
    ready_protocol: str = "tcp"


def floor(program: Path, cell: Cell, port: str) -> Tool:
    """The bare loop of floor.c."""
    shape = [cell.protocol, str(cell.message_bytes), str(cell.flow_count), port]
    words = ("sink", "send") if cell.streams else ("echo", "ask")

    def read(client: str, server: str) -> Figures:
        if cell.streams:
            return {"throughput_bps": float(server.rsplit(maxsplit=1)[-1])}
        return dict(zip(("mean_ns", "p50_ns", "p99_ns"), map(float, client.split()), strict=True))

    client = [str(program), words[1], *shape, SERVER, str(cell.seconds)]
    return Tool("bare loop", [str(program), words[0], *shape], client, port, read, ready_protocol=cell.protocol)


def iperf3(cell: Cell, port: str) -> Tool:
    """Throughput as the server counted it."""
    words = ["-l", str(cell.message_bytes), "-t", f"{cell.seconds:.0f}", "-P", str(cell.flow_count)]
    udp = ["-u", "-b", "0", "-w", str(UDP_BUFFER_BYTES)] if cell.protocol == "udp" else []

    def read(client: str, _: str) -> Figures:
        end = json.loads(client)["end"]
        if cell.protocol == "tcp":
            return {"throughput_bps": end["sum_received"]["bits_per_second"]}
        return {"throughput_bps": end["sum"]["bits_per_second"] * (1 - end["sum"]["lost_percent"] / 100)}

    return Tool(
        "iperf3", ["iperf3", "-s", "-1", "-p", port], ["iperf3", "-c", SERVER, "-p", port, "-J", *words, *udp], port, read
    )


def nuttcp(cell: Cell, port: str) -> Tool:
    """Throughput at the receiver."""
    flows = [f"-N{cell.flow_count}"] if cell.flow_count > 1 else []
    udp = ["-u", "-Ru", "-w4m"] if cell.protocol == "udp" else []
    words = [f"-l{cell.message_bytes}", f"-T{cell.seconds:.0f}", "-fparse", *flows, *udp]

    def read(client: str, _: str) -> Figures:
        return {"throughput_bps": 1e6 * float(_found(r"rate_Mbps=([\d.]+)", client))}

    server = ["nuttcp", "-1", "--nofork", "-P", port]
    return Tool("nuttcp", server, ["nuttcp", "-P", port, "-p", str(int(port) + 1), *words, SERVER], port, read)


def qperf(cell: Cell, port: str) -> Tool:
    """Bytes per second as received; the latency is half a round trip, and a mean."""
    test = f"{cell.protocol}_{'bw' if cell.streams else 'lat'}"
    buffers = ["-sb", str(UDP_BUFFER_BYTES)] if cell.protocol == "udp" and cell.streams else []
    words = ["-lp", port, "-t", f"{cell.seconds:.0f}", "-m", str(cell.message_bytes), *buffers, "-vvs", "-uu", test]

    def read(client: str, _: str) -> Figures:
        if cell.streams:
            return {"throughput_bps": 8 * float(_found(r"(?:recv_)?bw += +([\d.]+) bytes/sec(?!.*recv_bw)", client))}
        return {"mean_ns": 2 * float(_found(r"latency += +([\d.]+) ns", client))}

    return Tool("qperf", ["qperf", "-lp", port], ["qperf", SERVER, *words], port, read)


def sockperf(cell: Cell, port: str) -> Tool:
    """Whole round trips: the mean and the percentiles, in us."""
    tcp = ["--tcp"] if cell.protocol == "tcp" else []
    words = [*tcp, "-i", SERVER, "-p", port]

    def read(client: str, _: str) -> Figures:
        us = {
            "mean_ns": _found(r"avg-rtt=([\d.]+)", client),
            "p50_ns": _found(r"percentile 50\.000 = +([\d.]+)", client),
            "p99_ns": _found(r"percentile 99\.000 = +([\d.]+)", client),
        }
        return {name: 1e3 * float(value) for name, value in us.items()}

    client = ["sockperf", "ping-pong", "--full-rtt", *words, "-m", str(cell.message_bytes), "-t", f"{cell.seconds:.0f}"]
    return Tool("sockperf", ["sockperf", "server", *words], client, port, read, ready_protocol=cell.protocol)


def netpipe(cell: Cell, port: str) -> Tool:
    """Half a round trip, or with -s one way; the best of its seven trials, each of some tenths of a second."""
    words = ["-P", port, "-l", str(cell.message_bytes), "-u", str(cell.message_bytes), "-p", "0"]
    one_way = ["-s"] if cell.streams else []

    def read(client: str, _: str) -> Figures:
        mebibits, seconds = _found(r"\n *\d+ +([\d.]+ +[\d.]+)\s*$", client).split()
        if cell.streams:
            return {"best_throughput_bps": float(mebibits) * 1048576}
        return {"best_mean_ns": 2e9 * float(seconds)}

    server = ["NPtcp", *words, *one_way, "-o", "/dev/null"]
    return Tool("NetPIPE", server, ["NPtcp", "-h", SERVER, *words, *one_way, "-o", "/dev/stdout"], port, read)


#: Which tools measure a cell at all.
PEERS: dict[str, list[Callable[[Cell, str], Tool]]] = {
    "tcp_stream_1": [iperf3, nuttcp, qperf, netpipe],
    "tcp_stream_8": [iperf3, nuttcp],
    "udp_stream": [iperf3, nuttcp, qperf],
    "udp_stream_gso": [iperf3],
    "tcp_pingpong": [sockperf, qperf, netpipe],
    "udp_pingpong": [sockperf, qperf],
}


def tools_of(cell: Cell, program: Path, port: int) -> list[Tool]:
    """Those of a cell, the bare loop first; each on ports of its own, as a closed connection holds its port for a while."""
    peers = [one(cell, str(port + PORTS_EACH * (number + 1))) for number, one in enumerate(PEERS[cell.name])]
    return [floor(program, cell, str(port)), *peers]


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        raise RuntimeError(f"no {pattern} in: {text}")
    return found.group(1)

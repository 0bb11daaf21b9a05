"""How each public tool measures one cell of bench/kernels/peers.py: its two command lines, and where its figures stand.

A cell's figures: throughput_bps, mean_ns, p50_ns and p99_ns, of whole round trips and at the receiver, and connection_rate_pps.
A tool that does not give one of them has none: sockperf counts a stream at its sender, so it has no throughput here. neper and
netperf are in no distribution: those that their sources make are given by path.
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
PORTS_EACH = 10  # nuttcp takes one per flow, behind that of its server; it has at most eight here
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
    Cell("tcp_stream_64", "TCP, 128 KiB writes, 64 flows", "tcp", 131072, 64, 1),
    Cell("tcp_stream_small", "TCP, 64-byte writes and reads, one flow", "tcp", 64, 1, 1),
    Cell("udp_stream", "UDP, 1472-byte datagrams, unlimited", "udp", 1472, 1, 1),
    Cell("udp_stream_gso", "UDP, 1472-byte datagrams, unlimited, UDP_SEGMENT and UDP_GRO", "udp", 1472, 1, 1),
    Cell("tcp_pingpong", "TCP ping-pong, 16 bytes", "tcp", 16, 1, 1),
    Cell("udp_pingpong", "UDP ping-pong, 16 bytes", "udp", 16, 1, 1),
    Cell("tcp_connect", "TCP connections, one after the other, one byte back", "tcp", 1, 1, 1),
)


@dataclass(frozen=True)
class Given:
    """Programs that are not those of the system: iperf3, and the folders in which neper and netperf were built."""

    iperf3: str = "iperf3"
    neper: Path | None = None
    netperf: Path | None = None


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


def iperf3(cell: Cell, port: str, given: Given) -> Tool:
    """Throughput as the server counted it."""
    words = ["-l", str(cell.message_bytes), "-t", f"{cell.seconds:.0f}", "-P", str(cell.flow_count)]
    udp = ["-u", "-b", "0", "-w", str(UDP_BUFFER_BYTES)] if cell.protocol == "udp" else []

    def read(client: str, _: str) -> Figures:
        end = json.loads(client)["end"]
        if cell.protocol == "tcp":
            return {"throughput_bps": end["sum_received"]["bits_per_second"]}
        return {"throughput_bps": end["sum"]["bits_per_second"] * (1 - end["sum"]["lost_percent"] / 100)}

    server = [given.iperf3, "-s", "-1", "-p", port]
    return Tool("iperf3", server, [given.iperf3, "-c", SERVER, "-p", port, "-J", *words, *udp], port, read)


def nuttcp(cell: Cell, port: str, _: Given) -> Tool:
    """Throughput at the receiver."""
    flows = [f"-N{cell.flow_count}"] if cell.flow_count > 1 else []
    udp = ["-u", "-Ru", "-w4m"] if cell.protocol == "udp" else []
    words = [f"-l{cell.message_bytes}", f"-T{cell.seconds:.0f}", "-fparse", *flows, *udp]

    def read(client: str, _: str) -> Figures:
        return {"throughput_bps": 1e6 * float(_found(r"rate_Mbps=([\d.]+)", client))}

    server = ["nuttcp", "-1", "--nofork", "-P", port]
    return Tool("nuttcp", server, ["nuttcp", "-P", port, "-p", str(int(port) + 1), *words, SERVER], port, read)


def qperf(cell: Cell, port: str, _: Given) -> Tool:
    """Bytes per second as received; the latency is half a round trip, and a mean."""
    test = f"{cell.protocol}_{'bw' if cell.streams else 'lat'}"
    buffers = ["-sb", str(UDP_BUFFER_BYTES)] if cell.protocol == "udp" and cell.streams else []
    words = ["-lp", port, "-t", f"{cell.seconds:.0f}", "-m", str(cell.message_bytes), *buffers, "-vvs", "-uu", test]

    def read(client: str, _: str) -> Figures:
        if cell.streams:
            return {"throughput_bps": 8 * float(_found(r"(?:recv_)?bw += +([\d.]+) bytes/sec(?!.*recv_bw)", client))}
        return {"mean_ns": 2 * float(_found(r"latency += +([\d.]+) ns", client))}

    return Tool("qperf", ["qperf", "-lp", port], ["qperf", SERVER, *words], port, read)


def sockperf(cell: Cell, port: str, _: Given) -> Tool:
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


def netpipe(cell: Cell, port: str, _: Given) -> Tool:
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


def neper(cell: Cell, port: str, given: Given) -> Tool:
    """Throughput at the receiver, whole round trips, or connections with a byte there and another back."""
    assert given.neper is not None
    program = "tcp_stream" if cell.streams else "tcp_crr" if cell.name == "tcp_connect" else "tcp_rr"
    both = [str(given.neper / program), "-C", port, "-P", str(int(port) + 1), "-T", "1", "--nolog"]
    size = str(cell.message_bytes)
    both += ["-B", size] if cell.streams else ["--no-delay"] if program == "tcp_rr" else []
    words = ["-c", "-H", SERVER, "-l", f"{cell.seconds:.0f}", "-F", str(cell.flow_count)]
    words += ["--request-size", size, "--response-size", size] if program == "tcp_rr" else []

    def read(client: str, _: str) -> Figures:
        if cell.streams:
            return {"throughput_bps": float(_found(r"remote_throughput=(\d+)", client))}
        if program == "tcp_crr":
            return {"connection_rate_pps": float(_found(r"\nthroughput=([\d.]+)", client))}
        return {"mean_ns": 1e9 * float(_found(r"latency_mean=([\d.]+)", client))}

    return Tool("neper", both, [*both, *words], port, read)


def netperf(cell: Cell, port: str, given: Given) -> Tool:
    """Throughput at the receiver, whole round trips, or connections with a byte there and another back; one flow."""
    assert given.netperf is not None
    test = "TCP_STREAM" if cell.streams else "TCP_CRR" if cell.name == "tcp_connect" else "TCP_RR"
    size = str(cell.message_bytes)
    sizes = ["-m", size, "-M", size] if cell.streams else ["-r", f"{size},{size}"]
    keys = "THROUGHPUT" if cell.streams or cell.name == "tcp_connect" else "MEAN_LATENCY,P50_LATENCY,P99_LATENCY"
    unit = "m" if cell.streams else "x"  # 10^6 bit/s, or transactions
    words = ["-H", SERVER, "-p", port, "-t", test, "-l", f"{cell.seconds:.0f}", "-f", unit, "--"]
    words += [*sizes, "-P", f",{int(port) + 1}", "-k", keys]

    def read(client: str, _: str) -> Figures:
        if cell.streams:
            return {"throughput_bps": 1e6 * float(_found(r"\nTHROUGHPUT=([\d.]+)", client))}
        if cell.name == "tcp_connect":
            return {"connection_rate_pps": float(_found(r"\nTHROUGHPUT=([\d.]+)", client))}
        names = {"mean_ns": "MEAN", "p50_ns": "P50", "p99_ns": "P99"}
        return {name: 1e3 * float(_found(rf"\n{word}_LATENCY=([\d.]+)", client)) for name, word in names.items()}

    server = [str(given.netperf / "netserver"), "-D", "-f", "-L", SERVER, "-p", port]
    return Tool("netperf", server, [str(given.netperf / "netperf"), *words], port, read)


#: Which tools measure a cell at all.
PEERS: dict[str, list[Callable[[Cell, str, Given], Tool]]] = {
    "tcp_stream_1": [iperf3, nuttcp, qperf, netpipe, neper, netperf],
    "tcp_stream_8": [iperf3, nuttcp, neper],
    "tcp_stream_64": [iperf3, neper],
    "tcp_stream_small": [iperf3, neper, netperf],
    "udp_stream": [iperf3, nuttcp, qperf],
    "udp_stream_gso": [iperf3],
    "tcp_pingpong": [sockperf, qperf, netpipe, neper, netperf],
    "udp_pingpong": [sockperf, qperf],
    "tcp_connect": [neper, netperf],
}


def tools_of(cell: Cell, program: Path, port: int, given: Given) -> list[Tool]:
    """Those of a cell that are there, the bare loop first, which makes no connections; each on ports of its own, as a closed
    connection holds its port for a while."""
    absent = [one for one, folder in ((neper, given.neper), (netperf, given.netperf)) if folder is None]
    chosen = [one for one in PEERS[cell.name] if one not in absent]
    peers = [one(cell, str(port + PORTS_EACH * (number + 1)), given) for number, one in enumerate(chosen)]
    return peers if cell.name == "tcp_connect" else [floor(program, cell, str(port)), *peers]


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    if found is None:
        raise RuntimeError(f"no {pattern} in: {text}")
    return found.group(1)

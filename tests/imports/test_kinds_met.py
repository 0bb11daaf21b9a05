"""The 44 kinds of outputs that were tried first with described kernels, by program, version and options; then other versions.

Each is made here in its layout, with the figures that its first trial had: it is read right, with the description found by
itself, or refused with the true reason. Columns that nobody reads have any numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.imports.test_formats import bring, site
from tests.store.test_import import Importing

__all__ = ["site"]
pytestmark = pytest.mark.fast


@dataclass(frozen=True)
class Kind:
    """An output; the kernel it is of; metrics by size (0: it has none), those that the trial told; how many sizes it has."""

    number: int
    what: str
    text: str
    kernel: str
    values: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    size_count: int = 1
    outcome: str = "measured"
    reason: str = ""
    twice: str = ""  # the reason of a size that stands there twice

    def __str__(self) -> str:
        return f"{self.number} {self.what}"


def doubled(first: int, last: int) -> list[int]:
    found = [first]
    while found[-1] < last:
        found.append(max(1, 2 * found[-1]))
    return found


def osu(title: str, version: str, heads: str, rows: Mapping[int, str], *, before: str = "", datatype: bool = False) -> str:
    head = f"\n# OSU {title} Test v{version}\n"
    below = "# Datatype: MPI_CHAR.\n" if datatype else ""
    return before + head + f"# Size      {heads}\n" + below + "".join(f"{size:<10}{row:>18}\n" for size, row in rows.items())


def each(first: int, last: int, row: str, **known: str) -> dict[int, str]:
    return {size: known.get(f"of_{size}", row) for size in doubled(first, last)}


def imb(banner: str, name: str, heads: str, rows: str) -> str:
    head = f"#    Intel{banner}, MPI-1 part\n"
    return f"{head}# Benchmarking {name}\n# #processes = 2\n{heads}\n{rows}\n\n# All processes entering MPI_Finalize\n\n"


NCCL_OLD = """# nThread 1 nGpus 1 minBytes {first} maxBytes {last} step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.0
"""
NCCL = """{before}# nThread 1 nGpus 1 minBytes {first} maxBytes {last} step: 2(factor) iters: 20 validation: 1
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.0
"""


def nccl(
    layout: str, sizes: Sequence[int], *, ranks: int, wrong: str, busbw: float, before: str = "", between: str = ""
) -> str:
    """busbw: of the last size; the others have half of what follows."""
    root = "" if layout is NCCL_OLD else "-1 "
    rows = []
    for place, size in enumerate(sizes):
        rate = busbw / 2 ** (len(sizes) - 1 - place)
        algbw = rate * ranks / (2 * (ranks - 1))
        time = size / algbw / 1e3
        cells = f"{time:.2f} {algbw:.2f} {rate:.2f} {wrong}"
        rows.append(f" {size} {size // 4} float sum {root}{cells} {cells}\n{between}")
    return layout.format(first=sizes[0], last=sizes[-1], rows="".join(rows), before=before)


def perftest(rows: Sequence[str], unit: str = "Gb", more: str = "") -> str:
    line = "-" * 87
    head = f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]{more}"
    return "\n".join(
        [
            line,
            "                    RDMA_Write BW Test",
            " Number of qps   : 1\t\tTransport type : IB",
            line,
            head,
            *rows,
            line,
            "",
        ]
    )


def iperf3(
    version: str,
    rate_bps: float | None,
    *,
    protocol: str = "TCP",
    end: Mapping[str, Any] | None = None,
    streams: int = 1,
    twice: str = "",
    reverse: int = 0,
    error: str = "",
) -> str:
    """The JSON of a client. twice: a key that stands twice in the object of `start`, as before 3.16 with several streams."""
    started: dict[str, Any] = {"version": f"iperf {version}", "system_info": "Linux n1 6.1.0 x86_64"}
    started |= {"connecting_to": {"host": "n2", "port": 5201}, "timestamp": {"timesecs": 1763604000}}
    started |= {"test_start": {"protocol": protocol, "num_streams": streams, "blksize": 131072, "reverse": reverse}}
    if rate_bps is not None:
        size = int(rate_bps / 8)
        one = {"bytes": size, "bits_per_second": rate_bps, "retransmits": 0}
        end = {"streams": [{"sender": one, "receiver": one}], "sum_sent": one, "sum_received": one, **(end or {})}
    whole = {"start": started, "intervals": [], "end": end or {}} | ({"error": error} if error else {})
    text = json.dumps(whole, indent="\t")
    return text.replace('"version":', f'"{twice}": 0, "{twice}": 0, "version":') if twice else text


SOCKPERF = """sockperf: == version #{version} ==
[ 0] IP = 10.0.0.2        PORT = 11111 # UDP
sockperf: [Total Run] RunTime=1.050 sec; Warm up time=400 msec; SentMessages=1000; ReceivedMessages=999
sockperf: ====> {kind}={mean} (std-dev=1.000)
sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0
sockperf: ---> <MAX> observation = {most}
sockperf: ---> percentile 99.000 = {p99}
sockperf: ---> percentile 50.000 = {p50}
sockperf: ---> <MIN> observation = {least}
"""
STREAM = """STREAM version $Revision: 5.10 $
This system uses 8 bytes per array element.
Number of Threads counted = 96
Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:          340000.0     0.0100     0.0099     0.0101
Scale:         341000.0     0.0100     0.0099     0.0101
Add:           362000.0     0.0100     0.0099     0.0101
Triad:         363208.7     0.0100     0.0099     0.0101
Solution Validates: avg error less than 1.000000e-13 on all three arrays
"""
NETPERF = """MIGRATED TCP STREAM TEST from 0.0.0.0 () port 0 AF_INET to n2 () port 0 AF_INET
THROUGHPUT=1688.38
THROUGHPUT_UNITS=10^6bits/s
ELAPSED_TIME=1.00
LOCAL_BYTES_SENT=211047500
REMOTE_BYTES_RECVD=211047500
"""
NVBANDWIDTH = """nvbandwidth Version: v0.6
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    992.80
 1    992.80       N/A

SUM device_to_device_memcpy_read_ce 1985.60
"""
HPL = """HPLinpack 2.3  --  High-Performance Linpack benchmark  --   December 2, 2018
T/V                N    NB     P     Q               Time                 Gflops
WR11C2R4       20000   232     1     2              10.00             5.3335e+02
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.12e-03 ...... PASSED
End of Tests.
================"""
IMB = "       #bytes #repetitions      t[usec]   Mbytes/sec"
IMB_MULTI = "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec"

KINDS = [
    Kind(
        1,
        "OSU 5.6.3 latency of GPUs",
        osu(
            "MPI-CUDA Latency",
            "5.6.3",
            "Latency (us)",
            each(0, 4 << 20, "1.00", of_0="0.95", of_4194304="220.1"),
            before="# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n",
        ),
        "osu_latency",
        {0: {"half_round_trip_ns": 950}, 4 << 20: {"half_round_trip_ns": 220100}},
        24,
    ),
    Kind(
        2,
        "OSU 5.7.1 latency after lines of Intel MPI",
        osu(
            "MPI Latency",
            "5.7.1",
            "Latency (us)",
            {0: "25.21", 1: "25.03"},
            before="[0] MPI startup(): Intel(R) MPI Library, Version 2021.2\n[0] MPI startup(): library kind: release\n",
        ),
        "osu_latency",
        {0: {"half_round_trip_ns": 25210}, 1: {"half_round_trip_ns": 25030}},
        2,
    ),
    Kind(
        3,
        "OSU 5.7.1 bandwidth",
        osu("MPI Bandwidth", "5.7.1", "Bandwidth (MB/s)", {1: "0.60"}),
        "osu_bw",
        {1: {"throughput_bps": 4.8e6}},
    ),
    Kind(
        4,
        "OSU 5.7.1 both ways",
        osu("MPI Bi-Directional Bandwidth", "5.7.1", "Bandwidth (MB/s)", {1: "1.89"}),
        "osu_bibw",
        {1: {"throughput_bps": 15.12e6}},
    ),
    Kind(
        5,
        "OSU 5.7.1 four pairs",
        osu("MPI Multiple Bandwidth / Message Rate", "5.7.1", "MB/s        Messages/s", {4: "126.43       31608531.76"}),
        "osu_mbw_mr",
        {4: {"throughput_bps": 1011.44e6, "message_rate_pps": 31608531.76}},
    ),
    Kind(
        6,
        "OSU 5.7.1 allreduce -f",
        osu(
            "MPI Allreduce Latency",
            "5.7.1",
            "Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations",
            {4: "42.50 40.25 44.75 1000"},
        ),
        "osu_allreduce",
        {4: {"operation_mean_ns": 42500, "operation_fastest_rank_ns": 40250, "operation_slowest_rank_ns": 44750}},
    ),
    Kind(
        7,
        "OSU 5.7.1 alltoall -f",
        osu(
            "MPI All-to-All Personalized Exchange Latency",
            "5.7.1",
            "Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations",
            {1: "52.50 50.25 54.75 1000"},
        ),
        "osu_alltoall",
        {1: {"operation_mean_ns": 52500, "operation_fastest_rank_ns": 50250, "operation_slowest_rank_ns": 54750}},
    ),
    Kind(
        8,
        "OSU 5.9 latency over EFA",
        osu("MPI Latency", "5.9", "Latency (us)", each(0, 4 << 20, "16.00", of_0="15.50")),
        "osu_latency",
        {0: {"half_round_trip_ns": 15500}},
        24,
    ),
    Kind(
        9,
        "OSU 6.2 bandwidth",
        osu("MPI Bandwidth", "6.2", "Bandwidth (MB/s)", {4 << 20: "1280.00"}),
        "osu_bw",
        {4 << 20: {"throughput_bps": 10.24e9}},
    ),
    Kind(
        10,
        "OSU 7.2 latency of GPUs, datatype below the headings",
        osu("MPI-CUDA Latency", "7.2", "Avg Latency(us)", each(1, 4 << 20, "5.00", of_1="4.06"), datatype=True),
        "osu_latency",
        {1: {"half_round_trip_ns": 4060}},
        23,
    ),
    Kind(
        11,
        "OSU 7.5 bandwidth over Slingshot",
        osu("MPI Bandwidth", "7.5", "Bandwidth (MB/s)", {4 << 20: "24005.74"}),
        "osu_bw",
        {4 << 20: {"throughput_bps": 192.04592e9}},
    ),
    Kind(
        12,
        "OSU 7.5 both ways, GPUs",
        osu(
            "MPI-CUDA Bi-Directional Bandwidth",
            "7.5",
            "Bandwidth (MB/s)",
            {4 << 20: "46000.25"},
            before="# Datatype: MPI_CHAR.\n",
        ),
        "osu_bibw",
        {4 << 20: {"throughput_bps": 368.002e9}},
    ),
    Kind(
        13,
        "OSU 7.5 alltoall -d cuda",
        osu(
            "MPI-CUDA All-to-All Personalized Exchange Latency",
            "7.5",
            "Avg Latency(us)",
            each(1, 1 << 20, "30.00", of_1048576="70.25"),
        ),
        "osu_alltoall",
        {1 << 20: {"operation_mean_ns": 70250}},
        21,
    ),
    Kind(
        14,
        "OSU 7.5 bandwidth --validation",
        osu(
            "MPI Bandwidth",
            "7.5",
            "Bandwidth (MB/s)        Validation",
            {1: "0.95              Pass", 2: "1.90              Pass"},
        ),
        "osu_bw",
        {1: {"throughput_bps": 7.6e6}, 2: {"throughput_bps": 15.2e6}},
        2,
    ),
    Kind(
        15,
        "OSU 7.5 alltoall --validation",
        osu(
            "MPI All-to-All Personalized Exchange Latency",
            "7.5",
            "Avg Latency(us)        Validation",
            {1: "12.25              Pass"},
        ),
        "osu_alltoall",
        {1: {"operation_mean_ns": 12250}},
    ),
    Kind(
        16,
        "IMB 2019u6 -multi 0 PingPong",
        imb(
            "(R) MPI Benchmarks 2019 Update 6",
            "Multi-PingPong",
            IMB_MULTI,
            "  0     1000   21.00  25.00   23.00     0.00\n  1024         1000  22.00    26.00        24.00        39.38\n",
        ),
        "imb_multi_pingpong",
        {1024: {"half_round_trip_mean_ns": 24000, "slowest_pair_bps": 315.04e6}},
        2,
    ),
    Kind(
        17,
        "IMB 4.0 PingPong, whose Mbytes are 2^20 bytes",
        imb(
            " (R) MPI Benchmarks 4.0",
            "PingPong",
            IMB,
            "            0         1000         2.23         0.00\n        16384         1000         9.76      1600.76",
        ),
        "imb_pingpong",
        {16384: {"half_round_trip_ns": 9760, "throughput_bps": 1600.76 * 8 * (1 << 20)}},
        2,
    ),
    Kind(
        18,
        "nccl-tests -c 0, which did not check",
        nccl(NCCL, doubled(8, 64), ranks=2, wrong="N/A", busbw=8.0),
        "nccl_all_reduce",
        {64: {"bus_throughput_bps": 64e9}},
        4,
    ),
    Kind(
        19,
        "nccl-tests of NCCL 2.8 -b 1: sizes that are no element",
        nccl(NCCL_OLD, doubled(1 << 20, 4 << 20), ranks=8, wrong="N/A", busbw=16.0).replace(
            " 1048576 262144 float",
            2 * " 0 0 float sum 35.00 0.00 0.00 N/A 35.00 0.00 0.00 N/A\n" + " 1048576 262144 float",
        ),
        "nccl_all_reduce",
        {4 << 20: {"bus_throughput_bps": 128e9}},
        4,
        twice="table: size '0' stands twice: must stand there once",
    ),
    Kind(
        20,
        "nccl-tests of NCCL 2.8 with SHARP",
        nccl(NCCL_OLD, [1 << 29, 1 << 30], ranks=16, wrong="2e-07", busbw=40.0),
        "nccl_all_reduce",
        {1 << 30: {"bus_throughput_bps": 320e9}},
        2,
    ),
    Kind(
        21,
        "nccl-tests, lines of NCCL_DEBUG=INFO between rows",
        nccl(
            NCCL,
            doubled(1024, 8192),
            ranks=2,
            wrong="0",
            busbw=8.0,
            between="n1:4242:4243 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n",
        ),
        "nccl_all_reduce",
        {8192: {"bus_throughput_bps": 64e9}},
        4,
    ),
    Kind(
        22,
        "nccl-tests 2.17.1, eight GH200",
        nccl(
            NCCL,
            doubled(8, 128 << 20),
            ranks=8,
            wrong="0",
            busbw=122.57,
            before="# Collective test starting: all_reduce_perf\n",
        ),
        "nccl_all_reduce",
        {128 << 20: {"bus_throughput_bps": 980.56e9, "in_place_bus_throughput_bps": 980.56e9}},
        25,
    ),
    Kind(
        23,
        "rccl-tests, validation 0",
        nccl(
            NCCL,
            doubled(1 << 20, 4 << 20),
            ranks=16,
            wrong="N/A",
            busbw=160.0,
            before="# Collective test starting: all_reduce_perf\nrccl-tests: Version develop:5b27b96\n",
        ),
        "nccl_all_reduce",
        {4 << 20: {"bus_throughput_bps": 1280e9}},
        3,
    ),
    Kind(
        24,
        "ib_write_bw of 8 MiB in MB/s",
        perftest([" 8388608    20000            12010.50            12008.25                    0.001501"], "MB"),
        "perftest_write_bw",
        {8 << 20: {"throughput_bps": 12008.25 * 8 * (1 << 20)}},
    ),
    Kind(
        25,
        "ib_write_bw -a in MB/s",
        perftest(
            [
                f" {size}    5000            {size / 10:.2f}            {size / 10:.2f}                    0.104858"
                for size in doubled(2, 8 << 20)
            ],
            "MB",
        ),
        "perftest_write_bw",
        {},
        1,
        "invalid",
        "perftest_write_bw: table: 23 rows: must be exactly 1",
    ),
    Kind(
        26,
        "ib_write_bw with a column BW min",
        perftest(
            [" 65536      5000             368.67             368.48 \t\t   0.702829\t\t  0.00"], more="        BW min[Gb/sec]"
        ),
        "perftest_write_bw",
        {65536: {"throughput_bps": 368.48e9, "throughput_peak_bps": 368.67e9, "message_rate_pps": 702829}},
    ),
    Kind(
        27,
        "ib_write_bw -D 10, which has no peak",
        perftest([" 65536      1249344          0.00               109.17                0.208224"]),
        "perftest_write_bw",
        {65536: {"throughput_bps": 109.17e9, "message_rate_pps": 208224}},
    ),
    Kind(
        28,
        "ib_write_bw of 8 MiB",
        perftest([" 8388608    5000             98.03              98.03                 0.001461"]),
        "perftest_write_bw",
        {8 << 20: {"throughput_bps": 98.03e9}},
    ),
    Kind(29, "iperf3 3.0.11", iperf3("3.0.11", 934.268e6), "iperf3_tcp", {131072: {"throughput_bps": 934.268e6}}),
    Kind(
        30,
        "iperf3 3.1.3",
        iperf3("3.1.3", 388.7e6, end={"sum_sent": {"bytes": 48587500, "bits_per_second": 389e6, "retransmits": 159}}),
        "iperf3_tcp",
        {131072: {"throughput_bps": 388.7e6, "retransmit_count": 159}},
    ),
    Kind(
        31,
        "iperf3 3.1.3 over UDP, which has no rate of the receiver",
        iperf3(
            "3.1.3",
            None,
            protocol="UDP",
            end={
                "sum": {
                    "bytes": 1302528,
                    "bits_per_second": 1.04e6,
                    "jitter_ms": 0.01,
                    "lost_packets": 0,
                    "packets": 159,
                    "lost_percent": 0,
                }
            },
        ),
        "iperf3_udp",
        {131072: {"lost_ratio": 0, "sent_count": 159}},
    ),
    Kind(
        32,
        "iperf3 3.1.6, two streams",
        iperf3("3.1.6", 88.57e6, streams=2),
        "iperf3_tcp",
        {131072: {"throughput_bps": 88.57e6}},
    ),
    Kind(
        33,
        "iperf3 3.6 -P 4, a key twice",
        iperf3("3.6", 9.5e9, streams=4, twice="sock_bufsize"),
        "iperf3_tcp",
        {131072: {"throughput_bps": 9.5e9}},
    ),
    Kind(
        34,
        "iperf3 3.12 -P 4 -R, a key twice",
        iperf3("3.12", 9.25e9, streams=4, twice="sock_bufsize", reverse=1),
        "iperf3_tcp",
        {131072: {"throughput_bps": 9.25e9}},
    ),
    Kind(
        35,
        "iperf3 3.12 --bidir",
        iperf3(
            "3.12",
            8.5e9,
            streams=1,
            twice="sndbuf_actual",
            end={"sum_sent_bidir_reverse": {"bits_per_second": 7e9}, "sum_received_bidir_reverse": {"bits_per_second": 7e9}},
        ),
        "iperf3_tcp",
        {131072: {"throughput_bps": 8.5e9}},
    ),
    Kind(
        36,
        "iperf3 3.12 interrupted",
        iperf3("3.12", 0.0, error="interrupt - the client has terminated"),
        "iperf3_tcp",
        {},
        1,
        "failed",
        "iperf3_tcp: it said: interrupt - the client has terminated",
    ),
    Kind(
        37,
        "iperf3 3.12 whose server ended, exit code 0",
        iperf3("3.12", 0.0, error="the server has terminated"),
        "iperf3_tcp",
        {},
        1,
        "failed",
        "iperf3_tcp: it said: the server has terminated",
    ),
    Kind(
        38,
        "iperf3 3.12 without a server, exit code 0",
        iperf3("3.12", None, error="unable to connect to server: Connection refused"),
        "iperf3_tcp",
        {},
        1,
        "failed",
        "iperf3_tcp: it said: unable to connect to server: Connection refused",
    ),
    Kind(
        39,
        "sockperf under-load without --full-rtt",
        SOCKPERF.format(
            version="3.7",
            kind="avg-latency",
            mean="110000.000",
            most="220000.000",
            p99="200000.000",
            p50="109800.000",
            least="100.000",
        ),
        "sockperf_udp",
        {0: {"round_trip_p50_ns": 219.6e6}},
    ),
    Kind(
        40,
        "sockperf 3.10",
        SOCKPERF.format(version="3.10", kind="avg-rtt", mean="10.000", most="90.000", p99="20.000", p50="9.500", least="8.250"),
        "sockperf_udp",
        {0: {"round_trip_p50_ns": 9500, "round_trip_min_ns": 8250}},
    ),
    Kind(41, "STREAM", STREAM, "stream", {0: {"triad_bps": 2.9056696e12}}),
    Kind(42, "netperf 2.7", NETPERF, "netperf_tcp", {0: {"throughput_bps": 1688.38e6}}),
    Kind(43, "nvbandwidth 0.6", NVBANDWIDTH, "nvbandwidth", {0: {"throughput_sum_bps": 15.8848e12}}),
    Kind(44, "xhpl, no line end at its end", HPL, "hpl", {0: {"billion_operations_per_s_count": 533.35}}),
]


def perftest_latency(heads: str, row: str) -> str:
    line = "-" * 87
    return f"{line}\n                    Send Latency Test\n Number of qps   : 1\n{line}\n{heads}\n{row}\n{line}\n"


NETPERF_TABLE = """MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to n2 () port 0 AF_INET : demo
Recv   Send    Send
Socket Socket  Message  Elapsed
Size   Size    Size     Time     Throughput{more}
bytes  bytes   bytes    secs.    {unit}

 87380  16384  16384    10.01     {row}
"""
QPERF_BOTH = """tcp_bw:
    bw          =      968 Mb/sec
    msg_rate    =     1.85 K/sec
    send_bytes  =     7.26 GB
    send_msgs   =  110,808
    recv_bytes  =     7.26 GB
    recv_msgs   =  110,790
tcp_lat:
    latency         =    1.65 ms
    msg_rate        =     607 /sec
    loc_send_bytes  =       18 KiB (18,432)
    rem_recv_bytes  =    18.2 KB
"""
IOR_3_2 = """IOR-3.2.0: MPI Coordinated Test of Parallel I/O

Options:
segments            : 1
xfersize            : 262144 bytes
blocksize           : 1 MiB

Results:

access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
Commencing write performance test: Wed Jan 16 22:55:34 2019
write     2048.00    1024.00    256.00     0.000014   0.000483   0.000002   0.000499   0
Commencing read performance test: Wed Jan 16 22:55:34 2019
read      4096       1024.00    256.00     0.000002   0.000070   0.000001   0.000074   0
remove    -          -          -          -          -          -          0.000136   0
Max Write: 2048.00 MiB/sec (2147.48 MB/sec)
Max Read:  4096.00 MiB/sec (4294.97 MB/sec)
"""
SOCKPERF_OLD = (
    SOCKPERF.replace("percentile 99.000", "percentile  99.00")
    .replace("percentile 50.000", "percentile  50.00")
    .replace(" Warm up time=400 msec;", "")
)
UCX_OLD = """+--------------+-----------------------------+---------------------+-----------------------+
|              |       latency (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
| # iterations | typical | average | overall |  average |  overall |   average |   overall |
+--------------+---------+---------+---------+----------+----------+-----------+-----------+
| Test:         tag match latency                                                          |
        531233     0.912     0.941     0.941       8.11       8.11     1062466     1062466
       1000000     0.906     0.937     0.939       8.14       8.12     1066924     1064548
"""
FI_PINGPONG_ALL = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      10      =10      1.2k        0.00s      5.12      12.50       0.08
256     10      =10      5k          0.00s     18.60      13.76       0.07
"""
NCCL_ONE = nccl(NCCL, [1 << 20], ranks=2, wrong="0", busbw=50.0)

#: Other versions and options than those that were tried first, in the layouts that their sources print.
OTHERS = [
    Kind(
        101,
        "perftest before MsgRate was told",
        perftest([" 65536      5000           3100.50            3099.80"], "MB").replace("   MsgRate[Mpps]", ""),
        "perftest_write_bw",
        {65536: {"throughput_bps": 3099.80 * 8 * (1 << 20), "throughput_peak_bps": 3100.50 * 8 * (1 << 20)}},
    ),
    Kind(
        102,
        "ib_write_bw with two ports",
        perftest(
            [" 65536      5000             98.01              98.00              0.186920    49.00  0.093460  49.00 0.093460"],
            more="   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]",
        ),
        "perftest_write_bw",
        {65536: {"throughput_bps": 98e9, "message_rate_pps": 186920}},
    ),
    Kind(
        103,
        "ib_write_bw --cpu_util",
        perftest(
            [" 65536      5000             98.01              98.00              0.186920          3.12"],
            more="    CPU_Util[%]",
        ),
        "perftest_write_bw",
        {65536: {"throughput_bps": 98e9, "message_rate_pps": 186920}},
    ),
    Kind(
        104,
        "ib_send_lat before percentiles",
        perftest_latency(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]",
            " 2       1000          0.98           4.12         1.01",
        ),
        "perftest_send_lat",
        {2: {"half_round_trip_p50_ns": 1010, "half_round_trip_min_ns": 980, "half_round_trip_max_ns": 4120}},
    ),
    Kind(
        105,
        "ib_send_lat -D, which has a mean only",
        perftest_latency(
            " #bytes        #iterations       t_avg[usec]    tps average", " 2      4562331        1.09      456233.1"
        ),
        "perftest_send_lat",
        {},
        1,
        "invalid",
        "perftest_send_lat: table: 0 lines match "
        r"^ *#bytes +#iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\]: must be one",
    ),
    Kind(
        106,
        "sockperf before 3.5, which halves without saying latency",
        SOCKPERF_OLD.format(
            version="2.8", kind="avg-lat", mean="  1.403", most="  42.337", p99="   2.110", p50="   1.390", least="   1.250"
        ),
        "sockperf_udp",
        {0: {"round_trip_p50_ns": 2780, "round_trip_p99_ns": 4220, "round_trip_max_ns": 84674}},
    ),
    Kind(
        107,
        "sockperf without one answer",
        "[ 0] IP = 10.0.0.2        PORT = 11111 # UDP\nsockperf: No valid observations found.  Try a longer test\n",
        "sockperf_udp",
        {},
        1,
        "failed",
        "sockperf_udp: it said: sockperf: No valid observations found.  Try a longer test",
    ),
    Kind(
        108,
        "netperf without -k",
        NETPERF_TABLE.format(more="", unit="10^6bits/sec", row=" 934.39   "),
        "netperf_tcp",
        {0: {"throughput_bps": 934.39e6}},
    ),
    Kind(
        109,
        "netperf -c -C -f g",
        NETPERF_TABLE.format(
            more="  local    remote   local   remote",
            unit="10^9bits/s  % S      % S      us/KB   us/KB",
            row="    7.47   12.15    12.15    2133.446  2132.820",
        ),
        "netperf_tcp",
        {0: {"throughput_bps": 7.47e9}},
    ),
    Kind(
        110,
        "netperf in bytes",
        NETPERF.replace("1688.38", "100.00").replace("10^6bits/s", "MBytes/s"),
        "netperf_tcp",
        {0: {"throughput_bps": 100 * 8 * (1 << 20), "sent_bytes": 211047500}},
    ),
    Kind(
        111,
        "IOR 3.2, whose rows have two columns fewer",
        IOR_3_2,
        "ior",
        {0: {"write_bps": 2048 * 8 * (1 << 20), "read_bps": 4096 * 8 * (1 << 20)}},
    ),
    Kind(
        112,
        "OSU 7.4 bandwidth -z: one blank between headings",
        osu(
            "MPI Bandwidth",
            "7.4",
            "Bandwidth (MB/s) P50 Tail BW(MB/s) P90 Tail BW(MB/s) P99 Tail BW(MB/s)",
            {1: "1.50 1.49 1.52 1.68", 2: "3.00 1.49 1.52 1.68"},
        ),
        "osu_bw",
        {1: {"throughput_bps": 12e6}, 2: {"throughput_bps": 24e6}},
        2,
    ),
    Kind(
        113,
        "OSU bandwidth, a number more in each row than headings",
        osu("MPI Bandwidth", "7.4", "Bandwidth (MB/s)", {1: "1.50 1.49", 2: "3.00 1.49"}),
        "osu_bw",
        {},
        1,
        "invalid",
        "osu_bw: table: 3 fields for 2 columns: '1                  1.50 1.49': must be 2",
    ),
    Kind(
        114,
        "nccl-tests, wrong values, no name of the test",
        NCCL_ONE.replace(" 0\n", " 12\n").replace(": 0 OK", ": 12 FAILED"),
        "nccl_all_reduce",
        {},
        1,
        "failed",
        "nccl_all_reduce: it said: # Out of bounds values : 12 FAILED",
    ),
    Kind(
        115,
        "ucx_perftest before lines said that they are the last",
        UCX_OLD,
        "ucx_tag_lat",
        {},
        1,
        "invalid",
        r"ucx_tag_lat: half_round_trip_p50_ns: ^Final: +\d+ +(\S+)(?: +\S+){6}$ matches 0 times: must match once",
    ),
    Kind(
        116,
        "fi_pingpong of all sizes",
        FI_PINGPONG_ALL,
        "fi_pingpong",
        {},
        1,
        "invalid",
        "fi_pingpong: message_bytes: 256, 64: must be one value in the whole output",
    ),
]


@pytest.mark.promise(
    "The kinds of outputs of other people's benchmarks that were tried first are read right, or refused with the reason."
)
@pytest.mark.promise(
    "Other versions of the described programs, whose tables have more or fewer columns, are read by what their headings say."
)
@pytest.mark.parametrize("kind", [*KINDS, *OTHERS], ids=str)
def test_a_kind(site: Importing, kind: Kind) -> None:
    path = site.folder / "n1_n2.out"
    path.write_text(kind.text)
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    found = site.ask("SELECT DISTINCT kernel, outcome, coalesce(reason, '') FROM v_results ORDER BY outcome DESC")
    refused = [(kind.kernel, "invalid", f"{kind.kernel}: {kind.twice}")] if kind.twice else []
    assert found == [(kind.kernel, kind.outcome, kind.reason), *refused]
    assert site.ask("SELECT count(DISTINCT message_bytes) FROM v_results WHERE message_bytes IS NOT NULL")[0][0] in {
        0,
        kind.size_count,
    }
    for size, metrics in kind.values.items():
        values = dict(site.ask(f"SELECT metric, value FROM v_metrics WHERE coalesce(message_bytes, 0) = {size}"))
        assert {name: values[name] for name in metrics} == pytest.approx(metrics, rel=1e-4 if "bus" in str(metrics) else 1e-9)
    if kind.outcome != "measured":
        assert site.ask("SELECT count(*) FROM v_metrics") == [(0,)]


def test_all_kinds_are_there() -> None:
    assert [kind.number for kind in KINDS] == list(range(1, 45))


BOTH_WAYS = {"sum_sent_bidir_reverse": {"bits_per_second": 7e9}, "sum_received_bidir_reverse": {"bits_per_second": 7e9}}


@pytest.mark.promise("What an output says of options that change what is measured (GPUs, both ways, types) is another series.")
@pytest.mark.parametrize(
    ("one", "other", "arguments"),
    [
        (*(osu(title, "7.4", "Avg Latency(us)", {8: "1.50"}) for title in ("MPI Latency", "MPI-CUDA Latency")), "-d cuda"),
        (iperf3("3.12", 9e9), iperf3("3.12", 8.5e9, end=BOTH_WAYS), "--bidir"),
        (NCCL_ONE, NCCL_ONE.replace("262144 float", "524288 half"), "-d half"),
    ],
    ids=["OSU", "iperf3", "nccl-tests"],
)
def test_what_is_measured_otherwise_is_another_series(site: Importing, one: str, other: str, arguments: str) -> None:
    """Whoever runs it in a campaign says it as `arguments`, too."""
    for number, text in enumerate((one, other)):
        path = site.folder / f"r{number}-n1_n2.out"
        path.write_text(text)
        bring(site, "logs", path, "--names", "{run}-{client}_{server}.out")
    found = site.ask("SELECT DISTINCT series_id, json_extract(parameters, '$.arguments') FROM v_results ORDER BY 2")
    assert len({series for series, _ in found}) == 2
    assert [told for _, told in found] == [None, arguments]


def test_each_device_of_a_node_is_another_series(site: Importing) -> None:
    """Two rails between the same nodes, as perftest names them."""
    for number in (0, 1):
        path = site.folder / f"r{number}-n1_n2.out"
        text = perftest([" 65536      5000             98.01              98.00              0.186920"])
        path.write_text(
            text.replace(" Number of qps", f" Dual-port       : OFF\t\tDevice         : mlx5_{number}\n Number of qps")
        )
        bring(site, "logs", path, "--names", "{run}-{client}_{server}.out")
    found = site.ask("SELECT DISTINCT series_id, json_extract(parameters, '$.device') FROM v_results ORDER BY 2")
    assert len({series for series, _ in found}) == 2
    assert [device for _, device in found] == ["mlx5_0", "mlx5_1"]


def test_qperf_of_two_tests_and_units_of_bits(site: Importing) -> None:
    path = site.folder / "n1_n2.out"
    path.write_text(QPERF_BOTH)
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    found = dict(site.ask("SELECT metric, value FROM v_metrics WHERE metric NOT LIKE '%_bytes'"))
    assert found == pytest.approx({"throughput_bps": 968e6, "half_round_trip_mean_ns": 1.65e6})


def test_qperf_that_tells_nothing_else(site: Importing) -> None:
    """As it prints by default: the bytes that a run of hpcq wants for its proof are not there."""
    path = site.folder / "n1_n2.out"
    path.write_text("tcp_bw:\n    bw  =  1.1 GB/sec\n")
    bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert dict(site.ask("SELECT metric, value FROM v_metrics")) == pytest.approx({"throughput_bps": 8.8e9})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NETPERF.replace("MIGRATED TCP STREAM TEST", "OMNI Send TEST"), "no description reads it; it is of OMNI Send"),
        (NCCL_ONE.replace(" 50.00 50.00 ", " 50.00 49.22 "), "no description reads it"),
    ],
    ids=["netperf omni", "reduce-scatter of 64 ranks"],
)
def test_another_test_of_the_same_program_is_left_out(site: Importing, text: str, said: str) -> None:
    """netperf's omni may be of any protocol; nccl-tests did not name their test, and a reduce-scatter has the same columns."""
    path = site.folder / "n1_n2.out"
    path.write_text(text)
    assert said in bring(site, "logs", path, "--names", "{client}_{server}.out", expect=2)


@pytest.mark.promise("A row of a table that something broke is told of by `hpcq import`; the other sizes are read.")
def test_a_row_that_something_broke_is_told(site: Importing) -> None:
    text = nccl(NCCL, [1 << 20, 1 << 21], ranks=2, wrong="0", busbw=50.0)
    path = site.folder / "n1_n2.out"
    path.write_text(
        text.replace(" 1048576 262144 float sum -1 ", " 1048576 262144 float sum -1n1:42:43 [0] NCCL WARN Slow\n ", 1)
    )
    told = bring(site, "logs", path, "--names", "{client}_{server}.out")
    assert site.ask("SELECT DISTINCT message_bytes FROM v_results") == [(1 << 21,)]
    assert "fields for 13 columns" in told

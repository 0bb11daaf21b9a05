"""UDP throughput by datagram and socket buffer, and where what is missing was lost: the table of docs/transports.md.

    python bench/kernels/datagrams.py [--rounds 5]

Two namespaces behind a shaper of 100 Mbit/s and 50 ms, new for each measurement: fragments of datagrams that were never
whole stay in a receiver for 30 s (ipfrag_time), and new ones are refused when there are too many. The sender sends as
fast as its socket takes datagrams. campaigns/lab-datagrams.yaml measures the same table on the nodes of a cluster.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, claim, finish, parser
from tests.kernels.kernel_namespaces import joined
from tests.kernels.kernel_programs import make

RATE_BPS = 100e6
DURATION_S = 3.0
SIZES = (1024, 1460, 4096, 40960)
BUFFERS = (10_000, 100_000, 1_000_000, 10_000_000)
#: hpcbench (2005), UDP between two nodes of one cluster with Gigabit Ethernet; Mbit/s by datagram and buffer.
PAPER: dict[int, tuple[float | None, ...]] = {
    1460: (177.75, 557.43, 649.83, 647.75),
    4096: (147.64, 549.46, 586.02, 583.32),
    40960: (None, 567.09, 1.15, 1.13),
}
PLACES = {
    "sender's queue": (("client", "qdisc.eth0.tbf.drops"),),
    "reassembly": (("server", "snmp.Ip.ReasmFails"),),
    "receiver's socket": (("server", "snmp.Udp.RcvbufErrors"),),
}
Cell = tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """One measurement: throughput, share of datagrams lost, and each place's count of packets."""

    throughput_bps: float
    lost_ratio: float
    places: dict[str, float]


def measured(program: Path, folder: Path, cell: Cell) -> Seen | None:
    """None where the socket takes no datagram at all."""
    message_bytes, buffer_bytes = cell
    buffers: dict[str, Any] = {"send_buffer_bytes": buffer_bytes, "receive_buffer_bytes": buffer_bytes}
    with joined(folder, rate_bps=RATE_BPS) as pair:
        line = pair.run(program, "udp_stream", message_bytes=message_bytes, rate_bps=0, duration_s=DURATION_S, **buffers).line
    metrics, evidence = line["metrics"], line["evidence"]
    if not metrics.get("sent_count"):
        return None
    places = {
        place: float(sum(evidence[end]["counters"].get(name, 0) for end, name in names)) for place, names in PLACES.items()
    }
    lost = metrics["lost_count"] / metrics["sent_count"]
    return Seen(metrics.get("throughput_bps", 0.0) if line["valid"] else 0.0, lost, places)


def shown(cell: Cell, seen: list[Seen | None]) -> str:
    """A row of the table, medians."""
    message_bytes, buffer_bytes = cell
    paper = PAPER.get(message_bytes)
    theirs = paper[BUFFERS.index(buffer_bytes)] if paper else None
    head = [f"{message_bytes:,}", f"{buffer_bytes // 1000} kB"]
    known = [one for one in seen if one]
    if not known:
        return "| " + " | ".join([*head, "none sent", "", "", "" if theirs is None else f"{theirs:g}"]) + " |"
    where = {place: statistics.median(one.places[place] for one in known) for place in PLACES}
    row = [
        f"{statistics.median(one.throughput_bps for one in known) / 1e6:.1f}",
        f"{100 * statistics.median(one.lost_ratio for one in known):.1f} %",
        ", ".join(f"{place} {count:.0f}" for place, count in where.items() if count) or "nowhere",
    ]
    return "| " + " | ".join([*head, *row, "" if theirs is None else f"{theirs:g}"]) + " |"


def claims_of(found: dict[Cell, list[Seen | None]]) -> list[Claim]:
    """What the paper's table says in its shape: fragments cost something, and large datagrams fall with large buffers."""

    def throughput(cell: Cell) -> float:
        return statistics.median(one.throughput_bps if one else 0.0 for one in found[cell])

    def place(cell: Cell, name: str) -> float:
        return statistics.median(one.places[name] if one else 0.0 for one in found[cell])

    text = "datagrams of 40,960 bytes: buffers of 10 MB beside 100 kB"
    large, small = (40960, 10_000_000), (40960, 100_000)
    ratio = throughput(large) / throughput(small) if throughput(small) else 0.0
    return [
        claim(text, "throughput, ratio", "", ratio, "<= 0.2"),
        claim(text, "packets dropped by the sender's queue, with 10 MB", "count", place(large, "sender's queue"), "> 0"),
        claim(text, "packets dropped by the sender's queue, with 100 kB", "count", place(small, "sender's queue"), "<= 0"),
        claim(text, "fragments given up by the receiver, with 10 MB", "count", place(large, "reassembly"), "> 0"),
        claim(
            "4,096 bytes beside 1,460, 1 MB",
            "throughput, ratio",
            "",
            throughput((4096, 1_000_000)) / throughput((1460, 1_000_000)),
        ),
    ]


def main() -> int:
    """Measure, print the table, report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    found: dict[Cell, list[Seen | None]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        make("net", f"BUILD={folder / 'built'}")
        for _ in range(1 if chosen.quick else chosen.rounds):
            for cell in ((size, buffer_bytes) for size in SIZES for buffer_bytes in BUFFERS):
                found[cell].append(measured(folder / "built" / "hpcq-net", folder, cell))
    print(
        "| datagram, bytes | socket buffers | Mbit/s | lost | packets lost where | paper, Mbit/s |\n|---|---|---|---|---|---|"
    )
    for cell, seen in found.items():
        print(shown(cell, seen))
    return finish("datagrams", claims_of(found), quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())

"""tcp_stream with its buffers at the beginning of a page and 16 bytes after it, beside the bare loop, from start to start.

    python bench/kernels/places.py [--starts 50]

Each start has processes of its own on one CPU for each end; the order turns each round. Every figure is told with its
quartiles: how far starts of the same program lie apart is what this is about.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, finish, paired, parser
from bench.kernels.peers import FIRST_PORT, build, cpus, measured, same_congestion_control
from bench.support.kernel_tools import CELLS, floor
from tests.kernels.kernel_namespaces import Pair, joined

OFFSETS = (0, 16)
STARTS = 50
WITHIN = 1.2  # of the bare loop's ratio of the quartiles


def ours(pair: Pair, program: Path, offset_bytes: int, seconds: float) -> tuple[float, float]:
    """One start of ours: bits per second, and the receiver's CPU time for a byte in ns."""
    options: dict[str, Any] = {f"{end}_cpu_index": cpu for end, cpu in cpus().items()}
    options |= {"duration_s": seconds, "warmup_s": 0.1, "buffer_offset_bytes": offset_bytes}
    line = pair.run(program, "tcp_stream", **options).line
    if not line["valid"]:
        raise RuntimeError(line["invalid_reason"])
    return float(line["metrics"]["throughput_bps"]), float(line["metrics"]["server_cpu_per_byte_ns"])


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--starts", type=int, default=STARTS)
    chosen = options.parse_args()
    cell = next(cell for cell in CELLS if cell.name == "tcp_stream_1")
    found: dict[str | int, list[float]] = {"bare loop": [], **{offset: [] for offset in OFFSETS}}
    cost: dict[int, list[float]] = {offset: [] for offset in OFFSETS}
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        build(folder)
        with joined(folder) as pair:
            same_congestion_control()
            for number in range(4 if chosen.quick else chosen.starts):
                turn = list(found)
                for what in turn if number % 2 == 0 else reversed(turn):
                    if isinstance(what, int):
                        throughput_bps, cpu_ns = ours(pair, folder / "hpcq-net", what, cell.seconds)
                        found[what].append(throughput_bps)
                        cost[what].append(cpu_ns)
                    else:
                        tool = floor(folder / "floor", cell, str(FIRST_PORT + number))
                        found[what].append(measured(tool, cell)["throughput_bps"])
    claims = []
    loop = spread(found["bare loop"])
    for offset_bytes in OFFSETS:
        mine, text = found[offset_bytes], f"tcp_stream, {len(found[offset_bytes])} starts, buffers at {offset_bytes} of a page"
        quartiles = " to ".join(f"{one / 1e9:.3g}" for one in np.quantile(mine, (0.25, 0.75)))
        named = f"{text} (quartiles {quartiles} Gbit/s)"
        claims.append(paired(named, "throughput_bps", "bit/s", mine, peer="bare loop", theirs=found["bare loop"]))
        goal, met = (f"<= {WITHIN} of the bare loop's", spread(mine) <= WITHIN * loop) if not offset_bytes else (None, None)
        claims.append(Claim(text, "quartile_ratio", "", spread(mine), "bare loop", loop, goal=goal, met=met))
    at, beside = (f"buffers at {offset_bytes}" for offset_bytes in OFFSETS)
    claims.append(paired(f"tcp_stream, {at} of a page", "server_cpu_per_byte_ns", "ns", cost[0], peer=beside, theirs=cost[16]))
    return finish("places", claims, quick=chosen.quick)


def spread(values: list[float]) -> float:
    """The third quartile over the first."""
    low, high = np.quantile(values, (0.25, 0.75))
    return round(float(high / low), 3)


if __name__ == "__main__":
    sys.exit(main())

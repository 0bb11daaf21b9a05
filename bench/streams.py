"""TCP throughput by message and socket buffer, over three distances of the lab: the table of docs/transports.md.

    hpcq lab up --node-rate 400mbit && python bench/streams.py [--lab NAME] [--database FILE]

Runs campaigns/lab-streams.yaml (or reads a database from an earlier run). All three paths carry 400 Mbit/s: two nodes of
one leaf switch, nodes of two leaves, and the wide-area link with 2.9 ms. Where window / round trip is below that rate,
throughput must fall with distance to just that; elsewhere it must not fall. The paper's three paths were nodes of one
cluster, 1 km and 150 km of fibre (2.9 ms).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from hpcq.definition.find import LAB_FOLDER
from hpcq.kernels import size_text
from hpcq.store.database import reading

CAMPAIGN = Path(__file__).resolve().parents[1] / "campaigns" / "lab-streams.yaml"
#: Payload rate of a line of 400 Mbit/s with frames of 1,500 bytes.
LINE_BPS = 400e6 * 1448 / 1514
SIDES = ("same leaf", "another leaf", "over the link")
Cell = tuple[int, int]
#: hpcbench (2005), TCP one way, Gigabit Ethernet; Mbit/s by message and buffer: one cluster, 1 km, 150 km.
PAPER: dict[Cell, tuple[float, float, float]] = {
    (102_400, 10_000): (108.34, 88.79, 12.30),
    (102_400, 100_000): (513.86, 495.32, 152.04),
    (102_400, 1_000_000): (568.13, 565.79, 527.51),
    (102_400, 10_000_000): (587.71, 572.33, 535.40),
    (1_048_576, 10_000): (119.85, 98.41, 13.82),
    (1_048_576, 100_000): (515.47, 504.30, 157.65),
    (1_048_576, 1_000_000): (574.22, 570.44, 541.89),
    (1_048_576, 10_000_000): (589.43, 573.27, 549.20),
    (10_485_760, 10_000): (117.27, 98.22, 13.85),
    (10_485_760, 100_000): (510.82, 504.41, 155.33),
    (10_485_760, 1_000_000): (573.15, 567.08, 534.67),
    (10_485_760, 10_000_000): (590.54, 567.18, 550.14),
}
HEADS = ("message", "socket buffers", *SIDES, "window / round trip", "paper: one cluster", "1 km", "150 km")
_RUN = "(SELECT max(run) FROM v_runs WHERE campaign = 'lab-streams')"
#: Of these nodes of a cluster, n01 and n02 share a leaf switch.
_SIDE = f"""
CASE WHEN v.placement = 'link' THEN '{SIDES[2]}'
     WHEN substr(v.client, -3) < 'n03' AND substr(v.server, -3) < 'n03' THEN '{SIDES[0]}' ELSE '{SIDES[1]}' END
"""
VALUES = f"""
SELECT {_SIDE}, v.message_bytes, q.value, g.value, v.value
FROM v_results v
JOIN v_parameters q ON q.result_id = v.result_id AND q.parameter = 'receive_buffer_bytes'
JOIN v_granted g ON g.result_id = v.result_id AND g.granted = 'server_receive_buffer_bytes'
WHERE v.kernel = 'tcp_stream' AND v.outcome = 'measured' AND v.run = {_RUN}
"""
TRIPS = f"""
SELECT {_SIDE}, v.value FROM v_results v WHERE v.kernel = 'tcp_pingpong' AND v.outcome = 'measured' AND v.run = {_RUN}
"""


@dataclass(frozen=True)
class Seen:
    """A run: throughputs by message and buffer and side, usable windows by buffer, median round trips in s by side."""

    values: dict[Cell, dict[str, list[float]]]
    windows: dict[int, float]
    trips_s: dict[str, float]

    def median_bps(self, cell: Cell, side: str) -> float:
        return statistics.median(self.values[cell][side])

    def bound_bps(self, cell: Cell, side: str) -> float:
        """One window per round trip."""
        return self.windows[cell[1]] * 8 / self.trips_s[side]


def run_campaign(lab: str, folder: Path) -> Path:
    """Run the campaign on a lab and return the database."""
    environment = {**os.environ, "HPCQ_CLUSTERS": str(LAB_FOLDER / lab / "clusters")}
    words = [sys.executable, "-m", "hpcq", "run", str(CAMPAIGN)]
    subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder / "results.db"


def read(database: Path) -> Seen:
    """Read the campaign's last run."""
    values: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    windows: dict[int, float] = {}
    trips: dict[str, list[float]] = defaultdict(list)
    with reading(database) as connection:
        for side, message_bytes, buffer_bytes, granted_bytes, value in connection.execute(VALUES):
            values[message_bytes, buffer_bytes][side].append(value)
            windows[buffer_bytes] = granted_bytes / 2  # Linux keeps the other half for its own bookkeeping
        for side, value in connection.execute(TRIPS):
            trips[side].append(value / 1e9)
    return Seen(values, windows, {side: statistics.median(trips[side]) for side in SIDES})


def shown(seen: Seen, cell: Cell) -> str:
    """A row of the table."""
    bound = seen.bound_bps(cell, SIDES[2])
    ours = [f"{seen.median_bps(cell, side) / 1e6:.1f} ({len(seen.values[cell][side])})" for side in SIDES]
    law = f"{bound / 1e6:.1f}" if bound < LINE_BPS else "above the line's rate"
    return (
        "| "
        + " | ".join([size_text(cell[0]), f"{cell[1] // 1000} kB", *ours, law, *(f"{one:g}" for one in PAPER[cell])])
        + " |"
    )


def claims_of(seen: Seen) -> list[Claim]:
    """The window's law over the link; no loss with distance where the window is no limit; the message hardly matters."""
    claims = [claim(f"round trip, {side}", "tcp_pingpong median", "ms", seen.trips_s[side] * 1e3) for side in SIDES]
    for cell in PAPER:
        over, within = seen.median_bps(cell, SIDES[2]), seen.median_bps(cell, SIDES[1])
        bound = seen.bound_bps(cell, SIDES[2])
        name = f"{size_text(cell[0])}, buffers of {cell[1] // 1000} kB"
        if bound < LINE_BPS:
            claims.append(claim(f"{name}: window-limited", "over the link : window / round trip", "", over / bound, ">= 0.75"))
            claims.append(claim(f"{name}: window-limited", "over the link : another leaf", "", over / within, "<= 0.75"))
        else:
            claims.append(claim(f"{name}: not window-limited", "over the link : another leaf", "", over / within, ">= 0.8"))
    for buffer_bytes in sorted(seen.windows):
        rates = [
            seen.median_bps((message_bytes, buffer_bytes), SIDES[2]) for message_bytes in sorted({one for one, _ in PAPER})
        ]
        text = f"over the link, buffers of {buffer_bytes // 1000} kB: 100 KiB to 10 MiB per message"
        claims.append(claim(text, "slowest : fastest message", "", min(rates) / max(rates), ">= 0.8"))
    return claims


def main() -> int:
    """Measure or read, print the table, report."""
    options = parser(__doc__.partition("\n")[0], seed=0)
    options.add_argument("--lab", default="hpcq", help="name of the lab (default %(default)s)")
    options.add_argument("--database", type=Path, help="read this database instead of running the campaign")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = read(given.database or run_campaign(given.lab, Path(folder)))
    trips = ", ".join(f"{side} {seen.trips_s[side] * 1e3:.2f} ms" for side in SIDES)
    print(f"Round trips: {trips}. Mbit/s, medians (n).\n")
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    for cell in PAPER:
        print(shown(seen, cell))
    print()
    return finish("streams", claims_of(seen), quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

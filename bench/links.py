"""TCP throughput by socket buffer, within the lab's clusters and over its wide-area link: the effect of the window.

    hpcq lab up --node-rate none && python bench/links.py [--lab NAME] [--database FILE]

Runs campaigns/lab-links.yaml (or reads a database from an earlier run) and prints the table of docs/links.md. The
window limits a row if window / round trip is below the line's 400 Mbit/s: then throughput must fall with distance to
just that. The other rows must not fall. The paper's link had 2.9 ms and about 540 Mbit/s; see the last columns.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from hpcq.definition.find import LAB_FOLDER

CAMPAIGN = Path(__file__).resolve().parents[1] / "campaigns" / "lab-links.yaml"
#: Payload rate of a line of 400 Mbit/s with frames of 1,500 bytes.
LINE_BPS = 400e6 * 1448 / 1514
#: hpcbench (2005), table 2, messages of 1 MiB: within a cluster, and over 150 km of fibre; Mbit/s by buffer.
PAPER = {10_000: (119.85, 13.82), 100_000: (515.47, 157.65), 1_000_000: (574.22, 541.89), 10_000_000: (589.43, 549.20)}

HEADS = (
    *("socket buffers", "within a cluster", "over the link", "window / round trip", "over : within"),
    *("paper, within", "paper, over", "paper, over : within"),
)
VALUES = """
SELECT v.placement, v.value, q.value AS buffer_bytes, g.value AS granted_bytes
FROM v_results v
JOIN v_parameters q ON q.result_id = v.result_id AND q.parameter = 'receive_buffer_bytes'
JOIN v_granted g ON g.result_id = v.result_id AND g.granted = 'server_receive_buffer_bytes'
WHERE v.kernel = 'tcp_stream' AND v.outcome = 'measured' AND v.run = (SELECT max(run) FROM v_runs WHERE campaign = 'lab-links')
"""
TRIPS = """
SELECT value FROM v_results WHERE kernel = 'tcp_pingpong' AND placement = 'link' AND outcome = 'measured'
AND run = (SELECT max(run) FROM v_runs WHERE campaign = 'lab-links')
"""


def run_campaign(lab: str, folder: Path) -> Path:
    """Run the campaign on a lab and return the database."""
    environment = {**os.environ, "HPCQ_CLUSTERS": str(LAB_FOLDER / lab / "clusters")}
    words = [sys.executable, "-m", "hpcq", "run", str(CAMPAIGN)]
    subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder / "results.db"


def read(database: Path) -> tuple[dict[int, dict[str, list[float]]], dict[int, float], float]:
    """Throughputs by buffer and placement, usable windows by buffer, and the link's median round trip in seconds."""
    values: dict[int, dict[str, list[float]]] = {}
    windows: dict[int, float] = {}
    with closing(sqlite3.connect(database)) as connection:
        for placement, value, buffer_bytes, granted_bytes in connection.execute(VALUES):
            values.setdefault(buffer_bytes, {}).setdefault(placement, []).append(value)
            windows[buffer_bytes] = granted_bytes / 2  # Linux keeps the other half for its own bookkeeping
        trip_s = statistics.median(row[0] for row in connection.execute(TRIPS)) / 1e9
    return values, windows, trip_s


def judge(database: Path) -> list[Claim]:
    """Print the table and return its claims."""
    values, windows, trip_s = read(database)
    claims = [claim("round trip over the link", "tcp_pingpong median", "ms", trip_s * 1e3)]
    print(f"Round trip over the link {trip_s * 1e3:.2f} ms; Mbit/s, medians (n).\n")
    print("| " + " | ".join(HEADS) + " |\n" + "|---" * len(HEADS) + "|")
    for buffer_bytes, by_placement in sorted(values.items()):
        within, over = (statistics.median(by_placement[placement]) for placement in ("cluster", "link"))
        bound = windows[buffer_bytes] * 8 / trip_s
        paper_within, paper_over = PAPER[buffer_bytes]
        counts = [len(by_placement[placement]) for placement in ("cluster", "link")]
        shown = [
            f"{buffer_bytes // 1000} kB",
            f"{within / 1e6:.0f} ({counts[0]})",
            f"{over / 1e6:.1f} ({counts[1]})",
            f"{bound / 1e6:.1f}" if bound < LINE_BPS else "above the line's rate",
            f"{over / within:.2f}",
            f"{paper_within:.0f}",
            f"{paper_over:.1f}",
            f"{paper_over / paper_within:.2f}",
        ]
        print("| " + " | ".join(shown) + " |")
        name = f"buffers of {buffer_bytes // 1000} kB"
        if bound < LINE_BPS:
            claims.append(claim(f"{name}: window-limited", "over the link : window / round trip", "", over / bound, ">= 0.75"))
            claims.append(claim(f"{name}: window-limited", "over the link : within", "", over / within, "<= 0.75"))
        else:
            claims.append(claim(f"{name}: not window-limited", "over the link : within", "", over / within, ">= 0.8"))
    print()
    return claims


def main() -> int:
    options = parser(__doc__.partition("\n")[0], seed=0)
    options.add_argument("--lab", default="hpcq", help="name of the lab (default %(default)s)")
    options.add_argument("--database", type=Path, help="read this database instead of running the campaign")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        claims = judge(given.database or run_campaign(given.lab, Path(folder)))
    return finish("links", claims, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

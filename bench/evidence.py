"""The cost of evidence, and whether it changes a result: kernels with snapshots against a build without them.

    python bench/evidence.py [--rounds 15]

Both builds measure in turn over loopback with the same parameters, each with its own servers. The snapshots lie outside
the measured time, so the interval of the ratio of results should contain 1. The kernels report the cost themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, alternate, claim, finish, paired, parser
from hpcq import assets

#: kernel, its parameters, the compared metric, bound of the ratio with / without
TESTS = (
    ("tcp_pingpong", {"message_bytes": 1, "duration_s": 0.4, "warmup_s": 0.1}, "round_trip_p50_ns", "<= 1.05"),
    ("udp_pingpong", {"message_bytes": 64, "duration_s": 0.4, "warmup_s": 0.1}, "round_trip_p50_ns", "<= 1.05"),
    ("tcp_stream", {"message_bytes": 131072, "duration_s": 0.4, "warmup_s": 0.1}, "throughput_bps", ">= 0.95"),
)


def build(folder: Path, name: str, flags: str) -> Path:
    """Build hpcq-net with these flags."""
    target = folder / name
    words = ["make", "-s", "-C", str(assets.kernel_sources()), f"BUILD={target}", f"CFLAGS={flags}", "net"]
    subprocess.run(words, check=True)
    return target / "hpcq-net"


@contextmanager
def serving(program: Path, secret: Path) -> Iterator[int]:
    """A server on loopback; yields its port."""
    words = [str(program), "server", "--bind", "127.0.0.1", "--secret-file", str(secret)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["ready"]["port"]
        finally:
            server.terminate()


def measure(program: Path, port: int, secret: Path, kernel: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """One result line."""
    words = [str(program), kernel, "--to", "127.0.0.1", "--port", str(port), "--secret-file", str(secret)]
    for name, value in parameters.items():
        words += [f"--{name}", str(value)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    line: dict[str, Any] = json.loads(done.stdout)
    return line


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, default=15)
    chosen = options.parse_args()
    rounds = 3 if chosen.quick else chosen.rounds
    claims: list[Claim] = []
    costs_ms: list[float] = []
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text("ab" * 32)
        ours, bare = build(folder, "with", "-O2"), build(folder, "without", "-O2 -DHPCQ_WITHOUT_SNAPSHOTS")
        with serving(ours, secret) as port, serving(bare, secret) as bare_port:
            for kernel, parameters, metric, goal in TESTS:

                def with_evidence(kernel: str = kernel, parameters: dict[str, Any] = parameters, metric: str = metric) -> float:
                    line = measure(ours, port, secret, kernel, parameters)
                    costs_ms.extend(sum(end["snapshot_cost_ns"]) / 1e6 for end in line["evidence"].values())
                    return float(line["metrics"][metric])

                def without(kernel: str = kernel, parameters: dict[str, Any] = parameters, metric: str = metric) -> float:
                    return float(measure(bare, bare_port, secret, kernel, parameters)["metrics"][metric])

                with_evidence(), without()
                mine, theirs = alternate(with_evidence, without, rounds)
                unit = metric.rpartition("_")[2]
                claims.append(
                    paired(f"{kernel} with its snapshots", metric, unit, mine, peer="without", theirs=theirs, goal=goal)
                )
    costs_ms.sort()
    median_ms = costs_ms[len(costs_ms) // 2]
    claims.append(claim("both snapshots of one end, median", "cost", "ms", median_ms, "< 5"))
    claims.append(claim("both snapshots of one end, worst of all", "cost", "ms", costs_ms[-1]))
    return finish("evidence", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())

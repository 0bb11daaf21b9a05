"""hpcq-fabric against fi_pingpong of the same libfabric, ping-pongs of one size over shm and over tcp on this machine.

    python bench/kernels/fabric_peers.py [--rounds 20] [--realtime]

Each end has a CPU of its own, each round starts all processes anew, and the order turns. A figure is half of the mean round
trip: of fi_pingpong, bytes over its MB/sec, which has more digits than its usec/xfer; it has no warm-up, so it gets as many
round trips as make its beginning small. Ours is as good where the whole interval of the paired ratio lies above 0.97; rounds
are added, to three times as many, until the interval is at most 3 % wide on either side and decides. --realtime: both ends run
at a real-time priority (chrt, which needs root), so that other work on this machine takes no CPU from them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import NON_INFERIOR_RATIO, Claim, alternate, finish, is_narrow, non_inferior, paired, paired_ratio, parser
from tests.kernels.kernel_programs import make

#: Provider, message_bytes, round trips of fi_pingpong: some tenths of a second.
CELLS = (("shm", 64, 500_000), ("shm", 65_536, 50_000), ("tcp", 64, 30_000), ("tcp", 65_536, 10_000))
SECONDS, LIMIT_S, ROUNDS_FACTOR, TRIES = 0.3, 60, 3, 3
PRIORITY = 20


def placed(end: int, words: Sequence[str], *, realtime: bool) -> list[str]:
    """A command on the CPU of an end: 0 the server's, 1 the client's."""
    allowed = sorted(os.sched_getaffinity(0))
    cpu = allowed[0] if end == 0 else allowed[-1]
    return [*(["chrt", "-f", str(PRIORITY)] if realtime else []), "taskset", "-c", str(cpu), *words]


def both(server: Sequence[str], client: Sequence[str], ready: str, *, realtime: bool) -> str:
    """What the client wrote. ready: what stands in the server's output once it is; empty: it has a port by then."""
    with subprocess.Popen(
        placed(0, server, realtime=realtime), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        try:
            if ready and started.stdout is not None:
                assert ready in started.stdout.readline()
            else:
                time.sleep(0.3)
            words = placed(1, client, realtime=realtime)
            return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        finally:
            with suppress(subprocess.TimeoutExpired):
                started.wait(timeout=0.5)
            started.terminate()


def theirs_ns(provider: str, message_bytes: int, count: int, *, realtime: bool) -> float:
    """Half of the mean round trip of fi_pingpong; it is started again where its connection failed."""
    words = ["fi_pingpong", "-p", provider, "-e", "rdm", "-I", str(count), "-S", str(message_bytes)]
    for _ in range(TRIES):
        with suppress(subprocess.SubprocessError):
            said = both([*words, "-B", "47592"], [*words, "-P", "47592", "127.0.0.1"], "", realtime=realtime)
            found = re.search(r"^\S+ +\S+ +=\S+ +\S+ +\S+s +([\d.]+) ", said, re.MULTILINE)
            if found:
                return message_bytes / float(found[1]) * 1e3
    raise RuntimeError(f"fi_pingpong over {provider} failed {TRIES} times")


def ours_ns(program: Path, secret: Path, provider: str, message_bytes: int, *, realtime: bool) -> float:
    """Half of the mean round trip of fabric_pingpong."""
    access = ["--secret-file", str(secret), "--port", "47600"]
    client = [str(program), "fabric_pingpong", "--to", "127.0.0.1", *access, "--provider", provider]
    client += ["--message_bytes", str(message_bytes), "--duration_s", str(SECONDS), "--warmup_s", "0.05"]
    server = [str(program), "server", "--bind", "127.0.0.1", *access, "--sessions", "1"]
    line = json.loads(both(server, client, "ready", realtime=realtime))
    if not line["valid"]:
        raise RuntimeError(f"fabric_pingpong over {provider}: {line['invalid_reason']}")
    return float(line["metrics"]["round_trip_mean_ns"]) / 2


def measured(program: Path, secret: Path, cell: tuple[str, int, int], rounds: int, *, realtime: bool) -> Claim:
    """One provider and size, after as many rounds as the claim needs."""
    provider, message_bytes, count = cell
    mine = partial(ours_ns, program, secret, provider, message_bytes, realtime=realtime)
    other = partial(theirs_ns, provider, message_bytes, count, realtime=realtime)
    ours, theirs = list[float](), list[float]()
    for _ in range(ROUNDS_FACTOR):
        more = alternate(mine, other, rounds)
        ours, theirs = [*ours, *more[0]], [*theirs, *more[1]]
        middle, low, high = paired_ratio(ours, theirs)
        met = non_inferior(low, high, higher_is_better=False)
        if met is not None and is_narrow(middle, low, high):
            break
    how = "; real-time priority" if realtime else ""
    text = f"{message_bytes} bytes over {provider}, {len(ours)} rounds{how}"
    plain = paired(text, "half of the mean round trip", "ns", ours, peer="fi_pingpong", theirs=theirs)
    return replace(plain, goal=f"whole interval at most {1 / NON_INFERIOR_RATIO:.3g}", met=met)


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--realtime", action="store_true")
    chosen = options.parse_args()
    if shutil.which("fi_pingpong") is None:
        print("fi_pingpong: not found: apt-get install libfabric-bin", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        make("fabric", f"BUILD={folder}")
        secret = folder / "secret"
        secret.write_text("5" * 64)
        secret.chmod(0o600)
        rounds = 2 if chosen.quick else chosen.rounds
        program = folder / "hpcq-fabric"
        claims = [measured(program, secret, cell, rounds, realtime=chosen.realtime) for cell in CELLS]
    return finish("fabric_peers", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())

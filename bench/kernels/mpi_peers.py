"""hpcq-mpi against NetPIPE's MPI version (Debian: netpipe-openmpi), both under Open MPI over TCP on one machine.

    python bench/kernels/mpi_peers.py [--rounds 20]

Both ranks are on this machine and send over lo, so the path is the same for both; each round starts both programs, and
the order turns. Both use one warm buffer per direction. NetPIPE reports the fastest of seven trials of N messages each. So
the samples of hpcq, in the order in which they were measured, are taken as seven trials too, and the fastest one counts: a
mean over all of them is slower by what disturbs some of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, alternate, claim, finish, paired, parser

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ("mpirun.openmpi", "--oversubscribe")
#: For both: TCP over lo, and no yielding.
SETTINGS = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
LIMIT_S = 60
#: Name, message_bytes, messages of a NetPIPE trial, whether it streams.
CELLS = (("ping-pong", 1024, 8_000, False), ("ping-pong", 65_536, 2_000, False), ("stream", 65_536, 2_000, True))
WITHIN = 0.03
TRIALS, WINDOW = 7, 1000


def run(words: list[str], folder: Path, ranks: int = 2, before: tuple[str, ...] = ()) -> str:
    done = subprocess.run(
        [*before, *LAUNCHER, "-np", str(ranks), *words],
        cwd=folder,
        env={**os.environ, **SETTINGS},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return done.stdout


def built(folder: Path) -> Path:
    """hpcq-mpi, built there."""
    make = ["make", "-s", "-C", str(ROOT / "kernels" / "c"), f"BUILD={folder}", "MPICC=mpicc.openmpi", "mpi"]
    subprocess.run(make, check=True)
    return folder / "hpcq-mpi"


def netpipe_bps(folder: Path, message_bytes: int, count: int, *, streams: bool) -> float:
    """NetPIPE counts megabits of 2^20."""
    size = str(message_bytes)
    words = ["NPopenmpi", *(["-s"] if streams else []), "-l", size, "-u", size, "-p", "0", "-n", str(count), "-o", "np.out"]
    run(words, folder)
    return float((folder / "np.out").read_text().split()[1]) * (1 << 20)


def ours_bps(program: Path, folder: Path, message_bytes: int, count: int, *, streams: bool) -> float:
    """The fastest of seven trials, from round trips, or from windows of WINDOW messages."""
    window = ["--window_count", str(WINDOW), "--call", "blocking"]
    kernel, options = ("mpi_stream", window) if streams else ("mpi_pingpong", [])
    each = count // WINDOW if streams else count
    words = [str(program), kernel, "--interface", "lo", "--message_bytes", str(message_bytes), *options]
    words += ["--duration_s", "30", "--warmup_s", "0.2", "--operation_count_max", str(TRIALS * each)]
    run([*words, "--samples-file", "samples"], folder)
    samples_ns = np.fromfile(folder / "samples", dtype="<u8")
    assert len(samples_ns) == TRIALS * each, len(samples_ns)
    fastest_ns = float(samples_ns.reshape(TRIALS, each).mean(axis=1).min())
    return (WINDOW if streams else 2) * 8e9 * message_bytes / fastest_ns


def cells(program: Path, folder: Path, rounds: int) -> list[Claim]:
    claims = []
    for name, message_bytes, count, streams in CELLS:
        mine = partial(ours_bps, program, folder, message_bytes, count, streams=streams)
        theirs = partial(netpipe_bps, folder, message_bytes, count, streams=streams)
        ours, peer = alternate(mine, theirs, rounds)
        text = f"{name} of {message_bytes} bytes over TCP agrees with NetPIPE"
        one = paired(text, "throughput_bps", "bps", ours, peer="NPopenmpi", theirs=peer)
        claims.append(one)
        assert one.ratio is not None
        claims.append(claim(f"{text}: off by", "share", "share", abs(one.ratio - 1), f"<= {WITHIN}"))
    return claims


def main() -> int:
    found = parser(__doc__ or "", 1)
    found.add_argument("--rounds", type=int, default=20)
    given = found.parse_args()
    if shutil.which("NPopenmpi") is None:
        print("NPopenmpi: not found: apt-get install netpipe-openmpi", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        claims = cells(built(folder), folder, 2 if given.quick else given.rounds)
    return finish("mpi_peers", claims, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

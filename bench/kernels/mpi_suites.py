"""hpcq-mpi against the Intel MPI Benchmarks and the OSU micro-benchmarks: ping-pong of 2 ranks, collectives of 4.

    python bench/kernels/mpi_suites.py --imb .../IMB-MPI1 --osu .../osu/build [--rounds 20]

Both are built elsewhere, with mpicc.openmpi and -O2. All ranks are on this machine, each bound to a core, and send through
its memory. Each round starts all three programs; who is first turns. All three report the same: the mean time of as many
operations, from one warm buffer and into another, for collectives over all ranks, with a barrier before each operation.
What is judged is the median ratio of launches that followed each other. Our buffers and those of OSU begin at a page,
those of IMB where malloc() puts them, which costs it up to a tenth where the library copies.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, claim, finish, paired, parser
from bench.kernels.mpi_peers import WITHIN, built, run

BOUND = ("--bind-to", "core", "--map-by", "core", "--mca", "btl", "vader,self")


@dataclass(frozen=True)
class Cell:
    """One operation of `ranks` ranks: as hpcq, IMB and OSU call it."""

    name: str
    ranks: int
    message_bytes: int
    count: int

    @property
    def text(self) -> str:
        """What a claim says of it."""
        return f"{self.name.lower()} of {self.message_bytes} bytes, {self.ranks} ranks"


CELLS = (
    Cell("PingPong", 2, 8192, 1000),
    Cell("PingPong", 2, 65_536, 500),
    Cell("Allreduce", 4, 8192, 500),
    Cell("Allreduce", 4, 65_536, 200),
    Cell("Alltoall", 4, 1024, 500),
    Cell("Alltoall", 4, 16_384, 300),
)


def launched(cell: Cell, words: list[str], folder: Path) -> str:
    return run([*BOUND, *words], folder, cell.ranks)


def ours_us(program: Path, folder: Path, cell: Cell) -> float:
    """Half the mean round trip; of collectives the mean over ranks."""
    pairs = cell.ranks == 2
    kernel = ["mpi_pingpong", "--buffers", "separate"] if pairs else ["mpi_collective", "--operation", cell.name.lower()]
    words = [str(program), *kernel, "--interface", "lo", "--message_bytes", str(cell.message_bytes)]
    words += ["--duration_s", "30", "--warmup_s", "0.05", "--operation_count_max", str(cell.count)]
    metrics = json.loads(launched(cell, words, folder))["metrics"]
    return float(metrics["round_trip_mean_ns"]) / 2e3 if pairs else float(metrics["rank_mean_ns"]) / 1e3


def imb_us(program: Path, folder: Path, cell: Cell) -> float:
    (folder / "sizes").write_text(f"{cell.message_bytes}\n")
    words = ["-msglen", "sizes", "-iter", str(cell.count), "-iter_policy", "off", "-time", "60", "-npmin", str(cell.ranks)]
    words += ["-red_data_type", "int"]
    text = launched(cell, [str(program), *words, cell.name], folder)
    row = _row(text, cell)
    return row[2] if cell.ranks == 2 else row[4]


def osu_us(build: Path, folder: Path, cell: Cell) -> float:
    name = "pt2pt/standard/osu_latency" if cell.ranks == 2 else f"collective/blocking/osu_{cell.name.lower()}"
    size = str(cell.message_bytes)
    words = ["-m", f"{size}:{size}", "-i", str(cell.count), "-x", "500"]
    if cell.name == "Allreduce":
        words += ["-T", "mpi_int"]
    return _row(launched(cell, [str(build / "c" / "mpi" / name), *words], folder), cell)[1]


def _row(text: str, cell: Cell) -> list[float]:
    """The figures in the line that begins with the size."""
    found = re.search(rf"^ *{cell.message_bytes}( +[\d.]+)+ *$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no row of {cell.message_bytes} bytes in: {text}")
    return [float(word) for word in found[0].split()]


def in_turn(calls: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """What each call returned, `rounds` times; another one is the first in each round."""
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for place in range(len(calls)):
            chosen = (number + place) % len(calls)
            found[chosen].append(calls[chosen]())
    return found


def cells(program: Path, suites: dict[str, Callable[[Path, Cell], float]], folder: Path, rounds: int) -> list[Claim]:
    claims = []
    for cell in CELLS:
        calls = [partial(ours_us, program, folder, cell), *(partial(one, folder, cell) for one in suites.values())]
        ours, *others = in_turn(calls, rounds)
        for name, theirs in zip(suites, others, strict=True):
            beside = paired(f"{cell.text}: beside {name}", "mean time", "us", ours, peer=name, theirs=theirs)
            off = abs((beside.ratio or 0) - 1)
            claims += [beside, claim(f"{cell.text}: off {name} by", "share", "share", off, f"<= {WITHIN}")]
    return claims


def main() -> int:
    found = parser(__doc__ or "", 1)
    found.add_argument("--rounds", type=int, default=20)
    found.add_argument("--imb", type=Path, help="the program IMB-MPI1")
    found.add_argument("--osu", type=Path, help="the folder where the OSU micro-benchmarks were built")
    given = found.parse_args()
    suites: dict[str, Callable[[Path, Cell], float]] = {}
    if given.imb is not None:
        suites["IMB"] = partial(imb_us, given.imb.resolve())
    if given.osu is not None:
        suites["OSU"] = partial(osu_us, given.osu.resolve())
    if not suites:
        print("neither --imb nor --osu: nothing to compare with", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            claims = cells(built(folder), suites, folder, 2 if given.quick else given.rounds)
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            raise
    return finish("mpi_suites", claims, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

"""hpcq-mpi against the Intel MPI Benchmarks and the OSU micro-benchmarks: ping-pong of 2 ranks, collectives of 4.

    python bench/kernels/mpi_suites.py --imb .../IMB-MPI1 --osu .../osu/build [--rounds 20] [--real-time]

Both are built elsewhere, with mpicc.openmpi and -O2. All ranks are on this machine and send through its memory. Each round
starts all programs; who is first turns. What is judged is the median ratio of launches that followed each other. For the
ratio to tell of the programs, all do the same and are asked the same:

    statistic    the mean of as many operations; of collectives the mean over ranks, not our samples' longest of any rank
    warm-up      as many operations as are measured (IMB: its own tenth, so the counts are large)
    barrier      before each operation of a collective, not timed; none between round trips
    sender       IMB's PingPong receives from any source, so PingPongSpecificSource is what is like ours and OSU's
    buffers      one to send from, one to receive into. OSU's begin at a page. IMB's come from malloc(), 16 bytes apart within
                 a cache line, where copies take up to a fifth longer: so do ours with buffer_offset_bytes: 16
    other work   --real-time gives the launches the scheduling class FIFO (as root), so nothing else delays a rank
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.harness import Claim, claim, finish, paired, parser
from bench.kernels.mpi_peers import WITHIN, built, run

#: Rank after rank bound to a core, and begun again where there are fewer: which of them share one would differ by launch.
BOUND = ("--bind-to", "core:overload-allowed", "--map-by", "core", "--mca", "btl", "vader,self")
REAL_TIME = ("chrt", "--fifo", "5")
#: As malloc() places IMB's buffers.
MALLOC_BYTES = 16
#: Between launches in the class FIFO, for all others on the machine.
PAUSE_S = 0.3


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
    Cell("PingPong", 2, 8192, 20_000),
    Cell("PingPong", 2, 65_536, 4_000),
    Cell("Allreduce", 4, 8192, 2_000),
    Cell("Allreduce", 4, 65_536, 800),
    Cell("Alltoall", 4, 1024, 4_000),
    Cell("Alltoall", 4, 16_384, 1_500),
)


@dataclass(frozen=True)
class Machine:
    """Where launches run, and in which scheduling class."""

    folder: Path
    real_time: bool

    def launched(self, cell: Cell, words: list[str]) -> str:
        """What rank 0 printed."""
        if not self.real_time:
            return run([*BOUND, *words], self.folder, cell.ranks)
        time.sleep(PAUSE_S)
        return run([*BOUND, *words], self.folder, cell.ranks, REAL_TIME)


def ours_us(program: Path, offset_bytes: int, machine: Machine, cell: Cell) -> float:
    """Half the mean round trip; of collectives the mean over ranks."""
    pairs = cell.ranks == 2
    kernel = ["mpi_pingpong", "--buffers", "separate"] if pairs else ["mpi_collective", "--operation", cell.name.lower()]
    words = [str(program), *kernel, "--interface", "lo", "--message_bytes", str(cell.message_bytes)]
    words += ["--duration_s", "30", "--warmup_s", "0.05", "--operation_count_max", str(cell.count)]
    words += ["--buffer_offset_bytes", str(offset_bytes)]
    metrics = json.loads(machine.launched(cell, words))["metrics"]
    return float(metrics["round_trip_mean_ns"]) / 2e3 if pairs else float(metrics["rank_mean_ns"]) / 1e3


def imb_us(program: Path, machine: Machine, cell: Cell) -> float:
    (machine.folder / "sizes").write_text(f"{cell.message_bytes}\n")
    words = ["-msglen", "sizes", "-iter", str(cell.count), "-iter_policy", "off", "-time", "60", "-npmin", str(cell.ranks)]
    words += ["-red_data_type", "int"]
    name = "PingPongSpecificSource" if cell.ranks == 2 else cell.name
    row = _row(machine.launched(cell, [str(program), *words, name]), cell)
    return row[2] if cell.ranks == 2 else row[4]


def osu_us(build: Path, machine: Machine, cell: Cell) -> float:
    name = "pt2pt/standard/osu_latency" if cell.ranks == 2 else f"collective/blocking/osu_{cell.name.lower()}"
    size, count = str(cell.message_bytes), str(cell.count)
    words = ["-m", f"{size}:{size}", "-i", count, "-x", count]
    if cell.name == "Allreduce":
        words += ["-T", "mpi_int"]
    return _row(machine.launched(cell, [str(build / "c" / "mpi" / name), *words]), cell)[1]


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


#: One of the suites, and where its buffers begin in a page.
Suite = tuple[Callable[[Machine, Cell], float], int]


def cells(program: Path, suites: dict[str, Suite], machine: Machine, rounds: int) -> list[Claim]:
    claims = []
    for cell in CELLS:
        calls = []
        for measure, offset_bytes in suites.values():
            calls += [partial(ours_us, program, offset_bytes, machine, cell), partial(measure, machine, cell)]
        found = in_turn(calls, rounds)
        for name, ours, theirs in zip(suites, found[::2], found[1::2], strict=True):
            beside = paired(f"{cell.text}: beside {name}", "mean time", "us", ours, peer=name, theirs=theirs)
            off = abs((beside.ratio or 0) - 1)
            claims += [beside, claim(f"{cell.text}: off {name} by", "share", "share", off, f"<= {WITHIN}")]
    return claims


def main() -> int:
    found = parser(__doc__ or "", 1)
    found.add_argument("--rounds", type=int, default=20)
    found.add_argument("--imb", type=Path, help="the program IMB-MPI1")
    found.add_argument("--osu", type=Path, help="the folder where the OSU micro-benchmarks were built")
    found.add_argument("--real-time", action="store_true", help="launch in the scheduling class FIFO: no other work delays")
    given = found.parse_args()
    suites: dict[str, Suite] = {}
    if given.imb is not None:
        suites["IMB"] = partial(imb_us, given.imb.resolve()), MALLOC_BYTES
    if given.osu is not None:
        suites["OSU"] = partial(osu_us, given.osu.resolve()), 0
    if not suites:
        print("neither --imb nor --osu: nothing to compare with", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            claims = cells(built(folder), suites, Machine(folder, given.real_time), 2 if given.quick else given.rounds)
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            raise
    return finish("mpi_suites", claims, quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

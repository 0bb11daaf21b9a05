"""hpcq-mpi against the Intel MPI Benchmarks and the OSU micro-benchmarks: ping-pong of 2 ranks, collectives of 4.

    python bench/kernels/mpi_suites.py --imb .../IMB-MPI1 --osu .../osu/build [--rounds 60] [--real-time]
                                        [--cell PingPong]... [--cell Allreduce:8192]...

Both are built elsewhere, with mpicc.openmpi and -O2. All ranks are on this machine and send through its memory. Each round
starts all programs; who is first turns. What is judged is the median ratio of launches that followed each other. For the
ratio to tell of the programs, all do the same and are asked the same:

    statistic    the mean of as many operations; of collectives the mean over ranks, not our samples' longest of any rank
    warm-up      at least as many operations as are measured (IMB: its own tenth, so the counts are large)
    barrier      before each operation of a collective, not timed; none between round trips
    sender       IMB's PingPong receives from any source, so PingPongSpecificSource is what is like ours and OSU's
    buffers      one to send from, one to receive into, each at the beginning of a page (page_malloc.c, for IMB's)
    launches     60, as one and the same program differs by a tenth from launch to launch; more where the interval is wide
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

from bench.harness import Claim, claim, finish, paired, parser, with_older
from bench.kernels.mpi_peers import WITHIN, built, run

#: Rank after rank bound to a core, and begun again where there are fewer: which of them share one would differ by launch.
BOUND = ("--bind-to", "core:overload-allowed", "--map-by", "core", "--mca", "btl", "vader,self")
REAL_TIME = ("chrt", "--fifo", "5")
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
    def words(self) -> tuple[str, str]:
        """What --cell may say to choose it."""
        return self.name, f"{self.name}:{self.message_bytes}"

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
    page_malloc: Path

    def launched(self, cell: Cell, words: list[str]) -> str:
        """What rank 0 printed."""
        words = [*BOUND, "-x", f"LD_PRELOAD={self.page_malloc}", *words]
        if not self.real_time:
            return run(words, self.folder, cell.ranks)
        time.sleep(PAUSE_S)
        return run(words, self.folder, cell.ranks, REAL_TIME)


def ours_us(program: Path, machine: Machine, cell: Cell) -> float:
    """Half the mean round trip; of collectives the mean over ranks."""
    pairs = cell.ranks == 2
    kernel = ["mpi_pingpong", "--buffers", "separate"] if pairs else ["mpi_collective", "--operation", cell.name.lower()]
    words = [str(program), *kernel, "--interface", "lo", "--message_bytes", str(cell.message_bytes)]
    words += ["--duration_s", "30", "--warmup_s", "0.2", "--operation_count_max", str(cell.count)]
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


#: What one of the programs takes for one operation, in us.
Measure = Callable[[Machine, Cell], float]


def cells_of(chosen: Sequence[Cell], ours: Measure, suites: dict[str, Measure], machine: Machine, rounds: int) -> list[Claim]:
    """Ours beside each suite, cell by cell."""
    claims = []
    for cell in chosen:
        calls = [partial(one, machine, cell) for one in (ours, *suites.values())]
        mine, *others = in_turn(calls, rounds)
        for name, theirs in zip(suites, others, strict=True):
            beside = paired(f"{cell.text}: beside {name}", "mean time", "us", mine, peer=name, theirs=theirs)
            off = abs((beside.ratio or 0) - 1)
            claims += [beside, claim(f"{cell.text}: off {name} by", "share", "share", off, f"<= {WITHIN}")]
    return claims


def page_malloc(folder: Path) -> Path:
    """The library that places buffers, compiled."""
    made = folder / "page_malloc.so"
    source = Path(__file__).with_name("page_malloc.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(made), str(source)], check=True)
    return made


def main() -> int:
    found = parser(__doc__ or "", 1)
    found.add_argument("--rounds", type=int, default=60)
    found.add_argument("--imb", type=Path, help="the program IMB-MPI1")
    found.add_argument("--osu", type=Path, help="the folder where the OSU micro-benchmarks were built")
    found.add_argument("--real-time", action="store_true", help="launch in the scheduling class FIFO: no other work delays")
    found.add_argument(
        "--cell",
        action="append",
        choices=sorted({word for cell in CELLS for word in cell.words}),
        help="only this, by name or by name and size; repeatable",
    )
    given = found.parse_args()
    chosen = [cell for cell in CELLS if not given.cell or set(cell.words) & set(given.cell)]
    suites: dict[str, Measure] = {}
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
            machine, rounds = Machine(folder, given.real_time, page_malloc(folder)), 2 if given.quick else given.rounds
            claims = cells_of(chosen, partial(ours_us, built(folder)), suites, machine, rounds)
        except subprocess.CalledProcessError as error:
            print(error.stderr, file=sys.stderr)
            raise
    return finish("mpi_suites", claims if given.quick else with_older("mpi_suites", claims), quick=given.quick)


if __name__ == "__main__":
    sys.exit(main())

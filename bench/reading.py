"""How fast a person gets an answer from a large site: pages and lists over 1,000 nodes and ten million metrics.

    python bench/reading.py [--quick] [--database FILE]

bench/support/large_site.py makes the database (550 MB, in a temporary folder): 90 nights of 10,000 results, then one run
of 100,000. Each verb runs as a whole process, Python's start included, with the file in the page cache; the median of
five counts. The start of each reading verb is measured on a database of five nights. --database keeps the file for the
next time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness import Claim, claim, finish, parser
from bench.support.large_site import SLOW, Size, make_site

ASKED = 5
PAGE_S, PAGE_MB, PAGE_FILE_MB, VERB_S = 10, 500, 15, 0.3
SMALL = Size(nodes=20, nights=5, night_repetitions=1, last_pairs=20)
#: Reading verbs whose start is measured, on the small database.
STARTED = (
    "--version", "--help", "runs", "results", "results --each --limit 5", "results --findings", "show 1", "nodes n01", "nodes",
    "runs --cost", "facts show n01", "facts diff n01 first", "history", "history 1", "regressions --since 3d",
    "compare latest 3d", "changes list", "nodes --verdicts", "event list", "baseline list", "kernels",
    "schedule list", "sql SELECT", "db check",
)  # fmt: skip
#: Asked of the large one: with a goal where the issue of large sites is one of lists, not of reading a whole survey.
ASKED_OF_LARGE = (
    ("runs", True),
    (f"nodes {SLOW}", True),
    ("results nightly", True),
    (f"results nightly --node {SLOW}", True),
    ("results nightly --sort median --limit 20", True),
    ("results survey --limit 20", False),
    ("nodes --sort level --limit 20", False),
    (f"series --node {SLOW}", False),
    ("history 1", False),
)
_FINE = {0, 3, 4}


@dataclass(frozen=True, slots=True)
class Asked:
    """What one process took."""

    seconds: float
    memory_mb: float


def ask(words: str, path: Path) -> Asked:
    """Run one verb as a process of its own."""
    here = ["--db", str(path)] if not words.startswith(("-", "kernels", "schedule")) else []
    argv = [sys.executable, "-m", "hpcq", *words.replace("sql SELECT", "sql SELECT_1").split(), *here]
    argv = [word.replace("SELECT_1", "SELECT 1") for word in argv]
    begun = time.perf_counter()
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[1]
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in _FINE:
        raise SystemExit(f"hpcq {words}: exit code {process.returncode}")
    return Asked(seconds, usage.ru_maxrss / 1024)


def median_s(words: str, path: Path) -> float:
    """The median of several whole processes."""
    return float(np.median([ask(words, path).seconds for _ in range(ASKED)]))


def main() -> int:
    options = parser(__doc__ or "", 20261123)
    options.add_argument("--database", type=Path, help="make it here, or use what is there")
    given = options.parse_args()
    size = Size(nights=9, last_pairs=1000) if given.quick else Size()
    with tempfile.TemporaryDirectory() as folder:
        path, small = given.database or Path(folder) / "results.db", Path(folder) / "small.db"
        make_site(small, SMALL, given.seed)
        if not path.exists():
            begun = time.perf_counter()
            make_site(path, size, given.seed)
            print(f"made {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - begun:.0f} s")
        claims = [*_page(path, Path(folder) / "page.html"), *_lists(path), *_started(small)]
    return finish("reading", claims, quick=given.quick)


def _page(path: Path, page: Path) -> list[Claim]:
    asked = [ask(f"report survey --to {page}", path) for _ in range(3)]
    what = "page of the run of 100,000 results between 1,000 nodes"
    seconds, memory = float(np.median([one.seconds for one in asked])), max(one.memory_mb for one in asked)
    return [
        claim(what, "wall", "s", seconds, f"< {PAGE_S}"),
        claim(what, "memory at most", "MB", memory, f"< {PAGE_MB}"),
        claim(what, "file", "MB", page.stat().st_size / 1e6, f"< {PAGE_FILE_MB}"),
    ]


def _lists(path: Path) -> list[Claim]:
    found = []
    for words, promised in ASKED_OF_LARGE:
        seconds = median_s(words, path)
        found.append(claim(f"hpcq {words}, ten million metrics", "wall", "s", seconds, f"< {VERB_S}" if promised else None))
    return found


def _started(small: Path) -> list[Claim]:
    return [claim(f"start: hpcq {words}", "wall", "s", median_s(words, small), f"< {VERB_S}") for words in STARTED]


if __name__ == "__main__":
    sys.exit(main())

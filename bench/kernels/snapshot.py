"""The cost of both snapshots and their comparison on a node with 256 CPUs and 2,000 interrupts, from a made-up tree.

    python bench/kernels/snapshot.py [--rounds 20]

Counts CPU time of the whole program, its start and its JSON included: a busy machine delays it, but makes it no dearer.
The peer is the least that anybody can do with the files: `cat` of them all.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.evidence import build
from bench.harness import alternate, claim, finish, paired, parser
from tests.evidence.evidence_trees import large


def cpu_ms(words: list[str]) -> float:
    """CPU milliseconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main() -> int:
    """Measure and report."""
    options = parser(__doc__ or "", seed=1)
    options.add_argument("--rounds", type=int, default=20)
    chosen = options.parse_args()
    rounds = 3 if chosen.quick else chosen.rounds
    with tempfile.TemporaryDirectory(prefix="hpcq-bench-") as text:
        folder = Path(text)
        program = build(folder, "built", "-O2")
        before, after = large(folder)
        ours = [str(program), "snapshot-diff", str(before), str(after), "--interface", "hsn0"]
        files = [str(path) for root in (before, after) for path in sorted(root.rglob("*")) if path.is_file()]
        mine, theirs = alternate(lambda: cpu_ms(ours), lambda: cpu_ms(["cat", *files]), rounds)
    text = "two snapshots of 256 CPUs and 2,000 interrupts, read and compared"
    claims = [
        claim(text, "CPU time, median", "ms", sorted(mine)[len(mine) // 2], "< 50"),
        paired(text, "CPU time", "ms", mine, peer="cat of the same files", theirs=theirs),
    ]
    return finish("snapshot", claims, quick=chosen.quick)


if __name__ == "__main__":
    sys.exit(main())

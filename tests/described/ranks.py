"""A foreign program for tests that a launcher starts, as one rank or alone: behaves, or does not, as it is told.

ranks.py launch N COMMAND…    a launcher: N processes with a rank each, as process managers start them
ranks.py rank MODE            rank 0 prints a table
ranks.py alone MODE           one node: prints a rate
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

TABLE = "# Size  Time (us)\n1  2.5\n2  3\n4  4.25\n"


def launch(count: str, *command: str) -> int:
    """As mpirun: the highest exit code of all ranks."""
    began = [
        subprocess.Popen(command, env={**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": count}) for rank in range(int(count))
    ]
    return max(one.wait() for one in began)


def rank(mode: str) -> int:
    """One rank; the last one is the one that goes wrong."""
    number, last = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"]) - 1
    if mode == "exit" and number == last:
        print("cannot reach anybody", file=sys.stderr)
        return 7
    if mode == "exit" or (mode == "hang" and number == 0):
        time.sleep(600)
    if mode == "silent":
        return 0
    if number == 0:
        print("a banner\n" + (TABLE.replace("3", "nan") if mode == "nan" else TABLE))
    return 0


def main() -> int:
    role, *words = sys.argv[1:]
    if role == "launch":
        return launch(*words)
    if role == "--version":
        print(f"ranks 3.1 {'as a rank' if 'PMI_RANK' in os.environ else 'alone'}")
        return 0
    if role == "rank":
        return rank(*words)
    print("rate = 12.5 Mbit/s" if words[0] == "good" else "no rate today")
    return 0


if __name__ == "__main__":
    sys.exit(main())

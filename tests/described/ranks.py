"""A foreign program for tests that a launcher starts, as one rank or alone: behaves, or does not, as it is told.

ranks.py launch N COMMAND…    a launcher: N processes with a rank each, as process managers start them
ranks.py remote HOSTFILE COMMAND…  the same, each on its own line's node, through the remote shell that MPI libraries take
ranks.py rank MODE            rank 0 prints a table
ranks.py alone MODE           one node: prints a rate
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

TABLE = "# Size  Time (us)\n1  2.5\n2  3\n4  4.25\n"


def launch(count: str, *command: str) -> int:
    """As mpirun: the highest exit code of all ranks."""
    began = [
        subprocess.Popen(command, env={**os.environ, "PMI_RANK": str(rank), "PMI_SIZE": count}) for rank in range(int(count))
    ]
    codes = [one.wait() for one in began]
    if min(codes) < 0:
        print("launcher: a rank was killed", file=sys.stderr)
        return 128 - min(codes)
    return max(codes)


def remote(host_file: str, *command: str) -> int:
    """As mpirun over a remote shell: it starts rank 0 itself, and hands on the folder and what names a rank."""
    lines = Path(host_file).read_text("utf-8").splitlines()
    hosts = [line.split()[0].partition(":")[0] for line in lines if line.strip()]
    began = [subprocess.Popen(command, env={**os.environ, "PMI_RANK": "0", "PMI_SIZE": str(len(hosts)), "HPCQ_NODE": hosts[0]})]
    for number, host in enumerate(hosts[1:], 1):
        words = ["cd", str(Path.cwd()), "&&", f"PMI_RANK={number}", f"PMI_SIZE={len(hosts)}", shlex.join(command)]
        began.append(subprocess.Popen([os.environ["HYDRA_LAUNCHER_EXEC"], host, " ".join(words)]))
    return max(one.wait() for one in began)


def rank(mode: str) -> int:
    """One rank; the last one is the one that goes wrong."""
    number, last = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"]) - 1
    if mode == "exit" and number == last:
        print("cannot reach anybody", file=sys.stderr)
        return 7
    if mode == "exit" or (mode == "hang" and number == 0):
        time.sleep(600)
    if mode == "killed" and number == 0:
        os.kill(os.getppid(), signal.SIGKILL)
    if mode == "silent":
        return 0
    if number == 0:
        print(f"a banner of {last + 1} ranks\n" + (TABLE.replace("3", "nan") if mode == "nan" else TABLE))
    return 0


def main() -> int:
    role, *words = sys.argv[1:]
    if role in {"launch", "remote"}:
        return (launch if role == "launch" else remote)(*words)
    if role == "--version":
        print(f"ranks 3.1 {'as a rank' if 'PMI_RANK' in os.environ else 'alone'}")
        return 0
    if role == "rank":
        return rank(*words)
    print("rate = 12.5 Mbit/s" if words[0] == "good" else "no rate today")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A simulated Slurm for a test: started, put on PATH, spoken to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = ("sinfo", "sbatch", "squeue", "sacct", "scontrol", "scancel", "sacctmgr")
_ROOT = Path(__file__).resolve().parents[2]

#: A client must cost little: bash without any other process, 2 ms.
_CLIENT = r"""#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/PORT || exit 1
printf '%s\0' TOKEN "${0##*/}" "$PWD" "$#" "$@" >&3
read -r code count <&3
[ "$code" = 0 ] || exec 1>&2
if [ "$count" = 1 ]; then read -r line <&3; printf '%s\n' "$line"; elif [ "$count" != 0 ]; then cat <&3; fi
exit "$code"
"""

CLUSTER = """name: {name}
scheduler: slurm
connection: local
partition: main
interface: eth0
{more}
"""


@dataclass(frozen=True, slots=True)
class SimulatedSlurm:
    """One that runs; `folder` holds bin/ and clusters/."""

    folder: Path
    port: int
    token: str
    process_id: int

    def control(self, **wish: Any) -> dict[str, Any]:
        """Change settings (`set`), nodes (`nodes`), submit as another user (`other`); returns calls and states."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            words = [self.token, "control", "/", "1", json.dumps(wish)]
            connection.sendall("".join(f"{word}\0" for word in words).encode())
            with connection.makefile("rb") as reply:
                code, _ = reply.readline().split()
                text = reply.read()
        assert code == b"0", text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def cluster(self, more: str = "", name: str = "sim") -> Path:
        """Write a cluster file for it; returns its folder."""
        clusters = self.folder / "clusters"
        clusters.mkdir(exist_ok=True)
        (clusters / f"{name}.yaml").write_text(CLUSTER.format(name=name, more=more))
        return clusters


@contextlib.contextmanager
def simulated_slurm(folder: Path, node_count: int, leaf_size: int = 40) -> Iterator[SimulatedSlurm]:
    """Start one below `folder` and put its commands first on PATH until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    (folder / "port").unlink(missing_ok=True)
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(token)
    command = [sys.executable, "-m", "tests.simulated_slurm.server", str(folder), str(node_count), str(leaf_size)]
    before = os.environ.get("PATH", "")
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, cwd=_ROOT, stderr=log) as server:
        try:
            port = _port(folder, server)
            (folder / "bin").mkdir(exist_ok=True)
            for program in PROGRAMS:
                path = folder / "bin" / program
                path.touch(mode=0o700)
                path.write_text(_CLIENT.replace("PORT", str(port)).replace("TOKEN", token))
            os.environ["PATH"] = f"{folder / 'bin'}:{before}"
            yield SimulatedSlurm(folder, port, token, server.pid)
        finally:
            os.environ["PATH"] = before
            server.terminate()  # it ends its jobs, then itself
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def _port(folder: Path, server: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 20
    while not (folder / "port").exists():
        assert server.poll() is None, (folder / "server.log").read_text()
        assert time.monotonic() < deadline, "the simulated Slurm does not answer"
        time.sleep(0.01)
    return int((folder / "port").read_text())

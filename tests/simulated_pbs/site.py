"""A simulated PBS for a test: started, put on PATH, spoken to, ended."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.simulated_pbs.place import Place

PROGRAMS = (
    "qsub", "qstat", "qdel", "qalter", "qsig", "qselect", "qmgr", "pbsnodes", "pbs_rsub", "pbs_rstat", "pbs_rdel", "pbs_ralter",
    "pbsdsh", "pbs_tmrsh",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[2]

#: A client must cost little: bash without any other process.
_CLIENT = r"""#!/bin/bash
LC_ALL=C program=${0##*/} input=
case $program in
qsub) [ $# -gt 0 ] && { [ -e "${!#}" ] || [[ " $* " = *" -- "* ]]; } || IFS= read -r -d '' input ;;
qmgr) [ "${1-}" = -c ] || IFS= read -r -d '' input ;;
esac
exec 3<>/dev/tcp/ADDRESS/PORT || { echo "Connection refused" >&2; exit 162; }
printf '%s\0' TOKEN "$program" "$PWD" "USER" "$#" "$@" "${PBS_JOBID-}" "$input" >&3
read -r code lines errors <&3 || exit 255
[ "$lines" = 0 ] || { mapfile -n "$lines" -u 3 text; printf '%s' "${text[@]}"; }
[ "$errors" = 0 ] || { mapfile -n "$errors" -u 3 text; printf '%s' "${text[@]}" >&2; }
exit "$code"
"""

CLUSTER = """name: {name}
scheduler: pbs
connection: local
interface: lo
{more}
"""


@dataclass(frozen=True, slots=True)
class SimulatedPbs:
    """One that runs; `folder` holds bin/, spool/ and clusters/."""

    folder: Path
    port: int
    token: str
    process_id: int
    place: Place

    def control(self, **wish: Any) -> dict[str, Any]:
        """Change settings (`set`) and nodes (`nodes`, `power_cut`), submit as another (`other`); returns calls, states."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            words = [self.token, "control", "/", "root", "1", json.dumps(wish), "", ""]
            connection.sendall("".join(f"{word}\0" for word in words).encode())
            with connection.makefile("rb") as reply:
                code, _, _ = reply.readline().split()
                text = reply.read()
        assert code == b"0", text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """One of its commands, as a person would type it."""
        program, *rest = words
        return subprocess.run(
            [str(self.folder / "bin" / program), *rest], input=text, capture_output=True, text=True, timeout=60, check=False,
            cwd=self.folder, errors="replace",
        )  # fmt: skip

    def as_user(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One of its commands, as another user of its head would type it, or root."""
        path = self.folder / "bin" / words[0]
        script = re.sub(r'"\$PWD" "[^"]*"', f'"$PWD" "{user}"', path.read_text())
        return subprocess.run(
            ["bash", "-c", script, str(path), *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            check=False, cwd=self.folder,
        )  # fmt: skip

    def cluster(self, more: str = "", name: str = "sim") -> Path:
        """Write a cluster file for it; returns its folder."""
        clusters = self.folder / "clusters"
        clusters.mkdir(exist_ok=True)
        (clusters / f"{name}.yaml").write_text(CLUSTER.format(name=name, more=more))
        return clusters


@contextlib.contextmanager
def simulated_pbs(
    folder: Path, node_count: int = 4, *, user: str = "", cpus: int = 4, names: Sequence[str] = (), place: Place | None = None
) -> Iterator[SimulatedPbs]:
    """Start one below `folder` and put its commands first on PATH until the block ends. user: as whom they are called.

    place: where its jobs run and its commands are called, if not here; names: of the nodes there.
    """
    place = place or Place()
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    (folder / "port").unlink(missing_ok=True)
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(token)
    nodes = [f"{name}={cpus}" for name in names or [f"pbn{number}" for number in range(1, node_count + 1)]]
    command = [sys.executable, "-m", "tests.simulated_pbs.server", str(folder), json.dumps(asdict(place)), *nodes]
    before = os.environ.get("PATH", "")
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, cwd=_ROOT, stderr=log) as server:
        try:
            ports = _ports(folder, server)
            (folder / "bin").mkdir(exist_ok=True)
            for program in PROGRAMS:
                path = folder / "bin" / program
                path.touch(mode=0o755 if place.root else 0o700)
                text = _CLIENT.replace("ADDRESS", place.address).replace("PORT", str(ports[-1]))
                path.write_text(text.replace("TOKEN", token).replace("USER", user or getpass.getuser()))
            os.environ["PATH"] = f"{folder / 'bin'}:{before}"
            yield SimulatedPbs(folder, ports[0], token, server.pid, place)
        finally:
            os.environ["PATH"] = before
            server.terminate()


def _ports(folder: Path, server: subprocess.Popen[bytes]) -> list[int]:
    deadline = time.monotonic() + 20
    while not (folder / "port").exists():
        assert server.poll() is None, (folder / "server.log").read_text()
        assert time.monotonic() < deadline, "the simulated PBS does not answer"
        time.sleep(0.01)
    return [int(port) for port in (folder / "port").read_text().split()]

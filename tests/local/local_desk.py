"""Running hpcq as a person would, in a folder of its own, on the embedded scheduler; and reading what came out."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.local.desk import Folder

#: Two nodes, no MPI, no optimiser: the kernels are built in a second.
CLUSTER = "name: {name}\nscheduler: local\nnodes: [{name}-a, {name}-b]\ncompiler: {{cflags: -O0}}\n"
#: One test that takes milliseconds.
INSTANT = "{kernel: tcp_pingpong, parameters: {message_bytes: 1, operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
#: One test that somebody else ends; it leaves the CPUs to others.
SLOW = "{kernel: udp_stream, parameters: {rate_bps: 1e6, duration_s: 600, warmup_s: 0}}"


@dataclass(frozen=True, slots=True)
class LocalDesk(Folder):
    """A person's folder with one small cluster called `tiny`, a home of its own and no lab in sight."""

    @staticmethod
    def at(folder: Path) -> LocalDesk:
        """A desk in a folder that is made for it."""
        cache = folder / "home" / ".cache" / "hpcq"
        cache.mkdir(parents=True, exist_ok=True)
        state = folder / "home" / ".local" / "state" / "hpcq"
        state.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # one desk builds for all: what was built is kept for the whole session
            (cache / "builds").symlink_to(os.environ["HPCQ_TEST_BUILDS"])
            (state / "builds").symlink_to(Path(os.environ["HPCQ_TEST_BUILDS"]).with_name("sums"))
        # whatever people keep beside their campaigns, the programs that hpcq starts are its own
        (folder / "re.py").write_text("raise SystemExit('a file of the user was taken for a module')\n")
        desk = LocalDesk(folder)
        desk.cluster("tiny")
        return desk

    def cluster(self, name: str, text: str = CLUSTER) -> None:
        """Write a cluster file."""
        (self.folder / "clusters").mkdir(exist_ok=True)
        (self.folder / "clusters" / f"{name}.yaml").write_text(text.format(name=name))

    def campaign(self, *tests: str, name: str = "try", more: str = "", clusters: str = "tiny") -> str:
        """Write NAME.yaml and return its name; `more` is further YAML at the top."""
        lines = [f"name: {name}", f"clusters: [{clusters}]", "pairs: all", "repetitions: 1", "tests:"]
        text = "\n".join([*lines, *(f"  - {test}" for test in tests or (INSTANT,)), more, ""])
        (self.folder / f"{name}.yaml").write_text(text)
        return f"{name}.yaml"

    def environment(self) -> dict[str, str]:
        home = str(self.folder / "home")
        hidden = {"HPCQ_CLUSTERS", "HPCQ_DB", "HPCQ_RUNS", "XDG_STATE_HOME"}
        return {**{key: value for key, value in Folder.environment(self).items() if key not in hidden}, "HOME": home}

    def running(self, argv: list[str], log: Path | None = None) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """A Python program in the background; all of it is ended when the block is left."""
        return self.background(argv, log)

    def wait_for(self, seen: Callable[[], object], within_s: float = 180) -> None:
        """Until something is there."""
        deadline = time.monotonic() + within_s
        while not seen():
            assert time.monotonic() < deadline, self.log() or "no log"
            time.sleep(0.02)

    def events(self, cluster: str = "tiny") -> list[dict[str, Any]]:
        return Folder.events(self, cluster)

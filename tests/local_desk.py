"""Running hpcq as a person would, in a folder of its own, on the embedded scheduler; and reading what came out."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Two nodes, no MPI, no optimiser: the kernels are built in a second.
CLUSTER = "name: {name}\nscheduler: local\nnodes: [{name}-a, {name}-b]\ncompiler: {{cflags: -O0}}\n"
#: One test that takes milliseconds.
INSTANT = "{kernel: tcp_pingpong, parameters: {message_bytes: 1, operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
#: One test that takes its time.
SLOW = "{kernel: tcp_stream, parameters: {duration_s: 20, warmup_s: 0}}"


@dataclass(frozen=True, slots=True)
class LocalDesk:
    """A person's folder with one small cluster called `tiny`, a home of its own and no lab in sight."""

    folder: Path

    @staticmethod
    def at(folder: Path) -> LocalDesk:
        """A desk in a folder that is made for it."""
        folder.mkdir(parents=True, exist_ok=True)
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
        return {**{key: value for key, value in os.environ.items() if key not in hidden}, "HOME": home}

    def start(self, argv: list[str], timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a program of ours in the folder."""
        return subprocess.run(
            [sys.executable, *argv],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def hpcq(self, *words: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run hpcq; any other exit code than `expect` fails the test with its words."""
        done = self.start(["-m", "hpcq", *words])
        said = f"hpcq {words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        assert expect is None or done.returncode == expect, said
        return done

    def json(self, *words: str, expect: int = 0) -> Any:
        """What hpcq prints with --json."""
        return json.loads(self.hpcq(*words, "--json", expect=expect).stdout)

    @contextmanager
    def running(self, argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A program in the background, in a session of its own; all of it is ended when the block is left."""
        with (self.folder / "background.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, *argv],
                cwd=self.folder,
                env=self.environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield child
            finally:
                kill_session(child)

    def wait_for(self, seen: Callable[[], object], within_s: float = 60) -> None:
        """Until something is there."""
        deadline = time.monotonic() + within_s
        while not seen():
            log = self.folder / "background.log"
            assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
            time.sleep(0.02)

    @property
    def run_folder(self) -> Path:
        """The newest run."""
        return max((self.folder / "runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime).parent

    def events(self, cluster: str = "tiny") -> list[dict[str, Any]]:
        """The journal of the newest run; nothing while there is none."""
        try:
            text = (self.run_folder / cluster / "journal.jsonl").read_text()
        except (ValueError, OSError):
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """What the database answers."""
        with closing(sqlite3.connect(self.folder / "results.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query, values)]


def kill_session(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to everything that the process started, and wait for it."""
    subprocess.run(["pkill", "-KILL", "--session", str(child.pid)], check=False)
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait()

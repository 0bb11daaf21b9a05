"""Running hpcq as a person would, in a folder of its own, on a running lab; and reading what came out."""

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

from tests.lab_fixture import RunningLab

#: One test that takes milliseconds.
INSTANT = "- {kernel: tcp_pingpong, parameters: {message_bytes: 1, operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
#: One test that takes its time.
SLOW = "- {kernel: tcp_stream, parameters: {duration_s: 12, warmup_s: 0}}"
#: One test that is ended by others, however slow this machine is.
ENDLESS = "- {kernel: tcp_stream, parameters: {duration_s: 60, warmup_s: 0}}"


@dataclass(frozen=True, slots=True)
class Desk:
    """A person's folder, with the lab's clusters at hand."""

    folder: Path
    lab: RunningLab

    def campaign(self, text: str, name: str = "try") -> None:
        """Write campaign.yaml; `text` is everything but the name."""
        (self.folder / "campaign.yaml").write_text(f"name: {name}\n{text}\n")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HPCQ_CLUSTERS": f"{self.folder / 'clusters'}:{self.lab.state / 'clusters'}"}

    def hpcq(self, *words: str, expect: int | None = 0, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hpcq", *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert expect is None or done.returncode == expect, (
            f"hpcq {words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """hpcq in the background, in a session of its own; all of it is ended when the block is left."""
        with (self.folder / "background.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "hpcq", *words],
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

    @property
    def run_folder(self) -> Path:
        """The newest run."""
        return max((self.folder / "runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime).parent

    def events(self, cluster: str = "alpha") -> list[dict[str, Any]]:
        try:
            text = (self.run_folder / cluster / "journal.jsonl").read_text()
        except (ValueError, OSError):
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, seen: Callable[[list[dict[str, Any]]], bool], cluster: str = "alpha", within_s: float = 60) -> None:
        """Until the journal shows something."""
        deadline = time.monotonic() + within_s
        while not seen(self.events(cluster)):
            assert time.monotonic() < deadline, f"not seen within {within_s} s: {self.events(cluster)[-3:]}\n{self.log()}"
            time.sleep(0.005)

    def log(self) -> str:
        path = self.folder / "background.log"
        return path.read_text()[-2000:] if path.exists() else ""

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.folder / "results.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query, values)]


def kill_session(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to everything that the process started, and wait for it."""
    subprocess.run(["pkill", "-KILL", "--session", str(child.pid)], check=False)
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait()


def event_names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]

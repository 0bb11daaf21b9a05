"""Running hpcq as a person would, in a folder of its own, and reading what came out: what every kind of cluster shares."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.errors import Exit
from hpcq.planning.plan import Plan
from hpcq.run_folder.lines import known_crash
from hpcq.runner.queue.run_state import ClusterState
from hpcq.store.database import reading

#: How a first run without a gate is judged where a node, a link or a group is slow, but in no undisturbed job.
OF_THE_MACHINE = "INCONCLUSIVE: no gate and no history judges this run, but its own values next to each other"


@dataclass(frozen=True, slots=True)
class Folder:
    """A person's folder."""

    folder: Path

    def environment(self) -> dict[str, str]:
        """What a command is started with."""
        return dict(os.environ)

    def start(self, argv: list[str], timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run a Python program in the folder."""
        return subprocess.run(
            [sys.executable, "-P", *argv],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def hpcq(self, *words: str, expect: int | None = 0, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """Run hpcq; any other exit code than `expect` fails the test with its words.

        Where 0 is expected, a first run that measured all it planned may also say that a node is slow in jobs beside other
        work alone: that is what else this machine does at the time.
        """
        done = self.start(["-m", "hpcq", *words], timeout_s)
        said = f"hpcq {words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        whole = re.search(r"^(\d+) of \1 planned results measured", done.stderr, re.MULTILINE)
        busy = expect == 0 and done.returncode == Exit.INCOMPLETE and whole is not None and OF_THE_MACHINE in done.stderr
        assert expect is None or done.returncode == expect or busy, said
        return done

    def json(self, *words: str, expect: int = 0) -> Any:
        """What hpcq prints with --json."""
        return json.loads(self.hpcq(*words, "--json", expect=expect).stdout)

    @contextmanager
    def background(self, argv: list[str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A Python program in the background, in a session of its own; all of it is ended when the block is left."""
        with (log or self.folder / "background.log").open("ab") as words:
            child = subprocess.Popen(
                [sys.executable, "-P", *argv],
                cwd=self.folder,
                env=self.environment(),
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
            try:
                yield child
            finally:
                kill_session(child)

    def log(self) -> str:
        """The end of what background programs said."""
        path = self.folder / "background.log"
        return path.read_text()[-2000:] if path.exists() else ""

    @property
    def run_folder(self) -> Path:
        """The newest run."""
        return max((self.folder / "runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime).parent

    def events(self, cluster: str) -> list[dict[str, Any]]:
        """The journal of the newest run; nothing while there is none."""
        try:
            text = (self.run_folder / cluster / "journal.jsonl").read_text()
        except (ValueError, OSError):
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def found(self, pattern: str) -> list[Path]:
        """The files of that name, wherever they are below the folder; folders may vanish while it looks."""
        walked = ((Path(folder), name) for folder, _, names in os.walk(self.folder) for name in names)
        return [folder / name for folder, name in walked if fnmatch.fnmatch(name, pattern)]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """What the database answers."""
        with reading(self.folder / "results.db") as database:
            return [dict(row) for row in database.execute(query, values)]


def result_lines(run: Path) -> list[dict[str, Any]]:
    """The line of each measurement of a run, whichever try of its job brought it; a try that died left none."""
    found = sorted(run.glob("*/jobs/*/*/**/t*-r*.json"))
    lines = [path for path in found if not path.stem.endswith(".evidence") and path.stat().st_size]
    assert lines, f"{run}: no result"
    return [json.loads(path.read_text()) for path in lines]


def known_crashes(run: Path) -> set[Path]:
    """What programs wrote before a known defect of their MPI library ended them: the folders of these tries hold it."""
    words = [*run.glob("*/jobs/*/*/**/t*-r*.err"), *run.glob("*/jobs/*/*/mpi.err")]
    return {path for path in words if known_crash(path.read_text(errors="replace")) is not None}


def assert_clean(run: Path, *, gave_way: bool = False) -> None:
    """Of a campaign that went well: each job had one attempt, all of them completed, and no step of any ended badly.

    Only a known crash of a library may make a job try again. It must be one that `hpcq results` tells beside the results.
    gave_way: a job may also have been withdrawn from the queue, because its nodes are those of other jobs of the campaign.
    """
    crashed = known_crashes(run)
    jobs = {path.relative_to(run).parts[:3:2] for path in crashed}  # cluster and job
    journals = sorted(run.glob("*/journal.jsonl"))
    assert journals, f"{run}: nothing was driven"
    for journal in journals:
        cluster = journal.parent.name
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        attempts = [(one["job"], one.get("side"), one["attempt_no"]) for one in events if one["event"] == "attempt"]
        ends = [(one["tag"], one["outcome"], one["reason"]) for one in events if one["event"] == "ended"]
        assert attempts, f"{journal}: no attempt"
        assert len(ends) == len(attempts) == len(set(attempts)), f"{journal}: attempts without one end"
        withdrawn = {
            (tag.split("-")[-2], int(tag.split("-")[-1])) for tag, outcome, _ in ends if outcome == "withdrawn" and gave_way
        }
        attempts = [one for one in attempts if (one[0], one[2]) not in withdrawn]
        again = [one for one in attempts if one[2] != 1 and (cluster, one[0]) not in jobs]
        again = [one for one in again if (one[0], one[2] - 1) not in withdrawn]
        assert again == [], f"{journal}: jobs that were tried again"
        ended = [one for one in ends if not (gave_way and one[1] == "withdrawn")]
        assert [one for one in ended if one[1] != "completed"] == [], f"{journal}: {ends}"
    for path in run.glob("*/jobs/*/*/**/t*-r*.status"):
        if path.with_suffix(".err") not in crashed:
            assert json.loads(path.read_text())["rc"] == 0, f"{path}: {path.with_suffix('.err').read_text()}"
    for path in run.glob("*/jobs/*/*/**/exit.json"):
        assert json.loads(path.read_text())["rc"] == 0, path.read_text()


def kill_session(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to everything that the process started, and wait for it."""
    subprocess.run(["pkill", "-KILL", "--session", str(child.pid)], check=False)
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait()


def took_at_most(plan: Plan, events: Iterable[dict[str, Any]]) -> float:
    """The most node-seconds that all jobs of a cluster's part could have taken together, at its worst moment."""
    state = ClusterState(plan)
    most = 0.0
    for event in events:
        state.apply(event)
        most = max(most, state.node_seconds + sum(one.max_node_seconds for one in state.active.values()))
    return most

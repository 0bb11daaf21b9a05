"""A driver that dies is replaced by the user's timer: real processes; what the timer would run is run as it stands there."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.local.desk import kill_session
from tests.local.local_desk import LocalDesk

pytestmark = pytest.mark.long

#: It lasts for so long that the driver is killed before it ends, however slow this machine is.
TEST = "{kernel: tcp_pingpong, parameters: {message_bytes: 1, duration_s: 15, warmup_s: 0}}"


@dataclass(frozen=True, slots=True)
class TimerDesk(LocalDesk):
    """A desk with a stand-in for systemctl, which would need a systemd that runs."""

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.promise(
    "What a user's timer runs takes over a run whose driver was killed; its job counts and none is submitted again."
)
def test_what_the_timer_runs_takes_over_a_run_whose_driver_was_killed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/systemctl.log\n')
    (tmp_path / "bin" / "systemctl").chmod(0o755)
    LocalDesk.at(tmp_path)
    desk = TimerDesk(tmp_path)
    desk.hpcq("schedule", "add", "revive", "--when", "10min", "--with", "systemd", "--", "resume", "--abandoned")
    assert "enable --now hpcq-revive.timer" in (tmp_path / "systemctl.log").read_text()

    run = run_of_a_killed_driver(desk)
    assert _tick(tmp_path) == 0
    assert not (run / "tiny" / "driven.json").exists(), "whoever wrote a moment ago may still live"
    age(run)
    assert _tick(tmp_path) == 0, desk.log()
    assert _tick(tmp_path) == 0, "nothing is left to do"
    check_taken_over(desk)


def run_of_a_killed_driver(desk: LocalDesk) -> Path:
    """A run whose job is at work, and whose driver was killed."""
    with desk.running(["-m", "hpcq", "run", desk.campaign(TEST)]) as driver:
        desk.wait_for(lambda: any(one["event"] == "submitted" for one in desk.events()))
        kill_session(driver)
    assert not (desk.run_folder / "tiny" / "driven.json").exists(), "killed in the middle of its work"
    return desk.run_folder


def check_taken_over(desk: LocalDesk) -> None:
    """The schedule `revive` ended well, and the first driver's job is the run's only one."""
    [entry] = desk.json("schedule", "list")
    assert (entry["name"], entry["exit_code"]) == ("revive", 0), (entry, desk.log())
    assert [row["outcome"] for row in desk.rows("SELECT outcome FROM result")] == ["measured"]
    tags = [one["tag"] for one in desk.events() if one["event"] == "attempt"]
    assert len(tags) == len(set(tags)) == 1, "the job of the first driver counts, and none was submitted again"


def _tick(home: Path) -> int:
    """Run the line ExecStart of the unit as systemd would: split into words, no shell, with little of an environment."""
    unit = home / "home" / ".config" / "systemd" / "user" / "hpcq-revive.service"
    [line] = [text for text in unit.read_text().splitlines() if text.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%"))
    little = {"HOME": str(home / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    little["PYTHONPATH"] = str(REPOSITORY)  # this tree's hpcq, also where the tests run in a copy
    done = subprocess.run(words, cwd="/", env=little, stdin=subprocess.DEVNULL, check=False, timeout=240, capture_output=True)
    assert done.returncode in {0, 4}, done.stderr.decode() + (home / "home/.local/state/hpcq/schedule/revive.log").read_text()
    return done.returncode


def age(run: Path) -> None:
    """Ten minutes have passed."""
    then = time.time() - 600
    for path in run.rglob("*"):
        if path.name.startswith(("journal.jsonl", "log.txt", "run.json.writer")):
            os.utime(path, (then, then), follow_symlinks=False)

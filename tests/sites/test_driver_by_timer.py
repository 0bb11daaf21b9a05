"""A driver that dies is replaced by a real timer: a systemd of the user that runs, and what `hpcq schedule` gives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.local.local_desk import LocalDesk
from tests.sites.test_driver_is_replaced import age, check_taken_over, run_of_a_killed_driver

pytestmark = pytest.mark.long

#: A systemd takes what runs in its control group for its own, so it gets one, and sees no other. It asks for the
#: folder that one of the machine would have made.
MANAGER = """echo $$ >"$1/cgroup.procs" && exec unshare --mount --cgroup --propagation private sh -c '
mount -t tmpfs run /run && mkdir -p /run/systemd/system && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
exec /lib/systemd/systemd --user'"""


@dataclass(frozen=True, slots=True)
class ManagedDesk(LocalDesk):
    """A desk of somebody for whom a systemd runs; the names of its sockets have to be short."""

    runtime: Path

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "XDG_RUNTIME_DIR": str(self.runtime)}

    def said(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=self.environment(), check=False, capture_output=True, text=True, timeout=60)

    def systemctl(self, *words: str) -> str:
        done = self.said("systemctl", "--user", "--no-pager", *words)
        return done.stdout + done.stderr


@contextmanager
def managed(folder: Path) -> Iterator[ManagedDesk]:
    """A desk, and a systemd for its owner with little of an environment."""
    LocalDesk.at(folder)
    desk = ManagedDesk(folder, Path(tempfile.mkdtemp(prefix="hpcq-run-")))
    mounts = subprocess.run(["findmnt", "-n", "-t", "cgroup2", "-o", "TARGET"], check=True, capture_output=True, text=True)
    group = Path(mounts.stdout.split()[0]) / f"hpcq-test-{os.getpid()}"
    group.mkdir()
    little = {"HOME": str(folder / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    little |= {"XDG_RUNTIME_DIR": str(desk.runtime), "PYTHONPATH": str(REPOSITORY)}
    try:
        with (folder / "systemd.log").open("w") as log:
            manager = subprocess.Popen(["sh", "-c", MANAGER, "sh", str(group)], env=little, stdout=log, stderr=log)
        try:
            until(lambda: "listed" in desk.systemctl("list-timers"), 60, "a systemd of the user")
            yield desk
        finally:
            desk.systemctl("exit")
            manager.wait(timeout=60)
    finally:
        for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            path.rmdir()
        group.rmdir()
        shutil.rmtree(desk.runtime)


def until(seen: Callable[[], object], within_s: float, what: str) -> None:
    """Wait for it."""
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.5)


def test_a_timer_of_systemd_takes_over_a_run_whose_driver_was_killed(tmp_path: Path) -> None:
    with managed(tmp_path) as desk:
        desk.hpcq("schedule", "add", "revive", "--when", "1min", "--with", "systemd", "--", "resume", "--abandoned")
        assert "hpcq-revive.timer" in desk.systemctl("list-timers")
        run = run_of_a_killed_driver(desk)
        age(run)
        until((run / "tiny" / "driven.json").exists, 240, "a driver that the timer started")
        until(lambda: desk.json("schedule", "list")[0]["ended_utc"], 120, "the end of what the timer started")
        check_taken_over(desk)
        desk.hpcq("schedule", "remove", "revive")
        assert "hpcq-revive" not in desk.systemctl("list-timers", "--all")


@pytest.mark.promise("systemd finds no fault in the units that `hpcq schedule` writes, and starts what they say.")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    with managed(tmp_path) as desk:
        for name, moment in (("revive", "10min"), ("nightly", "Mon,Thu 02:00")):
            desk.hpcq("schedule", "add", name, "--when", moment, "--with", "systemd", "--", "resume", "--abandoned")
            units = [str(desk.folder / f"home/.config/systemd/user/hpcq-{name}.{kind}") for kind in ("service", "timer")]
            done = desk.said("systemd-analyze", "--user", "verify", *units)
            about_ours = [line for line in done.stderr.splitlines() if "hpcq-" in line]
            assert (done.returncode, about_ours) == (0, []), done.stderr

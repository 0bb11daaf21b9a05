"""A driver that dies is replaced by a real cron, and by what `hpcq schedule` writes into a real crontab."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.local.local_desk import LocalDesk
from tests.sites.test_driver_by_timer import until
from tests.sites.test_driver_is_replaced import age, check_taken_over, run_of_a_killed_driver

pytestmark = pytest.mark.long

#: Cron with tables and a lock of its own: those of this machine stay as they are.
CRON = """mount -t tmpfs spool /var/spool/cron && mkdir -m 1730 /var/spool/cron/crontabs && mount -t tmpfs run /run &&
exec cron -f -L 15"""
#: What the user has in the crontab beside hpcq. Cron takes the home from the password file unless a line says otherwise.
OWN = "# mine\nHOME={home}\nPYTHONPATH={code}\n30 4 * * 0 true\n"


@dataclass(frozen=True, slots=True)
class CronDesk(LocalDesk):
    """A desk at which `crontab` is the one of that cron."""

    def environment(self) -> dict[str, str]:
        return {**LocalDesk.environment(self), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def crontab(self, *words: str, given: str | None = None) -> str:
        argv = [str(self.folder / "bin" / "crontab"), *words]
        return subprocess.run(argv, input=given, check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def with_cron(folder: Path) -> Iterator[CronDesk]:
    LocalDesk.at(folder)
    desk = CronDesk(folder)
    with (folder / "cron.log").open("w") as log:
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", CRON]
        cron = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        (folder / "bin").mkdir()
        (folder / "bin" / "crontab").write_text(f'#!/bin/sh\nexec nsenter --mount --target {cron.pid} /usr/bin/crontab "$@"\n')
        (folder / "bin" / "crontab").chmod(0o755)
        until(lambda: Path(f"/proc/{cron.pid}/comm").read_text() == "cron\n", 60, "a cron")
        time.sleep(2)  # cron never sees a table that is written in the second in which it first looked at its folder
        yield desk
    finally:
        cron.terminate()
        cron.wait(timeout=60)


def test_a_crontab_takes_over_a_run_whose_driver_was_killed(tmp_path: Path) -> None:
    with with_cron(tmp_path) as desk:
        own = OWN.format(home=desk.environment()["HOME"], code=REPOSITORY)
        desk.crontab("-", given=own)
        desk.hpcq("schedule", "add", "revive", "--when", "1min", "--with", "crontab", "--", "resume", "--abandoned")
        assert desk.crontab("-l").startswith(own), "what the user has there stays"
        run = run_of_a_killed_driver(desk)
        age(run)
        until((run / "tiny" / "driven.json").exists, 240, "a driver that cron started")
        until(lambda: desk.json("schedule", "list")[0]["ended_utc"], 120, "the end of what cron started")
        check_taken_over(desk)
        desk.hpcq("schedule", "remove", "revive")
        assert desk.crontab("-l") == own

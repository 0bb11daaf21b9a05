"""A lab that stands for a whole test session, and what tests ask of one.

    pytest_plugins = ["tests.lab.lab_fixture"]        in a test module or in conftest.py

    def test_something(lab: RunningLab) -> None:
        lab.ssh("alpha", "sinfo")                       as labuser on the head, over ssh
        lab.exec("alpha/n01", "hostname")               as root on a node
        lab.command("kill-node", "alpha/n02")           any verb of the lab

HPCQ_TEST_LAB=NAME makes the tests use the lab of that name, which must be up, and leaves it up.
(PYTEST_DONT_REWRITE: no assert here.)
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.kernels.kernel_programs import session_folder

PROGRAM = REPOSITORY / "lab"
LABS_FOLDER = Path("/run/hpcq-lab")
TIMEOUT_S = 180.0
ACCOUNTED_WITHIN_S = 60.0
#: The user and group of those who run campaigns there.
LABUSER_ID = 20001
#: Whatever a test before left: its jobs, its reservations, nodes that it set down. Then until every node may have jobs.
AT_REST = """
jobs=$(squeue --noheader --format=%A); [ -z "$jobs" ] || scancel $jobs
for name in $(scontrol --oneliner show reservation | sed -n 's/^ReservationName=\\([^ ]*\\) .*/\\1/p'); do
    scontrol delete "reservationname=$name"
done
for node in $(sinfo --noheader --Node --states=down,drain,fail --format=%N | sort -u); do
    scontrol update "nodename=$node" state=resume
done
for look in $(seq 400); do
    jobs=$(squeue --noheader --format='%A %j %u %T') && states=$(sinfo --noheader --Node --format=%T | sort -u) &&
        [ -z "$jobs" ] && [ "$states" = idle ] && exit 0
    sleep 0.3
done
sinfo --Node --format='%N %T %E'; squeue
exit 1
"""


#: Takes a lab down whose tests are gone, also by a signal that lets nobody tidy up: the pipe to them has ended.
_GUARD = """
import subprocess, sys, time
tests_ended = sys.stdin.read()
until = time.monotonic() + 600
while not tests_ended and subprocess.run(sys.argv[1:]).returncode and time.monotonic() < until:
    time.sleep(2)  # it is being made, or a command is at work in it
"""
#: By name of a lab that this process has up, or is making.
_guards: dict[str, subprocess.Popen[str]] = {}


def lab_command(*words: str, check: bool = True, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run `python3 lab/ words...`; with check, anything but success fails the test with the lab's own words.

    A lab that comes up goes down when this process is gone, however it went.
    """
    command = [sys.executable, str(PROGRAM), *words]
    name = words[words.index("--name") + 1] if "--name" in words else ""
    is_new = words[0] == "up" and name not in _guards
    if is_new:
        down = [sys.executable, str(PROGRAM), "down", "--name", name]
        _guards[name] = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *down],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the tests
        )
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    if (is_new and done.returncode != 0) or (words[0] == "down" and done.returncode == 0 and name in _guards):
        _guards.pop(name).communicate("there is none")
    if check and done.returncode != 0:
        pytest.fail(f"lab {' '.join(words)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return done


@dataclass(frozen=True, slots=True)
class RunningLab:
    """A lab that is up."""

    name: str

    @property
    def state(self) -> Path:
        return LABS_FOLDER / self.name

    def cluster_file(self, cluster: str) -> Path:
        return self.state / "clusters" / f"{cluster}.yaml"

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(lab_command("status", "--name", self.name, "--json").stdout)
        return found

    def command(self, verb: str, *words: str) -> str:
        return lab_command(verb, "--name", self.name, *words).stdout

    def exec_words(self, where: str, *words: str, user: str = "root") -> list[str]:
        """The command line of something that goes on while the test does: for Popen."""
        return [sys.executable, str(PROGRAM), "exec", "--name", self.name, where, "--user", user, "--", *words]

    def exec(self, where: str, *words: str, user: str = "root", check: bool = True, text: str = "") -> str:
        """What a command on a machine printed; as root, unless told otherwise."""
        done = subprocess.run(
            self.exec_words(where, *words, user=user),
            check=False,
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        if check and done.returncode != 0:
            pytest.fail(f"{where}: {words} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
        return done.stdout

    def accounted(self, cluster: str, *words: str, names: Collection[str]) -> list[list[str]]:
        """What sacct shows by the columns asked for, of which the first is the name; once all these names are there.

        The controller reports to the accounting by itself, and on a busy machine seconds later than a job's end: an answer
        before that shows too little, and would be the proof of nothing.
        """
        deadline = time.monotonic() + ACCOUNTED_WITHIN_S
        while True:
            shown = self.exec(cluster, "sacct", "--noheader", "--parsable2", "--starttime=now-2hours", *words)
            rows = [line.split("|") for line in shown.splitlines()]
            missing = set(names) - {row[0] for row in rows}
            if names and not missing:
                return rows
            if time.monotonic() > deadline:
                pytest.fail(f"{cluster}: not accounted: {sorted(missing) or 'no name was asked for'}:\n{shown}")
            time.sleep(0.3)

    def at_rest(self, *clusters: str) -> None:
        """Put clusters right before a test begins: what one test left, the next one must not plan around."""
        for found in self.status()["clusters"]:
            for machine in found["machines"]:
                if found["name"] in clusters and machine["pid"] is None:  # a test cut its power
                    self.command("start-node", f"{found['name']}/{machine['name']}")
        for cluster in clusters:
            self.exec(cluster, "sh", "-c", AT_REST)

    def ssh(self, cluster: str, command: str, *, text: str = "", check: bool = True) -> str:
        """What a shell command on a cluster's head printed, as labuser, over ssh as a person's would go."""
        words = ["ssh", "-F", str(self.state / "ssh_config"), f"{cluster}-head", command]
        done = subprocess.run(words, check=False, input=text, capture_output=True, text=True, timeout=TIMEOUT_S)
        if check and done.returncode != 0:
            pytest.fail(f"ssh {cluster}-head: {command!r} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
        return done.stdout


#: Those that this process has up.
_labs: list[RunningLab] = []


@contextmanager
def own_lab(name: str, *shape: str) -> Iterator[RunningLab]:
    """A lab of this process, up while the block runs. shape: options of `lab up`."""
    made = RunningLab(f"{name}-{os.getpid()}")
    try:
        lab_command("up", "--name", made.name, *shape, timeout_s=300)
        _labs.append(made)
        yield made
    finally:
        if made in _labs:
            _labs.remove(made)
        lab_command("down", "--name", made.name)


@pytest.fixture(scope="session")
def lab() -> Iterator[RunningLab]:
    """Two clusters of four nodes, up for the whole session. A lab that does not come up fails the tests: no skip."""
    given = os.environ.get("HPCQ_TEST_LAB")
    if given:
        yield RunningLab(given)
        return
    with own_lab("test") as made:
        yield made


@pytest.fixture(autouse=True)
def _builds_go_round(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What hpcq built in one lab of a session, it need not build in the next: a build takes longer than most tests."""
    if not _labs:
        yield
        return
    store = session_folder(tmp_path_factory) / "lab-builds"
    _exchange(store)
    yield
    _exchange(store)


def _exchange(store: Path) -> None:
    for scratch in (folder for lab in _labs for folder in lab.state.glob("*/scratch")):
        own, shared = scratch / "hpcq" / "builds", store / scratch.parent.name
        shared.mkdir(parents=True, exist_ok=True)
        for folder in (own.parent, own):
            if not folder.exists():
                folder.mkdir(mode=0o700)
                shutil.chown(folder, LABUSER_ID, LABUSER_ID)
        for one, other in ((own, shared), (shared, own)):
            for built in one.glob("[0-9a-f]*"):
                _copy_built(built, other)


def _copy_built(built: Path, to: Path) -> None:
    """Under another name first: other processes look there meanwhile. Whoever is first has made it."""
    if (to / built.name).exists():
        return
    part = to / f".{built.name}.{os.getpid()}"
    if subprocess.run(["cp", "-a", built, part], check=False, capture_output=True).returncode == 0:
        with contextlib.suppress(OSError):
            part.rename(to / built.name)
    shutil.rmtree(part, ignore_errors=True)

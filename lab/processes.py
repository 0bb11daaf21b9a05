"""Processes of the lab: recorded by id and start time, entered by namespace, ended by id.

Everything that a lab runs descends, by PID namespace, from one process: the lab's init. If that one is killed, Linux
ends all the others, and with the last of them their mounts, interfaces and network namespaces disappear. So one signal
to one recorded process takes down a lab, whatever went wrong in it.

    host        unshare .. init.sh           <state>/init.pid
    init's ns     site.sh                    <state>/alpha/var/lib/lab/site.pid    network of the switches, tree of files
    node's ns       node.sh (process 1)      <state>/alpha/var/lib/lab/alpha-n01.pid
                      munged slurmd
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import LabError

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
ALL_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be confused with a later one of the same id."""

    pid: int
    started_ticks: int

    def is_alive(self) -> bool:
        return _started_ticks(self.pid) == self.started_ticks

    def kill(self, timeout_s: float = 10.0) -> None:
        """Send SIGKILL and wait until the process is gone, and with it everything whose init it was."""
        if not self.is_alive():
            return
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not self.is_alive(), timeout_s, f"process {self.pid} did not end on SIGKILL")


def recorded(pid_file: Path) -> Process | None:
    """The living process named by a pid file, or None."""
    try:
        pid, started_ticks = pid_file.read_text().split()
        process = Process(int(pid), int(started_ticks))
    except (OSError, ValueError):
        return None
    return process if process.is_alive() else None


def enter_command(process: Process, command: Sequence[str], namespaces: Sequence[str] = ALL_NAMESPACES) -> list[str]:
    """The command line that runs `command` in the namespaces of `process`."""
    return ["nsenter", f"--target={process.pid}", *namespaces, "--", *command]


def run(command: Sequence[str], what: str, *, input_text: str = "", timeout_s: float = 60.0) -> str:
    """Run a command and return its stdout. Raises LabError with the last words of its stderr."""
    try:
        done = subprocess.run(
            command, input=input_text, capture_output=True, text=True, env=ENVIRONMENT, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as found:
        raise LabError(f"{what}: no answer within {timeout_s:g} s") from found
    except OSError as found:
        raise LabError(f"{what}: {command[0]}: {found.strerror}") from found
    if done.returncode != 0:
        last_words = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise LabError(f"{what}: {command[0]} ended with {done.returncode}: {last_words}")
    return done.stdout


def wait_for(condition: Callable[[], bool], timeout_s: float, message: str, hint: str = "", interval_s: float = 0.02) -> None:
    """Poll until the condition is true. Raises LabError with this message after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(message, hint)
        time.sleep(interval_s)


def _started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None for a process that is gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])

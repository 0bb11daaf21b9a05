"""The one process that knows the simulated cluster: `python -m tests.simulated_slurm.server FOLDER NODES LEAF_SIZE`.

It listens on a port of this machine's loopback, answers one command a connection, and ends with the process that started it.
A request is a line with the token of FOLDER (which only its owner can read), then the program, the folder it is called in, a
count, and the words, each closed by a NUL.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.simulated_slurm.commands import Answer, answer
from tests.simulated_slurm.machine import Machine, Settings

_PR_SET_PDEATHSIG = 1


def serve(folder: Path, node_count: int, leaf_size: int) -> None:
    """Answer for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    token = (folder / "token").read_text().strip()
    machine = Machine(node_count, leaf_size)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    atexit.register(machine.kill_all)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        aside = folder / "port.part"
        aside.write_text(str(listener.getsockname()[1]))
        aside.rename(folder / "port")
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(20)
                try:
                    _one(machine, connection, token)
                except (OSError, ValueError) as error:
                    print(f"{type(error).__name__}: {error}", file=sys.stderr)


def _one(machine: Machine, connection: socket.socket, token: str) -> None:
    words = _words(connection)
    if next(words) != token:
        return
    program, cwd, count = next(words), next(words), int(next(words))
    given = [next(words) for _ in range(count)]
    try:
        if program == "control":
            found = Answer(json.dumps(_control(machine, json.loads(given[0]))))
        else:
            found = answer(machine, program, given, cwd, "me")
    except Exception as error:  # a request that it cannot serve must not end it: whoever asked is told
        found = Answer(f"simulated {program}: {type(error).__name__}: {error}", 70)
    text = found.text + "\n" if found.text else ""
    connection.sendall(f"{found.code} {text.count(chr(10))}\n{text}".encode())


def _words(connection: socket.socket) -> Iterator[str]:
    rest = b""
    while True:
        while b"\0" not in rest:
            piece = connection.recv(1 << 20)
            if not piece:
                raise ValueError("a request that broke off")
            rest += piece
        word, _, rest = rest.partition(b"\0")
        yield word.decode()


def _control(machine: Machine, wish: dict[str, Any]) -> dict[str, Any]:
    """What only a test may do: change settings, be another user, count."""
    machine.advance()
    for name, value in wish.get("set", {}).items():
        if name not in Settings.__slots__:
            raise ValueError(f"no setting {name}")
        setattr(machine.settings, name, value)
    for name, word in wish.get("nodes", {}).items():
        machine.set_node(name, word, "by the test")
    other = wish.get("other")
    if other:  # a job of another user, without a script
        kept, machine.settings.run_s = machine.settings.run_s, other["run_s"]
        job = machine.submit(other.get("name", "theirs"), other.get("user", "other"), tuple(other["nodes"]), limit_s=3600)
        machine.settings.run_s = kept
        return {"number": job.number}
    for number, changed in wish.get("strange", {}).items():  # a controller that lost its state gives ids out again
        job = machine.jobs[int(number)]
        job.name, job.user = changed["name"], changed["user"]
        machine.count_users()
    for number in wish.get("forget", ()):
        machine.cancel(machine.jobs[number])
    machine.retry()
    if wish.get("end_all"):
        machine.end_all()
    states: dict[str, int] = {}
    for job in machine.jobs.values():
        states[f"{job.user} {job.state}"] = states.get(f"{job.user} {job.state}", 0) + 1
    names = [job.name for job in machine.jobs.values() if job.user == "me"]
    return {"calls": machine.calls, "rows": machine.rows, "states": states, "names": names, "broken": machine.settings.broken}


if __name__ == "__main__":
    os.umask(0o077)
    serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

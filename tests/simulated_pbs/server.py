"""The one process that knows the simulated PBS: `python -m tests.simulated_pbs.server FOLDER PLACE NODE=NCPUS…`.

PLACE is a Place (place.py) as JSON. It listens on a port of this machine's loopback, and of that place's network if it has
one, and ends with the process that started it. A request is a line of NUL-closed words: the token of FOLDER, the program,
the folder and the user that it is called by, a count, the words, the job it is called in, and what came on standard input.
An answer may take its time: qstat sleeps, qsub -W block waits for its job, pbs_tmrsh for its task.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulated_pbs.commands import answer
from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.place import Place
from tests.simulated_pbs.records import Job, Node, Settings, chunks_of
from tests.simulated_pbs.requests import Answer, Request

_PR_SET_PDEATHSIG = 1
_TICK_S = 0.05
Pending = Callable[[], Answer | None]


@dataclass(slots=True)
class Waiting:
    """A connection whose answer is not there yet."""

    connection: socket.socket
    ask: Pending


@dataclass(slots=True)
class Server:
    """Connections and the machine behind them."""

    machine: Machine
    token: str
    waiting: list[Waiting] = field(default_factory=list)
    called_at: dict[str, float] = field(default_factory=dict)

    def take(self, connection: socket.socket) -> None:
        """Read a request and answer it, now or later."""
        try:
            connection.settimeout(20)
            given = _read(connection, self.token)
            if given is None:
                connection.close()
                return
            request, job_id = given
            self.waiting.append(Waiting(connection, self._pending(request, job_id)))
        except (OSError, ValueError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            connection.close()

    def turn(self) -> None:
        """Let time pass, and send what is ready."""
        self.machine.tick()
        for one in list(self.waiting):
            found = one.ask()
            if found is not None:
                self.waiting.remove(one)
                _send(one.connection, found)

    def _pending(self, request: Request, job_id: str) -> Pending:
        try:
            if request.program == "control":
                found = Answer(json.dumps(control(self.machine, json.loads(request.words[0]))))
                return lambda: found
            if request.program in {"pbs_tmrsh", "pbsdsh"}:
                return self._tasks(request, job_id)
            said = answer(self.machine, request)
        except Exception as error:  # whoever asked is told, and the server goes on
            said = Answer("", f"simulated {request.program}: {type(error).__name__}: {error}", 70)
        ready_at = self._slept_until(request)
        job = self._blocking(request, said)
        if job is not None:
            return lambda: (
                Answer(said.text, "", (job.exit_status or 0) & 255) if job.over or job.number not in self.machine.jobs else None
            )
        return lambda: said if time.monotonic() >= ready_at else None

    def _slept_until(self, request: Request) -> float:
        """qstat sleeps when its user called it within this second."""
        now = time.monotonic()
        last = self.called_at.get(request.user, -9.0)
        if request.program != "qstat":
            return now
        self.called_at[request.user] = now
        return now + (self.machine.settings.sleep_s if now - last < 1.0 else 0.0)

    def _blocking(self, request: Request, said: Answer) -> Job | None:
        if request.program != "qsub" or said.code or "block=true" not in " ".join(request.words):
            return None
        return self.machine.jobs.get(int(said.text.partition(".")[0] or "0"))

    def _tasks(self, request: Request, job_id: str) -> Pending:
        """What pbs_tmrsh and pbsdsh start on nodes of a job; it stays when they are killed, and ends with the job."""
        machine = self.machine
        job = machine.jobs.get(int(job_id.partition(".")[0])) if job_id.partition(".")[0].isdigit() else None
        if job is None or job.process is None:
            words = f"{request.program}: not executing under PBS" if not job_id else f"{request.program}: tm_init: TM_ENOTFOUND"
            return lambda: Answer("", words, 255)
        lines = machine.lines(job, job.hosts)
        hosts = {machine.nodes[host].full_name: host for host in job.hosts}
        wanted, command = _task_words(request, lines)
        if wanted is None:
            words = f'{request.program}: host "{request.words[0]}" is not a node in job <{job.scheduler_job_id}>'
            return lambda: Answer("", words, 255)
        on = [hosts[lines[index]] for index in wanted]
        tasks = [machine.run(host, job, command, machine.spool(job)) for host in on]
        job.tasks += tasks
        job.task_nodes += on
        return lambda: _ended(request.program, tasks)


def _task_words(request: Request, lines: list[str]) -> tuple[list[int] | None, list[str]]:
    """On which lines of the node file, and what."""
    words = list(request.words)
    if request.program == "pbs_tmrsh":
        host = words.pop(0)
        return ([lines.index(host)] if host in lines else None), words
    wanted: list[int] | None = list(range(len(lines)))
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag == "--":
            break
        if flag == "-n":
            wanted = [int(words.pop(0)) % len(lines)]
        elif flag == "-c":
            wanted = list(range(min(int(words.pop(0)), len(lines))))
        elif flag == "-h":
            host = words.pop(0)
            wanted = [lines.index(host)] if host in lines else None
    return wanted, words


def _ended(program: str, tasks: list[subprocess.Popen[bytes]]) -> Answer | None:
    codes = [task.poll() for task in tasks]
    if any(code is None for code in codes):
        return None
    known = [254 if code == 127 else 256 + code if code is not None and code < 0 else code or 0 for code in codes]
    if program == "pbs_tmrsh":
        return Answer("", "", known[0] & 255)
    said = [f"pbsdsh: task 0x{index:08x} exit status {code}" for index, code in enumerate(known) if code]
    return Answer("", "\n".join(said), 0)  # the exit codes are words only


def control(machine: Machine, wish: dict[str, Any]) -> dict[str, Any]:
    """What only a test may do: change settings, nodes and queues, be another user, count."""
    machine.tick()
    for name, value in wish.get("set", {}).items():
        if name not in Settings.__slots__:
            raise ValueError(f"no setting {name}")
        setattr(machine.settings, name, value)
    for name, change in wish.get("nodes", {}).items():
        for key, value in change.items():
            setattr(machine.nodes[name], key, tuple(value) if key == "prefix" else value)
            machine.nodes[name].changed_at = time.time()
    for name in wish.get("power_cut", []):
        machine.power_cut(name)
    other = wish.get("other")
    if other:
        script = f"#!/bin/sh\nsleep {other['run_s']}\n".encode()
        job = Job(
            machine.number(), other.get("name", "theirs"), other.get("user", "other"), "workq", other["select"],
            other.get("place", "scatter:exclhost"), chunks_of(other["select"]), 3600.0, other.get("variables", []), script, "/",
            "/dev/null", "",
        )  # fmt: skip
        machine.jobs[job.number] = job
        machine.tick()
        return {"id": job.scheduler_job_id}
    states: dict[str, int] = {}
    for job in machine.jobs.values():
        states[f"{job.user} {job.state}"] = states.get(f"{job.user} {job.state}", 0) + 1
    return {"calls": machine.calls, "states": states, "names": [job.name for job in machine.jobs.values()]}


def _read(connection: socket.socket, token: str) -> tuple[Request, str] | None:
    rest, words = b"", []

    def word() -> bytes:
        nonlocal rest
        while b"\0" not in rest:
            piece = connection.recv(1 << 20)
            if not piece:
                raise ValueError("a request that broke off")
            rest += piece
        found, _, rest = rest.partition(b"\0")
        return found

    if word().decode() != token:
        return None
    program, cwd, user, count = (word().decode() for _ in range(4))
    words = [word().decode("utf-8", errors="surrogateescape") for _ in range(int(count))]
    job_id = word().decode()
    return Request(program, words, cwd, user, word()), job_id


def _send(connection: socket.socket, said: Answer) -> None:
    text, error = (part.split("\n") if part else [] for part in (said.text, said.error))
    whole = "".join(f"{line}\n" for line in [f"{said.code} {len(text)} {len(error)}", *text, *error])
    with contextlib.suppress(OSError):  # whoever asked is gone
        connection.sendall(whole.encode("utf-8", errors="surrogateescape"))
    connection.close()


def serve(folder: Path, place: Place, nodes: list[Node]) -> None:
    """Answer for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    machine = Machine(folder, nodes, place)
    server = Server(machine, (folder / "token").read_text().strip())
    selector = selectors.DefaultSelector()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))]
        there = place.listener()
        if there is not None:
            listeners.append(stack.enter_context(there))
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        aside = folder / "port.part"
        aside.write_text(" ".join(str(listener.getsockname()[1]) for listener in listeners))
        aside.rename(folder / "port")
        try:
            while True:
                for key, _ in selector.select(_TICK_S):
                    assert isinstance(key.fileobj, socket.socket)
                    server.take(key.fileobj.accept()[0])
                server.turn()
        finally:
            for job in list(machine.jobs.values()):  # nothing of it outlives its test
                for process in [job.process, *job.tasks]:
                    if process is not None and process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    given = Place(**json.loads(sys.argv[2]))
    os.umask(0o022 if given.root else 0o077)  # in a lab, others than its owner run the jobs
    words = (word.partition("=") for word in sys.argv[3:])
    serve(Path(sys.argv[1]), given, [Node(name, int(count)) for name, _, count in words])

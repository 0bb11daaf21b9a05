"""What a simulated PBS knows: nodes, chunks, jobs, reservations, queues, and what a test may set."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Container
from dataclasses import dataclass, field

SERVER = "simhead"
DOMAIN = "sim.test"
WALLTIME_NONE_S = 5 * 365 * 86400.0


@dataclass(slots=True)
class Node:
    """One host with one vnode. prefix: the words that run a command there; none: on this machine."""

    name: str
    ncpus: int = 4
    offline: bool = False
    down: bool = False
    comment: str = ""
    queue: str = ""
    changed_at: float = field(default_factory=time.time)
    #: When a job there ended last.
    used_at: float = 0.0
    sharing: str = "default_shared"
    #: resources_available beyond what every node has: Qlist, switch.
    resources: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.name}.{DOMAIN}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a select: how many cpus, and the host that it names, if any."""

    ncpus: int
    host: str
    #: Words that its host must have: Qlist=workq.
    words: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Job:
    """One job. Times are epoch seconds; 0 where it has not happened."""

    number: int
    name: str
    user: str
    queue: str
    select: str
    place: str
    chunks: tuple[Chunk, ...]
    walltime_s: float | None
    variables: list[str]
    script: bytes
    workdir: str
    output: str
    arguments: str
    account: str = ""
    project: str = "_pbs_project_default"
    rerunable: bool = True
    state: str = "Q"
    substate: int = 10
    holds: str = "n"
    start_after: float = 0.0
    comment: str = ""
    hosts: tuple[str, ...] = ()
    exit_status: int | None = None
    created: float = field(default_factory=time.time)
    #: When the scheduler expects it to start.
    estimated: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    deleted_by: str = ""
    term_sent: float = 0.0
    #: When it was suspended last, and for how long it stood still before.
    suspended: float = 0.0
    stood_s: float = 0.0
    #: Whether an operator suspended it for its nodes' sake: they are in maintenance until it goes on or has ended.
    takes_nodes_out: bool = False
    exceeded: bool = False
    delivered: bool = True
    process: subprocess.Popen[bytes] | None = None
    tasks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: The node of each task.
    task_nodes: list[str] = field(default_factory=list)

    @property
    def scheduler_job_id(self) -> str:
        return f"{self.number}.{SERVER}"

    @property
    def exclusive(self) -> bool:
        return "excl" in self.place

    @property
    def over(self) -> bool:
        return self.state == "F"

    @property
    def exec_vnode(self) -> str:
        return "+".join(f"({host}:ncpus={chunk.ncpus})" for host, chunk in zip(self.hosts, self.chunks, strict=True))

    @property
    def exec_host(self) -> str:
        shown = []
        for host, chunk in zip(self.hosts, self.chunks, strict=True):
            shown.append(f"{host}/0" + (f"*{chunk.ncpus}" if chunk.ncpus != 1 else ""))
        return "+".join(shown)


@dataclass(slots=True)
class Reservation:
    """One reservation; maintenance ones are of whole hosts."""

    number: int
    name: str
    user: str
    select: str
    place: str
    nodes: tuple[str, ...]
    cpus: tuple[int, ...]
    start: float
    end: float
    users: list[str]
    maintenance: bool = False
    state: str = "CONFIRMED"

    @property
    def queue(self) -> str:
        return f"{'M' if self.maintenance else 'R'}{self.number}"

    @property
    def scheduler_job_id(self) -> str:
        return f"{self.queue}.{SERVER}"


@dataclass(slots=True)
class Queue:
    """One queue; limits as qmgr sets them, in PBS's own words."""

    name: str
    enabled: bool = True
    started: bool = True
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Settings:
    """What a test may change while it runs."""

    history: bool = True
    #: What qstat sleeps when the same user called it within this second.
    sleep_s: float = 0.2
    #: How often a MOM looks at time limits; real ones take some seconds.
    limits_every_s: float = 1.0
    #: How long E lasts, and how long TERM may be ignored.
    exiting_s: float = 0.2
    kill_delay_s: float = 3.0
    #: How long a running job's nodes take to confirm its start: its substate is 41 until then.
    heard_after_s: float = 0.3
    #: Whether the scheduler keeps nodes for jobs that wait, and so estimates their starts.
    strict_ordering: bool = False
    #: Whether the server never learns that a script has ended, as a live one once did not.
    deaf: bool = False
    #: Whether what jobs say arrives where it should.
    delivers: bool = True
    #: The next so many requests are refused as if no server were there: negative is for ever.
    down: int = 0
    #: What a hook of the site makes of every select: a pattern and what replaces it.
    rewrite_select: list[str] = field(default_factory=list)
    #: Whether it speaks as Torque does (torque.py).
    torque: bool = False
    #: What a hook says to every qsub, with exit code 32.
    hook_refuses: str = ""


#: What a chunk may ask for on every node.
_OF_CHUNKS = {"ncpus", "host", "vnode", "mem", "mpiprocs", "ompthreads", "arch"}


def chunks_of(select: str) -> tuple[Chunk, ...]:
    """The chunks of `2:ncpus=1+1:host=n1:ncpus=4`; the caller has checked it."""
    found: list[Chunk] = []
    for part in select.split("+"):
        words = part.split(":")
        count = int(words[0]) if words[0].isdigit() else 1
        given = dict(word.split("=", 1) for word in words if "=" in word)
        host = given.get("host") or given.get("vnode") or ""
        asked = tuple((name, value) for name, value in given.items() if name not in _OF_CHUNKS)
        found += [Chunk(int(given.get("ncpus", "1")), host, asked)] * count
    return tuple(found)


def select_complaint(  # noqa: PLR0911 - one per complaint
    select: str, known: Container[str] = ()
) -> tuple[int, str] | None:
    """Why a select is refused, as the recordings say: exit code and words. known: resources of the site's own."""
    bad = (166, "Illegal attribute or resource value Resource_List.select")
    for part in select.split("+"):
        head, *words = part.split(":")
        if head == "0":
            return 166, "Illegal attribute or resource value"
        if not (re.fullmatch(r"[1-9]\d*", head) or "=" in head):
            return bad
        names = [word.partition("=")[0] for word in [*words, *([head] if "=" in head else [])]]
        for word in words:
            name, sign, value = word.partition("=")
            if not sign:
                return bad
            if name not in _OF_CHUNKS and name not in known:
                return 187, f"Unknown resource: {name}"
            if name in {"ncpus", "mpiprocs"} and not value.isdigit():
                return 166, f"Illegal attribute or resource value select.{name}"
        double = next((name for name in names if names.count(name) > 1), None)
        if double:
            return 12, f"duplicated resource within a section of a select specification, resource is: {double}"
    return None

"""Nodes, reservations and the server: pbsnodes, pbs_rsub, pbs_rstat, pbs_rdel, pbs_ralter, qmgr."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from tests.simulated_pbs import printing
from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.records import SERVER, Chunk, Queue, Reservation, chunks_of, select_complaint
from tests.simulated_pbs.requests import Answer, Refused, Request, moment, options_of, resources_of, walltime_s

# -- nodes, reservations, server ------------------------------------------------------------------------------------------


def pbsnodes(machine: Machine, request: Request) -> Answer:
    given, names = options_of(request.words, "avlorHSjL", "CFDs")
    if {"o", "r"} & set(given):
        return _mark(machine, request, given, names)
    if "l" in given:
        bad = [node for node in machine.nodes.values() if node.offline or node.down]
        return Answer("\n".join(f"{n.name:<20} {printing.node_state(machine, n)} {n.comment}" for n in bad))
    if "a" in given:
        names = list(machine.nodes)
    if not names:
        raise Refused(1, "usage:\tpbsnodes [-{o|r}][-C comment][-s server] host host ...")
    form, separator = given.get("F", ["text"])[-1], given.get("D", ["|"])[-1]
    unknown = [name for name in names if name not in machine.nodes]
    if unknown and form != "json":
        raise Refused(1, f"Node: {unknown[0]},  Error: Unknown node ")
    shown = [
        (name, printing.node_attributes(machine, machine.nodes[name]) if name in machine.nodes else [(name, "Unknown node ")])
        for name in names
    ]
    if form == "json":
        return Answer(printing.as_json("nodes", shown))
    if form == "dsv":
        return Answer("\n".join(printing.dsv(f"Name={name}", attributes, separator) for name, attributes in shown))
    return Answer("\n\n".join(printing.plain(name, attributes, wide=True, indent=" " * 5) for name, attributes in shown))


def _mark(machine: Machine, request: Request, given: dict[str, list[str]], names: list[str]) -> Answer:
    for name in names:
        if name not in machine.nodes:
            raise Refused(1, f"Error marking node {name} - Unknown node")
        if request.user not in machine.server.get("managers", "root@*").replace("@*", "").split(","):
            raise Refused(1, f"Error marking node {name} - Unauthorized Request")
        node = machine.nodes[name]
        node.offline = "o" in given
        node.comment = given["C"][-1] if "C" in given else node.comment
        node.changed_at = time.time()
    return Answer()


def pbs_rsub(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, "", "INRElDUuGgHqmM")
    maintenance = "hosts" in given
    start = moment(given["R"][-1]) if "R" in given else 0.0
    end = moment(given["E"][-1]) if "E" in given else start + _duration(given.get("D", ["0"])[-1])
    if start < time.time() - 1 or end <= start:
        raise Refused(238, "pbs_rsub: Bad time specification(s)")
    if maintenance and request.user not in machine.server.get("managers", "root@*").replace("@*", "").split(","):
        raise Refused(159, "pbs_rsub: Unauthorized Request ")
    words = resources_of(given.get("l", []))
    select = words.get("select", "1")
    complaint = select_complaint(select)
    if complaint is not None:
        raise Refused(complaint[0], f"pbs_rsub: {complaint[1]}")
    chunks = chunks_of(select)
    users = [f"{request.user}@{SERVER}", *(one for text in given.get("U", []) for one in text.split(","))]
    nodes: tuple[str, ...] | None = (
        tuple(plain) if maintenance else _reserved_nodes(machine, chunks, start, end, "excl" in words.get("place", ""))
    )
    cpus = tuple(machine.nodes[name].ncpus for name in plain) if maintenance else tuple(chunk.ncpus for chunk in chunks)
    number = machine.number()
    one = Reservation(
        number, given.get("N", [""])[-1], request.user, select, words.get("place", "free"), nodes or (), cpus, start, end,
        users, maintenance,
    )  # fmt: skip
    waits = maintenance or "I" in given
    if nodes is None:
        return Answer(f"R{number}.{SERVER} {'DENIED' if waits else 'UNCONFIRMED'}")  # and exit code 0
    machine.reservations[one.queue] = one
    return Answer(f"{one.scheduler_job_id} {'CONFIRMED' if waits else 'UNCONFIRMED'}")


def _duration(text: str) -> float:
    return walltime_s(text) if text else 0.0


def _reserved_nodes(
    machine: Machine, chunks: Sequence[Chunk], start: float, end: float, exclusive: bool
) -> tuple[str, ...] | None:
    taken: list[str] = []
    for chunk in chunks:
        fits = [name for name in ([chunk.host] if chunk.host else machine.nodes) if name in machine.nodes and name not in taken]
        free = next((name for name in fits if _can_be_reserved(machine, name, start, end, exclusive)), None)
        if free is None:
            return None
        taken.append(free)
    return tuple(taken)


def _can_be_reserved(machine: Machine, name: str, start: float, end: float, exclusive: bool) -> bool:
    node = machine.nodes[name]
    others = [one for one in machine.reservations.values() if name in one.nodes and one.start < end and start < one.end]
    running = [job for job in machine.busy(name) if job.walltime_s is None or job.started + job.walltime_s > start]
    return not (node.offline or node.down or others or (running and exclusive))


def _reservation(machine: Machine, program: str, text: str) -> Reservation:
    if not re.fullmatch(rf"[RMS]\d+(\.{SERVER})?", text):
        raise Refused(1, f"{program}: illegally formed reservation identifier: {text}")
    found = machine.reservations.get(text.partition(".")[0])
    if found is None:
        raise Refused(236, f"{program}: Unknown Reservation Id {text.partition('.')[0]}.{SERVER}")
    return found


def pbs_rstat(machine: Machine, request: Request) -> Answer:
    _, names = options_of(request.words, "fFBS", "")
    try:
        shown = [_reservation(machine, "pbs_rstat", name) for name in names] or list(machine.reservations.values())
    except Refused as refused:
        if refused.answer.code == 236:
            return Answer("", "pbs_rstat: Unknown Reservation Id")  # and exit code 0
        raise
    return Answer("\n".join(printing.reservation_text(one, degraded=machine.degraded(one)) for one in shown))


def pbs_rdel(machine: Machine, request: Request) -> Answer:
    for name in request.words:
        one = _reservation(machine, "pbs_rdel", name)
        if request.user not in {one.user, "root"}:
            raise Refused(159, f"pbs_rdel: Unauthorized Request  {one.scheduler_job_id}")
        machine.end_reservation(one, request.user)
    return Answer()


def pbs_ralter(machine: Machine, request: Request) -> Answer:
    given, names = options_of(request.words, "", "ERDUI")
    one = _reservation(machine, "pbs_ralter", names[0] if names else "")
    if "U" in given and request.user not in {one.user, "root"}:
        raise Refused(159, f"pbs_ralter: Unauthorized Request  {one.scheduler_job_id}")
    one.users = given["U"][-1].split(",") if "U" in given else one.users
    denied = "E" in given and machine.degraded(one)
    one.end = moment(given["E"][-1]) if "E" in given and not denied else one.end
    # Without -I, nobody is told that it was denied; with it, the exit code is 0, too.
    word = ("DENIED" if denied else "CONFIRMED") if "I" in given else "ALTER REQUESTED"
    return Answer(f"pbs_ralter: {one.scheduler_job_id} {word}")


def qmgr(machine: Machine, request: Request) -> Answer:
    given, _ = options_of(request.words, "", "c")
    for line in given.get("c", request.stdin.decode().splitlines()):
        if line.strip() == "list sched":
            return Answer(
                "\n".join(["Sched default", *(f"    {name} = {value}" for name, value in machine.scheduler.items()), ""])
            )
        _order(machine, request.user, line.strip())
    return Answer()


def _order(machine: Machine, user: str, line: str) -> None:
    match = re.fullmatch(r"(create|set|unset|list) (server|queue|node|sched|s|q|n)\b ?(\S+)? ?([\w.]+)? ?(\+?=)? ?(.*)", line)
    if match is None:
        return
    verb, kind, name, attribute, _, value = match.groups()
    if verb != "list" and user != "root":
        raise Refused(
            159, f"qmgr obj={name or ''} svr=default: Unauthorized Request \nqmgr: Error (15007) returned from server"
        )
    value = (value or "").strip().strip("\"'")
    if kind == "sched":
        attribute, value = name, line.partition("=")[2].strip()
        machine.scheduler[attribute] = value
    elif kind.startswith("s") and verb == "set":
        attribute, value = name, line.partition("=")[2].strip().strip("\"'")
        if attribute == "job_history_enable":
            machine.settings.history = value.lower() == "true"
        else:
            machine.server[attribute] = value
    elif kind.startswith("q"):
        queue = (
            machine.queues.setdefault(name, Queue(name, enabled=False, started=False))
            if verb == "create"
            else machine.queues[name]
        )
        if verb == "set" and attribute in {"enabled", "started"}:
            setattr(queue, attribute, value.lower() == "true")
        elif verb == "set" and attribute:
            queue.settings[attribute] = value
    elif kind.startswith("n") and verb == "set" and attribute in {"comment", "queue"}:
        setattr(machine.nodes[name], attribute, value)

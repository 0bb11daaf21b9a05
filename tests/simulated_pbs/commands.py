"""The words of PBS's commands, their exit codes, and which of their answers are not what one would think."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulated_pbs import printing
from tests.simulated_pbs.machine import (
    SERVER,
    Chunk,
    Job,
    Machine,
    Queue,
    Reservation,
    chunks_of,
    select_complaint,
)

_NO_SERVER = f"Connection refused\n{{program}}: cannot connect to server {SERVER} (errno=15010)"
_DOWN_CODES = {"qstat": 255, "pbsnodes": 1, "qmgr": 3}
_USAGE_OF_QSUB = "usage: qsub [-a date_time] [-A account_string] [-c interval]"


@dataclass(frozen=True, slots=True)
class Request:
    """One command: its words, where and by whom it is given, and what came on its standard input."""

    program: str
    words: list[str]
    cwd: str
    user: str
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints on both outputs, and ends with."""

    text: str = ""
    error: str = ""
    code: int = 0


class Refused(Exception):  # noqa: N818 - it is an answer
    """Ends a command with its words and exit code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.answer = Answer("", words, code)


def answer(machine: Machine, request: Request) -> Answer:
    """Carry out one command."""
    machine.calls[request.program] = machine.calls.get(request.program, 0) + 1
    if machine.settings.down:
        machine.settings.down -= machine.settings.down > 0
        words = _NO_SERVER.format(program=request.program)
        return Answer("", words, _DOWN_CODES.get(request.program, 162))
    if "--version" in request.words:
        return Answer("pbs_version = 23.06.06")
    machine.tick()
    try:
        found = _COMMANDS[request.program](machine, request)
    except Refused as refused:
        found = refused.answer
    machine.tick()
    return found


def options_of(words: list[str], flags: str, valued: str) -> tuple[dict[str, list[str]], list[str]]:
    """getopt: -a -l value; plain words behind them."""
    given: dict[str, list[str]] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word == "--":
            break
        if word.startswith("--"):
            given.setdefault(word[2:], []).append("")
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued:
                if not letters:
                    letters = words[place] if place < len(words) else ""
                    place += 1
                given.setdefault(letter, []).append(letters)
                letters = ""
            elif letter in flags:
                given.setdefault(letter, []).append("")
            else:
                raise Refused(2, f"invalid option -- '{letter}'\nusage:")
    return given, words[place:]


# -- qsub -----------------------------------------------------------------------------------------------------------------

_QSUB_FLAGS, _QSUB_VALUED = "hfzIVX", "aACceJjklmMNopPqrRSuvW"


def _qsub(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, _QSUB_FLAGS, _QSUB_VALUED)
    if plain and "--" not in request.words:
        path = Path(request.cwd, plain[0])
        if not path.exists():
            raise Refused(1, "qsub: script file:: No such file or directory")
        if not path.is_file():
            raise Refused(1, "qsub: script not a file")
        if len(plain) > 1:
            raise Refused(2, _USAGE_OF_QSUB)
        script, name = path.read_bytes(), path.name
    elif plain:
        script, name = f"#!/bin/sh\nexec {shlex.join(plain)}\n".encode(), "STDIN"
    else:
        script, name = request.stdin, "STDIN"
    merged = {key: list(values) for key, values in _directives(script).items()}
    for key, values in given.items():
        merged[key] = [*merged.get(key, []), *values] if key in "lW" else values
    job = _job(machine, request, merged, script, name)
    machine.jobs[job.number] = job
    return Answer("" if "z" in merged else job.native_id)


def _directives(script: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in script.decode("utf-8", errors="replace").splitlines():
        if line.startswith("#PBS"):
            for key, values in options_of(shlex.split(line[4:]), _QSUB_FLAGS, _QSUB_VALUED)[0].items():
                found.setdefault(key, []).extend(values)
        elif line and not line.startswith("#"):
            break
    return found


def _job(machine: Machine, request: Request, given: dict[str, list[str]], script: bytes, script_name: str) -> Job:
    name = given.get("N", [script_name])[-1]
    if not re.fullmatch(r"[!-~]+", name) or re.search(r"[/:\\]", name):
        raise Refused(2, f"qsub: illegal -N value\n{_USAGE_OF_QSUB}")
    if len(name) > 235:
        raise Refused(2, "qsub: Job name is too long ")
    number = machine.number()
    resources = _resources(given.get("l", []))
    for words in given.get("W", []):
        if words.partition("=")[0] not in {"tolerate_node_failures", "umask", "block", "depend", "sandbox"}:
            raise Refused(154, "qsub: Error (15002) submitting job")
    queue = given.get("q", [machine.server["default_queue"]])[-1].partition("@")[0]
    select = resources.get("select", "1")
    if len(machine.settings.rewrite_select) == 2:
        pattern, replacement = machine.settings.rewrite_select
        select = re.sub(pattern, replacement, select)
    complaint = select_complaint(select)
    if complaint is not None:
        raise Refused(complaint[0], f"qsub: {complaint[1]}")
    place = resources.get("place", "free")
    allowed = {"free", "pack", "scatter", "vscatter", "excl", "exclhost", "shared"}
    if set(place.split(":")) - allowed:
        raise Refused(166, "qsub: Illegal attribute or resource value Resource_List.place")
    walltime = _walltime(resources["walltime"]) if "walltime" in resources else None
    _let_in(machine, request.user, queue, len(chunks_of(select)), walltime)
    if machine.settings.hook_refuses:
        raise Refused(32, f"qsub: {machine.settings.hook_refuses}")
    variables = [f"PBS_O_HOME={Path.home()}", f"PBS_O_LOGNAME={request.user}", f"PBS_O_WORKDIR={request.cwd}"]
    variables += [word for one in given.get("v", []) for word in re.split(r"(?<!\\),", one) if "=" in word]
    output = given.get("o", [f"{request.cwd}/{name}.o{number}"])[-1]
    return Job(
        number, name, request.user, queue, select, place, chunks_of(select), walltime, [*variables, f"PBS_O_QUEUE={queue}"],
        script, request.cwd, output, " ".join(request.words), account=given.get("A", [""])[-1],
        project=given.get("P", ["_pbs_project_default"])[-1], rerunable=given.get("r", ["y"])[-1] != "n",
        state="H" if "h" in given else "Q", substate=20 if "h" in given else 10, holds="u" if "h" in given else "n",
        start_after=_moment(given["a"][-1]) if "a" in given else 0.0,
    )  # fmt: skip


def _resources(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        for word in line.split(",") if not line.startswith("select") else [line]:
            name, _, value = word.partition("=")
            if name not in {"select", "place", "walltime", "ncpus", "mem", "software"}:
                raise Refused(187, f"qsub: Unknown resource Resource_List.{name}")
            found[name] = value
    if "select" in found and "ncpus" in found:
        raise Refused(5, 'qsub: "-lresource=" cannot be used with "select" or "place", resource is: ncpus')
    return found


def _walltime(text: str) -> float:
    if not re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text):
        raise Refused(166, "qsub: Illegal attribute or resource value Resource_List.walltime")
    total = 0.0
    for part in text.split(":"):
        total = 60 * total + float(part)
    return total


def _let_in(machine: Machine, user: str, name: str, chunk_count: int, walltime: float | None) -> None:
    reservation = machine.reservations.get(name)
    if reservation is not None:
        if user not in {one.partition("@")[0] for one in reservation.users}:
            raise Refused(159, "qsub: Unauthorized Request ")
        return
    queue = machine.queues.get(name)
    if queue is None:
        raise Refused(170, "qsub: Unknown queue")
    if not queue.enabled:
        raise Refused(173, "qsub: Queue is not enabled")
    settings = queue.settings
    if settings.get("acl_user_enable") == "True" and user not in settings.get("acl_users", "").replace("@*", "").split(","):
        raise Refused(159, "qsub: Unauthorized Request ")
    longest, most = settings.get("resources_max.walltime"), settings.get("resources_max.nodect")
    if (longest and walltime is not None and walltime > _walltime(longest)) or (most and chunk_count > int(most)):
        raise Refused(188, "qsub: Job violates queue and/or server resource limits")
    limit = re.search(r"u:PBS_GENERIC=(\d+)", settings.get("max_queued", ""))
    if limit and machine.live(user, name) >= int(limit[1]):
        raise Refused(38, "qsub: would exceed queue generic's per-user limit")


def _moment(text: str) -> float:
    """[[CC]YY]MMDDhhmm[.SS] in local time."""
    form = "%Y%m%d%H%M.%S" if "." in text else "%Y%m%d%H%M"
    return time.mktime(time.strptime(text, form))


# -- jobs -----------------------------------------------------------------------------------------------------------------


def _job_of(machine: Machine, program: str, text: str, *, ended: bool) -> Job:
    """The job of an id. Raises Refused as PBS does: malformed, unknown, or finished."""
    match = re.fullmatch(rf"(\d+)(\.{SERVER})?", text)
    if match is None:
        raise Refused(1, f"{program}: illegally formed job identifier: {text}")
    job = machine.jobs.get(int(match[1]))
    if job is None:
        raise Refused(153, f"{program}: Unknown Job Id {match[1]}.{SERVER}")
    if job.over and not ended:
        words = "Job has finished, use -x or -H to obtain historical job information"
        raise Refused(
            35, f"{program}: {job.native_id} {words}" if program == "qstat" else f"{program}: Job has finished {job.native_id}"
        )
    return job


def _qstat(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, "fxwBQtEHasn1iT", "FDu")
    form = given.get("F", ["text"])[-1]
    if "F" in given and "f" not in given:
        raise Refused(2, "qstat: conflicting options.\nusage: ")
    if form not in {"text", "dsv", "json"}:
        raise Refused(2, "usage: ")
    separator = given.get("D", ["|"])[-1]
    if "B" in given:
        return Answer(_shown("Server", [(SERVER, printing.server_attributes(machine))], form, separator, wide="w" in given))
    if "Q" in given:
        return _qstat_queues(machine, plain, form, separator)
    ended = "x" in given or "H" in given
    if ended and not machine.settings.history:
        return Answer("", "qstat: PBS is not configured to maintain job history " + " ".join(plain))
    jobs, complaints = [], []
    for text in plain:
        if not text[:1].isdigit():
            raise Refused(170, f"qstat: Unknown queue destination {text}")
        try:
            jobs.append(_job_of(machine, "qstat", text, ended=ended))
        except Refused as refused:
            complaints.append(refused.answer)
    if not plain:
        jobs = [job for job in machine.jobs.values() if ended or not job.over]
    error, code = "\n".join(one.error for one in complaints), complaints[-1].code if complaints else 0
    if "f" not in given:
        rows = [
            f"{job.native_id:<17.17} {job.name:<16.16} {job.user:<16.16} {0:>8} {job.state} {job.queue:<16}" for job in jobs
        ]
        head = ["Job id            Name             User              Time Use S Queue", "-" * 16] if rows else []
        return Answer("\n".join([*head, *rows]), error, code)
    if form == "json" and plain:
        jobs = jobs[:1]  # only the first id's: the bug is PBS's
    shown = [(job.native_id, printing.job_attributes(job)) for job in jobs]
    return Answer(_shown("Job Id", shown, form, separator, wide="w" in given), error, code)


def _qstat_queues(machine: Machine, names: list[str], form: str, separator: str) -> Answer:
    queues = dict(machine.queues)
    for one in machine.reservations.values():
        queues[one.queue] = Queue(one.queue, started=one.state == "RUNNING", settings={"acl_user_enable": "True"})
        queues[one.queue].settings["acl_users"] = ",".join(one.users)
    unknown = [name for name in names if name not in queues]
    if unknown:
        raise Refused(170, f"qstat: Unknown queue {unknown[0]}")
    shown = [(name, printing.queue_attributes(machine, queue)) for name, queue in queues.items() if not names or name in names]
    return Answer(_shown("Queue", shown, form, separator, wide=False))


def _shown(kind: str, objects: list[tuple[str, printing.Attributes]], form: str, separator: str, *, wide: bool) -> str:
    if form == "json":
        return printing.as_json({"Job Id": "Jobs"}.get(kind, kind), objects)
    if form == "dsv":
        return "\n".join(printing.dsv(f"{kind}: {name}", attributes, separator) for name, attributes in objects)
    return "\n\n".join(printing.plain(f"{kind}: {name}", attributes, wide=wide) for name, attributes in objects)


def _qselect(machine: Machine, request: Request) -> Answer:
    given, _ = options_of(request.words, "xHJT", "uNsqaAcehlprP")
    if "x" in given and not machine.settings.history:
        return Answer("", "qselect: PBS is not configured to maintain job history")
    found = []
    for job in machine.jobs.values():
        fits = "x" in given or not job.over
        fits = fits and job.user == given.get("u", [job.user])[-1] and job.name == given.get("N", [job.name])[-1]
        fits = fits and job.queue == given.get("q", [job.queue])[-1] and job.state in given.get("s", [job.state])[-1]
        if fits:
            found.append(job.native_id)
    return Answer("\n".join(found))


def _each(machine: Machine, request: Request, ids: list[str], act: Callable[[Job], None]) -> Answer:
    """Do it for every job; of what goes wrong only the first is told."""
    if not ids:
        raise Refused(2, "usage:")
    first: Answer | None = None
    for text in ids:
        try:
            job = _job_of(machine, request.program, text, ended=False)
            _owned(request, job)
            act(job)
        except Refused as refused:
            first = first or refused.answer
    return first or Answer()


def _owned(request: Request, job: Job) -> None:
    if request.user not in {job.user, "root"}:
        raise Refused(159, f"{request.program}: Unauthorized Request  {job.native_id}")


def _qdel(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "x", "W")
    force = "force" in given.get("W", [""])

    def delete(job: Job) -> None:
        if any(machine.nodes[name].down for name in job.hosts) and not force:
            raise Refused(222, f"qdel: Server could not connect to MOM {job.native_id}")
        machine.delete(job, request.user)

    return _each(machine, request, ids, delete)


def _qalter(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "", "aAlNWPhq")

    def alter(job: Job) -> None:
        if "l" in given and job.process is not None:
            raise Refused(167, f"qalter: Cannot modify attribute while job running  Resource_List {job.native_id}")
        if "a" in given and job.process is None:
            job.start_after, job.state = _moment(given["a"][-1]), "W"
        job.name = given.get("N", [job.name])[-1]
        for words in given.get("W", []):
            if words.startswith("comment="):
                job.comment = words.partition("=")[2]

    return _each(machine, request, ids, alter)


def _qsig(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "", "s")

    def send(job: Job) -> None:
        if job.process is None:
            raise Refused(168, f"qsig: Request invalid for state of job {job.native_id}")
        import os
        import signal

        os.killpg(job.process.pid, getattr(signal, f"SIG{given.get('s', ['TERM'])[-1].removeprefix('SIG')}"))

    return _each(machine, request, ids, send)


# -- nodes, reservations, server ------------------------------------------------------------------------------------------


def _pbsnodes(machine: Machine, request: Request) -> Answer:
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


def _pbs_rsub(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, "", "INRElDUuGgHqmM")
    maintenance = "hosts" in given
    start = _moment(given["R"][-1]) if "R" in given else 0.0
    end = _moment(given["E"][-1]) if "E" in given else start + _duration(given.get("D", ["0"])[-1])
    if start < time.time() - 1 or end <= start:
        raise Refused(238, "pbs_rsub: Bad time specification(s)")
    if maintenance and request.user not in machine.server.get("managers", "root@*").replace("@*", "").split(","):
        raise Refused(159, "pbs_rsub: Unauthorized Request ")
    words = _resources(given.get("l", []))
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
    return Answer(f"{one.native_id} {'CONFIRMED' if waits else 'UNCONFIRMED'}")


def _duration(text: str) -> float:
    return _walltime(text) if text else 0.0


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


def _pbs_rstat(machine: Machine, request: Request) -> Answer:
    _, names = options_of(request.words, "fFBS", "")
    try:
        shown = [_reservation(machine, "pbs_rstat", name) for name in names] or list(machine.reservations.values())
    except Refused as refused:
        if refused.answer.code == 236:
            return Answer("", "pbs_rstat: Unknown Reservation Id")  # and exit code 0
        raise
    return Answer("\n".join(printing.reservation_text(one) for one in shown))


def _pbs_rdel(machine: Machine, request: Request) -> Answer:
    for name in request.words:
        one = _reservation(machine, "pbs_rdel", name)
        if request.user not in {one.user, "root"}:
            raise Refused(159, f"pbs_rdel: Unauthorized Request  {one.native_id}")
        machine.end_reservation(one, request.user)
    return Answer()


def _pbs_ralter(machine: Machine, request: Request) -> Answer:
    given, names = options_of(request.words, "", "ERD")
    one = _reservation(machine, "pbs_ralter", names[0] if names else "")
    one.end = _moment(given["E"][-1]) if "E" in given else one.end
    return Answer(f"pbs_ralter: {one.native_id} ALTER REQUESTED")


def _qmgr(machine: Machine, request: Request) -> Answer:
    given, _ = options_of(request.words, "", "c")
    for line in given.get("c", request.stdin.decode().splitlines()):
        _order(machine, request.user, line.strip())
    return Answer()


def _order(machine: Machine, user: str, line: str) -> None:
    match = re.fullmatch(r"(create|set|unset|list) (server|queue|node|s|q|n)\b ?(\S+)? ?([\w.]+)? ?(\+?=)? ?(.*)", line)
    if match is None:
        return
    verb, kind, name, attribute, _, value = match.groups()
    if verb != "list" and user != "root":
        raise Refused(
            159, f"qmgr obj={name or ''} svr=default: Unauthorized Request \nqmgr: Error (15007) returned from server"
        )
    value = (value or "").strip().strip("\"'")
    if kind.startswith("s") and verb == "set":
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


_COMMANDS: dict[str, Callable[[Machine, Request], Answer]] = {
    "qsub": _qsub,
    "qstat": _qstat,
    "qselect": _qselect,
    "qdel": _qdel,
    "qalter": _qalter,
    "qsig": _qsig,
    "pbsnodes": _pbsnodes,
    "pbs_rsub": _pbs_rsub,
    "pbs_rstat": _pbs_rstat,
    "pbs_rdel": _pbs_rdel,
    "pbs_ralter": _pbs_ralter,
    "qmgr": _qmgr,
}

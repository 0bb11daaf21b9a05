"""qsub: its words and directives, its limits, and what it refuses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.simulated_pbs import torque
from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.records import Job, chunks_of, select_complaint
from tests.simulated_pbs.requests import Answer, Refused, Request, moment, options_of, resources_of, walltime_s

_QSUB_FLAGS, _QSUB_VALUED = "hfzIVX", "aACceJjklmMNopPqrRSuvW"
_USAGE_OF_QSUB = "usage: qsub [-a date_time] [-A account_string] [-c interval]"


def qsub(machine: Machine, request: Request) -> Answer:
    given, plain = options_of(request.words, _QSUB_FLAGS, _QSUB_VALUED)
    if plain and "--" not in request.words:
        path = machine.place.outside(str(Path(request.cwd, plain[0])))
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
    shown = script
    if machine.settings.torque:
        shown = b"\n".join(torque.directives(line.decode(errors="replace")).encode() for line in script.splitlines())
    merged = {key: list(values) for key, values in _directives(shown).items()}
    for key, values in given.items():
        merged[key] = [*merged.get(key, []), *values] if key in "lW" else values
    job = _job(machine, request, merged, script, name)
    machine.jobs[job.number] = job
    return Answer("" if "z" in merged else job.scheduler_job_id)


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
    resources = resources_of(given.get("l", []))
    for words in given.get("W", []):
        if words.partition("=")[0] not in {"tolerate_node_failures", "umask", "block", "depend", "sandbox"}:
            raise Refused(154, "qsub: Error (15002) submitting job")
    queue = given.get("q", [machine.server["default_queue"]])[-1].partition("@")[0]
    select = resources.get("select", "1")
    if len(machine.settings.rewrite_select) == 2:
        pattern, replacement = machine.settings.rewrite_select
        select = re.sub(pattern, replacement, select)
    complaint = select_complaint(select, {name for node in machine.nodes.values() for name in node.resources})
    if complaint is not None:
        raise Refused(complaint[0], f"qsub: {complaint[1]}")
    place = resources.get("place", "free")
    allowed = {"free", "pack", "scatter", "vscatter", "excl", "exclhost", "shared"}
    if {word for word in place.split(":") if not word.startswith("group=")} - allowed:
        raise Refused(166, "qsub: Illegal attribute or resource value Resource_List.place")
    walltime = walltime_s(resources["walltime"]) if "walltime" in resources else None
    _let_in(machine, request.user, queue, len(chunks_of(select)), walltime)
    if machine.settings.hook_refuses:
        raise Refused(32, f"qsub: {machine.settings.hook_refuses}")
    variables = [f"PBS_O_HOME={machine.place.home}", f"PBS_O_LOGNAME={request.user}", f"PBS_O_WORKDIR={request.cwd}"]
    variables += [word for one in given.get("v", []) for word in re.split(r"(?<!\\),", one) if "=" in word]
    output = given.get("o", [f"{request.cwd}/{name}.o{number}"])[-1]
    return Job(
        number, name, request.user, queue, select, place, chunks_of(select), walltime, [*variables, f"PBS_O_QUEUE={queue}"],
        script, request.cwd, output, " ".join(request.words), account=given.get("A", [""])[-1],
        project=given.get("P", ["_pbs_project_default"])[-1], rerunable=given.get("r", ["y"])[-1] != "n",
        state="H" if "h" in given else "Q", substate=20 if "h" in given else 10, holds="u" if "h" in given else "n",
        start_after=moment(given["a"][-1]) if "a" in given else 0.0,
    )  # fmt: skip


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
    if settings.get("from_route_only") == "True":
        raise Refused(174, "qsub: Access to queue is denied")
    if settings.get("acl_user_enable") == "True" and user not in settings.get("acl_users", "").replace("@*", "").split(","):
        raise Refused(159, "qsub: Unauthorized Request ")
    longest, most = settings.get("resources_max.walltime"), settings.get("resources_max.nodect")
    if (longest and walltime is not None and walltime > walltime_s(longest)) or (most and chunk_count > int(most)):
        raise Refused(188, "qsub: Job violates queue and/or server resource limits")
    least = settings.get("resources_min.nodect")
    if least and chunk_count < int(least):
        raise Refused(188, "qsub: Job violates queue and/or server resource limits")
    limit = re.search(r"u:PBS_GENERIC=(\d+)", settings.get("max_queued", ""))
    if limit and machine.live(user, name) >= int(limit[1]):
        raise Refused(38, "qsub: would exceed queue generic's per-user limit")

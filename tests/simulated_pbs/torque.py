"""The same server in the words of Torque 6.1, after its manual: no select, no -F, XML, and jobs that stay as C.

What it has of PBS's too (qdel, qalter, qselect, the exit codes) is that of commands.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from xml.sax.saxutils import escape

from tests.simulated_pbs import printing
from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.records import SERVER, Job
from tests.simulated_pbs.requests import Answer, Refused, Request, options_of

VERSION = Answer("", "Version: 6.1.3\nCommit: 2be6e5c6")
_USAGE = "usage: {} [-x] [-f] ..."
_NOT_THERE = {
    "substate",
    "Resource_List.select",
    "Resource_List.place",
    "Resource_List.ncpus",
    "estimated.start_time",
    "comment",
}
_OVER_LIMIT = -11


def before(request: Request) -> Request:
    """A command as PBS would be given it. Raises Refused for what Torque does not know."""
    if request.program == "qsub":
        return replace(request, words=[_nodes_word(one) for one in request.words])
    return request


def _nodes_word(word: str) -> str:
    """`nodes=a:ppn=4+b:ppn=4` as a select; with it, whole hosts."""
    if word.startswith("select="):
        raise Refused(90, "qsub: submit error (Unknown resource type  REJHOST=simhead MSG=cannot locate resource type)")
    if not re.match(r"(walltime=\d+,)?nodes=", word):
        return word
    chunks = [part.split(":ppn=") for part in word.split(",", maxsplit=1)[0].removeprefix("nodes=").split("+")]
    named = [f"1:host={one[0]}:ncpus={one[1] if len(one) > 1 else 1}" for one in chunks if not one[0].isdigit()]
    return f"select={'+'.join(named) or chunks[0][0]}"


def directives(line: str) -> str:
    """A directive of a script as PBS's: the scheduler's words behind -W x= are for Maui and Moab."""
    line = re.sub(r"^#PBS -W x=\S+", "# as Moab was told", line)
    found = re.match(r"#PBS -l (nodes=\S+)", line)
    return f"#PBS -l {_nodes_word(found[1])} -l place=scatter:excl" if found else line


def qstat(machine: Machine, request: Request) -> Answer:
    given, ids = options_of(request.words, "xfQBqnar1", "u")
    if "F" in given:
        raise Refused(2, _USAGE.format("qstat"))
    if "B" in given:
        return Answer(printing.plain(f"Server: {SERVER}", printing.server_attributes(machine), wide=False))
    if "Q" in given:
        listed = [(f"Queue: {queue.name}", printing.queue_attributes(machine, queue)) for queue in machine.queues.values()]
        return Answer("\n\n".join(printing.plain(head, found, wide=False) for head, found in listed))
    jobs, complaints = [], []
    for text in ids:
        number = re.fullmatch(r"(\d+)(\.simhead)?", text)
        job = machine.jobs.get(int(number[1])) if number else None
        if number is None:
            complaints.append((1, f"qstat: illegally formed job identifier: {text}"))
        elif job is None or (job.over and not machine.settings.history):
            complaints.append((153, f"qstat: Unknown Job Id Error {number[1]}.simhead"))
        else:
            jobs.append(job)
    if not ids:
        jobs = [job for job in machine.jobs.values() if machine.settings.history or not job.over]
    if "x" in given:
        shown = "".join(f"<Job><Job_Id>{job.scheduler_job_id}</Job_Id>{_xml(attributes(job))}</Job>" for job in jobs)
        text = f"<Data>{shown}</Data>" if jobs else ""
    else:
        text = "\n\n".join(printing.plain(f"Job Id: {job.scheduler_job_id}", attributes(job), wide=False) for job in jobs)
    return Answer(text, "\n".join(words for _, words in complaints), complaints[-1][0] if complaints else 0)


def attributes(job: Job) -> printing.Attributes:
    """What qstat -f shows."""
    found = []
    for name, value in printing.job_attributes(job):
        if name == "job_state":
            found.append((name, "C" if value == "F" else value))
        elif name == "exec_host":
            slots = (f"{host}/0-{chunk.ncpus - 1}" for host, chunk in zip(job.hosts, job.chunks, strict=True))
            found.append((name, "+".join(slots)))
        elif name not in _NOT_THERE and name != "Exit_status":
            found.append((name, value))
    found.append(("Resource_List.nodes", "+".join(f"{chunk.host}:ppn={chunk.ncpus}" for chunk in job.chunks)))
    if job.over and job.hosts:  # a job that was deleted before it ran has none
        deleted = job.substate == 91 or bool(job.deleted_by)
        code = _OVER_LIMIT if job.exceeded else 271 if deleted else job.exit_status
        found.append(("exit_status", str(code)))
    return found


def pbsnodes(machine: Machine, request: Request) -> Answer:
    given, names = options_of(request.words, "xalnorc", "N")
    if given.keys() & {"o", "c"}:
        if request.user != "root":
            raise Refused(159, "pbsnodes: Unauthorized Request")
        for name in names:
            machine.nodes[name].offline = "o" in given
            machine.nodes[name].comment = given.get("N", [machine.nodes[name].comment])[-1]
        return Answer()
    if "x" not in given:
        raise Refused(1, _USAGE.format("pbsnodes"))
    shown = []
    for node in machine.nodes.values():
        if names and node.name not in names:
            continue
        there = machine.busy(node.name)
        words = [word for word, is_so in (("down", node.down), ("offline", node.offline)) if is_so]
        used = sum(c.ncpus for job in there for h, c in zip(job.hosts, job.chunks, strict=True) if h == node.name)
        state = ",".join([*words, *(["job-exclusive"] if used >= node.ncpus else [])]) or "free"
        found = [("name", node.name), ("state", state), ("np", str(node.ncpus)), ("ntype", "cluster")]
        found += [("properties", ",".join(node.resources))] if node.resources else []
        found += [("jobs", ",".join(f"0-{node.ncpus - 1}/{job.scheduler_job_id}" for job in there))] if there else []
        found += [("note", node.comment)] if node.comment else []
        shown.append(f"<Node>{_xml(found)}</Node>")
    return Answer(f"<Data>{''.join(shown)}</Data>")


def _xml(found: printing.Attributes) -> str:
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, value in found:
        group, _, below = name.partition(".")
        groups.setdefault(group, []).append((below, value))
    text = ""
    for group, values in groups.items():
        inner = "".join(f"<{below}>{escape(value)}</{below}>" if below else escape(value) for below, value in values)
        text += f"<{group}>{inner}</{group}>"
    return text

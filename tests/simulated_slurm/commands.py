"""The words of Slurm's commands and the formats of their answers; texts of refusals are Slurm's own."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from hpcq import nodelist
from tests.simulated_slurm.machine import ENDED, FORGOTTEN_AFTER_S, Job, Machine, Node

PARTITION = "main"
NODE_WORDS = {"drain": "drained", "down": "down", "maint": "maint", "powered_down": "idle~", "planned": "planned"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints and ends with; on failure the text goes to standard error."""

    text: str = ""
    code: int = 0


def answer(machine: Machine, program: str, words: list[str], cwd: str, user: str) -> Answer:
    """Carry out one command."""
    machine.calls[program] = machine.calls.get(program, 0) + 1
    if machine.settings.broken.get(program, 0) > 0:
        machine.settings.broken[program] -= 1
        return Answer(f"{_ERROR_WORDS.get(program, program)} error: Unable to contact slurm controller (connect failure)", 1)
    machine.advance()
    options, plain = _split(words)
    sent = _rows_sent(machine, program, options, plain, user)
    machine.rows[program] = machine.rows.get(program, 0) + sent
    found: Answer = _COMMANDS[program](machine, options, plain, cwd, user)
    return found


def _rows_sent(machine: Machine, program: str, options: dict[str, str], plain: list[str], user: str) -> int:
    """How many records slurmctld sends for a command, which is more than the command prints.

    squeue filters in the client: one id is asked for alone, several load the whole job table, and --me loads the user's.
    """
    if program == "sinfo" or plain[:2] == ["show", "topology"]:
        return len(machine.nodes)
    if program != "squeue":
        return 0
    now = time.monotonic()
    listed = [job for job in machine.jobs.values() if job.state not in ENDED or now - job.ended_at < FORGOTTEN_AFTER_S]
    if "jobs" in options and "," not in options["jobs"]:
        return 1
    return sum(job.user == user for job in listed) if "me" in options else len(listed)


_ERROR_WORDS = {"squeue": "slurm_load_jobs", "sinfo": "slurm_load_partitions", "sbatch": "sbatch:"}


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """--name=value and --name apart from plain words."""
    options: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            options[name] = value
        else:
            plain.append(word)
    return options, plain


def _sinfo(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    if PARTITION not in options.get("partition", PARTITION).split(","):
        return Answer()
    if "Node" not in options:  # one line for the whole partition, or for those of its nodes that were named
        names = nodelist.expand(options["nodes"]) if "nodes" in options else machine.nodes
        mine = [name for name in names if name in machine.nodes]
        values = {"N": ",".join(nodelist.fold(mine)), "D": str(len(mine)), "P": f"{PARTITION}*", "R": PARTITION}
        return Answer(_formatted(options["format"], values))
    reserved = {name for names in machine.settings.reservations.values() for name in names}
    lines = []
    for node in machine.nodes.values():
        values = {"N": node.name, "T": _node_word(node, reserved), "P": f"{PARTITION}*", "f": node.switch, "E": node.reason}
        lines.append(_formatted(options["format"], values))
    return Answer("\n".join(lines))


def _node_word(node: Node, reserved: set[str]) -> str:
    if node.word:
        return NODE_WORDS.get(node.word, node.word)
    if node.job:
        return "allocated"
    return "reserved" if node.name in reserved else "idle"


def _refusal(machine: Machine, directives: dict[str, str], user: str) -> str:
    """Why sbatch takes nothing; empty where it does."""
    failed = "sbatch: error: Batch job submission failed:"
    if machine.settings.odd_words:
        return f"sbatch: error: {machine.settings.odd_words.pop(0)}"
    partition = directives.get("partition", PARTITION)
    if PARTITION not in partition.split(","):
        return f"sbatch: error: invalid partition specified: {partition}\n{failed} Invalid partition name specified"
    limit = machine.settings.submit_limit
    if limit and machine.live_count(user) >= limit:
        policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
        return f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{failed} {policy}"
    return ""


def _sbatch(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    if "version" in options:
        return Answer("slurm-wlm 22.05.8 simulated")
    try:
        text = Path(cwd, plain[0]).read_text()
    except OSError:
        return Answer(f"sbatch: error: Unable to open file {plain[0]}", 1)
    directives: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE):
        directives.update(_split(line.split())[0])
    refusal = _refusal(machine, directives, user)
    if refusal:
        return Answer(refusal, 1)
    nodes = tuple(nodelist.expand(directives["nodelist"]))
    job = machine.submit(
        directives.get("job-name", "sbatch"),
        user,
        nodes,
        limit_s=_limit_s(directives.get("time", "60")),
        script=str(Path(cwd, plain[0])),
        folder=directives.get("chdir", cwd),
    )
    if machine.settings.lost_answers > 0:
        machine.settings.lost_answers -= 1
        lost = "Socket timed out on send/recv operation"
        return Answer(f"sbatch: error: Batch job submission failed: {lost}", 1)
    if "deadline" in directives:
        job.start_before = time.monotonic() + int(directives["deadline"].removeprefix("now+")) - job.limit_s
    if machine.settings.killed_answers > 0:
        machine.settings.killed_answers -= 1
        return Answer("", 143)
    banner = machine.settings.banner
    return Answer(f"{banner}\n{job.number}" if banner else str(job.number))


def _limit_s(text: str) -> float:
    minutes, _, seconds = text.partition(":")
    return 60 * int(minutes) + int(seconds or 0)


def _squeue(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    jobs = _chosen(machine, options, user)
    if "jobs" in options and "," not in options["jobs"] and not jobs:
        return Answer("slurm_load_jobs error: Invalid job id specified", 1)
    now = time.monotonic()
    states = options.get("states", "PENDING,RUNNING,COMPLETING").split(",")
    shown = [
        job
        for job in jobs
        if (job.state not in ENDED or now - job.ended_at < FORGOTTEN_AFTER_S) and (states == ["all"] or job.state in states)
    ]
    return Answer("\n".join(_formatted(options["format"], _job_values(job)) for job in shown))


def _job_values(job: Job) -> dict[str, str]:
    nodes = ",".join(job.nodes) if job.state != "PENDING" else ""
    uid = str(os.getuid() + (job.user != "me"))
    return {
        "i": str(job.number),
        "T": job.state,
        "N": nodes,
        "r": job.reason,
        "j": job.name,
        "u": job.user,
        "U": uid,
        "n": ",".join(job.nodes),
    }


def _sacct(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    lines = []
    for job in _chosen(machine, options, user):
        word = "CANCELLED by 1000" if job.state == "CANCELLED" else job.state
        values = {
            "JobIDRaw": str(job.number), "State": word, "NodeList": ",".join(job.nodes), "ExitCode": f"{job.exit_code}:0",
            "JobName": job.name, "UID": str(os.getuid() + (job.user != "me")),
        }  # fmt: skip
        lines.append("|".join(values[column] for column in options["format"].split(",")))
    return Answer("\n".join(lines))


def _chosen(machine: Machine, options: dict[str, str], user: str) -> list[Job]:
    if "jobs" in options:
        numbers = [int(text) for text in options["jobs"].split(",")]
        return [machine.jobs[number] for number in numbers if number in machine.jobs]
    jobs = list(machine.jobs.values())
    if "me" in options:
        jobs = [job for job in jobs if job.user == user]
    if "name" in options:
        names = set(options["name"].split(","))
        jobs = [job for job in jobs if job.name in names]
    return jobs


def _scancel(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    for word in plain:
        if not word.isdigit():
            return Answer(f"scancel: error: Invalid job id {word}", 1)
        job = machine.jobs.get(int(word))
        if job is not None and options.get("state", job.state) == job.state:
            machine.cancel(job)
    return Answer()


def _scontrol(  # noqa: PLR0911 - one per command
    machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str
) -> Answer:
    match plain:
        case ["show", "topology", *_]:
            members: dict[str, list[str]] = {}
            for node in machine.nodes.values():
                members.setdefault(node.switch, []).append(node.name)
            lines = [f"SwitchName={switch} Level=0 LinkSpeed=1 Nodes={','.join(names)}" for switch, names in members.items()]
            above = f"SwitchName=spine Level=1 LinkSpeed=1 Nodes={','.join(machine.nodes)} Switches={','.join(members)}"
            return Answer("\n".join([*lines, above]))
        case ["show", "config" | "partition" as what] if machine.settings.shown.get(what):
            return Answer(machine.settings.shown[what])
        case ["show", "node"]:
            return Answer("\n".join(_node_line(node) for node in machine.nodes.values()))
        case ["show", "reservation"]:
            held = machine.settings.reservations
            return Answer("\n".join(_reservation_line(name, nodes) for name, nodes in held.items()))
        case ["delete", name] | ["update", name, *_] if name.startswith("reservationname="):
            return _change_reservation(machine, plain)
        case ["show", "reservation", name]:
            if name not in machine.settings.reservations:
                return Answer(f"Reservation {name} not found", 1)
            nodes = ",".join(machine.settings.reservations[name])
            return Answer(f"ReservationName={name} StartTime=now Nodes={nodes} NodeCnt=1 Users=me State=ACTIVE")
        case ["update", *changes]:
            wanted = dict(change.lower().split("=", 1) for change in changes)
            for name in nodelist.expand(wanted["nodename"]):
                word = "" if wanted["state"] == "resume" else wanted["state"]
                machine.set_node(name, word, wanted.get("reason", "none"))
            return Answer()
        case _:
            return Answer(f"scontrol: invalid entity: {' '.join(plain)}", 1)


def _node_line(node: Node) -> str:
    state = {"drain": "IDLE+DRAIN", "down": "DOWN", "": "ALLOCATED" if node.job else "IDLE"}.get(node.word, node.word.upper())
    return (
        f"NodeName={node.name} State={state} Partitions={PARTITION} BootTime=2026-11-21T01:00:00"
        f" SlurmdStartTime=2026-11-21T02:00:00 Reason={node.reason} [root@2026-11-21T03:00:00]"
    )


def _reservation_line(name: str, nodes: list[str]) -> str:
    return (
        f"ReservationName={name} StartTime=2026-11-21T03:00:00 EndTime=2026-11-21T05:00:00 Nodes={','.join(nodes)}"
        f" Flags=MAINT,FLEX Users=root State=ACTIVE"
    )


def _change_reservation(machine: Machine, plain: list[str]) -> Answer:
    """`delete reservationname=R`, or `update reservationname=R nodes-=…`, with += and = as well."""
    name = plain[1].partition("=")[2]
    held = machine.settings.reservations
    if name not in held:
        return Answer("scontrol: error: Requested reservation is invalid", 1)
    if plain[0] == "delete":
        del held[name]
        return Answer()
    sign, _, listed = plain[2].removeprefix("nodes").partition("=")
    nodes = nodelist.expand(listed)
    if sign == "-":
        held[name] = [node for node in held[name] if node not in nodes]
    else:
        held[name] = [*(held[name] if sign == "+" else ()), *nodes]
    return Answer()


def _sacctmgr(machine: Machine, options: dict[str, str], plain: list[str], cwd: str, user: str) -> Answer:
    return Answer(str(machine.settings.submit_limit or ""))


def _formatted(form: str, values: dict[str, str]) -> str:
    return re.sub(r"%([A-Za-z])", lambda found: values[found[1]], form)


_COMMANDS = {
    "sinfo": _sinfo,
    "sbatch": _sbatch,
    "squeue": _squeue,
    "sacct": _sacct,
    "scancel": _scancel,
    "scontrol": _scontrol,
    "sacctmgr": _sacctmgr,
}

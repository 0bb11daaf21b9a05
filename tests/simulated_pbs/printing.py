"""Jobs, nodes, queues, server and reservations as PBS prints them.

Plain text folds, dsv escapes, JSON has its quirks.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable

from tests.simulated_pbs.machine import Machine
from tests.simulated_pbs.records import DOMAIN, SERVER, Job, Node, Queue, Reservation

Attributes = list[tuple[str, str]]
_ALWAYS_TEXT = {"Job_Name", "project", "Account_Name"}
_FOLD_AT = 80


def job_attributes(job: Job) -> Attributes:
    """What `qstat -f` shows, in its order."""
    when = _ctime
    found: Attributes = [("Job_Name", job.name), ("Job_Owner", f"{job.user}@{SERVER}.{DOMAIN}")]
    if job.started and job.substate != 41:
        used = max(0.0, (job.ended or time.time()) - job.started)
        found += [("resources_used.ncpus", str(sum(c.ncpus for c in job.chunks))), ("resources_used.walltime", _hms(used))]
    found += [("job_state", job.state), ("queue", job.queue), ("server", SERVER)]
    if job.account:
        found.append(("Account_Name", job.account))
    found += [("Checkpoint", "u"), ("ctime", when(job.created))]
    if job.hosts:
        found += [("exec_host", job.exec_host), ("exec_vnode", job.exec_vnode)]
    found += [("Hold_Types", job.holds), ("Join_Path", "oe"), ("mtime", when(job.ended or job.started or job.created))]
    found += [("Output_Path", f"{SERVER}.{DOMAIN}:{job.output}"), ("Priority", "0"), ("qtime", when(job.created))]
    found += [("Rerunable", str(job.rerunable)), ("Resource_List.ncpus", str(sum(c.ncpus for c in job.chunks)))]
    found += [("Resource_List.nodect", str(len(job.chunks))), ("Resource_List.place", job.place)]
    found.append(("Resource_List.select", job.select))
    if job.walltime_s is not None:
        found.append(("Resource_List.walltime", _hms(job.walltime_s)))
    if job.started:
        found.append(("stime", when(job.started)))
    found += [("substate", str(job.substate)), ("Variable_List", ",".join(job.variables))]
    if job.comment:
        found.append(("comment", job.comment))
    if job.state == "Q" and job.estimated:
        found.append(("estimated.start_time", when(job.estimated)))
    if job.started:
        found.append(("run_count", "1"))
    if job.ended and job.started:
        found.append(("Stageout_status", "1" if job.delivered else "0"))
    if job.exit_status is not None:
        found.append(("Exit_status", str(job.exit_status)))
    return [*found, ("Submit_arguments", job.arguments), ("project", job.project), ("Submit_Host", f"{SERVER}.{DOMAIN}")]


def node_attributes(machine: Machine, node: Node) -> Attributes:
    """What pbsnodes shows of a vnode."""
    there = machine.busy(node.name)
    held = [one for one in machine.reservations.values() if node.name in one.nodes]
    found: Attributes = [("Mom", node.full_name), ("ntype", "PBS"), ("state", node_state(machine, node)), ("pcpus", "2")]
    if there:
        found.append(("jobs", ", ".join(f"{job.scheduler_job_id}/0" for job in there)))
    if held:
        found.append(("resv", ", ".join(one.scheduler_job_id for one in held)))
    found += [("resources_available.arch", "linux"), ("resources_available.host", node.name)]
    found += [("resources_available.mem", "24684084kb"), ("resources_available.ncpus", str(node.ncpus))]
    found += [(f"resources_available.{name}", value) for name, value in node.resources.items()]
    found += [("resources_available.vnode", node.name), ("resources_assigned.ncpus", str(len(there)))]
    if node.queue:
        found.append(("queue", node.queue))
    if node.comment:
        found.append(("comment", node.comment))
    found += [("resv_enable", "True"), ("sharing", node.sharing), ("last_state_change_time", str(int(node.changed_at)))]
    return [*found, ("last_used_time", str(int(node.used_at)))] if node.used_at else found


def node_state(machine: Machine, node: Node) -> str:
    """The comma list of its states."""
    words = [word for word, is_so in (("down", node.down), ("offline", node.offline)) if is_so]
    there = machine.busy(node.name)
    running = [one for one in machine.reservations.values() if node.name in one.nodes and one.state == "RUNNING"]
    if any(job.exclusive for job in there):
        words.append("job-exclusive")
    elif any(one.maintenance or "excl" in one.place for one in running):
        words.append("resv-exclusive")
    elif sum(c.ncpus for job in there for h, c in zip(job.hosts, job.chunks, strict=True) if h == node.name) >= node.ncpus:
        words.append("job-busy")
    if machine.in_maintenance(node.name):
        words.append("maintenance")
    return ",".join(words) or "free"


def queue_attributes(machine: Machine, queue: Queue) -> Attributes:
    """What `qstat -Qf` shows."""
    count = sum(job.queue == queue.name and not job.over for job in machine.jobs.values())
    found: Attributes = [("queue_type", queue.settings.get("queue_type", "Execution")), ("total_jobs", str(count))]
    found += [(name, value) for name, value in queue.settings.items() if name != "queue_type"]
    return [*found, ("enabled", str(queue.enabled)), ("started", str(queue.started))]


def server_attributes(machine: Machine) -> Attributes:
    """What `qstat -Bf` shows."""
    found: Attributes = [("server_state", "Active"), ("server_host", f"{SERVER}.{DOMAIN}"), ("scheduling", "True")]
    found += list(machine.server.items())
    return [*found, ("pbs_version", "23.06.06"), ("job_history_enable", str(machine.settings.history))]


def reservation_text(one: Reservation, *, degraded: bool = False) -> str:
    """What `pbs_rstat -f` shows; it never folds. degraded: one of its nodes is out, which the state says before it runs."""
    state = "DEGRADED" if degraded and one.state == "CONFIRMED" else one.state
    substate = 10 if degraded else {"CONFIRMED": 2, "RUNNING": 5}.get(one.state, 9)
    lines = [
        f"Resv ID: {one.scheduler_job_id}",
        f"Reserve_Name = {one.name or 'NULL'}",
        f"Reserve_Owner = {one.user}@{SERVER}.{DOMAIN}",
    ]
    lines += [
        f"reserve_state = RESV_{state}",
        f"reserve_substate = {substate}",
        f"reserve_start = {_ctime(one.start)}",
        f"reserve_end = {_ctime(one.end)}",
    ]
    lines += [f"reserve_duration = {int(one.end - one.start)}", f"queue = {one.queue}", f"Resource_List.select = {one.select}"]
    on = "+".join(f"({node}:ncpus={cpus})" for node, cpus in zip(one.nodes, one.cpus, strict=True))
    lines += [f"Resource_List.place = {one.place}", f"resv_nodes = {on}"]
    return "\n".join([*lines, f"Authorized_Users = {','.join(one.users)}", f"server = {SERVER}", ""])


def dsv(head: str, attributes: Attributes, separator: str) -> str:
    """One line; separators and line breaks inside values are escaped, control characters shown as ^X."""
    words = [f"{name}={_dsv_value(one, separator)}" for name, value in attributes for one in _entries(value)]
    return separator.join([head, *words])


def _entries(value: str) -> list[str]:
    """Each limit of `[o:PBS_ALL=10],[u:PBS_GENERIC=2]` is an attribute of its own there."""
    return re.findall(r"\[[^\]]*\]", value) if value.startswith("[") and "]" in value else [value]


def plain(head: str, attributes: Attributes, *, wide: bool, indent: str = "    ") -> str:
    """Indented lines, folded at 80 with a tab, in the middle of a word where need be."""
    lines = [head]
    for name, value in attributes:
        line = f"{indent}{name} = {value}"
        if wide or len(line) < _FOLD_AT:
            lines.append(line)
            continue
        lines.append(line[:_FOLD_AT])
        rest = line[_FOLD_AT:]
        while rest:
            lines.append("\t" + rest[:72])
            rest = rest[72:]
    return "\n".join(lines)


def as_json(kind: str, objects: Iterable[tuple[str, Attributes]]) -> str:
    """The object of -F json. Values that look like JSON become it; bytes that are no UTF-8 are passed on."""
    whole: dict[str, object] = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": SERVER}
    found = {name: _json_object(attributes) for name, attributes in objects}
    if found:
        whole[kind] = found
    return json.dumps(whole, indent="\t", ensure_ascii=False, separators=(",", ":\t"))


def _json_object(attributes: Attributes) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in attributes:
        if name == "Variable_List":
            pairs = (one.partition("=") for one in value.replace("\\,", "\0").split(","))
            found[name] = {key: _json_value(text.replace("\0", ",")) for key, _, text in pairs}
        elif name == "jobs":
            found[name] = [one.partition("/")[0] for one in value.split(", ")]
        elif "." in name and name.partition(".")[0] in {
            "Resource_List",
            "resources_available",
            "resources_assigned",
            "resources_used",
        }:
            group, _, key = name.partition(".")
            if group != "resources_assigned" or value not in {"0", "0kb"}:
                inner = found.setdefault(group, {})
                assert isinstance(inner, dict)
                inner[key] = _json_value(value)
        else:
            found[name] = value if name in _ALWAYS_TEXT else _json_value(value)
    return found


def _json_value(text: str) -> object:
    stripped = text.lstrip("0") if text.isdigit() and len(text) > 1 else text
    try:
        return json.loads(stripped or "0")
    except ValueError:
        return text


def _dsv_value(text: str, separator: str) -> str:
    escaped = text.replace(separator, f"\\{separator}").replace("\n", "\\n").replace("\f", "\\f")
    return "".join(f"^{chr(ord(c) + 64)}" if ord(c) < 32 and c != "\t" else c for c in escaped)


def _ctime(moment: float) -> str:
    return time.ctime(moment)


def _hms(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"

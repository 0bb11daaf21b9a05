"""Recordings of a real OpenPBS 23.06 (tests/pbs/recordings/), one command per line, and what hpcq reads of each.

A reading is one line: what the exit code means, the fate of a submission, then every job, node, queue, server and
reservation of the answer as the adapter understands it. tests/pbs/recordings/readings.tsv has the expected one of every record.

hpcq itself asks for dsv and plain text only. What was recorded as JSON is flattened here, so that the same readers judge it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcq.scheduler.pbs.administration import read_made, read_reservation
from hpcq.scheduler.pbs.nodes import Listed, read_dsv, read_plain, read_vnode
from hpcq.scheduler.pbs.scheduler import ID_PATTERN, outcome, read_job, read_submission
from hpcq.transport import Completed

FOLDER = Path(__file__).parent / "recordings"
_JSON_KINDS = {"Jobs": "Job Id", "nodes": "Name", "Queue": "Queue", "Server": "Server"}
#: A submission is the last command of its line.
_QSUB = re.compile(r"\bqsub(?! --version)\b[^|;]*$")
_NODE_HEAD = re.compile(r"^(\S+)\n(?=     \S+ = )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One command and its answer; rc is None where it did not end."""

    file: str
    number: int
    command: str
    rc: int | None
    stdout: str
    stderr: str

    @property
    def name(self) -> str:
        return f"{self.file[:2]}:{self.number}"


def recordings() -> list[Recorded]:
    """All of them, in order."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            rc = one["rc"] if isinstance(one["rc"], int) else None
            found.append(Recorded(path.name, one["n"], one["cmd"], rc, one["stdout"], one["stderr"]))
    return found


def records_of(one: Recorded) -> list[Listed]:
    """Whatever objects the answer shows, in whichever form."""
    if one.stdout.startswith("{"):
        return list(_from_json(one.stdout))
    if one.stdout.startswith(("Job Id: ", "Name=")) and "|" in one.stdout.split("\n", 1)[0]:
        return read_dsv(one.stdout, "|")
    return read_plain(_NODE_HEAD.sub(lambda match: f"Name: {match[1]}\n", one.stdout))


def reading(one: Recorded) -> str:
    """The expected reading of a record, as readings.tsv has it."""
    end = "no end" if one.rc is None else outcome(one.rc).value
    made = read_made(one.stdout) if "pbs_rsub" in one.command else None
    words = [f"made {made[0]} {'confirmed' if made[1] else 'not confirmed'}"] if made else []
    return "; ".join([end, *words, *_submitted(one), *(_shown(record) for record in records_of(one))])


def _submitted(one: Recorded) -> list[str]:
    """What hpcq takes a submission for; of a command that did not end, nothing."""
    if not _QSUB.search(one.command) or one.rc is None:
        return []
    scheduler_job_id = one.stdout.strip() if ID_PATTERN.fullmatch(one.stdout.strip()) else ""
    answer = read_submission("tag", Completed(one.rc, one.stdout.encode(), one.stderr), scheduler_job_id)
    return [f"submitted {answer.scheduler_job_id}" if answer.scheduler_job_id else f"submission {answer.fate.value}"]


def _shown(record: Listed) -> str:
    if record.kind == "Job Id":
        report = read_job(record)
        parts = [report.scheduler_job_id, report.state.value]
        parts += ["on " + ",".join(report.nodes)] if report.nodes else []
        parts += [f"rc {report.exit_code}"] if report.exit_code is not None else []
        parts += [f"wait {report.wait.value}"] if report.state.value == "queued" else []
        parts += [f"({report.reason})"] if report.reason else []
        return " ".join(parts)
    if record.kind == "Name":
        node = read_vnode(record)
        also = [f"jobs {','.join(node.jobs)}"] if node.jobs else []
        also += [f"resv {','.join(node.reserved_by)}"] if node.reserved_by else []
        also += [f"({node.comment})"] if node.comment else []
        return " ".join([f"{node.name} {node.condition.value} {node.words}".strip(), *also])
    if record.kind == "Resv ID":
        one = read_reservation(record)
        state = "running" if one.active else "confirmed" if one.standing else "ending" if one.ending else one.state or "?"
        return f"{one.scheduler_job_id} {state} queue {one.queue} called {one.name or '-'} on {','.join(one.vnodes) or '-'}"
    if record.kind == "Queue":
        return f"queue {record.name} enabled={record.get('enabled')} started={record.get('started')}"
    return f"server {record.name} history={record.get('job_history_enable') or 'off'}"


def _from_json(text: str) -> Iterator[Listed]:
    # Bytes that are no UTF-8 went into the recording as \\xff; on the wire they are raw, and read with errors="replace".
    whole = json.loads(re.sub(r"(?<!\\)\\x[0-9a-f]{2}", "\ufffd", text), strict=False)
    for key, kind in _JSON_KINDS.items():
        for name, attributes in whole.get(key, {}).items():
            flat = dict(_flattened(attributes))
            yield Listed(kind, name, flat)


def _flattened(attributes: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in attributes.items():
        if name == "Variable_List":
            yield name, ",".join(f"{key}={_text(one)}" for key, one in value.items())
        elif isinstance(value, dict) and name.startswith(("Resource_List", "resources_", "default_chunk")):
            yield from ((f"{name}.{key}", _text(one)) for key, one in value.items())
        elif name == "jobs":
            yield name, ", ".join(value)
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

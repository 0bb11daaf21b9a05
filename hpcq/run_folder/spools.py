"""Tournaments in a run folder: one attempt of many pairs, one spool file with a line a measurement.

journal: attempt g00001 {pairs: j00001, j00002}  --of_pairs-->  an attempt of j00001 and one of j00002
jobs/g00001/1/spool.jsonl  --Spool-->  the bytes of one measurement, as if they were a file of their own
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcq.run_folder.journal import AttemptState, JournalState
from hpcq.run_folder.lines import RawLine
from hpcq.run_folder.paths import parse_json

SPOOL = "spool.jsonl"
_START = b'{"format":1,"job":"'
_HEAD = re.compile(rb'\{"format":1,"job":"([^"]{1,64})","test":(\d{1,9}),"repetition":(\d{1,9}),("begun_utc")?')
#: test_no, repetition_no.
_Step = tuple[int, int]


def of_pairs(state: JournalState) -> JournalState:
    """The journal with an attempt for each pair that a tournament measured, numbered as that pair's tries."""
    if not any(attempt.pairs for attempt in state.attempts.values()):
        return state
    numbers: dict[str, int] = {}
    attempts: dict[str, AttemptState] = {}
    for attempt in state.attempts.values():
        if not attempt.pairs:
            attempts[attempt.tag] = attempt
            numbers[attempt.job_id] = attempt.attempt_no
        for job_id in attempt.pairs:
            numbers[job_id] = numbers.get(job_id, 0) + 1
            one = replace(
                attempt,
                tag=f"{attempt.tag}/{job_id}",
                job_id=job_id,
                attempt_no=numbers[job_id],
                place=(attempt.job_id, attempt.attempt_no),
            )
            attempts[one.tag] = one
    return replace(state, attempts=attempts)


class Spool:
    """The spool of one attempt; lines that are torn are not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, dict[_Step, tuple[int, int]]] = {}
        offset = 0
        try:
            with path.open("rb") as file:
                for line in file:
                    self._take(line, offset)
                    offset += len(line)
        except FileNotFoundError:
            return

    def steps(self, job: str) -> list[_Step]:
        """What there is of a pair."""
        return sorted(self._places.get(job, {}))

    def read(self, job: str, step: _Step) -> RawLine:
        """One measurement; bytes that are no JSON come out as a line that is none."""
        offset, size = self._places[job][step]
        with self._path.open("rb") as file:
            file.seek(offset)
            line = file.read(size)
        digest = hashlib.sha256(line).digest()
        try:
            said = parse_json(line)
        except ValueError as error:
            return RawLine(None, None, digest, f"spool: {error}")
        status = {"rc": said.get("rc"), "started_utc": said.get("started_utc"), "ended_utc": said.get("ended_utc")}
        reason = said.get("reason")
        return RawLine(_result(said), json.dumps(status).encode(), digest, reason if isinstance(reason, str) else "")

    def _take(self, line: bytes, offset: int) -> None:
        start = whole_from(line)
        head = _HEAD.match(line, start)
        if head is not None and not head[4] and line.endswith(b"}\n"):
            job = head[1].decode("utf-8", "replace")
            self._places.setdefault(job, {})[int(head[2]), int(head[3])] = (offset + start, len(line) - start)


def whole_from(line: bytes) -> int:
    """Where the whole record of a line begins: behind the rest of one that was torn while somebody wrote on."""
    return max(0, line.rfind(_START))


def _result(said: dict[str, Any]) -> bytes | None:
    """The kernel's line, with how many pairs measured at once among what was granted."""
    result = said.get("result")
    if not isinstance(result, dict):
        return None
    granted = result.get("granted")
    if isinstance(granted, dict) and isinstance(said.get("at_once"), int):
        result = {**result, "granted": {**granted, "pairs_at_once_count": said["at_once"]}}
    return json.dumps(result).encode()

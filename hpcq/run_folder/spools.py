"""Tournaments in a run folder: one attempt of many pairs, one spool file with one line per measurement.

journal: attempt g00001 {pairs: j00001, j00002}  --of_pairs-->  an attempt of j00001 and one of j00002
jobs/g00001/1/spool.jsonl  --Spool-->  the bytes of one measurement, as if they were a file of their own
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from hpcq.planning.plan import job_name_of
from hpcq.run_folder.journal import Attempt, StepKey
from hpcq.run_folder.lines import RawLine, kept_sizes, measured_sizes
from hpcq.run_folder.paths import lines_of, open_regular, parse_json, read_job_file

SPOOL = "spool.jsonl"
_START = b'{"format":1,"job":"'
#: The head of a line. What follows says whether the measurement has only begun, or how it ended.
_HEAD = re.compile(rb'\{"format":1,"job":"([^"]{1,64})","test":(\d{1,9}),"repetition":(\d{1,9}),("begun_utc")?')
#: The file in which a client keeps the sizes of a sweep until its match is in the spool.
_KEPT = re.compile(r"([^/]{1,64})-t(\d{1,9})-r(\d{1,9})\.sizes")
_CODE = re.compile(rb'"rc":(\d{1,9}),')
#: Exit codes of a kernel that mean: there is a measurement, valid (0) or invalid (1).
MEASURED_CODES = frozenset({0, 1})


def of_pairs(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts, each tournament replaced by one attempt per pair, numbered as attempts of that pair."""
    numbers: dict[int, int] = {}
    found: list[Attempt] = []
    for attempt in attempts:
        if not attempt.shared:
            found.append(attempt)
            numbers[attempt.pairs[0]] = attempt.attempt_no
            continue
        for index in attempt.pairs:
            numbers[index] = numbers.get(index, 0) + 1
            job = job_name_of(index)
            place = (attempt.job, attempt.attempt_no)
            one = replace(attempt, tag=f"{attempt.tag}/{job}", job=job, attempt_no=numbers[index], pairs=(index,))
            found.append(replace(one, place=place))
    return found


class Spool:
    """The spool of one attempt. It ignores a torn last line and counts damaged lines."""

    def __init__(self, path: Path) -> None:
        self.damaged_count = 0
        self.first_damaged_byte = 0
        self._path = path
        #: What clients kept of sweeps whose match is not in the spool, or has no result there.
        self._sizes = _kept(path.parent)
        self._places: dict[str, dict[StepKey, list[tuple[int, int]]]] = {}
        offset = 0
        try:
            with open_regular(path) as file:
                for line in lines_of(file):
                    self._take(line, offset)
                    offset += len(line)
                if offset < os.fstat(file.fileno()).st_size:
                    self._damaged(offset)
        except FileNotFoundError:
            return

    def steps(self, job: str) -> list[StepKey]:
        """Return the measurements of a pair that the spool holds."""
        return sorted({*self._places.get(job, {}), *(step for of_job, step in self._sizes if of_job == job)})

    def read_all(self, job: str, step: StepKey) -> list[RawLine]:
        """Return all lines about one measurement in their order, usually one.

        Bytes that are not JSON give a line without content.
        """
        sizes = self._sizes.get((job, step))
        places = self._places.get(job, {}).get(step)
        if places is None:
            return [RawLine(sizes, None, hashlib.sha256(sizes or b"").digest())]
        with open_regular(self._path) as file:
            found = [self._read(file, offset, size) for offset, size in places]
        return [replace(raw, content=sizes, said="") if sizes and raw.content is None else raw for raw in found]

    def _read(self, file: BinaryIO, offset: int, size: int) -> RawLine:
        file.seek(offset)
        line = file.read(size)
        digest = hashlib.sha256(line).digest()
        try:
            said = parse_json(line)
        except ValueError as error:
            return RawLine(None, None, digest, f"spool: {error}")
        status = {"rc": said.get("rc"), "started_utc": said.get("started_utc"), "ended_utc": said.get("ended_utc")}
        reason, words = (one if isinstance(one := said.get(key), str) else "" for key in ("reason", "words"))
        return RawLine(_result(said), json.dumps(status).encode(), digest, reason, words)

    def _take(self, line: bytes, offset: int) -> None:
        start = _whole_from(line)
        head = _HEAD.match(line, start)
        if head is not None and not head[4] and line.endswith(b"}\n"):
            job = head[1].decode("utf-8", "replace")
            places = self._places.setdefault(job, {}).setdefault((int(head[2]), int(head[3])), [])
            places.append((offset + start, len(line) - start))
        elif line.endswith(b"\n") and (head is None or not line.endswith(b"}\n")) and line.strip():
            self._damaged(offset)

    def _damaged(self, offset: int) -> None:
        self.first_damaged_byte = self.first_damaged_byte if self.damaged_count else offset
        self.damaged_count += 1


def _kept(folder: Path) -> dict[tuple[str, StepKey], bytes]:
    named = ((path, _KEPT.fullmatch(path.name)) for path in sorted(folder.glob("*.sizes")))
    read = (
        ((name[1], (int(name[2]), int(name[3]))), kept_sizes(read_job_file(path)))
        for path, name in named
        if name and path.is_file() and not path.is_symlink()
    )
    return {key: sizes for key, sizes in read if sizes is not None}


def earlier_spools(jobs: Path) -> list[Spool]:
    """Return the spools of all tournaments below a folder of jobs, also those that hold nothing but kept sizes."""
    return [Spool(folder / SPOOL) for folder in sorted(jobs.glob("g*/*")) if folder.is_dir()]


def sizes_spooled(spools: Iterable[Spool], job: str, step: StepKey) -> tuple[int, ...]:
    """Return the sizes of a sweep that any of these spools has a measurement of."""
    raws = (raw for spool in spools if step in spool.steps(job) for raw in spool.read_all(job, step))
    return tuple(sorted({size for raw in raws for size in measured_sizes(raw.content or b"")}))


def spooled_steps(folder: Path) -> dict[str, list[StepKey]]:
    """Return the measurements in an attempt's spool, by job; empty if there is no spool."""
    found: dict[str, set[StepKey]] = {}
    try:
        with open_regular(folder / SPOOL) as file:
            for line in lines_of(file):
                measured = spooled_step(line) if line.endswith(b"}\n") else None  # otherwise torn
                if measured is not None:
                    found.setdefault(measured[0], set()).add(measured[1])
    except FileNotFoundError:
        return {}
    return {job: sorted(steps) for job, steps in found.items()}


def spooled_step(line: bytes) -> tuple[str, StepKey] | None:
    """Return the measurement that a line of a spool, or its head, describes; None if it failed or has only begun."""
    head = _HEAD.match(line, _whole_from(line))
    code = _CODE.search(line, head.end()) if head is not None and not head[4] else None
    if head is None or code is None or int(code[1]) not in MEASURED_CODES:
        return None
    return head[1].decode("utf-8", "replace"), (int(head[2]), int(head[3]))


def _whole_from(line: bytes) -> int:
    """Return where the complete record of a line begins.

    Before it may be the rest of a record that was torn while another process went on writing.
    """
    return max(0, line.rfind(_START))


def _result(said: dict[str, Any]) -> bytes | None:
    """Return the kernel's line, with how many pairs measured at once added to its grants."""
    result = said.get("result")
    if not isinstance(result, dict):
        return None
    for one in (result, *(sizes if isinstance(sizes := result.get("sizes"), list) else [])):
        if isinstance(one, dict):
            one.pop("frame", None)  # it is about the bytes that the kernel wrote; a record of a spool is whole or none
    at_once = said.get("at_once")
    if isinstance(at_once, int):
        sizes = result.get("sizes")
        if isinstance(sizes, list):
            result = {**result, "sizes": [_counted(one, at_once) for one in sizes]}
        else:
            result = _counted(result, at_once)
    return json.dumps(result).encode()


def _counted(result: Any, at_once: int) -> Any:
    granted = result.get("granted") if isinstance(result, dict) else None
    return {**result, "granted": {**granted, "pairs_at_once_count": at_once}} if isinstance(granted, dict) else result

"""What must hold after a campaign, whatever broke under it.

Read from the database, the journals, the clusters' own files, squeue, sacct and the nodes' processes.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.faults.fault_kinds import CLUSTERS, LINK, Scene
from tests.lab.lab_fixture import ACCOUNTED_WITHIN_S

#: part, job, test, repetition: one planned measurement.
Step = tuple[str, str, int, int]
PARTS = (*CLUSTERS, LINK)
#: What hpcq ends with for its results, and for nothing that broke beside them.
DONE = {0, 3, 4}
SPOOLED = '{"format":1,"job":"'
ROWS = """SELECT c.name AS part, j.name AS job, x.test_no, x.repetition_no, x.outcome, x.reason, x.final
FROM result x JOIN job j ON j.job_id = x.job_id JOIN run_cluster r ON r.run_cluster_id = j.run_cluster_id
JOIN cluster c ON c.cluster_id = r.cluster_id"""


class Child(Protocol):
    """A campaign that runs: hpcq itself, whether it has ended, and what was done to it."""

    child: subprocess.Popen[bytes] | None
    said: list[str]

    @property
    def ended(self) -> bool: ...


_Child = TypeVar("_Child", bound=Child)


def to_the_end(scene: _Child, resumed: Callable[[_Child], bool], *, within_s: float) -> int | None:
    """Wait for hpcq, resumed where that is needed; its last exit code, None where it did not end."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if scene.ended and not resumed(scene):
            assert scene.child is not None
            return scene.child.returncode
        time.sleep(0.02)
    scene.said.append(f"no end after {within_s:g} s")
    return None


def exit_code_of(rows: Iterable[Mapping[str, Any]]) -> int:
    """What hpcq must end with after these final rows, where neither gates nor earlier runs judge them: 3 where a test of
    a pair ran and none of its repetitions gave a valid result, else 4 where one is not measured, else 0.
    """
    outcomes = defaultdict[tuple[str, str, int], set[str]](set)
    for row in rows:
        outcomes[row["part"], row["job"], row["test_no"]].add(row["outcome"])
    if any("measured" not in found and found & {"failed", "invalid"} for found in outcomes.values()):
        return 3
    return 0 if all(found == {"measured"} for found in outcomes.values()) else 4


def broken_promises(scene: Scene, exit_code: int) -> list[str]:
    """Every promise that does not hold, in words; none is what is wanted."""
    rows = scene.desk.rows(ROWS)
    wanted = exit_code_of(row for row in rows if row["final"])
    return [
        *([f"exit code {exit_code}, and what was measured says {wanted}"] if exit_code != wanted else []),
        *_planned_is_there_once(scene, rows),
        *_measured_is_there_once(scene, rows),
        *_journals_are_whole(scene),
        *_nothing_is_left(scene),
        *_nothing_started_twice(scene),
        *_database_is_whole(scene),
        *_status_agrees(scene, rows),
    ]


def final_rows(scene: Scene) -> dict[Step, tuple[str, str | None]]:
    """Outcome and reason of everything that was planned."""
    return {_step(row): (row["outcome"], row["reason"]) for row in scene.desk.rows(ROWS) if row["final"]}


def _step(row: dict[str, Any]) -> Step:
    return row["part"], row["job"], row["test_no"], row["repetition_no"]


def planned_steps(run: Path) -> set[Step]:
    """Everything that the plans of a run want."""
    found = set()
    for part in PARTS:
        plan = json.loads((run / part / "plan.json").read_text())
        for pair_no in range(1, len(plan["pairs"]) + 1):
            for test in plan["tests"]:
                for repetition_no in range(1, plan["repetition_count"] + 1):
                    found.add((part, f"j{pair_no:05d}", test["test_no"], repetition_no))
    return found


def _planned_is_there_once(scene: Scene, rows: list[dict[str, Any]]) -> Iterator[str]:
    planned = planned_steps(scene.desk.run_folder)
    final = Counter(_step(row) for row in rows if row["final"])
    yield from (f"planned, but no final row: {step}" for step in sorted(planned - final.keys()))
    yield from (f"a final row that was not planned: {step}" for step in sorted(final.keys() - planned))
    yield from (f"{count} final rows: {step}" for step, count in final.items() if count != 1)
    for row in rows:
        if row["final"] and row["outcome"] != "measured" and not row["reason"]:
            yield f"{row['outcome']} without a reason: {_step(row)}"
        if row["final"] and str(row["reason"] or "").startswith("pending"):
            yield f"still pending: {_step(row)}: {row['reason']}"


def _measured_is_there_once(scene: Scene, rows: list[dict[str, Any]]) -> Iterator[str]:
    """What the clusters' own files hold against what the database does."""
    brought = Counter(step for cluster in CLUSTERS for step in _lines_of(scene.on_cluster(cluster), cluster))
    measured = Counter(_step(row) for row in rows if row["outcome"] == "measured")
    final = {_step(row): row for row in rows if row["final"]}
    for step, count in brought.items():
        if count > 1:
            yield f"measured {count} times: {step}"
        if final.get(step, {}).get("outcome") not in {"measured", "invalid"}:
            yield f"measured, but the database says otherwise: {step}: {final.get(step)}"
    yield from (f"{count} measured rows: {step}" for step, count in measured.items() if count > 1)
    elsewhere = brought.keys() | scene.torn
    yield from (f"measured in the database, nowhere else: {step}" for step in sorted(measured.keys() - elsewhere))


def _lines_of(folder: Path, cluster: str) -> Iterator[Step]:
    """Whole lines of kernels that ended well, as the nodes wrote them."""
    for path in folder.rglob("jobs/*/*/**/t*-r*.status"):
        test, _, repetition = path.stem[1:].partition("-r")
        line = path.with_suffix(".json")
        if json.loads(path.read_text())["rc"] == 0 and line.exists() and line.read_text().endswith("}\n"):
            yield _part_of(path, cluster), _job_of(path), int(test), int(repetition)
    for path in folder.rglob("jobs/*/*/spool.jsonl"):
        for text in path.read_text(errors="replace").splitlines(keepends=True):
            try:  # behind the rest of a line that was torn while somebody wrote on stands a whole one
                said = json.loads(text[max(0, text.rfind(SPOOLED)) :])
            except ValueError:
                continue
            if said.get("rc") == 0 and text.endswith("\n"):
                yield _part_of(path, cluster), said["job"], said["test"], said["repetition"]


def _part_of(path: Path, cluster: str) -> str:
    return next((part for part in path.parts if part == LINK), cluster)


def _job_of(path: Path) -> str:
    return path.parts[len(path.parts) - 1 - path.parts[::-1].index("jobs") + 1]


def _journals_are_whole(scene: Scene) -> Iterator[str]:
    for part in PARTS:
        events = scene.desk.events(part)
        ends = Counter(event["tag"] for event in events if event["event"] in {"ended", "refused"})
        begun = [event["tag"] for event in events if event["event"] == "attempt"]
        yield from (f"{part}: begun twice: {tag}" for tag, count in Counter(begun).items() if count > 1)
        yield from (f"{part}: {ends[tag]} ends: {tag}" for tag in begun if ends[tag] != 1)
        ids = [
            event["scheduler_job_id"]
            for event in events
            if event["event"] == "submitted" and event["scheduler_job_id"] != "unknown"
        ]
        if part != LINK:  # two clusters number on their own
            yield from (f"{part}: job {one} has two names" for one, count in Counter(ids).items() if count > 1)


def _nothing_is_left(scene: Scene, within_s: float = 60) -> Iterator[str]:
    """No job, and no process; Slurm takes its time to end steps."""
    deadline = time.monotonic() + within_s
    for cluster in CLUSTERS:
        while True:
            left = [f"{cluster}: {line}" for line in _jobs_and_processes(scene, cluster)]
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        yield from left


def _jobs_and_processes(scene: Scene, cluster: str) -> list[str]:
    listed = scene.lab.exec(cluster, "squeue", "-h", "-u", "labuser", "-o", "%i %j %T %r")
    left = [f"in the queue: {line}" for line in listed.splitlines() if scene.desk.run_folder.name in line]
    for number in range(1, 5):
        where = f"{cluster}/n{number:02d}"
        shown = scene.lab.exec(where, "sh", "-c", "pgrep -a -u labuser || [ $? -eq 1 ]")
        left += [f"on {where}: {line}" for line in shown.splitlines() if "hpcq" in line]
    return left


def _nothing_started_twice(scene: Scene) -> Iterator[str]:
    """alpha has accounting: every job by its name, however often Slurm wrote a row for it."""
    words = ["sacct", "-n", "-P", "-X", "-S", "now-2hours", "-u", "labuser", "-o", "JobName,JobIDRaw,Start"]
    measured = any(one["event"] == "ended" and one["measured"] for one in scene.desk.events("alpha"))
    deadline = time.monotonic() + ACCOUNTED_WITHIN_S
    while True:  # a controller that was killed may have lost some rows, not all
        told = {tuple(line.split("|")[:2]) for line in scene.lab.exec("alpha", *words).splitlines()}
        names = Counter(name for name, _ in told if scene.desk.run_folder.name in name)
        if names or not measured:
            break
        if time.monotonic() > deadline:
            yield "alpha: nothing of this run is accounted"
            break
        time.sleep(0.5)
    yield from (f"alpha: {count} jobs of one name: {name}" for name, count in names.items() if count > 1)


def _database_is_whole(scene: Scene) -> Iterator[str]:
    path = scene.desk.folder / "results.db"
    with closing(sqlite3.connect(path)) as database:
        for pragma in ("integrity_check", "foreign_key_check"):
            said = [row[0] for row in database.execute(f"PRAGMA {pragma}")]
            if said not in ([], ["ok"]):
                yield f"{pragma}: {said[:3]}"
    before = _digest(path)
    loaded = scene.desk.json("db", "load")
    if any(one["read_count"] for one in loaded["clusters"]):
        yield f"a second load read something: {loaded['clusters']}"
    if _digest(path) != before:
        yield "a second load changed the database"


def _digest(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return hashlib.sha256("\n".join(database.iterdump()).encode()).hexdigest()


def _status_agrees(scene: Scene, rows: list[dict[str, Any]]) -> Iterator[str]:
    planned = Counter(step[0] for step in planned_steps(scene.desk.run_folder))
    measured = Counter(row["part"] for row in rows if row["final"] and row["outcome"] in {"measured", "invalid"})
    for one in scene.desk.json("status")["clusters"]:
        part, counts = one["name"], one["counts"]
        found = (counts["planned_result_count"], counts["measured_result_count"])
        if found != (planned[part], measured[part]):
            yield f"status of {part}: planned and measured {found}, in the database {(planned[part], measured[part])}"
        if counts["live_attempt_count"] or counts["pending_pair_count"]:
            yield f"status of {part}: something is still live or pending: {counts}"

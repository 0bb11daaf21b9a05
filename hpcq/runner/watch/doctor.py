"""`hpcq doctor`: what is wrong with this installation, its schedules, runs and database. It repairs nothing.

    installation   the programs and files that runs need
    schedule       missing timers and lines, missed starts, and runs that a schedule should have produced but did not
    runs           runs without a driver, results that were measured but not loaded, running drivers
    database       version, integrity, what a killed writer left; whether its file system has locks
    disk           free space and free inodes where runs and database are
    clusters       only on request: is each reachable, and does its scheduler answer

Each item is ok, a note (worth knowing), open (it could not be checked), or bad (a person must act), with what to type.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpcq import __version__, assets, units
from hpcq.errors import HpcqError
from hpcq.runner.watch import schedule
from hpcq.runner.watch.doctor_runs import look_at_runs
from hpcq.transport import run_here

#: Less free space than this stops runs soon; a tenth of it stops them now.
ROOM_MIN_BYTES = 2**30
FILES_MIN = 10_000


@dataclass(frozen=True, slots=True)
class Told:
    """One checked item. state: ok, note, open or bad. advice: what to do or type; empty if all is well."""

    area: str
    item: str
    state: str
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """What to check."""

    database: Path
    runs_folder: Path
    cluster_folders: tuple[Path, ...] = ()
    reach: bool = False


def examine(places: Places, now: dt.datetime | None = None) -> list[Told]:
    """Check everything, area by area. If the check of an area fails, it reports that as bad and continues."""
    present = now or dt.datetime.now(dt.UTC)
    areas: list[tuple[str, Callable[[], Iterator[Told]]]] = [
        ("installation", _installation),
        ("schedule", lambda: _schedule(present)),
        ("runs", lambda: _runs(places)),
        ("database", lambda: _database(places.database)),
        ("disk", lambda: _disk(places)),
    ]
    if places.reach:
        areas.append(("clusters", lambda: _clusters(places.cluster_folders)))
    told: list[Told] = []
    for area, look in areas:
        try:
            told += look()
        except HpcqError as error:
            told.append(Told(area, area, "bad", error.message, error.hint or ""))
        except OSError as error:
            told.append(
                Told(area, area, "bad", f"{error.filename or area}: cannot be used: {error.strerror}", "check its rights")
            )
    return told


def _installation() -> Iterator[Told]:
    yield Told("installation", "hpcq", "ok", f"{__version__} with Python {sys.version.split()[0]} in {sys.prefix}")
    if find_spec("snakemake") is None:
        yield Told("installation", "snakemake", "bad", "is not there: hpcq run needs it", "pip install snakemake")
    missing = [str(path) for path in (assets.database_schema(), assets.kernel_descriptions()) if not path.exists()]
    if missing:
        yield Told("installation", "files", "bad", f"missing: {', '.join(missing)}", "install hpcq again")


def _schedule(now: dt.datetime) -> Iterator[Told]:
    for entry in schedule.entries():
        gone = schedule.gone(entry)
        trouble = schedule.missed(entry, now)
        begun = _still_at_work(entry)
        overdue = _overdue(entry, now)
        advice = f"hpcq schedule remove {entry.name}, then add it again"
        if gone:
            yield Told("schedule", entry.name, "bad", gone, advice)
        if trouble:
            yield Told("schedule", entry.name, "bad", trouble, "" if gone else _timer_advice(entry.kind))
        if begun:
            yield Told("schedule", entry.name, *begun)
        if overdue and not trouble:
            yield Told("schedule", entry.name, "bad", overdue, f"its output is in {schedule.log_of(entry.name)}")
        if not (gone or trouble or begun or overdue):
            last = "not due yet" if entry.started_utc is None else f"last started {_minute(entry.started_utc)}"
            yield Told("schedule", entry.name, "ok", f"{entry.when} by {entry.kind}, {last}")


def _timer_advice(kind: str) -> str:
    if kind == "systemd":
        return "systemctl --user list-timers; timers of a user who is not logged in need loginctl enable-linger"
    return f"{kind} -l shows its line; is the cron service running?"


def _still_at_work(entry: schedule.Entry) -> tuple[str, str, str] | None:
    """Return what to report about a start without an end: it still runs, or it was cut off."""
    if entry.started_utc is None or (entry.ended_utc is not None and entry.ended_utc >= entry.started_utc):
        return None
    if schedule.at_work(entry.name):
        return "note", f"at work since {_minute(entry.started_utc)}: the next starts do nothing until it ends", ""
    found = f"the start of {_minute(entry.started_utc)} was cut off: it has no end, and nobody works at it"
    return "bad", found, "hpcq status and hpcq resume in its folder"


def _overdue(entry: schedule.Entry, now: dt.datetime) -> str | None:
    """Return whether a scheduled `run` added no run to its database for two periods although its timer works."""
    words = list(entry.words)
    if len(words) < 2 or words[0] != "run":
        return None
    from hpcq.store.read.doctor_queries import last_run

    folder = Path(entry.folder)
    named = words[words.index("--db") + 1] if "--db" in words[:-1] else None
    database = folder / (named or os.environ.get("HPCQ_DB") or "results.db")
    campaign = _campaign_name(folder, next((word for word in words[1:] if not word.startswith("-")), ""))
    last = last_run(database, campaign)
    begun = units.parse_utc(entry.since_utc)
    since = max(begun, units.parse_utc(last)) if last else begun
    if (now - since).total_seconds() <= 2 * entry.period_s + 60:
        return None
    found = f"is of {_minute(last)}" if last else "is not there"
    return f"the last run of {campaign} in {database} {found}, though one is due {entry.when}"


def _campaign_name(folder: Path, word: str) -> str:
    """Return the name in the campaign's file; the file's own name if it cannot be read."""
    try:
        named = re.search(r"^name:\s*[\"']?([A-Za-z0-9._-]+)", (folder / word).read_text("utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        named = None
    return named[1] if named else Path(word).stem


def _runs(places: Places) -> Iterator[Told]:
    found = look_at_runs(places.runs_folder, places.database)
    for one in found:
        yield Told("runs", one.run, one.state, one.found, one.advice)
    if not found:
        count = len(list(places.runs_folder.glob("*/run.json")))
        words = f"{units.count_of(count, 'run')}, all finished and loaded" if count else "there is no run yet"
        yield Told("runs", str(places.runs_folder), "ok", words)


def _database(path: Path) -> Iterator[Told]:
    from hpcq.store.read.doctor_queries import look_at_database

    if not path.exists():
        yield Told("database", str(path), "note", "there is none yet", "hpcq run makes it; --db names another")
    else:
        for item, ok, found, advice in look_at_database(path):
            yield Told("database", item, "ok" if ok else "bad", found, advice)
    yield _locks(path.absolute().parent)


def _locks(folder: Path) -> Told:
    """Check whether a lock of one process keeps out another there. Only that separates two writers."""
    kind = _file_system(folder)
    probe = folder / f".hpcq-doctor-{os.getpid()}"
    try:
        with probe.open("w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            other = "import fcntl,sys\nwith open(sys.argv[1],'r+') as f:\n  fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
            got = run_here([sys.executable, "-c", other, str(probe)], timeout_s=60).returncode == 0
    except OSError as error:
        found = f"{folder} ({kind}): cannot be locked or written: {error.strerror}"
        return Told("database", "locks", "bad", found, "put the database on a file system that has locks")
    finally:
        with contextlib.suppress(OSError):  # a read-only folder has none
            probe.unlink(missing_ok=True)
    if got:
        found = f"{folder} ({kind}): two processes hold one lock: two loads at once would lose results without a word"
        return Told("database", "locks", "bad", found, "put the database on a file system that has locks")
    far = kind.startswith(("nfs", "lustre", "gpfs", "beegfs", "fuse", "9p", "cifs"))
    words = f"{folder} ({kind}): locks hold on this machine" + ("; between machines only that mount can tell" if far else "")
    return Told("database", "locks", "note" if far else "ok", words, "load on one machine only" if far else "")


def _file_system(folder: Path) -> str:
    """Return the kind of file system that holds a folder; `unknown` if the system does not say."""
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return kind
    for line in lines:
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])  # blanks and the like
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def _disk(places: Places) -> Iterator[Told]:
    seen: set[int] = set()
    for what, path in (("runs", places.runs_folder), ("database", places.database.absolute().parent)):
        folder = path.absolute()
        while not folder.exists():
            folder = folder.parent
        if folder.stat().st_dev in seen:
            continue
        seen.add(folder.stat().st_dev)
        room, files = shutil.disk_usage(folder).free, os.statvfs(folder)
        found = f"{folder}: {units.human(room, 'bytes')} free"
        if files.f_files and files.f_favail < FILES_MIN:
            yield Told("disk", what, "bad", f"{folder}: only {files.f_favail} more files fit", "remove old run folders")
        elif room < ROOM_MIN_BYTES:
            state = "bad" if room < ROOM_MIN_BYTES / 10 else "note"
            yield Told("disk", what, state, found, "hpcq db prune --keep 365d; remove old run folders")
        else:
            yield Told("disk", what, "ok", found)


def _clusters(folders: Sequence[Path]) -> Iterator[Told]:
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import list_clusters
    from hpcq.runner.site.place import reach, scheduler_of

    examples = assets.campaigns() / "clusters"
    own = {name: path for name, path in list_clusters(None, folders).items() if path.parent.absolute() != examples.absolute()}
    if not own:
        yield Told("clusters", "clusters", "open", "no cluster file is found here", "--clusters FOLDER names their folder")
    for name, path in own.items():
        try:
            cluster = read_cluster(path)
            nodes = scheduler_of(cluster, reach(cluster)).nodes()
            counts = Counter(one.condition.value for one in nodes).most_common()
            shown = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts) or "none"
            yield Told("clusters", name, "ok", f"its scheduler answers: {len(nodes)} nodes: {shown}")
        except HpcqError as error:
            yield Told("clusters", name, "bad", error.message, f"hpcq cluster check {name}")


def _minute(utc_text: str) -> str:
    return f"{utc_text[:10]} {utc_text[11:16]} UTC"

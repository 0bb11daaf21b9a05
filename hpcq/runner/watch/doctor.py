"""`hpcq doctor`: what is wrong with this installation, its schedules, runs and database. It repairs nothing.

    installation   the programs and files that runs need
    schedule       missing timers and lines, missed starts, and runs that a schedule should have produced but did not
    runs           runs without a driver, results that were measured but not loaded, running drivers
    database       version, integrity, what a killed writer left; whether its file system has locks
    judgement      what `hpcq regressions` tells and suspects of each cluster
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
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpcq import __version__, assets, plugins, units
from hpcq.errors import HpcqError, StoreError, UserError
from hpcq.exports import exporters
from hpcq.gate_kinds import gate_kinds
from hpcq.run_folder.journal import read_journal
from hpcq.run_folder.paths import RunFolder, new_file
from hpcq.runner.watch import schedule
from hpcq.transport import run_here

# ----------------------------------------------------------------------------------------------------------------------
# Check runs by their folders and locks alone: which have lost their driver, and which were never loaded.


#: Clocks of file servers differ: a smaller difference counts as the same age.
_AGE_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class RunTold:
    """What the doctor reports about one run. It does not report finished and loaded ones."""

    run: str
    state: str
    found: str
    advice: str = ""


def look_at_runs(runs_folder: Path, database: Path) -> list[RunTold]:
    """Check all run folders. Reports those that are unfinished, not loaded, or unknown to the database."""
    from hpcq.store.read.stretches import known_runs

    known = known_runs(database)
    told: list[RunTold] = []
    for path in sorted(runs_folder.glob("*/run.json")):
        told += _look_at(RunFolder(path.parent), known)
    return told


def _look_at(run: RunFolder, known: set[str] | None) -> Iterator[RunTold]:
    try:
        described = run.described_run()
    except StoreError as error:
        yield RunTold(run.path.name, "bad", error.message, "remove the folder if nothing in it is needed")
        return
    name = run.run
    parts = [*described["clusters"], *run.link_names()]
    holders = holders_of(run)
    stages = {part: _stage(run, part) for part in parts}
    if holders:
        yield RunTold(name, "note", "; ".join(f"{part} is driven by {holder}" for part, holder in holders.items()))
        return
    unfinished = [part for part, stage in stages.items() if stage not in {"loaded", "measured", "stale"}]
    unloaded = [part for part, stage in stages.items() if stage in {"measured", "stale"}]
    if unfinished:
        words = ", ".join(f"{part} is {stages[part]}" for part in unfinished)
        yield RunTold(name, "bad", f"nobody drives it, and {words}", f"hpcq resume {name}, or hpcq cancel {name}")
    if unloaded:
        words = ", ".join(unloaded)
        yield RunTold(name, "bad", f"{words}: measured, and not all of it is loaded", f"hpcq db load {name}")
    elif not unfinished and known is not None and name not in known:
        yield RunTold(name, "bad", "it is not in this database: loaded into another database, or lost", f"hpcq db load {name}")


def _stage(run: RunFolder, part: str) -> str:
    folder, loaded = run.path / part, run.path / part / "loaded.json"
    if not run.plan(part).is_file():
        return "not planned"
    if not (folder / "driven.json").is_file():
        return "not measured to its end" if run.journal(part).is_file() else "planned only"
    if not (loaded_s := _modified_s([loaded])):
        return "measured"
    if part in run.to_confirm():
        return "loaded, but its suspects are not measured again yet"
    return "stale" if _newest(run, part) > loaded_s + _AGE_TOLERANCE_S else "loaded"


def _newest(run: RunFolder, part: str) -> float:
    """Return the time of the last write to what loading reads: the journal, and the spools of tournaments."""
    files = [run.journal(part), *(run.path / part).glob("jobs/g*/*/spool.jsonl")]
    return _modified_s(files)


def _modified_s(files: Iterable[Path]) -> float:
    """The time of the last write to any of these; 0 if none is there. A driver that ends removes some meanwhile."""
    newest_s = 0.0
    for path in files:
        with contextlib.suppress(OSError):
            newest_s = max(newest_s, path.stat().st_mtime)
    return newest_s


def holders_of(run: RunFolder) -> dict[str, str]:
    """Return who drives the parts of a run now, by part."""
    parts = [*run.described_run()["clusters"], *run.link_names()]
    return {part: holder for part in parts if (holder := holder_of(run.journal(part)))}


def holder_of(journal: Path) -> str | None:
    """Return the present holder of a journal's lock; None if it is free."""
    path = journal.with_name(f"{journal.name}.lock")
    try:
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(500).strip() or "a process that did not say who it is"
    except OSError:
        return None
    return None


# ----------------------------------------------------------------------------------------------------------------------


#: Less free space than this stops runs soon; a tenth of it stops them now.
ROOM_MIN_BYTES = 2**30
FILES_MIN = 10_000


@dataclass(frozen=True, slots=True)
class Checkup:
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


def examine(places: Places, now: dt.datetime | None = None) -> list[Checkup]:
    """Check everything, area by area. If the check of an area fails, it reports that as bad and continues."""
    present = now or dt.datetime.now(dt.UTC)
    areas: list[tuple[str, Callable[[], Iterator[Checkup]]]] = [
        ("installation", _installation),
        ("schedule", lambda: _schedule(present)),
        ("runs", lambda: _runs(places)),
        ("database", lambda: _database(places.database)),
        ("judgement", lambda: _judgement(places.database)),
        ("disk", lambda: _disk(places)),
    ]
    if places.reach:
        areas.append(("clusters", lambda: _clusters(places.cluster_folders)))
    told: list[Checkup] = []
    for area, look in areas:
        try:
            told += look()
        except HpcqError as error:
            told.append(Checkup(area, area, "bad", error.message, error.hint or ""))
        except OSError as error:
            told.append(
                Checkup(area, area, "bad", f"{error.filename or area}: cannot be used: {error.strerror}", "check its rights")
            )
    return told


def _installation() -> Iterator[Checkup]:
    yield Checkup("installation", "hpcq", "ok", f"{__version__} with Python {sys.version.split()[0]} in {sys.prefix}")
    if find_spec("snakemake") is None:
        yield Checkup("installation", "snakemake", "bad", "is not there: hpcq run needs it", "pip install snakemake")
    missing = [str(path) for path in (assets.database_schema(), assets.kernel_descriptions()) if not path.exists()]
    if missing:
        yield Checkup("installation", "files", "bad", f"missing: {', '.join(missing)}", "install hpcq again")
    gate_kinds()
    exporters()
    broken = plugins.broken()
    for group in plugins.GROUPS:
        for one in plugins.plugins(group):
            reason = broken.get((group, one.name, one.package))
            state, found = ("ok", one.package) if reason is None else ("bad", f"{one.package}: {reason}")
            what = group.removeprefix("hpcq.").removesuffix("s").replace("_", " ")
            yield Checkup(
                "installation", f"{what} {one.name}", state, found, "mend or uninstall that package" if state == "bad" else ""
            )


def _schedule(now: dt.datetime) -> Iterator[Checkup]:
    for entry in schedule.entries():
        gone = schedule.gone(entry)
        trouble = schedule.missed(entry, now)
        begun = _still_at_work(entry)
        overdue = _overdue(entry, now)
        advice = f"hpcq schedule remove {entry.name}, then add it again"
        if gone:
            yield Checkup("schedule", entry.name, "bad", gone, advice)
        if trouble:
            yield Checkup("schedule", entry.name, "bad", trouble, "" if gone else _timer_advice(entry.kind))
        if begun:
            yield Checkup("schedule", entry.name, *begun)
        if overdue and not trouble:
            yield Checkup("schedule", entry.name, "bad", overdue, f"its output is in {schedule.log_of(entry.name)}")
        if not (gone or trouble or begun or overdue):
            last = "not due yet" if entry.started_utc is None else f"last started {_minute(entry.started_utc)}"
            yield Checkup("schedule", entry.name, "ok", f"{entry.when} by {entry.kind}, {last}")


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
    from hpcq.store.read.stretches import last_run

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


def _runs(places: Places) -> Iterator[Checkup]:
    found = look_at_runs(places.runs_folder, places.database)
    for one in found:
        yield Checkup("runs", one.run, one.state, one.found, one.advice)
    if not found:
        count = len(list(places.runs_folder.glob("*/run.json")))
        words = f"{units.count_of(count, 'run')}, all finished and loaded" if count else "no run was made here yet"
        yield Checkup("runs", str(places.runs_folder), "ok", words)


def _database(path: Path) -> Iterator[Checkup]:
    from hpcq.store.read.stretches import look_at_database

    if not path.exists():
        yield Checkup("database", str(path), "note", "there is none yet", "hpcq run makes it; --db names another")
    else:
        for item, ok, found, advice in look_at_database(path):
            yield Checkup("database", item, "ok" if ok else "bad", found, advice)
    yield _locks(path.absolute().parent)


def _judgement(path: Path) -> Iterator[Checkup]:
    """What a person is told of the machines: worth knowing here, and no fault of the installation."""
    from hpcq.analysis.gates import failed_gates, failed_lines
    from hpcq.analysis.standing import bounds_of, standings
    from hpcq.judge.causes import Judged, Thing
    from hpcq.store.database import reading
    from hpcq.store.query import names

    if not path.exists():
        return
    with reading(path) as connection:
        clusters = names(connection, "cluster")
        found = standings(connection, clusters, "90d")
        failed = failed_gates(connection, *bounds_of(connection, "90d"))
    for cluster in sorted(set(clusters) - {one.cluster for one in found}):
        yield Checkup("judgement", cluster, "note", "no node judged: no test of a node or a pair was ever tried", "hpcq runs")
    for one in found:
        for cause in one.causes:
            yield Checkup("judgement", one.cluster, "note", cause.words, "hpcq regressions" if cause.is_told else "")
        for record in one.unfit:
            yield Checkup("judgement", one.cluster, "note", record.line, "hpcq nodes --verdicts")
        here = [gate for gate in failed if gate.verdict.series.cluster == one.cluster]
        for line in failed_lines(here):
            yield Checkup("judgement", one.cluster, "note", line, f"hpcq results {here[0].run}")
        counts = Counter(covered.judged for covered in one.coverage if covered.thing is Thing.NODE)
        known = f"{counts[Judged.JUDGED]} of {counts.total()} nodes judged as of {one.newest_run}"
        words = {Judged.TOO_FEW_JOBS: "with too few jobs", Judged.NOT_MEASURED: "not measured"}
        if left := ", ".join(f"{counts[why]} {said}" for why, said in words.items() if counts[why]):
            yield Checkup("judgement", one.cluster, "note", f"{known}: {left}", "hpcq nodes")
        elif not one.causes and not here and not one.unfit:
            yield Checkup("judgement", one.cluster, "ok", f"{known}: nothing is told or suspected")


def _locks(folder: Path) -> Checkup:
    """Check whether a lock of one process keeps out another there. Only that separates two writers."""
    kind = _file_system(folder)
    probe = folder / f".hpcq-doctor-{os.getpid()}"
    try:
        with new_file(probe, "x") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            other = "import fcntl,sys\nwith open(sys.argv[1],'r+') as f:\n  fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
            got = run_here([sys.executable, "-c", other, str(probe)], timeout_s=60).returncode == 0
    except OSError as error:
        found = f"{folder} ({kind}): cannot be locked or written: {error.strerror}"
        return Checkup("database", "locks", "bad", found, "put the database on a file system that has locks")
    finally:
        with contextlib.suppress(OSError):  # a read-only folder has none
            probe.unlink(missing_ok=True)
    if got:
        found = f"{folder} ({kind}): two processes hold one lock: two loads at once would lose results without a word"
        return Checkup("database", "locks", "bad", found, "put the database on a file system that has locks")
    far = kind.startswith(("nfs", "lustre", "gpfs", "beegfs", "fuse", "9p", "cifs"))
    words = f"{folder} ({kind}): locks hold on this machine" + ("; between machines only that mount can tell" if far else "")
    return Checkup("database", "locks", "note" if far else "ok", words, "load on one machine only" if far else "")


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


def _disk(places: Places) -> Iterator[Checkup]:
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
            yield Checkup("disk", what, "bad", f"{folder}: only {files.f_favail} more files fit", "remove old run folders")
        elif room < ROOM_MIN_BYTES:
            state = "bad" if room < ROOM_MIN_BYTES / 10 else "note"
            yield Checkup("disk", what, state, found, "hpcq db prune --keep 365d; remove old run folders")
        else:
            yield Checkup("disk", what, "ok", found)


def _clusters(folders: Sequence[Path]) -> Iterator[Checkup]:
    from hpcq.definition.files.cluster import read_cluster
    from hpcq.definition.find import find_cluster, list_clusters
    from hpcq.runner.site.place import reach, scheduler_of

    examples = assets.campaigns() / "clusters"
    own = {name: path for name, path in list_clusters(None, folders).items() if path.parent.absolute() != examples.absolute()}
    if not own:
        yield Checkup("clusters", "clusters", "open", "no cluster file is found here", "--clusters FOLDER names their folder")
    for name in own:
        try:
            path = find_cluster(name, None, folders)
        except UserError as error:
            yield Checkup("clusters", name, "bad", error.message, error.hint or "")
            continue
        try:
            cluster = read_cluster(path)
            nodes = scheduler_of(cluster, reach(cluster)).nodes()
            counts = Counter(one.condition.value for one in nodes).most_common()
            shown = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts) or "none"
            yield Checkup("clusters", name, "ok", f"its scheduler answers: {len(nodes)} nodes: {shown}")
        except HpcqError as error:
            yield Checkup("clusters", name, "bad", error.message, f"hpcq cluster check {name}")


def _minute(utc_text: str) -> str:
    return f"{utc_text[:10]} {utc_text[11:16]} UTC"


# ----------------------------------------------------------------------------------------------------------------------
# Find runs whose driver died: unfinished, driven by nobody, and not left alone for so long that a person forgot them.
#
#     hpcq schedule add revive --when 10min -- resume --abandoned
#
# Only files here are read. A driver on another machine shows itself by the link beside its journal, which it touches every
# second; whoever overlooks it is refused when the journal is opened.


#: A run in which nothing was written for less than this may be between two stages; after the longer time it is a person's.
_QUIET_S, _FORGOTTEN_S = 300.0, 7 * 86400.0
#: After so many drivers in a row that did nothing at all, another one would not help.
_FRUITLESS_MAX = 3
#: What a driver writes without having got anywhere.
_NO_PROGRESS = frozenset({"waiting", "powered_down", "cancel"})


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A run without a driver. left: why nobody should take it over by himself; empty: it may be resumed."""

    run: RunFolder
    left: str


def abandoned(runs_folder: Path) -> list[Abandoned]:
    """Return the runs below a folder that have no driver and have not ended, oldest first."""
    return [one for path in sorted(runs_folder.glob("*/run.json")) for one in _abandoned(RunFolder(path.parent.absolute()))]


def _abandoned(run: RunFolder) -> Iterator[Abandoned]:
    try:
        described = run.described_run()
    except StoreError:
        return
    parts = [*described["clusters"], *run.link_names()]
    journals = [run.journal(part) for part in parts if run.journal(part).is_file()]
    if not journals or (all((run.path / part / "driven.json").is_file() for part in parts) and not run.to_confirm()):
        return
    quiet_s = time.time() - _modified_s([*journals, run.path / "log.txt"])
    if quiet_s < _QUIET_S or _beats(run.run_json) or any(holder_of(path) or _beats(path) for path in journals):
        return
    if quiet_s > _FORGOTTEN_S:
        yield Abandoned(run, f"nothing happened in it for {quiet_s / 86400:.0f} days")
        return
    try:
        fruitless = min(_fruitless(path) for path in journals)
    except HpcqError as error:
        yield Abandoned(run, error.message)
        return
    yield Abandoned(run, f"{fruitless} drivers in a row got nowhere" if fruitless >= _FRUITLESS_MAX else "")


def _beats(held: Path) -> bool:
    """Whether a process somewhere has touched its link beside this file lately."""
    try:
        return time.time() - held.with_name(f"{held.name}.writer").lstat().st_mtime < _QUIET_S
    except OSError:
        return False


def _fruitless(journal: Path) -> int:
    """Return how many drivers at the end of a journal opened it and recorded nothing that counts."""
    count = 0
    for event in reversed(read_journal(journal)):
        if event["event"] == "opened":
            count += 1
        elif event["event"] not in _NO_PROGRESS:
            break
    return count

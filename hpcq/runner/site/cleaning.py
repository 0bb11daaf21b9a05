"""Run folders of earlier runs on a cluster: what lies there, what may go, and removing it.

    run_folders   one command lists the folders below <work_directory>/hpcq, with size and last change
                  -> old ones without a live job, of runs that ended -> may go
    remove        moves each aside and deletes it

Nothing measured is lost by this: a run whose part has ended has all its files here too. Folders of runs that the folder
of run folders here does not know stay unless a person asks for them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcq.definition.model import Cluster
from hpcq.errors import HpcqError, SchedulerError
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.site.build import work_base
from hpcq.scheduler.base import Scheduler
from hpcq.scheduler.types import JobKey
from hpcq.transport import quote
from hpcq.units import utc_text

#: How a run is called: <campaign>-<UTC yyyymmddThhmmssZ>-<4 hex>. Nothing else is ever removed.
_RUN_ID = re.compile(r".+-\d{8}T\d{6}Z-[0-9a-f]{4}")
#: How old a folder must be where neither the cluster file nor a person says so.
KEPT_S = 30 * 86400.0
#: Prints the cluster's time, then of each run that began $age seconds ago: mark, run, last change, KiB, and the tags of
#: its jobs without an exit file. Only folders of this user that hold a run's secret are listed; it follows no link.
_LIST = r"""
now=$(date +%s); echo "$now"
before=$(date -u -d "@$((now - age))" +%Y%m%dT%H%M%SZ)
[ -e "$base" ] || exit 0 # nothing ran here yet
cd -- "$base" || exit 1
for run in */; do
    run=${run%/}; one=$run/$cluster; began=${run%-*}
    [ "${began##*-}" \< "$before" ] || continue
    [ ! -L "$run" ] && [ ! -L "$one" ] && [ -O "$one" ] && [ -f "$one/secret" ] || continue
    newest=$(find "$one" -xdev -printf '%T@\n' | sort -n | tail -n 1)
    printf '@run\t%s\t%s\t%s\n' "$run" "${newest%.*}" "$(du -sk -- "$one" | cut -f 1)"
    find "$one" -xdev -name job.json | while IFS= read -r job; do
        [ -e "${job%/*}/exit.json" ] || sed -n 's/^ *"tag": "\(.*\)",\{0,1\}$/@tag\t\1/p' "$job"
    done
done
"""
_REMOVE = r"""
cd -- "$base" || exit 1
remove() {
    [ ! -L "$1" ] && [ -O "$1/$cluster" ] && [ -f "$1/$cluster/secret" ] || { echo "$1: no run folder any more" >&2; return 1; }
    mv -T -- "$1/$cluster" "$1/.removed.$$" && rm -rf -- "$1/.removed.$$" && { rmdir -- "$1" 2>/dev/null || true; }
}
failed=0
"""


@dataclass(frozen=True, slots=True)
class OldRun:
    """The folder of one run on a cluster. kept: why it stays; empty: it may go. removed: whether it went."""

    run_id: str
    folder: str
    changed_utc: str
    age_s: float
    size_bytes: int
    kept: str
    removed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it for other programs."""
        return {
            "run_id": self.run_id,
            "folder": self.folder,
            "changed_utc": self.changed_utc,
            "age_s": self.age_s,
            "size_bytes": self.size_bytes,
            "kept": self.kept or None,
            "removed": self.removed,
        }


def run_folders(
    cluster: Cluster, scheduler: Scheduler, runs_folder: Path, older_than_s: float, *, unknown: bool = False
) -> list[OldRun]:
    """Return this user's run folders on a cluster that began so long ago, oldest first, each with why it stays.

    unknown: runs that are not below `runs_folder` may go too.
    Raises HpcqError if the cluster cannot be asked.
    """
    if cluster.work_directory is None:
        return []
    done = scheduler.transport.sh(_named(cluster) + f"age={older_than_s:.0f}\n" + _LIST, timeout_s=600)
    if done.returncode != 0:
        raise HpcqError(f"{cluster.name}: {work_base(cluster)}: cannot be listed: {done.stderr.strip()}")
    now_s, _, listing = done.text.partition("\n")
    found, tags = _read(cluster, float(now_s), listing)
    live = _live(scheduler, [tag for one in found if one.age_s >= older_than_s for tag in tags[one.run_id]])
    judged = [
        replace(one, kept=_kept(one, cluster, runs_folder, older_than_s, live & set(tags[one.run_id]), unknown=unknown))
        for one in found
    ]
    return sorted(judged, key=lambda one: -one.age_s)


def remove(cluster: Cluster, scheduler: Scheduler, old: Sequence[OldRun]) -> list[OldRun]:
    """Remove those folders that may go. Returns all, with what was done. Raises HpcqError if one could not be removed."""
    going = [one for one in old if not one.kept]
    if not going:
        return list(old)
    lines = [f"remove {quote(one.run_id)} || failed=1" for one in going]
    script = _named(cluster) + _REMOVE + "\n".join([*lines, "exit $failed"])
    done = scheduler.transport.sh(script, timeout_s=3600)
    if done.returncode != 0:
        raise HpcqError(f"{cluster.name}: {work_base(cluster)}: not all could be removed: {done.stderr.strip()}")
    return [replace(one, removed=not one.kept) for one in old]


def clean_by_age(cluster: Cluster, scheduler: Scheduler, runs_folder: Path) -> str:
    """Do what `run_folders_kept_s` of the cluster file says. Returns words for a person; empty: nothing was to do."""
    if cluster.run_folders_kept_s is None:
        return ""
    try:
        old = remove(cluster, scheduler, run_folders(cluster, scheduler, runs_folder, cluster.run_folders_kept_s))
    except HpcqError as error:
        return f"old run folders stay: {error.message}"
    gone = [one for one in old if one.removed]
    names = ", ".join(one.run_id for one in gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    return f"removed {len(gone)} old run folders there: {names}" if gone else ""


def _named(cluster: Cluster) -> str:
    """Return what the scripts read: names go in as variables, so that no path can be taken for a part of the script."""
    return f"base={quote(work_base(cluster))}\ncluster={quote(cluster.name)}\n"


def _read(cluster: Cluster, now_s: float, listing: str) -> tuple[list[OldRun], dict[str, list[str]]]:
    found: list[OldRun] = []
    tags: dict[str, list[str]] = {}
    for line in listing.splitlines():
        mark, *fields = line.split("\t")
        if mark == "@run" and len(fields) == 3 and _RUN_ID.fullmatch(fields[0]):
            run_id, changed, kib = fields
            changed_utc = utc_text(dt.datetime.fromtimestamp(int(changed), dt.UTC))
            folder = f"{work_base(cluster)}/{run_id}/{cluster.name}"
            found.append(OldRun(run_id, folder, changed_utc, now_s - int(changed), int(kib) * 1024, ""))
            tags[run_id] = []
        elif mark == "@run":
            tags[""] = []
        elif mark == "@tag" and tags:
            tags[next(reversed(tags))].append(fields[0])
    return found, tags


def _live(scheduler: Scheduler, tags: Sequence[str]) -> set[str]:
    """Return those of these jobs that are queued or running. A scheduler without an answer: all of them may be."""
    if not tags:
        return set()
    try:
        keys = [JobKey(native_id, tag) for tag, native_id in scheduler.find(tags).items()]
        reports = scheduler.poll(keys) if keys else {}
    except SchedulerError:
        return set(tags)
    return {key.tag for key in keys if not reports[key.native_id].state.terminal and not reports[key.native_id].remembered}


def _kept(
    one: OldRun, cluster: Cluster, runs_folder: Path, older_than_s: float, live: set[str], *, unknown: bool
) -> str:  # fmt: skip
    if one.age_s < older_than_s:
        return "too young"
    if live:
        return f"has jobs in the queue: {', '.join(sorted(live)[:3])}"
    here = RunFolder(runs_folder / one.run_id)
    if not here.path.is_dir():
        return "" if unknown else f"not a run in {runs_folder}; --unknown takes it too"
    ended = (here.path / cluster.name / "driven.json").is_file()
    return "" if ended else f"not ended: hpcq resume or hpcq cancel {one.run_id}"

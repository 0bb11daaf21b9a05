"""`hpcq doctor` finds what is wrong, says what to type, and is quiet where all is well."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hpcq import units
from hpcq.cli.main import run
from hpcq.run_folder.journal import Journal
from hpcq.run_folder.paths import write_json
from hpcq.runner.watch import doctor, schedule
from hpcq.runner.watch.doctor import Checkup, Places, examine
from hpcq.store.load.cluster import load_run
from tests.pages.test_schedule import OTHERS, home
from tests.store.run_folders import RunBuilder

__all__ = ["home"]
pytestmark = pytest.mark.fast

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def told(home: Path, area: str, now: dt.datetime | None = None) -> dict[str, Checkup]:
    """What one area says, by item; the last word on each."""
    found = examine(Places(home / "results.db", home / "runs"), now)
    return {one.item: one for one in found if one.area == area}


def scheduled(home: Path, when: str = "1h", campaign: str = "demo", **changed: Any) -> None:
    """An entry in the stand-in's crontab, with a record as a test wants it."""
    assert run(["schedule", "add", "n", "--when", when, "--with", "crontab", "--", "run", campaign]) == 0
    record = next((home / "state").rglob("n.json"))
    write_json(record, json.loads(record.read_text()) | {"since_utc": units.utc_text(NOW - dt.timedelta(days=9))} | changed)


def ago(hours: float) -> str:
    return units.utc_text(NOW - dt.timedelta(hours=hours))


def finished(home: Path, **changed: Any) -> RunBuilder:
    """A run that was driven to its end and loaded."""
    made = RunBuilder(home / "runs", **changed)
    made.everything()
    write_json(made.folder.path / "alpha" / "driven.json", {})
    loaded = load_run(home / "results.db", made.path)
    write_json(made.folder.path / "alpha" / "loaded.json", loaded.to_json())
    return made


@pytest.mark.heavy
def test_all_is_well(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(home)
    assert run(["doctor", "--json"]) == 0
    areas = {one["area"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert areas == dict.fromkeys(("installation", "runs", "database", "disk"), "ok") | {"judgement": "note"}
    assert run(["doctor"]) == 0
    assert "1 run, all finished and loaded" in capsys.readouterr().out


@pytest.mark.promise("`hpcq doctor` says how many nodes are judged: too few jobs are a note, not ok.")
def test_nodes_with_too_few_jobs_are_no_good_nodes(home: Path) -> None:
    finished(home)
    (found,) = (one for one in examine(Places(home / "results.db", home / "runs"), NOW) if one.area == "judgement")
    assert found.state == "note"
    assert re.match(r"0 of 2 nodes judged as of .*: 2 with too few jobs", found.found), found.found


@pytest.mark.promise("`hpcq doctor` names a cluster of which nothing was ever tried: silence is not ok.")
def test_a_cluster_that_measured_nothing_is_no_good_cluster(home: Path) -> None:
    made = RunBuilder(home / "runs")
    load_run(home / "results.db", made.path)
    (found,) = (one for one in examine(Places(home / "results.db", home / "runs"), NOW) if one.area == "judgement")
    assert (found.state, found.item) == ("note", "alpha")
    assert found.found.startswith("no node judged")


def test_nothing_here_yet(home: Path) -> None:
    assert run(["doctor"]) == 0
    assert told(home, "database")[str(home / "results.db")].state == "note"


def test_a_line_that_somebody_took_away(home: Path) -> None:
    scheduled(home, started_utc=ago(0.5), ended_utc=ago(0.4), exit_code=0)
    (home / "table").write_text(OTHERS)
    found = [one for one in examine(Places(home / "results.db", home / "runs"), NOW) if one.area == "schedule"]
    assert ("bad", "its line is gone from the crontab") in {(one.state, one.found) for one in found}


def test_a_start_that_was_missed(home: Path) -> None:
    scheduled(home, started_utc=ago(5), ended_utc=ago(4.9), exit_code=0)
    found = told(home, "schedule", NOW)["n"]
    assert (found.state, found.found) == ("bad", "last started 2026-11-21 07:00 UTC, though it is due every 1h")
    assert found.advice == "crontab -l shows its line; is the cron service running?"


def test_a_start_that_works_and_one_that_was_cut_off(home: Path) -> None:
    scheduled(home, started_utc=ago(0.5), since_utc=ago(0.6))
    assert "was cut off: it has no end" in told(home, "schedule", NOW)["n"].found
    with schedule.log_of("n").with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = told(home, "schedule", NOW)["n"]
    assert (found.state, found.found[:32]) == ("note", "at work since 2026-11-21 11:30 U")


@pytest.mark.heavy
def test_a_timer_that_works_while_no_run_arrives(home: Path) -> None:
    (home / "n.yaml").write_text("name: nightly\nclusters: [local]\npairs: all\ntests: [{kernel: tcp_stream}]\n")
    scheduled(home, campaign="n.yaml", started_utc=ago(0.5), ended_utc=ago(0.4), exit_code=0)
    assert "the last run of nightly in" in told(home, "schedule", NOW)["n"].found
    finished(home)  # began at 02:00, ten hours ago
    found = told(home, "schedule", NOW)["n"]
    assert (found.state, found.found.partition(" is of ")[2]) == ("bad", "2026-11-21 01:59 UTC, though one is due 1h")
    assert told(home, "schedule", NOW - dt.timedelta(hours=9))["n"].state == "ok"


@pytest.mark.heavy
def test_runs_that_nobody_drives(home: Path) -> None:
    made = RunBuilder(home / "runs")
    made.attempt("j00001")
    load_run(home / "results.db", made.path)
    found = told(home, "runs")[made.run]
    assert (found.state, found.found) == ("bad", "nobody drives it, and alpha is not measured to its end")
    assert found.advice.startswith(f"hpcq resume {made.run}")
    with Journal(made.folder.journal("alpha")):
        found = told(home, "runs")[made.run]
    assert (found.state, found.found.partition(" pid ")[0]) == ("note", "alpha is driven by")
    assert str(os.getpid()) in found.found


@pytest.mark.heavy
def test_results_that_were_not_loaded(home: Path) -> None:
    made = finished(home)
    assert list(told(home, "runs")) == [str(home / "runs")]
    loaded = made.folder.path / "alpha" / "loaded.json"
    before = time.time() - 3600
    os.utime(loaded, (before, before))
    assert told(home, "runs")[made.run].found == "alpha: measured, and not all of it is loaded"
    loaded.unlink()
    found = told(home, "runs")[made.run]
    assert (found.state, found.advice) == ("bad", f"hpcq db load {made.run}")
    write_json(loaded, {})
    (home / "results.db").unlink()
    finished(home, run="nightly-20261122T020000Z-00ff")
    assert "loaded into another database" in told(home, "runs")[made.run].found


@pytest.mark.heavy
@pytest.mark.promise("After `hpcq db load RUN`, which hpcq doctor asks for, the run is no trouble any more.")
def test_what_the_doctor_asks_for_helps(home: Path) -> None:
    made = finished(home)
    (made.folder.path / "alpha" / "loaded.json").unlink()
    database = str((home / "results.db").absolute())
    write_json(made.folder.run_json, {**json.loads(made.folder.run_json.read_text()), "database": database})
    assert told(home, "runs")[made.run].advice == f"hpcq db load {made.run}"
    assert run(["db", "load", made.run, "--db", database, "--runs", str(home / "runs")]) == 0
    assert [one for one in told(home, "runs").values() if one.state == "bad"] == []


@pytest.mark.heavy
def test_a_database_that_is_none_or_old_or_torn(home: Path) -> None:
    path = home / "results.db"
    path.write_text("no database" * 100)
    assert "is not a database" in told(home, "database")["readable"].found
    path.unlink()
    finished(home)
    with pytest.MonkeyPatch.context() as later:
        later.setattr("hpcq.store.database.SCHEMA_VERSION", 2)
        found = told(home, "database")["readable"]
    assert (found.state, found.advice) == ("bad", f"hpcq db upgrade --db {path}")
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(8, size // 4096, 3):
            file.seek(4096 * page)
            file.write(b"\xa5" * 512)
    found = next(one for one in told(home, "database").values() if one.state == "bad")
    assert found.item in {"soundness", "readable"}


@pytest.mark.heavy
@pytest.mark.promise("`hpcq doctor` names a run that is dated in the future, and what takes it out of the verdicts.")
def test_a_run_of_a_clock_that_was_wrong(home: Path) -> None:
    """It would stay the newest run, and the last night, until then."""
    finished(home)
    assert "clock" not in told(home, "database")
    later = finished(home, run="nightly-20990101T000000Z-00fe")
    with sqlite3.connect(home / "results.db") as database:
        database.execute("UPDATE run SET created_utc = '2099-01-01T00:00:00.000000Z' WHERE name = ?", (later.run,))
    found = told(home, "database")["clock"]
    assert found.state == "bad"
    assert found.found.startswith(f"{later.run} is dated in the future")
    assert run(["retract", *found.advice.split()[2:4], "--why", "wrong clock"]) == 0


def test_little_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(home, "disk")["runs"].state == "ok"
    monkeypatch.setattr(doctor, "ROOM_MIN_BYTES", 2**62)
    found = told(home, "disk")["runs"]
    assert (found.state, found.advice[:13]) == ("bad", "hpcq db prune")


@pytest.mark.promise("hpcq doctor --reach says how many nodes of a cluster are idle, powered down or drained.")
def test_clusters_only_when_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "clusters").mkdir()
    (home / "clusters" / "tiny.yaml").write_text("name: tiny\nscheduler: local\nnodes: [a, b]\n")
    (home / "clusters" / "far.yaml").write_text("name: far\nscheduler: slurm\ninterface: ib0\nreach: {ssh: '127.0.0.1'}\n")
    (home / "bin" / "ssh").write_text("#!/bin/sh\necho 'ssh: connect to host: Connection refused' >&2\nexit 255\n")
    (home / "bin" / "ssh").chmod(0o755)
    assert "clusters" not in {one.area for one in examine(Places(home / "results.db", home / "runs"))}
    assert run(["doctor", "--reach", "--json", "--clusters", str(home / "clusters")]) == 1
    found = {one["item"]: one for one in json.loads(capsys.readouterr().out) if one["area"] == "clusters"}
    assert (found["tiny"]["state"], found["tiny"]["found"]) == ("ok", "its scheduler answers: 2 nodes: 2 idle")
    assert (found["far"]["state"], found["far"]["advice"]) == ("bad", "hpcq cluster check far")


def test_locks_that_do_not_lock(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system without locks can be mounted everywhere: fcntl is told to agree to everything, in both processes."""
    source = home / "nolock.c"
    agree = "{ (void)f; (void)c; return 0; }"
    source.write_text(f"int fcntl(int f, int c, ...) {agree}\nint fcntl64(int f, int c, ...) {agree}\n")
    library = home / "nolock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    found = told(home, "database")["locks"]
    assert (found.state, "two processes hold one lock" in found.found) == ("bad", True)

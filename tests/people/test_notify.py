"""A command of the site gets the verdicts that changed: once, all of them, and again if it failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run
from hpcq.runner.watch import schedule
from hpcq.store.database import transaction, writing
from hpcq.store.ledger import decide
from hpcq.verdict.words import Thing, Verdict, VerdictRecord
from tests.history.histories import History
from tests.pages.test_schedule import home
from tests.people.nights import PAIRS

__all__ = ["home"]
pytestmark = pytest.mark.fast


@pytest.fixture
def made(home: Path) -> History:
    """A database with one run that nothing judges, and a command that keeps what it gets."""
    history = History(home, pairs=PAIRS)
    history.night(-1)
    (home / "bin" / "hook").write_text(
        f"#!/bin/sh\n[ -e {home}/broken ] && {{ echo no mail today >&2; exit 7; }}\ncat >>{home}/got\n"
    )
    (home / "bin" / "hook").chmod(0o755)
    return history


def judge(made: History, **verdicts: Verdict) -> None:
    """Write verdicts on nodes into the ledger."""
    records = [VerdictRecord(Thing.NODE, name, word, f"{name} is {word.value}", (name,)) for name, word in verdicts.items()]
    with writing(made.database) as database, transaction(database):
        decide(database, "alpha", records, run_id=None, baseline=None)


def got(home: Path) -> list[Any]:
    """What the command got since last time, by change: (name, before, verdict)."""
    path = home / "got"
    told = [json.loads(path.read_text())] if path.exists() else []
    path.unlink(missing_ok=True)
    return [(one["name"], one["before"], one["verdict"]) for one in told for one in one["changed"]]


@pytest.mark.heavy
@pytest.mark.promise("A command of the site gets each changed verdict once.")
def test_each_change_is_told_once(home: Path, made: History) -> None:
    words = ["notify", "--db", str(made.database), "--", "hook"]
    judge(made, n1=Verdict.PASS, n2=Verdict.FAILED)
    assert run(words) == 0
    assert got(home) == [("n2", None, "failed"), ("nightly", None, "not_judged")], "the run is older than the verdict on n2"
    assert run(words) == 0
    assert not (home / "got").exists(), "nothing changed, so nothing ran"
    judge(made, n1=Verdict.DEGRADED, n2=Verdict.PASS)
    assert run([*words[:3], "--dry-run", *words[3:]]) == 0
    assert not (home / "got").exists()
    assert run(words) == 0
    assert got(home) == [("n1", "pass", "degraded"), ("n2", "failed", "pass")]


@pytest.mark.heavy
@pytest.mark.promise("A command of the site gets what the judge tells, and that it tells it no more.")
def test_what_the_judge_tells_is_told_and_ended(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(home, pairs=PAIRS)
    for night in range(14):
        history.night(night, levels={"n4": 0.6} if night >= 10 else {}, noise=0.004)
    words = ["notify", "--json", "--db", str(history.database), "--", "true"]
    assert run(words) == 0
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out) if one["kind"] == "node"}
    assert list(told) == ["n4"]
    assert (told["n4"]["before"], told["n4"]["verdict"]) == (None, "degraded")
    assert told["n4"]["reason"].startswith("told: node alpha/n4: ")
    for night in range(14, 26):
        history.night(night, noise=0.004)
    assert run(words) == 0
    ended = [one for one in json.loads(capsys.readouterr().out) if one["kind"] == "node"]
    assert [(one["name"], one["before"], one["verdict"]) for one in ended] == [("n4", "degraded", "pass")]


@pytest.mark.heavy
@pytest.mark.promise("A notification that failed is tried again with the same changes.")
def test_a_command_that_fails_gets_the_same_again(home: Path, made: History, capsys: pytest.CaptureFixture[str]) -> None:
    judge(made, n2=Verdict.FAILED)
    (home / "broken").touch()
    words = ["notify", "--db", str(made.database), "--", "hook"]
    assert run(words) == 1
    assert "hook: ended with exit code 7: no mail today" in capsys.readouterr().err
    (home / "broken").unlink()
    assert run(words) == 0
    assert ("n2", None, "failed") in got(home)


@pytest.mark.promise("schedule add --then runs its command after each start, and the list of schedules shows when that failed.")
@pytest.mark.heavy
def test_a_pipe_in_place_of_what_was_told_is_named(home: Path, made: History, capsys: pytest.CaptureFixture[str]) -> None:
    """Anybody can put one in a group's folder."""
    os.mkfifo(made.database.with_name("results.db.told.json"))
    assert run(["notify", "--db", str(made.database), "--", "cat"]) == 1
    assert "told.json: cannot be read: is a pipe, a folder or a device: must be a regular file" in capsys.readouterr().err


def test_a_schedule_tells_after_each_start(home: Path, made: History, capsys: pytest.CaptureFixture[str]) -> None:
    judge(made, n2=Verdict.FAILED)
    words = ["schedule", "add", "look", "--when", "1h", "--with", "crontab"]
    end = ["--", "runs", "--db", str(made.database)]
    assert run([*words, "--then", "no-such-hook -x", *end]) == 2
    assert "no such command" in capsys.readouterr().err
    assert run([*words, "--then", "hook", *end]) == 0
    assert schedule.tick("look") == 0
    assert ("n2", None, "failed") in got(home)
    (home / "broken").touch()
    judge(made, n2=Verdict.PASS)
    assert schedule.tick("look") == 0
    assert "its --then ended with exit code 1" in str(schedule.missed(schedule.find("look")))

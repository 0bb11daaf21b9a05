"""Runs whose driver died: which are taken over by `hpcq resume --abandoned`, and which are left to a person."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.main import run as hpcq
from hpcq.errors import HpcqError
from hpcq.run_folder.journal import Journal
from hpcq.run_folder.paths import RunFolder, write_json
from hpcq.runner.watch.doctor import abandoned
from tests.driver.fake_site import described

pytestmark = pytest.mark.fast
HOUR_S = 3600.0
FIELDS: dict[str, dict[str, Any]] = {
    "waiting": {"reason": "no answer"},
    "not_run": {"job": "j00001", "pair": [], "reason": "x"},
}


def made(folder: Path, name: str, *events: str, quiet_s: float = HOUR_S) -> RunFolder:
    """A run with one cluster, whose journal has these events and is that old."""
    run = RunFolder(folder / name)
    (run.path / "sim").mkdir(parents=True)
    write_json(run.run_json, described(name))
    with Journal(run.journal("sim")) as journal:
        for event in ("opened", *events):
            journal.append(event, **FIELDS.get(event, {}))
    age(run, quiet_s)
    return run


def age(run: RunFolder, quiet_s: float) -> None:
    then = time.time() - quiet_s
    os.utime(run.journal("sim"), (then, then))


def left_of(folder: Path) -> dict[str, str]:
    return {one.run.path.name: one.left for one in abandoned(folder)}


@pytest.mark.promise("A schedule takes over a run whose driver died.")
def test_a_run_whose_driver_died_is_found_and_one_that_ended_or_never_began_is_not(tmp_path: Path) -> None:
    made(tmp_path, "dead", "not_run")
    write_json(made(tmp_path, "ended", "closed").path / "sim" / "driven.json", {})
    RunFolder(tmp_path / "planned").path.mkdir()
    write_json(RunFolder(tmp_path / "planned").run_json, described("planned"))
    assert left_of(tmp_path) == {"dead": ""}


@pytest.mark.promise("A schedule takes over no run that a driver on another machine still touches.")
def test_a_run_that_somebody_drives_is_left_alone(tmp_path: Path) -> None:
    here, there, between = (made(tmp_path, name, "not_run") for name in ("here", "there", "between"))
    (there.path / "sim" / "journal.jsonl.writer").symlink_to("head2/boot/pid:[1]/77/5/00")
    age(between, 10)
    with Journal(here.journal("sim")):
        age(here, HOUR_S)
        assert left_of(tmp_path) == {}
    os.utime(there.path / "sim" / "journal.jsonl.writer", (0, 0), follow_symlinks=False)
    age(here, HOUR_S)
    assert left_of(tmp_path) == {"here": "", "there": ""}


@pytest.mark.promise("After three drivers in a row that got nowhere, a schedule leaves the run to a person and says so.")
def test_what_another_driver_would_not_help_is_left_to_a_person(tmp_path: Path) -> None:
    made(tmp_path, "hopeless", "opened", "waiting", "opened")
    made(tmp_path, "hopeful", "opened", "not_run", "opened", "opened")
    made(tmp_path, "old", "not_run", quiet_s=9 * 24 * HOUR_S)
    assert left_of(tmp_path) == {
        "hopeless": "3 drivers in a row got nowhere",
        "hopeful": "",
        "old": "nothing happened in it for 9 days",
    }


@pytest.mark.promise("A run that a schedule cannot take over does not keep it from the others.")
def test_the_verb_takes_over_each_and_says_which_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        made(tmp_path, name, "not_run")
    made(tmp_path, "three", "opened", "opened")
    taken: list[str] = []

    def take(run: RunFolder, database: Path, *, as_json: bool) -> int:
        taken.append(run.path.name)
        if run.path.name == "one":
            raise HpcqError("it broke")
        return 4

    monkeypatch.setattr("hpcq.cli.campaigns._to_the_end", take)
    assert hpcq(["resume", "--abandoned", "--runs", str(tmp_path)]) == 1
    assert taken == ["one", "two"]
    said = capsys.readouterr().err
    assert "run three: has no driver and is left to you: 3 drivers in a row got nowhere" in said
    assert "run one: it broke" in said
    assert hpcq(["resume", "one", "--abandoned", "--runs", str(tmp_path)]) == 2
    assert hpcq(["resume", "--abandoned", "--runs", str(tmp_path / "none")]) == 0

"""`status`, `cancel` and `resume` without a name: the newest run that has not ended, and which one that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.cli.main import run
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast


@pytest.mark.promise("status, cancel and resume without a name mean the newest run that has not ended, and say so.")
def test_without_a_name_it_is_the_newest_run_that_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [RunBuilder(tmp_path / "runs", run=f"nightly-202611{day}T020000Z-00ff") for day in (20, 21)]
    for one in runs:
        one.everything()
    ended = runs[1].path / "alpha" / "loaded.json"
    ended.write_text("{}")
    assert run(["status", "--runs", "runs"]) == 0
    said = capsys.readouterr()
    assert f"run {runs[0].run}" in said.out + said.err
    assert f"{runs[0].run}: the newest run that has not ended ({runs[1].run}, which is newer, has)" in said.err
    (runs[0].path / "alpha" / "loaded.json").write_text("{}")
    assert run(["status", "--runs", "runs"]) == 0
    assert f"run {runs[1].run}" in "".join(capsys.readouterr())
    run(["cancel", "--runs", "runs"])
    assert f"{runs[1].run} has ended: nothing of it is left to cancel" in capsys.readouterr().err

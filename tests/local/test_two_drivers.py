"""A second driver of a run, typed beside the living one: it is refused, and nothing of the run changes by that."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcq.errors import HeldError, StoreError
from hpcq.run_folder.paths import RunFolder
from hpcq.runner.workflow import failures_of, marked
from tests.local.local_desk import INSTANT, LocalDesk

#: It leaves time to type something beside it, and ends by itself.
SOME_SECONDS = "{kernel: udp_stream, parameters: {rate_bps: 1e6, duration_s: 20, warmup_s: 0}}"


def test_resume_beside_a_living_driver_changes_nothing(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign(SOME_SECONDS, INSTANT)
    with desk.running(["-m", "hpcq", "run", "try.yaml"]) as first:
        desk.wait_for(lambda: any((desk.folder / "runs").glob("*/tiny/journal.jsonl")))
        for verb in (["resume"], ["resume", desk.run_folder.name], ["stage", "drive", str(desk.run_folder), "tiny"]):
            refused = desk.hpcq(*verb, expect=1)
            assert "held by p" in refused.stderr, verb
            assert "\nhint: one " in refused.stderr
        assert not list(desk.run_folder.glob("**/*.error.json"))
        assert first.wait(timeout=120) == 0, desk.log()
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY 1") == [{"outcome": "measured", "n": 2}]
    desk.hpcq("resume")
    assert not list(desk.run_folder.glob("*.writer")) + list(desk.run_folder.glob("*/*.writer"))


@pytest.mark.long
def test_resume_beside_a_driver_without_a_workflow_names_it(tmp_path: Path) -> None:
    """The stages may be started by hand, or by somebody's own Snakemake: the run's lock is free then, the journal's is not."""
    desk = LocalDesk.at(tmp_path)
    desk.campaign(SOME_SECONDS)
    desk.hpcq("run", "--detach", "try.yaml")
    with desk.running(["-m", "hpcq", "stage", "drive", str(desk.run_folder), "tiny"]) as driver:
        desk.wait_for(lambda: [event["event"] for event in desk.events()].count("opened") == 2)
        refused = desk.hpcq("resume", expect=1)
        assert f"driven by another process: tiny by pid {driver.pid} on " in refused.stderr
        assert driver.wait(timeout=120) == 0, desk.log()
    desk.hpcq("resume")


@pytest.mark.promise("A second driver that is refused leaves no marker of a failure: the run has not failed.")
def test_a_refusal_leaves_no_marker_and_takes_nothing_of_the_other(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with marked(run, "alpha", "drive"):
        with pytest.raises(HeldError), marked(run, "alpha", "drive"):
            raise HeldError("journal.jsonl.lock: held by pid 1 on head")
        assert (tmp_path / "alpha" / ".drive.spare").stat().st_size > 0, "what the first one needs on a full disk"
        assert failures_of(run) == []
    assert [path.name for path in (tmp_path / "alpha").iterdir()] == []


@pytest.mark.promise("A stage that succeeds removes the marker of an earlier failure, whoever wrote it.")
def test_a_failure_says_who_wrote_it_and_success_removes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(tmp_path)
    mark = tmp_path / "alpha" / "drive.error.json"
    with pytest.raises(StoreError), marked(run, "alpha", "drive"):
        raise StoreError("journal.jsonl:1: not a journal event")
    assert "error=drive cluster=alpha journal.jsonl:1" in capsys.readouterr().err
    said = json.loads(mark.read_text())
    assert (said["stage"], said["exit_code"], said["writer"]["pid"]) == ("drive", 1, os.getpid())
    assert said["writer"].keys() == {"host", "pid", "utc"}
    kept = mark.read_text()
    with marked(run, "alpha", "drive"):
        mark.write_text(kept)  # of a process that began before this one and failed after it
    assert failures_of(run) == []


@pytest.mark.long
def test_a_run_that_cancel_drove_to_its_end_has_not_failed(tmp_path: Path) -> None:
    desk = LocalDesk.at(tmp_path)
    desk.campaign(SOME_SECONDS)
    desk.hpcq("run", "--detach", "try.yaml")
    mark = desk.run_folder / "tiny" / "drive.error.json"
    mark.write_text('{"stage": "drive", "message": "ssh tiny: cannot be reached", "hint": null, "exit_code": 1}')
    desk.hpcq("cancel")
    assert not mark.exists()
    desk.hpcq("resume", expect=4)


@pytest.mark.promise(
    "A driver that fails after another one has done its stage leaves a run that resume ends well, and no marker."
)
def test_a_failure_that_came_too_late_does_not_fail_the_run_for_ever(tmp_path: Path) -> None:
    """A driver stood still while it loaded, another one loaded meanwhile, and the first one woke up and failed."""
    desk = LocalDesk.at(tmp_path)
    desk.campaign(INSTANT)
    desk.hpcq("run", "try.yaml")
    mark = desk.run_folder / "tiny" / "load.error.json"
    mark.write_text('{"stage": "load", "message": "results.db: database is locked", "hint": null, "exit_code": 1}')
    assert "database is locked" not in desk.hpcq("resume").stderr
    assert not mark.exists()

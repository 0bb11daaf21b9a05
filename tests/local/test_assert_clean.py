"""What tests say of a campaign that went well is wrong of one that a repeat saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.local.desk import assert_clean, result_lines

pytestmark = pytest.mark.fast

ATTEMPT = {"event": "attempt", "job": "j00001", "attempt_no": 1, "tag": "one"}
ENDED = {"event": "ended", "tag": "one", "outcome": "completed", "reason": ""}
AGAIN = {**ATTEMPT, "attempt_no": 2, "tag": "two"}


def run_with(folder: Path, events: list[dict[str, Any]], rc: int = 0) -> Path:
    attempt = folder / "alpha" / "jobs" / "j00001" / "1"
    attempt.mkdir(parents=True)
    (folder / "alpha" / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (attempt / "t1-r1.status").write_text(json.dumps({"rc": rc}))
    (attempt / "t1-r1.err").write_text("Segmentation fault\n")
    return folder


def test_one_attempt_that_completed_is_clean(tmp_path: Path) -> None:
    assert_clean(run_with(tmp_path, [ATTEMPT, ENDED]))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "no attempt"),
        ([ATTEMPT], "without one end"),
        ([ATTEMPT, {**ENDED, "outcome": "failed"}], "failed"),
        ([ATTEMPT, {**ENDED, "outcome": "failed"}, AGAIN, {**ENDED, "tag": "two"}], "tried again"),
        ([ATTEMPT, ENDED, AGAIN, {**ENDED, "tag": "two"}], "tried again"),
    ],
)
def test_what_a_repeat_saved_is_not(tmp_path: Path, events: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_clean(run_with(tmp_path, events))


def test_a_known_crash_of_a_library_may_be_repeated(tmp_path: Path) -> None:
    run = run_with(tmp_path, [ATTEMPT, ENDED, AGAIN, {**ENDED, "tag": "two"}], rc=14)
    known = run / "alpha" / "jobs" / "j00001" / "1" / "t1-r1.err"
    known.write_text("libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0xaa)\n")
    (known.parent / "t1-r1.json").write_text("")
    second = known.parent.with_name("2")
    second.mkdir()
    (second / "t1-r1.status").write_text(json.dumps({"rc": 0}))
    (second / "t1-r1.json").write_text(json.dumps({"valid": True}))
    assert_clean(run)
    assert result_lines(run) == [{"valid": True}]
    (second / "t1-r1.status").write_text(json.dumps({"rc": 3}))
    (second / "t1-r1.err").write_text("error: peer\n")
    with pytest.raises(AssertionError, match="error: peer"):
        assert_clean(run)


@pytest.mark.promise("Tests excuse a repeated job only for a known crash of a library, and only the job that crashed.")
def test_a_known_crash_excuses_no_other_job(tmp_path: Path) -> None:
    other: dict[str, Any] = {"job": "j00002"}
    events: list[dict[str, Any]] = [ATTEMPT, ENDED, {**ATTEMPT, **other, "tag": "x"}, {**ENDED, "tag": "x"}]
    events += [{**AGAIN, **other}, {**ENDED, "tag": "two"}]
    run = run_with(tmp_path, events, rc=14)
    (run / "alpha" / "jobs" / "j00001" / "1" / "t1-r1.err").write_text("mca_pml_ob1_recv_frag_callback_match\n")
    with pytest.raises(AssertionError, match="tried again"):
        assert_clean(run)


def test_a_step_that_crashed_is_not(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Segmentation fault"):
        assert_clean(run_with(tmp_path, [ATTEMPT, ENDED], rc=139))


def test_a_run_of_nothing_is_not(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing was driven"):
        assert_clean(tmp_path)

"""What a journal means, and how an attempt ended: pure pieces of the driver."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcq.definition.model import Test
from hpcq.planning.plan import Cost, Goals, Plan
from hpcq.runner.queue.attempt_files import AttemptOutcome, Left, decide, measured_steps
from hpcq.runner.queue.run_state import ClusterState, all_steps, make_job, summary
from hpcq.scheduler.types import JobReport, JobState

pytestmark = pytest.mark.fast


def a_plan(attempts: int = 2) -> Plan:
    tests = tuple(
        Test(no, name, "hpcq-net", {"message_bytes": 1}, 30) for no, name in enumerate(("tcp_stream", "udp_stream"), 1)
    )
    pairs = (("n1", "n2"), ("n4", "n3"))
    return Plan(
        run="lab-1",
        campaign="lab",
        cluster="alpha",
        interface="eth0",
        seed=7,
        candidates=(),
        excluded=(),
        tests=tests,
        repetition_count=2,
        walltime_s=60,
        attempt_count_max=attempts,
        pairs=pairs,
        not_planned=(),
        goals=Goals(pair_count=2, result_count=8, node_pair_count_min=1),
        cost=Cost(job_count=2, estimated_job_s=5.0, node_seconds=20.0),
    )


def attempt(job_id: str, attempt_no: int) -> dict[str, Any]:
    return {
        "event": "attempt",
        "tag": f"{job_id}-{attempt_no}",
        "job": job_id,
        "attempt_no": attempt_no,
        "nodes": ["a", "b"],
    }


def ended(tag: str, outcome: str, measured: list[list[int]]) -> dict[str, Any]:
    return {"event": "ended", "tag": tag, "outcome": outcome, "reason": "", "measured": measured}


ALL = [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_a_completed_job_is_not_tried_again() -> None:
    state = ClusterState.replay(a_plan(), [attempt("j00001", 1), ended("j00001-1", "completed", ALL)])
    assert list(state.pending) == [1]
    assert state.measured_count == 4
    assert not state.active


@pytest.mark.parametrize("outcome", ["node_failed", "preempted", "boot_failed", "lost", "failed"])
def test_what_says_nothing_about_the_test_is_tried_once_more(outcome: str) -> None:
    state = ClusterState.replay(a_plan(), [attempt("j00001", 1), ended("j00001-1", outcome, ALL[:1])])
    assert 0 in state.pending
    assert state.missing(0) == {(1, 2), (2, 1), (2, 2)}
    assert state.next_attempt_no(0) == 2
    for event in (attempt("j00001", 2), ended("j00001-2", outcome, [])):
        state.apply(event)
    assert 0 not in state.pending


@pytest.mark.parametrize("outcome", ["cancelled", "timed_out", "out_of_memory", "deadline"])
def test_what_would_end_the_same_way_is_not(outcome: str) -> None:
    state = ClusterState.replay(a_plan(), [attempt("j00001", 1), ended("j00001-1", outcome, [])])
    assert 0 not in state.pending


def test_a_withdrawn_attempt_does_not_count_as_a_try() -> None:
    events = [attempt("j00001", 1), ended("j00001-1", "withdrawn", []), attempt("j00001", 2), ended("j00001-2", "lost", [])]
    state = ClusterState.replay(a_plan(), events)
    assert 0 in state.pending
    assert state.next_attempt_no(0) == 3


def test_a_completed_job_with_failed_steps_is_tried_for_those_only() -> None:
    state = ClusterState.replay(a_plan(), [attempt("j00001", 1), ended("j00001-1", "completed", ALL[:3])])
    job = make_job(a_plan(), 0, state.next_attempt_no(0), state.missing(0))
    assert [step.key for step in job.steps] == [(2, 2)]
    assert job.tag == "hpcq-lab-1-alpha-j00001-2"


def test_refused_is_an_end_and_undetermined_is_known() -> None:
    events = [
        attempt("j00001", 1),
        attempt("j00002", 1),
        {"event": "refused", "tag": "j00001-1", "message": "no such partition"},
    ]
    state = ClusterState.replay(a_plan(attempts=1), events)
    assert [one.tag for one in state.undetermined] == ["j00002-1"]
    assert state.attempts["j00001-1"].reason == "no such partition"
    state.apply({"event": "submitted", "tag": "j00002-1", "scheduler_job_id": "17"})
    assert state.undetermined == []
    assert summary(state)["attempts"] == {"refused": 1, "queued": 1}


def test_a_tournament_that_still_runs_counts_and_is_counted_once() -> None:
    playing = {**attempt("g00001", 1), "pairs": ["j00001", "j00002"]}
    running = {"event": "state", "tag": "g00001-1", "state": "running", "reason": "", "utc": "2026-11-21T00:00:00.000000Z"}
    spooled = {"event": "spooled", "tag": "g00001-1", "measured_of": {"j00001": ALL, "j00002": [[1, 1]]}}
    state = ClusterState.replay(a_plan(), [playing, running, spooled, spooled])
    counts = summary(state)
    assert (counts["measured_result_count"], counts["measured_pair_count"], counts["failed_pair_count"]) == (5, 1, 0)
    assert counts["coverage"]["pair_count"] == 1
    assert counts["measuring_since_utc"] == "2026-11-21T00:00:00.000000Z"
    state.apply({**ended("g00001-1", "timed_out", []), "measured_of": {"j00001": ALL, "j00002": [[1, 1]]}})
    counts = summary(state)
    assert (counts["measured_result_count"], counts["measured_pair_count"], counts["failed_pair_count"]) == (5, 1, 1)
    state.apply(spooled)  # too late to mean anything
    assert summary(state) == counts


def test_nothing_is_tried_again_once_cancelled() -> None:
    events = [attempt("j00001", 1), {"event": "cancel", "reason": "x"}, ended("j00001-1", "node_failed", [])]
    events.append({"event": "not_run", "job": "j00002", "pair": ["n4", "n3"], "reason": "cancelled"})
    state = ClusterState.replay(a_plan(), events)
    assert not state.pending
    assert state.cancelled


def test_steps_are_shuffled_by_the_seed_and_complete() -> None:
    plan = a_plan()
    job = make_job(plan, 1, 1, all_steps(plan))
    assert {step.key for step in job.steps} == all_steps(plan)
    assert [step.repetition_no for step in job.steps] == [1, 1, 2, 2]
    assert make_job(plan, 1, 1, all_steps(plan)) == job
    orders = {tuple(step.key for step in make_job(replace(plan, seed=seed), 1, 1, all_steps(plan)).steps) for seed in range(20)}
    assert len(orders) > 1
    assert (job.client, job.server, job.job) == ("n4", "n3", "j00002")


def report(state: JobState, word: str = "WORD", reason: str = "") -> JobReport:
    return JobReport("1", state, word, reason)


@pytest.mark.parametrize(
    ("state", "exit_reason", "waited_s", "expected"),
    [
        (JobState.RUNNING, "done", 0, AttemptOutcome("completed", "")),
        (JobState.COMPLETED, "done", 0, AttemptOutcome("completed", "")),
        (JobState.TIMED_OUT, "done", 0, AttemptOutcome("completed", "")),
        (JobState.RUNNING, None, 99, None),
        (JobState.ENDING, "term", 99, None),
        (JobState.CANCELLED, "term", 0, AttemptOutcome("cancelled", "the scheduler says WORD")),
        (JobState.PREEMPTED, "term", 0, AttemptOutcome("preempted", "the scheduler says WORD")),
        (JobState.TIMED_OUT, None, 0, None),
        (JobState.TIMED_OUT, None, 99, AttemptOutcome("timed_out", "the scheduler says WORD")),
        (JobState.NODE_FAILED, None, 99, AttemptOutcome("node_failed", "the scheduler says WORD")),
        (JobState.FAILED, "server_not_ready", 0, AttemptOutcome("failed", "server_not_ready")),
        (JobState.COMPLETED, None, 99, AttemptOutcome("failed", "no exit file; the scheduler says WORD")),
        (JobState.UNKNOWN, None, 0, None),
        (JobState.UNKNOWN, None, 99, AttemptOutcome("lost", "state WORD")),
        (JobState.UNKNOWN, "term", 99, AttemptOutcome("failed", "term")),
    ],
)
def test_outcomes(state: JobState, exit_reason: str | None, waited_s: float, expected: AttemptOutcome | None) -> None:
    exit_file = {"reason": exit_reason} if exit_reason else None
    assert decide(report(state), Left(exit_file, started=True), waited_s=waited_s, grace_s=10) == expected


def test_measured_steps_are_those_whose_kernel_measured(tmp_path: Path) -> None:
    for name, content in {
        "t1-r1": {"rc": 0},
        "t1-r2": {"rc": 1},
        "t2-r1": {"rc": 4},
        "t2-r2": {"rc": 124},
        "t3-r1": [],
    }.items():
        (tmp_path / f"{name}.status").write_text(json.dumps(content))
        (tmp_path / f"{name}.json").write_text('{"error":null}\n')
    (tmp_path / "t4-r1.status").write_text('{"rc": 0')
    (tmp_path / "t5-r1.status").write_text('{"rc": 78}')  # its toolchain did not build: no other attempt
    assert measured_steps(tmp_path) == {(1, 1), (1, 2), (5, 1)}
    assert measured_steps(tmp_path / "nothing") == frozenset()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"exit_code":0,"error":null}\n', {(1, 1)}),
        ('{"exit_code":1,"error":null}\n', {(1, 1)}),
        ('{"exit_code":4,"error":{"state":"measure","message":"no answer"}}\n', set()),
        ('{"error":null}\n', set()),
        ('{"exit_code":0,"er', set()),
    ],
)
def test_what_a_killed_script_did_not_write_down_its_kernel_says(
    tmp_path: Path, line: str, found: set[tuple[int, int]]
) -> None:
    """A script that is killed between its kernel's line and the file with the exit code: the line is loaded as measured."""
    (tmp_path / "t1-r1.json").write_text(line)
    (tmp_path / "t1-r2.json.part").write_text(line)
    assert measured_steps(tmp_path) == found


@pytest.mark.parametrize(
    "line",
    ["", '{"error":null', '{"error":{"state":"measure","message":"interrupted by signal 15"}}\n', "{}\n{}\n", None],
    ids=["launcher failed", "torn", "interrupted", "two lines", "no file"],
)
def test_an_exit_code_without_its_line_is_no_measurement(tmp_path: Path, line: str | None) -> None:
    """srun ends with 1, as a kernel does that measured, when the controller refuses its step."""
    (tmp_path / "t1-r1.status").write_text('{"rc": 1}')
    if line is not None:
        (tmp_path / "t1-r1.json").write_text(line)
    assert measured_steps(tmp_path) == frozenset()


def test_an_attempt_whose_end_nobody_wrote_down_took_until_it_was_seen_but_no_more_than_its_time_limit() -> None:
    def taken(**more: str | float | None) -> float:
        begun = {**attempt("j00001", 1), "walltime_s": 40}
        end = {**ended("j00001-1", "node_failed", []), "nodes": ["a", "b"], "utc": "2026-01-01T00:00:30Z", **more}
        return ClusterState.replay(a_plan(), [begun, end]).node_seconds

    assert taken(started_utc="2026-01-01T00:00:00Z", ended_utc=None) == 60
    assert taken(started_utc="2026-01-01T00:00:00Z", ended_utc=None, utc="2026-01-01T09:00:00Z") == 80
    assert taken(started_utc="2026-01-01T00:00:00Z", ended_utc="2026-01-01T00:00:05Z") == 10
    assert taken(started_utc=None, ended_utc=None) == 0
    assert ClusterState.replay(a_plan(), [attempt("j00001", 1)]).active["j00001-1"].max_node_seconds == 120


@pytest.mark.promise("A job of two nodes takes two node-seconds per second.")
@pytest.mark.promise("A job that could not say when it ended counts until that was noticed, at most its time limit.")
@pytest.mark.parametrize(
    ("times", "node_seconds"),
    [
        ({"started_utc": "2026-01-01T00:00:00Z", "ended_utc": "2026-01-01T00:00:25Z"}, 50.0),
        ({"started_utc": "2026-01-01T00:00:00Z", "ended_utc": None, "utc": "2026-01-01T00:00:20Z"}, 40.0),
        ({"started_utc": "2026-01-01T00:00:00Z", "ended_utc": None, "utc": "2026-01-01T01:00:00Z"}, 60.0),
        ({"started_utc": None, "ended_utc": "2026-01-01T00:00:25Z"}, 0.0),
        ({"started_utc": "2026-01-01T00:00:25Z", "ended_utc": "2026-01-01T00:00:00Z"}, 0.0),
    ],
)
def test_node_seconds_are_those_of_all_nodes_until_the_end_that_is_known(times: dict[str, Any], node_seconds: float) -> None:
    begun = {**attempt("j00001", 1), "walltime_s": 30}
    ending = {**ended("j00001-1", "failed", []), "nodes": ["n1", "n2"], **times}
    assert ClusterState.replay(a_plan(), [begun, ending]).node_seconds == node_seconds

"""Links as good citizens, the comparison beside them, and what is submitted without a driver; on two queues of this machine."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcq.analysis.distances import distances
from hpcq.errors import SchedulerError
from hpcq.run_folder.journal import Journal
from hpcq.runner.cancelling import cancel_run
from hpcq.runner.link import link_group
from hpcq.runner.link.side import LinkSide
from hpcq.runner.live import status_of
from hpcq.runner.queue import account
from hpcq.runner.queue.run_state import Record
from hpcq.scheduler.types import QueueSnapshot
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from tests.links.link_campaigns import TRIP, built, drive, events_of, opened, own_queue, rows, text

__all__ = ["built", "own_queue"]

ALL = ((1, 1), (2, 1), (3, 1))


def own_job(seconds: int) -> list[dict[str, Any]]:
    """What one job of a cluster's own pairs leaves in the journal: two nodes for so long."""
    head = {"job": "j00001", "attempt_no": 1, "tag": "own-1", "nodes": ["n1", "n2"]}
    times = {"started_utc": "2026-01-01T00:00:00Z", "ended_utc": f"2026-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"}
    end = {"tag": "own-1", "outcome": "completed", "reason": "", "nodes": ["n1", "n2"], "rc": 0, "measured": ALL[:2]}
    return [{"event": "attempt", **head}, {"event": "ended", **end, **times}]


@pytest.mark.parametrize(
    ("own_s", "words"),
    [
        (151, "302 node-seconds were used, 300 are allowed"),
        (50, "100 node-seconds were used, 300 are allowed: a job may take 240"),
    ],
)
def test_node_seconds_of_own_pairs_and_links_are_one_budget(tmp_path: Path, built: Path, own_s: int, words: str) -> None:
    run = opened(tmp_path, text(tests=(TRIP,), more="budget: {max_node_seconds: 300}"), built)
    with Journal(run.journal("west")) as journal:
        journal.append_all(own_job(own_s))
    drive(run)
    found = rows(run, "SELECT outcome, reason FROM v_results ORDER BY job")
    assert [row["outcome"] for row in found] == ["not_measured"] * 2
    assert all(f"west: budget: {words}" in row["reason"] for row in found)
    assert not [event for event in events_of(run) if event["event"] == "attempt"]


def test_no_more_jobs_than_the_budget_allows_whatever_at_once_says(tmp_path: Path, built: Path) -> None:
    run = opened(
        tmp_path, text("{from: east, to: west, pairs: 3, at_once: 3}", tests=(TRIP,), more="budget: {max_jobs: 2}"), built
    )
    drive(run)
    live: set[str] = set()
    most = 0
    for event in events_of(run):
        live |= {event["tag"]} if event["event"] == "attempt" and event["side"] == "from" else set()
        live -= {event["tag"]} if event["event"] == "ended" else set()
        most = max(most, len(live))
    assert most == 2
    assert {row["outcome"] for row in rows(run, "SELECT outcome FROM v_results")} == {"measured"}


def test_when_the_hours_end_a_link_ends_after_the_test_in_hand_and_goes_on_later(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Calm ones, and more of them than can pass before the driver has looked at its clock again.
    durations = ", ".join(f"{1000 + number}ms" for number in range(8))
    tests = (f"{{kernel: udp_stream, parameters: {{warmup_s: 0, rate_bps: 1e6}}, matrix: {{duration_s: [{durations}]}}}}",)
    more = "budget: {hours: 20-06}"
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1, directions: one}", tests=tests, more=more), built)
    hour = [12]
    seen: list[str] = []
    note_all = Record.note_all

    def turning(self: Record[Any], events: Sequence[Mapping[str, Any]]) -> None:
        note_all(self, events)
        for event in events:
            turn(event["event"])

    def turn(event: str) -> None:
        seen.append(event)
        if event == "ended" or (event == "ways" and seen.count("ways") == 1):
            hour[0] = 22 if event == "ended" else 7

    def say(text: str) -> None:
        assert text.startswith("east+west")
        if "outside of the hours" in text and "attempt" not in seen:
            hour[0] = 21

    monkeypatch.setattr("hpcq.clock.Clock.local_time", lambda _: dt.time(hour[0]))
    monkeypatch.setattr(Record, "note_all", turning)
    link_group.drive(run, "east+west", say)
    ends = [event for event in events_of(run) if event["event"] == "ended"]
    assert sorted(event["outcome"] for event in ends[:2]) == ["completed", "withdrawn"]
    assert [event["outcome"] for event in ends[2:]] == ["completed"] * 2
    assert "outside of the hours 20:00-06:00" in next(event["reason"] for event in ends if event["outcome"] == "withdrawn")
    before, after = (sum(len(event["measured"]) for event in found) for found in (ends[:2], ends[2:]))
    assert 0 < before < 8  # the test in hand
    assert before + after == 8  # and nothing twice
    assert [row["attempt_no"] for row in rows(run, "SELECT DISTINCT attempt_no FROM v_results ORDER BY 1")] == [1, 2]


@pytest.mark.promise("A stop file ends a link early, also while the scheduler of its cluster does not answer.")
def test_a_stop_file_ends_a_link_early_while_the_scheduler_there_does_not_answer(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durations = ", ".join(f"{1000 + number}ms" for number in range(8))
    tests = (f"{{kernel: udp_stream, parameters: {{warmup_s: 0, rate_bps: 1e6}}, matrix: {{duration_s: [{durations}]}}}}",)
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1, directions: one}", tests=tests), built)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(account, "_REFRESH_S", 0.2)
    stop = tmp_path / "hpcq" / "stop"
    seen: list[str] = []
    note_all, look = Record.note_all, LinkSide.look

    def turning(self: Record[Any], events: Sequence[Mapping[str, Any]]) -> None:
        note_all(self, events)
        for event in events:
            seen.append(event["event"])
            if event["event"] == "ways" and seen.count("ways") == 1:
                stop.write_text("the fabric is worked at")
            elif event["event"] == "ended":
                stop.unlink(missing_ok=True)

    def away(self: LinkSide, *, refill: bool) -> QueueSnapshot:
        if stop.exists():
            raise SchedulerError(f"{self.cluster.name}: the controller does not answer")
        return look(self, refill=refill)

    monkeypatch.setattr(Record, "note_all", turning)
    monkeypatch.setattr(LinkSide, "look", away)
    drive(run)
    ends = [event for event in events_of(run) if event["event"] == "ended"]
    assert any("stop: the fabric is worked at" in event["reason"] for event in ends if event["outcome"] == "withdrawn")
    assert 0 < sum(len(event["measured"]) for event in ends[:2]) < 8, "the test in hand"
    assert sum(len(event["measured"]) for event in ends) == 8, "and nothing twice"


@pytest.mark.promise("The driver of a link asks a slow controller for a tenth of the time at most, too.")
def test_a_slow_cluster_of_a_link_is_asked_for_a_tenth_of_the_time_at_most(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 2, directions: one}", tests=(TRIP,)), built)
    monkeypatch.setattr(account, "_SLOW_ANSWER_S", 0.1)
    asked: dict[str, list[float]] = {"east": [], "west": []}
    answered = account.Pace.answered
    look = LinkSide.look

    def slow(self: LinkSide, *, refill: bool) -> QueueSnapshot:
        asked[self.cluster.name].append(time.monotonic())
        assert len(asked[self.cluster.name]) < 15, "it asks in vain: no refill gets both answers"
        return look(self, refill=refill)

    monkeypatch.setattr(LinkSide, "look", slow)
    monkeypatch.setattr(account.Pace, "answered", lambda self, _: answered(self, 0.15))
    drive(run)
    gaps = [later - earlier for times in asked.values() for earlier, later in pairwise(times)]
    assert gaps
    assert min(gaps) >= 9 * 0.15


# -- the comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.promise("The table of links says which network each was measured over.")
def test_the_comparison_is_of_the_same_nodes_and_right_beside(tmp_path: Path, built: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 3}", tests=(TRIP,)), built)
    link_group.drive_group(run, ["east", "west"], lambda _: None)
    order = sorted(
        (event["utc"], part, tuple(event["nodes"]), event["job"])
        for part in ("east", "west", "east+west")
        for event in events_of(run, part)
        if event["event"] == "attempt"
    )
    tried = [job_id for _, part, _, job_id in order if part == "east+west"]
    assert tried == [job_id for pair in ("j00001", "j00002", "j00003") for job_id in (pair, pair)]
    used: dict[str, str] = {}
    for utc, part, nodes, _ in order:
        if part == "east+west":
            used = {**used, "last": utc}
            used[nodes[0]] = utc
        else:  # one of its nodes has just been measured over the link, and no other pair of the link came between
            assert used["last"] in {used.get(node) for node in nodes}
    placed = rows(run, "SELECT count(*) AS n FROM v_results")
    assert placed == [{"n": 3}]
    assert all((run.path / part / "driven.json").is_file() for part in ("east", "west", "east+west"))
    assert not [event for part in ("east", "west") for event in events_of(run, part) if event["event"] == "not_run"]
    load_run(tmp_path / "results.db", run.path)
    with reading(tmp_path / "results.db") as connection:
        [shown] = distances(connection, run.run)
    [trip] = shown.tests
    assert (shown.from_cluster, shown.to_cluster, trip.far_count, trip.near_count) == ("east", "west", 3, 6)
    assert shown.network == "lo"
    assert (shown.trip_ns, trip.back, trip.window_bps) == (trip.there, None, None)
    assert trip.ratio is not None


# -- submit, status, cancel --------------------------------------------------------------------------------------------


def test_what_is_submitted_without_a_driver_leaves_links_to_resume_and_cancel_makes_rows_of_them(tmp_path: Path) -> None:
    run = opened(tmp_path, text("{from: east, to: west, pairs: 1}", tests=(TRIP,)))
    said: list[str] = []
    for part in run.parts():
        link_group.submit_first(run, part, said.append)
    assert said == [
        "east: 1 pairs are submitted by hpcq resume: they are compared with those of the link, beside it",
        "west: 1 pairs are submitted by hpcq resume: they are compared with those of the link, beside it",
        "east+west: 1 pairs are submitted by hpcq resume: their two sides meet through the driver",
    ]
    assert [(one.name, one.counts["pending_pair_count"]) for one in status_of(run).clusters] == [
        ("east", 1),
        ("west", 1),
        ("east+west", 1),
    ]
    cancel_run(run, said.append)
    assert [one.counts["not_run_pair_count"] for one in status_of(run).clusters] == [1, 1, 1]
    load_run(tmp_path / "results.db", run.path)
    found = rows(run, "SELECT DISTINCT cluster, outcome, reason FROM v_results ORDER BY cluster")
    assert [(row["cluster"], row["outcome"]) for row in found] == [
        ("east", "not_measured"),
        ("east+west", "not_measured"),
        ("west", "not_measured"),
    ]
    assert all("cancelled by hpcq cancel" in row["reason"] for row in found)

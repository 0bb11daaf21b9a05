"""The driver on a simulated Slurm: it keeps within limits, gives way, and what cannot run is a row that says why."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcq.run_folder.journal import Journal, read_journal
from hpcq.run_folder.paths import RunFolder
from hpcq.runner import stages
from hpcq.runner.queue.account import Pace
from hpcq.runner.site.place import open_run
from tests.local.desk import took_at_most
from tests.simulated_slurm.site import SimulatedSlurm, simulated_slurm

pytestmark = [pytest.mark.fast, pytest.mark.heavy]

CAMPAIGN = """name: try
clusters: [sim]
repetitions: 1
tests: [{{kernel: tcp_pingpong, parameters: {{message_bytes: 1}}}}]
{more}
"""
QUICK = "poll_interval_s: 1\n"


@dataclass
class Bench:
    """A folder and a simulated Slurm to run campaigns on."""

    folder: Path
    slurm: SimulatedSlurm
    said: list[str] = field(default_factory=list)

    def run(self, more: str = "pairs: all", cluster: str = "") -> RunFolder:
        """A campaign with these keys, planned."""
        (self.folder / "try.yaml").write_text(CAMPAIGN.format(more=more))
        clusters = self.slurm.cluster(QUICK + cluster)
        run = open_run(self.folder / "try.yaml", [clusters], self.folder / "results.db", self.folder / "runs")
        stages.plan(run, "sim")
        return run

    def drive(self, run: RunFolder) -> list[dict[str, Any]]:
        """To the end; returns the events."""
        stages.drive(run, "sim", self.said.append)
        return read_journal(run.journal("sim"))

    def driving(self, run: RunFolder) -> threading.Thread:
        thread = threading.Thread(target=stages.drive, args=(run, "sim", self.said.append), daemon=True)
        thread.start()
        return thread

    def rows(self, run: RunFolder) -> dict[tuple[str, str], int]:
        """How many results by outcome and reason."""
        stages.load(run, self.folder / "results.db")
        with closing(sqlite3.connect(self.folder / "results.db")) as database:
            query = "SELECT outcome, coalesce(reason, ''), count(*) FROM v_results WHERE run = ? GROUP BY 1, 2"
            return {(outcome, reason): count for outcome, reason, count in database.execute(query, (run.run,))}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    fast = lambda *_: Pace(query_s=0.1, poll_max_s=0.2, grace_s=1.0, refill_s=0.1)  # noqa: E731
    monkeypatch.setattr("hpcq.runner.queue.account.Pace.of", fast)
    with simulated_slurm(tmp_path / "slurm", node_count=6, leaf_size=2) as slurm:
        yield Bench(tmp_path, slurm)


def until(seen: Callable[[], bool], within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.02)


def outcomes(events: list[dict[str, Any]]) -> list[str]:
    return [event["outcome"] for event in events if event["event"] == "ended"]


def test_all_pairs_of_six_nodes_are_measured_with_few_questions(bench: Bench) -> None:
    run = bench.run()
    assert outcomes(bench.drive(run)) == ["completed"] * 15
    assert bench.rows(run) == {("measured", ""): 15}
    calls = bench.slurm.control()["calls"]
    assert calls["sbatch"] == 15
    assert calls["squeue"] < 15, "one question is about all jobs"


def test_a_submit_limit_that_is_known_is_never_exceeded(bench: Bench) -> None:
    bench.slurm.control(set={"submit_limit": 2})
    run = bench.run("pairs: {rounds: 1}")
    assert outcomes(bench.drive(run)) == ["completed"] * 3
    assert bench.slurm.control()["calls"]["sbatch"] == 3


def test_a_limit_that_is_met_shrinks_the_wave_and_is_no_failure(bench: Bench) -> None:
    bench.slurm.control(set={"submit_limit": 2, "broken": {"sacctmgr": 1}, "run_s": 3600})
    run = bench.run("pairs: {rounds: 1}")
    driving = bench.driving(run)
    until(lambda: "withdrawn" in outcomes(read_journal(run.journal("sim"))))
    bench.slurm.control(set={"run_s": 0}, end_all=True)
    driving.join(240)
    events = read_journal(run.journal("sim"))
    assert sorted(outcomes(events)) == ["completed"] * 3 + ["withdrawn"]
    assert not [event for event in events if event["event"] in {"refused", "not_run"}]
    assert bench.rows(run) == {("measured", ""): 3}
    assert any("no more than 2 jobs now" in text and "QOSMaxSubmitJobPerUserLimit" in text for text in bench.said)


def test_other_jobs_of_the_same_user_count(bench: Bench) -> None:
    other = bench.slurm.control(other={"nodes": ["n0006"], "run_s": 3600, "user": "me"})
    bench.slurm.control(set={"submit_limit": 2})
    run = bench.run("pairs: {list: [[n0001, n0002], [n0003, n0004]]}")
    driving = bench.driving(run)
    until(lambda: len(read_journal(run.journal("sim"))) >= 3)
    assert [len(event["jobs"]) for event in read_journal(run.journal("sim")) if event["event"] == "wave"] == [1]
    bench.slurm.control(forget=[other["number"]])
    driving.join(240)
    assert bench.rows(run) == {("measured", ""): 2}


def test_a_job_that_can_never_start_becomes_a_row_with_the_reason(bench: Bench) -> None:
    bench.slurm.control(set={"stuck": {"-j00001-": "PartitionTimeLimit"}})
    run = bench.run("pairs: {rounds: 1}")
    assert sorted(outcomes(bench.drive(run))) == ["cancelled", "completed", "completed"]
    [(outcome, reason)] = [key for key in bench.rows(run) if key[0] != "measured"]
    assert outcome == "not_measured"
    assert "queued with PartitionTimeLimit: the scheduler would never start it" in reason
    assert bench.slurm.control()["states"]["me CANCELLED"] == 1


def test_a_node_that_goes_down_under_a_queued_job_gets_its_pair_planned_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcq.runner.queue.yield_policy._BOUNCED_FOR_S", 0.5)
    bench.slurm.control(set={"stuck": {"-j00001-1": "ReqNodeNotAvail, UnavailableNodes:n0001"}})
    run = bench.run("pairs: {rounds: 1}")
    events = bench.drive(run)
    assert sorted(outcomes(events)) == ["completed"] * 3 + ["withdrawn"]
    attempts = [event["attempt_no"] for event in events if event["event"] == "attempt" and event["job"] == "j00001"]
    assert attempts == [1, 2]
    assert bench.rows(run) == {("measured", ""): 3}


def test_a_node_taken_before_our_job_starts_costs_no_try(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcq.runner.queue.yield_policy._BOUNCED_FOR_S", 0.5)
    run = bench.run("pairs: {list: [[n0001, n0002]]}\nretries: 0", cluster="max_wait_s: 1")
    bench.slurm.control(set={"stuck": {"-j00001-1": "Priority"}})  # the first attempt waits until somebody has taken its node
    driving = bench.driving(run)
    until(lambda: bench.slurm.control()["states"].get("me PENDING") == 1)
    bench.slurm.control(nodes={"n0001": "allocated"})
    until(lambda: "withdrawn" in outcomes(read_journal(run.journal("sim"))))
    bench.slurm.control(nodes={"n0001": ""})
    driving.join(240)
    [end] = [event for event in read_journal(run.journal("sim")) if event.get("outcome") == "withdrawn"]
    assert end["reason"].endswith("behind somebody else's job: n0001 is allocated")
    assert bench.rows(run) == {("measured", ""): 1}


def test_yield_takes_waiting_jobs_away_while_users_wait(bench: Bench) -> None:
    bench.slurm.control(set={"run_s": 0.3})
    run = bench.run("pairs: {list: [[n0001, n0002], [n0003, n0004]]}\nbudget: {yield: true}")
    first = bench.slurm.control(other={"nodes": ["n0001", "n0003"], "run_s": 3600, "name": "first"})
    second = bench.slurm.control(other={"nodes": ["n0001"], "run_s": 3600, "name": "second"})
    driving = bench.driving(run)
    until(lambda: any("yields: other users wait" in text for text in bench.said))
    until(lambda: bench.slurm.control()["states"].get("me PENDING", 0) == 0)
    bench.slurm.control(forget=[first["number"], second["number"]])
    driving.join(240)
    assert not driving.is_alive(), bench.said
    assert bench.rows(run) == {("measured", ""): 2}
    assert "sim: goes on" in bench.said


def test_outside_of_its_hours_nothing_is_asked_and_nothing_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime as dt

    now = [dt.time(12, 0)]
    monkeypatch.setattr("hpcq.clock.Clock.local_time", lambda _: now[0])
    run = bench.run("pairs: {rounds: 1}\nbudget: {hours: 20-06}")
    asked_before = bench.slurm.control()["calls"]["sinfo"]
    driving = bench.driving(run)
    until(lambda: any("outside of the hours 20:00-06:00" in text for text in bench.said))
    time.sleep(0.6)
    assert bench.slurm.control()["calls"]["sinfo"] == asked_before
    now[0] = dt.time(3, 0)
    driving.join(240)
    assert bench.rows(run) == {("measured", ""): 3}


def test_a_lost_answer_of_sbatch_is_looked_up_and_runs_once(bench: Bench) -> None:
    bench.slurm.control(set={"lost_answers": 1})
    run = bench.run("pairs: {rounds: 1}")
    assert outcomes(bench.drive(run)) == ["completed"] * 3
    assert len(set(bench.slurm.control()["names"])) == 3
    assert bench.slurm.control()["calls"]["sbatch"] == 3


def test_failed_polls_change_nothing_and_are_said_at_the_first_and_fifth(bench: Bench) -> None:
    bench.slurm.control(set={"run_s": 3600})
    run = bench.run("pairs: {rounds: 1}")
    driving = bench.driving(run)
    until(lambda: bench.slurm.control()["states"].get("me RUNNING") == 3)
    bench.slurm.control(set={"broken": {"squeue": 2}})
    until(lambda: bench.slurm.control()["broken"] == {"squeue": 0})
    bench.slurm.control(end_all=True)
    driving.join(240)
    assert bench.rows(run) == {("measured", ""): 3}
    assert sum("Unable to contact slurm controller" in text for text in bench.said) == 1


def test_node_seconds_of_all_jobs_and_their_time_limits_stay_within_the_budget(bench: Bench) -> None:
    bench.slurm.control(set={"run_s": 0.3})
    run = bench.run("pairs: all\nbudget: {max_node_seconds: 500}")
    events = bench.drive(run)
    assert 240 <= took_at_most(stages.read_plan(run, "sim"), events) <= 500
    assert bench.rows(run) == {("measured", ""): 15}


def test_the_last_jobs_that_a_budget_allows_have_shorter_time_limits(bench: Bench) -> None:
    run = bench.run("pairs: {rounds: 1}\nbudget: {max_node_seconds: 60}")
    events = bench.drive(run)
    assert outcomes(events) == ["completed"] * 3
    assert took_at_most(stages.read_plan(run, "sim"), events) <= 60
    script = (run.path / "sim/jobs/j00001/1/job.sh").read_text()
    assert "--time=0:30\n" in script
    assert "\ntime_limit_s=30\n" in script, "Slurm would give it a minute"


def test_what_the_budget_has_no_more_node_seconds_for_is_not_run(bench: Bench) -> None:
    run = bench.run("pairs: {rounds: 1}\nbudget: {max_node_seconds: 60}")
    nodes = ["n0001", "n0002"]
    with Journal(run.journal("sim")) as journal:  # a first try took all but ten
        journal.append("attempt", job="j00001", attempt_no=1, tag="first", nodes=nodes, walltime_s=30)
        times = {"started_utc": "2026-01-01T00:00:00Z", "ended_utc": "2026-01-01T00:00:25Z"}
        journal.append("ended", tag="first", outcome="failed", reason="", nodes=nodes, rc=1, measured=[], **times)
    assert outcomes(bench.drive(run)) == ["failed"]
    reasons = [reason for _, reason in bench.rows(run)]
    assert any("budget: 50 node-seconds were used, 60 are allowed: a job of 2 nodes needs about " in one for one in reasons)
    assert sum(bench.rows(run).values()) == 3


def test_a_reservation_is_used_and_nothing_else(bench: Bench) -> None:
    bench.slurm.control(set={"reservations": {"acceptance": ["n0001", "n0002", "n0003"]}})
    run = bench.run(cluster="reservation: acceptance")
    plan = json.loads(run.plan("sim").read_text())
    assert [one["node"] for one in plan["candidates"]] == ["n0001", "n0002", "n0003"]
    assert {one["reason"] for one in plan["excluded"]} == {"state reserved (idle): not in reservation acceptance"}


def test_nodes_out_of_service_reach_the_plan_with_their_reasons(bench: Bench) -> None:
    bench.slurm.control(nodes={"n0001": "drain", "n0002": "maint", "n0003": "powered_down", "n0004": "down"})
    plan = json.loads(bench.run().plan("sim").read_text())
    assert [one["node"] for one in plan["candidates"]] == ["n0005", "n0006"]
    assert [one["reason"] for one in plan["excluded"]] == [
        "state drained: by the test",
        "state maintenance (maint): by the test",
        "state powered_down (idle~): by the test",
        "state down: by the test",
    ]


def test_a_watch_reads_on_and_says_the_same_as_a_fresh_look(bench: Bench) -> None:
    from hpcq.runner.live import Watch, status_of

    bench.slurm.control(set={"run_s": 0.2})
    run = bench.run("pairs: {rounds: 3, coverage: {node: 3, group_pair: 1}}")
    watch = Watch(run)
    driving = bench.driving(run)
    while driving.is_alive():
        watch.look()
        time.sleep(0.05)
    assert watch.look() == status_of(run)
    coverage = watch.look().clusters[0].counts["coverage"]
    assert (coverage["pair_count"], coverage["node_min"], coverage["group_pair_count"]) == (9, 3, 3)

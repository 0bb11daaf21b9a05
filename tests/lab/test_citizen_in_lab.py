"""A good citizen on real Slurm: limits, users that wait, maintenance, reservations, nodes out of service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.definition.files.cluster import read_cluster
from hpcq.planning.make_plan import make_plan
from hpcq.planning.plan import Plan
from hpcq.runner.site.place import reach, scheduler_of
from hpcq.scheduler.types import JobKey, QueueQuery
from tests.lab.driven_in_lab import Driven, states
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab


def planned(lab: RunningLab, folder: Path, cluster: str, more: str) -> Plan:
    (folder / "try.yaml").write_text(f"name: try\nclusters: [{cluster}]\ntests: [{{kernel: tcp_pingpong}}]\n{more}\n")
    campaign = read_campaign(folder / "try.yaml")
    narrowed = campaign.narrowed(read_cluster(lab.cluster_file(cluster)))
    return make_plan(campaign, narrowed, scheduler_of(narrowed, reach(narrowed)).nodes(), "try-1", 1)


@contextmanager
def reservation(lab: RunningLab, name: str, *words: str) -> Iterator[None]:
    lab.exec("alpha", "scontrol", "create", "reservation", f"reservationname={name}", "starttime=now", "duration=10", *words)
    try:
        yield
    finally:
        lab.exec("alpha", "scontrol", "delete", f"reservationname={name}")


def until(seen: Callable[[], bool], within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.3)


@pytest.mark.long
def test_two_submitted_jobs_at_most_are_kept_within(lab: RunningLab, tmp_path: Path) -> None:
    driven = Driven(tmp_path, lab, "alpha", "pairs: {rounds: 2}", keys="\nqos: small\n")
    driven.finish(driven.start())
    assert driven.outcomes() == ["completed"] * 4, driven.said
    assert driven.load()["measured_count"] == 4


def test_a_limit_met_at_submission_shrinks_the_wave(lab: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hpcq.scheduler.slurm.scheduler.Slurm.limit_command", lambda _: None
    )  # a site that does not tell its limits
    driven = Driven(tmp_path, lab, "alpha", "pairs: {rounds: 2}", keys="\nqos: small\n")
    driven.finish(driven.start())
    outcomes = driven.outcomes()
    assert outcomes.count("completed") == 4, driven.said
    assert set(outcomes) == {"completed", "withdrawn"}
    assert not [event for event in driven.events() if event["event"] in {"refused", "not_run"}]
    assert any("QOSMaxSubmitJobPerUserLimit" in text for text in driven.said)


@pytest.mark.long
def test_a_time_limit_that_went_below_the_plans_is_a_row_and_no_wait(lab: RunningLab, tmp_path: Path) -> None:
    more = "pairs: {list: [[beta-n01, beta-n02]]}\nwalltime_s: 5min\nretries: 0\nnodes: {partition: short}"
    driven = Driven(tmp_path, lab, "beta", more)
    lab.exec("beta", "scontrol", "update", "partitionname=short", "maxtime=2")
    try:
        driven.finish(driven.start())
    finally:
        lab.exec("beta", "scontrol", "update", "partitionname=short", "maxtime=5")
    [row] = [event for event in driven.events() if event["event"] in {"ended", "refused"}]
    assert "PartitionTimeLimit" in row.get("reason", "") or "time limit" in row.get("message", "")
    assert driven.load()["not_measured_count"] == 1


def test_maintenance_reservations_and_broken_nodes_reach_the_plan(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha", "beta")
    with (
        reservation(lab, "upkeep", "users=root", "flags=maint,ignore_jobs", "nodes=alpha-n04"),
        reservation(lab, "theirs", "users=otheruser", "flags=ignore_jobs", "nodes=alpha-n03"),
    ):
        scheduler = scheduler_of(cluster := read_cluster(lab.cluster_file("alpha")), reach(cluster))
        until(lambda: {"reserved", "maint"} <= {state.native_state for state in scheduler.nodes()})
        plan = planned(lab, tmp_path, "alpha", "pairs: all")
        assert [(one.node, one.reason) for one in plan.excluded] == [
            ("alpha-n03", "state reserved"),
            ("alpha-n04", "state maintenance (maint)"),
        ]
    lab.exec("beta", "scontrol", "update", "nodename=beta-n01", "state=drain", "reason=disk | broken")
    try:
        for _ in range(4):  # a node that registers at that moment is in service again: the lab has ReturnToService=2
            lab.exec("beta", "scontrol", "update", "nodename=beta-n02", "state=down", "reason=cable")
            reasons = [one.reason for one in planned(lab, tmp_path, "beta", "pairs: all").excluded]
            if len(reasons) == 2:
                break
        assert reasons == ["state drained: disk | broken", "state down: cable"]
    finally:
        lab.exec("beta", "scontrol", "update", "nodename=beta-n[01-02]", "state=resume", check=False)


def test_a_reservation_of_ours_is_used(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    with reservation(lab, "ours", "users=labuser", "flags=ignore_jobs", "nodes=alpha-n02,alpha-n03"):
        driven = Driven(tmp_path, lab, "alpha", "pairs: all\nnodes: {reservation: ours}", at_rest=False)
        assert [one.node for one in driven.plan.candidates] == ["alpha-n02", "alpha-n03"]
        driven.finish(driven.start())
    assert driven.outcomes() == ["completed"]


def start_of(lab: RunningLab, scheduler_job_id: str) -> str:
    """When a job started, in UTC; empty while it waits."""
    words = ["squeue", "--noheader", "--states=all", f"--jobs={scheduler_job_id}", "--format=%T %S"]
    state, _, start = lab.exec("beta", "env", "TZ=UTC", *words).strip().partition(" ")
    return start if state in {"RUNNING", "COMPLETING", "COMPLETED"} else ""


def test_a_user_who_waits_is_let_in_after_the_test_in_hand(lab: RunningLab, tmp_path: Path) -> None:
    more = "pairs: {rounds: 1}\nbudget: {yield: true}"
    driven = Driven(tmp_path, lab, "beta", more, duration_s=2, repetitions=8)
    driving = driven.start()
    driven.wait_for(states("running", 2))
    words = "sbatch --parsable --partition=batch --nodes=4 --exclusive --time=1 --output=/dev/null --wrap true"
    scheduler_job_id = lab.exec("beta", *words.split(), user="otheruser").strip()
    until(lambda: bool(start_of(lab, scheduler_job_id)))
    started_utc = start_of(lab, scheduler_job_id)
    driven.finish(driving)
    assert any("yields" in text for text in driven.said), driven.said
    ends = [event for event in driven.events() if event["event"] == "ended"]
    early = [len(end["measured"]) for end in ends if end["outcome"] == "withdrawn" and "yields" in end["reason"]]
    assert early, driven.said
    assert max(early) < 8  # the rest was measured by another job, after the user's, and no test twice
    assert started_utc <= [event["utc"] for event in driven.events() if event["event"] == "submitted"][-1]
    assert sum(len(end["measured"]) for end in ends) == 16
    assert driven.load()["measured_count"] == 16


def test_a_user_who_waits_in_another_partition_of_the_same_nodes_is_seen(lab: RunningLab) -> None:
    lab.at_rest("alpha")
    cluster = read_cluster(lab.cluster_file("alpha"))
    scheduler = scheduler_of(cluster, reach(cluster))
    everything = ["--exclusive", "--output=/dev/null", "--time=1", "--parsable", "--wrap"]
    held = lab.exec("alpha", "sbatch", "--account=lab", "--nodelist=alpha-n[01-02]", *everything, "sleep 50", user="labuser")
    until(lambda: lab.exec("alpha", "squeue", "--noheader", "--states=R", f"--jobs={held.strip()}") != "")
    waits = lab.exec("alpha", "sbatch", "--partition=debug", "--nodes=1", *everything, "true", user="otheruser")
    try:
        for _ in range(2):  # the second look knows the partitions from the first
            until(lambda: [one.sure for one in scheduler.look(QueueQuery(others=True)).others or ()] == [True])
    finally:
        lab.exec("alpha", "scancel", held.strip(), waits.strip())


def test_what_slurm_says_of_itself_is_read(lab: RunningLab) -> None:
    for name, switches in (("alpha", {"leaf1", "leaf2"}), ("beta", {"leaf1", "leaf2"})):
        cluster = read_cluster(lab.cluster_file(name))
        scheduler = scheduler_of(cluster, reach(cluster))
        assert set(scheduler.topology().leaves.values()) == switches
        snapshot = scheduler.look(QueueQuery((JobKey("1", "a"), JobKey("99999999", "b")), nodes=True, others=True, mine=True))
        assert snapshot.nodes is not None
        assert len(snapshot.nodes) == len(scheduler.topology().leaves)
        assert snapshot.others is not None
        assert snapshot.mine is not None
        assert scheduler.submit_limit() == (2000 if name == "alpha" else None)

"""What real Slurm says of jobs that wait, and what hpcq does then."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.scheduler.slurm import reading
from tests.lab.driven_in_lab import Driven, states
from tests.lab.lab_fixture import RunningLab
from tests.lab.test_citizen_in_lab import until

pytestmark = pytest.mark.lab


@pytest.fixture
def small_memory(lab: RunningLab) -> Iterator[str]:
    """A partition whose jobs may have 1000 MiB per node: Slurm takes a job that asks for more, and never starts it."""
    line = "PartitionName=maxmem Nodes=alpha-n[01-04] MaxMemPerNode=1000 State=UP MaxTime=1:00:00"
    add = f"echo '{line}' >>/etc/slurm/slurm.conf && scontrol reconfigure"
    lab.exec("alpha", "sh", "-c", add)
    yield "nodes: {partition: maxmem}"
    lab.at_rest("alpha")
    lab.exec("alpha", "sh", "-c", "sed -i /PartitionName=maxmem/d /etc/slurm/slurm.conf && scontrol reconfigure")


@pytest.mark.long
def test_a_limit_on_memory_ends_the_wait(lab: RunningLab, tmp_path: Path, small_memory: str) -> None:
    driven = Driven(tmp_path, lab, "alpha", f"pairs: {{list: [[alpha-n01, alpha-n02]]}}\nretries: 0\n{small_memory}")
    driven.finish(driven.start(), within_s=60)
    [end] = [event for event in driven.events() if event["event"] == "ended"]
    assert end["reason"] == "queued with MaxMemPerLimit: the scheduler would never start it"


@pytest.mark.long
@pytest.mark.promise("A reason of real Slurm that hpcq does not know is told at once, and the wait ends after max_wait_s.")
def test_a_reason_that_hpcq_does_not_know_is_told_at_once(
    lab: RunningLab, tmp_path: Path, small_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_NEVER", reading._NEVER - {"MaxMemPerLimit"})
    more = f"pairs: {{list: [[alpha-n01, alpha-n02]]}}\nretries: 0\n{small_memory}"
    driven = Driven(tmp_path, lab, "alpha", more, keys="max_wait_s: 20s\n")
    driven.finish(driven.start(), within_s=120)
    waits = [event["reason"] for event in driven.events() if event["event"] == "waiting"]
    assert re.match(r"\S+: the scheduler says MaxMemPerLimit; waits since .*, until .* at most", waits[0]), waits
    assert any("the scheduler says MaxMemPerLimit" in text for text in driven.said)
    [end] = [event for event in driven.events() if event["event"] == "ended"]
    assert re.match(r"queued with MaxMemPerLimit for 2\d s", end["reason"])


@pytest.mark.long
def test_a_job_behind_somebody_elses_job_gives_its_other_node_back(lab: RunningLab, tmp_path: Path) -> None:
    """The user's job is of a higher QOS: it gets the node between two of ours. The third node is idle then."""
    pairs = "pairs: {list: [[alpha-n01, alpha-n02], [alpha-n01, alpha-n03]]}"
    driven = Driven(tmp_path, lab, "alpha", pairs, duration_s=4, repetitions=2)
    driving = driven.start()
    driven.wait_for(states("running"))
    until(lambda: lab.exec("alpha", "squeue", "--noheader", "--states=PD", "--user=labuser") != "")
    words = "sbatch --parsable --qos=high --nodelist=alpha-n01 --exclusive --time=1 --output=/dev/null --wrap"
    theirs = lab.exec("alpha", *words.split(), "sleep 40", user="otheruser").strip()
    try:
        driven.wait_for(lambda events: any(event["event"] == "withdraw" for event in events))
        [gone] = [event for event in driven.events() if event["event"] == "withdraw"]
        assert "behind somebody else's job: alpha-n01 is allocated" in gone["reason"]
        shown = ["squeue", "--noheader", "--format=%M", f"--jobs={theirs}"]
        minutes, seconds = lab.exec("alpha", *shown).strip().split(":")
        assert int(minutes) * 60 + int(seconds) < 25, "two looks at 5 s each, not max_wait_s"
        driven.finish(driving)
    finally:
        lab.exec("alpha", "scancel", theirs)
    assert driven.outcomes().count("completed") == 2


def expected_start(lab: RunningLab, scheduler_job_id: str) -> dt.datetime | None:
    """When Slurm expects to start a waiting job; None while it has not said so."""
    shown = lab.exec("alpha", "squeue", "--noheader", "--format=%S", f"--jobs={scheduler_job_id}").strip()
    return dt.datetime.fromisoformat(shown) if shown[:1].isdigit() else None


@pytest.mark.promise("Nodes that are planned for a larger job are used, and that job's expected start does not move.")
def test_planned_nodes_are_used_and_the_larger_job_is_not_delayed(lab: RunningLab, tmp_path: Path) -> None:
    """A user's job has one node for five minutes; another one waits for all four, so Slurm plans the other three for it."""
    lab.at_rest("alpha")
    words = "sbatch --parsable --exclusive --output=/dev/null"
    small = lab.exec(
        "alpha", *words.split(), "--nodelist=alpha-n01", "--time=5", "--wrap", "sleep 290", user="otheruser"
    ).strip()
    until(lambda: lab.exec("alpha", "squeue", "--noheader", "--states=R", f"--jobs={small}") != "")
    large = lab.exec("alpha", *words.split(), "--nodes=4", "--time=10", "--wrap", "true", user="otheruser").strip()
    try:
        until(lambda: "planned" in lab.exec("alpha", "sinfo", "--noheader", "--Node", "--format=%T"))
        until(lambda: expected_start(lab, large) is not None)
        before = expected_start(lab, large)
        more = "pairs: {list: [[alpha-n02, alpha-n03]]}\nwalltime_s: 1min"
        driven = Driven(tmp_path, lab, "alpha", more, at_rest=False)
        driven.finish(driven.start(), within_s=120)
        assert driven.outcomes() == ["completed"], driven.said
        assert lab.exec("alpha", "squeue", "--noheader", "--format=%T", f"--jobs={large}").strip() == "PENDING"
        assert expected_start(lab, large) == before
    finally:
        lab.exec("alpha", "scancel", small, large)


def reserve_soon(lab: RunningLab) -> None:
    words = "reservationname=soon starttime=now+5minutes duration=60 user=root flags=maint nodes=alpha-n01"
    lab.exec("alpha", "scontrol", "create", "reservation", *words.split())


@pytest.mark.promise("A node that real Slurm reserves before a job would end is not planned on, and plan says for what.")
def test_a_maintenance_that_begins_before_a_job_would_end(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    reserve_soon(lab)
    (tmp_path / "short").mkdir()
    try:
        long = Driven(tmp_path, lab, "alpha", "pairs: {rounds: 1}\nwalltime_s: 10min", at_rest=False)
        short = Driven(tmp_path / "short", lab, "alpha", "pairs: {rounds: 1}\nwalltime_s: 1min", at_rest=False)
        long.finish(long.start(), within_s=120)
    finally:
        lab.exec("alpha", "scontrol", "delete", "reservationname=soon")
    [left_out] = long.plan.excluded
    words = r"reservation soon begins at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert left_out.node == "alpha-n01"
    assert re.fullmatch(rf"{words}, before a job of 600 s would end", left_out.reason), left_out
    assert long.outcomes() == ["completed"]
    assert short.plan.excluded == ()
    [note] = [one for one in short.plan.notes if "soon" in one]
    assert re.fullmatch(rf"alpha-n01: {words}: no job starts there that would end later", note)


@pytest.mark.long
@pytest.mark.promise("A maintenance that is announced after the plan makes its nodes wait, with its name and an end.")
def test_a_maintenance_that_is_announced_after_the_plan(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    more = "pairs: {list: [[alpha-n01, alpha-n02]]}\nwalltime_s: 10min"
    driven = Driven(tmp_path, lab, "alpha", more, at_rest=False)
    reserve_soon(lab)
    driving = driven.start()
    try:
        driven.wait_for(lambda events: any(event["event"] == "waiting" and event["reason"] for event in events))
        [said, *_] = [event["reason"] for event in driven.events() if event["event"] == "waiting" and event["reason"]]
        words = r"alpha-n01 idle: reservation soon begins at \S+ \S+ UTC, before a job of 600 s would end"
        assert re.match(rf"no two of the wanted nodes are idle \({words}\); waits since .*, until .* at most", said), said
        assert driven.outcomes() == []
    finally:
        lab.exec("alpha", "scontrol", "delete", "reservationname=soon")
    driven.finish(driving, within_s=180)
    assert driven.outcomes() == ["completed"], driven.said


@pytest.mark.long
@pytest.mark.promise("A job that is withdrawn and tried again says why, and how long it goes on, while nothing else runs.")
def test_a_maintenance_that_is_announced_while_a_job_waits(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    more = "pairs: {list: [[alpha-n01, alpha-n02]]}\nwalltime_s: 10min"
    driven = Driven(tmp_path, lab, "alpha", more, at_rest=False)
    lab.exec("alpha", "scontrol", "update", "partitionname=main", "state=down")
    driving = driven.start()
    try:
        driven.wait_for(lambda events: any(event["event"] == "submitted" for event in events))
        reserve_soon(lab)
        lab.exec("alpha", "scontrol", "update", "partitionname=main", "state=up")
        driven.wait_for(lambda events: any(event["event"] == "withdraw" for event in events))
        [gone, *_] = [event["reason"] for event in driven.events() if event["event"] == "withdraw"]
        assert re.match(r"queued with ReqNodeNotAvail, .*: alpha-n01 is idle: reservation soon begins at", gone), gone
        driven.wait_for(lambda events: any(event["event"] == "waiting" and event["reason"] for event in events))
    finally:
        lab.exec("alpha", "scontrol", "update", "partitionname=main", "state=up")
        lab.exec("alpha", "scontrol", "delete", "reservationname=soon")
    driven.finish(driving, within_s=180)
    assert driven.outcomes()[-1] == "completed", driven.said


def test_a_job_that_waits_for_another_of_ours_is_never_withdrawn(lab: RunningLab, tmp_path: Path) -> None:
    """All pairs of four nodes: most jobs wait for a node of another one."""
    driven = Driven(tmp_path, lab, "alpha", "pairs: all", duration_s=1)
    driven.finish(driven.start())
    assert driven.outcomes() == ["completed"] * 6, driven.said
    assert not [event for event in driven.events() if event["event"] == "withdraw"]


@pytest.mark.long
def test_a_driver_that_yields_asks_the_controller_little(lab: RunningLab, tmp_path: Path) -> None:
    """The controller's own count of what this user asked, over a minute and a half of yielding with nothing in the queue."""
    driven = Driven(tmp_path, lab, "alpha", "pairs: {list: [[alpha-n01, alpha-n02]]}\nbudget: {yield: true}")
    words = "sbatch --parsable --exclusive --output=/dev/null --nodes=4 --time=5 --wrap"
    jobs = [lab.exec("alpha", *words.split(), "sleep 280", user="otheruser").strip() for _ in range(2)]
    until(lambda: lab.exec("alpha", "squeue", "--noheader", "--states=R", f"--jobs={jobs[0]}") != "")
    until(lambda: lab.exec("alpha", "squeue", "--noheader", "--states=PD", "--format=%r").strip() in {"Resources", "Priority"})
    lab.exec("alpha", "sdiag", "--reset")
    driving = driven.start()
    time.sleep(90)
    told = lab.exec("alpha", "sdiag")
    lab.exec("alpha", "scancel", *jobs)
    driven.finish(driving)
    [count] = re.findall(r"^\s*labuser\s*\(\s*\d+\) count:(\d+)", told, flags=re.MULTILINE)
    assert int(count) < 60, told
    assert driven.outcomes() == ["completed"]

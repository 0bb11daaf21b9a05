"""Tournaments on a real Slurm: many pairs in one allocation, and what is lost of them costs itself and nothing else."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import Desk, wait_idle
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean

pytestmark = pytest.mark.lab

#: Six pairs of four nodes in three rounds.
ROUNDS = "clusters: [alpha]\npairs: {rounds: 3}\nallocation: whole"
#: Long enough for a node to be killed, however busy this machine is, while others of its pairs are to come.
PINGPONG = "- {kernel: tcp_pingpong, parameters: {duration_s: 2, warmup_s: 0}}"


@pytest.fixture(scope="module")
def measured(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    lab.at_rest("alpha")
    desk = Desk(tmp_path_factory.mktemp("desk"), lab)
    desk.campaign(
        f"""{ROUNDS}
repetitions: 2
concurrency: [alone, rounds]
tests:
  - {{kernel: tcp_stream, parameters: {{duration_s: 200ms, warmup_s: 50ms}}}}
  - {{kernel: mpi_pingpong, parameters: {{duration_s: 200ms, warmup_s: 50ms, message_bytes: 32KiB}}}}
"""
    )
    desk.hpcq("run", "campaign.yaml")
    return desk


@pytest.fixture
def desk(lab: RunningLab, tmp_path: Path) -> Iterator[Desk]:
    """A desk whose cluster waits for lost nodes only for a moment; nodes that a test killed are booted again."""
    lab.at_rest("alpha")
    (tmp_path / "clusters").mkdir()
    text = lab.cluster_file("alpha").read_text()
    (tmp_path / "clusters" / "alpha.yaml").write_text(text + "\nmax_wait_s: 2\n")
    yield Desk(tmp_path, lab)
    for number in range(1, 5):
        lab.command("start-node", f"alpha/n{number:02d}")
    lab.exec("alpha", "scontrol", "update", "nodename=alpha-n[01-04]", "state=resume", check=False)
    wait_idle(lab, "alpha")


def spool(desk: Desk, job: str = "g00001") -> list[dict[str, Any]]:
    path = desk.run_folder / "alpha" / "jobs" / job / "1" / "spool.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "begun_utc" not in line]


def test_what_was_planned_was_measured_in_one_allocation(measured: Desk) -> None:
    plan = json.loads((measured.run_folder / "alpha" / "plan.json").read_text())
    assert plan["goals"]["result_count"] == 6 * 2 * 2 * 2  # pairs, tests, loads, repetitions
    assert measured.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 48}]
    assert [event["nodes"] for event in measured.events() if event["event"] == "attempt"] == [
        [f"alpha-n{number:02d}" for number in range(1, 5)]
    ]
    assert_clean(measured.run_folder)
    assert len(spool(measured)) == 48
    keys = {(line["job"], line["test"], line["repetition"]) for line in spool(measured)}
    assert len(keys) == 48


def test_nothing_is_started_between_rounds(measured: Desk) -> None:
    """One step for all agents and one for all ranks, whatever the number of rounds."""
    [scheduler_job_id] = [event["scheduler_job_id"] for event in measured.events() if event["event"] == "submitted"]
    wanted = [f"{scheduler_job_id}.0", f"{scheduler_job_id}.1"]
    rows = measured.lab.accounted("alpha", "-j", scheduler_job_id, "-o", "JobID,State", names=wanted)
    steps = [step for step, _ in rows if "." in step and not step.startswith(f"{scheduler_job_id}.ba")]
    assert sorted(steps) == wanted, rows


def test_each_pair_measured_over_the_network_and_in_its_roles(measured: Desk) -> None:
    for line in spool(measured):
        client, server = line["result"]["evidence"]["client"], line["result"]["evidence"]["server"]
        assert (client["node"], server["node"]) == (line["client"], line["server"])
        assert client["boot_id"] != server["boot_id"]
        assert client["interface"] == "eth0"
        moved = line["result"]["metrics"].get("received_bytes") or line["result"]["metrics"]["operation_count"] * 32768
        assert client["interface_bytes"]["tx"] > moved
    crossed = measured.rows("SELECT DISTINCT crossed_interface FROM result")
    assert crossed == [{"crossed_interface": "yes"}]


def test_rounds_are_disjoint_and_those_alone_are_alone(measured: Desk) -> None:
    plan = json.loads((measured.run_folder / "alpha" / "plan.json").read_text())
    loads = {test["test_no"]: test["load"] for test in plan["tests"]}
    assert {(loads[line["test"]], line["at_once"]) for line in spool(measured)} == {("alone", 1), ("rounds", 2)}
    series = measured.rows("SELECT parameters FROM series")
    assert Counter(json.loads(row["parameters"])["load"] for row in series) == {"alone": 12, "rounds": 12}


def test_facts_of_every_node_came_once(measured: Desk) -> None:
    names = {path.name for path in (measured.run_folder / "alpha/jobs/g00001/1").glob("facts-*.json")}
    assert names == {f"facts-alpha-n{number:02d}.json" for number in range(1, 5)}
    assert measured.rows("SELECT count(DISTINCT fact_set_id) AS n FROM node_facts") == [{"n": 4}]


def test_loading_again_changes_nothing(measured: Desk) -> None:
    said = json.loads(measured.hpcq("db", "load", "--json").stdout)
    assert [(one["read_count"], one["known_count"]) for one in said["clusters"]] == [(0, 48)]


def wait_for_lines(desk: Desk, count: int) -> None:
    """Until the spool on the cluster has so many lines."""
    deadline = time.monotonic() + 180
    base = desk.lab.state / "alpha" / "scratch"
    while time.monotonic() < deadline:
        found = list(base.glob(f"hpcq/{desk.run_folder.name}/alpha/jobs/g00001/1/spool.jsonl"))
        if found and found[0].read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError(desk.log())


@pytest.mark.long
def test_a_node_that_dies_costs_its_own_pairs(desk: Desk) -> None:
    desk.campaign(f"{ROUNDS}\nrepetitions: 2\nretries: 0\ntests:\n  {PINGPONG}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        wait_for_lines(desk, 2)
        desk.lab.command("kill-node", "alpha/n03")
        assert child.wait(timeout=240) == 3
    rows = desk.rows("SELECT client, server, outcome, reason FROM v_results")
    assert len(rows) == 12
    unhurt = [row for row in rows if "alpha-n03" not in (row["client"], row["server"])]
    assert [row["outcome"] for row in unhurt] == ["measured"] * 6
    hurt = [row for row in rows if row not in unhurt and row["outcome"] != "measured"]
    assert hurt
    assert all(row["reason"] for row in hurt)
    # The one in hand may have been told by its own client first.
    assert sum("alpha-n03: " not in row["reason"] for row in hurt) <= 1, hurt
    assert [event["outcome"] for event in desk.events() if event["event"] == "ended"] == ["completed"]


@pytest.mark.long  # that a node dies is always played; the conductor's is one of them
def test_the_conductors_node_dies_and_the_rest_is_planned_again(desk: Desk) -> None:
    desk.campaign(f"{ROUNDS}\nrepetitions: 2\nretries: 1\ntests:\n  {PINGPONG}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        wait_for_lines(desk, 2)
        desk.lab.command("kill-node", "alpha/n01")
        # Slurm finds it out by itself after some 20 s; the test need not wait for that.
        desk.lab.exec("alpha", "scontrol", "update", "nodename=alpha-n01", "state=down", "reason=dead")
        assert child.wait(timeout=240) == 4
    rows = desk.rows("SELECT client, server, outcome, reason FROM v_results")
    unhurt = [row for row in rows if "alpha-n01" not in (row["client"], row["server"])]
    assert [row["outcome"] for row in unhurt] == ["measured"] * 6
    ends = [event for event in desk.events() if event["event"] == "ended"]
    assert [event["outcome"] for event in ends] == ["node_failed", "completed"]
    assert sum(len(steps) for steps in ends[0]["measured_of"].values()) >= 2, "what was spooled counts"
    steps = [(job, *step) for event in ends for job, found in event["measured_of"].items() for step in found]
    assert len(steps) == len(set(steps)), "nothing was measured twice"
    assert all(row["reason"] for row in rows if row["outcome"] != "measured")


@pytest.mark.long
def test_a_rank_that_is_killed_ends_its_step_and_the_rest_starts_anew(desk: Desk) -> None:
    test = "- {kernel: mpi_pingpong, parameters: {duration_s: 5, warmup_s: 0, message_bytes: 1KiB}}"  # time to be killed in
    desk.campaign(f"{ROUNDS}\nrepetitions: 1\nretries: 0\ntests:\n  {test}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        wait_for_lines(desk, 5)  # the first round with its two results, the second begun
        desk.lab.exec("alpha/n02", "pkill", "-KILL", "-x", "hpcq-mpi")
        assert child.wait(timeout=240) == 0
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 6}]
    folder = desk.run_folder / "alpha" / "jobs" / "g00001" / "1"
    assert "start 1 of the MPI step lost a rank" in (folder / "mpi.err").read_text()
    begun = [line for line in (folder / "spool.jsonl").read_text().splitlines() if "begun_utc" in line]
    assert len(begun) > 6, "what was in hand was begun again"
    assert len(spool(desk)) == 6, "nothing was measured twice"


@pytest.mark.long
def test_a_node_that_dies_amid_the_ranks_costs_its_own_pairs(desk: Desk) -> None:
    test = "- {kernel: mpi_pingpong, parameters: {duration_s: 5, warmup_s: 0, message_bytes: 1KiB}}"  # time to be killed in
    desk.campaign(f"{ROUNDS}\nrepetitions: 1\nretries: 0\ntests:\n  {test}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        wait_for_lines(desk, 5)
        desk.lab.command("kill-node", "alpha/n03")
        assert child.wait(timeout=240) == 3
    rows = desk.rows("SELECT client, server, outcome, reason FROM v_results")
    unhurt = [row for row in rows if "alpha-n03" not in (row["client"], row["server"])]
    assert [row["outcome"] for row in unhurt] == ["measured"] * 3
    hurt = [row for row in rows if row["outcome"] != "measured"]
    assert {(row["outcome"], row["reason"]) for row in hurt} == {("failed", "alpha-n03: its rank was lost")}


@pytest.mark.long
def test_a_tournament_gives_way_after_the_step_in_hand(desk: Desk) -> None:
    desk.campaign(f"{ROUNDS}\nrepetitions: 4\nbudget: {{yield: true}}\ntests:\n  {PINGPONG}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        wait_for_lines(desk, 2)
        words = "--account=guest --partition=main --nodes=4 --exclusive --time=1 --output=/dev/null --wrap"
        desk.lab.exec("alpha", "sbatch", *words.split(), "sleep 3", user="otheruser")
        assert child.wait(timeout=240) == 0
    ends = [event for event in desk.events() if event["event"] == "ended"]
    assert [event["outcome"] for event in ends] == ["withdrawn", "completed"]
    assert "yields" in ends[0]["reason"]
    counts = [sum(map(len, event["measured_of"].values())) for event in ends]
    assert sum(counts) == 24
    assert 2 <= counts[0] < 24
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 24}]

"""What goes wrong on real clusters: every failure is a row with its reason, nothing runs twice, nothing is lost."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.campaigns_in_lab import ENDLESS, INSTANT, SLOW, Desk, event_names
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import kill_session

pytestmark = pytest.mark.lab

Events = list[dict[str, Any]]

#: One pair, measured once.
ONE_PAIR = "clusters: [alpha]\npairs: {pattern: list, list: [[alpha-n01, alpha-n02]]}\nrepetitions: 1"


@pytest.fixture(scope="module")
def hanging(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A run whose one job hangs on the other cluster, and nobody looks: Slurm's shortest limit, a minute, goes by meanwhile."""
    made = Desk(tmp_path_factory.mktemp("hanging"), lab)
    pair = "clusters: [beta]\npairs: {pattern: list, list: [[beta-n01, beta-n02]]}\nrepetitions: 1\nretries: 0"
    made.campaign(f"{pair}\nwalltime_s: 1min\ntests:\n  {SLOW}")
    with made.running(
        "run", "--detach", "campaign.yaml"
    ) as child:  # beside it: on a busy machine the job ends before it returns
        for node in ("n01", "n02"):
            _until_measuring(lab, node)
        for node in ("n01", "n02"):  # the script's node first: nobody is left who could end the job in good order
            lab.exec(f"beta/{node}", "pkill", "-STOP", "-u", "labuser")
        assert child.wait(timeout=240) == 0
    return made


def _until_measuring(lab: RunningLab, node: str) -> None:
    deadline = time.monotonic() + 240
    while not lab.exec(f"beta/{node}", "pgrep", "-u", "labuser", "-f", "hpcq-net.* (server|tcp_|udp_)", check=False):
        assert time.monotonic() < deadline, f"nothing measures on {node}"
        time.sleep(0.1)


@pytest.fixture
def desk(lab: RunningLab, tmp_path: Path) -> Desk:
    lab.at_rest("alpha")
    return Desk(tmp_path, lab)


def once(word: str, count: int = 1) -> Callable[[Events], bool]:
    return lambda events: event_names(events).count(word) >= count


MOMENTS: dict[str, Callable[[Events], bool]] = {
    "the wave is planned": once("wave"),
    "attempts are committed": once("attempt"),
    "jobs are submitted": once("submitted"),
    "one job has ended": once("ended"),
    "the last job has ended": once("ended", 6),
}


@pytest.mark.long
def test_a_driver_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing(desk: Desk) -> None:
    """At every moment once: each driver but the first takes up what the one before left."""
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 3}}\nrepetitions: 2\ntests:\n  {INSTANT}")
    words = ["run", "campaign.yaml"]
    for count, moment in enumerate(MOMENTS.values(), 1):

        def seen(events: Events, moment: Callable[[Events], bool] = moment, count: int = count) -> bool:
            ended = "closed" in event_names(events)  # a machine that is slow to kill: nothing was left to be taken up
            return moment(events) and (ended or once("opened", count)(events))

        with desk.running(*words) as child:
            desk.wait_for(seen)
            kill_session(child)
        words = ["resume"]
    desk.hpcq("resume")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 12}]
    _nothing_ran_twice(desk)


def _nothing_ran_twice(desk: Desk) -> None:
    """By the accounting: no name twice; and every name that ran belongs to the run's journal."""
    run_id = desk.run_folder.name
    ended = {event["tag"] for event in desk.events() if event["event"] == "ended" and event["measured"]}
    rows = desk.lab.accounted("alpha", "-X", "-u", "labuser", "-o", "JobName,JobIDRaw", names=ended)
    names = [name for name, _ in rows if name.startswith(f"hpcq-{run_id}-")]
    assert max(Counter(names).values()) == 1, names
    attempted = {event["tag"] for event in desk.events() if event["event"] == "attempt"}
    assert set(names) <= attempted
    measured = [
        tuple(step)
        for event in desk.events()
        if event["event"] == "ended"
        for step in [(event["tag"], *one) for one in event["measured"]]
    ]
    jobs = Counter((tag.rsplit("-", 2)[1], test_no, repetition_no) for tag, test_no, repetition_no in measured)
    assert max(jobs.values()) == 1


@pytest.mark.long
def test_two_drivers_on_one_run_are_refused(desk: Desk) -> None:
    desk.campaign(f"{ONE_PAIR}\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml"):
        desk.wait_for(once("submitted"))
        refused = desk.hpcq("resume", expect=1)
        assert "held by process" in refused.stderr
        assert not list(desk.run_folder.glob("**/*.error.json"))
        desk.hpcq("cancel")
        desk.wait_for(once("closed"))


def test_scancel_is_a_row_with_its_reason(desk: Desk) -> None:
    desk.campaign(f"{ONE_PAIR}\ntests:\n  {ENDLESS}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        desk.lab.exec("alpha", "scancel", "-u", "labuser")
        code = child.wait(timeout=240)
    [row] = desk.rows("SELECT outcome, reason FROM v_results")
    assert code == {"not_measured": 4, "failed": 3}[row["outcome"]]
    assert "cancelled" in row["reason"]
    assert [event["outcome"] for event in desk.events() if event["event"] == "ended"] == ["cancelled"]


def test_a_node_set_down_costs_an_attempt_and_gets_another(desk: Desk) -> None:
    desk.campaign(f"{ONE_PAIR}\ntests:\n  {SLOW}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        time.sleep(1)
        desk.lab.exec("alpha", "scontrol", "update", "nodename=alpha-n02", "state=down", "reason=test")
        desk.wait_for(once("ended"))
        desk.lab.exec("alpha", "scontrol", "update", "nodename=alpha-n02", "state=resume", check=False)
        assert child.wait(timeout=240) == 0
    outcomes = [event["outcome"] for event in desk.events() if event["event"] == "ended"]
    assert outcomes == ["node_failed", "completed"]
    assert desk.rows("SELECT outcome FROM v_results") == [{"outcome": "measured"}]
    attempts = desk.rows("SELECT attempt_no, outcome, reason FROM v_attempts ORDER BY attempt_no")
    assert [row["outcome"] for row in attempts] == ["node_failed", "completed"]
    assert "NODE_FAIL" in attempts[0]["reason"]


@pytest.mark.long
def test_a_preempted_job_is_an_outcome_of_its_own(desk: Desk) -> None:
    cluster = desk.lab.cluster_file("alpha").read_text()
    (desk.folder / "clusters").mkdir()
    (desk.folder / "clusters" / "alpha.yaml").write_text(cluster + "\nqos: low\n")
    desk.campaign(f"{ONE_PAIR}\ntests:\n  {SLOW}")
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(lambda events: any(event.get("state") == "running" for event in events))
        words = "sbatch --account=lab --qos=high --partition=main --nodes=4 --exclusive --time=1 --output=/dev/null --wrap true"
        desk.lab.exec("alpha", *words.split(), user="otheruser")
        assert child.wait(timeout=240) == 0
    outcomes = [event["outcome"] for event in desk.events() if event["event"] == "ended"]
    assert outcomes == ["preempted", "completed"]


@pytest.mark.long
def test_a_kernel_that_fails_is_a_row_and_is_tried_once_more(desk: Desk) -> None:
    """A CPU that the client's node does not have: refused with exit code 2. Another try may meet another state of a node."""
    refused = "- {kernel: tcp_stream, parameters: {duration_s: 100ms, client_cpu_index: 4000}}"
    desk.campaign(f"{ONE_PAIR}\ntests:\n  {refused}\n  {INSTANT}")
    desk.hpcq("run", "campaign.yaml", expect=3)
    rows = {row["kernel"]: row for row in desk.rows("SELECT * FROM v_all_results WHERE final = 1")}
    assert rows["tcp_pingpong"]["outcome"] == "measured"
    assert (rows["tcp_stream"]["outcome"], rows["tcp_stream"]["exit_code"]) == ("failed", 2)
    assert "client_cpu_index" in rows["tcp_stream"]["reason"]
    tries = [path.name for path in desk.run_folder.glob("alpha/jobs/j00001/*")]
    assert sorted(tries) == ["1", "2"]
    again = json.loads((desk.run_folder / "alpha/jobs/j00001/2/job.json").read_text())
    assert [step["kernel"] for step in again["steps"]] == ["tcp_stream"]


@pytest.mark.long
def test_cancel_leaves_nothing_queued(desk: Desk) -> None:
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 3}}\nrepetitions: 1\ntests:\n  {ENDLESS}")
    desk.hpcq("run", "--detach", "campaign.yaml")
    assert desk.lab.exec("alpha", "squeue", "-h", "-u", "labuser").count("\n") >= 2
    desk.hpcq("cancel")
    deadline = time.monotonic() + 240
    while desk.lab.exec("alpha", "squeue", "-h", "-u", "labuser", "-t", "PD,R,CF"):
        assert time.monotonic() < deadline, "jobs are left"
        time.sleep(0.3)
    desk.hpcq("db", "load")
    rows = desk.rows("SELECT outcome, reason FROM v_results")
    assert len(rows) == 6
    assert all(row["reason"] for row in rows)
    assert desk.hpcq("resume", expect=4).returncode == 4


@pytest.mark.long
def test_submit_then_resume_adopts_what_is_queued(desk: Desk) -> None:
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 2}}\nrepetitions: 1\ntests:\n  {INSTANT}")
    desk.hpcq("run", "--detach", "campaign.yaml")
    desk.hpcq("resume")
    assert desk.rows("SELECT outcome, count(*) AS n FROM v_results GROUP BY outcome") == [{"outcome": "measured", "n": 4}]
    _nothing_ran_twice(desk)


@pytest.mark.long
def test_sbatch_refusing_ends_the_run_with_its_words(desk: Desk) -> None:
    cluster = desk.lab.cluster_file("alpha").read_text()
    (desk.folder / "clusters").mkdir()
    (desk.folder / "clusters" / "alpha.yaml").write_text(cluster.replace("account: lab", "account: nobody"))
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 3}}\nrepetitions: 1\ntests:\n  {INSTANT}")
    done = desk.hpcq("run", "campaign.yaml", expect=4)
    assert "Invalid account or account/partition combination" in done.stderr
    rows = desk.rows("SELECT outcome, reason FROM v_results")
    assert len(rows) == 6
    assert all("Invalid account" in row["reason"] for row in rows)


@pytest.mark.long
def test_the_time_limit_is_a_row_with_its_reason(hanging: Desk) -> None:
    hanging.hpcq("resume", expect=4)
    assert [event["outcome"] for event in hanging.events("beta") if event["event"] == "ended"] == ["timed_out"]
    [row] = hanging.rows("SELECT outcome, reason FROM v_results")
    assert "timed_out" in row["reason"] or "TIMEOUT" in row["reason"]

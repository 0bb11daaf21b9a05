"""A link between the two real Slurm clusters, over ssh, while users come and things break: every way to fail has its row."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fault_invariants import ROWS, exit_code_of
from tests.lab.campaigns_in_lab import Desk, event_names
from tests.lab.lab_fixture import RunningLab
from tests.links.test_links_in_lab import LINK, campaign, desk_of, nothing_is_left_or_ran_twice
from tests.local.desk import kill_session

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

#: Seven tests of two seconds: time for a user to come, and to be let in between two of them.
SLOW = (
    "- {kernel: tcp_stream, parameters: {warmup_s: 0},"
    " matrix: {duration_s: [2s, 2010ms, 2020ms, 2030ms, 2040ms, 2050ms, 2060ms]}}"
)


def once(word: str, count: int = 1) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda events: event_names(events).count(word) >= count


def user_job(lab: RunningLab) -> str:
    """A user's job for all nodes of beta."""
    words = ["sbatch", "--parsable", "--partition=batch", "--nodes=4", "--exclusive", "--time=1", "--output=/dev/null"]
    return lab.exec("beta", *words, "--wrap", "sleep 1", user="otheruser").strip()


def start_of(lab: RunningLab, scheduler_job_id: str) -> str:
    """When a job started, in UTC; empty while it waits."""
    local = lab.exec(
        "beta", "env", "TZ=UTC", "squeue", "--noheader", "--states=all", f"--jobs={scheduler_job_id}", "--format=%T %S"
    )
    state, _, start = local.strip().partition(" ")
    return "" if state == "PENDING" else start


@pytest.mark.long
def test_faults_and_users_cost_a_link_nothing_that_is_not_a_row(lab: RunningLab, tmp_path: Path) -> None:
    """One campaign of four pairs. A user comes while the first one is measured. With the second one, ssh is cut, a controller
    restarts, the driver is killed. A later one loses a node. What is left then, the first one too, meets a beta that starts
    nothing. Which one is the later one depends on how busy this machine is."""
    desk = desk_of(lab, tmp_path / "desk", max_wait_s=5)
    pairs = ", ".join(f"[alpha-n0{number}, beta-n0{number}]" for number in (1, 2, 3, 4))
    link = f"list: [{pairs}], compare: false, directions: one, peer_wait_s: 10"
    desk.campaign(campaign(link, SLOW, more="retries: 0\nbudget: {yield: true}"))
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(once("ways"), LINK, within_s=240)
        scheduler_job_id = user_job(lab)
        desk.wait_for(once("withdraw"), LINK, within_s=240)
        desk.wait_for(once("ways", 2), LINK, within_s=240)
        assert (
            "" < start_of(lab, scheduler_job_id) < [event["utc"] for event in desk.events(LINK) if event["event"] == "ways"][1]
        )
        for host in ("alpha-head", "beta-head"):
            _kill_ssh(lab, host)
        lab.command("restart-controller", "beta")
        _kill_ssh(lab, "beta-head")
        kill_session(child)
    ways_count = event_names(desk.events(LINK)).count("ways")
    with desk.running("resume") as child:
        desk.wait_for(once("ways", ways_count + 1), LINK, within_s=240)
        lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=down")
        victim = [event for event in desk.events(LINK) if event["event"] == "ways"][-1]["job"]
        lab.command("kill-node", f"beta/n0{victim[-1]}")
        try:
            code = child.wait(timeout=400)
        finally:
            lab.command("start-node", f"beta/n0{victim[-1]}")
            lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=up")
            lab.exec("beta", "scontrol", "update", f"nodename=beta-n0{victim[-1]}", "state=resume", check=False)
    assert code == exit_code_of(row for row in desk.rows(ROWS) if row["final"]) != 0, desk.log()
    _each_has_its_row(desk, victim)
    nothing_is_left_or_ran_twice(desk)


def _each_has_its_row(desk: Desk, victim: str) -> None:
    ends = {(row["job"], row["attempt_no"], row["cluster"]): row for row in desk.rows("SELECT * FROM v_links")}
    assert [ends["j00001", 1, name]["outcome"] for name in ("alpha", "beta")] == ["withdrawn", "completed"]
    assert "yields: other users wait for nodes with 1 job" in ends["j00001", 1, "alpha"]["reason"]
    assert [ends["j00002", 1, name]["outcome"] for name in ("alpha", "beta")] == ["completed"] * 2
    last_no = max(attempt_no for job, attempt_no, _ in ends if job == victim)
    assert ends[victim, last_no, "beta"]["outcome"] == "node_failed"
    assert ends[victim, last_no, "alpha"]["outcome"] in {"cancelled", "completed"}
    rows = desk.rows("SELECT job, outcome, reason FROM v_results WHERE placement = 'link'")
    assert Counter(row["job"] for row in rows) == {f"j0000{number}": 7 for number in (1, 2, 3, 4)}
    measured = Counter(row["job"] for row in rows if row["outcome"] == "measured")
    assert measured["j00001"] > 0  # the test in hand when the user came
    assert measured["j00002"] == 7
    for row in rows:
        if row["outcome"] != "measured" and row["job"] == victim:
            assert "beta" in row["reason"] or row["outcome"] == "failed", row
        elif row["outcome"] != "measured":
            assert f"beta/beta-n0{row['job'][-1]}: did not start within" in row["reason"], row
            assert "PartitionDown" in row["reason"], row


def _kill_ssh(lab: RunningLab, host: str) -> None:
    """SIGKILL to this lab's ssh processes to a host, the master of the shared connection among them."""
    found = subprocess.run(
        ["pgrep", "-f", f"ssh -F {lab.state}/ssh_config .*{host}"], capture_output=True, text=True, check=False
    )
    for pid in found.stdout.split():
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", pid], check=False)

"""What a real PBS had not seen: tournaments that launch MPI programs pair by pair, sweeps that end early, rate searches.

The MPI program is Debian's NetPIPE, which needs no hpcq on the nodes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from hpcq.run_folder.lines import measured_sizes
from hpcq.units import parse_utc, utc_now
from tests.lab.campaigns_in_lab import Desk
from tests.pbs_live.live import QUICK, Live, code_of
from tests.pbs_live.test_campaigns import nothing_ran_twice, outcomes
from tests.pbs_live.test_nodes import power_cut, wait_for_lines
from tests.pbs_live.test_sequences import running

PROGRAM = "NPopenmpi"
LAUNCHED = """clusters: [beta]
pairs: {rounds: 3}
allocation: whole
concurrency: alone
repetitions: 1
retries: 0
tests:
  - {kernel: netpipe_mpi, parameters: {message_bytes_max: 512}}"""
#: A second per size.
SWEEP_SIZES = (16, 32, 64, 128, 256, 512)
SWEEP = """clusters: [beta]
pairs: {list: [[beta-n02, beta-n01]]}
repetitions: 1
tests:
  - {kernel: tcp_pingpong, parameters: {message_bytes: 16, sweep_to_bytes: 512, duration_s: 1, warmup_s: 0}}"""
SEARCH = """clusters: [beta]
pairs: {{list: [[beta-n02, beta-n01], [beta-n03, beta-n04]]}}
repetitions: 1
retries: 0
allocation: {allocation}
tests:
  - kernel: udp_rate_search
    parameters: {{rate_max_bps: 4mbit, trial_s: 200ms, settle_s: 50ms, loss_ratio_max: 0.02}}
    matrix: {{direction: [client_to_server, server_to_client]}}"""


# -- tournaments that launch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starter", ["pbs_tmrsh", "pbsdsh"])
def test_a_tournament_launches_a_program_for_each_pair_in_turn(live: Live, tmp_path: Path, starter: str) -> None:
    assert shutil.which(PROGRAM), "tools/packages test installs netpipe-openmpi"
    desk = live.desk(tmp_path, f"{QUICK}task_starter: {starter}\n")
    desk.campaign(LAUNCHED)
    desk.hpcq("run", "campaign.yaml", timeout_s=400)
    rows = desk.rows("SELECT DISTINCT client, server, outcome, reason, crossed_interface FROM v_results")
    assert [(row["outcome"], row["reason"], row["crossed_interface"]) for row in rows] == [("measured", None, "yes")] * 6, rows
    ends = desk.rows('SELECT v.client, v.server, e."end", e.node FROM v_ends e JOIN v_results v USING (result_id)')
    assert ends
    assert all(row["node"] == row[row["end"]] for row in ends), ends
    [folder] = desk.run_folder.glob("beta/jobs/g*/1")
    assert sorted(path.name for path in folder.glob("facts-*.json")) == [f"facts-{node}.json" for node in live.nodes]
    assert [path.name for path in folder.glob("launched*")] == ["launched.txt"], "the spool has what the launches left"
    nothing_ran_twice(live, desk, "beta")
    assert_nothing_runs(live)


def test_a_tournament_of_launches_goes_on_without_a_node_that_dies(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(LAUNCHED)
    with desk.running("run", "campaign.yaml") as child:
        running(users, desk, child)
        wait_for_lines(desk, users, 3)  # one launched and told, another begun
        cut = utc_now()
        with power_cut(users, "n03"):
            code = child.wait(timeout=400)
    rows = desk.rows("SELECT DISTINCT client, server, outcome, reason FROM v_results")
    unhurt = [row for row in rows if "beta-n03" not in (row["client"], row["server"])]
    assert [row["outcome"] for row in unhurt] == ["measured"] * 3, rows
    assert code == code_of(rows), desk.log()
    hurt = [row for row in rows if row["outcome"] != "measured"]
    assert all(row["reason"] for row in hurt), rows
    assert "beta-n03: no process starts there any more" in {row["reason"] for row in hurt}, rows
    assert len([event for event in desk.events("beta") if event["event"] == "attempt"]) == 1
    assert seconds_until_told(desk, cut) < 100, "before a launch's own time limit of 120 s"


def seconds_until_told(desk: Desk, cut: str) -> float:
    """How long after a node died its next pair was told as lost."""
    [spool] = desk.run_folder.glob("beta/jobs/g*/1/spool.jsonl")
    lines = [json.loads(line) for line in spool.read_text().splitlines()]
    told = [line["started_utc"] for line in lines if "no process starts" in (line.get("reason") or "")]
    return (parse_utc(min(told)) - parse_utc(cut)).total_seconds()


def ranks_run(live: Live) -> bool:
    """Whether the two ranks of a launch run, on two nodes."""
    return sum(bool(re.search(rf"^(/\S*/)?{PROGRAM} ", processes(live, node), re.MULTILINE)) for node in live.nodes) == 2


@pytest.mark.parametrize("starter", ["pbs_tmrsh", "pbsdsh"])
def test_a_tournament_of_launches_that_is_cancelled_leaves_no_rank(live: Live, tmp_path: Path, starter: str) -> None:
    desk = live.desk(tmp_path, f"{QUICK}task_starter: {starter}\n")
    desk.campaign(LAUNCHED.replace("512", "8MiB"))
    with desk.running("run", "campaign.yaml") as child:
        running(live, desk, child)
        live.until(lambda: ranks_run(live), "two ranks")
        desk.hpcq("cancel", timeout_s=120)
        assert child.wait(timeout=60) == 4, desk.log()
    assert not live.root("qselect")
    assert_nothing_runs(live)
    rows = desk.rows("SELECT DISTINCT client, server, outcome, reason FROM v_results")
    assert len({(row["client"], row["server"]) for row in rows}) == 6, rows
    assert all(row["reason"] for row in rows if row["outcome"] != "measured"), rows


def processes(live: Live, node: str) -> str:
    """The command lines on a node."""
    return live.on(node.removeprefix(f"{live.cluster}-"), "ps -e -o args")


def assert_nothing_runs(live: Live) -> None:
    ours = rf"{PROGRAM}|hpcq-net|hpcq-mpi|orted|mpirun|on-beta"
    live.until(lambda: not any(re.search(ours, processes(live, node)) for node in live.nodes), "nodes without kernels")


# -- sweeps ---------------------------------------------------------------------------------------------------------------


def sizes_there(desk: Desk, live: Live, attempt_no: int) -> list[int]:
    """What the sweep of an attempt has measured, as its file on the cluster says."""
    base = live.lab.state / live.cluster / live.work().lstrip("/") / "hpcq" / desk.run_folder.name
    return [
        size
        for path in base.glob(f"beta/jobs/*/{attempt_no}/t1-r1.json*")
        if path.suffix in {".part", ".json"}
        for size in measured_sizes(path.read_bytes())
    ]


def kill_the_client(live: Live) -> None:
    """The process that measures, on the node of the client."""
    live.on("n02", "kill -KILL $(pgrep -f '[h]pcq-net tcp_pingpong .*--sweep_to_bytes')")


def check_attempts(desk: Desk) -> None:
    """Each size is measured once: some by the first attempt, the others by the second."""
    first, second = (measured_sizes(path.read_bytes()) for path in sorted(desk.run_folder.glob("beta/jobs/*/*/t1-r1.json*")))
    assert len(first) >= 2
    assert sorted([*first, *second]) == list(SWEEP_SIZES), (first, second)
    assert outcomes(desk) == {"cluster measured": len(SWEEP_SIZES)}
    rows = desk.rows("SELECT message_bytes, attempt_no FROM v_results ORDER BY 1")
    assert Counter(row["attempt_no"] for row in rows) == {1: len(first), 2: len(second)}
    scripts = [path.read_text() for path in sorted(desk.run_folder.glob("beta/jobs/*/*/job.sh"))]
    assert [re.findall(r"--sizes-done (\S+)", text) for text in scripts] == [[], [",".join(map(str, first))]]


def test_a_sweep_whose_client_is_killed_is_completed_by_another_attempt(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    desk.campaign(f"retries: 1\n{SWEEP}")
    with desk.running("run", "campaign.yaml") as child:
        running(live, desk)
        live.until(lambda: len(sizes_there(desk, live, 1)) >= 2, "two sizes")
        kill_the_client(live)
        assert child.wait(timeout=240) == 0, desk.log()
    check_attempts(desk)


# -- rate searches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ["pair", "whole"])
def test_a_rate_search_goes_the_way_that_it_is_asked_for(users: Live, tmp_path: Path, allocation: str) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(SEARCH.format(allocation=allocation))
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    assert outcomes(desk) == {"cluster measured": 4}
    rows = desk.rows("SELECT result_id, client, server, value, parameters FROM v_results")
    assert Counter(json.loads(row["parameters"])["direction"] for row in rows) == dict.fromkeys(WAYS, 2)
    for row in rows:
        assert row["value"] == pytest.approx(4e6, rel=0.05), row
        sent = desk.rows(
            "SELECT node, delta FROM v_counters WHERE result_id = ? AND counter = 'net_dev.eth0.tx_bytes'", row["result_id"]
        )
        by_node = {one["node"]: one["delta"] for one in sent}
        sender = row[WAYS[json.loads(row["parameters"])["direction"]]]
        assert max(by_node, key=lambda node: by_node[node]) == sender, (row, by_node)


#: The end that sends.
WAYS = {"client_to_server": "client", "server_to_client": "server"}

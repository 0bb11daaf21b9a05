"""Nodes of a real PBS that go out of service or die under a job, hosts with several vnodes, limits, and hours that end."""

from __future__ import annotations

import datetime as dt
import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcq.scheduler.types import JobState, NodeCondition
from tests.lab.campaigns_in_lab import Desk
from tests.pbs_live.live import QUICK, Live, code_of
from tests.pbs_live.test_campaigns import nothing_ran_twice, outcomes
from tests.pbs_live.test_hostile import running as running_job
from tests.pbs_live.test_sequences import ONE_TEST, running

ROUNDS = "clusters: [beta]\npairs: {rounds: 3}\nallocation: whole"
SECONDS = "tests: [{kernel: tcp_pingpong, parameters: {duration_s: 1s, warmup_s: 0, message_bytes: 1}}]"


@contextmanager
def power_cut(live: Live, node: str) -> Iterator[None]:
    """A node loses its power; afterwards it is there again."""
    live.lab.command("kill-node", f"beta/{node}")
    try:
        yield
    finally:
        live.lab.command("start-node", f"beta/{node}")


def wait_for_lines(desk: Desk, live: Live, count: int) -> None:
    """Until the tournament's spool on the cluster has so many lines."""
    base = desk.lab.state / "beta" / live.work().lstrip("/")
    pattern = f"hpcq/{desk.run_folder.name}/beta/jobs/g00001/1/spool.jsonl"
    live.until(lambda: sum(one.read_bytes().count(b"\n") for one in base.glob(pattern)) >= count, "lines", within_s=180)


def test_an_offline_node_is_not_planned_and_its_reason_is_told(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    live.root("pbsnodes -o -C 'disk | broken' beta-n04")
    desk.campaign(f"clusters: [beta]\npairs: all\nrepetitions: 1\n{ONE_TEST}")
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    assert outcomes(desk) == {"cluster measured": 3}
    excluded = desk.json("status")
    assert "disk | broken" in str(excluded) or "disk | broken" in (desk.run_folder / "beta" / "plan.json").read_text()


@pytest.mark.promise("A host that real PBS reserves before a job would end is not planned on, and plan says for what.")
def test_a_reservation_that_begins_before_a_job_would_end(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    start = users.root("date -d '+4 min' +%Y%m%d%H%M.%S").strip()
    users.root(f"pbs_rsub -N swap -R {start} -D 00:10:00 -l select=1:host=beta-n04:ncpus=1 -l place=exclhost -I 20")
    words = r"reservation R\d+ of swap begins at \S.* \d{4}, before a job of 600 s would end"
    try:
        desk.campaign(f"clusters: [beta]\npairs: all\nrepetitions: 1\nwalltime_s: 10min\n{ONE_TEST}")
        desk.hpcq("run", "campaign.yaml", timeout_s=300)
        assert outcomes(desk) == {"cluster measured": 3}
        [left_out] = json.loads((desk.run_folder / "beta" / "plan.json").read_text())["excluded"]
        assert left_out["node"] == "beta-n04"
        assert re.fullmatch(words, left_out["reason"])
        named = f"clusters: [beta]\npairs: {{list: [[beta-n04, beta-n03]]}}\nrepetitions: 1\nwalltime_s: 1min\n{ONE_TEST}"
        desk.campaign(named)
        desk.hpcq("run", "campaign.yaml", timeout_s=300)
        assert outcomes(desk) == {"cluster measured": 4}, "a short job still runs there"
    finally:
        users.at_rest()


def test_pairs_of_a_node_that_goes_offline_are_carried_until_it_is_back(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\nrepetitions: 1\nbudget: {{max_jobs: 1}}\n{SECONDS}")
    with desk.running("run", "campaign.yaml") as child:
        running(users, desk)
        users.root("pbsnodes -o -C fan beta-n04")
        desk.wait_for(lambda events: sum(event["event"] == "ended" for event in events) >= 3, "beta")
        users.root("pbsnodes -r -C '' beta-n04")
        assert child.wait(timeout=240) == 0, desk.log()
    assert outcomes(desk) == {"cluster measured": 6}


def test_the_daemon_of_a_node_dies_under_a_job(live: Live, tmp_path: Path) -> None:
    """PBS shows the job as running for minutes; an order to end it goes through all the same."""
    site = live.site(tmp_path)
    key = running_job(site, "orphan")
    live.on("n01", "kill -KILL $(cat /var/spool/pbs/mom_priv/mom.lock)")
    try:
        live.until(
            lambda: {state.condition for state in site.scheduler.nodes() if state.node == "beta-n01"} == {NodeCondition.DOWN},
            "a node that is down",
        )
        assert site.scheduler.poll([key])[key.scheduler_job_id].state is JobState.RUNNING
        assert site.scheduler.cancel([key]) is None
        site.ends(key.scheduler_job_id, JobState.CANCELLED)
    finally:
        live.lab.command("start-node", "beta/n01")
        live.on("n01", "pkill -KILL -f '[j]ob.sh' || true")


@pytest.mark.parametrize("tolerate", ["all", "none"])
def test_a_tournament_that_loses_a_node(users: Live, tmp_path: Path, tolerate: str) -> None:
    desk = users.desk(tmp_path, f"{QUICK}tolerate_node_failures: {tolerate}\n")
    desk.campaign(f"{ROUNDS}\nrepetitions: 2\nretries: 0\n{SECONDS}")
    with desk.running("run", "campaign.yaml") as child:
        running(users, desk)
        wait_for_lines(desk, users, 2)
        with power_cut(users, "n03"):
            code = child.wait(timeout=400)
    rows = desk.rows("SELECT client, server, outcome, reason FROM v_results")
    assert len(rows) == 12
    assert code == code_of(rows), desk.log()
    unhurt = [row for row in rows if "beta-n03" not in (row["client"], row["server"])]
    assert all(row["reason"] for row in rows if row["outcome"] != "measured"), rows
    if tolerate == "all":
        assert [row["outcome"] for row in unhurt] == ["measured"] * 6, rows
    else:
        assert 2 <= sum(row["outcome"] == "measured" for row in rows) < 12, rows


def test_a_wave_is_no_larger_than_the_queue_allows(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    path = tmp_path / "clusters" / "beta.yaml"
    path.write_text(path.read_text().replace("queue: workq", "queue: small"))  # two jobs of a user at most
    desk.campaign(f"clusters: [beta]\npairs: {{rounds: 3}}\nrepetitions: 1\n{ONE_TEST}")
    desk.hpcq("run", "campaign.yaml", timeout_s=300)
    assert outcomes(desk) == {"cluster measured": 6}
    events = desk.events("beta")
    assert not [event for event in events if event["event"] in {"refused", "not_run"}], events
    nothing_ran_twice(users, desk, "beta")


def test_hosts_with_several_vnodes_are_one_node_and_taken_whole(users: Live, tmp_path: Path) -> None:
    vnodes = "$configversion 2\\n" + "".join(
        f"beta-n04{part}: resources_available.ncpus = {count}\\n" for part, count in (("", 0), ("[0]", 2), ("[1]", 2))
    )
    users.on("n04", f"printf '{vnodes}' >/tmp/v && /opt/pbs/sbin/pbs_mom -s insert parts /tmp/v"
             " && kill -HUP $(cat /var/spool/pbs/mom_priv/mom.lock)")  # fmt: skip
    try:
        users.until(lambda: "beta-n04[1]" in users.root("pbsnodes -av"), "vnodes")
        users.until(lambda: "state-unknown" not in users.root("pbsnodes -av"), "vnodes that are free")
        site = users.site(tmp_path)
        assert [state.node for state in site.scheduler.nodes()] == users.nodes
        desk = users.desk(tmp_path)
        # Whole hosts cost a cpu a chunk, wherever on the host.
        desk.campaign(f"clusters: [beta]\npairs: {{list: [[beta-n03, beta-n04]]}}\nrepetitions: 1\n{ONE_TEST}")
        desk.hpcq("run", "campaign.yaml", timeout_s=300)
        assert outcomes(desk) == {"cluster measured": 1}
        administration = site.scheduler.administration()
        assert administration is not None
        administration.look()
        users.root(administration.drain(["beta-n04"], "hpcq accept: slow") or "false")
        [drained] = [state for state in site.scheduler.nodes() if state.node == "beta-n04"]
        assert (drained.condition, drained.reason) == (NodeCondition.DRAINED, "hpcq accept: slow")
        users.root(administration.resume(["beta-n04"]) or "false")
        assert {state.condition for state in site.scheduler.nodes()} == {NodeCondition.IDLE}
    finally:
        # A new boot has forgotten the vnodes; the server forgets them only with the node.
        with power_cut(users, "n04"):
            users.until(lambda: "down" in users.root("pbsnodes -v beta-n04"), "a node that is down")
            for name in ("beta-n04[0]", "beta-n04[1]", "beta-n04"):
                users.root(f"qmgr -c 'delete node {name}' || true")
        users.root("qmgr -c 'create node beta-n04'")
        users.until(lambda: "state = free" in users.root("pbsnodes -v beta-n04"), "a node that is back")


def test_a_job_that_waits_when_the_hours_end_measures_nothing_without_a_driver(users: Live, tmp_path: Path) -> None:
    desk = users.desk(tmp_path)
    now = dt.datetime.now()
    end = (now + dt.timedelta(seconds=135)).replace(second=0)  # after the build, and 75 s off at least
    hours = f"{now - dt.timedelta(hours=1):%H:%M}-{end:%H:%M}"
    desk.campaign(f"clusters: [beta]\npairs: {{list: [[beta-n01, beta-n02]]}}\nbudget: {{hours: '{hours}'}}\n{ONE_TEST}")
    users.qmgr("set server scheduling = False")  # the nodes are free, and the job waits all the same
    with desk.running("run", "campaign.yaml") as driver:
        desk.wait_for(lambda events: any(event["event"] == "submitted" for event in events), "beta")
        driver.send_signal(signal.SIGKILL)
    time.sleep(max(0.0, (end - dt.datetime.now()).total_seconds()) + 5)
    users.qmgr("set server scheduling = True")
    users.until(lambda: not users.root("qselect"), "the end of the job")
    assert not list(desk.lab.state.glob(f"beta/scratch/of-labuser/hpcq/{desk.run_folder.name}/beta/jobs/*/*/**/t*-r*.json"))


def test_a_node_of_another_schedulers_partition_is_not_planned(users: Live, tmp_path: Path) -> None:
    for line in ("create sched other", "set sched other partition = P1", "set node beta-n04 partition = P1"):
        users.qmgr(line)
    try:
        assert [state.node for state in users.site(tmp_path).scheduler.nodes()] == users.nodes[:3]
    finally:
        users.qmgr("unset node beta-n04 partition")
        users.qmgr("delete sched other")


def test_doctor_reaches_the_cluster(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    said = desk.hpcq("doctor", "--reach", "--json", expect=None)
    assert "beta" in said.stdout
    told = [line for line in desk.json("doctor", "--reach", expect=0) if line["item"] == "beta"]
    assert told, said.stdout
    assert {line["state"] for line in told} <= {"ok", "note"}, told


def test_cluster_check_finds_the_ways_to_start_processes(live: Live, tmp_path: Path) -> None:
    desk = live.desk(tmp_path)
    said = desk.hpcq("cluster", "check", "beta", expect=None, timeout_s=300)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "pbs_tmrsh" in said.stdout + said.stderr
    assert re.search(r"^.*\brelease +.*OpenPBS [0-9]+\.[0-9]+", said.stdout, re.MULTILINE), said.stdout

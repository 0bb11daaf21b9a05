"""Campaigns through the whole of hpcq on the simulated PBS: pairs, a tournament, and a driver that is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.local.desk import Folder
from tests.local.local_desk import INSTANT, LocalDesk
from tests.simulated_pbs.site import simulated_pbs

CLUSTER = "name: {name}\nscheduler: pbs\nconnection: local\ninterface: lo\npoll_interval_s: 1s\ncompiler: {{cflags: -O0}}\n"
BRIEF = "{kernel: tcp_pingpong, parameters: {duration_s: 100ms, warmup_s: 0}}"


def desk_at(folder: Path) -> LocalDesk:
    desk = LocalDesk.at(folder)
    desk.cluster("tiny", CLUSTER)
    return desk


def measured(desk: Folder) -> int:
    return sum(row["n"] for row in desk.rows("SELECT count(*) AS n FROM v_results WHERE outcome = 'measured'"))


@pytest.mark.long
def test_pairs_without_history(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"history": False, "sleep_s": 0.0})
        desk = desk_at(tmp_path)
        desk.campaign(INSTANT, BRIEF, more="seed: 1")
        desk.hpcq("run", "try.yaml")
        assert measured(desk) == 12
        assert {event["outcome"] for event in desk.events() if event["event"] == "ended"} == {"completed"}
        assert {name[:5] for name in pbs.control()["names"]} <= {"hpcq-"}


@pytest.mark.long
def test_a_tournament_on_four_nodes(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        desk = desk_at(tmp_path)
        desk.campaign(BRIEF, more="allocation: whole")
        desk.hpcq("run", "try.yaml")
        assert measured(desk) == 6
        assert len([event for event in desk.events() if event["event"] == "attempt"]) == 1


@pytest.mark.long
@pytest.mark.promise("An exit code comes back through pbsdsh, which itself passes none.")
@pytest.mark.parametrize("more", ["", "allocation: whole\n"], ids=["pairs", "tournament"])
def test_pbsdsh_starts_what_runs_on_other_nodes(tmp_path: Path, more: str) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        (tmp_path / "pbs" / "bin" / "pbs_tmrsh").unlink()
        desk = LocalDesk.at(tmp_path)
        desk.cluster("tiny", f"{CLUSTER}task_starter: pbsdsh\n")
        desk.campaign(BRIEF, more=f"{more}retries: 0")
        desk.hpcq("run", "try.yaml")
        assert measured(desk) == 6
        [starter, *_] = sorted(desk.run_folder.glob("tiny/jobs/*/1/start-by-pbsdsh"))
        every = f'"{starter}" "$(tail -n 1 $PBS_NODEFILE)" /bin/sh -c "exit $code"'
        codes = f"for code in 0 7 143; do {every}; echo $?; done"
        words = ["qsub", "-l", "select=2:ncpus=1", "-l", "place=scatter", "-j", "oe", "-o", str(tmp_path / "seen")]
        assert pbs.run(*words, text=codes).returncode == 0
        desk.wait_for(lambda: pbs.control()["states"] == {} or (tmp_path / "seen").exists())
        assert (tmp_path / "seen").read_text().split() == ["0", "7", "143"]


@pytest.mark.long
def test_a_killed_driver_goes_on_where_it_was_and_nothing_runs_twice(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"history": False, "sleep_s": 0.0})
        desk = desk_at(tmp_path)
        desk.campaign("{kernel: tcp_pingpong, parameters: {duration_s: 700ms, warmup_s: 0}}")
        with desk.running(["-m", "hpcq", "run", "try.yaml"]) as driver:
            desk.wait_for(lambda: any(event["event"] == "submitted" for event in desk.events()))
            driver.send_signal(signal.SIGKILL)
        desk.hpcq("resume")
        assert measured(desk) == 6
        tags = [event["tag"] for event in desk.events() if event["event"] == "submitted"]
        assert len(tags) == len(set(tags))
        outcomes = [event["outcome"] for event in desk.events() if event["event"] == "ended"]
        assert set(outcomes) == {"completed"}
        assert pbs.control()["states"] == {}


@pytest.mark.long
def test_a_tournament_that_loses_a_node_measures_the_pairs_of_the_others(tmp_path: Path) -> None:
    with simulated_pbs(tmp_path / "pbs") as pbs:
        pbs.control(set={"sleep_s": 0.0})
        desk = desk_at(tmp_path)
        desk.campaign(
            "{kernel: tcp_pingpong, parameters: {duration_s: 400ms, warmup_s: 0}}", more="allocation: whole\nretries: 0"
        )
        with desk.running(["-m", "hpcq", "run", "try.yaml"]) as driver:
            desk.wait_for(lambda: spooled(desk) > 0)
            pbs.control(power_cut=["pbn3"])
            assert driver.wait(timeout=240) == 3
        rows = desk.rows("SELECT client, server, outcome, reason FROM v_results")
        unhurt = [row for row in rows if "pbn3" not in (row["client"], row["server"])]
        assert [row["outcome"] for row in unhurt] == ["measured"] * 3, rows
        assert all(row["reason"] for row in rows if row["outcome"] != "measured"), rows


def spooled(desk: Folder) -> int:
    """How many results the tournament has brought so far."""
    try:
        return sum(path.read_bytes().count(b"\n") for path in desk.run_folder.glob("tiny/work/jobs/*/1/spool.jsonl"))
    except ValueError:  # there is no run yet
        return 0

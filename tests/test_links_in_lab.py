"""Links between the two real Slurm clusters, over ssh: what was planned is measured, and every way to fail has its row."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns_in_lab import Desk, event_names
from tests.desk import kill_session
from tests.lab_fixture import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.quiet]

LINK = "alpha+beta"
INSTANT = "- {kernel: tcp_pingpong, parameters: {operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
SLOW = "- {kernel: tcp_stream, parameters: {duration_s: 6, warmup_s: 0, direction: client_to_server}}"
ONE_PAIR = "list: [[alpha-n01, beta-n01]], compare: false, directions: one"


def campaign(link: str, *tests: str, more: str = "retries: 1") -> str:
    lines = "\n  ".join(tests)
    return f"clusters: [alpha, beta]\nlinks: [{{from: alpha, to: beta, {link}}}]\nrepetitions: 1\n{more}\ntests:\n  {lines}"


def desk_of(lab: RunningLab, folder: Path, patience_s: int = 60) -> Desk:
    """A desk with both clusters' files, their kernels built without optimiser."""
    (folder / "clusters").mkdir(parents=True)
    for name in ("alpha", "beta"):
        text = lab.cluster_file(name).read_text()
        (folder / "clusters" / f"{name}.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\npatience_s: {patience_s}\n")
        lab.exec(name, "scontrol", "update", f"nodename={name}-n[01-04]", "state=resume", check=False)
    return Desk(folder, lab)


@pytest.fixture
def desk(lab: RunningLab, tmp_path: Path) -> Desk:
    return desk_of(lab, tmp_path / "desk")


def outcomes(desk: Desk) -> list[tuple[str, int]]:
    rows = desk.rows("SELECT outcome, count(*) AS n FROM v_results WHERE placement = 'link' GROUP BY outcome")
    return [(row["outcome"], row["n"]) for row in rows]


def nothing_is_left_or_ran_twice(desk: Desk) -> None:
    for name in ("alpha", "beta"):
        queued = desk.lab.exec(name, "squeue", "--noheader", "--format=%j %T")
        assert desk.run_folder.name not in queued, queued
    told = desk.lab.exec("alpha", "sacct", "-n", "-P", "-X", "-S", "now-1hour", "-u", "labuser", "-o", "JobName,Start")
    ran = Counter(line.partition("|")[0] for line in told.splitlines() if desk.run_folder.name in line)
    assert all(count == 1 for count in ran.values()), ran
    native_ids = [event["native_id"] for event in desk.events(LINK) if event["event"] == "submitted"]
    assert len(native_ids) == len({event["tag"] for event in desk.events(LINK) if event["event"] == "submitted"})
    lines = [path.name for path in desk.run_folder.glob(f"{LINK}/jobs/*/*/*/t*-r*.json")]
    measured = desk.rows("SELECT count(*) AS n FROM v_results WHERE placement = 'link' AND outcome = 'measured'")
    assert len(lines) >= measured[0]["n"]


def once(word: str, count: int = 1) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda events: event_names(events).count(word) >= count


# -- what was planned is measured --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = desk_of(lab, tmp_path_factory.mktemp("desk") / "folder")
    tests = [
        "- {kernel: tcp_stream, parameters: {duration_s: 300ms, warmup_s: 100ms}}",
        "- {kernel: udp_stream, parameters: {duration_s: 300ms, warmup_s: 100ms, message_bytes: 1400, rate_bps: 20M}}",
        "- {kernel: udp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms}}",
        INSTANT,
    ]
    desk.campaign(campaign("pairs: 2", *tests))
    desk.hpcq("run", "campaign.yaml")
    return desk


def test_every_pair_of_the_link_and_of_its_nodes_is_measured(measured: Desk) -> None:
    assert measured.rows("SELECT placement, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1") == [
        {"placement": "cluster", "outcome": "measured", "n": 8},  # two clusters, one pair, four tests
        {"placement": "link", "outcome": "measured", "n": 12},  # two pairs, two tests both ways, two tests
    ]
    pairs = measured.rows(
        "SELECT DISTINCT client_cluster, server_cluster, client, server FROM v_series WHERE placement = 'link'"
    )
    assert {(row["client_cluster"], row["server_cluster"]) for row in pairs} == {("alpha", "beta")}
    assert len(pairs) == 2
    within = measured.rows("SELECT DISTINCT client, server FROM v_series WHERE placement = 'cluster'")
    compared = {node for row in within for node in (row["client"], row["server"])}
    assert compared == {node for row in pairs for node in (row["client"], row["server"])}


def test_the_bytes_went_over_the_wide_area_link(measured: Desk) -> None:
    [trip] = measured.rows(
        "SELECT min(value) AS ns FROM v_results WHERE kernel = 'tcp_pingpong' AND placement = 'link' AND outcome = 'measured'"
    )
    assert 2.8e6 < trip["ns"] < 10e6
    for path in measured.run_folder.glob(f"{LINK}/jobs/*/1/*/t*-r*.json"):
        evidence = json.loads(path.read_text())["evidence"]
        assert evidence["client"]["address"].startswith("10.77.")
        assert evidence["server"]["address"].startswith("10.78.")
        assert evidence["server"]["node"].startswith("beta-n")


def test_both_sides_are_rows_with_addresses_directions_and_roles(measured: Desk) -> None:
    rows = measured.rows("SELECT * FROM v_links ORDER BY job, side")
    assert [(row["side"], row["cluster"], row["role"], row["reaches"]) for row in rows] == [
        ("from", "alpha", "client", "open"),
        ("to", "beta", "server", "open"),
    ] * 2
    assert all(20000 <= row["port"] <= 20999 and row["outcome"] == "completed" for row in rows)
    assert all(row["expected_wait_s"] is not None for row in rows)
    assert {row["link"] for row in rows} == {LINK}
    assert len(measured.rows("SELECT * FROM v_attempts WHERE cluster = ?", LINK)) == 2
    assert {row["node"].partition("-")[0] for row in measured.rows("SELECT node FROM v_facts WHERE cluster = ?", LINK)} == {
        "alpha",
        "beta",
    }
    assert "NaN" not in (measured.run_folder / "report.html").read_text()
    nothing_is_left_or_ran_twice(measured)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_far_side_that_never_starts_ends_both(lab: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(lab, tmp_path / "desk", patience_s=5)
    desk.campaign(campaign(f"{ONE_PAIR}, patience_s: 5", INSTANT))
    lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=down")
    try:
        started = time.monotonic()
        desk.hpcq("run", "campaign.yaml", expect=4)
        assert time.monotonic() - started < 60
    finally:
        lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=up")
    [row] = desk.rows("SELECT * FROM v_results WHERE placement = 'link'")
    assert row["outcome"] == "not_measured"
    assert "beta/beta-n01: did not start within 5 s" in row["reason"]
    assert all(end["outcome"] == "cancelled" for end in desk.rows("SELECT * FROM v_links"))
    nothing_is_left_or_ran_twice(desk)


def test_a_cut_connection_a_restarted_controller_and_a_killed_driver_cost_nothing(desk: Desk) -> None:
    """What test_links.py does at each event with one fault, here all at once on real clusters."""
    desk.campaign(campaign(ONE_PAIR, SLOW, INSTANT))
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(once("ways"), LINK)
        for host in ("alpha-head", "beta-head"):
            _kill_ssh(desk.lab, host)
        desk.lab.command("restart-controller", "beta")
        _kill_ssh(desk.lab, "beta-head")
        kill_session(child)
    desk.hpcq("resume")
    assert outcomes(desk) == [("measured", 2)]
    assert [row["attempt_no"] for row in desk.rows("SELECT attempt_no FROM v_attempts WHERE cluster = ?", LINK)] == [1]
    nothing_is_left_or_ran_twice(desk)


def _kill_ssh(lab: RunningLab, host: str) -> None:
    """SIGKILL to this lab's ssh processes to a host, the master of the shared connection among them."""
    found = subprocess.run(
        ["pgrep", "-f", f"ssh -F {lab.state}/ssh_config .*{host}"], capture_output=True, text=True, check=False
    )
    for pid in found.stdout.split():
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", pid], check=False)


def test_a_killed_node_ends_both_sides_and_is_named(desk: Desk) -> None:
    desk.campaign(campaign(ONE_PAIR, SLOW.replace("duration_s: 6", "duration_s: 60"), more="retries: 0"))
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(once("ways"), LINK)
        desk.lab.command("kill-node", "beta/n01")
        try:
            assert child.wait(timeout=90) == 4, desk.log()
        finally:
            desk.lab.command("start-node", "beta/n01")
            desk.lab.exec("beta", "scontrol", "update", "nodename=beta-n01", "state=resume", check=False)
    ends = {row["cluster"]: row for row in desk.rows("SELECT * FROM v_links")}
    assert ends["beta"]["outcome"] == "node_failed"
    assert ends["alpha"]["outcome"] in {"cancelled", "completed"}
    [row] = desk.rows("SELECT * FROM v_results WHERE placement = 'link'")
    assert (row["outcome"], row["client"], row["server"]) != ("measured", "alpha-n01", "beta-n01")
    assert "beta" in row["reason"] or row["outcome"] == "failed", row
    nothing_is_left_or_ran_twice(desk)

"""Links between the two real Slurm clusters, over ssh: what was planned is measured, and every way to fail has its row."""

from __future__ import annotations

import json
import signal
import subprocess
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
#: Seven tests of two seconds: time for a user to come, and to be let in between two of them.
SLOW = (
    "- {kernel: tcp_stream, parameters: {warmup_s: 0},"
    " matrix: {duration_s: [2s, 2010ms, 2020ms, 2030ms, 2040ms, 2050ms, 2060ms]}}"
)
#: Windows of 10 kB bring 10 kB a round trip, however near; 2 MB are more than this link can hold.
WINDOWS = (
    "- {kernel: tcp_stream, parameters: {duration_s: 400ms, warmup_s: 200ms, direction: client_to_server},"
    " zip: {send_buffer_bytes: [10kB, 2MB], receive_buffer_bytes: [10kB, 2MB]}}"
)


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
        WINDOWS,
        "- {kernel: udp_stream, parameters: {duration_s: 300ms, warmup_s: 100ms, message_bytes: 1400, rate_bps: 20M}}",
        "- {kernel: udp_pingpong, parameters: {duration_s: 100ms, warmup_s: 10ms}}",
        INSTANT,
    ]
    desk.campaign(campaign("pairs: 2", *tests))
    said = desk.hpcq("submit", "campaign.yaml").stderr
    assert f"{LINK}: 2 pairs are handed in by hpcq resume" in said
    desk.hpcq("resume")
    return desk


def test_every_pair_of_the_link_and_of_its_nodes_is_measured(measured: Desk) -> None:
    assert measured.rows("SELECT placement, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1") == [
        {"placement": "cluster", "outcome": "measured", "n": 10},  # two clusters, one pair, five tests
        {"placement": "link", "outcome": "measured", "n": 16},  # two pairs, three tests both ways, two tests
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


def test_a_window_falls_with_distance_and_large_buffers_do_not(measured: Desk) -> None:
    """The table of docs/links.md: what holds of it however busy this machine is."""
    values = """
        SELECT v.placement, q.value AS buffer_bytes, g.value / 2 AS window_bytes,
            max(v.value) AS most_bps, min(v.value) AS least_bps
        FROM v_results v
        JOIN v_parameters q ON q.result_id = v.result_id AND q.parameter = 'receive_buffer_bytes'
        JOIN v_granted g ON g.result_id = v.result_id AND g.granted = 'server_receive_buffer_bytes'
        JOIN v_parameters d ON d.result_id = v.result_id AND d.parameter = 'direction' AND d.value = 'client_to_server'
        WHERE v.kernel = 'tcp_stream' AND v.outcome = 'measured' GROUP BY 1, 2
    """
    rows = {(row["placement"], row["buffer_bytes"]): row for row in measured.rows(values)}
    least = "SELECT min(value) AS ns FROM v_metrics WHERE metric = 'round_trip_min_ns' AND cluster = ?"
    [trip] = measured.rows(least, LINK)
    near, far = rows["cluster", 10_000], rows["link", 10_000]
    assert far["most_bps"] < 1.15 * far["window_bytes"] * 8 / (trip["ns"] / 1e9)
    assert near["least_bps"] > 2 * far["most_bps"]
    assert rows["link", 2_000_000]["least_bps"] > 2 * far["most_bps"]
    assert rows["link", 2_000_000]["most_bps"] > 0.5 * rows["cluster", 2_000_000]["most_bps"]


def test_results_and_page_show_the_link_beside_its_clusters(measured: Desk) -> None:
    done = measured.hpcq("results", "--links")
    assert f"{LINK}: there is alpha to beta; round trip" in done.stderr
    table = [line.split("\t") for line in done.stdout.splitlines()]
    heads = table[0]
    streams = [row for row in table if row[1] == "tcp_stream"]
    [small], [large] = ([row for row in streams if size in row[heads.index("variant")]] for size in ("KiB", "MiB"))
    assert float(small[heads.index("over : within")]) < 0.5 < float(large[heads.index("over : within")])
    assert all(small[heads.index(name)].endswith("bit/s") for name in ("there", "back", "within from", "within to"))
    assert float(small[heads.index("window / round trip")].split()[0]) < 28  # 10 kB in 2.9 ms, or more
    page = (measured.run_folder / "report.html").read_text()
    assert "Between the clusters" in page
    assert page.count(": the limit") == 1


def test_the_comparison_was_measured_between_the_pairs_of_the_link(measured: Desk) -> None:
    starts = {
        part: sorted(event["utc"] for event in measured.events(part) if event["event"] == "attempt")
        for part in ("alpha", "beta", LINK)
    }
    for part in ("alpha", "beta"):
        assert starts[LINK][1] < starts[part][0] < starts[LINK][2]
    for part in ("alpha", "beta", LINK):
        driven = json.loads((measured.run_folder / part / "driven.json").read_text())
        counts = driven["scheduler_query_count"]
        # 30 to begin with, one more for each 5 s; the user's limit and the history of jobs are asked for beside.
        assert max([counts] if isinstance(counts, int) else counts.values()) <= 30 + driven["wall_s"] / 5 + 12


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def user_job(lab: RunningLab) -> str:
    """A user's job for all nodes of beta."""
    words = ["sbatch", "--parsable", "--partition=batch", "--nodes=4", "--exclusive", "--time=1", "--output=/dev/null"]
    return lab.exec("beta", *words, "--wrap", "sleep 1", user="otheruser").strip()


def start_of(lab: RunningLab, native_id: str) -> str:
    """When a job started, in UTC; empty while it waits."""
    local = lab.exec("beta", "env", "TZ=UTC", "squeue", "--noheader", "--states=all", f"--jobs={native_id}", "--format=%T %S")
    state, _, start = local.strip().partition(" ")
    return "" if state == "PENDING" else start


def test_faults_and_users_cost_a_link_nothing_that_is_not_a_row(lab: RunningLab, tmp_path: Path) -> None:
    """One campaign of four pairs. A user comes while the first one is measured. With the second one, ssh is cut, a controller
    restarts, the driver is killed. A later one loses a node. What is left then, the first one too, meets a beta that starts
    nothing. Which one is the later one depends on how busy this machine is."""
    desk = desk_of(lab, tmp_path / "desk", patience_s=5)
    pairs = ", ".join(f"[alpha-n0{number}, beta-n0{number}]" for number in (1, 2, 3, 4))
    link = f"list: [{pairs}], compare: false, directions: one, patience_s: 10"
    desk.campaign(campaign(link, SLOW, more="retries: 0\nbudget: {yield: true}"))
    with desk.running("run", "campaign.yaml") as child:
        desk.wait_for(once("ways"), LINK, within_s=240)
        native_id = user_job(lab)
        desk.wait_for(once("let_go"), LINK, within_s=240)
        desk.wait_for(once("ways", 2), LINK, within_s=240)
        assert "" < start_of(lab, native_id) < [event["utc"] for event in desk.events(LINK) if event["event"] == "ways"][1]
        for host in ("alpha-head", "beta-head"):
            _kill_ssh(lab, host)
        lab.command("restart-controller", "beta")
        _kill_ssh(lab, "beta-head")
        kill_session(child)
    ways_count = event_names(desk.events(LINK)).count("ways")
    with desk.running("resume") as child:
        desk.wait_for(once("ways", ways_count + 1), LINK, within_s=240)
        lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=down")
        victim = [event for event in desk.events(LINK) if event["event"] == "ways"][-1]["job_id"]
        lab.command("kill-node", f"beta/n0{victim[-1]}")
        try:
            assert child.wait(timeout=300) == 4, desk.log()
        finally:
            lab.command("start-node", f"beta/n0{victim[-1]}")
            lab.exec("beta", "scontrol", "update", "partitionname=batch", "state=up")
            lab.exec("beta", "scontrol", "update", f"nodename=beta-n0{victim[-1]}", "state=resume", check=False)
    _each_has_its_row(desk, victim)
    nothing_is_left_or_ran_twice(desk)


def _each_has_its_row(desk: Desk, victim: str) -> None:
    ends = {(row["job"], row["attempt_no"], row["cluster"]): row for row in desk.rows("SELECT * FROM v_links")}
    assert [ends["j00001", 1, name]["outcome"] for name in ("alpha", "beta")] == ["withdrawn", "completed"]
    assert "gives way: 1 jobs of other users wait" in ends["j00001", 1, "alpha"]["reason"]
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

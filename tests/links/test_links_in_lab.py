"""Links between the two real Slurm clusters, over ssh: what was planned is measured, with the figures that distance brings.

What goes wrong: tests/links/test_link_faults_in_lab.py.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.quiet]

LINK = "alpha+beta"
INSTANT = "- {kernel: tcp_pingpong, parameters: {operation_count_max: 20, duration_s: 1, warmup_s: 0}}"
#: Windows of 10 kB bring 10 kB a round trip, however near; 2 MB are more than this link can hold.
WINDOWS = (
    "- {kernel: tcp_stream, parameters: {duration_s: 400ms, warmup_s: 200ms, direction: client_to_server},"
    " zip: {send_buffer_bytes: [10kB, 2MB], receive_buffer_bytes: [10kB, 2MB]}}"
)


def campaign(link: str, *tests: str, more: str = "retries: 1") -> str:
    lines = "\n  ".join(tests)
    return f"clusters: [alpha, beta]\nlinks: [{{from: alpha, to: beta, {link}}}]\nrepetitions: 1\n{more}\ntests:\n  {lines}"


def desk_of(lab: RunningLab, folder: Path, max_wait_s: int = 60) -> Desk:
    """A desk with both clusters' files, their kernels built without optimiser."""
    (folder / "clusters").mkdir(parents=True)
    for name in ("alpha", "beta"):
        text = lab.cluster_file(name).read_text()
        (folder / "clusters" / f"{name}.yaml").write_text(f"{text}\ncompiler: {{cflags: -O0}}\nmax_wait_s: {max_wait_s}\n")
        lab.at_rest(name)
    return Desk(folder, lab)


def nothing_is_left_or_ran_twice(desk: Desk) -> None:
    deadline = time.monotonic() + 120
    for name in ("alpha", "beta"):  # those that are ending have KillWait for it
        while desk.run_folder.name in (queued := desk.lab.exec(name, "squeue", "--noheader", "--format=%j %T")):
            assert time.monotonic() < deadline, queued
            time.sleep(0.3)
    names = {event["tag"] for event in desk.events(LINK) if event["event"] == "ended" and event["measured"]}
    rows = desk.lab.accounted("alpha", "-X", "-u", "labuser", "-o", "JobName,JobIDRaw", names=names)
    ran = Counter(name for name, _ in rows if desk.run_folder.name in name)
    assert set(ran.values()) == {1}, ran
    scheduler_job_ids = [event["scheduler_job_id"] for event in desk.events(LINK) if event["event"] == "submitted"]
    assert scheduler_job_ids
    assert len(scheduler_job_ids) == len({event["tag"] for event in desk.events(LINK) if event["event"] == "submitted"})
    lines = [path.name for path in desk.run_folder.glob(f"{LINK}/jobs/*/*/*/t*-r*.json")]
    measured = desk.rows("SELECT count(*) AS n FROM v_results WHERE placement = 'link' AND outcome = 'measured'")
    assert len(lines) >= measured[0]["n"]


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
    said = desk.hpcq("run", "--detach", "campaign.yaml").stderr
    assert f"{LINK}: 2 pairs are submitted by hpcq resume" in said
    desk.hpcq("resume")
    return desk


def test_every_pair_of_the_link_and_of_its_nodes_is_measured(measured: Desk) -> None:
    assert measured.rows("SELECT placement, outcome, count(*) AS n FROM v_results GROUP BY 1, 2 ORDER BY 1") == [
        {"placement": "cluster", "outcome": "measured", "n": 10},  # two clusters, one pair, five tests
        {"placement": "link", "outcome": "measured", "n": 16},  # two pairs, three tests both ways, two tests
    ]
    assert_clean(measured.run_folder)
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
    assert trip["ns"] > 2.8e6
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
    page = re.sub(r"<script>.*?</script>", "", (measured.run_folder / "report.html").read_text(), flags=re.DOTALL)
    assert "NaN" not in page
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
    assert f"{LINK}: over eth0; there is alpha to beta; round trip" in done.stderr
    table = [line.split("\t") for line in done.stdout.splitlines()]
    heads = table[0]
    streams = [row for row in table if row[heads.index("kernel")] == "tcp_stream"]
    [small], [large] = ([row for row in streams if size in row[heads.index("variant")]] for size in ("=10000 B", "MiB"))
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


@pytest.mark.promise("Across a link both ends capture where an administrator allowed it, and else say what is missing.")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_capture_across_the_link(lab: RunningLab, tmp_path: Path, allowed: bool) -> None:
    desk = desk_of(lab, tmp_path / "folder")
    options = "{duration_s: 300ms, warmup_s: 100ms, capture: headers, direction: client_to_server}"
    desk.campaign(campaign("pairs: 1, compare: false", f"- {{kernel: tcp_stream, parameters: {options}}}"))
    desk.hpcq("run", "--detach", "campaign.yaml")
    for name in ("alpha", "beta") if allowed else ():
        root = json.loads((desk.run_folder / name / "build.json").read_text())["root"]
        lab.exec(name, "setcap", "cap_net_raw+ep", f"{root}/bin/hpcq-net")
    desk.hpcq("resume")
    lines = [json.loads(path.read_text()) for path in desk.run_folder.glob(f"{LINK}/jobs/*/*/*/t*-r*.json")]
    assert len(lines) == 2, "both directions"
    for line in lines:
        missing = [one["message"] for one in line["warnings"] if "CAP_NET_RAW is missing" in one["message"]]
        assert (line["valid"], len(missing)) == (True, 0 if allowed else 2)
        assert line["granted"]["client_capture"] is line["granted"]["server_capture"] is allowed
        assert (line["metrics"].get("capture_round_trip_min_ns", 0) > 2.8e6) is allowed, "the link's own delay, both ways"
    kept = sorted(path.name.split(".", 1)[1] for path in desk.run_folder.glob(f"{LINK}/jobs/*/*/*/*.pcap"))
    assert kept == (["client.pcap", "client.pcap", "server.pcap", "server.pcap"] if allowed else [])

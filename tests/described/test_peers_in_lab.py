"""The programs that everybody knows, on a real Slurm: beside hpcq's kernels, in a tournament, and as a witness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab, own_lab

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1500)]

SHAPE = ("--nodes", "6", "--leaves", "3", "--node-rate", "50mbit", "--uplink-rate", "100mbit")
PEERS = {"iperf3_tcp", "iperf3_udp", "qperf_tcp_bw", "qperf_tcp_lat", "sockperf_tcp", "sockperf_udp", "netpipe_tcp"}
FOREIGN_ALONE = """clusters: [alpha]
pairs: {rounds: 5}
allocation: whole
repetitions: 2
tests: [{kernel: iperf3_tcp, parameters: {duration_s: 1s}}]"""


@pytest.fixture(scope="module")
def lab6() -> Iterator[RunningLab]:
    with own_lab("peers", *SHAPE) as lab:
        yield lab


@pytest.fixture(scope="module")
def measured(lab6: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """campaigns/peers.yaml as it is, but once per pair of one round; then the same as a tournament."""
    desk = Desk(tmp_path_factory.mktemp("desk"), lab6)
    text = (REPOSITORY / "campaigns" / "peers.yaml").read_text()
    once = text.replace("rounds: 3", "rounds: 1").replace("repetitions: 2", "repetitions: 1")
    assert once.count("rounds: 1") == once.count("repetitions: 1") == 1
    (desk.folder / "campaign.yaml").write_text(once)
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    (desk.folder / "campaign.yaml").write_text(once.replace("name: peers", "name: tournament\nallocation: whole"))
    desk.hpcq("run", "campaign.yaml", timeout_s=600)
    return desk


@pytest.mark.parametrize("campaign", ["peers", "tournament"])
def test_every_program_is_measured_between_every_pair(measured: Desk, campaign: str) -> None:
    rows = measured.rows(
        "SELECT kernel, outcome, reason, count(DISTINCT client || server) AS pairs FROM v_results"
        f" WHERE campaign = '{campaign}' GROUP BY kernel, outcome, reason"
    )
    assert {row["kernel"] for row in rows} >= PEERS
    assert {(row["outcome"], row["reason"], row["pairs"]) for row in rows} == {("measured", None, 3)}, rows


@pytest.mark.parametrize("campaign", ["peers", "tournament"])
def test_the_bytes_of_a_foreign_program_crossed_the_interface_of_both_ends(measured: Desk, campaign: str) -> None:
    rows = measured.rows(
        "SELECT m.value AS received_bytes, t.client_delta AS sent, r.server_delta AS received FROM v_metrics m"
        " JOIN v_evidence t ON t.result_id = m.result_id AND t.counter = 'net_dev.eth0.tx_bytes'"
        " JOIN v_evidence r ON r.result_id = m.result_id AND r.counter = 'net_dev.eth0.rx_bytes'"
        f" WHERE m.campaign = '{campaign}' AND m.kernel = 'iperf3_tcp' AND m.metric = 'received_bytes'"
    )
    assert len(rows) == 3, measured.rows("SELECT DISTINCT counter FROM v_evidence")
    for row in rows:
        assert row["sent"] >= row["received_bytes"] > 0
        assert row["received"] >= row["received_bytes"]


def test_the_version_of_the_program_is_kept_with_each_result(measured: Desk) -> None:
    rows = measured.rows(
        "SELECT DISTINCT g.value FROM v_granted g JOIN v_results v USING (result_id)"
        " WHERE g.granted = 'client_program_version' AND v.kernel = 'iperf3_tcp'"
    )
    assert rows
    assert all("iperf 3" in row["value"] for row in rows)  # and the node's name, so that each has its own


def test_one_page_shows_them_side_by_side(measured: Desk) -> None:
    page = next(path for path in measured.folder.glob("runs/tournament-*/report.html")).read_text()
    section = page.partition('<h2 id="peers">')[2].partition("<h2")[0]
    table = section.partition("</table>")[0]
    for name in PEERS:
        assert f"<td>{name}</td>" in table, name
    assert "<li>alpha: netpipe_tcp beside" in section  # NetPIPE's sizes that hpcq's own round trip was not asked for
    assert table.count("they agree") + table.count("they disagree") >= len(PEERS)


@pytest.mark.promise("A slow node is blamed from a foreign program's results alone.")
@pytest.mark.quiet  # what only values beside other work show is a question, and blames nobody
def test_a_slow_node_is_blamed_from_iperf3_alone(lab6: RunningLab, tmp_path: Path) -> None:
    desk = Desk(tmp_path, lab6)
    desk.campaign(FOREIGN_ALONE, "witness")
    lab6.command("slow", "alpha/n02", "--rate", "25mbit")
    try:
        desk.hpcq("run", "campaign.yaml", expect=3, timeout_s=600)
    finally:
        lab6.command("mend", "alpha")
    assert {row["kernel"] for row in desk.rows("SELECT DISTINCT kernel FROM v_results")} == {"iperf3_tcp"}
    blamed = json.loads(desk.hpcq("blame", "--json", expect=3).stdout)
    assert blamed["nodes"] == ["alpha-n02"], blamed

"""campaigns/peers.yaml on the embedded scheduler: the programs that everybody knows, beside hpcq's kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcq.definition.files.campaign import read_campaign
from hpcq.errors import UserError
from tests import REPOSITORY
from tests.local.local_desk import LocalDesk

PROGRAMS = ("iperf3", "qperf", "sockperf", "NPtcp")
PEERS = {"iperf3_tcp", "iperf3_udp", "qperf_tcp_bw", "qperf_tcp_lat", "sockperf_tcp", "sockperf_udp", "netpipe_tcp"}
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
CAMPAIGN = REPOSITORY / "campaigns" / "peers.yaml"


@pytest.mark.fast
def test_the_example_can_be_read() -> None:
    assert {test.kernel for test in read_campaign(CAMPAIGN).tests} >= PEERS


@pytest.mark.promise("Rounds of a program that each pair launches are refused: its pairs would not run at once.")
@pytest.mark.fast
def test_a_tournament_refuses_rounds_of_what_a_launcher_starts(tmp_path: Path) -> None:
    path = tmp_path / "try.yaml"
    rounds = r"starts osu_latency once per pair, .* allowed with it is concurrency: alone"
    for name, words in (("osu_latency", rounds), ("stream", "a tournament plays pairs: stream")):
        text = f"name: try\nclusters: [local]\npairs: all\nallocation: whole\ntests: [{{kernel: {name}}}]\n"
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            read_campaign(path)
    path.write_text(
        "name: try\nclusters: [local]\npairs: all\nallocation: whole\nconcurrency: alone\ntests: [{kernel: osu_latency}]\n"
    )
    assert {test.kernel for test in read_campaign(path).tests} == {"osu_latency"}


@pytest.mark.long
def test_each_program_is_measured_and_one_page_shows_them_side_by_side(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert not MISSING, f"tools/packages test installs {', '.join(MISSING)}"
    desk = LocalDesk.at(tmp_path_factory.mktemp("desk"))
    text = CAMPAIGN.read_text().replace("clusters: [alpha]", "clusters: [tiny]").replace("repetitions: 2", "repetitions: 1")
    (desk.folder / "peers.yaml").write_text(text)
    desk.hpcq("run", "peers.yaml", expect=None)
    rows = desk.rows("SELECT DISTINCT kernel, outcome, reason FROM v_results")
    assert {row["kernel"] for row in rows} >= PEERS
    assert {(row["outcome"], row["reason"]) for row in rows} == {("measured", None)}, rows
    page = (desk.run_folder / "report.html").read_text()
    section = page.partition('<h2 id="peers">')[2].partition("<h2")[0]
    table = section.partition("</table>")[0]
    for name in PEERS:
        assert f"<td>{name}</td>" in table, name
    assert "<li>tiny: netpipe_tcp beside" in section  # NetPIPE's other sizes
    assert table.count("they agree") + table.count("they disagree") >= len(PEERS)
    versions = desk.rows(
        "SELECT DISTINCT g.value FROM v_granted g JOIN v_results v USING (result_id)"
        " WHERE v.kernel = 'iperf3_tcp' AND g.granted = 'client_program_version'"
    )
    assert len(versions) == 1
    assert "iperf 3" in versions[0]["value"]

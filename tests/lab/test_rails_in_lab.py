"""Several networks of real nodes in one campaign: eth0, and mgmt0 on another network; and one that no node has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab

CAMPAIGN = """
clusters: [alpha]
pairs: {list: [[alpha-n01, alpha-n02], [alpha-n03, alpha-n04]]}
repetitions: 1
network: [fast, control, none]
tests: [{kernel: tcp_stream, parameters: {duration_s: 300ms, warmup_s: 50ms}}]
"""


@pytest.mark.parametrize("allocation", ["pair", "whole"])
@pytest.mark.promise("A campaign measures every pair over each network that it names; one that no node has is rows.")
def test_every_pair_over_each_network(lab: RunningLab, tmp_path: Path, allocation: str) -> None:
    lab.at_rest("alpha")
    desk = Desk(tmp_path, lab)
    (desk.folder / "clusters").mkdir()
    text = lab.cluster_file("alpha").read_text()
    (desk.folder / "clusters" / "alpha.yaml").write_text(f"{text}\nnetworks: {{fast: eth0, control: mgmt0, none: ib7}}\n")
    desk.campaign(f"{CAMPAIGN}allocation: {allocation}\n")
    desk.hpcq("run", "campaign.yaml", expect=4)
    rows = desk.rows(
        "SELECT client, server, network, network_name, outcome, reason FROM v_all_results ORDER BY network, client"
    )
    measured = {(row["network"], row["network_name"], row["client"][:9]) for row in rows if row["outcome"] == "measured"}
    assert {(network, name) for network, name, _ in measured} == {("eth0", "fast"), ("mgmt0", "control")}
    assert len(measured) == 4
    lost = [row for row in rows if row["outcome"] != "measured"]
    assert {row["network"] for row in lost} == {"ib7"}
    assert len(lost) == 2
    assert all("interface ib7: no such interface" in row["reason"] for row in lost), lost
    ends = desk.rows("SELECT interface, address FROM v_ends")
    assert {(one["interface"], one["address"].startswith("10.177.")) for one in ends} == {("eth0", False), ("mgmt0", True)}
    crossed = desk.rows("SELECT DISTINCT crossed_interface FROM v_results WHERE outcome = 'measured'")
    assert crossed == [{"crossed_interface": "yes"}]
    told = json.loads(desk.hpcq("history", "--kernel", "tcp_stream", "--json").stdout)
    assert {row["network"] for row in told} == {"eth0", "mgmt0", "ib7"}, "one series for each network"

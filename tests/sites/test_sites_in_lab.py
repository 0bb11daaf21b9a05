"""What real sites limit, on the lab's Slurm: read, shown by `hpcq cluster check`, and kept by what is planned and run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import INSTANT, Desk
from tests.lab.driven_in_lab import Driven
from tests.lab.lab_fixture import RunningLab

pytestmark = pytest.mark.lab


@pytest.fixture
def narrow(lab: RunningLab) -> Iterator[RunningLab]:
    """Beta's partition lets a job have three nodes of four, for ten minutes."""
    lab.exec("beta", "scontrol", "update", "partitionname=batch", "maxnodes=3", "maxtime=10")
    yield lab
    lab.exec("beta", "scontrol", "update", "partitionname=batch", "maxnodes=unlimited", "maxtime=2:00:00")


@pytest.mark.long
def test_a_tournament_larger_than_max_nodes_is_played_in_smaller_ones(narrow: RunningLab, tmp_path: Path) -> None:
    driven = Driven(tmp_path, narrow, "beta", "pairs: all\nallocation: whole")
    assert driven.plan.notes == ("MaxNodes of partition batch is 3: jobs of 3 nodes at most",)
    driven.finish(driven.start())
    sizes = [len(event["nodes"]) for event in driven.events() if event["event"] == "attempt"]
    assert max(sizes) == 3
    assert set(driven.outcomes()) == {"completed"}
    assert driven.load()["measured_count"] == 6


def desk_of(lab: RunningLab, folder: Path, partition: str) -> Desk:
    lab.at_rest("alpha")  # the check looks at an idle node
    (folder / "clusters").mkdir()
    text = lab.cluster_file("alpha").read_text().replace("partition: main", f"partition: {partition}")
    (folder / "clusters" / "alpha.yaml").write_text(text)
    desk = Desk(folder, lab)
    desk.campaign(f"clusters: [alpha]\npairs: {{rounds: 1}}\ntests: [{INSTANT.removeprefix('- ')}]")
    return desk


@pytest.mark.long
def test_a_partition_that_does_not_let_us_in_is_named_before_anything_runs(lab: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(lab, tmp_path, "staff")
    done = desk.hpcq("plan", "campaign.yaml", expect=2)
    assert "partition staff: AllowAccounts=root: lab is not among them" in done.stderr
    found = {one["item"]: one for one in json.loads(desk.hpcq("cluster", "check", "alpha", "--json", expect=1).stdout)}
    assert not found["partition"]["ok"]
    assert "AllowAccounts=root" in found["partition"]["found"]


def test_the_check_tells_limits_interface_and_system_of_a_node(lab: RunningLab, tmp_path: Path) -> None:
    desk = desk_of(lab, tmp_path, "debug")
    found = {one["item"]: one for one in json.loads(desk.hpcq("cluster", "check", "alpha", "--json").stdout)}
    assert found["partition"]["found"] == "debug: UP; at most 600 s (MaxTime of partition debug)"
    assert found["interface"]["found"].startswith("eth0: up, 10.77.")
    assert "GLIBC" in found["node system"]["found"]
    path = tmp_path / "clusters" / "alpha.yaml"
    path.write_text(path.read_text().replace("interface: eth0", "interface: ib0"))
    found = {one["item"]: one for one in json.loads(desk.hpcq("cluster", "check", "alpha", "--json", expect=1).stdout)}
    assert not found["interface"]["ok"]
    assert "eth0" in found["interface"]["advice"]

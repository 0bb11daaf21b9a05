"""`regressions` by cause: one block per moment and per node, link or cluster, with what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history.histories import History
from tests.people.nights import PAIRS, Asked

pytestmark = pytest.mark.fast


@pytest.mark.heavy
@pytest.mark.promise("Changes of one node at one moment are one block with what differs.")
def test_one_block_per_node_moment_and_cause(ask: Asked) -> None:
    found = ask.json("regressions", "--since", "15d", expect=3)
    told = {(one["kind"], one["name"]): one for one in found["blocks"]}
    assert set(told) == {("node", "n2"), ("node", "n4"), ("series", "tcp_stream 64 KiB n1 > n3")}
    assert sum(len(one["series_ids"]) for one in found["blocks"]) == len(found["changes"])
    slow = told["node", "n2"]
    assert (len(slow["series_ids"]), slow["judged_count"]) == (8, 10)
    assert slow["ratio"] == pytest.approx(0.9, abs=0.02)
    assert slow["causes"] == ["n2: sysctl.net.core.rmem_max 4194304 > 212992"]
    assert any("reboot" in one for one in slow["events"])
    assert "n4: nic.eth0.driver mlx5_core > ice" in told["node", "n4"]["causes"]


@pytest.mark.heavy
def test_series_are_behind_all(ask: Asked) -> None:
    words = ask.words("regressions", "--since", "15d", expect=3)
    assert "worse: node alpha/n2: 8 of 10 series, -10." in words or "worse: node alpha/n2: 8 of 10 series, -9." in words
    assert "    differs         n2: sysctl.net.core.rmem_max 4194304 > 212992" in words
    assert "and 6 more series; --all shows them" in words
    assert "n1 > n3" in words
    assert "more series" not in ask.words("regressions", "--since", "15d", "--all", expect=3)


@pytest.mark.promise("A whole cluster that got slow at one moment is one block.")
@pytest.mark.heavy
def test_a_whole_cluster_is_one_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path, pairs=PAIRS[:12])
    for day in range(-12, 0):
        made.night(day, level=0.8 if day >= -5 else 1.0, noise=0.004)
    found = Asked(made.database, capsys).json("regressions", "--since", "2026-11-10", expect=3)
    assert [(one["kind"], one["name"], len(one["series_ids"])) for one in found["blocks"]] == [("cluster", "alpha", 12)]

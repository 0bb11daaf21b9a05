"""Kernels over libfabric as pair jobs of a real Slurm cluster: over tcp their bytes cross the node's own interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.campaigns_in_lab import Desk
from tests.lab.lab_fixture import RunningLab
from tests.local.desk import assert_clean

pytestmark = pytest.mark.lab

CAMPAIGN = """
clusters: [alpha]
pairs: {rounds: 1}
repetitions: 1
tests:
  - {kernel: tcp_stream, parameters: {duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: fabric_pingpong, parameters: {provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: fabric_stream, parameters: {provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: fabric_write, parameters: {provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}
  - {kernel: fabric_read, parameters: {provider: tcp, wait_by: sleep, duration_s: 200ms, warmup_s: 50ms}}
"""


@pytest.mark.long
@pytest.mark.promise("What fabric kernels move over tcp is proven to have crossed the interface, in both directions.")
def test_the_bytes_cross_the_interface(lab: RunningLab, tmp_path: Path) -> None:
    lab.at_rest("alpha")
    desk = Desk(tmp_path, lab)
    desk.campaign(CAMPAIGN)
    desk.hpcq("run", "campaign.yaml")
    rows = desk.rows("SELECT kernel, outcome, crossed_interface, count(*) AS n FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [
        (kernel, "measured", "yes", 2)
        for kernel in ("fabric_pingpong", "fabric_read", "fabric_stream", "fabric_write", "tcp_stream")
    ]
    [fastest] = desk.rows("SELECT max(value) AS bps FROM v_results WHERE kernel = 'fabric_stream'")
    assert fastest["bps"] < 400e6, "node links are shaped to 200 Mbit/s"
    assert_clean(desk.run_folder)

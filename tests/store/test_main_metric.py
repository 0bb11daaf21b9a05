"""Which metric of a kernel stands for it where one number is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast


def test_a_stream_stands_for_its_throughput_and_not_for_a_round_trip_beside_it(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    wanted = "SELECT k.name, n.name FROM kernel k JOIN metric_name n ON n.metric_name_id = k.main_metric_name_id"
    with reading(tmp_path / "results.db") as database:
        found = {str(kernel): str(metric) for kernel, metric in database.execute(wanted)}
    assert found["tcp_stream"] == "throughput_bps"

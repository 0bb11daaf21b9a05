"""The contents of the page, its filter, and the chart that kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcq.reports.plots import make_plots
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.run import load_run
from hpcq.store.query import Selection
from tests.pages.test_report import nodes_and_sizes, page_of
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast


def test_the_contents_lead_to_what_the_page_has(tmp_path: Path) -> None:
    builder = nodes_and_sizes(tmp_path)
    builder.everything()
    page = page_of(builder, tmp_path)
    linked = {value.removeprefix("#") for tag, name, value in page.attributes if tag == "a" and name == "href"}
    assert {"sizes", "nodes", "pairs", "missing", "builds"} <= linked <= set(page.ids)
    hidden = [value for tag, name, value in page.attributes if tag == "input" and name == "hidden"]
    assert len(hidden) == 1, "without JavaScript nobody sees a filter that does nothing"


def test_udp_tcp_and_mpi_share_a_chart(tmp_path: Path) -> None:
    pairs = (("n1", "n2"), ("n2", "n1"))
    kernels = ("tcp_pingpong", "udp_pingpong", "mpi_pingpong")
    tests = tuple((kernel, {"message_bytes": size}) for kernel in kernels for size in (64, 1024))
    builder = RunBuilder(tmp_path / "runs", pairs=pairs, tests=tests)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    with reading(tmp_path / "results.db") as database:
        summaries = query.summaries(database, Selection(run=builder.run_id), all_metrics=True)
    shared = [plot for plot in make_plots(summaries) if plot.title.startswith("Kernels compared")]
    assert [sorted(curve.label for curve in plot.curves) for plot in shared] == [
        ["MPI pingpong", "TCP pingpong", "UDP pingpong"]
    ]

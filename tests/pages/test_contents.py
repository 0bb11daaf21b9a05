"""The contents of the page, its filter, and the chart that kernels share."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from hpcq.reports import write_report
from hpcq.reports.plots import NODES_MAX, make_matrices, make_plots
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.selection import Selection
from tests.pages.test_report import nodes_and_sizes, page_of, summary
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast


@pytest.mark.heavy
@pytest.mark.promise("The page has contents that lead to all its parts, and a filter that only JavaScript shows.")
def test_the_contents_lead_to_what_the_page_has(tmp_path: Path) -> None:
    builder = nodes_and_sizes(tmp_path)
    builder.everything()
    page = page_of(builder, tmp_path)
    linked = {value.removeprefix("#") for tag, name, value in page.attributes if tag == "a" and name == "href"}
    assert {"sizes", "nodes", "pairs", "missing", "builds"} <= linked <= set(page.ids)
    hidden = [value for tag, name, value in page.attributes if tag == "input" and name == "hidden"]
    assert len(hidden) == 1, "without JavaScript nobody sees a filter that does nothing"


@pytest.mark.promise("Kernels of one main metric share a chart on the page: UDP, TCP and MPI beside each other.")
@pytest.mark.promise("The throughput of MPI streams stands in one chart with that of TCP and UDP, by message size.")
@pytest.mark.parametrize(("kind", "metric"), [("pingpong", "round trip p50"), ("stream", "throughput")])
def test_udp_tcp_and_mpi_share_a_chart(tmp_path: Path, kind: str, metric: str) -> None:
    pairs = (("n1", "n2"), ("n2", "n1"))
    kernels = (f"tcp_{kind}", f"udp_{kind}", f"mpi_{kind}")
    tests = tuple((kernel, {"message_bytes": size}) for kernel in kernels for size in (64, 1024))
    builder = RunBuilder(tmp_path / "runs", pairs=pairs, tests=tests)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    with reading(tmp_path / "results.db") as database:
        summaries = query.summaries(database, Selection(run=builder.run), all_metrics=True)
    shared = [plot for plot in make_plots(summaries) if plot.title.startswith("Kernels compared")]
    assert [plot.title for plot in shared] == [f"Kernels compared: {metric}"]
    assert [sorted(curve.label for curve in plot.curves) for plot in shared] == [
        [f"{name} {kind}" for name in ("MPI", "TCP", "UDP")]
    ]
    assert {row[0] for row in shared[0].rows} == {f"{name} {kind}" for name in ("MPI", "TCP", "UDP")}


@pytest.mark.promise("Where one or two pairs were measured, the band of a curve shows how their repetitions differ.")
def test_of_few_pairs_the_band_shows_their_repetitions() -> None:
    def bands(count: int) -> list[float]:
        """The heights of the band at each size."""
        group = [
            summary("n0", f"n{number}", 100.0 + number, size, lowest=50.0, highest=200.0)
            for number in range(1, count + 1)
            for size in (64, 1024)
        ]
        [plot] = make_plots(group)
        [curve] = plot.curves
        ys = [float(point.split(",")[1]) for point in curve.band.split()]
        return [lower - upper for upper, lower in zip(ys[:2], ys[:1:-1], strict=True)]

    assert min(bands(1)) > 90
    assert min(bands(2)) > 90
    assert max(bands(3)) < 10, "the pairs themselves differ by two per cent"


@pytest.mark.promise("A page of more nodes than fit shows their groups, and names the worst pair of each cell.")
def test_too_many_nodes_are_shown_by_group() -> None:
    nodes = [f"n{number:03d}" for number in range(NODES_MAX + 32)]
    leaf = {node: f"leaf s{number // 40}" for number, node in enumerate(nodes)}
    slow = leaf["n100"]
    pairs = [(nodes[i], nodes[(i + step) % len(nodes)]) for i in range(len(nodes)) for step in (1, 41, 81)]
    group = [summary(a, b, 70.0 if slow in {leaf[a], leaf[b]} else 100.0) for a, b in pairs if (a, b) != ("n000", "n001")]
    group.append(summary("n000", "n001", 50.0))
    planned = {("alpha", a, b) for a, b in pairs}
    [matrix] = make_matrices(group, planned, {("alpha", node): [name] for node, name in leaf.items()})
    assert (matrix.nodes, matrix.grouped) == (("s0", "s1", "s2", "s3"), True)
    assert matrix.title.endswith("by leaf")
    cells = {(matrix.nodes[cell.y], matrix.nodes[cell.x]): cell for cell in matrix.cells if cell.kind == "value"}
    assert {pair for pair, cell in cells.items() if cell.worse} == {
        pair for pair in cells if slow.removeprefix("leaf ") in pair
    }
    assert "39 pairs, the worst n000 to n001 with 50 bit/s" in cells["s0", "s0"].text
    [unknown] = make_matrices(group, planned)
    assert unknown.nodes[0] == "n000 to n002"
    assert len(unknown.nodes) <= 64


@pytest.mark.promise("Labels of an axis do not overlap.")
def test_labels_of_near_sizes_do_not_overlap() -> None:
    [plot] = make_plots([summary("n1", "n2", 100.0, size) for size in (1024, 1400, 65536, 1048576)])
    assert [tick.label for tick in plot.x_ticks] == ["1400 B", "64 KiB", "1 MiB"]
    places = [tick.at for tick in plot.x_ticks]
    assert min(b - a for a, b in pairwise(places)) > 50


@pytest.mark.heavy
def test_a_cluster_that_measured_nothing_has_a_row_without_a_network(tmp_path: Path) -> None:
    builder = nodes_and_sizes(tmp_path)
    builder.everything()
    builder.other_cluster("beta")
    page = page_of(builder, tmp_path)
    assert {"alpha", "beta", "eth0"} <= set(page.words)


@pytest.mark.promise("The numbers in the cells of a matrix have one unit, which stands above them.")
def test_the_numbers_of_a_matrix_have_one_unit() -> None:
    """1.09 among 172 and 231 was a round trip of 1.09 ms."""
    found = dict(zip((("n1", "n2"), ("n1", "n3"), ("n2", "n3")), (94_400.0, 1_090_000.0, 25_790.0), strict=True))
    here = [summary(*pair, value, 8, metric="round_trip_p50_ns", unit="ns", better="lower") for pair, value in found.items()]
    [matrix] = make_matrices(here, [("alpha", *pair) for pair in found])
    assert matrix.figures_in == "us"
    assert [cell.number for cell in matrix.cells if cell.kind == "value"] == ["94.4", "1090", "25.79"]


@pytest.mark.heavy
@pytest.mark.promise("The page draws node against node for any number of nodes, with names that do not overlap.")
@pytest.mark.parametrize(
    ("node_count", "named_count"),
    [(3, 3), (12, 12), (13, 13), (43, 43), (44, 22), (48, 24), (70, 35), (71, 18), (NODES_MAX, 32), (256, 32)],
)
def test_a_matrix_of_any_size_is_drawn_with_names_that_do_not_overlap(
    tmp_path: Path, node_count: int, named_count: int
) -> None:
    nodes = [f"n{number}" for number in range(1, node_count + 1)]
    builder = RunBuilder(tmp_path / "runs", pairs=tuple(pairwise(nodes)), tests=(("tcp_stream", {"message_bytes": 1024}),))
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    [matrix] = re.findall(r'<svg class="matrix".*?</svg>', text, re.DOTALL)
    rows = re.findall(r'y="([\d.]+)" text-anchor="end">(n\d+)(?: to n\d+)?<', matrix)
    assert [name for _, name in rows] == nodes[:: -(-node_count // named_count)]
    assert min(float(lower) - float(upper) for (upper, _), (lower, _) in pairwise(rows)) >= 12

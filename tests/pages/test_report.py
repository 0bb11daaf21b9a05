"""The page of a run, and rows on a terminal."""

from __future__ import annotations

import io
import itertools
import json
import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hpcq.cli.output import Column, outcome_style, print_rows
from hpcq.errors import StoreError, UserError
from hpcq.reports import write_report
from hpcq.reports.plots import make_matrices, make_plots, plots_under_load
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.load.cluster import load_run
from hpcq.store.query import Summary
from hpcq.store.selection import Selection, find_run
from tests.store.run_folders import RunBuilder

pytestmark = pytest.mark.fast

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks nesting and gathers what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(builder: RunBuilder, tmp_path: Path) -> Page:
    database = tmp_path / "results.db"
    load_run(database, builder.path)
    write_report(database, builder.run, builder.folder.report)
    path = builder.folder.report
    assert path == builder.folder.report
    text = path.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    outside = [
        (tag, name, value) for tag, name, value in page.attributes if name in {"src", "href"} and not value.startswith("#")
    ]
    assert outside == []
    assert not {"link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("script") == 1, "its own, for the filter"
    assert "url(http" not in text
    assert "@import" not in text
    assert str(tmp_path) not in text
    return page


def nodes_and_sizes(tmp_path: Path) -> RunBuilder:
    pairs = tuple(itertools.permutations(("n1", "n2", "n10"), 2))
    tests = tuple(("tcp_stream", {"message_bytes": size}) for size in (64, 1024, 65536))
    return RunBuilder(tmp_path / "runs", pairs=pairs, tests=(*tests, ("tcp_pingpong", {"message_bytes": 1})))


@pytest.mark.heavy
def test_a_complete_run(tmp_path: Path) -> None:
    builder = nodes_and_sizes(tmp_path)
    builder.everything()
    page = page_of(builder, tmp_path)
    assert "Coverage: complete. 72 results planned: 72 measured." in page.text
    assert "Nothing: every planned result was measured." in page.text
    assert "nightly, 2026-11-21 01:59 UTC: hpcq report" in page.text
    for words in ("TCP stream: throughput", "64 KiB", "hpcq-net 1.0.0", "cc (Debian 12.2.0-14) 12.2.0", "n1 to n9"):
        assert words in page.text, words
    assert page.text.index("n2 n10") > 0  # in the order a person counts
    named = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-labelledby"]
    assert len(named) >= 4
    assert all(one in page.ids for value in named for one in value.split())


def test_an_incomplete_run_says_what_and_why(tmp_path: Path) -> None:
    builder = nodes_and_sizes(tmp_path)
    builder.attempt("j00001")
    builder.write_line("j00001", 1, (1, 1), builder.line("j00001", (1, 1), valid=False, invalid_reason="too short"), rc=1)
    builder.submit("j00002")
    builder.end("j00002", 1, "timed_out", "the scheduler says TIMEOUT")
    builder.journal("not_run", job="j00003", pair=["n2", "n1"], reason="not idle for 60 s")
    page = page_of(builder, tmp_path)
    assert "Coverage: incomplete. 72 results planned: 11 measured, 1 invalid, 60 not measured." in page.text
    for words in ("too short", "attempt 1 timed_out: the scheduler says TIMEOUT", "not run: not idle for 60 s", "timed out"):
        assert words in page.text, words
    assert "pending: not submitted yet" in page.text
    assert "still open" in page.text


def test_nothing_measured_at_all(tmp_path: Path) -> None:
    page = page_of(RunBuilder(tmp_path / "runs"), tmp_path)
    for words in ("Nothing was measured.", "Nothing was submitted.", "No build brought a result."):
        assert words in page.text


@pytest.mark.heavy
def test_a_slow_node_stands_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = RunBuilder(tmp_path / "runs", pairs=tuple(itertools.permutations(("n1", "n2", "n3", "n4", "n5"), 2)))
    fast = RunBuilder.line

    def line(self: RunBuilder, job_id: str, step: tuple[int, int], **changed: Any) -> dict[str, Any]:
        made = fast(self, job_id, step, **changed)
        if "n4" in self.pairs[int(job_id[1:]) - 1] and "throughput_bps" in made["metrics"]:
            made["metrics"]["throughput_bps"] *= 0.6
        return made

    monkeypatch.setattr(RunBuilder, "line", line)
    builder.everything()
    page = page_of(builder, tmp_path)
    assert "Worth a look" in page.text
    assert "alpha: n4 is an end of 8 of these 8 pairs." in page.text


@pytest.mark.heavy
def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    builder = RunBuilder(tmp_path / "runs", campaign=name, pairs=(("n1", "n2"), ("n2", "{{ 7*7 }}"), ("n3\"'&", "n1")))
    builder.submit("j00001")
    builder.measure("j00001")
    builder.end("j00001", 1, "failed", "<img src=x>")
    page = page_of(builder, tmp_path)
    assert name in page.text
    assert "{{ 7*7 }}" in page.text
    assert "<img src=x>" in page.text


def test_a_run_that_is_not_loaded(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    with pytest.raises(StoreError, match="there is no database"):
        write_report(tmp_path / "results.db", builder.run, builder.folder.report)
    load_run(tmp_path / "results.db", builder.path)
    with pytest.raises(UserError, match="'other' is not a run"):
        write_report(tmp_path / "results.db", "other", builder.folder.report)


# -- geometry ----------------------------------------------------------------------------------------------------------


def summary(client: str, server: str, median: float, message_bytes: int | None = 64, **changed: Any) -> Summary:
    fields: dict[str, Any] = {
        "cluster": "alpha",
        "kernel": "k",
        "network": "eth0",
        "variant": "",
        "metric": "throughput_bps",
        "unit": "bps",
        "better": "higher",
    }
    fields |= {"main": True, "n": 3, "lowest": median, "highest": median, "disturbed_count": 0, **changed}
    return Summary(client=client, server=server, median=median, message_bytes=message_bytes, **fields)


@pytest.mark.parametrize("values", [[0.0, 0.0], [-5.0, 3.0], [1e-9, 1e12], [7.0], [5.0, 5.0], [1e-300, 2e-300], [1e308, 1e307]])
@pytest.mark.parametrize("sizes", [(64, 64), (64, 1024), (None, None), (1, 2**40), (0, 8), (0, 0)])
def test_every_plot_stays_within_its_frame(values: list[float], sizes: tuple[int | None, ...]) -> None:
    group = [summary("n1", f"n{number}", value, size) for number, value in enumerate(values) for size in sizes]
    for plot in make_plots(group):
        for curve in plot.curves:
            points = [tuple(map(float, point.split(","))) for point in f"{curve.line} {curve.band}".split()]
            points += [(dot.x, dot.y) for dot in curve.dots]
            assert all(0 <= x <= 520 and 0 <= y <= plot.height for x, y in points)
        assert 1 <= len(plot.x_ticks) <= 12
        assert all(tick.label for tick in plot.x_ticks)


def test_a_curve_rises_to_the_left_edge_of_its_table() -> None:
    sizes = [2**power for power in range(6, 21)]
    [plot] = make_plots([summary("n1", "n2", size * 1e3, size) for size in sizes])
    assert plot.kind == "curve"
    assert "logarithmic" in plot.y_label
    [curve] = plot.curves
    ys = [float(point.split(",")[1]) for point in curve.line.split()]
    assert ys == sorted(ys, reverse=True)  # more is higher, and SVG counts downwards
    assert [row[1] for row in plot.rows][:2] == ["64 B", "128 B"]


@pytest.mark.promise("A message of 0 bytes is a size like any other, on curves and in titles.")
def test_no_bytes_is_a_size(tmp_path: Path) -> None:
    summaries = [
        summary("n1", "n2", 10.0 + size, size, metric="round_trip_p50_ns", unit="ns", better="lower") for size in (0, 8, 64)
    ]
    (plot,) = make_plots(summaries)
    assert (plot.kind, [tick.label for tick in plot.x_ticks]) == ("curve", ["0 B", "8 B", "64 B"])
    assert [row[1] for row in plot.rows] == ["0 B", "8 B", "64 B"]
    (strip,) = make_plots(summaries[:1])
    assert strip.title.endswith(" at 0 B")
    assert "0 B" in strip.curves[0].dots[0].text


def test_no_bytes_stands_on_the_page_and_in_the_database(tmp_path: Path) -> None:
    tests = tuple(("mpi_pingpong", {"message_bytes": size}) for size in (0, 8, 64))
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"),), tests=tests)
    builder.everything()
    page = page_of(builder, tmp_path)
    assert "MPI pingpong: round trip p50" in page.text
    assert page.text.count("0 B ") >= 3  # an axis, a table of figures, a matrix or its dots
    with reading(tmp_path / "results.db") as database:
        sizes = [row[0] for row in database.execute("SELECT DISTINCT message_bytes FROM v_results ORDER BY 1")]
    assert sizes == [0, 8, 64]


@pytest.mark.promise("The page draws the round trips of a companion before, beside and after its stream.")
def test_latency_under_load_is_a_picture() -> None:
    of: dict[str, Any] = {"kernel": "tcp_stream", "unit": "ns", "better": "lower", "main": False}
    times = {("idle", "p50"): 1e5, ("idle", "p99"): 2e5, ("loaded", "p50"): 5e6, ("loaded", "p99"): 9e6, ("after", "p50"): 1e5}
    group = [
        summary("n1", server, value * factor, metric=f"{phase}_round_trip_{quantile}_ns", **of)
        for (phase, quantile), value in times.items()
        for server, factor in (("n2", 1.0), ("n3", 1.2))
    ]
    [plot] = plots_under_load([*group, summary("n1", "n2", 1e9, kernel="tcp_stream")])
    assert [tick.label for tick in plot.x_ticks] == ["before", "beside", "after"]
    assert [curve.label for curve in plot.curves] == ["alpha, p50", "alpha, p99"]
    heights = [float(point.split(",")[1]) for point in plot.curves[0].line.split()]
    assert heights[1] < heights[0] == heights[2], "beside the stream it takes longer; SVG counts downwards"
    assert [len(curve.dots) for curve in plot.curves] == [6, 4]
    assert plot.rows[1][0] == "alpha, p50, beside the stream"
    assert plot.rows[1][2:] == ("5.5 ms", "5 ms", "6 ms", 2)
    known = {("idle", "p99"): 2e5, ("after", "p99"): 2e5}
    ends = [
        summary("n1", "n2", value, metric=f"{phase}_round_trip_{quantile}_ns", **of)
        for (phase, quantile), value in known.items()
    ]
    [curve] = plots_under_load(ends)[0].curves
    assert (curve.line, len(curve.dots)) == ("", 2), "no line crosses a phase without a value"
    assert plots_under_load([summary("n1", "n2", 1e9)]) == []


def test_many_pairs_keep_their_outliers() -> None:
    group = [summary("n1", f"n{number}", 100.0 + number % 7) for number in range(900)]
    [plot] = make_plots([*group, summary("n1", "bad", 10.0), summary("n1", "n2", 200.0, 128)])
    texts = [dot.text for curve in plot.curves for dot in curve.dots]
    assert len(texts) < 60
    assert any("bad" in text for text in texts)


def test_a_matrix_knows_better_from_worse_and_missing_from_unplanned() -> None:
    planned = {("alpha", a, b) for a, b in itertools.permutations(("n1", "n2", "n3"), 2)} - {("alpha", "n3", "n1")}
    group = [summary("n1", "n2", 100.0), summary("n2", "n1", 60.0), summary("n2", "n3", 130.0), summary("n1", "n3", 100.0)]
    [matrix] = make_matrices(group, planned)
    cells = {(matrix.nodes[cell.y], matrix.nodes[cell.x]): cell for cell in matrix.cells}
    assert (cells["n2", "n1"].worse, cells["n2", "n1"].strength) == (True, 1.0)
    assert (cells["n2", "n3"].worse, cells["n2", "n3"].kind) == (False, "value")
    assert [cells[pair].kind for pair in (("n3", "n2"), ("n3", "n1"), ("n1", "n1"))] == ["missing", "absent", "self"]
    assert "-40.0% from the median" in cells["n2", "n1"].text
    latency = [summary(one.client, one.server, one.median, better="lower", unit="ns") for one in group]
    [matrix] = make_matrices(latency, planned)
    assert next(cell for cell in matrix.cells if "n2 to n3" in cell.text).worse


def test_names_above_a_matrix_stand_upright_where_they_would_overlap() -> None:
    """alpha-n01 above columns of 44 px was not legible."""
    for names, lie in ((("n1", "n2", "n3"), True), (("alpha-n01", "alpha-n02", "alpha-n03"), False)):
        group = [summary(names[0], names[1], 100.0), summary(names[1], names[2], 90.0)]
        [matrix] = make_matrices(group, {("alpha", a, b) for a, b in itertools.permutations(names, 2)})
        assert (matrix.names_lie, matrix.cell_px >= 40) == (lie, True)


def test_a_plan_of_one_direction_has_one_cell_per_pair() -> None:
    planned = {("alpha", "n1", "n2"), ("alpha", "n3", "n1"), ("alpha", "n2", "n3")}
    group = [summary("n1", "n2", 100.0), summary("n3", "n1", 60.0)]
    [matrix] = make_matrices(group, planned)
    assert len(matrix.cells) == 6
    assert [cell.text[:8] for cell in matrix.cells if cell.kind == "value"] == ["n1 to n2", "n3 to n1"]
    assert [cell.kind for cell in matrix.cells].count("missing") == 1


# -- queries and rows -------------------------------------------------------------------------------------------------


def test_summaries_name_what_differs_beside_the_size(tmp_path: Path) -> None:
    tests = tuple(("udp_stream", {"message_bytes": 1400, "rate_bps": rate}) for rate in (10**7, 10**8))
    builder = RunBuilder(tmp_path / "runs", tests=tests)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    with reading(tmp_path / "results.db") as connection:
        rows = query.summaries(connection, Selection(run=builder.run))
        assert {row.variant for row in rows} == {"rate_bps=10 Mbit/s", "rate_bps=100 Mbit/s"}
        assert {(row.n, row.size_text, row.metric) for row in rows} == {(3, "1400 B", "throughput_bps")}
        assert len(query.summaries(connection, Selection(), metric="lost_ratio")) == 4
        assert query.summaries(connection, Selection(node="n3")) == []
        assert len(query.results(connection, Selection(client="n1", outcome="measured"))) == 6
        with pytest.raises(UserError, match="99 is not a result"):
            query.detail(connection, 99)


def test_runs_are_found_by_name_beginning_and_campaign(tmp_path: Path) -> None:
    database = tmp_path / "results.db"
    for run_id, campaign in (("a-20261101T000000Z-0000", "a"), ("a-20261102T000000Z-0000", "a"), ("ab-2-0", "ab")):
        builder = RunBuilder(tmp_path / "runs", run=run_id, campaign=campaign)
        load_run(database, builder.path)
    with reading(database) as connection:
        assert find_run(connection, None) == "ab-2-0"
        assert find_run(connection, "a") == "a-20261102T000000Z-0000"
        assert find_run(connection, "a-20261101") == "a-20261101T000000Z-0000"
        with pytest.raises(UserError, match="begins the name of 2 runs"):
            find_run(connection, "a-2026")
        with pytest.raises(UserError, match="'zzz' is not a run") as raised:
            find_run(connection, "zzz")
        assert "ab-2-0" in str(raised.value.hint)


ROWS = [
    {"client": "n1", "median": 1.2e8, "unit": "bps", "outcome": "measured", "started_utc": "2026-11-21T02:00:00.5Z"},
    {"client": "[red]n2\t\nx", "median": None, "unit": "bps", "outcome": "failed", "started_utc": None},
]
COLUMNS = [
    Column("client"),
    Column("median", unit_field="unit"),
    Column("outcome", style=outcome_style),
    Column("started_utc", head="started (UTC)"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rows_for_a_pipe_a_program_and_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    print_rows(ROWS, COLUMNS, file=pipe)
    assert pipe.getvalue() == (
        "client\tmedian\toutcome\tstarted (UTC)\nn1\t120 Mbit/s\tmeasured\t2026-11-21 02:00:00\n[red]n2 x\t\tfailed\t\n"
    )
    program = io.StringIO()
    print_rows(ROWS, COLUMNS, as_json=True, file=program)
    assert json.loads(program.getvalue()) == ROWS
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    person = Terminal()
    print_rows(ROWS, COLUMNS, file=person)
    assert "120 Mbit/s" in person.getvalue()
    assert "[red]n2" in person.getvalue()  # a name is never markup
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    print_rows(ROWS, COLUMNS, file=plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.getvalue())
    nothing = Terminal()
    print_rows([], COLUMNS, empty="no results", file=nothing)
    assert nothing.getvalue() == "no results\n"


@pytest.mark.promise("No page proposes as a baseline what was measured beside other work only.")
def test_what_was_measured_beside_other_work_only_is_no_baseline(tmp_path: Path) -> None:
    made = nodes_and_sizes(tmp_path)
    made.everything()
    database = tmp_path / "results.db"
    load_run(database, made.path)
    write_report(database, made.run, tmp_path / "page.html")
    assert "hpcq baseline set good" in (tmp_path / "page.html").read_text("utf-8")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE result SET disturbed = 1")
    write_report(database, made.run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "hpcq baseline set" not in page
    assert f"hpcq results {made.run} --findings" in page

"""The page of a run in a real browser: filter, hover, dark, paper, a phone's width."""

from __future__ import annotations

import base64
import itertools
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcq.reports import write_report
from hpcq.store.load.cluster import load_run
from tests.pages.browser import DESK, PHONE, Browser, Tab, Window, browsing
from tests.pages.test_report import nodes_and_sizes
from tests.store.run_folders import RunBuilder, described_kernels, parameters_of

WINDOWS = pytest.mark.parametrize("window", [DESK, PHONE], ids=["desk", "phone"])

#: Types words into the filter as a person does; the rows of results that are left.
_TYPE = """(words) => { filter.value = words; filter.dispatchEvent(new Event("input"));
  return [...document.querySelectorAll("#pairs ~ details tbody tr")].filter((row) => !row.hidden)
    .map((row) => [row.cells[0].textContent, row.cells[1].textContent].sort().join(" ")); }"""
#: What the pointer is over at the middle of the first such mark: the text shown there.
_UNDER = """(wanted) => {
  const mark = document.querySelector(wanted);
  for (let one = mark; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  mark.scrollIntoView({block: "center"});
  const box = mark.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  for (let one = hit; one && one.tagName !== "svg"; one = one.parentElement) {
    const title = [...one.children].find((child) => child.tagName === "title");
    if (title) return title.textContent;
  }
  return ""; }"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with three nodes and several sizes."""
    folder = tmp_path_factory.mktemp("page")
    builder = nodes_and_sizes(folder)
    builder.everything()
    load_run(folder / "results.db", builder.path)
    write_report(folder / "results.db", builder.run, folder / "page.html")
    return (folder / "page.html").as_uri()


@WINDOWS
@pytest.mark.promise("No page of hpcq makes a browser complain, or is wider than a phone.")
def test_a_browser_has_nothing_to_complain_of(browser: Browser, page: str, window: Window) -> None:
    tab = Tab(browser, page, window)
    tab.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert tab.js("document.documentElement.scrollWidth") <= window[0]
    assert tab.complaints == []
    tab.close()


@WINDOWS
@pytest.mark.promise("The verdict of a page stands on its first screen, also on a phone.")
def test_the_verdict_is_on_the_first_screen(browser: Browser, page: str, window: Window) -> None:
    tab = Tab(browser, page, window)
    box = tab.js("document.querySelector('.verdict').getBoundingClientRect().toJSON()")
    assert 0 <= box["top"] < box["bottom"] <= window[1]
    tab.close()


def test_a_page_that_is_wrong_is_found_out(browser: Browser, tmp_path: Path) -> None:
    """The checks of this file can fail."""
    wrong = tmp_path / "wrong.html"
    wrong.write_text("<!DOCTYPE html><div style='width:900px'>wide</div><script>nobody.home()</script>", "utf-8")
    tab = Tab(browser, wrong.as_uri(), PHONE)
    assert tab.js("document.documentElement.scrollWidth") > PHONE[0]
    assert "nobody is not defined" in str(tab.complaints)
    tab.close()


def test_the_filter_leaves_only_rows_with_all_words(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    every = tab.js(f"({_TYPE})('')")
    found = tab.js(f"({_TYPE})('n2 n10')")
    assert set(found) == {"n10 n2"}
    assert len(tab.js(f"({_TYPE})('')")) == len(every) > len(found)
    tab.close()


@pytest.mark.promise("The pointer over a cell of a matrix shows pair, value and deviation.")
def test_the_pointer_shows_what_is_under_it(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    cell = tab.js(f"({_UNDER})('svg.matrix rect.cell.value')")
    assert re.search(r"n\d+ to n\d+: .* from the median, n = 3\)", cell), cell
    mark = tab.js(f"({_UNDER})('#sizes ~ details .dot')")
    assert re.search(r"alpha: n\d+ to n\d+, .* \(n = 3\)", mark), mark
    tab.close()


@pytest.mark.promise("A page whose filter fits no row says so, and its address keeps the filter.")
def test_a_filter_that_fits_nothing_says_so_and_stands_in_the_address(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    assert tab.js(f"({_TYPE})('nobody')") == []
    assert tab.js("nothing.textContent") == "No row has: nobody"
    tab.js(f"({_TYPE})('n2 n10')")
    assert tab.js("nothing.textContent") == ""
    dimmed = tab.js("[...document.querySelectorAll('svg.matrix g.off title')].map((one) => one.textContent)")
    assert dimmed
    assert not any(words.startswith(("n2 to n10", "n10 to n2")) for words in dimmed), "pictures follow"
    tab.go(tab.js("location.href"))
    assert tab.js("filter.value") == "n2 n10"
    assert tab.js("[...document.querySelectorAll('#pairs ~ details tbody tr')].some((row) => row.hidden)")
    tab.close()


@pytest.mark.promise("A table of a page is sorted by the head of a column, by mouse and by keyboard, and values by their size.")
def test_a_table_sorts_by_the_head_of_a_column(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    table = "[...document.querySelectorAll('#pairs ~ details table')][0]"
    tab.js(f"{table}.closest('details').open = true")
    values = f"[...{table}.tBodies[0].rows].map((row) => Number(row.querySelector('td[data-v]').dataset.v))"
    head = f"[...{table}.tHead.rows[0].cells].find((one) => one.textContent === 'median')"
    tab.js(f"{head}.querySelector('button').focus()")
    tab.key("Enter", 13)
    found = tab.js(values)
    assert found == sorted(found)
    assert len(set(found)) > 3
    assert tab.js(f"{head}.getAttribute('aria-sort')") == "ascending"
    tab.key("Enter", 13)
    assert tab.js(values) == sorted(found, reverse=True)
    tab.close()


@pytest.mark.promise("On a phone the text of every picture of a page is at least 11 pixels high.")
def test_the_text_of_pictures_can_be_read_on_a_phone(browser: Browser, page: str) -> None:
    tab = Tab(browser, page, PHONE)
    tab.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    heights = tab.js(
        "[...document.querySelectorAll('main svg text')].map((one) => parseFloat(getComputedStyle(one).fontSize)"
        " * one.ownerSVGElement.getBoundingClientRect().width / one.ownerSVGElement.viewBox.baseVal.width)"
    )
    assert len(heights) > 20
    assert min(heights) >= 11
    tab.close()


def test_a_link_to_what_is_folded_opens_it(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    assert not tab.js("document.getElementById('attempts').open")
    tab.js("document.querySelector('nav a[href=\"#builds\"]').click()")
    assert tab.js("new Promise((done) => setTimeout(() => done(document.getElementById('attempts').open), 50))")
    tab.close()


@pytest.mark.promise("What the pages of hpcq say stands out from its ground by 4.5 to 1, by day and by night.")
@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_from_their_ground(browser: Browser, page: str, dark: bool) -> None:
    tab = Tab(browser, page, dark=dark)
    worst = tab.js("""(() => {
      const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
        .map((one) => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
      const ground = (one) => { for (; one; one = one.parentElement) {
        const colour = getComputedStyle(one).backgroundColor; if (!/, 0\\)|transparent/.test(colour)) return colour; } };
      let worst = [99, ""];
      for (const one of document.querySelectorAll("p, td, th, li, a, b, summary, code")) {
        const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < worst[0]) worst = [(a + .05) / (b + .05), one.outerHTML.slice(0, 80)];
      }
      return worst; })()""")
    assert worst[0] >= 4.5, worst
    tab.close()


@WINDOWS
@pytest.mark.promise("The demo's page is under 4,000 pixels high, on a desk and on a phone.")
def test_a_page_of_every_kernel_is_short(browser: Browser, tmp_path: Path, window: Window) -> None:
    tests = [(kernel, {"message_bytes": size}) for kernel in ("tcp_pingpong", "mpi_pingpong") for size in (1, 64, 1024, 16384)]
    tests += [("tcp_stream", {"message_bytes": size}) for size in (4096, 131072)]
    others = [name for name in described_kernels() if name not in {"tcp_pingpong", "mpi_pingpong", "tcp_stream"}]
    tests += [(name, {}) for name in others if "message_bytes" in parameters_of(name)]
    builder = RunBuilder(tmp_path / "runs", pairs=(("n1", "n2"),), tests=tests, repetition_count=1)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    tab = Tab(browser, (tmp_path / "page.html").as_uri(), window)
    assert tab.js("document.documentElement.scrollHeight") < 4000
    assert tab.complaints == []
    tab.close()


@pytest.mark.promise("The page of a run that measures suspects again shows the whole cluster, against what it gave before.")
def test_a_run_of_suspects_shows_the_whole_cluster(browser: Browser, tmp_path: Path) -> None:
    last = measured_again(tmp_path)
    write_report(tmp_path / "results.db", last, tmp_path / "page.html")
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    cells = tab.js("[...document.querySelectorAll('#nodes svg.matrix')][0].querySelectorAll('rect.cell.value').length")
    assert cells == 5 * 4, "every pair of the five nodes, not the last four"
    bad = tab.js(
        "[...document.querySelectorAll('#nodes svg.matrix')[0].querySelectorAll('rect.worse')]"
        ".filter((one) => one.getAttribute('fill-opacity') > .6).map((one) => one.parentElement.textContent.trim())"
    )
    assert len(bad) == 8, "those of n4, measured again or not"
    assert all("n4" in words and "from what is expected" in words for words in bad)
    assert "alpha/n4 is worse than" in tab.js("document.querySelector('.verdict').textContent")
    assert "baseline set" not in tab.js("document.querySelector('.todo').textContent")
    top = tab.js("document.querySelector('#nodes svg.matrix').getBoundingClientRect().top")
    assert top < DESK[1], "on the first screen"
    tab.close()


@pytest.mark.promise("Where all earlier runs were measured beside other work, the page of a run is still held against them.")
def test_runs_beside_other_work_say_what_is_expected(tmp_path: Path) -> None:
    last = measured_again(tmp_path)
    with closing(sqlite3.connect(tmp_path / "results.db")) as database, database:
        database.execute("UPDATE result SET disturbed = 1")
    write_report(tmp_path / "results.db", last, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Mbit/s: the cluster&#39;s earlier runs of this campaign (1)" in page


def measured_again(tmp_path: Path) -> str:
    """A run over five nodes of which n4 is slow, and half an hour later one of n4 with two others; returns the last."""
    names = ("n1", "n2", "n3", "n4", "n5")
    tests = (("tcp_stream", {"message_bytes": 65536}),)
    for run, at, pairs in (
        ("nightly-20261121T020000Z-00ff", "02:00", tuple(itertools.permutations(names, 2))),
        ("nightly-20261121T023000Z-00aa", "02:30", (("n4", "n1"), ("n1", "n4"), ("n4", "n2"), ("n2", "n4"))),
    ):
        builder = SlowN4(tmp_path / "runs", pairs=pairs, tests=tests, run=run, repetition_count=2)
        known = json.loads(builder.folder.run_json.read_text())
        builder.folder.run_json.write_text(json.dumps({**known, "created_utc": f"2026-11-21T{at}:00.000000Z"}))
        builder.everything()
        load_run(tmp_path / "results.db", builder.path)
    return builder.run


class SlowN4(RunBuilder):
    """All throughput with n4 is 40 % lower."""

    def line(self, job_id: str, step: tuple[int, int], **changed: Any) -> dict[str, Any]:
        made = super().line(job_id, step, **changed)
        if "n4" in self.pairs[int(job_id[1:]) - 1]:
            made["metrics"]["throughput_bps"] *= 0.6
        return made


@pytest.mark.promise("On paper the page has no navigation, and no figure is cut in two.")
@pytest.mark.promise("On paper no column of a table is cut off.")
def test_paper_has_no_navigation_and_breaks_no_figure(browser: Browser, page: str) -> None:
    tab = Tab(browser, page)
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.js("getComputedStyle(document.querySelector('figure')).breakInside") == "avoid"
    assert tab.js("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert tab.js("document.documentElement.scrollWidth") <= DESK[0]
    paper = base64.b64decode(tab.call("Page.printToPDF")["data"])
    assert len(re.findall(rb"/Type /Page\b", paper)) >= 2
    assert b"/FontFile" in paper, "text, and not a picture of it"
    tab.close()


def test_the_page_is_dark_where_the_reader_is(browser: Browser, page: str) -> None:
    for dark, ground in ((False, "rgb(255, 255, 255)"), (True, "rgb(20, 24, 29)")):
        tab = Tab(browser, page, dark=dark)
        assert tab.js("getComputedStyle(document.body).backgroundColor") == ground
        tab.close()


@pytest.mark.promise("On a phone the prose of a table stands within the window.")
def test_prose_stands_within_a_phone(browser: Browser, page: str) -> None:
    tab = Tab(browser, page, PHONE)
    assert tab.js("document.querySelector('table.told td.long').getBoundingClientRect().right") <= PHONE[0]
    tab.close()

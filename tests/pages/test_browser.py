"""The page of a run in a real browser: filter, hover, dark, paper, a phone's width."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcq.reports import write_report
from hpcq.store.load.cluster import load_run
from tests.pages.browser import DESK, PHONE, Browser, Tab, Window, browsing
from tests.pages.test_report import nodes_and_sizes

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
    return write_report(folder / "results.db", builder.run, folder / "page.html").as_uri()


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
    mark = tab.js(f"({_UNDER})('#sizes ~ .figures .dot')")
    assert re.search(r"alpha: n\d+ to n\d+, .* \(n = 3\)", mark), mark
    tab.close()


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

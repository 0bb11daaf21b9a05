"""The page of a run in a real browser: filter, hover, dark, paper, a phone's width. `make test-long` installs chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hpcq.reports import write_report
from hpcq.store.load.cluster import load_run
from tests.pages.test_report import nodes_and_sizes

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.long

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
          "--allow-file-access-from-files")  # fmt: skip
#: Types words into the filter as a person does, and writes what is seen into an attribute that --dump-dom shows.
_LOOK = """<script>
const seen = {width: document.documentElement.clientWidth, wide: document.documentElement.scrollWidth,
  background: getComputedStyle(document.body).backgroundColor, filter: !filter.hidden};
const rows = () => [...document.querySelectorAll("#pairs ~ details tbody tr")].filter((row) => !row.hidden);
const type = (words) => { filter.value = words; filter.dispatchEvent(new Event("input")); return rows(); };
seen.all = rows().length;
seen.found = type("n2 n10").map((row) => [row.cells[0].textContent, row.cells[1].textContent].sort().join(" "));
seen.again = type("").length;
// What the pointer is over at the middle of the first cell of a matrix and of the first mark of a curve: the text shown there.
const under = (mark) => {
  mark.scrollIntoView({block: "center"});
  const box = mark.getBoundingClientRect();
  const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  for (let one = hit; one && one.tagName !== "svg"; one = one.parentElement) {
    const title = [...one.children].find((child) => child.tagName === "title");
    if (title) return title.textContent;
  }
  return "";
};
seen.cell = under(document.querySelector("svg.matrix rect.cell.value"));
// Of the first row of prose: how far its longest text reaches beyond the window.
const prose = document.querySelector("table.told td.long").getBoundingClientRect();
seen.beyond = Math.max(0, prose.right - document.documentElement.clientWidth);
seen.mark = under(document.querySelector("#sizes ~ .figures .dot"));
// The browser's own rules for paper, applied to the screen.
const paper = [...document.styleSheets[0].cssRules].filter((rule) => rule.media && rule.media.mediaText === "print");
for (const rule of paper) rule.media.mediaText = "all";
seen.printed = {nav: getComputedStyle(document.querySelector("nav")).display,
  figure: getComputedStyle(document.querySelector("figure")).breakInside,
  cut: getComputedStyle(document.querySelector(".scroll")).overflowX,
  wide: document.documentElement.scrollWidth > document.documentElement.clientWidth};
document.body.dataset.seen = JSON.stringify(seen);
</script></body>"""
_PHONE = """<iframe id="page" src="page.html" style="width:420px;height:900px;border:0"></iframe>
<script>page.onload = () => { document.body.dataset.seen = page.contentDocument.body.dataset.seen; }</script>"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with three nodes, and a script at its end that uses it."""
    builder = nodes_and_sizes(tmp_path)
    builder.everything()
    load_run(tmp_path / "results.db", builder.path)
    path = write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    path.write_text(path.read_text("utf-8").replace("</body>", _LOOK), "utf-8")
    return path


def seen(path: Path, *flags: str) -> Any:
    """What the script at the end of the page saw."""
    assert BROWSER, "no chromium here: tools/packages test-long installs it"
    argv = [str(BROWSER), *_FLAGS, f"--user-data-dir={path.parent}/profile", *flags, "--dump-dom", path.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stdout[-2000:]
    return json.loads(unescape(found.group(1)))


def test_the_filter_leaves_only_rows_with_all_words(page: Path) -> None:
    found = seen(page)
    assert found["filter"] is True
    assert set(found["found"]) == {"n10 n2"}
    assert found["all"] == found["again"] > len(found["found"])


@pytest.mark.promise("The pointer over a cell of a matrix shows pair, value and deviation.")
def test_the_pointer_shows_what_is_under_it(page: Path) -> None:
    found = seen(page)
    assert re.search(r"n\d+ to n\d+: .* from the median, n = 3\)", found["cell"]), found["cell"]
    assert re.search(r"alpha: n\d+ to n\d+, .* \(n = 3\)", found["mark"]), found["mark"]


@pytest.mark.promise("On paper the page has no navigation, and no figure is cut in two.")
@pytest.mark.promise("On paper no column of a table is cut off.")
def test_paper_has_no_navigation_and_breaks_no_figure(page: Path) -> None:
    assert seen(page)["printed"] == {"nav": "none", "figure": "avoid", "cut": "visible", "wide": False}


def test_a_printed_page_has_pages_and_text(page: Path) -> None:
    paper = page.with_name("page.pdf")
    argv = [str(BROWSER), *_FLAGS, f"--user-data-dir={page.parent}/profile", f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(argv, capture_output=True, timeout=120, check=True)
    found = paper.read_bytes()
    assert found.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", found)) >= 2
    assert b"/FontFile" in found, "text, and not a picture of it"


def test_the_page_is_dark_where_the_reader_is(page: Path) -> None:
    assert seen(page)["background"] == "rgb(255, 255, 255)"
    assert seen(page, "--blink-settings=preferredColorScheme=0")["background"] == "rgb(20, 24, 29)"


@pytest.mark.promise("On a phone the prose of a table stands within the window.")
def test_nothing_is_wider_than_a_phone(page: Path) -> None:
    phone = page.with_name("phone.html")
    phone.write_text(_PHONE)
    found = seen(phone)
    assert found["width"] <= 420
    assert found["wide"] == found["width"]
    assert found["beyond"] == 0, "prose in a table stands within the window"

"""The page of a run in a real browser: filter, dark, a phone's width. `make test-long` installs chromium."""

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
from hpcq.store.load.run import load_run
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
    path = write_report(tmp_path / "results.db", builder.run_id, tmp_path / "page.html")
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


def test_the_page_is_dark_where_the_reader_is(page: Path) -> None:
    assert seen(page)["background"] == "rgb(255, 255, 255)"
    assert seen(page, "--blink-settings=preferredColorScheme=0")["background"] == "rgb(20, 24, 29)"


def test_nothing_is_wider_than_a_phone(page: Path) -> None:
    phone = page.with_name("phone.html")
    phone.write_text(_PHONE)
    found = seen(phone)
    assert found["width"] <= 420
    assert found["wide"] == found["width"]

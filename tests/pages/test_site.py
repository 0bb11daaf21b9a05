"""The documentation as a site: strict, every page in its navigation, nothing loaded from elsewhere."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import REPOSITORY
from tests.pages.browser import Browser, Tab, browsing

#: For those who change hpcq: in the repository, not on the site.
INTERNAL = {Path("promises.html")}
#: What MkDocs reads.
SOURCES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "mkdocs.yml",
    "docs",
    "tools",
    "campaigns",
    "bench/results",
    "packaging",
    "tests/plugins",
)


def built(root: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    argv = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--config-file",
        str(root / "mkdocs.yml"),
        "--site-dir",
        str(root / "site"),
    ]
    return subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, built; what git would not have is left out."""
    root = tmp_path_factory.mktemp("site")
    for name in SOURCES:
        source, target = REPOSITORY / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    done = built(root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.promise("The documentation's site loads nothing from elsewhere.")
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.relative_to(site / "docs").with_suffix(".html") for path in (site / "docs").rglob("*.md")}
    made = {path.relative_to(site / "site") for path in (site / "site").rglob("*.html")}
    assert (pages - INTERNAL) | {Path("index.html")} <= made
    assert not made & INTERNAL
    loaded = r'<(?:script|img|iframe|link rel="stylesheet")[^>]* (?:src|href)="((?:https?:)?//[^"]*)"'
    assert {match for page in made for match in re.findall(loaded, (site / "site" / page).read_text("utf-8"))} == set()


def test_a_link_out_of_the_documentation_shows_the_file(site: Path) -> None:
    links = re.findall(r'href="([^"]*links\.yaml[^"]*)"', (site / "site/links.html").read_text("utf-8"))
    assert links == ["files/campaigns/links.yaml.txt"]
    assert (site / "site" / links[0]).read_text("utf-8") == (REPOSITORY / "campaigns/links.yaml").read_text("utf-8")


#: What is added to a page -> what the builder must complain of.
LEADS_NOWHERE = {
    "[x](nosuch.md)": "nosuch.md",
    "[x](driver.md#no-such-heading)": "no-such-heading",
    "[x](../campaigns/nosuch.yaml)": "nosuch.yaml",
}


@pytest.fixture(scope="module")
def complaints(site: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the builder refuses: links that lead nowhere and a page that no page leads to. Mere remarks are left out."""
    root = tmp_path_factory.mktemp("defective") / "site"
    shutil.copytree(site, root, ignore=shutil.ignore_patterns("site"))
    with (root / "docs/lab.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"\n\n{link}\n" for link in LEADS_NOWHERE))
    (root / "docs/extra.md").write_text("# A page without a place\n", "utf-8")
    done = built(root)
    assert done.returncode != 0
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("INFO"))


@pytest.mark.promise(
    "A link or a heading that is not there, and a page without a place in the navigation, fail the site's build."
)
@pytest.mark.parametrize("complaint", [*LEADS_NOWHERE.values(), "extra.md"])
def test_what_leads_nowhere_fails(complaints: str, complaint: str) -> None:
    assert complaint in complaints


#: What a reader looks for -> the page that the search of the site names first.
FIRST_HITS = {"slow node": "tutorial.html", "message_bytes": "campaigns.html", "budget": "campaigns.html"}


@pytest.mark.promise("The search of the documentation's site finds the pages for users before those for developers.")
@pytest.mark.promise("The documentation's site can be searched as it lies on a disk, and on a web server.")
def test_the_search_finds_what_users_look_for(site: Path, tmp_path: Path) -> None:
    serve = functools.partial(_Quiet, directory=str(site / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server, browsing(tmp_path) as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        roots = (f"http://127.0.0.1:{server.server_port}", (site / "site").as_uri())
        found = [{words: first_hit(browser, root, words) for words in FIRST_HITS} for root in roots]
        server.shutdown()
    assert found == [FIRST_HITS, FIRST_HITS]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def first_hit(browser: Browser, root: str, words: str) -> str:
    """The page that a reader who types these words is shown first."""
    tab = Tab(browser, f"{root}/index.html?q={quote(words)}")
    hit = tab.js("""new Promise((done) => { let looks = 0; const look = () => {
      const one = document.querySelector('.md-search-result__item a.md-search-result__link');
      if (one || ++looks > 200) done(one ? one.href : "no hit"); else setTimeout(look, 50); }; look(); })""")
    assert tab.complaints == []
    tab.close()
    return str(hit).removeprefix(f"{root}/").partition("?")[0].partition("#")[0]

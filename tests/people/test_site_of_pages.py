"""`hpcq report --site`: one folder of pages that link to each other, brought up to date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from hpcq.cli.main import run
from hpcq.reports.links import page_path
from hpcq.store import database
from tests.history.histories import History
from tests.pages.browser import PHONE, Browser, Tab, browsing
from tests.pages.test_report import Page
from tests.people.nights import Asked

pytestmark = pytest.mark.fast


def pages(folder: Path) -> dict[str, Page]:
    """All pages of the folder, by their path."""
    return {str(one.relative_to(folder)): Page(one.read_text("utf-8")) for one in folder.rglob("*.html")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.mark.heavy
@pytest.mark.promise(
    "report --site writes one folder of pages for clusters, runs, nodes and changes; every link leads to a page."
)
def test_a_site_has_all_pages_and_every_link_leads_to_one(nights: History, ask: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    told = ask.json("report", "--site", str(folder), expect=3)
    assert told["verdicts"] == {"alpha": "degraded"}
    found = pages(folder)
    assert told["written_count"] == len(found)
    kinds = {name.partition("/")[0] for name in found}
    assert kinds == {"index.html", "clusters", "runs", "nodes", "changes"}
    assert sum(name.startswith("runs/") for name in found) == 14
    assert sum(name.startswith("changes/") for name in found) == 3
    assert {f"nodes/alpha/n{number}.html" for number in range(1, 7)} <= set(found)
    reached = set()
    for name, page in found.items():
        assert page.open == []
        for tag, attribute, value in page.attributes:
            if tag == "a" and attribute == "href" and not value.startswith("#"):
                target = ((folder / name).parent / unquote(value)).resolve()
                assert target.is_file(), f"{name} leads to {value}"
                reached.add(str(target.relative_to(folder.resolve())))
    assert reached == set(found), "every page is reached from another"
    assert "is worse" in found["index.html"].text


@pytest.mark.heavy
@pytest.mark.promise("report --site writes pages of runs and nodes again only when they were measured or judged otherwise.")
def test_a_site_is_brought_up_to_date(home_history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, words = tmp_path / "site", ["report", "--db", str(home_history.database), "--site"]
    assert run([*words, str(folder)]) in {0, 4}
    times = {name: (folder / name).stat().st_mtime_ns for name in pages(folder)}
    last = home_history.night(4)
    assert run([*words, str(folder)]) in {0, 4}
    capsys.readouterr()
    again = {name: (folder / name).stat().st_mtime_ns for name in pages(folder)}
    assert set(again) - set(times) == {page_path("run", last)}
    same = {name for name in times if times[name] == again[name]}
    runs = {name for name in times if name.startswith("runs/")}
    assert same == runs - {max(runs)}, "the run that was the newest is so no more"
    assert run([*words, str(folder)]) in {0, 4}
    third = {name: (folder / name).stat().st_mtime_ns for name in pages(folder)}
    assert {name for name in third if third[name] != again[name]} == {"index.html", page_path("cluster", "alpha")}


@pytest.fixture
def home_history(tmp_path: Path) -> History:
    history = History(tmp_path, pairs=(("n1", "n2"), ("n2", "n1")))
    for day in range(4):
        history.night(day)
    return history


@pytest.mark.promise("A folder that holds other files is no place for a site.")
def test_a_folder_with_other_files_is_left_alone(
    home_history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    assert run(["report", "--db", str(home_history.database), "--site", str(folder)]) == 2
    assert "holds files that are no site of hpcq" in capsys.readouterr().err
    assert [one.name for one in folder.iterdir()] == ["thesis.tex"]
    assert run(["report", "--db", str(home_history.database), "--site", str(folder), "--since", "30d"]) == 2


@pytest.mark.parametrize("name", ["..", "../../etc/passwd", "n 1", "a?b#c", "<x>", "n" * 300])
def test_hostile_names_stay_within_the_folder(name: str) -> None:
    for kind in ("run", "node", "cluster", "change"):
        path = page_path(kind, f"alpha/{name}" if kind == "node" else name)
        assert ".." not in path.split("/")
        assert path.count("/") <= 2
        assert all(len(part) < 200 for part in path.split("/"))


@pytest.mark.heavy
@pytest.mark.promise("report --site writes the same site from a kept answer.")
def test_a_site_is_made_of_a_kept_answer_too(ask: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "KEPT_FROM_S", 0.0)
    monkeypatch.setattr(database, "SETTLED_AFTER_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    now = dt.datetime.now(dt.UTC)

    class Still(dt.datetime):
        """Pages say when they were made, and begin so long before."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Still:
            return cls.fromtimestamp(now.timestamp(), tz)

    monkeypatch.setattr(dt, "datetime", Still)
    for name in ("one", "two"):
        ask.words("report", "--site", str(tmp_path / name), expect=3)
    first, second = (
        {path.relative_to(top): path.read_text() for path in top.rglob("*.html")}
        for top in (tmp_path / "one", tmp_path / "two")
    )
    assert first
    assert first == second


@pytest.mark.heavy
def test_a_browser_has_nothing_to_complain_of(browser: Browser, nights: History, ask: Asked, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    ask.words("report", "--site", str(folder), expect=3)
    [change] = sorted((folder / "changes").glob("*n4*.html"))[:1]
    for path in (folder / "index.html", folder / "clusters/alpha.html", folder / "nodes/alpha/n4.html", change):
        tab = Tab(browser, path.as_uri(), PHONE)
        assert tab.complaints == [], path
        assert tab.js("document.documentElement.scrollWidth") <= PHONE[0], path
        tab.close()
    tab = Tab(browser, (folder / "index.html").as_uri())
    tab.follow("#runs ~ .scroll a")
    assert tab.js("document.querySelectorAll('.verdict').length") == 1
    tab.close()

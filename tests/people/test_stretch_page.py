"""hpcq report --since, --node, --cluster: the page of a stretch of time says what regressions, nodes and the ledger know."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from hpcq.analysis.standing import ClusterCause, Standing, nights_of_cause, standings
from hpcq.judge import values as judged
from hpcq.kernels import Better
from hpcq.reports.stretch import write_stretch
from hpcq.runner.watch.doctor import Places, examine
from hpcq.store.database import reading, transaction, writing
from hpcq.store.load.cluster import load_run
from hpcq.store.selection import Selection, find_run
from hpcq.verdict.words import Verdict
from tests.history.histories import History
from tests.people.nights import PAIRS, Asked
from tests.store.run_folders import START, RunBuilder

pytestmark = pytest.mark.fast


def words_of(path: Path) -> str:
    """The words of a page, without marks."""
    text = path.read_text("utf-8")
    body = re.sub(r"<(style|script)>.*?</\1>", " ", text, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.mark.heavy
@pytest.mark.promise("The page of a stretch names each cause once, with the node, the moment and what differs.")
def test_the_page_of_a_stretch_says_what_got_worse_and_why(nights: History, ask: Asked, tmp_path: Path) -> None:
    said = ask.words("report", "--since", "30d", "--to", str(tmp_path / "x.html"), expect=3)
    assert "DEGRADED: 30 series judged: 11 PASS, 19 DEGRADED" in said
    assert re.search(r"  told: node alpha/n4: .*; n4: nic.eth0.driver mlx5_core > ice\n", said)
    words = words_of(tmp_path / "x.html")
    assert "Cluster alpha, the last 30 days" in words
    assert "node alpha/n4 is worse" not in words, "the judge tells it, with what differs beside it"
    assert re.search(r"node, worse alpha n4 \d{4}-\d\d-\d\d 02:00 10 of 10 -40 %", words)
    assert "What to do hpcq nodes alpha/n" in words
    assert "n2: sysctl.net.core.rmem_max 4194304 > 212992" in words
    assert "420 results planned, 420 measured" in words
    assert words.count("throughput, higher is better") == 3  # one picture for each block
    assert re.search(r"alpha n9 not measured", words)  # planned once, and silent since


@pytest.mark.heavy
@pytest.mark.promise(
    "Without a name, report is of the newest run in the database, and tells of a newer one that is not loaded."
)
def test_a_run_that_is_not_loaded_is_told(nights: History, ask: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "runs" / "other-1" / "run.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"run": "other-1", "created_utc": "2099-01-01T00:00:00Z"}))
    said = ask.words("report", "--to", str(tmp_path / "page.html"), expect=3)
    assert f"other-1 in runs is not in {nights.database}: hpcq db load other-1\n" in said
    with reading(nights.database) as connection:
        newest = find_run(connection, None)
    assert newest in (tmp_path / "page.html").read_text()


@pytest.mark.heavy
@pytest.mark.promise("What is told has a picture, night by night, on the page of the run and of the stretch.")
def test_what_is_told_has_a_picture(nights: History, ask: Asked, tmp_path: Path) -> None:
    with reading(nights.database) as connection:
        [standing] = standings(connection, ["alpha"], "30d")
        told = next(one for one in standing.causes if one.is_told and one.names == ("n4",))
        nightly = nights_of_cause(told, standing, "")
    assert nightly is not None
    assert nightly.before == pytest.approx(1.0, abs=0.03)
    assert nightly.after == pytest.approx(told.ratio, abs=0.03)
    assert {one.middle < 0.75 for one in nightly.nights if one.started_utc >= told.since_utc} == {True}
    assert {one.middle > 0.9 for one in nightly.nights if one.started_utc < told.since_utc} == {True}
    ask.words("report", "--since", "30d", "--to", str(tmp_path / "month.html"), expect=3)
    ask.words("report", "--to", str(tmp_path / "run.html"), expect=3)
    for page in ("month.html", "run.html"):
        text = (tmp_path / page).read_text("utf-8")
        [figure] = re.findall(r"<figure><h3>node alpha/n4</h3>.*?</figure>", text, re.S)
        assert figure.count(" UTC: ") == len(nightly.nights)


#: Jobs of one night as (client, server), and of each kind of thing the jobs that its picture shows. n1 and n2 are behind
#: leaf1, n3 and n4 behind leaf2, n5 behind leaf3; n1, n2 and n3 are old.
JOBS = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n4"), ("n4", "n5"), ("n1", ""), ("n3", ""))
SHOWN = {
    ("night",): JOBS,
    ("class", "old"): (JOBS[0], JOBS[1], JOBS[2], JOBS[3], JOBS[5], JOBS[6]),
    ("within", "old"): (JOBS[0], JOBS[1], JOBS[2]),
    ("group", "leaf1"): (JOBS[2],),
    ("between", "leaf2", "leaf3"): (JOBS[4],),
    ("node", "n1"): (JOBS[0], JOBS[1], JOBS[2], JOBS[5]),
    ("server", "n1"): (JOBS[1],),
    ("link", "n1", "n2"): (JOBS[0], JOBS[1]),
    ("pair", "n2", "n1"): (JOBS[1],),
}


@pytest.mark.parametrize(("thing", "shown"), SHOWN.items(), ids=lambda one: " ".join(one) if isinstance(one[0], str) else "")
def test_a_picture_shows_the_jobs_of_its_thing(thing: tuple[str, ...], shown: tuple[tuple[str, str], ...]) -> None:
    nodes = ("n1", "n2", "n3", "n4", "n5")
    client, server = (np.array([nodes.index(one[end]) if one[end] else judged.NOBODY for one in JOBS]) for end in (0, 1))
    values = judged.Values(
        np.zeros(len(JOBS), np.int32),
        np.zeros(len(JOBS), np.int32),
        client.astype(np.int32),
        server.astype(np.int32),
        np.log(np.arange(1.0, len(JOBS) + 1)),
        np.zeros(len(JOBS), np.int8),
        (judged.Night("first", 0.0),),
        (judged.Test("tcp_stream", Better.HIGHER),),
        nodes,
        np.array([0, 0, 0, 1, 1], np.int32),
        np.array([0, 0, 1, 1, 2], np.int32),
        ("old", "new"),
        ("leaf1", "leaf2", "leaf3"),
    )
    role = thing[0] if thing[0] == "server" else None
    began = "1970-01-01T00:00:00Z"
    what = ("alpha", "node" if role else thing[0], thing[1:], ("tcp_stream",), "told", began, "first", began)
    cause = ClusterCause(*what, 0.5, 0.4, 0.6, 3, "", role)
    standing = Standing("alpha", "first", (cause,), (), frozenset(), frozenset(), values_of=lambda: values)
    found = nights_of_cause(cause, standing, "")
    assert found is not None
    [night] = found.nights
    usual = float(np.exp(np.median(values.value)))
    assert night.job_count == len(shown)
    assert (night.low, night.high) == pytest.approx([(JOBS.index(shown[place]) + 1) / usual for place in (0, -1)])


@pytest.mark.heavy
@pytest.mark.promise("Pages, notify and doctor tell and suspect what regressions tells and suspects.")
def test_everybody_tells_the_same(
    nights: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # whoever starts the tests may have runs of their own where they stand
    made, ask = History(tmp_path, pairs=PAIRS), Asked(tmp_path / "results.db", capsys)
    shutil.copy(nights.database, made.database)
    last = (dt.datetime.now(dt.UTC) - START).days - 1
    made.night(last + 0.5, levels={"n2": 0.9, "n4": 0.6, "n6": 0.93, "n1>n3": 0.7}, noise=0.004, seed=51)
    causes = ask.json("regressions", expect=3)["causes"]
    assert {one["state"] for one in causes} == {"told", "suspected"}, "a history of both"
    assert ask.json("report", "--since", "30d", "--to", str(tmp_path / "month.html"), expect=3)["causes"] == causes
    month = words_of(tmp_path / "month.html")
    assert all(one["reason"] in month for one in causes)
    assert month.index("What is at fault") < month.index("What got worse, and what differs")
    ask.words("report", "--to", str(tmp_path / "run.html"), expect=3)
    run_page = words_of(tmp_path / "run.html")
    [verdict] = re.findall(r'<div class="verdict .*?</div>', (tmp_path / "run.html").read_text("utf-8"), re.S)
    reasons = re.findall(r"<li.*?>(.*?)</li>", verdict)
    assert len(set(reasons)) == len(reasons) > 1, "each once"
    assert run_page.index("told: ") < run_page.index("series got worse and stayed so"), "the causes come first"
    assert all(one["reason"] in run_page for one in causes)
    mailed = ask.json("notify", "--dry-run", "true")
    told = {(one["kind"], one["name"]) for one in mailed if one["kind"] != "campaign" and one["reason"].startswith("told: ")}
    assert told == {(one["thing"], " - ".join(one["names"])) for one in causes if one["state"] == "told"}
    doctor = [one for one in examine(Places(made.database, tmp_path)) if one.area == "judgement"]
    assert len(doctor) == len(causes)
    assert all(
        one.found.startswith(cause["state"]) and cause["reason"] in one.found for one, cause in zip(doctor, causes, strict=True)
    )
    for node in ("n2", "n4", "n6"):
        accused = [one for one in causes if one["state"] == "told" and node in one["names"]]
        page = write_stretch(made.database, "30d", Selection(cluster="alpha", node=node), tmp_path / f"{node}.html")
        assert {(one.thing, one.names) for one in page.causes if one.is_told} == {
            (one["thing"], tuple(one["names"])) for one in accused
        }
        assert page.verdict is not Verdict.PASS or not accused


@pytest.mark.heavy
@pytest.mark.promise("The page of a run has a command for every node and pair that is told.")
def test_the_page_of_a_run_has_a_command_for_each_that_is_told(ask: Asked, tmp_path: Path) -> None:
    told = [one for one in ask.json("regressions", expect=3)["causes"] if one["state"] == "told"]
    names = {name for one in told for name in one["names"]}
    assert {"n2", "n4"} <= names
    ask.words("report", ask.json("runs")[0]["run"], "--to", str(tmp_path / "run.html"), expect=3)
    words = words_of(tmp_path / "run.html")
    assert all(f"hpcq nodes alpha/{name} " in words for name in names), names


@pytest.mark.heavy
@pytest.mark.promise("The page of a node judges the series of that node only.")
@pytest.mark.promise("The facts of a node stand on its page in their units.")
def test_the_page_of_a_node_has_its_partners_and_facts(ask: Asked, tmp_path: Path) -> None:
    found = ask.json("report", "--node", "n2", "--to", str(tmp_path / "n2.html"), expect=3)
    assert found["verdict"] == "degraded"
    assert found["judged"]["total_count"] == 10  # series with n2 at an end
    words = words_of(tmp_path / "n2.html")
    assert "Node alpha/n2, the last 90 days" in words
    assert "With each partner, slowest first" in words
    assert "nic.eth0.driver mlx5_core nic.eth0.mtu_bytes 1500 B nic.eth0.speed_bps 100 Gbit/s" in words
    assert "node alpha/n4 is worse" not in words


@pytest.mark.promise("A stretch in which results are missing, or nothing was judged, does not pass on its page.")
def test_calm_series_pass_and_a_stretch_without_runs_does_not(nights: History, tmp_path: Path) -> None:
    calm = write_stretch(nights.database, "2d", Selection(cluster="alpha", node="n6"), tmp_path / "calm.html")
    assert (calm.verdict, calm.exit_code) == (Verdict.PASS, 0)
    assert "PASS nothing got worse: " in words_of(tmp_path / "calm.html")
    empty = write_stretch(nights.database, "2020-01..2020-02", Selection(), tmp_path / "empty.html")
    assert (empty.verdict, empty.exit_code) == (Verdict.INCONCLUSIVE, 4)
    assert "Nothing was planned in this stretch." in words_of(tmp_path / "empty.html")


@pytest.mark.heavy
@pytest.mark.promise("Of many nodes the page of a stretch shows the slowest twenty, and folds the others.")
def test_many_nodes_are_folded(tmp_path: Path) -> None:
    made = History(tmp_path, pairs=tuple((f"n{number}", f"n{number + 1}") for number in range(1, 25)))
    made.night(0)
    write_stretch(made.database, "2026-11", Selection(), tmp_path / "page.html")
    assert "<details><summary>5 more nodes</summary>" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.heavy
@pytest.mark.promise("A node that the ledger calls failed makes its page FAIL.")
def test_a_failed_acceptance_and_missing_results_are_no_pass(nights: History, tmp_path: Path) -> None:
    database = tmp_path / "results.db"
    shutil.copyfile(nights.database, database)
    with writing(database) as connection, transaction(connection):
        connection.execute(
            "INSERT INTO acceptance (cluster_id, kind, name, verdict, reason, decided_utc)"
            " SELECT cluster_id, 'node', 'n6', 'failed', 'no light', '2026-11-21T09:00:00Z' FROM cluster WHERE name = 'alpha'"
        )
    judged = write_stretch(database, "2d", Selection(cluster="alpha", node="n6"), tmp_path / "n6.html")
    assert (judged.verdict, judged.exit_code) == (Verdict.FAILED, 3)
    line = "failed: node alpha/n6: last acceptance, 2026-11-21 09:00 UTC: no light"
    assert line in words_of(tmp_path / "n6.html")
    assert judged.reasons[0] == line, "the terminal says why, too"


@pytest.mark.promise("A stretch in which results are missing, or nothing was judged, does not pass on its page.")
def test_what_is_missing_is_counted_with_its_reason(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.attempt("j00001", 1)
    load_run(tmp_path / "results.db", builder.path)
    judged = write_stretch(tmp_path / "results.db", "2026-11", Selection(), tmp_path / "x.html")
    assert judged.exit_code == 4
    words = words_of(tmp_path / "x.html")
    assert "6 of 12 planned results are not there" in words
    assert "never submitted" in words or "pending" in words

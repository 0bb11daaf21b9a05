"""The verdict at the top of a page: never green by coverage alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcq.analysis.gates import judge_run
from hpcq.analysis.run_verdict import RunVerdict, run_verdict
from hpcq.reports import write_report
from hpcq.reports.page import Apart, apart_nodes
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.verdict.words import Verdict
from tests.history.histories import History
from tests.pages.test_report import summary
from tests.store.run_folders import RunBuilder, load

pytestmark = pytest.mark.fast


def verdict_of(database: Path, run: str) -> RunVerdict:
    with reading(database) as connection:
        return run_verdict(connection, run, query.runs(connection, run), judge_run(connection, run))


def words(found: RunVerdict, verdict: Verdict) -> Sequence[str]:
    return [one.words for one in found.reasons if one.verdict is verdict]


@pytest.mark.heavy
@pytest.mark.promise("The page does not call a run passed if nothing judges it.")
def test_a_first_run_without_gates_is_not_judged(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    load(tmp_path / "results.db", builder)
    found = verdict_of(tmp_path / "results.db", builder.run)
    assert (found.verdict, found.lines, found.exit_code) == (Verdict.NOT_JUDGED, [f"NOT JUDGED: {found.by}"], 0)
    write_report(tmp_path / "results.db", builder.run, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<div class="verdict not_judged">' in page
    assert "No gate and no history judges this run" in page


@pytest.mark.promise("A series that got worse and stayed so makes a complete run DEGRADED on its page.")
@pytest.mark.heavy
def test_a_run_on_a_worse_level_is_degraded_though_all_was_measured(tmp_path: Path) -> None:
    history = History(tmp_path, pairs=(("n1", "n2"), ("n3", "n4"), ("n2", "n5"), ("n6", "n7"), ("n4", "n6")))
    for day in range(12):
        last = history.night(day, repetitions=3, levels={"n2": 0.8} if day >= 7 else {})
    found = verdict_of(history.database, last)
    assert found.verdict is Verdict.DEGRADED
    told, said = words(found, Verdict.DEGRADED)
    assert told.startswith("told: node alpha/n2: "), "what is at fault stands before the series"
    assert "2 series got worse and stayed so, 2 of them with alpha: n2" in said
    assert "-20 % since 2026-11-28" in said


@pytest.mark.heavy
def test_a_run_on_its_old_level_passes_by_its_history(tmp_path: Path) -> None:
    history = History(tmp_path)
    for day in range(8):
        last = history.night(day, repetitions=3)
    found = verdict_of(history.database, last)
    assert (found.verdict, found.reasons) == (Verdict.PASS, ())
    assert found.judged_by == "2 of 2 series have a history long enough to compare with"
    write_report(history.database, last, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<div class="verdict pass">' in page


@pytest.mark.heavy
@pytest.mark.promise("A node that is slower than the others of a run stands in the verdict of its page, also beside PASS.")
def test_a_node_that_has_always_been_slow_is_named_beside_pass(tmp_path: Path) -> None:
    """It is another kind of hardware, and no gate asks: PASS is right, and no reason to show green alone."""
    nodes = ("n1", "n2", "n3", "n4", "n5")
    history = History(tmp_path, pairs=tuple((client, server) for client in nodes for server in nodes if client < server))
    for day in range(8):
        last = history.night(day, levels={"n4": 0.6}, facts={"n4": {"cpu": {"model": "older"}}})
    assert verdict_of(history.database, last).verdict is Verdict.PASS
    write_report(history.database, last, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<div class="verdict pass noted">' in page
    assert "alpha/n4 is worse than the others of this run, -4" in page
    assert "PASS compares with gates and with history, not with other nodes." in page


def _pairs_worth_a_look(*ends: tuple[str, str], disturbed_count: int = 0) -> list[Apart]:
    worst = [summary(client, server, 50.0, disturbed_count=disturbed_count) for client, server in ends]
    return [Apart(one, 100.0, -0.5, 1, 1) for one in worst]


@pytest.mark.promise("A node that was measured only beside other work is named with that.")
def test_a_node_that_was_slow_only_beside_other_work_is_named_with_that() -> None:
    ends = (("n4", "n1"), ("n4", "n2"), ("n3", "n4"))
    [alone] = apart_nodes(_pairs_worth_a_look(*ends))
    assert alone.in_verdict == "alpha/n4 is worse than the others of this run, -50 % in k 64 B n4 > n1"
    [beside] = apart_nodes(_pairs_worth_a_look(*ends, disturbed_count=3))
    assert beside.in_verdict == f"{alone.in_verdict}, measured only beside other work"
    assert len(apart_nodes(_pairs_worth_a_look(*ends[:2]) + _pairs_worth_a_look(ends[2], disturbed_count=2))) == 1


@pytest.mark.promise("A slow collective names no node in the page's verdict.")
def test_slow_collectives_name_no_node_in_the_verdict() -> None:
    assert apart_nodes(_pairs_worth_a_look(("n1", "n[2-4]"), ("n1", "n2,n3"), ("n1", "n[2-3]"))) == []
    pairs = (("n4", "n1"), ("n4", "n2"), ("n4", "n3"))
    [one] = apart_nodes(_pairs_worth_a_look(("n1", "n[2-4]"), *pairs))
    assert one.in_list == "alpha: n4 is an end of 3 of these 3 pairs."


def test_a_node_with_itself_is_one_pair_of_it() -> None:
    assert apart_nodes(_pairs_worth_a_look(("n4", "n4"), ("n4", "n1"))) == []
    [one] = apart_nodes(_pairs_worth_a_look(("n4", "n4"), ("n4", "n1"), ("n2", "n4")))
    assert one.in_list == "alpha: n4 is an end of 3 of these 3 pairs."


@pytest.mark.promise("A test that ran and brought no valid result fails the run on its page.")
def test_a_test_that_ran_and_brought_nothing_fails_the_run(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "runs")
    builder.everything()
    for repetition_no in (1, 2, 3):
        broken = {"valid": False, "invalid_reason": "fewer than two datagrams arrived", "metrics": {}, "exit_code": 1}
        builder.write_line("j00001", 1, (1, repetition_no), builder.line("j00001", (1, repetition_no), **broken), rc=1)
    load(tmp_path / "results.db", builder)
    found = verdict_of(tmp_path / "results.db", builder.run)
    assert found.verdict is Verdict.FAILED
    [said] = words(found, Verdict.FAILED)
    assert "1 series ran and brought no valid result: alpha: n1 > n2. Most often: fewer than two datagrams arrived" in said


@pytest.mark.heavy
@pytest.mark.promise("A run of which something is missing does not pass on its page.")
def test_what_is_missing_keeps_a_run_from_passing(tmp_path: Path) -> None:
    history = History(tmp_path)
    for day in range(8):
        history.night(day, repetitions=3)
    builder = RunBuilder(
        tmp_path / "runs", run="nightly-20261201T020000Z-00aa", tests=(("tcp_stream", {"message_bytes": 65536}),)
    )
    builder.attempt("j00001", 1)
    load(history.database, builder)
    found = verdict_of(history.database, builder.run)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert words(found, Verdict.NOT_COVERED) == ["3 of 6 planned results are not there"]


@pytest.mark.heavy
@pytest.mark.promise("Gates that could not be judged let no run pass on its page.")
def test_gates_that_could_not_be_read_let_no_run_pass(tmp_path: Path) -> None:
    history = History(tmp_path)
    for day in range(8):
        last = history.night(day, repetitions=3, gates="  - {metric: nonsense}")
    write_report(history.database, last, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<div class="verdict inconclusive">' in page
    assert "The gates were not judged" in page.split('class="coverage"')[0]

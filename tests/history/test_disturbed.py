"""Values beside other work make no regression, no gate, no baseline and no pass; and no verb is silent about them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcq.analysis.gates import judge_run
from hpcq.analysis.run_verdict import run_verdict
from hpcq.cli.main import run
from hpcq.store import query
from hpcq.store.database import reading
from hpcq.store.history import timeline
from hpcq.store.read.nodes import node_rows
from hpcq.store.selection import Selection, Window, metrics_of
from hpcq.store.series import select
from hpcq.verdict.words import Verdict
from tests.history.histories import History

pytestmark = pytest.mark.fast

#: What the rule host_busy sees in the evidence of n2: four cores of it.
OTHER_WORK = {"n2": {"stat.cpu.user_ticks": 400}}
FLOOR = "  - {kernel: tcp_stream, metric: throughput_bps, minimum: 150Mbit/s}"


def nights(folder: Path, *, slow_from: int, counters: dict[str, Any] | None = None) -> History:
    """Thirty nights; from slow_from on n2 is at 60 %, with these counters."""
    made = History(folder)
    for day in range(-30, 0):
        late = day >= slow_from
        made.night(day, levels={"n2": 0.6 if late else 1.0}, counters=(counters or {}) if late else {})
    return made


def disturb(made: History, run_name: str, *repetitions: int) -> None:
    """Mark these repetitions of n1 > n2, as loading marks what has a finding."""
    with closing(sqlite3.connect(made.database)) as database, database:
        for number in repetitions:
            database.execute(
                "UPDATE result SET disturbed = 1 WHERE result_id IN (SELECT result_id FROM v_results"
                " WHERE run = ? AND server = 'n2' AND repetition_no = ?)",
                (run_name, number),
            )


def disturb_all(made: History, run_name: str) -> None:
    with closing(sqlite3.connect(made.database)) as database, database:
        every = "SELECT result_id FROM v_results WHERE run = ?"
        database.execute(f"UPDATE result SET disturbed = 1 WHERE result_id IN ({every})", (run_name,))


def slow_repetition(made: History, run_name: str, repetition: int, level: float = 0.5) -> None:
    with closing(sqlite3.connect(made.database)) as database, database:
        database.execute(
            "UPDATE metric SET value = value * ? WHERE result_id IN (SELECT result_id FROM v_results"
            " WHERE run = ? AND server = 'n2' AND repetition_no = ?)",
            (level, run_name, repetition),
        )


@pytest.mark.promise("Slow nights beside other work are no regression, and no pass.")
@pytest.mark.promise("A series that was measured only beside other work is INCONCLUSIVE, not forgotten.")
@pytest.mark.heavy
def test_slow_nights_beside_other_work_are_no_regression_and_no_pass(tmp_path: Path, say: Any) -> None:
    made = nights(tmp_path / "beside", slow_from=-6, counters=OTHER_WORK)
    code, _, said = say(made, "regressions", "--since", "2026-11-13", "--all")
    assert code == 4
    assert "worse" not in said
    assert "1 measured lately only beside other work" in said
    assert "measured lately only beside other work: tcp_stream 64 KiB n1 > n2" in said
    code, _, said = say(made, "regressions", "--since", "2026-11-13", "--against", "2026-10..2026-11-12")
    assert (code, "1 measured lately only beside other work" in said) == (4, True)
    undisturbed = nights(tmp_path / "alone", slow_from=-6)
    code, _, said = say(undisturbed, "regressions", "--since", "2026-11-13")
    assert (code, "1 change for the worse" in said) == (3, True), said


@pytest.mark.promise("`compare` calls a test unclear that one side measured only beside other work.")
def test_compare_says_unclear_of_values_beside_other_work(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    a = made.night(-2)
    b = made.night(-1, levels={"n2": 0.5}, counters=OTHER_WORK)
    code, found, _ = say(made, "compare", a, b, "--json")
    assert code == 4
    why = {one["server"]: one["why"] for one in found["pairs"] if one["verdict"] == "unclear"}
    assert why["n2"] == "B measured it only beside other work: measure again"
    assert found["only_a"] == found["missing_in_b"] == []


@pytest.mark.promise("compare says gone where A measured a test only beside other work and B only failed.")
def test_what_fails_is_gone_though_it_was_measured_beside_other_work_before(tmp_path: Path, say: Any) -> None:
    made = History(tmp_path)
    a = made.night(-2, counters=OTHER_WORK)
    b = made.night(-1, failing=["n2"])
    code, found, _ = say(made, "compare", a, b, "--json")
    assert (code, {one["server"]: one["verdict"] for one in found["pairs"]}["n2"]) == (3, "gone")
    assert found["judged"]["failed_count"] == 1


@pytest.mark.heavy
@pytest.mark.promise("A gate is failed by no value that was measured beside other work.")
def test_a_gate_is_failed_by_no_value_beside_other_work(tmp_path: Path) -> None:
    made = History(tmp_path)
    bad = made.night(-3, repetitions=3, levels={"n2": 0.5}, gates=FLOOR)
    mixed = made.night(-2, repetitions=3, gates=FLOOR.replace("minimum", "statistic: worst, minimum"))
    slow_repetition(made, mixed, 2)
    with reading(made.database) as database:
        assert [one.verdict for one in judge_run(database, bad)] == [Verdict.FAILED, Verdict.PASS]
        assert [one.verdict for one in judge_run(database, mixed)] == [Verdict.FAILED, Verdict.PASS]
    disturb(made, bad, 1, 2, 3)
    disturb(made, mixed, 2)
    with reading(made.database) as database:
        open_one, passed = judge_run(database, bad)
        assert (open_one.verdict, passed.verdict) == (Verdict.INCONCLUSIVE, Verdict.PASS)
        assert open_one.words.endswith("3 values, each measured beside other work: measure again")
        found = judge_run(database, mixed)
        assert {one.verdict for one in found} == {Verdict.PASS}
        assert "(1 value beside other work left out)" in " ".join(one.words for one in found)


@pytest.mark.heavy
@pytest.mark.promise("A gate's baseline rests on undisturbed values.")
def test_a_baseline_rests_on_undisturbed_values(tmp_path: Path) -> None:
    relative = "  - {kernel: tcp_stream, metric: throughput_bps, against: baseline:good, minimum: 90%, at_least: 3}"
    made = History(tmp_path)
    good = made.night(-3, repetitions=3)
    disturb(made, good, 1)
    assert run(["baseline", "set", "good", good, "--why", "new", "--db", str(made.database)]) == 0
    late = made.night(-1, repetitions=3, gates=relative)
    with reading(made.database) as database:
        found = {one.series.server: one for one in judge_run(database, late)}
    assert found["n2"].verdict is Verdict.INCONCLUSIVE
    assert found["n2"].reason == "baseline good has 2 undisturbed values of this test and pair: 3 are needed"
    assert found["n4"].verdict is Verdict.PASS


@pytest.mark.promise("`hpcq baseline set` warns of a run that was measured mostly beside other work.")
@pytest.mark.heavy
def test_a_run_beside_other_work_is_no_quiet_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path)
    quiet = made.night(-3, repetitions=3)
    busy = made.night(-2, repetitions=3, counters=OTHER_WORK)
    assert run(["baseline", "set", "good", quiet, "--db", str(made.database)]) == 0
    assert "beside other work" not in capsys.readouterr().err
    assert run(["baseline", "set", "good", busy, "--db", str(made.database)]) == 0
    assert "beside other work" not in capsys.readouterr().err, "half of it is not most"
    disturb_all(made, busy)
    assert run(["baseline", "set", "good", busy, "--db", str(made.database)]) == 0
    assert f"{busy}: 6 of 6 results were measured beside other work" in capsys.readouterr().err


@pytest.mark.promise("The page passes no run that was measured beside other work.")
@pytest.mark.heavy
def test_the_page_passes_no_run_that_was_measured_beside_other_work(tmp_path: Path) -> None:
    made = nights(tmp_path, slow_from=0)
    for counters, verdict in (({"n2": {}}, Verdict.PASS), (OTHER_WORK, Verdict.INCONCLUSIVE)):
        name = made.night(1 if verdict is Verdict.PASS else 2, counters=counters)
        with reading(made.database) as database:
            found = run_verdict(database, name, query.runs(database, name), judge_run(database, name))
        assert found.verdict is verdict, found
    assert [one.words for one in found.reasons] == [
        "1 series with a history, measured this time only beside other work: measure again"
    ]


def points(made: History) -> list[tuple[Any, ...]]:
    """What history shows of n1 > n2, and what the view of points holds."""
    with reading(made.database) as database:
        (row,) = [one for one in select(database, Selection()) if one.server == "n2"]
        metric = metrics_of(database, None)["tcp_stream"]
        shown = [(one.median, one.disturbed) for one in timeline(database, row.series_id, metric, Window("all"))]
        viewed = database.execute(
            "SELECT value, disturbed FROM v_points WHERE server = 'n2' AND metric = 'throughput_bps' ORDER BY started_utc"
        ).fetchall()
    assert shown == [(float(one[0]), int(one[1])) for one in viewed]
    return shown


@pytest.mark.heavy
@pytest.mark.promise("A job's point is of its undisturbed repetitions, and pruning keeps it.")
@pytest.mark.usefixtures("every_job_rolls_up")
def test_a_point_is_of_undisturbed_repetitions_also_when_pruned(tmp_path: Path) -> None:
    made = History(tmp_path)
    mixed = made.night(-100, repetitions=3)
    before = points(made)
    slow_repetition(made, mixed, 1)
    slow_repetition(made, mixed, 2)
    disturb(made, mixed, 1, 2)
    beside = made.night(-99, repetitions=3)
    disturb(made, beside, 1, 2, 3)
    made.night(0)
    found = points(made)
    assert found[0][0] == pytest.approx(before[0][0], rel=0.05)
    assert [disturbed for _, disturbed in found] == [0, 1, 0]
    assert run(["db", "prune", "--keep", "2026-11", "--db", str(made.database)]) == 0
    assert points(made) == found


def levels(made: History) -> dict[str, tuple[float, int, int]]:
    with reading(made.database) as database:
        return {
            one.node: (round(one.level_ratio or 0.0, 1), one.result_count, one.left_out_count)
            for one in node_rows(database, Selection())
            if one.result_count
        }


@pytest.mark.promise("A series that was measured beside other work only makes no node slow beside others.")
def test_the_level_of_a_node_leaves_out_results_beside_other_work(tmp_path: Path, say: Any) -> None:
    """A node is not slow because of others; where a whole test was measured beside others, that is how it is."""
    made = History(tmp_path)
    name = made.night(0, levels={"n1": 0.5, "n2": 0.5}, repetitions=3)
    slow = {"n1": (0.7, 3, 0), "n2": (0.7, 3, 0), "n3": (1.3, 3, 0), "n4": (1.3, 3, 0)}  # of two pairs: 100 and 200
    assert levels(made) == slow
    disturb(made, name, 1, 2, 3)
    alone = {"n3": (0.0, 3, 0), "n4": (0.0, 3, 0)}  # and nobody to compare them with
    assert levels(made) == {"n1": (0.0, 3, 3), "n2": (0.0, 3, 3), **alone}
    code, _, said = say(made, "nodes", "--since", "2026-11-01", "--sort", "level")
    assert code == 0
    assert "left out" in said
    with closing(sqlite3.connect(made.database)) as database, database:
        database.execute("UPDATE result SET disturbed = 1")
    assert levels(made) == slow
    assert "left out" not in say(made, "nodes", "--since", "2026-11-01")[2]


@pytest.mark.promise("The level of a node leaves out results beside other work.")
def test_a_disturbed_repetition_does_not_move_a_level(tmp_path: Path) -> None:
    made = History(tmp_path)
    name = made.night(0, repetitions=3)
    for repetition in (1, 2):
        slow_repetition(made, name, repetition, 0.5)
    assert levels(made)["n2"] == (0.7, 3, 0)
    disturb(made, name, 1, 2)
    assert levels(made)["n2"] == (1.0, 3, 2)

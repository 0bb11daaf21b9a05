"""Questions about nodes: one of them whole, the slowest, those not measured, results by a property, what it cost."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from hpcq.cli.results import _confirmed, _print_second_looks
from hpcq.store import query
from hpcq.store.database import reading, transaction, writing
from tests.history.histories import History
from tests.people.nights import NIGHTS, NODES, PAIRS, Asked
from tests.store.run_folders import START

pytestmark = pytest.mark.fast


@pytest.mark.heavy
def test_a_node_whole(ask: Asked) -> None:
    runs = len(ask.json("runs", "--limit", "99"))
    found = ask.json("nodes", "n2", "--since", "40d")
    assert (found["cluster"], found["node"], found["boot_id"]) == ("alpha", "n2", "second-boot-of-n2")
    assert found["counts"] == {"measured": runs * 10}
    worst = ask.json("nodes", "n2", "--since", "3d")["partners"][0]
    assert worst["partner"] == "n4"
    assert worst["level_ratio"] < 0.9
    assert [one["kind"] for one in found["events"]] == ["reboot"]
    assert found["groups"] == {"rack": "r1"}
    words = ask.words("nodes", "alpha/n2")
    for part in ("last verdict  none: hpcq accept gives one", "slowest partners since 30d", "recorded changes: none", "reboot"):
        assert part in words


def test_an_unknown_node_is_refused_with_the_nearest(ask: Asked) -> None:
    assert "'n22' is not a node in this database: the nearest is n2" in ask.words("nodes", "n22", expect=2)


@pytest.mark.heavy
@pytest.mark.promise("What is known of a slow node shows it slow with each partner, also if it was so from its first night.")
def test_a_slow_node_is_slow_with_each_partner(ask: Asked, tmp_path: Path) -> None:
    found = ask.json("nodes", "n4")["partners"]
    assert len(found) == 10
    assert all(0.5 < one["level_ratio"] < 0.7 for one in found), found
    always = History(tmp_path, pairs=PAIRS)
    for day in range(6):
        always.night((dt.datetime.now(dt.UTC) - START).days - 6 + day, levels={"n4": 0.6}, noise=0.004, seed=day + 51)
    asked = Asked(always.database, ask.capsys)
    found = asked.json("nodes", "n4")["partners"]
    assert len(found) == 10
    assert all(0.55 < one["level_ratio"] < 0.65 for one in found), found
    fine = [one for one in asked.json("nodes", "n5")["partners"] if one["partner"] != "n4"]
    assert all(0.95 < one["level_ratio"] < 1.05 for one in fine), fine


@pytest.mark.heavy
@pytest.mark.promise("A slow node makes none of its partners slow.")
def test_the_slowest_node_comes_first_and_its_partners_do_not(ask: Asked) -> None:
    found = ask.json("nodes", "--since", "3d", "--sort", "level")
    assert [one["node"] for one in found[:2]] == ["n4", "n2"]
    levels = {one["node"]: one["level_ratio"] for one in found}
    assert levels["n4"] < 0.75 < levels["n2"] < levels["n5"]
    assert "and 2 more; --limit shows more" in ask.words("nodes", "--limit", str(len(found) - 2))


def test_nodes_that_were_not_measured_for_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path, pairs=(("n1", "n2"), ("n3", "n4")))
    day = (dt.datetime.now(dt.UTC) - dt.datetime(2026, 11, 21, 2, tzinfo=dt.UTC)).days
    made.night(day - 20)
    made.pairs = (("n1", "n2"),)
    made.night(day - 1)
    ask = Asked(made.database, capsys)
    old = [one["node"] for one in ask.json("nodes", "--not-measured-for", "14d")]
    assert old[:2] == ["n3", "n4"]
    assert not {"n1", "n2"} & set(old)
    assert "n3" not in [one["node"] for one in ask.json("nodes", "--not-measured-for", "30d")]


def test_results_by_driver_and_by_rack(ask: Asked) -> None:
    found = {one["group"]: one for one in ask.json("results", "--since", "3d", "--group-by", "driver")}
    assert set(found) == {"mlx5_core", "ice and mlx5_core"}
    assert found["ice and mlx5_core"]["median"] == pytest.approx(1.2e8, rel=0.02)
    assert found["ice and mlx5_core"]["pair_count"] == 10
    racks = {one["group"]: one["pair_count"] for one in ask.json("results", "--group-by", "rack")}
    assert racks == {"r1": 6, "r2": 6, "r1 and r2": 18}
    assert "no node has a leaf" in ask.words("results", "--group-by", "leaf", expect=2)
    assert "must be one of driver, firmware" in ask.words("results", "--group-by", "colour", expect=2)


@pytest.mark.promise(
    "`results --group-by driver` without facts of any node has one group, `(not known)`, and is no usage error."
)
def test_a_property_that_no_fact_tells_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A usage error that lists the very word as allowed helps nobody."""
    made = History(tmp_path)
    made.night(0)
    ask = Asked(made.database, capsys)
    assert {one["group"] for one in ask.json("results", "--group-by", "firmware")} == {"(not known)"}
    made.night(1, not_run=made.pairs)
    assert "no valid result" in ask.words("results", "--group-by", "firmware", expect=4)


def test_results_of_a_stretch_in_another_order(ask: Asked) -> None:
    found = ask.json("results", "--since", "4d", "--node", "n4", "--sort", "-value", "--limit", "5")["results"]
    values = [one["value"] for one in found]
    assert (len(values), values) == (5, sorted(values, reverse=True))
    assert len({one["run"] for one in ask.json("results", "--since", "4d")["results"]}) in {3, 4}
    assert "--sort: nn: must be" in ask.words("results", "--sort", "nn", expect=2)
    assert "leave out one of the two" in ask.words("results", "latest", "--since", "4d", expect=2)


def test_the_cost_counts_each_allocation_once(ask: Asked) -> None:
    found = ask.json("runs", "--cost", "--since", "40d")
    assert sum(one["run_count"] for one in found) == NIGHTS
    assert sum(one["job_count"] for one in found) == NIGHTS * len(NODES) * (len(NODES) - 1)
    seconds = ask.json(
        "sql", "SELECT sum(julianday(ended_utc) - julianday(started_utc)) * 86400 AS s FROM attempt WHERE ended_utc IS NOT NULL"
    )[0]["s"]
    assert sum(one["node_hours"] for one in found) == pytest.approx(2 * seconds / 3600, rel=0.01)


@pytest.mark.promise("An allocation that many pairs share costs once.")
def test_pairs_of_a_tournament_cost_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = History(tmp_path, pairs=(("n1", "n2"), ("n3", "n4")))
    made.night(-1)
    with writing(made.database) as database, transaction(database):
        database.execute(
            "UPDATE attempt SET tag = 'hpcq-g1/' || job_id, nodes = 'n1 n2 n3 n4', started_utc = '2026-11-20T02:00:00.0Z',"
            " ended_utc = '2026-11-20T02:30:00.0Z'"
        )
    [found] = Asked(made.database, capsys).json("runs", "--cost", "--since", "2026-11-01")
    assert (found["month"], found["job_count"], found["node_hours"]) == ("2026-11", 1, 2.0)


@pytest.mark.promise(
    "Where too little is known to suspect a node, `run --confirm` says that, and not that nobody is suspected."
)
def test_no_history_is_not_no_suspect(ask: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    with reading(ask.database) as connection:
        newest, *_, first = query.runs(connection)
        for row in (newest, first):
            looked = [replace(row, suspected_utc=row.created_utc)]
            _print_second_looks(_confirmed(connection, looked), looked)
    late, early = (one for one in capsys.readouterr().out.splitlines() if "to measure again" in one or "measured again:" in one)
    assert early == "alpha: nothing was measured again: too little is known of its nodes to suspect one"
    assert late.startswith("alpha: no suspect to measure again at ")

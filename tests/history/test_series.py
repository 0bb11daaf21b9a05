"""What belongs to one series, what a judge's word does, and what a retraction takes away."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcq.evidence.case import CrossedInterface, EvidenceVerdict, Finding, JudgedResult, Rule
from hpcq.store.load.cluster import load_run
from tests.store.run_folders import RunBuilder, ask, load, utc
from tests.store.test_store import builder, database

__all__ = ["builder", "database"]

pytestmark = pytest.mark.fast


# -- series ------------------------------------------------------------------------------------------------------------


def series_count(database: Path) -> int:
    return int(ask(database, "SELECT count(*) FROM series")[0])


def next_run(builder: RunBuilder, day: int, **changed: Any) -> RunBuilder:
    return RunBuilder(builder.runs, run=f"nightly-202611{day}T020000Z-0000", **changed)


@pytest.mark.heavy
def test_the_same_test_is_the_same_series(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    assert series_count(database) == 4  # two pairs, two kernels
    later = next_run(builder, 22, tests=tuple(reversed(builder.tests)), repetition_count=1, campaign="other")
    rebuilt = later.build_json()
    rebuilt["programs"]["hpcq-net"] |= {"build_id": "net-3333", "sha256": "f" * 64}
    later.folder.build("alpha").write_text(json.dumps(rebuilt))
    later.everything()
    load(database, later)
    assert series_count(database) == 4
    per_series = ask(database, "SELECT DISTINCT count(*) FROM result GROUP BY series_id")
    assert per_series == [4]
    changed = next_run(builder, 23, tests=(("tcp_stream", {"message_bytes": 1024}),))
    changed.everything()
    load(database, changed)
    assert series_count(database) == 6


def test_another_network_is_another_series(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    fabric = next_run(builder, 22, interface="hsn0")
    fabric.everything()
    load(database, fabric)
    assert series_count(database) == 8


@pytest.mark.heavy
def test_a_renamed_node_keeps_its_history(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE node SET name = 'rack1-n1' WHERE name = 'n1'")
    renamed = next_run(builder, 22, pairs=(("rack1-n1", "n2"), ("n2", "rack1-n1")))
    renamed.everything()
    load(database, renamed)
    old = next_run(builder, 20)  # an older run, loaded late, still says n1
    old.everything()
    load(database, old)
    assert series_count(database) == 4
    assert ask(database, "SELECT count(*) FROM v_results WHERE client = 'rack1-n1'") == [18]


@pytest.mark.heavy
def test_an_option_that_a_later_version_adds_does_not_split_history(
    builder: RunBuilder, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpcq import assets

    builder.everything()
    load(database, builder)
    described = tmp_path / "describe"
    described.mkdir()
    for path in assets.kernel_descriptions().glob("*.json"):
        description = json.loads(path.read_text())
        for kernel in description["kernels"]:
            new = {"name": "no_such_yet", "type": "boolean", "unit": None, "default": False}
            kernel["options"].append(new | {"minimum": None, "maximum": None, "choices": None, "help": ""})
        (described / path.name).write_text(json.dumps(description))
    monkeypatch.setattr(assets, "kernel_descriptions", lambda: described)
    later = next_run(builder, 22)
    later.everything()
    load(database, later)
    assert "no_such_yet" in later.planned(1)[1]
    assert series_count(database) == 4
    assert ask(database, "SELECT count(*) FROM v_parameters WHERE parameter = 'no_such_yet' AND value = 'false'") == [12]
    using = next_run(builder, 23, tests=(("tcp_stream", {"message_bytes": 65536, "no_such_yet": True}),))
    using.everything()
    load(database, using)
    assert series_count(database) == 6


# -- judging -----------------------------------------------------------------------------------------------------------


def test_a_judge_sees_the_line_and_facts_and_its_word_is_stored(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    rule = Rule("nic_drops", "the NIC dropped frames", "enlarge its rings", "ethtool(8)")
    seen: list[JudgedResult] = []

    def judge(judged: JudgedResult) -> EvidenceVerdict:
        seen.append(judged)
        if len(seen) > 2:
            return EvidenceVerdict(crossed_interface=CrossedInterface.YES)
        finding = Finding(rule, "server", "7 frames dropped", {"frame_count": 7})
        return EvidenceVerdict((finding,), True, CrossedInterface.NO, "the bytes did not cross eth0")

    report = load_run(database, builder.path, judge=judge)
    assert (report.clusters[0].invalid_count, report.clusters[0].measured_count) == (2, 10)
    assert seen[0].server_facts is not None
    assert seen[0].server_facts["boot"]["id"].startswith("boot-of-n")
    assert ask(database, 'SELECT DISTINCT rule, "end", message, advice, figures FROM v_findings') == [
        ("nic_drops", "server", "7 frames dropped", "enlarge its rings", '{"frame_count":7}')
    ]
    found = ask(database, "SELECT outcome, crossed_interface, disturbed, count(*) FROM v_results GROUP BY 1, 2, 3 ORDER BY 1")
    assert found == [("invalid", "no", 1, 2), ("measured", "yes", 0, 10)]


def test_a_retracted_result_leaves_the_views_but_not_the_database(builder: RunBuilder, database: Path) -> None:
    builder.everything()
    load(database, builder)
    with closing(sqlite3.connect(database)) as connection, connection:
        row = (1, utc(0), "somebody", "cable was unplugged")
        connection.execute("INSERT INTO retraction (result_id, retracted_utc, who, reason) VALUES (?, ?, ?, ?)", row)
    assert ask(database, "SELECT count(*) FROM v_results") == [11]
    assert ask(database, "SELECT count(DISTINCT result_id) FROM v_metrics") == [11]
    assert ask(database, "SELECT retracted FROM v_all_results WHERE result_id = 1") == ["cable was unplugged"]
